//! Numbers that are read from time to time while a recording runs: mappings, faults, switches and
//! memory of each process that is followed, and the machine's pressure.
//!
//! ```text
//! a round: pressure, then of each process its usage, its threads (switches, children), its mappings
//! ```
//!
//! A round begins 100 ms after the one before, or later: all of it takes at most one hundredth of
//! a CPU, so that a process with very many mappings is read seldom, and in pieces between which
//! the recorder does its other work. Time that the recorder waits for a CPU counts for nothing: on
//! a busy machine one such wait would leave a short command uncounted. A number gets a row when it is not what it was. Rows stand in
//! the spool as JSON lines as soon as they are read.
//!
//! Children are found in `/proc/PID/task/TID/children`, once a round: one that begins and ends
//! between two rounds is not counted by itself, nor one whose parent ended before it was found.
//! Nothing here needs a privilege for processes of the same user.

mod names;
mod process;
mod share;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;

use stopgap_events::machine::Missing;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::folder::Folder;
use stopgap_kernel::linux::{Ended, MappingCount};
use stopgap_kernel::{System, environment, process as proc};
use stopgap_trace::{Event, Kind, Metadata, lines};

use crate::error::{Error, Result};
use crate::growing::{Complete, WholeLines};
use crate::trace::{Source, SourceReport};
pub use names::NAMES;
pub(crate) use names::{RUSAGE_INVOLUNTARY, RUSAGE_VOLUNTARY};
use process::Process;
use share::Share;

/// The file of the rows in a spool.
pub const COUNTERS: &str = "counters.jsonl";

/// From the beginning of a round to that of the next at least.
const ROUND: Nanos = Nanos::millis(100);
/// The longest that a last look at everything may take.
const LAST_LOOK: Nanos = Nanos::millis(100);
/// Faults that are reported one by one.
const FAULTS: usize = 10;

/// Counters of a recording that runs.
pub struct Counters<'s> {
    system: &'s dyn System,
    path: PathBuf,
    out: lines::Writer<BufWriter<File>>,
    processes: BTreeMap<u32, Process>,
    work: VecDeque<Job>,
    next_round: Nanos,
    share: Share,
    /// The last value of each counter, by process.
    known: HashMap<(Option<u32>, &'static str), i64>,
    missing: Vec<Missing>,
}

/// A piece of a round.
#[derive(Debug)]
enum Job {
    Pressure,
    Usage(u32),
    /// Threads of a process that are still to be read.
    Threads(u32, Vec<u32>),
    /// Its mappings, counted so far.
    Mappings(u32, Option<MappingCount>),
}

