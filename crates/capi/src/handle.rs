//! Handles: the names that C holds in place of addresses.
//!
//! A handle is accepted only if [`Table::insert`] returned it, it is of the table's kind, and it was not closed since;
//! all other bits are refused ([`Failure::Handle`]). While a thread is in a call with a handle
//! ([`Used`]), closing it is refused ([`Failure::Busy`]).
//!
//! The bits of a handle are a tag that no user-space address has at its top, the kind, the slot's generation and its
//! index. A slot whose generations are used up is never given out again, so no old handle becomes a new one. Slots lie
//! in chunks that are never freed, so any index can be looked at. A caller counts itself in the slot, then reads the
//! state again; a closer changes the state first, then reads the counters. Both use sequentially consistent operations,
//! so at least one of two that race sees the other. A slot has several counters, a cache line each, chosen by the
//! address of the caller's stack, so threads seldom share one.
//!
//! A call costs two atomic additions, and takes neither a lock nor memory: it may be made in a signal handler. Only
//! [`Table::insert`] calls malloc.

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use ::stopgap_arena::Arena;
use ::stopgap_arena::channel::{self, Listener};
use ::stopgap_arena::chunked::Buffer;
use ::stopgap_arena::coalesce::Writer;
use ::stopgap_arena::locked::{Held, Set, Watch};

use crate::failure::{Answer, Failure, Result, enter};

/// Types of the header that no value ever has: C only sees pointers to them.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[derive(Debug)]
            #[repr(C)]
            #[allow(non_camel_case_types)]
            pub(crate) struct $name {
                _nothing: [u8; 0],
            }
        )*
    };
}

opaque! {
    stopgap_arena stopgap_buffer stopgap_set stopgap_held stopgap_channel stopgap_listener stopgap_writer
}

/// A locked set, and the thread that watches for it.
pub(crate) struct WatchedSet {
    /// Before the set, which the thread uses: dropped first.
    pub(crate) watch: Mutex<Option<Watch>>,
    pub(crate) set: Set,
}

/// One end of a channel, the client's or the server's.
pub(crate) type End = channel::End<()>;

/// Several threads allocate at once, so a slot has several counters of users.
pub(crate) static ARENAS: Table<Arena, 8> = Table::new(1);
pub(crate) static BUFFERS: Table<Buffer, 1> = Table::new(2);
pub(crate) static SETS: Table<WatchedSet, 1> = Table::new(3);
pub(crate) static HELD: Table<Held, 1> = Table::new(4);
pub(crate) static CHANNELS: Table<Mutex<End>, 1> = Table::new(5);
pub(crate) static LISTENERS: Table<Listener, 1> = Table::new(6);
pub(crate) static WRITERS: Table<Mutex<Writer<OwnedFd>>, 1> = Table::new(7);

/// Returns a handle for `object`, and prepares for forks.
pub(crate) fn open<T: Send + Sync, H, const N: usize>(
    table: &Table<T, N>,
    object: T,
) -> Result<*mut H> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Relaxed) && !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: `forked` only stores to atomics. Where this fails for want of memory, a child may find a handle busy
        // that another thread of its parent was in a call with, and nothing else.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
    table.insert(object)
}

/// Called first in the child of a fork(2).
///
/// A signal handler that interrupts a call and forks leaves that call's count below 0: the handle works in the child,
/// but cannot be closed there.
extern "C" fn forked() {
    ARENAS.forked();
    BUFFERS.forked();
    SETS.forked();
    HELD.forked();
    CHANNELS.forked();
    LISTENERS.forked();
    WRITERS.forked();
}

/// At a handle's top: neither a user-space address of any width of page tables, nor canonical.
const TAG: u64 = 0x5a3;
const TAG_SHIFT: u32 = 52;
const KIND_SHIFT: u32 = 48;
const INDEX_BITS: u32 = 22;
const GENERATIONS: u64 = 1 << (KIND_SHIFT - INDEX_BITS);

/// Slots of the first chunk; each further one has twice as many.
const FIRST: u32 = 16;
/// Chunks: 16 * (2^18 - 1) slots, which 22 bits can name.
const CHUNKS: usize = 18;
const SLOTS: u32 = FIRST * ((1 << CHUNKS) - 1);

/// States of a slot, below its generation.
const FREE: u64 = 0;
const LIVE: u64 = 1;
/// A call panicked with the handle.
const BROKEN: u64 = 2;
/// Being opened or closed.
const CHANGING: u64 = 3;
const STATE_BITS: u32 = 2;

const fn state(generation: u64, state: u64) -> u64 {
    generation << STATE_BITS | state
}

/// A counter with a cache line (two, on machines that fetch pairs) of its own.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU32);

/// `N` counters a slot: 1 where calls take long anyway.
struct Slot<T, const N: usize> {
    /// The generation and the state.
    state: AtomicU64,
    /// Written by the thread that set the state to `CHANGING`, read by threads that count themselves in a live slot.
    object: UnsafeCell<Option<Box<T>>>,
    users: [Counter; N],
}

