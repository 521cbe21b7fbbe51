//! What each interposed call does: a function a call, with the kernel's answer, `errno` aside.

use std::ffi::c_int;

use crate::books::{self, apply, locked, relieve};
use crate::inject;
use crate::kept::Map;
use crate::kernel::{self, Errno, PAGE, Result};
use crate::notes::Kind;
use crate::report::{Count, count};
use crate::stage::{self, advise, in_room, keeping};

const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
/// The flags of an anonymous map that may be placed.
const PLAIN: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
/// Longest anonymous map that is placed.
pub(crate) const LIMIT: usize = 8 << 20;

/// The arguments of mmap(2), the address apart.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) length: usize,
    pub(crate) protection: c_int,
    pub(crate) flags: c_int,
    pub(crate) fd: c_int,
    pub(crate) offset: i64,
}

impl Wanted {
    fn at(self, address: usize) -> Result<usize> {
        kernel::mmap(
            address,
            self.length,
            self.protection,
            self.flags,
            self.fd,
            self.offset,
        )
    }

    fn is_anonymous(self) -> bool {
        self.flags & libc::MAP_ANONYMOUS != 0
    }

    fn is_of_huge_pages(self) -> bool {
        if self.is_anonymous() {
            self.flags & libc::MAP_HUGETLB != 0
        } else {
            kernel::is_hugetlbfs(self.fd)
        }
    }

    /// Returns why a map without an address is not placed, if it is not.
    fn passes(self) -> Option<Count> {
        if !self.is_anonymous() {
            Some(Count::passed_file)
        } else if self.flags != PLAIN || self.offset != 0 {
            Some(Count::passed_flags)
        } else if self.protection != READ_WRITE {
            Some(Count::passed_protection)
        } else if self.length == 0 || self.length > LIMIT {
            Some(Count::passed_size)
        } else if !stage::serving() {
            Some(Count::passed_aside)
        } else {
            None
        }
    }
}

/// Makes a call again that failed for want of memory or of maps, once what is kept is unmapped.
#[inline]
fn with_relief<T>(call: impl Fn() -> Result<T>) -> Result<T> {
    match call() {
        Err(Errno(libc::ENOMEM)) if relieve() => call(),
        answer => answer,
    }
}

/// mmap(2).
#[inline]
pub(crate) fn mmap(address: usize, wanted: Wanted) -> Result<usize> {
    let why = if address != 0 {
        Some(Count::passed_address)
    } else {
        wanted.passes()
    };
    match why {
        None => {
            if let Some(at) = place(wanted) {
                return Ok(at);
            }
        }
        Some(why) => {
            count(why, 1);
            const FIXED: c_int = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
            if keeping()
                && wanted.flags & FIXED != 0
                && let Some(span) = in_room(address, wanted.length)
            {
                if wanted.is_of_huge_pages() {
                    // It takes more addresses than it says.
                    books::keep_no_more();
                }
                books::make_way(span);
            }
        }
    }
    let at = with_relief(|| wanted.at(address))?;
    if let Some(span) = in_room(at, wanted.length) {
        apply(Kind::Claimed, span);
    }
    if address == 0 && wanted.flags == PLAIN {
        advise(at, wanted.length);
    }
    Ok(at)
}

/// Makes a map at a place of the room. `None`: the kernel is to place it, or to refuse it.
fn place(wanted: Wanted) -> Option<usize> {
    let pages = wanted.length.next_multiple_of(PAGE);
    let placed = locked(|books| books.place(pages));
    let Ok(placed) = placed else {
        count(Count::busy, 1);
        return None;
    };
    let Some((span, kept)) = placed else {
        count(Count::passed_no_room, 1);
        return None;
    };
    if let Some(map) = kept {
        return use_again(map);
    }
    // Not under the lock: the kernel may take its time.
    let answer = inject::before().and_then(|()| wanted.at(span.start));
    let Ok(at) = answer else {
        // With a hint or without, it failed and changed nothing. What it says without one is the program's answer.
        apply(Kind::Released, span);
        return None;
    };
    if at == span.start {
        count(Count::placed, 1);
    } else {
        // A map lies at `span` that the books do not know: the place stays taken, and is not to be kept.
        stage::missed();
        books::change(span);
        if let Some(span) = in_room(at, wanted.length) {
            apply(Kind::Claimed, span);
        }
    }
    advise(at, wanted.length);
    Some(at)
}

