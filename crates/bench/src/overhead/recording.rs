//! One run of the client and the server, recorded or not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stopgap_cli::Failure;
use stopgap_events::units::Nanos;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::{Ended, Held};
use stopgap_kernel::{Linux, signals};
use stopgap_probes::roundtrip::{Cell, Cost};
use stopgap_tracer::capture::{Capture, Options};
use stopgap_tracer::events::EventSet;
use stopgap_tracer::spool::Spool;

use super::pair;

/// As `stopgap record` has it.
const STEP: Nanos = Nanos::millis(100);

/// What a run cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) cost: Cost,
    /// The recorder's own CPU time, from start to stop; the trace file is made later.
    pub(super) recorder: Nanos,
    /// Events that were lost.
    pub(super) lost: u64,
    /// Bytes of pages.
    pub(super) bytes: u64,
}

impl Run {
    /// CPU time of client and server, ns a round trip.
    pub(super) fn cpu(&self) -> f64 {
        self.cost.cpu.0 as f64 / self.round_trips()
    }

    /// The recorder's, ns a round trip.
    pub(super) fn recorder(&self) -> f64 {
        self.recorder.0 as f64 / self.round_trips()
    }

    /// Switch-outs of both a round trip.
    pub(super) fn switches(&self) -> f64 {
        self.cost.switches.total() as f64 / self.round_trips()
    }

    /// Bytes of pages a round trip.
    pub(super) fn bytes(&self) -> f64 {
        self.bytes as f64 / self.round_trips()
    }

    fn round_trips(&self) -> f64 {
        self.cost.round_trips.max(1) as f64
    }
}

/// Runs the client and the server.
pub(super) struct Recorder<'a> {
    journal: &'a Path,
    folder: PathBuf,
    /// This program.
    program: OsString,
    round_trips: u64,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(
        journal: &'a Path,
        folder: PathBuf,
        round_trips: u64,
    ) -> Result<Recorder<'a>, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::error(format!("this program: {error}")))?;
        Ok(Recorder {
            journal,
            folder,
            program: program.into_os_string(),
            round_trips,
        })
    }

    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// The command that is the client and the server of `cell`, and the file that it writes.
    pub(super) fn command(&self, cell: &Cell, round_trips: u64) -> (Vec<OsString>, PathBuf) {
        let file = self.folder.join("cost.json");
        let mut words = vec![self.program.clone()];
        words.extend(["overhead", "--round-trips"].map(OsString::from));
        words.push(round_trips.to_string().into());
        words.push("--pair".into());
        words.push(pair::word(cell).into());
        words.push(file.clone().into_os_string());
        (words, file)
    }

    /// One run.
    pub(super) fn run(&self, cell: &Cell, events: Option<EventSet>) -> Result<Run, Failure> {
        if let Some(events) = events {
            return self.run_with(cell, events, || Ok(()));
        }
        let (words, file) = self.command(cell, self.round_trips);
        let child = Held::start(&words)?.release()?;
        let ended = loop {
            if let Some(ended) = child.ended()? {
                break ended;
            }
            Linux.sleep_until(Linux.now() + Nanos::millis(20));
        };
        succeeded(&ended)?;
        Ok(Run {
            cost: pair::read(&file)?,
            recorder: Nanos(0),
            lost: 0,
            bytes: 0,
        })
    }

    /// One run that is recorded; `change` is called between the capture's preparation and its start.
    pub(super) fn run_with(
        &self,
        cell: &Cell,
        events: EventSet,
        change: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Run, Failure> {
        let (words, file) = self.command(cell, self.round_trips);
        let spool = self.folder.join("spool");
        let journal = Journal::new(&Linux, self.journal);
        let options = Options {
            events,
            buffer: None,
            spool: spool.clone(),
            source: "stopgap-bench overhead".to_owned(),
        };
        let before = Linux.thread_cpu();
        let mut capture = Capture::prepare(&Linux, &journal, &options)?;
        change()?;
        let held = Held::start(&words)?;
        capture.start(held.pid())?;
        let child = held.release()?;
        let ended = loop {
            capture.pump(Some(child.watched()), STEP)?;
            if let Some(ended) = child.ended()? {
                break ended;
            }
        };
        let captured = capture.stop(None)?;
        let recorder = Linux.thread_cpu().saturating_sub(before);
        succeeded(&ended)?;
        let run = Run {
            cost: pair::read(&file)?,
            recorder,
            lost: lost(&captured),
            bytes: size(&spool),
        };
        captured.remove()?;
        Ok(run)
    }
}

/// What the kernel says was lost.
fn lost(spool: &Spool) -> u64 {
    let losses = spool.end().map(|end| &end.losses);
    losses.into_iter().flatten().map(|loss| loss.count).sum()
}

/// Bytes of the files in `folder`.
fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum()
}

fn succeeded(ended: &Ended) -> Result<(), Failure> {
    match ended.how {
        Ok(0) => Ok(()),
        _ if signals::interrupted() => Err(Failure::error("interrupted")),
        Ok(status) => Err(Failure::error(format!(
            "the pair ended with status {status}"
        ))),
        Err(signal) => Err(Failure::error(format!(
            "the pair was killed by signal {signal}"
        ))),
    }
}
