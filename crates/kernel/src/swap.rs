//! A swap file of our own, and what swap there is.
//!
//! The header is that of mkswap(8), version 1 (`union swap_header`, include/linux/swap.h): the
//! first page holds, after 1024 bytes for a boot block, three 32-bit numbers in the machine's
//! byte order (version, last usable page, bad pages), and ends with `SWAPSPACE2`.

use std::path::Path;

use stopgap_events::units::Bytes;

use crate::System;
use crate::cgroup::file_system;
use crate::environment;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::journal::Journal;

const VERSION_AT: usize = 1024;
const SIGNATURE: &[u8] = b"SWAPSPACE2";

/// The first page of a swap file of `pages` pages.
fn header(page: usize, pages: u32) -> Vec<u8> {
    let mut header = vec![0; page];
    let numbers = [1, pages - 1, 0].map(u32::to_ne_bytes).concat();
    header[VERSION_AT..VERSION_AT + numbers.len()].copy_from_slice(&numbers);
    header[page - SIGNATURE.len()..].copy_from_slice(SIGNATURE);
    header
}

/// The smallest swap file.
#[must_use]
pub fn least(system: &dyn System) -> Bytes {
    Bytes(10 * system.page_size().0)
}

/// Makes a swap file of `size` (rounded up to whole pages) and puts it into use. Undoing the
/// journal takes it out of use and removes it.
///
/// # Errors
/// [`Error::Unsupported`] on a file system in memory; as write(2) (a full disk), fallocate(2)
/// and swapon(2): `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` on a file system that has no swap
/// files (or where they must be made in another way, as on btrfs). Nothing is then left.
pub fn make(system: &dyn System, journal: &Journal<'_>, path: &Path, size: Bytes) -> Result<()> {
    let kind = file_system(system, path)?;
    if matches!(kind.as_str(), "tmpfs" | "ramfs") {
        let advice = format!("{} is on {kind}: give a folder on a disk", path.display());
        return Err(Error::unsupported("a swap file in memory", advice));
    }
    let page = system.page_size();
    let pages = u32::try_from(size.pages(page).0).unwrap_or(u32::MAX);
    if size.page_aligned(page) < least(system) {
        let advice =
            format!("{size} is less than ten pages of {page}, the least that mkswap(8) makes");
        return Err(Error::unsupported("so small a swap file", advice));
    }
    let header = header(page.0 as usize, pages);
    journal.make_swap(path, || {
        system.create(path, &header)?;
        system.extend(path, Bytes(u64::from(pages) * page.0), true)
    })
}

/// Kind and size of the swap in use, as `none`, `zram`, `file`, `partition`, or several joined
/// by `+`.
///
/// # Errors
/// Where `/proc/swaps` cannot be read or is not of the form that we know.
pub fn in_use(files: &(impl Files + ?Sized)) -> Result<(String, Bytes)> {
    environment::read_swap(files).map(|swap| (swap.kind, swap.size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linux;
    use crate::fake::Fake;

    #[test]
    fn the_header_is_the_one_that_swapon_looks_for() {
        let header = header(4096, 512);
        assert_eq!(header.len(), 4096);
        assert_eq!(&header[4086..], b"SWAPSPACE2");
        assert_eq!(header[1024..1028], 1u32.to_ne_bytes());
        assert_eq!(header[1028..1032], 511u32.to_ne_bytes());
        assert!(header[1032..4086].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn swap_in_memory_is_refused_and_leaves_nothing() {
        let fake = Fake::default()
            .with_file("/proc/self/mountinfo", "20 1 0:1 / / rw - tmpfs tmpfs rw\n")
            .with_file("/run/x", "");
        let journal = Journal::new(&fake, Path::new("/run/stopgap"));
        let error = make(&fake, &journal, Path::new("/run/swap"), Bytes::mib(1)).unwrap_err();
        assert!(error.to_string().contains("tmpfs"), "{error}");
        assert!(fake.content("/run/swap").is_none());
    }

    /// Where we are root on a disk: used and given back for real.
    #[test]
    fn a_swap_file_is_used_and_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::new(&Linux, folder.path());
        let path = folder.path().join("swap");
        match make(&Linux, &journal, &path, Bytes::mib(1)) {
            Ok(()) => {
                let swaps = std::fs::read_to_string("/proc/swaps").unwrap();
                assert!(swaps.contains(path.to_str().unwrap()), "{swaps}");
            }
            // Not root, on tmpfs, or a file system without swap files.
            Err(error) => assert!(
                error.is_refused()
                    || error.errno() == Some(libc::EINVAL)
                    || matches!(error, Error::Unsupported { .. }),
                "{error}"
            ),
        }
        assert!(journal.undo().is_empty());
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap();
        assert!(!swaps.contains(path.to_str().unwrap()), "{swaps}");
        assert!(!path.exists());
    }
}
