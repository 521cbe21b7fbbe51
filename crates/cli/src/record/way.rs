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

/// Sources in the order in which they are tried where none is chosen.
const USUAL: &[CaptureSource] = &[
    CaptureSource::Bpf,
    CaptureSource::Tracefs,
    CaptureSource::Perf,
];

/// Returns what a better source knows and this one does not.
fn unknown_by(source: CaptureSource) -> &'static str {
    match source {
        CaptureSource::Bpf => "nothing",
        CaptureSource::Tracefs => {
            "what threads of other programs wait for, and the program's own stacks"
        }
        CaptureSource::Perf => {
            "who wakes a thread, and in which call, for which lock or disk it waits"
        }
    }
}

/// A source that cannot be used here, with the reason.
struct Refused(CaptureSource, String);

/// The reasons of all, as one.
fn reasons(refused: &[Refused]) -> String {
    let reasons = refused.chunk_by(|one, next| one.1 == next.1).map(|alike| {
        let names = alike
            .iter()
            .map(|Refused(source, _)| format!("no {source}"));
        let names = names.collect::<Vec<_>>().join(" and ");
        format!("{names}: {}", alike[0].1)
    });
    reasons.collect::<Vec<_>>().join("; ")
}

/// Says why a source is taken instead of better ones, and what is not known by it.
fn instead_of_better(source: CaptureSource, refused: &[Refused]) -> Option<String> {
    let (why, unknown) = (reasons(refused), unknown_by(source));
    let remedy = match Linux.uid() {
        0 => "",
        _ => ". As root it is: sudo stopgap record ...",
    };
    let line =
        format!("recording by {source}, because there is {why}; not known is {unknown}{remedy}");
    (!refused.is_empty()).then_some(line)
}

impl<'j> Way<'j, 'static> {
    /// Prepares the best way that this machine allows, or the one that `args` name; and where that is not the best one, a line
    /// that says why, and what is not known. Nothing is recorded yet.
    ///
    /// # Errors
    /// The last source's, or that of the source that was chosen.
    pub(super) fn prepare(
        journal: &'j Journal<'static>,
        options: &Options,
        args: &args::Record,
    ) -> Result<(Self, Option<String>)> {
        let chosen: Vec<CaptureSource> = match args.source {
            Some(source) => vec![source],
            None if args.only => vec![CaptureSource::Bpf],
            None => USUAL.to_vec(),
        };
        let (&last, others) = chosen.split_last().unwrap_or((&CaptureSource::Perf, &[]));
        let mut refused = Vec::new();
        for &source in others {
            match Way::by(source, journal, options, args, &refused) {
                Err(Error::System(stopgap_kernel::Error::Unsupported { advice, .. })) => {
                    refused.push(Refused(source, advice));
                }
                way => return Ok((way?, instead_of_better(source, &refused))),
            }
        }
        let way = Way::by(last, journal, options, args, &refused)?;
        Ok((way, instead_of_better(last, &refused)))
    }

    fn by(
        source: CaptureSource,
        journal: &'j Journal<'static>,
        options: &Options,
        args: &args::Record,
        refused: &[Refused],
    ) -> Result<Self> {
        let recording = |by: &By<'_>| {
            let (spool, subject) = (&options.spool, options.subject.clone());
            Recording::prepare(&Linux, spool, subject, args.samples, by)
        };
        let why = reasons(refused);
        Ok(match source {
            CaptureSource::Bpf => {
                Way::Recording(Box::new(recording(&By::Waits(waits_options(args)?))?))
            }
            CaptureSource::Tracefs => {
                let mut capture = Capture::prepare(&Linux, journal, options)?;
                capture.count()?;
                if let Some(hz) = args.samples {
                    capture.sample(hz)?;
                }
                if !refused.is_empty() {
                    capture.lacks(Missing::new(unknown_by(source), why.clone()));
                }
                Way::Events(Box::new(capture))
            }
            CaptureSource::Perf => {
                if args.all {
                    let advice = match refused {
                        [] => "perf follows processes; name them with -p".to_owned(),
                        _ => format!("perf follows processes, and there is {why}"),
                    };
                    return Err(stopgap_kernel::Error::unsupported("-a", advice).into());
                }
                let chosen = "--source perf";
                let why = if refused.is_empty() { chosen } else { &why };
                let mut recording = recording(&By::Perf { why })?;
                let events = args.events.map(|_| "--events");
                let buffer = args.buffer.map(|_| "--buffer");
                for flag in events.into_iter().chain(buffer) {
                    let why = "it is for kernel events, of which there are none here";
                    recording.lacks(Missing::new(format!("what {flag} asks for"), why));
                }
                Way::Recording(Box::new(recording))
            }
        })
    }
}

fn waits_options(args: &args::Record) -> Result<waits::Options> {
    let cpus = Linux.cpus()?.len().max(1) as u64;
    let usual = waits::Options::default();
    let rings = args
        .buffer
        .map(|buffer| Bytes(buffer.0.saturating_mul(cpus)));
    Ok(waits::Options {
        only: args.only,
        names: args.comm.clone(),
        rings,
        parts: match (args.events, args.samples) {
            (None, None) => usual.parts,
            (Some(EventSet::Scheduling), _) => Vec::new(),
            // Samples are booked on the calls in which they were taken.
            (Some(EventSet::All), _) | (None, Some(_)) => [usual.parts, vec![Part::Calls]].concat(),
        },
    })
}

impl Way<'_, '_> {
    pub(super) fn start(&mut self, pid: u32) -> Result<()> {
        match self {
            Way::Events(capture) => capture.start(pid),
            Way::Recording(recording) => recording.start(pid),
        }
    }

    /// As `start`, of processes that have run for a while, and of those below them. Returns what is recorded.
    pub(super) fn start_running(&mut self, given: &[u32], found: &[u32]) -> Result<Vec<u32>> {
        match self {
            Way::Events(capture) => capture.start_running(given, found),
            Way::Recording(recording) => recording.start_running(given, found),
        }
    }

    /// Records all threads of the machine.
    pub(super) fn start_everything(&mut self) -> Result<()> {
        match self {
            Way::Events(capture) => capture.start_everything(),
            Way::Recording(recording) => recording.start_everything(),
        }
    }

    pub(super) fn pump(&mut self, watched: Option<&Watched>, longest: Nanos) -> Result<()> {
        match self {
            Way::Events(capture) => capture.pump(watched, longest),
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
