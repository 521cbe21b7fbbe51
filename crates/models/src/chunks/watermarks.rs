//! How much has to stay free.
//!
//! **Lineage.** `init_per_zone_wmark_min` and `__setup_per_zone_wmarks` (mm/page_alloc.c) of 3.4 and 6.12, for one
//! zone, and for a zone of high memory beside it. Left out: what transparent huge pages add (`set_recommended_min_free_kbytes`).

use super::kernel::Kernel;

/// The three marks, in free pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Down to it an allocation takes what is free; then it must reclaim.
    pub min: u64,
    /// Down to it an allocation takes what is free without a further thought; then it wakes kswapd.
    pub low: u64,
    /// Up to it kswapd reclaims.
    pub high: u64,
}

impl Watermarks {
    /// Those of `pages` pages of `page` bytes: min is four times the square root of the KiB that the kernel itself
    /// can use, here all of them. The two others lie a quarter and a half of that above, from 4.6 on at least
    /// 0.1 % and 0.2 % of the memory. At most a quarter of the memory, so that tiny ones can be modelled.
    #[must_use]
    pub fn for_memory(kernel: Kernel, pages: u64, page: u64) -> Watermarks {
        let kib = pages.saturating_mul(page) / 1024;
        let most_kib = if kernel.is_old() { 65_536 } else { 262_144 };
        let min_kib = kib.saturating_mul(16).isqrt().clamp(128, most_kib);
        let min = (min_kib * 1024 / page).min(pages / 8);
        let step = if kernel.is_old() {
            min / 4
        } else {
            (min / 4).max(pages / 1000)
        };
        Watermarks {
            min,
            low: min + step,
            high: min + 2 * step,
        }
    }

    /// Those of a zone of `pages` pages that the kernel does not map for itself (`is_highmem`), beside this one of
    /// `low_pages`: a min mark of a page in 1,024, 128 at most, and above it the steps that its size would have.
    #[must_use]
    pub fn of_high_memory(&self, pages: u64, low_pages: u64) -> Watermarks {
        let min = (pages / 1024).clamp(32, 128);
        let share = self.min * pages / low_pages;
        Watermarks {
            min,
            low: min + share / 4,
            high: min + share / 2,
        }
    }

    /// Down to it allocations go that must not wait, `GFP_ATOMIC`: `ALLOC_HIGH` takes half off min, `ALLOC_HARDER`
    /// a quarter off what is left.
    #[must_use]
    pub fn atomic(&self) -> u64 {
        let half = self.min - self.min / 2;
        half - half / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3,528 KiB for the 760 MiB that 32-bit Arm maps for itself; 11,584 and more for 8 GiB on x86-64.
    #[test]
    fn marks_are_those_of_real_machines() {
        let marks = Watermarks::for_memory(Kernel::V3_14, (760 << 20) / 4096, 4096);
        assert_eq!((marks.min, marks.low, marks.high), (882, 1_102, 1_322));
        assert_eq!(marks.atomic(), 331);
        let marks = Watermarks::for_memory(Kernel::V6_12, (8 << 30) / 4096, 4096);
        assert_eq!(marks.min, 11_585 / 4);
        assert_eq!(marks.low - marks.min, 2_097);
        let tiny = Watermarks::for_memory(Kernel::V3_4, 64, 4096);
        assert!(tiny.high < 64, "{tiny:?}");
    }
}
