//! Recording without tracefs: waits by BPF, or what a user may see of processes of the same user by perf; and counters.
//!
//! Where perf is refused too (`kernel.perf_event_paranoid` above 2), the counters are what is left.
//! What BPF or root would have had is in the trace's `missing`, with what it costs in evidence.

mod lacks;

use std::ops::RangeFrom;
use std::path::Path;

use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_kernel::System;
use stopgap_kernel::linux::perf::Wanted;
use stopgap_kernel::linux::{Ended, Watched};
use stopgap_trace::Text;

use crate::capture::{
    PerfSpool, SpoolFolder, describe, end_spool, refuse_namespace, replace_json, threads,
};
use crate::counters::Counters;
use crate::description::{Description, Subject};
use crate::error::{Error, Result};
use crate::layout;
use crate::spool::{DESCRIPTION, End, Spool};
use crate::waits::{self, WaitSpool};

/// The rings are read so often: 64 MiB hold 3 million waits a 20 ms.
const READ: Nanos = Nanos::millis(20);

/// From reading the clock to having its record in the ring a program takes less, however long the hypervisor keeps its CPU. A
/// record that comes later than this is out of order in the trace.
const LATEST: Nanos = Nanos::millis(200);

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

/// What tells of switches.
pub enum By<'a> {
    /// BPF programs: every wait.
    Waits(waits::Options),
    /// perf: what a user may see. `why` says why there is no more than that.
    Perf {
        /// The reason.
        why: &'a str,
    },
}

/// A recording that is prepared or runs. Dropped before [`Recording::stop`] it leaves what was
/// recorded so far.
pub struct Recording<'s> {
    system: &'s dyn System,
    perf: Option<PerfSpool>,
    waits: Option<WaitSpool>,
    description: Description,
    spool: SpoolFolder,
    counters: Counters<'s>,
    drained: Nanos,
    /// Whether perf's threads are chosen.
    began: bool,
    /// Names of mappings that there were already.
    mappings: RangeFrom<u32>,
}

