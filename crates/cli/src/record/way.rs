//! The two ways to record: the kernel's trace events, or what an ordinary user may see.

use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::{Ended, Watched};
use stopgap_tracer::capture::{Capture, Options};
use stopgap_tracer::spool::Spool;
use stopgap_tracer::unprivileged::Unprivileged;
use stopgap_tracer::{Error, Result};

use crate::args;

/// A recording under way.
pub(super) enum Way<'j, 's> {
    Events(Box<Capture<'j, 's>>),
    User(Box<Unprivileged<'s>>),
}

impl<'j> Way<'j, 'static> {
    /// Prepares the best way that this machine allows. Nothing is recorded yet.
    pub(super) fn prepare(
        journal: &'j Journal<'static>,
        options: &Options,
        args: &args::Record,
    ) -> Result<Self> {
        let samples = args.samples;
        match Capture::prepare(&Linux, journal, options) {
            Ok(mut capture) => {
                capture.count()?;
                if let Some(hz) = samples {
                    capture.sample(hz)?;
                }
                Ok(Way::Events(Box::new(capture)))
            }
            Err(Error::System(error @ stopgap_kernel::Error::Unsupported { .. })) => {
                let (spool, source) = (&options.spool, options.source.clone());
                let mut user =
                    Unprivileged::prepare(&Linux, spool, source, samples, &error.to_string())?;
                let events = args.events.map(|_| "--events");
                let buffer = args.buffer.map(|_| "--buffer");
                for flag in events.into_iter().chain(buffer) {
                    let why = "it is for kernel events, of which there are none here";
                    user.lacks(Missing::new(format!("what {flag} asks for"), why));
                }
                Ok(Way::User(Box::new(user)))
            }
            Err(error) => Err(error),
        }
    }
}

impl Way<'_, '_> {
    pub(super) fn start(&mut self, pid: u32) -> Result<()> {
        match self {
            Way::Events(capture) => capture.start(pid),
            Way::User(user) => user.start(pid),
        }
    }

    /// As `start`, of a process that has run for a while.
    pub(super) fn start_running(&mut self, pid: u32) -> Result<()> {
        match self {
            Way::Events(capture) => capture.start_running(pid),
            Way::User(user) => user.start(pid),
        }
    }

    pub(super) fn pump(&mut self, watched: &Watched, longest: Nanos) -> Result<()> {
        match self {
            Way::Events(capture) => capture.pump(Some(watched), longest),
            Way::User(user) => user.pump(watched, longest),
        }
    }

    /// Takes the command's last counters from wait4(2).
    pub(super) fn ended(&mut self, pid: u32, ended: &Ended) -> Result<()> {
        match self {
            Way::Events(capture) => capture.ended(pid, ended),
            Way::User(user) => user.ended(pid, ended),
        }
    }

    pub(super) fn stop(self, cut: Option<String>) -> Result<Spool> {
        match self {
            Way::Events(capture) => capture.stop(cut),
            Way::User(user) => user.stop(cut),
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
