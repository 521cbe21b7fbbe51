//! Opening what somebody names as an input.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Opens a trace, `path`, for reading. Only a regular file is read from several places, and more than once; of a
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

/// Opens `path` for reading once, from its beginning to its end. A pipe that a shell made (`<(CMD)`, standard input) ends
/// with its writer; a named one may have none, and a device no end: those are refused, and never waited for.
pub(crate) fn open_once(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
        .open(path)?;
    let kind = file.metadata()?.file_type();
    // What a shell made has no name in any directory.
    let named = || fs::canonicalize(path).is_ok();
    if !kind.is_file() && !kind.is_dir() && (!kind.is_fifo() || named()) {
        return Err(io::Error::other(
            "it is a named pipe or a device; write it to a file first",
        ));
    }
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}
