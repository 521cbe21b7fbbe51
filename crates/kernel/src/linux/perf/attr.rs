//! Attributes for perf_event_open(2), and the call.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::{Error, Result};

/// The first 96 bytes of `struct perf_event_attr` (`PERF_ATTR_SIZE_VER3`, Linux 4.1); the kernel
/// takes what is not given as 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::linux) struct Attr {
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
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
}

const TYPE_HARDWARE: u32 = 0;
const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const COUNT_INSTRUCTIONS: u64 = 1;
const COUNT_CPU_CLOCK: u64 = 0;
const COUNT_DUMMY: u64 = 9;

pub(in crate::linux) const DISABLED: u64 = 1 << 0;
pub(super) const INHERIT: u64 = 1 << 1;
pub(in crate::linux) const EXCLUDE_KERNEL: u64 = 1 << 5;
pub(in crate::linux) const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const ENABLE_ON_EXEC: u64 = 1 << 12;
pub(super) const MMAP: u64 = 1 << 8;
pub(super) const COMM: u64 = 1 << 9;
pub(super) const TASK: u64 = 1 << 13;
pub(super) const WATERMARK: u64 = 1 << 14;
pub(super) const SAMPLE_ID_ALL: u64 = 1 << 18;
pub(super) const MMAP2: u64 = 1 << 23;
pub(super) const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCK: u64 = 1 << 25;
pub(in crate::linux) const CONTEXT_SWITCH: u64 = 1 << 26;

const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
const SAMPLE_CPU: u64 = 1 << 7;
/// With a count for how long it was asked for and for how long it ran.
const FORMAT_TIMES: u64 = 0b11;
/// `PERF_FORMAT_LOST` (Linux 6.0): a read(2) says what was lost.
const FORMAT_LOST: u64 = 1 << 4;

/// `PERF_FLAG_FD_CLOEXEC`.
const FD_CLOEXEC: libc::c_ulong = 1 << 3;

const ENABLE: Opcode = opcode::none(b'$', 0);
const DISABLE: Opcode = opcode::none(b'$', 1);
const SET_OUTPUT: libc::Ioctl = opcode::none(b'$', 5) as libc::Ioctl;

impl Attr {
    fn new(config: u64, flags: u64) -> Attr {
        Attr {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attr>() as u32,
            config,
            flags: flags | DISABLED | EXCLUDE_HYPERVISOR,
            ..Attr::default()
        }
    }

    /// An event that counts nothing, stopped, for the records that `flags` ask for.
    pub(in crate::linux) fn dummy(flags: u64) -> Attr {
        Attr::new(COUNT_DUMMY, flags | EXCLUDE_KERNEL)
    }

    /// A sample with its calls after each `period` nanoseconds on a CPU.
    pub(super) fn cpu_clock(period: u64, flags: u64) -> Attr {
        let mut attr = Attr::new(COUNT_CPU_CLOCK, flags);
        attr.sample_period = period;
        attr.sample_type = SAMPLE_CALLCHAIN;
        attr
    }

    /// Counts instructions from the next exec on.
    pub(super) fn instructions(flags: u64) -> Attr {
        Attr::counting(TYPE_HARDWARE, COUNT_INSTRUCTIONS, flags)
    }

    /// Counts how often the tracepoint `id` is passed from the next exec on.
    pub(super) fn tracepoint(id: u64, flags: u64) -> Attr {
        Attr::counting(TYPE_TRACEPOINT, id, flags)
    }

    fn counting(kind: u32, config: u64, flags: u64) -> Attr {
        let mut attr = Attr::new(config, flags | ENABLE_ON_EXEC);
        attr.kind = kind;
        attr.read_format = FORMAT_TIMES;
        attr
    }

    /// With each record who, when by `CLOCK_MONOTONIC`, and on which CPU.
    pub(super) fn identified(mut self) -> Attr {
        self.sample_type |= SAMPLE_TID | SAMPLE_TIME | SAMPLE_CPU;
        self.flags |= SAMPLE_ID_ALL | USE_CLOCK;
        self.clock = libc::CLOCK_MONOTONIC;
        self
    }

