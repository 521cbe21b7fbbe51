//! Buffers made of large pieces of physical memory, as far as the kernel has them without waiting.
//!
//! ```no_run
//! use stopgap_arena::chunked::{Buffer, Request};
//!
//! let mut buffer = Buffer::new(&Request::new(64 << 20))?;
//! buffer.as_mut_slice()[0] = 1;
//! println!("{}", buffer.got());
//! # Ok::<(), stopgap_arena::Error>(())
//! ```
//!
//! **Contract.** A buffer of private, zeroed, resident memory. A [policy](Policy) of crate `stopgap-chunks` says which
//! sizes are tried, and when no more; the kernel is asked for them in this order: pages that were set aside (hugetlb),
//! transparent huge pages of that size, base pages. No size above the base page is ever tried where the kernel might
//! reclaim or compact memory for it: what [`Knobs`] do not allow is not tried, and [`Got`] says why. So the
//! longest step
//! is that of base pages, in any state of memory. An effort that a policy asks for (`NoRetry`) is never made.
//!
//! **How.** Each large chunk is one fault at an aligned address, whose result `/proc/self/pagemap` shows (also without
//! privilege: there is no frame number then, but there is what is present).
//!
//! **Cost.** The knobs are read once a buffer (about 25 short files; [`Buffer::with`] reuses them). A large chunk costs
//! its fault and at most three calls, a block of 2 MiB of base pages its faults and three calls. While a buffer
//! is built
//! it takes 16 bytes a chunk. A buffer is one mapping, or two with pages of the pool; and one without access up to the
//! next multiple of its largest size.
//!
//! **Lineage.** The tries are those of mail 001, from the other side of the system call: `list-noreclaim` is Robin
//! Murphy's list with `__GFP_RECLAIM` cleared, which user space has where `defrag` allows it.
//!
//! What it leaves out: memory of a driver's own, pages of 1 GiB, files, and moving what was built small into something
//! larger later (khugepaged does that, and stalls threads that touch the buffer meanwhile).

#![allow(unsafe_code)]

mod build;
mod got;
mod knobs;
mod physical;

use std::fmt;
use std::time::{Duration, Instant};

use build::Place;
pub use got::{Got, Kind, Size};
pub use knobs::{Advice, Defrag, Knobs, Why};
pub use physical::{Entries, Physical};
pub use stopgap_chunks::iommu::PageSizes;
/// Which sizes are tried, and in which order.
pub use stopgap_chunks::policy::Name as Policy;

use rustix::mm::MapFlags;

use crate::error::Result;
use crate::sys::files::Pagemap;
use crate::sys::memory::{self, Span};

/// The page's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/chunked.md")]
pub struct Page;

/// A buffer that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Bytes; at least 1, rounded up to whole base pages.
    pub length: usize,
    /// Which sizes are tried, and in which order. The default is [`Policy::ListNoReclaim`]: 2 MiB, 1 MiB, 64 KiB, one
    /// page, each until it fails.
    ///
    /// What needs physical addresses (`sorted`, `iova-offset`) takes chunks as its rule says; user space
    /// cannot put pages
    /// in another order, and the device address is the caller's to choose.
    pub policy: Policy,
    /// The page sizes of the device's IOMMU, where they are known: `per-device` and `iommu-dma` ask for nothing that is
    /// worth nothing to it. The default is none.
    pub device: Option<PageSizes>,
    /// The device has no use of large chunks; those policies and `landed` then take single pages. The default is no.
    pub single_pages: bool,
    /// From when on no large page is tried any more, counted from the call; zero is at once. A try that has
    /// begun is not
    /// stopped, and pages that the pool has given already are used. The default is never.
    pub deadline: Option<Duration>,
    /// Whether pages of the kernel's pool (hugetlb) are taken, which the administrator set aside. The default is yes.
    pub hugetlb: bool,
}

impl Request {
    /// A buffer of `length` bytes with all defaults.
    #[must_use]
    pub fn new(length: usize) -> Request {
        Request {
            length,
            policy: Policy::ListNoReclaim,
            device: None,
            single_pages: false,
            deadline: None,
            hugetlb: true,
        }
    }
}

/// Private memory, zeroed and resident when it is made. Dropped, it is given back.
///
/// After fork(2) parent and child have a copy each, made when one of them writes; pages of the pool may then be
/// refused to
/// the child (hugetlbpage.rst), which is killed by `SIGBUS` when it writes. A child that does not use the buffer
/// has nothing
/// to fear.
pub struct Buffer {
    place: Place,
    got: Got,
}

impl Buffer {
    /// Makes a buffer, by the knobs as they stand now.
    ///
    /// # Errors
    /// `Invalid` for no byte, for more than 2^40 pages, and where the device cannot map a base page; `NoRoom`
    /// for more than
    /// an address space has; `Call` with `ENOMEM` where a limit (`RLIMIT_AS`, overcommit, `vm.max_map_count`) or memory
    /// ends. Nothing is left behind.
    pub fn new(request: &Request) -> Result<Buffer> {
        Buffer::with(request, &Knobs::read(), &mut |_| ())
    }

