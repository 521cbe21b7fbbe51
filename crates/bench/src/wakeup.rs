//! `stopgap-bench wakeup`: `probe wakeup` beside cyclictest, alternating, under a load of our own.
//!
//! The load is a thread of higher priority on the same CPU that takes it for some time, again and again. How long that is
//! differs from pair to pair, so that maxima have something to agree in. Then one stall of 200 ms, of which our histogram
//! must hold every missed period, and cyclictest's the one wake-up that it ended with.
//!
//! ```text
//! load   2 ms, every 8 ms .............. | 31 ms, every 124 ms .............. | ...
//! runs   probe        cyclictest         | cyclictest     probe               | probe ...
//! ```
//!
//! In a virtual machine the host may take the CPU from one of the two for tens of milliseconds. That says nothing of
//! either tool, so a pair is void, and another is made of the same load, where the kernel counts more than a tick of `steal`
//! or a witness above the load was held up: the measured figures do not decide that. Void pairs are shown and counted; where they
//! are more than a third, nothing is decided.
//!
//! ```text
//! witness  PRIORITY + 15   .   .   .   .   .                  .   .    late by what was held up
//! load     PRIORITY + 10    ####    ####                   ####
//! a tool   PRIORITY       |    |||||    ||                     |||
//! the machine             -----------------XXXXXXXXXXXXXXXX-------    the host, or interrupts off
//! ```

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};

use stopgap_cli::{Failure, progress_bar, tell};
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::files::{Files, read_text};
use stopgap_kernel::journal::Journal;
use stopgap_kernel::realtime::Realtime;
use stopgap_kernel::tasks::{ChildLimits, Running, Tasks};
use stopgap_kernel::{Linux, signals};
use stopgap_probes::Probe;
use stopgap_probes::wakeup::{MISSED, Policy, SLEPT_FOR, WAKE_UP, Wakeup};
use stopgap_stats::read::{Options, read};
use stopgap_stats::record::Series;

use crate::common::{Bounds, INCONCLUSIVE, context, failed, in_child, journal, last_cpu, text};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Pairs of runs; maxima are correlated over them.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=1_000))]
    runs: u32,
    /// How long each run of each tool takes, whole seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// The CPU [default: the last one that we may use].
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Seed of the loads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Real-time priorities: of both tools' threads, of the load, and of the witness.
const PRIORITY: u32 = 80;
const LOAD_PRIORITY: u32 = PRIORITY + 10;
const WITNESS_PRIORITY: u32 = PRIORITY + 15;
/// Between two intended wake-ups.
const INTERVAL: Nanos = Nanos::millis(1);
/// Between two wake-ups of the witness; not a multiple of the tools', which it would meet each time.
const WITNESS_PERIOD: Nanos = Nanos::micros(1_900);
/// The shortest and the longest time that the load takes the CPU for.
const TAKES: [Nanos; 2] = [Nanos::millis(2), Nanos::millis(40)];
/// The load takes the CPU for one part in so many, well below what a real-time thread may have
/// (`kernel.sched_rt_runtime_us`, 95 %).
const SHARE: u64 = 4;
/// The injected stall.
const STALL: Nanos = Nanos::millis(200);

/// By what share means may differ.
const MEANS: f64 = 0.15;
/// How far maxima must be correlated.
const CORRELATED: f64 = 0.9;
/// A wake-up so late is part of the injected stall.
const LATE: Nanos = Nanos::millis(10);
/// Least share of the periods held up for [`LATE`] or more that our histogram must have; the stall may begin
/// a little late and the machine may take some of it.
const HELD: f64 = 0.8;
/// What the host may take of the CPU during a run. The kernel counts it in ticks of 10 ms: of two, more than one is taken
/// for sure, and one may be the end of what was taken before.
const STOLEN: Nanos = Nanos::millis(10);
/// How long the witness may be held up during a run, where half of what the load takes is not more: far above what it ever is by
/// itself.
const HELD_UP: Nanos = Nanos::millis(4);
/// Cyclictest keeps the wake-up that the stall ended with; the machine may add few of its own.
const KEPT_BY_CYCLICTEST: u64 = 5;
/// The longest lateness that cyclictest's histogram tells, microseconds.
const HISTOGRAM: u64 = 1_000_000;

