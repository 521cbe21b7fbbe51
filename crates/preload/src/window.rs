//! Which parts of the window are the program's.
//!
//! ```text
//! window   [----------------------------------------------------------------)
//! ranges     [ range  ] [range][ range      ]      placed: by us, or where the program said (MAP_FIXED)
//! holes         oo                    ooooooo      of a range, what the program has unmapped again
//! live       ###  ####  ####### #####              ranges less their holes: what the program has mapped
//! kept                            [ kept ]         placed, not the program's: freed maps with their pages
//! ```
//!
//! Invariant: what is live is mapped as the program wants it; all else in the window is a reservation of ours, without
//! access. A range goes back to the placement when all of it is holes. Both are found by address in a tree; a range of
//! a program that only maps and unmaps whole maps has no hole ever, and no memory for any.

use std::collections::BTreeMap;

use stopgap_placement::{Direction, Merge, Policy, Range, Request, Space, Stopgap};

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

    pub(crate) fn contains(self, inner: Span) -> bool {
        self.start <= inner.start && inner.end <= self.end
    }

    /// A page more on either side.
    pub(crate) const fn wider(self) -> Span {
        Span::new(
            self.start.saturating_sub(PAGE),
            self.end.saturating_add(PAGE),
        )
    }

    /// What both have; empty where they share nothing.
    pub(crate) fn with(self, other: Span) -> Span {
        Span::new(self.start.max(other.start), self.end.min(other.end))
    }
}

/// What was placed at one time.
struct Placed {
    end: usize,
    /// As we mapped it, never changed: anonymous, private, read and write. Only such a range may be kept.
    plain: bool,
    /// In order, apart from each other.
    holes: Vec<Span>,
}

impl Placed {
    /// It is plain no more; where it was, it goes to `turned`.
    fn turn(&mut self, start: usize, turned: &mut Vec<Span>) {
        if std::mem::replace(&mut self.plain, false) {
            turned.push(Span::new(start, self.end));
        }
    }
}

/// See the module.
pub(crate) struct Window {
    /// Apart, because of its size: 13 KiB, of which a fork copies what was touched.
    space: Box<Stopgap>,
    span: Span,
    ranges: BTreeMap<usize, Placed>,
}

/// Maps from this size on are aligned to it, as the kernel does it.
const HUGE: usize = 2 << 20;

fn request(span: Span) -> Request {
    let range = Range::new(span.start as u64, span.end as u64);
    Request {
        size: span.length() as u64,
        alignment: 1,
        offset: 0,
        limits: Some(range),
        direction: Direction::Any,
        hint: None,
        merge: Merge::Never,
    }
}

