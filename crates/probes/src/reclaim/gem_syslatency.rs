//! Mail 004's own benchmark on machines without i915: IGT's `benchmarks/gem_syslatency`.
//!
//! A measuring thread on each CPU, of the highest priority, looks how late a timer is, or with *memory* how long it takes
//! to map 2 MiB, ask for huge pages, touch each page and unmap. Beside it, on each CPU, a busy thread stands for one that
//! submits to the GPU; with *memory* it makes and drops objects of 16 MiB in shared memory. In the *background* a file
//! system is walked, and each file mapped.
//!
//! What is not the original's: without a GPU no object can be purged by a driver's shrinker; between two
//! allocations a measuring thread leaves the CPU; timers that would have expired while it was held up are samples, too; and
//! the true maximum stands beside the folded one ([`fold`]). It always ends.

mod measure;

use std::path::PathBuf;

use measure::Walked;
use measure::{Report, Times};
use stopgap_events::machine::Privilege;
use stopgap_events::question::Question;
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::words;
use stopgap_kernel::realtime::CPU_LATENCY;
use stopgap_kernel::tasks::{ChildBody, ChildLimits};
use stopgap_stats::record::{Answer, Block, Parameter, parameters};
use stopgap_stats::verdict::Verdict;

use crate::contract::{Context, Judgement, Measured, Parameters, Plan, Probe, ProbeError, refuse};
use crate::runner;

/// Lateness of timers of all CPUs, nanoseconds.
pub const TIMER: &str = "timer";
/// Time of allocations of all CPUs, nanoseconds.
pub const ALLOCATE: &str = "2 MiB allocation";
/// Counter of timers that expired while a thread slept for an earlier one.
const MISSED: &str = "missed timers";
/// Microseconds of the true maximum, and of the mean as the original counts: among the facts.
const TRUE_MAX: &str = "true-max-us";
const ORIGINAL: &str = "original-mean-us";
/// Facts of the background walk.
const WALKED_FILES: &str = "walked-files";
const WALKED_BYTES: &str = "walked-bytes";

/// Memory that a child takes beside what it maps.
const CHILD: Bytes = Bytes::mib(8);
/// How long the walk goes on before anything is measured.
const HEAD_START: Nanos = Nanos::secs(5);
/// How long a child that waits for memory or a disk may end after the others.
const GRACE: Nanos = Nanos::secs(20);
/// The longest that it may be asked to take.
const LONGEST: Nanos = Nanos::secs(24 * 3_600);

/// One of the three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Passes of busy threads, the mean over CPUs.
    Cycles,
    /// Mean over CPUs of their mean latencies less the cost of reading the clock, microseconds.
    Mean,
    /// Maxima of CPUs folded: trimean of more than 9, median of more than 5, else mean; microseconds.
    Max,
}

words!(Field, "field", Cycles "0", Mean "1", Max "2");

impl Field {
    /// Name of its series.
    #[must_use]
    pub fn series(self) -> &'static str {
        match self {
            Field::Cycles => "cycles",
            Field::Mean => "latency mean",
            Field::Max => "latency max",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Field::Cycles => "passes",
            Field::Mean | Field::Max => "us",
        }
    }

    /// The number as the original prints it: `%.0f`, `%.3f`, `%.0f`; `None` where the answer does not have it.
    #[must_use]
    pub fn print(self, answer: &Answer) -> Option<String> {
        let series = answer.series.iter().find(|one| one.name == self.series())?;
        let value = series.median()?;
        Some(match self {
            Field::Mean => format!("{value:.3}"),
            Field::Cycles | Field::Max => format!("{value:.0}"),
        })
    }
}

/// Returns the line that the original prints; `None` where a number is missing.
#[must_use]
pub fn line(answer: &Answer) -> Option<String> {
    let [cycles, mean, max] =
        [Field::Cycles, Field::Mean, Field::Max].map(|field| field.print(answer));
    Some(format!(
        "gem_syslatency: cycles={}, latency mean={}us max={}us",
        cycles?, mean?, max?
    ))
}

/// The probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GemSyslatency {
    /// How long it measures (`-t`).
    pub time: Nanos,
    /// Walk this file system meanwhile, and from 5 s before (`-b`); `None`: do not.
    pub background: Option<PathBuf>,
    /// Measure allocations instead of timers, beside busy threads that allocate (`-m`).
    pub memory: bool,
    /// From what latency on a sample counts as a stall.
    pub stall: Nanos,
}

