//! `stopgap-bench arena`: pbobench of mail 000 on the arena and on mmap, in one run.
//!
//! The workload is `stopgap_events`' one, which `probe placement` carries out, too: N one-page mappings stay, then 100
//! slots are mapped, touched and unmapped at random. Rows:
//!
//! * `mmap`: of a memfd, at offsets that continue no other: a driver's buffers, a VMA each.
//! * `reuse`: [`Arena::alloc_uninit`] and [`Arena::free`], with the old contents.
//! * `reuse zeroed`: [`Arena::alloc`].
//!
//! In each row every page of what was mapped is written to. A round carries out every cell (a row at an N) once, in rotating order; a
//! cell lays its N out anew, which is not timed. Times are the thread's CPU time: what neighbours take is not in it. Ratios are of cells
//! of one round.

#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use stopgap_arena::{Arena, Backing, Config};
use stopgap_cli::{Failure, print};
use stopgap_events::memory::{MemoryEvent, Phase};
use stopgap_events::workload::Pbobench;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::{Linux, signals};
use stopgap_report::text::thousands;

use crate::common::{Bounds, Rounds, failed, middle, rounds, table, text};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Repetitions; each runs every cell once, in rotating order.
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(5..))]
    repetitions: u32,
    /// Timed steps of a cell: a map or an unmap each.
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    steps: u64,
    /// Seed of slots and sizes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Instead: from how many pages on it is cheaper to give memory back than to overwrite it.
    #[arg(long)]
    zeroing: bool,
}

/// Where the bounds against mmap are.
const N: u32 = 40_000;
/// The ends of the line that is flat.
const FEWEST: u32 = 1_000;
const MOST: u32 = 1_000_000;

/// How many times faster than mmap `reuse` is at N, at least.
const UNINIT: f64 = 50.0;
/// The same of `reuse zeroed`.
const ZEROED: f64 = 8.0;
/// The most that an operation may take beside a million buffers, over its time beside a thousand.
const GROWTH: f64 = 1.10;
/// VMAs of an arena with a million buffers are fewer.
const VMAS: usize = 100;

const BACKINGS: [Backing; 2] = [Backing::Anonymous, Backing::Memfd];

/// A way to get buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    Mmap,
    Reuse(Backing),
    Zeroed(Backing),
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Row::Mmap => "mmap",
            Row::Reuse(Backing::Anonymous) => "reuse",
            Row::Reuse(Backing::Memfd) => "reuse, memfd",
            Row::Zeroed(Backing::Anonymous) => "reuse zeroed",
            Row::Zeroed(Backing::Memfd) => "reuse zeroed, memfd",
        })
    }
}

/// All cells. mmap ends where the kernel does: at its default a process has 65,530 VMAs.
fn cells() -> Vec<(Row, u32)> {
    let mut cells = Vec::new();
    cells.extend([FEWEST, 10_000, N].map(|n| (Row::Mmap, n)));
    for backing in BACKINGS {
        for row in [Row::Reuse(backing), Row::Zeroed(backing)] {
            cells.extend([FEWEST, 10_000, N, 100_000, MOST].map(|n| (row, n)));
        }
    }
    cells
}

/// Measures and prints; status 2 where a bound is broken.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    if flags.zeroing {
        print(zeroing()?.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let cells = cells();
    let all = rounds(flags.repetitions, &[cells.len()], |_, at| {
        let (row, n) = cells[at];
        measure(row, n, flags.steps, flags.seed).map_err(failed(format_args!("{row} at {n}")))
    })?;
    if all[0].0.len() < 5 {
        return Err(Failure::error(
            "interrupted before there were five repetitions",
        ));
    }
    let (text, bounds) = judged(&cells, &all[0], flags.steps);
    print(text.trim_end())?;
    bounds.print()
}

