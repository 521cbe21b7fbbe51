//! Ranges of up to 64 pages that were freed in a shard lately, by their exact size: given out again without the policy.
//!
//! ```text
//! thread's cache  <->  depot (under the shard's lock)  <->  policy
//! ```
//!
//! The depot of Bonwick's magazines (2001). All ranges in it hold old contents. What was there for the whole of the last half of
//! [`Config::decay`](super::Config::decay) is not needed: it goes to the policy, and from there to the kernel.

use super::cache::{Cache, Entry, LARGEST, ROUNDS};

/// A depot keeps at most one part in so many of the pages that are used in its shard, or [`FLOOR`].
const SHARE: usize = 4;
/// In bytes.
const FLOOR: usize = 8 << 20;

/// See the module.
pub(super) struct Depot {
    ranges: Cache,
    /// For each size, the fewest ranges that there were since [`Depot::take_unused`].
    least: [u8; LARGEST],
}

impl Depot {
    pub(super) const fn new() -> Depot {
        Depot {
            ranges: Cache::new(),
            least: [0; LARGEST],
        }
    }

    /// Returns how many pages it may keep where `used` are used.
    pub(super) fn room(used: usize, shift: u32) -> usize {
        (used / SHARE).max(FLOOR >> shift)
    }

    /// Keeps a range; false where there is no room.
    #[inline]
    pub(super) fn push(&mut self, page: usize, pages: usize, room: usize) -> bool {
        self.ranges.set_room(room);
        self.ranges.push(pages, Entry { page, dirty: true })
    }

    /// Takes a range of `pages`, the one that came last.
    #[inline]
    pub(super) fn pop(&mut self, pages: usize) -> Option<Entry> {
        let entry = self.ranges.pop(pages)?;
        if let Some(least) = self.least.get_mut(pages - 1) {
            *least = (*least).min(self.ranges.count(pages) as u8); // at most ROUNDS
        }
        Some(entry)
    }

    /// Whether there is a range of `pages`.
    #[inline]
    pub(super) fn has(&self, pages: usize) -> bool {
        self.ranges.count(pages) > 0
    }

    /// Pages kept.
    #[inline]
    pub(super) fn pages(&self) -> usize {
        self.ranges.pages()
    }

    /// Takes what nobody needed since the last call: what was there then, and was not taken since.
    pub(super) fn take_unused(&mut self, mut each: impl FnMut(usize, usize)) {
        for (pages, least) in (1..).zip(&mut self.least) {
            let (unused, count) = self.ranges.take_older(pages, usize::from(*least));
            for entry in unused.iter().take(count) {
                each(entry.page, pages);
            }
            *least = self.ranges.count(pages) as u8; // as above
        }
    }

    /// Takes all.
    pub(super) fn drain(&mut self, mut each: impl FnMut(usize, usize)) {
        self.least = [0; LARGEST];
        self.ranges.drain(|pages, entry| each(entry.page, pages));
    }
}

const _: () = assert!(ROUNDS <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_what_it_may_and_gives_up_what_was_not_needed() {
        let mut depot = Depot::new();
        let unused = |depot: &mut Depot| {
            let mut all = Vec::new();
            depot.take_unused(|page, pages| all.push((page, pages)));
            all
        };
        for page in [10, 20, 30] {
            assert!(depot.push(page, 2, 8));
        }
        assert!(depot.push(40, 1, 8));
        assert!(!depot.push(50, 2, 8), "8 pages at most");
        assert!(!depot.push(50, LARGEST + 1, 1_000));
        // All are new since the last call, of which there was none.
        assert_eq!(unused(&mut depot), []);
        let some = depot.pop(2).map(|entry| (entry.page, entry.dirty));
        assert_eq!(some, Some((30, true)));
        assert!(depot.push(30, 2, 8) && !depot.has(3));
        assert_eq!(unused(&mut depot), [(40, 1), (10, 2), (20, 2)]);
        assert_eq!((depot.pages(), depot.has(2)), (2, true));
        assert!(depot.push(60, 64, 100));
        let mut all = Vec::new();
        depot.drain(|page, pages| all.push((page, pages)));
        assert_eq!((all, depot.pages()), (vec![(30, 2), (60, 64)], 0));
        assert_eq!(unused(&mut depot), []);
    }

    #[test]
    fn its_room_is_a_quarter_of_what_is_used_or_8_mib() {
        let room = |used| Depot::room(used, 12);
        assert_eq!((room(0), room(8_192), room(80_000)), (2_048, 2_048, 20_000));
    }
}
