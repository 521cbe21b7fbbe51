//! The trace file is made while the recording goes on: by this program again, at nice 19.
//!
//! ```text
//! recorder -> standard input: the time up to which the spool's files have all events, 8 bytes; the largest number: they are
//!             complete; its end without that: the recorder is gone, and so is the reason to go on
//!          <- standard output: the trace file
//!          <- standard error: what was written, as JSON, or why not
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use stopgap_events::order::Inserted as _;
use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_trace::Metadata;
use stopgap_tracer::spool::Spool;

use super::symbols;
use crate::failure::{DONE, Failure};

/// Says that the files are complete.
const COMPLETE: u64 = u64::MAX;

/// Counts of what was written.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) metadata: Metadata,
    /// Events by the word of their kind.
    pub(super) counts: BTreeMap<String, u64>,
}

/// The process that makes the trace file. Dropped, it ends.
pub(super) struct Converter {
    child: Child,
    marks: ChildStdin,
}

impl Converter {
    /// Starts to make the trace of the spool `folder` into `file`, which must be a regular one.
    pub(super) fn start(folder: &Path, file: &File) -> io::Result<Converter> {
        let mut child = Command::new("/proc/self/exe")
            .args(["record", "--convert"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(Stdio::piped())
            // Ctrl-C ends the recording, not the writing.
            .process_group(0)
            .spawn()?;
        let marks = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // Where the converter is late, the next mark says more.
        rustix::io::ioctl_fionbio(&marks, true)?;
        Ok(Converter { child, marks })
    }

    /// Says that the spool's files have all events up to `time`.
    pub(super) fn reach(&mut self, time: Nanos) {
        let _ = self.marks.write(&time.0.to_le_bytes()); // of one that has ended `finish` says why
    }

    /// Says that the files are complete, and waits for the trace.
    ///
    /// # Errors
    /// The reason why there is none; `file` is as before then.
    pub(super) fn finish(mut self, file: &File) -> Result<Written, String> {
        let written = self.wait();
        if written.is_err() {
            let mut file = file;
            let emptied = file.set_len(0).and_then(|()| file.rewind());
            emptied.map_err(|error| error.to_string())?;
        }
        written
    }

    fn wait(&mut self) -> Result<Written, String> {
        let failed = |error: io::Error| error.to_string();
        if let Some(pid) = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            // The recording is over. Without CAP_SYS_NICE the converter stays nice.
            let _ = rustix::process::setpriority_process(Some(pid), 0);
        }
        rustix::io::ioctl_fionbio(&self.marks, false).map_err(|error| failed(error.into()))?;
        let told = self.marks.write_all(&COMPLETE.to_le_bytes());
        let mut text = String::new();
        if let Some(errors) = &mut self.child.stderr {
            errors.read_to_string(&mut text).map_err(failed)?;
        }
        let status = self.child.wait().map_err(failed)?;
        if !status.success() {
            let text = text.trim();
            return Err(match text.is_empty() {
                true => format!("the process that writes it ended with {status}"),
                false => text.to_owned(),
            });
        }
        told.map_err(failed)?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }
}

impl Drop for Converter {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it has ended already
        let _ = self.child.wait();
    }
}

/// Makes the trace of the spool `folder`, as the recorder says on standard input.
pub(super) fn run(folder: &Path) -> Result<ExitCode, Failure> {
    Linux.be_nice()?;
    let spool = Spool::open(folder)?;
    let output = io::stdout().as_fd().try_clone_to_owned();
    let output = output.map_err(|error| Failure::error(error.to_string()))?;
    let output = BufWriter::with_capacity(1 << 18, File::from(output));
    let mut following = spool.follow(&symbols(&spool), output)?;
    loop {
        match next_mark().map_err(|error| Failure::error(error.to_string()))? {
            COMPLETE => break,
            time => following.reach(Nanos(time), recorder_lives)?,
        }
    }
    let written = following.finish(recorder_lives)?;
    let flushed = written.out.into_inner();
    flushed.map_err(|error| Failure::error(error.to_string()))?;
    let counts = written.counts.into_iter();
    let written = Written {
        metadata: written.metadata,
        counts: counts
            .map(|(kind, count)| (kind.to_owned(), count))
            .inserted(),
    };
    let told = serde_json::to_writer(io::stderr(), &written);
    told.map_err(|error| Failure::error(error.to_string()))?;
    Ok(ExitCode::from(DONE))
}

/// Waits for the next time that the recorder names; the last one where there are several.
fn next_mark() -> io::Result<u64> {
    let mut marks = [0; 4096];
    // A recorder writes eight bytes at once, so that a pipe has whole ones.
    let read = loop {
        match rustix::io::read(io::stdin(), &mut marks) {
            Err(rustix::io::Errno::INTR) => {}
            read => break read?,
        }
    };
    let last = marks[..read].as_chunks().0.last().copied();
    last.map(u64::from_le_bytes).ok_or_else(gone)
}

/// Refuses to go on where the recorder has ended.
fn recorder_lives() -> io::Result<()> {
    let input = io::stdin();
    let mut polled = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default()))?;
    match polled[0].revents().contains(PollFlags::HUP) {
        true => Err(gone()),
        false => Ok(()),
    }
}

fn gone() -> io::Error {
    io::Error::other("the recorder has ended before it said so")
}
