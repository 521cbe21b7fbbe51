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

use crate::error::{Error, Result};

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

// The running kernel made to refuse, for tests that need the rest of it for real.

/// Makes perf_event_open(2) fail with `EACCES` in the calling thread and in the children that
/// it starts, as the kernels of Debian and Ubuntu do for all users but root. It lasts as long
/// as the thread: a seccomp filter cannot be taken off.
///
/// # Errors
/// As prctl(2), where the kernel has no seccomp filters.
pub fn refuse_switch_records() -> Result<()> {
    refuse(libc::SYS_perf_event_open, None, libc::EACCES)
}

/// As [`refuse_switch_records`], of bpf(2).
///
/// # Errors
/// As there.
pub fn refuse_bpf() -> Result<()> {
    refuse(libc::SYS_bpf, None, libc::EACCES)
}

/// As [`refuse_bpf`], of one `command` of bpf(2), which fails with `errno`.
///
/// # Errors
/// As there.
pub fn refuse_bpf_command(command: u32, errno: i32) -> Result<()> {
    refuse(libc::SYS_bpf, Some(command), errno)
}

/// `first`: only where the call's first argument is that.
fn refuse(call: libc::c_long, first: Option<u32>, errno: i32) -> Result<()> {
    let nr_at = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    // Its lower half: bpf(2) takes an int.
    let first_at = std::mem::offset_of!(libc::seccomp_data, args) as u32
        + if cfg!(target_endian = "little") { 0 } else { 4 };
    let refused = call as u32;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = |at: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    // Another value: past the rest, to the last step.
    let equals =
        |value: u32, rest: u8| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, rest, value);
    let end = |action: u32| step(libc::BPF_RET | libc::BPF_K, 0, 0, action);
    let fails = end(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned());
    let allowed = end(libc::SECCOMP_RET_ALLOW);
    let mut filter = match first {
        None => vec![load(nr_at), equals(refused, 1), fails, allowed],
        Some(first) => vec![
            load(nr_at),
            equals(refused, 3),
            load(first_at),
            equals(first, 1),
            fails,
            allowed,
        ],
    };
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its filter outlive the call, which copies them.
    let status = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(Error::last("prctl", "PR_SET_SECCOMP"))
    }
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
