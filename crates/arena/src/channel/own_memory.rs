//! A ring's memory of our own, for its tests and for loom's.

use super::ring::{Header, Line, Memory, Side, Way, sleep};
use super::sync::{AtomicU32, AtomicU64};

pub(super) struct Own {
    pub(super) header: Header,
    words: [Vec<AtomicU64>; 2],
}

impl Own {
    /// Indices begin at `start`; each way has so many words.
    pub(super) fn new(start: u32, words: u32) -> Own {
        let line = || Line(AtomicU32::new(start));
        let way = || Way {
            tail: line(),
            head: line(),
        };
        let side = || Side {
            sleep: AtomicU32::new(sleep::AWAKE),
            cpu: AtomicU32::new(0),
            woke: AtomicU64::new(0),
        };
        let words = || (0..words).map(|_| AtomicU64::new(!0)).collect();
        Own {
            header: Header {
                ways: [way(), way()],
                sides: [side(), side()],
            },
            words: [words(), words()],
        }
    }
}

impl<O: std::ops::Deref<Target = Own>> Memory for O {
    fn header(&self) -> &Header {
        &self.header
    }

    fn words(&self, side: usize) -> &[AtomicU64] {
        &self.words[side]
    }
}
