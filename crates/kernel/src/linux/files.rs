use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use stopgap_events::units::Bytes;

use super::Linux;
use crate::error::{Error, Result};
use crate::files::{Entry, Files, Kind};
use crate::folder::Folder;
use crate::tracefs::{PLACES, Tracefs};

fn on<T>(call: &'static str, path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|e| Error::call(call, path.display(), e))
}

/// Most bytes of a file that are mapped at once.
const PIECE: Bytes = Bytes::mib(64);

/// Maps, populates and unmaps `length` bytes (at most [`PIECE`]) from `offset` on.
fn populate_piece(file: &fs::File, offset: u64, length: u64) -> io::Result<()> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let length = length as usize;
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    // SAFETY: without MAP_FIXED the kernel chooses addresses that nothing else uses; the mapping is never
    // touched, so it does not matter what becomes of the file, and is gone before anyone else knows of it.
    unsafe {
        let address = mmap(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ,
            flags,
            file,
            offset,
        )?;
        munmap(address, length)?;
    }
    Ok(())
}

impl Files for Linux {
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let mut file = on("open", path, fs::File::open(path))?;
        let mut content = Vec::with_capacity(4096);
        on("read", path, file.read_to_end(&mut content))?;
        Ok(content)
    }

    fn read_own(&self, path: &Path) -> Result<Vec<u8>> {
        const MOST: u64 = 16 << 20;
        let name = path.file_name().unwrap_or_default();
        let folder = Folder::open(path.parent().unwrap_or(Path::new("/")));
        on(
            "open",
            path,
            folder.and_then(|folder| folder.content(name, MOST)),
        )
    }

    fn read_at(&self, path: &Path, offset: u64, length: usize) -> Result<Vec<u8>> {
        let file = on("open", path, fs::File::open(path))?;
        let mut content = vec![0; length];
        let mut have = 0;
        while have < length {
            let more = file.read_at(&mut content[have..], offset + have as u64);
            match on("read", path, more)? {
                0 => break,
                count => have += count,
            }
        }
        content.truncate(have);
        Ok(content)
    }

    fn write(&self, path: &Path, content: &[u8]) -> Result<()> {
        let file = fs::OpenOptions::new().write(true).open(path);
        let count = on("write", path, on("open", path, file)?.write(content))?;
        if count == content.len() {
            Ok(())
        } else {
            Err(Error::call(
                "write",
                path.display(),
                io::ErrorKind::WriteZero,
            ))
        }
    }

    fn create(&self, path: &Path, content: &[u8]) -> Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = on("open", path, options.open(path))?;
        on("write", path, file.write_all(content))?;
        on("fsync", path, file.sync_all())
    }

    fn extend(&self, path: &Path, length: Bytes, allocated: bool) -> Result<()> {
        use rustix::fs::{FallocateFlags, fallocate, ftruncate};
        let mut options = fs::OpenOptions::new();
        // Whatever somebody else may have put there since it was created: it is not made longer, or cut.
        options
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = on("open", path, options.open(path))?;
        let there = on("fstat", path, file.metadata())?;
        if !there.is_file() || there.uid() != rustix::process::geteuid().as_raw() {
            let replaced = io::Error::other("it is no file of ours any more");
            return Err(Error::call("open", path.display(), replaced));
        }
        if allocated {
            let done = fallocate(&file, FallocateFlags::empty(), 0, length.0);
            on("fallocate", path, done.map_err(io::Error::from))
        } else {
            let done = ftruncate(&file, length.0);
            on("ftruncate", path, done.map_err(io::Error::from))
        }
    }

    fn stream(&self, path: &Path, go_on: &dyn Fn(Bytes) -> bool) -> Result<Bytes> {
        let mut file = on("open", path, fs::File::open(path))?;
        let mut buffer = vec![0; 1 << 18];
        let mut total = 0;
        while go_on(Bytes(total)) {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => total += count as u64,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return on("read", path, Err(e)),
            }
        }
        Ok(Bytes(total))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let entries = on("opendir", path, fs::read_dir(path))?;
        let mut names = Vec::new();
        for entry in entries {
            let name = on("readdir", path, entry)?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn entry(&self, path: &Path) -> Result<Entry> {
        let found = on("lstat", path, fs::symlink_metadata(path))?;
        let kind = match found.file_type() {
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_file() => Kind::Regular,
            _ => Kind::Other,
        };
        Ok(Entry {
            kind,
            device: found.dev(),
        })
    }

    fn populate(&self, path: &Path, go_on: &dyn Fn() -> bool) -> Result<Bytes> {
        let mut options = fs::OpenOptions::new();
        // Whatever it has become since: no link is followed, no pipe waited for.
        options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = on("open", path, options.open(path))?;
        let found = on("fstat", path, file.metadata())?;
        let length = if found.is_file() { found.len() } else { 0 };
        let mut at = 0;
        while at < length && go_on() {
            let piece = (length - at).min(PIECE.0);
            on("mmap", path, populate_piece(&file, at, piece))?;
            at += piece;
        }
        Ok(Bytes(at.min(length)))
    }

    fn kernel_log(&self) -> Result<Vec<String>> {
        const PATH: &str = "/dev/kmsg";
        /// A record is at most this long; a shorter buffer is refused with EINVAL (`CONSOLE_EXT_LOG_MAX`).
        const RECORD: usize = 8 << 10;
        /// More than a log buffer of 16 MiB holds.
        const MOST: usize = 200_000;
        let path = Path::new(PATH);
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let mut file = on("open", path, options.open(path))?;
        let (mut records, mut buffer) = (Vec::new(), vec![0; RECORD]);
        while records.len() < MOST {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    records.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
                }
                Err(error) => match error.raw_os_error() {
                    // The kernel overwrote the next record; the one after it comes.
                    Some(libc::EPIPE | libc::EINTR) => {}
                    Some(libc::EAGAIN) => break,
                    _ => return on("read", path, Err(error)),
                },
            }
        }
        Ok(records)
    }

    fn link(&self, path: &Path) -> Result<PathBuf> {
        on("readlink", path, fs::read_link(path))
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        on(
            "mkdir",
            path,
            fs::DirBuilder::new().mode(0o700).create(path),
        )
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        on("rmdir", path, fs::remove_dir(path))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        on("unlink", path, fs::remove_file(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        on("rename", to, fs::rename(from, to))
    }

    fn is_private(&self, path: &Path) -> Result<bool> {
        let meta = on("lstat", path, fs::symlink_metadata(path))?;
        let ours = meta.uid() == rustix::process::geteuid().as_raw();
        Ok(meta.is_dir() && ours && meta.mode() & 0o022 == 0)
    }

    fn tracefs(&self) -> Result<Tracefs> {
        use rustix::mount::{
            FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen,
        };
        let mut refused = None;
        for place in PLACES {
            match self.list(&Path::new(place).join("events")) {
                Ok(_) => return Ok(Tracefs::mounted(Path::new(place))),
                Err(error) if error.is_refused() => refused = Some(error),
                Err(_) => {}
            }
        }
        let mount = || {
            let fs = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&fs)?;
            fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        };
        let mounted = mount().map(Tracefs::detached).map_err(|errno| {
            let advice = match (errno, refused) {
                (rustix::io::Errno::NODEV, _) => {
                    "this kernel is built without tracing (CONFIG_TRACING)".to_owned()
                }
                (rustix::io::Errno::PERM | rustix::io::Errno::ACCESS, _) | (_, Some(_)) => {
                    "needs root (CAP_SYS_ADMIN)".to_owned()
                }
                _ => format!(
                    "not mounted, and cannot be ({errno}); as root: mount -t tracefs tracefs {}",
                    PLACES[0]
                ),
            };
            Error::unsupported("trace events (tracefs)", advice)
        })?;
        match self.list(&mounted.path().join("events")) {
            Err(error) if error.is_absent() => {
                let why = "it has no files, as where lockdown is 'confidentiality'; boot with lockdown=integrity";
                Err(Error::unsupported("trace events (tracefs)", why))
            }
            _ => Ok(mounted),
        }
    }

    fn swap(&self, path: &Path, switch_on: bool) -> Result<()> {
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::call("swapon", path.display(), io::ErrorKind::InvalidInput))?;
        let folder = Folder::open(path.parent().unwrap_or(Path::new("/")));
        if switch_on && folder.is_ok_and(|folder| folder.is_open_to_all().unwrap_or(true)) {
            let advice = format!(
                "every user may replace {}, and would read what is swapped out; name a directory of your own",
                path.display()
            );
            return Err(Error::unsupported("a swap file there", advice));
        }
        // SAFETY: the path is a NUL-terminated string that outlives the call.
        let (call, status) = unsafe {
            if switch_on {
                ("swapon", libc::swapon(c_path.as_ptr(), 0))
            } else {
                ("swapoff", libc::swapoff(c_path.as_ptr()))
            }
        };
        if status == 0 {
            return Ok(());
        }
        let error = Error::last(call, path.display());
        if switch_on && error.is_invalid() {
            let advice = format!(
                "the file system of {} holds none (overlayfs and tmpfs, for example); name a directory on ext4 or xfs",
                path.display()
            );
            return Err(Error::unsupported("a swap file there", advice));
        }
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_swap_files_is_named() {
        use stopgap_testing::{Skip, skip};
        if !rustix::process::geteuid().is_root() {
            return skip(&Skip::root("swapon"));
        }
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = folder.path().join("swap");
        fs::write(&file, vec![0; 1 << 20]).unwrap();
        let refused = Linux.swap(&file, true).unwrap_err().to_string();
        assert!(
            refused.contains("holds none (overlayfs and tmpfs"),
            "{refused}"
        );
    }

    #[test]
    fn regular_files_are_brought_in_and_others_are_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), vec![7u8; 10_000]).unwrap();
        fs::write(at("empty"), "").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), 0o600.into()).unwrap();
        let populate = |name: &str| Linux.populate(&at(name), &|| true);
        assert_eq!(populate("file").unwrap(), Bytes(10_000));
        assert_eq!(populate("empty").unwrap(), Bytes(0));
        assert_eq!(Linux.populate(&at("file"), &|| false).unwrap(), Bytes(0));
        let followed = populate("link").unwrap_err();
        assert_eq!(followed.errno(), Some(libc::ELOOP), "{followed}");
        // Nobody writes to it: waiting for one would be for ever.
        assert_eq!(populate("pipe").unwrap(), Bytes(0));
        let kind = |name: &str| Linux.entry(&at(name)).unwrap().kind;
        assert_eq!(kind("file"), Kind::Regular);
        assert_eq!((kind("link"), kind("pipe")), (Kind::Other, Kind::Other));
        let here = Linux.entry(folder.path()).unwrap();
        assert_eq!(
            (here.kind, here.device),
            (Kind::Directory, Linux.entry(&at("file")).unwrap().device)
        );
        assert!(Linux.entry(&at("none")).unwrap_err().is_absent());
    }
}
