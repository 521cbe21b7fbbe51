//! Folders that are opened once, and the files in them.
//!
//! A folder may be shared: `/tmp`, or a directory of mode 0777. Others may then plant links, pipes and folders at names that
//! we will use, and where the sticky bit is missing they may also replace what we made. So every file of ours, and every
//! file that somebody else may have put in our way, is made and opened here:
//!
//! | what | rule |
//! |---|---|
//! | a folder | [`Folder::open`] walks its path once. It refuses a link that another user owns, unless that user owns the folder of the link, too, and nobody else may write to it |
//! | a new file | [`Folder::create`]: `O_EXCL` and `O_NOFOLLOW`; [`Folder::rename`] puts it in its place |
//! | a file that is found | [`Folder::read`]: no link, a regular file, ours or the folder's owner's; opening it never waits |
//! | a file that the user named | [`open`]: links are followed, and opening it never waits |

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl,
    flock, fstat, fstatfs, mkdirat, openat, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use stopgap_events::bounded;
use stopgap_events::units::Bytes;

/// Links that a path may lead through, as for the kernel (`MAXSYMLINKS`).
const MOST_LINKS: u32 = 40;
/// Permission bits by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// A directory that was opened. Whatever others do to its path, names are looked up in this directory.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// An entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The kind; a link is not followed.
    pub kind: FileType,
    /// The owner.
    pub uid: u32,
    /// The permissions, 0 to 0o7777.
    pub mode: u32,
    /// Device and inode.
    pub id: (u64, u64),
    /// Bytes.
    pub length: u64,
}

impl Found {
    fn from_stat(stat: &Stat) -> Found {
        Found {
            kind: FileType::from_raw_mode(stat.st_mode),
            uid: stat.st_uid,
            mode: stat.st_mode & 0o7777,
            #[allow(clippy::useless_conversion)] // other widths on other machines
            id: (stat.st_dev.into(), stat.st_ino.into()),
            length: stat.st_size.try_into().unwrap_or(0),
        }
    }

    /// Whether this user owns it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.uid == us()
    }
}

/// The user whose files are ours.
fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Device and inode of an open file.
///
/// # Errors
/// As fstat(2).
pub fn identity(file: impl AsFd) -> io::Result<(u64, u64)> {
    Ok(Found::from_stat(&fstat(file)?).id)
}

/// Opens the file `path` for reading, as the user named it: links are followed. Opening never waits: not for the writer of a
/// named pipe, and not for a terminal. Only a regular file is accepted, unless `other` accepts what there is.
///
/// # Errors
/// As stat(2) and open(2); of what is no regular file, what it is.
pub fn open(path: &Path, other: impl FnOnce(FileType) -> bool) -> io::Result<File> {
    let refuse = |kind| match kind {
        FileType::Directory => io::Error::from(Errno::ISDIR),
        kind => io::Error::other(format!("it is {}, no file", name_of(kind))),
    };
    // Before it is opened: the mere opening of a device may do something.
    let there = Found::from_stat(&statat(CWD, path, AtFlags::empty())?).kind;
    let may = there == FileType::RegularFile || other(there);
    if !may {
        return Err(refuse(there));
    }
    let file = openat(CWD, path, READ, Mode::empty())?;
    let now = Found::from_stat(&fstat(&file)?).kind;
    if now != there {
        return Err(refuse(now));
    }
    waits(file)
}

/// [`open`], and the file's whole content, of at most `most` bytes.
///
/// # Errors
/// As [`open`] and read(2); a file that is longer.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    content(open(path, |_| false)?, most)
}

fn content(file: File, most: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    bounded::read_file(file, length, Bytes(most))
}

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// From now on reading waits, as it usually does.
fn waits(file: OwnedFd) -> io::Result<File> {
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file.into())
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::BlockDevice => "a disk",
        FileType::CharacterDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}

impl Folder {
    /// Opens the directory `path`; of an empty path the current one.
    ///
    /// # Errors
    /// As openat(2); of a link on the way that another user may have planted, who owns it.
    pub fn open(path: &Path) -> io::Result<Folder> {
        Folder::walk(None, path, false)
    }

    /// As [`Folder::open`]; makes what is missing of the path, mode 0700.
    ///
    /// # Errors
    /// As there, and as mkdirat(2).
    pub fn make(path: &Path) -> io::Result<Folder> {
        Folder::walk(None, path, true)
    }

