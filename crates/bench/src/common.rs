//! What the commands share: rounds of runs and their medians, bounds, tables, programs, folders, and children.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Serialize, de::DeserializeOwned};
use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_events::machine::Privilege;
use stopgap_events::memory::Protection;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_explain::{Explainer, Findings};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::{Ended, Held};
use stopgap_kernel::memory::{MapKind, MapRequest, Mapping, Memory};
use stopgap_kernel::tasks::{ChildLimits, Tasks};
use stopgap_kernel::{Linux, signals, swap};
use stopgap_probes::Context;
use stopgap_report::table::{Style, Table};
use stopgap_stats::bootstrap::{Interval, median_over_runs};
use stopgap_stats::quantile::median;
use stopgap_trace::Event;
use stopgap_tracer::capture::{self, Capture};
use stopgap_tracer::spool::{End, Spool};
use stopgap_tracer::symbols::Symbols;

/// Exit status where a bound is broken.
pub(crate) const BROKEN: u8 = 2;
/// Exit status where the machine was too busy for an answer.
pub(crate) const INCONCLUSIVE: u8 = 4;
/// Seed of the resampling: the same runs always give the same interval.
const SEED: u64 = 1;

/// Threads of a simulation.
const THREADS: u32 = 2;

/// Carries out the simulations 0, 1, ... in several threads, until Ctrl-C, and adds their tallies up. Counts them in `done`; `told` is
/// called from this thread now and then.
pub(crate) fn simulated<T: Default + Send>(
    simulations: u32,
    done: &AtomicU32,
    one: impl Fn(u32, &mut T) + Sync,
    add: impl Fn(&mut T, T),
    told: impl Fn(),
) -> T {
    let part = |first: u32| {
        let mut tally = T::default();
        for number in (first..simulations).step_by(THREADS as usize) {
            if signals::interrupted() {
                break;
            }
            one(number, &mut tally);
            done.fetch_add(1, Ordering::Relaxed);
        }
        tally
    };
    std::thread::scope(|scope| {
        let part = &part;
        let threads: Vec<_> = (0..THREADS)
            .map(|first| scope.spawn(move || part(first)))
            .collect();
        while !threads
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
        {
            std::thread::sleep(Duration::from_millis(100));
            told();
        }
        let mut tally = T::default();
        for thread in threads {
            // A panic has been printed already; this one only passes it on.
            let other = thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            add(&mut tally, other);
        }
        tally
    })
}

/// Returns what makes an error of a function a failure, with `what` it was about.
pub(crate) fn failed<E: Display>(what: impl Display) -> impl FnOnce(E) -> Failure {
    move |error| Failure::error(format!("{what}: {error}"))
}

/// Makes a text of an error, where no failure can leave a child.
#[allow(clippy::needless_pass_by_value)] // as `map_err` hands it over
pub(crate) fn text(error: impl Display) -> String {
    error.to_string()
}

/// Rounds in each of which every side ran once.
pub(crate) struct Rounds<T>(pub(crate) Vec<Vec<T>>);

/// Runs each side of each group once a round. The order of a group's sides rotates from round to round. Ctrl-C ends it early; a
/// round that is not whole is dropped.
///
/// # Errors
/// Of `run`, which is given group and side; and where Ctrl-C came before the first round.
pub(crate) fn rounds<T>(
    count: u32,
    groups: &[usize],
    mut run: impl FnMut(usize, usize) -> Result<T, Failure>,
) -> Result<Vec<Rounds<T>>, Failure> {
    let bar = progress_bar();
    let mut all: Vec<Rounds<T>> = groups.iter().map(|_| Rounds(Vec::new())).collect();
    'all: for round in 0..count {
        for (group, &sides) in groups.iter().enumerate() {
            let done = u64::from(round) * groups.len() as u64 + group as u64;
            bar.set_position(done * 1_000 / (u64::from(count) * groups.len() as u64));
            let mut runs: Vec<Option<T>> = (0..sides).map(|_| None).collect();
            for step in 0..sides {
                let side = (step + round as usize) % sides;
                if signals::interrupted() {
                    break 'all;
                }
                match run(group, side) {
                    Ok(run) => runs[side] = Some(run),
                    Err(_) if signals::interrupted() => break 'all, // Ctrl-C ends children, too
                    Err(failure) => return Err(failure),
                }
            }
            all[group].0.push(runs.into_iter().flatten().collect());
        }
    }
    bar.finish_and_clear();
    if all.iter().all(|rounds| rounds.0.is_empty()) {
        return Err(Failure::error("interrupted before anything was measured"));
    }
    if signals::interrupted() {
        tell("interrupted: fewer runs");
    }
    Ok(all)
}

