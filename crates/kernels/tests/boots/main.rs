//! Real kernels in a real QEMU: those packages that lie in the folder that `STOPGAP_KERNELS` names.
//!
//! The tests are skipped where there is no such folder, no QEMU, or no way to link a static program. Kernels for Arm:
//! `crates/cli/tests/all/kernels_real.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use stopgap_guest::protocol::Line;
use stopgap_kernels::machine::{Device, Machine};
use stopgap_kernels::qemu::Qemu;
use stopgap_kernels::{Architecture, Boot, End, Image, Initramfs, run_all};
use stopgap_testing::{Skip, skip};

/// The packages for amd64, smallest first.
fn packages() -> Result<Vec<PathBuf>, Skip> {
    let none =
        || Skip::image("linux-image packages for amd64 in the folder that STOPGAP_KERNELS names");
    let folder = std::env::var_os("STOPGAP_KERNELS").ok_or_else(none)?;
    let mut found: Vec<(u64, PathBuf)> = std::fs::read_dir(&folder)
        .map_err(|_| none())?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().ends_with("amd64.deb"))
        .map(|entry| (entry.metadata().map_or(0, |m| m.len()), entry.path()))
        .collect();
    found.sort();
    if found.is_empty() {
        return Err(none());
    }
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// `init.rs` as a static program.
fn program(folder: &Path) -> Result<Vec<u8>, Skip> {
    let crc = Line::Done { lines: 1 }.to_string();
    let crc = crc.split(' ').nth(1).unwrap();
    let source = include_str!("init.rs").replace("DONE_CRC", crc);
    let (from, to) = (folder.join("init.rs"), folder.join("init"));
    std::fs::write(&from, source).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(rustc)
        .args([
            "--edition",
            "2024",
            "-O",
            "-C",
            "target-feature=+crt-static",
            "-o",
        ])
        .args([&to, &from])
        .output()
        .map_err(|e| Skip::program(format!("rustc: {e}")))?;
    if !built.status.success() {
        let why = String::from_utf8_lossy(&built.stderr).into_owned();
        return Err(Skip::program(format!("a static C library: {why}")));
    }
    Ok(std::fs::read(&to).unwrap())
}

/// The parts of a boot.
struct Ready {
    qemu: Qemu,
    images: Vec<Image>,
    program: Vec<u8>,
}

fn ready() -> Result<Ready, Skip> {
    let packages = packages()?;
    let qemu = Qemu::find(Architecture::X86_64).map_err(Skip::program)?;
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path())?;
    let images = packages.iter().map(|path| {
        let began = Instant::now();
        let image = Image::open(path.to_str().unwrap()).unwrap();
        println!(
            "{} opened in {:.1} s",
            image.release.as_deref().unwrap(),
            began.elapsed().as_secs_f64()
        );
        image
    });
    Ok(Ready {
        qemu,
        images: images.collect(),
        program,
    })
}

impl Ready {
    fn machine(&self, image: &Image, seed: u64, end: &str) -> Machine {
        let initramfs = Initramfs::build(&self.program, "{}", &[], &[]).unwrap();
        let mut machine = Machine::new(self.qemu.clone(), image.clone(), initramfs, seed);
        machine.append.push(format!("stopgap_end={end}"));
        // The limit is the host's clock, and this may be a busy one.
        machine.limit = Duration::from_secs(600);
        machine
    }
}

fn run(machines: &[Machine]) -> Vec<Boot> {
    run_all(machines, 2, &AtomicBool::new(false), &mut |_, boot| {
        println!(
            "{:?} after {:.1} s {} {:?}",
            boot.end,
            boot.host_time.as_secs_f64(),
            boot.why,
            boot.lines.first()
        );
    })
    .unwrap()
}

