//! Opening what somebody names as a trace.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Opens `path` for reading. Only a regular file is read from several places, and more than once; of a
/// named pipe the mere opening may wait for ever.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let there = fs::metadata(path)?;
    // Of a directory, reading it says so.
    if !there.is_file() && !there.is_dir() {
        return Err(io::Error::other(
            "it is a pipe or a device; a trace is read more than once, so write it to a file first",
        ));
    }
    File::open(path)
}
