//! Best fit by handle: for those who keep 8 bytes for each range that they hold.
//!
//! ```
//! use stopgap_placement::by_handle::ByHandle;
//! use stopgap_placement::{FreeError, Range, Request, Space};
//!
//! let space = Space::new(Range::new(0x4000_0000, 0x8000_0000), 0x1000)?;
//! let mut policy = ByHandle::new(space);
//! let (range, texture) = policy.place(&Request::of(3 << 20))?;
//! assert_eq!(range.length(), 3 << 20);
//! let huge = Request { alignment: 2 << 20, ..Request::of(8 << 20) };
//! let (range, _) = policy.place(&huge)?;
//! assert_eq!(range.start % (2 << 20), 0);
//! policy.free(texture)?;
//! assert_eq!(policy.free(texture), Err(FreeError::AlreadyFree));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Stopgap`](crate::Stopgap) frees by address, packs short ranges and knows limits, hints and directions. This policy
//! knows sizes, alignments and offsets, of any window, and looks nothing up: an operation touches a handful of cache lines,
//! whether a range has one page or a million.
//!
//! # How
//!
//! * **Nodes** (`nodes`): 32 bytes for each range and each hole, with the numbers of its neighbours by address. A handle is a
//!   node's number and generation. A node's generation changes when its range is freed, and a node whose generations are
//!   used up is not used again: so a handle that was freed is refused for ever. A handle of another policy is refused by a
//!   number that each policy has, if fewer than 4,096 were made between.
//! * **Classes** (`classes`): a list of holes for each length up to 255 pages, above that 128 an octave. A request takes the
//!   first hole of the lowest class that is sure to fit. Where its own class is not sure, it takes the shortest
//!   that will do of the first 8 holes there: best fit to the page up to 255 pages, and to one part in 128 above.
//! * **Edge**: the hole at the window's start is in no list. It is cut only where no shorter hole will do. The lists
//!   prefer holes that are far from it: a hole comes first if it lies above the mean of the last holes, else second.
//! * **Padding**: in a window of 2^24 pages or more, while all but 1/32 of it was never needed, what an aligned range leaves of
//!   its hole on one side or the other stays with the range until that is freed, if it is no longer than the range. So fewer
//!   holes are made and joined again. A range of more than 1/128 of the window is never padded, and with [`ByHandle::certain`]
//!   none is.
//!
//! # Cost
//!
//! Place looks at 8 holes at most before it takes one, at 17 where it is aligned, and, where none need fit, at 256 before it
//! fails ([`ByHandle::certain`]: at all that may be long enough). Free looks at two neighbours. Nodes come in chunks of
//! 16 KiB, and no chunk is ever moved.

mod check;
mod nodes;

use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::classes::{CLASSES, EXACT, Firsts, Set, class_of, least_of_class};
use crate::contract::{Direction, FreeError, Lack, PlaceError, Range, Request, Space, Work};
use nodes::{EDGE, END, LAST_GENERATION, NONE, Node, Nodes};

/// Holes of a size's own class among which the shortest that will do is taken.
const LOOKS: u32 = 8;
/// Holes that may happen to be aligned that are looked at, in all and of one class.
const ALIGNED_LOOKS: u32 = 2;
const ALIGNED_LOOKS_PER_CLASS: u32 = 1;
/// The same for a range that is as long as its alignment, or a multiple: such ranges leave holes that are aligned.
const NATURAL_LOOKS: u32 = 16;
const NATURAL_LOOKS_PER_CLASS: u32 = 4;
/// Pages of the least window in which ranges are padded: one of 64 GiB, in pages of 4 KiB. What fills a smaller one would miss
/// the padding.
const PADDED: u64 = 1 << 24;
/// A range is padded if it takes no more than one part in so many of the window.
const SHORT: u64 = 128;
/// Holes looked at before a request fails.
const BUDGET: u32 = 256;
/// The mean of starts is kept of so many holes: 2 to this power.
const MEAN_OF: u32 = 8;

/// A range that [`ByHandle`] placed, in 8 bytes: a node's number, and below it the policy's and the generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(NonZeroU64);

/// See the module.
#[derive(Clone)]
pub struct ByHandle {
    space: Space,
    shift: u32,
    /// The policy's number, above the bits of a generation. A copy has the same.
    tag: u32,
    /// Holes looked at before a request fails.
    budget: u32,
    /// Pages of the edge with which aligned ranges are padded.
    pads_from: u64,
    /// Pages of the longest range that is padded: fewer than 2^32.
    longest_padded: u64,
    /// The page at which holes that come start, a mean ([`MEAN_OF`]).
    middle: i64,
    nodes: Nodes,
    /// Classes of which there is a hole.
    nonempty: Set,
    /// For each class the first hole.
    first: Firsts,
    work: Work,
}

