//! Locking memory, limits of that, and triggers of memory pressure.

use std::ffi::{CStr, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MlockFlags};

use super::call;
use crate::error::{Error, Result};

fn pointer(address: usize) -> *mut c_void {
    address as *mut c_void
}

/// Locks `length` bytes from `address` on: all of it resident now, or with `on_fault` what is or becomes so. A range
/// that is not mapped is an error and not a fault.
pub(crate) fn lock(address: usize, length: usize, on_fault: bool) -> Result<()> {
    if on_fault {
        let asked = call("mlock2", || {
            // SAFETY: locking changes neither what is mapped nor what it holds.
            unsafe { rustix::mm::mlock_with(pointer(address), length, MlockFlags::ONFAULT) }
        });
        match asked {
            // Before Linux 4.4.
            Err(error) if error.is(&[Errno::NOSYS, Errno::INVAL]) => {}
            other => return other,
        }
    }
    call("mlock", || {
        // SAFETY: as above.
        unsafe { rustix::mm::mlock(pointer(address), length) }
    })
}

/// Unlocks it again.
pub(crate) fn unlock(address: usize, length: usize) -> Result<()> {
    call("munlock", || {
        // SAFETY: as above.
        unsafe { rustix::mm::munlock(pointer(address), length) }
    })
}

/// A second descriptor of the same file.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    call("fcntl(F_DUPFD_CLOEXEC)", || {
        rustix::io::fcntl_dupfd_cloexec(fd, 0)
    })
}

/// Bytes of a file.
pub(crate) fn size(fd: BorrowedFd<'_>) -> Result<u64> {
    let stat = call("fstat", || rustix::fs::fstat(fd))?;
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// A memfd's seals. What cannot be sealed is no file in memory: of one on a disk the contents would be lost for good.
pub(crate) fn seals(fd: BorrowedFd<'_>) -> Result<SealFlags> {
    match call("fcntl(F_GET_SEALS)", || rustix::fs::fcntl_get_seals(fd)) {
        Err(error) if error.is(&[Errno::INVAL]) => Err(Error::invalid("a file that is no memfd")),
        other => other,
    }
}

/// Unmaps a mapped part of a shared file's pages: it then reads as zero, in every mapping.
///
/// A mapping that is locked refuses it; [`super::memory::punch`] does not.
///
/// # Safety
/// The memory is handed out as nothing but addresses, and the holders know that it may become zero.
pub(crate) unsafe fn remove_mapped(address: usize, length: usize) -> Result<()> {
    call("madvise(MADV_REMOVE)", || {
        // SAFETY: the caller's.
        unsafe { rustix::mm::madvise(pointer(address), length, Advice::LinuxRemove) }
    })
}

/// `RLIMIT_MEMLOCK` in bytes; `None`: unlimited.
pub(crate) fn memlock() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

/// Whether the limit binds this thread. A capability within a user namespace alone does not lift it; then the kernel
/// refuses what this allows.
pub(crate) fn bound_by_memlock() -> Result<bool> {
    let own = call("capget", || rustix::thread::capabilities(None))?;
    Ok(!own
        .effective
        .contains(rustix::thread::CapabilitySet::IPC_LOCK))
}

/// Opens a file of pressure stall information and arms a trigger in it. The trigger is text that is written: another
/// file would hold it, so what the file is comes first.
pub(crate) fn trigger(path: &Path, text: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = call("open", || rustix::fs::open(path, flags, Mode::empty()))?;
    if !tells_pressure(&fd)? {
        return Err(Error::invalid(
            "pressure: the file is neither /proc/pressure/memory nor a cgroup's memory.pressure",
        ));
    }
    // With its closing NUL: the kernel overwrites the last byte (psi_write()).
    call("write", || rustix::io::write(&fd, text.to_bytes_with_nul()))?;
    Ok(fd)
}

/// Whether it is the kernel's own file of pressure: on procfs or cgroup2, and reads as one.
fn tells_pressure(fd: &OwnedFd) -> Result<bool> {
    /// `PROC_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC` of <linux/magic.h>.
    const KERNELS: [u64; 2] = [0x9fa0, 0x6367_7270];
    const BEGIN: [u8; 11] = *b"some avg10=";
    let system = call("fstatfs", || rustix::fs::fstatfs(fd))?;
    // Its type's width and sign differ between machines.
    #[allow(clippy::unnecessary_cast, trivial_numeric_casts)]
    let system = system.f_type as u64;
    if !KERNELS.contains(&system) {
        return Ok(false);
    }
    let mut begin = [0; BEGIN.len()];
    let read = call("pread", || rustix::io::pread(fd, &mut begin, 0))?;
    Ok(read == BEGIN.len() && begin == BEGIN)
}

/// A file that one thread wakes another by.
pub(crate) fn event() -> Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    call("eventfd2", || rustix::event::eventfd(0, flags))
}

/// Makes [`event`]'s file readable.
pub(crate) fn wake(event: BorrowedFd<'_>) -> Result<()> {
    call("write", || {
        match rustix::io::write(event, &1_u64.to_ne_bytes()) {
            // It is readable already.
            Err(Errno::AGAIN) => Ok(()),
            other => other.map(drop),
        }
    })
}

/// Result of [`poll`] for one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The event has come.
    pub(crate) there: bool,
    /// Its other end, or what it is about, is gone.
    pub(crate) gone: bool,
}

/// Waits for `what` on each file, without end or (`wait` false) not at all. A signal ends it with nothing there.
pub(crate) fn poll<const N: usize>(
    fds: [(BorrowedFd<'_>, PollFlags); N],
    wait: bool,
) -> Result<[Ready; N]> {
    let mut polled = fds.map(|(fd, what)| PollFd::from_borrowed_fd(fd, what));
    let none = Timespec::default();
    let count = call("poll", || {
        match rustix::event::poll(&mut polled, (!wait).then_some(&none)) {
            Err(Errno::INTR) => Ok(0),
            other => other,
        }
    })?;
    Ok(std::array::from_fn(|i| {
        let found = match count {
            0 => PollFlags::empty(),
            _ => polled[i].revents(),
        };
        Ready {
            there: found.intersects(fds[i].1),
            gone: found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
        }
    }))
}
