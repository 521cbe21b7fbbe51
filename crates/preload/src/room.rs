//! Which addresses of the room are taken.
//!
//! ```text
//! room     [----------------------------------------------------------------)
//! places     [ place  ] [place][ place      ]      chosen by us, or by the program (MAP_FIXED)
//! holes         oo                    ooooooo      parts of a place that the program has unmapped
//! kept                            [ kept ]         placed, not the program's: freed maps with their pages
//! ```
//!
//! A place is free again when all of it is holes. A program that only maps and unmaps whole maps has no hole ever.
//!
//! The room is not reserved: its free addresses are free to the kernel, too. These books bear on where the next map
//! goes and on nothing else, so they may be wrong (a system call made directly): a map that lies at a place which is
//! thought to be free keeps it, because the kernel gets places as hints.

use std::collections::BTreeMap;

use stopgap_placement::memory::Memory;
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

/// A place.
struct Placed {
    end: usize,
    /// As the library mapped it, never changed by the program. Only such a map may be kept.
    plain: bool,
    /// In order, apart from each other.
    holes: Vec<Span>,
}

impl Placed {
    fn add_hole(&mut self, mut hole: Span) {
        let first = self.holes.partition_point(|old| old.end < hole.start);
        let behind = self.holes.partition_point(|old| old.start <= hole.end);
        for old in self.holes.drain(first..behind) {
            hole = Span::new(hole.start.min(old.start), hole.end.max(old.end));
        }
        self.holes.reserve_exact(1);
        self.holes.insert(first, hole);
    }
}

/// See the module.
pub(crate) struct Room {
    space: Stopgap,
    span: Span,
    places: BTreeMap<usize, Placed>,
}

/// Maps from this size on are aligned to it, as the kernel does it.
pub(crate) const HUGE: usize = 2 << 20;

