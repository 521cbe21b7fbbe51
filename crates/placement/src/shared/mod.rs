use alloc::boxed::Box;
use alloc::string::String;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::contract::{
    Direction, FreeError, PlaceError, Policy, Range, Request, Space, Statistics, Work,
};
use central::Central;
use everything::Everything;
use owners::{Owner, Owners};
use shard::{Extent, Shard, weight};

mod central;
mod everything;
mod owners;
mod shard;
mod thread;

/// The least extent, in pages: half a tile of `stopgap`'s map.
const LEAST_EXTENT: u64 = 4096;
/// Calls of the central map before it gives out an extent, after it could not or took one apart.
const PAUSE: u64 = 1024;
/// An extent is at least so many times as large as what is asked when it comes.
const ROOM: u64 = 8;

/// A line of its own, and the one that is fetched along with it.
#[repr(align(128))]
struct Aligned<T>(Mutex<T>);

/// See the module.
pub struct Shared {
    space: Space,
    /// The largest extent, in bytes; 0 where there are none.
    largest: u64,
    /// See [`PAUSE`].
    pause: u64,
    owners: Owners,
    shards: Box<[Aligned<Shard>]>,
    central: Mutex<Central>,
}

/// A request for exactly `range`.
fn exactly(range: Range) -> Request {
    Request {
        limits: Some(range),
        hint: Some(range.start),
        ..Request::of(range.length())
    }
}

