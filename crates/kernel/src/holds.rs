//! Holding memory: *locked* (mlock, `SHM_LOCK`: it stays in memory but may still migrate) and
//! *pinned* (page references: it stays where it is). The two are never mixed up.
//!
//! What the kernel does about each (Linux 6.12; kernel-internal names in parentheses):
//!
//! | way | to take | reclaim meets its pages | charged to `RLIMIT_MEMLOCK` |
//! |---|---|---|---|
//! | mlock | each page marked and moved to the unevictable list (`mlock_folio`) | never again | yes, a process |
//! | `SHM_LOCK` | the mapping is flagged, no page is moved (`shmem_lock`) | once: it culls them | yes, a user |
//! | vmsplice | a reference a page (`get_page`) | on every pass, and keeps them | no; `fs.pipe-user-pages-*` |
//! | `io_uring` | a long-term pin a page (`FOLL_PIN`) | on every pass, and keeps them | yes, a user |
//! | udmabuf | a long-term pin a folio (`memfd_pin_folios`, since 6.11) | on every pass, and keeps them | no; root or its group |

use std::{fmt, io};

use stopgap_events::units::Bytes;
use stopgap_events::words;

use crate::error::{Error, Result};
use crate::files::{Files, read_number, read_text};
use crate::memory::Mapping;

/// A way to hold memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// Locked by mlock(2).
    Mlock,
    /// Locked by shmctl(2), `SHM_LOCK` on a System V segment.
    ShmLock,
    /// Pinned by the references that vmsplice(2) puts into pipes: the nearest that a process
    /// comes to the page references of a driver.
    Vmsplice,
    /// Pinned by registration as buffers of an `io_uring`.
    IoUring,
    /// Pinned as a dma-buf of `/dev/udmabuf`: shmem held by a driver, as the objects of a graphics driver are.
    Udmabuf,
}

impl Way {
    /// Whether it locks, rather than pins.
    #[must_use]
    pub fn locks(self) -> bool {
        matches!(self, Way::Mlock | Way::ShmLock)
    }

    /// Whether what it holds counts against `RLIMIT_MEMLOCK` (without `CAP_IPC_LOCK`).
    #[must_use]
    pub fn is_charged(self) -> bool {
        !matches!(self, Way::Vmsplice | Way::Udmabuf)
    }

    /// What it does to memory, in words: `locked (mlock)`, `pinned (vmsplice references)`.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Way::Mlock => "locked (mlock)",
            Way::ShmLock => "locked (SHM_LOCK)",
            Way::Vmsplice => "pinned (vmsplice references)",
            Way::IoUring => "pinned (io_uring registration)",
            Way::Udmabuf => "pinned (udmabuf)",
        }
    }
}

words!(
    Way, "way to hold memory",
    Mlock "mlock",
    ShmLock "shm-lock",
    Vmsplice "vmsplice",
    IoUring "io-uring",
    Udmabuf "udmabuf",
);

/// Undoes a hold.
type Release<'a> = Box<dyn FnOnce() -> Result<()> + 'a>;

/// Memory that is held until this is released or dropped. It borrows the mapping: what is held
/// cannot be unmapped.
#[must_use = "dropped, it holds nothing"]
pub struct Held<'a> {
    way: Way,
    length: Bytes,
    release: Option<Release<'a>>,
}

impl<'a> Held<'a> {
    pub(crate) fn new(
        way: Way,
        length: Bytes,
        release: impl FnOnce() -> Result<()> + 'a,
    ) -> Held<'a> {
        Held {
            way,
            length,
            release: Some(Box::new(release)),
        }
    }

    /// How much is held.
    #[must_use]
    pub fn length(&self) -> Bytes {
        self.length
    }

    /// Releases it now: apart from dropping, so that it can be timed and its error seen.
    ///
    /// # Errors
    /// As munlock(2), shmctl(2), close(2), io_uring_register(2).
    pub fn release(mut self) -> Result<()> {
        self.release.take().map_or(Ok(()), |release| release())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            let _ = release(); // nobody is left to be told
        }
    }
}

impl fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({} by {})", self.length, self.way)
    }
}

/// A System V shared memory segment that only this process knows: it is attached and marked for
/// destruction, so that it ends with its mapping.
#[derive(Debug)]
#[must_use = "a segment that is dropped stays attached"]
pub struct Segment {
    pub(crate) mapping: Mapping,
    pub(crate) id: i32,
}

impl Segment {
    /// Where it is attached.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Its mapping, to be unmapped: which destroys it.
    pub fn into_mapping(self) -> Mapping {
        self.mapping
    }
}

/// A part of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// From the mapping's start.
    pub offset: Bytes,
    /// Its length.
    pub length: Bytes,
}

