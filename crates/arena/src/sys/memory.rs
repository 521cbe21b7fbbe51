//! Mappings, memfds, and the word that threads sleep on.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU32;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::thread::futex;

use super::{call, errno, lengthen, page};
use crate::error::{Error, Result};

/// A range of addresses: where it starts, and its bytes. Whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

impl Span {
    fn pointer(self) -> *mut core::ffi::c_void {
        ptr::with_exposed_provenance_mut(self.start)
    }
}

/// Maps anonymous private memory wherever the kernel likes: readable and writable, or without access. `flags` beside
/// `MAP_PRIVATE`: `MAP_NORESERVE`, or none.
pub(crate) fn map(bytes: usize, accessible: bool, flags: MapFlags) -> Result<Span> {
    let start = call("mmap", || {
        let flags = MapFlags::PRIVATE | flags;
        // SAFETY: without an address the kernel chooses one that nothing uses.
        unsafe { mm::mmap_anonymous(ptr::null_mut(), bytes, access(accessible), flags) }
    })?;
    Ok(Span {
        start: start.expose_provenance(),
        bytes,
    })
}

/// [`map`] at a multiple of `align`, a power of two: more is mapped, and what is too much is unmapped.
pub(crate) fn map_aligned(
    bytes: usize,
    align: usize,
    accessible: bool,
    flags: MapFlags,
) -> Result<Span> {
    let whole = bytes.checked_add(align.saturating_sub(page()));
    let whole = map(whole.ok_or(Error::NoRoom { bytes })?, accessible, flags)?;
    // No overflow: both lie inside what was mapped.
    let start = whole.start.next_multiple_of(align.max(1));
    let end = whole.start + whole.bytes;
    let between = |from: usize, to: usize| Span {
        start: from,
        bytes: to - from,
    };
    let mut rest = whole.start;
    for span in [between(whole.start, start), between(start + bytes, end)] {
        if span.bytes == 0 {
            continue;
        }
        // SAFETY: mapped just now, known to nobody.
        if let Err(error) = unsafe { unmap(span) } {
            // SAFETY: as above; what was trimmed before, which may be somebody else's by now, is left out.
            let _ = unsafe { unmap(between(rest, end)) };
            return Err(error);
        }
        rest = start;
    }
    Ok(Span { start, bytes })
}

/// Maps a part of a file, shared, wherever the kernel likes.
pub(crate) fn map_file(
    file: BorrowedFd<'_>,
    offset: u64,
    bytes: usize,
    protection: ProtFlags,
    flags: MapFlags,
) -> Result<Span> {
    let start = call("mmap", || {
        let flags = MapFlags::SHARED | flags;
        // SAFETY: without an address the kernel chooses one that nothing uses.
        unsafe { mm::mmap(ptr::null_mut(), bytes, protection, flags, file, offset) }
    })?;
    Ok(Span {
        start: start.expose_provenance(),
        bytes,
    })
}

fn access(accessible: bool) -> ProtFlags {
    match accessible {
        true => ProtFlags::READ | ProtFlags::WRITE,
        false => ProtFlags::empty(),
    }
}

/// Replacement of a span.
pub(crate) enum Instead<'a> {
    /// Nothing: it is reserved, of no access.
    Reserved,
    /// A file's bytes from `offset` on.
    File {
        file: BorrowedFd<'a>,
        offset: u64,
        protection: ProtFlags,
        flags: MapFlags,
    },
}

/// Puts something in the place of what `span` maps.
///
/// # Safety
/// Nothing may refer to what is mapped there now.
pub(crate) unsafe fn replace(span: Span, instead: &Instead<'_>) -> Result<()> {
    call("mmap", || {
        // SAFETY: the caller gives the span's old contents up.
        unsafe { replace_by(span, instead, MapFlags::FIXED) }
    })
}

/// As [`replace`] where nothing is mapped; where something is, all stays and it is an error.
pub(crate) fn fill(span: Span, instead: &Instead<'_>) -> Result<()> {
    call("mmap", || {
        // SAFETY: this flag replaces no mapping.
        unsafe { replace_by(span, instead, MapFlags::FIXED_NOREPLACE) }
    })
}

unsafe fn replace_by(
    span: Span,
    instead: &Instead<'_>,
    how: MapFlags,
) -> std::result::Result<(), Errno> {
    let at = span.pointer();
    match *instead {
        Instead::Reserved => {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | how;
            // SAFETY: as the caller says.
            unsafe { mm::mmap_anonymous(at, span.bytes, ProtFlags::empty(), flags) }?;
        }
        Instead::File {
            file,
            offset,
            protection,
            flags,
        } => {
            // SAFETY: as the caller says.
            unsafe { mm::mmap(at, span.bytes, protection, flags | how, file, offset) }?;
        }
    }
    Ok(())
}

