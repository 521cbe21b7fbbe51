//! Opening what somebody names as an input.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use indicatif::ProgressBar;
use rustix::fs::FileType;
use stopgap_events::bounded;
use stopgap_events::units::Bytes;
use stopgap_kernel::{folder, signals};
use stopgap_report::text::plain;
use stopgap_tracer::spool;

use crate::progress;

/// The most that is read of a record: one of a few hundred cells has some 10 MB.
pub(crate) const LARGEST_RECORD: Bytes = Bytes::mib(256);

/// Opens a trace, `path`, for reading. Only a regular file is read from several places, and more than once; of a
/// named pipe the mere opening may wait for ever.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let there = fs::metadata(path)?;
    if !there.is_file() && !there.is_dir() {
        return Err(io::Error::other(
            "it is a pipe or a device; a trace is read more than once, so write it to a file first",
        ));
    }
    if there.is_dir() && path.join(spool::DESCRIPTION).exists() {
        return Err(io::Error::other(
            "it is the folder of a recording that was cut off; stopgap record --recover FOLDER -o FILE makes a trace of it",
        ));
    }
    folder::open(path, |_| false)
}

/// A trace on its way in. Reading ends at Ctrl-C with an error, and a bar on standard error shows how much was read.
pub(crate) struct Trace {
    file: File,
    length: u64,
    at: u64,
    bar: ProgressBar,
}

/// Opens a trace as [`open`] does, to be read under a bar.
pub(crate) fn trace(path: &Path) -> io::Result<Trace> {
    let bar = progress::progress_bar();
    bar.set_message(format!("reading {}", plain(&path.display().to_string())));
    Trace::new(open(path)?, bar)
}

/// The same without a bar, where another one is shown.
pub(crate) fn quiet_trace(path: &Path) -> io::Result<Trace> {
    Trace::new(open(path)?, ProgressBar::hidden())
}

impl Trace {
    fn new(file: File, bar: ProgressBar) -> io::Result<Trace> {
        Ok(Trace {
            length: file.metadata()?.len(),
            file,
            at: 0,
            bar,
        })
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Read for Trace {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        stop_if_interrupted()?;
        let count = self.file.read(buffer)?;
        self.at += count as u64;
        self.bar
            .set_position(progress::thousandths(self.at, self.length));
        Ok(count)
    }
}

impl Seek for Trace {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.file.seek(to)?;
        Ok(self.at)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The error that ends a read after Ctrl-C.
pub(crate) fn stop_if_interrupted() -> io::Result<()> {
    if signals::interrupted() {
        return Err(io::Error::other("interrupted"));
    }
    Ok(())
}

/// Reads what must be in memory as a whole, opened as [`open_once`] does.
pub(crate) fn whole(path: &Path, most: Bytes) -> io::Result<Vec<u8>> {
    let file = open_once(path)?;
    let length = file.metadata()?.len();
    bounded::read_file(file, length, most)
}

/// Opens `path` for reading once, from its beginning to its end. A pipe that a shell made (`<(CMD)`, standard input) ends
/// with its writer; a named one may have none, and a device no end: those are refused, and never waited for.
pub(crate) fn open_once(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?;
    // A pipe that a shell made has no name in any directory.
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
