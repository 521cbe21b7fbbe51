//! `stopgap-bench preload-soak`: real programs with the preload library and without, each held to its own checks, and
//! their user and system time compared.
//!
//! ```text
//! cpython          on all CPUs    run | run                   through stopgap run, not timed
//!                  on one CPU     without --- - --- -- |  -- ---- -- --- | ...   CPU time of each; checks after every pair; the
//!                                 with    - --- - ---- | --- -- -- -- -- | ...   same left behind?
//! cpython-fork     ...
//! ```
//!
//! The two runs of a pair go on at the same time and share one CPU, a few milliseconds each in turn: what slows a shared
//! machine's CPU down, most of all who has the other half of its core, slows both.
//!
//! Before its pairs each program runs twice through `stopgap run --fix arena`, on all CPUs, checked and not timed: a
//! command's start is no part of what the library costs. The pairs set `LD_PRELOAD` themselves, as that command does.
//!
//! `STOPGAP_KEEP=32M` in its environment makes the fix arena-keep.
//!
//! Everything happens on this machine, in a private folder, over Unix sockets. What the library did is counted by its own
//! report (`STOPGAP_REPORT`): a run in which it was not loaded does not pass.

mod judge;
mod measure;
mod place;
mod programs;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals};
use stopgap_stats::bootstrap::Interval;
use stopgap_stats::verdict::format_interval;

use crate::common::{BROKEN, failed, folder, last_cpu, middle, own_program};
use judge::{Looks, PILOT, Pair, Word, ratio};
use place::{Fix, Place, first_missing};
use programs::{ALL, Loads, Program};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Only these programs.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = ALL.iter().map(|p| p.name).collect::<Vec<_>>())]
    only: Vec<String>,
    /// Pairs of runs of each program [default: until the interval is 1.5 % to either side, within --seconds].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: Option<u64>,
    /// No pair of a program begins later than this after its first, once it has ten (three where a run is long).
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// The library [default: libstopgap_preload.so beside this program].
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The stopgap through whose `run --fix arena` each program runs once, before it is timed [default: the one beside this
    /// program, if there is one].
    #[arg(long, value_name = "FILE")]
    stopgap: Option<PathBuf>,
    /// Both sides of a pair on all CPUs, not on one: threads run at the same time, and the ratios lie further apart.
    #[arg(long)]
    all_cpus: bool,
    /// Both sides without the library: what the comparison says where there is no difference.
    #[arg(long, conflicts_with_all = ["library", "stopgap"])]
    peers_alone: bool,
    /// Exit status 3 where a program is not installed.
    #[arg(long)]
    none_skipped: bool,
    /// The pairs' times and what each process reported, too.
    #[arg(long, short)]
    verbose: bool,
}

/// Flags of the process in the middle.
#[derive(clap::Args)]
pub(crate) struct RunFlags {
    name: String,
    folder: PathBuf,
    #[arg(long)]
    library: Option<PathBuf>,
    #[arg(long)]
    stopgap: Option<PathBuf>,
}

/// Something is not installed.
const UNSUPPORTED: u8 = 3;
/// Fewest pairs that have an interval.
const LEAST: usize = 3;
/// Runs of each program through `stopgap run`, on all CPUs.
const RUNS: u32 = 2;
/// The file that `cargo build --release -p stopgap-preload` makes.
const LIBRARY: &str = "libstopgap_preload.so";

/// The outcome of a program.
enum Outcome {
    /// It is not installed.
    Skipped(String),
    /// It fails its own checks without the library, so the library is not judged.
    PeerFails(String),
    /// It passes without the library and not with it.
    Fails(String),
    /// It passes on both sides.
    Passes {
        pairs: Vec<Pair>,
        /// Those that called it slower, where these are a second set.
        before: Option<Vec<Pair>>,
        reports: String,
    },
}

/// Runs one program once, in the process in the middle.
pub(crate) fn run_one(flags: RunFlags) -> Result<ExitCode, Failure> {
    match measure::run_below(&flags.name, &flags.folder, flags.library, flags.stopgap) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(what) => {
            print(&what)?;
            Ok(ExitCode::FAILURE)
        }
    }
}

pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let root = folder("soak")?;
    // PostgreSQL runs as another user; nobody but us may write here.
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755))
        .map_err(failed(root.path().display()))?;
    let fixes = Fixes::of(flags, root.path())?;
    if fixes.run.is_none() && !flags.peers_alone {
        tell("no stopgap beside this program: nothing runs through stopgap run");
    }
    let bar = progress_bar();
    let is_chosen =
        |program: &&Program| flags.only.is_empty() || flags.only.iter().any(|n| n == program.name);
    let chosen: Vec<&Program> = ALL.iter().filter(is_chosen).collect();
    print(&format!(
        "{:<20} {:>5} {:>8} {:>8}  {:<24} what is said (with the library over without, 95 %)",
        "program", "pairs", "s", "faults", "user + system time"
    ))?;
    let mut counts = Counts::default();
    for (at, program) in chosen.iter().enumerate() {
        bar.set_position(at as u64 * 1_000 / chosen.len() as u64);
        bar.set_message(program.name);
        let outcome = match first_missing(program.needs) {
            Some(file) => {
                let packages = program.packages;
                Outcome::Skipped(format!("{file} is not here; packages {packages}"))
            }
            None => soak(flags, program, &fixes, root.path()),
        };
        if signals::interrupted() {
            tell("interrupted: fewer programs");
            break;
        }
        let text = counts.line(program, &outcome, flags.verbose);
        bar.suspend(|| print(&text))?;
    }
    bar.finish_and_clear();
    print(&counts.text())?;
    Ok(counts.status(flags.none_skipped))
}

/// With what the programs run.
struct Fixes {
    /// In the pairs.
    preload: Fix,
    /// Once before them.
    run: Option<Fix>,
}

impl Fixes {
    /// The library is copied to where every user may read it and no build replaces it while we run.
    fn of(flags: &Flags, root: &Path) -> Result<Fixes, Failure> {
        if flags.peers_alone {
            return Ok(Fixes {
                preload: Fix::None,
                run: None,
            });
        }
        let own = own_program()?;
        let beside = |name| own.with_file_name(name);
        let library = flags.library.clone().unwrap_or_else(|| beside(LIBRARY));
        let copy = |from: &Path, name| {
            let to = root.join(name);
            fs::copy(from, &to)
                .and_then(|_| fs::set_permissions(&to, fs::Permissions::from_mode(0o755)))
                .map(|()| to)
                .map_err(|e| format!("{}: {e}", from.display()))
        };
        let library = copy(&library, LIBRARY).map_err(|what| Failure::Told {
            message: format!("{what}; cargo build --release -p stopgap-preload makes it"),
            status: UNSUPPORTED,
        })?;
        let stopgap = match &flags.stopgap {
            Some(stopgap) => Some(stopgap.clone()),
            None => Some(beside("stopgap")).filter(|path| path.exists()),
        };
        let stopgap = stopgap.map(|from| copy(&from, "stopgap")).transpose();
        let stopgap = stopgap.map_err(Failure::error)?;
        Ok(Fixes {
            run: stopgap.map(|stopgap| Fix::Run(stopgap, library.clone())),
            preload: Fix::Preload(library),
        })
    }
}

/// Pairs of runs of one program.
fn soak(flags: &Flags, program: &Program, fixes: &Fixes, root: &Path) -> Outcome {
    let folder = root.join(program.name);
    let lanes = ["a", "b"].map(|lane| folder.join(lane));
    let plain = Place::new(&lanes[0], Fix::None);
    if let Err(what) = plain.clear().and_then(|()| (program.prepare)(&plain)) {
        return Outcome::PeerFails(format!("to prepare it: {what}"));
    }
    if let Some(run) = &fixes.run {
        let place = Place::new(&lanes[0], run.clone());
        for _ in 0..RUNS {
            let [result] = measure::run(program, [&place], &[]);
            if let Err(what) = result {
                return Outcome::Fails(format!("through stopgap run --fix arena: {what}"));
            }
        }
    }
    let outcome = judged(|at_least| run_pairs(flags, program, &fixes.preload, &lanes, at_least));
    let _ = fs::remove_dir_all(&folder); // ours; hundreds of MiB in all
    outcome
}

/// Judges a program by the pairs that `measure` takes; `measure` is given the least number of them.
///
/// One that is called slower is measured again, and the second set alone decides: of sixteen programs, each called
/// slower by chance once in forty times, every third soak or so would have one.
fn judged(mut measure: impl FnMut(usize) -> Result<Measured, Outcome>) -> Outcome {
    let measured = measure(0).and_then(|first| match Word::of(ratio(&first.pairs)) {
        Word::Slower => Ok((measure(first.pairs.len().max(PILOT))?, Some(first.pairs))),
        _ => Ok((first, None)),
    });
    match measured {
        Ok((measured, before)) => Outcome::Passes {
            pairs: measured.pairs,
            before,
            reports: measured.reports,
        },
        Err(outcome) => outcome,
    }
}

/// Pairs of runs, and what the library said in the last.
struct Measured {
    pairs: Vec<Pair>,
    reports: String,
}

