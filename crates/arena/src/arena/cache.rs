//! What a thread has freed and will want again: ranges of up to 64 pages, by their exact size, without a lock and without
//! an atomic instruction that locks.
//!
//! Only the thread whose number it is uses it, and only while it is inside (`threads`), so that no signal handler sees it
//! half changed. An entry is written before it is counted, and read before it is counted off: so in the child of a fork
//! the caches of its parent's other threads are whole, but for one range each that was on its way.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::statistics::Counts;

/// Pages of the largest range.
pub(super) const LARGEST: usize = 64;
/// Ranges of a size.
pub(super) const ROUNDS: usize = 16;
/// The most that a cache keeps, in bytes.
pub(super) const MOST_BYTES: usize = 1 << 20;

const DIRTY: u32 = 1 << 31;

/// Where a range starts, and whether it holds old contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) page: usize,
    pub(super) dirty: bool,
}

impl Entry {
    pub(super) const NONE: Entry = Entry {
        page: 0,
        dirty: false,
    };
}

/// See the module. Zeroed memory is an empty one that may keep nothing. No two threads' share a line of the CPU's cache.
#[repr(align(128))]
pub(super) struct Cache {
    counts: [AtomicU8; LARGEST],
    entries: [[AtomicU32; ROUNDS]; LARGEST],
    /// Pages kept, dirty or not.
    pages: AtomicU32,
    /// Pages that may be kept, and 1; 0 before that is known.
    room: AtomicU32,
    /// The buffers that this thread took and gave back.
    pub(super) buffers: Counts,
}

impl Cache {
    /// An empty one that may keep nothing.
    pub(super) const fn new() -> Cache {
        Cache {
            counts: [const { AtomicU8::new(0) }; LARGEST],
            entries: [const { [const { AtomicU32::new(0) }; ROUNDS] }; LARGEST],
            pages: AtomicU32::new(0),
            room: AtomicU32::new(0),
            buffers: Counts::new(),
        }
    }

    /// Takes a range of `pages`, the one that came last.
    #[inline]
    pub(super) fn pop(&self, pages: usize) -> Option<Entry> {
        let (counter, entries) = self.class(pages)?;
        let left = counter.load(Ordering::Relaxed).checked_sub(1)?;
        let entry = entries.get(usize::from(left))?.load(Ordering::Relaxed);
        counter.store(left, Ordering::Release);
        self.add_pages(0_u32.wrapping_sub(pages_u32(pages)));
        Some(Entry {
            page: (entry & !DIRTY) as usize,
            dirty: entry & DIRTY != 0,
        })
    }

    /// Keeps a range; false where there is no room.
    #[inline]
    pub(super) fn push(&self, pages: usize, entry: Entry) -> bool {
        let Some((counter, entries)) = self.class(pages) else {
            return false;
        };
        let count = counter.load(Ordering::Relaxed);
        let kept = self.pages.load(Ordering::Relaxed) + pages_u32(pages);
        let Some(slot) = entries.get(usize::from(count)) else {
            return false;
        };
        if kept >= self.room.load(Ordering::Relaxed) {
            return false;
        }
        // A page's number is below 2^30 (`marks::MOST_PAGES`).
        let word = entry.page as u32 | if entry.dirty { DIRTY } else { 0 };
        slot.store(word, Ordering::Relaxed);
        counter.store(count + 1, Ordering::Release);
        self.pages.store(kept, Ordering::Relaxed);
        true
    }

    #[inline]
    fn class(&self, pages: usize) -> Option<(&AtomicU8, &[AtomicU32; ROUNDS])> {
        let class = pages.wrapping_sub(1);
        Some((self.counts.get(class)?, self.entries.get(class)?))
    }

    #[inline]
    fn add_pages(&self, more: u32) {
        let pages = self.pages.load(Ordering::Relaxed).wrapping_add(more);
        self.pages.store(pages, Ordering::Relaxed);
    }

    /// How many ranges of `pages` there are.
    #[inline]
    pub(super) fn count(&self, pages: usize) -> usize {
        let class = self.class(pages);
        class.map_or(0, |(count, _)| usize::from(count.load(Ordering::Relaxed)))
    }

