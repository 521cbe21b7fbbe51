//! Two commands, run in turn and measured; what of it is design is in `stopgap_stats::gather`.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create};
use stopgap_events::random::Random;
use stopgap_events::units::Nanos;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::linux::{Conditions, Ended, Held};
use stopgap_kernel::{Linux, environment, signals};
use stopgap_stats::document::Document;
use stopgap_stats::gather::{Gathered, Label, Measured, SCHEMA, floor_runs, order};

use crate::failure::Failure;
use crate::progress::progress_bar;
use crate::session::tell;
use crate::{output, session};

/// How often it is looked at whether to stop, and whether a command prints without end.
const STEP: Nanos = Nanos::millis(100);

/// How long a command that is asked to end may take.
const PATIENCE: Nanos = Nanos::secs(2);

/// Most bytes of a command's output that are kept; an error shows fewer.
const KEPT: u64 = 4 << 20;
const SHOWN_LINES: usize = 5;
const SHOWN_CHARS: usize = 500;

/// Two commands, the earlier side's first.
#[derive(Clone, Copy)]
pub(crate) struct Commands<'a> {
    /// For `sh -c`.
    pub(crate) lines: [&'a str; 2],
    /// Which are under `SCHED_BATCH`.
    pub(crate) batch: [bool; 2],
}

/// Runs both commands, `n` runs each, after the noise floor of the first; keeps the runs in a file in `directory`, where there is one. Ctrl-C
/// ends it with what was measured.
pub(crate) fn gather(
    commands: &Commands<'_>,
    n: u32,
    seed: u64,
    directory: Option<&Path>,
) -> Result<(Gathered, Option<PathBuf>), Failure> {
    signals::install();
    let [before, after] = commands.lines;
    let mut gathered = Gathered {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: session::command(),
        started_unix_s: Linux.unix_seconds(),
        seed,
        planned: n,
        interrupted: false,
        environment: environment::read(&Linux),
        before: before.to_owned(),
        after: after.to_owned(),
        floor: Vec::new(),
        runs: Vec::new(),
    };
    let mut random = Random::new(seed);
    let floor = order(floor_runs(n), &mut random);
    let runs = order(n, &mut random);
    let shell = Shell::new()?;
    // Caches are filled and mistakes found before anything counts.
    let mut first = [Nanos(0); 2];
    for (side, took) in first.iter_mut().enumerate() {
        match shell.run(commands.lines[side], commands.batch[side])? {
            Some(run) => *took = run.elapsed,
            None => return Err(Failure::error("interrupted before the first run")),
        }
    }
    let [a, b] = first.map(|took| took.0);
    let all = (floor.len() as u64 * a).saturating_add(u64::from(n) * a.saturating_add(b));
    tell(&format!(
        "{} runs, about {}: the first command against itself ({} runs), then both ({} runs); seed {seed}",
        floor.len() + runs.len(),
        roughly(Nanos(all)),
        floor.len(),
        runs.len()
    ));
    let mut progress = Progress::new(floor.len() + runs.len());
    let mut stage = |order: &[(u32, Label)], itself: bool, into: &mut Vec<Measured>| {
        for &(block, label) in order {
            let side = usize::from(label == Label::After && !itself);
            match shell.run(commands.lines[side], commands.batch[side])? {
                Some(run) => into.push(run.measured(label, block)),
                None => return Ok(false),
            }
            progress.step();
        }
        Ok(true)
    };
    let ended = match stage(&floor, true, &mut gathered.floor) {
        Ok(true) => stage(&runs, false, &mut gathered.runs),
        other => other,
    };
    progress.bar.finish_and_clear();
    gathered.interrupted = !matches!(ended, Ok(true));
    let name = output::name("gather", gathered.started_unix_s);
    let kept = directory
        .map(|directory| output::record(&gathered.to_json(), &name, directory))
        .transpose();
    match (ended, kept) {
        (Ok(_), kept) => Ok((gathered, kept?)),
        (Err(Failure::Told { message, status }), Ok(Some(path))) if !gathered.runs.is_empty() => {
            Err(Failure::Told {
                message: format!("{message}; the runs before it are in {}", path.display()),
                status,
            })
        }
        (Err(failure), _) => Err(failure),
    }
}

/// A run that ended well.
struct Timed {
    elapsed: Nanos,
    ended: Ended,
}

