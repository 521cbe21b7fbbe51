//! `stopgap-bench arena`: pbobench of mail 000 on the arena and on mmap, in one run.
//!
//! The workload is `stopgap_events`' one, which `probe placement` carries out, too: N one-page mappings stay, then 100
//! slots are mapped, touched and unmapped at random. Rows:
//!
//! * `mmap`: of a memfd, at offsets that continue no other: a driver's buffers, a VMA each.
//! * `map_fd`: the same parts of the same file, at addresses of the arena's window.
//! * `reuse`: [`Arena::alloc_uninit`] and [`Arena::free`], whatever was there.
//! * `reuse zeroed`: [`Arena::alloc`].
//!
//! In each row every page of what was mapped is written to. A repetition carries out every cell (a row at an N) once, in
//! rotating order; a cell lays its N out anew, which is not timed. Times are the thread's CPU time: what neighbours take is
//! not in it. Ratios are of cells of one repetition.

#![allow(unsafe_code)]

mod rows;
mod zeroing;

use std::process::ExitCode;

use stopgap_arena::Backing;
use stopgap_cli::{Failure, progress_bar, tell};
use stopgap_kernel::signals;
use stopgap_report::text::thousands;
use stopgap_stats::bootstrap::{Interval, over_runs};
use stopgap_stats::quantile::median;

use rows::{Measured, Row};

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

/// A bound is broken.
const BROKEN: u8 = 2;
/// Where the bounds against mmap are.
const N: u32 = 40_000;
/// The ends of the line that is flat.
const FEWEST: u32 = 1_000;
const MOST: u32 = 1_000_000;

/// How many times faster than mmap `reuse` is at N, at least.
const UNINIT: f64 = 50.0;
/// The same of `reuse zeroed`.
const ZEROED: f64 = 8.0;
/// What an operation may take at the most, of what it takes at the fewest.
const GROWTH: f64 = 1.10;
/// VMAs of an arena with a million buffers are fewer.
const VMAS: usize = 100;

const BACKINGS: [Backing; 2] = [Backing::Anonymous, Backing::Memfd];

/// A row at an N.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    row: Row,
    n: u32,
}

/// All cells. mmap and map_fd end where the kernel does: at its default a process has 65,530 VMAs.
fn cells() -> Vec<Cell> {
    let kernel = [Row::Mmap, Row::MapFd]
        .into_iter()
        .flat_map(|row| [FEWEST, 10_000, N].map(|n| Cell { row, n }));
    let rows = BACKINGS.map(|backing| [Row::Reuse(backing), Row::Zeroed(backing)]);
    let reuse = rows
        .into_iter()
        .flatten()
        .flat_map(|row| [FEWEST, 10_000, N, 100_000, MOST].map(|n| Cell { row, n }));
    kernel.chain(reuse).collect()
}

/// Measures and prints; status 2 where a bound is broken.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    if flags.zeroing {
        print!("{}", zeroing::measure()?);
        return Ok(ExitCode::SUCCESS);
    }
    let cells = cells();
    let bar = progress_bar();
    let mut repetitions: Vec<Vec<Measured>> = Vec::new();
    'all: for repetition in 0..flags.repetitions as usize {
        let mut measured = vec![None; cells.len()];
        for at in 0..cells.len() {
            if signals::interrupted() {
                tell("interrupted: fewer repetitions");
                break 'all;
            }
            let done = repetition * cells.len() + at;
            bar.set_position(
                1_000 * done as u64 / (u64::from(flags.repetitions) * cells.len() as u64),
            );
            let at = (at + repetition * 7) % cells.len();
            let Cell { row, n } = cells[at];
            let cell = rows::measure(row, n, flags.steps, flags.seed);
            measured[at] =
                Some(cell.map_err(|error| Failure::error(format!("{row} at {n}: {error}")))?);
        }
        repetitions.push(measured.into_iter().flatten().collect());
    }
    bar.finish_and_clear();
    let Some((text, good)) = table(&cells, &repetitions, flags.steps) else {
        return Err(Failure::error(
            "interrupted before there were five repetitions",
        ));
    };
    print!("{text}");
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BROKEN)
    })
}

/// A figure of repetitions, with its 95 % interval.
fn interval(repetitions: &[Vec<Measured>], of: impl Fn(&[Measured]) -> f64) -> Option<Interval> {
    let figures: Vec<f64> = repetitions.iter().map(|all| of(all)).collect();
    over_runs(&figures, 1, |figures| {
        median(figures.iter().map(|figure| **figure).collect::<Vec<f64>>())
    })
}

fn of(interval: Interval, digits: usize) -> String {
    let Interval { value, low, high } = interval;
    format!("{value:.digits$} ({low:.digits$}..{high:.digits$})")
}

