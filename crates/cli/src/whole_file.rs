//! A file that a reader finds whole or not at all. Every file that a command makes for its user is made here.
//!
//! ```text
//! FOLDER, opened once -> .NAME.PID.partial, new (O_EXCL), locked, in the journal -> renamed to NAME
//! ```
//!
//! What has the name already:
//!
//! | there | what happens |
//! |---|---|
//! | a file of ours | it is replaced; the new file gets its permissions |
//! | a link of ours or of root's | the file that it leads to is replaced |
//! | a link or a file of another user | it is replaced, never followed or written to; the new file gets the usual permissions |
//! | a device, a pipe of ours | it is written to as it is |
//! | a pipe of another user, a disk, a directory | refused |
//! | a file that another run of ours is writing | refused: of two runs one would be lost |

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{FileType, FlockOperation, flock};
use rustix::io::Errno;
use stopgap_kernel::folder::{Folder, Found, identity};
use stopgap_kernel::journal::Journal;
use stopgap_kernel::{Error, Linux};

use crate::places;
use crate::session::tell;

/// Links that one name may lead through, as for the kernel.
const MOST_LINKS: u32 = 40;
/// How often two runs that begin at once make room for each other, before one is refused.
const TRIES: u32 = 8;
/// The end of a name of a file on its way.
const PARTIAL: &str = ".partial";

/// A file being written. A regular file is written beside its final name and renamed by [`WholeFile::finish`]; a device or a
/// pipe is written directly. Dropping it before `finish` leaves nothing behind.
pub(crate) struct WholeFile {
    file: File,
    /// `None` for a device.
    partial: Option<Partial>,
}

/// The name under which a file is written, and the final one.
struct Partial {
    folder: Folder,
    /// The name until it is finished.
    name: OsString,
    final_name: OsString,
    /// Lets the next run remove the file if this one is killed; `None` where no directory for a journal exists.
    journal: Option<Journal<'static>>,
}

/// The target of a path.
enum Target {
    File {
        folder: Folder,
        name: OsString,
        /// The file that will be replaced.
        there: Option<Found>,
    },
    Device(File),
}

/// Writes the private file `path` as a whole.
///
/// # Errors
/// As [`WholeFile::private`], and those of writing.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let whole = WholeFile::private(path)?;
    whole.file().write_all(content.as_ref())?;
    whole.finish()
}

impl WholeFile {
    /// Starts the file `path`. A new file gets the usual permissions.
    pub(crate) fn create(path: &Path) -> io::Result<WholeFile> {
        WholeFile::begin(path, None, 0o666)
    }

    /// Starts a file that describes the machine: only its owner may read a new one.
    pub(crate) fn private(path: &Path) -> io::Result<WholeFile> {
        WholeFile::begin(path, None, 0o600)
    }

    /// Starts a private file. Fails where `path` is the file `input`.
    pub(crate) fn private_beside(path: &Path, input: Option<&File>) -> io::Result<WholeFile> {
        WholeFile::begin(path, input, 0o600)
    }

