//! Tests that need a process to themselves: limits, signals, namespaces, and counting what is left.

use std::process::Command;

/// Set in the process that runs the test itself.
const MARK: &str = "STOPGAP_ARENA_OWN_PROCESS";

/// Runs the test that calls it, which it is given, in a process of its own: true there, and the test goes on; false here,
/// when that has passed.
///
/// # Panics
/// Where that did not pass.
pub(crate) fn own_process<T: Fn()>(_: T) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let name = std::any::type_name::<T>();
    let (_, name) = name.split_once("::").expect("a test of this crate");
    let itself = std::env::current_exe().expect("a test has a file");
    let output = Command::new(itself)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .output()
        .expect("a test can be started again");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{name} in a process of its own: {}\n{text}{errors}",
        output.status
    );
    false
}