#[test]
fn packages_are_known_and_boots_are_bit_identical() {
    let ready = match ready() {
        Ok(ready) => ready,
        Err(why) => return skip(&why),
    };
    let mut machines = Vec::new();
    for image in &ready.images {
        let release = image.release.as_deref().unwrap();
        assert_eq!(image.architecture, Architecture::X86_64);
        assert!(image.kernel.exists() && image.is_unpacked());
        assert_eq!(image.option("CONFIG_64BIT"), Some("y"));
        assert!(image.name.contains(release), "{release}");
        for seed in [1, 1, 2] {
            machines.push(ready.machine(image, seed, "done"));
        }
    }
    let boots = run(&machines);
    for (image, boots) in ready.images.iter().zip(boots.chunks(3)) {
        for boot in boots {
            assert_eq!(boot.end, End::PoweredOff, "{boot:#?}");
            // Some kernels say this last word in an emergency's tone, which `quiet` does not silence.
            let mut said = boot.console.iter();
            assert!(
                said.all(|line| line.ends_with("reboot: Power down")),
                "{boot:#?}"
            );
            assert_eq!(boot.lines.len(), 2);
        }
        // The last word of a line is the counter itself: the whole boot took as many instructions.
        assert_eq!(boots[0].lines, boots[1].lines, "{:?}", image.release);
        assert_ne!(boots[0].lines, boots[2].lines, "another sample");
    }
}

#[test]
fn each_end_is_told() {
    let ready = match ready() {
        Ok(ready) => ready,
        Err(why) => return skip(&why),
    };
    let image = &ready.images[0];
    let mut without_program = ready.machine(image, 1, "");
    without_program.initramfs = Initramfs::build(b"#!/nowhere\n", "{}", &[], &[]).unwrap();
    // As long as a boot takes here and now, and more.
    let whole = run(&[ready.machine(image, 1, "done")]).remove(0);
    assert!(whole.is_whole(), "{whole:#?}");
    let mut hang = ready.machine(image, 1, "hang");
    hang.limit = whole.host_time * 4 + Duration::from_secs(5);
    let mut late = ready.machine(image, 1, "done");
    late.limit = Duration::from_millis(300);
    let mut no_memory = ready.machine(image, 1, "done");
    no_memory.memory_mib = 1 << 30;
    let boots = run(&[
        ready.machine(image, 1, "panic"),
        ready.machine(image, 1, "early"),
        without_program,
        hang,
        late,
        no_memory,
    ]);
    assert_eq!(boots[0].end, End::Panicked);
    assert!(
        boots[0]
            .why
            .ends_with("Attempted to kill init! exitcode=0x00000100 (the guest program ended)"),
        "{}",
        boots[0].why
    );
    assert!(
        boots[0]
            .console
            .iter()
            .any(|line| line.contains("Call Trace")),
        "{:#?}",
        boots[0].console
    );
    assert_eq!(boots[1].end, End::PoweredOffEarly);
    assert_eq!(boots[1].lines.len(), 1);
    assert_eq!(boots[2].end, End::Panicked, "{:#?}", boots[2]);
    assert_eq!(boots[3].end, End::TimeLimit);
    assert_eq!(boots[3].lines.len(), 1);
    assert_eq!(boots[4].end, End::Silent);
    assert!(
        boots[4].why.contains("it has a serial console"),
        "{}",
        boots[4].why
    );
    assert_eq!(boots[5].end, End::QemuFailed, "{}", boots[5].why);
}

#[test]
fn devices_and_modules_of_real_packages() {
    let ready = match ready() {
        Ok(ready) => ready,
        Err(why) => return skip(&why),
    };
    // The largest one has the most modules.
    if let Some(image) = ready.images.last() {
        let release = image.release.as_deref();
        let resolved = image
            .modules
            .resolve(&["vgem", "vfio-pci", "udmabuf", "nowhere"], release)
            .unwrap();
        let names: Vec<&str> = resolved
            .modules
            .iter()
            .map(|module| module.name.as_str())
            .collect();
        println!("{release:?}: {names:?} {:?}", resolved.missing);
        assert!(resolved.missing.contains(&"nowhere".to_owned()));
        let at = |name: &str| names.iter().position(|has| *has == name);
        assert!(at("vfio_pci").is_none_or(|last| at("vfio_pci_core").unwrap() < last));
        assert!(
            resolved
                .modules
                .iter()
                .all(|module| module.bytes.starts_with(b"\x7fELF"))
        );
        let mut machine = ready.machine(image, 1, "done");
        machine.devices = vec![Device::Iommu, Device::Edu];
        let initramfs = Initramfs::build(&ready.program, "{}", &resolved.modules, &[]).unwrap();
        machine.initramfs = initramfs;
        let boots = run(&[machine.clone(), machine]);
        assert!(boots.iter().all(Boot::is_whole), "{boots:#?}");
        assert_eq!(boots[0].lines, boots[1].lines);
    }
}
