//! Handles: what C holds in place of an address.
//!
//! **Contract.** A handle that C hands over is one that [`Table::insert`] gave out, of the table's kind, and not
//! closed since, or it is refused ([`Failure::Handle`]), whatever its bits are. As long as a thread is in a call with
//! it ([`Used`]), closing is refused ([`Failure::Busy`]).
//!
//! **How.** The bits of a handle are a tag that no user-space address has at its top, the kind, the slot's generation
//! and its index. A slot whose generations are used up is given out no more, so no old handle ever becomes a new one.
//! Slots lie in chunks that are never freed, so whatever index comes can be looked at: two loads. Whoever enters
//! counts itself in the slot, then looks at the generation once more; whoever closes changes the state first, then
//! looks at the counters. Both sides use sequentially consistent operations, so at least one of two that race sees
//! the other. The counters of a slot are several, a cache line each, chosen by the address of the caller's stack:
//! threads seldom meet on one.
//!
//! **Cost.** Two atomic additions a call. No lock and no memory: it may be called in a signal handler.
//! [`Table::insert`] may call malloc.
//!
//! **fork(2).** The child has the parent's handles. What other threads of the parent counted there never ends in the
//! child; so a handler of `pthread_atfork(3)` sets the counters to 0 in the child, which has one thread. (A signal
//! handler that interrupts a call and forks leaves that call's count below 0: that handle cannot be closed in the
//! child, and works.)
//!
//! Lineage: generations in the handle as in slot maps; the free list is Treiber's stack with a tag against ABA.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::mem::size_of;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::{Failure, Result};

/// At a handle's top: neither a user-space address of any width of page tables, nor canonical.
const TAG: u64 = 0x5a3;
const TAG_SHIFT: u32 = 52;
const KIND_SHIFT: u32 = 48;
const INDEX_BITS: u32 = 22;
const GENERATION_BITS: u32 = KIND_SHIFT - INDEX_BITS;
const GENERATIONS: u64 = 1 << GENERATION_BITS;

/// Slots of the first chunk; each further one has twice as many.
const FIRST: u32 = 16;
/// Chunks: 16 * (2^18 - 1) slots, which 22 bits can name.
const CHUNKS: usize = 18;

/// What a handle can stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// For the tests of this module.
    #[cfg(test)]
    Test = 15,
    Arena = 1,
    Buffer = 2,
    Set = 3,
    Held = 4,
    Channel = 5,
    Listener = 6,
    Writer = 7,
}

/// States of a slot, below its generation.
mod state {
    pub(super) const FREE: u64 = 0;
    pub(super) const LIVE: u64 = 1;
    pub(super) const BROKEN: u64 = 2;
    pub(super) const CLOSING: u64 = 3;
    pub(super) const BITS: u32 = 2;
}

/// A counter with a cache line (two, on machines that fetch pairs) of its own.
#[repr(align(128))]
struct Counter(AtomicU32);

/// `N` counters a slot: 1 where calls take long anyway.
#[repr(C)]
struct Slot<T, const N: usize> {
    /// `generation << state::BITS | state`. All zeros: never used.
    state: AtomicU64,
    object: AtomicPtr<T>,
    /// Of the free list: the next one's index + 1.
    next: AtomicU32,
    users: [Counter; N],
}

/// All handles of one kind.
pub(crate) struct Table<T, const N: usize> {
    kind: Kind,
    chunks: [AtomicPtr<Slot<T, N>>; CHUNKS],
    /// Slots that were ever given out.
    used: AtomicU32,
    /// The free list: a tag that changes with each change, and index + 1 of its first.
    free: AtomicU64,
}

// SAFETY: the table owns its objects and hands out shared references (`T: Sync`), or the object itself at
// its closing (`T: Send`).
unsafe impl<T: Send + Sync, const N: usize> Sync for Table<T, N> {}

/// An object in use: as long as this stands its handle cannot be closed.
pub(crate) struct Used<'a, T, const N: usize> {
    slot: &'a Slot<T, N>,
    users: &'a AtomicU32,
    generation: u64,
    /// Never null: the object of a live slot that counts a user.
    object: *const T,
    _shared: PhantomData<&'a T>,
}

impl<T: Send + Sync, const N: usize> Table<T, N> {
    pub(crate) const fn new(kind: Kind) -> Self {
        Table {
            kind,
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            used: AtomicU32::new(0),
            free: AtomicU64::new(0),
        }
    }

