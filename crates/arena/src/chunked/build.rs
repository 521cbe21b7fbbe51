//! How a buffer is built: the policy asks for chunks, and this asks the kernel.
//!
//! ```text
//! start                 at            open             pages          reserved
//!  |HHHHHHHH|LLLLLLLLLLLL|bbbb|.........|-----------------|--------------|
//!   pool      large pages  booked        no access yet     never accessible
//! ```
//!
//! A chunk lies at the next address of the buffer, so that the device sees chunks in the order in which the policy took
//! them; an order to which that address is not aligned is not tried. Large chunks are asked for by one fault
//! each, whose
//! result is looked at. Base pages are only booked, and made resident a block at a time.
//!
//! A fault takes the largest size that is allowed and fits into the mapping. So that it takes none larger than
//! the policy
//! asked for, what lies behind the chunk has no access while a larger size is allowed: that ends the mapping there. In
//! the end all of it is one mapping again, advised against huge pages: what is there stays, and a later fault (after
//! swap, after `MADV_DONTNEED`) takes a base page and never compacts.

use std::time::Duration;

use rustix::io::Errno;
use stopgap_chunks::iommu::PageSizes;
use stopgap_chunks::policy::{self, BuildError, Chunk, Effort, ORDERS, Source};

use super::got::{Got, Kind};
use super::knobs::{Advice, Knobs, Why};
use super::{Memory, Request};
use crate::error::{Error, Result};

/// Bytes that are made resident between two looks at the clock, at least.
const BLOCK: usize = 1 << 21;

/// Pages of the largest chunk.
const LARGEST: usize = 1 << (ORDERS - 1);

/// Address space that a buffer has, all of it in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: usize,
    /// Bytes that are accessible.
    pub(super) length: usize,
    /// Bytes that are mapped.
    pub(super) reserved: usize,
}

/// Builds a buffer; what was mapped for it is unmapped where that fails.
pub(super) fn build(
    memory: &mut dyn Memory,
    request: &Request,
    knobs: &Knobs,
    each: &mut dyn FnMut(usize),
) -> Result<(Place, Got)> {
    let begun = memory.now();
    let wanted = wanted(request, knobs)?;
    let mut hugetlb = request.hugetlb;
    let mut refused = None;
    loop {
        let mut filling = Filling::new(memory, request, knobs, each, begun, hugetlb)?;
        if let Some(size) = refused {
            filling.refuse(Kind::Hugetlb, size, Why::PoolRefused);
        }
        let done = filling.fill(&wanted);
        let Filling {
            place,
            mut got,
            pool_refused,
            ..
        } = filling;
        let Err(error) = done else {
            got.took = memory.now().saturating_sub(begun);
            return Ok((place, got));
        };
        give_back(memory, place);
        // Once: without the pool it is not refused again.
        if pool_refused.is_none() {
            return Err(error);
        }
        refused = pool_refused;
        hugetlb = false;
    }
}

/// Gives a buffer's memory back. A call that fails is made a second time: it is refused where memory is at its
/// end, which
/// passes.
pub(super) fn give_back(memory: &mut dyn Memory, place: Place) {
    if place.reserved > 0 && memory.unmap(place.start, place.reserved).is_err() {
        let _ = memory.unmap(place.start, place.reserved); // nothing else is left to do
    }
}

/// The request as a policy takes it.
fn wanted(request: &Request, knobs: &Knobs) -> Result<policy::Request> {
    let page = knobs.page as u64;
    let any = [page, page << 4, page << 8, page << 9];
    let sizes = match request.device {
        Some(sizes) => sizes,
        // Nothing is known of it: every size may be worth something.
        None => PageSizes::new(&any)
            .map_err(|_| Error::invalid("a base page that is no power of two"))?,
    };
    Ok(policy::Request {
        pages: (request.length as u64).div_ceil(page),
        page,
        sizes,
        single_pages: request.single_pages,
    })
}

fn refusal(error: &BuildError) -> Error {
    let what = match error {
        BuildError::Zero => "a buffer of no byte",
        BuildError::TooLong { .. } => "a buffer of more than 2^40 pages",
        BuildError::NoBasePage { .. } => "the device's smallest page is larger than a base page",
        _ => "a buffer that no policy can build",
    };
    Error::Invalid { what }
}

