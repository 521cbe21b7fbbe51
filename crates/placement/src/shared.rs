//! `stopgap` for threads: [`Shared`] is `Sync`, and threads that place at the same time do not wait for
//! each other.
//!
//! # What it is
//!
//! ```text
//! window  |. . R R . . . . .|b b . .|a . a a|b . b b|a a . a|     R: the central map's own ranges
//! owner    central           extent of ...
//!                            shard b shard a shard b shard a
//! ```
//!
//! The *central map* is a [`Stopgap`](crate::Stopgap) over the whole window. *Extents* are pieces of the
//! window, each one range to the central map and a `Stopgap` of its own inside. Each extent belongs to a
//! *shard*, and threads choose the shard by a small number that each has. The central map has a lock, and
//! every shard has one.
//!
//! * An ordinary request (no limits, no hint, not from the bottom, not large) locks the thread's own
//!   shard and is answered by one of its extents: the one where something was last freed or placed,
//!   else the one with the most room, else a new one, so long as that leaves some room in it. All else
//!   goes to the central map, of which a quarter is kept from extents.
//! * A free, by whatever thread, finds the owner in a table of granules, locks it and asks again.
//! * Only where the central map has nothing left, or a hint or a wrong free crosses an extent's edge, all
//!   locks are taken: extents are then looked through, given back and *taken apart*, which gives the
//!   central map all that they hold. So nothing is refused that fits, and errors are those of one
//!   `Stopgap`. For some time afterwards no new extents are given out.
//!
//! # Lineage
//!
//! Per-thread arenas are ptmalloc's (glibc, malloc/arena.c); superblocks with owners, which a free locks
//! and then looks at again, an emptied one that goes back to the global heap, are Hoard's (Berger and
//! others, 2000). The kernel's iova allocator has per-CPU magazines over one locked tree
//! (drivers/iommu/iova.c, since 4.7); here the magazines are the extents' own, and below them there is no
//! global lock either. Those keep no promise that a request fails only if nothing fits; taking extents
//! apart is for that.
//!
//! # Invariants
//!
//! Executed by [`Shared::check`]:
//!
//! * An extent is whole granules, and one range of the central map, which holds nothing else there.
//! * A granule's entry in the table names the extent that it is part of, or else the central map.
//! * An extent's bytes held, and the central map's bytes free, are as counted.
//!
//! And of locks: shards come in their order, the central map last; an entry changes under the locks of
//! both owners.
//!
//! # Costs
//!
//! In ns for each operation, and how many times as many operations two threads on two CPUs did: 25,000
//! ranges of 1 to 64 pages for each thread, of 50,000 at first, random replacement; an AMD EPYC guest.
//!
//! | | one thread | speed-up by a second |
//! |---|---|---|
//! | a loop without a policy | 1.4 | 2.0 |
//! | a `Stopgap` for each thread, without a lock | 15 | 1.98 |
//! | a window of 2^47 bytes | 24 | 1.98 |
//! | of 8 times what one thread holds | 28 | 1.98 |
//! | of 4 times that, hardly what both held at first | 33 | 1 to 1.5 |
//! | one `Stopgap` under a lock | 17 | 0.2 |
//!
//! Where there is no room for extents, in windows below 6 * 4096 pages or three quarters full of them, or
//! after everything was taken apart, all is done under the central map's lock, after the shard's: some
//! 30 ns more than `Stopgap`'s own, and no faster than one lock allows.
//!
//! Taking an extent apart takes about a microsecond for each range, all locks held; each range is moved so
//! at most once. An extent takes what an empty `Stopgap` and some tiles of its map take. Addresses are less tightly packed than in one `Stopgap`:
//! each extent is packed by itself.
//!
//! # What was tried
//!
//! * Filling one extent until a search in it fails, then the next: 72 ns instead of 28 in the second row.
//!   A full extent has no packed zone and no magazines, and while frees hit all extents and places one,
//!   magazines overflow here and are empty there. Hence an eighth of room that stays, and placing where
//!   something was just freed.
//! * Giving extents out until hardly anything is free, ever smaller ones: at 1.25 times what is held 150
//!   to 290 ns instead of 110, in looking through many extents that are all nearly full, and failures at
//!   1.06 times where one `Stopgap` has none. Hence the quarter.
//!
//! Thought of and not built:
//!
//! * One `Stopgap` over the whole window for each shard, in which foreign pieces are held: its packed zone
//!   is counted from what is held, so it would lie at the window's bottom, and magazines would keep
//!   nothing.
//! * Placing in other shards' extents once one's own are full, without taking them apart: each such call
//!   would take all locks.
//!
//! # After fork
//!
//! The child has the parent's state, and locks that other threads held at that moment stay locked in it
//! for ever. So whoever forks with threads running, and goes on to place in the child, must hold all
//! locks across the fork, as `everything::Everything` does; its guards may be dropped on both sides. A
//! child of a parent with one thread needs nothing. Numbers of threads that the child does not have stay
//! taken there; that costs it shards, no more.

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
/// The smallest extent is this part of the largest: a shard looks through all that it has.
const SMALLEST: u64 = 16;
/// Calls of the central map before it gives out an extent, after it could not or took one apart.
const PAUSE: u64 = 1024;
/// An extent is at least so many times as large as what is asked when it comes.
const ROOM: u64 = 8;

/// A line of its own, and the one that is fetched along with it.
#[repr(align(128))]
struct Aligned<T>(Mutex<T>);

/// The policy `stopgap`, for threads: see the module.
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

    /// An empty `space` with `shards` shards, rounded up to a power of two from 1 to 1024; fewer where
    /// the window has not four times 4096 pages for each. More threads than that share them.
    #[must_use]
    pub fn with_shards(space: Space, shards: usize) -> Shared {
        Shared::with_extents(space, shards, LEAST_EXTENT, PAUSE)
    }

    /// Extents are made of `pages` pages at least, and come `pause` calls after one was taken apart.
    fn with_extents(space: Space, shards: usize, pages: u64, pause: u64) -> Shared {
        let owners = Owners::new(space, pages);
        let largest = |shards: usize| space.window().length() / (4 * shards as u64);
        let mut shards = shards.clamp(1, thread::NUMBERS).next_power_of_two();
        while shards > 1 && largest(shards) < owners.granule() {
            shards /= 2;
        }
        let largest = largest(shards);
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

    /// In any extent of shard `number` that this leaves some room, a new one, or in the central map.
    #[inline(never)]
    fn place_elsewhere(&self, number: usize, own: &mut Shard, request: &Request) -> Option<Range> {
        self.space.need(request).ok()?;
        // Each turn rules an extent out, and in a new one there is room.
        loop {
            let roomiest = own.roomiest(request);
            let Some(slot) = roomiest.or_else(|| self.new_extent(number, own, request)) else {
                break;
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
        let least = ROOM
            .saturating_mul(weight(request))
            .max(self.largest / SMALLEST);
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

#[cfg(test)]
mod tests;