/// Makes a span readable and writable, or takes all access away.
pub(crate) fn protect(span: Span, accessible: bool) -> Result<()> {
    let flags = if accessible {
        MprotectFlags::READ | MprotectFlags::WRITE
    } else {
        MprotectFlags::empty()
    };
    call("mprotect", || {
        // SAFETY: contents stay; who reads what has no access gets a signal, and no wrong data.
        unsafe { mm::mprotect(span.pointer(), span.bytes, flags) }
    })
}

/// Unmaps a span.
///
/// # Safety
/// Nothing may refer to it any more, and all of it must be the caller's.
pub(crate) unsafe fn unmap(span: Span) -> Result<()> {
    call("munmap", || {
        // SAFETY: as the caller says.
        unsafe { mm::munmap(span.pointer(), span.bytes) }
    })
}

/// Gives the pages of private anonymous memory back: it reads as zero afterwards.
///
/// # Safety
/// Nobody may need what is in it.
pub(crate) unsafe fn give_back(span: Span) -> Result<()> {
    call("madvise", || {
        // SAFETY: as the caller says.
        unsafe { mm::madvise(span.pointer(), span.bytes, Advice::LinuxDontNeed) }
    })
}

/// Makes touching pages a fault by entries of the page table, which cost no VMA, or ends that. Linux 6.13 and later can,
/// of a memfd's mapping 6.15 and later; others say `EINVAL`.
pub(crate) fn guard(span: Span, install: bool) -> Result<()> {
    // include/uapi/asm-generic/mman-common.h: MADV_GUARD_INSTALL, MADV_GUARD_REMOVE.
    let advice = if install { 102 } else { 103 };
    call("madvise", || {
        // SAFETY: a guard page has no contents: the caller's buffers end before it.
        unsafe { syscalls::syscall!(syscalls::Sysno::madvise, span.start, span.bytes, advice) }
            .map(drop)
            .map_err(errno)
    })
}

/// From the next fork on the span reads as zero in the child.
pub(crate) fn wipe_on_fork(span: Span) -> Result<()> {
    call("madvise", || {
        // SAFETY: nothing changes in this process.
        unsafe { mm::madvise(span.pointer(), span.bytes, Advice::LinuxWipeOnFork) }
    })
}

/// Creates a file in memory of `bytes`, all 0, with `seals`. Sealed against shrinking and growing, no process can make it
/// end before a mapping of it does.
pub(crate) fn memfd(name: &CStr, bytes: u64, seals: SealFlags) -> Result<OwnedFd> {
    let file = call("memfd_create", || {
        memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
    })?;
    lengthen(&file, bytes)?;
    call("fcntl", || fcntl_add_seals(&file, seals))?;
    Ok(file)
}

/// Frees a file's pages: it reads as zero there.
pub(crate) fn punch(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<()> {
    call("fallocate", || {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, flags, offset, bytes)
    })
}

/// Sleeps while `word` is `value`, or wakes for no reason.
pub(crate) fn sleep(word: &AtomicU32, value: u32) {
    // Whatever it returns, the caller looks again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
}

/// Wakes one that sleeps on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // It fails only where the address is bad.
    let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
}

/// The process's number.
pub(crate) fn process() -> u32 {
    rustix::process::getpid().as_raw_pid().cast_unsigned()
}

/// The thread's number.
pub(crate) fn thread() -> u32 {
    rustix::thread::gettid().as_raw_pid().cast_unsigned()
}

/// Whether no thread of this process has this number: others may have it by now, and soon do where many processes start.
pub(crate) fn is_dead(thread: u32) -> bool {
    // SAFETY: signal 0 is none; the kernel only looks whether there is such a thread.
    let found = unsafe { syscalls::syscall!(syscalls::Sysno::tgkill, process(), thread, 0) };
    found == Err(syscalls::Errno::ESRCH)
}

/// Nanoseconds of a clock that never goes back; a few milliseconds coarse, and no system call.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Has libc call these before fork(2), and after it in the parent and in the child.
pub(crate) fn at_fork(
    before: unsafe extern "C" fn(),
    parent: unsafe extern "C" fn(),
    child: unsafe extern "C" fn(),
) -> Result<()> {
    call("pthread_atfork", || {
        // SAFETY: three functions that stay as long as the process does.
        match unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) } {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    })
}
