//! Recording on a kernel that is locked down, while somebody sets the clock, and while the machine is suspended.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde_json::Value;
use stopgap_guest::protocol::{Cell, Plan, Transcript, Work};
use stopgap_kernels::qemu::Qemu;
use stopgap_kernels::{Image, Initramfs, InitramfsFile, Machine, Module, run_all};
use stopgap_testing::{Skip, skip};

use crate::survive::smallest;
use crate::{CELL_LIMIT, KNOWN, LIMIT, STOPGAP, static_program, text};

/// A sleep of `known` in nanoseconds, and by how much it may be longer: the guest has one CPU, and others use it.
const NAP: u64 = 300_000_000;
const LATE: u64 = 60_000_000;

/// Boots with these words on the kernel's command line, and runs the commands one after the other; `None` where there is no kernel.
fn boot(append: &[&str], commands: &[(&str, &str)], real_time: bool) -> Option<Transcript> {
    let folder = std::env::var_os("STOPGAP_KERNELS").map(PathBuf::from);
    let Some(package) = folder.and_then(|folder| smallest(&folder)) else {
        skip(&Skip::image(
            "STOPGAP_KERNELS names no folder with a package of a kernel 6.12 for amd64",
        ));
        return None;
    };
    let cells = commands
        .iter()
        .map(|(name, command)| cell(name, command, &[]));
    let cells = cells.collect();
    Some(boot_package(&package, &[], append, cells, real_time))
}

/// A command, and the files that it leaves for us.
pub(crate) fn cell(name: &str, command: &str, files: &[&str]) -> Cell {
    Cell {
        name: name.to_owned(),
        work: Work::Command {
            argv: command.split(' ').map(str::to_owned).collect(),
            files: files.iter().map(|&file| file.to_owned()).collect(),
            limit: CELL_LIMIT,
        },
    }
}

