//! The part that reaches the system: load children, one for each part of each run.

use std::sync::atomic::{AtomicBool, Ordering};

use stopgap_events::machine::Missing;
use stopgap_events::memory::{MemoryEvent, Phase};
use stopgap_events::order::SortRows;
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::workload::{Form, Freegap, Pbobench};
use stopgap_kernel::devices::Maker;
use stopgap_kernel::memory::{Advice, MapKind, MapRequest};
use stopgap_kernel::{Error, System};
use stopgap_stats::histogram::Recorder;
use stopgap_stats::record::parameters;

use super::execute::{Backend, Buffers, Mapped, apply, carry_out, lay_out};
use super::judge::is_open;
use super::objects::{churn, room};
use super::{Placement, STALL, names};
use crate::contract::{Context, Measured, Parameters, ProbeError};
use crate::meter::{Clock, Meter, Step};
use crate::runner;

/// Reads of `/proc/self/maps` for the control.
const CONTROL_READS: u32 = 2;

/// Runs that leave the verdict open (a neighbour that slowed one of three down widens the interval beyond both bounds) are
/// followed by as many again, while there is time, up to so many times what was asked. Looking again costs little
/// certainty: between what is flat and what grows lies more than any kernel's search was seen to lie between.
const AT_MOST: u32 = 4;

/// One part of a run, carried out by a load child of its own.
#[derive(Debug, Clone)]
enum Part {
    Pbobench { backend: Backend, n: u32 },
    Control { n: u32 },
    Threads { threads: u32 },
    Agua,
    Freegap { form: Form },
}

impl Part {
    /// Whether the verdict stands on it; the others are evidence beside it.
    fn is_needed(&self) -> bool {
        matches!(self, Part::Pbobench { .. } | Part::Control { .. })
    }

    fn describe(&self) -> String {
        match self {
            Part::Pbobench { backend, n } => format!("pbobench, N={n}, {backend}"),
            Part::Control { n } => format!("control, N={n}"),
            Part::Threads { threads } => format!("{threads} threads at once"),
            Part::Agua => "agua".to_owned(),
            Part::Freegap { form } => format!("freegap {form}"),
        }
    }
}

pub(super) fn run(
    probe: &Placement,
    counts: &[u32],
    context: &Context<'_>,
) -> Result<Measured, ProbeError> {
    let system = context.system;
    let mut measured = Measured::default();
    let mut parts: Vec<Part> = counts.iter().map(|&n| Part::Control { n }).collect();
    let mut backends = probe.backends.clone();
    backends.retain(|backend| is_here(backend, context, &mut measured));
    if backends.is_empty() && !probe.backends.is_empty() {
        return Ok(measured); // what is left would answer another question
    }
    for backend in &backends {
        parts.extend(counts.iter().map(|&n| Part::Pbobench {
            backend: backend.clone(),
            n,
        }));
    }
    let threads = probe.threads.iter();
    parts.extend(threads.map(|&threads| Part::Threads { threads }));
    if probe.agua_loops > 0 {
        let (_, scaled) = probe.agua(system)?;
        parts.push(Part::Agua);
        measured
            .missing
            .extend(scaled.map(|why| Missing::new("agua at its original size", why)));
    }
    if probe.freegap_rounds > 0 {
        parts.extend(Form::ALL.iter().map(|&form| Part::Freegap { form }));
    }
    measured.count("steps at each N", probe.steps);

    let begin = system.now();
    let stop = || (context.interrupted)() || context.overdue(begin);
    let stoppable = Context {
        interrupted: &stop,
        ..*context
    };
    let mut random = Random::new(context.seed);
    let mut runs = probe.runs;
    let mut short_of_time = false;
    let mut run = 0;
    'runs: while run < runs {
        random.shuffle(&mut parts);
        // What the verdict stands on comes first: it is what there is time for, where there is little.
        parts.sort_rows_by_key(|part| !part.is_needed());
        for (index, part) in parts.iter().enumerate() {
            if (context.interrupted)() {
                measured.interrupted = true;
                break 'runs;
            }
            if context.overdue(begin) {
                let left = format!("{} of {runs} runs, or parts of them", runs - run);
                measured.missing.push(context.left_out(left));
                break 'runs;
            }
            if !part.is_needed() && run >= probe.runs {
                continue; // evidence: it was had as often as was asked
            }
            if !part.is_needed() && run > 0 && context.passed(begin) > context.time {
                short_of_time = true;
                continue;
            }
            let (done, total) = (
                run as usize * parts.len() + index,
                runs as usize * parts.len(),
            );
            (context.progress)(done as f64 / total.max(1) as f64, &part.describe());
            let seed = random.bits();
            runner::measure(&stoppable, &mut measured, &part.describe(), |report| {
                measure_part(probe, part, run, seed, &stoppable, report).map_err(String::from)
            });
        }
        run += 1;
        if context.enough(begin, run) {
            if run < runs {
                let left = format!("{} of {runs} runs", runs - run);
                measured.missing.push(context.left_out(left));
            }
            break;
        }
        let more = run == runs && runs < probe.runs.saturating_mul(AT_MOST);
        if more && is_open(&measured.series, &backends, context.seed) {
            runs += probe.runs;
        }
    }
    if short_of_time {
        let what = "some runs of threads, agua and freegap";
        measured.missing.push(context.left_out(what));
    }
    Ok(measured)
}