struct Filling<'a> {
    memory: &'a mut dyn Memory,
    request: &'a Request,
    knobs: &'a Knobs,
    each: &'a mut dyn FnMut(usize),
    begun: Duration,
    hugetlb: bool,
    place: Place,
    /// Pages of the buffer.
    pages: usize,
    /// The next page.
    at: usize,
    /// Base pages before it that are not resident yet.
    booked: usize,
    /// Pages before this one are accessible.
    open: usize,
    /// Pages from the pool, at the buffer's start.
    pool: usize,
    /// Bytes of the page that the pool is asked for, and that it refused where that fails.
    pool_refused: Option<usize>,
    /// Whether no size above the base page can come: all of it is accessible and advised against huge pages.
    base_alone: bool,
    /// Whether what is not taken yet is advised for huge pages.
    advised: bool,
    /// Whether the kernel knows no advice against them.
    no_advice: bool,
    advice_refused: bool,
    failed: Option<Error>,
    got: Got,
}

impl<'a> Filling<'a> {
    fn new(
        memory: &'a mut dyn Memory,
        request: &'a Request,
        knobs: &'a Knobs,
        each: &'a mut dyn FnMut(usize),
        begun: Duration,
        hugetlb: bool,
    ) -> Result<Filling<'a>> {
        let page = knobs.page;
        let too_long = Error::NoRoom {
            bytes: request.length,
            largest: None,
        };
        let length = request.length.checked_next_multiple_of(page);
        let length = length.filter(|&length| isize::try_from(length).is_ok());
        let length = length.ok_or(too_long)?;
        if length == 0 {
            return Err(refusal(&BuildError::Zero));
        }
        let pages = length / page;
        let pool =
            |order: usize| knobs.pools[order].is_some_and(|pool| pool.free > 0 && !pool.grows);
        let fits = |order: usize| pages >> order > 0;
        let comes = |&order: &usize| {
            knobs.may_order(order).is_ok() || (hugetlb && fits(order) && pool(order))
        };
        let base_alone = !(1..ORDERS).any(|order| fits(order) && comes(&order));
        let largest = (1..ORDERS).rev().find(comes).filter(|_| !base_alone);
        // What a large page of ours would share with a neighbour is ours, too, and never accessible: also one that is
        // larger than the buffer, which a fault takes where a neighbour before it is alike.
        let align = page << largest.unwrap_or(0);
        let reserved = length.checked_next_multiple_of(align).ok_or(too_long)?;
        let start = memory.map(reserved, align)?;
        let mut filling = Filling {
            memory,
            request,
            knobs,
            each,
            begun,
            hugetlb,
            place: Place {
                start,
                length,
                reserved,
            },
            pages,
            at: 0,
            booked: 0,
            open: 0,
            pool: 0,
            pool_refused: None,
            base_alone,
            advised: false,
            no_advice: false,
            advice_refused: false,
            failed: None,
            got: Got::default(),
        };
        // Without the access that the mapping was made with, so that it counted against what the system may promise.
        let closed = match filling.base_alone {
            true => {
                filling.open = pages;
                filling.against(start, length)
            }
            false => filling.memory.allow(start, reserved, false),
        };
        match closed {
            Ok(()) => Ok(filling),
            Err(error) => {
                give_back(filling.memory, filling.place);
                Err(error)
            }
        }
    }

    /// Advises against huge pages. A kernel without them refuses the advice, and needs none; that the knobs
    /// are not there
    /// proves nothing: `/sys` may not be mounted.
    fn against(&mut self, start: usize, length: usize) -> Result<()> {
        if self.no_advice {
            return Ok(());
        }
        match self.memory.advise(start, length, false) {
            Err(error) if error.is(&[Errno::INVAL]) => self.no_advice = true,
            done => done?,
        }
        Ok(())
    }

    fn address(&self, page: usize) -> usize {
        self.place.start + page * self.knobs.page
    }

    /// Advises all from the next page on for huge pages.
    fn advise_rest(&mut self) -> Result<()> {
        if !self.advised {
            let length = (self.pages - self.at) * self.knobs.page;
            self.memory.advise(self.address(self.at), length, true)?;
            self.advised = true;
        }
        Ok(())
    }

    /// Ends the accessible part at this page, which is not before the next one.
    fn open_to(&mut self, end: usize) -> Result<()> {
        let (from, to) = (self.open.min(end), self.open.max(end));
        if from < to {
            let length = (to - from) * self.knobs.page;
            self.memory
                .allow(self.address(from), length, end > self.open)?;
        }
        self.open = end;
        Ok(())
    }

    /// Makes the booked base pages resident.
    fn settle(&mut self) -> Result<()> {
        if self.booked == 0 {
            return Ok(());
        }
        let page = self.knobs.page;
        let (from, length) = (self.address(self.at - self.booked), self.booked * page);
        if self.open < self.at {
            self.open_to(self.at)?;
        }
        if self.at - self.booked >= self.pool && !self.base_alone {
            self.against(from, length)?;
        }
        self.memory.populate(from, length)?;
        let row = self.got.row(Kind::Base, page);
        row.bytes += length;
        self.got.chunk(page, self.booked as u64);
        self.booked = 0;
        Ok(())
    }

    /// Goes on by so many pages; whether a block ends there.
    fn advance(&mut self, pages: usize) -> bool {
        let block = (BLOCK / self.knobs.page).max(1);
        let before = self.at / block;
        self.at += pages;
        self.at / block > before || self.at == self.pages
    }

    /// The same by pages that are all resident; where a block ends, says so.
    fn advance_by_large(&mut self, pages: usize) {
        if self.advance(pages) {
            (self.each)(self.at * self.knobs.page);
        }
    }

    fn base(&mut self) -> Result<()> {
        self.got.row(Kind::Base, self.knobs.page).tries += 1;
        self.booked += 1;
        if self.advance(1) {
            self.settle()?;
            (self.each)(self.at * self.knobs.page);
        }
        Ok(())
    }

    fn over(&self) -> bool {
        let spent = || self.memory.now().saturating_sub(self.begun);
        self.request
            .deadline
            .is_some_and(|deadline| spent() >= deadline)
    }

    fn refuse(&mut self, kind: Kind, size: usize, why: Why) -> bool {
        let row = self.got.row(kind, size);
        row.refused += 1;
        row.why = Some(why);
        false
    }

    /// Whether a chunk of 2^`order` pages, not 0, came.
    fn large(&mut self, order: usize) -> Result<bool> {
        let size = self.knobs.page << order;
        if self.hugetlb && self.take_from_pool(order, size)? {
            return Ok(true);
        }
        if self.at < self.pool {
            return Ok(self.refuse(Kind::Thp, size, Why::Unaligned));
        }
        let may = match self.knobs.may_order(order) {
            Ok(_) if !self.address(self.at).is_multiple_of(size) => Err(Why::Unaligned),
            Ok(_) if self.advice_refused => Err(Why::AdviceRefused),
            Ok(_) if self.over() => Err(Why::Deadline),
            may => may,
        };
        let advice = match may {
            Ok(advice) => advice,
            Err(why) => return Ok(self.refuse(Kind::Thp, size, why)),
        };
        self.settle()?;
        if advice == Advice::Advised && self.advise_rest().is_err() {
            // Some of it may be advised now: harmless, since it is only where no fault compacts for it.
            self.advice_refused = true;
            return Ok(self.refuse(Kind::Thp, size, Why::AdviceRefused));
        }
        self.open_to(match self.knobs.may_larger(order) {
            true => self.at + (1 << order),
            false => self.pages,
        })?;
        self.one_fault(order, size)
    }

    /// Uses the chunk's first page, and looks how much came.
    fn one_fault(&mut self, order: usize, size: usize) -> Result<bool> {
        let from = self.address(self.at);
        self.got.row(Kind::Thp, size).tries += 1;
        self.memory.populate(from, self.knobs.page)?;
        let mut words = [0; LARGEST];
        let whole = match self.memory.pagemap(from, &mut words[..1 << order]) {
            Ok(words) if words.len() == 1 << order => Some(one_piece(words)),
            _ => None,
        };
        let row = self.got.row(Kind::Thp, size);
        match whole {
            Some(true) => {
                row.bytes += size;
                self.got.chunk(size, 1);
            }
            Some(false) => {
                row.failed += 1;
                self.memory.discard(from, size)?;
                return Ok(false);
            }
            // Nobody knows what came: the rest of it is made resident as it comes.
            None => {
                row.bytes += size;
                row.unverified += size;
                self.memory.populate(from, size)?;
                self.got.chunk(self.knobs.page, 1 << order);
            }
        }
        self.advance_by_large(1 << order);
        Ok(true)
    }

    /// Whether the pool gives a page of this order: it gives all that the buffer can use at once, before anything else
    /// is taken, or nothing.
    fn take_from_pool(&mut self, order: usize, size: usize) -> Result<bool> {
        if self.at >= self.pool && self.at > 0 {
            return Ok(false);
        }
        let Some(pool) = self.knobs.pools[order] else {
            return Ok(false);
        };
        if self.pool == 0 {
            let why = match pool {
                _ if self.over() => Why::Deadline,
                pool if pool.grows => Why::PoolGrows,
                pool if pool.free == 0 => Why::PoolEmpty,
                _ => {
                    let most = usize::try_from(pool.free).unwrap_or(usize::MAX);
                    let count = most.min(self.pages >> order);
                    return self.reserve(count, size);
                }
            };
            return Ok(self.refuse(Kind::Hugetlb, size, why));
        }
        self.pool_page(size)
    }

    /// Puts the pool's pages where the buffer begins. Where that is refused there is a hole, which somebody else may
    /// fill: all is begun again without the pool.
    fn reserve(&mut self, count: usize, size: usize) -> Result<bool> {
        let length = count * size;
        let start = self.place.start;
        self.memory.unmap(start, length)?;
        self.place.start += length;
        self.place.reserved -= length;
        self.pool_refused = Some(size);
        self.memory.hugetlb(start, length, size)?;
        self.pool_refused = None;
        self.place.start = start;
        self.place.reserved += length;
        self.pool = length / self.knobs.page;
        self.open = self.pool;
        self.pool_page(size)
    }

    fn pool_page(&mut self, size: usize) -> Result<bool> {
        let from = self.address(self.at);
        if !from.is_multiple_of(size) {
            return Ok(false);
        }
        self.got.row(Kind::Hugetlb, size).tries += 1;
        self.pool_refused = Some(size);
        self.memory.populate(from, size)?;
        self.pool_refused = None;
        self.got.row(Kind::Hugetlb, size).bytes += size;
        self.got.chunk(size, 1);
        self.advance_by_large(size / self.knobs.page);
        Ok(true)
    }

    /// Builds the buffer, and makes it one mapping, in which later faults take base pages.
    fn fill(&mut self, wanted: &policy::Request) -> Result<()> {
        let built = self.request.policy.build(wanted, self);
        if let Some(error) = self.failed {
            return Err(error);
        }
        built.map_err(|error| refusal(&error))?;
        self.settle()?;
        self.open_to(self.pages)?;
        if self.pool < self.pages && !self.base_alone {
            let from = self.address(self.pool);
            self.against(from, (self.pages - self.pool) * self.knobs.page)?;
        }
        Ok(())
    }
}

