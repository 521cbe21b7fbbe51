//! Files of the system (`/proc`, `/sys`, cgroups) and the few of our own that a guard must be
//! able to remove.

use std::path::{Path, PathBuf};

use stopgap_events::units::Bytes;

use crate::error::{Error, Result};
use crate::tracefs::Tracefs;

/// Kind of a file, and its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Kind of the file.
    pub kind: Kind,
    /// Number of the device of its file system.
    pub device: u64,
}

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    Regular,
    /// A link, a device, a socket, a pipe.
    Other,
}

/// Files, whole and in one call. Nothing here creates a file except [`Files::create`].
pub trait Files {
    /// The whole content.
    ///
    /// # Errors
    /// As open(2) and read(2); the error names the path.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;

    /// The whole content of a file of ours, of at most 16 MiB: a regular file and no link, which this user or root owns.
    /// Never waits: somebody else may have put a pipe there.
    ///
    /// # Errors
    /// As [`crate::folder::Folder::content`]; the error names the path.
    fn read_own(&self, path: &Path) -> Result<Vec<u8>>;

    /// Up to `length` bytes from `offset` on; fewer at the end of the file. For files whose
    /// offset means something, as `/proc/PID/pagemap`.
    ///
    /// # Errors
    /// As open(2) and pread(2).
    fn read_at(&self, path: &Path, offset: u64, length: usize) -> Result<Vec<u8>>;

    /// Writes to an existing file in one write(2), as `/proc` and `/sys` want it.
    ///
    /// # Errors
    /// As open(2) and write(2).
    fn write(&self, path: &Path, content: &[u8]) -> Result<()>;

    /// Creates a file of our own, mode 0600, and syncs it to the disk. In a folder that others
    /// may write to, no file of theirs is written to and no link of theirs followed.
    ///
    /// # Errors
    /// `EEXIST` where something has that name; as open(2), write(2) and fsync(2), a full disk
    /// among them.
    fn create(&self, path: &Path, content: &[u8]) -> Result<()>;

    /// Makes an existing file of ours `length` bytes long. `allocated`: with blocks on the disk,
    /// as a swap file needs them; else sparse.
    ///
    /// # Errors
    /// As ftruncate(2) and fallocate(2): `ENOSPC`, or `EOPNOTSUPP` where the file system
    /// cannot set blocks aside.
    fn extend(&self, path: &Path, length: Bytes, allocated: bool) -> Result<()>;

    /// Reads a file from its start to its end through one descriptor and throws away what it
    /// reads; stops early when `go_on`, asked before each read with what was read so far, says so. Bytes
    /// read.
    ///
    /// # Errors
    /// As open(2) and read(2).
    fn stream(&self, path: &Path, go_on: &dyn Fn(Bytes) -> bool) -> Result<Bytes>;

    /// Names in a directory, in no order.
    ///
    /// # Errors
    /// As opendir(3).
    fn list(&self, path: &Path) -> Result<Vec<String>>;

    /// Returns what has that name; a link is not followed.
    ///
    /// # Errors
    /// As lstat(2).
    fn entry(&self, path: &Path) -> Result<Entry>;

    /// Brings a regular file into the page cache, piece by piece (64 MiB), by mapping it shared and populated, and
    /// unmapping it; stops early when `go_on`, asked before each piece, says so. Changes nothing, its time of access
    /// at most, and follows no link. Bytes that were mapped.
    ///
    /// # Errors
    /// As open(2) and mmap(2).
    fn populate(&self, path: &Path, go_on: &dyn Fn() -> bool) -> Result<Bytes>;

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// As readlink(2).
    fn link(&self, path: &Path) -> Result<PathBuf>;

    /// Makes a directory, mode 0700 where the file system keeps modes.
    ///
    /// # Errors
    /// As mkdir(2).
    fn make_dir(&self, path: &Path) -> Result<()>;

    /// Removes an empty directory (or a cgroup without processes).
    ///
    /// # Errors
    /// As rmdir(2).
    fn remove_dir(&self, path: &Path) -> Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As unlink(2).
    fn remove_file(&self, path: &Path) -> Result<()>;

    /// Gives a file another name, replacing what has it, in one step.
    ///
    /// # Errors
    /// As rename(2).
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Whether a directory is ours and nobody else may write to it.
    ///
    /// # Errors
    /// As lstat(2).
    fn is_private(&self, path: &Path) -> Result<bool>;

    /// The kernel's trace file system: where the system has mounted it, else in a mount of our own
    /// that nobody else sees and that leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with what to do, where it is neither mounted nor may be.
    fn tracefs(&self) -> Result<Tracefs>;

    /// Returns the records of the kernel's log buffer, oldest first, as `/dev/kmsg` has them: `6,339,5140900,-;text`
    /// (`Documentation/ABI/testing/dev-kmsg`). Costs a read(2) each, some 1 us.
    ///
    /// # Errors
    /// As open(2): `EPERM` where `kernel.dmesg_restrict` keeps others than root from it.
    fn kernel_log(&self) -> Result<Vec<String>>;

    /// Puts a swap file or device into use (`on`) or out of it.
    ///
    /// # Errors
    /// As swapon(2) and swapoff(2).
    fn swap(&self, path: &Path, on: bool) -> Result<()>;
}

/// Names in a directory, in no order; none where there is no such directory.
///
/// # Errors
/// As [`Files::list`].
pub(crate) fn list_if_there<F: Files + ?Sized>(
    files: &F,
    path: impl AsRef<Path>,
) -> Result<Vec<String>> {
    match files.list(path.as_ref()) {
        Err(error) if error.is_absent() => Ok(Vec::new()),
        names => names,
    }
}

/// The text of a small file without the white space at its ends.
///
/// # Errors
/// As [`Files::read`], or when it is no UTF-8.
pub fn read_text<F: Files + ?Sized>(files: &F, path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let bytes = files.read(path)?;
    let text = String::from_utf8(bytes).map_err(|e| Error::parse(path.display(), e))?;
    Ok(text.trim().to_owned())
}

/// The text of a file in which a name may be in any encoding: what is no UTF-8 becomes U+FFFD.
///
/// # Errors
/// As [`Files::read`].
pub fn read_lossy<F: Files + ?Sized>(files: &F, path: impl AsRef<Path>) -> Result<String> {
    let bytes = files.read(path.as_ref())?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// The number in a small file.
///
/// # Errors
/// As [`read_text`], or when it is no such number.
pub fn read_number<F, N>(files: &F, path: impl AsRef<Path>) -> Result<N>
where
    F: Files + ?Sized,
    N: std::str::FromStr,
{
    let path = path.as_ref();
    let text = read_text(files, path)?;
    text.parse().map_err(|_| {
        Error::parse(
            path.display(),
            format!("'{text}' is not the number expected"),
        )
    })
}

/// The chosen word of a file such as `always [madvise] never`.
///
/// # Errors
/// As [`read_text`], or when no word stands in brackets.
pub fn read_choice<F: Files + ?Sized>(files: &F, path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let text = read_text(files, path)?;
    let chosen = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    chosen
        .map(str::to_owned)
        .ok_or_else(|| Error::parse(path.display(), format!("no word in brackets in '{text}'")))
}