/// Measures one part, in the load child.
fn measure_part(
    probe: &Placement,
    part: &Part,
    run: u32,
    seed: u64,
    context: &Context<'_>,
    report: &mut Measured,
) -> Result<(), Error> {
    let system = context.system;
    match *part {
        Part::Pbobench {
            backend: Backend::Device(ref maker),
            n,
        } => objects(maker, (n, probe.steps, seed), run, context, report),
        Part::Pbobench { ref backend, n } => {
            let parameters = parameters([
                ("workload", "pbobench".into()),
                ("backend", backend.to_string().into()),
                ("n", n.into()),
            ]);
            let mut buffers = Mapped::new(system, backend.clone(), names(n))?;
            let events = Pbobench::new(n, probe.steps, seed).events();
            if time_calls(&mut buffers, events, &parameters, run, context, report)? {
                check_unmerged(system, n)?;
            }
            buffers.clear()
        }
        Part::Control { n } => {
            let parameters = parameters([("workload", "control".into()), ("n", n.into())]);
            let mut buffers = Mapped::new(system, Backend::Memfd, names(n))?;
            if !lay_out(&mut buffers, n, seed, context.interrupted)? {
                return buffers.clear(); // Ctrl-C: fewer mappings are no control
            }
            check_unmerged(system, n)?;
            control(system, &parameters, run, report)?;
            buffers.clear()
        }
        Part::Threads { threads } => run_threads(threads, run, seed, context, report),
        Part::Agua => {
            let (agua, _) = probe
                .agua(system)
                .map_err(|error| Error::unsupported("agua", error))?;
            let live = agua.ceiling();
            let parameters = parameters([("workload", "agua".into()), ("live", live.into())]);
            let mut buffers = Mapped::new(system, Backend::Anonymous, 1)?;
            let mut loops = Recorder::new(STALL.0);
            let start = system.now();
            let mut maps = MapTime {
                system,
                sum: Nanos(0),
            };
            // What mail 003's clock saw of a loop is its maps: docs/questions/placement.md says why.
            let mut loop_start = start;
            let events = agua.events();
            carry_out(
                &mut buffers,
                events,
                context.interrupted,
                &mut maps,
                |maps, phase| {
                    if phase == Phase::Round {
                        loops.record(loop_start.0, maps.sum.0);
                        (loop_start, maps.sum) = (system.now(), Nanos(0));
                    }
                    Ok(())
                },
            )?;
            report.block("loop", "ns", &parameters, loops.into_block(run, start.0));
            buffers.clear()
        }
        Part::Freegap { form } => {
            let parameters =
                parameters([("workload", "freegap".into()), ("form", form.word().into())]);
            let rounds = probe.freegap_rounds;
            let events = Freegap::with_page_size(form, rounds, system.page_size()).events();
            let mut buffers = Mapped::new(system, Backend::Anonymous, 1)?;
            time_calls(&mut buffers, events, &parameters, run, context, report)?;
            buffers.clear()
        }
    }
}

/// Returns whether this machine has a backend; if not, why is among what is missing. Asked in a load child, because a driver's
/// library that is loaded stays.
fn is_here(backend: &Backend, context: &Context<'_>, measured: &mut Measured) -> bool {
    let Some(maker) = backend.maker() else {
        return true;
    };
    let before = measured.missing.len();
    let name = backend.to_string();
    runner::measure(context, measured, &name, |_| {
        context.system.objects(maker, room(0))?;
        Ok(())
    });
    // Its name stands before the reason anyway.
    for missing in &mut measured.missing[before..] {
        if let Some(why) = missing.why.strip_prefix(&format!("{name}: ")) {
            missing.why = why.to_owned();
        }
    }
    measured.missing.len() == before
}

