//! The ring that the kernel writes records of switches to: perf_event_open(2) and its mapping.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::ioctl::{NoArg, Opcode, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::{Error, Result};
use crate::files::{Files, read_number};
use crate::memory::Memory;
use crate::switches::refused;

/// The first 64 bytes of `struct perf_event_attr` (`PERF_ATTR_SIZE_VER0`); the kernel takes
/// what is not given as 0.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    config1: u64,
}

const TYPE_SOFTWARE: u32 = 1;
const COUNT_DUMMY: u64 = 9;
const DISABLED: u64 = 1 << 0;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const CONTEXT_SWITCH: u64 = 1 << 26;

/// `PERF_FLAG_FD_CLOEXEC`.
const FD_CLOEXEC: libc::c_ulong = 1 << 3;

const ENABLE: Opcode = opcode::none(b'$', 0);
const DISABLE: Opcode = opcode::none(b'$', 1);

/// Where `data_head` and `data_tail` stand in `struct perf_event_mmap_page`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// The ring's size where the limit allows: 16,384 records.
const USUAL: usize = 128 << 10;

/// The records of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Ring {
    fd: OwnedFd,
    /// The control page, then the data.
    start: NonNull<u8>,
    page: usize,
    /// Bytes of data, a power of two.
    size: usize,
    /// Records that were taken out last, to be read in one piece.
    taken: Vec<u8>,
}

/// Opens the records of the calling thread, stopped, with a ring of [`USUAL`] size.
pub(super) fn open<S: Files + Memory>(system: &S) -> Result<Ring> {
    open_sized(system, USUAL)
}

/// The same with a ring of at most `most` bytes, at least a page.
fn open_sized<S: Files + Memory>(system: &S, most: usize) -> Result<Ring> {
    let attr = Attr {
        kind: TYPE_SOFTWARE,
        size: 64,
        config: COUNT_DUMMY,
        flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | CONTEXT_SWITCH,
        ..Attr::default()
    };
    // SAFETY: `attr` is as long as its size field says and outlives the call. 0 and -1 are
    // this thread on any CPU, -1 no group.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            0,
            -1,
            -1,
            FD_CLOEXEC,
        )
    };
    if fd < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return Err(refused(system, errno.unwrap_or(libc::ENOSYS)));
    }
    #[allow(clippy::cast_possible_truncation)] // descriptors are ints
    // SAFETY: the call just gave it to us alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    #[allow(clippy::cast_possible_truncation)] // a page
    let page = system.page_size().0 as usize;
    let size = size(
        page,
        read_number(system, "/proc/sys/kernel/perf_event_mlock_kb").ok(),
        most,
    );
    let length = page + size;
    // SAFETY: the kernel chooses a free place, so no memory of ours is replaced.
    let start = unsafe {
        mmap(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &fd,
            0,
        )
    };
    let start = start
        .ok()
        .and_then(|start| NonNull::new(start.cast::<u8>()))
        .ok_or_else(|| {
            Error::unsupported(
                "PERF_RECORD_SWITCH",
                format!(
                    "no {length} bytes for its ring within kernel.perf_event_mlock_kb, which all \
                     of a user's processes share"
                ),
            )
        })?;
    Ok(Ring {
        fd,
        start,
        page,
        size,
        taken: Vec::with_capacity(size),
    })
}

/// Bytes of data: two rings, a client's and a server's, must fit into what a user may lock.
fn size(page: usize, mlock_kib: Option<usize>, most: usize) -> usize {
    let each = mlock_kib.unwrap_or(516).saturating_mul(1024) / 2;
    let most = each.saturating_sub(page).min(most).max(page);
    1 << most.ilog2()
}

impl Ring {
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn enable(&self, on: bool) -> Result<()> {
        // SAFETY: both requests take no argument and are perf's own.
        let result = unsafe {
            if on {
                ioctl(&self.fd, NoArg::<ENABLE>::new())
            } else {
                ioctl(&self.fd, NoArg::<DISABLE>::new())
            }
        };
        result.map_err(|e| Error::call("ioctl", format!("perf event {}", self.fd.as_raw_fd()), e))
    }

