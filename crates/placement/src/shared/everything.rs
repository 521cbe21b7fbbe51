//! Everything locked: what is slow, and what must be exact.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use std::sync::MutexGuard;

use crate::contract::{FreeError, PlaceError, Policy, Range, Request, Statistics, Work};
use crate::stopgap::Stopgap;

use super::central::Central;
use super::owners::{Owner, Owners};
use super::shard::{Extent, Shard, add};
use super::{Shared, exactly, lock};

/// All locks of a [`Shared`].
pub(super) struct Everything<'a> {
    shared: &'a Shared,
    shards: Vec<MutexGuard<'a, Shard>>,
    central: MutexGuard<'a, Central>,
}

/// Whether no page of `range` is held in `stopgap`.
fn is_free(stopgap: &mut Stopgap, range: Range) -> bool {
    let taken = stopgap.place(&exactly(range));
    // What was just taken can be freed.
    taken.is_ok_and(|range| stopgap.free(range).is_ok())
}

impl<'a> Everything<'a> {
    /// Shards in their order and then the central: whoever holds several of them takes them so.
    pub(super) fn of(shared: &'a Shared) -> Everything<'a> {
        Everything {
            shared,
            shards: shared.shards.iter().map(|shard| lock(&shard.0)).collect(),
            central: lock(&shared.central),
        }
    }

    fn owners(&self) -> &'a Owners {
        &self.shared.owners
    }

    fn extent(&mut self, owner: Owner) -> Option<&mut Extent> {
        let (shard, slot) = owner.slot()?;
        self.shards.get_mut(shard)?.extent(slot)
    }

    fn extents(&self) -> impl Iterator<Item = (Owner, &Extent)> {
        self.shards.iter().enumerate().flat_map(|(number, shard)| {
            shard
                .extents
                .iter()
                .enumerate()
                .filter_map(move |(slot, extent)| {
                    Some((Owner::extent(number, slot), extent.as_deref()?))
                })
        })
    }

    /// The owners of extents, in no order.
    fn all(&self) -> Vec<Owner> {
        self.extents().map(|(owner, _)| owner).collect()
    }

    /// Bytes that are not held.
    fn free_bytes(&self) -> u64 {
        let extents = self.extents();
        let inside = extents.map(|(_, extent)| extent.whole.length() - extent.used);
        self.central.free + inside.sum::<u64>()
    }

