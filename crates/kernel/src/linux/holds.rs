use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;

use rustix::io_uring::{IoringRegisterOp, io_uring_params, io_uring_register, io_uring_setup};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

use super::Linux;
use super::memory::part as within;
use crate::error::{Error, Result};
use crate::files::read_number;
use crate::holds::{Held, Holds, Part, Segment, Way, no_mapping, segment_refused, whole as all_of};
use crate::memory::{Mapping, Memory, Origin};

/// The mapping as pointer and length.
fn whole(mapping: &Mapping) -> (*mut libc::c_void, usize) {
    assert_eq!(mapping.origin(), Origin::Kernel, "a mapping of a fake");
    let range = mapping.range();
    // Addresses fit: the mapping lies in this process's address space.
    (
        range.start as usize as *mut libc::c_void,
        range.length().0 as usize,
    )
}

fn shmctl(id: i32, name: &'static str, command: libc::c_int) -> Result<()> {
    // SAFETY: none of the commands used here (IPC_RMID, SHM_LOCK, SHM_UNLOCK) reads the
    // buffer argument; a segment that does not exist is an error, not a fault.
    if unsafe { libc::shmctl(id, command, ptr::null_mut()) } == 0 {
        Ok(())
    } else {
        Err(Error::last(name, format!("segment {id}")))
    }
}

/// Parts that one vmsplice(2) takes (`UIO_MAXIOV`).
const MOST_PARTS: usize = 1024;

/// One pipe full of references to the first of `parts`, none of which is empty; what it took
/// is taken off them. How many bytes that is.
fn fill_pipe(writer: &OwnedFd, parts: &mut VecDeque<libc::iovec>) -> io::Result<usize> {
    let mut taken = 0;
    while !parts.is_empty() {
        let (first, _) = parts.as_slices();
        let first = &first[..first.len().min(MOST_PARTS)];
        let flags = libc::SPLICE_F_NONBLOCK;
        // SAFETY: the parts lie inside a mapping of ours that outlives the pipe (the hold
        // borrows it); nobody reads the pipe.
        let count = unsafe {
            libc::vmsplice(
                std::os::fd::AsRawFd::as_raw_fd(writer),
                first.as_ptr(),
                first.len(),
                flags,
            )
        };
        match usize::try_from(count) {
            Ok(0) => break,
            Ok(count) => {
                taken += count;
                take_off(parts, count);
            }
            Err(_) => match io::Error::last_os_error() {
                full if full.raw_os_error() == Some(libc::EAGAIN) => break,
                error => return Err(error),
            },
        }
    }
    Ok(taken)
}

/// Takes `count` bytes off the front of `parts`.
fn take_off(parts: &mut VecDeque<libc::iovec>, mut count: usize) {
    while count > 0
        && let Some(part) = parts.front_mut()
    {
        let step = count.min(part.iov_len);
        // Never beyond the part's end, and never dereferenced here.
        part.iov_base = part.iov_base.wrapping_byte_add(step);
        part.iov_len -= step;
        count -= step;
        if part.iov_len == 0 {
            parts.pop_front();
        }
    }
}

fn mlock(mapping: &Mapping) -> Result<Held<'_>> {
    let (address, length) = whole(mapping);
    let target = mapping.range().length();
    // SAFETY: the range is a mapping of ours; locking changes neither it nor its content.
    unsafe { rustix::mm::mlock(address, length) }.map_err(|e| Error::call("mlock", target, e))?;
    Ok(Held::new(Way::Mlock, target, move || {
        // SAFETY: as above; the hold borrows the mapping, so it is still there.
        unsafe { rustix::mm::munlock(address, length) }
            .map_err(|e| Error::call("munlock", target, e))
    }))
}