/// Boots this kernel with these of its modules, and runs the cells.
pub(crate) fn boot_package(
    package: &Path,
    modules: &[&str],
    append: &[&str],
    cells: Vec<Cell>,
    real_time: bool,
) -> Transcript {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let init = static_program(&workspace, "stopgap-guest", "stopgap-guest");
    let files = [
        (
            STOPGAP,
            static_program(&workspace, "stopgap-cli", "stopgap"),
        ),
        (
            KNOWN,
            static_program(&own, "stopgap-check-known-answers", "known"),
        ),
    ];
    let files = files.map(|(path, bytes)| InitramfsFile {
        path: path.to_owned(),
        bytes,
        executable: true,
    });
    let image = Image::open(package.to_str().unwrap()).unwrap();
    let modules = image
        .modules
        .resolve(modules, image.release.as_deref())
        .unwrap();
    assert!(modules.missing.is_empty(), "{:?}", modules.missing);
    let plan = Plan {
        modules: modules.modules.iter().map(Module::path).collect(),
        ..Plan::new(cells)
    };
    let plan = serde_json::to_string(&plan).unwrap();
    let initramfs = Initramfs::build(&init, &plan, &modules.modules, &files).unwrap();
    let qemu = Qemu::find(image.architecture).unwrap();
    let machine = Machine {
        limit: LIMIT,
        append: append.iter().map(|&word| word.to_owned()).collect(),
        real_time,
        ..Machine::new(qemu, image, initramfs, 1)
    };
    let mut boots = run_all(&[machine], 1, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    let boot = boots.pop().unwrap();
    let console = boot.console.join("\n");
    assert!(boot.is_whole(), "{}\n{console}", boot.why);
    let transcript = Transcript::read(&boot.lines).unwrap();
    for ran in &transcript.ran {
        let ended = ran
            .status
            .map_or("a signal".to_owned(), |status| status.to_string());
        println!("-- {} ended with {ended}", ran.name);
        let [out, err] = ["stdout", "stderr"].map(|file| text(&transcript, &ran.name, file));
        if !ran.name.ends_with("jsonl") {
            print!("{out}");
        }
        print!("{err}");
    }
    transcript
}

pub(crate) fn status(transcript: &Transcript, cell: &str) -> Option<i32> {
    let ran = transcript.ran.iter().find(|ran| ran.name == cell);
    ran.unwrap_or_else(|| panic!("{cell}: {:?}", transcript.failed))
        .status
}

fn rows(transcript: &Transcript, cell: &str) -> Vec<Value> {
    let rows = text(transcript, cell, "stdout");
    rows.lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect()
}

/// Checks that these are the lengths of the sleeps of `known`, in the order in which they are in the trace.
fn are_naps(rows: &[Value], count: usize) {
    let naps = rows.iter().filter(|row| {
        let call = row["syscall_name"].as_str();
        row["kind"] == "wait" && row["comm"] == "known" && call == Some("clock_nanosleep")
    });
    let length = |row: &Value| Some(row["time_ns"].as_u64()? - row["left_ns"].as_u64()?);
    // What sets the clock sleeps for a third of that.
    let lengths: Vec<u64> = naps
        .filter_map(length)
        .filter(|&length| length > NAP / 2)
        .collect();
    println!("{lengths:?} ns");
    assert_eq!(lengths.len(), count);
    let fits = |length: &u64| (NAP..NAP + LATE).contains(length);
    assert!(lengths.iter().all(fits), "{lengths:?}");
}

#[test]
fn what_a_locked_down_kernel_refuses_is_said() {
    let record = |flags: &str| format!("{STOPGAP} record {flags} -- {KNOWN} naps");
    let commands = [
        ("lockdown", format!("{KNOWN} lockdown")),
        ("bpf", record("--source bpf -o /tmp/bpf.parquet")),
        ("record", record("-o /tmp/any.parquet")),
        ("doctor", format!("{STOPGAP} doctor")),
        ("watch", format!("{STOPGAP} watch -d 1s -o /tmp/watch")),
    ];
    let commands = commands
        .each_ref()
        .map(|(name, command)| (*name, &**command));
    for (level, statuses) in [
        ("integrity", [0, 0, 0, 0, 0]),
        ("confidentiality", [0, 125, 0, 0, 3]),
    ] {
        println!("== {level}");
        let Some(said) = boot(&[&format!("lockdown={level}")], &commands, false) else {
            return;
        };
        let ended = commands.map(|(name, _)| status(&said, name));
        assert_eq!(ended, statuses.map(Some));
        let has = |cell: &str, file: &str, words: &[&str]| {
            let text = text(&said, cell, file);
            // Tables break lines.
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for word in words {
                assert!(text.contains(word), "{cell}: no '{word}' in {text}");
            }
        };
        has("lockdown", "stdout", &[&format!("[{level}]")]);
        if level == "integrity" {
            assert_eq!(text(&said, "record", "stderr"), "");
            has("record", "stdout", &["lost none"]);
            has("doctor", "stdout", &["BPF: every wait of all threads"]);
            continue;
        }
        let why = "lockdown 'confidentiality' lets no program read the kernel's memory";
        for cell in ["bpf", "record", "watch"] {
            assert_eq!(text(&said, cell, "stderr").lines().count(), 1, "{cell}");
            has(cell, "stderr", &[why, "boot with lockdown=integrity"]);
        }
        let by_perf = "recording by perf, because there is no bpf: ";
        has(
            "record",
            "stderr",
            &[by_perf, "; no tracefs: it has no files"],
        );
        let doctor = "perf: switches and counters (no BPF: lockdown 'confidentiality'";
        has("doctor", "stdout", &[doctor]);
    }
}

/// Nobody's sleeps become longer or shorter because the clock is set, and a watch goes on.
#[test]
fn the_clock_may_be_set_meanwhile() {
    let watch = format!("{STOPGAP} watch --slow any=250ms --psi off -d 15s -o /tmp/watch");
    let record = format!("{STOPGAP} record --only -o /tmp/t.parquet -- {KNOWN} naps");
    let history = format!("{STOPGAP} watch --history -24h -o /tmp/watch");
    let commands = [
        ("record", &*record),
        (
            "jsonl",
            &format!("{STOPGAP} export --to jsonl -o - /tmp/t.parquet"),
        ),
        ("beside", &format!("{KNOWN} beside -- {watch}")),
        ("history", &*history),
    ];
    let Some(said) = boot(&[], &commands, false) else {
        return;
    };
    for (name, _) in commands {
        assert_eq!(status(&said, name), Some(0), "{name}");
    }
    are_naps(&rows(&said, "jsonl"), 4);
    // One page: the same stall again within 15 s has none.
    let pages = text(&said, "beside", "stdout");
    assert!(pages.contains("lock, 100 % of 70"), "{pages}");
    let history = text(&said, "history", "stdout");
    let all = "threads lost most time waiting for a lock: 9";
    assert!(
        history.starts_with(all) && history.contains("of the 2."),
        "{history}"
    );
    assert!(history.contains("15.0 s of watching"), "{history}");
}

/// No wait holds the time in which the machine was suspended; recording and watching go on after it.
#[test]
fn the_machine_may_be_suspended_meanwhile() {
    let watch = format!("{STOPGAP} watch --psi off -d 12s -o /tmp/watch");
    let record = format!("{STOPGAP} record -o /tmp/t.parquet -- {KNOWN} suspend");
    let commands = [
        ("record", &*record),
        (
            "jsonl",
            &format!("{STOPGAP} export --to jsonl -o - /tmp/t.parquet"),
        ),
        ("explain", &format!("{STOPGAP} explain /tmp/t.parquet")),
        ("beside", &format!("{KNOWN} suspend -- {watch}")),
    ];
    let Some(said) = boot(&[], &commands, true) else {
        return;
    };
    for (name, _) in commands {
        assert_eq!(status(&said, name), Some(0), "{name}");
    }
    let suspended = |text: &str| -> u64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("suspended "));
        line.and_then(|line| line.strip_suffix(" ms")?.parse().ok())
            .unwrap()
    };
    let recorded = text(&said, "record", "stdout");
    assert!(suspended(&recorded) > 1500, "{recorded}");
    assert!(recorded.contains("lost      none"), "{recorded}");
    let missing = "missing   time in which the machine was suspended: ";
    assert!(recorded.contains(missing), "{recorded}");
    // Of the kernel's threads some sleep as long as the recording takes.
    let longest = rows(&said, "jsonl")
        .iter()
        .filter(|row| row["kind"] == "wait" && row["comm"] == "known")
        .filter_map(|row| Some(row["time_ns"].as_u64()? - row["left_ns"].as_u64()?))
        .max();
    println!("longest wait {longest:?}");
    assert!(longest.is_some_and(|ns| ns < 1_400_000_000), "{longest:?}");
    let pages = text(&said, "beside", "stdout");
    assert!(suspended(&pages) > 1500, "{pages}");
    assert!(pages.contains("lock, 100 % of 7"), "{pages}");
}
