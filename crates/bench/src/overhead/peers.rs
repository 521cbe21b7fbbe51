//! What other tools cost the same pair. They write nothing to a disk, and what they print goes nowhere.

use std::process::{Command, Stdio};

use stopgap_cli::Failure;
use stopgap_probes::roundtrip::{Cell, Cost};

use super::pair;
use super::recording::{Recorder, Run};
use super::table::Table;

/// A tool's name in the table, and the words before the command.
const PEERS: [(&str, &[&str]); 4] = [
    ("strace -f -c", &["strace", "-f", "-c", "-o", "/dev/null"]),
    ("strace -f", &["strace", "-f", "-o", "/dev/null"]),
    ("perf trace", &["perf", "trace", "-o", "/dev/null", "--"]),
    (
        "perf record (sched)",
        &[
            "perf",
            "record",
            "-q",
            "-o",
            "/dev/null",
            "-e",
            "sched:sched_switch",
            "-e",
            "sched:sched_waking",
            "--",
        ],
    ),
];
/// They are slow: one in so many of the round trips.
const SHARE: u64 = 20;

/// A line for each, held against `table`'s runs that were not recorded; one run each.
pub(super) fn run(recorder: &Recorder<'_>, table: &Table) -> Vec<String> {
    let round_trips = (recorder.round_trips() / SHARE).max(1_000);
    let none = table.median(0, Run::cpu);
    let mut lines = vec![format!(
        "other tools, one run of {round_trips} round trips each:\n"
    )];
    lines.extend(
        PEERS
            .iter()
            .map(|(name, words)| match one(recorder, words, round_trips) {
                Ok(cost) => {
                    let per = |figure: u64| figure as f64 / cost.round_trips.max(1) as f64;
                    let (cpu, switches) = (per(cost.cpu.0), per(cost.switches.total()));
                    format!(
                        "{name:<22}{cpu:>14.0}{:>23.2}x{switches:>14.3}\n",
                        cpu / none
                    )
                }
                Err(why) => format!("skipped: {name}: {why}\n"),
            }),
    );
    lines
}

fn one(recorder: &Recorder<'_>, words: &[&str], round_trips: u64) -> Result<Cost, String> {
    let (command, file) = recorder.command(&Cell::PLAIN, round_trips);
    let _ = std::fs::remove_file(&file); // or an older cost would pass for this one's
    let output = Command::new(words[0])
        .args(&words[1..])
        .args(command)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", words[0]))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        let first = told.lines().next().unwrap_or_default();
        return Err(format!(
            "{} {}",
            output.status,
            stopgap_report::text::plain(first)
        ));
    }
    pair::read(&file).map_err(|failure| match failure {
        Failure::Told { message, .. } => message,
        Failure::Silent { .. } => "it wrote nothing".to_owned(),
    })
}
