//! `stopgap kernels` on real kernels in a real QEMU: the Debian packages in the folder that `STOPGAP_KERNELS` names, with
//! the guest's program that `STOPGAP_GUEST` names (for arm64 kernels: `STOPGAP_GUEST_ARM64`). `.ci/full kernels` has them; elsewhere
//! the skip names what is missing.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{Run, root, text, valid};
use stopgap_guest::protocol::Counts;
use stopgap_kernels::judge::{Cell, Kernels, Word};
use stopgap_testing::{Skip, skip};

/// The kernels and the guest program of one architecture.
struct Real {
    /// Cloud kernels of 6.1 and 6.12.
    old: String,
    new: String,
    guest: PathBuf,
}

fn real() -> Option<Real> {
    found("amd64", "qemu-system-x86_64", "STOPGAP_GUEST")
        .map_err(|why| skip(&why))
        .ok()
}

fn arm() -> Option<Real> {
    found("arm64", "qemu-system-aarch64", "STOPGAP_GUEST_ARM64")
        .map_err(|why| skip(&why))
        .ok()
}

/// The cloud kernels of one of Debian's architectures, its emulator, and the program that `variable` names.
fn found(architecture: &str, qemu: &str, variable: &str) -> Result<Real, Skip> {
    let folder = std::env::var_os("STOPGAP_KERNELS")
        .ok_or_else(|| Skip::image("STOPGAP_KERNELS names no folder of linux-image packages"))?;
    let files = std::fs::read_dir(&folder).map_err(Skip::image)?;
    let names: Vec<String> = files
        .flatten()
        .map(|file| file.path().display().to_string())
        .collect();
    let cloud = |release: &str| {
        let start = format!("linux-image-{release}.");
        let flavour = format!("cloud-{architecture}_");
        let mut fit = names.iter().filter(|name| {
            let file = name.rsplit('/').next().unwrap_or_default();
            file.starts_with(&start) && file.contains(&flavour) && file.ends_with(".deb")
        });
        let none = || {
            let what = format!("{folder:?} has no cloud kernel of {release} for {architecture}");
            Skip::image(what)
        };
        fit.next().cloned().ok_or_else(none)
    };
    let (old, new) = (cloud("6.1")?, cloud("6.12")?);
    let guest = std::env::var_os(variable).ok_or_else(|| {
        let why =
            format!("{variable} names no guest program (docs/kernels.md says how it is built)");
        Skip::image(why)
    })?;
    let version = Command::new(qemu).arg("--version").output();
    version.map_err(|error| Skip::program(format!("{qemu}: {error}")))?;
    Ok(Real {
        old,
        new,
        guest: guest.into(),
    })
}

/// The record of `stopgap kernels WORDS` with that guest, of which every count repeats.
fn measured(run: &Run, guest: &Path, words: &[&str]) -> Kernels {
    let mut all = vec!["kernels", "--json"];
    all.extend(words);
    let mut command = run.command(&all);
    let output = command.env("STOPGAP_GUEST", guest).output().unwrap();
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

/// Some of the standard suite, all of which `.ci/full kernels` runs once: what fits into two minutes.
const SOME: &str = "pbobench:1000,pbobench:10000,roundtrip,fork";

/// 6.12 takes fewer instructions a buffer than 6.1 by 15 to 40 %, at each N, in five layouts, the fewest that are judged; and
/// beside two busy loops every count of every operation is what it was.
#[test]
fn two_debian_kernels_differ_as_they_must_on_any_host() {
    let Some(real) = real() else { return };
    let run = Run::new();
    let words = [&*real.old, &*real.new, "--workloads", SOME, "--seeds", "5"];
    let record = measured(&run, &real.guest, &words);
    for row in &record.against[0].rows {
        let figures = row
            .median
            .as_ref()
            .map(|f| (&f.before, &f.after, f.change, f.spread));
        println!("{}: {} {figures:?} {}", row.name(), row.word, row.why);
    }
    for n in [1_000, 10_000] {
        let cell = format!("pbobench N={n}");
        let mut rows = record.against[0].rows.iter();
        let row = rows
            .find(|row| row.cell == cell && row.operation == "churn")
            .unwrap();
        let share = row.median.as_ref().unwrap().share.unwrap();
        assert_eq!(row.word, Word::Shorter, "{cell}: {row:#?}");
        assert!((-0.40..=-0.15).contains(&share), "{cell}: {share}");
    }
    for word in ["pbobench", "roundtrip", "fork"] {
        let mut cells = record.kernels[0].cells.iter();
        assert!(cells.any(|cell| cell.cell.starts_with(word)), "{word}");
    }

    let busy = [Busy::new(), Busy::new()];
    let words = [&*real.old, &*real.new, "--workloads", SOME, "--seeds", "1"];
    let beside = measured(&run, &real.guest, &words);
    drop(busy);
    for (idle, busy) in record.kernels.iter().zip(&beside.kernels) {
        assert_eq!(idle.cells.len(), busy.cells.len());
        for (idle, busy) in idle.cells.iter().zip(&busy.cells) {
            assert_eq!(
                idle.seeds[..1],
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
    let words = [
        &*real.new,
        &*real.new,
        "--workloads",
        SOME,
        "--gate",
        "--seeds",
        "2",
    ];
    let record = measured(&run, &real.guest, &words);
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
        return skip(&Skip::root("kernels as nobody"));
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

/// Arm's, under one layout: counts repeat, they are of single instructions, and the SMMU is behind what is mapped for DMA.
#[test]
fn arms_kernels_are_counted_by_the_instruction() {
    let Some(arm) = arm() else { return };
    let run = Run::new();
    let workloads = "pbobench:1000,roundtrip,fork,vfio 4K,vfio 2M";
    let words = [
        &*arm.old,
        &*arm.new,
        "--workloads",
        workloads,
        "--seeds",
        "1",
        "--limit",
        "600s",
    ];
    let record = measured(&run, &arm.guest, &words);
    for kernel in &record.kernels {
        assert_eq!(kernel.architecture, "aarch64");
        let line = kernel.command_line.join(" ");
        assert!(line.contains("virt,iommu=smmuv3"), "{line}");
        assert!(line.contains("cntfrq=1000000000"), "{line}");
        for cell in &kernel.cells {
            let (of, median) = (&cell.seeds[0], cell.seeds[0].median);
            println!(
                "{} {} {}: {median} x{}",
                kernel.name, cell.cell, cell.operation, of.operations
            );
        }
        // A counter that steps by several instructions gives multiples of that.
        let counted = |operation: &str| {
            let mut cells = kernel.cells.iter();
            cells
                .find(|cell| cell.operation == operation)
                .unwrap()
                .seeds[0]
                .clone()
        };
        let (map, churn) = (counted("map"), counted("churn"));
        let odd = |counts: &Counts| counts.pairs().iter().any(|(count, _)| count % 2 == 1);
        assert!(odd(&map.counts) && odd(&churn.counts), "{map:?}");
        // Larger pages take fewer instructions to map for a device.
        let dma = |page: &str| {
            let mut cells = kernel.cells.iter();
            let of = |cell: &&Cell| cell.operation == "dma map" && cell.cell == page;
            cells.find(of).unwrap().seeds[0].median
        };
        assert!(dma("vfio 4K") > 2 * dma("vfio 2M"));
    }
    // A buffer takes fewer instructions in 6.12 than in 6.1 here, too.
    let mut rows = record.against[0].rows.iter();
    let churn = rows.find(|row| row.operation == "churn").unwrap();
    assert!(churn.median.as_ref().unwrap().change < 0.0, "{churn:#?}");
}
