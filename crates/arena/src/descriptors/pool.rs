//! Parts of one file in memory, taken and freed by any process that has the file.
//!
//! ```text
//! | header | a bit a page: taken | a word a page: pages of the part that starts there | pages |
//! ```
//!
//! Others may write anything into the file at any time. So a process believes nothing in it: lengths come from its own copy of
//! the header, every index is checked, and there are no addresses. What is wrong is refused ([`Error::Corrupt`]); the worst that
//! a peer can do is what it could do anyway, to write into parts that are not its own.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::sys::files::{self, Kind};
use crate::sys::memory::{self as sys, Mapping};
use crate::sys::page;

/// Says what the file is, and which version of it.
const MAGIC: u64 = u64::from_le_bytes(*b"sgpool\x01\n");
/// Pages at most: a part's must be a word.
const MOST: usize = 1 << 30;
const WORD: usize = 64;
/// Searches before a pool counts as full although there was a hole: others were faster each time.
const LOOKS: usize = 16;
/// Words of the header.
const HEADER: usize = 8;
/// Parts of up to so many pages have a hint each; longer ones share.
const HINTS: usize = 64;

/// Where things lie in the file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    pages: usize,
    shift: u32,
    bits: usize,
    marks: usize,
    data: usize,
    length: usize,
}

impl Layout {
    /// `None` for no page, or too many.
    fn of(pages: usize) -> Option<Layout> {
        if pages == 0 || pages > MOST {
            return None;
        }
        let bits = HEADER * size_of::<u64>();
        let marks = bits + pages.div_ceil(WORD) * size_of::<u64>();
        let data = (marks + pages * size_of::<u32>()).next_multiple_of(page());
        Some(Layout {
            pages,
            shift: page().trailing_zeros(),
            bits,
            marks,
            data,
            length: data + pages * page(),
        })
    }

    /// The header's words.
    fn words(&self) -> [u64; HEADER] {
        let Layout {
            pages,
            data,
            length,
            ..
        } = *self;
        let known = [
            MAGIC,
            page() as u64,
            pages as u64,
            data as u64,
            length as u64,
        ];
        let mut words = [0; HEADER];
        words[..known.len()].copy_from_slice(&known);
        words
    }
}

/// Memory that several processes share and take parts of. See the module.
///
/// One process makes it ([`Pool::create`]) and sends its file ([`Pool::file`]); the others join it ([`Pool::join`]). A part is handed
/// over as its offset and length.
///
/// ```
/// use stopgap_arena::descriptors::Pool;
///
/// let ours = Pool::create(64 << 20)?;
/// // In another process, which was sent the file:
/// let theirs = Pool::join(ours.file().try_clone_to_owned().unwrap())?;
///
/// let frame = ours.alloc(8 << 20)?;
/// // SAFETY: taken above, that long.
/// unsafe { frame.as_ptr().write(7) };
/// let offset = ours.offset(frame)?;
///
/// let seen = theirs.at(offset, 8 << 20)?;
/// // SAFETY: the part is as long, and nobody writes now.
/// assert_eq!(unsafe { seen.as_ptr().read() }, 7);
/// // SAFETY: nobody uses it any more. Whoever is last may free it.
/// unsafe { theirs.free(seen, 8 << 20)? };
/// // SAFETY: refused; nothing changes.
/// assert!(unsafe { ours.free(frame, 8 << 20) }.is_err());
/// # Ok::<(), stopgap_arena::Error>(())
/// ```
///
/// Parts that a process had when it died stay taken. So make a pool for each peer that may die.
#[derive(Debug)]
pub struct Pool {
    file: OwnedFd,
    mapping: Mapping,
    layout: Layout,
    /// For each number of pages, 1 and the page where this process freed such a part last.
    hints: [AtomicU32; HINTS],
}

fn pages_for(bytes: usize) -> Result<usize> {
    match bytes.div_ceil(page()) {
        0 => Err(Error::invalid("a length of 0")),
        pages => Ok(pages),
    }
}

fn corrupt<T>(what: &'static str) -> Result<T> {
    Err(Error::Corrupt { what })
}

