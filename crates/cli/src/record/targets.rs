//! The processes that are recorded: given by number, by name or by control group, those that exist and those that come later.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::linux::Watched;
use stopgap_kernel::{Linux, cgroup, process};
use stopgap_trace::NOBODY;
use stopgap_tracer::description::Subject;

use super::subject_of;
use crate::failure::Failure;

/// From one look for new processes to the next, at least.
const LOOK: Nanos = Nanos::millis(100);
/// A look at all processes of the machine may take one part in so many of the time.
const PART_OF_TIME: u64 = 100;

/// Processes that flags name.
pub(crate) struct Asked<'a> {
    pub(crate) pids: &'a [u32],
    pub(crate) names: &'a [String],
    pub(crate) groups: &'a [PathBuf],
    /// All of the machine.
    pub(crate) all: bool,
}

/// Processes that others have started.
pub(crate) struct Others {
    given: Vec<Watched>,
    names: Vec<String>,
    groups: Vec<PathBuf>,
    all: bool,
    /// Processes that the last look found by name or group.
    found: BTreeSet<u32>,
    /// Whether any look found one.
    came: bool,
    /// When to look again.
    next: Nanos,
}

impl Others {
    /// Finds what `asked` names; `None` where it names nothing. Changes nothing.
    pub(crate) fn open(asked: &Asked<'_>) -> Result<Option<Others>, Failure> {
        let (mut pids, mut groups) = (asked.pids.to_vec(), Vec::new());
        pids.sort_unstable();
        pids.dedup();
        for group in asked.groups {
            groups.push(open_group(group)?);
        }
        let given: Result<Vec<Watched>, _> = pids.into_iter().map(Watched::open).collect();
        let given = given?;
        if let Some(gone) = given.iter().find(|watched| watched.has_ended()) {
            let why = ": it has ended, and its parent has not waited for it";
            return Err(stopgap_kernel::Error::no_process(gone.pid(), why).into());
        }
        let others = Others {
            given,
            names: asked.names.to_vec(),
            groups,
            all: asked.all,
            found: BTreeSet::new(),
            came: false,
            next: Nanos(0),
        };
        let none = others.given.is_empty() && !others.comes_later() && !others.all;
        Ok((!none).then_some(others))
    }

    /// Whether all threads of the machine are wanted.
    pub(crate) fn is_all(&self) -> bool {
        self.all
    }

    /// Processes that were given by number.
    pub(crate) fn given(&self) -> Vec<u32> {
        self.given.iter().map(Watched::pid).collect()
    }

    /// The control groups, by their absolute paths.
    pub(crate) fn groups(&self) -> &[PathBuf] {
        &self.groups
    }

    /// A process to wait for: the first one given that has not ended.
    pub(crate) fn watched(&self) -> Option<&Watched> {
        self.given.iter().find(|watched| !watched.has_ended())
    }

    /// Whether nothing of what was asked for can come any more.
    pub(crate) fn have_ended(&self) -> bool {
        !self.all
            && self.names.is_empty()
            && self.groups.iter().all(|group| !group.exists())
            && self.watched().is_none()
    }

    /// Whether processes may come that are wanted and not made by recorded ones.
    fn comes_later(&self) -> bool {
        !self.names.is_empty() || !self.groups.is_empty()
    }

    /// Returns the processes that were found by name or group since the last time. Where it is too early to look, none.
    pub(crate) fn fresh(&mut self) -> Vec<u32> {
        let now = Linux.now();
        if !self.comes_later() || now < self.next {
            return Vec::new();
        }
        let mut found = BTreeSet::new();
        for name in &self.names {
            // Without /proc there is no recording at all.
            found.extend(process::named(&Linux, name.as_bytes()).unwrap_or_default());
        }
        for group in &self.groups {
            add_processes(group, &mut found);
        }
        let took = Linux.now().saturating_sub(now);
        self.next = now + Nanos(LOOK.0.max(took.0.saturating_mul(PART_OF_TIME)));
        let fresh = found.difference(&self.found).copied().collect();
        self.came |= !found.is_empty();
        self.found = found;
        fresh
    }

    /// Returns why no thread of the trace was meant: no look found a process of these names or control groups.
    pub(crate) fn never_came(&self) -> Option<Missing> {
        let nobody = !self.all && self.given.is_empty() && !self.came;
        nobody.then(|| {
            let source = self.subject().source;
            let why = format!(
                "none came while the recording ran ({source}). Start one while stopgap record runs, or see ps -eo pid,comm for the names"
            );
            Missing::new(NOBODY, why)
        })
    }

    /// Describes whom the trace records.
    pub(crate) fn subject(&self) -> Subject {
        if let ([one], false) = (&self.given[..], self.comes_later()) {
            return subject_of(one.pid());
        }
        let mut parts: Vec<String> = Vec::new();
        for watched in &self.given {
            parts.push(subject_of(watched.pid()).source);
        }
        for name in &self.names {
            parts.push(format!("processes named {name}"));
        }
        for group in &self.groups {
            parts.push(format!("control group {}", group.display()));
        }
        if self.all {
            parts.push("all processes".to_owned());
        }
        parts.join("; ").into()
    }

    /// Names and groups of which there is no process.
    pub(crate) fn absent(&self) -> Vec<String> {
        let mut absent = Vec::new();
        for name in &self.names {
            if process::named(&Linux, name.as_bytes()).is_ok_and(|found| found.is_empty()) {
                absent.push(format!("no process is named '{name}'"));
            }
        }
        for group in &self.groups {
            let mut found = BTreeSet::new();
            add_processes(group, &mut found);
            if found.is_empty() {
                absent.push(format!("no process is in {}", group.display()));
            }
        }
        absent
    }
}

/// Returns the absolute path of a control group.
fn open_group(path: &Path) -> Result<PathBuf, Failure> {
    let refuse = |why: String| {
        let path = path.display();
        let advice = "name a folder below /sys/fs/cgroup; /proc/PID/cgroup has those of a process";
        Failure::error(format!("--cgroup {path}: {why}; {advice}"))
    };
    let absolute = fs::canonicalize(path).map_err(|error| refuse(error.to_string()))?;
    let kind = cgroup::file_system(&Linux, &absolute)?;
    if !kind.starts_with("cgroup") || !absolute.is_dir() {
        return Err(refuse("it is no control group".to_owned()));
    }
    // A group whose threads may be in several groups has no list of processes.
    let procs = absolute.join("cgroup.procs");
    match fs::read(&procs) {
        Ok(_) => Ok(absolute),
        Err(error) => Err(refuse(format!("cannot read cgroup.procs: {error}"))),
    }
}

/// Adds the processes in the control group `group` and below it. A group that is gone has none.
fn add_processes(group: &Path, to: &mut BTreeSet<u32>) {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    // Processes of an outer PID namespace have the number 0.
    let pids = text.lines().filter_map(|line| line.parse::<u32>().ok());
    to.extend(pids.filter(|&pid| pid > 0));
    let Ok(entries) = fs::read_dir(group) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_processes(&entry.path(), to);
        }
    }
}
