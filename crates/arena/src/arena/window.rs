//! The reserved addresses, and tables with a word or a bit for each page.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::cache::{Cache, Entry};
use super::heap;
use super::lock_free::marks::{MOST_PAGES, Marks};
use super::lock_free::owners::NUMBERS;
use super::lock_free::strays::{PLACES, Stray, Strays};
use crate::error::{Error, Result};
use crate::sys::memory::{self as sys, Instead, Mapping, Span};
use crate::sys::{files, page};

/// See the module.
pub(super) struct Window {
    pub(super) span: Span,
    pub(super) shift: u32,
    pub(super) pages: usize,
    pub(super) file: Option<OwnedFd>,
    _mapped: [Mapping; 2],
    tables: Span,
    /// Where what the tables hold begins, from their start.
    bits: usize,
    caches: usize,
    strays: usize,
    heaps: usize,
    /// Pages that are free and hold old contents, those in caches left out: bits that are set.
    pub(super) kept: AtomicUsize,
    /// The least that `kept` was since somebody asked.
    pub(super) least_kept: AtomicUsize,
    /// Pages that may be kept by shards.
    pub(super) budget: AtomicUsize,
    /// Pages given back to the kernel, ever.
    pub(super) given_back: AtomicU64,
}

/// Bits are in words of so many pages; shards meet at multiples.
pub(super) const WORD: usize = 64;

impl Window {
    /// Reserves `bytes`, rounded up to whole pages, of a memfd if `in_file`; `keep` bytes may be kept.
    pub(super) fn new(bytes: usize, in_file: bool, keep: usize) -> Result<Window> {
        let shift = page().trailing_zeros();
        let bytes = bytes
            .checked_next_multiple_of(page())
            .filter(|&bytes| bytes > 0)
            .ok_or(Error::invalid(
                "the window has no pages, or more than there are addresses",
            ))?;
        let pages = bytes >> shift;
        if pages > MOST_PAGES {
            return Err(Error::invalid("the window has 2^30 pages or more"));
        }
        let file = in_file
            .then(|| {
                let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
                files::memfd(c"stopgap", bytes as u64, seals)
            })
            .transpose()?;
        let (none, flags) = (ProtFlags::empty(), MapFlags::NORESERVE);
        let span = match &file {
            Some(file) => sys::map_file(file.as_fd(), 0, bytes, none, flags)?,
            None => sys::map(bytes, false, flags)?,
        };
        let mapped = Mapping(span);
        let bits = pages * size_of::<AtomicU64>();
        let caches = (bits + pages.div_ceil(WORD) * size_of::<AtomicU64>()).next_multiple_of(128);
        let strays = caches + NUMBERS * size_of::<Cache>();
        let heaps = (strays + PLACES * size_of::<Stray>()).next_multiple_of(page());
        let length = heaps + heap::bytes_for(pages) + super::MOST_SHARDS * heap::bytes_for(0);
        let tables = sys::map(length.next_multiple_of(page()), true, flags)?;
        Ok(Window {
            span,
            shift,
            pages,
            file,
            _mapped: [mapped, Mapping(tables)],
            tables,
            bits,
            caches,
            strays,
            heaps,
            kept: AtomicUsize::new(0),
            least_kept: AtomicUsize::new(0),
            budget: AtomicUsize::new(keep >> shift),
            given_back: AtomicU64::new(0),
        })
    }

    /// `count` values of the tables, from byte `at` on.
    ///
    /// # Safety
    /// They must be within the tables and of a type to which zeroes are a value, and which is only changed as what is
    /// shared may be.
    unsafe fn table<T>(&self, at: usize, count: usize) -> &[T] {
        let start = std::ptr::with_exposed_provenance::<T>(self.tables.start + at);
        // SAFETY: as the caller says; the tables are mapped until the window goes, and were zeroed.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    #[inline]
    pub(super) fn marks(&self) -> Marks<'_> {
        // SAFETY: the tables begin with a word a page.
        Marks::new(unsafe { self.table::<AtomicU64>(0, self.pages) })
    }

