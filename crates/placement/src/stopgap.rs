//! stopgap's own policy: best fit for long ranges, and for short ones a packed zone at the top of the window.
//!
//! ```
//! use stopgap_placement::{FreeError, Policy, Range, Request, Space, Stopgap};
//!
//! // Pages of 4 KiB in 1 GiB of addresses, or of units in a heap of anything else.
//! let space = Space::new(Range::new(0x4000_0000, 0x8000_0000), 0x1000)?;
//! let mut policy = Stopgap::new(space);
//! let texture = policy.place(&Request::of(3 << 20))?;
//! let huge = policy.place(&Request { alignment: 2 << 20, ..Request::of(8 << 20) })?;
//! assert_eq!(huge.start % (2 << 20), 0);
//! policy.free(texture)?;
//! assert_eq!(policy.free(texture), Err(FreeError::AlreadyFree));
//!
//! assert_eq!(policy.largest_hole(), (1 << 30) - (12 << 20));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Contract
//!
//! All of it: sizes from a page to the whole window, windows of up to 2^48 bytes, alignment with offset,
//! limits, both directions, hints, free by range with exact errors, in every build. What asks for no direction goes to the
//! top, or, if it is limited to a lower part of the window, to the bottom: so what can go anywhere leaves the bottom to
//! what can go nowhere else.
//!
//! [`PlaceError::Exhausted`] comes where nothing fits. Where no hole is of a class that is sure to fit, some that are not
//! may: a request looks at 256 of those before it fails. [`Stopgap::certain`] makes it look at all of them.
//! [`Stopgap::largest_hole`] then says how much would fit.
//!
//! # How
//!
//! * **Map** (`map`, `tile`): two bits a page say where ranges and holes begin and where holes end, and a table how far
//!   away the next boundary is where that is not in the next 63 bits. Tiles of 8,192 pages and the nodes above them exist
//!   only where something begins, so a terabyte costs what a page does.
//! * **Long holes** (`lists`), of more than 64 pages: a list for each of 128 classes an octave, and a bit a class. A
//!   request takes the shortest hole of its own class that will do, of the first 8, or one of the next class
//!   that has any: best fit to the page up to 255 pages, and to one part in 128 above. A request passes over a hole
//!   below the zone where the victim in the zone will do, so that a stack stays a stack.
//! * **Short holes** (`class`, `index`): a class a length. Tiles and nodes have a word a class that says where to look;
//!   each class remembers its topmost hole.
//! * **Zone** (`search`): an eighth more than what is held, at the top; where what is held lately fell to a quarter, at least
//!   8,192 pages or an eighth of the window. The smallest hole that does is taken there for up to 64 pages; below it the
//!   topmost, so that what is held moves up and the span stays small. Where too few find a place in the zone it grows
//!   (alignments need more room than an eighth).
//! * **Victim** (`map`): the hole that was cut last is kept out of the index. It is cut again before a longer hole is, so that no
//!   index changes. What is left of another hole takes its place only if it is longer: so what finds no hole goes to the top.
//! * **Magazines** (`magazine`): up to 24 freed ranges of each size up to 64 pages wait for the next request of that very size.
//!   Only ranges in the zone do (and, once there was a request for the bottom, ranges there), and never in a window that is
//!   nearly full, or as full as when a request last failed although as many pages were free. When the zone has shrunk by a
//!   thirty-second, each free that reaches the map gives it up to 4 ranges that lie below the zone; what a request would get
//!   from there goes to the map at once; and all do before a request fails or a free is refused. While fewer than 8,192 pages
//!   are held, and with what is kept they fill all but a seventeenth of the zone, each request for up to 64 pages that
//!   magazines do not answer gives the map up to 4 ranges, too: ranges that wait would push others out of the zone. Once an
//!   alignment was asked for, each request gets the least aligned that does: places that are aligned well are few, and taken by
//!   what need not be there they are missing until it is freed.
//! * **Alignment** (`search`, `aligned`): what is as long as its alignment, or a multiple, goes to the shortest hole that is aligned,
//!   of 8 in each of 12 classes, 40 in all. Other sizes with alignments of 64 pages and more find long holes by an index: it knows the
//!   best aligned page of each hole, and how many pages follow. The first such request begins the index. A request for up to 64
//!   pages first looks at 8 of the places that are aligned, one after the other.
//!
//! # Cost
//!
//! * Free: constant, but for the look-up of a tile and of a neighbour in another tile, at most 6 levels each.
//! * Place without alignment and limits: at most 64 classes of short holes, 16 leaves for the topmost long one, 8 long holes for the
//!   shortest, and, where nothing else fits, 256. A descent of at most 6 levels each.
//! * Place with them: besides, 8 places, 40 holes that may do and 6 that the index by alignment or a length finds, 8 short and 8 long ones
//!   within limits, one of each class that must, and 256 before it fails.
//! * The request that fails first after a window has become full gives the map what magazines keep, 1,536 ranges at most.
//!
//! Memory: 3.9 KiB for 8,192 pages where something begins, 0.48 bytes a page; 43 to 48 KiB besides, by the size of the window.
//! The index by alignment takes 1 KiB a tile where a long hole starts, and 20 KiB besides. Tiles are kept for reuse
//! when nothing begins there any more. Ranges of more than a tile have one each: they are as cheap in instructions,
//! but each lies in a cache line, and in a page, of its own.
//! `docs/questions/placement.md` has the figures, beside other allocators', and the command that prints them.
//!
//! # Lineage
//!
//! The bits and their tree: Go's page allocator (runtime/mpagealloc.go), which keeps a bit a page that is
//! *used* and must fill them; ours has bits for boundaries alone. Lists by class with a bit each: TLSF
//! (Masmano and others, 2004) and OffsetAllocator. The victim: Doug Lea's malloc. Magazines: Bonwick's
//! (2001) and the kernel's iova rcaches, whose ranges are rounded to powers of two; ours are of exact sizes.
//!
//! # Tried and lost
//!
//! Instructions an operation as callgrind counts them, the driver's taken off.
//!
//! * An index of short holes that is exact in its nodes, too: in `sequential` 3.4 million of their bits changed in a million
//!   operations; now 0.3 million do.
//! * An index of them that is not exact in its tiles either: searches follow old bits, 455 instructions instead of
//!   401 in `tight`.
//! * Only the tile of each class's topmost hole remembered, and a walk back to the last boundary at each free
//!   instead of a bit at a hole's end: 552 instead of 469 in `sequential`.
//! * Every hole in the index, no victim: 469 instead of 392 in `sequential`.
//! * Magazines that keep what is freed outside the zone, too: `aligned` is then as fast, but its span grows to
//!   6.8 times what is held.
//! * A popped range's low part left in its magazine: the same range, freed again, then looks like a double
//!   free and is looked at twice; 9.5 ns instead of 4.8 in `pbobench`.
//! * Long holes by address like short ones, two classes an octave: a request walks the holes of its class, 6,286 of them at
//!   worst, and fails where another class would do.
//! * Magazines of sizes above 64 pages: they hand out ranges of a zone long left, and what lies idle in them is missing in a
//!   window that is nearly full.
//! * Lists in which the hole freed last comes first, at any address: 1.023 times what is held instead of 1.018 for sizes and
//!   lifetimes by Zipf's law, and slower, because what is used lies farther apart. The topmost of two leads.
//! * Lengths counted from bits alone: 532 instructions an operation instead of 471 for 1 to 512 pages in a window of 1.05
//!   times what is held. Lengths looked up always: 16 ns instead of 12 for 1 to 64 pages, half of them freed.
//! * The victim cut before a short hole that does not fit exactly: in `database-1.1` of `stopgap-bench shapes` 0.006 % of the
//!   requests fail instead of 0.001, and the span is 1.32 times what is held instead of 1.14.
//! * Only the topmost hole of a class looked at for an alignment: holes that are not aligned stay there and hide others. In
//!   `natural-1.2` the span is 1.21 times what is held instead of 1.06.
//! * Of each of 32 classes 8 holes looked at for an alignment, and 48 places, instead of an index: for 1 to 512 pages aligned to
//!   4 KiB to 4 MiB the span is 1.22 times what is held instead of 1.13, it takes about twice the time, and 16 us at worst.
//! * The lowest short hole taken where ranges were freed one below the other: in `comb-1.5` of `stopgap-bench shapes` the span
//!   is 1.41 times what is held instead of 1.42, but 1.45 instead of 1.31 where the newest ranges go first.
//! * A zone of what is held and no more: a thread that frees all of its few ranges and places as many again finds magazines empty,
//!   58 ns a pair instead of 16.
//! * Magazines of a program of few ranges that keep what they like: in `frag` of 100 ranges the span is 4.9 times what is held
//!   instead of 1.8.
//! * 16 ranges a magazine: for 1 to 64 pages, half of them freed, 12.7 ns instead of 12.0. 32: 11.2, but a stack that shrinks
//!   then spans more than an eighth over what is held.
//! * Popped starts left in a magazine, and not compared: 7.6 ns instead of 5.3 in `pbobench`.
//! * A table of 512 tiles lately used, however many tiles there are: 260 ns instead of 240 for 4 KiB to 1 GiB.

