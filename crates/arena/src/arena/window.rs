//! The reserved addresses, and tables with a word or a bit for each page.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::cache::Cache;
use super::heap;
use super::lock_free::marks::{MOST_PAGES, Marks};
use super::lock_free::owners::NUMBERS;
use super::lock_free::strays::{PLACES, Stray, Strays};
use crate::error::{Error, Result};
use crate::sys::memory::{self as sys, Mapping, Span};
use crate::sys::{files, page};

/// See the module.
pub(super) struct Window {
    pub(super) span: Span,
    pub(super) shift: u32,
    pub(super) pages: usize,
    pub(super) file: Option<OwnedFd>,
    /// Guards in the page table and huge pages exclude each other.
    pub(super) may_be_huge: bool,
    _mapped: [Mapping; 2],
    tables: Span,
    /// Where what the tables hold begins, from their start.
    bits: usize,
    caches: usize,
    strays: usize,
    heaps: usize,
    pub(super) counts: Counts,
}

/// Counts that threads which place write, apart from what all threads read.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counts {
    /// Pages that are free and hold old contents, those in caches left out: bits that are set, and what depots keep.
    pub(super) kept: AtomicUsize,
    /// Pages given out or in caches.
    pub(super) used: AtomicUsize,
    /// Pages given back to the kernel, ever.
    pub(super) given_back: AtomicU64,
}

/// Bits are in words of so many pages; shards meet at multiples.
pub(super) const WORD: usize = 64;
/// Runs that are given back by one call.
pub(super) const BATCH: usize = 64;
/// Runs of old contents in a range that are told apart.
const OLD: usize = 8;
/// Words of bits, some 0.5 ns each, that are looked at for each page that would fault, which takes 250 ns or more.
const LOOKED_AT: usize = 32;

/// Pages one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Run {
    pub(super) page: usize,
    pub(super) pages: usize,
}

/// The runs of old contents in a range.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Old {
    runs: [Run; OLD],
    count: usize,
}

impl Old {
    /// One run.
    pub(super) fn one(run: Run) -> Old {
        let mut old = Old::default();
        (old.runs[0], old.count) = (run, 1);
        old
    }

    /// The runs, and of the last what lies before page `end`.
    pub(super) fn runs_before(&self, end: usize) -> impl Iterator<Item = Run> {
        let runs = self.runs.get(..self.count).unwrap_or_default();
        runs.iter().map(move |run| Run {
            page: run.page,
            pages: run.pages.min(end.saturating_sub(run.page)),
        })
    }
}

/// Pages that hold old contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    /// Those that were kept when [`Window::age`] looked last, and since.
    Aged,
}

