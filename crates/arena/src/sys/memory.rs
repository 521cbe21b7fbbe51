//! Mappings: made, changed, locked, given back.

use std::os::fd::BorrowedFd;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MlockFlags, MprotectFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use super::{call, errno, page};
use crate::error::{Error, Result};

/// Where a log2 of a page's bytes stands in the flags of mmap (`MAP_HUGE_SHIFT`).
const HUGE_SHIFT: u32 = 26;

/// A range of addresses: where it starts, and its bytes. Whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

impl Span {
    pub(crate) const fn new(start: usize, bytes: usize) -> Span {
        Span { start, bytes }
    }

    fn pointer(self) -> *mut core::ffi::c_void {
        ptr::with_exposed_provenance_mut(self.start)
    }
}

/// A mapping of its own, unmapped when it is dropped: by then nothing may refer into it.
#[derive(Debug)]
pub(crate) struct Mapping(pub(crate) Span);

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: its owner's word. A whole mapping of its own is unmapped without memory, so this does not fail.
        let _ = unsafe { unmap(self.0) };
    }
}

fn access(accessible: bool) -> ProtFlags {
    match accessible {
        true => ProtFlags::READ | ProtFlags::WRITE,
        false => ProtFlags::empty(),
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
    Ok(Span::new(start.expose_provenance(), bytes))
}

/// [`map`] at a multiple of `align`, a power of two: more is mapped, and what is too much is unmapped.
pub(crate) fn map_aligned(
    bytes: usize,
    align: usize,
    accessible: bool,
    flags: MapFlags,
) -> Result<Span> {
    let whole = bytes.checked_add(align.saturating_sub(page()));
    let no_room = Error::NoRoom {
        bytes,
        largest: None,
    };
    let whole = map(whole.ok_or(no_room)?, accessible, flags)?;
    // No overflow: both lie inside what was mapped.
    let start = whole.start.next_multiple_of(align.max(1));
    let end = whole.start + whole.bytes;
    let mut rest = whole.start;
    for (from, to) in [(whole.start, start), (start + bytes, end)] {
        if from == to {
            continue;
        }
        // SAFETY: mapped just now, known to nobody.
        if let Err(error) = unsafe { unmap(Span::new(from, to - from)) } {
            // SAFETY: as above; what was trimmed before, which may be somebody else's by now, is left out.
            let _ = unsafe { unmap(Span::new(rest, end - rest)) };
            return Err(error);
        }
        rest = start;
    }
    Ok(Span::new(start, bytes))
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
    Ok(Span::new(start.expose_provenance(), bytes))
}

/// Maps private huge pages of `size` bytes from the pool where nothing may be mapped: what is there already is left
/// alone, and `EEXIST` comes back.
pub(crate) fn map_hugetlb(span: Span, size: usize) -> Result<()> {
    let flags = MapFlags::PRIVATE
        | MapFlags::HUGETLB
        | MapFlags::FIXED_NOREPLACE
        | MapFlags::from_bits_retain(size.trailing_zeros() << HUGE_SHIFT);
    call("mmap(HUGETLB)", || {
        // SAFETY: MAP_FIXED_NOREPLACE replaces no mapping; a kernel before 4.17 takes the address as a wish.
        let address =
            unsafe { mm::mmap_anonymous(span.pointer(), span.bytes, access(true), flags) }?;
        if address.addr() == span.start {
            return Ok(());
        }
        // SAFETY: mapped just now, by nobody else known.
        unsafe { mm::munmap(address, span.bytes) }?;
        Err(Errno::EXIST)
    })
}

/// Makes a span readable and writable, or takes all access away.
pub(crate) fn protect(span: Span, accessible: bool) -> Result<()> {
    let flags = match accessible {
        true => MprotectFlags::READ | MprotectFlags::WRITE,
        false => MprotectFlags::empty(),
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

/// madvise(2).
///
/// # Safety
/// Where the advice changes contents, nobody may need them.
unsafe fn advise_by(name: &'static str, span: Span, advice: Advice) -> Result<()> {
    call(name, || {
        // SAFETY: as the caller says.
        unsafe { mm::madvise(span.pointer(), span.bytes, advice) }
    })
}

/// Gives the pages of private anonymous memory back: it reads as zero afterwards.
///
/// # Safety
/// Nobody may need what is in it.
pub(crate) unsafe fn give_back(span: Span) -> Result<()> {
    // SAFETY: as the caller says.
    unsafe { advise_by("madvise", span, Advice::LinuxDontNeed) }
}

/// [`give_back`] of many spans by one call, which takes the kernel's lock and flushes TLBs once. Linux 6.13 and later can; others
/// say `EBADF` or `EINVAL`.
///
/// # Safety
/// As [`give_back`].
pub(crate) unsafe fn give_back_all(spans: &[Span]) -> Result<()> {
    // include/uapi/linux/pidfd.h: PIDFD_SELF_THREAD.
    const SELF: i32 = -10_000;
    let bytes: usize = spans.iter().map(|span| span.bytes).sum();
    call("process_madvise", || {
        let (start, count) = (spans.as_ptr(), spans.len());
        // SAFETY: a span is laid out as an iovec; and as the caller says.
        let done = unsafe {
            syscalls::syscall!(
                syscalls::Sysno::process_madvise,
                SELF,
                start,
                count,
                libc::MADV_DONTNEED,
                0
            )
        };
        match done.map_err(errno)? {
            // Where some are left, all are asked for again one by one.
            done if done == bytes => Ok(()),
            _ => Err(Errno::AGAIN),
        }
    })
}

/// Frees a mapped part of a shared file's pages: it then reads as zero, in every mapping. A mapping that is locked refuses
/// it; [`super::files::punch`] does not.
///
/// # Safety
/// The memory is handed out as nothing but addresses, and the holders know that it may become zero.
pub(crate) unsafe fn remove(span: Span) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { advise_by("madvise(MADV_REMOVE)", span, Advice::LinuxRemove) }
}

/// From the next fork on the span reads as zero in the child.
pub(crate) fn wipe_on_fork(span: Span) -> Result<()> {
    // SAFETY: nothing changes in this process.
    unsafe { advise_by("madvise", span, Advice::LinuxWipeOnFork) }
}

/// Whether faults may take huge pages. Contents are left alone, so it may be asked of any memory.
pub(crate) fn advise_huge(span: Span, huge: bool) -> Result<()> {
    let (name, advice) = match huge {
        true => ("madvise(HUGEPAGE)", Advice::LinuxHugepage),
        false => ("madvise(NOHUGEPAGE)", Advice::LinuxNoHugepage),
    };
    // SAFETY: this advice changes no content and no permission.
    unsafe { advise_by(name, span, advice) }
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

/// Makes memory resident and writable. Contents are left alone. Before 5.14, whose kernels lack the advice, by touching
/// it.
///
/// # Safety
/// It is the caller's own, readable and writable, and nothing refers to it.
pub(crate) unsafe fn populate(span: Span) -> Result<()> {
    // SAFETY: this advice changes no content and no permission.
    let done = unsafe { advise_by("madvise(POPULATE_WRITE)", span, Advice::LinuxPopulateWrite) };
    match done {
        Err(error) if error.is(&[Errno::INVAL]) => {}
        done => return done,
    }
    for at in (span.start..span.start + span.bytes).step_by(page()) {
        let byte = ptr::with_exposed_provenance_mut::<u8>(at);
        // SAFETY: the caller's own byte, which nobody else uses.
        unsafe { byte.write_volatile(byte.read_volatile()) };
    }
    Ok(())
}

/// Locks a span: all of it resident now, or with `on_fault` what is or becomes so. A range that is not mapped is an error
/// and not a fault.
pub(crate) fn lock(span: Span, on_fault: bool) -> Result<()> {
    if on_fault {
        let asked = call("mlock2", || {
            // SAFETY: locking changes neither what is mapped nor what it holds.
            unsafe { mm::mlock_with(span.pointer(), span.bytes, MlockFlags::ONFAULT) }
        });
        match asked {
            // Before Linux 4.4.
            Err(error) if error.is(&[Errno::NOSYS, Errno::INVAL]) => {}
            other => return other,
        }
    }
    call("mlock", || {
        // SAFETY: as above.
        unsafe { mm::mlock(span.pointer(), span.bytes) }
    })
}

/// Unlocks it again.
pub(crate) fn unlock(span: Span) -> Result<()> {
    call("munlock", || {
        // SAFETY: as above.
        unsafe { mm::munlock(span.pointer(), span.bytes) }
    })
}

/// `RLIMIT_MEMLOCK` in bytes; `None`: unlimited.
pub(crate) fn memlock() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Whether the limit binds this thread. A capability within a user namespace alone does not lift it; then the kernel
/// refuses what this allows.
pub(crate) fn bound_by_memlock() -> Result<bool> {
    let own = call("capget", || rustix::thread::capabilities(None))?;
    let lifts = rustix::thread::CapabilitySet::IPC_LOCK;
    Ok(!own.effective.contains(lifts))
}

/// Whether huge pages are switched off for this process (`PR_SET_THP_DISABLE`).
pub(crate) fn thp_disabled() -> Result<bool> {
    call("prctl(PR_GET_THP_DISABLE)", || {
        rustix::thread::transparent_huge_pages_are_disabled()
    })
}