/// Runs, prints a line for each pair and one for each bound.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    let version = cyclictest_version()?;
    in_child(&ChildLimits::within(Nanos::secs(10)), || {
        let fifo = Linux.set_fifo(LOAD_PRIORITY);
        fifo.map_err(|error| format!("{error}; needs root"))
    })?;
    let cpu = last_cpu(flags.cpu, &Linux.cpus()?);
    let journal = journal()?;
    let side = |ours: bool, time| match ours {
        true => probe(&journal, cpu, time),
        false => cyclictest(cpu, time),
    };
    println!(
        "{version} beside probe wakeup: CPU {cpu}, SCHED_FIFO {PRIORITY}, every {INTERVAL}, {} s a run\n\
         pair  load ms  mean us: ours  cyclictest  ratio  max ms: ours  cyclictest  missed  stolen ms  held up ms",
        flags.seconds
    );
    let bar = progress_bar();
    let mut random = Random::new(flags.seed);
    let time = Nanos::secs(flags.seconds);
    let mut pairs = Vec::new();
    let mut tries = Tries::new(flags.runs);
    while let Some(number) = tries.next() {
        if signals::interrupted() {
            tell("interrupted: fewer runs");
            break;
        }
        bar.set_position(u64::from(number) * 1_000 / u64::from(flags.runs));
        let takes = load_time(number, flags.runs, &mut random);
        // A load for each, from its beginning: both meet the same.
        let one = |ours: bool| -> Result<(Side, Taken), Failure> {
            let first = Linux.now() + Nanos::millis(50);
            let _load = start_load(cpu, takes, first, first + time + Nanos::secs(20))?;
            let before = stolen(&Linux, cpu);
            let (side, held_up) = beside_witness(cpu, || side(ours, time))?;
            let stolen = stolen(&Linux, cpu).zip(before);
            let stolen = stolen.map(|(after, before)| after.saturating_sub(before));
            Ok((side, Taken { stolen, held_up }))
        };
        let ours_first = tries.made.is_multiple_of(2);
        let mut both = [one(ours_first)?, one(!ours_first)?];
        if !ours_first {
            both.swap(0, 1);
        }
        let [ours, theirs] = both;
        let pair = Pair {
            takes,
            ours: ours.0,
            theirs: theirs.0,
            taken: [ours.1, theirs.1],
        };
        bar.suspend(|| println!("{}", pair.line(tries.made)));
        tries.count(pair.is_void());
        if !pair.is_void() {
            pairs.push(pair);
        }
    }
    bar.finish_and_clear();
    println!("\n{}", tries.line());
    if tries.too_many_void() {
        return Ok(ExitCode::from(INCONCLUSIVE));
    }
    if pairs.len() < 3 {
        return Err(Failure::error("interrupted before enough was measured"));
    }
    let stalled = |ours: bool| {
        let at = Linux.now() + Nanos::millis(600);
        let _load = start_load(cpu, STALL, at, at + Nanos(1))?;
        side(ours, Nanos::secs(1))
    };
    let (ours, theirs) = (stalled(true)?, stalled(false)?);
    println!(
        "a stall of {STALL}: samples of {LATE} and more: ours {} (missed periods {}), cyclictest {}; longest {:.1} and {:.1} ms",
        ours.late,
        ours.missed,
        theirs.late,
        ms(ours.max_ns),
        ms(theirs.max_ns)
    );
    bounds(&pairs, &ours, &theirs).print()
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Pairs made so far, and when it is enough of them.
struct Tries {
    /// Pairs that are to count.
    wanted: u32,
    made: u32,
    void: u32,
}

impl Tries {
    fn new(wanted: u32) -> Tries {
        let (made, void) = (0, 0);
        Tries { wanted, made, void }
    }