impl GemSyslatency {
    fn name(&self) -> &'static str {
        if self.memory { ALLOCATE } else { TIMER }
    }

    fn needs(&self, cpus: usize) -> Bytes {
        let own = if self.memory {
            measure::ALLOCATION + measure::OBJECT
        } else {
            Bytes(0)
        };
        let each = CHILD + CHILD + own;
        Bytes(each.0 * cpus as u64 + CHILD.0)
    }

    fn head_start(&self) -> Nanos {
        self.background.as_ref().map_or(Nanos(0), |_| HEAD_START)
    }

    fn parameters(&self, cpus: usize) -> Parameters {
        let yes = |is: bool| Parameter::from(if is { "yes" } else { "no" });
        parameters([
            ("time-ns", self.time.0.into()),
            ("background", yes(self.background.is_some())),
            ("memory", yes(self.memory)),
            ("cpus", (cpus as u64).into()),
        ])
    }

    /// Puts together what the measuring and the busy threads gave.
    fn gather(
        &self,
        measured: &mut Measured,
        cpus: usize,
        measuring: Vec<Report>,
        busy: &[Report],
    ) {
        for report in measuring.iter().chain(busy) {
            if let Some(error) = &report.error {
                measured.note("a thread to its end", error);
            }
            if let Some(error) = &report.ordinary {
                measured.note("real-time priority of measuring threads", error);
            }
        }
        let parameters = self.parameters(cpus);
        let values = |of: fn(&Report) -> Option<f64>| -> Vec<f64> {
            measuring.iter().filter_map(of).collect()
        };
        let cycles: Vec<f64> = busy
            .iter()
            .filter(|report| report.error.is_none())
            .map(|report| report.cycles as f64)
            .collect();
        let maxima = values(|report| report.max_us);
        let means = values(|report| report.mean_us);
        let original = mean(&values(|report| report.original_us));
        if let Some(max) = maxima.iter().copied().reduce(f64::max) {
            measured.facts.insert(TRUE_MAX.to_owned(), max);
        }
        if let Some(mean) = original {
            measured.facts.insert(ORIGINAL.to_owned(), mean);
        }
        measured.count(MISSED, measuring.iter().map(|report| report.missed).sum());
        let blocks: Vec<Block> = measuring
            .into_iter()
            .filter_map(|report| report.all)
            .collect();
        let start_ns = blocks.iter().map(|block| block.start_ns).min();
        let samples = blocks.iter().map(|block| block.samples).sum();
        let all = crate::wakeup::together(0, blocks);
        measured.block(self.name(), "ns", &parameters, all);
        for (field, value) in [
            (Field::Cycles, mean(&cycles)),
            (Field::Mean, mean(&means)),
            (Field::Max, fold(&maxima)),
        ] {
            let block = value.map(|value| Block::number(0, start_ns.unwrap_or(0), samples, value));
            measured.block(field.series(), field.unit(), &parameters, block);
        }
    }
}

impl Probe for GemSyslatency {
    fn question(&self) -> Question {
        Question::Reclaim
    }

    fn plan(&self, context: &Context<'_>) -> Result<Plan, ProbeError> {
        if self.time.0 == 0 || self.time > LONGEST {
            return refuse(format!(
                "{} to measure: give 1 to {} seconds; it always ends",
                self.time,
                LONGEST.0 / 1_000_000_000
            ));
        }
        let cpus = context.system.cpus()?.len();
        let memory = self.needs(cpus);
        if memory > context.budget {
            return refuse(format!(
                "{cpus} CPUs need {memory}, the memory budget is {}: name fewer with --cpus, or raise it with --memory",
                context.budget
            ));
        }
        let what = if self.memory {
            "how long it takes to map, touch and unmap 2 MiB, beside threads that make and drop objects of 16 MiB"
        } else {
            "how late a timer is, beside busy threads"
        };
        let walk = self.background.as_ref().map_or(String::new(), |root| {
            format!(
                "; walks {} and maps each file, reading only",
                root.display()
            )
        });
        Ok(Plan {
            what: format!("Measures on each of {cpus} CPUs {what}{walk}."),
            touches: vec![format!(
                "{CPU_LATENCY}, held at 0 while it runs, where it may be"
            )],
            memory,
            time: self.head_start() + self.time,
            ..Plan::default()
        })
    }

    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError> {
        let system = context.system;
        let cpus = system.cpus()?;
        let mut measured = Measured::default();
        let awake = system.stay_awake();
        if let Err(error) = &awake {
            let what = "CPUs that are kept from sleeping deeply";
            measured.note(what, error.to_string());
        }
        let begin = system.now() + self.head_start();
        let times = Times {
            begin,
            end: begin + self.time,
            interrupted: context.interrupted,
        };
        let mut random = Random::new(context.seed);
        let mut bodies: Vec<ChildBody<'_>> = Vec::new();
        for &cpu in &cpus {
            let (stall, memory, seed) = (self.stall, self.memory, random.bits());
            bodies.push(Box::new(move || {
                runner::encode(&measure::measure(system, (cpu, seed), stall, memory, times))
            }));
            bodies.push(Box::new(move || {
                runner::encode(&measure::be_busy(system, cpu, memory, times))
            }));
        }
        if let Some(root) = &self.background {
            bodies.push(Box::new(move || {
                runner::encode(&measure::walk(system, root, times))
            }));
        }
        (context.progress)(0.1, "the mail's protocol");
        let limits = ChildLimits::within(self.head_start() + self.time + GRACE);
        let (mut measuring, mut busy) = (Vec::new(), Vec::new());
        let mut outcomes = system.run_children(&limits, bodies).into_iter();
        let what = "a thread to its end";
        for (number, outcome) in outcomes.by_ref().take(2 * cpus.len()).enumerate() {
            let of_cpu = if number % 2 == 0 {
                &mut measuring
            } else {
                &mut busy
            };
            of_cpu.extend(runner::report(context, &mut measured, what, outcome));
        }
        for outcome in outcomes {
            if let Some(walk) = runner::report(context, &mut measured, what, outcome) {
                walked(&mut measured, &walk);
            }
        }
        drop(awake);
        self.gather(&mut measured, cpus.len(), measuring, &busy);
        measured.interrupted = (context.interrupted)();
        Ok(measured)
    }