/// Ways to hold memory. Each is a method that the system carries out or refuses.
pub trait Holds {
    /// Holds a whole mapping, which should be resident.
    ///
    /// | way | what it does |
    /// |---|---|
    /// | mlock | mlock(2), which makes the mapping resident as well |
    /// | vmsplice | [`Holds::vmsplice_parts`] of all of it |
    /// | `io_uring` | registers it as buffers of an `io_uring` of its own |
    /// | udmabuf | makes a dma-buf of the memfd that is mapped |
    ///
    /// # Errors
    /// As the call. mlock(2), io_uring_register(2): without `CAP_IPC_LOCK`, `ENOMEM` beyond `RLIMIT_MEMLOCK`, of mlock
    /// `EPERM` where that is 0. `UDMABUF_CREATE`: `EINVAL` beyond the module's `size_limit_mb`.
    /// [`crate::Error::Unsupported`] where there is no `io_uring` for us (not built, `kernel.io_uring_disabled`,
    /// seccomp), no `/dev/udmabuf`, or the mapping's file cannot be opened again (`/proc/self/map_files`, root); and for
    /// [`Way::ShmLock`], which holds segments.
    fn hold<'a>(&'a self, mapping: &'a Mapping, way: Way) -> Result<Held<'a>>;

    /// Makes a System V segment, attaches it and marks it for destruction at once. A SIGKILL
    /// between these three calls (some microseconds) leaves an empty segment behind, which
    /// holds no page: System V offers no way to make one that has no name.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] beyond `kernel.shmmax`, `kernel.shmall` or `kernel.shmmni`, and in a kernel
    /// without System V: it names the setting, what it is and what is needed. Else as shmget(2), shmat(2).
    fn segment(&self, length: Bytes) -> Result<Segment>;

    /// Locks a segment with `SHM_LOCK`. It makes nothing resident and moves nothing: what is
    /// resident stays on the lists until reclaim meets it.
    ///
    /// # Errors
    /// As shmctl(2): without `CAP_IPC_LOCK`, `ENOMEM` beyond `RLIMIT_MEMLOCK` and `EPERM` where
    /// that is 0.
    fn shm_lock<'a>(&'a self, segment: &'a Segment) -> Result<Held<'a>>;

    /// Pins these parts of a mapping by references in pipes: as large ones as are allowed, as many as it takes; never
    /// read.
    ///
    /// # Errors
    /// As pipe(2) and vmsplice(2); [`crate::Error::Unsupported`] where the pipes that this user may have cannot hold it
    /// all (`fs.pipe-user-pages-soft`, `RLIMIT_NOFILE`); when a part leaves the mapping.
    fn vmsplice_parts<'a>(&'a self, mapping: &'a Mapping, parts: &[Part]) -> Result<Held<'a>>;
}

/// Returns all of a mapping as one part.
pub(crate) fn whole(mapping: &Mapping) -> Part {
    Part {
        offset: Bytes(0),
        length: mapping.range().length(),
    }
}

/// Returns why a segment's way does not hold a mapping.
pub(crate) fn no_mapping() -> Error {
    Error::unsupported("SHM_LOCK", "it holds segments, no mappings")
}

// Why there is no System V segment: which of the system's limits on them is too small, and what would help.
//
// shmget(2) says `EINVAL` beyond `shmmax` and `ENOSPC` beyond `shmall` or `shmmni` (`newseg`, ipc/shm.c; `ipc_addid`,
// ipc/util.c, 6.12): one errno for two limits, so the limits are read and what is there is counted. A limit that another
// program has reached meanwhile is not seen; then the errno stands.

/// Where the limits are: bytes of one segment, pages of all, segments.
const SHMMAX: &str = "/proc/sys/kernel/shmmax";
const SHMALL: &str = "/proc/sys/kernel/shmall";
const SHMMNI: &str = "/proc/sys/kernel/shmmni";
/// The segments of this IPC namespace.
const TABLE: &str = "/proc/sysvipc/shm";

/// Returns the number of existing segments, and of their pages.
fn there_is(files: &(impl Files + ?Sized), page: Bytes) -> (u64, u64) {
    let text = read_text(files, TABLE).unwrap_or_default();
    let size = |line: &str| -> Option<u64> { line.split_whitespace().nth(3)?.parse().ok() };
    let sizes = text.lines().skip(1).filter_map(size);
    sizes.fold((0, 0), |(count, pages): (u64, u64), size| {
        (count + 1, pages.saturating_add(Bytes(size).pages(page).0))
    })
}

/// A limit that is too small: its name, what it is in words, and the least that would do. `errno`: of the refusal.
fn too_small(
    files: &(impl Files + ?Sized),
    length: Bytes,
    page: Bytes,
    errno: i32,
) -> Option<(&'static str, String, u64)> {
    let limit = |path| read_number::<_, u64>(files, path).ok();
    match errno {
        libc::EINVAL => {
            let most = limit(SHMMAX).filter(|most| length.0 > *most)?;
            let words = format!("kernel.shmmax allows {} a segment", Bytes(most));
            Some(("shmmax", words, length.0))
        }
        libc::ENOSPC => {
            let (count, pages) = there_is(files, page);
            let needed = pages.saturating_add(length.pages(page).0);
            if let Some(most) = limit(SHMALL).filter(|most| needed > *most) {
                let words =
                    format!("kernel.shmall allows {most} pages in all and {pages} are taken");
                return Some(("shmall", words, needed));
            }
            let most = limit(SHMMNI).filter(|most| count >= *most)?;
            let words = format!("kernel.shmmni allows {most} segments and there are {count}");
            Some(("shmmni", words, count + 1))
        }
        _ => None,
    }
}

