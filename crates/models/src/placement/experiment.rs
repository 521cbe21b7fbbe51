//! All allocators on one workload at one N.
//!
//! # How time is taken
//!
//! Every batch is carried out by each allocator in turn, in an order that rotates from batch to batch,
//! so that what disturbs the machine for a while disturbs all. Each repetition begins with fresh
//! state; of a long stream those after the first carry out only the beginning. The first operations of a batch are
//! carried out untimed: the other allocators have just used the caches. A batch's figure is the median over the repetitions that have it; the row's is the sum of those over all operations. The [driver](super::Driver) runs among the
//! allocators, and its time an operation is taken off theirs.
//!
//! The clocks are handed in. A batch is timed by the thread's CPU time: what else runs on the machine
//! stretches the caches' misses, but its own time does not count. Reading that clock costs a system call,
//! some 200 ns, which is nothing beside a batch and would drown a single operation.
//!
//! Single operations are therefore timed by a monotonic clock, which is read without a system call, in passes of
//! their own over the first [`SINGLES`] operations, each between two readings; what two readings in a row
//! show (median) is taken off each. That clock also counts the time for which the thread did not run. If that
//! happens more than once in 10,000 operations, it is in the 99.99th percentile of a repetition: the median of
//! the repetitions is given. Of each operation the fastest repetition counts for the longest operation, because
//! the thread hardly ever loses its CPU in the same operation of all repetitions.

use stopgap_events::memory::MemoryEvent;
use stopgap_stats::histogram::Histogram;
use thiserror::Error;

use super::allocator::{Driver, Entry, Scene};
use super::execution::{Execute, Facts, Limits, Stop, Timing};
use super::operation::{Batch, Compiler, StreamError};
use super::rows;

/// Operations at the start of a batch that are not timed, at most; an eighth of a short one.
const WARM: usize = 2_048;
/// Operations between two readings of the span. Of a program that repeats itself each 100,000 operations a reading after each batch
/// says little.
const SPANNED: usize = 1 << 12;

/// Measured operations of a repetition that are timed alone, in whole batches: more than twice what a
/// p99.99 needs.
pub const SINGLES: u64 = 1 << 18;

/// Operations of a stream that are kept at most, in 80 MiB: a longer one is read again in each pass.
const KEPT: usize = 1 << 22;

/// Readings of the clock to find out what it costs.
const READINGS: usize = 10_000;

/// Memory that a range takes in an allocator, its slot included, in bytes: what an average of all of them
/// stays below. VMAs in a red-black tree take up to 170, all other policies and peers less than 100.
pub const RANGE: u64 = 128;

/// The batches of a stream that was read once.
#[derive(Default)]
struct Kept {
    batches: Vec<Batch>,
    /// Bytes that each slot holds at the end.
    sizes: Vec<u64>,
    /// Whether these are all batches.
    whole: bool,
}

/// A stream of events, read from the start.
pub type Events = Box<dyn Iterator<Item = Result<MemoryEvent, String>>>;

/// One workload at one N.
pub struct Experiment<'a> {
    /// The workload's name in rows.
    pub workload: &'a str,
    /// Its size; `None` for a trace.
    pub n: Option<u64>,
    /// Where it is placed.
    pub scene: Scene,
    /// Opens the stream again.
    pub events: &'a dyn Fn() -> Result<Events, String>,
}

/// How much to do.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Repetitions of each pass, at least 1.
    pub repetitions: u32,
    /// Visits that one allocator may make in all passes of one experiment.
    pub visits: u64,
    /// Nanoseconds that one that counts no visits may take in all passes of one experiment.
    pub ns: u64,
    /// Bytes of memory that all allocators may take.
    pub memory: u64,
    /// Measured operations that each repetition after the first times in batches, in whole batches: the first ones of a long stream
    /// say how times scatter.
    pub repeated: u64,
    /// Whether to read used bytes and span in a pass more, and to time all operations alone, not only [`SINGLES`].
    pub thorough: bool,
}

/// Clocks and callbacks of a run.
pub struct Meter<'a> {
    /// A monotonic clock, in nanoseconds.
    pub now: &'a dyn Fn() -> u64,
    /// CPU time of this thread, in nanoseconds.
    pub cpu: &'a dyn Fn() -> u64,
    /// Whether to end early.
    pub interrupted: &'a dyn Fn() -> bool,
    /// Told what share of the experiment is done.
    pub progress: &'a dyn Fn(f64),
}