/// Locks, whatever became of who held the lock before. No call under these locks panics; one that did,
/// by a defect, may have left a structure half changed, which [`Shared::check`] then tells, but the other
/// structures are as they were, and nobody is served by a second panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// An empty `space`, with twice as many shards as this process may use CPUs.
    #[must_use]
    pub fn new(space: Space) -> Shared {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Shared::with_shards(space, 2 * cpus)
    }

    /// An empty `space` with `shards` shards, rounded up to a power of two from 1 to 1024. More threads
    /// than that share them.
    #[must_use]
    pub fn with_shards(space: Space, shards: usize) -> Shared {
        Shared::with_extents(space, shards, LEAST_EXTENT, PAUSE)
    }

    /// Extents are made of `pages` pages at least, and come `pause` calls after one was taken apart.
    fn with_extents(space: Space, shards: usize, pages: u64, pause: u64) -> Shared {
        let shards = shards.clamp(1, thread::NUMBERS).next_power_of_two();
        let owners = Owners::new(space, pages);
        let largest = space.window().length() / (4 * shards as u64);
        Shared {
            space,
            // Without extents no request is small, so that none locks a shard in vain.
            largest: if largest < owners.granule() {
                0
            } else {
                largest
            },
            pause,
            owners,
            shards: (0..shards).map(|_| Aligned(Mutex::default())).collect(),
            central: Mutex::new(Central::new(space, pause)),
        }
    }

    /// The space that it fills.
    #[must_use]
    pub fn space(&self) -> Space {
        self.space
    }

    /// As [`Policy::place`].
    ///
    /// # Errors
    /// [`PlaceError`]; nothing has changed then.
    #[inline]
    pub fn place(&self, request: &Request) -> Result<Range, PlaceError> {
        self.place_as(thread::number(), request)
    }

    /// Places as the thread of number `number` does.
    #[inline]
    fn place_as(&self, number: usize, request: &Request) -> Result<Range, PlaceError> {
        let small = request.limits.is_none()
            && request.hint.is_none()
            && weight(request) <= self.largest / ROOM
            && request.direction != Direction::BottomUp;
        if small {
            let number = number & (self.shards.len() - 1);
            let mut own = lock(&self.shards[number].0);
            if let Some(range) = own.place(request) {
                return Ok(range);
            }
            if let Some(range) = self.place_elsewhere(number, &mut own, request) {
                return Ok(range);
            }
        }
        self.place_anywhere(request)
    }

    /// In any extent of shard `number`, a new one, or in the central map.
    #[inline(never)]
    fn place_elsewhere(&self, number: usize, own: &mut Shard, request: &Request) -> Option<Range> {
        self.space.need(request).ok()?;
        // Each turn rules an extent out, and in a new one there is room.
        loop {
            let slot = match own.roomiest(request) {
                Some((slot, true)) => slot,
                other => match self.new_extent(number, own, request) {
                    Some(slot) => slot,
                    None => match other {
                        Some((slot, _)) => slot,
                        None => break,
                    },
                },
            };
            if let Some(range) = own.place_at(slot, request) {
                return Some(range);
            }
        }
        lock(&self.central).place(request).ok()
    }

    /// An extent for shard `number` in which `request` finds room: its slot.
    fn new_extent(&self, number: usize, own: &mut Shard, request: &Request) -> Option<usize> {
        if !own.may_ask() {
            return None;
        }
        let mut central = lock(&self.central);
        let least = ROOM.saturating_mul(weight(request));
        let Some(whole) = central.give_out(least, self.largest, self.owners.granule()) else {
            own.asked_in_vain(self.pause / 4);
            return None;
        };
        let slot = own.adopt(Extent::new(whole, self.space.page())?);
        self.owners.set(whole, Owner::extent(number, slot));
        Some(slot)
    }

    /// Whatever is asked, and whoever has room for it.
    #[inline(never)]
    fn place_anywhere(&self, request: &Request) -> Result<Range, PlaceError> {
        let need = self.space.need(request)?;
        if let Some(hinted) = need.hinted(self.space) {
            let taken = self.with_owner(
                hinted,
                |shard, slot| {
                    let taken = shard.extent(slot).is_some_and(|extent| extent.take(hinted));
                    shard.placed += u64::from(taken);
                    taken
                },
                |central| central.take(hinted),
            );
            if taken.unwrap_or_else(|| Everything::of(self).take(hinted)) {
                return Ok(hinted);
            }
        }
        let request = Request {
            hint: None,
            ..*request
        };
        let answer = lock(&self.central).place(&request);
        match answer {
            Err(PlaceError::Exhausted) => Everything::of(self).place(&request),
            known => known,
        }
    }

    /// Does something with whoever owns all of `range`, locked; `None` where several own parts of it.
    /// `range` is of the window.
    #[inline]
    fn with_owner<T>(
        &self,
        range: Range,
        at_shard: impl FnOnce(&mut Shard, usize) -> T,
        at_central: impl FnOnce(&mut Central) -> T,
    ) -> Option<T> {
        loop {
            let owner = self.owners.of(range.start);
            let Some((number, slot)) = owner.slot() else {
                let mut central = lock(&self.central);
                if self.owners.of(range.start) != owner {
                    continue; // it became a shard's before the central map was locked
                }
                return self
                    .owners
                    .are_central(range)
                    .then(|| at_central(&mut central));
            };
            let mut shard = lock(&self.shards[number].0);
            if self.owners.of(range.start) != owner {
                continue; // likewise
            }
            let whole = shard.extent(slot)?.whole;
            return whole.contains(range).then(|| at_shard(&mut shard, slot));
        }
    }

    /// As [`Policy::free`]; any thread may free what another one placed. Of several that free the same
    /// range, one succeeds.
    ///
    /// # Errors
    /// [`FreeError`]; nothing has changed then.
    #[inline]
    pub fn free(&self, range: Range) -> Result<(), FreeError> {
        if !self.space.holds(range) {
            return Err(FreeError::Malformed);
        }
        let answer = self.with_owner(
            range,
            |shard, slot| {
                if shard.free(slot, range)? {
                    self.emptied(shard, slot);
                }
                Ok(())
            },
            |central| central.free(range),
        );
        answer.unwrap_or_else(|| Everything::of(self).free(range))
    }

    /// Nothing is held any more in the extent `slot` of `shard`: gives it back, if another one is empty.
    #[cold]
    fn emptied(&self, shard: &mut Shard, slot: usize) {
        if shard.empty() < 2 {
            return;
        }
        if let Some(extent) = shard.extents.get_mut(slot).and_then(Option::take) {
            let mut central = lock(&self.central);
            self.owners.set(extent.whole, Owner::CENTRAL);
            central.take_back(extent.whole);
            central.retired = shard::add(central.retired, extent.inside.work());
        }
    }

    /// What is held now. Locks and walks everything: milliseconds for 100,000 ranges.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Everything::of(self).statistics()
    }

    /// What was done so far. Locks everything, but walks only the extents.
    #[must_use]
    pub fn work(&self) -> Work {
        Everything::of(self).work()
    }

    /// Whether the structures are as they must be. Locks and walks everything.
    ///
    /// # Errors
    /// The first thing that is wrong, with the addresses concerned.
    pub fn check(&self) -> Result<(), String> {
        Everything::of(self).check()
    }
}

/// A policy that several threads may have at the same time, each through a reference of its own.
impl Policy for &Shared {
    fn space(&self) -> Space {
        self.space
    }

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        Shared::place(self, request)
    }

    #[inline]
    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        Shared::free(self, range)
    }

    fn statistics(&self) -> Statistics {
        Shared::statistics(self)
    }

    fn work(&self) -> Work {
        Shared::work(self)
    }

    fn check(&self) -> Result<(), String> {
        Shared::check(self)
    }
}

impl Policy for Shared {
    fn space(&self) -> Space {
        self.space
    }

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        Shared::place(self, request)
    }

    #[inline]
    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        Shared::free(self, range)
    }

    fn statistics(&self) -> Statistics {
        Shared::statistics(self)
    }

    fn work(&self) -> Work {
        Shared::work(self)
    }

    fn check(&self) -> Result<(), String> {
        Shared::check(self)
    }
}

#[cfg(test)]
mod tests;
