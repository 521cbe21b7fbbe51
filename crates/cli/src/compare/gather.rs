//! Two commands, run in turn and measured; what of it is design is in `stopgap_stats::gather`.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create};
use stopgap_events::machine::Environment;
use stopgap_events::random::Random;
use stopgap_events::units::Nanos;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::linux::{Child, Conditions, Ended, Held};
use stopgap_kernel::{Linux, environment, signals};
use stopgap_stats::anytime::{ALPHA, least_units};
use stopgap_stats::document::Document;
use stopgap_stats::gather::{Gathered, Judge, Label, Measured, Plan, SCHEMA, needs_own_cpu, order};

use super::counted::{Counted, Counting};
use crate::failure::Failure;
use crate::progress::progress_bar;
use crate::session::tell;
use crate::{output, session};

/// How often it is looked at whether to stop, and whether a command prints without end.
const STEP: Nanos = Nanos::millis(100);

/// The same for each of several that run at once.
const TURN: Nanos = Nanos::millis(5);

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

/// How the runs of a pair are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Both at the same time on one CPU.
    SideBySide,
    /// One after the other.
    InTurn,
    /// Side by side where the numbers and the commands allow it.
    Best,
}

/// A question to two commands.
pub(crate) struct Asked<'a> {
    pub(crate) commands: Commands<'a>,
    pub(crate) way: Way,
    /// Names of the numbers that decide.
    pub(crate) endpoints: Vec<String>,
    pub(crate) margin: f64,
    /// Most runs a side.
    pub(crate) most: u32,
    /// Whether so few that nothing can be decided are made all the same, for what they describe.
    pub(crate) few: bool,
    /// For how long new pairs are begun.
    pub(crate) max_time: Nanos,
    /// Whether both must print the same at first.
    pub(crate) same_output: bool,
    pub(crate) seed: u64,
}

/// A command that has this share more CPU time than elapsed time uses several CPUs, which one CPU would change.
const PARALLEL: f64 = 1.3;