impl<T> Rounds<T> {
    /// The runs of a side.
    pub(crate) fn side(&self, side: usize) -> impl Iterator<Item = &T> {
        self.0.iter().map(move |runs| &runs[side])
    }

    /// Returns the median of a figure over the runs of a side; NaN of none.
    pub(crate) fn median(&self, side: usize, figure: impl Fn(&T) -> f64) -> f64 {
        middle(self.side(side).map(figure))
    }

    /// Returns the median of a figure over the runs of a side, with its interval.
    pub(crate) fn estimate(&self, side: usize, figure: impl Fn(&T) -> f64) -> Ratio {
        Ratio::over(&self.side(side).map(figure).collect::<Vec<f64>>())
    }

    /// Returns the median, over rounds, of a side's figure over that of another.
    pub(crate) fn ratio(&self, over: usize, under: usize, figure: impl Fn(&T) -> f64) -> Ratio {
        let ratios = self
            .0
            .iter()
            .map(|runs| figure(&runs[over]) / figure(&runs[under]));
        Ratio::over(&ratios.collect::<Vec<f64>>())
    }
}

/// Returns the median; NaN of nothing.
pub(crate) fn middle(values: impl IntoIterator<Item = f64>) -> f64 {
    median(values.into_iter().collect()).unwrap_or(f64::NAN)
}

/// A median, and its 95 % interval over runs; `None` with fewer than three.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) value: f64,
    pub(crate) interval: Option<Interval>,
}

impl Ratio {
    pub(crate) fn over(figures: &[f64]) -> Ratio {
        Ratio {
            value: middle(figures.iter().copied()),
            interval: median_over_runs(figures, SEED),
        }
    }

    /// Returns `1.50x (1.42..1.58)` with so many digits and this unit.
    pub(crate) fn shown(&self, digits: usize, unit: &str) -> String {
        let value = format!("{:.digits$}{unit}", self.value);
        match self.interval {
            Some(i) => format!("{value} ({:.digits$}..{:.digits$})", i.low, i.high),
            None => value,
        }
    }
}

/// Conditions that a command must find, and whether they hold.
#[derive(Debug, Default)]
pub(crate) struct Bounds(Vec<(bool, String)>);

impl Bounds {
    pub(crate) fn add(&mut self, holds: bool, text: impl Into<String>) {
        self.0.push((holds, text.into()));
    }

    /// Adds a bound on a figure. An unknown figure breaks it.
    pub(crate) fn at_most(&mut self, what: impl Display, value: f64, most: f64) {
        let shown = if value.is_nan() {
            "unknown".to_owned()
        } else {
            format!("{value:.3}")
        };
        self.add(value <= most, format!("{what}: {shown} (at most {most})"));
    }

    #[cfg(test)]
    pub(crate) fn hold(&self) -> Vec<bool> {
        self.0.iter().map(|(holds, _)| *holds).collect()
    }

    /// Prints a line for each; status 2 where one is broken.
    pub(crate) fn print(&self) -> Result<ExitCode, Failure> {
        for (holds, text) in &self.0 {
            let word = if *holds { "holds " } else { "BROKEN" };
            print(&format!("{word}  {text}"))?;
        }
        Ok(verdict(self.0.iter().all(|(holds, _)| *holds)))
    }
}