impl Window {
    /// All of `span` is reserved, nothing of it the program's. `None` where it is no window.
    pub(crate) fn new(span: Span) -> Option<Window> {
        let range = Range::new(span.start as u64, span.end as u64);
        let space = Space::new(range, PAGE as u64).ok()?;
        Some(Window {
            space: Box::new(Stopgap::new(space)),
            span,
            ranges: BTreeMap::new(),
        })
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Chooses a place for `length` bytes, whole pages; it is not live yet.
    pub(crate) fn place(&mut self, length: usize) -> Option<Span> {
        let alignment = if length >= HUGE { HUGE as u64 } else { 1 };
        let request = Request {
            alignment,
            ..Request::of(length as u64)
        };
        let range = self.space.place(&request).ok()?;
        Some(Span::new(
            usize::try_from(range.start).ok()?,
            usize::try_from(range.end).ok()?,
        ))
    }

    /// Gives a place back that is not live.
    pub(crate) fn unplace(&mut self, span: Span) {
        let freed = self
            .space
            .free(Range::new(span.start as u64, span.end as u64));
        // It was placed, and placed ranges are only freed here: cannot fail, and if it did, the place would only be
        // lost.
        debug_assert!(freed.is_ok(), "{span:?}: {freed:?}");
    }

    /// A place becomes the program's.
    pub(crate) fn enliven(&mut self, span: Span) {
        let placed = Placed {
            end: span.end,
            plain: true,
            holes: Vec::new(),
        };
        self.ranges.insert(span.start, placed);
    }

    /// Takes a whole plain range out: it stays placed, and is not live any more. `false`: there is no such range.
    pub(crate) fn take(&mut self, span: Span) -> bool {
        let whole = self.ranges.get(&span.start);
        let whole = whole.is_some_and(|r| r.end == span.end && r.plain && r.holes.is_empty());
        if whole {
            self.ranges.remove(&span.start);
        }
        whole
    }

    /// Ranges that share an address with `span`, in order.
    fn touched(&self, span: Span) -> Vec<usize> {
        let first = self.ranges.range(..=span.start).next_back();
        let first = first.map_or(span.start, |(start, _)| *start);
        let span_of = |start: usize, range: &Placed| Span::new(start, range.end);
        let all = self.ranges.range(first..span.end.max(first));
        all.filter(|(start, range)| span_of(**start, range).overlaps(span))
            .map(|(start, _)| *start)
            .collect()
    }

    /// The live parts of `span`, in order; neighbours may be apart in two.
    pub(crate) fn live(&self, span: Span) -> Vec<Span> {
        let mut live: Vec<Span> = Vec::new();
        let mut push = |part: Span| match live.last_mut() {
            _ if part.length() == 0 => {}
            Some(last) if last.end == part.start => last.end = part.end,
            _ => live.push(part),
        };
        for start in self.touched(span) {
            let Some(range) = self.ranges.get(&start) else {
                continue;
            };
            let mut from = start;
            for hole in &range.holes {
                push(Span::new(from, hole.start).with(span));
                from = hole.end;
            }
            push(Span::new(from, range.end).with(span));
        }
        live
    }

    /// The parts of `span` within the window that are not live, in order.
    pub(crate) fn gaps(&self, span: Span) -> Vec<Span> {
        let span = span.with(self.span);
        let mut gaps = Vec::new();
        let mut from = span.start;
        for live in self.live(span) {
            if from < live.start {
                gaps.push(Span::new(from, live.start));
            }
            from = live.end;
        }
        if from < span.end {
            gaps.push(Span::new(from, span.end));
        }
        gaps
    }

    /// Of `span`, what the program has changed: never kept again. The ranges that were plain until now.
    pub(crate) fn changed(&mut self, span: Span) -> Vec<Span> {
        let mut turned = Vec::new();
        for start in self.touched(span) {
            if let Some(range) = self.ranges.get_mut(&start) {
                range.turn(start, &mut turned);
            }
        }
        turned
    }

    /// Whether what lies right before `span` or behind it is the program's, and not plain.
    pub(crate) fn beside_changed(&self, span: Span) -> bool {
        let before = self.ranges.range(..span.start).next_back();
        let before = before.filter(|(_, range)| range.end == span.start);
        let behind = self.ranges.get(&span.end);
        let both = [before.map(|(_, range)| range), behind];
        both.into_iter().flatten().any(|range| !range.plain)
    }

    /// `span`, and the ranges that share an address with it.
    pub(crate) fn around(&self, span: Span) -> Span {
        let touched = self.touched(span);
        let mut around = span;
        for start in [touched.first(), touched.last()].into_iter().flatten() {
            let end = self.ranges.get(start).map_or(span.end, |range| range.end);
            around = Span::new(around.start.min(*start), around.end.max(end));
        }
        around
    }

    /// All of `span`, within the window, is live now: the program put a map there. Nothing kept may lie there. The
    /// ranges that were plain until now.
    pub(crate) fn claim(&mut self, span: Span) -> Vec<Span> {
        let mut turned = Vec::new();
        let mut from = span.start;
        for start in self.touched(span) {
            let Some(range) = self.ranges.get_mut(&start) else {
                continue;
            };
            range.turn(start, &mut turned);
            let mut left = Vec::new();
            for hole in &range.holes {
                let before = Span::new(hole.start, hole.end.min(span.start));
                let after = Span::new(hole.start.max(span.end), hole.end);
                left.extend([before, after].into_iter().filter(|part| part.length() > 0));
            }
            range.holes = left;
            let end = range.end;
            self.claim_unplaced(Span::new(from, start));
            from = from.max(end);
        }
        self.claim_unplaced(Span::new(from, span.end));
        turned
    }

    fn claim_unplaced(&mut self, span: Span) {
        if span.length() == 0 {
            return;
        }
        // Nothing is placed there, neither live nor kept: it can be placed.
        let placed = self.space.place(&request(span));
        debug_assert!(placed.is_ok(), "{span:?}: {placed:?}");
        if placed.is_ok() {
            let placed = Placed {
                end: span.end,
                plain: false,
                holes: Vec::new(),
            };
            self.ranges.insert(span.start, placed);
        }
    }

    /// Nothing of `span` is live any more. The ranges that were plain until now; those that `span` contains are gone.
    pub(crate) fn release(&mut self, span: Span) -> Vec<Span> {
        let mut turned = Vec::new();
        for start in self.touched(span) {
            let Some(range) = self.ranges.get_mut(&start) else {
                continue;
            };
            let hole = Span::new(start, range.end).with(span);
            let mut all: Vec<Span> = Vec::with_capacity(range.holes.len() + 1);
            let mut hole = hole;
            for old in range.holes.drain(..) {
                if old.end < hole.start || hole.end < old.start {
                    all.push(old);
                } else {
                    hole = Span::new(hole.start.min(old.start), hole.end.max(old.end));
                }
            }
            all.push(hole);
            all.sort_unstable_by_key(|hole| hole.start);
            range.turn(start, &mut turned);
            range.holes = all;
            let whole = Span::new(start, range.end);
            if range.holes == [whole] {
                self.ranges.remove(&start);
                self.unplace(whole);
            }
        }
        turned
    }
}