    /// Opens the directory `path`, a link's target or a name in this folder.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn at(&self, path: &Path) -> io::Result<Folder> {
        Folder::walk(Some(self), path, false)
    }

    fn walk(from: Option<&Folder>, path: &Path, make: bool) -> io::Result<Folder> {
        let open = |at: &OwnedFd, name: &OsStr, flags: OFlags| {
            openat(
                at,
                name,
                OFlags::PATH | OFlags::CLOEXEC | flags,
                Mode::empty(),
            )
        };
        let shown = match from {
            Some(from) => from.path.join(path),
            None if path.as_os_str().is_empty() => ".".into(),
            None => path.to_owned(),
        };
        let mut at = match from {
            Some(from) => from.fd.try_clone()?,
            None => openat(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
        };
        let mut left = Vec::new();
        push(&mut left, path);
        let mut links = 0;
        while let Some(name) = left.pop() {
            let next = match open(&at, &name, OFlags::NOFOLLOW) {
                Err(Errno::NOENT) if make => {
                    match mkdirat(&at, &name, Mode::RWXU) {
                        Err(Errno::EXIST) | Ok(()) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                    open(&at, &name, OFlags::NOFOLLOW)?
                }
                next => next?,
            };
            let stat = fstat(&next)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => at = next,
                FileType::Symlink => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    if !may_lead(&fstat(&at)?, &stat) {
                        return Err(io::Error::other(format!(
                            "'{}' in it is a link of user {}, which may lead anywhere: remove it, or name another directory",
                            name.display(),
                            stat.st_uid
                        )));
                    }
                    if is_proc(&at) {
                        // Such a link has no path: the kernel follows it.
                        at = open(&at, &name, OFlags::DIRECTORY)?;
                    } else {
                        let target = readlinkat(&next, "", Vec::new())?;
                        push(&mut left, Path::new(OsStr::from_bytes(target.as_bytes())));
                    }
                }
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
        Ok(Folder {
            fd: at,
            path: shown,
        })
    }

    /// Opens `name` in this folder, a folder of ours: no link, our own, and nobody else may write to it.
    ///
    /// # Errors
    /// As openat(2); whose it is, where it is not ours.
    pub fn own(&self, name: &OsStr) -> io::Result<Folder> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::DIRECTORY;
        let folder = Folder {
            fd: openat(&self.fd, name, flags, Mode::empty())?,
            path: self.path.join(name),
        };
        let found = folder.stat()?;
        if !found.is_ours() {
            let why = format!("it belongs to user {}", found.uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if found.mode & OTHERS_WRITE != 0 {
            let why = format!("others may write to it (mode {:04o})", found.mode);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(folder)
    }

    /// Makes the folder `name` in this one, mode 0700.
    ///
    /// # Errors
    /// `EEXIST` where anything has the name; as mkdirat(2).
    pub fn make_own(&self, name: &OsStr) -> io::Result<Folder> {
        mkdirat(&self.fd, name, Mode::RWXU)?;
        self.own(name)
    }

    /// Where it was when it was opened, for messages and for those who look for it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same folder once more.
    ///
    /// # Errors
    /// As dup(2).
    pub fn try_clone(&self) -> io::Result<Folder> {
        Ok(Folder {
            fd: self.fd.try_clone()?,
            path: self.path.clone(),
        })
    }

    /// Returns this folder's owner and permissions.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn stat(&self) -> io::Result<Found> {
        Ok(Found::from_stat(&fstat(&self.fd)?))
    }

    /// Returns the entry `name`, and `None` where there is none.
    ///
    /// # Errors
    /// As fstatat(2).
    pub fn find(&self, name: &OsStr) -> io::Result<Option<Found>> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Found::from_stat(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Where the link `name` leads.
    ///
    /// # Errors
    /// As readlinkat(2).
    pub fn link(&self, name: &OsStr) -> io::Result<PathBuf> {
        let target = readlinkat(&self.fd, name, Vec::new())?;
        Ok(OsStr::from_bytes(target.as_bytes()).into())
    }

    /// Whether it is one of `/proc`, whose links are none of a path.
    #[must_use]
    pub fn is_proc(&self) -> bool {
        is_proc(&self.fd)
    }

    /// Names in it, in no order. What cannot be listed has none.
    #[must_use]
    pub fn names(&self) -> Vec<OsString> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = openat(&self.fd, ".", flags, Mode::empty()).and_then(Dir::new);
        let entries = listed.into_iter().flatten().flatten();
        let names = entries.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
        names.filter(|name| name != "." && name != "..").collect()
    }

    /// Creates the file `name` for writing.
    ///
    /// # Errors
    /// `EEXIST` where anything has the name, a link too; as openat(2).
    pub fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.fd, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Creates the file `name`, mode 0600, with this content, and syncs it to the disk.
    ///
    /// # Errors
    /// As [`Folder::create`], write(2) and fsync(2).
    pub fn write(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        use std::io::Write;
        let mut file = self.create(name, 0o600)?;
        file.write_all(content)?;
        file.sync_all()
    }

    /// Opens the file `name` for reading. It counts where it is no link, a regular file, and its owner is ours, root's or the
    /// folder's: others may plant names. Opening it never waits.
    ///
    /// # Errors
    /// As openat(2); what it is, where it does not count.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        let file = match openat(&self.fd, name, READ | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::LOOP) => return Err(io::Error::other("it is a link, no file of ours")),
            // A socket; a pipe or device that nobody serves.
            Err(Errno::NXIO | Errno::NODEV) => {
                return Err(io::Error::other("it is no regular file"));
            }
            file => file?,
        };
        let found = Found::from_stat(&fstat(&file)?);
        if found.kind != FileType::RegularFile {
            let what = name_of(found.kind);
            return Err(io::Error::other(format!("it is {what}, no file of ours")));
        }
        if !found.is_ours() && found.uid != 0 && found.uid != self.stat()?.uid {
            let why = format!("it belongs to user {}", found.uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        waits(file)
    }

    /// The whole content of [`Folder::read`], of at most `most` bytes.
    ///
    /// # Errors
    /// As there and read(2); a file that is longer.
    pub fn content(&self, name: &OsStr, most: u64) -> io::Result<Vec<u8>> {
        content(self.read(name)?, most)
    }

    /// Opens a device or a pipe for writing. A pipe waits for its reader. Links are followed only in `/proc`.
    ///
    /// # Errors
    /// As openat(2).
    pub fn device(&self, name: &OsStr) -> io::Result<File> {
        let mut flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !self.is_proc());
        Ok(openat(&self.fd, name, flags, Mode::empty())?.into())
    }

    /// Gives the file `from` the name `to`, replacing what has it. A link is replaced, not followed.
    ///
    /// # Errors
    /// As renameat(2).
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Removes the file `name`. Nothing is there: that is no error.
    ///
    /// # Errors
    /// As unlinkat(2).
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes the empty folder `name`.
    ///
    /// # Errors
    /// As unlinkat(2).
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// A lock on the folder, held until the file that is returned and all its copies are closed; `None` where somebody else
    /// holds it. It says who works in a folder, which no process id can: an id says nothing in another PID namespace, or
    /// without `/proc`.
    ///
    /// # Errors
    /// As flock(2): file systems without locks.
    pub fn lock(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lock = openat(&self.fd, ".", flags, Mode::empty())?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether all users may replace what others have in it: all may write, and the sticky bit is missing.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn is_open_to_all(&self) -> io::Result<bool> {
        Ok(self.stat()?.mode & 0o1002 == 0o002)
    }
}

/// Puts the pieces of `path` before those that are `left`, the last of which is the next.
fn push(left: &mut Vec<OsString>, path: &Path) {
    for component in path.components().rev() {
        match component {
            Component::CurDir => {}
            // Of `/` no folder matters in which it is looked up.
            other => left.push(other.as_os_str().to_owned()),
        }
    }
}

/// Whether a link may lead us on: its owner is this user or root, or the owner of its folder, to which nobody else may write.
fn may_lead(folder: &Stat, link: &Stat) -> bool {
    let trusted = link.st_uid == us() || link.st_uid == 0;
    trusted || (link.st_uid == folder.st_uid && folder.st_mode & OTHERS_WRITE == 0)
}

fn is_proc(at: &OwnedFd) -> bool {
    fstatfs(at).is_ok_and(|fs| fs.f_type == rustix::fs::PROC_SUPER_MAGIC)
}