    /// `mode` is that of a new file, before the umask.
    fn begin(path: &Path, input: Option<&File>, mode: u32) -> io::Result<WholeFile> {
        let (folder, name, there) = match find(path)? {
            Target::Device(file) => {
                return Ok(WholeFile {
                    file,
                    partial: None,
                });
            }
            Target::File {
                folder,
                name,
                there,
            } => (folder, name, there),
        };
        if let (Some(there), Some(input)) = (&there, input)
            && there.id == identity(input)?
        {
            return Err(io::Error::other("it is the input"));
        }
        warn_of(&folder);
        let kept = there.filter(Found::is_ours).map(|there| there.mode & 0o777);
        let mut tries = 0;
        loop {
            let (partial, file) = Partial::create(&folder, &name, kept.unwrap_or(mode))?;
            // The lock tells other runs that this one writes the file, in other PID namespaces too. A file system without
            // locks refuses it, and there no run removes another's file.
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
            let same = partial.is(&file)?;
            let whole = WholeFile {
                file,
                partial: Some(partial),
            };
            if !same || locked == Err(Errno::WOULDBLOCK) {
                continue; // another run took it for a killed run's file before it was locked
            }
            // Two runs that start at once both look after they have made their own files: at least one sees the other's.
            match whole.other_writer(&folder, &name) {
                None => {
                    if let Some(mode) = kept {
                        let mode = fs::Permissions::from_mode(mode); // the umask took some of it
                        whole.file.set_permissions(mode)?;
                    }
                    return Ok(whole);
                }
                Some(pid) if tries == TRIES => {
                    return Err(io::Error::other(format!(
                        "process {pid} is writing it; wait for its end, or name another file"
                    )));
                }
                Some(_) => {
                    drop(whole);
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(5 + random() % 25));
                }
            }
        }
    }

    /// Returns the file to write to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the process of this user that is writing the same file. Removes the files that killed processes left.
    fn other_writer(&self, folder: &Folder, name: &OsStr) -> Option<u32> {
        let own = self.partial.as_ref().map(|partial| &partial.name);
        let others = folder.names().into_iter().filter_map(|partial| {
            let (of, pid) = name_and_pid(&partial, PARTIAL)?;
            let written = of == name && Some(&partial) != own;
            (written && !remove_abandoned(folder, &partial)).then_some(pid)
        });
        let others: Vec<u32> = others.collect(); // looks at all, so that abandoned ones go
        others.last().copied()
    }

    /// Gives the file its final name.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let Some(partial) = &self.partial else {
            return Ok(());
        };
        self.file.sync_all()?;
        if !partial.is(&self.file)? {
            let why = "somebody else has replaced it on its way; name a directory that others may not write to";
            return Err(io::Error::other(why));
        }
        partial
            .folder
            .rename(&partial.name, &partial.final_name)
            .map_err(|error| partial.why_not(error))?;
        if let Some(journal) = self.partial.take().and_then(|partial| partial.journal) {
            journal.undo(); // the name of the unfinished file no longer exists
        }
        Ok(())
    }
}

impl Partial {
    /// Creates the file under the first free name.
    fn create(folder: &Folder, name: &OsStr, mode: u32) -> io::Result<(Partial, File)> {
        let pid = std::process::id();
        let mut tag = pid.to_string();
        loop {
            let mut partial = OsString::from(".");
            partial.push(name);
            partial.push(format!(".{tag}{PARTIAL}"));
            let (created, journal) = announced(folder, &partial, mode);
            match created {
                // Another user foresaw the name and put something there.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    tag = format!("{pid}-{:08x}", random() & 0xffff_ffff);
                }
                created => {
                    let partial = Partial {
                        folder: folder.try_clone()?,
                        name: partial,
                        final_name: name.to_owned(),
                        journal,
                    };
                    return Ok((partial, created?));
                }
            }
        }
    }

    /// Returns whether the name still belongs to `file`.
    fn is(&self, file: &File) -> io::Result<bool> {
        let there = self.folder.find(&self.name)?;
        let own = identity(file)?;
        Ok(there.is_some_and(|there| there.id == own))
    }

    fn why_not(&self, error: io::Error) -> io::Error {
        match self.folder.find(&self.final_name) {
            Ok(Some(there)) if !there.is_ours() => io::Error::new(
                error.kind(),
                format!("{error}: user {} has put something there", there.uid),
            ),
            _ => error,
        }
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(partial) = self.partial.take() {
            let _ = partial.folder.remove(&partial.name); // it is incomplete
            if let Some(journal) = &partial.journal {
                journal.undo();
            }
        }
    }
}

/// Creates the file `partial`, and a journal by which the next run removes it where this one is killed. Without a place for a
/// journal, the next run that writes the same file removes what is left.
fn announced(
    folder: &Folder,
    partial: &OsStr,
    mode: u32,
) -> (io::Result<File>, Option<Journal<'static>>) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let tag = format!("file-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let path = std::path::absolute(folder.path().join(partial)).ok();
    let mut journal = places::usual_journal().map(|place| Journal::aside(&Linux, &place, &tag));
    let mut created = None;
    if let (Some(path), Some(of)) = (path, &journal) {
        let make = || {
            let made = folder.create(partial, mode);
            let told = made.as_ref().map(drop).map_err(|error| {
                let errno = error.raw_os_error().unwrap_or_default();
                Error::call("open", path.display(), io::Error::from_raw_os_error(errno))
            });
            created = Some(made);
            told
        };
        if of.make_file(&path, make).is_err() {
            journal = None;
        }
    }
    (
        created.unwrap_or_else(|| folder.create(partial, mode)),
        journal,
    )
}