    /// Without the time in the kernel, which not everybody may see.
    pub(super) fn without_kernel(mut self) -> Attr {
        self.flags |= EXCLUDE_KERNEL;
        self
    }

    /// Readers of its ring are woken when so many bytes are there.
    pub(super) fn wakes_at(mut self, bytes: u32) -> Attr {
        self.flags |= WATERMARK;
        self.wakeup = bytes;
        self
    }

    /// A read(2) of it says what was lost.
    pub(super) fn counts_lost(mut self, yes: bool) -> Attr {
        self.read_format = if yes { FORMAT_LOST } else { 0 };
        self
    }

    /// Opens it for the thread `tid` (0: the calling one) on `cpu` (`None`: on any).
    pub(in crate::linux) fn open(
        &self,
        tid: u32,
        cpu: Option<u32>,
    ) -> std::result::Result<OwnedFd, Errno> {
        let cpu = cpu.map_or(-1, u32::cast_signed);
        // SAFETY: `self` is as long as its size field says and outlives the call. -1 is no group.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                std::ptr::from_ref(self),
                tid.cast_signed(),
                cpu,
                -1,
                FD_CLOEXEC,
            )
        };
        if fd < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error();
            return Err(Errno::from_raw_os_error(errno.unwrap_or(libc::ENOSYS)));
        }
        // SAFETY: the call just gave it to us, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

/// Switches an event, with those that were inherited from it, on or off.
pub(in crate::linux) fn enable(event: &OwnedFd, on: bool) -> std::result::Result<(), Errno> {
    // SAFETY: both requests take no argument and are perf's own.
    unsafe {
        if on {
            ioctl(event, NoArg::<ENABLE>::new())
        } else {
            ioctl(event, NoArg::<DISABLE>::new())
        }
    }
}

/// From now on the records of `event` go to the ring of `owner`, an event of the same CPU and clock.
pub(super) fn send_to(event: &OwnedFd, owner: &OwnedFd) -> std::result::Result<(), Errno> {
    use std::os::fd::AsRawFd;
    // SAFETY: the request takes a descriptor as its number; both are open.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, owner.as_raw_fd()) };
    if result < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(errno.unwrap_or(libc::ENOSYS)));
    }
    Ok(())
}

// The ring that the kernel writes records to: the mapping of an event.

/// Where `data_head` and `data_tail` stand in `struct perf_event_mmap_page`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// An event and the records of all that send theirs to it.
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

// SAFETY: the mapping belongs to the process, not to a thread; the position that we write is written
// only through `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps `size` bytes of data, a power of two of at least a `page`, for `event`.
    pub(in crate::linux) fn map(
        event: OwnedFd,
        page: usize,
        size: usize,
    ) -> std::result::Result<Ring, Errno> {
        let start = map(&event, page + size)?;
        Ok(Ring {
            fd: event,
            start,
            page,
            size,
            taken: Vec::new(),
        })
    }

    /// There was no room for a ring with `size` bytes of data.
    pub(in crate::linux) fn no_room(page: usize, size: usize) -> Error {
        Error::unsupported(
            "records of perf",
            format!(
                "no {} bytes for their ring within kernel.perf_event_mlock_kb, which all of a \
                 user's processes share",
                page + size
            ),
        )
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn event(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn enable(&self, on: bool) -> Result<()> {
        enable(&self.fd, on)
            .map_err(|e| Error::call("ioctl", format!("perf event {}", self.fd.as_raw_fd()), e))
    }

    /// The records that have come, whole and in order; makes room.
    pub(crate) fn drain(&mut self) -> &[u8] {
        self.taken.clear();
        let head = self.position(HEAD).load(Ordering::Acquire);
        let tail = self.position(TAIL).load(Ordering::Relaxed); // only we write it
        let from = (tail % self.size as u64) as usize;
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
        &self.taken
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

fn map(event: &OwnedFd, length: usize) -> std::result::Result<NonNull<u8>, Errno> {
    // SAFETY: the kernel chooses a free place, so no memory of ours is replaced.
    let start = unsafe {
        mmap(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            event,
            0,
        )
    };
    NonNull::new(start?.cast::<u8>()).ok_or(Errno::NOMEM)
}
