//! Reads the kernel's histograms every ten seconds and writes a file of each reading.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::folder::Folder;
use stopgap_stats::history::{Key, Sum};
use stopgap_trace::{Metadata, Text, file};
use stopgap_tracer::black_box::{BlackBox, Histogram};

use super::super::aside::Aside;
use super::FOLDER;
use super::files::{ID, Level, Name, due, names};
use super::rows::{Row, metadata_of, of_histogram};
use crate::session::{tell, tell_error};
use crate::voice;
use crate::whole_file::random;

/// From one reading to the next.
const STEP: Nanos = Nanos::secs(10);
/// From the end of a period to its reading: programs that were under way are done.
const SETTLE: Nanos = Nanos::millis(20);
/// Longest wait for the last reading when a watch ends.
const LAST: Nanos = Nanos::secs(5);
const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600;
/// The end of the name of a file that is being written.
pub(super) const PARTIAL: &str = ".partial";

/// Keeps the history of one watch.
pub(in crate::watch) struct Keeper {
    folder: Arc<Folder>,
    /// The reading that is written.
    writing: Aside<io::Result<()>>,
    /// Whether something is to be merged.
    looking: Aside<bool>,
    /// Nobody else keeps one here.
    _lock: OwnedFd,
    metadata: Metadata,
    boot: Option<String>,
    calls: BTreeMap<u32, String>,
    /// Nanoseconds since 1970 when the clock since boot was 0.
    epoch: u64,
    /// When the period began that the kernel counts, and that which has ended and is not read.
    began: Nanos,
    ended: Option<(Nanos, Nanos)>,
    thinning: Option<Child>,
    /// The hour of the last thinning.
    thinned: u64,
    /// Readings that could not be written since the last that could.
    failed: u64,
}

impl Keeper {
    /// Starts the history in `directory`. Says why there is none where it cannot be kept.
    pub(in crate::watch) fn start(
        directory: &Path,
        black_box: &BlackBox<'_>,
        calls: BTreeMap<u32, String>,
    ) -> Option<Keeper> {
        let opened = open(directory);
        let refused = |why: &dyn std::fmt::Display| {
            let path = directory.join(FOLDER);
            tell_error(&format!(
                "no history is kept in {}: {why}; stalls are",
                path.display()
            ));
        };
        let (folder, lock) = match opened {
            Ok((folder, Some(lock))) => (folder, lock),
            Ok((_, None)) => {
                refused(&"another watch keeps it");
                return None;
            }
            Err(error) => {
                refused(&error);
                return None;
            }
        };
        let metadata = metadata_of(black_box.metadata());
        let now = Linux.now();
        Some(Keeper {
            folder: Arc::new(folder),
            writing: Aside::new(),
            looking: Aside::new(),
            _lock: lock,
            boot: metadata.boot_id.clone(),
            metadata,
            calls,
            epoch: epoch(now),
            began: now,
            ended: None,
            thinning: None,
            thinned: 0,
            failed: 0,
        })
    }

    /// Does what is due; called after each drain.
    pub(in crate::watch) fn step(&mut self, black_box: &mut BlackBox<'_>) {
        let now = Linux.now();
        match self.ended {
            Some((_, end)) if now >= end + SETTLE => self.read(black_box),
            None if now >= self.began + STEP => self.turn(black_box),
            _ => {}
        }
        self.written();
        self.thin();
    }

    /// Writes what has been counted so far.
    pub(in crate::watch) fn end(mut self, black_box: &mut BlackBox<'_>) {
        if self.ended.is_some() {
            self.read(black_box);
        }
        self.turn(black_box);
        let deadline = Linux.now() + LAST;
        Linux.sleep_until(Linux.now() + SETTLE);
        self.wait(deadline);
        self.read(black_box);
        self.wait(deadline);
        if let Some(mut child) = self.thinning.take() {
            let _ = child.try_wait(); // otherwise it goes on by itself
        }
    }