/// Returns the table, and the bounds.
fn judged(cells: &[(Row, u32)], rounds: &Rounds<Measured>, steps: u64) -> (String, Bounds) {
    let place = |row: Row, n: u32| cells.iter().position(|cell| *cell == (row, n));
    let at = |row: Row, n: u32| place(row, n).unwrap_or(0);
    let times = |over: usize, under: usize| rounds.ratio(over, under, |cell| cell.ns);
    let rows = cells.iter().enumerate().map(|(at, &(row, n))| {
        let ratio = place(Row::Mmap, n).filter(|_| row != Row::Mmap);
        let last = rounds.side(at).last();
        let kept = last.and_then(|last| last.kept);
        vec![
            row.to_string(),
            thousands(u64::from(n)),
            rounds.estimate(at, |cell| cell.ns).shown(1, ""),
            ratio.map_or("-".to_owned(), |mmap| times(mmap, at).shown(2, "")),
            thousands(last.map_or(0, |last| last.vmas as u64)),
            kept.map_or("-".to_owned(), |kept| thousands(kept >> 10)),
        ]
    });
    let head = "row|N|ns/operation|mmap takes x times|VMAs|kept, KiB";
    let text = format!(
        "pbobench, {} steps timed in each of {} repetitions; ns of CPU time for each step, medians (95 % intervals)\n{}",
        thousands(steps),
        rounds.0.len(),
        table(head, rows),
    );
    let mut bounds = Bounds::default();
    for backing in BACKINGS {
        for (row, least) in [
            (Row::Reuse(backing), UNINIT),
            (Row::Zeroed(backing), ZEROED),
        ] {
            let faster = times(at(Row::Mmap, N), at(row, N));
            let n = thousands(u64::from(N));
            let shown = faster.shown(1, "");
            let what =
                format!("{row} at N = {n}: {shown} times faster than mmap (at least {least})");
            bounds.add(faster.value >= least, what);
            let growth = times(at(row, MOST), at(row, FEWEST));
            let (few, many) = (thousands(u64::from(FEWEST)), thousands(u64::from(MOST)));
            let shown = growth.shown(3, "");
            let what =
                format!("{row} from N = {few} to {many}: {shown} times as long (at most {GROWTH})");
            bounds.add(growth.value <= GROWTH, what);
            let vmas = rounds.side(at(row, MOST)).map(|cell| cell.vmas).max();
            let vmas = vmas.unwrap_or(usize::MAX);
            let what = format!("{row} with {many} buffers: {vmas} VMAs (fewer than {VMAS})");
            bounds.add(vmas < VMAS, what);
        }
    }
    (text, bounds)
}

/// The figures of a cell.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// CPU time of a step.
    ns: f64,
    /// Lines of /proc/self/maps more than before, with N buffers and those of the slots.
    vmas: usize,
    /// Bytes that the arena keeps at the end.
    kept: Option<u64>,
}

fn vmas() -> Result<usize, String> {
    let maps = std::fs::read("/proc/self/maps").map_err(text)?;
    Ok(maps.iter().filter(|&&byte| byte == b'\n').count())
}

/// A file in which the parts of two numbers never continue each other, as the probe has it; and their distance.
fn file(names: u64) -> Result<(OwnedFd, usize), String> {
    let page = rustix::param::page_size();
    let stride = (Pbobench::LARGEST as usize).next_multiple_of(page) + page; // 16 KiB and a page: it fits
    let fd = memfd_create("bench", MemfdFlags::CLOEXEC).map_err(text)?;
    ftruncate(&fd, names * stride as u64).map_err(text)?;
    Ok((fd, stride))
}

