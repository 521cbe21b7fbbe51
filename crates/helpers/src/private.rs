//! A file for the dynamic linker, in a directory where no other user can replace the file.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::geteuid;
use stopgap_kernel::folder::Folder;

/// Permission bits by which others than the owner may write, and the bit that protects their entries in such a directory.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Writes `content` as `name` (mode 0600) into the user's cache directory, or where that will not do, into a private directory under the
/// temporary one. Keeps a file that has this content already. Returns the path, which has no links and no `..`.
///
/// # Errors
/// What is wrong with each directory: another user may replace what lies in it, it is mounted noexec, its path cannot stand in
/// `LD_PRELOAD`, or it cannot be written.
pub fn write_private(name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let mut whys = Vec::new();
    for directory in candidates() {
        match write_into(&directory, name, content) {
            Ok(path) => return Ok(path),
            Err(why) => whys.push(format!("{}: {why}", directory.display())),
        }
    }
    Err(io::Error::other(whys.join("; ")))
}

fn candidates() -> Vec<PathBuf> {
    let absolute = |variable: &str| {
        let path = PathBuf::from(std::env::var_os(variable)?);
        path.is_absolute().then_some(path)
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let mut all: Vec<PathBuf> = cache
        .map(|cache| cache.join("stopgap"))
        .into_iter()
        .collect();
    all.push(std::env::temp_dir().join(format!("stopgap-{}", geteuid().as_raw())));
    all
}

fn write_into(directory: &Path, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let parent = directory.parent().unwrap_or(Path::new("/"));
    let own = directory.file_name().unwrap_or_default();
    let parent = Folder::make(parent)?;
    let folder = match parent.make_own(own) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => parent.own(own)?,
        made => made?,
    };
    let path = directory.canonicalize()?;
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b": ".contains(byte))
    {
        return Err(io::Error::other(
            "LD_PRELOAD takes no path with a colon or a space",
        ));
    }
    stays_ours(&path)?;
    if statvfs(&path)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::other("it is mounted noexec"));
    }
    let name = OsStr::new(name);
    let same = |content: &[u8]| {
        let most = content.len() as u64;
        let ours = folder.find(name).ok()??;
        let kept = ours.is_ours() && ours.mode & OTHERS_WRITE == 0;
        (kept && folder.content(name, most).ok()? == content).then_some(())
    };
    if same(content).is_none() {
        let partial = format!(".{}.{}.partial", name.display(), std::process::id());
        let partial = OsStr::new(&partial);
        // A killed process with this number may have left one.
        folder.remove(partial)?;
        folder.write(partial, content)?;
        folder.rename(partial, name)?;
    }
    Ok(path.join(name))
}

/// Fails where another user than root could replace `path` or a directory above it.
fn stays_ours(path: &Path) -> io::Result<()> {
    for directory in path.ancestors() {
        let meta = directory.metadata()?;
        if meta.uid() != 0 && meta.uid() != geteuid().as_raw() {
            let why = format!("{} belongs to user {}", directory.display(), meta.uid());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if meta.mode() & OTHERS_WRITE != 0 && meta.mode() & STICKY == 0 {
            let why = format!("others may write to {}", directory.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn the_file_and_its_directory_are_private_and_a_changed_file_is_written_again() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("cache/stopgap");
        let path = write_into(&directory, "a.so", b"one").unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let inode = path.metadata().unwrap().ino();
        write_into(&directory, "a.so", b"one").unwrap();
        assert_eq!(path.metadata().unwrap().ino(), inode, "kept");
        write_into(&directory, "a.so", b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        write_into(&directory, "a.so", b"two").unwrap();
        assert_eq!(mode(&path), 0o600);
        // A link that leads elsewhere is replaced, and its target stays as it was.
        let other = root.path().join("other");
        fs::write(&other, "three").unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        write_into(&directory, "a.so", b"two").unwrap();
        assert!(path.symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read(&other).unwrap(), b"three");
        assert_eq!(
            fs::read_dir(&directory).unwrap().count(),
            1,
            "nothing is left"
        );
    }

    #[test]
    fn a_directory_that_another_user_may_replace_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let open = root.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let why = write_into(&open.join("stopgap"), "a.so", b"").unwrap_err();
        assert!(why.to_string().starts_with("others may write to"), "{why}");
        fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
        write_into(&open.join("stopgap"), "a.so", b"").unwrap();
        fs::set_permissions(open.join("stopgap"), Permissions::from_mode(0o720)).unwrap();
        assert!(write_into(&open.join("stopgap"), "a.so", b"").is_err());
        let colon = root.path().join("a:b/stopgap");
        let why = write_into(&colon, "a.so", b"").unwrap_err();
        assert!(why.to_string().contains("colon"), "{why}");
    }
}