    /// Takes what came first of those of `pages`, at most `most`: the entries, and how many; the rest moves down.
    pub(super) fn take_older(&self, pages: usize, most: usize) -> ([Entry; ROUNDS], usize) {
        let mut all = [Entry::NONE; ROUNDS];
        let count = self.count(pages);
        if count == 0 || most == 0 {
            return (all, 0);
        }
        // They come from the last to the first.
        for place in all.iter_mut().take(count).rev() {
            *place = self.pop(pages).unwrap_or(Entry::NONE);
        }
        let older = count.min(most);
        for entry in &all[older..count] {
            self.push(pages, *entry);
        }
        (all, older)
    }

    /// Empties it.
    pub(super) fn drain(&self, mut each: impl FnMut(usize, Entry)) {
        for pages in 1..=LARGEST {
            while let Some(entry) = self.pop(pages) {
                each(pages, entry);
            }
        }
    }

    /// How many pages it may keep; `None` before that was decided.
    #[inline]
    pub(super) fn room(&self) -> Option<usize> {
        (self.room.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Decides it.
    pub(super) fn set_room(&self, pages: usize) {
        self.room.store(pages_u32(pages) + 1, Ordering::Relaxed);
    }

    /// Pages kept.
    pub(super) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed) as usize
    }

    /// Counts the pages again, after a fork left one on its way.
    pub(super) fn count_again(&self) {
        let counts = self.counts.iter().zip(1_u32..);
        let pages = counts.map(|(count, pages)| u32::from(count.load(Ordering::Relaxed)) * pages);
        self.pages.store(pages.sum(), Ordering::Relaxed);
    }
}

/// At most a cache's pages.
#[inline]
fn pages_u32(pages: usize) -> u32 {
    u32::try_from(pages).unwrap_or(u32::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(room: usize) -> Cache {
        let cache = Cache::new();
        cache.set_room(room);
        cache
    }

    fn entry(page: usize) -> Entry {
        Entry {
            page,
            dirty: page % 2 == 1,
        }
    }

    #[test]
    fn the_last_comes_first_and_of_its_size() {
        let cache = cache(100);
        assert!(cache.push(1, entry(7)) && cache.push(1, entry(8)) && cache.push(64, entry(9)));
        assert_eq!(cache.pages(), 66);
        assert_eq!(cache.pop(1), Some(entry(8)));
        assert_eq!(cache.pop(2), None);
        assert_eq!(cache.pop(64), Some(entry(9)));
        assert_eq!(cache.pop(65), None);
        assert_eq!(cache.pop(0), None);
        assert_eq!(cache.pop(1), Some(entry(7)));
        assert_eq!((cache.pop(1), cache.pages()), (None, 0));
    }

    #[test]
    fn it_keeps_no_more_than_its_room() {
        let cache = cache(3);
        assert!(cache.push(2, entry(1)));
        assert!(!cache.push(2, entry(3)));
        assert!(cache.push(1, entry(5)));
        assert!(!cache.push(1, entry(6)));
        assert!(!self::cache(0).push(1, entry(1)));
        assert!(!self::cache(1_000).push(65, entry(1)));
    }

    #[test]
    fn the_older_half_goes() {
        let cache = cache(100);
        for page in 0..ROUNDS {
            assert!(cache.push(2, entry(page)));
        }
        assert!(!cache.push(2, entry(99)));
        let (older, count) = cache.take_older(2, ROUNDS / 2);
        assert_eq!(older[..count], std::array::from_fn::<_, 8, _>(entry));
        assert_eq!(cache.pages(), 16);
        for page in (8..ROUNDS).rev() {
            assert_eq!(cache.pop(2), Some(entry(page)));
        }
        assert_eq!(cache.take_older(2, 1).1, 0);
        assert!(cache.push(2, entry(4)));
        assert_eq!((cache.count(2), cache.take_older(2, 0).1), (1, 0));
        let (older, count) = cache.take_older(2, ROUNDS / 2);
        assert_eq!((older[0], count), (entry(4), 1));
    }

    #[test]
    fn counting_again_finds_what_is_there() {
        let cache = cache(100);
        for pages in [1, 3, 3, 64] {
            assert!(cache.push(pages, entry(pages)));
        }
        cache.add_pages(5);
        cache.count_again();
        assert_eq!(cache.pages(), 71);
        let mut found = Vec::new();
        cache.drain(|pages, entry| found.push((pages, entry)));
        assert_eq!(found.len(), 4);
        assert_eq!(cache.pages(), 0);
    }
}
