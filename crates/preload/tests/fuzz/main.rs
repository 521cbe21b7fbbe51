//! The interposer against the kernel itself: random calls of the mmap family, good and bad, through the interposed
//! functions and, with the same arguments at other addresses, by bare system calls. Results, errno, contents and the
//! permissions that `/proc/self/maps` shows must be the same. Alone, in threads, in forked children, under a signal
//! handler that maps, too.
//!
//! ```text
//! cargo test --release -p stopgap-preload --test fuzz -- --seconds 60 --seed 1
//! cargo test --release -p stopgap-preload --test fuzz -- --calls 1000000 --seed 1
//! cargo test --release -p stopgap-preload --test fuzz -- --keep 32M --seed 1                   # finds a difference
//! cargo test --release -p stopgap-preload --test fuzz -- --keep 32M --seed 1 --no-references   # finds none
//! ```
//!
//! Each seed is a process of its own of two seconds at most. A failing seed fails again; on a difference the process
//! prints its last calls. Without arguments: some seconds of `arena`
//! (`STOPGAP_KEEP=0`), of `arena-keep` without references, and of `arena-keep` with references, which must fail.
//!
//! References to pages (`held`) are messages in pipes (vmsplice, tee), direct reads in flight, registered buffers of
//! `io_uring`, shared memory attached over a map (`SHM_REMAP`), and forked children. Mostly the test unmaps the map at
//! once and maps as much again. In the end the holder of the reference must have the same contents on both sides, too.
//! `--no-references` leaves references out.
//!
//! With `--features inject` the library's own calls fail now and then, too: a library that cannot have what it wants
//! must pass through, and nothing may differ either.
//!
//! What may differ, and is left out: where a map lies; whether a map can grow in its place beyond its own addresses;
//! and into how many VMAs a range of alike pages is cut, which only a move of all of it (mremap) can tell: where the
//! sides are cut differently, none is made.

#![allow(unsafe_code)]

mod actor;
#[path = "../common/aio.rs"]
mod aio;
#[path = "../common/mod.rs"]
mod common;
mod held;
mod maps;
mod random;
#[path = "../common/raw.rs"]
mod raw;
mod sides;
#[path = "../common/uring.rs"]
mod uring;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stopgap_testing::{Skip, skip};

use actor::Actor;
use random::Random;
use sides::Side;

const CHILD: &str = "STOPGAP_FUZZ_SEED";
const REFERENCES: &str = "STOPGAP_FUZZ_REFERENCES";

/// Settings of a run.
#[derive(Clone, Copy)]
struct Plan {
    seconds: u64,
    /// Number of calls on each side. `None`: the time decides.
    calls: Option<u64>,
    seed: u64,
    /// Values of `STOPGAP_KEEP`. Each process gets one of them.
    keep: &'static [&'static str],
    references: bool,
}

/// `STOPGAP_KEEP` of the fix `arena`.
const ARENA: &[&str] = &["0"];
/// `STOPGAP_KEEP` of the fix `arena-keep`.
const ARENA_KEEP: &[&str] = &["32M"];

