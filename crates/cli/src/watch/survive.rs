//! The last seconds on the disk: another process writes and syncs them, so that a disk that hangs does not stop the watch; the next watch
//! makes a page of what a cut-off one left.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::folder::Folder;
use stopgap_stats::watch::{Stall, Trigger, TriggerKind};
use stopgap_tracer::black_box::{BlackBox, keep, recover as spool_of};

use super::{folder, write_stall};
use crate::failure::{DONE, Failure};
use crate::record::remove;
use crate::session::{tell, tell_error};
use crate::whole_file::{folder_of, random};

/// The names of the files.
const PREFIX: &str = ".last-seconds.";
const SUFFIX: &str = ".box";
/// Most bytes that may wait for the other process; more is not kept.
const MOST_WAITING: usize = 32 << 20;
/// Memory for what waits that is kept.
const MUCH: usize = 1 << 20;
/// The request for a stall whose end nobody saw.
const LOOK_BACK: Nanos = Nanos::secs(10);
/// Longest wait for the other process when a watch ends.
const LAST: Nanos = Nanos::secs(5);

/// The process that writes.
pub(super) struct Survivor {
    child: Child,
    to: ChildStdin,
    waiting: Vec<u8>,
    path: PathBuf,
    /// Pieces that were not kept because the other process was behind.
    dropped: u64,
    broken: bool,
}

impl Survivor {
    /// Starts it. The file is in `directory` and takes `bytes`.
    pub(super) fn start(
        directory: &Path,
        bytes: Bytes,
        black_box: &BlackBox<'_>,
    ) -> Result<Survivor, Failure> {
        let path = directory.join(format!("{PREFIX}{}{SUFFIX}", std::process::id()));
        let failed = |error: std::io::Error| {
            Failure::error(format!("--survive: {}: {error}", path.display()))
        };
        let mut child = Command::new("/proc/self/exe")
            .arg("watch")
            .arg("--keep-in")
            .arg(&path)
            .arg(format!("--buffer={}", bytes.0))
            .stdin(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let to = child.stdin.take();
        let to = to.ok_or_else(|| failed(std::io::Error::other("it has no standard input")))?;
        let flags = rustix::fs::fcntl_getfl(&to).map_err(|errno| failed(errno.into()))?;
        rustix::fs::fcntl_setfl(&to, flags | rustix::fs::OFlags::NONBLOCK)
            .map_err(|errno| failed(errno.into()))?;
        let mut survivor = Survivor {
            child,
            to,
            waiting: Vec::new(),
            path: path.clone(),
            dropped: 0,
            broken: false,
        };
        survivor.send(&black_box.about(random()));
        Ok(survivor)
    }

    /// Sends a piece, or as much as the pipe takes; the rest goes with the next ones.
    pub(super) fn send(&mut self, piece: &[u8]) {
        if self.waiting.len() + piece.len() > MOST_WAITING {
            self.dropped += 1;
        } else if let Ok(length) = u32::try_from(piece.len()) {
            self.waiting.extend_from_slice(&length.to_le_bytes());
            self.waiting.extend_from_slice(piece);
        }
        let mut sent = 0;
        while sent < self.waiting.len() && !self.broken {
            match self.to.write(&self.waiting[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tell_error(&format!("the last seconds are no longer kept: {error}"));
                    self.broken = true;
                }
            }
        }
        self.waiting.drain(..sent);
        if self.waiting.capacity() > MUCH && self.waiting.len() < MUCH {
            self.waiting.shrink_to(MUCH); // the disk has been behind
        }
        if self.broken {
            self.waiting.clear();
        }
    }

    /// The watch ends in order: nobody needs the file.
    pub(super) fn end(self) {
        let Survivor {
            mut child,
            to,
            path,
            dropped,
            ..
        } = self;
        drop(to);
        let deadline = Linux.now() + LAST;
        while Linux.now() < deadline && matches!(child.try_wait(), Ok(None)) {
            Linux.sleep_until(Linux.now() + Nanos::millis(10));
        }
        if dropped > 0 {
            tell(&format!(
                "{dropped} pieces of the last seconds were not kept: the disk was behind"
            ));
        }
        if let Ok((beside, name)) = folder_of(&path)
            && let Err(error) = beside.remove(&name)
        {
            tell_error(&format!("{} stays: {error}", path.display()));
        }
    }
}

/// Writes what standard input sends into `path`.
pub(super) fn keep_in(path: &Path, bytes: Bytes) -> Result<ExitCode, Failure> {
    let failed =
        |error: std::io::Error| Failure::error(format!("--survive: {}: {error}", path.display()));
    let (beside, name) = folder_of(path).map_err(failed)?;
    let file = beside.create(&name, 0o600).map_err(failed)?;
    let lock = file.try_clone().map_err(failed)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    keep(std::io::stdin().lock(), file, bytes)?;
    Ok(ExitCode::from(DONE))
}

/// Makes windows of what cut-off watches left in `directory`.
pub(super) fn recover(directory: &Path) -> Vec<PathBuf> {
    let Ok(opened) = Folder::open(directory) else {
        return Vec::new(); // its error was reported when the directory was tried
    };
    let mut windows = Vec::new();
    for name in opened.names() {
        let shown = name.to_string_lossy();
        if !shown.starts_with(PREFIX) || !shown.ends_with(SUFFIX) {
            continue;
        }
        let recovered = opened.read(&name).map_err(|error| error.to_string());
        let recovered = recovered.and_then(|file| {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => Ok(None), // another watch writes it
                Err(errno) => Err(errno.to_string()),
                Ok(()) => window(directory, &file).map(Some),
            }
        });
        match recovered {
            Ok(None) => continue,
            Ok(Some(window)) => windows.extend(window),
            Err(why) => tell_error(&format!("{}: {why}", directory.join(&name).display())),
        }
        // A file that could not be read today cannot be read tomorrow.
        if let Err(error) = opened.remove(&name) {
            tell_error(&format!("{}: {error}", directory.join(&name).display()));
        }
    }
    windows
}

/// The window of one file; `None` where it has no record.
fn window(directory: &Path, file: &File) -> Result<Option<PathBuf>, String> {
    // The name says when it was found until it is known when it ended.
    let now = stopgap_kernel::clock::Clock::unix_seconds(&Linux);
    let spool = folder::spool(directory, &folder::name(directory, now), std::process::id());
    let taken = spool_of(file, &spool).map_err(|error| error.to_string())?;
    let Some((taken, unix_s)) = taken else {
        return Ok(None);
    };
    let stall = Stall {
        unix_s,
        triggers: vec![Trigger::new(TriggerKind::CutOff, taken.end.0)],
        begin_ns: taken.since.max(taken.end.saturating_sub(LOOK_BACK)).0,
        end_ns: taken.end.0,
        from_ns: taken.since.0,
        taken_ns: taken.end.0,
        suppressed: 0,
    };
    if let Err(why) = write_stall(&spool, &stall) {
        let _ = remove(&spool); // of no use to anybody
        return Err(why);
    }
    // The file with the last seconds goes next, and another crash may be close.
    if let Err(error) = synced(&spool) {
        tell_error(&format!("{}: {error}", spool.display()));
    }
    Ok(Some(spool))
}

/// Waits until the files of the folder `path`, and its name, are on the disk.
fn synced(path: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        File::open(entry?.path())?.sync_all()?;
    }
    File::open(path)?.sync_all()?;
    path.parent()
        .map_or(Ok(()), |above| File::open(above)?.sync_all())
}