mod check;
mod class;
mod magazine;
mod map;
mod ranges;
mod search;
mod tile;

use alloc::string::String;

use crate::contract::{
    Direction, FreeError, PlaceError, Policy, Range, Request, Space, Statistics, Work,
};
use crate::memory::{Box, Memory, Vec};
use class::EXACT;
use magazine::{Magazines, Push};
use map::{Map, Place, Start};
use search::Want;

pub use ranges::Extent;

/// Ranges below the zone that a free gives the map besides its own.
const SWEPT: u32 = 4;

/// While few pages are held, these and what magazines keep may fill the zone but for one part in so many.
const KEPT_ROOM: u64 = 16;

/// Pages held from which that rule does not hold: of a larger zone magazines keep a small part at most.
const FEW: u64 = 8_192;

/// See the module.
#[derive(Clone)]
pub struct Stopgap {
    space: Space,
    shift: u32,
    map: Map,
    memory: Memory,
    magazines: Magazines,
    /// What was freed at the bottom, for requests with limits; from the first of those on.
    bottom: Option<Box<Magazines>>,
    /// Pages held, those in magazines left out.
    live: u64,
    /// The packed zone's first page when the map last changed: magazines keep what lies in it. 0 where
    /// there is nothing below it, so that every page may be wanted.
    keep_from: u64,
    /// The most and the least pages that were held lately.
    most: u64,
    least: u64,
    /// Pages held from which the window counts as full, because a request failed when somewhat more were held.
    full_from: u64,
    /// What `keep_from` was when magazines were last looked through, or the lowest that it was since.
    swept_from: u64,
    /// Pages of the next magazine to be looked through; beyond the last size when all have been.
    sweep: u64,
    /// Pages of the magazine that last gave the map some because all keep too much.
    given: u64,
    /// Pages of the packed zone beyond those held, in 1/65,536 of those held.
    slack: u32,
    /// Visits of a request that finds nothing where something must fit, before it fails.
    budget: u32,
    /// The greatest alignment, in bytes, that takes any start of a magazine. A page; 0 from the first
    /// request for more on: then they leave the aligned starts to those that need them.
    any_start: u64,
    /// For each alignment, where places were last probed.
    cursors: [u64; search::CURSORS],
    work: Work,
}