    /// A handle for `object`.
    pub(crate) fn insert<H>(&self, object: T) -> Result<*mut H> {
        const { assert!(size_of::<T>() > 0) };
        crate::fork::watch();
        let layout = Layout::new::<T>();
        // SAFETY: the layout is not empty. `Box::new` would abort the program where malloc fails.
        let place = unsafe { alloc(layout) }.cast::<T>();
        if place.is_null() {
            return Err(Failure::Heap);
        }
        let index = match self.take() {
            Ok(index) => index,
            Err(failure) => {
                // SAFETY: from `alloc` above, of this layout.
                unsafe { dealloc(place.cast(), layout) };
                return Err(failure);
            }
        };
        // SAFETY: `place` is for a T, and nobody else knows it.
        unsafe { place.write(object) };
        // It cannot be missing: `take` gave the index out, and made its chunk.
        let slot = self.slot(index).ok_or(Failure::Handles)?;
        slot.object.store(place, Ordering::Relaxed);
        let generation = slot.state.load(Ordering::Relaxed) >> state::BITS;
        // What was written to the object is seen by whoever sees the slot live.
        slot.state
            .store(generation << state::BITS | state::LIVE, Ordering::SeqCst);
        let bits = TAG << TAG_SHIFT
            | (self.kind as u64) << KIND_SHIFT
            | generation << INDEX_BITS
            | u64::from(index);
        // An address that is never used as one.
        Ok(ptr::without_provenance_mut(bits as usize))
    }

