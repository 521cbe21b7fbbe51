//! What the library costs where it brings nothing, and what it would cost to take more over.
//!
//! ```text
//! cargo bench -p stopgap-preload --bench costs
//! ```
//!
//! All sides of a line take turns, and its figures are medians of user and system time: others may use the machine.
//! `-- --guest` is what the library is preloaded to; with `-- --guest COUNT` it makes as many passed pairs and nothing
//! else, for whoever counts instructions (`valgrind --tool=callgrind`). `-- --files` is the same with maps of a file
//! beside others of it, `-- --file` beside none.

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
const PAIRS: u32 = 200;
const PLAIN: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let count = |word: Option<String>| word.and_then(|count| count.parse().ok());
        match argument.as_str() {
            "--guest" => guest(count(arguments.next()), large_maps),
            "--files" => guest(count(arguments.next()), maps_of_a_file(HELD)),
            "--file" => guest(count(arguments.next()), maps_of_a_file(0)),
            "--fork" => forks(0, false),
            "--fork-that-maps" => forks(0, true),
            "--many-forks" => forks(2 * FORKS, false),
            "--many-forks-that-map" => forks(2 * FORKS, true),
            _ => continue,
        }
        return ExitCode::SUCCESS;
    }
    let library = common::library();
    println!("medians of {ROUNDS} rounds, all sides of a line in turn\n");
    exec(&library);
    forked(&library);
    passed(&library);
    file_maps();
    files(&library);
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

/// Forks that are timed; fewer than the library lets pass before it weighs them.
const FORKS: u32 = 48;

/// Prints nanoseconds of a fork and its child, which ends at once, or maps, touches and unmaps a page before. `before`:
/// forks that are not timed.
fn forks(before: u32, child_maps: bool) {
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
    (0..before).for_each(|_| fork());
    let all = || cpu() + children().0 * 1e3;
    let begin = all();
    (0..FORKS).for_each(|_| fork());
    println!("{}", (all() - begin) / f64::from(FORKS));
}

/// What a fork costs who is served, and who forks so often that it has no window any more.
fn forked(library: &Path) {
    for (mode, what) in [
        ("--fork", "a fork and its child      "),
        ("--fork-that-maps", "the same, if it maps a page"),
        ("--many-forks", "the same after 64 forks    "),
        ("--many-forks-that-map", "and if it maps a page      "),
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

/// Pairs of a file's map, one page of it read, and its end, beside others of it. Where nothing is near the kernel makes
/// and frees page tables for each pair.
fn maps_of_a_file(others: usize) -> impl Fn() {
    let fd = file();
    for _ in 0..others {
        touch(map(0, FILE, libc::PROT_READ, libc::MAP_PRIVATE, fd));
    }
    move || by_libc(0, libc::MAP_PRIVATE, fd)
}

fn by_libc(at: usize, flags: c_int, fd: c_int) {
    let at = map(at, FILE, libc::PROT_READ, flags, fd);
    touch(at);
    // SAFETY: this program's own.
    assert_eq!(unsafe { libc::munmap(at as *mut c_void, FILE) }, 0);
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
    // A map that is taken over first: what passes through then passes a window.
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

fn files(library: &Path) {
    let preload = ("LD_PRELOAD", library.as_os_str());
    let placed = ("STOPGAP_FILES", OsStr::new("1"));
    for (mode, beside) in [("--files", "100 others"), ("--file", "no other")] {
        let [without, with, places] = guests(mode, [&[], &[preload], &[preload, placed]]);
        println!(
            "the same beside {beside:10} {without:7.0} ns without the library; with it {with:.0} ns: {:.2}x; where files have places {places:.0} ns: {:.2}x",
            with / without,
            places / without
        );
    }
}

fn map(at: usize, length: usize, protection: c_int, flags: c_int, fd: c_int) -> usize {
    // SAFETY: without an address, or within the window that this program has reserved.
    let mapped = unsafe { libc::mmap(at as *mut c_void, length, protection, flags, fd, 0) };
    assert_ne!(
        mapped,
        libc::MAP_FAILED,
        "{}",
        std::io::Error::last_os_error()
    );
    mapped as usize
}

/// Bytes of the file that is mapped.
const FILE: usize = 16 * PAGE;
/// Maps of it that stay.
const HELD: usize = 100;

fn file() -> c_int {
    // SAFETY: the name ends with a 0.
    let fd = unsafe { libc::memfd_create(c"costs".as_ptr(), 0) };
    assert!(fd >= 0);
    let written = [1_u8; FILE];
    // SAFETY: the buffer is as long as it says.
    let count = unsafe { libc::write(fd, written.as_ptr().cast(), FILE) };
    assert_eq!(count, FILE as isize);
    fd
}

fn touch(at: usize) {
    // SAFETY: mapped for reading just now.
    assert_eq!(unsafe { (at as *const u8).read_volatile() }, 1);
}

/// A map of a file, one page read, and its end: where the kernel places it, in a reserved window at the cheapest place
/// that can be, always the same, and at a hint where nothing is; the last two without any bookkeeping.
fn file_maps() {
    let fd = file();
    let window = map(0, 1 << 30, libc::PROT_NONE, PLAIN, -1);
    let place = window + (512 << 20);
    let by_the_kernel = || by_libc(0, libc::MAP_PRIVATE, fd);
    let in_the_window = || {
        let fixed = libc::MAP_PRIVATE | libc::MAP_FIXED;
        touch(map(place, FILE, libc::PROT_READ, fixed, fd));
        map(place, FILE, libc::PROT_NONE, PLAIN | libc::MAP_FIXED, -1);
    };
    let far_below = window / 8 * 7 / PAGE * PAGE;
    for number in 1..=HELD {
        let at = far_below + number * FILE;
        touch(map(at, FILE, libc::PROT_READ, libc::MAP_PRIVATE, fd));
    }
    let at_a_hint = || by_libc(far_below, libc::MAP_PRIVATE, fd);
    let sides: [&dyn Fn(); 3] = [&by_the_kernel, &in_the_window, &at_a_hint];
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (side, call) in sides.iter().enumerate() {
            let begin = cpu();
            (0..PAIRS).for_each(|_| call());
            times[side].push((cpu() - begin) / f64::from(PAIRS));
        }
    }
    let [kernel, window, hint] = times.map(|mut times| median(&mut times));
    println!(
        "a map of a file            {kernel:7.0} ns where the kernel places it; in a reserved window {window:.0} ns: {:.2}x; at a hint {hint:.0} ns: {:.2}x",
        window / kernel,
        hint / kernel
    );
}
