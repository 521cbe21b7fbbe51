//! What every probe offers and what it is given.

use serde::{Deserialize, Serialize};
use stopgap_events::machine::{Counter, Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::snapshot::Snapshot;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::System;
use stopgap_kernel::journal::Journal;
use stopgap_stats::record::{Answer, Series};
use stopgap_stats::verdict::Verdict;

/// What a probe is given.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The system.
    pub system: &'a dyn System,
    /// Where changes are written down before they are made.
    pub journal: &'a Journal<'a>,
    /// Memory that it may use at most, load children together.
    pub budget: Bytes,
    /// How long it should take; it may end later, for runs that an interval needs, and may end sooner.
    pub time: Nanos,
    /// Seed of all random choices.
    pub seed: u64,
    /// Our rung on the ladder of privilege.
    pub privilege: Privilege,
    /// A directory of our own for scratch files, on a disk where there is one.
    pub scratch: &'a std::path::Path,
    /// Called between two steps with the share done (0 to 1) and what is being done.
    pub progress: &'a dyn Fn(f64, &str),
    /// Whether to stop early and report what there is.
    pub interrupted: &'a dyn Fn() -> bool,
}

/// The least that an interval can be had from: so many runs are made even where the time is over, unless they are
/// [`Context::overdue`].
pub(crate) const LEAST_RUNS: u32 = 3;
/// How late a probe may be at least: a run or two of the small parts.
const GRACE: Nanos = Nanos::secs(10);

impl Context<'_> {
    /// Whether the time is over since `begun` and enough runs are made: no further one begins.
    pub(crate) fn enough(&self, begun: Nanos, made: u32) -> bool {
        made >= LEAST_RUNS && self.passed(begun) > self.time
    }

    /// Whether twice the time has passed since `begun` (or 10 s more than it, where that is more): nothing further
    /// begins, however few runs there are, and what can be stopped is. A loaded machine would else make three runs of
    /// anything last for minutes.
    pub(crate) fn overdue(&self, begun: Nanos) -> bool {
        self.passed(begun) > self.time + self.time.max(GRACE)
    }

    pub(crate) fn passed(&self, begun: Nanos) -> Nanos {
        self.system.now().saturating_sub(begun)
    }

    /// That this was left out because the time was over.
    pub(crate) fn left_out(&self, what: impl Into<String>) -> Missing {
        Missing::new(what, format!("the time of {} was over", self.time))
    }
}

/// What a probe will do, before it does it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What it does, in a sentence or two.
    pub what: String,
    /// Settings, cgroups and files that it changes and puts back; empty: none.
    pub touches: Vec<String>,
    /// Memory that it uses at most.
    pub memory: Bytes,
    /// How long it takes.
    pub time: Nanos,
    /// What it cannot measure here, and why.
    pub missing: Vec<Missing>,
}

/// What a probe measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The measurements.
    pub series: Vec<Series>,
    /// Counters, by name.
    pub counters: Vec<Counter>,
    /// What was lost, by name.
    pub losses: Vec<Counter>,
    /// What could not be measured, and why.
    pub missing: Vec<Missing>,
    /// Facts that the judgement needs beside the series, by name; as uptime, fragmentation.
    pub facts: std::collections::BTreeMap<String, f64>,
    /// Physical memory before and after, where the probe looks at it.
    pub snapshots: Vec<Snapshot>,
    /// Peak resident memory of the largest load child, bytes.
    pub peak_resident: u64,
    /// Whether it was interrupted before it had done what it planned.
    pub interrupted: bool,
}

impl Measured {
    /// Adds a series; its blocks join those of the series with the same name and parameters.
    pub fn add(&mut self, series: Series) {
        let same = self
            .series
            .iter_mut()
            .find(|have| have.name == series.name && have.parameters == series.parameters);
        match same {
            Some(have) => {
                have.blocks.extend(series.blocks);
                have.error = have.error.take().or(series.error);
            }
            None => self.series.push(series),
        }
    }

    /// The verdict where there is not one figure; `None` where there is one, or nothing says
    /// why there is none.
    pub(crate) fn without_figures(&self) -> Option<Verdict> {
        if self.series.iter().any(|series| !series.blocks.is_empty()) {
            return None;
        }
        if self.interrupted {
            let why = "interrupted before anything was measured";
            return Some(Verdict::inconclusive(why));
        }
        let missing = self.missing.first();
        let why = missing.map(|missing| format!("{}: {}", missing.what, missing.why));
        why.map(|why| Verdict::unsupported(&why))
    }
}

/// A live experiment.
pub trait Probe {
    /// Which question it answers.
    fn question(&self) -> Question;

    /// What it will touch and use. Changes nothing; reads what it must.
    ///
    /// # Errors
    /// Where its parameters make no sense on this machine: the message says which and what to do.
    fn plan(&self, context: &Context<'_>) -> Result<Plan, ProbeError>;

    /// Carries the plan out. What was changed is put back when it returns.
    ///
    /// # Errors
    /// Where it could not begin at all. What fails later is `missing`, or an error in its
    /// series, and the rest is still measured.
    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError>;

    /// The answer. Pure: the same samples give the same answer.
    fn judge(&self, measured: Measured, seed: u64, privilege: Privilege) -> Answer;
}

/// Why a probe could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// A parameter makes no sense, here or anywhere. One line: what, and what to do.
    #[error("{0}")]
    Parameter(String),
    /// This machine or this user cannot answer the question.
    #[error("{0}")]
    Unsupported(String),
    /// The system failed us.
    #[error(transparent)]
    System(#[from] stopgap_kernel::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_stats::verdict::Word;

    #[test]
    fn no_figure_at_all_is_unsupported_with_its_reason() {
        let word = |measured: &Measured| measured.without_figures().map(|verdict| verdict.word);
        let mut measured = Measured::default();
        assert_eq!(word(&measured), None);
        let fork = Missing::new("pbobench", "fork: Operation not permitted");
        measured.missing.push(fork);
        let text = measured.without_figures().unwrap().text;
        assert_eq!(text, "unsupported: pbobench: fork: Operation not permitted");
        measured.interrupted = true;
        assert_eq!(word(&measured), Some(Word::Inconclusive));
    }
}
