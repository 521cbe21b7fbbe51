//! The last seconds: a capture that nobody reads, so that in each CPU's buffer new events replace
//! the oldest, until something has happened and the window is taken out.
//!
//! ```text
//! CPU 0  ..xxxxxxxxxxxxxxxxxx|      x: in the buffer, .: replaced
//! CPU 1  .........xxxxxxxxxxx|
//!                 ^ complete since here, on all CPUs
//!                            | tracing off, pages to a spool, tracing on: the gap
//! ```

use std::io::Read;
use std::path::Path;

use stopgap_events::units::Nanos;
use stopgap_kernel::System;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::journal::{Journal, Scope};
use stopgap_kernel::linux::TracePipe;
use stopgap_kernel::local_time::utc;
use stopgap_trace::Loss;

use super::{Capture, Options, threads, write_json};
use crate::description::DESCRIPTION_TASKS;
use crate::error::{Error, Result};
use crate::page::PageLayout;
use crate::spool::{self, DESCRIPTION, END, End, Spool, pages_of, read_page};

/// A window that is prepared or runs. Dropped, it leaves no instance.
pub struct Window<'j, 's> {
    capture: Capture<'j, 's>,
    page: usize,
    /// Losses of each CPU when the last one was taken out.
    lost: Vec<u64>,
    /// When tracing was switched on.
    since: Nanos,
}

/// A window that was taken out.
#[derive(Debug)]
pub struct Taken {
    /// Its pages.
    pub spool: Spool,
    /// When tracing was switched on: nothing is in it from before.
    pub since: Nanos,
    /// When tracing was switched off for it: it ends there.
    pub end: Nanos,
    /// For how long nothing was traced.
    pub gap: Nanos,
}

impl<'j, 's> Window<'j, 's> {
    /// Makes the instance. Nothing is captured yet; `options.spool` is not used.
    ///
    /// # Errors
    /// As [`Capture::prepare`].
    pub fn prepare(
        system: &'s dyn System,
        journal: &'j Journal<'s>,
        options: &Options,
    ) -> Result<Window<'j, 's>> {
        let capture = Capture::instance(system, journal, options)?;
        let page = capture.layout()?.page_bytes();
        let lost = vec![0; capture.cpus.len()];
        Ok(Window {
            capture,
            page,
            lost,
            since: Nanos(0),
        })
    }

    /// Captures from now on the process `pid` and what it forks; `None`: all but this process and what
    /// it forks.
    ///
    /// # Errors
    /// As [`Capture::start`]; [`stopgap_kernel::Error::Unsupported`] of `None` before Linux 5.7.
    pub fn start(&mut self, pid: Option<u32>) -> Result<()> {
        match pid {
            Some(pid) => self.capture.follow(pid)?,
            None => {
                exclude_ourselves(self.capture.system, self.capture.instance.path())?;
            }
        }
        self.capture.instance.switch(true)?;
        self.since = self.capture.system.now();
        Ok(())
    }

    /// Returns the gaps that are already known.
    #[must_use]
    pub fn missing(&self) -> &[stopgap_events::machine::Missing] {
        self.capture.missing()
    }

    /// CPUs that have a buffer.
    #[must_use]
    pub fn cpus(&self) -> &[u32] {
        &self.capture.cpus
    }

    /// Takes what is in the buffers out, into `folder`, which is made; then the window fills anew.
    ///
    /// # Errors
    /// A full disk among them. Tracing is on again in any case, where the kernel lets us; what was
    /// taken out before the error is lost.
    pub fn take(&mut self, folder: &Path) -> Result<Taken> {
        let system = self.capture.system;
        let folder = spool::make(folder)?;
        let end = system.now();
        self.capture.instance.switch(false)?;
        let moved = self.move_pages(&folder);
        let on = self.capture.instance.switch(true);
        let again = system.now();
        let since = std::mem::replace(&mut self.since, again);
        let gap = again.saturating_sub(end);
        moved?;
        on?;
        let losses = self.losses();
        // Threads that were forked before the window began have no name in it.
        let mut description = self.capture.description.clone();
        description.tasks = tasks(system);
        let length = end.saturating_sub(since);
        let began = system
            .unix_seconds()
            .saturating_sub(length.0 / 1_000_000_000);
        description.metadata.start = Some(utc(began));
        write_json(&folder, DESCRIPTION, &description)?;
        let end_file = End {
            losses,
            ..End::default()
        };
        write_json(&folder, END, &end_file)?;
        let spool = Spool::from_folder(folder)?;
        Ok(Taken {
            spool,
            since,
            end,
            gap,
        })
    }

