//! A fence of a real driver that is signalled late, on Debian's kernels that have vgem: `explain` names driver, timeline, who
//! submitted the work and who was late (checks/known-stalls/README.md, x).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use stopgap_guest::protocol::Transcript;
use stopgap_testing::{Skip, skip};

use crate::states::{boot_package, cell, status};
use crate::{KNOWN, LATE, STOPGAP, run, static_program, text};

const FENCE: &str = "waited for a fence of vgem (timeline unbound), submitted by submitter";
const MS: u64 = 1_000_000;

#[test]
fn a_late_fence_of_vgem_has_its_submitter() {
    let folder = std::env::var_os("STOPGAP_KERNELS").map(PathBuf::from);
    let packages = folder.map_or_else(Vec::new, |folder| with_vgem(&folder));
    if packages.is_empty() {
        return skip(&Skip::image(
            "STOPGAP_KERNELS names no folder with a generic kernel 6.1 or 6.12 for amd64, which has vgem",
        ));
    }
    let work = tempfile::tempdir().unwrap();
    let stopgap = work.path().join("stopgap");
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let program = static_program(&workspace, "stopgap-cli", "stopgap");
    fs::write(&stopgap, program).unwrap();
    fs::set_permissions(&stopgap, PermissionsExt::from_mode(0o755)).unwrap();
    for package in packages {
        println!("== {}", package.display());
        let said = record(&package);
        let explained = |name: &str| {
            let trace = work.path().join(name);
            let bytes = &said.files[&(Some(name.to_owned()), trace_of(name))];
            fs::write(&trace, bytes).unwrap();
            let explain = |flags: &[&str]| {
                run(Command::new(&stopgap)
                    .arg("explain")
                    .args(flags)
                    .arg(&trace))
            };
            println!("-- {name}\n{}", explain(&[]));
            serde_json::from_str::<Value>(&explain(&["--json"])).unwrap()
        };
        let slept = |who: &str| format!("{who} slept in clock_nanosleep");
        let of_device = "the device, with work of submitter";
        let (mut named, mut all) = (0, 0);
        for (name, who, how) in [
            ("submitter", "submitter", slept("submitter")),
            ("signaller", "signaller", slept("signaller")),
            ("tracefs", "signaller", slept("signaller")),
            ("nobody", "submitter", of_device.to_owned()),
        ] {
            let findings = explained(name);
            let rounds = if name == "nobody" { 1 } else { 3 };
            let each = if rounds == 1 { 10_000 } else { 500 };
            let found = is_late(name, &findings, rounds * each * MS, (who, how.as_str()));
            (named, all) = (named + found.0, all + found.1);
        }
        assert!(all >= 10 && named * 2 > all, "{named} of {all} fences");
        // The same program, whose fences are signalled in time.
        let findings = explained("prompt");
        let verdict = &findings["verdict"];
        assert_eq!(verdict["word"], "clean", "{}", verdict["text"]);
        // The kernel has no event of a fence that is polled: it is a wait for work then, but who was late is found.
        let findings = explained("poll");
        let wait = wait_for(&findings, "events");
        let link = &wait["links"][0];
        assert_eq!(wait["task"], "waiter", "{wait}");
        assert_eq!(
            (&link["task"], &link["text"]),
            (&"submitter".into(), &slept("submitter").into()),
            "{wait}"
        );
    }
}

/// The waits for `cause` that took most.
fn wait_for<'f>(findings: &'f Value, cause: &str) -> &'f Value {
    let waits = findings["chains"]["waiting"].as_array().unwrap();
    let of_it = waits.iter().filter(|wait| wait["cause"] == cause);
    let most = of_it.max_by_key(|wait| wait["total_ns"].as_u64());
    most.unwrap_or_else(|| panic!("no {cause} in {waits:?}"))
}

/// Debian's generic kernels; cloud and rt have another word behind the version.
fn with_vgem(folder: &Path) -> Vec<PathBuf> {
    let packages = fs::read_dir(folder).unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let name = path.file_name()?.to_str()?;
        let (release, version) = name.strip_prefix("linux-image-")?.split_once('_')?;
        let is_generic = !release.contains("-cloud") && !release.contains("-rt");
        let is_one = is_generic && release.ends_with("-amd64") && version.ends_with("_amd64.deb");
        is_one.then_some(path)
    });
    let mut packages: Vec<PathBuf> = packages.collect();
    packages.sort();
    packages
}

fn trace_of(name: &str) -> String {
    format!("/tmp/{name}.parquet")
}

/// Records each variant of `known fence` in a guest.
fn record(package: &Path) -> Transcript {
    let variants = [
        ("submitter", "submitter", ""),
        ("signaller", "signaller", ""),
        ("tracefs", "signaller", " --source tracefs --events all"),
        ("nobody", "nobody", ""),
        ("prompt", "prompt", ""),
        ("poll", "poll", ""),
    ];
    // Recording by tracefs keeps in /run what it changes.
    let mut cells = vec![cell("mounts", &format!("{KNOWN} mounts"), &[])];
    cells.extend(variants.map(|(name, who, flags)| {
        let trace = trace_of(name);
        let command = format!("{STOPGAP} record{flags} -o {trace} -- {KNOWN} fence {who}");
        cell(name, &command, &[&trace])
    }));
    let said = boot_package(package, &["vgem"], &[], cells, false);
    assert!(said.missing.is_empty(), "{:?}", said.missing);
    for (name, ..) in variants {
        assert_eq!(status(&said, name), Some(0), "{name}");
        let told = text(&said, name, "stdout");
        assert!(told.contains("lost      none"), "{name}: {told}");
    }
    said
}

/// Checks that the waiter lost `planted_ns` by fences, because of `who`, who did `how`. Returns how many of its waits have driver, timeline
/// and submitter, and how many there are.
fn is_late(name: &str, findings: &Value, planted_ns: u64, (who, how): (&str, &str)) -> (u64, u64) {
    let verdict = findings["verdict"]["text"].as_str().unwrap();
    assert_eq!(findings["verdict"]["word"], "stalls", "{name}: {verdict}");
    assert!(verdict.contains("fence"), "{name}: {verdict}");
    let waits = findings["chains"]["waiting"].as_array().unwrap();
    let (mut total_ns, mut named, mut all) = (0, 0, 0);
    for wait in waits.iter().filter(|wait| wait["cause"] == "fence") {
        let of = (&wait["task"], &wait["call"]);
        assert_eq!(of, (&"waiter".into(), &"ioctl".into()), "{name}: {wait}");
        let count = wait["waits"].as_u64().unwrap();
        total_ns += wait["total_ns"].as_u64().unwrap();
        all += count;
        if wait["text"] != FENCE {
            continue;
        }
        named += count;
        let link = &wait["links"][0];
        let of = (&link["task"], &link["text"]);
        assert_eq!(of, (&who.into(), &how.into()), "{name}: {link}");
        assert!(link["share"].as_f64().unwrap() > 0.97, "{name}: {link}");
        let blamed = &findings["chains"]["blame"][0];
        assert_eq!(blamed["task"], who, "{name}: {blamed}");
    }
    let latest = planted_ns as f64 * (1.0 + LATE);
    let fits = total_ns >= planted_ns && total_ns as f64 <= latest;
    assert!(fits, "{name}: {total_ns} ns, not {planted_ns} ns");
    (named, all)
}
