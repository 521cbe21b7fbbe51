//! `stopgap-bench cache`: a cache of frame buffers in the arena, in mimalloc, jemalloc and glibc's malloc, and in mappings of their
//! own; and a file's mapping that is used again.
//!
//! A run is a process of its own, as a program that links the allocator: mimalloc as its crate does, jemalloc as Debian's library,
//! preloaded in front of malloc(3). It takes buffers of random sizes, frees random ones where more than [`BUDGET`] would be live, and writes
//! each buffer. At the end it frees nine tenths of the bytes and goes on for [`AFTER`] with a hundred short-lived buffers per second,
//! so that an allocator that gives memory back only when it is called is called. Rounds run every peer once, in rotating order.
//! Before each run twice what may be live is written and freed: a guest's hypervisor takes free memory away, and who uses it next
//! would pay for that, not for an allocator.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::ptr::{self, NonNull};
use std::time::Duration;

use clap::ValueEnum;
use mimalloc::MiMalloc;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stopgap_arena::descriptors::{Cache, Memfd};
use stopgap_arena::{Arena, Config};
use stopgap_cli::{Failure, print};
use stopgap_events::random::Random;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::own::minor_faults;
use stopgap_kernel::{Linux, signals};

use crate::common::{Bounds, Rounds, failed, own_program, rounds, table, text};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Rounds; each runs every peer on every load once, in rotating order.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Buffers that a run takes, of `small` 25 times as many.
    #[arg(long, value_name = "N", default_value_t = 8_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    buffers: u32,
    /// Seed of sizes and of the choice of what is freed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long to go on after most is freed, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = AFTER)]
    after: u64,
}

/// A run, in a process of its own.
#[derive(clap::Args)]
pub(crate) struct RunFlags {
    #[arg(long)]
    peer: Peer,
    #[arg(long)]
    load: Load,
    #[arg(long)]
    buffers: u32,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    after: u64,
}

/// Bytes that are live at most.
const BUDGET: usize = 512 << 20;
/// Milliseconds for which a program goes on after it freed nine tenths.
const AFTER: u64 = 2_000;

/// CPU time of the arena over mimalloc's, at most.
const CPU: f64 = 1.2;
/// The arena holds at most this part of its own peak at the end.
const HELD: f64 = 0.25;
/// Times that mapping, writing and unmapping a file takes longer than through the cache from the second use on, at least.
const AGAIN: f64 = 10.0;

/// The allocator that gives buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    Arena,
    Mimalloc,
    Jemalloc,
    Glibc,
    Mmap,
}

impl Peer {
    const ALL: [Peer; 5] = [
        Peer::Arena,
        Peer::Mimalloc,
        Peer::Jemalloc,
        Peer::Glibc,
        Peer::Mmap,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Peer::Arena => "arena",
            Peer::Mimalloc => "mimalloc",
            Peer::Jemalloc => "jemalloc",
            Peer::Glibc => "glibc",
            Peer::Mmap => "mmap",
        }
    }

    /// The library to preload, and its package on Debian.
    fn library(self) -> Option<(&'static str, &'static str)> {
        match self {
            Peer::Jemalloc => Some(("libjemalloc.so.2", "libjemalloc2")),
            _ => None,
        }
    }

    /// Returns the library to preload, `None` where there is nothing to preload.
    ///
    /// # Errors
    /// The package that is missing.
    fn preload(self) -> Result<Option<PathBuf>, &'static str> {
        let Some((name, package)) = self.library() else {
            return Ok(None);
        };
        let multiarch = std::fs::read_dir("/usr/lib")
            .into_iter()
            .flatten()
            .flatten();
        let multiarch = multiarch.map(|folder| folder.path());
        let multiarch = multiarch.filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
        let others = ["/usr/lib64", "/usr/lib", "/usr/local/lib"].map(PathBuf::from);
        let mut paths = multiarch.chain(others).map(|folder| folder.join(name));
        let found = paths.find(|path| path.exists());
        found.map(Some).ok_or(package)
    }

    /// Those that can run here; says which cannot.
    pub(crate) fn there(all: &[Peer]) -> Result<Vec<Peer>, Failure> {
        let mut there = Vec::new();
        for peer in all {
            match peer.preload() {
                Ok(_) => there.push(*peer),
                Err(package) => print(&format!(
                    "{} skipped: not installed (Debian's package {package})",
                    peer.word()
                ))?,
            }
        }
        Ok(there)
    }

    /// Runs this program again with `words`, this peer preloaded; returns what it printed.
    pub(crate) fn child<T: DeserializeOwned>(self, words: &str) -> Result<T, Failure> {
        let mut command = Command::new(own_program()?);
        command
            .args(words.split(' '))
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        command.env_remove("LD_PRELOAD");
        if let Ok(Some(library)) = self.preload() {
            command.env("LD_PRELOAD", library);
        }
        let output = command.output().map_err(failed("a run"))?;
        if !output.status.success() {
            return Err(Failure::error(format!(
                "{}: {}",
                self.word(),
                output.status
            )));
        }
        serde_json::from_slice(&output.stdout).map_err(failed("what a run printed"))
    }

    pub(crate) fn buffers(self) -> Result<Box<dyn Buffers>, String> {
        let maps = std::fs::read_to_string("/proc/self/maps").map_err(text)?;
        if self.library().is_some_and(|(name, _)| !maps.contains(name)) {
            return Err("the library was not preloaded".to_owned());
        }
        Ok(match self {
            Peer::Arena => Box::new(Arena::new(&Config::default()).map_err(text)?),
            Peer::Mimalloc => Box::new(Linked(MiMalloc)),
            Peer::Jemalloc | Peer::Glibc => Box::new(Linked(System)),
            Peer::Mmap => Box::new(Mmap),
        })
    }
}

