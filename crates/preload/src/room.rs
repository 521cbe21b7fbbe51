//! Which addresses of the room are taken.
//!
//! ```text
//! room     [----------------------------------------------------------------)
//! taken      [ place  ] [place]  [place ]    chosen by us, or by the program (MAP_FIXED)
//! unmapped           [..]     [..]           free again; a place of which a part is unmapped becomes two
//! kept                            [ kept ]   taken, not the program's: a freed map with its pages
//! ```
//!
//! The room is not reserved: its free addresses are free to the kernel, too. These books bear on where the next map
//! goes and on nothing else, so they may be wrong (a system call made directly): a map that lies at a place which is
//! thought to be free keeps it, because the kernel gets places as hints.
//!
//! Where nothing is ever kept, the policy's map of two bits a page is all that is written down.

use std::collections::BTreeMap;

use stopgap_placement::memory::Memory;
use stopgap_placement::stopgap::Extent;
use stopgap_placement::{Policy, Range, Request, Space, Stopgap};

use crate::kernel::PAGE;

/// The addresses from `start` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) const fn new(start: usize, end: usize) -> Span {
        Span { start, end }
    }

    pub(crate) const fn length(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    pub(crate) fn overlaps(self, other: Span) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Returns the span and a page more on either side.
    pub(crate) const fn wider(self) -> Span {
        Span::new(
            self.start.saturating_sub(PAGE),
            self.end.saturating_add(PAGE),
        )
    }

    /// Returns the addresses that both have; empty where they share none.
    pub(crate) fn with(self, other: Span) -> Span {
        Span::new(self.start.max(other.start), self.end.min(other.end))
    }
}

/// A place that is as the library mapped it, never changed by the program.
struct Whole {
    end: usize,
    /// It is not the program's now.
    kept: bool,
}

/// See the module.
pub(crate) struct Room {
    space: Stopgap,
    span: Span,
    /// Places that were never changed and may be kept one day, by start.
    whole: BTreeMap<usize, Whole>,
}

/// Maps from this size on are aligned to it, as the kernel does it.
pub(crate) const HUGE: usize = 2 << 20;

impl Room {
    /// Returns no room. It is opened where it lies: with 13 KiB it is too long for small stacks.
    pub(crate) const fn closed() -> Room {
        Room {
            space: Stopgap::closed(Memory::GLOBAL),
            span: Span::new(0, 0),
            whole: BTreeMap::new(),
        }
    }

    /// Opens the room at `span`, all of it free. `false` where a policy cannot have such a window.
    pub(crate) fn open(&mut self, span: Span) -> bool {
        let range = Range::new(span.start as u64, span.end as u64);
        let Ok(space) = Space::new(range, PAGE as u64) else {
            return false;
        };
        self.space.open(space);
        self.span = span;
        true
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Chooses a place for `length` bytes, whole pages, and takes it. `may_be_kept`: one day.
    pub(crate) fn place(&mut self, length: usize, may_be_kept: bool) -> Option<Span> {
        let alignment = if length >= HUGE { HUGE as u64 } else { 1 };
        let request = Request {
            alignment,
            ..Request::of(length as u64)
        };
        let span = span_of(self.space.place(&request).ok()?);
        if may_be_kept {
            self.enliven(span);
        }
        Some(span)
    }

    /// Frees a place.
    pub(crate) fn unplace(&mut self, span: Span) {
        self.whole.remove(&span.start);
        let freed = self.space.free(range_of(span));
        // Ranges are freed here alone. If one could not be, its addresses would be lost and nothing else.
        debug_assert!(freed.is_ok(), "{span:?}: {freed:?}");
    }

    /// Makes a place the program's, whole and unchanged.
    pub(crate) fn enliven(&mut self, span: Span) {
        let whole = Whole {
            end: span.end,
            kept: false,
        };
        self.whole.insert(span.start, whole);
    }

    /// Takes a whole place out of the program's, if the program never changed it. Its addresses stay taken.
    pub(crate) fn take(&mut self, span: Span) -> bool {
        match self.whole.get_mut(&span.start) {
            Some(whole) if whole.end == span.end && !whole.kept => {
                whole.kept = true;
                true
            }
            _ => false,
        }
    }

    /// Returns the place that has `address`, if one has.
    fn at(&mut self, address: usize) -> Option<Span> {
        match self.space.extent(address as u64)? {
            Extent::Held(range) => Some(span_of(range)),
            Extent::Free(_) => None,
        }
    }

    /// Marks the places in `span` as changed by the program. Returns whether any was not yet.
    pub(crate) fn changed(&mut self, span: Span) -> bool {
        let first = self.whole.range(..=span.start).next_back();
        let from = first.map_or(span.start, |(start, _)| *start);
        let touched = self.whole.range(from..span.end.max(from));
        let starts: Vec<usize> = touched
            .filter(|(_, whole)| !whole.kept && span.start < whole.end)
            .map(|(start, _)| *start)
            .collect();
        for start in &starts {
            self.whole.remove(start);
        }
        !starts.is_empty()
    }

    /// Returns whether a place that the program has changed lies right before or behind `span`.
    pub(crate) fn beside_changed(&mut self, span: Span) -> bool {
        let before = self.at(span.start.saturating_sub(1));
        let behind = self.at(span.end);
        let both = [before, behind];
        both.into_iter()
            .flatten()
            .any(|place| !self.whole.contains_key(&place.start))
    }

    /// Returns `span`, and the places that share an address with it.
    pub(crate) fn around(&mut self, span: Span) -> Span {
        let first = self.at(span.start).map_or(span.start, |place| place.start);
        let last = self.at(span.end - 1).map_or(span.end, |place| place.end);
        Span::new(first, last)
    }

    /// Takes all of `span`, where the program has put a map. Nothing kept may lie there.
    pub(crate) fn claim(&mut self, span: Span) {
        self.changed(span);
        let mut from = span.start;
        while from < span.end {
            let Some(extent) = self.space.extent(from as u64) else {
                return;
            };
            let (Extent::Held(range) | Extent::Free(range)) = extent;
            let part = span_of(range).with(Span::new(from, span.end));
            if let Extent::Free(_) = extent {
                let request = Request {
                    hint: Some(part.start as u64),
                    ..Request::of(part.length() as u64)
                };
                let taken = self.space.place(&request);
                // The policy takes a hint whose addresses are free.
                debug_assert_eq!(taken, Ok(range_of(part)));
            }
            from = part.end;
        }
    }

    /// Frees what of `span` is taken: the program has unmapped it. Returns whether a place of which a part stays was
    /// not changed before.
    pub(crate) fn release(&mut self, span: Span) -> bool {
        let mut any = false;
        let mut from = span.start;
        while from < span.end {
            let extent = self.space.extent(from as u64);
            let Some(Extent::Held(range) | Extent::Free(range)) = extent else {
                return any;
            };
            let whole = span_of(range);
            let part = whole.with(Span::new(from, span.end));
            if let Some(Extent::Held(_)) = extent {
                if part != whole {
                    any |= self.whole.remove(&whole.start).is_some();
                    self.space.split(part.start as u64);
                    self.space.split(part.end as u64);
                }
                self.unplace(part);
            }
            from = part.end;
        }
        any
    }
}

const fn range_of(span: Span) -> Range {
    Range::new(span.start as u64, span.end as u64)
}

/// Converts a range in the room, whose addresses fit a process.
const fn span_of(range: Range) -> Span {
    Span::new(range.start as usize, range.end as usize)
}