/// What is printed, and whether every bound holds; `None` with too few repetitions.
fn table(cells: &[Cell], repetitions: &[Vec<Measured>], steps: u64) -> Option<(String, bool)> {
    let find = |row: Row, n: u32| cells.iter().position(|cell| *cell == Cell { row, n });
    let mut text = format!(
        "pbobench, {} steps timed in each of {} repetitions; ns of CPU time for each step, medians (95 % intervals)\n\
         {:<22} {:>9} {:>24} {:>20} {:>9} {:>12}\n",
        thousands(steps),
        repetitions.len(),
        "row",
        "N",
        "ns/operation",
        "mmap takes x times",
        "VMAs",
        "kept, KiB",
    );
    for (at, cell) in cells.iter().enumerate() {
        let ns = interval(repetitions, |all| all[at].ns)?;
        let ratio = match find(Row::Mmap, cell.n) {
            Some(mmap) if cell.row != Row::Mmap => {
                of(interval(repetitions, |all| all[mmap].ns / all[at].ns)?, 2)
            }
            _ => "-".to_owned(),
        };
        let last = repetitions.last()?.get(at)?;
        text += &format!(
            "{:<22} {:>9} {:>24} {:>20} {:>9} {:>12}\n",
            cell.row.to_string(),
            thousands(u64::from(cell.n)),
            of(ns, 1),
            ratio,
            thousands(last.vmas as u64),
            last.kept
                .map_or("-".to_owned(), |kept| thousands(kept >> 10)),
        );
    }
    let mut good = true;
    let mut say = |what: String, holds: bool| {
        good &= holds;
        text += &format!(
            "{what}: {}\n",
            if holds { "holds" } else { "does not hold" }
        );
    };
    let mmap = find(Row::Mmap, N)?;
    for backing in BACKINGS {
        for (row, least) in [
            (Row::Reuse(backing), UNINIT),
            (Row::Zeroed(backing), ZEROED),
        ] {
            let at = find(row, N)?;
            let times = interval(repetitions, |all| all[mmap].ns / all[at].ns)?;
            let what = format!(
                "{row} at N = {}: {} times faster than mmap, at least {least}",
                thousands(u64::from(N)),
                of(times, 1)
            );
            say(what, times.value >= least);
        }
        for row in [Row::Reuse(backing), Row::Zeroed(backing)] {
            let (few, many) = (find(row, FEWEST)?, find(row, MOST)?);
            let growth = interval(repetitions, |all| all[many].ns / all[few].ns)?;
            let what = format!(
                "{row} from N = {} to {}: {} times as long, at most {GROWTH}",
                thousands(u64::from(FEWEST)),
                thousands(u64::from(MOST)),
                of(growth, 3)
            );
            say(what, growth.value <= GROWTH);
            let most = repetitions.iter().map(|all| all[many].vmas).max()?;
            let what = format!(
                "{row} with {} buffers: {most} VMAs, fewer than {VMAS}",
                thousands(u64::from(MOST))
            );
            say(what, most < VMAS);
        }
    }
    let at = find(Row::MapFd, N)?;
    let times = interval(repetitions, |all| all[at].ns / all[mmap].ns)?;
    text += &format!(
        "map_fd at N = {}: takes {} times what mmap takes: {}\n",
        thousands(u64::from(N)),
        of(times, 2),
        if times.low > 1.0 {
            "use mmap, unless the address matters"
        } else if times.high < 1.0 {
            "use it"
        } else {
            "no difference proven"
        }
    );
    Some((text, good))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mmap takes 5,000 ns, reuse as much as is said, and at the most buffers `growth` as much.
    fn all(reuse: f64, zeroed: f64, growth: f64, vmas: usize) -> Vec<Measured> {
        let ns = |cell: &Cell| {
            let ns = match cell.row {
                Row::Mmap => 5_000.0,
                Row::MapFd => 7_000.0,
                Row::Reuse(_) => reuse,
                Row::Zeroed(_) => zeroed,
            };
            if cell.n == MOST { ns * growth } else { ns }
        };
        let measured = |cell: &Cell| Measured {
            ns: ns(cell),
            vmas,
            kept: None,
        };
        cells().iter().map(measured).collect()
    }

    #[test]
    fn every_bound_can_be_broken() {
        let judged = |cell: Vec<Measured>| table(&cells(), &vec![cell; 5], 1).unwrap();
        let (text, good) = judged(all(99.0, 620.0, 1.09, 99));
        assert!(good, "{text}");
        assert!(text.contains("use mmap, unless"), "{text}");
        for (reuse, zeroed, growth, vmas) in [
            (101.0, 620.0, 1.0, 9),
            (99.0, 626.0, 1.0, 9),
            (99.0, 620.0, 1.11, 9),
            (99.0, 620.0, 1.0, 100),
        ] {
            let (text, good) = judged(all(reuse, zeroed, growth, vmas));
            assert!(!good, "{text}");
            assert!(text.contains("does not hold"));
        }
        assert!(table(&cells(), &vec![all(1.0, 1.0, 1.0, 1); 2], 1).is_none());
    }

    #[test]
    fn every_row_runs() {
        for row in [
            Row::Mmap,
            Row::MapFd,
            Row::Reuse(Backing::Anonymous),
            Row::Zeroed(Backing::Memfd),
        ] {
            let measured = rows::measure(row, 100, 2_000, 1).unwrap();
            assert!(measured.ns > 0.0, "{row}");
            let reuses = matches!(row, Row::Reuse(_) | Row::Zeroed(_));
            assert_eq!(measured.vmas < 100, reuses, "{row}: {}", measured.vmas);
        }
    }
}