    /// Returns the number of the pair to make: of a void one again. `None`: there are enough, or more than a third of so many
    /// would be void.
    fn next(&self) -> Option<u32> {
        let number = self.made - self.void;
        (number < self.wanted && !self.too_many_void()).then_some(number)
    }

    fn count(&mut self, void: bool) {
        self.made += 1;
        self.void += u32::from(void);
    }

    /// Whether, with all that are wanted, more than a third of the pairs are void.
    fn too_many_void(&self) -> bool {
        u64::from(self.void) * 2 > u64::from(self.wanted)
    }

    fn line(&self) -> String {
        format!(
            "{}{} of {} pairs void: the machine was held up on one side (at most a third)",
            if self.too_many_void() {
                "inconclusive: "
            } else {
                ""
            },
            self.void,
            self.made
        )
    }
}

/// A run of one tool.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Side {
    /// Mean lateness of periods that were slept for.
    mean_us: f64,
    max_ns: u64,
    /// How many samples of its histogram are late by [`LATE`] or more: with ours, missed periods, too.
    late: u64,
    /// Periods that passed while it slept for an earlier one; cyclictest does not count them.
    missed: u64,
}

impl Side {
    /// The run whose histogram has so many wake-ups, each so many ns late.
    fn new(max_ns: u64, wake_ups: impl Iterator<Item = (u64, u64)>) -> Side {
        let (mut samples, mut sum, mut late) = (0, 0.0, 0);
        for (ns, count) in wake_ups {
            samples += count;
            sum += ns as f64 * count as f64;
            late += if ns >= LATE.0 { count } else { 0 };
        }
        Side {
            mean_us: sum / samples as f64 / 1_000.0,
            max_ns,
            late,
            missed: 0,
        }
    }
}

/// Runs `probe wakeup` on `cpu`.
fn probe(journal: &Journal<'_>, cpu: u32, time: Nanos) -> Result<Side, Failure> {
    let probe = Wakeup {
        interval: INTERVAL,
        policy: Policy::Fifo,
        priority: PRIORITY,
        stall: LATE,
        runs: 1,
    };
    let before = Linux.cpus()?;
    Linux.set_cpus(&[cpu])?;
    let measured = probe.run(&context(journal, Path::new("/"), Bytes::mib(64), time, 1));
    Linux.set_cpus(&before)?;
    let measured = measured.map_err(failed("probe wakeup"))?;
    let pooled = |name| {
        let found = measured.series.iter().find(|series| series.name == name);
        found.map(Series::pooled).ok_or_else(|| {
            let missing = &measured.missing;
            Failure::error(format!("probe wakeup gave no '{name}': {missing:?}"))
        })
    };
    let all = pooled(WAKE_UP)?;
    let counters = measured.counters.iter();
    let missed = counters.filter(|counter| counter.name == MISSED);
    Ok(Side {
        mean_us: Side::new(0, pooled(SLEPT_FOR)?.buckets()).mean_us,
        missed: missed.map(|counter| counter.value).sum(),
        ..Side::new(all.max().unwrap_or(0), all.buckets())
    })
}

/// Returns cyclictest's name and version.
fn cyclictest_version() -> Result<String, Failure> {
    let output = Command::new("cyclictest").arg("--help").output();
    let output =
        output.map_err(|error| Failure::error(format!("cyclictest: {error}; install rt-tests")))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let first = said.lines().find(|line| line.starts_with("cyclictest"));
    Ok(first.unwrap_or("cyclictest").trim().to_owned())
}