fn io_uring(mapping: &Mapping) -> Result<Held<'_>> {
    /// The most that the kernel takes as one buffer (`io_buffer_validate`, 6.12).
    const LARGEST: usize = 1 << 30;
    let (address, length) = whole(mapping);
    let target = mapping.range().length();
    let mut params = io_uring_params::default();
    // SAFETY: the parameters are zero: no flag that would make the kernel use other memory.
    let ring = unsafe { io_uring_setup(2, &mut params) }.map_err(|e| no_ring(Linux, e))?;
    let parts: Vec<_> = (0..length)
        .step_by(LARGEST)
        .map(|at| libc::iovec {
            // SAFETY: `at` is less than the mapping's length.
            iov_base: unsafe { address.byte_add(at) },
            iov_len: LARGEST.min(length - at),
        })
        .collect();
    let op = IoringRegisterOp::RegisterBuffers;
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    // SAFETY: the vector holds `count` parts of a mapping of ours, which outlives the
    // registration (the hold borrows it); no operation is ever submitted to the ring.
    unsafe { io_uring_register(&ring, op, parts.as_ptr().cast(), count) }
        .map_err(|e| Error::call("io_uring_register(BUFFERS)", target, e))?;
    Ok(Held::new(Way::IoUring, target, move || {
        let op = IoringRegisterOp::UnregisterBuffers;
        // SAFETY: this operation takes no argument.
        unsafe { io_uring_register(&ring, op, ptr::null(), 0) }
            .map_err(|e| Error::call("io_uring_register(UNREGISTER)", target, e))?;
        Ok(())
    }))
}

fn udmabuf(mapping: &Mapping) -> Result<Held<'_>> {
    let buffer = super::devices::dma_buf_of(mapping)?;
    let length = mapping.range().length();
    Ok(Held::new(Way::Udmabuf, length, move || {
        drop(buffer);
        Ok(())
    }))
}

impl Holds for Linux {
    fn hold<'a>(&'a self, mapping: &'a Mapping, way: Way) -> Result<Held<'a>> {
        match way {
            Way::Mlock => mlock(mapping),
            Way::Vmsplice => self.vmsplice_parts(mapping, &[all_of(mapping)]),
            Way::IoUring => io_uring(mapping),
            Way::Udmabuf => udmabuf(mapping),
            Way::ShmLock => Err(no_mapping()),
        }
    }

    fn segment(&self, length: Bytes) -> Result<Segment> {
        let length = length.page_aligned(self.page_size());
        let fail = |call| Error::last(call, length);
        let size = usize::try_from(length.0).unwrap_or(usize::MAX);
        // SAFETY: takes integers only.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, size, libc::IPC_CREAT | 0o600) };
        if id == -1 {
            let error = io::Error::last_os_error();
            return Err(segment_refused(self, length, self.page_size(), error));
        }
        // SAFETY: with no address given the kernel chooses one that nothing else uses.
        let address = unsafe { libc::shmat(id, ptr::null(), 0) };
        // Taken before the next call can change errno.
        let attached = if address.addr() == usize::MAX {
            Err(fail("shmat"))
        } else {
            Ok(address.addr() as u64)
        };
        let marked = shmctl(id, "shmctl(IPC_RMID)", libc::IPC_RMID);
        let start = attached?;
        marked?;
        let range = AddressRange {
            start,
            end: start + length.0,
        };
        Ok(Segment {
            mapping: Mapping::new(range, true, Origin::Kernel),
            id,
        })
    }

    fn shm_lock<'a>(&'a self, segment: &'a Segment) -> Result<Held<'a>> {
        let id = segment.id;
        shmctl(id, "shmctl(SHM_LOCK)", libc::SHM_LOCK)?;
        let length = segment.mapping().range().length();
        Ok(Held::new(Way::ShmLock, length, move || {
            shmctl(id, "shmctl(SHM_UNLOCK)", libc::SHM_UNLOCK)
        }))
    }

