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

mod programs;

use std::fmt;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_events::units::Nanos;
use stopgap_kernel::linux::{Child, Conditions, Held};
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals};
use stopgap_stats::bootstrap::{Interval, over_runs};
use stopgap_stats::quantile::median;
use stopgap_stats::verdict::format_interval;

use crate::common::{BROKEN, failed, folder, last_cpu, middle, own_program, text};
pub(crate) use programs::Place;
use programs::{ALL, Program};

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

/// Something is not installed.
const UNSUPPORTED: u8 = 3;
/// A program with the library may take so many times its peer's CPU time.
const BOUND: f64 = 1.03;
/// Fewest pairs that have an interval.
const LEAST: usize = 3;
/// Pairs before the width of the interval is looked at.
const PILOT: usize = 10;
/// Half an interval that tells the bound from no difference, with as much room on both sides.
const WANTED: f64 = 0.015;
/// Seed of the resampling.
const SEED: u64 = 1;
/// Runs of each program through `stopgap run`, on all CPUs.
const RUNS: u32 = 2;
/// No run takes longer than this.
const LONGEST: Duration = Duration::from_secs(240);
/// How long what a program left behind may go on.
const LEFT_BEHIND: Duration = Duration::from_secs(10);
/// The file that `cargo build --release -p stopgap-preload` makes.
const LIBRARY: &str = "libstopgap_preload.so";

/// The verdict on a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// The whole interval lies below 1.
    Faster,
    /// The whole interval lies at or below the bound.
    Within,
    /// The interval holds the bound.
    NotProven,
    /// The whole interval lies above the bound.
    Slower,
    /// It passes its own checks without the library and not with it.
    Fails,
    /// It fails them without the library, so the library is not judged.
    PeerFails,
    /// It is not installed.
    Skipped,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Word::Faster => "faster",
            Word::Within => "within 3 %",
            Word::NotProven => "not proven within 3 %",
            Word::Slower => "more than 3 % slower",
            Word::Fails => "FAILS with the library",
            Word::PeerFails => "fails without the library",
            Word::Skipped => "skipped",
        })
    }
}

/// The pairs of a program that passes on both sides.
struct Passes {
    pairs: Vec<Pair>,
    /// Those that called it slower, where these are a second set.
    before: Option<Vec<Pair>>,
    /// The library's own reports of its last run, a line a process.
    reports: Vec<String>,
}

/// Why there are no pairs.
type Fault = (Word, String);

/// Runs one program once, in the process in the middle. It is the reaper of all below it, waits until there are none, and says on
/// standard output what is wrong.
pub(crate) fn run_one(place: &Place) -> Result<ExitCode, Failure> {
    signals::install();
    set_child_subreaper(Some(rustix::process::getpid())).map_err(failed("prctl"))?;
    let ran = place.step("run");
    let left = wait_for_all();
    match ran.and(left) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(what) => print(&what).map(|()| ExitCode::FAILURE),
    }
}

pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let root = folder("soak")?;
    // PostgreSQL runs as another user; nobody but us may write here.
    fs::set_permissions(root.path(), Permissions::from_mode(0o755))
        .map_err(failed(root.path().display()))?;
    let (library, stopgap) = fixes(flags, root.path())?;
    if stopgap.is_none() && !flags.peers_alone {
        tell("no stopgap beside this program: nothing runs through stopgap run");
    }
    let bar = progress_bar();
    let is_chosen =
        |program: &&Program| flags.only.is_empty() || flags.only.iter().any(|n| n == program.name);
    let chosen: Vec<&Program> = ALL.iter().filter(is_chosen).collect();
    print(&format!(
        "{:<20} {:>5} {:>8} {:>8}  {:<24} verdict (with the library over without, 95 %)",
        "program", "pairs", "s", "faults", "user + system time"
    ))?;
    let mut said = Vec::new();
    for (at, program) in chosen.iter().enumerate() {
        bar.set_position(at as u64 * 1_000 / chosen.len() as u64);
        bar.set_message(program.name);
        let place = Place {
            name: program.name.to_owned(),
            folder: root.path().join(program.name).join("a"),
            library: library.clone(),
            stopgap: stopgap.clone(),
        };
        let outcome = match program.missing() {
            Some(file) => {
                let packages = program.packages;
                let why = format!("{file} is not here; packages {packages}");
                Err((Word::Skipped, why))
            }
            None => soak(flags, &place),
        };
        if signals::interrupted() {
            tell("interrupted: fewer programs");
            break;
        }
        let remark = place.step("remark").unwrap_or_default();
        let remark = String::from_utf8_lossy(&remark);
        let (word, line) = line(program, &outcome, remark.trim(), flags.verbose);
        said.push((program.name, word));
        bar.suspend(|| print(&line))?;
        let _ = fs::remove_dir_all(root.path().join(program.name)); // ours; hundreds of MiB in all
    }
    bar.finish_and_clear();
    print(&summary(&said))?;
    Ok(status(&said, flags.none_skipped))
}

