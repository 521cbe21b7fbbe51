//! What the library costs where it brings nothing, and what it would cost to take more over.
//!
//! ```text
//! cargo bench -p stopgap-preload --bench costs
//! ```
//!
//! All sides of a line take turns, and its figures are medians of user and system time: others may use the machine.
//! `-- --guest` is what the library is preloaded to; with `-- --guest COUNT` it makes as many passed pairs and nothing
//! else, to count instructions (`valgrind --tool=callgrind`).

#![allow(unsafe_code)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::ffi::{OsStr, c_int, c_void};
use std::path::Path;
use std::process::{Command, ExitCode};

const PAGE: usize = 4096;
/// More than the library takes over.
const LARGE: usize = 16 << 20;
const ROUNDS: usize = 201;
/// Bytes of a map that is written to.
const TOUCHED: usize = 16 * PAGE;
const PAIRS: u32 = 200;
const PLAIN: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let count = |word: Option<String>| word.and_then(|count| count.parse().ok());
        match argument.as_str() {
            "--guest" => guest(count(arguments.next()), large_maps),
            "--placed" => guest(count(arguments.next()), touched_pages),
            "--fork" => forks(false),
            "--fork-that-maps" => forks(true),
            _ => continue,
        }
        return ExitCode::SUCCESS;
    }
    let library = common::library();
    println!("medians of {ROUNDS} rounds, all sides of a line in turn\n");
    exec(&library);
    forked(&library);
    passed(&library);
    placed(&library);
    ExitCode::SUCCESS
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Microseconds of user and system time, and faults, of all children until now.
fn children() -> (f64, i64) {
    // SAFETY: getrusage fills one struct, which all zeroes are valid for.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let micros = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    (
        micros(usage.ru_utime) + micros(usage.ru_stime),
        usage.ru_minflt,
    )
}

/// Nanoseconds of user and system time of this thread until now.
fn cpu() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct is ours; the clock is there since Linux 2.6.12.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Exec of a dynamic program that does nothing.
fn exec(library: &Path) {
    let sides = [None, Some(library)];
    let mut times = [const { Vec::new() }; 2];
    let mut faults = [0; 2];
    for _ in 0..ROUNDS {
        for (side, preload) in sides.iter().enumerate() {
            let mut command = Command::new("/bin/true");
            command.env_clear();
            if let Some(library) = preload {
                command.env("LD_PRELOAD", library);
            }
            let before = children();
            assert!(command.status().expect("/bin/true").success());
            let after = children();
            times[side].push(after.0 - before.0);
            faults[side] += after.1 - before.1;
        }
    }
    let [without, with] = times.map(|mut times| median(&mut times));
    let [without_faults, with_faults] = faults.map(|faults| faults as f64 / ROUNDS as f64);
    println!(
        "exec of /bin/true          {without:7.1} us, {without_faults:.1} faults; with the library {with:.1} us, {with_faults:.1} faults: {:+.1} us",
        with - without
    );
}

/// Forks that are timed.
const FORKS: u32 = 48;

/// Prints nanoseconds of a fork and its child, which ends at once, or maps, touches and unmaps a page before.
fn forks(child_maps: bool) {
    let page = || {
        let at = map(0, PAGE, READ_WRITE, PLAIN, -1);
        // SAFETY: mapped for writing just now; this program's own.
        unsafe {
            (at as *mut u8).write_volatile(1);
            libc::munmap(at as *mut c_void, PAGE);
        }
    };
    let fork = || {
        // SAFETY: this program has one thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            if child_maps {
                page();
            }
            // SAFETY: nothing of the parent's is run.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: `status` is ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    };
    page();
    let all = || cpu() + children().0 * 1e3;
    let begin = all();
    (0..FORKS).for_each(|_| fork());
    println!("{}", (all() - begin) / f64::from(FORKS));
}