    fn turn(&mut self, black_box: &mut BlackBox<'_>) {
        let now = Linux.now();
        match black_box.turn() {
            Ok(()) => self.ended = Some((self.began, now)),
            Err(error) => self.fails(&error),
        }
        self.began = now;
    }

    fn read(&mut self, black_box: &mut BlackBox<'_>) {
        let Some((begin, end)) = self.ended.take() else {
            return;
        };
        // The clock of the day may have been set.
        let epoch = epoch(Linux.now());
        if epoch.abs_diff(self.epoch) > 2 * SECOND {
            self.epoch = epoch;
        }
        let histograms = match black_box.histograms() {
            Ok(histograms) => histograms,
            Err(error) => return self.fails(&error),
        };
        let times = [begin, end].map(|time| self.epoch.saturating_add(time.0));
        let counted = histograms
            .iter()
            .map(|histogram| self.counted(histogram, black_box));
        let counted: Vec<(Key, Sum)> = counted.collect();
        let name = Name::at(Level::Part, times[0] / SECOND);
        if self.writing.busy() {
            return self.fails(&"the disk has not taken the reading before");
        }
        let (folder, metadata) = (Arc::clone(&self.folder), self.metadata.clone());
        let boot = self.boot.clone();
        let write = move || {
            let boot: Option<Text> = boot.as_deref().map(Text::from);
            let rows = counted.into_iter().map(|(key, sum)| Row {
                begin: times[0],
                end: times[1],
                uptime: Some(end.0),
                boot: boot.clone(),
                key,
                sum,
            });
            write(&folder, &name, &metadata, rows)
        };
        if let Err(error) = self.writing.start(write) {
            self.fails(&error);
        }
    }

    /// Waits until what is read is written, or the time has come.
    fn wait(&mut self, deadline: Nanos) {
        while self.writing.busy() && Linux.now() < deadline {
            Linux.sleep_until(Linux.now() + Nanos::millis(1));
            self.written();
        }
    }

    /// Looks whether a reading is written.
    fn written(&mut self) {
        let Some(written) = self.writing.done() else {
            return;
        };
        match written {
            Ok(()) if self.failed > 0 => {
                tell(&format!(
                    "the history is written again; {} s are missing",
                    self.failed * STEP.0 / SECOND
                ));
                self.failed = 0;
            }
            Ok(()) => {}
            Err(error) => self.fails(&error),
        }
    }

    fn counted(&self, histogram: &Histogram, black_box: &mut BlackBox<'_>) -> (Key, Sum) {
        let call = histogram.call.and_then(|call| self.calls.get(&call));
        let cgroup = histogram.process.as_ref();
        let cgroup = cgroup.and_then(|process| black_box.cgroup(process.cgroup));
        of_histogram(histogram, call.map(String::as_str), cgroup)
    }

    /// Says the first of several failures: a full disk stays full for long.
    fn fails(&mut self, why: &dyn std::fmt::Display) {
        if self.failed == 0 {
            tell_error(&format!(
                "the history of the last {STEP} is not written to {}: {why}",
                self.folder.path().display()
            ));
        }
        self.failed += 1;
    }

    /// Has old files merged by another process, when the watch begins and each hour.
    fn thin(&mut self) {
        if let Some(child) = &mut self.thinning {
            if matches!(child.try_wait(), Ok(None)) {
                return;
            }
            self.thinning = None;
        }
        let hour = Linux.unix_seconds() / HOUR;
        if self.thinned != hour && !self.looking.busy() {
            self.thinned = hour;
            let folder = Arc::clone(&self.folder);
            let started = self.looking.start(move || {
                let (merges, gone) = due(&names(&folder), hour * HOUR);
                !merges.is_empty() || !gone.is_empty()
            });
            if let Err(error) = started {
                tell_error(&format!("the history cannot be thinned: {error}"));
            }
        }
        if self.looking.done() != Some(true) {
            return;
        }
        let child = Command::new("/proc/self/exe")
            .arg("watch")
            .arg("--thin")
            .arg(self.folder.path())
            .args(voice::flags())
            .stdin(Stdio::null())
            .spawn();
        match child {
            Ok(child) => self.thinning = Some(child),
            Err(error) => tell_error(&format!("the history cannot be thinned: {error}")),
        }
    }
}

