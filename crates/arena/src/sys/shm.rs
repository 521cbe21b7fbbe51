//! System V shared memory, which rustix does not have.

use syscalls::{Sysno, syscall};

use super::{call, errno};
use crate::error::Result;

/// Makes a segment that no key names, readable and writable for this user. Returns its identifier.
pub(crate) fn get(length: usize) -> Result<i32> {
    let flags = libc::IPC_CREAT | 0o600;
    call("shmget", || {
        // SAFETY: takes nothing but integers.
        let id = unsafe { syscall!(Sysno::shmget, libc::IPC_PRIVATE, length, flags) };
        // An identifier is an int.
        id.map(|id| id as i32).map_err(errno)
    })
}

/// Attaches a segment where nothing else lies. Returns its address.
pub(crate) fn attach(id: i32) -> Result<usize> {
    call("shmat", || {
        // SAFETY: with no address given the kernel chooses one that nothing uses.
        unsafe { syscall!(Sysno::shmat, id, 0, 0) }.map_err(errno)
    })
}

/// Detaches what [`attach`] gave.
///
/// # Safety
/// Nothing refers into it any more.
pub(crate) unsafe fn detach(address: usize) -> Result<()> {
    call("shmdt", || {
        // SAFETY: the caller's.
        unsafe { syscall!(Sysno::shmdt, address) }
            .map(drop)
            .map_err(errno)
    })
}

fn control(name: &'static str, id: i32, command: i32) -> Result<()> {
    call(name, || {
        // SAFETY: none of the commands used here reads or writes the buffer that the third argument would name; an
        // identifier of nothing is an error.
        unsafe { syscall!(Sysno::shmctl, id, command, 0) }
            .map(drop)
            .map_err(errno)
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