/// Runs cyclictest on `cpu` for `time`, whole seconds.
fn cyclictest(cpu: u32, time: Nanos) -> Result<Side, Failure> {
    let words = format!(
        "-q -m -t 1 -a {cpu} -p {PRIORITY} -i {} -D {} -h {HISTOGRAM}",
        INTERVAL.0 / 1_000,
        time.0 / 1_000_000_000
    );
    let output = Command::new("cyclictest").args(words.split(' ')).output();
    let output = output.map_err(failed("cyclictest"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        let first = told.lines().next().unwrap_or_default();
        let status = output.status;
        return Err(Failure::error(format!("cyclictest: {status} {first}")));
    }
    samples(&String::from_utf8_lossy(&output.stdout)).map_err(failed("cyclictest"))
}

/// Returns what its histogram holds: `000017 000003`, microseconds and samples a line.
fn samples(said: &str) -> Result<Side, String> {
    let whole = read(said.as_bytes(), &Options::default()).map_err(text)?;
    let max_us = whole.runs[0].max.unwrap_or(f64::INFINITY);
    if max_us >= HISTOGRAM as f64 {
        let what = format!("a wake-up later than its histogram's {HISTOGRAM} us");
        return Err(what);
    }
    let wake_ups = said.lines().filter_map(|line| {
        let (late, count) = line.split_once(' ')?;
        Some((
            late.parse::<u64>().ok()? * 1_000,
            count.trim().parse().ok()?,
        ))
    });
    Ok(Side::new((max_us * 1e3) as u64, wake_ups))
}

/// CPU time that was taken from both a tool and its load during a run.
#[derive(Debug, Clone, Copy)]
struct Taken {
    /// By the host, as the kernel counts it; `None`: this machine does not say.
    stolen: Option<Nanos>,
    /// The longest that the witness was held up.
    held_up: Nanos,
}

/// Returns what the host took of `cpu` since boot: the column `steal` of `/proc/stat`, in ticks of 10 ms (`USER_HZ`). `None`: not
/// known. On hardware and under a host that does not say, it is always 0.
fn stolen(files: &(impl Files + ?Sized), cpu: u32) -> Option<Nanos> {
    let text = read_text(files, "/proc/stat").ok()?;
    let name = format!("cpu{cpu}");
    let mut lines = text.lines().map(str::split_whitespace);
    let mut line = lines.find(|line| line.clone().next() == Some(&name))?;
    // cpuN user nice system idle iowait irq softirq steal
    let ticks: u64 = line.nth(8)?.parse().ok()?;
    Some(Nanos::millis(ticks.saturating_mul(10)))
}

/// Both tools under the same load.
#[derive(Debug)]
struct Pair {
    takes: Nanos,
    ours: Side,
    theirs: Side,
    /// During each of the two runs.
    taken: [Taken; 2],
}

impl Pair {
    /// Whether the machine was taken from one of the two and so made them unlike: by what the kernel and the witness say of
    /// that alone, never by what was measured.
    fn is_void(&self) -> bool {
        // A hold-up that is short beside the load's own time moves a maximum by little.
        let most = HELD_UP.max(Nanos(self.takes.0 / 2));
        let is_taken =
            |taken: &Taken| taken.held_up > most || taken.stolen.is_some_and(|t| t > STOLEN);
        self.taken.iter().any(is_taken)
    }

    fn line(&self, number: u32) -> String {
        let (ours, theirs) = (&self.ours, &self.theirs);
        let stolen = self.taken.map(|taken| taken.stolen);
        let stolen = stolen.map(|t| t.map_or("?".to_owned(), |t| (t.0 / 1_000_000).to_string()));
        let held_up = self
            .taken
            .map(|taken| format!("{:.1}", ms(taken.held_up.0)));
        format!(
            "{number:>4}{:>9.1}{:>15.1}{:>12.1}{:>7.2}{:>14.2}{:>12.2}{:>8}{:>11}{:>12}{}",
            ms(self.takes.0),
            ours.mean_us,
            theirs.mean_us,
            ours.mean_us / theirs.mean_us,
            ms(ours.max_ns),
            ms(theirs.max_ns),
            ours.missed,
            stolen.join("+"),
            held_up.join("+"),
            if self.is_void() { "  void" } else { "" }
        )
    }
}

/// Returns the bounds of the pairs, and of both tools beside one stall of [`STALL`].
fn bounds(pairs: &[Pair], ours_stalled: &Side, theirs_stalled: &Side) -> Bounds {
    let mut bounds = Bounds::default();
    let both = |figure: fn(&Side) -> f64| {
        let both = pairs
            .iter()
            .map(move |pair| (figure(&pair.ours), figure(&pair.theirs)));
        both.collect::<Vec<_>>()
    };
    let means = both(|side| side.mean_us);
    let count = means.len() as f64;
    let (ours, theirs) = means
        .iter()
        .fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    let off = (ours / theirs - 1.0).abs();
    let what = format!(
        "means: {:.1} us ours, {:.1} cyclictest's, over {count} pairs: {:.1} % apart ({:.0} %)",
        ours / count,
        theirs / count,
        off * 100.0,
        MEANS * 100.0
    );
    bounds.add(off <= MEANS, what);
    let r = correlation(&both(|side| ms(side.max_ns)));
    let shown = r.map_or("unknown".to_owned(), |r| format!("{r:.3}"));
    let what = format!("maxima: r = {shown} ({CORRELATED})");
    bounds.add(r.is_some_and(|r| r > CORRELATED), what);
    // A period that the stall holds up for LATE or more: all but the last ones of it.
    let expected = (STALL.0 - LATE.0) / INTERVAL.0;
    let held = (expected as f64 * HELD) as u64;
    let count = ours_stalled.late;
    let what = format!(
        "missed periods: {count} of the {expected} that the stall holds up for {LATE} or more are in our histogram ({held})"
    );
    bounds.add(count >= held, what);
    let count = theirs_stalled.late;
    let what = format!(
        "left out: cyclictest's histogram holds {count} of them (1 to {KEPT_BY_CYCLICTEST})"
    );
    bounds.add((1..=KEPT_BY_CYCLICTEST).contains(&count), what);
    bounds
}

/// Returns Pearson's coefficient; `None` where one of them does not vary.
fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let n = pairs.len() as f64;
    let sum =
        |figure: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|p| figure(p.0, p.1)).sum::<f64>();
    let (x, y) = (sum(&|x, _| x) / n, sum(&|_, y| y) / n);
    let (xx, yy) = (sum(&|a, _| (a - x).powi(2)), sum(&|_, b| (b - y).powi(2)));
    let r = sum(&|a, b| (a - x) * (b - y)) / (xx * yy).sqrt();
    r.is_finite().then_some(r)
}

