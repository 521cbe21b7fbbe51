//! Whether what a snapshot says twice agrees: free memory by `free_blocks`, by migrate type and by
//! the layout. They were read one after the other, so they may be a little apart; where they are
//! further apart than this allows, whoever takes the snapshot says so under `missing`, and a
//! reader refuses one that does not say it.
//!
//! Pages on per-CPU lists are in none of the three, so however long these lists are, they set
//! nothing apart; filled or drained between two readings they do. Before Linux 4.6 a layout has
//! only the first page of each free block, and so is apart and said to be.

use std::fmt;

use super::{Snapshot, Zone, sum, unusable_index};
use crate::units::Pages;

/// The entry under `missing` for a layout that is apart from the free blocks.
pub const LAYOUT_OF_SAME_MOMENT: &str = "layout and free blocks of the same moment";
/// What stands under `missing` where the migrate types are apart from the free blocks.
pub const TYPES_OF_SAME_MOMENT: &str = "free blocks by migrate type of the same moment";

/// How far the unusable indices of all memory may be apart.
const INDEX_APART: f64 = 0.02;
/// One in this many of a zone's managed pages may be free in one reading and not in the other.
const ONE_IN: u64 = 50;

/// A zone of which two readings of what is free are further apart than the time between them explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apart {
    /// The zone's node.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// The order at which they are furthest apart.
    pub order: u32,
    /// Where the other figure is from: its layout or its migrate types.
    pub source: &'static str,
    /// Pages that are free in blocks of this order and larger by it.
    pub other: Pages,
    /// The same by `free_blocks`.
    pub counted: Pages,
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "node {}, zone {}: {} pages are free in blocks of order {} and larger by {}, {} by \
             free_blocks",
            self.node,
            super::read::shown(&self.zone),
            self.other.0,
            self.order,
            self.source,
            self.counted.0
        )
    }
}

impl Snapshot {
    /// The zone whose layout is furthest from its `free_blocks`, where the unusable index of all
    /// zones is more than 0.02 apart at some order, or the free pages of a zone by more than a
    /// fiftieth of what it manages and two blocks of the largest order.
    #[must_use]
    pub fn layout_apart(&self) -> Option<Apart> {
        let layouts: Vec<_> = self.zones.iter().map(Zone::free_blocks_of_layout).collect();
        // Sums over all zones, where each has one.
        let all: Option<Vec<Vec<u64>>> = layouts.iter().cloned().collect();
        let index =
            all.is_some_and(|all| indices_apart(&sum(all.into_iter()), &self.free_blocks()));
        self.furthest(&layouts, "its layout", index)
    }

    /// The zone whose free blocks by migrate type are furthest from its `free_blocks`, where they
    /// are apart by as many pages. Orders that the kernel did not count to their end are left out.
    #[must_use]
    pub fn types_apart(&self) -> Option<Apart> {
        let types: Vec<_> = self.zones.iter().map(of_types).collect();
        self.furthest(&types, "its migrate types", false)
    }

    /// Whether this stands under `missing`.
    #[must_use]
    pub fn says_missing(&self, what: &str) -> bool {
        self.missing.iter().any(|missing| missing.what == what)
    }

    /// The largest of the differences that are not allowed; `anyway`, the largest of all.
    fn furthest(
        &self,
        blocks: &[Option<Vec<u64>>],
        source: &'static str,
        anyway: bool,
    ) -> Option<Apart> {
        let of_zone = |(zone, blocks): (&Zone, &Option<Vec<u64>>)| {
            let (other, counted) = (usable(blocks.as_ref()?), usable(&zone.free_blocks));
            let (order, (&other, &counted)) = (0u32..)
                .zip(other.iter().zip(&counted))
                .max_by_key(|(_, (one, other))| one.abs_diff(**other))?;
            let apart = other.abs_diff(counted);
            (apart > 0 && (anyway || apart > allowed(zone))).then(|| Apart {
                node: zone.node,
                zone: zone.name.clone(),
                order,
                source,
                other: Pages(other),
                counted: Pages(counted),
            })
        };
        let apart = self.zones.iter().zip(blocks).filter_map(of_zone);
        apart.max_by_key(|apart| apart.other.0.abs_diff(apart.counted.0))
    }
}

fn indices_apart(one: &[u64], other: &[u64]) -> bool {
    let (one, other) = (unusable_index(one), unusable_index(other));
    one.iter()
        .zip(&other)
        .any(|(one, other)| (one.index - other.index).abs() > INDEX_APART)
}

/// Pages that a zone's readings may be apart. In a small zone one page taken splits a large block.
fn allowed(zone: &Zone) -> u64 {
    zone.managed.0 / ONE_IN + two_largest(zone)
}

/// Pages of two blocks of the zone's largest order. Above order 16 there are none anywhere.
pub(super) fn two_largest(zone: &Zone) -> u64 {
    2 << zone.largest_order().min(16)
}

/// Pages that are free in blocks of each order and larger.
fn usable(blocks: &[u64]) -> Vec<u64> {
    let mut usable = vec![0; blocks.len()];
    let mut sum: u64 = 0;
    for (order, &count) in blocks.iter().enumerate().rev() {
        let size = u32::try_from(order).ok().and_then(|o| 1u64.checked_shl(o));
        sum = sum.saturating_add(count.saturating_mul(size.unwrap_or(u64::MAX)));
        usable[order] = sum;
    }
    usable
}

/// Free blocks of all migrate types; where one was not counted, as many as `free_blocks` has.
fn of_types(zone: &Zone) -> Option<Vec<u64>> {
    let types = zone.by_type.as_ref()?;
    let of_order = |(order, &counted): (usize, &u64)| {
        let of_each = types.iter().map(|one| one.free_blocks.get(order).copied());
        let sum = of_each
            .map(Option::flatten)
            .try_fold(0u64, |sum, count| Some(sum.saturating_add(count?)));
        sum.unwrap_or(counted)
    };
    Some(zone.free_blocks.iter().enumerate().map(of_order).collect())
}