impl Pool {
    /// Makes a pool with room for `bytes`, whole pages.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no byte or more than 2^30 pages, [`Error::Limit`] for more than `RLIMIT_FSIZE`, and the kernel's.
    pub fn create(bytes: usize) -> Result<Pool> {
        let layout = Layout::of(bytes.div_ceil(page())).ok_or(Error::invalid(
            "a pool has a page at least, and 2^30 at most",
        ))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let file = files::memfd(c"stopgap-pool", layout.length as u64, seals)?;
        let pool = Pool::map(file, layout)?;
        for (word, value) in pool.header().iter().zip(layout.words()) {
            word.store(value, Ordering::Relaxed);
        }
        Ok(pool)
    }

    /// Joins the pool whose file this is.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a file that is no pool's, is not sealed, or has another length than its header says, and the
    /// kernel's.
    pub fn join(file: OwnedFd) -> Result<Pool> {
        let length = match files::kind(&file)? {
            Kind::Sealed { length } => length,
            // It could end under our mapping, which is SIGBUS.
            Kind::Unsealed => return corrupt("the pool's file is not sealed against shrinking"),
            Kind::Other => return corrupt("the pool's file is no file in memory"),
        };
        let mut bytes = [0; HEADER * size_of::<u64>()];
        let read = files::read_at(file.as_fd(), &mut bytes, 0)?;
        let word = |number: usize| {
            let at = number * size_of::<u64>();
            let word = bytes
                .get(at..at + size_of::<u64>())
                .and_then(|w| w.try_into().ok());
            word.map_or(0, u64::from_ne_bytes)
        };
        if read < bytes.len() || word(0) != MAGIC {
            return corrupt("the file is no pool's");
        }
        let layout = usize::try_from(word(2)).ok().and_then(Layout::of);
        match layout {
            Some(layout)
                if layout.length as u64 == length
                    && (0..HEADER).all(|number| layout.words()[number] == word(number)) =>
            {
                Pool::map(file, layout)
            }
            _ => corrupt("the pool's header contradicts itself, its file, or this machine's pages"),
        }
    }