/// Runs both commands pair by pair until it is decided or a limit is met; keeps the runs in a file in `directory`, where there is
/// one. Ctrl-C ends it with what was measured.
pub(crate) fn gather(
    asked: &Asked<'_>,
    directory: Option<&Path>,
) -> Result<(Gathered, Option<PathBuf>), Failure> {
    signals::install();
    enough_runs(asked)?;
    let lines = asked.commands.lines;
    let environment = environment::read(&Linux);
    let shell = Shell::new(Counted::of(&asked.endpoints)?, Limit::of(asked))?;
    let (cpu, pair) = first(asked, &shell, &environment)?;
    let plan = Plan {
        cpu,
        endpoints: asked.endpoints.clone(),
        margin: asked.margin,
        level: ALPHA,
        max_seconds: asked.max_time.0 as f64 / 1e9,
    };
    enough_time(asked, pair)?;
    let mut gathered = Gathered {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: session::command(),
        started_unix_s: Linux.unix_seconds(),
        seed: asked.seed,
        planned: asked.most,
        plan: Some(plan.clone()),
        interrupted: false,
        environment,
        before: lines[0].to_owned(),
        after: lines[1].to_owned(),
        floor: Vec::new(),
        runs: Vec::new(),
    };
    tell(&format!(
        "{} until it is decided, for {} at most; seed {}",
        match cpu {
            Some(cpu) => format!("runs side by side on CPU {cpu}"),
            None => "runs in turn".to_owned(),
        },
        roughly(asked.max_time),
        asked.seed
    ));
    let mut random = Random::new(asked.seed);
    let mut judge = Judge::new(&plan);
    let progress = Progress::new(asked.max_time);
    let ended = loop {
        let enough = judge.is_decided() && judge.units() > 0;
        if enough || judge.units() >= asked.most as usize || progress.took() >= asked.max_time {
            break Ok(true);
        }
        let order = order(&mut random);
        let made = shell.unit(&asked.commands, cpu, &order, false);
        match made {
            Ok(Some(runs)) => {
                let block = u32::try_from(judge.units()).unwrap_or(u32::MAX);
                let runs: Vec<Measured> = runs
                    .iter()
                    .zip(&order)
                    .map(|(run, &label)| Measured {
                        label,
                        block,
                        ..run.clone()
                    })
                    .collect();
                judge.push(&runs);
                gathered.runs.extend(runs);
                progress.step(&judge);
            }
            Ok(None) => break Ok(false),
            Err(failure) => break Err(failure),
        }
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

/// Runs both commands once, so that caches are filled and mistakes found before anything counts. Returns the CPU of runs side by
/// side, and how long a pair takes.
fn first(
    asked: &Asked<'_>,
    shell: &Shell,
    environment: &Environment,
) -> Result<(Option<u32>, Nanos), Failure> {
    let (mut alone, mut printed) = (Vec::new(), Vec::new());
    for label in [Label::Before, Label::After] {
        let made = shell.unit(&asked.commands, None, &[label], true)?;
        alone.extend(made.ok_or_else(interrupted)?);
        printed.push(shell.printed()?);
    }
    if asked.same_output && printed[0] != printed[1] {
        let differ = printed[0]
            .lines()
            .zip(printed[1].lines())
            .find(|(a, b)| a != b);
        let (a, b) = differ.unwrap_or(("the end", "more lines"));
        return Err(Failure::error(format!(
            "the commands print different text: '{}' and '{}'",
            shown(a),
            shown(b)
        )));
    }
    let pair = alone
        .iter()
        .fold(Nanos(0), |sum, run| Nanos(sum.0 + run.elapsed_ns));
    let lone = asked.endpoints.iter().find(|name| needs_own_cpu(name));
    let parallel = alone.iter().position(|run| {
        let cpu = run.user_ns + run.system_ns;
        cpu as f64 > PARALLEL * run.elapsed_ns as f64
    });
    let Some(&cpu) = environment.cpus.last() else {
        return Ok((None, pair));
    };
    match (asked.way, lone, parallel) {
        (Way::InTurn, ..) | (Way::Best, Some(_), _) => return Ok((None, pair)),
        (Way::SideBySide, Some(name), _) => {
            return Err(Failure::error(format!(
                "{name} of runs that share a CPU says nothing: leave --side-by-side out, or name another --endpoint"
            )));
        }
        (Way::Best, _, Some(side)) => {
            let line = asked.commands.lines[side];
            tell(&format!(
                "'{line}' uses several CPUs: runs are made in turn, not side by side"
            ));
            return Ok((None, pair));
        }
        _ => {}
    }
    // What runs alone may not bear a second one of its kind: a port, a file, a lock.
    match shell.unit(
        &asked.commands,
        Some(cpu),
        &[Label::Before, Label::After],
        false,
    ) {
        Ok(made) => {
            made.ok_or_else(interrupted)?;
            Ok((Some(cpu), pair))
        }
        Err(Failure::Told { message, .. }) if asked.way == Way::Best => {
            tell(&format!("side by side {message}: runs are made in turn"));
            Ok((None, pair))
        }
        Err(failure) => Err(failure),
    }
}

/// The beginning of a line.
fn shown(line: &str) -> String {
    line.chars().take(80).collect()
}

fn interrupted() -> Failure {
    Failure::error("interrupted before the first run")
}

/// Refuses so few runs that nothing can be decided.
fn enough_runs(asked: &Asked<'_>) -> Result<(), Failure> {
    let least = least_units(ALPHA, asked.endpoints.len());
    if asked.few || asked.most as usize >= least {
        return Ok(());
    }
    Err(Failure::error(format!(
        "-n {} can decide nothing: it takes {least} runs a side",
        asked.most
    )))
}

/// Refuses a limit of time within which nothing can be decided.
fn enough_time(asked: &Asked<'_>, pair: Nanos) -> Result<(), Failure> {
    let least = least_units(ALPHA, asked.endpoints.len()) as u64;
    let needed = Nanos(pair.0.saturating_mul(least));
    if asked.few || needed <= asked.max_time {
        return Ok(());
    }
    Err(Failure::error(format!(
        "nothing can be decided in {}: it takes {} at least ({least} times both commands): --max-time {}s",
        roughly(asked.max_time),
        roughly(needed),
        needed.0.div_ceil(1_000_000_000)
    )))
}

/// Returns the figures of a run that ended well. The caller fills in label and unit.
fn measured(elapsed: Nanos, ended: &Ended) -> Measured {
    Measured {
        label: Label::Before,
        block: 0,
        elapsed_ns: elapsed.0,
        user_ns: ended.user_time.0,
        system_ns: ended.system_time.0,
        voluntary_switches: ended.switches.voluntary,
        involuntary_switches: ended.switches.involuntary,
        minor_faults: ended.minor_faults,
        major_faults: ended.major_faults,
        most_resident: ended.most_resident.0,
        instructions: None,
        emulated_instructions: None,
        system_calls: None,
    }
}

/// A command that runs.
struct Running<'a> {
    line: &'a str,
    began: Nanos,
    /// Whether it is the command's first run, which counts for nothing.
    first: bool,
    /// `None` once it has ended.
    child: Option<Child>,
    counting: Counting,
    measured: Option<Measured>,
}

/// Runs commands.
struct Shell {
    /// What the command that runs prints, in memory: a disk would be part of what is measured.
    printed: OwnedFd,
    counted: Counted,
    limit: Limit,
}

/// How long a command may run before it is plain that nothing can be decided.
struct Limit {
    /// The limit of one run; `None` where the user asked for a number of runs.
    run: Option<Nanos>,
    /// The limit of all runs together.
    all: Nanos,
    /// How often both have to run.
    least: u64,
}

impl Limit {
    fn of(asked: &Asked<'_>) -> Limit {
        let least = least_units(ALPHA, asked.endpoints.len()) as u64;
        Limit {
            run: (!asked.few).then(|| Nanos(asked.max_time.0 / least.max(1))),
            all: asked.max_time,
            least,
        }
    }

    /// Refuses a first run that still runs.
    fn allows(&self, run: &Running<'_>) -> Result<(), Failure> {
        let took = Linux.now().saturating_sub(run.began);
        match self.run.filter(|&most| run.first && took > most) {
            None => Ok(()),
            Some(most) => Err(Failure::error(format!(
                "nothing can be decided in {}: it takes longer ({} times both commands, and '{}' runs for more than {}): give a longer --max-time",
                roughly(self.all),
                self.least,
                shown(run.line),
                roughly(most)
            ))),
        }
    }
}

impl Shell {
    fn new(counted: Counted, limit: Limit) -> Result<Shell, Failure> {
        let made = memfd_create("stopgap-output", MemfdFlags::CLOEXEC).and_then(|printed| {
            // Each write goes to the end, wherever that is after the file was cut.
            fcntl_setfl(&printed, fcntl_getfl(&printed)? | OFlags::APPEND)?;
            Ok(printed)
        });
        let shell = |printed| Shell {
            printed,
            counted,
            limit,
        };
        made.map(shell)
            .map_err(|error| Failure::error(format!("memfd_create: {error}")))
    }

    /// Makes the runs of a unit, those of `order`: on `cpu` all at the same time, else one after the other. `None` where Ctrl-C ended
    /// one.
    fn unit(
        &self,
        commands: &Commands<'_>,
        cpu: Option<u32>,
        order: &[Label],
        first: bool,
    ) -> Result<Option<Vec<Measured>>, Failure> {
        let mut runs = Vec::new();
        let together = if cpu.is_some() { order.len() } else { 1 };
        for at_once in order.chunks(together) {
            if signals::interrupted() {
                return Ok(None);
            }
            let cut = ftruncate(&self.printed, 0);
            cut.map_err(|error| Failure::error(format!("a command's output: {error}")))?;
            let held: Vec<(&str, Held)> = at_once
                .iter()
                .enumerate()
                .map(|(run, label)| {
                    let side = usize::from(*label == Label::After);
                    let line = commands.lines[side];
                    Ok((line, self.hold(line, run, commands.batch[side], cpu)?))
                })
                .collect::<Result<_, Failure>>()?;
            let mut running = Vec::new();
            for (line, held) in held {
                let counting = self.counted.begin(&held)?;
                let began = Linux.now();
                running.push(Running {
                    line,
                    began,
                    first,
                    child: Some(held.release()?),
                    counting,
                    measured: None,
                });
            }
            if !self.wait(&mut running)? {
                return Ok(None);
            }
            runs.extend(running.into_iter().filter_map(|run| run.measured));
        }
        Ok(Some(runs))
    }

    /// Starts a command up to its first instruction.
    fn hold(
        &self,
        command: &str,
        run: usize,
        batch: bool,
        cpu: Option<u32>,
    ) -> Result<Held, Failure> {
        let output = self.printed.try_clone();
        let output =
            output.map_err(|error| Failure::error(format!("a command's output: {error}")))?;
        let conditions = Conditions {
            cpus: cpu.into_iter().collect(),
            output: Some(output),
            group: true,
            batch,
            ..Conditions::default()
        };
        let script = format!("exec 2>&1 </dev/null\n{command}");
        Ok(Held::start_under(
            &self.counted.words(script, run),
            &conditions,
        )?)
    }

    /// Waits until all have ended well; the first that did not is the error, and ends the others. False where Ctrl-C ended
    /// them.
    fn wait(&self, running: &mut [Running<'_>]) -> Result<bool, Failure> {
        let step = match running.len() {
            1 => STEP,
            _ => TURN,
        };
        let mut failed = None;
        while running.iter().any(|run| run.child.is_some()) {
            for (number, run) in running.iter_mut().enumerate() {
                let Some(child) = run.child.take() else {
                    continue;
                };
                if signals::interrupted() || failed.is_some() {
                    child.end(PATIENCE)?;
                } else if child.watched().ends_within(step) {
                    match self.ended(run, number, &child) {
                        Ok(measured) => run.measured = Some(measured),
                        Err(failure) => failed = Some(failure),
                    }
                } else {
                    run.child = Some(child);
                    failed = self.limit.allows(run).err();
                }
            }
            let printed = rustix::fs::fstat(&self.printed);
            if printed.is_ok_and(|stat| stat.st_size.cast_unsigned() > KEPT) {
                let _ = ftruncate(&self.printed, 0); // it only grows on
            }
        }
        match failed {
            // Ctrl-C may have reached it first.
            _ if signals::interrupted() => Ok(false),
            Some(failure) => Err(failure),
            None => Ok(true),
        }
    }

    /// Returns the times of a command that has ended.
    fn ended(&self, run: &Running<'_>, number: usize, child: &Child) -> Result<Measured, Failure> {
        let elapsed = Linux.now().saturating_sub(run.began);
        let command = run.line;
        let left = run.first && child.has_company();
        // Also what it left running: it would be part of the next runs.
        let Some(ended) = child.end(Nanos(0))? else {
            return Err(Failure::error(format!(
                "'{command}': how it ended is unknown"
            )));
        };
        if left {
            tell(&format!(
                "warning: '{command}' leaves processes behind: their time is not counted, and they are ended with it"
            ));
        }
        let how = match ended.how {
            Ok(0) => {
                let mut measured = measured(elapsed, &ended);
                self.counted.end(&run.counting, number, &mut measured)?;
                return Ok(measured);
            }
            Ok(status) => format!("failed with exit status {status}"),
            Err(signal) => format!("was killed by signal {signal}"),
        };
        Err(Failure::error(format!(
            "'{command}' {how}; {}",
            self.last()
        )))
    }

    /// Returns the text that the last runs printed.
    fn printed(&self) -> Result<String, Failure> {
        let mut text = Vec::new();
        let path = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&self.printed)
        );
        let read = File::open(path).and_then(|file| file.take(2 * KEPT).read_to_end(&mut text));
        match read {
            Ok(_) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(error) => Err(Failure::error(format!(
                "what it printed cannot be read: {error}"
            ))),
        }
    }

    /// The last lines that were printed.
    fn last(&self) -> String {
        let Ok(text) = self.printed() else {
            return "what it printed cannot be read".to_owned();
        };
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
    max_time: Nanos,
}

impl Progress {
    fn new(max_time: Nanos) -> Progress {
        Progress {
            bar: progress_bar(),
            began: Linux.now(),
            max_time,
        }
    }

    fn took(&self) -> Nanos {
        Linux.now().saturating_sub(self.began)
    }

    fn step(&self, judge: &Judge) {
        let took = self.took().0;
        let (units, more) = (judge.units() as u64, judge.more());
        let left = more.map(|more| Nanos(took / units.max(1) * more as u64));
        let limit = Nanos(self.max_time.0.saturating_sub(took));
        let most = left.map_or(limit, |left| left.min(limit));
        self.bar.set_position(1_000 * took / (took + most.0).max(1));
        let left = match left {
            Some(left) if left <= limit => format!("about {} left", roughly(left)),
            _ => format!("{} left at most", roughly(limit)),
        };
        let so_far = judge
            .so_far()
            .map_or(String::new(), |so_far| format!(": {so_far}"));
        self.bar
            .set_message(format!("pair {units}{so_far}, {left}"));
    }
}

/// A time that is only an estimate.
fn roughly(time: Nanos) -> String {
    stopgap_report::text::uptime(time.0.div_ceil(1_000_000_000))
}