/// Returns status 0, or 2 where something does not hold.
pub(crate) fn verdict(holds: bool) -> ExitCode {
    ExitCode::from(if holds { 0 } else { BROKEN })
}

/// Returns a table below a head as `row|N|ns`. A column is right-aligned where each cell below its head begins as a number does.
pub(crate) fn table(head: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().collect();
    let is_number =
        |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || "+-?".contains(c));
    let heads = head.split('|').enumerate().map(|(at, name)| {
        let right = rows.iter().all(|row| is_number(&row[at]));
        format!("{}{name}", if right { ">" } else { "" })
    });
    let mut table = Table::with_heads(heads);
    table.rows = rows;
    let (width, colour) = (u16::MAX, false);
    table.text(Style {
        width,
        colour,
        verbose: false,
    })
}

/// Returns a figure with so many digits, `-` where it is unknown.
pub(crate) fn figure(value: f64, digits: usize) -> String {
    if value.is_nan() {
        "-".to_owned()
    } else {
        format!("{value:.digits$}")
    }
}

/// Returns the path of this program.
pub(crate) fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(failed("the path of this program"))
}

/// The `stopgap` to run.
#[derive(clap::Args)]
pub(crate) struct Stopgap {
    /// The program [default: stopgap beside this one].
    #[arg(long, value_name = "FILE")]
    stopgap: Option<PathBuf>,
}

impl Stopgap {
    pub(crate) fn program(&self) -> Result<PathBuf, Failure> {
        let program = match &self.stopgap {
            Some(named) => named.clone(),
            None => own_program()?.with_file_name("stopgap"),
        };
        program.canonicalize().map_err(|error| {
            let program = program.display();
            Failure::error(format!(
                "{program}: {error}; build it (cargo build --release) or name it with --stopgap"
            ))
        })
    }
}

/// Makes a private folder under the temporary directory. Dropped, it is removed.
pub(crate) fn folder(name: &str) -> Result<tempfile::TempDir, Failure> {
    let folder = tempfile::Builder::new()
        .prefix(&format!("stopgap-{name}."))
        .tempdir();
    folder.map_err(failed("a private folder"))
}

/// Returns the CPU that was asked for, else the last that we may use: the first has most of the interrupts.
pub(crate) fn last_cpu(asked: Option<u32>, cpus: &[u32]) -> u32 {
    asked.or(cpus.last().copied()).unwrap_or(0)
}

/// Returns the journal of this process, after what killed runs left was put back. After this, Ctrl-C raises a flag.
pub(crate) fn journal() -> Result<Journal<'static>, Failure> {
    signals::install();
    let folder = stopgap_cli::journal(None)?;
    stopgap_cli::put_back(&Linux, &folder);
    Ok(Journal::new(&Linux, &folder))
}

/// Carries `work` out and puts back what it changed through the journal. It prints what could not be put back, and that fails the
/// command.
pub(crate) fn in_scope<T>(
    journal: &Journal<'_>,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let scope = journal.scope();
    let done = work();
    let left = scope.undo();
    for error in &left {
        tell(&format!("not put back: {error}; try: stopgap restore"));
    }
    if done.is_ok() && !left.is_empty() {
        return Err(Failure::error("not everything was put back"));
    }
    done
}

/// Returns the context of a probe that runs as root.
pub(crate) fn context<'a>(
    journal: &'a Journal<'a>,
    scratch: &'a Path,
    budget: Bytes,
    time: Nanos,
    seed: u64,
) -> Context<'a> {
    Context {
        system: &Linux,
        journal,
        budget,
        time,
        seed,
        privilege: Privilege::Root,
        scratch,
        progress: &|_, _| {},
        interrupted: &signals::interrupted,
    }
}

