use alloc::vec::Vec;

use crate::contract::{Direction, Merge, Range, Request, Space};

/// One call on a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Place this.
    Place(Request),
    /// Free this, which may be anything.
    Free(Range),
    /// Change what this merges with.
    Protect(Range, Merge),
}

/// The kinds of steps in a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Ranges held on average, at most.
    pub live: usize,
    /// Largest size in pages.
    pub pages: u64,
    /// Whether to ask for alignment above a page.
    pub alignment: bool,
    /// Whether to ask for limits.
    pub limits: bool,
    /// Whether to give hints.
    pub hints: bool,
    /// Which directions to ask for.
    pub directions: &'static [Direction],
    /// Whether ranges may merge, and protections change.
    pub merging: bool,
    /// Number of calls in 1,000 steps that must be refused: zero sizes, crossed limits, double
    /// frees, ranges never given, and the like.
    pub bad: u64,
}

impl Shape {
    /// Everything that the contract knows.
    pub const ALL: Shape = Shape {
        live: 48,
        pages: 12,
        alignment: true,
        limits: true,
        hints: true,
        directions: &[Direction::Any, Direction::TopDown, Direction::BottomUp],
        merging: false,
        bad: 60,
    };

    /// Nothing but sizes.
    pub const PLAIN: Shape = Shape {
        alignment: false,
        limits: false,
        hints: false,
        directions: &[Direction::Any],
        ..Shape::ALL
    };
}

/// Random steps. Whoever carries them out tells what was given ([`Walk::gave`]) and taken back
/// ([`Walk::took`]), so that most of what is freed is held.
#[derive(Debug, Clone)]
pub struct Walk {
    space: Space,
    shape: Shape,
    state: u64,
    held: Vec<(Range, Merge)>,
    /// The last range freed: to be freed twice.
    freed: Option<Range>,
}

impl Walk {
    /// The steps that `seed` fixes.
    #[must_use]
    pub fn new(space: Space, shape: Shape, seed: u64) -> Walk {
        Walk {
            space,
            shape,
            state: seed,
            held: Vec::new(),
            freed: None,
        }
    }

    /// SplitMix64, as in `stopgap-events`, on which this crate does not depend.
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound.max(1))) >> 64) as u64
    }

    fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Some page of the window.
    fn address(&mut self) -> u64 {
        let pages = self.space.window().length() / self.space.page();
        self.space.window().start + self.below(pages) * self.space.page()
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        if self.below(1_000) < self.shape.bad {
            return self.bad();
        }
        if self.shape.merging && !self.held.is_empty() && self.one_in(4) {
            let index = self.index(self.held.len());
            let (range, _) = self.held[index];
            let merge = Merge::With(u32::from(self.one_in(2)));
            return Step::Protect(self.part(range), merge);
        }
        // Pulled towards `live` held ranges, with long excursions to both sides.
        let full = self.held.len() as u64 * 1_000 / (2 * self.shape.live.max(1) as u64);
        if self.below(1_000) < full {
            let index = self.index(self.held.len());
            return Step::Free(self.held[index].0);
        }
        Step::Place(self.request())
    }

    /// Some whole pages of `range`.
    fn part(&mut self, range: Range) -> Range {
        let page = self.space.page();
        let pages = range.length() / page;
        let first = self.below(pages);
        let count = 1 + self.below(pages - first);
        let start = range.start + first * page;
        Range::new(start, start + count * page)
    }

    fn request(&mut self) -> Request {
        let shape = self.shape;
        let page = self.space.page();
        let mut request = Request::of(1 + self.below(shape.pages * page));
        request.direction = shape.directions[self.index(shape.directions.len())];
        if shape.merging && !self.one_in(4) {
            request.merge = Merge::With(u32::from(self.one_in(2)));
        }
        if shape.alignment && self.one_in(3) {
            request.alignment = page << self.below(6);
            if self.one_in(2) {
                request.offset = self.below(16) * page;
            }
        }
        if shape.limits && self.one_in(3) {
            let (a, b) = (self.address(), self.address());
            let end = a.max(b) + page;
            request.limits = Some(Range::new(a.min(b), end));
        }
        if shape.hints && self.one_in(6) {
            request.hint = Some(self.address() + self.below(2) * (page / 2));
        }
        request
    }

    /// A call that most of the time must be refused.
    fn bad(&mut self) -> Step {
        let page = self.space.page();
        let mut request = self.request();
        let window = self.space.window();
        let held = match self.held.len() {
            0 => Range::new(window.start, window.start + page),
            length => {
                let index = self.index(length);
                self.held[index].0
            }
        };
        match self.below(14) {
            0 => request.size = 0,
            1 => request.size = u64::MAX - self.below(2 * page),
            2 => request.alignment = 3 * page,
            3 => request.alignment = 0,
            4 => request.limits = Some(Range::new(window.end, window.start)),
            5 => request.limits = Some(Range::new(window.start, window.end + page)),
            6 => request.size = window.length() + 1,
            7 => return Step::Free(Range::new(held.start, held.end + page)),
            8 => return Step::Free(Range::new(held.start, held.end - page / 2)),
            9 => return Step::Free(Range::new(held.end, held.start)),
            10 => {
                let start = self.address();
                return Step::Free(Range::new(start, start + page));
            }
            11 => return Step::Free(Range::new(held.start + page, held.end + 3 * page)),
            12 => return Step::Free(Range::new(u64::MAX - page, u64::MAX)),
            _ => return Step::Free(self.freed.unwrap_or(held)),
        }
        Step::Place(request)
    }

    /// `range` was given.
    pub fn gave(&mut self, range: Range, merge: Merge) {
        self.held.push((range, merge));
    }

    /// `range` was taken back.
    pub fn took(&mut self, range: Range) {
        self.freed = Some(range);
        if let Some(index) = self.held.iter().position(|(held, _)| *held == range) {
            self.held.swap_remove(index);
            return;
        }
        // A part of what merged: what is left of each stays held.
        let mut left = Vec::new();
        self.held.retain(|&(held, merge)| {
            if !held.overlaps(range) {
                return true;
            }
            left.push((Range::new(held.start, held.end.min(range.start)), merge));
            left.push((Range::new(held.start.max(range.end), held.end), merge));
            false
        });
        self.held
            .extend(left.into_iter().filter(|(part, _)| part.start < part.end));
    }
}
