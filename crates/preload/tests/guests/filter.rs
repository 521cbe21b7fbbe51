//! Calls that this thread's kernel does not know: seccomp(2).

use std::ffi::c_void;

/// From now on `call` is answered by `action` where the low half of an argument is `word` (`BPF_JEQ`) or has a bit of it
/// (`BPF_JSET`).
pub(crate) fn filter(
    call: i64,
    argument: u32,
    test: u32,
    word: u32,
    action: u32,
) -> std::io::Result<()> {
    let step = |code: u32, k: u32, yes: u8, no: u8| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let jump = libc::BPF_JMP | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    /// Offset of the arguments in struct seccomp_data.
    const ARGUMENTS: u32 = 16;
    let mut program = [
        step(load, 0, 0, 0),
        step(jump | libc::BPF_JEQ, call as u32, 0, 3),
        step(load, ARGUMENTS + 8 * argument, 0, 0),
        step(jump | test, word, 0, 1),
        step(give, action, 0, 0),
        step(give, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program is as long as it says; what it does ends with the thread.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                mode,
                (&raw const program).cast::<c_void>(),
            ) == 0
    };
    if set {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}