impl Stopgap {
    /// Makes a policy of an empty `space`. Takes 47 to 52 KiB, by the size of the window.
    #[must_use]
    pub fn new(space: Space) -> Stopgap {
        Stopgap::new_in(space, Memory::GLOBAL)
    }

    /// As [`Stopgap::new`], with its structures in `memory`, the list that emptying magazines makes among them: after
    /// this no call of [`Policy::place`] or [`Policy::free`] takes memory from the global allocator.
    #[must_use]
    pub fn new_in(space: Space, memory: Memory) -> Stopgap {
        let mut new = Stopgap::closed(memory);
        new.open(space);
        new
    }

    /// Returns a policy without a window, which places nothing before [`Stopgap::open`].
    ///
    /// The 9 KiB of a policy are too much for small stacks. A static made by this function, opened where it lies,
    /// needs none of them.
    #[must_use]
    pub const fn closed(memory: Memory) -> Stopgap {
        Stopgap {
            space: Space::PAGE_ZERO,
            shift: Space::PAGE_ZERO.page().trailing_zeros(),
            map: Map::closed(memory),
            magazines: Magazines::at_top(0),
            memory,
            bottom: None,
            live: 0,
            most: 0,
            least: 0,
            keep_from: 0,
            full_from: u64::MAX,
            swept_from: 0,
            sweep: EXACT + 1,
            given: 0,
            slack: search::SLACK_LEAST,
            budget: search::BUDGET,
            any_start: Space::PAGE_ZERO.page(),
            cursors: [0; search::CURSORS],
            work: Work::ZERO,
        }
    }

