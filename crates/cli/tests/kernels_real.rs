//! `stopgap kernels` on real kernels in a real QEMU: the Debian packages in the folder that `STOPGAP_KERNELS` names, with
//! the guest's program that `STOPGAP_GUEST` names. `.ci/run` has both; elsewhere it is said what is missing.

mod common;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use common::{Run, root, text, valid};
use stopgap_kernel::fake::skipped;
use stopgap_stats::kernels::{Kernels, Word};

/// What the tests need.
struct Real {
    /// Cloud kernels of 6.1 and 6.12.
    old: String,
    new: String,
    guest: PathBuf,
}

fn real() -> Option<Real> {
    let found = || -> Result<Real, String> {
        let folder = std::env::var_os("STOPGAP_KERNELS")
            .ok_or("STOPGAP_KERNELS names no folder of linux-image packages")?;
        let guest = std::env::var_os("STOPGAP_GUEST")
            .ok_or("STOPGAP_GUEST names no guest program (docs/kernels.md says how it is built)")?;
        let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
        qemu.map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        let files = std::fs::read_dir(&folder).map_err(|error| error.to_string())?;
        let names: Vec<String> = files
            .flatten()
            .map(|file| file.path().display().to_string())
            .collect();
        let cloud = |release: &str| {
            let start = format!("linux-image-{release}.");
            let mut fit = names.iter().filter(|name| {
                let file = name.rsplit('/').next().unwrap_or_default();
                file.starts_with(&start) && file.contains("cloud-amd64_") && file.ends_with(".deb")
            });
            let none = || format!("{folder:?} has no cloud kernel of {release}");
            fit.next().cloned().ok_or_else(none)
        };
        Ok(Real {
            old: cloud("6.1")?,
            new: cloud("6.12")?,
            guest: guest.into(),
        })
    };
    match found() {
        Ok(real) => Some(real),
        Err(why) => {
            skipped(format!("kernels: {why}"));
            None
        }
    }
}

/// The record of `stopgap kernels WORDS`, of which every count repeats.
fn measured(run: &Run, words: &[&str]) -> Kernels {
    let mut all = vec!["kernels", "--json"];
    all.extend(words);
    let output = run.command(&all).output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    let json = text(&output.stdout);
    valid("stopgap.kernels-1.json", &json);
    let record: Kernels = serde_json::from_str(&json).unwrap();
    assert!(record.missing.is_empty(), "{:#?}", record.missing);
    for kernel in &record.kernels {
        assert!(!kernel.cells.is_empty(), "{}", kernel.name);
        for cell in &kernel.cells {
            for sample in &cell.seeds {
                let which = (&kernel.name, &cell.cell, &cell.operation, sample.seed);
                assert_eq!(sample.repeats, Some(true), "{which:?}");
            }
        }
    }
    record
}

/// A loop that leaves no CPU alone, ended with its owner.
struct Busy(Child);

impl Busy {
    fn new() -> Busy {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        Busy(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// 6.12 takes fewer instructions a buffer than 6.1 by 15 to 40 %, at each N; and beside two busy loops every count of every
/// operation is what it was.
#[test]
fn two_debian_kernels_differ_as_they_must_on_any_host() {
    let Some(real) = real() else { return };
    let run = Run::new();
    let record = measured(&run, &[&real.old, &real.new]);
    for row in &record.against[0].rows {
        let figures = row
            .median
            .as_ref()
            .map(|f| (&f.before, &f.after, f.change, f.spread));
        println!("{}: {} {figures:?} {}", row.name(), row.word, row.why);
    }
    for n in [1_000, 10_000, 40_000] {
        let cell = format!("pbobench N={n}");
        let mut rows = record.against[0].rows.iter();
        let row = rows
            .find(|row| row.cell == cell && row.operation == "churn")
            .unwrap();
        let share = row.median.as_ref().unwrap().share.unwrap();
        assert_eq!(row.word, Word::Shorter, "{cell}: {row:#?}");
        assert!((-0.40..=-0.15).contains(&share), "{cell}: {share}");
    }
    for word in ["pbobench", "agua", "freegap-posted", "roundtrip", "fork"] {
        let mut cells = record.kernels[0].cells.iter();
        assert!(cells.any(|cell| cell.cell.starts_with(word)), "{word}");
    }

    let busy = [Busy::new(), Busy::new()];
    let beside = measured(&run, &[&real.old, &real.new, "--seeds", "2"]);
    drop(busy);
    for (idle, busy) in record.kernels.iter().zip(&beside.kernels) {
        assert_eq!(idle.cells.len(), busy.cells.len());
        for (idle, busy) in idle.cells.iter().zip(&busy.cells) {
            assert_eq!(
                idle.seeds[..2],
                busy.seeds[..],
                "{}, {}",
                idle.cell,
                idle.operation
            );
        }
    }
}

#[test]
fn a_kernel_against_itself_is_exactly_nothing() {
    let Some(real) = real() else { return };
    let run = Run::new();
    let words = [&*real.new, &*real.new, "--gate", "--seeds", "2"];
    let record = measured(&run, &words);
    for row in &record.against[0].rows {
        assert_eq!(row.word, Word::Identical, "{}", row.name());
        let differences = &row.median.as_ref().unwrap().differences;
        assert!(differences.iter().all(|&difference| difference == 0.0));
    }
}

#[test]
fn nobody_may_do_it() {
    let Some(real) = real() else { return };
    if !root() {
        skipped("kernels as nobody: needs root to become nobody");
        return;
    }
    let run = Run::new();
    let words = [
        "kernels",
        &real.old,
        &real.new,
        "--workloads",
        "fork",
        "--seeds",
        "1",
    ];
    let mut command = run.as_nobody(&words);
    let guest = run.directory.path().join("nobody").join("guest");
    std::fs::copy(&real.guest, &guest).unwrap();
    command
        .env("STOPGAP_GUEST", guest)
        .env("PATH", std::env::var_os("PATH").unwrap());
    let output = command.output().unwrap();
    let (out, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(out.contains("what this cannot tell"), "{out}");
    let words: Vec<&str> = out.split_whitespace().collect();
    assert!(words.join(" ").contains("1 layout; 5 are needed"), "{out}");
}