/// Nanoseconds since 1970 when the clock since boot was 0.
fn epoch(now: Nanos) -> u64 {
    (Linux.unix_seconds().saturating_mul(SECOND)).saturating_sub(now.0)
}

/// Opens the folder, or makes it; the lock of the process that keeps it, `None` where somebody else does.
fn open(directory: &Path) -> io::Result<(Folder, Option<OwnedFd>)> {
    let beside = Folder::open(directory)?;
    let folder = match beside.make_own(FOLDER.as_ref()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => beside.own(FOLDER.as_ref()),
        made => made,
    }?;
    let lock = folder.lock()?;
    if lock.is_some() {
        // A watch that was killed left it.
        for name in folder.names() {
            let shown = name.to_string_lossy();
            if shown.starts_with(".part-") && shown.ends_with(PARTIAL) {
                folder.remove(&name)?;
            }
        }
    }
    Ok((folder, lock))
}

/// Writes rows to a file that has its name when it is complete.
pub(super) fn write(
    folder: &Folder,
    name: &Name,
    metadata: &Metadata,
    rows: impl IntoIterator<Item = Row>,
) -> io::Result<()> {
    let mut writer = Writer::new(folder, name)?;
    for row in rows {
        writer.put(row)?;
    }
    writer.finish(metadata)
}

/// A file on its way.
pub(super) struct Writer<'f> {
    folder: &'f Folder,
    name: Name,
    partial: String,
    /// `None` when it is finished.
    out: Option<file::Writer<io::BufWriter<File>>>,
}

impl<'f> Writer<'f> {
    pub(super) fn new(folder: &'f Folder, name: &Name) -> io::Result<Writer<'f>> {
        let partial = format!(".{name}{PARTIAL}");
        let file = folder.create(partial.as_ref(), 0o600)?;
        let out = file::Writer::new(io::BufWriter::with_capacity(1 << 16, file));
        let mut writer = Writer {
            folder,
            name: name.clone(),
            partial,
            out: None,
        };
        writer.out = Some(out.map_err(io::Error::other)?);
        Ok(writer)
    }

    pub(super) fn put(&mut self, row: Row) -> io::Result<()> {
        match &mut self.out {
            Some(out) => out.write(&row.into_event()).map_err(io::Error::other),
            None => Ok(()),
        }
    }

    pub(super) fn finish(mut self, metadata: &Metadata) -> io::Result<()> {
        if let Some(out) = self.out.take() {
            let mut metadata = metadata.clone();
            let id = format!("{:016x}", random());
            metadata.labels.insert(ID.to_owned(), id);
            let mut buffered = out.finish(&metadata).map_err(io::Error::other)?;
            buffered.flush()?;
            let file = buffered
                .into_inner()
                .map_err(io::IntoInnerError::into_error)?;
            match self.name.level {
                // Parts are many, and the watch must not wait for a disk that hangs: the kernel begins to write it. By
                // itself it would let 30 s pass, and a machine that loses power would lose three of them. A file system that
                // takes no advice writes when it will.
                Level::Part => {
                    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                }
                _ => file.sync_all()?,
            }
        }
        // A clock that was set back comes to a name again.
        let mut name = self.name.clone();
        while self.folder.find(&name.os())?.is_some() {
            name = name.next();
        }
        self.folder.rename(self.partial.as_ref(), &name.os())?;
        self.partial.clear();
        Ok(())
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if !self.partial.is_empty() {
            let _ = self.folder.remove(self.partial.as_ref());
        }
    }
}