impl Source for Filling<'_> {
    /// Gives the number of the chunk's first page in the buffer. `effort` is not asked: no large chunk ever
    /// reclaims, and
    /// a base page always may.
    fn allocate(&mut self, order: u32, _: Effort) -> Option<u64> {
        if self.failed.is_some() {
            return None;
        }
        let first = self.at as u64;
        let taken = match order {
            0 => self.base().map(|()| true),
            _ => self.large(order as usize),
        };
        self.failed = taken.as_ref().err().copied();
        taken.unwrap_or(false).then_some(first)
    }

    /// Nothing: all is unmapped together.
    fn free(&mut self, _: Chunk) {}
}

/// Whether the pages are all there and, where their frames are shown, follow one another.
///
/// Documentation/admin-guide/mm/pagemap.rst: bit 63 present, bits 0 to 54 the frame, which reads 0 without
/// `CAP_SYS_ADMIN`. One fault of anonymous memory makes one folio present, so what is there is in one piece.
fn one_piece(words: &[u64]) -> bool {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let first = words.first().map_or(0, |word| word & FRAME);
    let follows = |(at, word): (usize, &u64)| {
        word & PRESENT != 0 && (first == 0 || word & FRAME == first + at as u64)
    };
    words.iter().enumerate().all(follows)
}
