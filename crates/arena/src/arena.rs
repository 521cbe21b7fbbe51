//! Buffers in a window of addresses that is reserved once.
//!
//! ```
//! use stopgap_arena::{Arena, Config};
//!
//! let arena = Arena::new(&Config { window: 1 << 30, ..Config::default() })?;
//! let frame = arena.alloc(1920 * 1080 * 4, 4096)?;
//! // SAFETY: it was just given out, is that long and reads as zero.
//! let pixels = unsafe { std::slice::from_raw_parts_mut(frame.as_ptr(), 1920 * 1080 * 4) };
//! assert!(pixels.iter().all(|&byte| byte == 0));
//! pixels.fill(0x80);
//! // SAFETY: `pixels` is not used any more.
//! unsafe { arena.free(frame, 1920 * 1080 * 4) }?;
//! # Ok::<(), stopgap_arena::Error>(())
//! ```
//!
//! # Contract
//!
//! * What is given out is whole pages, overlaps nothing else that is given out, and is readable and writable.
//!   [`Arena::alloc`] reads as zero. [`Arena::alloc_uninit`] may hold what this process left in buffers that it freed, and
//!   never anything of another process.
//! * [`Arena::free`] takes start and length exactly as they were given out. An address that was freed is
//!   [`Error::Freed`], one that is no buffer's start is [`Error::Foreign`], another length is [`Error::Invalid`]; nothing
//!   changes then. If several threads free the same buffer, one succeeds.
//! * Any thread may free what another one got.
//! * A buffer is refused with [`Error::NoRoom`] only where no part of the window has such a hole, but for what other
//!   threads' caches keep, 1 MiB each at most. The error says the largest hole.
//!
//! # Before a buffer is freed
//!
//! munmap(2) leaves a page to those that still refer to it. A free does not: the next buffer is the same pages. So all of
//! this must have ended before, or the next owner's data is overwritten, or read:
//!
//! * requests of aio(7), io_uring(7) and O_DIRECT that read into the buffer or write from it: completed;
//! * pages given to a pipe by vmsplice(2), and copies by tee(2) or splice(2): read by the other side, or all pipes and
//!   sockets that hold them closed;
//! * sends with `MSG_ZEROCOPY`: their notifications came;
//! * buffers registered with io_uring, RDMA, VFIO, KVM, XDP or a driver: unregistered, and the device is done;
//! * other processes that read or write it, by process_vm_readv(2), ptrace(2) or, of a memfd, their own mapping: done.
//!
//! And what the program has changed about the memory must be as it was, because the next buffer would have it, too:
//! protection, protection keys, locks (mlock), advice that stays (`MADV_DONTFORK`, `MADV_DONTDUMP`, huge pages,
//! `MADV_MERGEABLE`), memory policies (mbind), names (`PR_SET_VMA`), registrations with userfaultfd(2), and mappings put
//! over it (`MAP_FIXED`, shmat with `SHM_REMAP`). A sealed buffer (mseal) must never be freed.
//!
//! # How
//!
//! * **Window**: one mapping without access or reservation of memory (`PROT_NONE`, `MAP_NORESERVE`); of a memfd, where
//!   that is the [`Backing`], mapped from its start, so that an address and an offset of the file are the same thing.
//! * **Shards** (`shard`): parts of the window, each a [`stopgap_placement::Stopgap`] under a lock. Buffers come from a
//!   part's top, and all from the lowest of them on is accessible: that is one VMA, however many buffers there are.
//!   The first of them is half of the window, and no buffer can be larger.
//! * **Caches** (`cache`): up to 16 freed ranges of each size up to 64 pages for each thread, without a lock, 1 MiB in all.
//! * **Depots** (`depot`): up to 16 more of each of these sizes for each part, under its lock: a quarter of what the part has in use, or
//!   8 MiB. They are part of [`Statistics::kept`], decay as all of that, and are emptied before a request fails.
//! * **Returns** (`shard`): a thread that frees a buffer of a part in which another thread places puts it into that part's ring of 256,
//!   and into a list where the ring is full, without a lock. The buffer counts as used until that thread took 16 more from
//!   the part, asks for a size that the depot lacks, or the next [`Arena::decay`], [`Arena::trim`] or [`Arena::statistics`].
//! * **Marks** (`lock_free::marks`): a word a page says what starts there, so that a free finds the length, and an error
//!   is exact.
//! * **Bits** (`window`): a bit a page says which free pages hold old contents. Only those are zeroed for
//!   [`Arena::alloc`]. Where half of a place's pages or more would fault, one that holds old contents is looked for.
//! * **Decay** (`sweep`): free pages that were not used for [`Config::decay`] go back to the kernel, some at a time and
//!   under no lock that an allocation takes. So does the surplus where more is kept than is used (but for 64 MiB), and all where
//!   memory is short (`pressure`).
//! * **Huge pages** (`shard`): advised for a part of the window of 32 MiB or more of which five eighths are used, until less than
//!   three eighths are. Whether there are any is the system's setting (`/sys/kernel/mm/transparent_hugepage/enabled`).
//! * **Guards**: with [`Config::guard`] the page after each buffer faults. Since Linux 6.13 (6.15 for a memfd) that costs
//!   no VMA, before that two a buffer; what a cache keeps keeps its guard.
//!
//! # Signals, forks, ends
//!
//! No call takes memory from malloc, but for [`Arena::new`] and [`Arena::drop`]. A thread knows when it is inside of a
//! call. A signal handler that interrupted one gets a mapping of its own, outside the window, and what it frees waits on
//! a stack without a lock until the next call that takes a lock. Such mappings are 4,096 at most at a time.
//!
//! After libc's fork parent and child both go on. Private memory is copied, as ever. What lies in a memfd is *shared*: the
//! child may read and write the buffers that there were and free them, which does nothing to the memory, but
//! [`Arena::alloc`] is [`Error::Unsupported`] there, because both would give out the same pages. In a child that was not
//! made by libc's fork, or by one in a signal handler that had interrupted a call, the arena gives out mappings of its
//! own.
//!
//! Nothing of a thread needs a destructor: calls are right in thread-local destructors, in atexit handlers, and while
//! other threads end. The arena itself must not have been dropped.
//!
//! # What is left out
//!
//! * No thread of ours: what is due to be given back goes at a call that takes a lock, or at [`Arena::decay`]. A program
//!   that stands still and calls neither keeps what was free last, which is never more than it uses, or 64 MiB.
//! * Under `vm.overcommit_memory` = 2 the kernel charges the tables at once: 9.5 bytes a page of the window.
//! * An address space that is full, `RLIMIT_AS` or a memory cgroup are the kernel's to enforce: the window counts in full
//!   against `RLIMIT_AS`, and if there is no memory at a first touch, that is the out-of-memory killer's business or,
//!   with a memfd, SIGBUS, as it is with mmap.
//!
//! # Lineage
//!
//! Reserve, place inside, MAP_FIXED: r6144's libdrm patch of mail 000, without coalescing there. Magazines: Bonwick (2001).
//! The frontier: every `sbrk`. Numbers without destructors: robust futexes find dead owners by their thread's number, too.

