//! Maps through libc, whose functions the library replaces, and raw system calls, which it does not see.

#![allow(dead_code)] // each test uses a part

use std::ffi::{c_int, c_long};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub(crate) const PAGE: usize = 4096;

/// An errno.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.0 {
            libc::EPERM => "EPERM",
            libc::EIO => "EIO",
            libc::EAGAIN => "EAGAIN",
            libc::ENOMEM => "ENOMEM",
            libc::EFAULT => "EFAULT",
            libc::EINVAL => "EINVAL",
            libc::ENOSPC => "ENOSPC",
            libc::ENOSYS => "ENOSYS",
            other => return write!(f, "errno {other}"),
        };
        f.write_str(name)
    }
}

/// Makes a system call directly.
pub(crate) fn call(number: c_long, arguments: &[usize]) -> Result<usize, Errno> {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: the programs of this test answer for what their calls do to their own maps.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 {
        Err(errno())
    } else {
        Ok(result as usize)
    }
}

/// Returns the descriptor that a system call opens. `Err`: a reason to skip the program.
pub(crate) fn open(what: &str, number: c_long, arguments: &[usize]) -> Result<OwnedFd, String> {
    let fd = call(number, arguments).map_err(|errno| format!("{what}: {errno}"))?;
    // SAFETY: opened just now, by nobody else known.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// Checks the answer of one of libc's functions.
pub(crate) fn checked(result: isize) -> Result<usize, Errno> {
    if result == -1 {
        Err(errno())
    } else {
        Ok(result as usize)
    }
}

pub(crate) fn errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// Returns the answer in words: `ok`, or the errno.
pub(crate) fn answer<T>(result: Result<T, Errno>) -> String {
    result.map_or_else(|errno| errno.to_string(), |_| "ok".into())
}

pub(crate) fn number(fd: &impl AsRawFd) -> usize {
    fd.as_raw_fd() as usize
}

pub(crate) const READ_WRITE: usize = (libc::PROT_READ | libc::PROT_WRITE) as usize;
pub(crate) const PLAIN: usize = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
pub(crate) const NO_FILE: usize = usize::MAX;

/// A map. It stays until it is unmapped.
#[derive(Clone, Copy)]
pub(crate) struct Map {
    pub(crate) at: usize,
    pub(crate) length: usize,
}

impl Map {
    /// Maps through libc.
    pub(crate) fn new(pages: usize) -> Map {
        let length = pages * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a map without an address touches nothing that is there.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, 3, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", errno());
        Map {
            at: at as usize,
            length,
        }
    }

    /// Maps through libc, and writes `byte` to all of it.
    pub(crate) fn filled(pages: usize, byte: u8) -> Map {
        let map = Map::new(pages);
        map.fill(byte);
        map
    }

    /// Maps by a raw system call.
    pub(crate) fn bare(pages: usize) -> Map {
        let length = pages * PAGE;
        let at = call(libc::SYS_mmap, &[0, length, READ_WRITE, PLAIN, NO_FILE]);
        Map {
            at: at.expect("a map"),
            length,
        }
    }

    /// Returns some pages of the map.
    pub(crate) fn part(self, from: usize, pages: usize) -> Map {
        Map {
            at: self.at + from * PAGE,
            length: pages * PAGE,
        }
    }

    pub(crate) fn fill(self, byte: u8) {
        // SAFETY: a map of this program's, which nobody looks at meanwhile.
        unsafe { std::ptr::write_bytes(self.at as *mut u8, byte, self.length) };
    }

    pub(crate) fn put(self, at: usize, byte: u8) {
        // SAFETY: as above.
        unsafe { ((self.at + at) as *mut u8).write_volatile(byte) };
    }

    pub(crate) fn get(self, at: usize) -> u8 {
        // SAFETY: as above.
        unsafe { ((self.at + at) as *const u8).read_volatile() }
    }

    pub(crate) fn all(self, byte: u8) -> bool {
        // SAFETY: as above.
        all(
            unsafe { std::slice::from_raw_parts(self.at as *const u8, self.length) },
            byte,
        )
    }

    /// Unmaps through libc.
    pub(crate) fn try_unmap(self) -> Result<(), Errno> {
        // SAFETY: the program does not touch it any more.
        let done = unsafe { libc::munmap(self.at as *mut libc::c_void, self.length) };
        checked(done as isize).map(drop)
    }

    pub(crate) fn unmap(self) {
        assert_eq!(self.try_unmap(), Ok(()));
    }

    /// Unmaps through libc, and maps as much again.
    pub(crate) fn again(self) -> Map {
        self.unmap();
        Map::new(self.length / PAGE)
    }

    /// Advises by a raw system call.
    pub(crate) fn advise(self, advice: c_int) -> Result<usize, Errno> {
        call(libc::SYS_madvise, &[self.at, self.length, advice as usize])
    }
}

pub(crate) fn all(bytes: &[u8], byte: u8) -> bool {
    // Each as the next one: quick in a debug build, too.
    match bytes {
        [] => true,
        [first, rest @ ..] => *first == byte && *rest == bytes[..rest.len()],
    }
}

/// Opens a pipe for at least `bytes`. Returns the ends to read from and to write to.
pub(crate) fn pipe(bytes: usize) -> [OwnedFd; 2] {
    let (reads, writes) = std::io::pipe().expect("a pipe");
    let pipe = [OwnedFd::from(reads), OwnedFd::from(writes)];
    // SAFETY: a pipe of this program's.
    let size = unsafe { libc::fcntl(pipe[1].as_raw_fd(), libc::F_SETPIPE_SZ, bytes as c_int) };
    assert!(size as usize >= bytes, "{}", errno());
    pipe
}

/// Reads exactly `length` bytes.
pub(crate) fn read(fd: &impl AsRawFd, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut from = 0;
    while from < length {
        let (at, room) = (bytes[from..].as_mut_ptr(), length - from);
        // SAFETY: the buffer is as long as it says.
        let got = unsafe { libc::read(fd.as_raw_fd(), at.cast(), room) };
        let got = checked(got).expect("what was written can be read");
        assert_ne!(got, 0, "{from} of {length} bytes");
        from += got;
    }
    bytes
}

/// Writes all of `bytes`.
pub(crate) fn write(fd: &impl AsRawFd, bytes: &[u8]) {
    // SAFETY: the buffer is as long as it says.
    let done = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    assert_eq!(checked(done), Ok(bytes.len()));
}

/// Creates a file in memory.
pub(crate) fn memfd(length: usize) -> OwnedFd {
    let name = c"references".as_ptr() as usize;
    let fd = open("memfd_create", libc::SYS_memfd_create, &[name, 0]).expect("a file of memory");
    assert_eq!(call(libc::SYS_ftruncate, &[number(&fd), length]), Ok(0));
    fd
}

/// How often something happened.
#[derive(Default)]
pub(crate) struct Count {
    bad: usize,
    rounds: usize,
}

impl Count {
    pub(crate) fn add(&mut self, bad: bool) {
        self.bad += usize::from(bad);
        self.rounds += 1;
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.bad, self.rounds)
    }
}

