//! Where it begins: memories by name.
//!
//! | name | memory | beside |
//! |---|---|---|
//! | `no-contiguous` | 256 MiB, every second page free, the others pinned | nobody |
//! | `thread` | mail 001's: see [`thread`] | four walkers |
//! | `unfragmented` | 1 GiB, all free | nobody |
//! | `kept-1/4`, `kept-1/4-pinned`, any `1/k` | 1 GiB, every k-th page kept, movable or pinned, the rest free | nobody |
//! | `aged` | 1 GiB after many allocations and frees: see [`aged`] | nobody |
//!
//! `kept` is what is left where memory was filled page by page and all but every k-th page freed. A snapshot of a real
//! machine begins in [`snapshot`].

pub mod aged;
pub mod snapshot;
pub mod thread;

use std::fmt;
use std::str::FromStr;

use super::buddy::{Buddy, Use};
use super::cost::Costs;
use super::kernel::Kernel;
use super::machine::{Machine, MachineError, Setting};

pub use thread::{UNMOVABLE_BLOCKS, UNMOVABLE_SHARE};

/// A memory by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scenario {
    /// Enough single pages free, no two adjacent, and none that can be moved or reclaimed.
    NoContiguous,
    /// Mail 001's machine under its load.
    Thread,
    /// All free.
    Unfragmented,
    /// One page of so many kept, the others free.
    Kept {
        /// One of this many pages is kept: 2 to 512.
        of: u32,
        /// Whether the kept pages are pinned, so that they cannot be moved.
        pinned: bool,
    },
    /// Long in use.
    Aged,
}

/// Default size of a memory in bytes.
const GIB: u64 = 1 << 30;

impl Scenario {
    /// Those that the list of scenarios has; `kept` is there with 1/4.
    pub const ALL: &'static [Scenario] = &[
        Scenario::NoContiguous,
        Scenario::Thread,
        Scenario::Unfragmented,
        Scenario::Kept {
            of: 4,
            pinned: false,
        },
        Scenario::Kept {
            of: 4,
            pinned: true,
        },
        Scenario::Aged,
    ];

    /// The setting that belongs to it: mail 001's kernel and costs for its own scenarios, those of a machine of today
    /// for the others.
    #[must_use]
    pub fn setting(self, seed: u64) -> Setting {
        let thread = Setting {
            seed,
            ..Setting::default()
        };
        match self {
            Scenario::NoContiguous | Scenario::Thread => thread,
            Scenario::Unfragmented | Scenario::Kept { .. } | Scenario::Aged => Setting {
                kernel: Kernel::V6_12,
                costs: Costs::RECENT,
                ..thread
            },
        }
    }

    /// A machine in this state.
    ///
    /// # Errors
    /// Those of [`Setting::check`].
    pub fn machine(&self, setting: &Setting) -> Result<Machine, MachineError> {
        setting.check()?;
        let pages = |bytes: u64| bytes / setting.page;
        match *self {
            Scenario::NoContiguous => {
                Machine::new(kept(pages(GIB / 4), 2, Use::Pinned, 1)?, setting)
            }
            Scenario::Thread => thread::machine(setting),
            Scenario::Unfragmented => Machine::new(Buddy::all_free(pages(GIB))?, setting),
            Scenario::Kept { of, pinned } => {
                let page = if pinned { Use::Pinned } else { Use::Movable };
                Machine::new(kept(pages(GIB), of, page, setting.seed)?, setting)
            }
            Scenario::Aged => Machine::new(aged::memory(pages(GIB), setting.seed)?, setting),
        }
    }
}

/// One page of `of` is used as `page`, the others are free. The seed says which one.
fn kept(pages: u64, of: u32, page: Use, seed: u64) -> Result<Buddy, MachineError> {
    let mut buddy = Buddy::new(pages, page)?;
    let of = u64::from(of);
    for frame in (0..pages).rev().filter(|frame| frame % of != seed % of) {
        buddy.free(frame, 0)?;
    }
    Ok(buddy)
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Scenario::NoContiguous => f.pad("no-contiguous"),
            Scenario::Thread => f.pad("thread"),
            Scenario::Unfragmented => f.pad("unfragmented"),
            Scenario::Kept { of, pinned } => {
                let pinned = if pinned { "-pinned" } else { "" };
                f.pad(&format!("kept-1/{of}{pinned}"))
            }
            Scenario::Aged => f.pad("aged"),
        }
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(word: &str) -> Result<Scenario, String> {
        let named = Scenario::ALL.iter().find(|one| one.to_string() == word);
        if let Some(scenario) = named {
            return Ok(*scenario);
        }
        if let Some(kept) = word.strip_prefix("kept-1/") {
            let of = kept.strip_suffix("-pinned").unwrap_or(kept);
            let pinned = of.len() < kept.len();
            return match of.parse() {
                Ok(of) if (2..=512).contains(&of) => Ok(Scenario::Kept { of, pinned }),
                _ if !of.is_empty() && of.bytes().all(|digit| digit.is_ascii_digit()) => {
                    Err(format!("'{word}': one page of 2 to 512 can be kept"))
                }
                _ => Err(format!(
                    "unknown scenario '{word}'; of kept there are kept-1/4 and kept-1/4-pinned, with any number from 2 \
                     to 512 in place of 4"
                )),
            };
        }
        let words: Vec<String> = Scenario::ALL.iter().map(Scenario::to_string).collect();
        let words = words.join(", ");
        Err(format!(
            "unknown scenario '{word}'; there are {words}, and other ratios of kept"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_wrong_ones_say_what_is_wrong() {
        for scenario in Scenario::ALL {
            assert_eq!(scenario.to_string().parse(), Ok(*scenario));
        }
        let error = |word: &str| word.parse::<Scenario>().unwrap_err();
        for word in ["kept-1/1", "kept-1/513-pinned", "kept-1/99999999999"] {
            assert!(error(word).contains("2 to 512 can be kept"), "{word}");
        }
        for word in ["kept-1/4-pined", "kept-1/", "kept-1/x", "kept-1/-pinned"] {
            assert!(error(word).contains("unknown scenario"), "{word}");
            assert!(error(word).contains("kept-1/4-pinned"), "{word}");
        }
    }
}