#![allow(unsafe_code)]

mod buffers;
mod cache;
mod config;
mod depot;
mod fork;
mod heap;
pub(crate) mod lock_free;
mod outside;
mod shard;
mod statistics;
mod sweep;
mod threads;
mod window;

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mm::MapFlags;

use crate::error::{Error, Result};
use crate::pressure::Pressure;
use crate::sys::memory::{self as sys, Mapping, Span};
use crate::sys::{page, threads as clock};
use cache::Cache;
use fork::{LENT, ORPHAN, SERVING};
use lock_free::lock::Lock;
use lock_free::marks::{Deferred, Kind};
use shard::{Ranges, Shard};
use statistics::Counts;
use threads::Inside;
use window::{WORD, Window};

pub use config::{Backing, Config};
pub use statistics::Statistics;

/// The page's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/arena.md")]
pub struct Page;

/// Shards at most.
const MOST_SHARDS: usize = 64;
/// Pages of a shard, at least, where there are several.
const LEAST_SHARD: usize = 1 << 16;
/// A shorter decay than this keeps nothing.
const AT_ONCE: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub struct Arena(Box<Inner>);

/// The arena's state, which handlers of fork reach.
pub(crate) struct Inner {
    /// Before the window, in whose tables they lie.
    shards: Vec<Shard>,
    /// [`fork`]'s word, in a page of its own.
    state: &'static AtomicU32,
    _state: Mapping,
    deferred: Deferred,
    /// Of [`Config::decay`], in ns; 0: nothing is kept.
    half: u64,
    /// When it ends.
    half_ends: AtomicU64,
    /// When [`Inner::tick`] has something to do, in ns.
    due: AtomicU64,
    pressure: Pressure,
    /// Held by the thread that gives memory back. Taken before any shard's.
    purging: Lock,
    guard: bool,
    /// By the page table, without a VMA.
    guard_by_table: bool,
    /// Counts of threads that have no number.
    others: Counts,
    strays: AtomicU64,
    window: Window,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena")
            .field("window", &self.window.span)
            .finish_non_exhaustive()
    }
}