/// Policies made.
static POLICIES: AtomicU32 = AtomicU32::new(0);

impl ByHandle {
    /// Makes a policy of an empty `space`. Takes about 20 KiB and a chunk of nodes.
    #[must_use]
    pub fn new(space: Space) -> ByHandle {
        let shift = space.page().trailing_zeros();
        let pages = space.window().length() >> shift;
        let mut nodes = Nodes::new();
        // The edge and the end.
        for _ in [EDGE, END] {
            nodes.more();
        }
        let (edge, end) = (&mut nodes[EDGE], END);
        (edge.pages, edge.after) = (pages, end);
        let end = &mut nodes[END];
        end.set_start(pages);
        end.before = EDGE;
        end.turn();
        ByHandle {
            space,
            shift,
            tag: POLICIES.fetch_add(1, Ordering::Relaxed) << LAST_GENERATION.count_ones(),
            budget: BUDGET,
            pads_from: if pages >= PADDED {
                pages - pages / 32
            } else {
                u64::MAX
            },
            longest_padded: (pages / SHORT).min(u64::from(u32::MAX)),
            middle: 0,
            nodes,
            nonempty: Set::NONE,
            first: Firsts::new(),
            work: Work::ZERO,
        }
    }

    /// Lets a request fail only where no hole fits, however many have to be looked at.
    #[must_use]
    pub fn certain(mut self) -> ByHandle {
        (self.budget, self.pads_from) = (u32::MAX, u64::MAX);
        self
    }

    /// Returns the space that it fills.
    #[must_use]
    pub fn space(&self) -> Space {
        self.space
    }

    /// Chooses a range and takes it.
    ///
    /// # Errors
    /// [`PlaceError`]; nothing has changed then. Limits, hints and directions are what it lacks.
    #[inline]
    pub fn place(&mut self, request: &Request) -> Result<(Range, Handle), PlaceError> {
        let page = self.space.page();
        let aligned = request.alignment.wrapping_sub(1);
        let is_simple = request.limits.is_none()
            && request.hint.is_none()
            && request.direction == Direction::Any
            && request.alignment & aligned == 0
            && request.offset & (page - 1) == 0;
        let pages = request.size.wrapping_add(page - 1) >> self.shift;
        // An alignment of 0 is less by one than the largest number.
        let number = if !is_simple || pages == 0 || aligned == u64::MAX {
            None
        } else if aligned < page {
            self.plain(pages)
        } else {
            self.aligned(&self.want(request, pages))
        };
        let Some(number) = number else {
            return Err(self.refusal(request));
        };
        self.work.placed += 1;
        let node = &self.nodes[number];
        let low = self.tag | node.generation();
        // A range's generation is odd.
        let handle = NonZeroU64::MIN | u64::from(number) << 32 | u64::from(low);
        Ok((self.range(node.given()), Handle(handle)))
    }

    /// Frees a range.
    ///
    /// # Errors
    /// [`FreeError::AlreadyFree`] where it was freed before, [`FreeError::NotAsGiven`] where another policy placed it;
    /// nothing has changed then.
    #[inline]
    pub fn free(&mut self, handle: Handle) -> Result<(), FreeError> {
        let number = self.held(handle)?;
        if self.nodes[number].generation() == LAST_GENERATION {
            let new = self.renew(number);
            self.give(new);
        } else {
            self.give(number);
        }
        Ok(())
    }

    /// Returns the range of a handle.
    ///
    /// # Errors
    /// As [`ByHandle::free`].
    #[inline]
    pub fn range_of(&self, handle: Handle) -> Result<Range, FreeError> {
        let node = &self.nodes[self.held(handle)?];
        Ok(self.range(node.given()))
    }

    /// Returns counters of all steps so far. Cheap.
    #[must_use]
    pub fn work(&self) -> Work {
        self.work
    }

    /// Returns the bytes of the largest hole, for the text of an error. Walks everything.
    #[must_use]
    pub fn largest_hole(&self) -> u64 {
        self.statistics().largest_hole
    }

    /// The node of a handle, whose range is held.
    #[inline]
    fn held(&self, handle: Handle) -> Result<u32, FreeError> {
        let value = handle.0.get();
        let number = (value >> 32) as u32;
        match self.nodes.get(number) {
            Some(node) if node.generation() == value as u32 ^ self.tag => Ok(number),
            _ => Err(self.refused(value as u32)),
        }
    }

