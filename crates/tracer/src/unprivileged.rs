//! Recording what a user may see of processes of the same user: switches, forks, execs and ends by
//! perf, and counters. Neither root nor tracefs is needed.
//!
//! Where perf is refused too (`kernel.perf_event_paranoid` above 2), the counters are what is left.
//! What root would have had is in the trace's `missing`, with what it costs in evidence.

mod lacks;

use std::path::Path;

use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_kernel::System;
use stopgap_kernel::linux::perf::Wanted;
use stopgap_kernel::linux::{Ended, Watched};

use crate::capture::{PerfSpool, SpoolFolder, describe, end_spool, threads, write_json};
use crate::counters::Counters;
use crate::description::Description;
use crate::error::{Error, Result};
use crate::spool::{DESCRIPTION, End, Spool};

/// The events that perf records of a process, as perf_event_open(2) calls them.
const RECORDS: [&str; 4] = [
    "PERF_RECORD_SWITCH",
    "PERF_RECORD_FORK",
    "PERF_RECORD_COMM",
    "PERF_RECORD_EXIT",
];

fn recorded(by_perf: bool) -> Vec<String> {
    let records = RECORDS.iter().filter(|_| by_perf);
    records.map(|&record| record.to_owned()).collect()
}

/// A recording that is prepared or runs. Dropped before [`Unprivileged::stop`] it leaves what was
/// recorded so far.
pub struct Unprivileged<'s> {
    system: &'s dyn System,
    switches: Option<PerfSpool>,
    description: Description,
    spool: SpoolFolder,
    counters: Counters<'s>,
}

impl<'s> Unprivileged<'s> {
    /// Makes the folder `spool` and the rings. `why` says why there is no more than this, `source` what
    /// it is a trace of.
    ///
    /// # Errors
    /// Where the folder is there or cannot be made.
    pub fn prepare(
        system: &'s dyn System,
        spool: &Path,
        source: String,
        samples: Option<u32>,
        why: &str,
    ) -> Result<Unprivileged<'s>> {
        let spool = SpoolFolder::make(spool)?;
        let wanted = Wanted {
            switches: true,
            samples: samples.map(|hz| Nanos(1_000_000_000 / u64::from(hz.max(1)))),
        };
        let mut missing = lacks::of_root(why);
        let switches = match PerfSpool::open(system, &spool.folder, wanted) {
            Ok(switches) => Some(switches),
            Err(Error::System(error @ stopgap_kernel::Error::Unsupported { .. })) => {
                missing.push(lacks::of_perf(&error));
                None
            }
            Err(error) => return Err(error),
        };
        let mut description = describe(system, source);
        description.metadata.events = Some(recorded(switches.is_some()));
        description.metadata.missing = missing;
        Ok(Unprivileged {
            description,
            counters: Counters::create(system, &spool.folder)?,
            system,
            switches,
            spool,
        })
    }

    /// Says that this is missing too; before [`Unprivileged::start`].
    pub fn lacks(&mut self, missing: Missing) {
        self.description.metadata.missing.push(missing);
    }

    /// Begins to record every thread of the process `pid`, and what they fork.
    ///
    /// # Errors
    /// [`stopgap_kernel::Error::NoProcess`] where there is no such process;
    /// [`stopgap_kernel::Error::Unsupported`] where it is another user's; as write(2) to the spool.
    pub fn start(&mut self, pid: u32) -> Result<()> {
        let tasks = threads::threads_of(self.system, pid)?;
        // As ptrace(2) allows it, which is what perf asks too.
        if let Err(error) = self.system.link(format!("/proc/{pid}/exe").as_ref())
            && error.is_refused()
        {
            let what = format!("process {pid}");
            let advice =
                "it is the kernel's or another user's, or may more than you; record it as root";
            return Err(stopgap_kernel::Error::unsupported(what, advice).into());
        }
        if let Some(switches) = &mut self.switches {
            let tids = tasks.iter().map(|task| task.tid);
            match switches.follow(self.system, tids) {
                Ok(()) => {
                    switches.start(self.system, pid)?;
                    let missing = &mut self.description.metadata.missing;
                    missing.extend(switches.missing());
                }
                Err(Error::System(error @ stopgap_kernel::Error::Unsupported { .. })) => {
                    let missing = &mut self.description.metadata.missing;
                    missing.push(lacks::of_perf(&error));
                }
                Err(error) => return Err(error),
            }
            self.description.perf = Some(switches.description().clone());
        }
        self.description.tasks = tasks;
        self.counters.follow(pid);
        write_json(&self.spool.folder, DESCRIPTION, &self.description)
    }

    /// Waits until records are there, `watched` ends or `longest` is over, and writes them.
    ///
    /// # Errors
    /// A full disk among them: what was recorded before is in the folder.
    pub fn pump(&mut self, watched: &Watched, longest: Nanos) -> Result<()> {
        self.counters.step()?;
        match &mut self.switches {
            Some(switches) => switches.pump(Some(watched), longest)?,
            None => drop(watched.ends_within(longest)),
        }
        Ok(())
    }

    /// The command that was recorded, process `pid`, has ended so.
    ///
    /// # Errors
    /// As write(2) to the spool.
    pub fn ended(&mut self, pid: u32, ended: &Ended) -> Result<()> {
        self.counters.ended(pid, ended)
    }

    /// Ends the recording. `cut` says why not all was recorded, as a disk that was full.
    ///
    /// # Errors
    /// Where the spool cannot be read back. What could not be written is in its `missing`.
    pub fn stop(mut self, cut: Option<String>) -> Result<Spool> {
        let mut end = End::default();
        if let Some(why) = cut {
            end.missing.push(Missing::new("what came after", why));
        }
        if let Some(switches) = self.switches.take() {
            let (losses, missing) = switches.stop();
            end.losses = losses;
            end.missing.extend(missing);
        }
        match self.counters.finish() {
            Ok(missing) => end.missing.extend(missing),
            Err(error) => {
                let what = "the last counters";
                end.missing.push(Missing::new(what, error.to_string()));
            }
        }
        end_spool(&self.spool.folder, end)
    }
}

#[cfg(test)]
mod tests;