/// All handles of one kind.
pub(crate) struct Table<T, const N: usize> {
    /// In the handles' bits: 1 to 15, each table its own.
    kind: u64,
    chunks: [AtomicPtr<Slot<T, N>>; CHUNKS],
    /// Index below which a search for a free slot finds none, mostly.
    first_free: AtomicU32,
}

// SAFETY: the table owns its objects and hands out shared references (`T: Sync`), or the object itself at
// its closing (`T: Send`).
unsafe impl<T: Send + Sync, const N: usize> Sync for Table<T, N> {}

/// An object in use. Its handle cannot be closed until this is dropped.
struct Used<'a, T, const N: usize> {
    slot: &'a Slot<T, N>,
    users: &'a AtomicU32,
    generation: u64,
    object: &'a T,
}

impl<T: Send + Sync, const N: usize> Table<T, N> {
    const fn new(kind: u64) -> Self {
        Table {
            kind,
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            first_free: AtomicU32::new(0),
        }
    }

    /// Runs a function of C's on the object of `handle`.
    #[inline]
    pub(crate) fn call<H, A: Answer>(
        &self,
        handle: *const H,
        work: impl FnOnce(&T) -> Result<A>,
    ) -> A::C {
        enter(|| work(&*self.get(handle)?))
    }

    /// Returns a handle for `object`.
    fn insert<H>(&self, object: T) -> Result<*mut H> {
        let object = Some(Box::new(object));
        let first = self.first_free.load(Ordering::Relaxed);
        let claimed = (first..SLOTS).chain(0..first).find_map(|index| {
            let slot = self.make(index);
            let now = slot.state.load(Ordering::Relaxed);
            let generation = now >> STATE_BITS;
            let free = now == state(generation, FREE) && generation < GENERATIONS;
            let changing = state(generation, CHANGING);
            let claimed = free && slot.change(now, changing).is_ok();
            claimed.then_some((index, slot, generation))
        });
        let (index, slot, generation) =
            claimed.ok_or(Failure::Call(libc::EMFILE, "no more handles"))?;
        // Where another thread has closed a handle meanwhile, the next search may begin there.
        let _ = self.first_free.compare_exchange(
            first,
            index + 1,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        // SAFETY: this thread set the state to `CHANGING`, so nobody else looks at the object.
        unsafe { *slot.object.get() = object };
        slot.state.store(state(generation, LIVE), Ordering::SeqCst);
        let bits = TAG << TAG_SHIFT
            | self.kind << KIND_SHIFT
            | generation << INDEX_BITS
            | u64::from(index);
        Ok(ptr::without_provenance_mut(bits as usize))
    }

    /// Returns the object of `handle`, which stays open meanwhile.
    #[inline]
    fn get<H>(&self, handle: *const H) -> Result<Used<'_, T, N>> {
        let (_, slot, generation) = self.find(handle)?;
        // An old handle does not even count in the slot that it had.
        check(slot.state.load(Ordering::Relaxed), generation)?;
        let users = &slot.users[shard() % N].0;
        users.fetch_add(1, Ordering::SeqCst);
        let found = check(slot.state.load(Ordering::SeqCst), generation).and_then(|()| {
            // SAFETY: the slot is live with this thread counted, so nobody changes the object.
            let object = unsafe { &*slot.object.get() };
            object.as_deref().ok_or(Failure::HANDLE)
        });
        let used = match found {
            Ok(object) => Used {
                slot,
                users,
                generation,
                object,
            },
            Err(failure) => {
                users.fetch_sub(1, Ordering::Release);
                return Err(failure);
            }
        };
        #[cfg(test)]
        crate::failure::inject::at(crate::failure::inject::Panic::WithHandle);
        Ok(used)
    }

    /// Closes `handle` and returns its object. `None` where a call panicked with it: what is left of the object is
    /// leaked, because it may be half changed.
    pub(crate) fn close<H>(&self, handle: *const H) -> Result<Option<T>> {
        let (index, slot, generation) = self.find(handle)?;
        let [live, broken, changing] = [LIVE, BROKEN, CHANGING].map(|now| state(generation, now));
        let was = [live, broken]
            .into_iter()
            .find(|was| slot.change(*was, changing).is_ok())
            .ok_or(Failure::HANDLE)?;
        // A caller counts itself first and reads the state then: one that is not counted here will see `CHANGING`.
        let counted = |users: &Counter| users.0.load(Ordering::SeqCst) != 0;
        if slot.users.iter().any(counted) {
            slot.state.store(was, Ordering::SeqCst);
            return Err(Failure::BUSY);
        }
        // SAFETY: nobody uses the object, and nobody comes to it any more.
        let object = unsafe { &mut *slot.object.get() }.take();
        slot.state
            .store(state(generation + 1, FREE), Ordering::SeqCst);
        self.first_free.fetch_min(index, Ordering::Relaxed);
        if was == broken {
            std::mem::forget(object);
            return Ok(None);
        }
        Ok(object.map(|object| *object))
    }