/// What `path` is. A link is followed by hand, so that each is looked at before.
fn find(path: &Path) -> io::Result<Target> {
    let mut path = path.to_owned();
    let mut from: Option<Folder> = None;
    for _ in 0..MOST_LINKS {
        let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let parent = path.parent().unwrap_or(Path::new(""));
        let folder = match &from {
            None => Folder::open(parent)?,
            Some(from) => from.at(parent)?,
        };
        let file = |folder, there| {
            Ok(Target::File {
                folder,
                name: name.clone(),
                there,
            })
        };
        let Some(there) = folder.find(&name)? else {
            return file(folder, None);
        };
        let trusted = there.is_ours() || there.uid == 0;
        match there.kind {
            FileType::Symlink if folder.is_proc() => return open_file(&folder, &name),
            FileType::Symlink if trusted => {
                path = folder.link(&name)?;
                from = Some(folder);
            }
            FileType::RegularFile => return file(folder, Some(there)),
            FileType::Symlink => return file(folder, None),
            FileType::Directory => return Err(Errno::ISDIR.into()),
            FileType::CharacterDevice => return device(folder.device(&name)?),
            // Opening one waits for its reader: as every program does, where it is the user's.
            FileType::Fifo | FileType::Socket if trusted => return device(folder.device(&name)?),
            _ if there.kind == FileType::BlockDevice => return Err(disk()),
            _ => {
                return Err(io::Error::other(format!(
                    "user {} has put a pipe there; remove it, or name another file",
                    there.uid
                )));
            }
        }
    }
    Err(Errno::LOOP.into())
}

fn device(file: File) -> io::Result<Target> {
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        // As root, one wrong letter in a name would end a file system.
        FileType::BlockDevice => Err(disk()),
        _ => Ok(Target::Device(file)),
    }
}

fn disk() -> io::Error {
    io::Error::other("it is a disk; name a file")
}

/// Opens a file that a process has open, such as `/dev/stdout`. It is appended to and not replaced.
fn open_file(folder: &Folder, name: &OsStr) -> io::Result<Target> {
    use std::os::fd::AsFd;
    let file = folder.device(name)?;
    if !file.metadata()?.is_file() {
        return device(file);
    }
    let (out, err) = (io::stdout(), io::stderr());
    for own in [out.as_fd(), err.as_fd()] {
        // It goes on where the other writers are.
        if identity(own).ok() == identity(&file).ok() {
            return Ok(Target::Device(own.try_clone_to_owned()?.into()));
        }
    }
    let why = "it is a file that a process has open; name the file itself";
    Err(io::Error::other(why))
}

/// Checks that a file can be created in `folder`.
pub(crate) fn try_in(folder: &Folder) -> io::Result<()> {
    let (partial, file) = Partial::create(folder, OsStr::new("stopgap"), 0o600)?;
    drop(WholeFile {
        file,
        partial: Some(partial),
    });
    Ok(())
}

/// Tells root of a directory in which every user may replace what root writes. Once of each.
pub(crate) fn warn_of(folder: &Folder) {
    static TOLD: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
    let open = folder.is_open_to_all().unwrap_or(false);
    if !open || !rustix::process::geteuid().is_root() {
        return;
    }
    let Ok(found) = folder.stat() else { return };
    let mut told = TOLD
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if told.insert(found.id) {
        tell(&format!(
            "{}: every user may replace the files in it (mode {:04o}, no sticky bit); name a directory of your own, or chmod \
             +t it",
            folder.path().display(),
            found.mode
        ));
    }
}

/// Parses `.NAME.PID` or `.NAME.PID-TAG` with `end` after it: the name of something unfinished that process PID makes into NAME.
pub(crate) fn name_and_pid<'a>(hidden: &'a OsStr, end: &str) -> Option<(&'a OsStr, u32)> {
    let middle = hidden
        .as_bytes()
        .strip_prefix(b".")?
        .strip_suffix(end.as_bytes())?;
    let dot = middle.iter().rposition(|&byte| byte == b'.')?;
    let tag = std::str::from_utf8(&middle[dot + 1..]).ok()?;
    let pid = tag.split('-').next()?.parse().ok()?;
    (dot > 0).then(|| (OsStr::from_bytes(&middle[..dot]), pid))
}