/// Returns the library and the `stopgap` to run with, copied to where every user may read them and no build replaces them while we run.
fn fixes(flags: &Flags, root: &Path) -> Result<(Option<PathBuf>, Option<PathBuf>), Failure> {
    if flags.peers_alone {
        return Ok((None, None));
    }
    let own = own_program()?;
    let beside = |name| own.with_file_name(name);
    let copy = |from: &Path, name| {
        let to = root.join(name);
        fs::copy(from, &to)
            .and_then(|_| fs::set_permissions(&to, Permissions::from_mode(0o755)))
            .map(|()| to)
            .map_err(|e| format!("{}: {e}", from.display()))
    };
    let library = flags.library.clone().unwrap_or_else(|| beside(LIBRARY));
    let library = copy(&library, LIBRARY).map_err(|what| Failure::Told {
        message: format!("{what}; cargo build --release -p stopgap-preload makes it"),
        status: UNSUPPORTED,
    })?;
    let usual = Some(beside("stopgap")).filter(|path| path.exists());
    let stopgap = flags.stopgap.clone().or(usual);
    let stopgap = stopgap.map(|from| copy(&from, "stopgap")).transpose();
    Ok((Some(library), stopgap.map_err(Failure::error)?))
}

/// Pairs of runs of one program; `place` has all that it may run with.
fn soak(flags: &Flags, place: &Place) -> Result<Passes, Fault> {
    let peer = |folder: &Path| Place {
        folder: folder.to_owned(),
        library: None,
        stopgap: None,
        ..place.clone()
    };
    let plain = peer(&place.folder);
    let prepared = plain.clear().and_then(|()| plain.step("prepare"));
    prepared.map_err(|what| (Word::PeerFails, format!("to prepare it: {what}")))?;
    if place.stopgap.is_some() {
        for _ in 0..RUNS {
            let [result] = run_at([place], &[]);
            let told = |what| format!("through stopgap run --fix arena: {what}");
            result.map_err(|what| (Word::Fails, told(what)))?;
        }
    }
    let cpus = match flags.all_cpus {
        true => Vec::new(),
        false => {
            let cpus = Linux.cpus().map_err(|e| (Word::PeerFails, e.to_string()))?;
            vec![last_cpu(None, &cpus)]
        }
    };
    let folders = [place.folder.clone(), place.folder.with_file_name("b")];
    let mut reports = Vec::new();
    // Each side is as often in each folder and as often the first: what that brings helps both alike.
    let pair = |number: usize| {
        let peer = peer(&folders[number % 2]);
        let ours = Place {
            folder: folders[(number + 1) % 2].clone(),
            stopgap: None,
            ..place.clone()
        };
        let is_turned = number / 2 % 2 == 1;
        let mut both = run_at(
            if is_turned {
                [&ours, &peer]
            } else {
                [&peer, &ours]
            },
            &cpus,
        );
        if is_turned {
            both.swap(0, 1);
        }
        let [peer, ours] = both;
        let peer = peer.map_err(|what| (Word::PeerFails, what))?;
        let ours = ours.map_err(|what| (Word::Fails, what))?;
        if peer.left != ours.left {
            let both = peer.left.iter().zip(&ours.left);
            let differ = both.filter(|(one, other)| one != other).count();
            let what = format!(
                "what it leaves is not the same: {} bytes and {} with the library, {differ} of them differ",
                peer.left.len(),
                ours.left.len()
            );
            return Err((Word::Fails, what));
        }
        reports = ours.reports;
        Ok(Pair {
            with: ours.cpu,
            without: peer.cpu,
            faults: [ours.faults, peer.faults],
        })
    };
    let (pairs, before) = judged(flags, pair)?;
    Ok(Passes {
        pairs,
        before,
        reports,
    })
}