impl<'s> Recording<'s> {
    /// Makes the folder `spool`, and attaches the programs or opens the rings. `subject` says what it is a trace of; `samples`
    /// how many samples a second of each thread are wanted.
    ///
    /// # Errors
    /// Where the folder is there or cannot be made; for [`By::Waits`], where BPF is not possible.
    pub fn prepare(
        system: &'s dyn System,
        spool: &Path,
        subject: Subject,
        samples: Option<u32>,
        by: &By<'_>,
    ) -> Result<Recording<'s>> {
        let spool = SpoolFolder::make(spool)?;
        let prepared = Self::prepare_in(system, &spool, subject, samples, by);
        let (description, waits, perf) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                spool.abandon();
                return Err(error);
            }
        };
        Ok(Recording {
            description,
            counters: Counters::create(system, &spool.folder)?,
            system,
            perf,
            waits,
            spool,
            drained: Nanos(0),
            began: false,
            mappings: 0..,
        })
    }

    fn prepare_in(
        system: &dyn System,
        spool: &SpoolFolder,
        subject: Subject,
        samples: Option<u32>,
        by: &By<'_>,
    ) -> Result<(Description, Option<WaitSpool>, Option<PerfSpool>)> {
        let mut description = describe(system, subject);
        let mut waits = None;
        if let By::Waits(options) = by {
            refuse_namespace(system)?;
            let opened = WaitSpool::open(system, &spool.folder, options)?;
            description.metadata.missing = opened.missing();
            description.metadata.events = Some(opened.events());
            description.waits = Some(opened.description());
            description.syscalls = waits::syscall_names();
            waits = Some(opened);
        }
        let wanted = Wanted {
            switches: waits.is_none(),
            samples: samples.map(|hz| Nanos(1_000_000_000 / u64::from(hz.max(1)))),
        };
        let mut perf = None;
        if wanted.switches || wanted.samples.is_some() {
            let missing = &mut description.metadata.missing;
            if let By::Perf { why } = by {
                missing.extend(lacks::of_better_sources(why));
            }
            match PerfSpool::open(system, &spool.folder, wanted) {
                Ok(opened) => perf = Some(opened),
                Err(Error::System(error @ stopgap_kernel::Error::Unsupported { .. })) => {
                    missing.push(match wanted.switches {
                        true => lacks::of_perf(&error),
                        false => Missing::new("samples", error.to_string()),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        if waits.is_none() {
            description.metadata.events = Some(recorded(perf.is_some()));
        }
        Ok((description, waits, perf))
    }

    /// Says that this is missing too; before [`Recording::start`].
    pub fn lacks(&mut self, missing: Missing) {
        let all = &mut self.description.metadata.missing;
        if !all.iter().any(|known| known.what == missing.what) {
            all.push(missing);
        }
    }

    /// Begins to record every thread of the process `pid`, and what they fork.
    ///
    /// # Errors
    /// [`stopgap_kernel::Error::NoProcess`] where there is no such process;
    /// [`stopgap_kernel::Error::Unsupported`] where it is another user's; as write(2) to the spool.
    pub fn start(&mut self, pid: u32) -> Result<()> {
        self.follow(pid, true)?;
        self.began = true;
        self.describe()
    }

    /// As [`Recording::start`], of processes that have run for a while, and of the processes below them. The processes `given` must
    /// be ours to record, others that were `found` need not; to be called again for those that are found later: BPF follows
    /// them, perf only what followed processes make. Returns the processes that are recorded now; one that has ended is
    /// passed over.
    ///
    /// # Errors
    /// As [`Recording::start`].
    pub fn start_running(&mut self, given: &[u32], found: &[u32]) -> Result<Vec<u32>> {
        let began = self.began;
        let threads::Followed { processes, missing } =
            threads::follow_families(self.system, given, found, |pid, is_first| {
                let before = self.system.now();
                self.follow(pid, is_first && !began)?;
                self.lay_out(pid, before)
            })?;
        self.began = true;
        missing.into_iter().for_each(|missing| self.lacks(missing));
        self.describe()?;
        Ok(processes)
    }

    /// Begins to record every thread of the machine, but by perf.
    ///
    /// # Errors
    /// [`stopgap_kernel::Error::Unsupported`] by perf; as write(2) to the spool.
    pub fn start_everything(&mut self) -> Result<()> {
        let Some(waits) = &mut self.waits else {
            let advice = "perf follows processes; name them with -p";
            return Err(stopgap_kernel::Error::unsupported("-a", advice).into());
        };
        waits.follow(None)?;
        self.describe()
    }

    /// Writes down what a process has mapped, as of the time `before`: what it maps while its maps are read is in both, and
    /// does no harm.
    fn lay_out(&mut self, pid: u32, before: Nanos) -> Result<()> {
        if !self.waits.as_ref().is_some_and(WaitSpool::has_mappings) {
            return Ok(());
        }
        let rows = match layout::read(self.system, pid) {
            Ok(read) => {
                let tasks = self.description.tasks.iter();
                let name = tasks.rev().find(|task| task.tid == pid);
                let comm = name.and_then(|task| task.comm.as_deref()).map(Text::from);
                layout::rows(&read, comm.as_ref(), before, &mut self.mappings)
            }
            Err(Error::System(error)) if error.is_ended() => return Ok(()),
            Err(error) => {
                let what = format!("what process {pid} had mapped before");
                Err(Missing::new(what, error.to_string()))
            }
        };
        match rows {
            Ok(rows) => self.counters.write(&rows),
            Err(missing) => {
                self.lacks(missing);
                Ok(())
            }
        }
    }

    fn describe(&self) -> Result<()> {
        replace_json(&self.spool.folder, DESCRIPTION, &self.description)
    }

    /// `by_perf`: what is made by a process that perf follows perf follows too; followed by itself it would come twice.
    fn follow(&mut self, pid: u32, by_perf: bool) -> Result<()> {
        let tasks = threads::threads_of(self.system, pid)?;
        // As ptrace(2) allows it, which is what perf asks too.
        if let Err(error) = self.system.link(format!("/proc/{pid}/exe").as_ref())
            && error.is_refused()
        {
            let what = format!("process {pid}");
            let advice = "it is the kernel's or another user's, or may more than you; record it with CAP_SYS_PTRACE or as root";
            return Err(stopgap_kernel::Error::unsupported(what, advice).into());
        }
        if let Some(waits) = &mut self.waits {
            waits.follow(Some(pid))?;
        }
        if self.perf.is_some() && !by_perf {
            let why =
                "perf follows those that exist when the recording begins, and what they start";
            self.lacks(Missing::new(
                "what perf tells of processes that came later",
                why,
            ));
        }
        if let Some(perf) = self.perf.as_mut().filter(|_| by_perf) {
            let tids = tasks.iter().map(|task| task.tid);
            let missing = match perf.follow(self.system, tids) {
                Ok(()) => {
                    perf.start(self.system, pid)?;
                    perf.missing()
                }
                Err(Error::System(error @ stopgap_kernel::Error::Unsupported { .. })) => {
                    vec![match self.waits {
                        None => lacks::of_perf(&error),
                        Some(_) => Missing::new("samples", error.to_string()),
                    }]
                }
                Err(error) => return Err(error),
            };
            self.description.perf = Some(perf.description().clone());
            missing.into_iter().for_each(|missing| self.lacks(missing));
        }
        self.description.tasks.extend(tasks);
        self.counters.follow(pid);
        Ok(())
    }

    /// Waits until records are there, `watched` ends or `longest` is over, and writes the records.
    ///
    /// # Errors
    /// A full disk among them: what was recorded before is in the folder.
    pub fn pump(&mut self, watched: Option<&Watched>, longest: Nanos) -> Result<()> {
        self.counters.step()?;
        // Rings of BPF wake nobody but for the mappings of a process that may end soon.
        let longest = if self.waits.is_some() {
            longest.min(READ)
        } else {
            longest
        };
        match (&mut self.perf, &self.waits, watched) {
            (Some(perf), ..) => perf.pump(watched, longest)?,
            (None, Some(waits), Some(watched)) => watched.ends_or_readable(waits.bell(), longest),
            (None, None, Some(watched)) => drop(watched.ends_within(longest)),
            (None, _, None) => self.system.sleep_until(self.system.now() + longest),
        }
        let now = self.system.now();
        if let Some(waits) = &mut self.waits {
            waits.drain(self.system)?;
        }
        self.drained = now.saturating_sub(LATEST);
        Ok(())
    }

    /// Returns the time up to which waits and counters are in the files of the spool.
    #[must_use]
    pub fn drained(&self) -> Nanos {
        self.drained
    }

    /// Returns whether the folder's trace file can be made while this goes on, see [`Spool::follow`].
    #[must_use]
    pub fn may_be_followed(&self) -> bool {
        self.waits.is_some() && self.perf.is_none()
    }

    /// The command that was recorded, process `pid`, has ended so.
    ///
    /// # Errors
    /// As write(2) to the spool.
    pub fn ended(&mut self, pid: u32, ended: &Ended) -> Result<()> {
        self.counters.ended(pid, ended)
    }

    /// Ends the recording. `end` has what the caller knows of the end: why not all was recorded, as a disk that was full.
    ///
    /// # Errors
    /// Where the spool cannot be read back. What could not be written is in its `missing`.
    pub fn stop(mut self, mut end: End) -> Result<Spool> {
        let waits = self.waits.take().map(|waits| waits.stop(self.system));
        let perf = self.perf.take().map(PerfSpool::stop);
        for (losses, missing) in waits.into_iter().chain(perf) {
            end.losses.extend(losses);
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
