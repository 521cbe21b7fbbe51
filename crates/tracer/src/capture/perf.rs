//! Records of perf on their way into a spool.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use stopgap_events::machine::Missing;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::System;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::linux::Watched;
use stopgap_kernel::linux::perf::{Recorder, Wanted};
use stopgap_trace::Loss;

use super::maps;
use crate::error::{Error, Result};
use crate::perf::{PerfDescription, losses_of, records_of};

/// The most that one CPU's ring has. At 10,000 samples a second with the deepest stacks it is full
/// after 200 ms; who may lock no more than is usual gets 512 KiB.
const RING: Bytes = Bytes::mib(2);

/// A recorder, and the file of each CPU that its records go to.
pub struct PerfSpool {
    recorder: Recorder,
    description: PerfDescription,
    files: Vec<(u32, File, PathBuf)>,
}

impl PerfSpool {
    /// Opens the rings, and their files in `folder`, which is there. Nothing is recorded yet.
    ///
    /// # Errors
    /// [`stopgap_kernel::Error::Unsupported`] where perf is refused; where a file cannot be made.
    pub fn open(system: &dyn System, folder: &Folder, wanted: Wanted) -> Result<PerfSpool> {
        let recorder = Recorder::open(system, wanted, RING)?;
        let mut files = Vec::new();
        for cpu in recorder.cpus() {
            let path = folder.path().join(records_of(cpu));
            let file = folder.create(records_of(cpu).as_ref(), 0o600);
            let file = file.map_err(|error| Error::file(&path, error))?;
            files.push((cpu, file, path));
        }
        Ok(PerfSpool {
            description: PerfDescription {
                cpus: recorder.cpus().collect(),
                scheduling: wanted.switches,
                period: wanted.samples,
                mappings: Vec::new(),
            },
            recorder,
            files,
        })
    }

    /// Records these threads and what they will fork.
    ///
    /// # Errors
    /// As [`Recorder::follow`]. A thread that has ended is none.
    pub fn follow(
        &mut self,
        system: &dyn System,
        tids: impl IntoIterator<Item = u32>,
    ) -> Result<()> {
        for tid in tids {
            self.recorder.follow(system, tid)?;
        }
        Ok(())
    }

    /// Returns perf's part of the spool's description.
    #[must_use]
    pub fn description(&self) -> &PerfDescription {
        &self.description
    }

    /// Returns the gaps that are already known.
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        let kernel = self.recorder.kernel_refused();
        let missing = kernel.map(|why| Missing::new("samples of time in the kernel", why));
        missing.into_iter().collect()
    }

    /// From now on it is recorded. For the sake of samples it is noted what the process `pid` has
    /// mapped: what it maps from now on the records tell.
    ///
    /// # Errors
    /// As ioctl(2); where the mappings may not be read.
    pub fn start(&mut self, system: &dyn System, pid: u32) -> Result<()> {
        self.recorder.start()?;
        if self.description.period.is_some() {
            let mappings = maps::executable(system, pid)?;
            self.description.mappings.extend(mappings);
        }
        Ok(())
    }

    /// Moves what has come into the files.
    ///
    /// # Errors
    /// A full disk among them: what was written before is whole records but for the last.
    pub fn drain(&mut self) -> Result<()> {
        let files = &mut self.files;
        self.recorder.drain(|cpu, records| {
            let Some((_, file, path)) = files.iter_mut().find(|(number, ..)| *number == cpu) else {
                return Ok(());
            };
            file.write_all(records)
                .map_err(|error| Error::file(path, error))
        })
    }

    /// Waits until a ring is a third full, `watched` ends or `longest` is over, and moves what has
    /// come.
    ///
    /// # Errors
    /// As [`PerfSpool::drain`].
    pub fn pump(&mut self, watched: Option<&Watched>, longest: Nanos) -> Result<()> {
        self.recorder.wait(watched.map(Watched::end), longest);
        self.drain()
    }

    /// Ends the recording and moves the rest into the files; what was lost, and what could not be done.
    #[must_use]
    pub fn stop(mut self) -> (Vec<Loss>, Vec<Missing>) {
        let mut missing = Vec::new();
        let rest = self.recorder.stop().map_err(Error::from);
        if let Err(error) = rest.and_then(|()| self.drain()) {
            missing.push(Missing::new("the last records of perf", error.to_string()));
        }
        // Where the kernel does not count them, the records speak of them.
        let losses = self.recorder.lost().unwrap_or_default();
        let losses = losses.into_iter().filter(|&(_, count)| count > 0);
        let losses = losses.map(|(cpu, count)| Loss {
            what: losses_of(cpu),
            count,
        });
        (losses.collect(), missing)
    }
}