impl<'s> Counters<'s> {
    /// Counters that are kept in the folder `spool`.
    ///
    /// # Errors
    /// As open(2) of a new file there.
    pub fn create(system: &'s dyn System, spool: &Folder) -> Result<Counters<'s>> {
        let path = spool.path().join(COUNTERS);
        let failed = |error| Error::file(&path, error);
        let file = BufWriter::new(spool.create(COUNTERS.as_ref(), 0o600).map_err(failed)?);
        let mut out = lines::Writer::new(file, &Metadata::default()).map_err(failed)?;
        out.flush().map_err(failed)?; // who follows the file begins with its first line
        let now = system.now();
        Ok(Counters {
            system,
            out,
            path,
            processes: BTreeMap::new(),
            work: VecDeque::new(),
            next_round: now,
            share: Share::new(now),
            known: HashMap::new(),
            missing: Vec::new(),
        })
    }

    /// Follows the process `pid` and what it forks.
    pub fn follow(&mut self, pid: u32) {
        if let std::collections::btree_map::Entry::Vacant(place) = self.processes.entry(pid) {
            place.insert(Process::default());
            self.work
                .extend([Job::Usage(pid), Job::Mappings(pid, None)]);
        }
    }

    /// Reads what is due and what there is time for; to be called often.
    ///
    /// # Errors
    /// Where writing to the spool fails; the system's reason.
    pub fn step(&mut self) -> Result<()> {
        let now = self.system.now();
        if self.work.is_empty() && now >= self.next_round {
            self.begin_round();
            self.next_round = now + ROUND;
        }
        let mut cpu = self.system.thread_cpu();
        while self.share.may(self.system.now())
            && let Some(job) = self.work.pop_front()
        {
            let began = cpu;
            self.carry_out(job)?;
            cpu = self.system.thread_cpu();
            self.share.spend(cpu.saturating_sub(began));
        }
        self.flush()
    }

    /// Looks at everything a last time, as far as that is soon done. What could not be counted.
    ///
    /// # Errors
    /// Where writing to the spool fails; the system's reason.
    pub fn finish(&mut self) -> Result<Vec<Missing>> {
        self.work.clear();
        self.begin_round();
        let deadline = self.system.now() + LAST_LOOK;
        while let Some(job) = self.work.pop_front() {
            if self.system.now() >= deadline {
                break;
            }
            self.carry_out(job)?;
        }
        self.flush()?;
        Ok(std::mem::take(&mut self.missing))
    }

    /// Writes the rusage that wait4(2) returned for the command `pid` and the children that it waited for.
    ///
    /// # Errors
    /// Where writing to the spool fails; the system's reason.
    pub fn ended(&mut self, pid: u32, ended: &Ended) -> Result<()> {
        for (name, value) in [
            (names::RUSAGE_VOLUNTARY, ended.switches.voluntary),
            (names::RUSAGE_INVOLUNTARY, ended.switches.involuntary),
            (names::RUSAGE_MINOR_FAULTS, ended.minor_faults),
            (names::RUSAGE_MAJOR_FAULTS, ended.major_faults),
            (names::RUSAGE_RESIDENT, ended.most_resident.0),
            (names::RUSAGE_USER, ended.user_time.0),
            (names::RUSAGE_SYSTEM, ended.system_time.0),
        ] {
            self.row(Some(pid), name, value)?;
        }
        self.flush()
    }

    /// Writes events that come before all that is counted later.
    ///
    /// # Errors
    /// Where writing to the spool fails; the system's reason.
    pub(crate) fn write(&mut self, events: &[Event]) -> Result<()> {
        for event in events {
            let written = self.out.write(event);
            written.map_err(|error| Error::file(&self.path, error))?;
        }
        self.flush()
    }

    fn begin_round(&mut self) {
        self.work.push_back(Job::Pressure);
        for &pid in self.processes.keys() {
            self.work
                .extend([Job::Usage(pid), Job::Mappings(pid, None)]);
        }
    }

    fn carry_out(&mut self, job: Job) -> Result<()> {
        match job {
            Job::Pressure => self.pressure(),
            Job::Usage(pid) => self.usage(pid),
            Job::Threads(pid, left) => self.threads(pid, left),
            Job::Mappings(pid, count) => self.mappings(pid, count),
        }
    }

    fn pressure(&mut self) -> Result<()> {
        let (all, missing) = environment::pressure(self.system);
        for missing in missing {
            self.lacks(missing.what, missing.why);
        }
        for (resource, some, full) in names::PRESSURE {
            let Some(pressure) = all.iter().find(|one| one.resource == resource) else {
                continue;
            };
            self.row(None, some, pressure.some.total_us)?;
            if let Some(line) = &pressure.full {
                self.row(None, full, line.total_us)?;
            }
        }
        Ok(())
    }

    fn usage(&mut self, pid: u32) -> Result<()> {
        let usage = match proc::usage(self.system, pid) {
            Ok(usage) => usage,
            Err(error) => {
                self.lacks(format!("counters of process {pid}"), error.to_string());
                None
            }
        };
        let Some(process) = self.processes.get_mut(&pid) else {
            return Ok(());
        };
        let same = |usage: &proc::Usage| process.start.is_none_or(|start| start == usage.start);
        let Some(usage) = usage.filter(same) else {
            self.processes.remove(&pid);
            return Ok(());
        };
        process.start = Some(usage.start);
        self.row(Some(pid), names::MINOR_FAULTS, usage.minor_faults)?;
        self.row(Some(pid), names::MAJOR_FAULTS, usage.major_faults)?;
        let Bytes(resident) = usage.resident;
        self.row(Some(pid), names::RESIDENT, resident)?;
        match proc::threads(self.system, pid) {
            Ok(tids) => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.has(&tids);
                }
                self.work.push_front(Job::Threads(pid, tids));
            }
            Err(error) => self.lacks(format!("threads of process {pid}"), error.to_string()),
        }
        Ok(())
    }

    /// One thread more; after the last the sum of all.
    fn threads(&mut self, pid: u32, mut left: Vec<u32>) -> Result<()> {
        let Some(tid) = left.pop() else {
            return match self.processes.get(&pid).map(Process::switches) {
                Some(sum) if sum.total() > 0 => {
                    self.row(Some(pid), names::VOLUNTARY, sum.voluntary)?;
                    self.row(Some(pid), names::INVOLUNTARY, sum.involuntary)
                }
                _ => Ok(()),
            };
        };
        match proc::switches(self.system, pid, tid) {
            Ok(Some(switches)) => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.thread(tid, switches);
                }
            }
            Ok(None) => {}
            Err(error) => self.lacks(format!("switches of thread {tid}"), error.to_string()),
        }
        self.work.push_front(Job::Threads(pid, left));
        match proc::children(self.system, pid, tid) {
            Ok(children) => children.into_iter().for_each(|child| self.follow(child)),
            Err(error) if error.is_absent() => {
                let why = "this kernel does not list children (CONFIG_PROC_CHILDREN)";
                self.lacks("counters of what the processes fork".into(), why.into());
            }
            Err(error) => self.lacks(format!("children of thread {tid}"), error.to_string()),
        }
        Ok(())
    }

    /// A piece more of its mappings.
    fn mappings(&mut self, pid: u32, count: Option<MappingCount>) -> Result<()> {
        if !self.processes.contains_key(&pid) {
            return Ok(());
        }
        let began = count.map_or_else(|| MappingCount::begin(pid), Ok);
        let stepped = began.and_then(|mut count| Ok((count.step()?, count)));
        match stepped {
            Ok((None, count)) => self.work.push_front(Job::Mappings(pid, Some(count))),
            Ok((Some(0), _)) => {} // it has no memory of its own (any more)
            Ok((Some(mappings), _)) => self.row(Some(pid), names::MAPPINGS, mappings)?,
            Err(error) if error.is_absent() => {}
            Err(error) => self.lacks(format!("mappings of process {pid}"), error.to_string()),
        }
        Ok(())
    }

    fn row(&mut self, pid: Option<u32>, name: &'static str, value: u64) -> Result<()> {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        if self.known.insert((pid, name), value) == Some(value) {
            return Ok(());
        }
        let event = Event {
            time: self.system.now(),
            cpu: None,
            pid,
            tid: None,
            comm: None,
            kind: Kind::Counter {
                name: name.into(),
                value,
            },
        };
        let written = self.out.write(&event);
        written.map_err(|error| Error::file(&self.path, error))
    }

    fn flush(&mut self) -> Result<()> {
        let flushed = self.out.flush();
        flushed.map_err(|error| Error::file(&self.path, error))
    }

    /// Each is reported once; of very many only the first ones.
    fn lacks(&mut self, what: String, why: String) {
        let said = self.missing.iter().any(|missing| missing.what == what);
        if !said && self.missing.len() < FAULTS {
            self.missing.push(Missing::new(what, why));
        }
    }
}

