//! Files: in memory, of the kernel, of events.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::{self, FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::{call, page};
use crate::error::{Error, Result};

/// Creates a file in memory of `bytes`, all 0, with `seals`. Sealed against shrinking and growing, no process can make it
/// end before a mapping of it does.
pub(crate) fn memfd(name: &CStr, bytes: u64, seals: SealFlags) -> Result<OwnedFd> {
    let file = call("memfd_create", || {
        fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
    })?;
    // Beyond this limit the call would end the process (SIGXFSZ), so that is asked first.
    if let Some(limit) = getrlimit(Resource::Fsize).current
        && bytes > limit
    {
        return Err(Error::Limit {
            asked: bytes,
            limit,
            which: "RLIMIT_FSIZE",
        });
    }
    call("ftruncate", || fs::ftruncate(&file, bytes))?;
    call("fcntl", || fs::fcntl_add_seals(&file, seals))?;
    Ok(file)
}

/// Frees a file's pages: it reads as zero there.
pub(crate) fn punch(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<()> {
    call("fallocate", || {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fs::fallocate(file, flags, offset, bytes)
    })
}

/// Reads a file from `offset` on: how many bytes.
pub(crate) fn read_at(file: BorrowedFd<'_>, bytes: &mut [u8], offset: u64) -> Result<usize> {
    call("pread", || rustix::io::pread(file, bytes, offset))
}

/// A second descriptor of the same file.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    call("fcntl(F_DUPFD_CLOEXEC)", || {
        rustix::io::fcntl_dupfd_cloexec(fd, 0)
    })
}

/// Bytes of a file.
pub(crate) fn size(fd: BorrowedFd<'_>) -> Result<u64> {
    let stat = call("fstat", || fs::fstat(fd))?;
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// The file system of a file, as its magic number of <linux/magic.h>.
fn system(fd: BorrowedFd<'_>) -> Result<u64> {
    let system = call("fstatfs", || fs::fstatfs(fd))?;
    // Its type's width and sign differ between machines.
    #[allow(clippy::unnecessary_cast, trivial_numeric_casts)]
    Ok(system.f_type as u64)
}

/// A memfd's seals. What cannot be sealed is no file in memory: of one on a disk the contents would be lost for good.
pub(crate) fn seals(fd: BorrowedFd<'_>) -> Result<SealFlags> {
    match call("fcntl(F_GET_SEALS)", || fs::fcntl_get_seals(fd)) {
        Err(error) if error.is(&[Errno::INVAL]) => Err(Error::invalid("a file that is no memfd")),
        other => other,
    }
}

/// Kinds of files that a peer may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file in memory, in base pages, of that many bytes, which nobody can cut.
    Sealed {
        /// Bytes.
        length: u64,
    },
    /// A file in memory that may be cut under those who have it mapped: they would die by SIGBUS.
    Unsealed,
    /// Something else: on a disk, on a file system of the peer's own, or of huge pages that may run out.
    Other,
}

/// Returns the kind of `file`. [`Kind::Sealed`] holds for ever.
pub(crate) fn kind(file: &OwnedFd) -> Result<Kind> {
    /// `TMPFS_MAGIC`; hugetlbfs has another.
    const TMPFS: u64 = 0x0102_1994;
    let seals = match call("fcntl", || fs::fcntl_get_seals(file)) {
        // It cannot be sealed, so it is no file in memory. A descriptor with O_PATH: EBADF.
        Err(error) if error.is(&[Errno::INVAL, Errno::BADF]) => return Ok(Kind::Other),
        seals => seals?,
    };
    if system(file.as_fd())? != TMPFS {
        return Ok(Kind::Other);
    }
    if !seals.contains(SealFlags::SHRINK) {
        return Ok(Kind::Unsealed);
    }
    // Only now: unsealed, the length could change after it was read.
    let length = size(file.as_fd())?;
    Ok(Kind::Sealed { length })
}

/// Opens a file of pressure stall information and arms a trigger in it. The trigger is text that is written: another
/// file would hold it, so what the file is comes first.
pub(crate) fn trigger(path: &Path, text: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = call("open", || fs::open(path, flags, Mode::empty()))?;
    if !tells_pressure(&fd)? {
        return Err(Error::invalid(
            "pressure: the file is neither /proc/pressure/memory nor a cgroup's memory.pressure",
        ));
    }
    // With its closing NUL: the kernel overwrites the last byte (psi_write()).
    call("write", || rustix::io::write(&fd, text.to_bytes_with_nul()))?;
    Ok(fd)
}

