//! The interposer against the kernel itself: random calls of the mmap family, good and bad, through the interposed
//! functions and, with the same arguments at other addresses, by bare system calls. Results, errno, contents and the
//! permissions that `/proc/self/maps` shows must be the same. Alone, in threads, in forked children, under a signal
//! handler that maps, too.
//!
//! ```text
//! cargo test --release -p stopgap-preload --test fuzz -- --seconds 60 --seed 1
//! ```
//!
//! Without arguments four seconds, from a seed of the clock. Each seed is a process of its own of two seconds at most,
//! so what fails is found again by its seed; the process says how many calls it made, and on a difference the last of
//! them.
//!
//! Two runs of three have `STOPGAP_FILES`, and then every second map is one of a file: of memory, of a disk, sealed, read
//! or written only, shorter than its map, truncated while it is mapped, or of what cannot be mapped.
//!
//! With `--features inject` the library's own calls fail now and then, too: a library that cannot have what it wants
//! must pass through, and nothing may differ either.
//!
//! What may differ, and is left out: where a map lies; whether a map can grow in its place beyond its own addresses;
//! and into how many VMAs a range of alike pages is cut, which only a move of all of it (mremap) can tell: where the
//! sides are cut differently, none is made.

#![allow(unsafe_code)]

mod actor;
#[path = "../common/mod.rs"]
mod common;
mod maps;
mod random;
mod sides;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use actor::Actor;
use random::Random;
use sides::Side;

const CHILD: &str = "STOPGAP_FUZZ_SEED";

fn main() -> ExitCode {
    if let Ok(seed) = std::env::var(CHILD) {
        return child(seed.parse().expect("our own number"));
    }
    let mut seconds = 4;
    let mut seed = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|word| word.parse::<u64>().ok());
        match argument.as_str() {
            "--seconds" => seconds = number().expect("--seconds N"),
            "--seed" => seed = Some(number().expect("--seed N")),
            _ => {} // what cargo hands to every test
        }
    }
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(1, |t| t.as_secs());
    let first = seed.unwrap_or(clock);
    let library = common::library();
    let begun = Instant::now();
    let (mut runs, mut calls, mut cpu) = (0, 0_u64, 0.0);
    let mut seed = first;
    while begun.elapsed() < Duration::from_secs(seconds) {
        match run(&library, seed) {
            Ok((made, took)) => {
                calls += made;
                cpu += took;
            }
            Err(why) => {
                eprintln!(
                    "seed {seed}, after {runs} processes and {calls} calls on each side: {why}"
                );
                return ExitCode::FAILURE;
            }
        }
        runs += 1;
        seed += 1;
    }
    println!(
        "{runs} processes, seeds {first} to {}, {calls} calls on each side, {:.1} minutes of CPU time: no difference",
        seed - 1,
        cpu / 60.0
    );
    ExitCode::SUCCESS
}

/// One seed in a process of its own: calls made, seconds of CPU.
fn run(library: &Path, seed: u64) -> Result<(u64, f64), String> {
    let before = cpu_of_children();
    let mut random = Random::new(seed ^ 0x5eed);
    let keep = ["32M", "256K", "0"][random.below(3)];
    let window = ["64G", "64G", "16M"][random.below(3)];
    // Only a library built for it heeds this.
    let inject = ["0", "3", "17"][random.below(3)];
    let files = ["0", "1", "1"][random.below(3)];
    let output = Command::new(std::env::current_exe().map_err(|error| error.to_string())?)
        .env("LD_PRELOAD", library)
        .env("STOPGAP_KEEP", keep)
        .env("STOPGAP_WINDOW", window)
        .env("STOPGAP_INJECT", inject)
        .env("STOPGAP_FILES", files)
        .env("RUST_BACKTRACE", "0")
        .env(CHILD, seed.to_string())
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let calls = text
        .lines()
        .find_map(|line| line.strip_prefix("calls ")?.parse().ok());
    match calls {
        Some(calls) if output.status.success() => Ok((calls, cpu_of_children() - before)),
        _ => Err(format!(
            "{} (keep {keep}, window {window}, inject {inject}, files {files})\n{text}\n{}",
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

/// What the signal handler found wrong, as a line of this file.
static WRONG: AtomicUsize = AtomicUsize::new(0);
static SIGNALS: AtomicUsize = AtomicUsize::new(0);
/// What the signal handler maps.
static FILE: AtomicI32 = AtomicI32::new(-1);
static FAILED: AtomicBool = AtomicBool::new(false);

/// Maps, looks, changes and unmaps, in the midst of whatever was interrupted.
extern "C" fn on_signal(_: libc::c_int) {
    let wrong = |line: u32| WRONG.store(line as usize, Ordering::Relaxed);
    // SAFETY: errno is this thread's; it is put back.
    let errno = unsafe { *libc::__errno_location() };
    let count = SIGNALS.fetch_add(1, Ordering::Relaxed);
    let pages = 1 + count % 5;
    let side = Side::Library;
    match side.mmap(
        0,
        pages * 4096,
        3,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        -1,
        0,
    ) {
        Err(_) => wrong(line!()),
        Ok(at) => {
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
            let hole = count.is_multiple_of(4) && pages > 1;
            if hole && side.munmap(at + 4096, 4096).is_err() {
                wrong(line!());
            }
            // Outside the room the hole may be another thread's by now: it is gone around.
            let (start, end) = actor::room();
            let first = if hole && !(start..end).contains(&at) {
                if pages > 2 && side.munmap(at + 8192, (pages - 2) * 4096).is_err() {
                    wrong(line!());
                }
                1
            } else {
                pages
            };
            if side.munmap(at, first * 4096).is_err() {
                wrong(line!());
            }
        }
    }
    match side.mmap(
        0,
        4096,
        1,
        libc::MAP_SHARED,
        FILE.load(Ordering::Relaxed),
        0,
    ) {
        Err(_) => wrong(line!()),
        Ok(at) => {
            // SAFETY: mapped just now.
            if unsafe { (at as *const u8).read_volatile() } != 0xf1
                || side.munmap(at, 4096).is_err()
            {
                wrong(line!());
            }
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn child(seed: u64) -> ExitCode {
    // Before there are threads and signals, which map, too.
    actor::room();
    let file = actor::memfd(c"signal", 0, &[0xf1; 4096]);
    FILE.store(file, Ordering::Relaxed);
    let mut random = Random::new(seed);
    let threads = [1, 1, 3][random.below(3)];
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
    let run = |number: usize| {
        let mut actor = Actor::new(number, seed, forks, threads == 1);
        while Instant::now() < until && !FAILED.load(Ordering::Relaxed) {
            if let Err(why) = actor.round(40) {
                FAILED.store(true, Ordering::Relaxed);
                println!(
                    "difference in thread {number} of {threads} (forks {forks}, signals {signals}): {why}\nlast calls:\n{}",
                    actor.log()
                );
                break;
            }
        }
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
    println!("calls {calls}");
    if wrong != 0 || FAILED.load(Ordering::Relaxed) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