    /// Gives a policy made by [`Stopgap::closed`] its window. Uses less than 1 KiB of stack.
    ///
    /// # Panics
    /// It has a window already.
    pub fn open(&mut self, space: Space) {
        assert!(self.map.pages == 0, "a window is opened once");
        self.shift = space.page().trailing_zeros();
        self.any_start = space.page();
        self.space = space;
        self.map.open(space.window().length() >> self.shift);
        self.magazines.open(self.map.pages);
    }

    /// Lets a request fail only where no hole fits, however many have to be looked at. Without it a request that
    /// finds nothing where something must fit looks at 256 more holes before it fails.
    #[must_use]
    pub fn certain(mut self) -> Stopgap {
        self.budget = u32::MAX;
        self
    }

    /// Returns the bytes of the largest hole, for the text of an error: a failed request has joined all holes. Walks the
    /// holes of the highest class that has any.
    #[must_use]
    pub fn largest_hole(&self) -> u64 {
        self.map.largest().max(self.map.victim.pages()) << self.shift
    }

    #[inline]
    fn range(&self, start: u64, pages: u64) -> Range {
        let start = self.space.window().start + (start << self.shift);
        Range::new(start, start + (pages << self.shift))
    }

    #[inline]
    fn page_of(&self, address: u64) -> u64 {
        (address - self.space.window().start) >> self.shift
    }

    /// Whether a request that is not malformed has neither limits nor a hint, and does not begin at the bottom.
    #[inline]
    fn goes_anywhere(&self, request: &Request) -> bool {
        request.limits.is_none()
            && request.hint.is_none()
            // A power of two; without counting bits, which is a dozen instructions on the oldest x86-64.
            && request.alignment & request.alignment.wrapping_sub(1) == 0
            && request.alignment != 0
            && request.offset & (self.space.page() - 1) == 0
            && request.direction != Direction::BottomUp
    }

    /// Pages of a request; 0 of one for nothing or for more than there is.
    #[inline]
    fn pages_of(&self, request: &Request) -> u64 {
        request.size.wrapping_add(self.space.page() - 1) >> self.shift
    }

    /// Counts a range that is given out.
    #[inline]
    fn placed(&mut self, start: u64, pages: u64) -> Range {
        self.live += pages;
        self.work.placed += 1;
        self.range(start, pages)
    }

    #[inline(never)]
    fn place_in_map(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let need = self.space.need(request)?;
        let want = Want::new(&need, self.space, self.shift);
        if want.goes_to_bottom() && need.hint.is_none() {
            let kept = self.bottom_magazines();
            if let Some(start) = kept.pop_within(want.pages, want.low, want.high) {
                return Ok(self.placed(start, want.pages));
            }
        }
        let hinted = need
            .hinted(self.space)
            .and_then(|range| self.take_hinted(range));
        let start = hinted
            .or_else(|| self.search(&want))
            .or_else(|| {
                // Ranges that magazines keep may be in the way.
                self.flush().then(|| self.search(&want)).flatten()
            })
            .ok_or_else(|| self.failed(&want))?;
        Ok(self.placed(start, want.pages))
    }

    /// Notes that nothing was found. Where the window has as many pages, but none together, magazines stay empty:
    /// otherwise each request that fails would have to empty them.
    #[cold]
    fn failed(&mut self, want: &Want) -> PlaceError {
        if want.is_unlimited() && want.pages <= self.map.pages - self.live {
            self.full_from = self.live - self.live / 8;
            self.keep_from = 0;
        }
        PlaceError::Exhausted
    }

    /// The magazines of the bottom, made when asked for first. Apart: their 5 KiB would be on the stack of every caller.
    #[inline(never)]
    fn bottom_magazines(&mut self) -> &mut Magazines {
        let memory = self.memory;
        self.bottom
            .get_or_insert_with(|| Box::new_in(Magazines::at_bottom(), memory))
    }

