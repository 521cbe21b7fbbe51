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
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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
const PARTIAL: &[u8] = b".partial";

/// A file on its way. What replaces a regular file, or nothing, is written beside it and renamed
/// at the end; a device or a pipe is written to as it is. Dropped before [`WholeFile::finish`], it leaves nothing behind.
pub(crate) struct WholeFile {
    /// `None` for a device.
    begun: Option<Begun>,
}

struct Begun {
    folder: Folder,
    /// Its name until it is finished.
    partial: OsString,
    /// Its name afterwards.
    name: OsString,
    /// Has the next run remove it where this one is killed; `None` where there is no place for a journal.
    journal: Option<Journal<'static>>,
}

/// Where it goes.
enum Target {
    File {
        folder: Folder,
        name: OsString,
        /// The file that is replaced.
        there: Option<Found>,
    },
    Device(File),
}

impl WholeFile {
    /// Begins the file `path`. Fails where `path` is the file `input`. A new file gets the permissions of the input, less the
    /// umask; without an input the usual ones.
    pub(crate) fn create(path: &Path, input: Option<&File>) -> io::Result<(WholeFile, File)> {
        let mode = match input {
            Some(input) => input.metadata()?.permissions().mode() & 0o666,
            None => 0o666,
        };
        // The owner's own bits: an input may be read-only.
        WholeFile::begin(path, input, mode | 0o600)
    }

    /// The same for what tells of the machine: only the owner of a new file may read it.
    pub(crate) fn private(path: &Path) -> io::Result<(WholeFile, File)> {
        WholeFile::begin(path, None, 0o600)
    }

    /// `mode` is that of a new file, before the umask.
    fn begin(path: &Path, input: Option<&File>, mode: u32) -> io::Result<(WholeFile, File)> {
        let (folder, name, there) = match find(path)? {
            Target::Device(file) => return Ok((WholeFile { begun: None }, file)),
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
            let (begun, file) = Begun::create(&folder, &name, kept.unwrap_or(mode))?;
            let whole = WholeFile { begun: Some(begun) };
            if !whole.is_locked(&file)? {
                continue; // somebody has taken it for a killed run's: made before it was locked
            }
            // Two that begin at once both look after they have made theirs: one of them at least sees the other.
            match whole.other(&folder, &name) {
                None => {
                    if let Some(mode) = kept {
                        file.set_permissions(fs::Permissions::from_mode(mode))?; // the umask took of it
                    }
                    return Ok((whole, file));
                }
                Some(pid) if tries == TRIES => {
                    return Err(io::Error::other(format!(
                        "process {pid} is writing it; wait for its end, or name another file"
                    )));
                }
                Some(_) => {
                    drop((whole, file));
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(5 + random() % 25));
                }
            }
        }
    }

    /// Locks the file. The lock tells other runs that this one writes it, in other PID namespaces too. Returns false where
    /// another run has removed the file.
    fn is_locked(&self, file: &File) -> io::Result<bool> {
        let Some(begun) = &self.begun else {
            return Ok(true);
        };
        // A file system without locks refuses it, and there nobody removes another's.
        let taken = flock(file, FlockOperation::NonBlockingLockExclusive);
        let same = begun.is(file)?;
        Ok(same && taken != Err(Errno::WOULDBLOCK))
    }

    /// Returns the process of this user that is writing the same file. Removes the files that killed processes left.
    fn other(&self, folder: &Folder, name: &OsStr) -> Option<String> {
        let own = self.begun.as_ref().map(|begun| &begun.partial);
        let mut found = None;
        for partial in folder.names() {
            let Some((of, pid)) = parts(&partial) else {
                continue;
            };
            if of == name.as_bytes() && Some(&partial) != own && !remove_abandoned(folder, &partial)
            {
                found = Some(pid);
            }
        }
        found
    }

    /// Gives the file its name: all is written.
    pub(crate) fn finish(mut self, file: &File) -> io::Result<()> {
        let Some(begun) = &self.begun else {
            return Ok(());
        };
        file.sync_all()?;
        if !begun.is(file)? {
            let why = "somebody else has replaced it on its way; name a directory that others may not write to";
            return Err(io::Error::other(why));
        }
        begun
            .folder
            .rename(&begun.partial, &begun.name)
            .map_err(|error| begun.why_not(error))?;
        if let Some(begun) = self.begun.take()
            && let Some(journal) = &begun.journal
        {
            journal.undo(); // nothing of that name is there any more
        }
        Ok(())
    }
}

