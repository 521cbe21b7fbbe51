//! Objects of any maker, each mapped as long as it lives.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::pressure::{LOOK, Pressure};
use crate::sys::memory::{self as sys, Mapping};
use crate::sys::{files, page, threads};

/// Classes of size in each doubling, so that at most an eighth is more than was asked for.
const STEPS: usize = 8;
/// Objects of a class that are asked whether their device is done.
const ASKED: usize = 8;
/// Bytes that may be kept however little is taken.
const FLOOR: usize = 64 << 20;
/// Unused objects are closed after this, and half of it at least.
const DECAY: Duration = Duration::from_secs(1);

/// Something with a descriptor by which it can be mapped. Dropping it closes it.
pub trait Object {
    /// The descriptor that mmap(2) takes.
    fn file(&self) -> BorrowedFd<'_>;

    /// The offset that mmap(2) takes: 0, or a driver's number for the object.
    fn offset(&self) -> u64 {
        0
    }

    /// Whether all devices are done with it. Until then a cache does not hand it out again.
    ///
    /// # Errors
    /// Where it cannot be asked; then it is closed.
    fn is_idle(&self) -> Result<bool> {
        Ok(true)
    }
}

impl Object for OwnedFd {
    fn file(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

/// A dma-buf: its fences tell when devices are done. Between [`Cache::take`] and a device's use, writes need
/// `DMA_BUF_IOCTL_SYNC` as ever.
#[derive(Debug)]
pub struct DmaBuf(pub OwnedFd);

impl Object for DmaBuf {
    fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn is_idle(&self) -> Result<bool> {
        let [ready] = files::poll([(self.0.as_fd(), PollFlags::OUT)], false)?;
        Ok(ready.there)
    }
}

/// Makes objects.
pub trait Maker {
    /// Its objects.
    type Object: Object;

    /// Makes an object of `bytes`, whole pages, that can be mapped to be read and written.
    ///
    /// # Errors
    /// The maker's own; `ENOSPC`, `ENOMEM`, `EMFILE` and `ENFILE` make the cache close what it keeps and ask again.
    fn make(&self, bytes: usize) -> Result<Self::Object>;
}

impl<O: Object, F: Fn(usize) -> Result<O>> Maker for F {
    type Object = O;

    fn make(&self, bytes: usize) -> Result<O> {
        self(bytes)
    }
}

/// Memfds, sealed against shrinking and growing, so that no peer can make them end before a mapping does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memfd;

impl Maker for Memfd {
    type Object = OwnedFd;

    fn make(&self, bytes: usize) -> Result<OwnedFd> {
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        files::memfd(c"stopgap-cache", bytes as u64, seals)
    }
}

/// Counters of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Objects made, ever.
    pub made: u64,
    /// Objects handed out again, ever.
    pub reused: u64,
    /// Bytes of what is taken now.
    pub taken: u64,
    /// Bytes of what is kept now, unused.
    pub kept: u64,
}

/// An object and its mapping. Dropping it unmaps and closes it.
#[derive(Debug)]
pub struct Buffer<O> {
    // Unmapped before it is closed.
    mapping: Mapping,
    object: O,
    asked: usize,
    /// The cache that made it, and the process.
    home: (usize, u32),
}

impl<O> Buffer<O> {
    /// Where it is mapped, at a page's start, readable and writable. It holds what was left there: by this process, or
    /// by those who had the descriptor.
    #[must_use]
    pub fn address(&self) -> NonNull<u8> {
        let pointer = std::ptr::with_exposed_provenance_mut(self.mapping.0.start);
        // Page 0 is never mapped for a caller that gives no address.
        NonNull::new(pointer).unwrap_or(NonNull::dangling())
    }

    /// The bytes that were asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.asked
    }

    /// False: it has a byte at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The bytes that the object has: an eighth more than were asked for, or a page.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.mapping.0.bytes
    }

    /// The object, whose descriptor others may be given.
    #[must_use]
    pub fn object(&self) -> &O {
        &self.object
    }
}

struct Kept<O> {
    buffer: Buffer<O>,
    /// When it was given, in ns.
    since: u64,
}

struct State<O> {
    /// By class; in each, what was given last is last.
    classes: Vec<Vec<Kept<O>>>,
    statistics: Statistics,
    /// When it is time to look at what is old, in ns.
    due: u64,
}