/// The error of a shmget(2) for `length` that failed with `error`.
pub(crate) fn segment_refused(
    files: &(impl Files + ?Sized),
    length: Bytes,
    page: Bytes,
    error: io::Error,
) -> Error {
    let errno = error.raw_os_error().unwrap_or(0);
    let what = format!("a System V segment of {length}");
    if errno == libc::ENOSYS {
        return Error::unsupported(what, "this kernel is built without CONFIG_SYSVIPC");
    }
    match too_small(files, length, page, errno) {
        Some((name, words, needed)) => {
            let advice =
                format!("{words}; as root: sysctl kernel.{name}={needed}, or ask for less");
            Error::unsupported(what, advice)
        }
        None => Error::call("shmget", length, error),
    }
}

/// The errno by which a kernel with these files refuses a segment of `length`; `None`: it makes one.
#[cfg(any(test, feature = "fake"))]
pub(crate) fn segment_refusal(
    files: &(impl Files + ?Sized),
    length: Bytes,
    page: Bytes,
) -> Option<i32> {
    [libc::EINVAL, libc::ENOSPC]
        .into_iter()
        .find(|&errno| too_small(files, length, page, errno).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn words_read_back() {
        for &way in Way::ALL {
            assert_eq!(way.to_string().parse::<Way>(), Ok(way));
            assert_eq!(way.words().starts_with("locked"), way.locks(), "{way}");
            assert_eq!(way.words().starts_with("pinned"), !way.locks(), "{way}");
        }
        assert!("pin".parse::<Way>().unwrap_err().contains("shm-lock"));
    }

    #[test]
    fn a_hold_is_released_once() {
        let count = std::cell::Cell::new(0);
        let take = || {
            Held::new(Way::Mlock, Bytes(1), || {
                count.set(count.get() + 1);
                Ok(())
            })
        };
        take().release().unwrap();
        assert_eq!(count.get(), 1);
        drop(take());
        assert_eq!(count.get(), 2);
    }

    const LENGTH: Bytes = Bytes::mib(32);

    fn machine(shmmax: u64, shmall: u64, shmmni: u64, table: &str) -> Fake {
        let head =
            "key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap\n";
        Fake::default()
            .with_file(SHMMAX, shmmax.to_string())
            .with_file(SHMALL, shmall.to_string())
            .with_file(SHMMNI, shmmni.to_string())
            .with_file(TABLE, format!("{head}{table}"))
    }

    const ONE: &str = "0 1 600 1048577 7 7 1 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn the_limit_that_is_too_small_is_named_with_what_would_do() {
        let plenty = u64::MAX >> 24;
        let said = |fake: &Fake| fake.segment(LENGTH).unwrap_err().to_string();
        assert_eq!(
            said(&machine(16 << 20, plenty, 4_096, "")),
            "a System V segment of 32 MiB: kernel.shmmax allows 16 MiB a segment; as root: sysctl \
             kernel.shmmax=33554432, or ask for less"
        );
        // A page more than 1 MiB is taken: 257 pages, and 8192 are asked for.
        assert_eq!(
            said(&machine(plenty, 8_448, 4_096, ONE)),
            "a System V segment of 32 MiB: kernel.shmall allows 8448 pages in all and 257 are taken; as root: sysctl \
             kernel.shmall=8449, or ask for less"
        );
        assert!(machine(plenty, 8_449, 4_096, ONE).segment(LENGTH).is_ok());
        let two = ONE.repeat(2);
        assert_eq!(
            said(&machine(plenty, plenty, 2, &two)),
            "a System V segment of 32 MiB: kernel.shmmni allows 2 segments and there are 2; as root: sysctl \
             kernel.shmmni=3, or ask for less"
        );
        assert!(Fake::default().segment(LENGTH).is_ok(), "limits unknown");
    }

    /// Another's segment may be gone again when we look: then the errno is all that is known.
    #[test]
    fn a_refusal_that_no_limit_explains_stays_what_it_is() {
        let fake = machine(u64::MAX, u64::MAX, 4_096, "");
        let of = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            segment_refused(&fake, LENGTH, Bytes(4_096), error)
        };
        for errno in [libc::EINVAL, libc::ENOSPC, libc::ENOMEM] {
            assert_eq!(of(errno).errno(), Some(errno));
        }
        assert!(of(libc::ENOSYS).to_string().contains("CONFIG_SYSVIPC"));
    }
}