    fn vmsplice_parts<'a>(&'a self, mapping: &'a Mapping, parts: &[Part]) -> Result<Held<'a>> {
        let target: Bytes = parts.iter().map(|part| part.length).sum();
        let mut left = parts
            .iter()
            .filter(|part| part.length.0 > 0)
            .map(|part| {
                let (iov_base, iov_len) = within("vmsplice", mapping, part.offset, part.length)?;
                Ok(libc::iovec {
                    iov_base: iov_base.cast(),
                    iov_len,
                })
            })
            .collect::<Result<VecDeque<libc::iovec>>>()?;
        let most: u64 = read_number(self, "/proc/sys/fs/pipe-max-size").unwrap_or(1 << 20);
        let mut pipes = Vec::new();
        let mut taken = 0;
        while !left.is_empty() {
            let held = Bytes(taken as u64);
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| {
                let advice = format!(
                    "{held} held by {} pipes, the next: {e}; raise RLIMIT_NOFILE (ulimit -n) or \
                     hold less",
                    pipes.len()
                );
                Error::unsupported(format!("holding {target} by vmsplice"), advice)
            })?;
            // One buffer holds one page. Refused beyond fs.pipe-user-pages-soft: the pipe
            // then keeps what it has.
            let size = most.min((target - held).0) as usize;
            let _ = fcntl_setpipe_size(&writer, size);
            let count =
                fill_pipe(&writer, &mut left).map_err(|e| Error::call("vmsplice", target, e))?;
            if count == 0 {
                let advice = format!(
                    "an empty pipe takes no page after {held}: see fs.pipe-user-pages-hard"
                );
                let what = format!("holding {target} by vmsplice");
                return Err(Error::unsupported(what, advice));
            }
            taken += count;
            pipes.push((reader, writer));
        }
        Ok(Held::new(Way::Vmsplice, target, move || {
            drop(pipes);
            Ok(())
        }))
    }
}