    #[cold]
    fn refused(&self, low: u32) -> FreeError {
        if (low ^ self.tag) > LAST_GENERATION {
            FreeError::NotAsGiven
        } else {
            FreeError::AlreadyFree
        }
    }

    #[inline]
    fn range(&self, (start, pages): (u64, u64)) -> Range {
        let start = self.space.window().start + (start << self.shift);
        Range::new(start, start + (pages << self.shift))
    }

    /// Why a request has no range: the reason where even an empty space could not answer it, what is lacked, or that all is taken.
    #[cold]
    fn refusal(&self, request: &Request) -> PlaceError {
        if let Err(why) = self.space.need(request) {
            PlaceError::Impossible(why)
        } else if request.limits.is_some() {
            PlaceError::Lacks(Lack::Limits)
        } else if request.hint.is_some() {
            PlaceError::Lacks(Lack::Hint)
        } else if request.direction != Direction::Any {
            PlaceError::Lacks(Lack::Direction)
        } else {
            PlaceError::Exhausted
        }
    }

    /// A request of `pages` that asks for an alignment and nothing else.
    #[inline]
    fn want(&self, request: &Request, pages: u64) -> Want {
        let mask = (request.alignment - 1) >> self.shift;
        let offset = request.offset.wrapping_sub(self.space.window().start);
        Want {
            pages,
            mask,
            residue: offset >> self.shift & mask,
        }
    }

    /// Takes `pages` anywhere.
    #[inline]
    fn plain(&mut self, pages: u64) -> Option<u32> {
        let class = class_of(pages);
        if class >= CLASSES {
            return None;
        }
        let mut found = NONE;
        let mut sure = class;
        if pages >= 2 * EXACT && least_of_class(pages) < pages {
            sure += 1;
            if self.nonempty.contains(class) {
                found = self.shortest(class, pages, LOOKS);
            }
        }
        if found == NONE
            && let Some(class) = self.nonempty.first_from(sure)
        {
            self.work.visited += 1;
            found = self.first.get(class);
        }
        let edge = self.nodes[EDGE].pages;
        if found == NONE || self.nodes[found].pages > edge {
            if edge >= pages {
                return self.cut_last(EDGE, pages);
            }
            if found == NONE {
                found = self.shortest(class, pages, self.budget);
                if found == NONE {
                    return None;
                }
            }
        }
        self.cut_last(found, pages)
    }

    /// The shortest hole of `class` that has `pages`, of the first `looks`.
    #[inline(never)]
    fn shortest(&mut self, class: usize, pages: u64, looks: u32) -> u32 {
        let (mut best, mut least) = (NONE, u64::MAX);
        let mut at = self.first.get(class);
        let mut left = looks;
        while at != NONE && left > 0 {
            left -= 1;
            let node = &self.nodes[at];
            if node.pages >= pages && node.pages < least {
                (best, least) = (at, node.pages);
                if least == pages {
                    break;
                }
            }
            at = node.next;
        }
        self.work.visited += u64::from(looks - left);
        best
    }

    /// Takes what `want` says: of some holes that may happen to be aligned the first that is, else the first that must do.
    #[inline(never)]
    fn aligned(&mut self, want: &Want) -> Option<u32> {
        let (looks, per_class) = if want.pages & want.mask == 0 {
            (NATURAL_LOOKS, NATURAL_LOOKS_PER_CLASS)
        } else {
            (ALIGNED_LOOKS, ALIGNED_LOOKS_PER_CLASS)
        };
        let found = self.among(want, looks, per_class);
        let found = found.or_else(|| self.must(want));
        let (hole, start) = found.or_else(|| self.among(want, self.budget, u32::MAX))?;
        self.cut(hole, start, want.pages)
    }

    /// The first hole that is so long that `want` has a place in it; the edge where that is shorter.
    #[inline]
    fn must(&self, want: &Want) -> Option<(u32, u64)> {
        let padded = want.pages + want.mask;
        let sure = class_of(padded) + usize::from(least_of_class(padded) < padded);
        let found = self.nonempty.first_from(sure);
        let found = found.map_or(NONE, |class| self.first.get(class));
        let (hole, edge) = (&self.nodes[found], &self.nodes[EDGE]);
        if found == NONE || hole.pages > edge.pages {
            let in_edge = want.within(edge).map(|start| (EDGE, start));
            if in_edge.is_some() || found == NONE {
                return in_edge;
            }
        }
        Some((found, want.within(hole)?))
    }