/// Objects that are mapped and unused, to be handed out again. See the module.
///
/// Any thread may take and give. What is unused for a second is closed, at the next call that takes or gives, or
/// [`Cache::decay`]; so is what is more than is taken, but for 64 MiB, and all where memory is short. No thread and no signal
/// handler of the cache does anything; its functions may not be called in one.
///
/// After fork(2) a cache goes on in the parent. In the child it begins anew, because the parent would hand out the same pages:
/// what is given there is closed. If another thread was in a call during the fork, the cache must not be used in the child.
pub struct Cache<M: Maker> {
    maker: M,
    state: Mutex<State<M::Object>>,
    pressure: Pressure,
    /// The process's number, in a page that a child finds empty.
    process: Mapping,
}

impl<M: Maker> std::fmt::Debug for Cache<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let statistics = self.statistics();
        f.debug_struct("Cache")
            .field("statistics", &statistics)
            .finish_non_exhaustive()
    }
}

/// The class of a number of pages, and the pages of its objects.
fn class(pages: usize) -> (usize, usize) {
    let last = pages.saturating_sub(1);
    let Some(octave) = (last / STEPS).checked_ilog2() else {
        return (last, pages);
    };
    // 8 << octave <= last < 16 << octave
    let step = (last >> octave) - STEPS;
    let class = (octave as usize + 1) * STEPS + step;
    (class, (STEPS + step + 1) << octave)
}

impl<M: Maker> Cache<M> {
    /// An empty cache.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(maker: M) -> Result<Cache<M>> {
        let process = Mapping(sys::map(page(), true, MapFlags::empty())?);
        sys::wipe_on_fork(process.0)?;
        let cache = Cache {
            maker,
            state: Mutex::new(State {
                classes: Vec::new(),
                statistics: Statistics::default(),
                due: 0,
            }),
            pressure: Pressure::default(),
            process,
        };
        cache
            .process_word()
            .store(threads::process(), Ordering::Relaxed);
        Ok(cache)
    }

    fn process_word(&self) -> &AtomicU32 {
        let word = std::ptr::with_exposed_provenance::<AtomicU32>(self.process.0.start);
        // SAFETY: the page is the cache's as long as it lives, and any bytes are a number.
        unsafe { &*word }
    }

    /// The cache and this process.
    fn home(&self) -> (usize, u32) {
        (
            self.process.0.start,
            self.process_word().load(Ordering::Relaxed),
        )
    }

    fn state(&self) -> MutexGuard<'_, State<M::Object>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.process_word().load(Ordering::Relaxed) == 0 {
            // A child: what is kept is the parent's, too.
            state.classes.clear();
            state.statistics = Statistics::default();
            self.process_word()
                .store(threads::process(), Ordering::Relaxed);
        }
        state
    }

    /// A buffer of at least `bytes`, mapped: the one of its size that was given last, or a new one. No system call where one is
    /// kept, but for what [`Object::is_idle`] makes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a length of 0, the maker's, and mmap's.
    pub fn take(&self, bytes: usize) -> Result<Buffer<M::Object>> {
        if bytes == 0 {
            return Err(Error::invalid("a length of 0"));
        }
        let no_room = Error::NoRoom {
            bytes,
            largest: None,
        };
        let pages = bytes.div_ceil(page());
        if pages > 1 << 40 {
            return Err(no_room);
        }
        let (class, pages) = class(pages);
        let mut old = Vec::new();
        let mut state = self.state();
        self.sweep(&mut state, &mut old);
        let found = state.take(class, &mut old);
        if let Some(mut buffer) = found {
            state.statistics.reused += 1;
            state.statistics.taken += buffer.mapping.0.bytes as u64;
            drop(state);
            buffer.asked = bytes;
            return Ok(buffer);
        }
        drop(state);
        drop(old);
        let length = pages.checked_mul(page()).ok_or(no_room)?;
        let object = match self.maker.make(length) {
            Err(error) if error.is(&[Errno::NOSPC, Errno::NOMEM, Errno::MFILE, Errno::NFILE]) => {
                if self.trim() == 0 {
                    return Err(error);
                }
                self.maker.make(length)?
            }
            made => made?,
        };
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let (file, offset) = (object.file(), object.offset());
        let span = sys::map_file(file, offset, length, both, MapFlags::empty())?;
        let mut state = self.state();
        state.statistics.made += 1;
        state.statistics.taken += length as u64;
        Ok(Buffer {
            mapping: Mapping(span),
            object,
            asked: bytes,
            home: self.home(),
        })
    }

    /// Keeps a buffer to hand it out again, or closes it where another cache or the parent of this process made it.
    ///
    /// # Safety
    /// Nobody uses its memory any more, in this process, in another one or in the kernel: see the module.
    pub unsafe fn give(&self, buffer: Buffer<M::Object>) {
        let mut old = Vec::new();
        let mut state = self.state();
        if buffer.home != self.home() {
            drop(state);
            return;
        }
        let bytes = buffer.mapping.0.bytes;
        let (class, _) = class(bytes / page());
        let now = threads::now_coarse();
        state.statistics.taken = state.statistics.taken.saturating_sub(bytes as u64);
        self.sweep(&mut state, &mut old);
        state.keep(class, Kept { buffer, since: now });
        let most = state.statistics.taken.max(FLOOR as u64);
        while state.statistics.kept > most {
            state.close_oldest(&mut old);
        }
        drop(state);
        // Unmapped and closed without the lock.
        drop(old);
    }

    /// Closes all that is unused: the bytes.
    pub fn trim(&self) -> u64 {
        let mut old = Vec::new();
        self.state().close(u64::MAX, &mut old);
        sum(&old)
    }

    /// Closes what is due by now: the bytes. For the timer or the event loop of a program that stands still.
    pub fn decay(&self) -> u64 {
        let mut old = Vec::new();
        let mut state = self.state();
        state.due = 0;
        self.sweep(&mut state, &mut old);
        drop(state);
        sum(&old)
    }

    /// Returns the counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.state().statistics
    }

    /// Takes out what is old, or all where memory is short.
    fn sweep(&self, state: &mut State<M::Object>, old: &mut Vec<Kept<M::Object>>) {
        let now = threads::now_coarse();
        if now < state.due {
            return;
        }
        state.due = now + LOOK;
        let before = match self.pressure.is_high(now) {
            true => u64::MAX,
            false => now.saturating_sub(DECAY.as_nanos() as u64 - LOOK),
        };
        state.close(before, old);
    }
}