fn main() -> ExitCode {
    if let Ok(seed) = std::env::var(CHILD) {
        return child(seed.parse().expect("our own number"));
    }
    let mut plan = Plan {
        seconds: 4,
        calls: None,
        seed: 1,
        keep: ARENA,
        references: true,
    };
    let mut asked = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|word| word.parse::<u64>().ok());
        match argument.as_str() {
            "--seconds" => plan.seconds = number().expect("--seconds N"),
            "--calls" => plan.calls = Some(number().expect("--calls N")),
            "--seed" => plan.seed = number().expect("--seed N"),
            "--keep" => {
                let keep = arguments.next().expect("--keep SIZE");
                plan.keep = vec![&*keep.leak()].leak();
            }
            "--no-references" => plan.references = false,
            _ => continue, // what cargo hands to every test
        }
        asked = true;
    }
    for why in held::missing() {
        skip(&Skip::machine(why));
    }
    let library = common::library();
    let told = if asked {
        fuzz(&library, plan)
    } else {
        suite(&library, plan)
    };
    match told {
        Ok(told) => {
            println!("{told}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what `cargo test` asks for. `arena` must not differ from the kernel. `arena-keep` must not differ without
/// references and must differ with them, which proves that the test can find the fault.
fn suite(library: &Path, plan: Plan) -> Result<String, String> {
    let arena = fuzz(library, plan)?;
    let keep = Plan {
        keep: &["32M", "256K"],
        references: false,
        seconds: 3,
        ..plan
    };
    let without = fuzz(library, keep)?;
    let unsafe_one = Plan {
        keep: ARENA_KEEP,
        seconds: 20,
        seed: 1,
        ..plan
    };
    let found = match fuzz(library, unsafe_one) {
        Ok(told) => format!("nothing: {told}"),
        Err(found) => found,
    };
    let Some(difference) = found.lines().find(|line| line.contains("difference in")) else {
        return Err(format!(
            "arena-keep is known to be unsafe; found was {found}"
        ));
    };
    Ok(format!(
        "arena: {arena}\narena-keep, without references: {without}\narena-keep, as is known: {difference}"
    ))
}

/// Runs processes one after the other. `Err`: the difference.
fn fuzz(library: &Path, plan: Plan) -> Result<String, String> {
    let begun = Instant::now();
    let (mut runs, mut calls, mut taken, mut cpu) = (0, 0_u64, 0_u64, 0.0);
    let mut seed = plan.seed;
    let goes_on = |calls: u64| match plan.calls {
        Some(all) => calls < all,
        None => begun.elapsed() < Duration::from_secs(plan.seconds),
    };
    while goes_on(calls) {
        let made = run(library, seed, plan).map_err(|why| {
            format!("seed {seed}, after {runs} processes and {calls} calls on each side: {why}")
        })?;
        calls += made.calls;
        taken += made.references;
        cpu += made.cpu;
        runs += 1;
        seed += 1;
    }
    Ok(format!(
        "{runs} processes, seeds {} to {}, {calls} calls on each side, {taken} references, {:.1} minutes of CPU time: no difference",
        plan.seed,
        seed - 1,
        cpu / 60.0
    ))
}

/// Counters of a process.
struct Made {
    calls: u64,
    references: u64,
    cpu: f64,
}

/// One seed in a process of its own.
fn run(library: &Path, seed: u64, plan: Plan) -> Result<Made, String> {
    let before = cpu_of_children();
    let mut random = Random::new(seed ^ 0x5eed);
    let keep = random.pick(plan.keep);
    let window = ["64G", "64G", "16M"][random.below(3)];
    // Only a library built for it heeds this.
    let inject = ["0", "3", "17"][random.below(3)];
    let output = Command::new(std::env::current_exe().map_err(|error| error.to_string())?)
        .env("LD_PRELOAD", library)
        .env("STOPGAP_KEEP", keep)
        .env("STOPGAP_WINDOW", window)
        .env("STOPGAP_INJECT", inject)
        .env("RUST_BACKTRACE", "0")
        .env(CHILD, seed.to_string())
        .env(REFERENCES, if plan.references { "1" } else { "0" })
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |name| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.parse().ok())
    };
    match (number("calls "), number("references ")) {
        (Some(calls), Some(references)) if output.status.success() => Ok(Made {
            calls,
            references,
            cpu: cpu_of_children() - before,
        }),
        _ => Err(format!(
            "{} (keep {keep}, window {window}, inject {inject})\n{text}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

fn cpu_of_children() -> f64 {
    // SAFETY: getrusage writes one struct, which all zeroes is valid for.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Line of this file where the signal handler found a difference.
static WRONG: AtomicUsize = AtomicUsize::new(0);
static SIGNALS: AtomicUsize = AtomicUsize::new(0);
/// Whether there are several threads that map.
static SEVERAL: AtomicBool = AtomicBool::new(false);
static FAILED: AtomicBool = AtomicBool::new(false);
/// References that all threads made.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Maps, looks, changes and unmaps, inside the call that was interrupted.
extern "C" fn on_signal(_: libc::c_int) {
    let wrong = |line: u32| WRONG.store(line as usize, Ordering::Relaxed);
    // SAFETY: errno is this thread's; it is put back.
    let errno = unsafe { *libc::__errno_location() };
    let count = SIGNALS.fetch_add(1, Ordering::Relaxed);
    let pages = 1 + count % 5;
    let side = Side::Library;
    let plain = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if let Ok(at) = side.mmap(0, pages * 4096, 3, plain, -1, 0) {
        for word in (at..at + pages * 4096).step_by(512) {
            // SAFETY: mapped just now.
            unsafe {
                if (word as *const u64).read_volatile() != 0 {
                    wrong(line!());
                }
                (word as *mut u64).write_volatile(u64::MAX);
            }
        }
        if count.is_multiple_of(3) && side.mprotect(at, 4096, 1).is_err() {
            wrong(line!());
        }
        let unmap = |from: usize, pages: usize| {
            if pages > 0 && side.munmap(at + from * 4096, pages * 4096).is_err() {
                wrong(line!());
            }
        };
        // The hole may be another thread's by now, and outside the room anybody's: then it is gone around.
        let (start, end) = actor::room();
        let ours = !SEVERAL.load(Ordering::Relaxed) && (start..end).contains(&at);
        let hole = count.is_multiple_of(4) && pages > 1;
        if hole {
            unmap(1, 1);
        }
        if hole && !ours {
            unmap(2, pages - 2);
            unmap(0, 1);
        } else {
            unmap(0, pages);
        }
    } else {
        wrong(line!());
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn child(seed: u64) -> ExitCode {
    // Before there are threads and signals, which map, too; and no fork may come while a thread is at it.
    actor::room();
    held::prepare();
    let mut random = Random::new(seed);
    let threads = [1, 1, 3][random.below(3)];
    SEVERAL.store(threads > 1, Ordering::Relaxed);
    let forks = random.below(2) == 0;
    let signals = random.below(3) == 0;
    if signals {
        // SAFETY: the handler keeps to what may be done in one, but for the calls that are tested.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
            let time = libc::timeval {
                tv_sec: 0,
                tv_usec: 200 + random.below(2_000) as libc::suseconds_t,
            };
            let timer = libc::itimerval {
                it_interval: time,
                it_value: time,
            };
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
        }
    }
    let until = Instant::now() + Duration::from_millis(1_500);
    let references = std::env::var(REFERENCES).is_ok_and(|word| word == "1");
    let run = |number: usize| {
        let mut actor = Actor::new(number, seed, [forks, threads == 1, references]);
        while !FAILED.load(Ordering::Relaxed) {
            let over = Instant::now() >= until;
            let done = if over { actor.end() } else { actor.round(40) };
            if let Err(why) = done {
                FAILED.store(true, Ordering::Relaxed);
                println!(
                    "difference in thread {number} of {threads} (forks {forks}, signals {signals}): {why}\nlast calls:\n{}",
                    actor.log()
                );
                break;
            }
            if over {
                break;
            }
        }
        TAKEN.fetch_add(actor.taken(), Ordering::Relaxed);
        actor.calls()
    };
    let calls: u64 = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|number| scope.spawn(move || run(number)))
            .collect();
        let own = run(0);
        own + others
            .into_iter()
            .map(|one| one.join().unwrap_or(0))
            .sum::<u64>()
    });
    let wrong = WRONG.load(Ordering::Relaxed);
    if wrong != 0 {
        println!("difference in the signal handler, line {wrong}");
    }
    println!(
        "calls {calls}\nreferences {}",
        TAKEN.load(Ordering::Relaxed)
    );
    if wrong != 0 || FAILED.load(Ordering::Relaxed) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