    #[inline]
    pub(super) fn cache(&self, number: usize) -> Option<&Cache> {
        // SAFETY: there are NUMBERS, of nothing but atomics.
        unsafe { self.table::<Cache>(self.caches, NUMBERS) }.get(number)
    }

    /// Those of the first `numbers` threads.
    pub(super) fn caches(&self, numbers: usize) -> &[Cache] {
        // SAFETY: as above.
        unsafe { self.table::<Cache>(self.caches, numbers.min(NUMBERS)) }
    }

    pub(super) fn strays(&self) -> Strays<'_> {
        // SAFETY: there are PLACES, of nothing but atomics.
        Strays::new(unsafe { self.table::<Stray>(self.strays, PLACES) })
    }

    /// Where the heaps' memory starts and ends.
    pub(super) fn heaps(&self) -> (usize, usize) {
        let start = self.tables.start + self.heaps;
        (start, self.tables.start + self.tables.bytes)
    }

    fn bits(&self) -> &[AtomicU64] {
        // SAFETY: after the words there is a bit a page.
        unsafe { self.table::<AtomicU64>(self.bits, self.pages.div_ceil(WORD)) }
    }

    /// The pages that `bytes` take.
    #[inline]
    pub(super) fn pages_for(&self, bytes: usize) -> Result<usize> {
        if bytes == 0 {
            return Err(Error::invalid("a length of 0"));
        }
        if bytes > self.span.bytes {
            return Err(Error::NoRoom { bytes });
        }
        Ok((bytes + (1 << self.shift) - 1) >> self.shift)
    }

    #[inline]
    pub(super) fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.span.start) < self.span.bytes
    }

    /// The page that starts at `address`; `None` where it is in the midst of one, or outside.
    #[inline]
    pub(super) fn page_at(&self, address: usize) -> Option<usize> {
        let at = address.wrapping_sub(self.span.start);
        (at < self.span.bytes && at & ((1 << self.shift) - 1) == 0).then(|| at >> self.shift)
    }

    #[inline]
    pub(super) fn address(&self, page: usize) -> usize {
        self.span.start + (page << self.shift)
    }

    #[inline]
    pub(super) fn pointer(&self, page: usize) -> Result<NonNull<u8>> {
        let pointer = std::ptr::with_exposed_provenance_mut(self.address(page));
        NonNull::new(pointer).ok_or(Error::Foreign { address: 0 })
    }

    pub(super) fn span_of(&self, page: usize, pages: usize) -> Span {
        Span::new(self.address(page), pages << self.shift)
    }

    /// What a page's place holds while nothing is there: of the memfd, the part that belongs there, so that it is the
    /// buffer's memory once the frontier has passed it.
    pub(super) fn reserved(&self, page: usize) -> Instead<'_> {
        match &self.file {
            Some(file) => Instead::File {
                file: file.as_fd(),
                offset: (page as u64) << self.shift,
                protection: ProtFlags::empty(),
                flags: MapFlags::SHARED | MapFlags::NORESERVE,
            },
            None => Instead::Reserved,
        }
    }

    /// Gives the pages of a free range back: it reads as zero.
    ///
    /// # Safety
    /// The range is the caller's, and nobody needs what is in it.
    pub(super) unsafe fn release(&self, page: usize, pages: usize) -> Result<()> {
        let span = self.span_of(page, pages);
        match &self.file {
            Some(file) => {
                let offset = (page as u64) << self.shift;
                files::punch(file.as_fd(), offset, span.bytes as u64)?;
            }
            // SAFETY: as the caller says.
            None => unsafe { sys::give_back(span) }?,
        }
        self.given_back.fetch_add(pages as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a range of `pages` read as zero.
    ///
    /// # Safety
    /// The range is the caller's, accessible, and nobody needs what is in it.
    #[inline]
    pub(super) unsafe fn zero(&self, entry: Entry, pages: usize) {
        let page = entry.page;
        let by_hand = pages <= super::ZERO_BY_HAND || !entry.sparse;
        // SAFETY: as the caller says.
        if !by_hand && unsafe { self.release(page, pages) }.is_ok() {
            return;
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.address(page));
        // SAFETY: as the caller says.
        unsafe { start.write_bytes(0, pages << self.shift) };
    }

    /// The words of a range's bits, each with those of its bits that are the range's.
    fn words(&self, page: usize, pages: usize) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let (first, end) = (page / WORD, (page + pages).div_ceil(WORD));
        let words = self.bits().get(first..end).unwrap_or_default();
        words.iter().zip(first..).map(move |(word, at)| {
            let low = page.saturating_sub(at * WORD);
            let high = (page + pages - at * WORD).min(WORD);
            (word, u64::MAX << low & u64::MAX >> (WORD - high))
        })
    }

    /// Notes that a free range holds old contents. Under its shard's lock, as the next two.
    pub(super) fn keep(&self, page: usize, pages: usize) {
        for (word, bits) in self.words(page, pages) {
            word.store(word.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
        }
        self.kept.fetch_add(pages, Ordering::Relaxed);
    }

    /// Forgets what a range holds, because it is given out or was given back: how many of its pages held something.
    pub(super) fn forget(&self, page: usize, pages: usize) -> usize {
        let mut held = 0;
        for (word, bits) in self.words(page, pages) {
            let now = word.load(Ordering::Relaxed);
            held += (now & bits).count_ones() as usize;
            if now & bits != 0 {
                word.store(now & !bits, Ordering::Relaxed);
            }
        }
        if held > 0 {
            let left = self.kept.fetch_sub(held, Ordering::Relaxed) - held;
            self.least_kept.fetch_min(left, Ordering::Relaxed);
        }
        held
    }

    /// The first run of pages from `from` to `end` that hold old contents, `most` of them at most.
    pub(super) fn first_kept(
        &self,
        from: usize,
        end: usize,
        most: usize,
    ) -> Option<(usize, usize)> {
        let bits = self.bits();
        let word = |at: usize| bits.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let mut at = from / WORD;
        let mut now = word(at) & u64::MAX << (from % WORD);
        while now == 0 {
            at += 1;
            if at * WORD >= end {
                return None;
            }
            now = word(at);
        }
        let start = at * WORD + now.trailing_zeros() as usize;
        let mut last = start;
        while last < end && last - start < most {
            let rest = !word(last / WORD) & u64::MAX << (last % WORD);
            let next = last / WORD * WORD + rest.trailing_zeros() as usize;
            last = next;
            if rest != 0 {
                break;
            }
        }
        let last = last.min(end).min(start + most);
        (start < last).then(|| (start, last - start))
    }

    /// The memfd behind the window.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_kept_counted_found_and_forgotten() {
        let window = Window::new(1_000 << 12, false, 0).unwrap();
        for (page, pages) in [(0, 1), (3, 2), (60, 10), (128, 64), (500, 300), (999, 1)] {
            window.keep(page, pages);
        }
        assert_eq!(window.kept.load(Ordering::Relaxed), 378);
        let find = |from| window.first_kept(from, 1_000, 1_000);
        assert_eq!(find(0), Some((0, 1)));
        assert_eq!(find(1), Some((3, 2)));
        assert_eq!(find(4), Some((4, 1)));
        assert_eq!(find(5), Some((60, 10)));
        assert_eq!(find(70), Some((128, 64)));
        assert_eq!(find(192), Some((500, 300)));
        assert_eq!(window.first_kept(192, 1_000, 77), Some((500, 77)));
        assert_eq!(window.first_kept(192, 510, 77), Some((500, 10)));
        assert_eq!(window.first_kept(192, 500, 77), None);
        assert_eq!(find(800), Some((999, 1)));
        assert_eq!(window.forget(0, 130), 15);
        assert_eq!(find(0), Some((130, 62)));
        assert_eq!(window.forget(130, 870), 363);
        assert_eq!((find(0), window.kept.load(Ordering::Relaxed)), (None, 0));
    }

    #[test]
    fn a_window_has_pages_and_not_too_many() {
        let invalid = |bytes| matches!(Window::new(bytes, false, 0), Err(Error::Invalid { .. }));
        assert!(invalid(0) && invalid(usize::MAX) && invalid(1 << 60));
    }
}
