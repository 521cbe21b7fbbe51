//! What a thread knows of itself: whether it is inside of the arena, and its number.
//!
//! Both are plain words without a destructor, so that they are there in thread-local destructors and at exit.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};

use super::lock_free::owners::Owners;
use crate::sys::threads as sys;

/// This thread has not asked yet.
const UNKNOWN: u32 = u32::MAX;
/// It got none.
const NONE: u32 = u32::MAX - 1;

static OWNERS: Owners = Owners::new();
/// The process whose threads the numbers are; 0 before the first arena. In what vfork(2) starts it is another one, and
/// no thread gets a number there.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Numbers that any thread ever had are below.
static NUMBERS_USED: AtomicUsize = AtomicUsize::new(0);

/// See the module.
pub(super) struct Here {
    /// Set while a call of this thread is under way: a signal handler that finds it set has interrupted that call.
    inside: AtomicBool,
    /// The call is fork(2).
    forking: AtomicBool,
    number: AtomicU32,
}

thread_local! {
    static HERE: Here = const {
        Here {
            inside: AtomicBool::new(false),
            forking: AtomicBool::new(false),
            number: AtomicU32::new(UNKNOWN),
        }
    };
}

/// A call under way.
pub(super) struct Inside<'a>(&'a Here);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.0.inside.store(false, Ordering::Relaxed);
    }
}

impl Inside<'_> {
    /// This thread's number, below [`super::lock_free::owners::NUMBERS`]; no other living thread has it.
    #[inline]
    pub(super) fn number(&self) -> Option<usize> {
        match self.0.number.load(Ordering::Relaxed) {
            UNKNOWN => self.find(),
            NONE => None,
            number => Some(number as usize),
        }
    }

    #[cold]
    fn find(&self) -> Option<usize> {
        if PROCESS.load(Ordering::Relaxed) != sys::process() {
            return None;
        }
        let number = OWNERS.claim(sys::thread(), sys::is_dead);
        NUMBERS_USED.fetch_max(number.map_or(0, |number| number + 1), Ordering::Relaxed);
        // Below 256.
        let word = number.map_or(NONE, |number| number as u32);
        self.0.number.store(word, Ordering::Relaxed);
        number
    }
}

/// The numbers of threads that ended, one after the other, each the caller's meanwhile, who is inside.
pub(super) fn orphans(each: impl FnMut(usize)) {
    if PROCESS.load(Ordering::Relaxed) == sys::process() {
        OWNERS.orphans(sys::thread(), sys::is_dead, each);
    }
}

/// Does `work` inside, or `otherwise` where a call of this thread is under way already.
#[inline]
pub(super) fn inside<T>(work: impl FnOnce(&Inside<'_>) -> T, otherwise: impl FnOnce() -> T) -> T {
    HERE.with(|here| {
        // A handler between these two sets it and clears it again: no change.
        if here.inside.load(Ordering::Relaxed) {
            return otherwise();
        }
        here.inside.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        work(&Inside(here))
    })
}

/// Begins a fork: false where a call of this thread is under way, which may hold any lock.
pub(super) fn begin_fork() -> bool {
    HERE.with(|here| {
        let begins = !here.inside.load(Ordering::Relaxed);
        if begins {
            here.inside.store(true, Ordering::Relaxed);
            here.forking.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
        }
        begins
    })
}

/// Ends what [`begin_fork`] began, after `work`; false where it began nothing.
pub(super) fn end_fork(work: impl FnOnce()) {
    HERE.with(|here| {
        if here.forking.load(Ordering::Relaxed) {
            work();
            here.forking.store(false, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            here.inside.store(false, Ordering::Relaxed);
        }
    });
}

/// All numbers that any thread ever had are below.
pub(super) fn numbers() -> usize {
    NUMBERS_USED.load(Ordering::Relaxed)
}

/// In a child, whose only thread calls: other threads' numbers are free.
pub(super) fn alone() {
    HERE.with(|here| {
        let number = here.number.load(Ordering::Relaxed);
        let number = (number < NONE).then_some(number as usize);
        OWNERS.only(number, sys::thread());
        if number.is_none() {
            here.number.store(UNKNOWN, Ordering::Relaxed);
        }
    });
    belong();
}

/// The numbers are for threads of this process.
pub(super) fn belong() {
    PROCESS.store(sys::process(), Ordering::Relaxed);
}