    fn map(file: OwnedFd, layout: Layout) -> Result<Pool> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let span = sys::map_file(file.as_fd(), 0, layout.length, both, MapFlags::empty())?;
        Ok(Pool {
            file,
            mapping: Mapping(span),
            layout,
            hints: [const { AtomicU32::new(0) }; HINTS],
        })
    }

    /// `count` values from byte `at` on.
    ///
    /// # Safety
    /// They lie in the file, and are of a type that any bytes are, and that is only changed as what is shared may be.
    unsafe fn table<T>(&self, at: usize, count: usize) -> &[T] {
        let start = std::ptr::with_exposed_provenance::<T>(self.mapping.0.start + at);
        // SAFETY: as the caller says; the file is mapped as long as `self` lives, and cannot shrink.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    fn header(&self) -> &[AtomicU64] {
        // SAFETY: the file begins with them.
        unsafe { self.table(0, HEADER) }
    }

    /// A bit a page: taken.
    fn bits(&self) -> &[AtomicU64] {
        // SAFETY: by the layout, which is this process's own.
        unsafe { self.table(self.layout.bits, self.layout.pages.div_ceil(WORD)) }
    }

    /// A word a page: how many pages the part that starts there has.
    fn marks(&self) -> &[AtomicU32] {
        // SAFETY: as above.
        unsafe { self.table(self.layout.marks, self.layout.pages) }
    }

    /// The file, to be sent to those who are to join.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The header must stay as it was: who wrote over it wrote over all.
    fn check(&self) -> Result<()> {
        let words = self.layout.words();
        let same = self
            .header()
            .iter()
            .zip(words)
            .all(|(w, v)| w.load(Ordering::Relaxed) == v);
        if same {
            Ok(())
        } else {
            corrupt("somebody wrote over the pool's header")
        }
    }

    /// Takes `bytes`, whole pages. Their old contents are still there.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a length of 0, [`Error::NoRoom`] with the largest hole, [`Error::Corrupt`].
    pub fn alloc(&self, bytes: usize) -> Result<NonNull<u8>> {
        let pages = pages_for(bytes)?;
        self.check()?;
        let hint = self.hint(pages).load(Ordering::Relaxed);
        let hinted = (hint as usize)
            .checked_sub(1)
            .filter(|&at| self.claim(at, pages));
        let mut found = hinted;
        let mut largest = 0;
        // Where others take and free at the same time, what is free moves.
        for _ in 0..LOOKS {
            if found.is_some() {
                break;
            }
            largest = 0;
            found = self.search(pages, &mut largest);
            if largest < pages {
                break;
            }
        }
        let Some(at) = found else {
            let largest = Some(largest << self.layout.shift);
            return Err(Error::NoRoom { bytes, largest });
        };
        let Some(mark) = self.marks().get(at) else {
            return corrupt("a page beyond the pool");
        };
        // At most MOST.
        mark.store(pages as u32, Ordering::Release);
        self.pointer(at)
    }

    fn pointer(&self, page: usize) -> Result<NonNull<u8>> {
        let address = self.mapping.0.start + self.layout.data + (page << self.layout.shift);
        let pointer = std::ptr::with_exposed_provenance_mut(address);
        NonNull::new(pointer).ok_or(Error::Foreign { address })
    }

    fn hint(&self, pages: usize) -> &AtomicU32 {
        &self.hints[pages.min(HINTS) - 1]
    }

    /// The words of the pages' bits.
    fn words(
        &self,
        page: usize,
        pages: usize,
    ) -> impl DoubleEndedIterator<Item = (&AtomicU64, u64)> {
        let words = page / WORD..(page + pages).div_ceil(WORD);
        let all = self.bits().get(words.clone()).unwrap_or_default();
        all.iter().zip(words).map(move |(word, at)| {
            let low = page.saturating_sub(at * WORD);
            let high = (page + pages - at * WORD).min(WORD);
            (word, u64::MAX << low & u64::MAX >> (WORD - high))
        })
    }

    /// Takes these pages, if all are free.
    fn claim(&self, page: usize, pages: usize) -> bool {
        if page + pages > self.layout.pages {
            return false;
        }
        for (count, (word, bits)) in self.words(page, pages).enumerate() {
            // Acquire: what others did with the pages was before they freed them.
            let taken = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, |now| {
                (now & bits == 0).then_some(now | bits)
            });
            if taken.is_err() {
                self.unclaim(page, pages, count);
                return false;
            }
        }
        true
    }

    /// Gives back what the first `count` words have of the pages.
    fn unclaim(&self, page: usize, pages: usize, count: usize) {
        for (word, bits) in self.words(page, pages).take(count) {
            word.fetch_and(!bits, Ordering::Release);
        }
    }

    /// Takes the first pages that are free. Where there are none, `largest` is the longest hole, in pages.
    fn search(&self, pages: usize, largest: &mut usize) -> Option<usize> {
        let (mut start, mut at) = (0, 0);
        let all = self.layout.pages;
        while at < all {
            let word = self.bits().get(at / WORD)?.load(Ordering::Relaxed);
            let rest = word >> (at % WORD);
            // Free pages from here to the word's end, or all.
            let free = (rest.trailing_zeros() as usize)
                .min(WORD - at % WORD)
                .min(all - at);
            at += free;
            *largest = (at - start).max(*largest);
            if at - start >= pages {
                if self.claim(start, pages) {
                    return Some(start);
                }
                // Somebody else was there first.
                at = start + 1;
                start = at;
                continue;
            }
            if at % WORD != 0 || free == 0 {
                let rest = word >> (at % WORD);
                at += (rest.trailing_ones() as usize).max(1).min(WORD - at % WORD);
                start = at;
            }
        }
        None
    }

    /// The page where a part may start; `None`: outside, or within a page.
    fn page_at(&self, address: usize) -> Option<usize> {
        let at = address.checked_sub(self.mapping.0.start + self.layout.data)?;
        let page = at >> self.layout.shift;
        (page < self.layout.pages && at == page << self.layout.shift).then_some(page)
    }

    /// The page, and the pages of the part that starts there.
    fn part(&self, address: usize, bytes: usize) -> Result<(usize, usize)> {
        let pages = pages_for(bytes)?;
        self.check()?;
        let foreign = Error::Foreign { address };
        let page = self.page_at(address).ok_or(foreign)?;
        let mark = self
            .marks()
            .get(page)
            .map_or(0, |mark| mark.load(Ordering::Acquire)) as usize;
        if mark == 0 {
            let taken = self
                .words(page, 1)
                .any(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0);
            // In the midst of a part; or no part.
            return Err(if taken {
                foreign
            } else {
                Error::Freed { address }
            });
        }
        if page + mark > self.layout.pages {
            return corrupt("a part that ends beyond the pool");
        }
        let mut words = self.words(page, mark);
        if !words.all(|(word, bits)| word.load(Ordering::Relaxed) & bits == bits) {
            return corrupt("a part some of whose pages are free");
        }
        if mark != pages {
            return Err(Error::invalid("not the length that was given out"));
        }
        Ok((page, pages))
    }

    /// Frees what [`Pool::alloc`] gave out for `bytes`, in this process or another one.
    ///
    /// # Safety
    /// Nobody uses it any more, in any process or in the kernel: see [`crate::descriptors`]. What is not given out is refused, but
    /// what was freed and given out again is not.
    ///
    /// # Errors
    /// [`Error::Freed`] for what nobody has, [`Error::Foreign`] for what is no part's start, [`Error::Invalid`] for another length,
    /// [`Error::Corrupt`]. Nothing changes then.
    pub unsafe fn free(&self, address: NonNull<u8>, bytes: usize) -> Result<()> {
        let address = address.addr().get();
        let (page, pages) = self.part(address, bytes)?;
        let seen = pages as u32;
        let won = self.marks().get(page).is_some_and(|mark| {
            mark.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        if !won {
            return Err(Error::Freed { address });
        }
        self.unclaim(page, pages, usize::MAX);
        // Below MOST.
        self.hint(pages).store(page as u32 + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Where in the file a part lies that starts at `address`: for another process.
    ///
    /// # Errors
    /// [`Error::Foreign`] for an address that is not the pool's.
    pub fn offset(&self, address: NonNull<u8>) -> Result<u64> {
        let address = address.addr().get();
        let page = self.page_at(address).ok_or(Error::Foreign { address })?;
        Ok((self.layout.data + (page << self.layout.shift)) as u64)
    }

    /// The address here of the part of `bytes` that lies at `offset` in the file.
    ///
    /// # Errors
    /// As [`Pool::free`]: of a peer's word nothing is believed.
    pub fn at(&self, offset: u64, bytes: usize) -> Result<NonNull<u8>> {
        let address = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.mapping.0.start.checked_add(offset))
            .ok_or(Error::Foreign {
                address: usize::MAX,
            })?;
        let (page, _) = self.part(address, bytes)?;
        self.pointer(page)
    }

    /// Gives the memory of all free pages back to the kernel: the bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn trim(&self) -> Result<u64> {
        self.check()?;
        let mut given = 0;
        for word in 0..self.bits().len() {
            let pages = WORD.min(self.layout.pages - word * WORD);
            let mut at = 0;
            while at < pages {
                let now = self.bits()[word].load(Ordering::Relaxed) >> at;
                let free = (now.trailing_zeros() as usize).min(pages - at);
                let page = word * WORD + at;
                if free > 0 && self.claim(page, free) {
                    let offset = (self.layout.data + (page << self.layout.shift)) as u64;
                    let bytes = (free as u64) << self.layout.shift;
                    let done = files::punch(self.file.as_fd(), offset, bytes);
                    self.unclaim(page, free, usize::MAX);
                    done?;
                    given += bytes;
                }
                at += free + (now >> free.min(WORD - 1)).trailing_ones().max(1) as usize;
            }
        }
        Ok(given)
    }
}

#[cfg(test)]
mod tests;