/// Gives and takes back buffers.
pub(crate) trait Buffers: Sync {
    /// Returns `length` bytes, which hold anything.
    fn take(&self, length: usize) -> Result<NonNull<u8>, String>;

    /// Takes back what `take` gave.
    ///
    /// # Safety
    /// It was given for that length, and nothing uses it any more.
    unsafe fn give(&self, at: NonNull<u8>, length: usize) -> Result<(), String>;
}

impl Buffers for Arena {
    fn take(&self, length: usize) -> Result<NonNull<u8>, String> {
        self.alloc_uninit(length, 1).map_err(text)
    }

    unsafe fn give(&self, at: NonNull<u8>, length: usize) -> Result<(), String> {
        // SAFETY: as the caller says.
        unsafe { self.free(at, length) }.map_err(text)
    }
}

/// An allocator of a crate; or malloc(3) and free(3) of the library that the dynamic linker found first.
struct Linked<A>(A);

fn layout(length: usize) -> Result<Layout, String> {
    Layout::from_size_align(length.max(1), 16).map_err(text)
}

impl<A: GlobalAlloc + Sync> Buffers for Linked<A> {
    fn take(&self, length: usize) -> Result<NonNull<u8>, String> {
        // SAFETY: the length is not 0.
        let at = unsafe { self.0.alloc(layout(length)?) };
        NonNull::new(at).ok_or_else(|| "no memory".to_owned())
    }

    unsafe fn give(&self, at: NonNull<u8>, length: usize) -> Result<(), String> {
        // SAFETY: as the caller says; by the same allocator, with the same layout.
        unsafe { self.0.dealloc(at.as_ptr(), layout(length)?) };
        Ok(())
    }
}

/// A mapping each.
struct Mmap;

impl Buffers for Mmap {
    fn take(&self, length: usize) -> Result<NonNull<u8>, String> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without an address the kernel chooses one that nothing uses.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE) };
        NonNull::new(at.map_err(text)?.cast()).ok_or_else(|| "mapped at 0".to_owned())
    }

    unsafe fn give(&self, at: NonNull<u8>, length: usize) -> Result<(), String> {
        // SAFETY: as the caller says.
        unsafe { munmap(at.as_ptr().cast(), length) }.map_err(text)
    }
}

/// Buffers and how they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Load {
    /// 4 KiB to 8 MiB, each octave as likely, all bytes written.
    Filled,
    /// The same, one byte of each page written.
    Touched,
    /// 4 to 64 KiB, all bytes written.
    Small,
}

impl Load {
    const ALL: [Load; 3] = [Load::Filled, Load::Touched, Load::Small];

