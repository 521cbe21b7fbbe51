//! `io_uring` by raw system calls.

#![allow(dead_code)] // each test uses a part

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::raw::{Errno, Map, PAGE, READ_WRITE, call, number, open};

/// `struct io_uring_params` of linux/io_uring.h.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Parameters {
    pub(crate) sends: u32,
    pub(crate) completes: u32,
    pub(crate) flags: u32,
    pub(crate) others: [u32; 7],
    pub(crate) send_at: Offsets,
    pub(crate) complete_at: Offsets,
}

/// Offsets of the send ring (head, tail, mask, entries, flags, dropped, array), or of the completion ring (head, tail,
/// mask, entries, overflow, completions, flags).
#[repr(C)]
#[derive(Default)]
pub(crate) struct Offsets {
    pub(crate) all: [u32; 8],
    pub(crate) memory: u64,
}

const HEAD: usize = 0;
const TAIL: usize = 1;
const MASK: usize = 2;
const ARRAY: usize = 6;
const COMPLETIONS: usize = 5;

#[repr(C)]
#[derive(Default, Clone)]
pub(crate) struct Request {
    pub(crate) code: u8,
    pub(crate) flags: u8,
    pub(crate) priority: u16,
    pub(crate) fd: i32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) more: u32,
    pub(crate) data: u64,
    pub(crate) buffer: u16,
    pub(crate) others: [u16; 3],
    pub(crate) unused: [u64; 2],
}

pub(crate) const READ_FIXED: u8 = 4;
pub(crate) const WRITE_FIXED: u8 = 5;
pub(crate) const READ: u8 = 22;
pub(crate) const SEND_ZC: u8 = 47;

const REGISTER_BUFFERS: usize = 0;
pub(crate) const UNREGISTER_BUFFERS: usize = 1;
pub(crate) const REGISTER_BUFFER_RING: usize = 22;

pub(crate) struct Ring {
    fd: OwnedFd,
    rings: usize,
    requests: usize,
    about: Parameters,
}

const ENTRIES: usize = 32;

impl Ring {
    pub(crate) fn new() -> Result<Ring, String> {
        let about = Parameters::default();
        let mut ring = Ring::on(about)?;
        let map = |offset| {
            let shared = (libc::MAP_SHARED | libc::MAP_POPULATE) as usize;
            let arguments = [0, PAGE, READ_WRITE, shared, number(&ring.fd), offset];
            call(libc::SYS_mmap, &arguments).expect("a ring")
        };
        (ring.rings, ring.requests) = (map(0), map(0x1000_0000));
        Ok(ring)
    }

    pub(crate) fn on(mut about: Parameters) -> Result<Ring, String> {
        let at = &raw mut about as usize;
        let fd = open("io_uring", libc::SYS_io_uring_setup, &[ENTRIES, at])?;
        Ok(Ring {
            fd,
            rings: about.complete_at.memory as usize,
            requests: about.send_at.memory as usize,
            about,
        })
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: within the ring's memory, aligned; the kernel changes it, too.
        unsafe { AtomicU32::from_ptr((self.rings + offset as usize) as *mut u32) }
    }

    pub(crate) fn register(&self, what: usize, at: usize, count: usize) -> Result<(), String> {
        let arguments = [number(&self.fd), what, at, count];
        let done = call(libc::SYS_io_uring_register, &arguments);
        done.map(drop)
            .map_err(|errno| format!("io_uring_register {what}: {errno}"))
    }

    pub(crate) fn register_buffer(&self, map: Map) -> Result<(), String> {
        let vector = [map.at, map.length];
        self.register(REGISTER_BUFFERS, vector.as_ptr() as usize, 1)
    }

    /// Submits a request, without waiting for its completion.
    pub(crate) fn submit(&self, request: &Request) {
        let at = &self.about.send_at.all;
        let tail = self.word(at[TAIL]).load(Ordering::Relaxed);
        let slot = tail & self.word(at[MASK]).load(Ordering::Relaxed);
        let place = self.requests + slot as usize * size_of::<Request>();
        // SAFETY: within the memory of the requests; the kernel reads it in io_uring_enter.
        unsafe { (place as *mut Request).write_volatile(request.clone()) };
        self.word(at[ARRAY] + 4 * slot)
            .store(slot, Ordering::Relaxed);
        self.word(at[TAIL]).store(tail + 1, Ordering::Release);
        assert_eq!(self.enter(1, 0), 1);
    }

    pub(crate) fn enter(&self, sends: usize, waits: usize) -> usize {
        const GET_EVENTS: usize = 1;
        let flags = if waits > 0 { GET_EVENTS } else { 0 };
        let arguments = [number(&self.fd), sends, waits, flags];
        match call(libc::SYS_io_uring_enter, &arguments) {
            Err(Errno(libc::EINTR)) => 0, // a signal handler was run
            done => done.expect("io_uring_enter"),
        }
    }

    /// Waits for a completion. Returns its result.
    pub(crate) fn wait(&self) -> i32 {
        let at = &self.about.complete_at.all;
        let head = self.word(at[HEAD]).load(Ordering::Relaxed);
        while head == self.word(at[TAIL]).load(Ordering::Acquire) {
            self.enter(0, 1);
        }
        let slot = head & self.word(at[MASK]).load(Ordering::Relaxed);
        let result = self.word(at[COMPLETIONS] + 16 * slot + 8);
        let result = result.load(Ordering::Relaxed).cast_signed();
        self.word(at[HEAD]).store(head + 1, Ordering::Release);
        result
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.about.complete_at.memory == 0 {
            for at in [self.rings, self.requests] {
                assert_eq!(call(libc::SYS_munmap, &[at, PAGE]), Ok(0));
            }
        }
    }
}

pub(crate) fn request(code: u8, fd: &impl AsRawFd, at: usize, length: usize) -> Request {
    Request {
        code,
        fd: fd.as_raw_fd(),
        address: at as u64,
        length: length as u32,
        ..Request::default()
    }
}