/// Returns how long the load of pair `number` of `count` takes the CPU for: on a logarithmic scale from the shortest to the
/// longest, each pair in a part of its own, in an order that is not the order of time.
fn load_time(number: u32, count: u32, random: &mut Random) -> Nanos {
    let within = random.below(1_000) as f64 / 1_000.0;
    // 7 shares no divisor with most counts of pairs; where it does, parts repeat, which does no harm.
    let part = (u64::from(number) * 7) % u64::from(count);
    let share = (part as f64 + within) / f64::from(count);
    let [shortest, longest] = TAKES.map(|time| time.0 as f64);
    Nanos((shortest * (longest / shortest).powf(share)) as u64)
}

/// Starts a child that pre-empts both tools' threads: from `first` until `end` it takes `cpu` for `takes`, one part in [`SHARE`] of
/// the time. Dropped, it is killed.
fn start_load(cpu: u32, takes: Nanos, first: Nanos, end: Nanos) -> Result<Running, Failure> {
    let body = move || {
        let ready = Linux
            .set_cpus(&[cpu])
            .and_then(|()| Linux.lock_memory())
            .and_then(|()| Linux.set_fifo(LOAD_PRIORITY));
        let mut next = first;
        while ready.is_ok() && next < end {
            Linux.sleep_until(next);
            Linux.spin(takes);
            next += Nanos(takes.0 * SHARE);
        }
        Vec::new()
    };
    let time = end.saturating_sub(Linux.now()) + Nanos::secs(20);
    Ok(Linux.start_child(&ChildLimits::within(time), Box::new(body))?)
}

