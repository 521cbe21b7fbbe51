//! One run of a program, in a process of its own, and what all its processes took.
//!
//! ```text
//! preload-soak  ->  preload-soak-run NAME  ->  the program  ->  its children, their children ...
//!                   reaper of all below        the library from here on
//! ```
//!
//! The kernel adds a child's user and system time to its parent's when the parent waits for it. The process in the middle
//! is the reaper of all below it (`PR_SET_CHILD_SUBREAPER`): those that lost their parent become its children, and it
//! waits until there are none. What wait4(2) then says of it is the whole tree's time. Not in it is a child that a parent
//! chose not to wait for (`SIGCHLD` ignored); both sides miss the same there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
use stopgap_events::units::Nanos;
use stopgap_kernel::linux::{Child, Conditions, Held};
use stopgap_kernel::signals;

use super::place::{Fix, Place, failed, read};
use super::programs::{Loads, Program, named};

/// No run takes longer than this.
const LONGEST: Nanos = Nanos::secs(240);
/// How long what a program left behind may go on.
const LEFT_BEHIND: Duration = Duration::from_secs(10);
/// How a line of the library's report begins.
const REPORTS: &str = "stopgap-preload:";

/// The cost of a run, and its results.
#[derive(Debug)]
pub(super) struct Run {
    /// User and system time of all its processes, in seconds.
    pub(super) cpu: f64,
    /// Page faults of theirs that needed no disk.
    pub(super) faults: u64,
    /// The library's own reports, a line a process.
    pub(super) reports: Vec<String>,
    /// Results that must be the same on both sides.
    pub(super) left: Vec<u8>,
}

/// Runs it at every place at once, the first started first, on these CPUs alone (empty: on all of ours); checks each.
///
/// # Errors
/// For each place a sentence: what the run or its check found wrong.
pub(super) fn run<const N: usize>(
    program: &Program,
    places: [&Place; N],
    cpus: &[u32],
) -> [Result<Run, String>; N] {
    // Step by step, each for all: they start together, and nothing is checked while one still runs.
    places
        .map(|place| (place, hold(program, place, cpus)))
        .map(|(place, held)| {
            (
                place,
                held.and_then(|held| held.release().map_err(|e| e.to_string())),
            )
        })
        .map(|(place, child)| (place, child.and_then(|child| timed(place, &child))))
        .map(|(place, took)| checked(program, place, took?))
}

/// A run that has ended, `took` so many seconds of CPU time and page faults, checked.
fn checked(program: &Program, place: &Place, took: (f64, u64)) -> Result<Run, String> {
    let reports = read(&place.report())?;
    let reports = reports.lines().filter(|line| line.starts_with(REPORTS));
    let reports: Vec<String> = reports.map(str::to_owned).collect();
    loaded(program.loads, &place.fix, reports.len())?;
    Ok(Run {
        cpu: took.0,
        faults: took.1,
        reports,
        left: (program.check)(place)?,
    })
}

/// Whether the library was there and only there where it should be.
fn loaded(loads: Loads, fix: &Fix, reports: usize) -> Result<(), String> {
    match (fix, loads, reports) {
        (Fix::None, _, 0) | (_, Loads::Static, 0) => Ok(()),
        (Fix::None, _, count) => Err(format!(
            "{count} processes report the library that should not have it"
        )),
        (_, Loads::Static, count) => Err(format!(
            "it is static, and yet {count} processes report the library"
        )),
        (_, Loads::Yes, 0) => Err("no process reports the library: it was not loaded".to_owned()),
        (_, Loads::Yes, _) => Ok(()),
    }
}

/// The process in the middle, before its first instruction.
fn hold(program: &Program, place: &Place, cpus: &[u32]) -> Result<Held, String> {
    place.clear()?;
    let output = fs::File::create(said(place)).map_err(failed(said(place)))?;
    let own = std::env::current_exe().map_err(failed("the path of this program"))?;
    let mut words: Vec<OsString> = vec![own.into(), "preload-soak-run".into(), program.name.into()];
    words.push(place.folder.clone().into());
    let (library, stopgap) = match &place.fix {
        Fix::None => (None, None),
        Fix::Preload(library) => (Some(library), None),
        Fix::Run(stopgap, library) => (Some(library), Some(stopgap)),
    };
    for (flag, path) in [("--library", library), ("--stopgap", stopgap)] {
        words.extend(path.into_iter().flat_map(|path| [flag.into(), path.into()]));
    }
    let conditions = Conditions {
        cpus: cpus.to_vec(),
        output: Some(output.into()),
        dies_by: Some(Signal::KILL),
        group: true,
        ..Conditions::default()
    };
    Held::start_under(&words, &conditions).map_err(|e| e.to_string())
}

