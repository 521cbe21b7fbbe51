//! `stopgap-bench shapes --pair`: one thread places, another one frees, each on a CPU of its own.
//!
//! Both run without pause; up to 1,024 ranges of 1 to 64 pages are on their way through a ring. The ring alone, which hands over
//! numbers, is the first row. As root both threads run under `SCHED_FIFO`, for less than a second. A run's figure is the median of its
//! parts of 10,000 pairs, because a thread that loses its CPU stops both; the run with the least is judged.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::ValueEnum;
use stopgap_cli::{Failure, print};
use stopgap_events::random::Random;
use stopgap_kernel::Linux;
use stopgap_kernel::realtime::Realtime;
use stopgap_kernel::tasks::Tasks;
use stopgap_placement::returns::Returns;
use stopgap_placement::{Policy, Range, Request, Space, Stopgap};

use super::programs::PAGE;
use crate::cache::{Buffers, Peer};
use crate::common::{Bounds, failed, middle, rounds, table, text};

/// Pairs of a run.
const PAIRS: usize = 1_000_000;
/// Pairs of a part.
const PART: usize = 10_000;
/// Nanoseconds that a pair of ours may take.
const MOST: f64 = 120.0;
/// Ranges on their way at most: a power of two.
const RING: usize = 1_024;
/// Different sizes, drawn before.
const SIZES: usize = 4_096;

/// Allocator that places and frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Nothing is placed: the ring's own cost.
    Ring,
    /// `stopgap_placement::Stopgap` behind one mutex.
    Mutex,
    /// The same, of one thread; the other returns ranges through `stopgap_placement::returns`.
    Returns,
    Arena,
    Mimalloc,
    Jemalloc,
    Glibc,
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Way::Ring => "ring",
            Way::Mutex => "mutex",
            Way::Returns => "returns",
            Way::Arena => "arena",
            Way::Mimalloc => "mimalloc",
            Way::Jemalloc => "jemalloc",
            Way::Glibc => "glibc",
        }
    }

    /// The allocator whose process it is.
    fn peer(self) -> Peer {
        match self {
            Way::Mimalloc => Peer::Mimalloc,
            Way::Jemalloc => Peer::Jemalloc,
            Way::Arena => Peer::Arena,
            Way::Ring | Way::Mutex | Way::Returns | Way::Glibc => Peer::Glibc,
        }
    }
}

/// One run, in a process of its own.
#[derive(clap::Args)]
pub(crate) struct RunFlags {
    #[arg(long)]
    way: Way,
    #[arg(long)]
    pairs: usize,
    #[arg(long)]
    seed: u64,
}

/// Measures and prints.
pub(super) fn run(count: u32, operations: u64, seed: u64) -> Result<Bounds, Failure> {
    let mut bounds = Bounds::default();
    if Linux.cpus()?.len() < 2 {
        print("pair skipped: it needs two CPUs")?;
        return Ok(bounds);
    }
    let there = Peer::there(&[Peer::Jemalloc])?;
    let ways: Vec<Way> = Way::value_variants()
        .iter()
        .copied()
        .filter(|way| *way != Way::Jemalloc || !there.is_empty())
        .collect();
    let pairs = usize::try_from(operations).map_or(PAIRS, |asked| asked.clamp(RING, PAIRS));
    let all = rounds(count, &[ways.len()], |_, side| {
        let way = ways[side];
        let words = format!(
            "pair-run --way {} --pairs {pairs} --seed {seed}",
            way.word()
        );
        way.peer().child::<f64>(&words)
    })?;
    let least = |at| all[0].side(at).copied().fold(f64::INFINITY, f64::min);
    let rows = ways.iter().enumerate().map(|(at, way)| {
        let what = match way {
            Way::Ring => "the ring alone",
            Way::Mutex => "stopgap-placement behind a mutex",
            Way::Returns => "stopgap-placement of one thread, with Returns for the other",
            Way::Arena => "arena: alloc_uninit, free",
            _ => "malloc, free",
        };
        let median = all[0].median(at, |ns| *ns);
        let (least, median) = (format!("{:.1}", least(at)), format!("{median:.1}"));
        vec![way.word().to_owned(), least, median, what.to_owned()]
    });
    print(table("one places, another frees|ns a pair: least|median|", rows).trim_end())?;
    for (at, way) in ways.iter().enumerate() {
        if matches!(way, Way::Returns | Way::Arena) {
            let what = format!(
                "{}: one thread places, another frees: ns a pair",
                way.word()
            );
            bounds.at_most(what, least(at), MOST);
        }
    }
    Ok(bounds)
}

/// One run, which prints ns a pair.
pub(crate) fn run_one(flags: &RunFlags) -> Result<(), Failure> {
    let ns = measure(flags).map_err(failed(flags.way.word()))?;
    print(&ns.to_string())
}

