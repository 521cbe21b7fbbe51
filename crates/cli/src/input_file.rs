//! Opening what somebody names as an input.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::FileType;
use stopgap_kernel::folder;

/// Opens a trace, `path`, for reading. Only a regular file is read from several places, and more than once; of a
/// named pipe the mere opening may wait for ever.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let there = fs::metadata(path)?;
    if !there.is_file() && !there.is_dir() {
        return Err(io::Error::other(
            "it is a pipe or a device; a trace is read more than once, so write it to a file first",
        ));
    }
    folder::open(path, |_| false)
}

/// Opens `path` for reading once, from its beginning to its end. A pipe that a shell made (`<(CMD)`, standard input) ends
/// with its writer; a named one may have none, and a device no end: those are refused, and never waited for.
pub(crate) fn open_once(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?;
    // What a shell made has no name in any directory.
    let unnamed = || fs::canonicalize(path).is_err();
    let shells = |kind| kind == FileType::Fifo && unnamed();
    if !kind.is_file() && !kind.is_dir() && !shells(FileType::from_raw_mode(mode(&kind))) {
        return Err(io::Error::other(
            "it is a named pipe or a device; write it to a file first",
        ));
    }
    folder::open(path, |kind| kind == FileType::Directory || shells(kind))
}

fn mode(of: &fs::Metadata) -> u32 {
    use std::os::unix::fs::MetadataExt;
    of.mode()
}