/// pbobench on a device's objects.
fn objects(
    maker: &Maker,
    (n, steps, seed): (u32, u64, u64),
    run: u32,
    context: &Context<'_>,
    report: &mut Measured,
) -> Result<(), Error> {
    let system = context.system;
    let mut device = system.objects(maker, room(n))?;
    let parameters = parameters([
        ("workload", "pbobench".into()),
        ("backend", maker.to_string().into()),
        ("device", device.describe().into()),
        ("n", n.into()),
    ]);
    let start = system.now();
    let mut clock = Clock::new(system, STALL);
    // A driver without a mapping of its own for each (GL's, where memory is the program's) has no lines of maps.
    let mut check = || match maker {
        Maker::Gl => Ok(()),
        _ => check_unmerged(system, n),
    };
    let has_objects = maker.has_objects();
    let stop = context.interrupted;
    churn(
        &mut *device,
        has_objects,
        (n, steps, seed),
        &mut clock,
        stop,
        &mut check,
    )?;
    clock.keep(report, &parameters, run, start);
    Ok(())
}

/// Sums the time of maps.
struct MapTime<'a> {
    system: &'a dyn System,
    sum: Nanos,
}

impl Meter for MapTime<'_> {
    fn measure<T>(&mut self, step: Step, call: impl FnOnce() -> T) -> T {
        let start = self.system.now();
        let result = call();
        if step == Step::Map {
            self.sum += self.system.now().saturating_sub(start);
        }
        result
    }
}

/// Carries a workload out, a series for each kind of call. Gives back whether it came to the end.
fn time_calls(
    buffers: &mut Mapped<'_>,
    events: impl Iterator<Item = MemoryEvent>,
    parameters: &Parameters,
    run: u32,
    context: &Context<'_>,
    report: &mut Measured,
) -> Result<bool, Error> {
    let start = context.system.now();
    let mut clock = Clock::new(context.system, STALL);
    let whole = carry_out(buffers, events, context.interrupted, &mut clock, |_, _| {
        Ok(())
    })?;
    clock.keep(report, parameters, run, start);
    Ok(whole)
}

const MAPS: &str = "/proc/self/maps";

/// Whether N mappings are really there, each a line of maps.
fn check_unmerged(system: &dyn System, n: u32) -> Result<(), Error> {
    let maps = system.read(MAPS.as_ref())?;
    let lines = maps.iter().filter(|&&byte| byte == b'\n').count();
    if lines >= n as usize {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("{n} mappings that do not merge"),
        format!("{MAPS} has {lines} lines"),
    ))
}

/// The positive control: `/proc/self/maps` has a line a mapping, so reading it is linear in N
/// on every kernel. The mappings are of one memfd for all backends: each shared
/// anonymous mapping has a path of its own to look up, and N of those leave the caches, which
/// is growth beyond N (an exponent of 1.13 to 1.16 where one file gave 1.04 to 1.06). The least
/// of some reads counts: what neighbours add is not the control's.
fn control(
    system: &dyn System,
    parameters: &Parameters,
    run: u32,
    report: &mut Measured,
) -> Result<(), Error> {
    let start = system.now();
    let mut least: Option<Nanos> = None;
    for _ in 0..CONTROL_READS {
        let before = system.now();
        system.stream(MAPS.as_ref(), &|_| true)?;
        let took = system.now().saturating_sub(before);
        least = Some(least.map_or(took, |least| least.min(took)));
    }
    let mut recorder = Recorder::new(Nanos::secs(3_600).0);
    if let Some(least) = least {
        recorder.record(start.0, least.0);
    }
    let block = recorder.into_block(run, start.0);
    report.block(CONTROL, "ns", parameters, block);
    Ok(())
}

/// Name of the control's series.
pub(super) const CONTROL: &str = "read /proc/self/maps";

// Threads that map at once while one only faults.
//
// ```text
// thread 1     map touch unmap map touch unmap ...      beside N mappings
// thread 2     map touch unmap ...
// last thread  touch touch touch ... (throws all away)  touch ...
// alone        the last thread's work without the others
// ```
//
// What a mapper pays for others is mmap_lock and, at each unmap, telling the other CPUs to
// forget the translation; what the faulting thread pays is waiting for a mapper's write lock
// (per-VMA locks, Linux 6.4, took most of that away).

/// Mappings that each mapper lays out before it begins, where `vm.max_map_count`, which all
/// threads share, has room for them.
const BESIDE: u32 = 5_000;
/// Bytes that the faulting thread walks over.
const FAULTED: Bytes = Bytes::mib(16);
/// How long the threads run together, and how long the faulting one runs by itself.
const TOGETHER: Nanos = Nanos::millis(150);