/// The rows of a spool as a source of its trace. A row that is cut off, as by a full disk, is reported, and
/// nothing comes after it.
pub(crate) struct Rows {
    reader: lines::Reader<BufReader<WholeLines<File>>>,
    complete: Complete,
    missing: Vec<Missing>,
}

impl Rows {
    /// Those of the folder `spool`; `None` where it has none. `complete`: whether nobody writes them any more.
    ///
    /// # Errors
    /// As open(2); where the file is of another version.
    pub(crate) fn open(spool: &Folder, complete: bool) -> Result<Option<Rows>> {
        match spool.read(COUNTERS.as_ref()) {
            Ok(file) => {
                let complete = Complete::new(complete.into());
                let file = WholeLines::new(file, Complete::clone(&complete));
                Ok(Some(Rows {
                    reader: lines::Reader::new(BufReader::new(file))?,
                    complete,
                    missing: Vec::new(),
                }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file(&spool.path().join(COUNTERS), error)),
        }
    }
}

impl Source for Rows {
    fn reach(&mut self, time: u64) {
        self.complete.set(time == u64::MAX);
    }

    fn next_event(&mut self) -> Result<Option<Event>> {
        Ok(self.reader.next().and_then(|row| {
            row.map_err(|error| {
                let missing = Missing::new("later counters", format!("{COUNTERS}, {error}"));
                self.missing.push(missing);
            })
            .ok()
        }))
    }

    fn report(&self) -> SourceReport {
        SourceReport {
            losses: Vec::new(),
            missing: self.missing.clone(),
            files: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