/// As many pairs as are wanted within the time there is, and `at_least` so many.
fn run_pairs(
    flags: &Flags,
    program: &Program,
    with: &Fix,
    lanes: &[PathBuf; 2],
    at_least: usize,
) -> Result<Measured, Outcome> {
    let cpus = match flags.all_cpus {
        true => Vec::new(),
        false => {
            let cpus = Linux
                .cpus()
                .map_err(|e| Outcome::PeerFails(e.to_string()))?;
            vec![last_cpu(None, &cpus)]
        }
    };
    let begin = Instant::now();
    let mut pairs: Vec<Pair> = Vec::new();
    let mut looks = Looks::new();
    loop {
        // Each side is as often in each folder and as often the first: what that brings helps both alike.
        let [left, right] = lanes;
        let [own, other] = match pairs.len() % 2 {
            0 => [left, right],
            _ => [right, left],
        };
        let (peer, ours) = (Place::new(own, Fix::None), Place::new(other, with.clone()));
        let (peer, ours) = match pairs.len() / 2 % 2 {
            0 => {
                let [peer, ours] = measure::run(program, [&peer, &ours], &cpus);
                (peer, ours)
            }
            _ => {
                let [ours, peer] = measure::run(program, [&ours, &peer], &cpus);
                (peer, ours)
            }
        };
        let peer = peer.map_err(Outcome::PeerFails)?;
        let ours = ours.map_err(Outcome::Fails)?;
        if peer.left != ours.left {
            let both = peer.left.iter().zip(&ours.left);
            let differ = both.filter(|(one, other)| one != other).count();
            return Err(Outcome::Fails(format!(
                "what it leaves is not the same: {} bytes and {} with the library, {differ} of them differ",
                peer.left.len(),
                ours.left.len()
            )));
        }
        pairs.push(Pair {
            with: ours.cpu,
            without: peer.cpu,
            faults: [ours.faults, peer.faults],
        });
        let suffice = looks.suffice(&pairs);
        let late = begin.elapsed() > Duration::from_secs(flags.seconds);
        // One whose runs are long does not get all of the first ten.
        let very_late = begin.elapsed() > Duration::from_secs(flags.seconds * 3);
        let enough = match flags.rounds {
            Some(rounds) => pairs.len() as u64 >= rounds,
            None => {
                pairs.len() >= at_least
                    && (suffice
                        || late && pairs.len() >= PILOT
                        || very_late && pairs.len() >= LEAST)
            }
        };
        if enough || signals::interrupted() {
            return Ok(Measured {
                pairs,
                reports: ours.reports.join("\n"),
            });
        }
    }
}

/// The verdicts on all programs together.
#[derive(Default)]
struct Counts {
    faster: Vec<&'static str>,
    unproven: Vec<&'static str>,
    slower: Vec<&'static str>,
    failed: Vec<&'static str>,
    peers_failed: Vec<&'static str>,
    skipped: Vec<&'static str>,
    passed: usize,
}

impl Counts {
    /// The line of a program.
    fn line(&mut self, program: &Program, outcome: &Outcome, verbose: bool) -> String {
        let name = program.name;
        let (pairs, before, reports) = match outcome {
            Outcome::Skipped(why) => {
                self.skipped.push(name);
                return format!("skipped: {name}: {why}");
            }
            Outcome::PeerFails(what) => {
                self.peers_failed.push(name);
                return format!("{name:<20} fails without the library: {what}");
            }
            Outcome::Fails(what) => {
                self.failed.push(name);
                return format!("{name:<20} FAILS with the library: {what}");
            }
            Outcome::Passes {
                pairs,
                before,
                reports,
            } => (pairs, before, reports),
        };
        self.passed += 1;
        let interval = ratio(pairs);
        let word = Word::of(interval);
        match word {
            Word::Faster => self.faster.push(name),
            Word::Within => {}
            Word::NotProven => self.unproven.push(name),
            Word::Slower => self.slower.push(name),
        }
        let seconds = middle(pairs.iter().map(|pair| pair.without));
        let figure = |interval: Option<Interval>| {
            interval.map_or_else(
                || "too few pairs".to_owned(),
                |i| format_interval(i.value, i.low, i.high, "x"),
            )
        };
        let faults = middle(pairs.iter().map(Pair::faults_ratio));
        let mut text = format!(
            "{name:<20} {:>5} {seconds:>8.2} {faults:>7.3}x  {:<24} {word}",
            pairs.len(),
            figure(interval)
        );
        if let Some(before) = before {
            text += &format!(
                "; run again: {} pairs before these said {}",
                before.len(),
                figure(ratio(before))
            );
        }
        if program.loads == Loads::Static {
            text += "; static: passes through, the library is not loaded (stopgap run says so)";
        }
        if let Some(remark) = (program.remark)() {
            text += &format!("; {remark}");
        }
        if verbose {
            for pair in pairs {
                let [with, without] = pair.faults;
                text += &format!(
                    "\n    {:.3} s and {with} faults with, {:.3} s and {without} without",
                    pair.with, pair.without
                );
            }
            for line in reports.lines() {
                text += &format!("\n    {line}");
            }
        }
        text
    }

