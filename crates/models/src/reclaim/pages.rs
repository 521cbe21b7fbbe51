//! Pages, and the lists that they are on.
//!
//! **Contract.** Every page in use is on exactly one list. A list is walked from its tail (the oldest); what is new or
//! rotated goes to its head. Every step is O(1); [`Pages::check`] walks all.
//!
//! An entry is a folio: one page, or more of a file that come, are scanned and go together. Lengths count pages.
//!
//! **Lineage.** `struct lruvec` (include/linux/mmzone.h) and its five lists. Left out: pages isolated at this moment, the
//! per-CPU batches through which pages come to a list.

/// A page's number; a freed page's number is used again.
pub(super) type PageId = u32;

/// No page.
pub(super) const NONE: PageId = u32::MAX;

/// A list's number: see the constants.
pub(super) type ListId = u8;

/// Anonymous memory and shmem that was not used lately.
pub(super) const INACTIVE_ANON: ListId = 0;
/// Anonymous memory and shmem that was.
pub(super) const ACTIVE_ANON: ListId = 1;
/// Page cache of files that was not used lately.
pub(super) const INACTIVE_FILE: ListId = 2;
/// Page cache of files that was.
pub(super) const ACTIVE_FILE: ListId = 3;
/// The list that reclaim never scans.
pub(super) const UNEVICTABLE: ListId = 4;
/// Number of lists.
pub(super) const LISTS: usize = 5;

/// Content of a page; with [`Page::pinned`] the four kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Clean page cache.
    File,
    /// A process's own memory.
    Anon,
    /// A driver object's memory.
    Shmem,
}

/// Whose a page is, so that he learns when it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A page of the file that is read round and round.
    Looped {
        /// Which of its folios.
        place: u32,
        /// The first page of it.
        slot: u32,
    },
    /// A page of a file that is read once.
    Streamed,
    /// A page of the block that a task populates.
    Block {
        /// The task.
        task: u32,
        /// Its place in the block.
        slot: u32,
    },
    /// A page of a driver's object.
    Object {
        /// The object.
        object: u32,
        /// Its place in the object.
        slot: u32,
    },
}

/// One page, or a folio of several.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    pub(super) kind: Kind,
    pub(super) owner: Owner,
    /// Pages that it has.
    pub(super) size: u32,
    /// Somebody holds a reference, so that it can be scanned, but not freed.
    pub(super) pinned: bool,
    /// Locked by itself (mlock).
    pub(super) locked: bool,
    /// PG_referenced.
    pub(super) referenced: bool,
    /// The accessed bit of its page-table entry.
    pub(super) young: bool,
    /// PG_workingset: it was on an active list before.
    pub(super) workingset: bool,
    list: ListId,
    newer: PageId,
    older: PageId,
}

impl Page {
    /// A page that nobody has used.
    pub(super) fn new(kind: Kind, owner: Owner) -> Page {
        Page {
            kind,
            owner,
            size: 1,
            pinned: false,
            locked: false,
            referenced: false,
            young: false,
            workingset: false,
            list: 0,
            newer: NONE,
            older: NONE,
        }
    }

    /// A folio of so many pages that nobody has used.
    pub(super) fn folio(kind: Kind, owner: Owner, size: u32) -> Page {
        Page {
            size,
            ..Page::new(kind, owner)
        }
    }

    /// Which list it is on.
    pub(super) fn list(&self) -> ListId {
        self.list
    }
}

#[derive(Debug, Clone, Copy)]
struct List {
    head: PageId,
    tail: PageId,
    len: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    pages: Vec<Page>,
    free: Vec<PageId>,
    lists: [List; LISTS],
    used: u64,
}

impl Pages {
    pub(super) fn new() -> Pages {
        Pages {
            pages: Vec::new(),
            free: Vec::new(),
            lists: [List {
                head: NONE,
                tail: NONE,
                len: 0,
            }; LISTS],
            used: 0,
        }
    }