impl Timed {
    fn measured(&self, label: Label, block: u32) -> Measured {
        let ended = &self.ended;
        Measured {
            label,
            block,
            elapsed_ns: self.elapsed.0,
            user_ns: ended.user_time.0,
            system_ns: ended.system_time.0,
            voluntary_switches: ended.switches.voluntary,
            involuntary_switches: ended.switches.involuntary,
            minor_faults: ended.minor_faults,
            major_faults: ended.major_faults,
            most_resident: ended.most_resident.0,
        }
    }
}

/// Runs commands.
struct Shell {
    /// What the command that runs prints, in memory: a disk would be part of what is measured.
    printed: OwnedFd,
}

impl Shell {
    fn new() -> Result<Shell, Failure> {
        let made = memfd_create("stopgap-output", MemfdFlags::CLOEXEC).and_then(|printed| {
            // Each write goes to the end, wherever that is after the file was cut.
            fcntl_setfl(&printed, fcntl_getfl(&printed)? | OFlags::APPEND)?;
            Ok(printed)
        });
        made.map(|printed| Shell { printed })
            .map_err(|error| Failure::error(format!("memfd_create: {error}")))
    }

    /// Runs a command to its end; `None` where that is Ctrl-C's.
    fn run(&self, command: &str, batch: bool) -> Result<Option<Timed>, Failure> {
        if signals::interrupted() {
            return Ok(None);
        }
        let cut = ftruncate(&self.printed, 0).map_err(std::io::Error::from);
        let output = cut.and_then(|()| self.printed.try_clone());
        let output =
            output.map_err(|error| Failure::error(format!("a command's output: {error}")))?;
        let conditions = Conditions {
            output: Some(output),
            group: true,
            batch,
            ..Conditions::default()
        };
        let script = format!("exec 2>&1 </dev/null\n{command}");
        let words = ["sh".into(), "-c".into(), script.into()];
        let held = Held::start_under(&words, &conditions)?;
        let began = Linux.now();
        let child = held.release()?;
        while !child.watched().ends_within(STEP) {
            if signals::interrupted() {
                child.end(PATIENCE)?;
                return Ok(None);
            }
            if rustix::fs::fstat(&self.printed)
                .is_ok_and(|stat| stat.st_size.cast_unsigned() > KEPT)
            {
                let _ = ftruncate(&self.printed, 0); // it only grows on
            }
        }
        let elapsed = Linux.now().saturating_sub(began);
        let Some(ended) = child.ended()? else {
            return Err(Failure::error(format!(
                "'{command}': how it ended is unknown"
            )));
        };
        // Ctrl-C may have reached it first.
        if signals::interrupted() {
            return Ok(None);
        }
        let how = match ended.how {
            Ok(0) => return Ok(Some(Timed { elapsed, ended })),
            Ok(status) => format!("failed with exit status {status}"),
            Err(signal) => format!("was killed by signal {signal}"),
        };
        Err(Failure::error(format!(
            "'{command}' {how}; {}",
            self.last()
        )))
    }

    /// The last lines that were printed.
    fn last(&self) -> String {
        let mut text = Vec::new();
        let path = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&self.printed)
        );
        let read = File::open(path).and_then(|file| file.take(2 * KEPT).read_to_end(&mut text));
        if let Err(error) = read {
            return format!("what it printed cannot be read: {error}");
        }
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        if lines.is_empty() {
            return "it printed nothing".to_owned();
        }
        let last = lines[lines.len().saturating_sub(SHOWN_LINES)..].join(" | ");
        let skip = last.chars().count().saturating_sub(SHOWN_CHARS);
        let last: String = last.chars().skip(skip).collect();
        format!("it printed: {last}")
    }
}

/// How far it is, on standard error where that is a terminal.
struct Progress {
    bar: ProgressBar,
    began: Nanos,
    done: u64,
    all: u64,
}

impl Progress {
    fn new(all: usize) -> Progress {
        Progress {
            bar: progress_bar(),
            began: Linux.now(),
            done: 0,
            all: all as u64,
        }
    }

    fn step(&mut self) {
        self.done += 1;
        let took = Linux.now().saturating_sub(self.began).0;
        let left = Nanos(took / self.done * (self.all - self.done));
        self.bar.set_position(1_000 * self.done / self.all);
        let (done, all) = (self.done, self.all);
        self.bar
            .set_message(format!("run {done} of {all}, about {} left", roughly(left)));
    }
}

/// A time that is only an estimate.
fn roughly(time: Nanos) -> String {
    stopgap_report::text::uptime(time.0.div_ceil(1_000_000_000))
}