    /// The object of `handle`, which stays open meanwhile.
    #[inline]
    pub(crate) fn get<H>(&self, handle: *const H) -> Result<Used<'_, T, N>> {
        let (slot, generation) = self.find(handle)?;
        // An old handle does not even count in the slot that it had.
        check(slot.state.load(Ordering::Relaxed), generation)?;
        let users = &slot.users[shard() % N].0;
        users.fetch_add(1, Ordering::SeqCst);
        if let Err(failure) = check(slot.state.load(Ordering::SeqCst), generation) {
            users.fetch_sub(1, Ordering::Release);
            return Err(failure);
        }
        let used = Used {
            slot,
            users,
            generation,
            object: slot.object.load(Ordering::Relaxed),
            _shared: PhantomData,
        };
        #[cfg(test)]
        crate::guard::inject::at(crate::guard::inject::Panic::WithHandle);
        Ok(used)
    }

    /// Takes the object away from `handle`, which is none any more then. `None` where it is broken: what is left
    /// of the object is let be.
    pub(crate) fn close<H>(&self, handle: *const H) -> Result<Option<T>> {
        let (slot, generation) = self.find(handle)?;
        let live = generation << state::BITS | state::LIVE;
        let broken = generation << state::BITS | state::BROKEN;
        let closing = generation << state::BITS | state::CLOSING;
        let mut was = live;
        if let Err(now) =
            slot.state
                .compare_exchange(live, closing, Ordering::SeqCst, Ordering::SeqCst)
        {
            was = now;
            if now != broken
                || slot
                    .state
                    .compare_exchange(broken, closing, Ordering::SeqCst, Ordering::SeqCst)
                    .is_err()
            {
                return Err(Failure::Handle);
            }
        }
        // Whoever enters counts first and looks at the state then: who is not counted here will see `closing`.
        if slot
            .users
            .iter()
            .any(|users| users.0.load(Ordering::SeqCst) != 0)
        {
            slot.state.store(was, Ordering::SeqCst);
            return Err(Failure::Busy);
        }
        let place = slot.object.swap(ptr::null_mut(), Ordering::Relaxed);
        let object = if was == broken {
            None
        } else {
            // SAFETY: written by `insert`; nobody uses it, and nobody comes to it any more.
            Some(unsafe { place.read() })
        };
        // SAFETY: from `alloc` in `insert`, of this layout.
        unsafe { dealloc(place.cast(), Layout::new::<T>()) };
        let next = generation + 1;
        slot.state
            .store(next << state::BITS | state::FREE, Ordering::SeqCst);
        if next < GENERATIONS {
            self.give(
                (handle.addr() as u64 & ((1 << INDEX_BITS) - 1)) as u32,
                slot,
            );
        }
        Ok(object)
    }

    /// Sets all counters to 0, in the child of a fork.
    pub(crate) fn forked(&self) {
        for index in 0..self.used.load(Ordering::Relaxed) {
            let Some(slot) = self.slot(index) else { return };
            for users in &slot.users {
                users.0.store(0, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn find<H>(&self, handle: *const H) -> Result<(&Slot<T, N>, u64)> {
        let bits = handle.addr() as u64;
        if bits >> KIND_SHIFT != TAG << (TAG_SHIFT - KIND_SHIFT) | self.kind as u64 {
            return Err(Failure::Handle);
        }
        let index = (bits & ((1 << INDEX_BITS) - 1)) as u32;
        let generation = bits >> INDEX_BITS & (GENERATIONS - 1);
        let slot = self.slot(index).ok_or(Failure::Handle)?;
        Ok((slot, generation))
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T, N>> {
        let (chunk, within) = place(index);
        let first = self.chunks.get(chunk)?.load(Ordering::Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: chunk `chunk` has `FIRST << chunk` slots, of which `within` is one (`place`); chunks are never freed.
        Some(unsafe { &*first.add(within) })
    }

    /// A slot's index: a free one's, or the next that never was.
    fn take(&self) -> Result<u32> {
        loop {
            let head = self.free.load(Ordering::Acquire);
            let Some(index) = (head as u32).checked_sub(1) else {
                break;
            };
            let Some(slot) = self.slot(index) else { break };
            // It may be taken and given back meanwhile; then the tag differs, and this is tried again.
            let next = slot.next.load(Ordering::Relaxed);
            if self.swing(head, next) {
                return Ok(index);
            }
        }
        let mut index = self.used.load(Ordering::Relaxed);
        loop {
            let (chunk, _) = place(index);
            if chunk >= CHUNKS {
                return Err(Failure::Handles);
            }
            self.make(chunk)?;
            match self.used.compare_exchange_weak(
                index,
                index + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(index),
                Err(now) => index = now,
            }
        }
    }

    fn give(&self, index: u32, slot: &Slot<T, N>) {
        loop {
            let head = self.free.load(Ordering::Relaxed);
            slot.next.store(head as u32, Ordering::Relaxed);
            if self.swing(head, index + 1) {
                return;
            }
        }
    }

    fn swing(&self, head: u64, first: u32) -> bool {
        let tag = (head >> 32).wrapping_add(1);
        self.free
            .compare_exchange(
                head,
                tag << 32 | u64::from(first),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Makes chunk `chunk`, unless it is there.
    fn make(&self, chunk: usize) -> Result<()> {
        let at = &self.chunks[chunk];
        if !at.load(Ordering::Acquire).is_null() {
            return Ok(());
        }
        let layout =
            Layout::array::<Slot<T, N>>((FIRST as usize) << chunk).map_err(|_| Failure::Heap)?;
        // SAFETY: the layout is not empty. All zeros are slots: never used, no object, no users.
        let new = unsafe { alloc_zeroed(layout) }.cast::<Slot<T, N>>();
        if new.is_null() {
            return Err(Failure::Heap);
        }
        if at
            .compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: from the call above, of this layout, and nobody else has seen it.
            unsafe { dealloc(new.cast(), layout) };
        }
        Ok(())
    }
}

/// The chunk of an index and the place in it: chunk k begins at FIRST * (2^k - 1).
#[inline]
fn place(index: u32) -> (usize, usize) {
    // Cannot overflow: an index has 22 bits.
    let chunk = (index / FIRST + 1).ilog2();
    let begin = FIRST * ((1 << chunk) - 1);
    (chunk as usize, (index - begin) as usize)
}

/// Which counter the caller's thread uses: threads have stacks of their own, so the address of a local variable
/// tells them apart. (A thread-local variable would, too; but its first use in a thread may call malloc, which a signal
/// handler must not.)
#[inline]
fn shard() -> usize {
    let local = 0_u8;
    let page = ptr::from_ref(&local).addr() >> 16;
    // Fibonacci hashing: the upper half of the product depends on all bits.
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58
}

#[inline]
fn check(state: u64, generation: u64) -> Result<()> {
    if state == generation << state::BITS | state::LIVE {
        Ok(())
    } else if state == generation << state::BITS | state::BROKEN {
        Err(Failure::Broken)
    } else {
        Err(Failure::Handle)
    }
}

impl<T, const N: usize> Deref for Used<'_, T, N> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the object of a slot that was live when this counted itself there; it is not closed before this is
        // dropped.
        unsafe { &*self.object }
    }
}

impl<T, const N: usize> Drop for Used<'_, T, N> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Nobody closes it meanwhile, so its state is `LIVE`, `BROKEN`, or for a moment `CLOSING`; of the last
            // its closer makes what it was before, and the object may then be used once more: wait for that.
            let live = self.generation << state::BITS | state::LIVE;
            let broken = self.generation << state::BITS | state::BROKEN;
            while self
                .slot
                .state
                .compare_exchange(live, broken, Ordering::SeqCst, Ordering::SeqCst)
                .is_err_and(|now| now != broken)
            {
                std::hint::spin_loop();
            }
        }
        // What was done with the object is seen by whoever closes it.
        self.users.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