    /// Places where nobody alone could: `Exhausted` means that nothing fits in the whole window.
    pub(super) fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let mut answer = self.central.place(request);
        let mut extents = self.all();
        if answer != Err(PlaceError::Exhausted)
            || extents.is_empty()
            || request.size > self.free_bytes()
        {
            return answer;
        }
        // Those that cost least first, and of those the empty ones cost nothing.
        extents.sort_by_cached_key(|&owner| self.extent(owner).map(|extent| extent.used));
        let used = |this: &mut Self, owner| this.extent(owner).is_some_and(|e| e.used > 0);
        let first_used = extents.partition_point(|&owner| !used(self, owner));
        let (empty, extents) = extents.split_at(first_used);
        for &owner in empty {
            self.take_apart(owner);
        }
        answer = self.central.place(request);
        for &owner in extents {
            if answer.is_ok() {
                return answer;
            }
            let placed = self
                .extent(owner)
                .and_then(|e| e.place_within_limits(request));
            if let Some(range) = placed {
                // So that the next one, whose own extents are as full as they were, finds room in the
                // central map.
                self.take_apart(owner);
                self.central.placed += 1;
                return Ok(range);
            }
        }
        // What is left are holes that cross an extent's edge.
        for &owner in extents {
            if answer.is_ok() {
                break;
            }
            self.take_apart(owner);
            answer = self.central.place(request);
        }
        answer
    }

    /// Takes exactly `range`, if it is free.
    pub(super) fn take(&mut self, range: Range) -> bool {
        if let Some(extent) = self.surrounding(range) {
            let taken = extent.take(range);
            self.central.placed += u64::from(taken);
            return taken;
        }
        if !self.is_free(range) {
            return false;
        }
        let parts = self.owners().parts(range);
        for (_, owner) in parts {
            // Where several parts are of one extent, only the first finds it.
            self.take_apart(owner);
        }
        self.central.take(range)
    }

    /// Frees exactly, or says exactly why not.
    pub(super) fn free(&mut self, range: Range) -> Result<(), FreeError> {
        if self.owners().are_central(range) {
            return self.central.free(range);
        }
        if let Some(extent) = self.surrounding(range) {
            return extent.free(range);
        }
        // Nobody holds a range that crosses an extent's edge.
        Err(if self.is_free(range) {
            FreeError::AlreadyFree
        } else {
            FreeError::NotAsGiven
        })
    }

    /// The extent that all of `range` is in.
    fn surrounding(&mut self, range: Range) -> Option<&mut Extent> {
        let owner = self.owners().of(range.start);
        let extent = self.extent(owner)?;
        extent.whole.contains(range).then_some(extent)
    }

    /// Whether no page of `range`, whoever owns its parts, is held.
    fn is_free(&mut self, range: Range) -> bool {
        let mut parts = self.owners().parts(range);
        parts.all(|(part, owner)| match self.extent(owner) {
            Some(extent) => is_free(&mut extent.inside, part),
            None => is_free(&mut self.central.inside, part),
        })
    }

    /// Gives the central map all that an extent holds, and the extent's place. Nothing where there is no such
    /// extent.
    fn take_apart(&mut self, owner: Owner) {
        let Some((shard, slot)) = owner.slot() else {
            return;
        };
        let extents = self.shards.get_mut(shard).map(|shard| &mut shard.extents);
        let Some(extent) = extents.and_then(|extents| extents.get_mut(slot)?.take()) else {
            return;
        };
        self.central.take_back(extent.whole);
        self.shared.owners.set(extent.whole, Owner::CENTRAL);
        let mut moved = 0;
        for range in extent.inside.ranges() {
            self.central.take_over(range);
            moved += 1;
        }
        self.central.retired = add(self.central.retired, extent.inside.work());
        self.central.wait(moved);
    }

    /// All ranges held, by address.
    fn ranges(&self) -> Vec<Range> {
        let of_central = self.central.inside.ranges();
        let mut ranges: Vec<Range> = of_central
            .filter(|range| self.owners().of(range.start) == Owner::CENTRAL)
            .collect();
        for (_, extent) in self.extents() {
            ranges.extend(extent.inside.ranges());
        }
        ranges.sort_unstable();
        ranges
    }

    pub(super) fn statistics(&self) -> Statistics {
        let window = self.shared.space.window();
        let ranges = self.ranges();
        let inside = self.extents().map(|(_, extent)| {
            let own = size_of::<Extent>() - size_of::<Stopgap>();
            own as u64 + extent.inside.statistics().memory
        });
        let slots: usize = self.shards.iter().map(|s| s.extents.capacity()).sum();
        let own = size_of::<Shared>() - size_of::<Stopgap>()
            + self.owners().memory()
            + size_of_val(&*self.shared.shards)
            + slots * size_of::<usize>();
        let mut statistics = Statistics {
            ranges: ranges.len() as u64,
            used: ranges.iter().map(|range| range.length()).sum(),
            memory: inside.sum::<u64>() + self.central.inside.statistics().memory + own as u64,
            ..Statistics::default()
        };
        if let (Some(first), Some(last)) = (ranges.first(), ranges.last()) {
            statistics.span = Some(Range::new(first.start, last.end));
        }
        let ends = core::iter::once(window.start).chain(ranges.iter().map(|range| range.end));
        let starts = ranges.iter().map(|range| range.start);
        for (end, start) in ends.zip(starts.chain([window.end])) {
            statistics.holes += u64::from(start > end);
            statistics.largest_hole = statistics.largest_hole.max(start.saturating_sub(end));
        }
        statistics
    }

    pub(super) fn work(&self) -> Work {
        let sum = add(self.central.retired, self.central.inside.work());
        let sum = self
            .shards
            .iter()
            .fold(sum, |sum, shard| add(sum, shard.work()));
        let placed: u64 = self.shards.iter().map(|shard| shard.placed).sum();
        Work {
            placed: placed + self.central.placed,
            ..sum
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.central.inside.check()?;
        let of_central: Vec<Range> = self.central.inside.ranges().collect();
        let window = self.shared.space.window();
        let used: u64 = of_central.iter().map(|range| range.length()).sum();
        if used + self.central.free != window.length() {
            let counted = self.central.free;
            return Err(format!("{used:x} bytes are used, {counted:x} free"));
        }
        let mut owned = 0;
        for (owner, extent) in self.extents() {
            let whole = extent.whole;
            let wrong = |what| Err(format!("extent {whole} of {owner:?}: {what}"));
            extent.inside.check()?;
            if extent.inside.statistics().used != extent.used {
                return wrong("it does not hold what was counted");
            }
            if of_central.binary_search(&whole).is_err() {
                return wrong("the central map does not have it as one range");
            }
            if self.owners().parts(whole).any(|(_, other)| other != owner) {
                return wrong("not all of it is its own");
            }
            owned += whole.length();
        }
        let parts = self.owners().parts(window);
        let by_table: u64 = parts
            .filter(|(_, owner)| *owner != Owner::CENTRAL)
            .map(|(part, _)| part.length())
            .sum();
        if by_table != owned {
            return Err(format!(
                "{by_table:x} bytes are extents' by the table, {owned:x} by the extents"
            ));
        }
        for range in of_central {
            let extent = self.extents().any(|(_, extent)| extent.whole == range);
            if !extent && !self.owners().are_central(range) {
                return Err(format!(
                    "{range} lies in an extent, but the central map holds it"
                ));
            }
        }
        // What extents hold lies inside them: each is a space of its own.
        Ok(())
    }
}
