//! What `linux-6.1`, `linux-6.7` and `linux-6.12` must answer, stated over the list of holes
//! (`unmapped_area` of mm/mmap.c in 6.12, without guard gaps, and `__thp_get_unmapped_area` of
//! mm/huge_memory.c).

use crate::contract::{Direction, Need, Policy, Range};

use super::Naive;

/// The hint if it is free; else, from the side looked from, the first hole whose part inside the limits
/// is as long as the size and the alignment's mask together: its end on that side, aligned inwards.
#[must_use]
pub fn linux_6_1(naive: &Naive, need: &Need) -> Option<u64> {
    hinted(naive, need).or_else(|| plain(naive, need))
}

/// [`linux_6_1`], but what has no hint, no alignment and the length of a PMD or more is put to the
/// first multiple of a PMD in the area that [`linux_6_1`] has for that length and a PMD, if it has one.
#[must_use]
pub fn linux_6_7(naive: &Naive, need: &Need) -> Option<u64> {
    let aligned = |pmd: u64| {
        let area = padded(naive, need, pmd).filter(|_| need.size >= pmd)?;
        Some(area.next_multiple_of(pmd))
    };
    pmd(naive)
        .and_then(aligned)
        .or_else(|| linux_6_1(naive, need))
}

/// As [`linux_6_7`] for whole PMDs alone; looking from the top, an area that is itself aligned is
/// used from its second PMD on.
#[must_use]
pub fn linux_6_12(naive: &Naive, need: &Need) -> Option<u64> {
    let aligned = |pmd: u64| {
        let area = padded(naive, need, pmd).filter(|_| need.size.is_multiple_of(pmd))?;
        let second = need.direction != Direction::BottomUp && area.is_multiple_of(pmd);
        Some(if second {
            area + pmd
        } else {
            area.next_multiple_of(pmd)
        })
    };
    pmd(naive)
        .and_then(aligned)
        .or_else(|| linux_6_1(naive, need))
}

fn hinted(naive: &Naive, need: &Need) -> Option<u64> {
    let hinted = need.hinted(naive.space())?;
    naive.is_free(hinted).then_some(hinted.start)
}

/// 512 pages of 4 KiB; a page of 8-byte entries, for any page size. `None` where that is no more
/// than a page, or leaves 64 bits.
fn pmd(naive: &Naive) -> Option<u64> {
    let page = naive.space().page();
    page.checked_mul(page / 8).filter(|&pmd| pmd > page)
}

/// The area for a need with neither hint nor alignment that is longer by a PMD.
fn padded(naive: &Naive, need: &Need, pmd: u64) -> Option<u64> {
    let plain_need = need.hint.is_none() && need.align_mask < naive.space().page();
    let size = need.size.checked_add(pmd).filter(|_| plain_need)?;
    plain(naive, &Need { size, ..*need })
}

fn plain(naive: &Naive, need: &Need) -> Option<u64> {
    let padding = need.align_mask & !(naive.space().page() - 1);
    let inside = |hole: Range| {
        let part = Range::new(
            hole.start.max(need.limits.start),
            hole.end.min(need.limits.end),
        );
        (part.length() >= need.size + padding).then_some(part)
    };
    if need.direction == Direction::BottomUp {
        need.first_from(naive.holes().find_map(inside)?.start)
    } else {
        need.last_until(naive.holes().rev().find_map(inside)?.end - need.size)
    }
}
