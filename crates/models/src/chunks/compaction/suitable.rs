//! Whether compaction could be of use.

use super::super::buddy::{Buddy, ORDERS};
use super::super::kernel::COSTLY;
use super::super::machine::Machine;

/// Answer of `compaction_suitable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Suitable {
    /// Too few pages are free to move others to, or there are large blocks and only too few pages: reclaim helps.
    Skip,
    /// A block is free and may be taken.
    Enough,
    /// It may help.
    Go,
}

/// Up to it (of 1,000) lack of memory is held to be the cause of a failure, and not fragmentation.
const EXTERNAL_FRAGMENTATION_THRESHOLD: i64 = 500;

impl Machine {
    pub(in super::super) fn suitable(&self, zone: usize, order: u32) -> Suitable {
        let old = self.kernel.is_old();
        let marks = self.zones[zone].marks;
        if !old && self.is_ok(zone, order, marks.min) {
            return Suitable::Enough;
        }
        let base = if old || order > COSTLY {
            marks.low
        } else {
            marks.min
        };
        let mark = base + (2 << order);
        if !self.is_ok(zone, 0, mark) {
            return Suitable::Skip;
        }
        match fragmentation_index(&self.zones[zone].buddy, order) {
            Some(index) if index <= EXTERNAL_FRAGMENTATION_THRESHOLD && (old || order > COSTLY) => {
                Suitable::Skip
            }
            None if old && self.is_ok(zone, order, mark) => Suitable::Enough,
            Some(_) | None => Suitable::Go,
        }
    }
}

/// In thousandths: towards 0 a failure is due to lack of memory, towards 1,000 to fragmentation
/// (`__fragmentation_index`, mm/vmstat.c). `None` where a block of that order is free.
fn fragmentation_index(buddy: &Buddy, order: u32) -> Option<i64> {
    let blocks = |order| buddy.free_blocks(order);
    if (order..ORDERS as u32).any(|order| blocks(order) > 0) {
        return None;
    }
    let total: u64 = (0..ORDERS as u32).map(blocks).sum();
    if total == 0 {
        return Some(0);
    }
    let share = (1_000 + ((buddy.free_pages() * 1_000) >> order)) / total;
    Some(1_000 - i64::try_from(share).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::super::buddy::Use;
    use super::*;

    /// Every second page free: 512 single pages, of which a block of 16 could be made 32 times.
    #[test]
    fn many_small_blocks_are_fragmentation() {
        let mut buddy = Buddy::new(1_024, Use::Movable).unwrap();
        for frame in (0..1_024).step_by(2) {
            buddy.free(frame, 0).unwrap();
        }
        assert_eq!(fragmentation_index(&buddy, 0), None);
        assert_eq!(fragmentation_index(&buddy, 4), Some(1_000 - 64));
        let full = Buddy::new(1_024, Use::Movable).unwrap();
        assert_eq!(fragmentation_index(&full, 4), Some(0));
    }
}