/// Carries `work` out beside a thread above the load that does nothing but wake up: what holds it up is neither tool's nor the
/// load's doing. Returns the longest that it was held up, too. A host may hold a whole virtual machine up for tens of milliseconds and
/// say nothing of it in `steal`.
fn beside_witness<T>(
    cpu: u32,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, Nanos), Failure> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let witness = scope.spawn(|| {
            Linux.set_cpus(&[cpu])?;
            Linux.set_fifo(WITNESS_PRIORITY)?;
            let mut longest = Nanos(0);
            let mut next = Linux.now() + WITNESS_PERIOD;
            while !stop.load(Ordering::Relaxed) {
                Linux.sleep_until(next);
                let now = Linux.now();
                longest = longest.max(now.saturating_sub(next));
                next = now + WITNESS_PERIOD;
            }
            Ok::<Nanos, Failure>(longest)
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        let held_up = witness
            .join()
            .map_err(|_| Failure::error("the witness's thread panicked"))?;
        Ok((done?, held_up?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::fake::Fake;

    /// Makes pairs, those of these numbers of tries void; the numbers of pairs in the order in which they were made.
    fn made(wanted: u32, void: &[u32]) -> (Tries, Vec<u32>) {
        let mut tries = Tries::new(wanted);
        let mut numbers = Vec::new();
        while let Some(number) = tries.next() {
            numbers.push(number);
            tries.count(void.contains(&tries.made));
        }
        (tries, numbers)
    }

    #[test]
    fn a_void_pair_is_made_again_and_a_third_of_them_is_the_most() {
        for (void, wanted, begins) in [
            (&[][..], &[0, 1, 2, 3][..], "0 of 4 pairs void"),
            (&[1, 4], &[0, 1, 1, 2, 3, 3], "2 of 6 pairs void"),
            (&[0, 1, 2], &[0, 0, 0], "inconclusive: 3 of 3"),
        ] {
            let (tries, numbers) = made(4, void);
            assert_eq!(numbers, wanted);
            assert!(tries.line().starts_with(begins), "{}", tries.line());
            assert_eq!(tries.too_many_void(), void.len() > 2);
        }
    }

    #[test]
    fn loads_are_spread_over_the_whole_range() {
        let mut random = Random::new(1);
        let mut all: Vec<u64> = (0..20).map(|n| load_time(n, 20, &mut random).0).collect();
        assert!(!all.is_sorted(), "not in the order of time");
        all.sort_unstable();
        for (at, takes) in (0u32..).zip(&all) {
            // The part of its own: 2 ms * 20^(at/20) to 2 ms * 20^((at+1)/20).
            let edge = |at: u32| 2e6 * 20f64.powf(f64::from(at) / 20.0);
            let takes = *takes as f64;
            assert!(
                edge(at) <= takes + 1.0 && takes < edge(at + 1),
                "{at}: {takes}"
            );
        }
    }

    #[test]
    fn cyclictests_histogram_is_read() {
        let text = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000000 000000\n000004 000003\n012000 000001\n\
                    # Total: 000000004\n# Min Latencies: 00004\n# Avg Latencies: 03003\n# Max Latencies: 12000\n\
                    # Histogram Overflows: 00000\n";
        let side = samples(text).unwrap();
        assert_eq!((side.max_ns, side.late), (12_000_000, 1));
        assert!((side.mean_us - 3_003.0).abs() < 1e-9);
        for (cut, with) in [
            ("000004 000003", "000004 x"),
            ("# Max", "# Min"),
            ("Max Latencies: 12000", "Max Latencies: 1000001"),
        ] {
            assert!(samples(&text.replace(cut, with)).is_err(), "{with}");
        }
        assert!(samples("").is_err());
    }

    #[test]
    fn correlation_of_hand_computed_cases() {
        assert_eq!(
            correlation(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]),
            Some(1.0)
        );
        assert_eq!(correlation(&[(1.0, 3.0), (3.0, 1.0)]), Some(-1.0));
        // x 1 2 3 4, y 2 1 4 3: sums of products 3, of squares 5 and 5.
        let some = correlation(&[(1.0, 2.0), (2.0, 1.0), (3.0, 4.0), (4.0, 3.0)]).unwrap();
        assert!((some - 0.6).abs() < 1e-12);
        assert_eq!(correlation(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }

    #[test]
    fn the_column_of_the_cpu_is_read() {
        let stat = "cpu  1 2 3 4 5 6 7 900 9 9\ncpu1 1 2 3 4 5 6 7 800 9 9\ncpu10 1 2 3 4 5 6 7 35 0 0\nintr 1\n";
        let fake = Fake::default().with_file("/proc/stat", stat);
        assert_eq!(stolen(&fake, 10), Some(Nanos::millis(350)));
        assert_eq!(stolen(&fake, 0), None, "there is no such CPU");
        // Before 2.6.11 there was no such column.
        let old = Fake::default().with_file("/proc/stat", "cpu0 1 2 3 4 5 6 7\n");
        assert_eq!(stolen(&old, 0), None);
        assert_eq!(stolen(&Fake::default(), 0), None);
    }

    fn side(mean_us: f64, max_ns: u64, late: u64) -> Side {
        Side {
            mean_us,
            max_ns,
            late,
            missed: 0,
        }
    }

    /// ```text
    /// stolen   0+10  20+0  ?+?  ?+30  0+0   0+0    ms
    /// held up  0+0   0+0   0+0  0+0   0+4   5+0    ms
    /// void     no    yes   no   yes   no    yes    for all maxima; the load takes 2 ms
    /// ```
    #[test]
    fn a_pair_is_void_by_what_was_taken_and_by_nothing_else() {
        let pair = |stolen: [Option<u64>; 2], held_up: [u64; 2], theirs: u64| Pair {
            takes: Nanos::millis(2),
            ours: side(100.0, 5_000_000, 0),
            theirs: side(100.0, theirs, 0),
            taken: [0, 1].map(|at| Taken {
                stolen: stolen[at].map(Nanos::millis),
                held_up: Nanos::millis(held_up[at]),
            }),
        };
        for theirs in [5_000_000, 300_000_000] {
            for (stolen, held_up, void) in [
                ([Some(0), Some(10)], [0, 0], false),
                ([Some(20), Some(0)], [0, 0], true),
                ([None, None], [0, 0], false),
                ([None, Some(30)], [0, 0], true),
                ([Some(0), Some(0)], [0, 4], false),
                ([Some(0), Some(0)], [5, 0], true),
            ] {
                assert_eq!(pair(stolen, held_up, theirs).is_void(), void);
            }
        }
        let mut long = pair([None; 2], [0, 15], 1);
        long.takes = Nanos::millis(30);
        assert!(!long.is_void(), "half of the load's 30 ms");
        long.takes = Nanos::millis(29);
        assert!(long.is_void());
        let line = pair([None, Some(30)], [0, 5], 1).line(0);
        assert!(line.ends_with("?+30     0.0+5.0  void"), "{line}");
    }

    #[test]
    fn each_bound_can_break() {
        let pairs = |theirs: f64, last: u64| -> Vec<Pair> {
            let taken = Taken {
                stolen: None,
                held_up: Nanos(0),
            };
            let maxima = [1_100, 2_200, last].into_iter().zip(1..);
            let pair = |(max, n)| Pair {
                takes: Nanos(n),
                ours: side(100.0, n * 1_000, 0),
                theirs: side(theirs, max, 0),
                taken: [taken; 2],
            };
            maxima.map(pair).collect()
        };
        for (pairs, ours, theirs, hold) in [
            (pairs(110.0, 3_300), 190, 1, [true; 4]),
            (pairs(140.0, 3_300), 190, 1, [false, true, true, true]),
            (pairs(110.0, 3_300), 1, 190, [true, true, false, false]),
            (pairs(110.0, 0), 190, 1, [true, false, true, true]),
        ] {
            let bounds = bounds(&pairs, &side(1.0, 1, ours), &side(1.0, 1, theirs));
            assert_eq!(bounds.hold(), hold);
        }
    }
}