fn no_ring(system: Linux, error: rustix::io::Errno) -> Error {
    use rustix::io::Errno;
    let advice = match error {
        Errno::NOSYS => "this kernel is built without it, or is older than 5.1".to_owned(),
        Errno::PERM | Errno::ACCESS => {
            match read_number::<_, u8>(&system, "/proc/sys/kernel/io_uring_disabled") {
                Ok(0) | Err(_) => format!("{error}: seccomp or a security module forbids it"),
                Ok(level) => format!(
                    "kernel.io_uring_disabled is {level} (2: for all, 1: for all but a group)"
                ),
            }
        }
        other => return Error::call("io_uring_setup", "2 entries", other),
    };
    Error::unsupported("io_uring", advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MapKind, MapRequest};

    const LENGTH: Bytes = Bytes::kib(256);

    fn resident() -> Mapping {
        let mapping = Linux
            .map(&MapRequest::writable(LENGTH, MapKind::Anonymous))
            .unwrap();
        Linux.touch(&mapping, Bytes(0), LENGTH).unwrap();
        mapping
    }

    /// The VMA's own word on how much of the mapping is locked, KiB.
    fn locked_kib(mapping: &Mapping) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapping.range().start);
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        lines
            .find_map(|line| line.strip_prefix("Locked:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok())
            .unwrap()
    }

    #[test]
    fn mlock_locks_all_of_it_until_released() {
        let mapping = resident();
        let held = Linux.hold(&mapping, Way::Mlock).unwrap();
        assert_eq!(held.length(), LENGTH);
        assert_eq!(locked_kib(&mapping), LENGTH.0 >> 10);
        held.release().unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapping.range().start);
        if maps.contains(&start) {
            // Unlocked it may merge with a neighbour; where it does not, it must not be locked.
            assert_eq!(locked_kib(&mapping), 0);
        }
        Linux.unmap(mapping).unwrap();
    }

    /// Whether the kernel still knows the segment.
    fn exists(id: i32) -> bool {
        let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let id = id.to_string();
        table
            .lines()
            .any(|line| line.split_whitespace().nth(1) == Some(id.as_str()))
    }

    #[test]
    fn a_segment_ends_with_its_mapping() {
        let segment = Linux.segment(LENGTH).unwrap();
        let id = segment.id;
        Linux.touch(segment.mapping(), Bytes(0), LENGTH).unwrap();
        let held = Linux.shm_lock(&segment).unwrap();
        assert!(exists(id));
        held.release().unwrap();
        Linux.unmap(segment.into_mapping()).unwrap();
        assert!(!exists(id));
    }

    /// The kernel's own refusals, by limits of a namespace of our own: `EINVAL` beyond shmmax, `ENOSPC` beyond
    /// shmall and beyond shmmni.
    #[test]
    fn a_limit_that_is_too_small_is_named_by_the_kernels_own_refusal() {
        use crate::tasks::{ChildLimits, Tasks};
        let limits = ChildLimits::within(stopgap_events::units::Nanos::secs(10));
        let outcome = Linux.run_child(&limits, &mut || {
            // SAFETY: a plain system call; the namespace is this child's and ends with it.
            if unsafe { libc::unshare(libc::CLONE_NEWIPC) } != 0 {
                return b"skipped".to_vec();
            }
            let refused = |name: &str, value: u64| {
                let path = format!("/proc/sys/kernel/{name}");
                let before = std::fs::read_to_string(&path).unwrap();
                std::fs::write(&path, value.to_string()).unwrap();
                let segment = Linux.segment(LENGTH);
                std::fs::write(&path, before.trim()).unwrap();
                segment.map_or_else(|error| error.to_string(), |_| format!("{name} did nothing"))
            };
            let page = Linux.page_size().0;
            let all = [
                refused("shmmax", LENGTH.0 - page),
                refused("shmall", LENGTH.0 / page - 1),
                refused("shmmni", 0),
            ];
            all.join("\n").into_bytes()
        });
        let text = String::from_utf8(outcome.unwrap().output).unwrap();
        if text == "skipped" {
            return stopgap_testing::skip(&stopgap_testing::Skip::root(
                "limits of System V segments",
            ));
        }
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for (line, name) in lines.iter().zip(["shmmax", "shmall", "shmmni"]) {
            assert!(line.contains(&format!("sysctl kernel.{name}=")), "{line}");
        }
    }

    fn open_files() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    /// Pages without any free page of memory lost: the descriptors tell that it was all held
    /// and all let go. In a child: other tests open files at the same time.
    #[test]
    fn references_hold_every_page_and_go_with_the_pipes() {
        use crate::tasks::{ChildLimits, Tasks};
        let limits = ChildLimits::within(stopgap_events::units::Nanos::secs(10));
        let outcome = Linux.run_child(&limits, &mut || {
            let mapping = resident();
            let before = open_files();
            let held = Linux.hold(&mapping, Way::Vmsplice).unwrap();
            let during = open_files();
            drop(held);
            vec![u8::from(during > before), u8::from(open_files() == before)]
        });
        assert_eq!(outcome.unwrap().output, [1, 1]);
    }

    /// ```text
    /// page    0 1 2 3 4 5 6 7
    /// parts   [1]   [1]   [2 ]    and back to back in one iovec list
    /// ```
    #[test]
    fn parts_are_held_each() {
        use crate::tasks::{ChildLimits, Tasks};
        let limits = ChildLimits::within(stopgap_events::units::Nanos::secs(10));
        let outcome = Linux.run_child(&limits, &mut || {
            let mapping = resident();
            let page = Linux.page_size().0;
            let part = |at: u64, pages: u64| Part {
                offset: Bytes(at * page),
                length: Bytes(pages * page),
            };
            let parts = [part(0, 1), part(3, 1), part(6, 2), part(7, 0)];
            let held = Linux.vmsplice_parts(&mapping, &parts).unwrap();
            let right = held.length() == Bytes(4 * page);
            drop(held);
            let beyond = part(LENGTH.0 / page, 1);
            let refused = Linux.vmsplice_parts(&mapping, &[beyond]).is_err();
            vec![u8::from(right), u8::from(refused)]
        });
        assert_eq!(outcome.unwrap().output, [1, 1]);
    }

    #[test]
    fn registered_buffers_are_pinned_or_the_reason_is_named() {
        let mapping = resident();
        match Linux.hold(&mapping, Way::IoUring) {
            Ok(held) => held.release().unwrap(),
            Err(error) => assert!(
                matches!(error, Error::Unsupported { .. }) || error.errno() == Some(libc::ENOMEM),
                "{error}"
            ),
        }
        Linux.unmap(mapping).unwrap();
    }
}
