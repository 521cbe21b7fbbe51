//! System V shared memory. rustix has none of it; these are its system calls and not libc's functions.

use rustix::io::Errno;

use super::call;
use crate::error::Result;

/// The last call's error. `libc::syscall` leaves it where libc's functions do.
fn errno() -> Errno {
    let raw = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(raw.unwrap_or(libc::EIO))
}

/// A segment that no key names, readable and writable for this user alone; its identifier.
pub(crate) fn get(length: usize) -> Result<i32> {
    call("shmget", || {
        let flags = libc::IPC_CREAT | 0o600;
        // SAFETY: takes integers only.
        let id = unsafe { libc::syscall(libc::SYS_shmget, libc::IPC_PRIVATE, length, flags) };
        i32::try_from(id)
            .ok()
            .filter(|&id| id >= 0)
            .ok_or_else(errno)
    })
}

/// Attaches a segment where nothing else lies; its address.
pub(crate) fn attach(id: i32) -> Result<usize> {
    call("shmat", || {
        // SAFETY: with no address given the kernel chooses one that nothing uses.
        let address = unsafe { libc::syscall(libc::SYS_shmat, id, 0_usize, 0_i32) };
        if address == -1 {
            return Err(errno());
        }
        Ok(address.cast_unsigned() as usize)
    })
}

/// Detaches what [`attach`] gave.
///
/// # Safety
/// Nothing refers into it any more.
pub(crate) unsafe fn detach(address: usize) -> Result<()> {
    call("shmdt", || {
        // SAFETY: the caller's.
        match unsafe { libc::syscall(libc::SYS_shmdt, address) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    })
}

fn control(name: &'static str, id: i32, command: i32) -> Result<()> {
    call(name, || {
        // SAFETY: none of the commands used here reads or writes the buffer that the third argument would name; an
        // identifier of nothing is an error.
        match unsafe { libc::syscall(libc::SYS_shmctl, id, command, 0_usize) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    })
}

/// Has the segment end with its last attachment.
pub(crate) fn remove(id: i32) -> Result<()> {
    control("shmctl(IPC_RMID)", id, libc::IPC_RMID)
}

/// Flags the segment: its pages are not for reclaim. Moves none of them.
pub(crate) fn lock(id: i32) -> Result<()> {
    control("shmctl(SHM_LOCK)", id, libc::SHM_LOCK)
}

/// Takes the flag away and puts its pages back on the lists, all of them in one call.
pub(crate) fn unlock(id: i32) -> Result<()> {
    control("shmctl(SHM_UNLOCK)", id, libc::SHM_UNLOCK)
}
