//! Ranges that other threads free, without the lock of the thread that places.
//!
//! A [`Policy`] is one thread's, or under one lock. Where another thread frees what it placed, that thread puts the range
//! into a [`Returns`], a ring without a lock. The placing thread takes ranges out, some at a time:
//!
//! ```
//! use std::thread;
//! use stopgap_placement::returns::Returns;
//! use stopgap_placement::{Policy, Range, Request, Space, Stopgap};
//!
//! static RETURNS: Returns<256> = Returns::new();
//!
//! let space = Space::new(Range::new(0x1_0000, 0x4000_0000), 0x1000)?;
//! let mut policy = Stopgap::new(space);
//! for _ in 0..1_000 {
//!     let range = RETURNS.place(&mut policy, &Request::of(0x3000))?;
//!     // A full ring gives the range back: then it is freed where the policy is, or put in later.
//!     thread::spawn(move || RETURNS.push(range)).join().unwrap().unwrap();
//! }
//! RETURNS.drain(&mut policy, usize::MAX);
//! assert_eq!(policy.statistics().ranges, 0);
//! assert_eq!(RETURNS.refused(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Bounds
//!
//! At most `N` ranges lie idle in the ring, and [`Returns::place`] frees all of them before a request fails. A push is a
//! compare-and-swap and two stores. Every 32nd [`Returns::place`] frees up to 64 ranges; the others read nothing that another thread
//! writes.
//!
//! What a thread puts in is checked when it is taken out, as any free. [`Returns::refused`] counts what was refused:
//! the thread that put it in is gone on.

use core::fmt;

use sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::contract::{PlaceError, Policy, Range, Request};

mod sync {
    #[cfg(not(loom))]
    pub(super) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
    #[cfg(loom)]
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

    pub(super) use core::sync::atomic::Ordering;
}

/// Calls of [`Returns::place`] between two looks at the ring.
const EVERY: u32 = 32;
/// Ranges freed at a look: twice as many as were placed since the last one, so that the ring empties.
const BATCH: usize = 2 * EVERY as usize;

/// Ranges read from the ring at a time.
const GROUP: usize = 16;

/// A place in the ring. `end` is 0 where there is no range: none ends at 0.
struct Slot {
    start: AtomicU64,
    end: AtomicU64,
}

/// Keeps what one side writes out of the cache lines of the other.
#[repr(align(128))]
struct Apart<T>(T);

/// Counters of the threads that put ranges in.
struct Pushers {
    /// Ranges put in, or about to be.
    tail: AtomicU64,
    /// Where the tail must stop: `N` past a head that one of these threads has read. They read the head again only there: its line
    /// of the cache is the placing thread's.
    limit: AtomicU64,
}

/// Counters that are written at each look at the ring.
struct Taker {
    /// Ranges taken out.
    head: AtomicU64,
    /// Whether somebody takes.
    taking: AtomicBool,
    refused: AtomicU64,
}

/// See the module. `N` ranges at most; a power of two is fastest.
pub struct Returns<const N: usize> {
    pushers: Apart<Pushers>,
    taker: Apart<Taker>,
    /// Calls of [`Returns::place`]: in a line that no other thread reads, because each call writes it.
    calls: Apart<AtomicU32>,
    slots: [Slot; N],
}

impl<const N: usize> fmt::Debug for Returns<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Returns").finish_non_exhaustive()
    }
}

/// The ring is full; this is the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full(pub Range);

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no room for {} among the ranges to be freed", self.0)
    }
}

impl core::error::Error for Full {}

