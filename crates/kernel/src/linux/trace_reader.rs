//! Pages of the trace ring buffer, read into memory: for a buffer that is looked at a few times a
//! second and holds little.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

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
