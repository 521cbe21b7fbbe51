//! Live experiments, one a question (and `wakeup`, which blames nobody), each through one contract:
//!
//! ```text
//! plan   -> what it will touch and use        (nothing is done; `--dry-run` prints it)
//! run    -> samples                           (the only part that reaches the system)
//! judge  -> the answer                        (pure: from samples alone)
//! ```
//!
//! A probe reaches the system through [`stopgap_kernel::System`] alone, so that the same code
//! runs against a fake kernel in tests. It works in guarded children, within a memory budget,
//! and writes every change of a setting into the journal first.

pub mod chunks;
pub mod contract;
pub mod meter;
pub mod placement;
pub mod reclaim;
pub mod roundtrip;
mod runner;
pub mod wakeup;

pub use contract::{Context, Measured, Plan, Probe, ProbeError};

use stopgap_events::question::Question;
use stopgap_kernel::System;

/// Options of `check` that the probes need.
#[derive(Clone, Copy)]
pub struct CheckOptions<'a> {
    /// The system that the probes will run on.
    pub system: &'a dyn System,
    /// Whether the check must be quick.
    pub quick: bool,
    /// Number of mappings of the process that the user asked about.
    pub mappings: Option<u32>,
}

type MakeProbe = fn(&CheckOptions<'_>) -> Box<dyn Probe>;

/// The probe that `check` runs for each question. A further question is one more row.
const PROBES: [(Question, MakeProbe); 5] = [
    (Question::Placement, |options| {
        Box::new(placement::Placement {
            also: options.mappings,
            ..placement::Placement::check(options.system, options.quick)
        })
    }),
    (Question::Roundtrip, |options| {
        Box::new(roundtrip::Roundtrip::check(options.quick))
    }),
    (Question::Chunks, |options| {
        Box::new(chunks::Chunks::check(options.quick))
    }),
    (Question::Reclaim, |options| {
        Box::new(reclaim::Reclaim::check(options.quick))
    }),
    (Question::Wakeup, |options| {
        Box::new(wakeup::Wakeup::check(options.quick))
    }),
];

/// Makes the probe that `check` runs for a question.
///
/// # Panics
/// Where the question has no row in the table; a test holds that each has one.
#[must_use]
pub fn for_check(question: Question, options: &CheckOptions<'_>) -> Box<dyn Probe> {
    let (_, make) = PROBES[question as usize];
    make(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::fake::Fake;

    #[test]
    fn every_question_has_its_own_probe() {
        let fake = Fake::default();
        let options = CheckOptions {
            system: &fake,
            quick: true,
            mappings: None,
        };
        for &question in Question::ALL {
            assert_eq!(for_check(question, &options).question(), question);
        }
    }
}
