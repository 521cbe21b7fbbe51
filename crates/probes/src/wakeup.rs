//! How late does a thread wake?
//!
//! A thread pinned to each CPU sleeps until an absolute time on the monotonic clock
//! (clock_nanosleep(2)), an interval later again, and so on: the schedule of cyclictest (rt-tests,
//! `timerthread()`). Lateness is counted from the intended start. What cyclictest leaves out, the periods that pass
//! while the thread still sleeps for an earlier one, are samples here ([`schedule`]).
//!
//! The threads are guarded children, one a CPU, all at once; a run is a set of them.

mod judge;
pub(crate) mod schedule;

use schedule::Schedule;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::{Missing, Privilege};
use stopgap_events::order::SortRows;
use stopgap_events::question::Question;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::words;
use stopgap_kernel::System;
use stopgap_kernel::realtime::CPU_LATENCY;
use stopgap_kernel::tasks::{ChildBody, ChildLimits};
use stopgap_stats::histogram::{Histogram, Recorder};
use stopgap_stats::record::{Answer, Block, Series, Stalls, parameters};

use crate::contract::{Context, Measured, Parameters, Plan, Probe, ProbeError, refuse};
use crate::runner;

/// Lateness of every period, all CPUs together; nanoseconds.
pub const WAKE_UP: &str = "wake-up";
/// The same, a series a CPU.
pub const OF_A_CPU: &str = "wake-up of a CPU";
/// Lateness of the periods that were slept for, all CPUs together: what cyclictest counts.
pub const SLEPT_FOR: &str = "wake-up slept for";
/// Counter of periods that passed while a thread slept for an earlier one.
pub const MISSED: &str = "missed periods";

/// How many CPUs were looked at, among the facts.
const CPUS: &str = "cpus";
/// What a child takes beside what it shares with us: its memory is locked, so it has all of it.
const CHILD: Bytes = Bytes::mib(8);
/// Below that a run is more beginning than run.
const SHORTEST: Nanos = Nanos::millis(250);
/// Runs that an interval needs.
const LEAST_RUNS: u32 = 3;
/// Intervals that make sense: a shorter one is a busy loop that starves its CPU, a longer one sees nothing.
const INTERVALS: (Nanos, Nanos) = (Nanos::micros(50), Nanos::secs(1));

/// A thread's scheduling policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// `SCHED_FIFO`.
    Fifo,
    /// `SCHED_OTHER`, whose sleeps may end 50 us late by the kernel's own choice (timer slack).
    #[default]
    Other,
}

words!(Policy, "policy", Fifo "fifo", Other "other");

/// The probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wakeup {
    /// Between two intended wake-ups, 50 us to 1 s.
    pub interval: Nanos,
    /// Policy asked for; where `SCHED_FIFO` is refused, it is measured under the other and the answer says so.
    pub policy: Policy,
    /// Priority under `SCHED_FIFO`, 1 to 99.
    pub priority: u32,
    /// From what lateness on it is a stall.
    pub stall: Nanos,
    /// Runs that the time is divided into; fewer where it is short, down to 3.
    pub runs: u32,
}

impl Wakeup {
    /// As `check --only wakeup` asks it; `quick`: with fewer runs.
    #[must_use]
    pub fn check(quick: bool) -> Wakeup {
        Wakeup {
            interval: Nanos::millis(1),
            policy: Policy::Fifo,
            priority: 80,
            stall: Nanos::millis(10),
            runs: if quick { 3 } else { 10 },
        }
    }

    /// Runs, and how long each takes.
    fn division(&self, time: Nanos) -> (u32, Nanos) {
        let fit = u32::try_from(time.0 / SHORTEST.0).unwrap_or(u32::MAX);
        let runs = self.runs.min(fit.max(LEAST_RUNS));
        let each = Nanos(time.0 / u64::from(runs));
        // At least one wake-up, even where that takes longer than was asked for.
        (runs, each.max(self.interval))
    }