fn measure(flags: &RunFlags) -> Result<f64, String> {
    let space = || Space::new(Range::new(1 << 16, 1 << 40), PAGE).map_err(text);
    match flags.way {
        Way::Ring => pairs(flags, Ok, |_, _| Ok(())),
        Way::Mutex => {
            let policy = Apart(Mutex::new(Stopgap::new(space()?)));
            let lock = || policy.0.lock().unwrap_or_else(PoisonError::into_inner);
            let take = |length: usize| {
                let given = lock().place(&Request::of(length as u64)).map_err(text)?;
                Ok(given.start as usize)
            };
            let give = |at: usize, length: usize| {
                let at = at as u64;
                lock()
                    .free(Range::new(at, at + length as u64))
                    .map_err(text)
            };
            pairs(flags, take, give)
        }
        Way::Returns => {
            // The thread that places has the policy to itself.
            let mut policy = Apart(Stopgap::new(space()?));
            let returns: Returns<RING> = Returns::new();
            let take = |length: usize| {
                let given = returns.place(&mut policy.0, &Request::of(length as u64));
                Ok(given.map_err(text)?.start as usize)
            };
            let give = |at: usize, length: usize| {
                let range = Range::new(at as u64, (at + length) as u64);
                while returns.push(range).is_err() {
                    std::hint::spin_loop();
                }
                Ok(())
            };
            let ns = pairs(flags, take, give)?;
            match returns.refused() {
                0 => Ok(ns),
                refused => Err(format!("{refused} ranges were refused")),
            }
        }
        other => {
            let buffers = other.peer().buffers()?;
            let take = |length: usize| -> Result<usize, String> {
                Ok(buffers.take(length)?.as_ptr().expose_provenance())
            };
            let give = |at: usize, length: usize| {
                let at = std::ptr::with_exposed_provenance_mut::<u8>(at);
                let at = NonNull::new(at).ok_or("address 0")?;
                give(&*buffers, at, length)
            };
            pairs(flags, take, give)
        }
    }
}

#[allow(unsafe_code)]
fn give(buffers: &dyn Buffers, at: NonNull<u8>, length: usize) -> Result<(), String> {
    // SAFETY: the ring hands over each buffer once, with the length for which it was given.
    unsafe { buffers.give(at, length) }
}

/// Puts this thread on a CPU, before all others where that is allowed: two threads that wait for each other measure the machine's
/// other load otherwise.
fn alone_on(cpu: u32) -> Result<(), String> {
    Linux.set_cpus(&[cpu]).map_err(text)?;
    let _ = Linux.set_fifo(1);
    Ok(())
}

/// What is on cache lines of its own. Without it the stack puts the policy of the thread that places beside what the other one reads.
#[repr(align(128))]
struct Apart<T>(T);

/// Runs both threads; returns the median time of a pair, over parts.
fn pairs(
    flags: &RunFlags,
    mut take: impl FnMut(usize) -> Result<usize, String>,
    give: impl Fn(usize, usize) -> Result<(), String> + Sync,
) -> Result<f64, String> {
    let cpus = Linux.cpus().map_err(text)?;
    let (Some(&first), Some(&last)) = (cpus.first(), cpus.last()) else {
        return Err("no CPU".to_owned());
    };
    let mut random = Random::new(flags.seed);
    let sizes: Vec<usize> = (0..SIZES)
        .map(|_| (1 + random.below(64)) as usize * PAGE as usize)
        .collect();
    let slots: Vec<AtomicUsize> = (0..RING).map(|_| AtomicUsize::new(0)).collect();
    let (filled, emptied) = (Apart(AtomicUsize::new(0)), Apart(AtomicUsize::new(0)));
    let count = flags.pairs;
    let stop = AtomicBool::new(false);
    let wait = || {
        std::hint::spin_loop();
        match stop.load(Ordering::Relaxed) {
            true => Err("the other thread failed".to_owned()),
            false => Ok(()),
        }
    };
    let mut producer = || {
        alone_on(first)?;
        let mut room = RING;
        let mut parts = vec![Instant::now()];
        for number in 0..count {
            if number.is_multiple_of(PART) && number > 0 {
                parts.push(Instant::now());
            }
            let at = take(sizes[number % SIZES])?;
            while number == room {
                wait()?;
                room = emptied.0.load(Ordering::Acquire) + RING;
            }
            slots[number % RING].store(at, Ordering::Relaxed);
            filled.0.store(number + 1, Ordering::Release);
        }
        parts.push(Instant::now());
        Ok::<_, String>(parts)
    };
    let consumer = || {
        alone_on(last)?;
        let mut there = 0;
        for number in 0..count {
            while number == there {
                wait()?;
                there = filled.0.load(Ordering::Acquire);
            }
            let at = slots[number % RING].load(Ordering::Relaxed);
            give(at, sizes[number % SIZES])?;
            emptied.0.store(number + 1, Ordering::Release);
        }
        Ok::<(), String>(())
    };
    let failed = |_: &String| stop.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| consumer().inspect_err(failed));
        let placed = producer().inspect_err(failed);
        let freed = other
            .join()
            .map_err(|_| "the thread that frees panicked".to_owned());
        freed?.and(placed)
    })
    .map(|parts| {
        let times = parts
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_nanos() as f64);
        // The last part is shorter.
        let whole = times.take((count / PART).max(1));
        middle(whole) / PART.min(count) as f64
    })
}
