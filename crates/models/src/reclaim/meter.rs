//! Time: whose it is, what it went into, and how long nobody else could run.
//!
//! **Contract.** [`Meter::now`] is the clock of the task that runs; each step adds to it and to one cause. A *stretch*
//! ends where the kernel lets others run (`cond_resched()`, the way back to user mode). The longest of anything counts from
//! [`Meter::count`] on.

use stopgap_events::words;

/// Cause of a task's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Populating memory.
    Populate,
    /// Reading files.
    Read,
    /// Scanning pages that stay.
    Kept,
    /// Freeing pages, those to swap included.
    Freed,
    /// Making pages inactive, and moving those that must stay off the lists.
    Moved,
    /// Taking memory that must stay.
    Pin,
    /// Releasing it, purging included, but for the second pass.
    Release,
    /// The second pass over a file.
    SecondPass,
    /// Waiting for the driver's lock.
    DriverLock,
    /// Waiting for a CPU on which the kernel did not let others run.
    Unpreempted,
}
words!(Cause, "cause", Populate "populating", Read "reading", Kept "scanning what stays", Freed "freeing",
    Moved "moving between lists", Pin "taking", Release "releasing", SecondPass "second pass",
    DriverLock "waiting for the driver's lock", Unpreempted "waiting for a CPU");

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter {
    /// The running task's clock, in nanoseconds.
    pub(super) now: u64,
    /// Time by cause, in the order of [`Cause::ALL`].
    pub(super) causes: [u64; Cause::ALL.len()],
    /// Longest time with interrupts off.
    pub(super) longest_irq_off: u64,
    /// Longest time without a chance for others.
    pub(super) longest_stretch: u64,
    /// When the last long stretch ended, and how long it was.
    pub(super) last_stretch: (u64, u64),
    stretch: u64,
}

/// From here on a stretch is one for which others wait noticeably.
const LONG: u64 = 50_000;

impl Meter {
    /// `ns` of `cause` pass.
    pub(super) fn spend(&mut self, cause: Cause, ns: u64) {
        self.now += ns;
        self.causes[cause as usize] += ns;
        if matches!(cause, Cause::DriverLock | Cause::Unpreempted) {
            return; // who waits like this gives way
        }
        self.stretch += ns;
        self.longest_stretch = self.longest_stretch.max(self.stretch);
        if self.stretch >= LONG {
            self.last_stretch = (self.now, self.stretch);
        }
    }

    /// Others may run here.
    pub(super) fn resched(&mut self) {
        self.stretch = 0;
    }

    /// Books `ns` of the time spent as one stretch with interrupts off.
    pub(super) fn irq_off(&mut self, ns: u64) {
        self.longest_irq_off = self.longest_irq_off.max(ns);
    }

    /// From here on it counts.
    pub(super) fn count(&mut self) {
        self.causes = [0; Cause::ALL.len()];
        self.longest_irq_off = 0;
        self.longest_stretch = 0;
    }
}