    fn parameters(&self, policy: Policy) -> Parameters {
        let mut parameters = parameters([
            ("interval-ns", self.interval.0.into()),
            ("policy", policy.word().into()),
        ]);
        if policy == Policy::Fifo {
            parameters.insert("priority".to_owned(), self.priority.into());
        }
        parameters
    }

    fn keep(&self, measured: &mut Measured, run: u32, reports: Vec<Report>) {
        let (mut all, mut slept, mut each) = (Vec::new(), Vec::new(), Vec::new());
        let mut policy = Policy::Fifo;
        for report in reports {
            for missing in report.missing {
                measured.note(missing.what, missing.why);
            }
            if report.policy == Policy::Other {
                policy = Policy::Other; // one ordinary thread and the whole is no real-time figure
            }
            let mut parameters = self.parameters(report.policy);
            parameters.insert("cpu".to_owned(), report.cpu.into());
            each.push(Series {
                error: report.error,
                ..Series::new(OF_A_CPU, "ns", &parameters, report.all.clone())
            });
            all.extend(report.all);
            slept.extend(report.slept);
            measured.count(MISSED, report.missed);
        }
        let parameters = self.parameters(policy);
        for (name, blocks) in [(WAKE_UP, all), (SLEPT_FOR, slept)] {
            measured.block(name, "ns", &parameters, together(run, blocks));
        }
        each.into_iter().for_each(|series| measured.add(series));
    }
}

/// The block of all CPUs of a run: they were held up together or not, so they are one run.
pub(crate) fn together(run: u32, blocks: Vec<Block>) -> Option<Block> {
    let start_ns = blocks.iter().map(|block| block.start_ns).min()?;
    let mut histogram = Histogram::new();
    for one in blocks.iter().filter_map(|block| block.histogram.as_ref()) {
        histogram.merge(one);
    }
    let stalls = blocks.into_iter().filter_map(|block| block.stalls);
    let mut stalls = stalls.reduce(|mut all, one| {
        all.count += one.count;
        all.episodes.extend(one.episodes);
        all
    });
    if let Some(stalls) = &mut stalls {
        stalls.episodes.sort_rows_by_key(|stall| stall.start_ns);
        stalls.episodes.truncate(Stalls::KEPT);
    }
    Some(Block {
        run,
        start_ns,
        samples: histogram.len(),
        value: histogram.median()? as f64,
        histogram: Some(histogram),
        stalls,
    })
}

impl Probe for Wakeup {
    fn question(&self) -> Question {
        Question::Wakeup
    }

