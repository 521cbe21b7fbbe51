//! What a thread is in the middle of, by pairs of begin and end events.

use stopgap_trace::{Reclaimer, Text};

use crate::why::Why;

/// A begin whose end has not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) what: What,
    pub(crate) begin: u64,
}

/// What begins and ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Reclaim(Reclaimer, Option<Text>),
    Compaction,
    Lock { mmap: bool, address: Option<u64> },
    Fence,
}

impl What {
    fn is_ended_by(&self, end: &What) -> bool {
        match (self, end) {
            (What::Reclaim(a, f), What::Reclaim(b, g)) => {
                a == b && (f == g || f.is_none() || g.is_none())
            }
            (
                What::Lock { mmap, address },
                What::Lock {
                    mmap: m,
                    address: a,
                },
            ) => mmap == m && (address == a || address.is_none() || a.is_none()),
            (What::Compaction, What::Compaction) | (What::Fence, What::Fence) => true,
            _ => false,
        }
    }
}

/// Begins, outermost first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intervals(Vec<Interval>);

/// No kernel path nests deeper; more are begins whose ends were lost.
const DEEPEST: usize = 16;

impl Intervals {
    pub(crate) fn begin(&mut self, what: What, begin: u64) {
        if self.0.len() == DEEPEST {
            self.0.remove(0);
        }
        self.0.push(Interval { what, begin });
    }

    /// The begin that `end` ends, and with it what was begun inside; `None` where there is none.
    pub(crate) fn end(&mut self, end: &What) -> Option<Interval> {
        let at = self.0.iter().rposition(|open| open.what.is_ended_by(end))?;
        let ended = self.0.remove(at);
        self.0.truncate(at);
        Some(ended)
    }

    /// Forgets all; how many there were.
    pub(crate) fn clear(&mut self) -> usize {
        let open = self.0.len();
        self.0.clear();
        open
    }

    /// The innermost of reclaim and compaction.
    pub(crate) fn memory(&self) -> Option<Why> {
        self.0.iter().rev().find_map(|open| match &open.what {
            What::Reclaim(Reclaimer::Direct, _) => Some(Why::DirectReclaim),
            What::Reclaim(Reclaimer::Memcg, _) => Some(Why::MemcgReclaim),
            What::Reclaim(Reclaimer::Shrinker, function) => Some(Why::Shrinker(function.clone())),
            What::Compaction => Some(Why::Compaction),
            _ => None,
        })
    }

    pub(crate) fn throttled(&self) -> bool {
        let throttled = What::Reclaim(Reclaimer::Throttled, None);
        self.0.iter().any(|open| open.what == throttled)
    }

    /// A fence or a lock. A lock's contention lies within the wait for the mmap_lock that it belongs to.
    pub(crate) fn wait(&self) -> Option<Why> {
        let any = |of: fn(&What) -> bool| self.0.iter().any(|open| of(&open.what));
        if any(|what| matches!(what, What::Fence)) {
            Some(Why::Fence)
        } else if any(|what| matches!(what, What::Lock { mmap: true, .. })) {
            Some(Why::MmapLock)
        } else if any(|what| matches!(what, What::Lock { .. })) {
            Some(Why::Lock)
        } else {
            None
        }
    }
}
