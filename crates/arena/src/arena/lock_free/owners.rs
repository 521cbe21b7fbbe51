//! Owners of numbers: a word a number, with the thread that has it.
//!
//! There is no destructor that gives a number back: to register one takes memory (from malloc, under its lock), and what
//! thread-local destructors of others free afterwards must be freed, too. A thread that is gone leaves its number with
//! its name on it. The next one of that name has it at once; another one takes it once the kernel knows no such thread,
//! which is when it can do nothing any more.

use super::sync::{AtomicU32, Ordering};

/// Threads that have a number at the same time; others share what needs none.
pub(crate) const NUMBERS: usize = if cfg!(loom) { 2 } else { 256 };

/// The bits of a word that are the thread: the kernel numbers no more than 2^22. Those above count.
const NAME: u32 = (1 << 24) - 1;

pub(crate) struct Owners([AtomicU32; NUMBERS]);

impl Owners {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Owners {
        Owners([const { AtomicU32::new(0) }; NUMBERS])
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Owners {
        Owners(core::array::from_fn(|_| AtomicU32::new(0)))
    }

    /// A number for thread `me`, which is not 0 and below 2^24. `is_dead` is asked only where every number was used.
    pub(crate) fn claim(&self, me: u32, is_dead: impl Fn(u32) -> bool) -> Option<usize> {
        // Acquire and release: what the one before did with the number comes before what this one does.
        let take = |word: &AtomicU32, from: u32, to: u32| {
            word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        // That of a dead thread of the same name. The count changes, so that who saw that one dead does not take it now.
        let of_my_name = |word: &AtomicU32| {
            let now = word.load(Ordering::Relaxed);
            now & NAME == me && take(word, now, now.wrapping_add(NAME + 1))
        };
        if let Some(number) = self.0.iter().position(of_my_name) {
            return Some(number);
        }
        if let Some(number) = self.0.iter().position(|word| take(word, 0, me)) {
            return Some(number);
        }
        self.0.iter().position(|word| {
            let owner = word.load(Ordering::Acquire);
            is_dead(owner & NAME) && take(word, owner, me)
        })
    }

    /// Numbers whose owners are gone, made `me`'s for as long as `each` takes.
    pub(crate) fn orphans(
        &self,
        me: u32,
        is_dead: impl Fn(u32) -> bool,
        mut each: impl FnMut(usize),
    ) {
        for (number, word) in self.0.iter().enumerate() {
            let owner = word.load(Ordering::Acquire);
            let name = owner & NAME;
            if name == 0 || name == me || !is_dead(name) {
                continue;
            }
            let taken = word.compare_exchange(owner, me, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                each(number);
                // Still the dead one's: other arenas have something of it, too.
                word.store(owner, Ordering::Release);
            }
        }
    }

    /// In a child of one thread: all are free but `number`, which is `me`'s.
    pub(crate) fn only(&self, number: Option<usize>, me: u32) {
        for (at, word) in self.0.iter().enumerate() {
            let owner = if Some(at) == number { me } else { 0 };
            word.store(owner, Ordering::Release);
        }
    }
}