/// Takes pairs until they suffice. A program that is called slower is measured again, and the second set alone decides: of sixteen
/// programs, each called slower by chance once in forty times, every third soak or so would have one.
fn judged(
    flags: &Flags,
    mut pair: impl FnMut(usize) -> Result<Pair, Fault>,
) -> Result<(Vec<Pair>, Option<Vec<Pair>>), Fault> {
    let first = pairs(flags, 0, &mut pair)?;
    if Word::of(ratio(&first)) != Word::Slower {
        return Ok((first, None));
    }
    let second = pairs(flags, first.len().max(PILOT), &mut pair)?;
    Ok((second, Some(first)))
}

/// As many pairs as are wanted within the time there is, and `at_least` so many.
fn pairs(
    flags: &Flags,
    at_least: usize,
    pair: &mut impl FnMut(usize) -> Result<Pair, Fault>,
) -> Result<Vec<Pair>, Fault> {
    let begin = Instant::now();
    let mut pairs = Vec::new();
    let mut looks = Looks { next: PILOT };
    loop {
        pairs.push(pair(pairs.len())?);
        let suffice = looks.suffice(&pairs);
        let late = |times| begin.elapsed() > Duration::from_secs(flags.seconds * times);
        let enough = match flags.rounds {
            Some(rounds) => pairs.len() as u64 >= rounds,
            // One whose runs are long does not get all of the first ten.
            None => {
                pairs.len() >= at_least
                    && (suffice
                        || late(1) && pairs.len() >= PILOT
                        || late(3) && pairs.len() >= LEAST)
            }
        };
        if enough || signals::interrupted() {
            return Ok(pairs);
        }
    }
}

/// Returns the verdict on a program, and its line.
fn line(
    program: &Program,
    outcome: &Result<Passes, Fault>,
    remark: &str,
    verbose: bool,
) -> (Word, String) {
    let name = program.name;
    let passes = match outcome {
        Err((Word::Skipped, why)) => return (Word::Skipped, format!("skipped: {name}: {why}")),
        Err((word, what)) => return (*word, format!("{name:<20} {word}: {what}")),
        Ok(passes) => passes,
    };
    let pairs = &passes.pairs;
    let interval = ratio(pairs);
    let word = Word::of(interval);
    let figure = |interval: Option<Interval>| match interval {
        Some(i) => format_interval(i.value, i.low, i.high, "x"),
        None => "too few pairs".to_owned(),
    };
    let faults = pairs
        .iter()
        .map(|pair| pair.faults[0] as f64 / pair.faults[1] as f64);
    let mut text = format!(
        "{name:<20} {:>5} {:>8.2} {:>7.3}x  {:<24} {word}",
        pairs.len(),
        middle(pairs.iter().map(|pair| pair.without)),
        middle(faults),
        figure(interval)
    );
    if let Some(before) = &passes.before {
        let (count, said) = (before.len(), figure(ratio(before)));
        text += &format!("; run again: {count} pairs before these said {said}");
    }
    if program.is_static {
        text += "; static: passes through, the library is not loaded (stopgap run says so)";
    }
    if !remark.is_empty() {
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
        for line in &passes.reports {
            text += &format!("\n    {line}");
        }
    }
    (word, text)
}

