//! The attacks in their short form, on the command that was built beside this test.

use std::path::Path;
use std::process::Command;

/// Runs an attack; returns its lines about what did not hold.
fn attack(words: &[&str], fault: &str) -> Vec<String> {
    let bench = Path::new(env!("CARGO_BIN_EXE_stopgap-bench"));
    if !bench.with_file_name("stopgap").exists() {
        stopgap_kernel::fake::skipped("attack: stopgap is not built: cargo build");
        return Vec::new();
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(bench)
        .arg("attack")
        .args(words)
        .args(["--seed", "1"])
        .current_dir(folder.path())
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(said.starts_with("seed 1, "), "{output:?}");
    let faults = said.lines().filter(|line| line.contains(fault));
    let faults: Vec<String> = faults.map(str::to_owned).collect();
    assert_eq!(output.status.success(), faults.is_empty(), "{output:?}");
    faults
}

#[test]
fn commands_that_are_killed_leave_nothing() {
    let words = ["kills", "--rounds", "20", "--only", "check-passive,compare"];
    let faults = attack(&words, ", round ");
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn changed_files_are_read_or_refused() {
    let faults = attack(&["mutants", "--per-format", "10"], "attack-mutants/");
    assert!(faults.is_empty(), "{faults:#?}");
}