    fn plan(&self, context: &Context<'_>) -> Result<Plan, ProbeError> {
        if !(INTERVALS.0..=INTERVALS.1).contains(&self.interval) {
            return refuse(format!(
                "an interval of {}: give {} to {}",
                self.interval, INTERVALS.0, INTERVALS.1
            ));
        }
        if self.runs == 0 {
            return refuse("0 runs measure nothing: give at least 1");
        }
        if !(1..=99).contains(&self.priority) {
            return refuse(format!("priority {}: give 1 to 99", self.priority));
        }
        if self.stall.0 == 0 {
            return refuse("every wake-up is 0 ns late or more: give a longer --stall");
        }
        let cpus = context.system.cpus()?;
        let memory = Bytes(CHILD.0 * cpus.len() as u64);
        if memory > context.budget {
            return refuse(format!(
                "a thread on each of {} CPUs needs {memory}, the memory budget is {}: name fewer with --cpus, or raise \
                 it with --memory",
                cpus.len(),
                context.budget
            ));
        }
        let policy = match self.policy {
            Policy::Fifo => format!("under SCHED_FIFO {} where it may be", self.priority),
            Policy::Other => "under SCHED_OTHER".to_owned(),
        };
        let (runs, each) = self.division(context.time);
        Ok(Plan {
            what: format!(
                "Wakes a thread on each of {} CPUs every {}, {policy}, and looks how late it is; its memory is locked.",
                cpus.len(),
                self.interval
            ),
            touches: vec![format!(
                "{CPU_LATENCY}, held at 0 while it runs, where it may be"
            )],
            memory,
            time: Nanos(each.0 * u64::from(runs)),
            ..Plan::default()
        })
    }

    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError> {
        let system = context.system;
        let cpus = system.cpus()?;
        let mut measured = Measured::default();
        measured.facts.insert(CPUS.to_owned(), cpus.len() as f64);
        let awake = system.stay_awake();
        if let Err(error) = &awake {
            let what = "wake-ups of CPUs that are kept from sleeping deeply";
            measured.note(what, error.to_string());
        }
        let (runs, each) = self.division(context.time);
        // A machine that stalls for so long is what is looked for.
        let limits = ChildLimits::within(each + each + Nanos::secs(30));
        for run in 0..runs {
            if (context.interrupted)() {
                measured.interrupted = true;
                break;
            }
            (context.progress)(f64::from(run) / f64::from(runs), "waking on time");
            let body = |&cpu: &u32| -> ChildBody<'_> {
                let interrupted = context.interrupted;
                Box::new(move || {
                    let place = (run, cpu);
                    runner::encode(&carry_out(system, self, place, each, interrupted))
                })
            };
            let outcomes = system.run_children(&limits, cpus.iter().map(body).collect());
            let mut reports = Vec::new();
            for (cpu, outcome) in cpus.iter().zip(outcomes) {
                let what = format!("CPU {cpu}, run {run}");
                reports.extend(runner::report::<Report>(
                    context,
                    &mut measured,
                    &what,
                    outcome,
                ));
            }
            self.keep(&mut measured, run, reports);
        }
        measured.interrupted |= (context.interrupted)();
        drop(awake);
        Ok(measured)
    }

    fn judge(&self, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
        judge::judge(self, measured, seed, privilege)
    }
}

// The measuring thread of one CPU.

/// What a real-time thread needs and did not get: why it then ran as an ordinary one.
const REALTIME: &str = "wake-ups of a real-time thread";
/// Name of what is missing where memory cannot be locked.
const LOCKED: &str = "locked memory (its own page faults may be in the figures)";

/// Figures of one CPU's thread in one run.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Report {
    cpu: u32,
    /// The policy under which it ran.
    policy: Policy,
    /// Every period; `None` where it was interrupted before the first.
    all: Option<Block>,
    /// Those that it slept for, as cyclictest counts.
    slept: Option<Block>,
    /// Periods that passed while it slept for an earlier one; they are among all.
    missed: u64,
    missing: Vec<Missing>,
    /// Why it did not begin.
    error: Option<String>,
}

/// Makes the calling thread one that wakes on `cpu`, and measures for `time`.
fn carry_out(
    system: &dyn System,
    probe: &Wakeup,
    (run, cpu): (u32, u32),
    time: Nanos,
    interrupted: &dyn Fn() -> bool,
) -> Report {
    let mut report = Report {
        cpu,
        ..Report::default()
    };
    if let Err(error) = system.set_cpus(&[cpu]) {
        report.error = Some(error.to_string());
        return report;
    }
    let mut all = Recorder::new(probe.stall.0);
    let mut slept = Recorder::new(probe.stall.0);
    if let Err(error) = system.lock_memory() {
        report.missing.push(Missing::new(LOCKED, error.to_string()));
    }
    if probe.policy == Policy::Fifo {
        match system.set_fifo(probe.priority) {
            Ok(()) => report.policy = Policy::Fifo,
            Err(error) => {
                let why = format!("{error}: it ran under SCHED_OTHER");
                report.missing.push(Missing::new(REALTIME, why));
            }
        }
    }
    let begin = system.now();
    let mut schedule = Schedule::new(begin, probe.interval);
    while schedule.next() <= begin + time && !interrupted() {
        system.sleep_until(schedule.next());
        for period in schedule.over(system.now()) {
            all.record(period.intended.0, period.late.0);
            if period.missed {
                report.missed += 1;
            } else {
                slept.record(period.intended.0, period.late.0);
            }
        }
    }
    report.all = all.into_block(run, begin.0);
    report.slept = slept.into_block(run, begin.0);
    report
}

#[cfg(test)]
mod tests;