/// Returns the names of the programs that have one of these words as verdict.
fn names(said: &[(&'static str, Word)], words: &[Word]) -> Vec<&'static str> {
    let said = said.iter().filter(|(_, word)| words.contains(word));
    said.map(|(name, _)| *name).collect()
}

/// Returns the verdicts on all programs together.
fn summary(said: &[(&'static str, Word)]) -> String {
    let passed = [Word::Faster, Word::Within, Word::NotProven, Word::Slower];
    let passed = names(said, &passed).len();
    let mut text = format!("pass their own checks on both sides: {passed}");
    for (what, word, always) in [
        ("measurably faster", Word::Faster, true),
        ("more than 3 % slower", Word::Slower, true),
        ("not proven within 3 %", Word::NotProven, true),
        ("fail with the library", Word::Fails, false),
        ("fail without the library", Word::PeerFails, false),
        ("skipped", Word::Skipped, false),
    ] {
        let names = names(said, &[word]);
        if always || !names.is_empty() {
            let names = if names.is_empty() {
                vec!["none"]
            } else {
                names
            };
            text += &format!("\n{what}: {}", names.join(", "));
        }
    }
    text
}

fn status(said: &[(&'static str, Word)], none_skipped: bool) -> ExitCode {
    let any = |words: &[Word]| !names(said, words).is_empty();
    ExitCode::from(if any(&[Word::Fails, Word::Slower]) {
        BROKEN
    } else if any(&[Word::PeerFails]) {
        1
    } else if none_skipped && any(&[Word::Skipped]) {
        UNSUPPORTED
    } else {
        0
    })
}

// The ratio of a program's CPU time with the library to that without.
//
// A *pair* is a run with the library and one without, side by side on one CPU: what slows a shared machine down is in both. We take the
// Hodges-Lehmann estimate of the logarithms of the pairs' ratios (Hodges and Lehmann, *Estimates of Location Based on Rank Tests*,
// 1963): the median of the means of all two of them, each with itself too. A neighbour's burst in one pair moves it as little as
// a median, and it needs hardly more pairs than a mean. Its interval is the bootstrap over pairs of stopgap-stats.
//
// How many pairs: until the interval's half is `WANTED` or less. Its width is looked at and never where it lies, so that no look at
// a ratio decides when to stop; and seldom, each time with a quarter more pairs.

/// User and system time of a pair, in seconds, and minor page faults, with the library first.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pair {
    with: f64,
    without: f64,
    faults: [u64; 2],
}

impl Word {
    fn of(interval: Option<Interval>) -> Word {
        match interval {
            Some(interval) if interval.low > BOUND => Word::Slower,
            Some(interval) if interval.high < 1.0 => Word::Faster,
            Some(interval) if interval.high <= BOUND => Word::Within,
            _ => Word::NotProven,
        }
    }
}

/// Time with the library over time without, and its 95 % interval; `None` with fewer than three pairs, and where a time is 0.
fn ratio(pairs: &[Pair]) -> Option<Interval> {
    let logs: Vec<f64> = pairs
        .iter()
        .map(|pair| (pair.with / pair.without).ln())
        .collect();
    let Interval { value, low, high } = over_runs(&logs, SEED, hodges_lehmann)?;
    let [value, low, high] = [value, low, high].map(f64::exp);
    Some(Interval { value, low, high })
}

/// The median of the means of every two, each with itself too; `None` of nothing.
fn hodges_lehmann(values: &[&f64]) -> Option<f64> {
    let others = |at: usize| {
        values[at..]
            .iter()
            .map(move |other| f64::midpoint(**other, *values[at]))
    };
    median((0..values.len()).flat_map(others).collect())
}

/// When the width of the interval is looked at.
struct Looks {
    next: usize,
}

impl Looks {
    /// Whether this is a look, and it finds the interval narrow enough.
    fn suffice(&mut self, pairs: &[Pair]) -> bool {
        if pairs.len() < self.next {
            return false;
        }
        self.next = pairs.len() + (pairs.len() / 4).max(1);
        ratio(pairs).is_some_and(|interval| (interval.high / interval.low).ln() <= 2.0 * WANTED)
    }
}

// One run of a program, in a process of its own, and what all its processes took.
//
//     preload-soak  ->  preload-soak-run NAME  ->  sh  ->  the program  ->  its children, their children ...
//                       reaper of all below                the library from here on
//
// The kernel adds a child's user and system time to its parent's when the parent waits for it. The process in the middle is the reaper
// of all below it (`PR_SET_CHILD_SUBREAPER`): those that lost their parent become its children, and it waits until there are none.
// What wait4(2) then says of it is the whole tree's time. Not in it is a child that a parent chose not to wait for (`SIGCHLD`
// ignored); both sides miss the same there.

/// The cost of a run, and its results.
#[derive(Debug)]
struct Run {
    /// User and system time of all its processes, in seconds.
    cpu: f64,
    /// Page faults of theirs that needed no disk.
    faults: u64,
    /// The library's own reports, a line a process.
    reports: Vec<String>,
    /// Results that must be the same on both sides.
    left: Vec<u8>,
}

/// Runs the program at every place at once, the first started first, on these CPUs alone (empty: on all of ours); checks each.
///
/// # Errors
/// For each place a sentence: what the run or its check found wrong.
fn run_at<const N: usize>(places: [&Place; N], cpus: &[u32]) -> [Result<Run, String>; N] {
    // Step by step, each for all: they start together, and nothing is checked while one still runs.
    places
        .map(|place| (place, hold(place, cpus)))
        .map(|(place, held)| (place, held.and_then(|held| held.release().map_err(text))))
        .map(|(place, child)| (place, child.and_then(|child| timed(place, &child))))
        .map(|(place, took)| {
            let (cpu, faults) = took?;
            let reports = fs::read_to_string(place.report()).map_err(text)?;
            let reports = reports
                .lines()
                .filter(|line| line.starts_with("stopgap-preload:"));
            let reports: Vec<String> = reports.map(str::to_owned).collect();
            loaded(
                place.program()?.is_static,
                place.library.is_some(),
                reports.len(),
            )?;
            Ok(Run {
                cpu,
                faults,
                reports,
                left: place.step("check")?,
            })
        })
}

/// Whether the library was there and only there where it should be.
fn loaded(is_static: bool, with: bool, reports: usize) -> Result<(), String> {
    match (with, is_static, reports) {
        (false, _, 0) | (true, true, 0) => Ok(()),
        (false, _, count) => Err(format!(
            "{count} processes report the library that should not have it"
        )),
        (true, true, count) => Err(format!(
            "it is static, and yet {count} processes report the library"
        )),
        (true, false, 0) => Err("no process reports the library: it was not loaded".to_owned()),
        (true, false, _) => Ok(()),
    }
}

/// The file with the output of the process in the middle.
fn said(place: &Place) -> PathBuf {
    place.folder.join("said")
}

/// The process in the middle, before its first instruction.
fn hold(place: &Place, cpus: &[u32]) -> Result<Held, String> {
    place.clear()?;
    let output = File::create(said(place)).map_err(text)?;
    let own = std::env::current_exe().map_err(text)?;
    let mut words = vec![
        own.into(),
        "preload-soak-run".into(),
        place.name.clone().into(),
    ];
    words.push(place.folder.clone().into());
    for (flag, path) in [("--library", &place.library), ("--stopgap", &place.stopgap)] {
        words.extend(path.iter().flat_map(|path| [flag.into(), path.into()]));
    }
    let conditions = Conditions {
        cpus: cpus.to_vec(),
        output: Some(output.into()),
        dies_by: Some(Signal::KILL),
        group: true,
        ..Conditions::default()
    };
    Held::start_under(&words, &conditions).map_err(text)
}

/// Waits for it; the time of the tree, and its page faults.
///
/// # Errors
/// The fault that the run found, in words.
fn timed(place: &Place, child: &Child) -> Result<(f64, u64), String> {
    let begin = Instant::now();
    while !child.watched().ends_within(Nanos::millis(200)) {
        let why = match signals::interrupted() {
            true => "interrupted",
            false if begin.elapsed() > LONGEST => "it takes longer than 240 s",
            false => continue,
        };
        // SIGTERM has the process in the middle end what is below it.
        child.end(Nanos::secs(15)).map_err(text)?;
        return Err(why.to_owned());
    }
    let ended = child.ended().map_err(text)?.ok_or("it has not ended")?;
    if ended.how == Ok(0) {
        let cpu = (ended.user_time.0 + ended.system_time.0) as f64 / 1e9;
        return Ok((cpu, ended.minor_faults));
    }
    let told = fs::read_to_string(said(place)).map_err(text)?;
    Err(match (told.trim(), ended.how) {
        ("", Ok(status)) => format!("the run ended with status {status} and says nothing"),
        ("", Err(signal)) => format!("the run was killed by signal {signal}"),
        (told, _) => told.to_owned(),
    })
}

/// Waits until there is no child left; ends those that do not end.
fn wait_for_all() -> Result<(), String> {
    let begin = Instant::now();
    let mut told = Vec::new();
    loop {
        match wait(WaitOptions::NOHANG) {
            Err(_) => break, // ECHILD: none is left
            Ok(Some(_)) => continue,
            Ok(None) => {}
        }
        if begin.elapsed() > LEFT_BEHIND || signals::interrupted() {
            for (pid, name) in children() {
                let _ = kill_process(pid, Signal::KILL); // it may have ended just now
                told.push(name);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    told.sort();
    told.dedup();
    match told.is_empty() {
        true => Ok(()),
        false => Err(format!("left behind and killed: {}", told.join(", "))),
    }
}

/// This thread's children, and what they are called.
fn children() -> Vec<(Pid, String)> {
    let pids = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let child = |pid: &str| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some((
            Pid::from_raw(pid.parse().ok()?)?,
            name.trim_end().to_owned(),
        ))
    };
    pids.split_whitespace().filter_map(child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::random::Random;

    fn with_ratios(ratios: &[f64]) -> Vec<Pair> {
        let of = |ratio: &f64| Pair {
            with: 2.0 * ratio,
            without: 2.0,
            faults: [0; 2],
        };
        ratios.iter().map(of).collect()
    }

    #[test]
    fn the_estimate_is_the_median_of_the_means_of_two() {
        let by_hand = |values: &[f64]| hodges_lehmann(&values.iter().collect::<Vec<_>>());
        assert_eq!(by_hand(&[]), None);
        assert_eq!(by_hand(&[3.0]), Some(3.0));
        // 1, 1.5, 2, 5.5, 6, 10 -> between 2 and 5.5.
        assert_eq!(by_hand(&[1.0, 2.0, 10.0]), Some(3.75));
        // Nine and a burst: 0 stays.
        assert_eq!(
            by_hand(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0]),
            Some(0.0)
        );
    }

    #[test]
    fn words_are_said_where_the_whole_interval_says_so() {
        let word = |ratios: &[f64]| Word::of(ratio(&with_ratios(ratios)));
        assert_eq!(word(&[1.10, 1.11, 1.09, 1.10, 1.12]), Word::Slower);
        assert_eq!(word(&[1.035, 1.01, 1.06, 1.02, 1.05]), Word::NotProven);
        assert_eq!(word(&[1.001, 1.0, 1.002, 0.999, 1.001]), Word::Within);
        assert_eq!(word(&[0.80, 0.81, 0.79, 0.82, 0.80]), Word::Faster);
        // Too few pairs, or no time at all, prove nothing.
        assert_eq!(word(&[1.5, 1.5]), Word::NotProven);
        assert_eq!(word(&[f64::NAN; 5]), Word::NotProven);
        assert_eq!(word(&[0.0; 5]), Word::NotProven);
    }

    /// Seeds 0..2000: of pairs without any difference hardly any are called slower, of pairs 10 % apart hardly any are not.
    #[test]
    fn a_false_word_is_rare() {
        let slower = |shift: f64| {
            let count = |seed: u64| {
                let mut random = Random::new(seed);
                // The sum of four uniform ones: a spread of 3 %.
                let mut noise = || {
                    let sum: u64 = (0..4).map(|_| random.below(10_000)).sum();
                    let centred = sum as f64 / 20_000.0 - 1.0;
                    centred * 0.03 / 0.2887
                };
                let ratios: Vec<f64> = (0..8).map(|_| shift * (1.0 + noise())).collect();
                usize::from(Word::of(ratio(&with_ratios(&ratios))) == Word::Slower)
            };
            (0..200).map(count).sum::<usize>()
        };
        let (false_ones, at_the_bound, true_ones) = (slower(1.0), slower(BOUND), slower(1.10));
        assert_eq!(false_ones, 0);
        assert!(at_the_bound <= 14, "{at_the_bound} of 200, 2.5 % promised");
        assert!(true_ones >= 190, "{true_ones} of 200");
    }

    /// How many pairs it takes of a series of ratios, which begins again at its end; `None`: more than there are (200).
    fn taken(series: &[f64]) -> Option<usize> {
        let mut looks = Looks { next: PILOT };
        let all = with_ratios(&series.repeat(200 / series.len()));
        (1..=all.len()).find(|&n| looks.suffice(&all[..n]))
    }

    #[test]
    fn more_pairs_are_made_where_pairs_lie_apart_and_where_the_ratio_lies_is_nothing() {
        let near = [0.999, 1.0, 1.001, 1.0, 1.0005];
        let apart = [0.97, 1.0, 1.03, 1.015, 0.985];
        for shift in [0.5, 1.0, 1.03, 2.0] {
            let of = |series: &[f64]| taken(&series.iter().map(|r| r * shift).collect::<Vec<_>>());
            assert_eq!(of(&near), Some(PILOT), "{shift}");
            let more = of(&apart).unwrap();
            assert!((PILOT..=40).contains(&more), "{shift}: {more}");
            let wide = of(&[0.5, 1.0, 2.0, 1.5, 0.7]);
            assert!(wide.is_none_or(|n| n > 100), "{shift}: {wide:?}");
        }
        // Without an interval there is nothing to stop for.
        assert_eq!(taken(&[f64::NAN]), None);
    }

    fn passes(ratio: f64) -> Result<Passes, Fault> {
        Ok(Passes {
            pairs: with_ratios(&[0.0, 0.001, -0.001, 0.002, 0.0].map(|noise| ratio + noise)),
            before: None,
            reports: Vec::new(),
        })
    }

    #[test]
    fn the_status_says_what_became_of_them() {
        let fails = |word| Err((word, "x".to_owned()));
        for (outcomes, none_skipped, wanted) in [
            ([passes(1.0), passes(0.5)], true, 0),
            ([passes(1.0), fails(Word::Skipped)], false, 0),
            ([passes(1.0), fails(Word::Skipped)], true, 3),
            ([passes(1.1), fails(Word::Skipped)], true, 2),
            ([fails(Word::PeerFails), passes(1.0)], false, 1),
            ([fails(Word::Fails), fails(Word::PeerFails)], false, 2),
        ] {
            let outcomes = ALL.iter().zip(&outcomes);
            let said: Vec<_> = outcomes
                .map(|(program, outcome)| (program.name, line(program, outcome, "", true).0))
                .collect();
            let found = format!("{:?}", status(&said, none_skipped));
            assert_eq!(found, format!("{:?}", ExitCode::from(wanted)), "{said:?}");
        }
    }

    #[test]
    fn slower_is_said_where_a_second_set_says_it_too() {
        #[derive(clap::Parser)]
        struct Parsed {
            #[command(flatten)]
            flags: Flags,
        }
        let flags = |words: &[&str]| <Parsed as clap::Parser>::parse_from(words).flags;
        for (sets, wanted) in [
            (&[1.0][..], "within 3 %"),
            (
                &[1.2, 1.0],
                "within 3 %; run again: 10 pairs before these said 1.2",
            ),
            (
                &[1.2, 1.1],
                "more than 3 % slower; run again: 10 pairs before these said 1.2",
            ),
        ] {
            let mut made = 0;
            let pair = |number: usize| {
                made += usize::from(number == 0);
                let noise = [0.0, 0.001, -0.001, 0.002][number % 4];
                Ok(with_ratios(&[sets[made - 1] + noise])[0])
            };
            let (pairs, before) = judged(&flags(&["x"]), pair).unwrap();
            assert!(made == sets.len() && pairs.len() >= PILOT, "{sets:?}");
            let passes = Passes {
                pairs,
                before,
                reports: Vec::new(),
            };
            let (_, text) = line(&ALL[0], &Ok(passes), "", false);
            assert!(text.contains(wanted), "{text}");
        }
    }

    #[test]
    fn each_program_is_there_once_and_its_script_is_sound() {
        let mut names: Vec<&str> = ALL.iter().map(|program| program.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let place = Place {
                name: name.to_owned(),
                folder: folder.path().join(name).join("a"),
                library: None,
                stopgap: None,
            };
            place.clear().unwrap();
            assert_eq!(place.step(":"), Ok(Vec::new()), "{name}");
            let error = place.step("fail 1 2").unwrap_err();
            assert_eq!(error, "exit status: 1: 1 2", "{name}");
        }
    }

    #[test]
    fn a_library_that_was_not_loaded_is_not_passed_over() {
        for (is_static, with, reports, wanted) in [
            (false, true, 1, true),
            (false, true, 0, false),
            (true, true, 0, true),
            (true, true, 1, false),
            (false, false, 0, true),
            (false, false, 2, false),
        ] {
            let found = loaded(is_static, with, reports).is_ok();
            assert_eq!(found, wanted, "{is_static} {with} {reports}");
        }
    }

    #[test]
    fn our_children_are_found_by_their_parent() {
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let own = Pid::from_raw(child.id().cast_signed()).unwrap();
        // Until its exec it is called as this thread is.
        while !children().contains(&(own, "sleep".to_owned())) {
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().iter().any(|(pid, _)| *pid == own));
    }
}