/// Why there is no replay.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The stream makes no sense somewhere.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream cannot be opened.
    #[error("{0}")]
    Source(String),
    /// An allocator answered what it must not.
    #[error("event {event}: {policy} fails: {what}")]
    Fault {
        /// Index of the event, from 0.
        event: u64,
        /// Which.
        policy: String,
        /// The wrong answer.
        what: String,
    },
    /// It would take too much memory.
    #[error("{live} mappings in {allocators} policies may take {need} bytes; {most} are allowed")]
    Memory {
        /// Live at a time.
        live: u64,
        /// Policies, the driver among them.
        allocators: u64,
        /// Most that they may take.
        need: u64,
        /// Most that is allowed.
        most: u64,
    },
}

/// Measurements of one allocator.
pub(super) struct Shown {
    /// Missing part of the contract, known from the start; nothing else is measured then.
    pub(super) lacks: Option<String>,
    /// Counts of the first pass: of every one, unless it was stopped.
    pub(super) facts: Option<Facts>,
    /// Why it stopped.
    pub(super) stop: Option<Stop>,
    /// Repetition, batch: operations timed, and nanoseconds.
    pub(super) times: Vec<Vec<(u64, u64)>>,
    /// By repetition: times of single operations.
    pub(super) singles: Vec<Histogram>,
    /// The time of each operation in its fastest repetition.
    pub(super) least: Vec<u32>,
    /// Bytes held, and from the first to the last, after each batch of a pass of its own.
    pub(super) spans: Vec<(u64, u64)>,
    /// Nanoseconds of the maps of each round that is long enough to be timed by itself: those that come
    /// before its first unmap.
    pub(super) rounds: Vec<u64>,
}

/// Result of an experiment.
pub struct Outcome {
    /// A row an allocator, in their order; empty where nothing was measured before it was interrupted.
    pub rows: Vec<rows::Measured>,
    /// Cost of two readings of the clock, in nanoseconds.
    pub clock_ns: u64,
    /// Whether it ended early.
    pub interrupted: bool,
}