    fn text(&self) -> String {
        let list = |names: &[&str]| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        let mut lines = vec![
            format!("pass their own checks on both sides: {}", self.passed),
            format!("measurably faster: {}", list(&self.faster)),
            format!("more than 3 % slower: {}", list(&self.slower)),
            format!("not proven within 3 %: {}", list(&self.unproven)),
        ];
        for (what, names) in [
            ("fail with the library", &self.failed),
            ("fail without the library", &self.peers_failed),
            ("skipped", &self.skipped),
        ] {
            if !names.is_empty() {
                lines.push(format!("{what}: {}", list(names)));
            }
        }
        lines.join("\n")
    }

    fn status(&self, none_skipped: bool) -> ExitCode {
        if !self.failed.is_empty() || !self.slower.is_empty() {
            return ExitCode::from(BROKEN);
        }
        if !self.peers_failed.is_empty() {
            return ExitCode::FAILURE;
        }
        if none_skipped && !self.skipped.is_empty() {
            return ExitCode::from(UNSUPPORTED);
        }
        ExitCode::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratio: f64) -> Outcome {
        let pair = |noise: f64| Pair {
            with: ratio + noise,
            without: 1.0,
            faults: [10, 20],
        };
        passes([0.0, 0.001, -0.001, 0.002, 0.0].map(pair).to_vec())
    }

    fn passes(pairs: Vec<Pair>) -> Outcome {
        Outcome::Passes {
            pairs,
            before: None,
            reports: String::new(),
        }
    }

    #[test]
    fn the_status_says_what_became_of_them() {
        let of = |outcomes: &[Outcome], none_skipped| {
            let mut counts = Counts::default();
            for (program, outcome) in ALL.iter().zip(outcomes) {
                counts.line(program, outcome, true);
            }
            format!("{:?}", counts.status(none_skipped))
        };
        let status = |code: u8| format!("{:?}", ExitCode::from(code));
        let skipped = || Outcome::Skipped("gone".into());
        assert_eq!(of(&[pairs(1.0), pairs(0.5)], true), status(0));
        assert_eq!(of(&[pairs(1.0), skipped()], false), status(0));
        assert_eq!(of(&[pairs(1.0), skipped()], true), status(3));
        assert_eq!(of(&[pairs(1.1), skipped()], true), status(2));
        assert_eq!(
            of(&[Outcome::PeerFails("x".into()), pairs(1.0)], false),
            status(1)
        );
        assert_eq!(
            of(
                &[Outcome::Fails("x".into()), Outcome::PeerFails("x".into())],
                false
            ),
            status(2)
        );
        // Nothing is proven by two pairs, and nothing is broken.
        assert_eq!(
            of(
                &[passes(vec![
                    Pair {
                        with: 9.0,
                        without: 1.0,
                        faults: [0; 2]
                    };
                    2
                ])],
                true
            ),
            status(0)
        );
    }

    /// Judges sets of pairs with these ratios; returns how many sets were measured, and the line.
    fn judged_of(sets: &[f64]) -> (usize, String) {
        let mut wanted = Vec::new();
        let outcome = judged(|at_least| {
            let Outcome::Passes { pairs, .. } = pairs(sets[wanted.len()]) else {
                unreachable!()
            };
            wanted.push(at_least);
            Ok(Measured {
                pairs,
                reports: String::new(),
            })
        });
        assert!(wanted.iter().skip(1).all(|&at_least| at_least >= PILOT));
        let text = Counts::default().line(&ALL[0], &outcome, false);
        (wanted.len(), text)
    }

    #[test]
    fn slower_is_said_where_a_second_set_says_it_too() {
        let (sets, text) = judged_of(&[1.0]);
        assert!(sets == 1 && text.ends_with("within 3 %"), "{text}");
        let (sets, text) = judged_of(&[1.2, 1.0]);
        assert!(
            sets == 2 && text.contains("within 3 %; run again: 5 pairs before these said 1.2"),
            "{text}"
        );
        let (sets, text) = judged_of(&[1.2, 1.1]);
        assert!(
            sets == 2 && text.contains("more than 3 % slower; run again: 5 pairs"),
            "{text}"
        );
    }

    #[test]
    fn each_program_is_found_by_its_name_and_there_once() {
        let mut names: Vec<&str> = ALL.iter().map(|program| program.name).collect();
        assert!(names.iter().all(|name| programs::named(name).is_some()));
        assert!(programs::named("no such program").is_none());
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