    fn move_pages(&self, folder: &Folder) -> Result<()> {
        for &cpu in &self.capture.cpus {
            let raw = self.capture.instance.raw_pipe(cpu);
            TracePipe::open(&raw, folder, &pages_of(cpu), self.page)?.finish()?;
        }
        Ok(())
    }

    /// What could not be written since the last time. What was replaced is none of it: that is how a
    /// window moves. A CPU that cannot be asked counts as one that lost nothing new.
    fn losses(&mut self) -> Vec<Loss> {
        let mut losses = Vec::new();
        for (&cpu, before) in self.capture.cpus.iter().zip(&mut self.lost) {
            let counts = (self.capture.instance).counts(cpu, &["commit overrun", "dropped events"]);
            let now = counts.unwrap_or(0);
            let new = now.saturating_sub(*before);
            *before = now;
            if new > 0 {
                let what = format!("CPU {cpu}");
                losses.push(Loss { what, count: new });
            }
        }
        losses
    }

    /// Ends the window.
    ///
    /// # Errors
    /// Where the instance could not be removed.
    pub fn stop(mut self) -> Result<()> {
        let undone = self.capture.scope.take().map(Scope::undo);
        match undone.unwrap_or_default().into_iter().next() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// Nothing of this process, or of what it forks, is captured by the instance in `folder`.
///
/// # Errors
/// [`stopgap_kernel::Error::Unsupported`] before Linux 5.7.
pub(crate) fn exclude_ourselves(system: &dyn System, folder: &Path) -> Result<()> {
    let path = folder.join("set_event_notrace_pid");
    let pid = system.pid().to_string();
    match system.write(&path, pid.as_bytes()) {
        Err(error) if error.is_absent() => {
            let advice = "this kernel cannot leave out the recorder itself (before Linux 5.7): give a process with -p";
            Err(stopgap_kernel::Error::unsupported("watching the whole system", advice).into())
        }
        other => Ok(other?),
    }
}

/// All threads that there are now, up to [`DESCRIPTION_TASKS`].
fn tasks(system: &dyn System) -> Vec<crate::description::TaskName> {
    let names = system.list(Path::new("/proc")).unwrap_or_default();
    let pids = names.iter().filter_map(|name| name.parse().ok());
    // A process that ends meanwhile has none any more.
    pids.flat_map(|pid| threads::threads_of(system, pid).unwrap_or_default())
        .take(DESCRIPTION_TASKS)
        .collect()
}

/// From when on all CPUs of a window's spool are complete: the beginning of the last page before which
/// events were replaced. `None`: nothing was replaced.
///
/// # Errors
/// Where the pages cannot be read.
pub fn complete_from(spool: &Spool) -> Result<Option<Nanos>> {
    let layout = PageLayout::parse("header_page", &spool.description().header_page)?;
    let mut from = None;
    let mut page = vec![0; layout.page_bytes()];
    for &cpu in &spool.description().cpus {
        let path = spool.folder().join(pages_of(cpu));
        let file = spool.file(&pages_of(cpu))?;
        let mut file = std::io::BufReader::with_capacity(1 << 18, file);
        while let Some(length) = next(&mut file, &mut page).map_err(|e| Error::file(&path, e))? {
            // The decoder reports a page that cannot be understood.
            if let Ok(page) = layout.page(&page[..length])
                && page.lost.is_some()
            {
                from = from.max(Some(Nanos(page.time)));
            }
        }
    }
    Ok(from)
}

fn next(file: &mut impl Read, page: &mut [u8]) -> std::io::Result<Option<usize>> {
    let length = read_page(file, page)?;
    Ok((length > 0).then_some(length))
}
