//! Capture through an instance of tracefs of our own: nobody else's tracing is touched.
//!
//! ```text
//! prepare: instances (journalled) -> clock, buffers, events, filters, stack trigger -> spool.json
//! sample:  rings of perf (where samples are wanted)
//! start:   set_event_pid; what they fork is followed by the kernel (event-fork) -> tracing_on; where the
//!          process already runs, what it has mapped (/proc/PID/maps)
//! pump:    full pages of each CPU -> cpuN.raw, machineN.raw, by splice(2); records of perf -> perfN.raw
//! stop:    tracing_on 0 -> the rest of the pages -> losses -> pipes closed -> instances removed, looked for
//! ```
//!
//! Threads are captured that are followed, and who wakes them; the recorder itself is not. Requests to disks and signals are those
//! of all threads: an instance of their own has them, because the kernel looks at the thread that runs when a disk is done. In the
//! buffer new events replace old ones that were not read in time: each page says how many.

pub(crate) mod instance;
pub(crate) mod maps;
mod perf;
pub(crate) mod threads;

pub use perf::PerfSpool;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use stopgap_events::machine::Missing;
use stopgap_events::order::Inserted as _;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::files::read_text;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::journal::{Journal, Scope};
use stopgap_kernel::linux::perf::Wanted;
use stopgap_kernel::linux::{Ended, TracePipe, Watched};
use stopgap_kernel::local_time::utc;
use stopgap_kernel::tracefs::Tracefs;
use stopgap_kernel::{System, budget, environment, hardware};
use stopgap_trace::{Clock, Loss, Machine, Metadata};

use crate::counters::Counters;
use crate::description::{Description, SCHEMA, Subject, TaskName};
use crate::error::{Error, Result};
use crate::events::EventSet;
use crate::layout;
use crate::page::PageLayout;
use crate::perf::go;
use crate::spool::{self, DESCRIPTION, END, End, Spool, loss_of, machine_pages_of, pages_of};
use instance::Instance;

/// The events to capture, and the place for them.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which events.
    pub events: EventSet,
    /// Size of the buffer of one CPU; `None`: [`default_buffer`].
    pub buffer: Option<Bytes>,
    /// The folder of pages, to be made.
    pub spool: PathBuf,
    /// The program and the labels that the trace names.
    pub subject: Subject,
}

/// The most that one CPU's buffer has by default. With 16 MiB a busy pair of processes lost events.
const LARGEST_BUFFER: Bytes = Bytes::mib(64);
/// The part of memory that all buffers together have at most by default: one in so many.
const PART_OF_MEMORY: u64 = 32;
/// Requests and signals are few: their buffers are smaller by this factor.
const PART_OF_BUFFER: u64 = 8;
/// The PID namespace in which the kernel counts (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
/// The kernel has a few pages at least.
const SMALLEST_BUFFER: Bytes = Bytes::kib(64);

/// A CPU's buffer by default: 64 MiB, or its share of one 32nd of `memory`.
#[must_use]
pub fn default_buffer(memory: Bytes, cpus: u64) -> Bytes {
    let share = memory.0 / PART_OF_MEMORY / cpus.max(1);
    Bytes(share.clamp(SMALLEST_BUFFER.0, LARGEST_BUFFER.0))
}

/// The name of the instance of a recorder: one capture a process at a time.
#[must_use]
pub fn instance_of(recorder: u32) -> String {
    format!("stopgap-{recorder}")
}

/// The name of the instance for what is captured of all threads.
fn machine_instance_of(recorder: u32) -> String {
    format!("{}-machine", instance_of(recorder))
}

/// A capture that is prepared or runs. Dropped before [`Capture::stop`] it leaves no instance and the
/// pages so far.
pub struct Capture<'j, 's> {
    system: &'s dyn System,
    instance: Instance<'s>,
    /// Captures the events of all threads, if the set of events has such.
    of_machine: Option<Instance<'s>>,
    // Before the scope: an open pipe would keep the instance.
    pipes: Vec<TracePipe>,
    perf: Option<PerfSpool>,
    scope: Option<Scope<'j, 's>>,
    cpus: Vec<u32>,
    description: Description,
    /// Where the pages go; a window has none.
    folder: Option<SpoolFolder>,
    counters: Option<Counters<'s>>,
    /// Whether perf's threads are chosen.
    began: bool,
    _tracefs: Tracefs,
}

