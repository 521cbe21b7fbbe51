//! This kernel's knobs: what they allow a fault to do, for each size of page.
//!
//! A fault takes the largest size that is allowed, that fits into its mapping and that nobody has begun to use,
//! and goes
//! down the allowed sizes until one succeeds (`do_huge_pmd_anonymous_page`, `alloc_anon_folio`). All sizes are tried with
//! the same flags, which `defrag` and the mapping's advice decide (`vma_thp_gfp_mask`, Linux 6.18 `mm/huge_memory.c`):
//!
//! | `defrag` | advised with `MADV_HUGEPAGE` | not advised |
//! |---|---|---|
//! | `always` | reclaims and compacts | reclaims and compacts, once |
//! | `defer+madvise` | reclaims and compacts | wakes kswapd, takes what is free |
//! | `madvise` | reclaims and compacts | takes what is free |
//! | `defer` | wakes kswapd, takes what is free | wakes kswapd, takes what is free |
//! | `never` | takes what is free | takes what is free |
//!
//! So one [`Advice`] a machine is without danger, or none; and which sizes it gets their own knobs say: `always` serves
//! both, `madvise` advised memory alone, `never` none, `inherit` says what the common knob `enabled` says
//! (`thp_vma_allowable_orders`, `include/linux/huge_mm.h`). Before 6.8 there is the PMD's size and the common
//! knob.
//!
//! `MADV_COLLAPSE` obeys no knob and always reclaims (`khugepaged.c`, `alloc_charge_folio`): it is never used.

use std::fmt;

use stopgap_chunks::policy::ORDERS;

use crate::error::Error;
use crate::sys;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const POOLS: &str = "/sys/kernel/mm/hugepages";

/// The chosen word of `enabled`, of one size or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enabled {
    Always,
    Inherit,
    Madvise,
    Never,
}

/// The chosen word of `defrag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defrag {
    /// Every fault reclaims and compacts.
    Always,
    /// No fault does; kswapd and kcompactd are woken.
    Defer,
    /// Advised faults do; others wake kswapd.
    DeferMadvise,
    /// Advised faults do; others take what is free.
    Madvise,
    /// No fault does.
    Never,
}

impl Defrag {
    const ALL: [Defrag; 5] = [
        Defrag::Always,
        Defrag::Defer,
        Defrag::DeferMadvise,
        Defrag::Madvise,
        Defrag::Never,
    ];

    /// The knob's word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Defrag::Always => "always",
            Defrag::Defer => "defer",
            Defrag::DeferMadvise => "defer+madvise",
            Defrag::Madvise => "madvise",
            Defrag::Never => "never",
        }
    }
}

/// Whether memory is advised with `MADV_HUGEPAGE` where a large page is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// It is.
    Advised,
    /// It is left as it was mapped.
    Plain,
}

/// Why a size was not tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// This kernel has no pages of this size.
    NoSuchSize,
    /// This kernel has no transparent huge pages, or its knobs are not to be seen: `/sys` is not mounted.
    NoThp,
    /// The size's knob, or the common one, allows none in this memory.
    NotEnabled,
    /// `defrag` lets a fault that may have this size reclaim and compact.
    WouldCompact(Defrag),
    /// Huge pages are switched off for this process.
    SwitchedOff,
    /// A knob could not be read or understood: nobody knows what a fault would do.
    Unknown,
    /// The kernel refused the advice.
    AdviceRefused,
    /// The next address of the buffer is not a multiple of the size.
    Unaligned,
    /// The deadline was over.
    Deadline,
    /// The pool has no free page.
    PoolEmpty,
    /// What the pool lacks would be allocated, and compacted for: `nr_overcommit_hugepages` is not 0.
    PoolGrows,
    /// The pool's pages were gone, or refused to this process, when they were asked for.
    PoolRefused,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::NoSuchSize => "this kernel has no pages of this size",
            Why::NoThp => "this kernel has no transparent huge pages, or /sys is not mounted",
            Why::NotEnabled => "the knob `enabled` does not allow it",
            Why::WouldCompact(defrag) => {
                let word = defrag.word();
                return write!(
                    f,
                    "with `defrag` = {word} a fault may compact; `never` or `defer` would allow a try"
                );
            }
            Why::SwitchedOff => "huge pages are switched off for this process (PR_SET_THP_DISABLE)",
            Why::Unknown => "a knob could not be read, so a fault might compact",
            Why::AdviceRefused => "the kernel refused MADV_HUGEPAGE",
            Why::Unaligned => "the next address is not a multiple of it",
            Why::Deadline => "the deadline was over",
            Why::PoolEmpty => "the hugetlb pool has no free page",
            Why::PoolGrows => "nr_overcommit_hugepages is not 0: what the pool lacks would be compacted for",
            Why::PoolRefused => "the hugetlb pool refused",
        })
    }
}

/// A pool of huge pages that are set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pool {
    /// Pages that nobody holds and nobody has reserved.
    pub(super) free: u64,
    /// Whether the pool may grow beyond its size: by allocating directly.
    pub(super) grows: bool,
}

/// The knobs, as they stood when they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knobs {
    /// Bytes of a base page.
    pub(super) page: usize,
    /// `None`: the kernel has no THP.
    pub(super) thp: Option<Thp>,
    pub(super) switched_off: bool,
    /// By order.
    pub(super) pools: [Option<Pool>; ORDERS],
}

/// What `/sys/kernel/mm/transparent_hugepage` says. `None` inside is what could not be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Thp {
    pub(super) enabled: Option<Enabled>,
    pub(super) defrag: Option<Defrag>,
    /// By order: sizes that the kernel has, and their knob.
    pub(super) sizes: [Option<Option<Enabled>>; ORDERS],
}

