//! A word a page: what starts there, and how long it is. So a free knows at once what it frees, and of several that
//! free the same, one succeeds.
//!
//! ```text
//! bits  63..33 next      32..3 pages      2..0 kind
//! ```
//!
//! ```text
//!          take out of a cache or a shard              the last one of it is put back
//! Nothing ----------------------------------> Live ---> Held ------------------------> Free ---> Live ...
//!                                              |          ^  '-> Live, by the cache whose it is
//!                                              '----------' free: one compare-exchange, which only one caller wins
//! ```
//!
//! A word belongs to the thread that made it `Held`; until it is `Live` again nobody else writes to it.

use super::sync::{AtomicU64, Ordering};

/// The most pages that a window may have: both fields must hold them.
pub(crate) const MOST_PAGES: usize = (1 << 30) - 1;

/// Kinds of ranges that start at a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing did, ever.
    Nothing,
    /// A buffer that was given out.
    Live,
    /// What is nobody's, and not yet free either: in a thread's cache, or on its way.
    Held,
    /// A buffer that was given out and is free.
    Free,
}

/// A page's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Mark {
    /// `pages` and `next` are at most [`MOST_PAGES`].
    #[inline]
    pub(crate) fn new(kind: Kind, pages: usize) -> Mark {
        Mark(kind as u64 | (pages as u64) << 3)
    }

    fn with_next(self, next: usize) -> Mark {
        Mark(self.0 & ((1 << 33) - 1) | (next as u64) << 33)
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.0 & 7 {
            1 => Kind::Live,
            2 => Kind::Held,
            3 => Kind::Free,
            _ => Kind::Nothing,
        }
    }

    #[inline]
    pub(crate) fn pages(self) -> usize {
        (self.0 >> 3) as usize & MOST_PAGES
    }

    fn next(self) -> usize {
        (self.0 >> 33) as usize
    }
}

/// The words of a window.
pub(crate) struct Marks<'a>(&'a [AtomicU64]);

impl<'a> Marks<'a> {
    pub(crate) fn new(words: &'a [AtomicU64]) -> Marks<'a> {
        Marks(words)
    }

    /// Returns the mark of `page`; outside the window that of nothing.
    #[inline]
    pub(crate) fn get(&self, page: usize) -> Mark {
        let word = self.0.get(page);
        word.map_or(Mark(0), |word| Mark(word.load(Ordering::Acquire)))
    }

    /// Says what starts at `page`, which is the caller's.
    #[inline]
    pub(crate) fn set(&self, page: usize, mark: Mark) {
        if let Some(word) = self.0.get(page) {
            word.store(mark.0, Ordering::Release);
        }
    }

    /// Makes what is live at `page` the caller's: false where somebody else was first.
    #[inline]
    pub(crate) fn hold(&self, page: usize, seen: Mark) -> bool {
        let held = Mark::new(Kind::Held, seen.pages());
        // Acquire: all accesses of the thread that got the buffer come before those of this thread.
        self.0.get(page).is_some_and(|word| {
            word.compare_exchange(seen.0, held.0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })
    }
}

/// What was freed where nothing could be done about it: in a signal handler that interrupted a call of the same thread.
/// A stack that is taken as a whole, so that no element can come back while somebody looks at it (no ABA).
pub(crate) struct Deferred(AtomicU64);

impl Deferred {
    pub(crate) fn new() -> Deferred {
        Deferred(AtomicU64::new(0))
    }

    /// Whether there is anything.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Puts what starts at `page`, which the caller holds, on the stack.
    pub(crate) fn push(&self, marks: &Marks<'_>, page: usize) {
        let mark = marks.get(page);
        let mut top = self.0.load(Ordering::Relaxed);
        loop {
            // At most MOST_PAGES: a page's number and 1.
            marks.set(page, mark.with_next(top as usize));
            let new = page as u64 + 1;
            let put =
                (self.0).compare_exchange_weak(top, new, Ordering::Release, Ordering::Relaxed);
            match put {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all off the stack; hands each page and its mark, which are the caller's now, to `each`.
    pub(crate) fn take(&self, marks: &Marks<'_>, mut each: impl FnMut(usize, Mark)) {
        let mut top = self.0.swap(0, Ordering::Acquire) as usize;
        while let Some(page) = top.checked_sub(1) {
            let mark = marks.get(page);
            top = mark.next();
            let mark = mark.with_next(0);
            marks.set(page, mark);
            each(page, mark);
        }
    }
}