    /// An aligned range that a magazine keeps.
    #[inline(never)]
    fn pop_aligned(&mut self, request: &Request, pages: u64) -> Option<u64> {
        let mask = (request.alignment - 1) >> self.shift;
        if mask >= 1 << 31 {
            return None;
        }
        let origin = request.offset.wrapping_sub(self.space.window().start) >> self.shift;
        self.magazines.pop_aligned(pages, mask, origin)
    }

    /// Anywhere in the map, which magazines keep nothing from: what is not found here may still be.
    #[inline(never)]
    fn place_plain(&mut self, pages: u64) -> Option<u64> {
        if pages == 0 || pages > self.map.pages || self.map.is_full() {
            return None;
        }
        if pages <= EXACT && self.keeps_too_much() {
            self.give_some();
        }
        self.plain(pages)
    }

    /// Whether magazines keep more than the zone has room for, and what is held is not about to rise again.
    #[inline]
    fn keeps_too_much(&self) -> bool {
        let taken = self.map.taken;
        taken + taken / KEPT_ROOM > self.map.pages - self.keep_from
            && taken > self.live
            && self.live < FEW
            && !self.swings()
    }

    /// Magazines keep too much: gives the map some of what one keeps, a size after the other.
    #[cold]
    fn give_some(&mut self) {
        self.given = self.given % EXACT + 1;
        for _ in 0..SWEPT {
            let Some(start) = self.magazines.pop_lowest(self.given) else {
                return;
            };
            self.give_kept(start, self.given);
        }
    }

    #[inline(never)]
    fn give(&mut self, start: u64, pages: u64, at: Place) {
        self.live -= pages;
        self.map.give(start, start + pages, at);
        self.keep_from = self.zone();
        self.swept_from = self.swept_from.min(self.keep_from);
        // What magazines keep below the zone lies between holes that would otherwise be one.
        if self.sweep <= EXACT
            || self.keep_from - self.swept_from > self.live / 32 + search::ZONE_LEAST
        {
            self.sweep_one();
        }
    }

    /// The zone has shrunk: gives the map some of what a magazine keeps below it, a size after the other.
    #[cold]
    fn sweep_one(&mut self) {
        if self.sweep > EXACT {
            self.sweep = 1;
            self.swept_from = self.keep_from;
        }
        let pages = self.sweep;
        for _ in 0..SWEPT {
            let below = self.keep_from + pages - 1;
            let Some(start) = self.magazines.pop_within(pages, 0, below) else {
                self.sweep += 1;
                return;
            };
            self.give_kept(start, pages);
        }
    }

    /// Places `pages`, of which a magazine gave the range at `start`: it lies below the zone now, and so the map gets it, as it
    /// gets others of the size that do, until one does not.
    #[cold]
    fn left_behind(&mut self, start: u64, pages: u64) -> Option<u64> {
        let mut start = start;
        loop {
            self.give_kept(start, pages);
            match self.magazines.pop(pages) {
                Some(next) if next >= self.keep_from => return Some(next),
                Some(next) => start = next,
                None => return self.place_plain(pages),
            }
        }
    }

    /// Frees any range.
    #[inline(never)]
    fn free_any(&mut self, range: Range) -> Result<(), FreeError> {
        if !self.space.holds(range) {
            return Err(FreeError::Malformed);
        }
        let start = self.page_of(range.start);
        let pages = (range.end - range.start) >> self.shift;
        let Some(at) = self.map.place(start) else {
            return Err(self.refuse(range));
        };
        if self.map.start(at) != Some(Start::Range) || self.map.length(at) != pages {
            return Err(self.refuse(range));
        }
        let keep = self.keep_from > 0;
        let high = start >= self.keep_from;
        let pushed = if self.bottom.is_some() {
            self.push_either(pages, start, high)
        } else {
            self.magazines.push(pages, start, keep && high)
        };
        match pushed {
            Push::Kept => self.live -= pages,
            Push::Full => self.give(start, pages, at),
            Push::Twice => return Err(FreeError::AlreadyFree),
        }
        Ok(())
    }

