//! The attacks in their short form, on the command that was built beside this test.

use std::path::Path;
use std::process::Command;

fn attack(words: &[&str]) {
    let bench = Path::new(env!("CARGO_BIN_EXE_stopgap-bench"));
    if !bench.with_file_name("stopgap").exists() {
        return stopgap_kernel::fake::skipped("attack: stopgap is not built: cargo build");
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
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(said.starts_with("seed 1, "), "{said}");
}

#[test]
fn commands_that_are_killed_leave_nothing() {
    attack(&["kills", "--rounds", "20", "--only", "check-passive,compare"]);
}

#[test]
fn changed_files_are_read_or_refused() {
    attack(&["mutants", "--per-format", "100"]);
}