/// Whether it is the kernel's own file of pressure: on procfs or cgroup2, and reads as one.
fn tells_pressure(fd: &OwnedFd) -> Result<bool> {
    /// `PROC_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC`.
    const KERNELS: [u64; 2] = [0x9fa0, 0x6367_7270];
    const BEGIN: [u8; 11] = *b"some avg10=";
    if !KERNELS.contains(&system(fd.as_fd())?) {
        return Ok(false);
    }
    let mut begin = [0; BEGIN.len()];
    let read = call("pread", || rustix::io::pread(fd, &mut begin, 0))?;
    Ok(read == BEGIN.len() && begin == BEGIN)
}

/// Microseconds in which some task stood still for want of memory, since boot; 0 where the kernel does not tell. Takes no memory.
pub(crate) fn stalled() -> Result<u64> {
    let file = open("/proc/pressure/memory")?;
    let mut text = [0; 128];
    let count = call("read", || rustix::io::read(&file, &mut text))?;
    Ok(total(text.get(..count).unwrap_or_default()))
}

/// The number after the first `total=`.
fn total(text: &[u8]) -> u64 {
    const NAME: &[u8] = b"total=";
    let Some(at) = text.windows(NAME.len()).position(|here| here == NAME) else {
        return 0;
    };
    let digits = text[at + NAME.len()..].iter();
    let digits = digits.map_while(|&byte| byte.is_ascii_digit().then(|| u64::from(byte - b'0')));
    digits.fold(0_u64, |number, digit| {
        number.saturating_mul(10).saturating_add(digit)
    })
}

/// A file that one thread wakes another by.
pub(crate) fn event() -> Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    call("eventfd2", || rustix::event::eventfd(0, flags))
}

/// Makes [`event`]'s file readable.
pub(crate) fn notify(event: BorrowedFd<'_>) -> Result<()> {
    call("write", || {
        match rustix::io::write(event, &1_u64.to_ne_bytes()) {
            // It is readable already.
            Err(Errno::AGAIN) => Ok(()),
            other => other.map(drop),
        }
    })
}

/// Result of [`poll`] for one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The event has come.
    pub(crate) there: bool,
    /// Its other end, or what it is about, is gone.
    pub(crate) gone: bool,
}

/// Waits for `what` on each file, without end or (`wait` false) not at all. A signal ends it with nothing there.
pub(crate) fn poll<const N: usize>(
    fds: [(BorrowedFd<'_>, PollFlags); N],
    wait: bool,
) -> Result<[Ready; N]> {
    let mut polled = fds.map(|(fd, what)| PollFd::from_borrowed_fd(fd, what));
    let none = Timespec::default();
    let count = call("poll", || {
        match rustix::event::poll(&mut polled, (!wait).then_some(&none)) {
            Err(Errno::INTR) => Ok(0),
            other => other,
        }
    })?;
    Ok(std::array::from_fn(|i| {
        let found = match count {
            0 => PollFlags::empty(),
            _ => polled[i].revents(),
        };
        Ready {
            there: found.intersects(fds[i].1),
            gone: found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
        }
    }))
}

fn open(path: &str) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    call("open", || fs::open(path, flags, Mode::empty()))
}

/// The text of a short file, at most 256 bytes of it.
pub(crate) fn read_text(path: &str) -> Result<String> {
    let file = open(path)?;
    let mut bytes = [0; 256];
    let count = call("read", || rustix::io::read(&file, &mut bytes))?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// The physical pages behind this process's addresses: `/proc/self/pagemap`.
#[derive(Debug)]
pub(crate) struct Pagemap(OwnedFd);

impl Pagemap {
    pub(crate) fn open() -> Result<Pagemap> {
        Ok(Pagemap(open("/proc/self/pagemap")?))
    }

    /// The words of the pages from `start` on, as far as they were read; one 64-bit word a base page.
    pub(crate) fn read<'a>(&self, start: usize, words: &'a mut [u64]) -> Result<&'a [u64]> {
        let at = (start / page()) as u64 * 8;
        let count = call("pread", || {
            // SAFETY: any bytes are a u64; the slice is as long as the words, and no part of it is read meanwhile.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(words))
            };
            rustix::io::pread(&self.0, bytes, at)
        })?;
        Ok(&words[..count / 8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_read_as_the_kernel_tells_them() {
        let text = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=115322633\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5";
        assert_eq!(total(text), 115_322_633);
        assert_eq!(total(b"some total="), 0);
        assert_eq!(total(b""), 0);
        assert_eq!(total(b"total=99999999999999999999999"), u64::MAX);
    }
}
