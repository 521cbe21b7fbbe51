//! The kernel, called directly: never through the functions that this library stands in for, and without `errno`.

#![allow(unsafe_code)]

use std::ffi::c_int;

use syscalls::{Sysno, syscall};

/// An errno, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// Bytes of a base page. x86-64 has no other; on other machines the window is not made where it differs.
pub(crate) const PAGE: usize = 4096;

macro_rules! call {
    ($name:ident $(, $argument:expr)*) => {
        // SAFETY: the caller of the wrapper answers for what the call does to memory; the registers are the kernel's
        // convention, which the crate `syscalls` carries out.
        unsafe { syscall!(Sysno::$name $(, $argument)*) }.map_err(|errno| Errno(errno.into_raw()))
    };
}

/// mmap(2), as it is.
#[inline]
pub(crate) fn mmap(
    address: usize,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> Result<usize> {
    call!(mmap, address, length, protection, flags, fd, offset)
}

/// mremap(2), as it is.
#[inline]
pub(crate) fn mremap(
    old: usize,
    old_length: usize,
    new_length: usize,
    flags: c_int,
    new: usize,
) -> Result<usize> {
    call!(mremap, old, old_length, new_length, flags, new)
}

/// Defines system calls, as they are, that return nothing.
macro_rules! plain {
    ($($name:ident($($argument:ident: $type:ty),*) = $number:ident;)*) => {
        $(
            #[inline]
            pub(crate) fn $name($($argument: $type),*) -> Result<()> {
                call!($number $(, $argument)*).map(drop)
            }
        )*
    };
}

plain! {
    munmap(address: usize, length: usize) = munmap;
    mprotect(address: usize, length: usize, protection: c_int) = mprotect;
    pkey_mprotect(address: usize, length: usize, protection: c_int, key: c_int) = pkey_mprotect;
    madvise(address: usize, length: usize, advice: c_int) = madvise;
    mlock(address: usize, length: usize) = mlock;
    mlock2(address: usize, length: usize, flags: c_int) = mlock2;
    mlockall(flags: c_int) = mlockall;
    prlimit(pid: c_int, resource: u32, new: *const libc::rlimit64, old: *mut libc::rlimit64) = prlimit64;
}

/// Whether a file is of hugetlbfs.
pub(crate) fn is_hugetlbfs(fd: c_int) -> bool {
    const MAGIC: libc::c_long = 0x9584_58f6;
    // SAFETY: all zeroes are a valid statfs; the kernel fills it or fails.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    call!(fstatfs, fd, &raw mut about).is_ok() && about.f_type == MAGIC
}

/// Reads which pages of a range are resident, a byte a page; `false` where the kernel refuses.
#[inline]
pub(crate) fn resident(address: usize, pages: &mut [u8]) -> bool {
    call!(mincore, address, pages.len() * PAGE, pages.as_mut_ptr()).is_ok()
}

/// sched_yield(2).
pub(crate) fn let_others_run() {
    let _ = call!(sched_yield);
}

/// Does `work`, whose writes end nobody: a pipe that nobody reads (SIGPIPE) and a limit of files (SIGXFSZ) are the
/// program's to die of where the program writes, and not where we do.
fn quietly(work: impl FnOnce()) {
    /// Bytes of the kernel's set of signals.
    const SIZE: usize = 8;
    let ours = 1_u64 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1);
    let (mut before, mut waiting) = (0_u64, 0_u64);
    let (set, old) = (&raw const ours, &raw mut before);
    if call!(rt_sigprocmask, libc::SIG_BLOCK, set, old, SIZE).is_err() {
        return;
    }
    let _ = call!(rt_sigpending, &raw mut waiting, SIZE);
    work();
    // Takes the signals of these writes. A signal that waited before is the program's.
    let new = ours & !waiting;
    let no_time = [0_i64; 2];
    for _ in 0..2 {
        let (info, time) = (std::ptr::null::<u8>(), no_time.as_ptr());
        let _ = call!(rt_sigtimedwait, &raw const new, info, time, SIZE);
    }
    let none = std::ptr::null::<u8>();
    let _ = call!(
        rt_sigprocmask,
        libc::SIG_SETMASK,
        &raw const before,
        none,
        SIZE
    );
}

/// Writes to a file descriptor, all of it or what can be.
pub(crate) fn write(fd: c_int, text: &[u8]) {
    quietly(|| write_all(fd, text));
}

fn write_all(fd: c_int, mut text: &[u8]) {
    while !text.is_empty() {
        match call!(write, fd, text.as_ptr(), text.len()) {
            Ok(0) => return,
            Ok(written) => text = text.get(written..).unwrap_or_default(),
            Err(Errno(libc::EINTR)) => {}
            Err(_) => return,
        }
    }
}

/// Opens a file to add to its end, made where there is none; `path` ends with a 0.
pub(crate) fn open_to_add(path: *const libc::c_char) -> Result<c_int> {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    let opened = call!(openat, libc::AT_FDCWD, path, flags, 0o600);
    opened.map(|fd| c_int::try_from(fd).unwrap_or(-1))
}

/// close(2).
pub(crate) fn close(fd: c_int) {
    let _ = call!(close, fd);
}

/// This process's id.
pub(crate) fn pid() -> usize {
    call!(getpid).unwrap_or(0)
}

/// Zeroes memory.
///
/// # Safety
/// All of it is mapped, writable, and nobody else's.
pub(crate) unsafe fn zero(address: usize, length: usize) {
    // SAFETY: by this function's contract.
    unsafe { std::ptr::write_bytes(address as *mut u8, 0, length) };
}