impl<'j, 's> Capture<'j, 's> {
    /// Makes the instance and the folder. Nothing is captured yet.
    ///
    /// # Errors
    /// [`stopgap_kernel::Error::Unsupported`] where there is no tracefs or it is not ours to use;
    /// where the folder is there or cannot be made; a format that cannot be understood.
    pub fn prepare(
        system: &'s dyn System,
        journal: &'j Journal<'s>,
        options: &Options,
    ) -> Result<Capture<'j, 's>> {
        let mut capture = Capture::instance(system, journal, options)?;
        let page = capture.layout()?.page_bytes();
        let spool = SpoolFolder::make(&options.spool)?;
        for &cpu in &capture.cpus {
            let raw = capture.instance.raw_pipe(cpu);
            let pipe = TracePipe::open(&raw, &spool.folder, &pages_of(cpu), page)?;
            capture.pipes.push(pipe);
        }
        for (instance, &cpu) in capture
            .of_machine
            .iter()
            .flat_map(|instance| capture.cpus.iter().map(move |cpu| (instance, cpu)))
        {
            let (raw, file) = (instance.raw_pipe(cpu), machine_pages_of(cpu));
            let pipe = TracePipe::open(&raw, &spool.folder, &file, page)?;
            capture.pipes.push(pipe);
        }
        capture.folder = Some(spool);
        Ok(capture)
    }

    /// Makes the instance, without a reader of its pages.
    fn instance(
        system: &'s dyn System,
        journal: &'j Journal<'s>,
        options: &Options,
    ) -> Result<Capture<'j, 's>> {
        if cfg!(target_endian = "big") {
            let advice = "its pages are read on little-endian machines only";
            let error = stopgap_kernel::Error::unsupported("the trace buffer", advice);
            return Err(error.into());
        }
        refuse_namespace(system)?;
        let tracefs = system.tracefs()?;
        let scope = journal.scope();
        let name = instance_of(system.pid());
        journal.make_trace_instance(&name)?;
        let instance = Instance::new(system, &tracefs, &name);
        let cpus = instance.cpus()?;
        let memory = budget::meminfo(system, "MemTotal")?;
        let usual = default_buffer(memory, cpus.len() as u64);
        let buffer = options.buffer.unwrap_or(usual);
        instance.set_up(buffer)?;
        let mut missing: Vec<Missing> = instance.follow_forks().into_iter().collect();
        let mut description = describe(system, options.subject.clone());
        description.header_page = instance.header_page()?;
        description.cpus.clone_from(&cpus);
        let (set, stacks) = (options.events, options.events == EventSet::All);
        instance.choose(set.events(), stacks, &mut description, &mut missing)?;
        let mut of_machine = None;
        if set.of_machine().next().is_some() {
            let name = machine_instance_of(system.pid());
            journal.make_trace_instance(&name)?;
            let instance = Instance::new(system, &tracefs, &name);
            instance.set_up(Bytes((buffer.0 / PART_OF_BUFFER).max(SMALLEST_BUFFER.0)))?;
            instance.choose(set.of_machine(), false, &mut description, &mut missing)?;
            description.of_machine = true;
            of_machine = Some(instance);
        }
        description.metadata.missing = missing;
        Ok(Capture {
            system,
            instance,
            of_machine,
            pipes: Vec::new(),
            perf: None,
            scope: Some(scope),
            cpus,
            description,
            folder: None,
            counters: None,
            began: false,
            _tracefs: tracefs,
        })
    }

    fn folder(&self) -> Result<&Folder> {
        let none = || Error::file(Path::new("the spool"), std::io::ErrorKind::NotFound.into());
        self.folder
            .as_ref()
            .map(|spool| &spool.folder)
            .ok_or_else(none)
    }

    fn layout(&self) -> Result<PageLayout> {
        PageLayout::parse("header_page", &self.description.header_page)
    }

