//! Compares the facts that a snapshot has twice: free memory by `free_blocks`, by migrate type and by layout. They
//! were read one after the other, so they may differ a little. If they differ by more, the program that takes the
//! snapshot adds a line to `missing`, and a reader refuses a snapshot without that line.
//!
//! Pages on per-CPU lists are in none of the three. So long lists make no difference, but filling or draining them
//! between two readings does. Before Linux 4.6 a layout has only the first page of each free block. Such a layout
//! differs, and has the line.

use std::fmt;

use super::{Snapshot, Zone, sum, unusable_index};
use crate::units::Pages;

/// The entry of `missing` for a layout that differs from the free blocks.
pub const LAYOUT_OF_SAME_MOMENT: &str = "layout and free blocks of the same moment";
/// The entry of `missing` for migrate types that differ from the free blocks.
pub const TYPES_OF_SAME_MOMENT: &str = "free blocks by migrate type of the same moment";

/// Largest difference between two unusable indices of all memory.
const INDEX_APART: f64 = 0.02;
/// One in this many of a zone's managed pages may be free in one reading and not in the other.
const ONE_IN: u64 = 50;

/// A zone with two readings of its free memory that differ by more than the time between them explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apart {
    /// The zone's node.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// The order with the largest difference.
    pub order: u32,
    /// Source of the other figure: the zone's layout or its migrate types.
    pub source: &'static str,
    /// Free pages in blocks of at least this order, by that source.
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
    /// Returns the zone whose layout differs most from its `free_blocks`. The difference must be large enough: the
    /// unusable index of all zones by more than 0.02 at some order, or the free pages of a zone by more than a
    /// fiftieth of its managed pages plus two blocks of the largest order.
    #[must_use]
    pub fn layout_apart(&self) -> Option<Apart> {
        let layouts: Vec<_> = self.zones.iter().map(Zone::free_blocks_of_layout).collect();
        // Sums over all zones, if each zone has a layout.
        let all: Option<Vec<Vec<u64>>> = layouts.iter().cloned().collect();
        let index =
            all.is_some_and(|all| indices_apart(&sum(all.into_iter()), &self.free_blocks()));
        self.furthest(&layouts, "its layout", index)
    }

    /// Returns the zone whose free blocks by migrate type differ most from its `free_blocks`, if the free pages
    /// differ by as much as for layouts. Orders whose counting the kernel stopped are left out.
    #[must_use]
    pub fn types_apart(&self) -> Option<Apart> {
        let types: Vec<_> = self.zones.iter().map(of_types).collect();
        self.furthest(&types, "its migrate types", false)
    }

    /// Returns whether `missing` has this entry.
    #[must_use]
    pub fn says_missing(&self, what: &str) -> bool {
        self.missing.iter().any(|missing| missing.what == what)
    }

    /// Returns the largest difference that is not allowed; with `anyway`, the largest difference of all.
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

/// Returns by how many pages a zone's readings may differ. In a small zone, a single taken page splits a large block.
fn allowed(zone: &Zone) -> u64 {
    zone.managed.0 / ONE_IN + two_largest(zone)
}

/// Returns the pages of two blocks of the zone's largest order. No kernel has orders above 16.
pub(super) fn two_largest(zone: &Zone) -> u64 {
    2 << zone.largest_order().min(16)
}

/// Returns the free pages in blocks of at least each order.
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

/// Returns the free blocks of all migrate types. If one type was not counted, the number of `free_blocks` stands in.
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