    fn word(self) -> &'static str {
        match self {
            Load::Filled => "filled",
            Load::Touched => "touched",
            Load::Small => "small",
        }
    }

    fn buffers(self, asked: u32) -> u32 {
        match self {
            Load::Small => asked.saturating_mul(25),
            _ => asked,
        }
    }

    fn length(self, random: &mut Random) -> usize {
        let bytes = match self {
            Load::Small => 4_096 + random.below(60 << 10),
            _ => {
                let octave = 4_096 << random.below(11);
                octave + random.below(octave)
            }
        };
        bytes as usize // 8 MiB at most
    }

    /// Writes a buffer that is that long and given out.
    fn write(self, at: NonNull<u8>, length: usize) {
        if self == Load::Touched {
            for offset in (0..length).step_by(4_096) {
                // SAFETY: inside of the buffer.
                unsafe { at.as_ptr().add(offset).write_volatile(1) };
            }
        } else {
            // SAFETY: all of the buffer.
            unsafe { at.as_ptr().write_bytes(1, length) };
            std::hint::black_box(at);
        }
    }
}

/// The figures of a run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Measured {
    /// CPU time of the process until nine tenths are freed.
    cpu_ns: u64,
    faults: u64,
    /// Bytes that were resident at most, and after the end; what was before the load is taken off.
    peak: u64,
    held: u64,
}

/// Returns the CPU time of all threads of this process.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64 // since the process began
}

/// Returns a figure of /proc/self/status in bytes.
fn status(name: &str) -> Result<u64, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(text)?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    let kib = number.ok_or_else(|| format!("/proc/self/status has no number {name}"))?;
    Ok(kib << 10)
}

/// One run, which prints its figures.
pub(crate) fn run_one(flags: &RunFlags) -> Result<ExitCode, Failure> {
    let measured = measure(flags).map_err(failed(flags.peer.word()))?;
    let line = serde_json::to_string(&measured).map_err(failed("JSON"))?;
    print(&line)?;
    Ok(ExitCode::SUCCESS)
}

fn measure(flags: &RunFlags) -> Result<Measured, String> {
    let load = flags.load;
    let resident = status("VmRSS")?;
    let buffers = flags.peer.buffers()?;
    let mut random = Random::new(flags.seed);
    let mut live: Vec<(NonNull<u8>, usize)> = Vec::with_capacity(1 << 17);
    let mut bytes = 0;
    let (faults, cpu) = (minor_faults(&Linux).map_err(text)?, cpu_ns());
    let free_one = |random: &mut Random, live: &mut Vec<_>, bytes: &mut usize| {
        let (at, length) = live.swap_remove(random.index(live.len()));
        *bytes -= length;
        // SAFETY: given out for that length, taken off the list of what is used.
        unsafe { buffers.give(at, length) }
    };
    for _ in 0..load.buffers(flags.buffers) {
        let length = load.length(&mut random);
        while bytes + length > BUDGET {
            free_one(&mut random, &mut live, &mut bytes)?;
        }
        let at = buffers.take(length)?;
        load.write(at, length);
        live.push((at, length));
        bytes += length;
    }
    let tenth = bytes / 10;
    while bytes > tenth {
        free_one(&mut random, &mut live, &mut bytes)?;
    }
    let cpu_ns = cpu_ns() - cpu;
    let faults = minor_faults(&Linux).map_err(text)? - faults;
    let peak = status("VmHWM")?.saturating_sub(resident);
    for _ in 0..flags.after / 10 {
        std::thread::sleep(Duration::from_millis(10));
        let length = load.length(&mut random);
        let at = buffers.take(length)?;
        load.write(at, length);
        // SAFETY: given out for that length, and used by nothing.
        unsafe { buffers.give(at, length) }?;
    }
    let held = status("VmRSS")?.saturating_sub(resident);
    Ok(Measured {
        cpu_ns,
        faults,
        peak,
        held,
    })
}