    /// Where there are magazines for the bottom, too.
    fn push_either(&mut self, pages: u64, start: u64, high: bool) -> Push {
        let keep = self.keep_from > 0;
        let Some(bottom) = &mut self.bottom else {
            return Push::Full;
        };
        if bottom.holds(pages, start) || self.magazines.holds(pages, start) {
            Push::Twice
        } else if high {
            self.magazines.push(pages, start, keep)
        } else {
            bottom.push(pages, start, keep)
        }
    }

    /// Every range that magazines keep: pages and start.
    fn kept(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let bottom = self.bottom.iter().flat_map(|bottom| bottom.all());
        self.magazines.all().chain(bottom)
    }

    /// Takes the range that a hint asks for, if it is free.
    #[inline(never)]
    fn take_hinted(&mut self, range: Range) -> Option<u64> {
        let (start, end) = (self.page_of(range.start), self.page_of(range.end));
        let free = self.hole_at(start).is_some_and(|hole| end <= hole.end);
        let bottom = self.bottom.as_ref();
        // To the map, what magazines keep is no hole.
        if !free
            && (self.magazines.overlap(start, end)
                || bottom.is_some_and(|bottom| bottom.overlap(start, end)))
        {
            self.flush();
        }
        let hole = self.hole_at(start)?;
        (end <= hole.end).then(|| {
            if hole == self.map.victim {
                self.map.take_within_victim(start, end);
            } else {
                self.map.take(hole, start, end);
            }
            start
        })
    }

    /// Gives the map a range that a magazine kept.
    #[inline(never)]
    fn give_kept(&mut self, start: u64, pages: u64) {
        if let Some(at) = self.map.place(start) {
            self.map.give(start, start + pages, at);
        }
    }

    /// Gives the map all that magazines keep; whether that was anything.
    #[cold]
    fn flush(&mut self) -> bool {
        let mut kept: Vec<(u64, u64)> = Vec::new_in(self.memory);
        self.magazines.drain_into(&mut kept);
        if let Some(bottom) = &mut self.bottom {
            bottom.drain_into(&mut kept);
        }
        if kept.is_empty() {
            return false;
        }
        for (pages, start) in kept {
            self.give_kept(start, pages);
        }
        self.work.flushes += 1;
        true
    }

    /// Why `range`, which is no range as it was given, is refused.
    #[cold]
    fn refuse(&mut self, range: Range) -> FreeError {
        if !self.space.holds(range) {
            return FreeError::Malformed;
        }
        self.flush();
        let (start, end) = (self.page_of(range.start), self.page_of(range.end));
        let free = self.hole_at(start).is_some_and(|hole| end <= hole.end);
        if free {
            FreeError::AlreadyFree
        } else {
            FreeError::NotAsGiven
        }
    }
}

impl Policy for Stopgap {
    fn space(&self) -> Space {
        self.space
    }

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        if self.goes_anywhere(request) {
            let pages = self.pages_of(request);
            let start = if request.alignment <= self.any_start {
                match self.magazines.pop(pages) {
                    Some(start) if start >= self.keep_from => Some(start),
                    Some(start) => self.left_behind(start, pages),
                    None => self.place_plain(pages),
                }
            } else {
                self.pop_aligned(request, pages)
            };
            if let Some(start) = start {
                return Ok(self.placed(start, pages));
            }
        }
        self.place_in_map(request)
    }

    #[inline]
    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        // What a magazine keeps, without a call. All else, and what is refused, begins anew.
        if self.space.holds(range) {
            let start = self.page_of(range.start);
            let pages = (range.end - range.start) >> self.shift;
            // Where nothing is kept no start is as high.
            let high = start > self.keep_from.wrapping_sub(1);
            if high
                && self.bottom.is_none()
                && self.map.is_short_range(start, pages)
                && self.magazines.push(pages, start, true) == Push::Kept
            {
                self.live -= pages;
                return Ok(());
            }
        }
        self.free_any(range)
    }

    fn statistics(&self) -> Statistics {
        self.walk()
    }

    fn work(&self) -> Work {
        Work {
            propagated: self.map.propagated,
            ..self.work
        }
    }

    fn check(&self) -> Result<(), String> {
        self.check_all()
    }
}

#[cfg(test)]
mod tests;
