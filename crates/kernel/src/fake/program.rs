//! Programs that a test puts in place and executes.
//!
//! ```text
//! this test     open(copy, O_WRONLY)  write  close                 exec(copy)  -> ETXTBSY
//! another one                fork ......................... exec  (copy is open in this child until here)
//! ```
//!
//! A program that anybody has open for writing is not executed, and tests are threads of one process that start others:
//! each child holds what its parent had open when it was forked. So a child of its own writes it, which has ended by then.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Copies a program, with its mode.
///
/// # Panics
/// Where `cp` fails, with what it says.
pub fn install(from: &Path, to: &Path) {
    let output = Command::new("cp")
        .arg("-p")
        .arg("--")
        .args([from, to])
        .output();
    let output = output.expect("cp is part of coreutils, which every Debian has");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Writes a script (or another program) that everybody may execute. `to` with `.text` appended is left beside it.
///
/// # Panics
/// Where it cannot be written.
pub fn script(to: &Path, text: impl AsRef<[u8]>) {
    let mut beside = to.as_os_str().to_owned();
    beside.push(".text");
    let beside = Path::new(&beside);
    std::fs::write(beside, text).expect("the folder is the test's own");
    std::fs::set_permissions(beside, PermissionsExt::from_mode(0o755))
        .expect("the file is the test's own");
    install(beside, to);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The race itself: children are forked all the time while programs are put in place and executed.
    #[test]
    fn what_was_installed_can_be_executed_beside_forks() {
        let folder = tempfile::tempdir().unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    Command::new("true").status().unwrap();
                }
            });
            for number in 0..100 {
                let path = folder.path().join(number.to_string());
                script(&path, "#!/bin/sh\nexit 7\n");
                let status = Command::new(&path).status();
                let code = status.map(|status| status.code());
                if !matches!(code, Ok(Some(7))) {
                    done.store(true, std::sync::atomic::Ordering::Relaxed);
                    panic!("{number}: {code:?}");
                }
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
