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

mod segments;

use std::fmt;

use stopgap_events::units::Bytes;
use stopgap_events::words;

use crate::error::{Error, Result};
use crate::memory::Mapping;
#[cfg(any(test, feature = "fake"))]
pub(crate) use segments::refusal as segment_refusal;
pub(crate) use segments::refused as segment_refused;

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

    /// How it is held.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