    /// Makes a buffer by knobs that were read before; `each` gets the bytes that are resident after every 2 MiB
    /// and in the end; where the pool refuses, it begins again. Where somebody changed a knob since, a
    /// try may compact.
    ///
    /// # Errors
    /// As [`new`](Buffer::new).
    pub fn with(request: &Request, knobs: &Knobs, each: &mut dyn FnMut(usize)) -> Result<Buffer> {
        let (place, got) = build::build(&mut Kernel::new(), request, knobs, each)?;
        Ok(Buffer { place, got })
    }

    /// Returns the pages that the buffer got, and the tries.
    #[must_use]
    pub fn got(&self) -> &Got {
        &self.got
    }

    /// Bytes: what was asked for, in whole base pages.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.place.length
    }

    /// Its first byte.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.place.start)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped readable and zeroed from `start` on, as long as this lives; `isize::MAX` is not
        // passed (`build`).
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.place.length) }
    }

    /// Its bytes.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and writable; borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.place.length) }
    }

    /// Reads the physical memory behind the buffer: one word a base page is read, about 10 ns each.
    ///
    /// # Errors
    /// As reading `/proc/self/pagemap`.
    pub fn physical(&self) -> Result<Physical> {
        physical::read(self.place.start, self.place.length)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        build::give_back(&mut Kernel::new(), self.place);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Buffer");
        debug.field("place", &self.place).field("got", &self.got);
        debug.finish()
    }
}

/// Calls that make a buffer: the kernel's, or those of a model in tests.
trait Memory {
    /// Monotonic time.
    fn now(&self) -> Duration;
    /// Maps private memory of `length` bytes at a multiple of `align`, a power of two of at least a page: readable,
    /// writable, and not advised.
    fn map(&mut self, length: usize, align: usize) -> Result<usize>;
    /// Maps pages of the pool where nothing is mapped.
    fn hugetlb(&mut self, start: usize, length: usize, size: usize) -> Result<()>;
    /// Unmaps.
    fn unmap(&mut self, start: usize, length: usize) -> Result<()>;
    /// Allows all access, or none.
    fn allow(&mut self, start: usize, length: usize, access: bool) -> Result<()>;
    /// Advises for huge pages, or against them.
    fn advise(&mut self, start: usize, length: usize, huge: bool) -> Result<()>;
    /// Makes resident.
    fn populate(&mut self, start: usize, length: usize) -> Result<()>;
    /// Gives pages back; they read as zero.
    fn discard(&mut self, start: usize, length: usize) -> Result<()>;
    /// The pagemap words of as many pages as `words` has, from `start` up; fewer where the file ends.
    fn pagemap<'w>(&mut self, start: usize, words: &'w mut [u64]) -> Result<&'w [u64]>;
}

/// The running kernel, for the memory of one buffer that is being made: nobody else knows its addresses.
struct Kernel {
    begun: Instant,
    /// Opened when it is first needed.
    pagemap: Option<Pagemap>,
}

impl Kernel {
    fn new() -> Kernel {
        Kernel {
            begun: Instant::now(),
            pagemap: None,
        }
    }
}

impl Memory for Kernel {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn map(&mut self, length: usize, align: usize) -> Result<usize> {
        let span = memory::map_aligned(length, align, true, MapFlags::empty())?;
        Ok(span.start)
    }

    fn hugetlb(&mut self, start: usize, length: usize, size: usize) -> Result<()> {
        memory::map_hugetlb(Span::new(start, length), size)
    }

    fn unmap(&mut self, start: usize, length: usize) -> Result<()> {
        // SAFETY: the buffer's own, which is not handed out yet or no more.
        unsafe { memory::unmap(Span::new(start, length)) }
    }

    fn allow(&mut self, start: usize, length: usize, access: bool) -> Result<()> {
        memory::protect(Span::new(start, length), access)
    }

    fn advise(&mut self, start: usize, length: usize, huge: bool) -> Result<()> {
        memory::advise_huge(Span::new(start, length), huge)
    }

    fn populate(&mut self, start: usize, length: usize) -> Result<()> {
        // SAFETY: the buffer's own, not handed out yet; `build` made it accessible before.
        unsafe { memory::populate(Span::new(start, length)) }
    }

    fn discard(&mut self, start: usize, length: usize) -> Result<()> {
        // SAFETY: the buffer's own, not handed out yet.
        unsafe { memory::give_back(Span::new(start, length)) }
    }

    fn pagemap<'w>(&mut self, start: usize, words: &'w mut [u64]) -> Result<&'w [u64]> {
        if self.pagemap.is_none() {
            self.pagemap = Some(Pagemap::open()?);
        }
        self.pagemap
            .as_ref()
            .map_or(Ok(&[]), |pagemap| pagemap.read(start, words))
    }
}

#[cfg(test)]
mod tests;
