//! The setup of each run, and its undoing at the end.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use stopgap_events::machine::{Environment, Missing};
use stopgap_events::snapshot::Snapshot;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::conditions::Watch;
use stopgap_kernel::journal::{self, Journal};
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, budget, environment, own, signals};
use stopgap_probes::{Context, Measured, Plan, Probe, ProbeError};
use stopgap_report::text::plain;
use stopgap_stats::record::{Answer, Run, SCHEMA};

use crate::args::Common;
use crate::failure::Failure;
use crate::fixes::{self, Allowed};
use crate::progress::Progress;
use crate::{library, places, voice};

/// A run in progress.
pub(crate) struct Session {
    system: Linux,
    /// Where the record goes; `None` where no record is wanted.
    pub(crate) records: Option<PathBuf>,
    /// Where probes make files that they remove again.
    scratch: PathBuf,
    journal: PathBuf,
    seed: u64,
    budget: Bytes,
    began: Nanos,
    watch: Watch,
    progress: Progress,
    pub(crate) run: Run,
}

impl Session {
    /// Looks at the machine, puts back what a killed run left, raises the flag on Ctrl-C.
    pub(crate) fn begin(common: &Common) -> Result<Session, Failure> {
        let system = Linux;
        signals::install();
        if let Some(cpus) = &common.cpus {
            system
                .set_cpus(cpus)
                .map_err(|error| Failure::error(format!("{error}; {}", allowed_cpus())))?;
        }
        // A dry run makes neither; it says where scratch files would be.
        let output = common.place.output.as_deref();
        let mut scratch = places::would_be(output);
        let mut journal = PathBuf::new();
        if !common.dry_run {
            scratch = places::records(output)?;
            journal = places::journal(Some(&scratch))?;
            // The usual one was looked at when the command began.
            if Some(&journal) != places::usual_journal().as_ref() {
                put_back(&system, &journal);
            }
        }
        let began = system.now();
        let unix = system.unix_seconds();
        let seed = seed(common.seed);
        let budget = memory(common.memory)?;
        let run = Run {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command(),
            started_unix_s: unix,
            duration_ms: 0,
            seed,
            memory_budget: budget.0,
            environment: environment::read(&system),
            now: None,
            answers: Vec::new(),
            verdict: None,
            interrupted: false,
            peak_memory: None,
        };
        Ok(Session {
            system,
            records: (!common.place.no_record).then(|| scratch.clone()),
            scratch,
            journal,
            seed,
            budget,
            began,
            watch: Watch::begin(&system),
            progress: Progress::new(),
            run,
        })
    }

    /// The system that is asked.
    pub(crate) fn system(&self) -> &Linux {
        &self.system
    }

    /// The machine.
    pub(crate) fn environment(&self) -> &Environment {
        &self.run.environment
    }

    /// Tells the progress bar how long all questions together may take, and whether fixes are tried.
    pub(crate) fn expect(&self, time: Nanos, fixes: bool) {
        self.progress.plan(time, fixes);
    }

    /// Returns what a probe will do.
    pub(crate) fn plan(&self, probe: &dyn Probe, time: Nanos) -> Result<Plan, ProbeError> {
        self.with_context(time, "", |context| probe.plan(context))
    }

    /// Runs a probe and adds its answer to the record. Returns the snapshots that the probe took.
    pub(crate) fn ask(
        &mut self,
        probe: &dyn Probe,
        time: Nanos,
    ) -> Result<Vec<Snapshot>, ProbeError> {
        let word = probe.question().word();
        self.progress.next(time);
        let mut measured: Measured = self.with_context(time, word, |context| {
            probe.plan(context)?;
            probe.run(context)
        })?;
        self.run.interrupted |= measured.interrupted;
        let peak = self
            .run
            .peak_memory
            .unwrap_or(0)
            .max(measured.peak_resident);
        self.run.peak_memory = Some(peak);
        if let Some(why) = self.system.oom_score_fixed() {
            measured.missing.push(Missing::new(
                "what dies first when memory ends (it should be our load children)",
                format!("{why}; make the binary readable to its user"),
            ));
        }
        let snapshots = std::mem::take(&mut measured.snapshots);
        let answer = probe.judge(measured, self.seed, self.run.environment.privilege);
        self.add(answer);
        Ok(snapshots)
    }