fn sum<O>(old: &[Kept<O>]) -> u64 {
    old.iter()
        .map(|kept| kept.buffer.mapping.0.bytes as u64)
        .sum()
}

impl<O: Object> State<O> {
    fn keep(&mut self, class: usize, kept: Kept<O>) {
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Vec::new);
        }
        self.statistics.kept += kept.buffer.mapping.0.bytes as u64;
        self.classes[class].push(kept);
    }

    /// Takes the last that no device is at work on; what cannot be asked goes to `old`.
    fn take(&mut self, class: usize, old: &mut Vec<Kept<O>>) -> Option<Buffer<O>> {
        let all = self.classes.get_mut(class)?;
        let first = all.len().saturating_sub(ASKED);
        for at in (first..all.len()).rev() {
            let idle = all[at].buffer.object.is_idle();
            if idle == Ok(false) {
                continue;
            }
            let kept = all.remove(at);
            self.statistics.kept -= kept.buffer.mapping.0.bytes as u64;
            if idle.is_ok() {
                return Some(kept.buffer);
            }
            old.push(kept);
        }
        None
    }

    /// Takes out what was given before `time`.
    fn close(&mut self, time: u64, old: &mut Vec<Kept<O>>) {
        let already = old.len();
        for all in &mut self.classes {
            // In order of their times.
            let count = all.partition_point(|kept| kept.since < time);
            old.extend(all.drain(..count));
        }
        self.statistics.kept -= sum(&old[already..]);
    }

    fn close_oldest(&mut self, old: &mut Vec<Kept<O>>) {
        let since = |all: &Vec<Kept<O>>| all.first().map_or(u64::MAX, |kept| kept.since);
        let oldest = self.classes.iter_mut().min_by_key(|all| since(all));
        if let Some(all) = oldest.filter(|all| !all.is_empty()) {
            let kept = all.remove(0);
            self.statistics.kept -= kept.buffer.mapping.0.bytes as u64;
            old.push(kept);
        }
    }
}

#[cfg(test)]
mod tests;
