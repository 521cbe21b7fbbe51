//! Which addresses of the room are free after a call: all of what was unmapped, and nothing else.

use std::ffi::c_int;

use stopgap_testing::{Skip, skip};

use crate::raw::status_kib;
use crate::sides::{Errno, Side, read, write};

const PAGE: usize = 4096;
const READ: c_int = libc::PROT_READ;
const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
/// Hints that are not taken, until the library gives no more (`stage`).
pub(crate) const MOST_MISSED: usize = 64;

/// Maps some pages through the library; each begins with its number.
fn map(pages: usize) -> usize {
    let at = map_untouched(pages);
    for page in 0..pages {
        assert_eq!(write(at + page * PAGE, &[page as u8]), Ok(1));
    }
    at
}

fn map_untouched(pages: usize) -> usize {
    let at = Side::Library.mmap(0, pages * PAGE, READ_WRITE, ANONYMOUS, -1, 0);
    at.expect("an anonymous map")
}

fn unmap(at: usize, pages: usize) {
    assert_eq!(Side::Library.munmap(at, pages * PAGE), Ok(0));
}

/// Reads the first byte of a page; EFAULT where nothing is mapped.
fn byte(at: usize) -> Result<u8, Errno> {
    let mut byte = [0];
    read(at, &mut byte).map(|_| byte[0])
}

/// Returns whether a map has a place of the library's: the kernel puts nothing there.
fn has_a_place(at: usize) -> bool {
    let top = Side::Kernel.mmap(0, PAGE, 0, ANONYMOUS, -1, 0).unwrap();
    assert_eq!(Side::Kernel.munmap(top, PAGE), Ok(0));
    at < top / 16 * 15
}

/// Returns where the next map of so many pages goes, as long as nobody maps any other.
fn next_place(pages: usize) -> usize {
    let at = map_untouched(pages);
    unmap(at, pages);
    assert!(has_a_place(at), "{at:x}");
    at
}

/// Returns which of the pages from `start` on are free: given out to maps of a page each, until the room is full.
fn free_pages(start: usize, pages: usize) -> Vec<usize> {
    let mut maps = Vec::new();
    loop {
        let at = map_untouched(1);
        maps.push(at);
        if !has_a_place(at) {
            break;
        }
    }
    maps.iter().for_each(|at| unmap(*at, 1));
    (0..pages)
        .filter(|page| maps.contains(&(start + page * PAGE)))
        .collect()
}

/// A part that is unmapped is free, and nothing else of the place is, even after the program maps something there.
pub(crate) fn parts() {
    let at = map(6);
    unmap(at + 2 * PAGE, 1);
    let beside = (byte(at + 2 * PAGE), byte(at + 3 * PAGE));
    assert_eq!(beside, (Err(libc::EFAULT), Ok(3)));
    // As far as the kernel goes, and no further.
    let protected = Side::Library.mprotect(at + PAGE, 4 * PAGE, READ);
    let advised = Side::Library.madvise(at, 6 * PAGE, libc::MADV_DONTNEED);
    assert_eq!((protected, advised), (Err(libc::ENOMEM), Err(libc::ENOMEM)));
    let written = [1, 3].map(|page| write(at + page * PAGE, &[7]).is_ok());
    assert_eq!(written, [false, true]);
    assert_eq!(byte(at + 4 * PAGE), Ok(0), "what was written is gone");
    assert_eq!(free_pages(at, 6), [2]);
    // Something else over the hole: then it is what is left.
    let fixed = ANONYMOUS | libc::MAP_FIXED;
    let over = Side::Library.mmap(at + 2 * PAGE, PAGE, READ_WRITE, fixed, -1, 0);
    assert_eq!(over, Ok(at + 2 * PAGE));
    assert_eq!(write(at + 2 * PAGE, &[5]), Ok(1));
    unmap(at, 2);
    unmap(at + 3 * PAGE, 3);
    assert_eq!(free_pages(at, 6), [0, 1, 3, 4, 5]);
    assert_eq!(byte(at + 2 * PAGE), Ok(5));
    unmap(at + 2 * PAGE, 1);
    assert_eq!(free_pages(at, 6), [0, 1, 2, 3, 4, 5]);
    // All of it at once, over parts that are free already.
    let at = map(6);
    unmap(at + PAGE, 2);
    unmap(at, 6);
    assert_eq!(free_pages(at, 6), [0, 1, 2, 3, 4, 5]);
}