    /// Samples too: where each thread is, and through which calls it came there, `hz` times (1 to
    /// 100,000) in each second that it has a CPU. To be called before [`Capture::start`]. Where perf
    /// is refused, the samples are `missing`.
    ///
    /// # Errors
    /// Where the spool's files cannot be made.
    pub fn sample(&mut self, hz: u32) -> Result<()> {
        let wanted = Wanted {
            switches: false,
            samples: Some(Nanos(1_000_000_000 / u64::from(hz.max(1)))),
        };
        match PerfSpool::open(self.system, self.folder()?, wanted) {
            Ok(perf) => self.perf = Some(perf),
            Err(Error::System(error)) => self.lacks_samples(&error),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn lacks_samples(&mut self, why: &stopgap_kernel::Error) {
        self.perf = None;
        let missing = &mut self.description.metadata.missing;
        missing.push(Missing::new("samples", why.to_string()));
    }

    /// Says that this is missing too; before [`Capture::start`].
    pub fn lacks(&mut self, missing: Missing) {
        self.description.metadata.missing.push(missing);
    }

    /// Reads counters too while it runs ([`crate::counters`]).
    ///
    /// # Errors
    /// Where their file in the spool cannot be made.
    pub fn count(&mut self) -> Result<()> {
        self.counters = Some(Counters::create(self.system, self.folder()?)?);
        Ok(())
    }

    /// Begins to capture every thread of the process `pid`, and what they fork.
    ///
    /// # Errors
    /// [`stopgap_kernel::Error::NoProcess`] where there is no such process; where the description
    /// cannot be written; as write(2).
    pub fn start(&mut self, pid: u32) -> Result<()> {
        self.start_all(&[pid])
    }

    /// As [`Capture::start`], of several processes at once.
    ///
    /// # Errors
    /// As there.
    pub fn start_all(&mut self, pids: &[u32]) -> Result<()> {
        for &pid in pids {
            self.follow(pid)?;
            self.start_others(pid)?;
        }
        self.name_others();
        self.describe()?;
        self.begin()
    }

    /// Writes down the names of the threads of the machine, where more than the followed ones is captured.
    fn name_others(&mut self) {
        if self.of_machine.is_some() && self.description.others.is_empty() {
            self.description.others = threads::all(self.system);
        }
    }

    /// Switches the instances on.
    fn begin(&self) -> Result<()> {
        for instance in self.of_machine.iter().chain([&self.instance]) {
            instance.switch(true)?;
        }
        Ok(())
    }

    /// As [`Capture::start`], of processes that have run for a while, and of the processes below them: what they have mapped is
    /// read, so that the trace begins with it. A process whose maps we may not read is captured without. The processes `given` must
    /// be ours to record, others that were `found` need not; to be called again for those that are found later. Returns the
    /// processes that are captured now; one that has ended is passed over.
    ///
    /// # Errors
    /// As [`Capture::start`].
    pub fn start_running(&mut self, given: &[u32], found: &[u32]) -> Result<Vec<u32>> {
        let system = self.system;
        let began = self.began;
        let threads::Followed { processes, missing } =
            threads::follow_families(system, given, found, |pid, is_first| {
                // What is made by a process that perf follows perf follows too; else each sample would come twice.
                self.began = began || !is_first;
                self.follow(pid)?;
                self.start_others(pid)
            })?;
        self.began = true;
        self.description.metadata.missing.extend(missing);
        self.name_others();
        // What they map while their maps are read is in both, and does no harm; were they read before, what
        // they map in between would be in neither.
        self.begin()?;
        for &pid in &processes {
            match layout::read(system, pid) {
                Ok(layout) => self.description.layouts.push(layout),
                Err(Error::System(error)) if error.is_ended() => {}
                Err(error) => self.description.metadata.missing.push(Missing::new(
                    format!("what process {pid} had mapped before"),
                    error.to_string(),
                )),
            }
        }
        self.describe()?;
        Ok(processes)
    }

    /// Begins to capture every thread of the machine but those of this process.
    ///
    /// # Errors
    /// [`stopgap_kernel::Error::Unsupported`] before Linux 5.7; as [`Capture::start`].
    pub fn start_everything(&mut self) -> Result<()> {
        let pid = self.system.pid().to_string();
        match self.instance.write("set_event_notrace_pid", &pid) {
            Err(Error::System(error)) if error.is_absent() => {
                let advice = "this kernel cannot leave out the recorder itself (before Linux 5.7): give a process with -p";
                return Err(stopgap_kernel::Error::unsupported("-a", advice).into());
            }
            written => written?,
        }
        self.description.tasks = threads::all(self.system);
        self.describe()?;
        self.begin()
    }

    /// Starts what is captured beside the kernel's trace events.
    fn start_others(&mut self, pid: u32) -> Result<()> {
        if let Some(counters) = &mut self.counters {
            counters.follow(pid);
        }
        if let Some(mut perf) = self.perf.take() {
            perf.start(self.system, pid)?;
            let description = &mut self.description;
            description.metadata.missing.extend(perf.missing());
            description.perf = Some(perf.description().clone());
            self.perf = Some(perf);
        }
        Ok(())
    }

    fn describe(&self) -> Result<()> {
        replace_json(self.folder()?, DESCRIPTION, &self.description)
    }

    fn follow(&mut self, pid: u32) -> Result<()> {
        // A thread that is made while the others are written down is made by one of them: look until
        // nobody is new.
        loop {
            let threads = threads::threads_of(self.system, pid)?;
            let known = |tid: u32| self.description.tasks.iter().any(|task| task.tid == tid);
            let fresh: Vec<TaskName> = threads
                .into_iter()
                .filter(|task| !known(task.tid))
                .collect();
            if fresh.is_empty() {
                return Ok(());
            }
            let tids = fresh.iter().map(|task| task.tid);
            self.instance.follow(tids.clone())?;
            let perf = self.perf.as_mut().filter(|_| !self.began);
            match perf.map(|perf| perf.follow(self.system, tids)) {
                Some(Err(Error::System(error))) => self.lacks_samples(&error),
                Some(other) => other?,
                None => {}
            }
            self.description.tasks.extend(fresh);
        }
    }

    /// Waits until pages are there, `watched` ends or `longest` is over, and moves the pages.
    ///
    /// # Errors
    /// A full disk among them: what was captured before is in the folder.
    pub fn pump(&mut self, watched: Option<&Watched>, longest: Nanos) -> Result<()> {
        self.counters.as_mut().map_or(Ok(()), Counters::step)?;
        TracePipe::wait(&self.pipes, watched.map(Watched::end), longest);
        for pipe in &mut self.pipes {
            pipe.drain()?;
        }
        if let Some(perf) = &mut self.perf {
            perf.drain()?;
        }
        Ok(())
    }

    /// The command that was captured, process `pid`, has ended so: its rusage are the last counters.
    ///
    /// # Errors
    /// As write(2) to the spool.
    pub fn ended(&mut self, pid: u32, ended: &Ended) -> Result<()> {
        let counters = self.counters.as_mut();
        counters.map_or(Ok(()), |counters| counters.ended(pid, ended))
    }

    /// Ends the capture: what is still in the buffers goes to the folder, and the instance goes.
    /// `end` has what the caller knows of the end: why not all was captured, as a disk that was full.
    ///
    /// # Errors
    /// Where the instance could not be removed. What could not be moved or written is in the spool's
    /// `missing` instead: the part that was captured is of use.
    pub fn stop(mut self, mut end: End) -> Result<Spool> {
        let mut lacks = |what: &str, why: String| end.missing.push(Missing::new(what, why));
        for instance in std::iter::once(&self.instance).chain(&self.of_machine) {
            if let Err(error) = instance.switch(false) {
                lacks("the end of the recording", error.to_string());
            }
        }
        let perf = self.perf.take().map(PerfSpool::stop);
        let pipes = std::mem::take(&mut self.pipes);
        for (cpu, pipe) in self.cpus.iter().cycle().zip(pipes) {
            if let Err(error) = pipe.finish() {
                lacks(&format!("the last pages of CPU {cpu}"), error.to_string());
            }
        }
        match self.counters.as_mut().map(Counters::finish) {
            None => {}
            Some(Ok(missing)) => missing
                .into_iter()
                .for_each(|missing| lacks(&missing.what, missing.why)),
            Some(Err(error)) => lacks("the last counters", error.to_string()),
        }
        let mut losses = Vec::new();
        let instances = std::iter::once((&self.instance, loss_of(false)));
        let instances = instances.chain(self.of_machine.iter().map(|one| (one, loss_of(true))));
        for ((instance, what), &cpu) in
            instances.flat_map(|instance| self.cpus.iter().map(move |cpu| (instance, cpu)))
        {
            let what = what(cpu);
            match instance.counts(cpu, &["overrun", "commit overrun", "dropped events"]) {
                Ok(0) => {}
                Ok(count) => losses.push(Loss { what, count }),
                Err(error) => lacks(&format!("how much of {what} was lost"), error.to_string()),
            }
        }
        if let Some((lost, missing)) = perf {
            losses.extend(lost);
            end.missing.extend(missing);
        }
        end.losses = losses;
        let spool = end_spool(self.folder()?, end);
        let undone = self.scope.take().map(Scope::undo).unwrap_or_default();
        match undone.into_iter().next() {
            Some(error) => Err(error.into()),
            None => spool,
        }
    }

    /// Returns the gaps that are already known.
    #[must_use]
    pub fn missing(&self) -> &[Missing] {
        &self.description.metadata.missing
    }
}

/// Refuses a PID namespace: there a process has another number than the kernel's programs and events know it by.
///
/// # Errors
/// [`stopgap_kernel::Error::Unsupported`].
pub(crate) fn refuse_namespace(system: &dyn System) -> Result<()> {
    if let Ok(namespace) = system.link("/proc/self/ns/pid".as_ref())
        && namespace != Path::new(FIRST_NAMESPACE)
    {
        // Written to set_event_pid, ours would be those of other processes.
        let advice = "in a PID namespace processes have other ids than those that it knows them by; \
                      record from outside of it";
        let error = stopgap_kernel::Error::unsupported("the kernel's tracing", advice);
        return Err(error.into());
    }
    Ok(())
}

/// Describes a capture of `subject` that is about to begin on this machine.
pub(crate) fn describe(system: &dyn System, subject: Subject) -> Description {
    let machine = environment::read(system);
    Description {
        schema: SCHEMA.to_owned(),
        recorder: Some(system.pid()),
        metadata: Metadata {
            clock: Some(Clock::Monotonic),
            boot_id: machine.boot_id,
            kernel: kernel(system),
            source: Some(subject.source),
            page_size: Some(system.page_size()),
            host: machine.host,
            machine: Some(Machine {
                architecture: machine.architecture,
                model: hardware::model(system),
                cpu: machine.cpu,
                cpus: Some(machine.cpus.len() as u64).filter(|&cpus| cpus > 0),
                memory: machine.memory,
                hypervisor: machine.hypervisor,
            }),
            program: subject.program,
            start: Some(utc(system.unix_seconds())),
            stopgap: Some(env!("CARGO_PKG_VERSION").to_owned()),
            labels: subject.labels,
            disks: disks(system),
            devices: hardware::devices(system),
            schedulers: go::processes(system),
            ..Metadata::default()
        },
        ..Description::default()
    }
}

/// Writes how a capture ended into its folder, and opens the folder to be read.
pub(crate) fn end_spool(folder: &Folder, end: End) -> Result<Spool> {
    // A disk that is full has no room for it: the reader then says that the end is not known.
    let written = write_json(folder, END, &end);
    let copy = folder.try_clone();
    let mut spool = Spool::from_folder(copy.map_err(|error| Error::file(folder.path(), error))?)?;
    if written.is_err() {
        spool.set_end(end);
    }
    Ok(spool)
}

/// Returns the names of block devices by `major:minor`; none where the kernel does not list them.
fn disks(system: &dyn System) -> BTreeMap<String, String> {
    let list = read_text(system, "/proc/partitions").unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, minor) = (words.next()?, words.next()?);
        // The first line has heads.
        let _: (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
        let name = words.nth(1)?;
        Some((format!("{major}:{minor}"), name.to_owned()))
    };
    list.lines().filter_map(line).inserted()
}

/// Release and version of the running kernel, as `uname -rv` prints them.
fn kernel(system: &dyn System) -> Option<String> {
    let word = |name: &str| {
        let path = format!("/proc/sys/kernel/{name}");
        stopgap_kernel::files::read_text(system, path).ok()
    };
    let release = word("osrelease")?;
    Some(match word("version") {
        Some(version) => format!("{release} {version}"),
        None => release,
    })
}

/// The folder of a capture that runs.
pub(crate) struct SpoolFolder {
    pub(crate) folder: Folder,
    /// Says that somebody records into it; `None` on file systems without locks.
    _lock: Option<OwnedFd>,
}

impl SpoolFolder {
    /// Makes it.
    ///
    /// # Errors
    /// As mkdirat(2): where anything has the name.
    pub(crate) fn make(path: &Path) -> Result<SpoolFolder> {
        let folder = spool::make(path)?;
        Ok(SpoolFolder {
            _lock: folder.lock().ok().flatten(),
            folder,
        })
    }

    /// Removes it with the files in it: nothing was recorded.
    pub(crate) fn abandon(self) {
        for name in self.folder.names() {
            let _ = self.folder.remove(&name); // a folder that stays is told of when it is in the way
        }
        let path = self.folder.path();
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name())
            && let Ok(parent) = Folder::open(parent)
        {
            let _ = parent.remove_folder(name);
        }
    }
}

pub(crate) fn write_json(folder: &Folder, name: &str, what: &impl serde::Serialize) -> Result<()> {
    let path = folder.path().join(name);
    let text = serde_json::to_vec_pretty(what)
        .map_err(|error| Error::description(path.display().to_string(), error.to_string()))?;
    folder
        .write(name.as_ref(), &text)
        .map_err(|error| Error::file(&path, error))
}

/// As [`write_json`]; what has the name is replaced when all is written.
pub(crate) fn replace_json(
    folder: &Folder,
    name: &str,
    what: &impl serde::Serialize,
) -> Result<()> {
    let fresh = format!("{name}.new");
    write_json(folder, &fresh, what)?;
    folder
        .rename(fresh.as_ref(), name.as_ref())
        .map_err(|error| Error::file(&folder.path().join(name), error))
}

#[cfg(test)]
mod tests;