/// Returns the file with the output of the process in the middle.
fn said(place: &Place) -> PathBuf {
    place.folder.join("said")
}

/// Waits for it; the time of the tree, and its page faults.
///
/// # Errors
/// The fault that the run found, in words.
fn timed(place: &Place, child: &Child) -> Result<(f64, u64), String> {
    let ended = wait_for(child)?;
    let cpu = (ended.user_time.0 + ended.system_time.0) as f64 / 1e9;
    if ended.how == Ok(0) {
        return Ok((cpu, ended.minor_faults));
    }
    let text = read(&said(place))?;
    Err(match (text.trim(), ended.how) {
        ("", Ok(status)) => format!("the run ended with status {status} and says nothing"),
        ("", Err(signal)) => format!("the run was killed by signal {signal}"),
        (text, _) => text.to_owned(),
    })
}

fn wait_for(child: &Child) -> Result<stopgap_kernel::linux::Ended, String> {
    let begin = Instant::now();
    let why = loop {
        if child.watched().ends_within(Nanos::millis(200)) {
            break None;
        }
        if signals::interrupted() {
            break Some("interrupted");
        }
        if begin.elapsed() > Duration::from_nanos(LONGEST.0) {
            break Some("it takes longer than 240 s");
        }
    };
    match why {
        None => child
            .ended()
            .map_err(|e| e.to_string())?
            .ok_or_else(|| "it has not ended".to_owned()),
        Some(why) => {
            // SIGTERM has the process in the middle end what is below it; see `run_below`.
            child.end(Nanos::secs(15)).map_err(|e| e.to_string())?;
            Err(why.to_owned())
        }
    }
}

/// The process in the middle: runs the program, says on standard output what is wrong, waits for all below.
pub(super) fn run_below(
    name: &str,
    folder: &Path,
    library: Option<PathBuf>,
    stopgap: Option<PathBuf>,
) -> Result<(), String> {
    signals::install();
    set_child_subreaper(Some(rustix::process::getpid())).map_err(|e| format!("prctl: {e}"))?;
    let program = named(name).ok_or_else(|| format!("no program {name}"))?;
    let fix = match (library, stopgap) {
        (None, _) => Fix::None,
        (Some(library), None) => Fix::Preload(library),
        (Some(library), Some(stopgap)) => Fix::Run(stopgap, library),
    };
    let result = (program.run)(&Place::new(folder, fix));
    let left = wait_for_all();
    result.and(left)
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

/// Our children, and what they are called.
fn children() -> Vec<(Pid, String)> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let child = |entry: fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read(entry.path().join("stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat).into_owned();
        // PID (NAME) STATE PPID: the name may hold blanks and parentheses.
        let (before, after) = stat.rsplit_once(')')?;
        let parent = after.split_ascii_whitespace().nth(1)?;
        let name = before.split_once('(')?.1.to_owned();
        (parent == own).then_some(())?;
        Some((Pid::from_raw(pid)?, name))
    };
    entries.filter_map(child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_was_not_loaded_is_not_passed_over() {
        let with = Fix::Preload("x".into());
        assert!(loaded(Loads::Yes, &with, 1).is_ok());
        assert!(
            loaded(Loads::Yes, &with, 0)
                .unwrap_err()
                .contains("not loaded")
        );
        assert!(loaded(Loads::Static, &with, 0).is_ok());
        assert!(loaded(Loads::Static, &with, 1).is_err());
        assert!(loaded(Loads::Yes, &Fix::None, 0).is_ok());
        assert!(loaded(Loads::Yes, &Fix::None, 2).is_err());
    }

    #[test]
    fn our_children_are_found_by_their_parent() {
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let own = Pid::from_raw(child.id().cast_signed()).unwrap();
        // Until its exec it is called as this thread is.
        let begin = Instant::now();
        while !children().contains(&(own, "sleep".to_owned())) {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "{:?}",
                children()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().iter().any(|(pid, _)| *pid == own));
    }
}
