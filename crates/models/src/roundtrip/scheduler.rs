//! One CPU's run queue, by either kernel's rules.
//!
//! Tasks have numbers from 0; all have the weight of nice 0, so virtual time runs as real time does. Times are
//! nanoseconds since the machine began.

mod cfs;
mod eevdf;

use super::Rules;

/// What a wake-up or a tick does to the running task: it gives way at its next return to user mode, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GiveWay {
    No,
    /// The woken one takes the CPU.
    ToTheWoken,
    /// Its time is over.
    SliceOver,
}

/// The rules: who runs next, and when the running one has to give way.
pub(super) trait RunQueue {
    /// `task` can run again; the answer is for the running one, if there is one.
    fn wake(&mut self, now: u64, task: usize) -> GiveWay;
    /// The running task goes to sleep.
    fn sleep(&mut self, now: u64);
    /// Picks the task that runs next; `None` where no task can. The running one may go on.
    fn pick(&mut self, now: u64) -> Option<usize>;
    /// The running task reads its own CPU clock, which may bring its account up to date.
    fn read_clock(&mut self, now: u64) -> GiveWay;
    /// The timer's tick.
    fn tick(&mut self, now: u64) -> GiveWay;
}

/// Which tasks are SCHED_BATCH, and whether wake-ups pre-empt at all.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// By task.
    pub(super) batch: Vec<bool>,
    pub(super) preempt: bool,
}

/// The run queue of one CPU by `rules`, for as many tasks as `setting` has.
pub(super) fn queue(rules: Rules, setting: Setting) -> Box<dyn RunQueue> {
    match rules {
        Rules::Linux2_6_35 => Box::new(cfs::Cfs::new(setting)),
        Rules::Linux6_12 => Box::new(eevdf::Eevdf::new(setting)),
    }
}

/// Time between two ticks: HZ=1000, x86's default configuration of 2.6.35; HZ=250, the kernel of the probe's figures.
pub(super) fn tick(rules: Rules) -> u64 {
    match rules {
        Rules::Linux2_6_35 => 1_000_000,
        Rules::Linux6_12 => 4_000_000,
    }
}

#[cfg(test)]
mod tests;
