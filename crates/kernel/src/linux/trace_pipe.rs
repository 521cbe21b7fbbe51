//! Pages of the trace ring buffer: on their way into a file by splice(2), which moves whole pages without copying them
//! through this process; or read into memory, for a buffer that is looked at a few times a second and holds little.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use stopgap_events::units::Nanos;

use super::wait_for;
use crate::error::{Error, Result};
use crate::folder::Folder;

/// Size of the pipe between; an ordinary limit (`fs.pipe-max-size`).
const PIPE: usize = 1 << 20;

/// One CPU's `trace_pipe_raw`, and the file that its pages go to.
#[derive(Debug)]
pub struct TracePipe {
    raw: TraceReader,
    spool: File,
    spool_path: PathBuf,
    reader: File,
    writer: OwnedFd,
    page: usize,
    /// Bytes that one splice may move: what the pipe holds.
    most: usize,
}

impl TracePipe {
    /// Opens `raw` and creates `name` in the folder `spool`, mode 0600. `page` are the bytes of a page of the ring buffer.
    ///
    /// # Errors
    /// As open(2) and pipe(2).
    pub fn open(raw: &Path, spool: &Folder, name: &str, page: usize) -> Result<TracePipe> {
        let file = TraceReader::open(raw)?;
        let spool_path = spool.path().join(name);
        let to = spool.create(name.as_ref(), 0o600);
        let to = to.map_err(|e| Error::call("open", spool_path.display(), e))?;
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|e| Error::call("pipe", raw.display(), e))?;
        // A refusal leaves the usual 16 pages: slower, not wrong.
        let most = fcntl_setpipe_size(&writer, PIPE).unwrap_or(16 * page);
        Ok(TracePipe {
            raw: file,
            spool: to,
            spool_path,
            reader: reader.into(),
            writer,
            page,
            most: (most / page).max(1) * page,
        })
    }

    /// Moves the pages that are full into the file; how many bytes.
    ///
    /// # Errors
    /// As splice(2); `ENOSPC` and `EFBIG` of the file. What was moved before is in it.
    pub fn drain(&mut self) -> Result<u64> {
        let mut total = 0;
        loop {
            let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
            let taken = match splice(&self.raw.raw, None, &self.writer, None, self.most, flags) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(total),
                Ok(taken) => taken,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(Error::call("splice", self.raw.path.display(), e)),
            };
            self.empty_pipe(taken)?;
            total += taken as u64;
        }
    }

    /// Moves what is in the pipe into the file.
    fn empty_pipe(&mut self, mut left: usize) -> Result<()> {
        let failed = |e: io::Error| Error::call("write", self.spool_path.display(), e);
        while left > 0 {
            match splice(
                &self.reader,
                None,
                &self.spool,
                None,
                left,
                SpliceFlags::MOVE,
            ) {
                Ok(0) => return Err(failed(io::ErrorKind::WriteZero.into())),
                Ok(moved) => left -= moved.min(left),
                Err(Errno::INTR) => {}
                // A file system that cannot splice: by hand.
                Err(Errno::INVAL) => {
                    let mut rest = (&self.reader).take(left as u64);
                    let copied = io::copy(&mut rest, &mut self.spool).map_err(failed)?;
                    if copied < left as u64 {
                        return Err(failed(io::ErrorKind::UnexpectedEof.into()));
                    }
                    left = 0;
                }
                Err(e) => return Err(failed(e.into())),
            }
        }
        Ok(())
    }

    /// Moves all that is left, the page that is not full with it, which nothing may be written to any
    /// more; closes both files.
    ///
    /// # Errors
    /// As [`TracePipe::drain`].
    pub fn finish(mut self) -> Result<()> {
        self.drain()?;
        let mut page = vec![0; self.page];
        while let Some(length) = self.raw.next(&mut page)? {
            page[length..].fill(0);
            let path = self.spool_path.display();
            self.spool
                .write_all(&page)
                .map_err(|e| Error::call("write", path, e))?;
        }
        Ok(())
    }

    /// Waits until a buffer is as full as its `buffer_percent` says, `end` becomes readable (a
    /// process that ends) or the time is over; a signal may end it early.
    pub fn wait(pipes: &[TracePipe], end: Option<BorrowedFd<'_>>, longest: Nanos) {
        let pipes = pipes.iter().map(|pipe| pipe.raw.raw.as_fd());
        // Whatever ends the wait, the caller looks at everything again.
        wait_for(pipes.chain(end).map(|fd| (fd, PollFlags::IN)), longest);
    }
}

/// One CPU's `trace_pipe_raw`.
#[derive(Debug)]
pub struct TraceReader {
    raw: File,
    path: PathBuf,
}

impl TraceReader {
    /// Opens `raw`.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(raw: &Path) -> Result<TraceReader> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(raw)
            .map_err(|e| Error::call("open", raw.display(), e))?;
        Ok(TraceReader {
            raw: file,
            path: raw.to_owned(),
        })
    }

    /// The next page of events, full or not, into `page`, which must have a page's length; its bytes,
    /// `None` where there are no more events. What is read is gone from the buffer.
    ///
    /// # Errors
    /// As read(2).
    pub fn next(&mut self, page: &mut [u8]) -> Result<Option<usize>> {
        loop {
            match self.raw.read(page) {
                Ok(0) => return Ok(None),
                Ok(length) => return Ok(Some(length)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(Error::call("read", self.path.display(), e)),
            }
        }
    }
}