impl Room {
    /// Returns no room. It is opened where it lies: with 13 KiB it is too long for small stacks.
    pub(crate) const fn closed() -> Room {
        Room {
            space: Stopgap::closed(Memory::GLOBAL),
            span: Span::new(0, 0),
            places: BTreeMap::new(),
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

    /// Chooses a place for `length` bytes, whole pages, and takes it. `plain`: a map there may be kept one day.
    pub(crate) fn place(&mut self, length: usize, plain: bool) -> Option<Span> {
        let alignment = if length >= HUGE { HUGE as u64 } else { 1 };
        let request = Request {
            alignment,
            ..Request::of(length as u64)
        };
        let range = self.space.place(&request).ok()?;
        let span = Span::new(
            usize::try_from(range.start).ok()?,
            usize::try_from(range.end).ok()?,
        );
        self.add(span, plain);
        Some(span)
    }

    /// Frees a place that was taken out or that is all holes.
    pub(crate) fn unplace(&mut self, span: Span) {
        let freed = self
            .space
            .free(Range::new(span.start as u64, span.end as u64));
        // Placed ranges are freed here alone. If one could not be, its addresses would be lost and nothing else.
        debug_assert!(freed.is_ok(), "{span:?}: {freed:?}");
    }

    /// Makes a place that was taken out the program's again.
    pub(crate) fn enliven(&mut self, span: Span) {
        self.add(span, true);
    }

    fn add(&mut self, span: Span, plain: bool) {
        let placed = Placed {
            end: span.end,
            plain,
            holes: Vec::new(),
        };
        self.places.insert(span.start, placed);
    }

    /// Takes a whole place out of the program's, if the program never changed it. Its addresses stay taken.
    pub(crate) fn take(&mut self, span: Span) -> bool {
        let whole = self.places.get(&span.start);
        let whole = whole.is_some_and(|r| r.end == span.end && r.plain && r.holes.is_empty());
        if whole {
            self.places.remove(&span.start);
        }
        whole
    }

    /// Returns the starts of the places that share an address with `span`, in order.
    fn touched(&self, span: Span) -> Vec<usize> {
        let first = self.places.range(..=span.start).next_back();
        let first = first.map_or(span.start, |(start, _)| *start);
        let span_of = |start: usize, place: &Placed| Span::new(start, place.end);
        let all = self.places.range(first..span.end.max(first));
        all.filter(|(start, place)| span_of(**start, place).overlaps(span))
            .map(|(start, _)| *start)
            .collect()
    }

    /// Marks the places in `span` as changed by the program. Returns whether any was not yet.
    pub(crate) fn changed(&mut self, span: Span) -> bool {
        let mut any = false;
        for start in self.touched(span) {
            if let Some(place) = self.places.get_mut(&start) {
                any |= std::mem::replace(&mut place.plain, false);
            }
        }
        any
    }

    /// Returns whether a place that the program has changed lies right before or behind `span`.
    pub(crate) fn beside_changed(&self, span: Span) -> bool {
        let before = self.places.range(..span.start).next_back();
        let before = before.filter(|(_, place)| place.end == span.start);
        let behind = self.places.get(&span.end);
        let both = [before.map(|(_, place)| place), behind];
        both.into_iter().flatten().any(|place| !place.plain)
    }

    /// Returns `span`, and the places that share an address with it.
    pub(crate) fn around(&self, span: Span) -> Span {
        let touched = self.touched(span);
        let mut around = span;
        for start in [touched.first(), touched.last()].into_iter().flatten() {
            let end = self.places.get(start).map_or(span.end, |place| place.end);
            around = Span::new(around.start.min(*start), around.end.max(end));
        }
        around
    }

    /// Takes all of `span`, where the program has put a map. Nothing kept may lie there.
    pub(crate) fn claim(&mut self, span: Span) {
        let mut from = span.start;
        for start in self.touched(span) {
            let Some(place) = self.places.get_mut(&start) else {
                continue;
            };
            place.plain = false;
            let mut left = Vec::new();
            for hole in &place.holes {
                let before = Span::new(hole.start, hole.end.min(span.start));
                let after = Span::new(hole.start.max(span.end), hole.end);
                left.extend([before, after].into_iter().filter(|part| part.length() > 0));
            }
            place.holes = left;
            let end = place.end;
            self.claim_free(Span::new(from, start));
            from = from.max(end);
        }
        self.claim_free(Span::new(from, span.end));
    }

    fn claim_free(&mut self, span: Span) {
        if span.length() == 0 {
            return;
        }
        let request = Request {
            hint: Some(span.start as u64),
            ..Request::of(span.length() as u64)
        };
        match self.space.place(&request) {
            Ok(range) if range.start == span.start as u64 => self.add(span, false),
            // A range is taken of which no place is known: the program's map lies there all the same.
            Ok(elsewhere) => {
                let freed = self.space.free(elsewhere);
                debug_assert!(freed.is_ok(), "{elsewhere}: {freed:?}");
            }
            Err(_) => {}
        }
    }

    /// Frees what of `span` is taken: the program has unmapped it. Returns whether a place of which a part stays was
    /// not changed before.
    pub(crate) fn release(&mut self, span: Span) -> bool {
        let before = self.places.range(..=span.start).next_back();
        if let Some((&start, place)) = before
            && span.end <= place.end
        {
            return self.release_in(start, span);
        }
        let mut any = false;
        for start in self.touched(span) {
            any |= self.release_in(start, span);
        }
        any
    }

    fn release_in(&mut self, start: usize, span: Span) -> bool {
        let Some(place) = self.places.get_mut(&start) else {
            return false;
        };
        let whole = Span::new(start, place.end);
        let hole = whole.with(span);
        if hole != whole {
            place.add_hole(hole);
            if place.holes != [whole] {
                return std::mem::replace(&mut place.plain, false);
            }
        }
        self.places.remove(&start);
        self.unplace(whole);
        false
    }
}