impl Arena {
    /// Reserves the window. Some system calls, and some KiB of memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the window has no pages or too many, [`Error::Limit`] where a memfd may not be as large as
    /// the window (`RLIMIT_FSIZE`), and the kernel's: `ENOMEM` where the address space or `RLIMIT_AS` has no room for the
    /// window.
    pub fn new(config: &Config) -> Result<Arena> {
        let memfd = config.backing == Backing::Memfd;
        let half = match config.decay {
            short if short < AT_ONCE => 0,
            long => u64::try_from(long.as_nanos() / 2).unwrap_or(u64::MAX),
        };
        let mut window = Window::new(config.window, memfd)?;
        window.may_be_huge = !config.guard;
        let shards = shards(&window)?;
        let guard_by_table = config.guard && can_guard(&window)?;
        let state_page = Mapping(sys::map(page(), true, MapFlags::NORESERVE)?);
        let state = std::ptr::with_exposed_provenance::<AtomicU32>(state_page.0.start);
        let inner = Box::new(Inner {
            shards,
            // SAFETY: a page of zeroes that stays until the arena goes, which is the last that uses it.
            state: unsafe { &*state },
            _state: state_page,
            deferred: Deferred::new(),
            half,
            half_ends: AtomicU64::new(clock::now_coarse().saturating_add(half)),
            due: AtomicU64::new(0),
            pressure: Pressure::default(),
            purging: Lock::new(),
            guard: config.guard,
            guard_by_table,
            others: Counts::new(),
            strays: AtomicU64::new(0),
            window,
        });
        inner.state.store(SERVING, Ordering::Relaxed);
        // Before 4.14 there is no such advice: then only libc's fork is known.
        match sys::wipe_on_fork(inner._state.0) {
            Err(error) if !error.is(&[Errno::INVAL]) => return Err(error),
            _ => {}
        }
        threads::inside(
            |_| fork::register(&inner),
            || {
                Err(Error::unsupported(
                    "an arena made by a signal handler that interrupted another's call",
                    "make it before",
                ))
            },
        )?;
        Ok(Arena(inner))
    }

    /// `len` bytes, in whole pages, that read as zero, aligned to `align`, a power of two; at least to a page. No system
    /// call and no lock where the thread freed such a range before, but zeroing it (`stopgap-bench arena`). A buffer that a thread on
    /// another CPU frees costs both some 100 ns (`stopgap-bench shapes --pair`).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a length of 0 or an alignment that is no power of two, [`Error::NoRoom`] (a hole does not
    /// count where it crosses the window's middle or another part's end, or where another thread's cache keeps it),
    /// [`Error::Unsupported`] in a child with a memfd, and the kernel's, where it refuses memory.
    #[inline]
    pub fn alloc(&self, len: usize, align: usize) -> Result<NonNull<u8>> {
        self.0.allocate(len, align, true)
    }

