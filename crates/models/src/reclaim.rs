//! What memory that must stay costs everyone else, were it held or released in another way.
//!
//! The probe `reclaim` measures the running kernel; here the same load runs on a model of its lists, page by page. What is
//! modelled is what mail 004 is about: reclaim that walks past held pages, what keeping them off its lists costs, and what
//! bringing them back does to tasks that wait.
//!
//! ```text
//!            take            used again                 tail: 32 at a time
//! new page -------> inactive ---------> active          free it | keep it (held) | move it (must stay)
//!                      ^------------------'
//!     marked or locked: unevictable list, never scanned    release: back to inactive
//! ```
//!
//! * [`Setting`]: what is asked. [`Policy`], [`Release`], [`Load`], [`Kernel`]: its words.
//! * [`Prices`]: what a step costs, each with its source.
//! * [`run`]: carries it out. [`Outcome`]: pages scanned and reclaimed, times, the longest of what nobody may interrupt.
//!
//! Counts follow from the kernel's rules alone; times are counts at [`Prices`]. Sources and what is left out: in each
//! module, `classic` (the lists), `balance`, `workingset`, `driver` (objects and shrinker),
//! `memory` (limit, out of memory), `load` (the tasks).

mod advice;
mod balance;
mod classic;
mod driver;
mod load;
mod mail;
mod memory;
mod meter;
mod outcome;
mod pages;
mod prices;
mod row;
mod seen;
mod setting;
mod workingset;

pub use advice::advice;
pub use mail::mail;
pub use meter::Cause;
pub use outcome::{OutOfMemoryPoint, Outcome};
pub use prices::Prices;
pub use row::{LRU, row};
pub use setting::{BLOCK, Kernel, OBJECT, PAGE, Policy, Release, Setting, SettingError};

/// Runs `setting` at `prices`.
///
/// The same arguments give the same outcome; `seed` decides by how much the tasks begin apart. Where `stop` says so, asked
/// every now and then, the outcome is of what was counted so far. Cost: about 0.1 us a page scanned or read; 48 bytes a
/// page of memory.
///
/// # Errors
/// [`SettingError`] where a setting makes no sense.
pub fn run(
    setting: &Setting,
    prices: &Prices,
    seed: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, SettingError> {
    setting.validate()?;
    Ok(load::run(setting, prices, seed, stop))
}

/// Runs `setting` so often, from `seed` on a seed each: when the kernel sums its statistics up, by which a storm begins, is
/// chance, as it is for the probe.
///
/// # Errors
/// As [`run`].
pub fn runs(
    setting: &Setting,
    prices: &Prices,
    (seed, runs): (u64, u32),
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, SettingError> {
    let mut all = run(setting, prices, seed, stop)?;
    for more in 1..u64::from(runs) {
        if stop() {
            break;
        }
        all.add(&run(setting, prices, seed.wrapping_add(more), stop)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
