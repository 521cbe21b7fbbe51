//! The contract of every probe: what it offers and what it is given.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stopgap_events::machine::{Counter, Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::snapshot::Snapshot;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::System;
use stopgap_kernel::journal::Journal;
use stopgap_stats::record::{Answer, Block, Figure, Parameter, Series};
use stopgap_stats::verdict::Verdict;

/// Parameters of an answer or a series, by name.
pub(crate) type Parameters = BTreeMap<String, Parameter>;

/// Returns the items' words between commas.
pub(crate) fn list<T: ToString>(items: &[T], comma: &str) -> String {
    let words: Vec<String> = items.iter().map(T::to_string).collect();
    words.join(comma)
}

/// Refuses a parameter; one line that says what is wrong and what to do.
pub(crate) fn refuse<T>(why: impl Into<String>) -> Result<T, ProbeError> {
    Err(ProbeError::Parameter(why.into()))
}

fn add_to(counters: &mut Vec<Counter>, name: &str, value: u64) {
    match counters.iter_mut().find(|have| have.name == name) {
        Some(counter) => counter.value += value,
        None => counters.push(Counter {
            name: name.to_owned(),
            value,
        }),
    }
}

/// Means and limits that a probe is given.
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
    /// Privilege of this process.
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

    /// Returns whether the time is over since `begun`, with enough runs made or overdue; notes then that the rest of the
    /// `asked` runs of `what` is left out.
    pub(crate) fn over(
        &self,
        measured: &mut Measured,
        what: &str,
        begun: Nanos,
        (made, asked): (u32, u32),
    ) -> bool {
        let over = self.enough(begun, made) || self.overdue(begun);
        if over {
            let left = format!("{what}, {} of {asked} runs", asked - made);
            measured.missing.push(self.left_out(left));
        }
        over
    }

    /// Returns whether Ctrl-C was pressed; `measured` then says so.
    pub(crate) fn stops(&self, measured: &mut Measured) -> bool {
        measured.interrupted |= (self.interrupted)();
        measured.interrupted
    }

    /// That this was left out because the time was over.
    pub(crate) fn left_out(&self, what: impl Into<String>) -> Missing {
        Missing::new(what, format!("the time of {} was over", self.time))
    }
}

/// Plan of a probe, before it does anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Its work, in a sentence or two.
    pub what: String,
    /// Settings, cgroups and files that it changes and puts back; empty: none.
    pub touches: Vec<String>,
    /// Memory that it uses at most.
    pub memory: Bytes,
    /// How long it takes.
    pub time: Nanos,
    /// Figures that it cannot measure here, and why.
    pub missing: Vec<Missing>,
}

/// Samples, counts and gaps of a probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The measurements.
    pub series: Vec<Series>,
    /// Counters, by name.
    pub counters: Vec<Counter>,
    /// Losses, by name.
    pub losses: Vec<Counter>,
    /// Figures that could not be measured, and why.
    pub missing: Vec<Missing>,
    /// Facts that the judgement needs beside the series, by name; as uptime, fragmentation.
    pub facts: BTreeMap<String, f64>,
    /// Physical memory before and after, where the probe looks at it.
    pub snapshots: Vec<Snapshot>,
    /// Peak resident memory of the largest load child, bytes.
    pub peak_resident: u64,
    /// Whether it was interrupted before it had done what it planned.
    pub interrupted: bool,
}

/// Conclusion of a probe from the series.
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    pub(crate) figure: Option<Figure>,
    pub(crate) evidence: Vec<String>,
    pub(crate) advice: Vec<String>,
}

impl Measured {
    /// Notes what could not be measured and why, once.
    pub(crate) fn note(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let missing = Missing::new(what, why);
        if !self.missing.contains(&missing) {
            self.missing.push(missing);
        }
    }

    /// Notes settings that the journal could not put back.
    pub(crate) fn note_left(&mut self, errors: Vec<stopgap_kernel::Error>) {
        for error in errors {
            self.note("putting a knob back", error);
        }
    }

