//! Activities of a thread that can explain its time, such as reclaim or a wait for a lock.

use std::sync::Arc;

use stopgap_trace::{Activity, Reclaimer, Span, Text};

use crate::why::Why;

/// An activity, which begins and ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Reclaim(Reclaimer, Option<Text>),
    Compaction,
    /// Whether the lock is that of a memory map; its address.
    Lock(bool, Option<u64>),
    Fence,
    /// A wait for a page that is locked or being written.
    Page,
    /// A block request of the thread itself.
    Block,
}

impl What {
    /// Returns the activity of a span; `None` if it does not explain why its thread waits.
    pub(crate) fn of_span(span: &Span) -> Option<What> {
        Some(match span.what {
            Activity::DirectReclaim => What::Reclaim(Reclaimer::Direct, None),
            Activity::MemcgReclaim => What::Reclaim(Reclaimer::Memcg, None),
            Activity::Kswapd => What::Reclaim(Reclaimer::Kswapd, None),
            Activity::Throttled => What::Reclaim(Reclaimer::Throttled, None),
            Activity::Shrinker => What::Reclaim(Reclaimer::Shrinker, span.shrinker.clone()),
            Activity::Compaction => What::Compaction,
            Activity::Lock => What::Lock(false, span.address),
            Activity::MmapLock => What::Lock(true, span.address),
            Activity::Fence => What::Fence,
            Activity::PageLock | Activity::Writeback => What::Page,
            Activity::Block => What::Block,
            Activity::PageFault
            | Activity::FileLock
            | Activity::Softirq
            | Activity::Interrupt
            | Activity::Work => return None,
        })
    }

    /// Returns the cause if the activity is reclaim or compaction.
    fn memory(&self) -> Option<Why> {
        match self {
            What::Reclaim(Reclaimer::Direct, _) => Some(Why::DirectReclaim),
            What::Reclaim(Reclaimer::Memcg, _) => Some(Why::MemcgReclaim),
            What::Reclaim(Reclaimer::Shrinker, function) => {
                Some(Why::Shrinker(function.as_deref().map(Arc::from)))
            }
            What::Compaction => Some(Why::Compaction),
            _ => None,
        }
    }

    /// Returns the cause if the activity is a wait, with its rank: the least counts. Contention for a lock lies
    /// within the wait for the mmap_lock to which it belongs.
    fn wait(&self) -> Option<(u8, Why)> {
        match self {
            What::Fence => Some((0, Why::Fence)),
            What::Lock(true, _) => Some((1, Why::MmapLock)),
            What::Lock(false, _) => Some((2, Why::Lock)),
            What::Page => Some((3, Why::Io)),
            _ => None,
        }
    }
}

/// An activity that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) what: What,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// The activities at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Holding<'i> {
    all: &'i [Interval],
    /// For each interval, the earliest begin of it and all later ones.
    begins: &'i [u64],
    /// From this moment to the next one at which an activity begins or ends.
    moment: (u64, u64),
}

impl<'i> Holding<'i> {
    /// Takes the intervals in the order of their ends. `begins` has, for each interval, the earliest begin of it and
    /// all later ones.
    pub(crate) fn new(
        (all, begins): (&'i [Interval], &'i [u64]),
        moment: (u64, u64),
    ) -> Holding<'i> {
        Holding {
            all,
            begins,
            moment,
        }
    }

    fn each(self) -> impl Iterator<Item = &'i Interval> {
        let (from, to) = self.moment;
        let all = self.all.iter().zip(self.begins);
        all.take_while(move |(_, begin)| **begin <= from)
            .map(|(interval, _)| interval)
            .filter(move |interval| interval.begin <= from && interval.end >= to)
    }

    /// Returns the innermost of reclaim and compaction. Inner activities end first, so they come first.
    pub(crate) fn memory(self) -> Option<Why> {
        if self.all.is_empty() {
            return None;
        }
        let mut inner: Option<(u64, Why)> = None;
        for interval in self.each() {
            if let Some(why) = interval.what.memory()
                && inner
                    .as_ref()
                    .is_none_or(|(begin, _)| *begin < interval.begin)
            {
                inner = Some((interval.begin, why));
            }
        }
        inner.map(|(_, why)| why)
    }

    pub(crate) fn throttled(self) -> bool {
        let throttled = What::Reclaim(Reclaimer::Throttled, None);
        self.each().any(|interval| interval.what == throttled)
    }

    pub(crate) fn block(self) -> bool {
        self.each().any(|interval| interval.what == What::Block)
    }

    /// Returns the cause of a wait for a fence, a lock or a page.
    pub(crate) fn wait(self) -> Option<Why> {
        if self.all.is_empty() {
            return None;
        }
        let waits = self.each().filter_map(|interval| interval.what.wait());
        waits.min().map(|(_, why)| why)
    }
}