    /// Sets all counters to 0, in the child of a fork: of several threads only the one that forked is there, and what
    /// the others counted never ends.
    fn forked(&self) {
        for slot in (0..SLOTS).map_while(|index| self.slot(index)) {
            for users in &slot.users {
                users.0.store(0, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn find<H>(&self, handle: *const H) -> Result<(u32, &Slot<T, N>, u64)> {
        let bits = handle.addr() as u64;
        if bits >> KIND_SHIFT != TAG << (TAG_SHIFT - KIND_SHIFT) | self.kind {
            return Err(Failure::HANDLE);
        }
        let index = (bits & ((1 << INDEX_BITS) - 1)) as u32;
        let generation = bits >> INDEX_BITS & (GENERATIONS - 1);
        let slot = self.slot(index).ok_or(Failure::HANDLE)?;
        Ok((index, slot, generation))
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T, N>> {
        let (chunk, within) = place(index);
        let first = self.chunks.get(chunk)?.load(Ordering::Acquire);
        // SAFETY: a chunk that is there has `FIRST << chunk` slots, of which `within` is one (`place`), and is never
        // freed.
        (!first.is_null()).then(|| unsafe { &*first.add(within) })
    }

    /// Returns the slot of an index below [`SLOTS`], and makes its chunk unless it is there.
    fn make(&self, index: u32) -> &Slot<T, N> {
        loop {
            if let Some(slot) = self.slot(index) {
                return slot;
            }
            let (chunk, _) = place(index);
            let slots: Box<[Slot<T, N>]> = (0..FIRST << chunk)
                .map(|_| Slot {
                    state: AtomicU64::new(state(0, FREE)),
                    object: UnsafeCell::new(None),
                    users: [const { Counter(AtomicU32::new(0)) }; N],
                })
                .collect();
            let slots = Box::into_raw(slots);
            let null = ptr::null_mut();
            let order = (Ordering::AcqRel, Ordering::Acquire);
            if self.chunks[chunk]
                .compare_exchange(null, slots.cast(), order.0, order.1)
                .is_err()
            {
                // SAFETY: from `Box::into_raw` above; another thread's chunk is there, and nobody has seen this one.
                drop(unsafe { Box::from_raw(slots) });
            }
        }
    }
}

impl<T, const N: usize> Slot<T, N> {
    fn change(&self, from: u64, to: u64) -> std::result::Result<u64, u64> {
        self.state
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
    }
}

/// Returns the chunk of an index and the place in it: chunk k begins at FIRST * (2^k - 1).
#[inline]
fn place(index: u32) -> (usize, usize) {
    // Cannot overflow: an index has 22 bits.
    let chunk = (index / FIRST + 1).ilog2();
    let begin = FIRST * ((1 << chunk) - 1);
    (chunk as usize, (index - begin) as usize)
}

/// Returns which counter the caller's thread uses. Threads have stacks of their own, so the address of a local variable
/// tells them apart. (The first use of a thread-local variable may call malloc, which a signal handler must not.)
#[inline]
fn shard() -> usize {
    let local = 0_u8;
    let page = ptr::from_ref(&local).addr() >> 16;
    // Fibonacci hashing: the upper half of the product depends on all bits.
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58
}

#[inline]
fn check(now: u64, generation: u64) -> Result<()> {
    if now == state(generation, LIVE) {
        Ok(())
    } else if now == state(generation, BROKEN) {
        Err(Failure::BROKEN)
    } else {
        Err(Failure::HANDLE)
    }
}

impl<T, const N: usize> Deref for Used<'_, T, N> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.object
    }
}

impl<T, const N: usize> Drop for Used<'_, T, N> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The handle cannot be closed meanwhile, so its state is `LIVE`, `BROKEN`, or for a moment `CHANGING`, until
            // its closer sees the count and puts back what was there: wait for that.
            let [live, broken] = [LIVE, BROKEN].map(|now| state(self.generation, now));
            while self
                .slot
                .change(live, broken)
                .is_err_and(|now| now != broken)
            {
                std::hint::spin_loop();
            }
        }
        // Release: the thread that closes the handle sees all changes of the object.
        self.users.fetch_sub(1, Ordering::Release);
    }
}

impl<T: Send, const N: usize> Table<Mutex<T>, N> {
    /// Runs a function of C's on an object that takes one call at a time.
    pub(crate) fn alone<H, A: Answer>(
        &self,
        handle: *const H,
        work: impl FnOnce(&mut T) -> Result<A>,
    ) -> A::C {
        self.call(handle, |object| work(&mut *one_call(object)?))
    }
}

/// Returns an object for one call. A second call is refused and does not wait, so neither a signal handler, nor a child
/// forked in the middle of a call, nor a thread that came by mistake waits for ever.
pub(crate) fn one_call<T>(object: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    object.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Failure::BUSY,
        TryLockError::Poisoned(_) => Failure::BROKEN,
    })
}

#[cfg(test)]
mod tests;
