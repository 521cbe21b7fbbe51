//! Changes that a call could not apply to the books because the lock was taken. The next holder applies them.
//!
//! There is room for few. A change that finds none is lost: then a place stays taken for ever, or a hint is given in
//! vain, and nothing is kept any more.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::room::Span;

/// A change of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Unmapped by the program.
    Released = 1,
    /// Mapped by the program.
    Claimed = 2,
    /// Protection, advice or locking changed by the program.
    Changed = 3,
}

struct Note {
    /// 0 free, 1 being written or read, 2 to be read.
    state: AtomicU32,
    kind: AtomicU32,
    order: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
}

const ROOM: usize = 64;

/// See the module.
pub(crate) struct Notes {
    notes: [Note; ROOM],
    /// To be read.
    count: AtomicU32,
    order: AtomicUsize,
}

impl Notes {
    pub(crate) const fn new() -> Notes {
        Notes {
            notes: [const {
                Note {
                    state: AtomicU32::new(0),
                    kind: AtomicU32::new(0),
                    order: AtomicUsize::new(0),
                    start: AtomicUsize::new(0),
                    end: AtomicUsize::new(0),
                }
            }; ROOM],
            count: AtomicU32::new(0),
            order: AtomicUsize::new(0),
        }
    }

    /// Leaves one; `false` where there is no room.
    pub(crate) fn leave(&self, kind: Kind, span: Span) -> bool {
        for note in &self.notes {
            let free = note
                .state
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
            if free.is_err() {
                continue;
            }
            note.kind.store(kind as u32, Ordering::Relaxed);
            note.start.store(span.start, Ordering::Relaxed);
            note.end.store(span.end, Ordering::Relaxed);
            let order = self.order.fetch_add(1, Ordering::Relaxed);
            note.order.store(order, Ordering::Relaxed);
            note.state.store(2, Ordering::Release);
            self.count.fetch_add(1, Ordering::Release);
            return true;
        }
        false
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Takes the one that was left first; only who has the lock may.
    pub(crate) fn first(&self) -> Option<(Kind, Span)> {
        let ready = self.notes.iter();
        let ready = ready.filter(|note| note.state.load(Ordering::Acquire) == 2);
        let note = ready.min_by_key(|note| note.order.load(Ordering::Relaxed))?;
        let span = Span::new(
            note.start.load(Ordering::Relaxed),
            note.end.load(Ordering::Relaxed),
        );
        let kind = match note.kind.load(Ordering::Relaxed) {
            1 => Kind::Released,
            2 => Kind::Claimed,
            _ => Kind::Changed,
        };
        note.state.store(0, Ordering::Release);
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some((kind, span))
    }
}