    /// Pages in use.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn len(&self, list: ListId) -> u64 {
        self.lists[usize::from(list)].len
    }

    pub(super) fn tail(&self, list: ListId) -> Option<PageId> {
        let tail = self.lists[usize::from(list)].tail;
        (tail != NONE).then_some(tail)
    }

    pub(super) fn get(&self, id: PageId) -> &Page {
        &self.pages[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: PageId) -> &mut Page {
        &mut self.pages[id as usize]
    }

    /// Takes `page` into use at the head of `list`.
    pub(super) fn insert(&mut self, page: Page, list: ListId) -> PageId {
        self.used += u64::from(page.size);
        let id = match self.free.pop() {
            Some(id) => {
                self.pages[id as usize] = page;
                id
            }
            None => {
                self.pages.push(page);
                // Memory is at most 2^28 pages (`Setting::validate`), so that a number fits.

                (self.pages.len() - 1) as PageId
            }
        };
        self.link(id, list);
        id
    }

    /// To the head of `list`, from wherever it is.
    pub(super) fn move_to(&mut self, id: PageId, list: ListId) {
        self.unlink(id);
        self.link(id, list);
    }

    /// Frees the page.
    pub(super) fn remove(&mut self, id: PageId) -> Page {
        self.unlink(id);
        self.free.push(id);
        let page = self.pages[id as usize];
        self.used -= u64::from(page.size);
        page
    }

    fn link(&mut self, id: PageId, to: ListId) {
        let list = &mut self.lists[usize::from(to)];
        let old = list.head;
        list.head = id;
        list.len += u64::from(self.pages[id as usize].size);
        if old == NONE {
            list.tail = id;
        } else {
            self.pages[old as usize].newer = id;
        }
        let page = &mut self.pages[id as usize];
        page.list = to;
        page.newer = NONE;
        page.older = old;
    }

    fn unlink(&mut self, id: PageId) {
        let Page {
            list,
            newer,
            older,
            size,
            ..
        } = self.pages[id as usize];
        let list = &mut self.lists[usize::from(list)];
        list.len -= u64::from(size);
        if newer == NONE {
            list.head = older;
        } else {
            self.pages[newer as usize].older = older;
        }
        if older == NONE {
            self.lists[usize::from(self.pages[id as usize].list)].tail = newer;
        } else {
            self.pages[older as usize].newer = newer;
        }
    }

    /// Walks every list both ways.
    ///
    /// # Panics
    /// If a page is on no list, on two, or on one that it does not name.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut seen = vec![false; self.pages.len()];
        for &id in &self.free {
            assert!(!seen[id as usize], "page {id} is free twice");
            seen[id as usize] = true;
        }
        for (number, list) in self.lists.iter().enumerate() {
            let (mut count, mut newer, mut id) = (0, NONE, list.head);
            while id != NONE {
                let page = &self.pages[id as usize];
                assert!(!seen[id as usize], "page {id} is on two lists");
                seen[id as usize] = true;
                assert_eq!(usize::from(page.list), number, "page {id}");
                assert_eq!(page.newer, newer, "page {id} on list {number}");
                (newer, id) = (id, page.older);
                count += u64::from(page.size);
            }
            assert_eq!(list.tail, newer, "tail of list {number}");
            assert_eq!(list.len, count, "length of list {number}");
        }
        assert!(seen.iter().all(|&seen| seen), "a page is on no list");
        let used: u64 = self.lists.iter().map(|list| list.len).sum();
        assert_eq!(self.used, used, "pages in use");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the slow way: a vector a list.
        #[test]
        fn lists_are_what_vectors_are(steps in prop::collection::vec((0..3_u8, 0..4_u8, 0..64_usize), 0..200)) {
            let mut pages = Pages::new();
            let mut oracle: [Vec<PageId>; 4] = Default::default();
            for (what, list, which) in steps {
                let live: Vec<PageId> = oracle.iter().flatten().copied().collect();
                let place = usize::from(list);
                match (what, live.get(which % live.len().max(1))) {
                    (1, Some(&id)) => {
                        oracle.iter_mut().for_each(|list| list.retain(|&other| other != id));
                        oracle[place].insert(0, id);
                        pages.move_to(id, list);
                    }
                    (2, Some(&id)) => {
                        oracle.iter_mut().for_each(|list| list.retain(|&other| other != id));
                        pages.remove(id);
                    }
                    _ => {
                        let page = Page::folio(Kind::File, Owner::Streamed, 1 + which as u32 % 3);
                        oracle[place].insert(0, pages.insert(page, list));
                    }
                }
                pages.check();
                for (list, expected) in (0_u8..).zip(&oracle) {
                    prop_assert_eq!(pages.tail(list), expected.last().copied());
                    let sizes = expected.iter().map(|&id| u64::from(pages.get(id).size));
                    prop_assert_eq!(pages.len(list), sizes.sum::<u64>());
                }
            }
        }
    }
}