    /// Adds an answer to the record.
    pub(crate) fn add(&mut self, answer: Answer) {
        self.run.answers.push(answer);
    }

    /// Tries the fixes of the question that was answered last.
    pub(crate) fn try_fixes(&mut self, quick: bool) {
        if signals::interrupted() {
            return;
        }
        let allowed = Allowed {
            memory: self.budget,
            quick,
            seed: self.seed,
        };
        let Some(answer) = self.run.answers.last_mut() else {
            return;
        };
        let what = format!("{}: what a fix would bring", answer.question);
        self.progress.tries_fixes(&what);
        answer.fixes = fixes::of(answer, allowed);
    }

    /// Ends the run: the record is whole.
    pub(crate) fn end(&mut self) {
        self.progress.finish();
        let (after, _) = environment::pressure(&self.system);
        self.run.environment.pressure_after = after;
        self.run.environment.conditions = Some(self.watch.end(&self.system));
        self.run.duration_ms = (self.system.now().saturating_sub(self.began)).0 / 1_000_000;
        self.run.interrupted |= signals::interrupted();
        let own = own::peak_resident(&self.system).ok();
        self.run.peak_memory = own.map(|own| own.0 + self.run.peak_memory.unwrap_or(0));
    }

    fn with_context<T>(
        &self,
        time: Nanos,
        what: &str,
        act: impl FnOnce(&Context<'_>) -> Result<T, ProbeError>,
    ) -> Result<T, ProbeError> {
        let journal = Journal::new(&self.system, &self.journal);
        let progress = |share: f64, doing: &str| {
            self.progress.probes(share, &format!("{what}: {doing}"));
        };
        let result = act(&Context {
            system: &self.system,
            journal: &journal,
            budget: self.budget,
            time,
            seed: self.seed,
            privilege: self.run.environment.privilege,
            scratch: &self.scratch,
            progress: &progress,
            interrupted: &signals::interrupted,
        });
        for error in journal.undo() {
            tell_error(&format!("not put back: {error}; try: stopgap restore"));
        }
        result
    }
}

/// The seed that is `given`, else one from the clock.
pub(crate) fn seed(given: Option<u64>) -> u64 {
    given.unwrap_or_else(|| Linux.unix_seconds() << 20 ^ u64::from(Linux.pid()))
}

/// The memory that is `given`, else what this machine can spare.
pub(crate) fn memory(given: Option<Bytes>) -> Result<Bytes, Failure> {
    let usual = |error| Failure::error(format!("{error}; say what may be used with --memory"));
    given.map_or_else(|| budget::default(&Linux).map_err(usual), Ok)
}

/// The command line, program name first.
pub(crate) fn command() -> Vec<String> {
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    match library::words() {
        Some(words) => words.iter().map(|word| text(word)).collect(),
        None => std::env::args_os().map(|word| text(&word)).collect(),
    }
}

/// Undoes what killed runs left, where that usually is, and says so. Each command begins with it.
pub(crate) fn clean_up() {
    if let Some(journal) = places::usual_journal() {
        put_back(&Linux, &journal);
    }
    stopgap_kernels::sweep();
}

/// Undoes what killed runs left, and says so.
pub fn put_back(system: &Linux, directory: &Path) {
    match journal::restore(system, directory) {
        Ok(restored) => {
            for done in restored.done {
                tell(&format!("put back after a killed run: {done}"));
            }
            for failed in restored.failed {
                tell_error(&format!("could not put back: {failed}"));
            }
        }
        Err(error) => tell_error(&error.to_string()),
    }
}

/// Prints a note or a warning to standard error, unless `--quiet` asks for errors only.
pub fn tell(line: &str) {
    if !library::hears(line) && !voice::quiet() {
        tell_error(line);
    }
}

/// Prints an error to standard error. Where that is closed there is nobody to tell.
pub(crate) fn tell_error(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "stopgap: {}", plain(line));
}

fn allowed_cpus() -> String {
    match Linux.cpus() {
        Ok(cpus) => format!("this process may use CPUs {cpus:?}"),
        Err(error) => error.to_string(),
    }
}