impl Knobs {
    /// Reads the knobs: about 25 short files, some of which do not exist. A file that cannot be read forbids; nothing fails.
    #[must_use]
    pub fn read() -> Knobs {
        Knobs::by(
            sys::page(),
            sys::memory::thp_disabled().unwrap_or(true),
            &|path| match sys::files::read_text(path) {
                Ok(text) => File::Text(text),
                Err(Error::Call {
                    call: "open",
                    errno,
                }) if errno == rustix::io::Errno::NOENT => File::Absent,
                Err(_) => File::Unreadable,
            },
        )
    }

    /// Parses the texts that `read` returns for the paths.
    pub(super) fn by(page: usize, switched_off: bool, read: &dyn Fn(&str) -> File) -> Knobs {
        let at = |directory: &str, order: usize, file: &str| {
            let kib = (page << order) >> 10;
            read(&format!("{directory}/hugepages-{kib}kB/{file}"))
        };
        let pools = std::array::from_fn(|order| {
            let number = |file: &str| at(POOLS, order, file).number();
            let free = number("free_hugepages").filter(|_| order > 0)?;
            // A pool whose files cannot be read counts as one that grows.
            let reserved = number("resv_hugepages").unwrap_or(free);
            Some(Pool {
                free: free.saturating_sub(reserved),
                grows: number("nr_overcommit_hugepages") != Some(0),
            })
        });
        let common = read(&format!("{THP}/enabled"));
        let thp = (common != File::Absent).then(|| {
            let mut sizes = std::array::from_fn(|order| match order {
                0 => None,
                _ => match at(THP, order, "enabled") {
                    File::Absent => None,
                    file => Some(file.choice().and_then(enabled)),
                },
            });
            if sizes.iter().all(Option::is_none) {
                // A table of the page's size with 8-byte entries, where the kernel does not say it.
                let pmd = read(&format!("{THP}/hpage_pmd_size")).number();
                let pmd = pmd.unwrap_or(page as u64 * (page as u64 / 8));
                let order = (pmd / page as u64).max(1).ilog2() as usize;
                if let Some(size) = sizes.get_mut(order) {
                    *size = Some(Some(Enabled::Inherit));
                }
            }
            Thp {
                enabled: common.choice().and_then(enabled),
                defrag: read(&format!("{THP}/defrag")).choice().and_then(defrag),
                sizes,
            }
        });
        Knobs {
            page,
            thp,
            switched_off,
            pools,
        }
    }

    /// The order of a page of `bytes`; `None` where it is none of 0 to 10.
    fn order(&self, bytes: usize) -> Option<usize> {
        (0..ORDERS).find(|&order| self.page.checked_shl(order as u32) == Some(bytes))
    }

    /// How transparent pages of `bytes` may be tried without a chance of direct reclaim or compaction.
    ///
    /// # Errors
    /// Why they may not.
    pub fn may(&self, bytes: usize) -> Result<Advice, Why> {
        self.may_order(self.order(bytes).ok_or(Why::NoSuchSize)?)
    }

    pub(super) fn may_order(&self, order: usize) -> Result<Advice, Why> {
        let thp = self.thp.as_ref().ok_or(Why::NoThp)?;
        let knob = thp.sizes.get(order).copied().flatten();
        let knob = knob.ok_or(Why::NoSuchSize)?;
        if self.switched_off {
            return Err(Why::SwitchedOff);
        }
        let own = match knob.ok_or(Why::Unknown)? {
            Enabled::Inherit => thp.enabled.ok_or(Why::Unknown)?,
            own => own,
        };
        // `inherit` is no word of the common knob: were it read there, it would mean nothing.
        if matches!(own, Enabled::Never | Enabled::Inherit) {
            return Err(Why::NotEnabled);
        }
        match thp.safe().ok_or(Why::Unknown)? {
            Err(defrag) => Err(Why::WouldCompact(defrag)),
            // Faults in plain memory do not see it, and those in advised memory compact.
            Ok((Advice::Plain, defrag)) if own == Enabled::Madvise => {
                Err(Why::WouldCompact(defrag))
            }
            Ok((advice, _)) => Ok(advice),
        }
    }

    /// Whether some order above `order` may be tried.
    pub(super) fn may_larger(&self, order: usize) -> bool {
        (order + 1..ORDERS).any(|larger| self.may_order(larger).is_ok())
    }
}

impl Thp {
    /// The advice under which no fault reclaims directly, or the word that makes every one do it. `None`: unknown.
    fn safe(&self) -> Option<Result<(Advice, Defrag), Defrag>> {
        let defrag = self.defrag?;
        Some(match defrag {
            Defrag::Never | Defrag::Defer => Ok((Advice::Advised, defrag)),
            Defrag::Madvise | Defrag::DeferMadvise => Ok((Advice::Plain, defrag)),
            Defrag::Always => Err(defrag),
        })
    }
}

/// Result of reading a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum File {
    Text(String),
    Absent,
    Unreadable,
}

impl File {
    fn number(&self) -> Option<u64> {
        match self {
            File::Text(text) => text.trim().parse().ok(),
            File::Absent | File::Unreadable => None,
        }
    }

    /// The word in brackets.
    fn choice(&self) -> Option<&str> {
        match self {
            File::Text(text) => Some(text.split_once('[')?.1.split_once(']')?.0),
            File::Absent | File::Unreadable => None,
        }
    }
}

fn enabled(word: &str) -> Option<Enabled> {
    Some(match word {
        "always" => Enabled::Always,
        "inherit" => Enabled::Inherit,
        "madvise" => Enabled::Madvise,
        "never" => Enabled::Never,
        _ => return None,
    })
}

fn defrag(word: &str) -> Option<Defrag> {
    Defrag::ALL.into_iter().find(|defrag| defrag.word() == word)
}
