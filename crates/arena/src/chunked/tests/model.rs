//! A kernel in memory: what a fault takes by the knobs, said a second time.
//!
//! ```text
//!  foreign  |            the buffer            | foreign
//!  --------- RRRRRRRRRRRRRRRRRRRRRR------------ ---------     R accessible, - not
//! ```
//!
//! Neighbours that are alike are one mapping, as if the kernel always merged them; the buffer has a neighbour on each
//! side that is accessible, so that a fault that leaves the buffer is seen.

use std::time::Duration;

use rustix::io::Errno;

use crate::chunked::Memory;
use crate::chunked::knobs::{File, Knobs};
use crate::error::{Error, Result};

pub(super) const PAGE: usize = 4096;
/// Pages of the address space; addresses start at [`BASE`].
const SPACE: usize = 3600;
const BASE: usize = 1 << 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marked {
    No,
    Huge,
    NoHuge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageOf {
    pub(super) access: bool,
    pub(super) marked: Marked,
    pub(super) hugetlb: bool,
    pub(super) foreign: bool,
    /// First page and order of the folio behind it.
    pub(super) folio: Option<(usize, usize)>,
}

const PLAIN: PageOf = PageOf {
    access: true,
    marked: Marked::No,
    hugetlb: false,
    foreign: false,
    folio: None,
};

#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) common: &'static str,
    pub(super) defrag: &'static str,
    /// Sizes by order, and their knob's word.
    pub(super) sizes: Vec<(usize, &'static str)>,
    /// Memory is free in pieces of at most this order.
    pub(super) free_order: usize,
    /// Pieces larger than a page that are free.
    pub(super) free_count: usize,
    pub(super) pool: u64,
    pub(super) overcommit: u64,
    /// Pages that the pool really has when it is asked.
    pub(super) pool_now: u64,
    pub(super) hides_pagemap: bool,
    /// The call that fails, from 1.
    pub(super) fails: usize,
    pub(super) calls: usize,
    pub(super) pages: Vec<Option<PageOf>>,
    /// Faults that might have compacted.
    pub(super) direct: usize,
    /// Each call takes so long.
    pub(super) tick: Duration,
    pub(super) now: Duration,
}

impl Model {
    pub(super) fn new(
        common: &'static str,
        defrag: &'static str,
        sizes: &[(usize, &'static str)],
    ) -> Model {
        Model {
            common,
            defrag,
            sizes: sizes.to_vec(),
            free_order: 10,
            free_count: usize::MAX,
            pool: 0,
            overcommit: 0,
            pool_now: 0,
            hides_pagemap: false,
            fails: 0,
            calls: 0,
            pages: vec![None; SPACE],
            direct: 0,
            tick: Duration::ZERO,
            now: Duration::ZERO,
        }
    }

    pub(super) fn knobs(&self) -> Knobs {
        Knobs::by(PAGE, false, &|path| self.file(path))
    }

    fn file(&self, path: &str) -> File {
        let choice = |all: &str, word: &str| {
            File::Text(format!("{}\n", all.replace(word, &format!("[{word}]"))))
        };
        let name = path.strip_prefix("/sys/kernel/mm/transparent_hugepage/");
        if let Some(name) = name {
            // In this order no word is a part of an earlier one that is chosen.
            return match name {
                "enabled" => choice("always madvise never", self.common),
                "defrag" if self.defrag == "defer+madvise" => {
                    File::Text("always defer [defer+madvise] madvise never\n".to_owned())
                }
                "defrag" => File::Text(format!("x [{}] y\n", self.defrag)),
                _ => {
                    let size = self.sizes.iter().find(|&&(order, _)| {
                        name == format!("hugepages-{}kB/enabled", (PAGE << order) >> 10)
                    });
                    match size {
                        Some(&(_, word)) => choice("always inherit madvise never", word),
                        None => File::Absent,
                    }
                }
            };
        }
        match path.strip_prefix("/sys/kernel/mm/hugepages/hugepages-2048kB/") {
            Some("free_hugepages") => File::Text(format!("{}\n", self.pool + 1)),
            Some("resv_hugepages") => File::Text("1\n".to_owned()),
            Some("nr_overcommit_hugepages") => File::Text(format!("{}\n", self.overcommit)),
            _ => File::Absent,
        }
    }

    fn call(&mut self, name: &'static str) -> Result<()> {
        self.now += self.tick;
        self.calls += 1;
        match self.calls == self.fails {
            true => Err(Error::Call {
                call: name,
                errno: Errno::NOMEM,
            }),
            false => Ok(()),
        }
    }

    fn range(start: usize, length: usize) -> std::ops::Range<usize> {
        assert!(start.is_multiple_of(PAGE) && start >= BASE, "{start:#x}");
        let first = (start - BASE) / PAGE;
        first..first + length.div_ceil(PAGE)
    }

    /// The buffer's own pages in a range.
    fn own(&mut self, start: usize, length: usize) -> impl Iterator<Item = &mut PageOf> {
        let pages = self.pages[Self::range(start, length)].iter_mut();
        pages.map(|page| {
            let page = page.as_mut().expect("mapped");
            assert!(!page.foreign, "somebody else's memory");
            page
        })
    }

    /// Bytes that are still mapped for a buffer.
    pub(super) fn left(&self) -> usize {
        let own = self.pages.iter().flatten().filter(|page| !page.foreign);
        own.count() * PAGE
    }

    pub(super) fn foreign_is_untouched(&self) -> bool {
        let mut foreign = self.pages.iter().flatten().filter(|page| page.foreign);
        foreign.all(|page| page.folio.is_none())
    }

    /// Folios behind a range, as bytes of each and how many follow one another.
    pub(super) fn folios(&self, start: usize, length: usize) -> Vec<(usize, u64)> {
        let mut folios: Vec<(usize, u64)> = Vec::new();
        for at in Self::range(start, length) {
            let (first, order) = self.pages[at].unwrap().folio.expect("resident");
            if first == at {
                match folios.last_mut() {
                    Some(last) if last.0 == PAGE << order => last.1 += 1,
                    _ => folios.push((PAGE << order, 1)),
                }
            }
        }
        folios
    }

    pub(super) fn pages(&self, start: usize, length: usize) -> &[Option<PageOf>] {
        &self.pages[Self::range(start, length)]
    }

    /// One write to an absent page.
    fn fault(&mut self, at: usize) {
        let page = self.pages[at].expect("mapped");
        assert!(page.access, "SIGSEGV");
        if page.hugetlb {
            let first = at & !511;
            for page in self.pages[first..first + 512].iter_mut().flatten() {
                page.folio = Some((first, 9));
            }
            return;
        }
        let alike = |other: &Option<PageOf>| {
            other.is_some_and(|other| {
                (other.access, other.marked, other.hugetlb) == (true, page.marked, false)
            })
        };
        let mut sizes = self.sizes.clone();
        sizes.sort_unstable_by_key(|&(order, _)| std::cmp::Reverse(order));
        for (order, word) in sizes {
            let word = if word == "inherit" { self.common } else { word };
            let wanted = match page.marked {
                Marked::NoHuge => false,
                Marked::Huge => word != "never",
                Marked::No => word == "always",
            };
            let first = at >> order << order;
            let last = first + (1 << order);
            // Inside the mapping, and nobody has begun to use it.
            let free = |page: &Option<PageOf>| {
                alike(page) && page.is_some_and(|page| page.folio.is_none())
            };
            let fits = || last <= SPACE && self.pages[first..last].iter().all(free);
            if !wanted || !fits() {
                continue;
            }
            let direct = match self.defrag {
                "always" => true,
                "madvise" | "defer+madvise" => page.marked == Marked::Huge,
                _ => false,
            };
            self.direct += usize::from(direct);
            if order <= self.free_order && self.free_count > 0 {
                self.free_count -= 1;
                for page in self.pages[first..last].iter_mut().flatten() {
                    page.folio = Some((first, order));
                }
                return;
            }
        }
        self.pages[at].as_mut().unwrap().folio = Some((at, 0));
    }
}

impl Memory for Model {
    fn now(&self) -> Duration {
        self.now
    }

    fn map(&mut self, length: usize, align: usize) -> Result<usize> {
        self.call("mmap")?;
        let step = align / PAGE;
        // Not at the beginning, and at no better alignment than was asked for.
        let first = 512_usize.next_multiple_of(2 * step) + step;
        let last = first + length / PAGE;
        if length > SPACE * PAGE || last >= SPACE {
            return Err(Error::Call {
                call: "mmap",
                errno: Errno::NOMEM,
            });
        }
        let foreign = Some(PageOf {
            foreign: true,
            ..PLAIN
        });
        assert_eq!(self.left(), 0, "one buffer at a time");
        self.pages.fill(None);
        self.pages[..first].fill(foreign);
        self.pages[last..].fill(foreign);
        self.pages[first..last].fill(Some(PLAIN));
        Ok(BASE + first * PAGE)
    }

    fn hugetlb(&mut self, start: usize, length: usize, size: usize) -> Result<()> {
        self.call("mmap(HUGETLB)")?;
        assert!(size == PAGE << 9 && start.is_multiple_of(size) && length.is_multiple_of(size));
        if length / size > self.pool_now as usize {
            // Somebody else maps something in the hole.
            self.pages[Self::range(start, length)].fill(Some(PageOf {
                foreign: true,
                ..PLAIN
            }));
            return Err(Error::Call {
                call: "mmap(HUGETLB)",
                errno: Errno::NOMEM,
            });
        }
        for page in &mut self.pages[Self::range(start, length)] {
            assert_eq!(*page, None, "in use");
            *page = Some(PageOf {
                hugetlb: true,
                ..PLAIN
            });
        }
        Ok(())
    }

    fn unmap(&mut self, start: usize, length: usize) -> Result<()> {
        self.call("munmap")?;
        self.own(start, length).for_each(drop);
        self.pages[Self::range(start, length)].fill(None);
        Ok(())
    }

    fn allow(&mut self, start: usize, length: usize, access: bool) -> Result<()> {
        self.call("mprotect")?;
        self.own(start, length).for_each(|page| {
            assert!(!page.hugetlb && page.access != access);
            page.access = access;
        });
        Ok(())
    }

    fn advise(&mut self, start: usize, length: usize, huge: bool) -> Result<()> {
        self.call("madvise")?;
        let marked = if huge { Marked::Huge } else { Marked::NoHuge };
        self.own(start, length)
            .for_each(|page| page.marked = marked);
        Ok(())
    }

    fn populate(&mut self, start: usize, length: usize) -> Result<()> {
        self.call("populate")?;
        self.own(start, length).for_each(drop);
        for at in Self::range(start, length) {
            if self.pages[at].is_some_and(|page| page.folio.is_none()) {
                self.fault(at);
            }
        }
        Ok(())
    }

    fn discard(&mut self, start: usize, length: usize) -> Result<()> {
        self.call("discard")?;
        self.own(start, length).for_each(|page| page.folio = None);
        Ok(())
    }

    fn pagemap<'w>(&mut self, start: usize, words: &'w mut [u64]) -> Result<&'w [u64]> {
        self.call("pread")?;
        if self.hides_pagemap {
            return Ok(&words[..0]);
        }
        let range = Self::range(start, words.len() * PAGE);
        for (word, page) in words.iter_mut().zip(&self.pages[range]) {
            *word = u64::from(page.unwrap().folio.is_some()) << 63;
        }
        Ok(words)
    }
}