/// Prints what a fork costs.
fn forked(library: &Path) {
    for (mode, what) in [
        ("--fork", "a fork and its child      "),
        ("--fork-that-maps", "the same, if it maps a page"),
    ] {
        let [without, with] = guests(mode, [&[], &[("LD_PRELOAD", library.as_os_str())]]);
        println!(
            "{what} {:6.1} us; with the library {:.1} us: {:+.1} us",
            without / 1e3,
            with / 1e3,
            (with - without) / 1e3
        );
    }
}

/// A pair of mmap and munmap that the library passes through.
fn large_maps() {
    // SAFETY: a map without an address, which nobody else knows of.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), LARGE, READ_WRITE, PLAIN, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::munmap(at, LARGE), 0);
    }
}

/// A map of 16 pages, all written to, and its end.
fn touched_pages() {
    let at = map(0, TOUCHED, READ_WRITE, PLAIN, -1);
    for page in (at..at + TOUCHED).step_by(PAGE) {
        // SAFETY: mapped for writing just now; this program's own.
        unsafe { (page as *mut u8).write_volatile(1) };
    }
    // SAFETY: this program's own.
    assert_eq!(unsafe { libc::munmap(at as *mut c_void, TOUCHED) }, 0);
}

/// Prints what a map that is placed costs, and what is saved where its pages are kept.
fn placed(library: &Path) {
    let preload = ("LD_PRELOAD", library.as_os_str());
    let keep = ("STOPGAP_KEEP", OsStr::new("32M"));
    let [without, with, kept] = guests("--placed", [&[], &[preload], &[preload, keep]]);
    println!(
        "16 pages, all written to   {without:7.0} ns; with the library {with:.0} ns: {:.3}x; where pages are kept {kept:.0} ns: {:.3}x",
        with / without,
        kept / without
    );
}

/// Prints nanoseconds of a pair; or makes as many as said.
fn guest(count: Option<u32>, pair: impl Fn()) {
    let pairs = |count: u32| {
        let begin = cpu();
        (0..count).for_each(|_| pair());
        (cpu() - begin) / f64::from(count)
    };
    if let Some(count) = count {
        pairs(count);
        return;
    }
    // A map that is placed first: what passes through then passes the room.
    // SAFETY: a map without an address touches nothing that is there.
    unsafe { libc::mmap(std::ptr::null_mut(), PAGE, READ_WRITE, PLAIN, -1, 0) };
    pairs(PAIRS);
    println!("{}", pairs(PAIRS));
}

/// What this program prints as a guest of `mode`, in an environment of each of `sides`: medians.
fn guests<const SIDES: usize>(mode: &str, sides: [&[(&str, &OsStr)]; SIDES]) -> [f64; SIDES] {
    let own = std::env::current_exe().expect("/proc is mounted");
    let mut times = [const { Vec::new() }; SIDES];
    for _ in 0..ROUNDS {
        for (side, variables) in sides.iter().enumerate() {
            let mut command = Command::new(&own);
            command.arg(mode).envs(variables.iter().copied());
            let output = command.output().expect("this program");
            assert!(output.status.success(), "{output:?}");
            let text = String::from_utf8_lossy(&output.stdout);
            times[side].push(text.trim().parse::<f64>().expect("nanoseconds"));
        }
    }
    times.map(|mut times| median(&mut times))
}

fn passed(library: &Path) {
    let [without, with] = guests("--guest", [&[], &[("LD_PRELOAD", library.as_os_str())]]);
    println!(
        "a pair that passes through {without:7.0} ns; with the library {with:.0} ns: {:+.0} ns, {:.3}x",
        with - without,
        with / without
    );
}

fn map(at: usize, length: usize, protection: c_int, flags: c_int, fd: c_int) -> usize {
    // SAFETY: a map without an address touches nothing that is there.
    let mapped = unsafe { libc::mmap(at as *mut c_void, length, protection, flags, fd, 0) };
    assert_ne!(
        mapped,
        libc::MAP_FAILED,
        "{}",
        std::io::Error::last_os_error()
    );
    mapped as usize
}