impl Begun {
    /// Creates the file under the first name that nothing has.
    fn create(folder: &Folder, name: &OsStr, mode: u32) -> io::Result<(Begun, File)> {
        let pid = std::process::id();
        let mut tag = pid.to_string();
        loop {
            let partial = [b".", name.as_bytes(), b".", tag.as_bytes(), PARTIAL].concat();
            let partial = OsString::from_vec(partial);
            let (created, journal) = announced(folder, &partial, mode);
            match created {
                // Others can foresee the name, and have put something there.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    tag = format!("{pid}-{:08x}", random() & 0xffff_ffff);
                }
                created => {
                    let begun = Begun {
                        folder: folder.try_clone()?,
                        partial,
                        name: name.to_owned(),
                        journal,
                    };
                    return Ok((begun, created?));
                }
            }
        }
    }

    /// Whether the name is still that of `file`.
    fn is(&self, file: &File) -> io::Result<bool> {
        let there = self.folder.find(&self.partial)?;
        let own = identity(file)?;
        Ok(there.is_some_and(|there| there.id == own))
    }

    fn why_not(&self, error: io::Error) -> io::Error {
        match self.folder.find(&self.name) {
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
        if let Some(begun) = self.begun.take() {
            let _ = begun.folder.remove(&begun.partial); // of no use to anybody
            if let Some(journal) = &begun.journal {
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

/// Tries whether a file can be made in `folder`.
pub(crate) fn try_in(folder: &Folder) -> io::Result<()> {
    let (begun, _) = Begun::create(folder, OsStr::new("stopgap"), 0o600)?;
    drop(WholeFile { begun: Some(begun) });
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

/// Returns name and process of `.NAME.PID.partial` and `.NAME.PID-TAG.partial`.
fn parts(partial: &OsStr) -> Option<(&[u8], String)> {
    let middle = partial
        .as_bytes()
        .strip_prefix(b".")?
        .strip_suffix(PARTIAL)?;
    let dot = middle.iter().rposition(|&byte| byte == b'.')?;
    let tag = std::str::from_utf8(&middle[dot + 1..]).ok()?;
    let pid = tag.split('-').next()?;
    pid.parse::<u32>().ok()?;
    Some((&middle[..dot], pid.to_owned()))
}

/// Removes the unfinished file `partial` of a killed run. Returns false where a run still writes it, which holds a lock on it.
/// Leaves files of other users alone, and all that are no regular files.
pub(crate) fn remove_abandoned(folder: &Folder, partial: &OsStr) -> bool {
    let ours = |there: &Found| there.is_ours() && there.kind == FileType::RegularFile;
    if parts(partial).is_none()
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
    use std::io::Write;

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
        let (whole, mut file) = WholeFile::create(&path, None).unwrap();
        file.write_all(b"half").unwrap();
        drop(whole);
        assert!(names(folder.path()).is_empty());

        fs::write(&path, "old").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("out", &link).unwrap();
        let (whole, mut file) = WholeFile::create(&link, None).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        whole.finish(&file).unwrap();
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
        let refused = WholeFile::create(&path, None).map(drop).unwrap_err();
        assert!(refused.to_string().contains("process 4194998"), "{refused}");
        assert!(!left.exists());
        assert_eq!(names(folder.path()).len(), 3, "{:?}", names(folder.path()));
        assert!(written.exists() && others.iter().all(|other| other.exists()));
        drop(writer);
        drop(WholeFile::create(&path, None).unwrap());
        assert!(!written.exists());
    }

    #[test]
    fn what_is_private_is_its_owners_and_what_is_replaced_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = folder.path().join("snapshot");
        let (whole, file) = WholeFile::private(&path).unwrap();
        let partial = whole.begun.as_ref().unwrap().partial.clone();
        assert_eq!(mode(&folder.path().join(partial)), 0o600);
        whole.finish(&file).unwrap();
        assert_eq!(mode(&path), 0o600);
        for kept in [0o666, 0o640, 0o600, 0o400] {
            fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
            for private in [true, false] {
                let (whole, file) = match private {
                    true => WholeFile::private(&path),
                    false => WholeFile::create(&path, None),
                }
                .unwrap();
                whole.finish(&file).unwrap();
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
            let refused = WholeFile::create(&folder.path().join(name), Some(&input));
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
        let (whole, mut file) = WholeFile::create(&path, None).unwrap();
        file.write_all(b"new").unwrap();
        whole.finish(&file).unwrap();
        assert_eq!(names(folder.path()), [&partial, "out", "precious"]);
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
    }
}
