//! Which address Linux 3.8 to 6.0 choose.
//!
//! [`rule`] says so of a list of areas, gap by gap, without a tree: `unmapped_area`,
//! `unmapped_area_topdown` (`mm/mmap.c`) and x86-64's `arch_get_unmapped_area_topdown`, for the contract
//! that [`crate::gap_tree`] describes. [`super::soak`] holds the policies to it.

use crate::contract::{Direction, Need, Policy, Range};

use super::Naive;

/// Where `need` goes among `naive`'s areas; `None` for ENOMEM. O(areas).
///
/// * A hint is taken if it can be.
/// * Top-down: the highest gap that is accepted, the answer at its upper end. Bottom-up: the lowest,
///   the answer at its lower end. Ends are drawn in to `[low, high)` first, then aligned.
/// * A gap is accepted if, *not* drawn in, it has the padded length size + alignment - page, starts
///   low enough and ends high enough to have it in `[low, high)`.
/// * If top-down without limits (or with limits that are the whole window, which says the same) fails:
///   bottom-up from a third into the window to its end.
#[must_use]
pub fn rule(naive: &Naive, need: &Need) -> Option<u64> {
    let space = naive.space();
    let hinted = need.hinted(space).filter(|&range| naive.is_free(range));
    if let Some(range) = hinted {
        return Some(range.start);
    }
    if need.direction == Direction::BottomUp {
        return bottom_up(naive, need, need.limits);
    }
    let found = top_down(naive, need, need.limits);
    if found.is_some() || need.limits != space.window() {
        return found;
    }
    let third = (space.window().start + space.window().length() / 3).next_multiple_of(space.page());
    bottom_up(naive, need, Range::new(third, need.limits.end))
}

/// The length that a gap must have: so much that an aligned answer fits wherever the gap starts.
fn padded(naive: &Naive, need: &Need) -> u64 {
    need.size + need.align_mask - (naive.space().page() - 1)
}

fn accepted(gap: Range, padded: u64, limits: Range) -> bool {
    gap.length() >= padded && gap.start + padded <= limits.end && gap.end >= limits.start + padded
}

fn bottom_up(naive: &Naive, need: &Need, limits: Range) -> Option<u64> {
    let padded = padded(naive, need);
    if padded > limits.length() {
        return None;
    }
    let gap = naive.holes().find(|&gap| accepted(gap, padded, limits))?;
    let start = gap.start.max(limits.start);
    Some(start + (need.align_offset.wrapping_sub(start) & need.align_mask))
}

fn top_down(naive: &Naive, need: &Need, limits: Range) -> Option<u64> {
    let padded = padded(naive, need);
    if padded > limits.length() {
        return None;
    }
    let gap = naive
        .holes()
        .rev()
        .find(|&gap| accepted(gap, padded, limits))?;
    let start = gap.end.min(limits.end) - need.size;
    Some(start - (start.wrapping_sub(need.align_offset) & need.align_mask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Merge, Request, Space};

    /// ```text
    /// 0 1 2 3 4 5 6 7 8 9 a b     pages
    /// . A . . . B . . C . . .     taken: A, B, C
    /// ```
    fn naive() -> Naive {
        let space = Space::new(Range::new(0, 0xc000), 0x1000).unwrap();
        let mut naive = Naive::new(space, true);
        for page in [1, 5, 8] {
            let range = Range::new(page * 0x1000, (page + 1) * 0x1000);
            naive.take(range, Merge::Never).unwrap();
        }
        naive
    }

    fn ask(pages: u64, change: impl Fn(&mut Request)) -> Option<u64> {
        let mut request = Request::of(pages * 0x1000);
        change(&mut request);
        let naive = naive();
        let need = naive.space().need(&request).unwrap();
        rule(&naive, &need).map(|start| start / 0x1000)
    }

    #[test]
    fn the_first_gap_from_the_side_asked_for() {
        let up = |r: &mut Request| r.direction = Direction::BottomUp;
        assert_eq!(ask(1, up), Some(0));
        assert_eq!(ask(2, up), Some(2));
        assert_eq!(ask(1, |_| ()), Some(0xb));
        assert_eq!(ask(3, |_| ()), Some(9));
        assert_eq!(ask(4, |_| ()), None);
    }

    #[test]
    fn limits_draw_gaps_in() {
        let limits = |start: u64, end: u64| {
            move |r: &mut Request| r.limits = Some(Range::new(start * 0x1000, end * 0x1000))
        };
        assert_eq!(ask(2, limits(0, 8)), Some(6));
        assert_eq!(ask(2, limits(0, 7)), Some(3));
        assert_eq!(ask(2, limits(0, 4)), Some(2));
        assert_eq!(ask(2, limits(3, 7)), Some(3));
        assert_eq!(ask(3, limits(3, 9)), None);
    }

    /// Pages 2 and 3 are free and aligned, but a gap must have 3 pages for 2 aligned ones.
    #[test]
    fn a_hole_that_fits_only_when_aligned_is_refused() {
        let aligned = |r: &mut Request| {
            r.alignment = 0x2000;
            r.limits = Some(Range::new(0, 0x4000));
        };
        assert_eq!(ask(2, aligned), None);
        assert_eq!(
            ask(2, |r| {
                aligned(r);
                r.limits = Some(Range::new(0, 0x5000));
            }),
            Some(2)
        );
    }

    #[test]
    fn a_hint_comes_first() {
        assert_eq!(ask(2, |r| r.hint = Some(0x2001)), Some(3));
        assert_eq!(ask(2, |r| r.hint = Some(0x4000)), Some(0xa));
    }
}
