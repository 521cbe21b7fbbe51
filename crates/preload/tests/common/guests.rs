//! This test again, with the library preloaded, as a guest that does one thing.

use std::process::{Command, Output};
use std::sync::LazyLock;

#[path = "mod.rs"]
mod common;

pub(crate) const CASE: &str = "STOPGAP_TEST_GUEST";

pub(crate) static LIBRARY: LazyLock<std::path::PathBuf> = LazyLock::new(common::library);

/// This test as a guest of `case`.
pub(crate) fn guest_of(case: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "guest", "--nocapture", "--test-threads=1"])
        .env("LD_PRELOAD", &*LIBRARY)
        .env("STOPGAP_REPORT", "1")
        .env(CASE, case);
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs it, which must succeed, and returns the lines of the reports.
pub(crate) fn run(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    reports(&output)
}

fn reports(output: &Output) -> Vec<String> {
    let told = text(&output.stderr);
    let lines = told
        .lines()
        .filter(|line| line.starts_with("stopgap-preload: "));
    lines.map(str::to_owned).collect()
}

/// A number of a report.
pub(crate) fn number(report: &str, name: &str) -> u64 {
    let words = report.split(' ');
    let mut found =
        words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    found
        .next()
        .unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// Returns the permissions that `/proc/self/maps` shows at an address.
pub(crate) fn shown(at: usize) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut lines = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |word| usize::from_str_radix(word, 16).unwrap();
        (number(start) <= at && at < number(end)).then(|| rest[..4].to_owned())
    });
    lines.next()
}
