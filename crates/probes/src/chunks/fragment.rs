//! Fragmented memory, made on purpose: what the machine looks like after weeks, in half a minute.
//!
//! ```text
//!  free    |........................................................|   large blocks
//!  take    |AAAAAAAAAAAAAAAA........................................|   folios of a child, as large as are free
//!  split   |a...a...a...a...........................................|   every k-th page frame kept, the rest given back
//!          |a...a...a...a...a...a...a...a...a...a...a...a...a...a...|   and so on, until no large block is free
//! ```
//!
//! What is free afterwards lies in pieces of fewer than k pages. The kept pages are movable: the
//! kernel may compact them; or *pinned* by page references, so that it cannot (as DMA buffers).
//! A k-th of what was free is held, which is the least: with less some free block has k pages.
//!
//! * [`Ratio`]: which share of pages is kept.
//! * [`recipe`]: how much is held, and whether the machine is large enough. Pure.
//! * [`build`]: the holder's work. [`state`]: the holder beside us, and its end.
//! * [`fresh`]: one that is fragmented enough, with every knob as it was.
//!
//! **Do no harm.** At no moment less than [`recipe::RESERVE`] stays available (on small machines a third of what is).
//! The holder dies with us, also by SIGKILL, and with it all that it holds; it is the first to go when memory ends.

pub mod build;
pub mod recipe;
pub mod state;

use std::fmt;
use std::str::FromStr;

pub use state::{Maker, fresh};

/// The share of page frames that is kept: one in so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    one_in: u64,
}

impl Ratio {
    /// One frame in `one_in` is kept: 2 to 512 (a huge page of 2 MiB on x86-64). `None` beyond.
    #[must_use]
    pub fn new(one_in: u64) -> Option<Ratio> {
        (2..=512).contains(&one_in).then_some(Ratio { one_in })
    }

    /// One frame in so many.
    #[must_use]
    pub fn one_in(self) -> u64 {
        self.one_in
    }

    /// The largest order that what lies between two kept frames can have: aligned blocks of
    /// fewer pages than `one_in`.
    #[must_use]
    pub fn largest_order(self) -> u32 {
        (self.one_in - 1).ilog2()
    }
}

/// As `1/4`.
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", self.one_in)
    }
}

impl FromStr for Ratio {
    type Err = String;

    fn from_str(word: &str) -> Result<Ratio, String> {
        word.strip_prefix("1/")
            .and_then(|number| number.parse().ok())
            .and_then(Ratio::new)
            .ok_or_else(|| format!("'{word}' is no ratio; write it as 1/4 (1/2 to 1/512)"))
    }
}

/// The state to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Which share of frames is kept.
    pub keep: Ratio,
    /// Whether the kept pages are pinned by references, so that compaction cannot move them.
    pub pinned: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_testing::assert_contains;

    #[test]
    fn ratios_read_back_and_wrong_ones_are_told() {
        for one_in in [2, 3, 4, 512] {
            let ratio = Ratio::new(one_in).unwrap();
            assert_eq!(ratio.to_string().parse(), Ok(ratio));
        }
        for wrong in ["4", "1/1", "1/0", "1/513", "2/4", "0.25", "1/-4", "", "1/"] {
            assert_contains(wrong.parse::<Ratio>().unwrap_err(), &["1/4"]);
        }
    }

    /// ```text
    /// k = 4   K...K...     frames 1, 2-3 free: order 1
    /// k = 3   K..K..K..    frames 4-5: order 1
    /// k = 8   K.......     frames 4-7: order 2
    /// ```
    #[test]
    fn what_fits_between_kept_frames() {
        let order = |one_in| Ratio::new(one_in).unwrap().largest_order();
        assert_eq!([2, 3, 4, 5, 8, 16].map(order), [0, 1, 1, 2, 2, 3]);
    }
}