/// Carries out `steps` steps with `n` buffers that stay.
fn measure(row: Row, n: u32, steps: u64, seed: u64) -> Result<Measured, String> {
    let before = vmas()?;
    let load = Pbobench::new(n, steps, seed);
    let names = n as usize + Pbobench::SLOTS as usize;
    let arena = |backing| {
        let config = Config {
            backing,
            ..Config::default()
        };
        Arena::new(&config).map_err(text)
    };
    // SAFETY: what `carry_out` frees was given out by the same arena, that long, and is not used any more.
    let free = |arena: &Arena, at, length| unsafe { arena.free(at, length) }.map_err(text);
    let mut measured = match row {
        Row::Mmap => {
            let (fd, stride) = file(Pbobench::peak(n))?;
            let give = |number: usize, length| {
                let (protection, offset) =
                    (ProtFlags::READ | ProtFlags::WRITE, (number * stride) as u64);
                // SAFETY: without an address the kernel chooses one that nothing uses.
                let at = unsafe {
                    mmap(
                        ptr::null_mut(),
                        length,
                        protection,
                        MapFlags::SHARED,
                        &fd,
                        offset,
                    )
                };
                NonNull::new(at.map_err(text)?.cast()).ok_or_else(|| "mapped at 0".to_owned())
            };
            let take = |at: NonNull<u8>, length| {
                // SAFETY: mapped by `give`, that long, and not used any more.
                unsafe { munmap(at.as_ptr().cast(), length) }.map_err(text)
            };
            carry_out(&load, names, give, take, || None)?
        }
        Row::Reuse(backing) => {
            let arena = arena(backing)?;
            let give = |_, length| arena.alloc_uninit(length, 1).map_err(text);
            let kept = || Some(arena.statistics().kept);
            carry_out(
                &load,
                names,
                give,
                |at, length| free(&arena, at, length),
                kept,
            )?
        }
        Row::Zeroed(backing) => {
            let arena = arena(backing)?;
            let give = |_, length| arena.alloc(length, 1).map_err(text);
            let kept = || Some(arena.statistics().kept);
            carry_out(
                &load,
                names,
                give,
                |at, length| free(&arena, at, length),
                kept,
            )?
        }
    };
    measured.vmas = measured.vmas.saturating_sub(before);
    Ok(measured)
}

/// Carries the load out: `give` gives a buffer of a length, by its number, `take` takes it back.
fn carry_out(
    load: &Pbobench,
    names: usize,
    give: impl Fn(usize, usize) -> Result<NonNull<u8>, String>,
    take: impl Fn(NonNull<u8>, usize) -> Result<(), String>,
    kept: impl Fn() -> Option<u64>,
) -> Result<Measured, String> {
    let (mut layout, mut steady) = (Vec::new(), Vec::new());
    let mut to = &mut layout;
    for event in load.events() {
        match event {
            MemoryEvent::Begin(Phase::Steady) => to = &mut steady,
            MemoryEvent::Begin(_) => {}
            event => to.push(event),
        }
    }
    let mut live: Vec<Option<(NonNull<u8>, usize)>> = vec![None; names];
    let page = rustix::param::page_size();
    let mut apply = |events: &[MemoryEvent]| {
        for event in events {
            match *event {
                MemoryEvent::Map { id, length, .. } => {
                    let (id, length) = (id.0 as usize, length.0 as usize); // 16 KiB at most
                    live[id] = Some((give(id, length)?, length));
                }
                MemoryEvent::Touch { id } => {
                    if let Some((at, length)) = live[id.0 as usize] {
                        for offset in (0..length).step_by(page) {
                            // SAFETY: inside of what was given out, which is writable.
                            unsafe { at.as_ptr().add(offset).write_volatile(1) };
                        }
                    }
                }
                MemoryEvent::Unmap { id } => {
                    if let Some((at, length)) = live[id.0 as usize].take() {
                        take(at, length)?;
                    }
                }
                MemoryEvent::Protect { .. } | MemoryEvent::Begin(_) => {}
            }
        }
        Ok::<(), String>(())
    };
    apply(&layout)?;
    // The first steps touch what nobody touched yet: page faults, which are not what is asked about.
    let (warm, timed) = steady.split_at(steady.len() / 10);
    apply(warm)?;
    let start = Linux.thread_cpu().0;
    apply(timed)?;
    let took = Linux.thread_cpu().0 - start;
    let is_step = |event: &&MemoryEvent| !matches!(event, MemoryEvent::Touch { .. });
    let steps = timed.iter().filter(is_step).count();
    let (vmas, kept) = (vmas()?, kept());
    for (at, length) in live.into_iter().flatten() {
        take(at, length)?;
    }
    let ns = took as f64 / steps.max(1) as f64;
    Ok(Measured { ns, vmas, kept })
}