    /// Gives the records that have come, whole and in order, to `consume`, and makes room.
    pub(crate) fn drain(&mut self, consume: &mut dyn FnMut(&[u8])) {
        let head = self.position(HEAD).load(Ordering::Acquire);
        let tail = self.position(TAIL).load(Ordering::Relaxed); // only we write it
        if head == tail {
            return;
        }
        self.taken.clear();
        #[allow(clippy::cast_possible_truncation)] // below `size`
        let from = (tail % self.size as u64) as usize;
        #[allow(clippy::cast_possible_truncation)] // at most `size`
        let length = (head.wrapping_sub(tail) as usize).min(self.size);
        let before_end = length.min(self.size - from);
        for (at, length) in [(from, before_end), (0, length - before_end)] {
            // SAFETY: `at + length` is at most `size`, so the part lies in the mapping. The
            // kernel wrote it before it moved the head (acquired above) and does not write
            // there again before we move the tail.
            let part = unsafe {
                std::slice::from_raw_parts(self.start.as_ptr().add(self.page + at), length)
            };
            self.taken.extend_from_slice(part);
        }
        self.position(TAIL).store(head, Ordering::Release);
        consume(&self.taken);
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped as long as `self` lives; both positions are
        // 8-byte aligned 64-bit numbers that user and kernel access atomically.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and no reference into it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.page + self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linux;
    use crate::clock::Clock;
    use crate::fake::skipped;
    use crate::switches::SwitchEvents;
    use crate::tasks::{Tasks, status_switches};
    use stopgap_events::units::Nanos;

    #[test]
    fn the_ring_fits_into_the_limit() {
        assert_eq!(size(4096, Some(516), USUAL), USUAL);
        assert_eq!(size(4096, None, USUAL), USUAL);
        assert_eq!(size(65536, Some(516), USUAL), USUAL);
        assert_eq!(size(4096, Some(64), USUAL), 16 << 10);
        assert_eq!(size(4096, Some(0), USUAL), 4096);
        assert_eq!(size(4096, Some(516), 1), 4096);
    }

    /// Records of this thread in a ring of one page; `None` where they are refused.
    fn small() -> Option<SwitchEvents> {
        match open_sized(&Linux, 1) {
            Ok(ring) => Some(SwitchEvents::new(ring)),
            Err(error) => {
                skipped(&error);
                None
            }
        }
    }

    /// Three means, one truth: a thread that sleeps 600 times, which goes round the ring twice.
    #[test]
    fn three_means_count_the_same() {
        let Some(mut events) = small() else { return };
        let status = || status_switches(&Linux).unwrap();
        let (status_before, before) = (status(), Linux.switches().unwrap());
        events.start().unwrap();
        for _ in 0..600 {
            Linux.sleep_until(Linux.now() + Nanos::micros(20));
            events.read();
        }
        events.stop().unwrap();
        let by_rusage = Linux.switches().unwrap().since(before);
        let by_status = status().since(status_before);
        let by_records = events.read();
        Linux.sleep_until(Linux.now() + Nanos::micros(20));
        assert_eq!(events.read(), by_records, "counted while stopped");
        assert_eq!(by_records.lost, 0);
        println!("{by_rusage:?} {by_status:?} {by_records:?}");
        // A busy machine may pre-empt us between two readings.
        assert!(by_rusage.voluntary >= 600, "{by_rusage:?}");
        assert!(by_status.total().abs_diff(by_rusage.total()) <= 6);
        assert!(by_records.switches.total().abs_diff(by_rusage.total()) <= 6);
        assert!(by_records.switches.voluntary.abs_diff(by_rusage.voluntary) <= 6);
    }

    #[test]
    fn what_does_not_fit_is_counted_as_lost() {
        let Some(mut events) = small() else { return };
        let before = Linux.switches().unwrap();
        events.start().unwrap();
        let room = events.room() as u64;
        while Linux.switches().unwrap().since(before).total() < room {
            Linux.sleep_until(Linux.now() + Nanos::micros(20));
        }
        events.read();
        // The record of the loss comes with the next record that fits.
        Linux.sleep_until(Linux.now() + Nanos::millis(1));
        events.stop().unwrap();
        let seen = events.read();
        let truth = Linux.switches().unwrap().since(before);
        assert!(seen.lost > 0);
        let records = seen.switches.total() * 2 + seen.lost;
        assert!(
            records.abs_diff(truth.total() * 2) <= 8,
            "{seen:?} {truth:?}"
        );
    }

    #[cfg(feature = "fake")]
    #[test]
    fn a_kernel_that_refuses_is_named() {
        // The filter lasts as long as its thread.
        std::thread::spawn(|| {
            crate::fake::refuse_switch_records().unwrap();
            let error = Linux.switch_events().unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            assert!(error.to_string().contains("refuses"), "{error}");
        })
        .join()
        .unwrap();
    }
}