/// Removes the unfinished file `partial` of a killed run. Returns false where a run still writes it, which holds a lock on it.
/// Leaves files of other users alone, and all that are no regular files.
pub(crate) fn remove_abandoned(folder: &Folder, partial: &OsStr) -> bool {
    let ours = |there: &Found| there.is_ours() && there.kind == FileType::RegularFile;
    if name_and_pid(partial, PARTIAL).is_none()
        || !folder
            .find(partial)
            .is_ok_and(|it| it.as_ref().is_some_and(ours))
    {
        return true;
    }
    let Ok(file) = folder.read(partial) else {
        return true; // it has gone, or cannot be asked
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => false,
        Err(_) => true,
        Ok(()) => {
            let there = folder.find(partial).ok().flatten().map(|there| there.id);
            if there == identity(&file).ok() {
                let _ = folder.remove(partial); // not ours to remove: then it stays
            }
            true
        }
    }
}

/// Returns a number that nobody can foresee.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The folder of `path`, and its name in it.
///
/// # Errors
/// As [`Folder::open`].
pub(crate) fn folder_of(path: &Path) -> io::Result<(Folder, OsString)> {
    let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned();
    let folder: PathBuf = path.parent().unwrap_or(Path::new("")).into();
    Ok((Folder::open(&folder)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|e| name(e).into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn it_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let whole = WholeFile::create(&path).unwrap();
        whole.file().write_all(b"half").unwrap();
        drop(whole);
        assert!(names(folder.path()).is_empty());

        fs::write(&path, "old").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("out", &link).unwrap();
        let whole = WholeFile::create(&link).unwrap();
        whole.file().write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        whole.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["link", "out"]);
    }

    #[test]
    fn what_a_killed_run_left_is_removed_and_what_is_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let partial = |pid: &str| folder.path().join(format!(".out.{pid}.partial"));
        let (left, also) = (partial("4194999"), partial("4194997-0badcafe"));
        let written = partial("4194998");
        fs::write(&left, "half").unwrap();
        fs::write(also, "half").unwrap();
        let writer = File::create(&written).unwrap();
        flock(&writer, FlockOperation::NonBlockingLockExclusive).unwrap();
        let others = [folder.path().join(".other.4194999.partial"), partial("x")];
        for other in &others {
            fs::write(other, "").unwrap();
        }
        // Another run of ours is at work on it.
        let refused = WholeFile::create(&path).map(drop).unwrap_err();
        assert!(refused.to_string().contains("process 4194998"), "{refused}");
        assert!(!left.exists());
        assert_eq!(names(folder.path()).len(), 3, "{:?}", names(folder.path()));
        assert!(written.exists() && others.iter().all(|other| other.exists()));
        drop(writer);
        drop(WholeFile::create(&path).unwrap());
        assert!(!written.exists());
    }

    #[test]
    fn what_is_private_is_its_owners_and_what_is_replaced_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = folder.path().join("snapshot");
        let whole = WholeFile::private(&path).unwrap();
        let partial = &whole.partial.as_ref().unwrap().name;
        assert_eq!(mode(&folder.path().join(partial)), 0o600);
        whole.finish().unwrap();
        assert_eq!(mode(&path), 0o600);
        for kept in [0o666, 0o640, 0o600, 0o400] {
            fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
            for private in [true, false] {
                let whole = match private {
                    true => WholeFile::private(&path),
                    false => WholeFile::create(&path),
                };
                whole.unwrap().finish().unwrap();
                assert_eq!(mode(&path), kept);
            }
        }
    }

    #[test]
    fn the_input_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        fs::write(&path, "input").unwrap();
        fs::hard_link(&path, folder.path().join("same")).unwrap();
        let input = File::open(&path).unwrap();
        for name in ["in", "same"] {
            let refused = WholeFile::private_beside(&folder.path().join(name), Some(&input));
            assert!(refused.is_err());
        }
        assert_eq!(fs::read(&path).unwrap(), b"input");
    }

    /// Names that anybody can foresee are taken already, by links.
    #[test]
    fn a_name_that_is_taken_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        let partial = format!(".out.{}.partial", std::process::id());
        std::os::unix::fs::symlink(&precious, folder.path().join(&partial)).unwrap();
        let path = folder.path().join("out");
        let whole = WholeFile::create(&path).unwrap();
        whole.file().write_all(b"new").unwrap();
        whole.finish().unwrap();
        assert_eq!(names(folder.path()), [&partial, "out", "precious"]);
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
    }
}