/// Makes a swap file in `folder` where there is less swap than `least`.
pub(crate) fn swap_file(journal: &Journal<'_>, folder: &Path, least: Bytes) -> Result<(), Failure> {
    if swap::in_use(&Linux)?.1 < least {
        let path = folder.join(format!("stopgap-{}-swap", Linux.pid()));
        swap::make(&Linux, journal, &path, least)?;
    }
    Ok(())
}

/// Enters a cgroup.
pub(crate) fn enter(group: &Path) -> Result<(), Failure> {
    let file = group.join("cgroup.procs");
    std::fs::write(&file, Linux.pid().to_string()).map_err(failed(file.display()))
}

/// Maps private memory.
pub(crate) fn map(length: Bytes, align: Bytes) -> stopgap_kernel::Result<Mapping> {
    Linux.map(&MapRequest {
        length,
        protection: Protection::Write,
        kind: MapKind::Anonymous,
        align,
    })
}

/// Carries `body` out in a child, and returns what it returned there.
pub(crate) fn in_child<T: Serialize + DeserializeOwned>(
    limits: &ChildLimits,
    body: impl Fn() -> Result<T, String>,
) -> Result<T, Failure> {
    let mut body = || serde_json::to_vec(&body()).unwrap_or_default();
    let sent = Linux.run_child(limits, &mut body)?.output;
    let result: Result<T, String> =
        serde_json::from_slice(&sent).map_err(failed("what the child sent"))?;
    result.map_err(Failure::error)
}

/// Records a command from its first instruction to its end, at most `limit`; `prepared` is called before it begins.
pub(crate) fn recorded(
    journal: &Journal<'_>,
    options: &capture::Options,
    words: &[OsString],
    limit: Nanos,
    prepared: impl FnOnce() -> Result<(), Failure>,
) -> Result<(Spool, Ended), Failure> {
    let mut capture = Capture::prepare(&Linux, journal, options)?;
    prepared()?;
    let held = Held::start(words)?;
    capture.start(held.pid())?;
    let child = held.release()?;
    let deadline = Linux.now() + limit;
    let ended = loop {
        capture.pump(Some(child.watched()), Nanos::millis(100))?; // as `stopgap record`
        if let Some(ended) = child.ended()? {
            break ended;
        }
        if Linux.now() > deadline {
            return Err(Failure::error("what is recorded does not end"));
        }
    };
    let spool = capture.stop(End::default())?;
    succeeded(&ended)?;
    Ok((spool, ended))
}

/// Fails where a child did not end with status 0.
pub(crate) fn succeeded(ended: &Ended) -> Result<(), Failure> {
    match ended.how {
        Ok(0) => Ok(()),
        _ if signals::interrupted() => Err(Failure::error("interrupted")),
        Ok(status) => Err(Failure::error(format!("it ended with status {status}"))),
        Err(signal) => Err(Failure::error(format!("it was killed by signal {signal}"))),
    }
}

/// Explains a recording; `each` is given every event.
pub(crate) fn explained(
    spool: &Spool,
    symbols: &Symbols,
    mut each: impl FnMut(&Event),
) -> Result<Findings, Failure> {
    let mut trace = spool.trace(symbols)?;
    let options = stopgap_explain::Options {
        top: 1,
        frame_marker: None,
        request: None,
    };
    let mut explainer = Explainer::new(&trace.metadata(), options);
    while let Some(event) = trace.next_event()? {
        each(&event);
        explainer.row(event);
    }
    Ok(explainer.finish())
}

/// Waits for a child's end, at most so long.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, Failure> {
    let handle =
        pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(failed("pidfd_open"))?;
    let end = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now()));
        let left = left.map_err(failed("a time limit"))?;
        let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left));
        if let Some(status) = child.try_wait().map_err(failed("wait"))? {
            return Ok(Some(status));
        }
        if ended == Ok(0) {
            return Ok(None);
        }
    }
}

/// A child of ours. Dropped, it is killed.
pub(crate) struct Guarded(pub(crate) Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