/// Measures and prints; status 2 where a goal is missed.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let peers = Peer::there(&Peer::ALL)?;
    let mut bounds = Bounds::default();
    let groups = [peers.len(); Load::ALL.len()];
    let all = rounds(flags.rounds, &groups, |group, side| {
        let (peer, load) = (peers[side].word(), Load::ALL[group].word());
        let Flags {
            buffers,
            seed,
            after,
            ..
        } = flags;
        let words = format!(
            "cache-run --peer {peer} --load {load} --buffers {buffers} --seed {seed} --after {after}"
        );
        write_free_memory().map_err(failed("memory that is free"))?;
        peers[side].child::<Measured>(&words)
    })?;
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    print(&format!(
        "seed {}, {} buffers, at most {} MiB live, medians of {} rounds; transparent huge pages: {}",
        flags.seed,
        flags.buffers,
        BUDGET >> 20,
        all[0].0.len(),
        huge.as_deref().unwrap_or("none").trim()
    ))?;
    for (load, measured) in Load::ALL.into_iter().zip(&all) {
        print(shown(load, &peers, measured).trim_end())?;
        judge(load, &peers, measured, &mut bounds);
    }
    let again = descriptors(flags.rounds.max(3))?;
    print(again.0.trim_end())?;
    for (holds, text) in again.1 {
        bounds.add(holds, text);
    }
    bounds.print()
}

/// Makes the hypervisor give the memory that the next run will take.
fn write_free_memory() -> Result<(), String> {
    let at = Mmap.take(2 * BUDGET)?;
    // SAFETY: mapped above, that long; advice changes nothing that can be read.
    let advised = unsafe { madvise(at.as_ptr().cast(), 2 * BUDGET, Advice::LinuxHugepage) };
    // Without huge pages it is written page by page.
    let _ = advised;
    Load::Touched.write(at, 2 * BUDGET);
    // SAFETY: mapped above, and nothing refers to it.
    unsafe { Mmap.give(at, 2 * BUDGET) }
}

const MIB: f64 = (1 << 20) as f64;

fn shown(load: Load, peers: &[Peer], rounds: &Rounds<Measured>) -> String {
    let rows = peers.iter().enumerate().map(|(at, peer)| {
        let mib = |figure: fn(&Measured) -> u64| {
            let bytes = rounds.median(at, |one| figure(one) as f64);
            format!("{:.0}", bytes / MIB)
        };
        vec![
            peer.word().to_owned(),
            rounds
                .estimate(at, |one| one.cpu_ns as f64 / 1e9)
                .shown(2, ""),
            format!("{:.0}", rounds.median(at, |one| one.faults as f64 / 1e3)),
            mib(|one| one.peak),
            mib(|one| one.held),
        ]
    });
    let head = "CPU seconds|faults, thousands|peak MiB|held MiB";
    table(&format!("{}|{head}", load.word()), rows)
}

fn judge(load: Load, peers: &[Peer], rounds: &Rounds<Measured>, bounds: &mut Bounds) {
    let at = |peer: Peer| peers.iter().position(|one| *one == peer);
    let (Some(arena), Some(mimalloc)) = (at(Peer::Arena), at(Peer::Mimalloc)) else {
        return; // neither needs a library
    };
    let word = load.word();
    let cpu = rounds.ratio(arena, mimalloc, |one| one.cpu_ns as f64).value;
    bounds.at_most(format!("{word}: CPU time over mimalloc's"), cpu, CPU);
    let peak = rounds.ratio(arena, mimalloc, |one| one.peak as f64).value;
    bounds.at_most(format!("{word}: peak over mimalloc's"), peak, 1.0);
    let held = rounds.median(arena, |one| one.held as f64 / one.peak as f64);
    bounds.at_most(
        format!("{word}: held after nine tenths are freed, over the peak"),
        held,
        HELD,
    );
}

/// Bytes of the file that is mapped again and again, and how often.
const FILE: usize = 4 << 20;
const USES: u32 = 200;

/// Ways to write a file's bytes through a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One mapping that stays: what writing costs.
    Kept,
    /// mmap(2) and munmap(2).
    Mmap,
    /// [`Cache::take`] and [`Cache::give`].
    Cache,
}

const WAYS: [(Way, &str); 3] = [
    (Way::Kept, "mapping kept"),
    (Way::Mmap, "mmap, munmap"),
    (Way::Cache, "descriptors: take, give"),
];