/// Gives the program a kept map, zeroed.
fn use_again(map: Map) -> Option<usize> {
    let span = map.span;
    let allowed =
        inject::before().and_then(|()| kernel::mprotect(span.start, span.length(), READ_WRITE));
    if allowed.is_err() {
        let _ = kernel::munmap(span.start, span.length());
        apply(Kind::Released, span);
        return None;
    }
    for (start, end) in map.runs.iter() {
        #[allow(unsafe_code)]
        // SAFETY: mapped for reading and writing, and the program does not know of it yet.
        unsafe {
            kernel::zero(span.start + start * PAGE, (end - start) * PAGE);
        };
    }
    count(Count::used_again, 1);
    count(Count::faults_saved, map.runs.pages());
    Some(span.start)
}

/// munmap(2).
#[inline]
pub(crate) fn munmap(address: usize, length: usize) -> Result<()> {
    let Some(span) = in_room(address, length).filter(|_| address.is_multiple_of(PAGE)) else {
        return with_relief(|| kernel::munmap(address, length));
    };
    if keeping() {
        let kept = locked(|books| {
            books.keep(span) || {
                books.evict(span);
                false
            }
        });
        if let Ok(true) = kept {
            return Ok(());
        }
    }
    with_relief(|| kernel::munmap(address, length))?;
    count(Count::unmapped, 1);
    apply(Kind::Released, span);
    Ok(())
}

/// Makes a call that changes maps and leaves them where they are: mprotect, `pkey_mprotect`, mlock, mlock2.
#[inline]
pub(crate) fn change(address: usize, length: usize, call: impl Fn() -> Result<()>) -> Result<()> {
    if let Some(span) = in_room(address, length) {
        books::change(span);
    }
    with_relief(call)
}

/// madvise(2).
#[inline]
pub(crate) fn madvise(address: usize, length: usize, advice: c_int) -> Result<()> {
    let call = || kernel::madvise(address, length, advice);
    // Advice that changes pages, and no property of a map.
    let of_pages = matches!(
        advice,
        libc::MADV_DONTNEED
            | libc::MADV_FREE
            | libc::MADV_WILLNEED
            | libc::MADV_COLD
            | libc::MADV_PAGEOUT
            | libc::MADV_POPULATE_READ
            | libc::MADV_POPULATE_WRITE
    );
    if !of_pages {
        return change(address, length, call);
    }
    if let Some(span) = in_room(address, length) {
        // What is kept in the range is nothing to the program, and the kernel is to say so.
        books::make_way(span);
    }
    with_relief(call)
}

/// mremap(2).
pub(crate) fn mremap(
    old: usize,
    old_length: usize,
    new_length: usize,
    flags: c_int,
    new: usize,
) -> Result<usize> {
    let call = || kernel::mremap(old, old_length, new_length, flags, new);
    if let Some(span) = in_room(old, old_length.max(1)) {
        books::change(span);
    }
    // Addresses that the map may grow into or go to.
    let growth = new_length.saturating_sub(old_length);
    for (address, length) in [(old.saturating_add(old_length), growth), (new, new_length)] {
        if let Some(span) = in_room(address, length) {
            books::make_way(span);
        }
    }
    let at = with_relief(call)?;
    if flags & libc::MREMAP_DONTUNMAP == 0 {
        let stays = if at == old {
            new_length.next_multiple_of(PAGE)
        } else {
            0
        };
        let gone = old_length.saturating_sub(stays);
        if let Some(span) = in_room(old.saturating_add(stays), gone) {
            apply(Kind::Released, span);
        }
    }
    if let Some(span) = in_room(at, new_length) {
        apply(Kind::Claimed, span);
    }
    Ok(at)
}

/// mlockall(2): it would lock what is kept, and what will be.
pub(crate) fn mlockall(flags: c_int) -> Result<()> {
    books::keep_no_more();
    kernel::mlockall(flags)
}

/// Called before a limit of the address space is set, which counts what is kept.
pub(crate) fn limit_is_set() {
    books::keep_no_more();
}