/// mremap: shorter, longer in its place, elsewhere, and leaving the map behind.
pub(crate) fn moved() {
    const MOVES: c_int = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let remap = |old, pages: usize, new_pages: usize, flags, new| {
        Side::Library.mremap(old, pages * PAGE, new_pages * PAGE, flags, new)
    };
    let all = [0, 1, 2, 3];
    let at = map(4);
    assert_eq!(remap(at, 4, 2, 0, 0), Ok(at));
    let beside = (byte(at + PAGE), byte(at + 2 * PAGE));
    assert_eq!(beside, (Ok(1), Err(libc::EFAULT)));
    assert_eq!(free_pages(at, 4), [2, 3]);
    assert_eq!(remap(at, 2, 3, 0, 0), Ok(at));
    assert_eq!(free_pages(at, 4), [3]);
    // Longer than its place was: that is taken, too, until it is unmapped.
    if remap(at, 3, 6, 0, 0) == Ok(at) {
        assert_eq!(free_pages(at, 6), [0; 0]);
        unmap(at, 6);
    } else {
        unmap(at, 3);
    }
    assert_eq!(free_pages(at, 4), all);
    // Out of its place, to where something is reserved.
    let to = Side::Kernel.mmap(0, 8 * PAGE, 0, ANONYMOUS, -1, 0).unwrap();
    let place = map(4);
    assert_eq!(remap(place, 4, 8, MOVES, to), Ok(to));
    let both = (byte(to + 3 * PAGE), byte(place));
    assert_eq!(both, (Ok(3), Err(libc::EFAULT)));
    assert_eq!(free_pages(place, 4), all);
    // And back: the place is taken again.
    assert_eq!(remap(to, 8, 4, MOVES, place), Ok(place));
    assert_eq!(byte(place + 3 * PAGE), Ok(3));
    assert_eq!(free_pages(place, 4), [0; 0]);
    let leaves = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
    match remap(place, 4, 4, leaves, 0) {
        Ok(to) => {
            let both = (byte(place + PAGE), byte(to + PAGE));
            assert_eq!(both, (Ok(0), Ok(1)));
            assert_eq!(free_pages(place, 4), [0; 0]);
            unmap(to, 4);
        }
        Err(errno) => skip(&Skip::machine(format_args!(
            "MREMAP_DONTUNMAP: errno {errno}"
        ))),
    }
    unmap(place, 4);
    assert_eq!(free_pages(place, 4), all);
}

/// A map at a place by a system call of the program's own stays there; after some such places no more are tried.
pub(crate) fn taken() {
    let fixed = ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    for turn in 0..MOST_MISSED {
        let place = next_place(1);
        let direct = Side::Kernel.mmap(place, PAGE, READ_WRITE, fixed, -1, 0);
        assert_eq!(direct, Ok(place));
        assert_eq!(write(place, &[99]), Ok(1));
        let at = map_untouched(1);
        assert_ne!(at, place);
        assert_eq!((byte(at), byte(place)), (Ok(0), Ok(99)));
        unmap(at, 1);
        if turn == 0 {
            // An unmap through the library frees the place.
            unmap(place, 1);
            assert_eq!(next_place(1), place);
        }
    }
    let at = map_untouched(1);
    assert!(!has_a_place(at), "{at:x}");
}

/// Pages of a room of 2 MiB, and more.
pub(crate) fn full() {
    let maps = [(); 520].map(|()| map_untouched(1));
    assert_eq!(maps.iter().filter(|at| has_a_place(**at)).count(), 512);
    maps.iter().for_each(|at| unmap(*at, 1));
    next_place(1);
}

/// Nothing is reserved, so a limit counts what it counts without the library; a map that is refused costs no place.
pub(crate) fn limits() {
    let limit = |bytes: usize| {
        let limit = libc::rlimit {
            rlim_cur: bytes as u64,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: only the limit of this process changes.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
        assert_eq!(set, 0);
    };
    let place = next_place(64);
    let size = status_kib("VmSize");
    let at = map(16);
    assert_eq!(status_kib("VmSize"), size + 64);
    unmap(at, 16);
    assert_eq!(status_kib("VmSize"), size);
    limit(size * 1024 + (16 << 20));
    next_place(1);
    let both = |pages: usize| {
        [Side::Library, Side::Kernel].map(|side| {
            let at = side.mmap(0, pages * PAGE, READ_WRITE, ANONYMOUS, -1, 0)?;
            side.munmap(at, pages * PAGE)
        })
    };
    limit(status_kib("VmSize") * 1024 + 8 * PAGE);
    for _ in 0..2 * MOST_MISSED {
        assert_eq!(both(64), [Err(libc::ENOMEM); 2]);
    }
    assert_eq!(both(4), [Ok(0); 2]);
    limit(libc::RLIM_INFINITY as usize);
    assert_eq!(next_place(64), place);
}

/// Locked pages count as locked until they are unmapped.
pub(crate) fn locked() {
    let kib = || status_kib("VmLck");
    let before = kib();
    let at = map(4);
    assert_eq!(Side::Library.mlock(at, 3 * PAGE), Ok(0));
    assert_eq!(kib(), before + 12);
    assert_eq!(Side::Library.munlock(at, PAGE), Ok(0));
    assert_eq!(kib(), before + 8);
    unmap(at + PAGE, 1);
    assert_eq!(kib(), before + 4);
    unmap(at, 4);
    assert_eq!(kib(), before);
}
