//! Which page reclaim frees next.
//!
//! **Contract.** A hand goes over all frames in strides coprime to their number, so that it meets each once a lap,
//! and frees the pages on an LRU list ([`Use::Reclaimable`]) that it meets. The order of a list that lived long has
//! nothing to do with addresses, and a page that was just taken is about a lap away, as at the list's head.
//!
//! **Cost.** pages / reclaimable pages steps a page. **Lineage.** `shrink_inactive_list` (mm/vmscan.c). Left out:
//! active and inactive lists, references that give a second chance, pages under writeback, slab; and that zram needs
//! pages for what it stores.

use stopgap_events::random::Random;

use super::buddy::{Buddy, PageState, Use};

/// Pages that one round of reclaim asks for: `SWAP_CLUSTER_MAX`.
pub(super) const BATCH: u64 = 32;

#[derive(Debug, Clone)]
pub(super) struct Lru {
    hand: u64,
    stride: u64,
}

impl Lru {
    pub(super) fn new(pages: u64, random: &mut Random) -> Lru {
        let near = pages / 4 + random.below(pages / 4 + 1);
        // There is one: `pages - 1` is coprime to `pages`, and so is 1.
        let stride = (near..pages).find(|&stride| gcd(stride, pages) == 1);
        Lru {
            hand: random.below(pages),
            stride: stride.unwrap_or(1),
        }
    }

    /// Frees up to `want` pages and says how many: fewer only where no more can be reclaimed.
    pub(super) fn shrink(&mut self, buddy: &mut Buddy, want: u64) -> u64 {
        let want = want.min(buddy.used_pages(Use::Reclaimable));
        let pages = buddy.pages();
        let mut freed = 0;
        while freed < want {
            self.hand = (self.hand + self.stride) % pages;
            if buddy.page(self.hand) == Some(PageState::Used(Use::Reclaimable)) {
                let given = buddy.free(self.hand, 0);
                debug_assert_eq!(given, Ok(()));
                freed += 1;
            }
        }
        freed
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In each lap each page once, in no order of addresses, and not more than there are.
    #[test]
    fn a_lap_meets_every_page_once() {
        for pages in [1, 2, 3, 512, 1_000] {
            let mut buddy = Buddy::new(pages, Use::Reclaimable).unwrap();
            let mut lru = Lru::new(pages, &mut Random::new(7));
            assert_eq!(lru.shrink(&mut buddy, pages + 5), pages);
            assert_eq!(buddy.free_pages(), pages);
            assert_eq!(lru.shrink(&mut buddy, 1), 0);
        }
    }

    #[test]
    fn neighbours_are_freed_far_apart() {
        let mut buddy = Buddy::new(100_000, Use::Reclaimable).unwrap();
        let mut lru = Lru::new(100_000, &mut Random::new(1));
        lru.shrink(&mut buddy, 500);
        assert!(buddy.free_blocks(0) > 480, "{}", buddy.free_blocks(0));
    }
}
