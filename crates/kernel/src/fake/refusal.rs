//! The running kernel made to refuse, for tests that need the rest of it for real.

use crate::error::{Error, Result};

/// Makes perf_event_open(2) fail with `EACCES` in the calling thread and in the children that
/// it starts, as the kernels of Debian and Ubuntu do for all users but root. It lasts as long
/// as the thread: a seccomp filter cannot be taken off.
///
/// # Errors
/// As prctl(2), where the kernel has no seccomp filters.
pub fn refuse_switch_records() -> Result<()> {
    let nr_at = std::mem::offset_of!(libc::seccomp_data, nr);
    let (nr_at, refused) = (nr_at as u32, libc::SYS_perf_event_open as u32);
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, nr_at),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, refused),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EACCES.cast_unsigned(),
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
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
