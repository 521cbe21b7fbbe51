//! The counter: how many instructions an operation took.
//!
//! Under QEMU's `-icount shift=0` each instruction that the guest carries out, in user space or in the kernel, advances its
//! clock by exactly 1 ns. rdtscp then reads a count of instructions (1 GHz), and so does aarch64's virtual counter, in
//! multiples of 1 GHz over its frequency. [`Counter::calibrate`] does not take that on trust: it counts runs of known length.
//!
//! What this does not see: an operation that lets the CPU go idle is charged with the time until it goes on, as if that were
//! instructions. Nothing here waits for a timer or a device while it is counted.

#![allow(unsafe_code)] // the counter's instruction, and runs of known length

use serde::{Deserialize, Serialize};

use crate::protocol::Unit;

use crate::mark::{self, Operation};

/// Runs of each length that are counted to find the unit.
const RUNS: usize = 16;
/// So many of the runs must fit: an interrupt may fall into some.
const FITTING: usize = 12;
/// Turns of a run.
const TURNS: u64 = 1_000;

/// The counter's reading.
#[inline(always)]
fn stamp() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let count: u64;
        // SAFETY: reads the time-stamp counter, which Linux leaves to user space; the registers it writes are named.
        unsafe {
            core::arch::asm!(
                "rdtscp",
                "shl rdx, 32",
                "or rax, rdx",
                out("rax") count, out("rdx") _, out("rcx") _,
                options(nostack)
            );
        }
        count
    }
    #[cfg(target_arch = "aarch64")]
    {
        let count: u64;
        // SAFETY: reads the virtual counter, which Linux leaves to user space.
        unsafe {
            core::arch::asm!("isb", "mrs {count}, cntvct_el0", count = out(reg) count, options(nostack));
        }
        count
    }
}

/// Instructions of one tick where the machine counts instructions: 1 GHz over the counter's frequency.
fn per_tick() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        1
    }
    #[cfg(target_arch = "aarch64")]
    {
        let frequency: u64;
        // SAFETY: reads the counter's frequency, which Linux leaves to user space.
        unsafe {
            core::arch::asm!("mrs {frequency}, cntfrq_el0", frequency = out(reg) frequency, options(nomem, nostack));
        }
        (1_000_000_000 / frequency.max(1)).max(1)
    }
}

/// The cost of counting, and the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Ticks that an operation takes which does nothing.
    pub overhead: u64,
    /// The unit of counts.
    pub unit: Unit,
}

impl Counter {
    /// Finds out. Two kinds of runs, of which a CPU carries out one twice as fast as the other by the instruction: a
    /// clock fits at most one of them.
    #[must_use]
    pub fn calibrate() -> Counter {
        let per_tick = per_tick();
        let fits = |run: fn(u64), instructions: u64| {
            // Where a tick is several instructions, so many more of them that none is lost in rounding.
            let turns = TURNS * per_tick;
            let between = (0..RUNS).map(|_| {
                ticks(run, 3 * turns)
                    .saturating_sub(ticks(run, turns))
                    .abs_diff(2 * turns * instructions / per_tick)
            });
            // Two readings of whole ticks may be off by one.
            between
                .filter(|&off| off <= u64::from(per_tick > 1))
                .count()
                >= FITTING
        };
        let nothing = (0..RUNS).map(|_| raw::<{ Operation::Nothing as u8 }, _>(|| ()).0);
        Counter {
            overhead: nothing.min().unwrap_or(0),
            unit: if fits(run::two, 2) && fits(run::three, 3) {
                Unit::Instructions { per_tick }
            } else {
                Unit::Ticks
            },
        }
    }

    /// Carries `operation` out, an [`Operation`] as a number, and gives what it took beside what it gave.
    #[inline(always)]
    pub fn count<const OPERATION: u8, T>(&self, operation: impl FnOnce() -> T) -> (u64, T) {
        let (ticks, result) = raw::<OPERATION, T>(operation);
        (self.value(ticks), result)
    }

    /// Ticks of a whole operation in the unit of counts.
    #[inline]
    fn value(&self, ticks: u64) -> u64 {
        let own = ticks.saturating_sub(self.overhead);
        match self.unit {
            Unit::Instructions { per_tick } => own.saturating_mul(per_tick),
            Unit::Ticks => own,
        }
    }
}

#[inline(always)]
fn raw<const OPERATION: u8, T>(operation: impl FnOnce() -> T) -> (u64, T) {
    let start = stamp();
    mark::begin::<OPERATION>();
    let result = operation();
    mark::end();
    (stamp().saturating_sub(start), result)
}

/// What a run of so many turns takes. Long and short ones go by the same code: inlined twice, one of them may be given its
/// turns in an instruction more.
#[inline(never)]
fn ticks(run: fn(u64), turns: u64) -> u64 {
    raw::<{ Operation::Nothing as u8 }, _>(|| run(turns)).0
}

/// Runs of known length.
mod run {
    /// `turns` times two instructions.
    pub(super) fn two(turns: u64) {
        // SAFETY: counts a register down to zero.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!("2:", "dec {turns}", "jnz 2b", turns = inout(reg) turns => _, options(nomem, nostack));
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!("2:", "subs {turns}, {turns}, #1", "b.ne 2b", turns = inout(reg) turns => _, options(nomem, nostack));
        }
    }

    /// `turns` times three instructions, of which one waits for its like in the turn before.
    pub(super) fn three(turns: u64) {
        // SAFETY: multiplies one register and counts another down to zero.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!("2:", "imul {x}, {x}", "dec {turns}", "jnz 2b", x = inout(reg) 3u64 => _, turns = inout(reg) turns => _, options(nomem, nostack));
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!("2:", "mul {x}, {x}, {x}", "subs {turns}, {turns}, #1", "b.ne 2b", x = inout(reg) 3u64 => _, turns = inout(reg) turns => _, options(nomem, nostack));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No real CPU carries both runs out at one instruction a tick.
    #[test]
    fn a_machine_that_does_not_count_instructions_is_not_taken_for_one() {
        assert_eq!(Counter::calibrate().unit, Unit::Ticks);
    }

    #[test]
    fn longer_operations_take_more() {
        let counter = Counter::calibrate();
        let median = |turns| {
            let mut all: Vec<u64> = (0..101)
                .map(|_| {
                    counter
                        .count::<{ Operation::Nothing as u8 }, _>(|| run::three(turns))
                        .0
                })
                .collect();
            all.sort_unstable();
            all[50]
        };
        let (short, long) = (median(1_000), median(100_000));
        assert!(long > 10 * short, "{short} {long}");
    }

    #[test]
    fn ticks_of_several_instructions_are_multiplied_and_the_overhead_is_taken_off() {
        let counter = |unit| Counter { overhead: 7, unit };
        assert_eq!(counter(Unit::Instructions { per_tick: 16 }).value(10), 48);
        assert_eq!(counter(Unit::Ticks).value(10), 3);
        assert_eq!(counter(Unit::Ticks).value(3), 0);
    }
}