/// As the functions of the standard library are const, and loom's are not.
macro_rules! const_unless_loom {
    ($(#[$doc:meta])* $vis:vis fn $name:ident() -> $type:ty $body:block) => {
        $(#[$doc])*
        #[cfg(not(loom))]
        $vis const fn $name() -> $type $body
        $(#[$doc])*
        #[cfg(loom)]
        $vis fn $name() -> $type $body
    };
}

impl Slot {
    const_unless_loom! {
        fn new() -> Slot {
            Slot {
                start: AtomicU64::new(0),
                end: AtomicU64::new(0),
            }
        }
    }
}

impl<const N: usize> Returns<N> {
    const_unless_loom! {
        /// An empty ring.
        #[must_use]
        pub fn new() -> Returns<N> {
            Returns {
                pushers: Apart(Pushers {
                    tail: AtomicU64::new(0),
                    limit: AtomicU64::new(N as u64),
                }),
                taker: Apart(Taker {
                    head: AtomicU64::new(0),
                    taking: AtomicBool::new(false),
                    refused: AtomicU64::new(0),
                }),
                calls: Apart(AtomicU32::new(0)),
                #[cfg(not(loom))]
                slots: [const { Slot::new() }; N],
                #[cfg(loom)]
                slots: core::array::from_fn(|_| Slot::new()),
            }
        }
    }

    fn slot(&self, at: u64) -> &Slot {
        &self.slots[(at % N as u64) as usize]
    }

    /// Puts a range in, to be freed by the placing thread. Any thread may call it.
    ///
    /// # Errors
    /// [`Full`], with the range.
    pub fn push(&self, range: Range) -> Result<(), Full> {
        if range.end == 0 {
            // No range: it stands for an empty place here, and is refused like any that is malformed.
            self.taker.0.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let Pushers { tail, limit } = &self.pushers.0;
        let mut stop = limit.load(Ordering::Acquire);
        let tail = loop {
            let at = tail.load(Ordering::Relaxed);
            // The limit read may be older than the tail, by which others have passed it.
            if stop.wrapping_sub(at).wrapping_sub(1) >= N as u64 {
                // Acquire: the places before the head are empty, and the tail is not before it.
                let head = self.taker.0.head.load(Ordering::Acquire);
                let at = tail.load(Ordering::Relaxed);
                if at.wrapping_sub(head) >= N as u64 {
                    return Err(Full(range));
                }
                stop = head.wrapping_add(N as u64);
                // Release: who reads this limit finds those places empty, too. An older head gives an older limit, which is right.
                limit.store(stop, Ordering::Release);
                continue;
            }
            let next = at.wrapping_add(1);
            let (set, seen) = (Ordering::Relaxed, Ordering::Relaxed);
            if tail.compare_exchange_weak(at, next, set, seen).is_ok() {
                break at;
            }
        };
        let slot = self.slot(tail);
        slot.start.store(range.start, Ordering::Relaxed);
        // Release: what the thread did to the range comes before it is given out again.
        slot.end.store(range.end, Ordering::Release);
        Ok(())
    }

    /// Takes up to `most` ranges out and hands them to `free`: how many. None while another thread does.
    pub fn take(&self, most: usize, mut free: impl FnMut(Range)) -> usize {
        let taker = &self.taker.0;
        if taker.taking.swap(true, Ordering::Acquire) {
            return 0;
        }
        let head = taker.head.load(Ordering::Relaxed);
        let most = most.min(N);
        let mut taken = 0;
        // A group is read before the first of it is freed: what its lines of the cache wait for, they wait for together.
        loop {
            let mut group = [Range::new(0, 0); GROUP];
            let mut count = 0;
            while count < GROUP.min(most - taken) {
                let slot = self.slot(head.wrapping_add((taken + count) as u64));
                let end = slot.end.load(Ordering::Acquire);
                if end == 0 {
                    break;
                }
                group[count] = Range::new(slot.start.load(Ordering::Relaxed), end);
                slot.end.store(0, Ordering::Relaxed);
                count += 1;
            }
            for &range in &group[..count] {
                free(range);
            }
            taken += count;
            if count < GROUP {
                break;
            }
        }
        taker
            .head
            .store(head.wrapping_add(taken as u64), Ordering::Release);
        taker.taking.store(false, Ordering::Release);
        taken
    }

    /// Frees up to `most` ranges: how many were in the ring. What the policy refuses is counted in
    /// [`Returns::refused`].
    pub fn drain<P: Policy>(&self, policy: &mut P, most: usize) -> usize {
        let mut refused = 0;
        let taken = self.take(most, |range| {
            refused += u64::from(policy.free(range).is_err());
        });
        if refused > 0 {
            self.taker.0.refused.fetch_add(refused, Ordering::Relaxed);
        }
        taken
    }

    /// Places a range, as [`Policy::place`]. Frees what is in the ring from time to time, and all of it before a request
    /// fails.
    ///
    /// # Errors
    /// As [`Policy::place`].
    #[inline]
    pub fn place<P: Policy>(&self, policy: &mut P, request: &Request) -> Result<Range, PlaceError> {
        // Only the placing thread counts: no read-modify-write.
        let calls = self.calls.0.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.0.store(calls, Ordering::Relaxed);
        if calls.is_multiple_of(EVERY) {
            self.drain(policy, BATCH);
        }
        match policy.place(request) {
            Err(PlaceError::Exhausted) if self.drain(policy, usize::MAX) > 0 => {
                policy.place(request)
            }
            placed => placed,
        }
    }

    /// Ranges that were put in and that the policy refused to free.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.taker.0.refused.load(Ordering::Relaxed)
    }
}

impl<const N: usize> Default for Returns<N> {
    fn default() -> Returns<N> {
        Returns::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::contract::Space;
    use crate::stopgap::Stopgap;
    use std::sync::Mutex;
    use std::vec::Vec;

    fn policy(pages: u64) -> Stopgap {
        let window = Range::new(0x1000, 0x1000 + pages * 0x1000);
        Stopgap::new(Space::new(window, 0x1000).unwrap())
    }

    #[test]
    fn a_request_fails_only_after_the_ring_is_empty() {
        let returns = Returns::<4>::new();
        let mut policy = policy(4);
        let held = [(); 4].map(|()| returns.place(&mut policy, &Request::of(1)).unwrap());
        assert_eq!(
            returns.place(&mut policy, &Request::of(1)),
            Err(PlaceError::Exhausted)
        );
        for range in held {
            returns.push(range).unwrap();
        }
        assert_eq!(returns.push(held[0]), Err(Full(held[0])));
        assert!(returns.place(&mut policy, &Request::of(0x4000)).is_ok());
        assert_eq!(returns.refused(), 0);
    }

    #[test]
    fn what_was_never_placed_is_refused_and_counted() {
        let returns = Returns::<8>::new();
        let mut policy = policy(64);
        let range = policy.place(&Request::of(0x3000)).unwrap();
        let part = Range::new(range.start, range.start + 0x1000);
        for bad in [part, range, range, Range::new(1, 2), Range::new(5, 0)] {
            returns.push(bad).unwrap();
        }
        returns.drain(&mut policy, usize::MAX);
        assert_eq!(returns.refused(), 4);
        assert_eq!(policy.statistics().ranges, 0);
    }

    /// Two threads free what a third places; the ring is small, so that it is full most of the time.
    #[test]
    fn every_range_comes_back_once() {
        static RETURNS: Returns<16> = Returns::new();
        let mut policy = policy(1 << 12);
        let sent: Mutex<(Vec<Range>, bool)> = Mutex::default();
        let count = if cfg!(miri) { 200 } else { 20_000 };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let mut guard = sent.lock().unwrap();
                        let (next, over) = (guard.0.pop(), guard.1);
                        drop(guard);
                        match next {
                            Some(mut range) => {
                                while let Err(Full(back)) = RETURNS.push(range) {
                                    range = back;
                                    std::thread::yield_now();
                                }
                            }
                            None if over => break,
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
            for at in 0..count {
                let request = Request::of(0x1000 * (1 + at % 40));
                let range = loop {
                    match RETURNS.place(&mut policy, &request) {
                        Ok(range) => break range,
                        Err(_) => std::thread::yield_now(),
                    }
                };
                sent.lock().unwrap().0.push(range);
            }
            sent.lock().unwrap().1 = true;
            while policy.statistics().ranges > 0 {
                RETURNS.drain(&mut policy, usize::MAX);
                std::thread::yield_now();
            }
        });
        assert_eq!(RETURNS.refused(), 0);
        policy.check().unwrap();
    }
}

/// Every order that the memory model allows:
/// `RUSTFLAGS="--cfg loom" cargo test -p stopgap-placement --lib --release returns`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;
    use std::vec::Vec;

    #[test]
    fn what_two_put_in_comes_out_once() {
        loom::model(|| {
            let returns = Arc::new(Returns::<2>::new());
            let threads: Vec<_> = (1..3)
                .map(|at| {
                    let returns = Arc::clone(&returns);
                    thread::spawn(move || returns.push(Range::new(at, at + 10)))
                })
                .collect();
            let mut seen = Vec::new();
            returns.take(2, |range| seen.push(range));
            for thread in threads {
                thread.join().unwrap().unwrap();
            }
            returns.take(2, |range| seen.push(range));
            seen.sort_unstable();
            assert_eq!(seen, [Range::new(1, 11), Range::new(2, 12)]);
        });
    }

    /// A place is used again: what was in it is out before.
    #[test]
    fn a_full_ring_is_used_again() {
        loom::model(|| {
            let returns = Arc::new(Returns::<1>::new());
            returns.push(Range::new(1, 11)).unwrap();
            let other = Arc::clone(&returns);
            let thread = thread::spawn(move || other.push(Range::new(2, 12)));
            let mut seen = Vec::new();
            returns.take(1, |range| seen.push(range));
            let pushed = thread.join().unwrap();
            returns.take(1, |range| seen.push(range));
            let expected: &[Range] = match pushed {
                Ok(()) => &[Range::new(1, 11), Range::new(2, 12)],
                Err(_) => &[Range::new(1, 11)],
            };
            assert_eq!(seen, expected);
        });
    }
}