/// Returns a table: from how many pages on it is cheaper to give memory back, and take it again page by page, than to overwrite it.
fn zeroing() -> Result<String, Failure> {
    const TIMES: usize = 31;
    let page = rustix::param::page_size();
    let most = 4096 * page;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: without an address the kernel chooses one that nothing uses.
    let at = unsafe { mmap_anonymous(ptr::null_mut(), most, protection, MapFlags::PRIVATE) };
    let at = at.map_err(failed("mmap"))?;
    let rows = (0..=12).map(|shift| {
        let pages = 1_usize << shift;
        let touch = |every: usize| {
            for number in (0..pages).step_by(every) {
                // SAFETY: inside of the mapping.
                unsafe { at.cast::<u8>().add(number * page).write_volatile(1) };
            }
        };
        let time = |zero: &dyn Fn(), every: Option<usize>| {
            let once = || {
                touch(1);
                let start = Linux.thread_cpu().0;
                zero();
                every.into_iter().for_each(touch);
                (Linux.thread_cpu().0 - start) as f64 / pages as f64
            };
            format!("{:.0}", middle((0..TIMES).map(|_| once())))
        };
        // SAFETY: inside of the mapping.
        let by_hand = || unsafe { at.cast::<u8>().write_bytes(0, pages * page) };
        let by_kernel = || {
            // SAFETY: nobody needs what is in it; where it fails it takes no time, which the table shows.
            let _ = unsafe { madvise(at, pages * page, Advice::LinuxDontNeed) };
        };
        vec![
            pages.to_string(),
            time(&by_hand, Some(1)),
            time(&by_hand, None),
            time(&by_kernel, Some(1)),
            time(&by_kernel, Some(10)),
            time(&by_kernel, None),
        ]
    });
    let rows: Vec<_> = rows.collect();
    // SAFETY: mapped above, and not used any more.
    let _ = unsafe { munmap(at, most) };
    let head = "pages|overwritten: all|none|given back: all|a tenth|none";
    Ok(format!(
        "ns for each page, median of {TIMES}; then a share of the pages is written to\n{}",
        table(head, rows)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_can_be_broken() {
        // mmap takes 5,000 ns, the others as given, and beside a million buffers `growth` times as much.
        let bounds = |reuse: f64, zeroed: f64, growth: f64, vmas: usize| {
            let measured = |&(row, n): &(Row, u32)| {
                let ns = match row {
                    Row::Mmap => 5_000.0,
                    Row::Reuse(_) => reuse,
                    Row::Zeroed(_) => zeroed,
                };
                Measured {
                    ns: if n == MOST { ns * growth } else { ns },
                    vmas,
                    kept: None,
                }
            };
            let round: Vec<Measured> = cells().iter().map(measured).collect();
            judged(&cells(), &Rounds(vec![round; 5]), 1).1.hold()
        };
        assert_eq!(bounds(99.0, 620.0, 1.09, 99), [true; 12]);
        // For each backing: reuse is faster, is flat, has few VMAs; then reuse zeroed.
        for (broken, hold) in [
            (vec![0, 6], bounds(101.0, 620.0, 1.0, 9)),
            (vec![3, 9], bounds(99.0, 626.0, 1.0, 9)),
            (vec![1, 4, 7, 10], bounds(99.0, 620.0, 1.11, 9)),
            (vec![2, 5, 8, 11], bounds(99.0, 620.0, 1.0, 100)),
        ] {
            assert!(
                (0..12).all(|at| hold[at] != broken.contains(&at)),
                "{hold:?}"
            );
        }
    }

    #[test]
    fn every_row_runs() {
        for row in [
            Row::Mmap,
            Row::Reuse(Backing::Anonymous),
            Row::Zeroed(Backing::Memfd),
        ] {
            let measured = measure(row, 100, 2_000, 1).unwrap();
            assert!(measured.ns > 0.0, "{row}");
            let reuses = matches!(row, Row::Reuse(_) | Row::Zeroed(_));
            assert_eq!(measured.vmas < 100, reuses, "{row}: {}", measured.vmas);
        }
    }
}
