//! Things that a thread is in the middle of, by pairs of begin and end events.

use stopgap_trace::{Reclaimer, Text};

use crate::why::Why;

/// Something that begins and ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Reclaim(Reclaimer, Option<Text>),
    Compaction,
    /// Whether it is the lock of a memory map, and its address.
    Lock(bool, Option<u64>),
    Fence,
}

impl What {
    fn is_ended_by(&self, end: &What) -> bool {
        match (self, end) {
            (What::Reclaim(a, f), What::Reclaim(b, g)) => {
                a == b && (f == g || f.is_none() || g.is_none())
            }
            (What::Lock(mmap, address), What::Lock(m, a)) => {
                mmap == m && (address == a || address.is_none() || a.is_none())
            }
            (What::Compaction, What::Compaction) | (What::Fence, What::Fence) => true,
            _ => false,
        }
    }
}

/// Begins whose ends have not come, and when they were; outermost first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intervals(Vec<(What, u64)>);

/// No kernel path nests deeper; more are begins whose ends were lost.
const DEEPEST: usize = 16;

impl Intervals {
    pub(crate) fn begin(&mut self, what: What, begin: u64) {
        if self.0.len() == DEEPEST {
            self.0.remove(0);
        }
        self.0.push((what, begin));
    }

    /// Takes the begin that `end` ends, and with it what was begun inside; returns when it began.
    pub(crate) fn end(&mut self, end: &What) -> Option<u64> {
        let at = self.0.iter().rposition(|(what, _)| what.is_ended_by(end))?;
        let (_, begin) = self.0[at];
        self.0.truncate(at);
        Some(begin)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the innermost of reclaim and compaction.
    pub(crate) fn memory(&self) -> Option<Why> {
        self.0.iter().rev().find_map(|(what, _)| match what {
            What::Reclaim(Reclaimer::Direct, _) => Some(Why::DirectReclaim),
            What::Reclaim(Reclaimer::Memcg, _) => Some(Why::MemcgReclaim),
            What::Reclaim(Reclaimer::Shrinker, function) => Some(Why::Shrinker(function.clone())),
            What::Compaction => Some(Why::Compaction),
            _ => None,
        })
    }

    pub(crate) fn throttled(&self) -> bool {
        let throttled = What::Reclaim(Reclaimer::Throttled, None);
        self.0.iter().any(|(what, _)| *what == throttled)
    }

    /// Returns a fence or a lock. A lock's contention lies within the wait for the mmap_lock that it belongs to.
    pub(crate) fn wait(&self) -> Option<Why> {
        let wait = |what: &What| match what {
            What::Fence => Some((0, Why::Fence)),
            What::Lock(true, _) => Some((1, Why::MmapLock)),
            What::Lock(false, _) => Some((2, Why::Lock)),
            What::Reclaim(..) | What::Compaction => None,
        };
        let waits = self.0.iter().filter_map(|(what, _)| wait(what));
        waits.min().map(|(_, why)| why)
    }
}
