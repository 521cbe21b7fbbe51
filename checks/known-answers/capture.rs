//! The BPF programs on other kernels: crates/capture/examples/self_check.rs runs in a guest on each package of a kernel, and
//! says itself whether its waits are as many as that kernel counts switches.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use stopgap_guest::protocol::{Cell, Plan, Transcript, Work};
use stopgap_kernels::qemu::Qemu;
use stopgap_kernels::{Image, Initramfs, InitramfsFile, Machine, run_all};
use stopgap_testing::{Skip, skip};

use crate::{CELL_LIMIT, LIMIT, static_program, text};

const SELF_CHECK: &str = "/stopgap/self_check";

#[test]
fn waits_are_counted_right_on_every_kernel() {
    let Some(folder) = std::env::var_os("STOPGAP_KERNELS").map(PathBuf::from) else {
        return skip(&Skip::image(
            "STOPGAP_KERNELS names no folder with packages of kernels",
        ));
    };
    let packages = std::fs::read_dir(&folder).unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let name = path.file_name()?.to_str()?;
        (name.starts_with("linux-image-") && name.ends_with(".deb")).then_some(path)
    });
    let mut packages: Vec<PathBuf> = packages.collect();
    packages.sort();
    let mut checked = 0;
    for package in packages {
        let image = Image::open(package.to_str().unwrap()).unwrap();
        let release = image.release.clone().unwrap_or_default();
        let Some((init, check)) = programs(image.architecture.name()) else {
            skip(&Skip::image(format!(
                "{release}: STOPGAP_GUEST_ARM64 and STOPGAP_SELF_CHECK_ARM64 name no programs (checks/aarch64-guest/build)"
            )));
            continue;
        };
        let said = self_check(image, &init, check);
        println!("{release}: {}", said.trim_end());
        assert!(said.starts_with("right: "), "{release}: {said}");
        assert!(
            said.contains("2 threads as the kernel counts"),
            "{release}: {said}"
        );
        checked += 1;
    }
    if checked == 0 {
        skip(&Skip::image("no package of a kernel"));
    }
}

/// The guest's first process and the check, linked statically; `None` where those of arm64 are not given.
fn programs(architecture: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    if architecture == "x86_64" {
        let of = |package, program| static_program(&workspace, package, program);
        return Some((
            of("stopgap-guest", "stopgap-guest"),
            of("stopgap-capture", "self_check"),
        ));
    }
    let given = |variable: &str| std::fs::read(std::env::var_os(variable)?).ok();
    Some((
        given("STOPGAP_GUEST_ARM64")?,
        given("STOPGAP_SELF_CHECK_ARM64")?,
    ))
}

/// What the check prints in a guest.
fn self_check(image: Image, init: &[u8], check: Vec<u8>) -> String {
    let cell = Cell {
        name: "self check".to_owned(),
        work: Work::Command {
            argv: vec![SELF_CHECK.to_owned()],
            files: Vec::new(),
            limit: CELL_LIMIT,
        },
    };
    let plan = serde_json::to_string(&Plan::new(vec![cell])).unwrap();
    let file = InitramfsFile {
        path: SELF_CHECK.to_owned(),
        bytes: check,
        executable: true,
    };
    let initramfs = Initramfs::build(init, &plan, &[], &[file]).unwrap();
    let qemu = Qemu::find(image.architecture).unwrap();
    let machine = Machine {
        limit: LIMIT,
        ..Machine::new(qemu, image, initramfs, 1)
    };
    let mut boots = run_all(&[machine], 1, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    let boot = boots.pop().unwrap();
    let console = boot.console.join("\n");
    assert!(boot.is_whole(), "{}\n{console}", boot.why);
    let transcript = Transcript::read(&boot.lines).unwrap();
    let told = text(&transcript, "self check", "stdout");
    match told.is_empty() {
        true => format!(
            "nothing: {}\n{console}",
            text(&transcript, "self check", "stderr")
        ),
        false => told,
    }
}