/// Maps, writes and unmaps a 4 MiB memfd, from the second use on. Returns a table and goals.
fn descriptors(count: u32) -> Result<(String, Vec<(bool, String)>), Failure> {
    let loads = [Load::Filled, Load::Touched];
    let all = rounds(count, &[WAYS.len(); 2], |group, side| {
        again(WAYS[side].0, loads[group]).map_err(failed(WAYS[side].1))
    })?;
    let cell = |group: usize, side: usize| all[group].median(side, |ns| *ns) / 1e3;
    let rows = WAYS.iter().enumerate().map(|(side, (_, word))| {
        let us = |group| format!("{:.2}", cell(group, side));
        vec![(*word).to_owned(), us(0), us(1)]
    });
    let head = "memfd of 4 MiB, us a use|filled|touched";
    let table = table(head, rows);
    let goals = loads.iter().enumerate().map(|(group, load)| {
        let times = cell(group, 1) / cell(group, 2);
        let word = load.word();
        let text = format!("memfd {word}: mmap takes {times:.1} times as long (at least {AGAIN})");
        (times >= AGAIN, text)
    });
    Ok((table, goals.collect()))
}

/// Returns ns of CPU time for each use but the first.
fn again(way: Way, load: Load) -> Result<f64, String> {
    let file: OwnedFd = memfd_create("bench", MemfdFlags::CLOEXEC).map_err(text)?;
    ftruncate(&file, FILE as u64).map_err(text)?;
    let map = || {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: without an address the kernel chooses one that nothing uses.
        let at = unsafe { mmap(ptr::null_mut(), FILE, protection, flags, &file, 0) };
        NonNull::new(at.map_err(text)?.cast::<u8>()).ok_or_else(|| "mapped at 0".to_owned())
    };
    // SAFETY: of a mapping that is used no more.
    let unmap = |at: NonNull<u8>| unsafe { munmap(at.as_ptr().cast(), FILE) }.map_err(text);
    let cache = Cache::new(Memfd).map_err(text)?;
    let kept = map()?;
    let one = || {
        match way {
            Way::Kept => load.write(kept, FILE),
            Way::Mmap => {
                let at = map()?;
                load.write(at, FILE);
                unmap(at)?;
            }
            Way::Cache => {
                let buffer = cache.take(FILE).map_err(text)?;
                load.write(buffer.address(), FILE);
                // SAFETY: nobody else knows it.
                unsafe { cache.give(buffer) };
            }
        }
        Ok::<(), String>(())
    };
    one()?;
    let start = Linux.thread_cpu().0;
    for _ in 0..USES {
        one()?;
    }
    let took = Linux.thread_cpu().0 - start;
    unmap(kept)?;
    Ok(took as f64 / f64::from(USES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_goal_of_a_load_can_be_missed() {
        let peers = [Peer::Arena, Peer::Mimalloc];
        let hold = |cpu_ns: u64, peak: u64, held: u64| {
            let of = |cpu_ns, peak, held| Measured {
                cpu_ns,
                faults: 1,
                peak,
                held,
            };
            let rounds = Rounds(vec![vec![of(cpu_ns, peak, held), of(100, 400, 400)]; 3]);
            let mut bounds = Bounds::default();
            judge(Load::Small, &peers, &rounds, &mut bounds);
            bounds.hold()
        };
        assert_eq!(hold(120, 400, 100), [true; 3]);
        assert_eq!(hold(121, 400, 100), [false, true, true]);
        assert_eq!(hold(120, 401, 100), [true, false, true]);
        assert_eq!(hold(120, 400, 101), [true, true, false]);
    }

    /// Each peer that needs no library gives what can be written, and takes it back.
    #[test]
    fn peers_give_and_take() {
        for peer in [Peer::Arena, Peer::Glibc, Peer::Mmap] {
            for load in Load::ALL {
                let flags = RunFlags {
                    peer,
                    load,
                    buffers: 20,
                    seed: 1,
                    after: 20,
                };
                let measured = measure(&flags).unwrap();
                assert!(measured.cpu_ns > 0, "{peer:?} {load:?}: {measured:?}");
            }
        }
        for (way, _) in WAYS {
            assert!(again(way, Load::Touched).unwrap() > 0.0, "{way:?}");
        }
    }
}