pub(super) fn run_threads(
    threads: u32,
    run: u32,
    seed: u64,
    context: &Context<'_>,
    report: &mut Measured,
) -> Result<(), Error> {
    let system = context.system;
    let beside = beside(super::room(system)?, threads - 1);
    let start = system.now();

    let alone = fault_for(system, TOGETHER, &|| false)?;
    let series = |threads: u32| {
        parameters([
            ("workload", "threads".into()),
            ("threads", threads.into()),
            ("n", (beside * (threads - 1)).into()),
        ])
    };
    report.block("fault", "ns", &series(1), alone.into_block(run, start.0));

    let done = AtomicBool::new(false);
    let ready = std::sync::Barrier::new(threads as usize);
    let (faults, mappers) = std::thread::scope(|scope| {
        let mappers: Vec<_> = (0..threads - 1)
            .map(|number| {
                let (done, ready) = (&done, &ready);
                let seed = seed ^ u64::from(number);
                scope.spawn(move || map_until(system, beside, seed, ready, done))
            })
            .collect();
        ready.wait();
        let faults = fault_for(system, TOGETHER, context.interrupted);
        done.store(true, Ordering::Relaxed);
        let panicked = |_| Err(Error::unsupported("a mapping thread", "it panicked"));
        let joined = mappers
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked));
        let mappers: Vec<_> = joined.collect();
        (faults, mappers)
    });
    let faults = faults?.into_block(run, start.0);
    report.block("fault", "ns", &series(threads), faults);
    // One mapper stands for all: they do the same, and a block is one run's figure.
    if let Some(first) = mappers.into_iter().next() {
        first?.keep(report, &series(threads), run, start);
    }
    Ok(())
}

/// Mappings for each of `mappers` to lay out, so that all of them and their slots fit into
/// `room`.
fn beside(room: u64, mappers: u32) -> u32 {
    let each = (room / u64::from(mappers.max(1))).saturating_sub(u64::from(Pbobench::SLOTS));
    u32::try_from(each).unwrap_or(u32::MAX).min(BESIDE)
}

/// Touches pages of its own for `time`, a sample a page.
fn fault_for(system: &dyn System, time: Nanos, stop: &dyn Fn() -> bool) -> Result<Recorder, Error> {
    let page = system.page_size();
    let mapping = system.map(&MapRequest::writable(FAULTED, MapKind::Anonymous))?;
    // Base pages, so that a sample is one fault everywhere. A kernel without THP refuses the
    // advice and has base pages anyway.
    let _ = system.advise(&mapping, Bytes(0), FAULTED, Advice::NoHugePage);
    let mut recorder = Recorder::new(STALL.0);
    let deadline = system.now() + time;
    'until: loop {
        for index in 0..FAULTED.0 / page.0 {
            let before = system.now();
            if before >= deadline || stop() {
                break 'until;
            }
            system.touch(&mapping, Bytes(index * page.0), page)?;
            recorder.record(before.0, system.now().saturating_sub(before).0);
        }
        system.advise(&mapping, Bytes(0), FAULTED, Advice::DontNeed)?;
    }
    system.unmap(mapping)?;
    Ok(recorder)
}

/// pbobench until `done`, its calls timed from the moment when all threads are ready.
fn map_until<'s>(
    system: &'s dyn System,
    beside: u32,
    seed: u64,
    ready: &std::sync::Barrier,
    done: &AtomicBool,
) -> Result<Clock<'s>, Error> {
    let mut buffers = Mapped::new(system, Backend::Memfd, names(beside));
    let laid_out = match &mut buffers {
        Ok(buffers) => lay_out(buffers, beside, seed, &|| false).map(drop),
        Err(_) => Ok(()),
    };
    ready.wait(); // also where laying out failed: the others must not wait for ever
    laid_out?;
    let mut buffers = buffers?;
    let mut calls = Clock::new(system, STALL);
    // The layout and the two marks around it are done.
    let steps = Pbobench::new(beside, u64::MAX, seed).events();
    for event in steps.skip(beside as usize + 2) {
        if done.load(Ordering::Relaxed) {
            break;
        }
        apply(&mut buffers, event, &mut calls)?;
    }
    buffers.clear()?;
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All threads of a process share its limit: with 5,000 each, 14 CPUs were too many.
    #[test]
    fn all_mappers_fit_into_the_limit_together() {
        assert_eq!(beside(64_530, 1), BESIDE);
        for mappers in [1, 15, 63, 255, 2_000] {
            let all = u64::from(mappers) * u64::from(beside(64_530, mappers) + Pbobench::SLOTS);
            assert!(
                all <= 64_530 || beside(64_530, mappers) == 0,
                "{mappers}: {all}"
            );
        }
        assert!(beside(64_530, 63) > 900);
    }
}