    /// As [`Arena::alloc`], but the buffer may hold old contents of this process.
    ///
    /// # Errors
    /// As [`Arena::alloc`].
    #[inline]
    pub fn alloc_uninit(&self, len: usize, align: usize) -> Result<NonNull<u8>> {
        self.0.allocate(len, align, false)
    }

    /// Takes back what [`Arena::alloc`] or [`Arena::alloc_uninit`] gave out for `len` bytes.
    ///
    /// # Safety
    /// Nothing may use it any more, in this process, in another one or in the kernel: see "Before a buffer is freed"
    /// in the module. What is not given out is refused, but what was freed and given out again is not.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::Foreign`], [`Error::Invalid`] for another length; of a mapping outside the window the kernel's,
    /// and then it is still given out.
    #[inline]
    pub unsafe fn free(&self, address: NonNull<u8>, len: usize) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.0.free(address.addr().get(), len) }
    }

    /// The file behind a buffer that starts at `address`, and where in it the buffer lies: for another process, which
    /// maps it from there. Pages freed here later are given out again or read as zero there. The whole file is handed
    /// over with it: who must not see other buffers must not get it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the arena is anonymous, [`Error::Freed`], [`Error::Foreign`].
    pub fn export(&self, address: NonNull<u8>) -> Result<(BorrowedFd<'_>, u64)> {
        let inner = &self.0;
        let Some(file) = inner.window.file() else {
            return Err(Error::unsupported(
                "anonymous memory has no file",
                "make the arena with Backing::Memfd",
            ));
        };
        let address = address.addr().get();
        let foreign = Error::Foreign { address };
        let page = inner.window.page_at(address).ok_or(foreign)?;
        match inner.window.marks().get(page).kind() {
            Kind::Live => Ok((file, (page as u64) << inner.window.shift)),
            Kind::Held | Kind::Free => Err(Error::Freed { address }),
            Kind::Nothing => Err(foreign),
        }
    }

    /// Whether an address is of the window, given out or not, or of a mapping given out outside it.
    #[must_use]
    pub fn contains(&self, address: NonNull<u8>) -> bool {
        let address = address.addr().get();
        let window = &self.0.window;
        window.contains(address) || {
            let strays = window.strays();
            let mut all = strays.all();
            all.any(|(start, bytes)| address.wrapping_sub(start) < bytes)
        }
    }

    /// Where the window starts, and its bytes.
    #[must_use]
    pub fn window(&self) -> (usize, usize) {
        (self.0.window.span.start, self.0.window.span.bytes)
    }

    /// Gives all free memory back that can be: this thread's cache, those of threads that ended, and what no cache has.
    /// Other threads' caches stay, 1 MiB each at most. Bytes given back; 0 in a signal handler that interrupted a call.
    ///
    /// # Errors
    /// The kernel's; what it refused stays kept.
    pub fn trim(&self) -> Result<u64> {
        threads::inside(|inside| self.0.trim(inside), || Ok(0))
    }

    /// Gives back what is due by now: what nobody needed for [`Config::decay`], and where memory is short all that [`Arena::trim`]
    /// gives but for caches. Bytes given back. Calls that take a lock do the same, so a program that goes on needs it not:
    /// it is for the timer or the event loop of one that stands still.
    ///
    /// # Errors
    /// The kernel's; what it refused stays kept.
    pub fn decay(&self) -> Result<u64> {
        let inner = &self.0;
        let decay = |_: &Inside<'_>| match inner.state.load(Ordering::Relaxed) {
            SERVING => inner.decay(clock::now_coarse()),
            _ => Ok(0),
        };
        let pages = threads::inside(decay, || Ok(0))?;
        Ok((pages as u64) << inner.window.shift)
    }

    /// What it holds and has done. Locks each shard for a moment, and looks at the threads' caches; in a signal handler that
    /// interrupted a call, [`Statistics::accessible`] is 0.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.0.statistics()
    }
}