    /// The first hole of a class that is not too short in which `want` has a place, of `looks`, so many a class.
    #[inline]
    fn among(&mut self, want: &Want, looks: u32, per_class: u32) -> Option<(u32, u64)> {
        let mut left = looks;
        let mut at = self.nonempty.first_from(class_of(want.pages))?;
        let mut hole = self.first.get(at);
        let mut of_class = per_class;
        while left > 0 {
            left -= 1;
            self.work.visited += 1;
            let node = &self.nodes[hole];
            if let Some(start) = want.within(node) {
                return Some((hole, start));
            }
            hole = node.next;
            of_class -= 1;
            if of_class == 0 || hole == NONE {
                at = self.nonempty.first_from(at + 1)?;
                hole = self.first.get(at);
                of_class = per_class;
            }
        }
        None
    }

    /// The holes of a class.
    fn list(&self, class: usize) -> impl Iterator<Item = u32> + '_ {
        let some = |number| (number != NONE).then_some(number);
        core::iter::successors(some(self.first.get(class)), move |&hole| {
            some(self.nodes[hole].next)
        })
    }

    /// Makes a range of the last `pages` of a hole, which has as many. Returns its node; `None` where there are no more nodes.
    #[inline]
    fn cut_last(&mut self, hole: u32, pages: u64) -> Option<u32> {
        let node = &mut self.nodes[hole];
        let (end, left) = (node.end(), node.pages - pages);
        if left == 0 && hole != EDGE {
            node.turn();
            let (next, previous) = (node.next, node.previous);
            node.pad([0, 0]);
            self.remove(hole, class_of(pages), next, previous);
            return Some(hole);
        }
        let number = self.nodes.take()?;
        let node = &mut self.nodes[hole];
        let after = core::mem::replace(&mut node.after, number);
        self.nodes[number].begin(end - pages, pages, [hole, after]);
        self.nodes[after].before = number;
        self.resize(hole, left);
        Some(number)
    }

    /// Makes a range of the `pages` from page `start` on of a hole, as [`ByHandle::cut_last`].
    ///
    /// ```text
    /// before   |. . . . . . . .|
    /// after    |. .|R R R|. . .|     either side may be empty
    /// padded   |p p R R R|. . .|
    /// ```
    fn cut(&mut self, hole: u32, start: u64, pages: u64) -> Option<u32> {
        let node = &self.nodes[hole];
        let sides = [start - node.start(), node.end() - (start + pages)];
        let longest = if self.nodes[EDGE].pages >= self.pads_from {
            self.longest_padded
        } else {
            0
        };
        // No longer than the range: then a third of what it takes is given at least.
        let pad = |side| {
            if side <= pages && pages <= longest {
                side as u32
            } else {
                0
            }
        };
        let mut padding = sides.map(pad);
        if hole == EDGE {
            padding[0] = 0;
        }
        let [below, above] = [0, 1].map(|side| sides[side] - u64::from(padding[side]));
        let pages = pages + u64::from(padding[0]) + u64::from(padding[1]);
        let range = if above == 0 {
            self.cut_last(hole, pages)?
        } else if below == 0 && hole != EDGE {
            self.cut_first(hole, pages)?
        } else {
            self.cut_middle(hole, below, pages)?
        };
        self.nodes[range].pad(padding);
        Some(range)
    }

    /// Makes a range of the first `pages` of a hole, which has more and is not the edge.
    #[inline]
    fn cut_first(&mut self, hole: u32, pages: u64) -> Option<u32> {
        let number = self.nodes.take()?;
        let node = &mut self.nodes[hole];
        let before = core::mem::replace(&mut node.before, number);
        let (start, left) = (node.start(), node.pages - pages);
        node.set_start(start + pages);
        self.nodes[number].begin(start, pages, [before, hole]);
        self.nodes[before].after = number;
        self.resize(hole, left);
        Some(number)
    }

    /// Makes a range of `pages` of a hole, which has `below` below it and more above it.
    fn cut_middle(&mut self, hole: u32, below: u64, pages: u64) -> Option<u32> {
        let number = self.nodes.take()?;
        let Some(above) = self.nodes.take() else {
            self.nodes.give(number);
            return None;
        };
        let node = &mut self.nodes[hole];
        let after = core::mem::replace(&mut node.after, number);
        let start = node.start() + below;
        let more = node.pages - below - pages;
        self.nodes[number].begin(start, pages, [hole, above]);
        let rest = &mut self.nodes[above];
        rest.begin(start + pages, more, [number, after]);
        rest.turn_back();
        self.nodes[after].before = above;
        self.resize(hole, below);
        self.insert(above, class_of(more));
        Some(number)
    }

    /// Makes a hole of a range, joined with the holes beside it.
    #[inline]
    fn give(&mut self, number: u32) {
        let node = &mut self.nodes[number];
        node.turn();
        let (pages, before, after) = (node.pages, node.before, node.after);
        let below = &self.nodes[before];
        let (is_below, sum) = (below.is_hole(), below.pages + pages);
        let above = &self.nodes[after];
        let (is_above, more) = (above.is_hole(), above.pages);
        if is_below {
            self.nodes.give(number);
            self.nodes[before].after = after;
            if is_above {
                return self.join_three(before, sum, after);
            }
            self.nodes[after].before = before;
            self.resize(before, sum);
        } else if is_above {
            let start = self.nodes[number].start();
            self.nodes.give(number);
            self.nodes[before].after = after;
            let hole = &mut self.nodes[after];
            hole.set_start(start);
            hole.before = before;
            self.resize(after, pages + more);
        } else {
            self.insert(number, class_of(pages));
        }
    }

    /// A hole, which is to have `pages`, and the hole after it become one.
    #[inline(never)]
    fn join_three(&mut self, hole: u32, pages: u64, above: u32) {
        let node = &self.nodes[above];
        let (more, after) = (node.pages, node.after);
        let (next, previous) = (node.next, node.previous);
        self.remove(above, class_of(more), next, previous);
        self.nodes.give(above);
        self.nodes[hole].after = after;
        self.nodes[after].before = hole;
        self.resize(hole, pages + more);
    }

    /// Gives a range whose node has used up its generations another one.
    #[cold]
    fn renew(&mut self, number: u32) -> u32 {
        let Some(new) = self.nodes.more() else {
            // Then the last generations serve again.
            self.nodes[number].set_generation(LAST_GENERATION - 2);
            return number;
        };
        let old = core::mem::replace(&mut self.nodes[number], Node::EMPTY);
        self.nodes[new].begin(old.start(), old.pages, [old.before, old.after]);
        self.nodes[old.before].after = new;
        self.nodes[old.after].before = new;
        new
    }

    /// Changes the pages of a hole.
    #[inline]
    fn resize(&mut self, hole: u32, pages: u64) {
        let node = &mut self.nodes[hole];
        let (old, new) = (class_of(node.pages), class_of(pages));
        node.pages = pages;
        if hole != EDGE && old != new {
            let (next, previous) = (node.next, node.previous);
            self.remove(hole, old, next, previous);
            self.insert(hole, new);
        }
    }

    /// Puts a hole into the list of its class: first if it starts above the mean of the holes that came lately, farther from the
    /// edge; else second.
    ///
    /// Compared with the mean, not with the first one: that is in no cache, and to wait for it took 8 % of the time among
    /// 50,000 ranges. A link of [`NONE`] that is written is the edge's, which nobody reads.
    #[inline]
    fn insert(&mut self, hole: u32, class: usize) {
        let first = self.first.get(class);
        let node = &mut self.nodes[hole];
        // Pages have fewer than 63 bits.
        let above = node.start().cast_signed() - self.middle;
        self.middle += above >> MEAN_OF;
        if above >= 0 || first == NONE {
            node.next = first;
            self.nodes[first].previous = hole;
            self.first.replace(class, hole);
            self.nonempty.insert(class);
        } else {
            let second = core::mem::replace(&mut self.nodes[first].next, hole);
            let node = &mut self.nodes[hole];
            (node.next, node.previous) = (second, first);
            self.nodes[second].previous = hole;
        }
    }

    /// A hole with these links leaves the list of its class.
    #[inline]
    fn remove(&mut self, hole: u32, class: usize, next: u32, previous: u32) {
        let first = self.first.get(class);
        if first == hole {
            self.first.replace(class, next);
            if next == NONE {
                self.nonempty.remove(class);
            }
        } else {
            self.nodes[previous].next = next;
            self.nodes[next].previous = previous;
        }
    }
}

/// A need in pages, counted from the window's start.
struct Want {
    pages: u64,
    /// Alignment - 1, in pages.
    mask: u64,
    /// Value of the first page's bits under the mask.
    residue: u64,
}

impl Want {
    /// Where in a hole it goes: to the start if that is aligned, else as near to the end as can be. In the edge near its end.
    #[inline]
    fn within(&self, hole: &Node) -> Option<u64> {
        let room = hole.pages.wrapping_sub(self.pages);
        let start = hole.start();
        let last = start.wrapping_add(room);
        let down = last.wrapping_sub(self.residue) & self.mask;
        let is_aligned = start.wrapping_sub(self.residue) & self.mask == 0 && hole.before != NONE;
        let fits = (hole.pages >= self.pages) & (down <= room);
        let at = if is_aligned {
            start
        } else {
            last.wrapping_sub(down)
        };
        fits.then_some(at)
    }
}

#[cfg(test)]
mod tests;
