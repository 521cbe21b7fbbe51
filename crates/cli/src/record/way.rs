//! The ways to record: waits by BPF, the kernel's trace events, or what an ordinary user may see.

use stopgap_events::machine::Missing;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::{Ended, Watched};
use stopgap_kernel::tasks::Tasks;
use stopgap_tracer::capture::{Capture, Options};
use stopgap_tracer::events::{CaptureSource, EventSet};
use stopgap_tracer::recording::{By, Recording};
use stopgap_tracer::spool::{End, Spool};
use stopgap_tracer::waits::{self, Part};
use stopgap_tracer::{Error, Result};

use crate::args;

/// A recording under way.
pub(super) enum Way<'j, 's> {
    Events(Box<Capture<'j, 's>>),
    Recording(Box<Recording<'s>>),
}

impl<'j> Way<'j, 'static> {
    /// Prepares the best way that this machine allows, or the one that `args` name. Nothing is recorded yet.
    pub(super) fn prepare(
        journal: &'j Journal<'static>,
        options: &Options,
        args: &args::Record,
    ) -> Result<Self> {
        let record = |by: &By<'_>| {
            let (spool, subject) = (&options.spool, options.subject.clone());
            Recording::prepare(&Linux, spool, subject, args.samples, by)
        };
        if args.source == Some(CaptureSource::Bpf) {
            let cpus = Linux.cpus()?.len().max(1) as u64;
            let usual = waits::Options::default();
            let waits = waits::Options {
                only: args.only,
                rings: args
                    .buffer
                    .map(|buffer| Bytes(buffer.0.saturating_mul(cpus))),
                parts: match args.events {
                    None => usual.parts,
                    Some(EventSet::Scheduling) => Vec::new(),
                    Some(EventSet::All) => [usual.parts, vec![Part::Calls]].concat(),
                },
            };
            return Ok(Way::Recording(Box::new(record(&By::Waits(waits))?)));
        }
        let why = match args.source {
            Some(CaptureSource::Perf) => "--source perf".to_owned(),
            _ => match Capture::prepare(&Linux, journal, options) {
                Ok(mut capture) => {
                    capture.count()?;
                    if let Some(hz) = args.samples {
                        capture.sample(hz)?;
                    }
                    return Ok(Way::Events(Box::new(capture)));
                }
                Err(Error::System(error @ stopgap_kernel::Error::Unsupported { .. }))
                    if args.source.is_none() =>
                {
                    error.to_string()
                }
                Err(error) => return Err(error),
            },
        };
        let mut recording = record(&By::Perf { why: &why })?;
        let events = args.events.map(|_| "--events");
        let buffer = args.buffer.map(|_| "--buffer");
        for flag in events.into_iter().chain(buffer) {
            let why = "it is for kernel events, of which there are none here";
            recording.lacks(Missing::new(format!("what {flag} asks for"), why));
        }
        Ok(Way::Recording(Box::new(recording)))
    }
}

impl Way<'_, '_> {
    pub(super) fn start(&mut self, pid: u32) -> Result<()> {
        match self {
            Way::Events(capture) => capture.start(pid),
            Way::Recording(recording) => recording.start(pid),
        }
    }

    /// As `start`, of a process that has run for a while.
    pub(super) fn start_running(&mut self, pid: u32) -> Result<()> {
        match self {
            Way::Events(capture) => capture.start_running(pid),
            Way::Recording(recording) => recording.start(pid),
        }
    }

    pub(super) fn pump(&mut self, watched: &Watched, longest: Nanos) -> Result<()> {
        match self {
            Way::Events(capture) => capture.pump(Some(watched), longest),
            Way::Recording(recording) => recording.pump(watched, longest),
        }
    }

    /// Returns the time up to which the spool's files have all events, where its trace can be made meanwhile.
    pub(super) fn drained(&self) -> Option<Nanos> {
        match self {
            Way::Recording(recording) if recording.may_be_followed() => Some(recording.drained()),
            _ => None,
        }
    }

    /// Takes the command's last counters from wait4(2).
    pub(super) fn ended(&mut self, pid: u32, ended: &Ended) -> Result<()> {
        match self {
            Way::Events(capture) => capture.ended(pid, ended),
            Way::Recording(recording) => recording.ended(pid, ended),
        }
    }

    pub(super) fn stop(self, end: End) -> Result<Spool> {
        match self {
            Way::Events(capture) => capture.stop(end),
            Way::Recording(recording) => recording.stop(end),
        }
    }
}

/// Returns whether a recorder is writing to the folder `spool`. A recorder locks its spool; on a file system without locks
/// this looks for open files of the process `recorder`.
pub(super) fn is_recorded_into(recorder: u32, spool: &Folder) -> bool {
    use stopgap_kernel::files::Files;
    if let Ok(lock) = spool.lock() {
        return lock.is_none();
    }
    let Ok(spool) = std::fs::canonicalize(spool.path()) else {
        return false;
    };
    let folder = format!("/proc/{recorder}/fd");
    let open = Linux.list(folder.as_ref()).unwrap_or_default();
    let link = |name: &String| Linux.link(format!("{folder}/{name}").as_ref()).ok();
    open.iter()
        .filter_map(link)
        .any(|path| path.starts_with(&spool))
}