    /// Keeps the largest peak of resident memory, in bytes.
    pub(crate) fn keep_peak(&mut self, bytes: u64) {
        self.peak_resident = self.peak_resident.max(bytes);
    }

    /// Adds to the counter of that name.
    pub(crate) fn count(&mut self, name: &str, value: u64) {
        add_to(&mut self.counters, name, value);
    }

    /// Adds to the losses of that name.
    pub(crate) fn lose(&mut self, name: &str, value: u64) {
        add_to(&mut self.losses, name, value);
    }

    /// Returns the value of the counter of that name, 0 without it.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        let counter = self.counters.iter().find(|have| have.name == name);
        counter.map_or(0, |counter| counter.value)
    }

    /// Adds one run's block to the series of that name and parameters; no block, no series.
    pub(crate) fn block(
        &mut self,
        name: &str,
        unit: &str,
        parameters: &Parameters,
        block: impl IntoIterator<Item = Block>,
    ) {
        for block in block {
            self.add(Series::new(name, unit, parameters, [block]));
        }
    }

    /// Notes in the series why a run gave no number; the first reason stays.
    pub(crate) fn fail(&mut self, name: &str, unit: &str, parameters: &Parameters, why: &str) {
        let mut series = Series::new(name, unit, parameters, []);
        series.error = Some(why.to_owned());
        self.add(series);
    }

    /// Moves the errors of series in which only some runs failed to what is missing: a failure never stands beside a
    /// number.
    pub(crate) fn settle_errors(&mut self) {
        let partly = self
            .series
            .iter_mut()
            .filter(|series| !series.blocks.is_empty());
        let failed: Vec<(String, String)> = partly
            .filter_map(|series| Some((series.name.clone(), series.error.take()?)))
            .collect();
        for (name, why) in failed {
            self.missing
                .push(Missing::new(format!("some runs of '{name}'"), why));
        }
    }

    /// Takes over what a load child measured.
    pub(crate) fn merge(&mut self, child: Measured, peak: u64) {
        self.keep_peak(peak);
        for series in child.series {
            self.add(series);
        }
        for missing in child.missing {
            self.note(missing.what, missing.why);
        }
    }

    /// Returns the answer: the judgement beside all that was measured.
    pub(crate) fn into_answer(
        self,
        question: Question,
        parameters: Parameters,
        privilege: Privilege,
        judgement: Judgement,
    ) -> Answer {
        Answer {
            question,
            parameters,
            verdict: judgement.verdict,
            figure: judgement.figure,
            evidence: judgement.evidence,
            advice: judgement.advice,
            privilege,
            series: self.series,
            counters: self.counters,
            losses: self.losses,
            missing: self.missing,
            fixes: Vec::new(),
        }
    }

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

    /// Returns what it will touch and use. Changes nothing; reads what it must.
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

/// Returns what a probe is run with where a test asks for nothing else.
#[cfg(test)]
pub(crate) fn test_context<'a>(system: &'a dyn System, journal: &'a Journal<'a>) -> Context<'a> {
    Context {
        system,
        journal,
        budget: Bytes::gib(1),
        time: Nanos::secs(12),
        seed: 1,
        privilege: Privilege::None,
        scratch: std::path::Path::new("/tmp"),
        progress: &|_, _| {},
        interrupted: &|| false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_stats::verdict::Word;

    #[test]
    fn a_failure_never_stands_beside_a_number() {
        let (mut measured, none) = (Measured::default(), Parameters::new());
        measured.block("take", "ns/page", &none, [Block::number(0, 1, 2, 3.0)]);
        measured.fail("take", "ns/page", &none, "ENOMEM");
        measured.fail("release", "ns/page", &none, "EPERM");
        measured.settle_errors();
        let seen = measured.series.iter();
        let seen: Vec<_> = seen.map(|s| (s.median(), s.error.as_deref())).collect();
        assert_eq!(seen, [(Some(3.0), None), (None, Some("EPERM"))]);
        let missing = Missing::new("some runs of 'take'", "ENOMEM");
        assert_eq!(measured.missing, [missing]);
    }

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
