//! Switches and CPU time of one task over a window, by three means.

use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_kernel::switches::{SwitchEvents, SwitchRecords};
use stopgap_kernel::tasks::{Switches, status_switches};
use stopgap_kernel::{Error, System};

/// Counts of one side: of a window, or until it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Window {
    /// By getrusage(2).
    pub(super) rusage: Switches,
    /// By `/proc/thread-self/status`; unknown where that cannot be read.
    pub(super) status: Option<Switches>,
    /// By `PERF_RECORD_SWITCH`; unknown where refused, or not asked for.
    pub(super) records: Option<SwitchRecords>,
    /// CPU time.
    pub(super) cpu: Nanos,
}

/// Measures windows of the calling thread.
pub(super) struct Meter<'s> {
    system: &'s dyn System,
    events: Option<SwitchEvents>,
    missing: Vec<Missing>,
}

/// Names of the means.
pub(super) const STATUS: &str = "switches by /proc/thread-self/status";
pub(super) const RECORDS: &str = "switches by PERF_RECORD_SWITCH";

impl<'s> Meter<'s> {
    pub(super) fn new(system: &'s dyn System) -> Meter<'s> {
        let mut missing = Vec::new();
        if let Err(error) = status_switches(system) {
            missing.push(Missing::new(STATUS, error.to_string()));
        }
        let events = system.switch_events();
        if let Err(error) = &events {
            let why = match error {
                Error::Unsupported { advice, .. } => advice.clone(), // what is RECORDS
                other => other.to_string(),
            };
            missing.push(Missing::new(RECORDS, why));
        }
        Meter {
            system,
            events: events.ok(),
            missing,
        }
    }

    /// Returns the counts that cannot be made, and why.
    pub(super) fn missing(self) -> Vec<Missing> {
        self.missing
    }

    /// Opens a window: gives what [`Meter::close`] takes. The means are nested, the same way at both ends, so that their windows
    /// differ by a few microseconds at most:
    ///
    /// ```text
    /// status [ records [ rusage [ CPU time [ ... ] ] ] ]
    /// ```
    ///
    /// Records cost CPU time (about a quarter more a round trip), so they are written only
    /// where `recorded`.
    pub(super) fn open(&mut self, recorded: bool) -> Result<Window, Error> {
        let status = status_switches(self.system).ok();
        let records = match &mut self.events {
            Some(events) if recorded => {
                events.start()?;
                Some(events.read())
            }
            _ => None,
        };
        Ok(Window {
            status,
            records,
            rusage: self.system.switches()?,
            cpu: self.system.thread_cpu(),
        })
    }

    /// Takes records out before there are too many. Cheap where there are none.
    pub(super) fn drain(&mut self) {
        if let Some(events) = &mut self.events {
            events.read();
        }
    }

    /// Closes the window that was opened with `open`.
    pub(super) fn close(&mut self, open: Window) -> Result<Window, Error> {
        let cpu = self.system.thread_cpu();
        let rusage = self.system.switches()?;
        let records = match (&mut self.events, open.records) {
            (Some(events), Some(before)) => {
                let now = events.read();
                events.stop()?;
                Some(SwitchRecords {
                    switches: now.switches.since(before.switches),
                    lost: now.lost - before.lost,
                })
            }
            _ => None,
        };
        let status = status_switches(self.system).ok();
        Ok(Window {
            rusage: rusage.since(open.rusage),
            status: status.zip(open.status).map(|(now, then)| now.since(then)),
            records,
            cpu: cpu.saturating_sub(open.cpu),
        })
    }
}