/// Works in a forked child. Returns the child's exit status.
pub(crate) fn in_a_child(work: impl FnOnce() -> u8) -> u8 {
    // SAFETY: the program has one thread; the child works and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", errno());
    if child == 0 {
        let status = work();
        // SAFETY: nothing of the parent's is run.
        unsafe { libc::_exit(status.into()) };
    }
    wait_for(child)
}

/// Waits for a child. Returns its wait status.
pub(crate) fn status_of(child: c_int) -> c_int {
    let mut status = 0;
    // SAFETY: `status` is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// Waits for a child that exits. Returns its exit status.
pub(crate) fn wait_for(child: c_int) -> u8 {
    let status = status_of(child);
    assert!(libc::WIFEXITED(status), "a child ended with {status:#x}");
    libc::WEXITSTATUS(status) as u8
}

/// Reads a byte of this process through the kernel: an address without access is an errno and no signal.
pub(crate) fn peek(at: usize) -> Result<u8, Errno> {
    let mut byte = 0_u8;
    let local = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: 1,
    };
    let (local, remote) = (&raw const local as usize, &raw const remote as usize);
    let pid = std::process::id() as usize;
    call(libc::SYS_process_vm_readv, &[pid, local, 1, remote, 1])?;
    Ok(byte)
}

/// Returns `VmFlags` of the map at an address, from `/proc/self/smaps`.
pub(crate) fn vm_flags(at: usize) -> String {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("/proc is mounted");
    let mut inside = false;
    for line in text.lines() {
        if let Some((range, _)) = line.split_once(' ')
            && let Some((start, end)) = range.split_once('-')
            && let (Ok(start), Ok(end)) = (
                usize::from_str_radix(start, 16),
                usize::from_str_radix(end, 16),
            )
        {
            inside = start <= at && at < end;
        }
        if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
            return flags.trim().to_owned();
        }
    }
    "none".to_owned()
}

/// Returns a number of KiB of `/proc/self/status`.
pub(crate) fn status_kib(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim_start_matches(':').trim().strip_suffix(" kB"));
    number.and_then(|number| number.parse().ok()).expect("KiB")
}