impl Experiment<'_> {
    /// Carries the experiment out on every entry.
    ///
    /// # Errors
    /// [`ReplayError`]; earlier measurements are lost.
    pub fn run(
        &self,
        entries: &[Entry],
        settings: Settings,
        meter: &Meter<'_>,
    ) -> Result<Outcome, ReplayError> {
        let repetitions = settings.repetitions.max(1);
        let passes = u64::from(repetitions) * 2;
        let cost = reading(meter.now);
        let mut shown: Vec<Shown> = Vec::new();
        let mut kept = Kept::default();
        let mut interrupted = false;
        let mut spans = Vec::new();
        if settings.thorough {
            // By itself: times of such short batches would be those of cold caches.
            let part = Part {
                most: u64::MAX,
                single: None,
                spans: true,
            };
            let limits = limits(settings, 0, passes);
            let mut unused = Kept::default();
            let (done, whole) = self.pass(entries, limits, settings, part, meter, &mut unused)?;
            spans.extend(done.into_iter().map(|shown| shown.spans));
            interrupted = !whole;
        }
        for pass in 0..passes {
            if interrupted {
                break;
            }
            let single = (pass % 2 == 1).then_some(cost);
            let most = match single {
                None if pass == 0 => u64::MAX,
                None => settings.repeated,
                Some(_) if settings.thorough => u64::MAX,
                Some(_) => SINGLES,
            };
            let part = Part {
                most,
                single,
                spans: false,
            };
            (meter.progress)(pass as f64 / passes as f64);
            let limits = limits(settings, pass, passes);
            let (done, whole) = self.pass(entries, limits, settings, part, meter, &mut kept)?;
            if whole || pass < 2 {
                keep(&mut shown, done);
            }
            if !whole {
                interrupted = true;
                break;
            }
        }
        for (shown, spans) in shown.iter_mut().zip(spans) {
            shown.spans = spans;
        }
        Ok(Outcome {
            rows: rows::rows(self, entries, &shown),
            clock_ns: cost,
            interrupted,
        })
    }

    /// One pass over `part` of the events with fresh allocators. Says whether it came to the end.
    fn pass(
        &self,
        entries: &[Entry],
        limits: Limits,
        settings: Settings,
        part: Part,
        meter: &Meter<'_>,
        kept: &mut Kept,
    ) -> Result<(Vec<Shown>, bool), ReplayError> {
        let Part {
            most,
            single,
            spans,
        } = part;
        let mut runners = self.runners(entries, limits);
        let running = runners.iter().filter(|r| r.execution.is_some()).count() as u64;
        let mut stream = match kept.whole {
            true => None,
            false => Some((self.events)().map_err(ReplayError::Source)?),
        };
        let mut compiler = Compiler::new(self.scene.space, self.scene.direction);
        if spans {
            compiler = compiler.in_batches_of(SPANNED);
        }
        let mut read = Batch::default();
        let (mut operations, mut ended) = (0, false);
        let (mut turn, mut measuring, mut whole, mut measured) = (0, false, true, 0);
        loop {
            let batch = match &mut stream {
                None => match kept.batches.get(turn) {
                    Some(batch) => batch,
                    None => break,
                },
                Some(events) => {
                    if !compiler.fill(&mut **events, &mut read)? {
                        ended = true;
                        break;
                    }
                    operations += read.operations.len();
                    if operations <= KEPT {
                        kept.batches.push(read.clone());
                    }
                    &read
                }
            };
            let need = batch.slots as u64 * running * RANGE;
            if need > settings.memory {
                return Err(ReplayError::Memory {
                    live: batch.slots as u64,
                    allocators: running,
                    need,
                    most: settings.memory,
                });
            }
            let begins = batch.measured && !measuring;
            measuring |= begins;
            if batch.measured {
                if measured >= most {
                    break;
                }
                measured += batch.operations.len() as u64;
            }
            for at in 0..runners.len() {
                let index = (turn + at) % runners.len();
                let name = index.checked_sub(1).map_or("driver", |i| entries[i].name());
                runners[index].batch(batch, begins, single, meter, name)?;
                if spans && batch.measured {
                    runners[index].read_span(&mut compiler.sizes());
                }
            }
            turn += 1;
            if (meter.interrupted)() {
                whole = false;
                break;
            }
        }
        // A stream that is read from a file may have ended for it.
        whole &= !(meter.interrupted)();
        if stream.is_some() {
            kept.sizes = compiler.sizes().collect();
            kept.whole = whole && ended && operations <= KEPT;
            if !kept.whole {
                kept.batches = Vec::new();
            }
        }
        let shown = runners.into_iter().map(|runner| {
            let facts = runner
                .execution
                .as_ref()
                .filter(|_| measuring)
                .map(|execution| execution.facts(&mut kept.sizes.iter().copied()));
            Shown {
                stop: runner
                    .execution
                    .as_ref()
                    .and_then(|execution| execution.stopped()),
                facts,
                lacks: runner.lacks,
                times: vec![runner.times],
                rounds: runner.rounds,
                singles: vec![histogram(&runner.singles)],
                least: runner.singles,
                spans: runner.spans,
            }
        });
        Ok((shown.collect(), whole))
    }

    /// The driver, then the entries.
    fn runners(&self, entries: &[Entry], limits: Limits) -> Vec<Runner> {
        let driver = Entry::new("driver", None, |_| Ok(Driver::default()));
        let unlimited = Limits {
            visits: u64::MAX,
            ns: u64::MAX,
        };
        std::iter::once((&driver, unlimited))
            .chain(entries.iter().map(|entry| (entry, limits)))
            .map(|(entry, limits)| {
                let made = entry.make(self.scene, limits);
                let (execution, lacks) = match made {
                    Ok(execution) => (Some(execution), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                Runner {
                    execution,
                    lacks,
                    times: Vec::new(),
                    singles: Vec::new(),
                    round_ns: 0,
                    rounds: Vec::new(),
                    spans: Vec::new(),
                }
            })
            .collect()
    }
}

/// What an allocator may do in one of `passes` passes. Half of all goes to the first: it is what counts
/// work, and counts need more operations than times do to be near what they tend to.
fn limits(settings: Settings, pass: u64, passes: u64) -> Limits {
    let share = |all: u64| {
        let part = if pass == 0 {
            all / 2
        } else {
            all / 2 / (passes - 1)
        };
        part.max(1)
    };
    Limits {
        visits: share(settings.visits),
        ns: share(settings.ns),
    }
}

/// Operations of one pass, and how they are timed.
#[derive(Clone, Copy)]
struct Part {
    /// Measured operations, in whole batches.
    most: u64,
    /// Whether each is timed alone, less so many nanoseconds.
    single: Option<u64>,
    /// Whether the span is read after each batch, and batches are short.
    spans: bool,
}

/// An allocator in one pass.
struct Runner {
    execution: Option<Box<dyn Execute>>,
    lacks: Option<String>,
    times: Vec<(u64, u64)>,
    singles: Vec<u32>,
    /// Time of the current round.
    round_ns: u64,
    rounds: Vec<u64>,
    spans: Vec<(u64, u64)>,
}

impl Runner {
    fn batch(
        &mut self,
        batch: &Batch,
        begins: bool,
        single: Option<u64>,
        meter: &Meter<'_>,
        name: &str,
    ) -> Result<(), ReplayError> {
        let Meter { now, cpu, .. } = *meter;
        let Some(execution) = &mut self.execution else {
            return Ok(());
        };
        if begins {
            execution.measure();
        }
        if execution.stopped().is_some() {
            return Ok(());
        }
        let length = batch.operations.len();
        let carried = match single {
            Some(cost) if batch.measured => {
                let into = &mut self.singles;
                let timing = Timing::Each { into, cost };
                execution
                    .carry_out(batch, 0..length, now, timing)
                    .map(|_| None)
            }
            _ => {
                let warm = WARM.min(length / 8);
                let mut timed = |part| {
                    let began = cpu();
                    let carried = execution.carry_out(batch, part, now, Timing::Whole)?;
                    Ok((carried as u64, cpu().saturating_sub(began)))
                };
                timed(0..warm).and_then(|cold| Ok(Some((cold, timed(warm..length)?))))
            }
        };
        let carried = carried.map_err(|fault| ReplayError::Fault {
            event: batch.event(fault.at),
            policy: name.to_owned(),
            what: fault.what,
        })?;
        if let Some((cold, timed)) = carried.filter(|_| batch.measured) {
            // An allocator that stops within the first operations has no others.
            let none = timed.0 == 0 && self.times.is_empty();
            self.times.push(if none { cold } else { timed });
            if batch.maps_of_round {
                self.round_ns += cold.1 + timed.1;
            }
            if batch.ends_round && cold.0 + timed.0 == length as u64 {
                self.rounds.push(std::mem::take(&mut self.round_ns));
            }
        }
        Ok(())
    }

    /// Notes bytes held and span, where anything is held.
    fn read_span(&mut self, sizes: &mut dyn Iterator<Item = u64>) {
        let execution = self.execution.as_ref();
        let running = execution.filter(|execution| execution.stopped().is_none());
        let facts = running.map(|execution| execution.facts(sizes));
        self.spans
            .extend(facts.and_then(|facts| facts.used_and_span));
    }
}

fn histogram(times: &[u32]) -> Histogram {
    let mut all = Histogram::new();
    for &ns in times {
        all.record(u64::from(ns));
    }
    all
}

/// Adds a pass to those before it.
fn keep(shown: &mut Vec<Shown>, pass: Vec<Shown>) {
    if shown.is_empty() {
        *shown = pass;
        for one in shown {
            one.singles.clear();
        }
        return;
    }
    for (all, one) in shown.iter_mut().zip(pass) {
        let timed = |times: &Vec<(u64, u64)>| times.iter().any(|&(operations, _)| operations > 0);
        all.times.extend(one.times.into_iter().filter(timed));
        all.rounds.extend(one.rounds);
        let fewer = all.least.len().min(one.least.len());
        for (all, one) in all.least.iter_mut().zip(&one.least) {
            *all = (*all).min(*one);
        }
        all.least.extend(&one.least[fewer..]);
        let some = |singles: &Histogram| !singles.is_empty();
        all.singles.extend(one.singles.into_iter().filter(some));
    }
}

/// Returns the median difference of two successive readings of the clock, in nanoseconds.
fn reading(now: &dyn Fn() -> u64) -> u64 {
    let mut lengths: Vec<u64> = (0..READINGS)
        .map(|_| {
            let start = now();
            now().saturating_sub(start)
        })
        .collect();
    let middle = lengths.len() / 2;
    *lengths.select_nth_unstable(middle).1
}