/// Whether guards go by the page table.
fn can_guard(window: &Window) -> Result<bool> {
    let span = window.span_of(0, 1);
    match sys::guard(span, true).and_then(|()| sys::guard(span, false)) {
        Ok(()) => Ok(true),
        Err(error) if error.is(&[Errno::INVAL]) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The parts of a window: the first half, and the rest in equal parts, so many that a CPU has one.
fn shards(window: &Window) -> Result<Vec<Shard>> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut count = cpus.clamp(1, MOST_SHARDS).next_power_of_two();
    while count > 1 && window.pages / 2 / count < LEAST_SHARD {
        count /= 2;
    }
    let (mut memory, _) = window.heaps();
    let mut shards = Vec::with_capacity(count);
    for number in 0..count {
        let first = first_page(window.pages, count, number);
        let end = first_page(window.pages, count, number + 1);
        shards.push(Shard::new(window, first, end, &mut memory)?);
    }
    Ok(shards)
}

/// Pages of the first of `count` shards, and of each other.
fn parts(pages: usize, count: usize) -> (usize, usize) {
    if count == 1 {
        return (pages, pages);
    }
    let half = pages / 2 / WORD * WORD;
    (half, (pages - half) / (count - 1) / WORD * WORD)
}

/// The first page of shard `number`, of `count`.
fn first_page(pages: usize, count: usize, number: usize) -> usize {
    let (half, each) = parts(pages, count);
    match number {
        0 => 0,
        _ if number >= count => pages,
        _ => half + (number - 1) * each,
    }
}

impl Inner {
    #[inline]
    fn cache(&self, inside: &Inside<'_>) -> Option<&Cache> {
        self.window.cache(inside.number()?)
    }

    /// Works on a shard, unless its lock will never be opened.
    fn locked<T>(&self, shard: &Shard, work: impl FnOnce(&mut Ranges) -> T) -> Result<T> {
        let is_given_up = || self.state.load(Ordering::Relaxed) == ORPHAN;
        shard.locked(is_given_up, work)
    }

    /// Pages that a buffer of `pages` takes.
    fn with_guard(&self, pages: usize) -> usize {
        pages + usize::from(self.guard)
    }

    fn set_guard(&self, page: usize, install: bool) -> Result<()> {
        let span = self.window.span_of(page, 1);
        if self.guard_by_table {
            sys::guard(span, install)
        } else {
            sys::protect(span, !install)
        }
    }

    fn shard_of(&self, page: usize) -> usize {
        let (half, each) = parts(self.window.pages, self.shards.len());
        match page.checked_sub(half) {
            Some(rest) if self.shards.len() > 1 => (1 + rest / each).min(self.shards.len() - 1),
            _ => 0,
        }
    }

    /// In the child of a fork, whose only thread holds all locks.
    fn in_child(&self) {
        self.purging.force_open();
        for shard in &self.shards {
            shard.lock.force_open();
            let guard = self.with_guard(0);
            // Gives nothing to the kernel: a memfd's pages are the parent's.
            let _ = self.locked(shard, |ranges| {
                ranges.take_returned(&self.window, &shard.returned, guard)
            });
            shard.returned.begin_again();
        }
        for cache in self.window.caches(threads::numbers()) {
            if cache.room().is_some() {
                cache.count_again();
            }
        }
        let state = if self.window.file.is_some() {
            LENT
        } else {
            SERVING
        };
        self.state.store(state, Ordering::Relaxed);
    }
}

impl Drop for Arena {
    /// Unmaps the window and what was given out outside it: no buffer may be used any more.
    fn drop(&mut self) {
        fork::forget(&self.0);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for (start, bytes) in self.window.strays().all() {
            // SAFETY: the arena's owner says that no buffer is used any more.
            let _ = unsafe { sys::unmap(Span { start, bytes }) };
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