impl Window {
    /// Reserves `bytes`, rounded up to whole pages, of a memfd if `in_file`.
    pub(super) fn new(bytes: usize, in_file: bool) -> Result<Window> {
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
        let caches =
            (bits + 2 * pages.div_ceil(WORD) * size_of::<AtomicU64>()).next_multiple_of(128);
        let strays = caches + NUMBERS * size_of::<Cache>();
        let heaps = (strays + PLACES * size_of::<Stray>()).next_multiple_of(page());
        let length = heaps + heap::bytes_for(pages) + super::MOST_SHARDS * heap::bytes_for(0);
        let tables = sys::map(length.next_multiple_of(page()), true, flags)?;
        Ok(Window {
            span,
            shift,
            pages,
            file,
            may_be_huge: true,
            _mapped: [mapped, Mapping(tables)],
            tables,
            bits,
            caches,
            strays,
            heaps,
            counts: Counts::default(),
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

    /// A bit a page: it is free and holds old contents.
    fn bits(&self) -> &[AtomicU64] {
        // SAFETY: after the words there are two bits a page.
        unsafe { self.table::<AtomicU64>(self.bits, self.pages.div_ceil(WORD)) }
    }

    /// A bit a page, which means something where that of [`Window::bits`] is set: it was set when [`Window::age`] looked last.
    fn aged(&self) -> &[AtomicU64] {
        let words = self.pages.div_ceil(WORD);
        // SAFETY: as above; these are the second half.
        unsafe { self.table::<AtomicU64>(self.bits + words * size_of::<AtomicU64>(), words) }
    }

    /// The pages that `bytes` take.
    #[inline]
    pub(super) fn pages_for(&self, bytes: usize) -> Result<usize> {
        if bytes == 0 {
            return Err(Error::invalid("a length of 0"));
        }
        if bytes > self.span.bytes {
            return Err(Error::NoRoom {
                bytes,
                largest: None,
            });
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
        Ok(())
    }

    /// Gives the pages of many free ranges back; of those that come first, how many it did.
    ///
    /// # Safety
    /// As [`Window::release`].
    pub(super) unsafe fn release_all(&self, runs: &[Run]) -> (usize, Result<()>) {
        if self.file.is_none() {
            let mut spans = [Span::new(0, 0); BATCH];
            let some = runs.iter().zip(&mut spans);
            some.for_each(|(run, span)| *span = self.span_of(run.page, run.pages));
            // SAFETY: as the caller says.
            if unsafe { sys::give_back_all(&spans[..runs.len()]) }.is_ok() {
                return (runs.len(), Ok(()));
            }
        }
        // One by one: by an older kernel, or to know which it refuses.
        for (done, run) in runs.iter().enumerate() {
            // SAFETY: as the caller says.
            if let Err(error) = unsafe { self.release(run.page, run.pages) } {
                return (done, Err(error));
            }
        }
        (runs.len(), Ok(()))
    }

    /// Makes a range of `pages` read as zero by hand: cheaper than the kernel's zeroes at any size, where the pages are there
    /// (`stopgap-bench arena --zeroing`).
    ///
    /// # Safety
    /// The range is the caller's, accessible, and nobody needs what is in it.
    #[inline]
    pub(super) unsafe fn zero(&self, run: Run) {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.address(run.page));
        // SAFETY: as the caller says.
        unsafe { start.write_bytes(0, run.pages << self.shift) };
    }

    /// The words of a range's bits, each with those of its bits that are the range's.
    fn words(page: usize, pages: usize) -> impl Iterator<Item = (usize, u64)> {
        (page / WORD..(page + pages).div_ceil(WORD)).map(move |at| {
            let low = page.saturating_sub(at * WORD);
            let high = (page + pages - at * WORD).min(WORD);
            (at, u64::MAX << low & u64::MAX >> (WORD - high))
        })
    }

    /// Notes that a free range holds old contents. Under its shard's lock, as the next ones.
    pub(super) fn keep(&self, page: usize, pages: usize) {
        self.keep_as(Which::All, page, pages);
    }

    /// As [`Window::keep`], and says whether the contents are older than [`Window::age`]'s last look.
    pub(super) fn keep_as(&self, which: Which, page: usize, pages: usize) {
        let (all, aged) = (self.bits(), self.aged());
        for (at, bits) in Window::words(page, pages) {
            let (Some(word), Some(aged)) = (all.get(at), aged.get(at)) else {
                continue;
            };
            word.store(word.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
            let others = aged.load(Ordering::Relaxed) & !bits;
            let own = if which == Which::Aged { bits } else { 0 };
            aged.store(others | own, Ordering::Relaxed);
        }
        self.counts.kept.fetch_add(pages, Ordering::Relaxed);
    }

    /// How many pages of a free range hold old contents.
    pub(super) fn held(&self, page: usize, pages: usize) -> usize {
        let all = self.bits();
        let count = |(at, bits): (usize, u64)| {
            let word = all.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
            (word & bits).count_ones() as usize
        };
        Window::words(page, pages).map(count).sum()
    }

    /// Forgets what a range holds, because it is given out or is given back: how many of its pages held something.
    pub(super) fn forget(&self, page: usize, pages: usize) -> usize {
        let mut held = 0;
        let all = self.bits();
        for (at, bits) in Window::words(page, pages) {
            let Some(word) = all.get(at) else {
                continue;
            };
            let now = word.load(Ordering::Relaxed);
            held += (now & bits).count_ones() as usize;
            if now & bits != 0 {
                word.store(now & !bits, Ordering::Relaxed);
            }
        }
        if held > 0 {
            self.counts.kept.fetch_sub(held, Ordering::Relaxed);
        }
        held
    }

    /// Says of all pages from `from` to `end` that are kept now that they were: those that still are when this is called
    /// again were not used between. Both are multiples of [`WORD`], or the window's ends.
    pub(super) fn age(&self, from: usize, end: usize) {
        let words = from / WORD..end.div_ceil(WORD);
        let all = self.bits().get(words.clone()).unwrap_or_default();
        for (word, aged) in all.iter().zip(self.aged().get(words).unwrap_or_default()) {
            aged.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The first run of pages from `from` to `end` that hold old contents (`which`: all such, or those that are aged), `most`
    /// of them at most.
    pub(super) fn first_kept(
        &self,
        from: usize,
        end: usize,
        most: usize,
        which: Which,
    ) -> Option<Run> {
        let (bits, aged) = (self.bits(), self.aged());
        let load =
            |words: &[AtomicU64], at: usize| words.get(at).map_or(0, |w| w.load(Ordering::Relaxed));
        let word = |at: usize| match which {
            Which::All => load(bits, at),
            Which::Aged => load(bits, at) & load(aged, at),
        };
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
        let last = last.min(end).min(start.saturating_add(most));
        let pages = last.saturating_sub(start);
        (pages > 0).then_some(Run { page: start, pages })
    }

    /// The runs of old contents in a free range, beginning with the first; where there are too many, the last has what lies
    /// between, too.
    pub(super) fn old(&self, page: usize, pages: usize) -> Old {
        let (mut old, end) = (Old::default(), page + pages);
        let mut from = page;
        while let Some(run) = self.first_kept(from, end, usize::MAX, Which::All) {
            from = run.page + run.pages;
            match old.runs.get_mut(old.count) {
                Some(place) => {
                    *place = run;
                    old.count += 1;
                }
                None => old.runs[OLD - 1].pages = from - old.runs[OLD - 1].page,
            }
            if from >= end {
                break;
            }
        }
        old
    }

    /// A run of at least `pages` that hold old contents, between `from` and `end`: the shortest in the upper part, of which
    /// so much is looked at that a page fault for each page would cost several times as much.
    pub(super) fn resident(&self, from: usize, end: usize, pages: usize) -> Option<Run> {
        let mut best: Option<Run> = None;
        let mut at = from.max(end.saturating_sub(pages * LOOKED_AT * WORD));
        let mut runs = pages * LOOKED_AT;
        while let Some(run) = self.first_kept(at, end, usize::MAX, Which::All) {
            if run.pages >= pages && best.is_none_or(|best| run.pages < best.pages) {
                best = Some(run);
                if run.pages - pages <= pages / 8 {
                    break;
                }
            }
            at = run.page + run.pages;
            runs -= 1;
            if runs == 0 || at >= end {
                break;
            }
        }
        best
    }

    /// The memfd behind the window.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(page: usize, pages: usize) -> Run {
        Run { page, pages }
    }

    #[test]
    fn bits_are_kept_counted_found_and_forgotten() {
        let window = Window::new(1_000 << 12, false).unwrap();
        for (page, pages) in [(0, 1), (3, 2), (60, 10), (128, 64), (500, 300), (999, 1)] {
            window.keep(page, pages);
        }
        assert_eq!(window.counts.kept.load(Ordering::Relaxed), 378);
        let find = |from| window.first_kept(from, 1_000, 1_000, Which::All);
        assert_eq!(find(0), Some(run(0, 1)));
        assert_eq!(find(1), Some(run(3, 2)));
        assert_eq!(find(4), Some(run(4, 1)));
        assert_eq!(find(5), Some(run(60, 10)));
        assert_eq!(find(70), Some(run(128, 64)));
        assert_eq!(find(192), Some(run(500, 300)));
        let some = |end, most| window.first_kept(192, end, most, Which::All);
        assert_eq!(some(1_000, 77), Some(run(500, 77)));
        assert_eq!(some(510, 77), Some(run(500, 10)));
        assert_eq!(some(500, 77), None);
        assert_eq!(find(800), Some(run(999, 1)));
        assert_eq!(window.held(4, 60), 5);
        assert_eq!(window.forget(0, 130), 15);
        assert_eq!(find(0), Some(run(130, 62)));
        assert_eq!(window.forget(130, 870), 363);
        assert_eq!(
            (find(0), window.counts.kept.load(Ordering::Relaxed)),
            (None, 0)
        );
    }

    #[test]
    fn what_was_kept_again_is_not_aged() {
        let window = Window::new(1_000 << 12, false).unwrap();
        window.keep(100, 200);
        let aged = |from| window.first_kept(from, 1_000, 1_000, Which::Aged);
        assert_eq!(aged(0), None);
        window.age(0, 1_000);
        assert_eq!(aged(0), Some(run(100, 200)));
        window.forget(150, 20);
        window.keep(150, 10);
        assert_eq!(aged(0), Some(run(100, 50)));
        assert_eq!(aged(150), Some(run(170, 130)));
        window.age(0, 1_000);
        assert_eq!(aged(0), Some(run(100, 60)));
    }

    #[test]
    fn old_contents_are_told_in_runs() {
        let window = Window::new(1_000 << 12, false).unwrap();
        let runs = |old: Old| old.runs_before(1_000).collect::<Vec<_>>();
        assert!(runs(window.old(0, 1_000)).is_empty());
        for number in 0..10 {
            window.keep(10 + number * 20, 5);
        }
        let old = window.old(12, 100);
        let expected = [(12, 3), (30, 5), (50, 5), (70, 5), (90, 5), (110, 2)];
        assert_eq!(runs(old), expected.map(|(page, pages)| run(page, pages)));
        assert_eq!(old.runs_before(111).last(), Some(run(110, 1)));
        assert_eq!(old.runs_before(100).last(), Some(run(110, 0)));
        let all = runs(window.old(0, 1_000));
        assert_eq!((all.len(), all.last()), (OLD, Some(&run(150, 45))));
    }

    #[test]
    fn the_shortest_run_that_is_long_enough_is_resident() {
        let window = Window::new(100_000 << 12, false).unwrap();
        for (page, pages) in [(10, 5), (100, 50), (200, 20), (300, 17), (400, 16)] {
            window.keep(page, pages);
        }
        assert_eq!(window.resident(0, 20_000, 16), Some(run(300, 17)));
        assert_eq!(window.resident(0, 20_000, 30), Some(run(100, 50)));
        assert_eq!(window.resident(0, 250, 10), Some(run(200, 20)));
        assert_eq!(window.resident(0, 20_000, 51), None);
        // Too far for what a page fault costs.
        assert_eq!(window.resident(0, 20_000, 1), None);
        assert_eq!(window.resident(0, 2_000, 1), Some(run(10, 5)));
    }

    #[test]
    fn a_window_has_pages_and_not_too_many() {
        let invalid = |bytes| matches!(Window::new(bytes, false), Err(Error::Invalid { .. }));
        assert!(invalid(0) && invalid(usize::MAX) && invalid(1 << 60));
    }
}
