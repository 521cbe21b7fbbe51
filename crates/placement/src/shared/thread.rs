//! A small number for each thread.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

/// Words of numbers.
const WORDS: usize = 16;
/// Numbers: threads beyond so many share the last one.
pub(super) const NUMBERS: usize = WORDS * 64;
/// No thread has this one.
const UNKNOWN: usize = usize::MAX;

/// A bit for each number that a thread has.
static TAKEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

std::thread_local! {
    /// Without a destructor, so that reading it is one load.
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    static HELD: Held = Held::lowest();
}

/// A number that is given back when its thread ends.
struct Held(usize);

impl Held {
    /// The lowest number that is free.
    fn lowest() -> Held {
        for (word, taken) in TAKEN.iter().enumerate() {
            let mut now = taken.load(Ordering::Relaxed);
            while now != u64::MAX {
                let bit = now.trailing_ones();
                // Numbers guard no memory, so no order is needed.
                let was = taken.fetch_or(1 << bit, Ordering::Relaxed);
                if was >> bit & 1 == 0 {
                    return Held(word * 64 + bit as usize);
                }
                now = was | 1 << bit;
            }
        }
        Held(NUMBERS)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(taken) = TAKEN.get(self.0 / 64) {
            taken.fetch_and(!(1 << (self.0 % 64)), Ordering::Relaxed);
        }
    }
}

/// The calling thread's number, below [`NUMBERS`]: the lowest that no thread had when it first asked. No
/// other living thread has it, unless there are more than [`NUMBERS`]; a thread that asks while its
/// thread-local values are already being dropped may share its number.
#[inline]
pub(super) fn number() -> usize {
    match NUMBER.get() {
        UNKNOWN => find(),
        number => number,
    }
}

#[cold]
fn find() -> usize {
    let number = HELD.try_with(|held| held.0).unwrap_or(0).min(NUMBERS - 1);
    NUMBER.set(number);
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use std::sync::Barrier;

    #[test]
    fn living_threads_have_different_numbers_and_dead_ones_leave_theirs() {
        let mut highest = 0;
        for _ in 0..30 {
            let barrier = Barrier::new(8);
            let numbers: Vec<usize> = std::thread::scope(|scope| {
                let ask = || {
                    let first = number();
                    barrier.wait();
                    assert_eq!(number(), first);
                    first
                };
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 8);
            highest = highest.max(numbers.into_iter().max().unwrap());
        }
        // 240 threads had one; other tests' threads have some, too.
        assert!(highest < 200, "{highest}");
    }
}