    /// One run says nothing of another: what it measured, and that it takes several.
    fn judge(&self, measured: Measured, _seed: u64, privilege: Privilege) -> Answer {
        let parameters = parameters([
            ("time-ns", self.time.0.into()),
            ("protocol", "gem_syslatency".into()),
            ("stall-ns", self.stall.0.into()),
        ]);
        let usual = "one run by mail 004's protocol: compare several";
        let nothing = measured.without_figures();
        let help = "five or more runs a side, in turn: stopgap compare BEFORE AFTER; of one number (-f 1): stopgap ministat";
        let judgement = Judgement {
            verdict: nothing.unwrap_or_else(|| Verdict::inconclusive(usual)),
            figure: None,
            evidence: beside(&measured),
            advice: vec![help.to_owned()],
        };
        let mut answer = measured.into_answer(Question::Reclaim, parameters, privilege, judgement);
        let line = line(&answer);
        answer.evidence.splice(..0, line);
        answer
    }
}

fn walked(measured: &mut Measured, walked: &Walked) {
    let facts = [(WALKED_FILES, walked.files), (WALKED_BYTES, walked.bytes)];
    let facts = facts.map(|(name, value)| (name.to_owned(), value as f64));
    measured.facts.extend(facts);
    if let Some(error) = &walked.error {
        measured.note("the walk in the background", error);
    }
    if walked.waits > 0 {
        let why = format!(
            "it waited {} times because little memory was available",
            walked.waits
        );
        measured.note("the walk in the background without pauses", why);
    }
}

/// Returns the lines that the original does not print.
fn beside(measured: &Measured) -> Vec<String> {
    let fact = |name: &str| measured.facts.get(name).copied();
    let mut lines = Vec::new();
    lines.extend(fact(TRUE_MAX).map(|max| {
        format!(
            "the true maximum of all CPUs is {max:.0} us; the line above folds the CPUs' maxima"
        )
    }));
    let missed = measured.counted(MISSED);
    if let Some(mean) = fact(ORIGINAL).filter(|_| missed > 0) {
        lines.push(format!(
            "{missed} timers expired while a thread still slept for an earlier one: each is a sample; without them, as \
             the original counts, the mean is {mean:.3} us"
        ));
    }
    if let (Some(files), Some(bytes)) = (fact(WALKED_FILES), fact(WALKED_BYTES)) {
        lines.push(format!(
            "in the background {} of {files:.0} files were mapped",
            Bytes(bytes as u64)
        ));
    }
    lines
}

// The protocol's arithmetic (IGT, `lib/igt_stats.c` and `benchmarks/gem_syslatency.c`).

/// What one number of per-CPU maxima is: the trimean of more than 9, the median of more than 5, else the mean.
/// `None` where there is none. It is *not* the maximum: of 11 CPUs the latest two may be as late as they like.
fn fold(maxima: &[f64]) -> Option<f64> {
    let mut sorted = maxima.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0..=5 => mean(&sorted),
        6..=9 => Some(middle(&sorted)),
        _ => Some(trimean(&sorted)),
    }
}

/// The mean; `None` of nothing.
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The median of sorted values (at least one): of an even number the mean of the two in the middle.
fn middle(sorted: &[f64]) -> f64 {
    let last = sorted.len() - 1;
    f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)])
}

/// (q1 + 2 q2 + q3) / 4 of sorted values (at least one); the one in the middle of an odd number belongs to both
/// halves.
fn trimean(sorted: &[f64]) -> f64 {
    let half = sorted.len().div_ceil(2);
    let (q1, q3) = (
        middle(&sorted[..half]),
        middle(&sorted[sorted.len() - half..]),
    );
    (q1 + 2.0 * middle(sorted) + q3) / 4.0
}

#[cfg(test)]
mod tests;
