//! One thread's maps on both sides, and what it does to them.
//!
//! A slot is a map and the addresses around it that are known to be nobody else's: the first on the library's side, where it
//! or the kernel chose, the second on the kernel's, in a part of the address space of this thread's own. What was unmapped
//! within a slot is free on the library's side: a map that is placed there divides the slot. Where there are several
//! threads it may be another's at any time, and no slot keeps a hole.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::held::{self, Held};
use crate::maps;
use crate::random::Random;
use crate::sides::{Errno, Side, read, write};

const PAGE: usize = 4096;
const SIDES: [Side; 2] = [Side::Library, Side::Kernel];
const PLAIN: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
/// The kernel's side: far below where maps go by themselves.
const BELOW: usize = 0x1000_0000_0000;
const OF_AN_ACTOR: usize = 1 << 40;
const OF_A_SLOT: usize = 1 << 28;
const SLOTS: usize = 14;
const FILE_PAGES: usize = 40;

/// The addresses where the library places maps: its room, and as many above it, where nobody else has anything. Found by
/// where the first map goes.
pub(crate) fn room() -> (usize, usize) {
    static ROOM: OnceLock<(usize, usize)> = OnceLock::new();
    *ROOM.get_or_init(|| {
        let top = Side::Kernel.mmap(0, PAGE, 3, PLAIN, -1, 0).expect("a page");
        assert_eq!(Side::Kernel.munmap(top, PAGE), Ok(0));
        // A call of the library's own may be made to fail.
        let mut maps = (0..8).map(|_| {
            let at = Side::Library.mmap(0, PAGE, 3, PLAIN, -1, 0);
            let at = at.expect("a page");
            assert_eq!(Side::Library.munmap(at, PAGE), Ok(0));
            at
        });
        let placed = maps.find(|at| at + 2 * ROOM_LENGTH < top);
        let placed =
            placed.expect("the library is preloaded, and places maps far below the kernel's");
        (placed - ROOM_LENGTH, placed + ROOM_LENGTH)
    })
}

/// As long as the longest room that the tests ask for.
const ROOM_LENGTH: usize = 64 << 30;

/// Makes a file of memory with these contents.
fn memfd(contents: &[u8]) -> c_int {
    // SAFETY: the name ends with a 0; the buffer is as long as it says.
    unsafe {
        let fd = libc::memfd_create(c"fuzz".as_ptr(), 0);
        assert!(fd >= 0);
        let written = libc::write(fd, contents.as_ptr().cast(), contents.len());
        assert_eq!(written, contents.len() as isize);
        fd
    }
}

/// Whether the library keeps maps that were unmapped.
fn keeps() -> bool {
    static KEEPS: OnceLock<bool> = OnceLock::new();
    *KEEPS.get_or_init(|| std::env::var_os("STOPGAP_KEEP").is_some_and(|keep| keep != "0"))
}

pub(crate) struct Slot {
    /// On the library's side and on the kernel's.
    at: [usize; 2],
    live: Vec<bool>,
    /// Nothing but anonymous private memory was ever mapped there, and nothing else holds its pages.
    private: bool,
    /// What of it is unmapped may be another's: it has grown beyond the place that it was given, or a part of it moved
    /// away.
    grown: bool,
}

impl Slot {
    fn new(at: [usize; 2], pages: usize, private: bool) -> Slot {
        Slot {
            at,
            live: vec![true; pages],
            private,
            grown: false,
        }
    }

    fn pages(&self) -> usize {
        self.live.len()
    }

    fn page(&self, page: usize) -> [usize; 2] {
        self.at.map(|at| at + page * PAGE)
    }

    fn end(&self) -> usize {
        self.at[0] + self.pages() * PAGE
    }

    fn within_room(&self) -> bool {
        let (start, end) = room();
        (start..end).contains(&self.at[0])
    }

    /// What of it is unmapped is nobody else's: only this thread maps in the room, and knows what it has mapped.
    fn in_room(&self) -> bool {
        self.within_room() && !self.grown && !crate::SEVERAL.load(Ordering::Relaxed)
    }

    /// The slot's pages from one to another.
    fn piece(&self, from: usize, to: usize) -> Slot {
        Slot {
            at: self.page(from),
            live: self.live[from..to].to_vec(),
            ..*self
        }
    }

    fn all_live(&self, from: usize, pages: usize) -> bool {
        self.live[from..from + pages].iter().all(|live| *live)
    }

    /// It is mapped up to a page, within what it had or beyond.
    fn grow(&mut self, from: usize, end: usize) {
        if self.live.len() < end {
            self.live.resize(end, true);
            self.grown = true;
        }
        self.live[from..end].fill(true);
    }

    /// Counts pages from `page` on that hold the same on both sides, up to a limit. 0: compare them one by one.
    fn alike(&self, page: usize) -> usize {
        const MOST: usize = 16;
        let pages = self.live[page..].iter().take_while(|live| **live).count();
        let length = pages.min(MOST) * PAGE;
        let [a, b] = self.page(page).map(|at| {
            let mut bytes = vec![0; length];
            (read(at, &mut bytes) == Ok(length)).then_some(bytes)
        });
        if a.is_some() && a == b {
            length / PAGE
        } else {
            0
        }
    }
}

type Answer = Result<usize, Errno>;

/// The same answer on both sides.
pub(crate) fn agree(what: &str, a: Answer, b: Answer) -> Outcome {
    if a == b {
        return Ok(());
    }
    Err(format!(
        "{what}: {a:x?} through the library, {b:x?} by the kernel"
    ))
}

/// Makes a call on each side, with what is that side's.
fn each<T: Copy>(of: [T; 2], call: impl Fn(Side, T) -> Answer) -> [Answer; 2] {
    [0, 1].map(|side| call(SIDES[side], of[side]))
}

/// Whether nobody else maps anything.
pub(crate) fn alone() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.contains("\nThreads:\t1\n") && crate::SIGNALS.load(Ordering::Relaxed) == 0
}

/// See the module.
pub(crate) struct Actor {
    random: Random,
    slots: Vec<Slot>,
    next_b: usize,
    /// A file of random bytes for each side.
    files: [c_int; 2],
    calls: u64,
    log: VecDeque<String>,
    forks: bool,
    number: usize,
    /// There is no other thread.
    only: bool,
    /// Holders of pages of maps. Their maps may be unmapped.
    held: Vec<Held>,
    references: bool,
    taken: u64,
}

pub(crate) type Outcome = Result<(), String>;

impl Actor {
    pub(crate) fn new(number: usize, seed: u64, [forks, only, references]: [bool; 3]) -> Actor {
        room();
        let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(number as u64));
        let contents: Vec<u8> = (0..FILE_PAGES * PAGE / 8)
            .flat_map(|_| random.next().to_le_bytes())
            .collect();
        Actor {
            random,
            slots: Vec::new(),
            next_b: BELOW + number * OF_AN_ACTOR,
            files: [(); 2].map(|()| memfd(&contents)),
            calls: 0,
            log: VecDeque::new(),
            forks,
            number,
            only,
            held: Vec::new(),
            references,
            taken: 0,
        }
    }

    /// Returns how many holders of pages were made.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    pub(crate) fn log(&self) -> String {
        self.log.iter().map(|line| format!("  {line}\n")).collect()
    }

    fn note(&mut self, line: String) {
        self.calls += 1;
        self.log.push_back(line);
        if self.log.len() > 400 {
            self.log.pop_front();
        }
    }

    /// Notes a call, and compares the answers, addresses less what is `from`. Returns whether both succeeded.
    fn judge(&mut self, what: &str, [a, b]: [Answer; 2], from: [usize; 2]) -> Result<bool, String> {
        self.note(format!("{what} = {a:x?}"));
        let less = |answer: Answer, from| answer.map(|at| at.wrapping_sub(from));
        agree(what, less(a, from[0]), less(b, from[1]))?;
        Ok(a.is_ok())
    }

    /// Makes a call at a page of a slot on both sides, and compares the answers. Returns whether both succeeded.
    fn both(
        &mut self,
        slot: usize,
        page: usize,
        what: &str,
        call: impl Fn(Side, usize) -> Answer,
    ) -> Result<bool, String> {
        let one = &self.slots[slot];
        let what = format!("{what}, slot {slot} ({:x}), from page {page}", one.at[0]);
        let answers = each(one.page(page), call);
        self.judge(&what, answers, [0; 2])
    }

    /// Some steps, then a comparison of everything.
    pub(crate) fn round(&mut self, steps: usize) -> Outcome {
        for _ in 0..steps {
            self.step()?;
        }
        self.compare_all()?;
        if self.forks && self.random.below(12) == 0 {
            self.fork()?;
        }
        Ok(())
    }

    /// Makes a holder of a slot's pages. Mostly unmaps the slot then, maps as much again, and writes to it.
    fn refer(&mut self) -> Outcome {
        const MOST: usize = 6;
        if self.held.len() >= MOST {
            self.settle_one()?;
        }
        // Not a file's map: another slot may write to the same file.
        let whole =
            |slot: &Slot| slot.private && !slot.live.contains(&false) && slot.pages() <= 256;
        let from = self.random.below(self.slots.len());
        let all = (from..self.slots.len()).chain(0..from);
        let mut found = all.filter(|slot| whole(&self.slots[*slot]));
        let Some(slot) = found.next() else {
            return Ok(());
        };
        if !self.present(slot)? {
            return Ok(());
        }
        let (at, pages) = (self.slots[slot].at, self.slots[slot].pages());
        let which = self.random.below(5);
        // A fork of another thread between two writes makes the sides copy their pages at different times.
        let goes = !self.only || self.random.below(4) != 0;
        let held = match which {
            0 => Held::pipes(at, pages.min(held::PIPE_PAGES), self.random.below(2) == 0),
            1 => Held::reads(at, pages),
            2 => Held::buffers(at, pages),
            3 => Held::segments(at, pages, &mut self.random),
            _ if self.forks && !held::too_many_children() => {
                Ok(Some(Held::child(|| self.compare(slot, &maps::read()))))
            }
            _ => Ok(None),
        };
        let Some(held) = held? else { return Ok(()) };
        self.note(format!(
            "{} of slot {slot} ({:x}), {pages}",
            held.name(),
            at[0]
        ));
        // A device writes to the two sides at different times.
        let goes = goes || held.writes();
        // Only one holder for a map: a read in flight would write to what the other one shows.
        self.slots[slot].private = false;
        let attached = matches!(held, Held::Segments { whole: true, .. });
        self.held.push(held);
        self.taken += 1;
        if attached && self.only && alone() && self.random.below(3) == 0 {
            self.detach(slot)?;
        } else if goes {
            self.unmap_whole(slot)?;
        } else {
            return Ok(());
        }
        self.place(pages * PAGE, 3, PLAIN, false, 0)?;
        if self.random.below(4) != 0 {
            self.present(self.slots.len() - 1)?;
        }
        Ok(())
    }

    /// Detaches the segments that are attached over a slot, and unmaps the holes.
    fn detach(&mut self, slot: usize) -> Outcome {
        let slot = self.slots.swap_remove(slot);
        self.judge("shmdt", slot.at.map(held::detach), [0; 2])?;
        let length = slot.pages() * PAGE;
        let unmapped = each(slot.at, |side, at| side.munmap(at, length));
        self.judge("munmap after shmdt", unmapped, [0; 2]).map(drop)
    }

    /// Writes to each page of a slot. Returns whether all pages can be written to.
    fn present(&mut self, slot: usize) -> Result<bool, String> {
        self.note(format!("write to all of slot {slot}"));
        self.write_to(slot, 0, self.slots[slot].pages())
    }

    /// Compares what one pair of holders has.
    fn settle_one(&mut self) -> Outcome {
        if self.held.is_empty() {
            return Ok(());
        }
        let one = self.random.below(self.held.len());
        let held = self.held.swap_remove(one);
        self.note(format!("what {} has", held.name()));
        let seed = self.random.next();
        held.settle(seed)
    }

    /// Compares what all holders have, and all maps.
    pub(crate) fn end(&mut self) -> Outcome {
        while !self.held.is_empty() {
            self.settle_one()?;
        }
        self.compare_all()
    }

    fn step(&mut self) -> Outcome {
        let action = self.random.below(if self.references { 112 } else { 100 });
        if self.slots.is_empty() || (action < 22 && self.slots.len() < SLOTS) {
            return self.map();
        }
        let slot = self.random.below(self.slots.len());
        match action {
            0..30 => self.write(slot),
            30..40 => self.unmap_whole(slot),
            40..52 => self.unmap_part(slot),
            52..62 => self.protect(slot),
            62..74 => self.advise(slot),
            74..80 => self.map_fixed(slot),
            80..83 => self.map_noreplace(slot),
            83..85 => self.map_in_the_room(),
            85..96 => self.remap(slot),
            96..98 => self.lock(slot),
            98..100 => self.nonsense(slot),
            100..108 => self.refer(),
            _ => self.settle_one(),
        }
    }

    fn new_b(&mut self) -> usize {
        self.next_b += OF_A_SLOT;
        self.next_b
    }

    /// The library's side has put a map of some pages to `a`, which may be in holes of slots: they are divided there.
    fn give_way(&mut self, a: usize, pages: usize) {
        let end = a + pages * PAGE;
        for slot in (0..self.slots.len()).rev() {
            let one = &self.slots[slot];
            let start = one.at[0];
            if end <= start || one.end() <= a {
                continue;
            }
            let before = one.piece(0, a.saturating_sub(start) / PAGE);
            let behind = one.piece(((end - start) / PAGE).min(one.pages()), one.pages());
            self.slots.swap_remove(slot);
            let alive = |piece: &Slot| piece.live.contains(&true);
            self.slots
                .extend([before, behind].into_iter().filter(alive));
        }
    }

    fn some_pages(&mut self) -> usize {
        match self.random.below(20) {
            0..12 => 1 + self.random.below(6),
            12..17 => 16,
            17 => 64 + self.random.below(200),
            18 => 512 + self.random.below(3),
            _ => 2047 + self.random.below(3),
        }
    }

    /// Some pages of a slot: the first, and how many.
    fn part(&mut self, slot: usize) -> (usize, usize) {
        let pages = self.slots[slot].pages();
        let from = self.random.below(pages);
        (from, 1 + self.random.below(pages - from))
    }

    fn protection(&mut self) -> c_int {
        self.random.pick(&[0, 1, 3, 3, 3, 5, 7, 2])
    }

    /// A map without an address.
    fn map(&mut self) -> Outcome {
        let mut pages = self.some_pages();
        let (mut protection, mut flags, mut file, mut offset, mut length) =
            (3, PLAIN, false, 0, pages * PAGE);
        match self.random.below(30) {
            0 => protection = self.protection(),
            1 => flags |= libc::MAP_NORESERVE,
            2 => flags |= libc::MAP_POPULATE,
            3 => flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            4 => (flags, file) = (libc::MAP_PRIVATE, true),
            5 => (flags, file) = (libc::MAP_SHARED, true),
            6 => (flags, file, offset) = (libc::MAP_PRIVATE, true, 3 * PAGE as i64),
            7 => length -= 1 + self.random.below(PAGE - 1),
            8 => length = 0,
            9 => offset = 12,
            10 => flags = libc::MAP_PRIVATE,   // of no file
            11 => flags = libc::MAP_ANONYMOUS, // neither private nor shared
            12 => length = usize::MAX - 5000,
            13 => flags |= libc::MAP_STACK,
            14 => flags |= 0x4000_0000,
            _ => {}
        }
        if flags & libc::MAP_ANONYMOUS == 0 {
            pages = pages.min(100);
            length = length.min(pages * PAGE);
        }
        self.place(length, protection, flags, file, offset)
    }

    fn place(
        &mut self,
        length: usize,
        protection: c_int,
        flags: c_int,
        of_file: bool,
        offset: i64,
    ) -> Outcome {
        let fds = if of_file { self.files } else { [-1, -1] };
        let a = Side::Library.mmap(0, length, protection, flags, fds[0], offset);
        let b_at = self.new_b();
        // Where the library's side has a map, the kernel's is put to a place of this thread's.
        let (to, flags_b) = match a {
            Ok(_) => (b_at, flags | libc::MAP_FIXED_NOREPLACE),
            Err(_) => (0, flags),
        };
        let b = Side::Kernel.mmap(to, length, protection, flags_b, fds[1], offset);
        let what =
            format!("mmap({length:#x}, {protection}, {flags:#x}, of a file {of_file}, {offset})");
        if !self.judge(&what, [a, b], [a.unwrap_or(0), b_at])? {
            return Ok(());
        }
        let (at, pages) = ([a.unwrap_or(0), b_at], length.div_ceil(PAGE));
        self.give_way(at[0], pages);
        let private = flags & 3 == libc::MAP_PRIVATE && !of_file;
        self.slots.push(Slot::new(at, pages, private));
        // Zero, or the file.
        self.compare(self.slots.len() - 1, &maps::read())
    }

    fn write(&mut self, slot: usize) -> Outcome {
        let (from, pages) = self.part(slot);
        let pages = pages.min(20);
        self.note(format!("write to slot {slot}, {from}+{pages}"));
        self.write_to(slot, from, pages).map(drop)
    }

    /// Writes to pages of a slot. Returns whether all can be written to.
    fn write_to(&mut self, slot: usize, from: usize, pages: usize) -> Result<bool, String> {
        let bytes = self.random.next().to_le_bytes();
        let mut all = true;
        for page in from..from + pages {
            let at = 8 * self.random.below(PAGE / 8);
            let [a, b] = self.slots[slot]
                .page(page)
                .map(|page| write(page + at, &bytes));
            agree(&format!("write to page {page}"), a, b)?;
            all &= a.is_ok();
        }
        Ok(all)
    }

    fn unmap_whole(&mut self, slot: usize) -> Outcome {
        if !self.slots[slot].in_room() && self.slots[slot].live.contains(&false) {
            return self.unmap_rest(slot);
        }
        let length = self.slots[slot].pages() * PAGE;
        if self.random.below(6) == 0 && self.slots[slot].in_room() {
            // Its contents are undefined afterwards.
            self.both(slot, 0, "MADV_FREE", |side, at| {
                side.madvise(at, length, libc::MADV_FREE)
            })?;
        }
        self.both(slot, 0, &format!("munmap of {length:x}"), |side, at| {
            side.munmap(at, length)
        })?;
        let slot = self.slots.swap_remove(slot);
        // Another thread may have been given it, and be gone by now: only where there never was one.
        let nobodys = || self.only && slot.in_room() && alone();
        let readable = |page: &usize| nobodys() && read(slot.page(*page)[0], &mut [0]).is_ok();
        match (0..slot.pages()).find(readable) {
            Some(page) => Err(format!(
                "page {page} of {:x} can be read after munmap",
                slot.at[0]
            )),
            None => Ok(()),
        }
    }

    fn unmap_part(&mut self, slot: usize) -> Outcome {
        let (mut from, pages) = self.part(slot);
        let tight = self.slots[slot].in_room();
        let last = self.slots[slot].pages() - pages;
        if !tight {
            // The pages may be another thread's afterwards, so take them at an end of the slot, which loses them.
            from = self.random.pick(&[0, last]);
            if !self.slots[slot].all_live(from, pages) {
                return Ok(());
            }
        }
        let less = if self.random.below(4) == 0 {
            self.random.below(PAGE)
        } else {
            0
        };
        let length = pages * PAGE - less;
        let done = self.both(slot, from, &format!("munmap of {length:x}"), |side, at| {
            side.munmap(at, length)
        })?;
        if done {
            self.slots[slot].live[from..from + pages].fill(false);
            if !tight {
                let all = self.slots[slot].pages();
                let (start, end) = if from == 0 { (pages, all) } else { (0, from) };
                self.slots[slot] = self.slots[slot].piece(start, end);
            }
            self.drop_dead(slot);
        }
        Ok(())
    }

    /// A slot of which nothing is mapped is nobody's.
    fn drop_dead(&mut self, slot: usize) {
        if !self.slots[slot].live.contains(&true) {
            self.note(format!(
                "slot {slot} ({:x}) is gone",
                self.slots[slot].at[0]
            ));
            self.slots.swap_remove(slot);
        }
    }

    /// Whether a call may go over these pages: dead ones of a map outside the room may be anybody's by now.
    fn may(&self, slot: usize, from: usize, pages: usize) -> bool {
        let slot = &self.slots[slot];
        slot.in_room() || slot.all_live(from, pages)
    }

    fn protect(&mut self, slot: usize) -> Outcome {
        let (from, pages) = self.part(slot);
        if !self.may(slot, from, pages) {
            return Ok(());
        }
        let mut protection = self.protection();
        let mut length = pages * PAGE;
        match self.random.below(12) {
            0 => protection = 0x100,
            1 => length = 0,
            2 => length -= 9,
            3 => protection |= libc::PROT_GROWSDOWN,
            _ => {}
        }
        let what = format!("mprotect of {length:x}, {protection:x}");
        self.both(slot, from, &what, |side, at| {
            side.mprotect(at, length, protection)
        })?;
        Ok(())
    }

    fn advise(&mut self, slot: usize) -> Outcome {
        let (from, pages) = self.part(slot);
        if !self.may(slot, from, pages) {
            return Ok(());
        }
        let mut advice = self.random.pick(&[
            libc::MADV_DONTNEED,
            libc::MADV_DONTNEED,
            libc::MADV_DONTNEED,
            libc::MADV_WILLNEED,
            libc::MADV_COLD,
            libc::MADV_PAGEOUT,
            libc::MADV_POPULATE_READ,
            libc::MADV_POPULATE_WRITE,
            libc::MADV_NORMAL,
            libc::MADV_RANDOM,
            libc::MADV_DONTFORK,
            libc::MADV_WIPEONFORK,
            libc::MADV_DONTDUMP,
            libc::MADV_HUGEPAGE,
            libc::MADV_NOHUGEPAGE,
            libc::MADV_REMOVE,
            24,  // MADV_DONTNEED_LOCKED
            102, // MADV_GUARD_INSTALL
            103, // MADV_GUARD_REMOVE
            9_999,
        ]);
        if advice == libc::MADV_DONTFORK && self.forks {
            advice = libc::MADV_DONTDUMP; // its hole in the child would be anybody's
        }
        let mut length = pages * PAGE;
        match self.random.below(12) {
            0 => length = 0,
            1 => length -= 9,
            _ => {}
        }
        let what = format!("madvise of {length:x}, {advice}");
        self.both(slot, from, &what, |side, at| {
            side.madvise(at, length, advice)
        })?;
        Ok(())
    }

    fn lock(&mut self, slot: usize) -> Outcome {
        let (from, pages) = self.part(slot);
        if !self.may(slot, from, pages) || pages > 64 {
            return Ok(());
        }
        let odd = self.random.below(2) * 100;
        let length = pages * PAGE - odd;
        self.both(slot, from, &format!("mlock of {length:x}"), |side, at| {
            side.mlock(at + odd, length)
        })?;
        if self.random.below(2) == 0 && self.slots[slot].all_live(from, pages) {
            self.both(slot, from, "munlock", |side, at| {
                side.munlock(at + odd, length)
            })?;
        }
        Ok(())
    }

    /// A map at a fixed address, over what is there.
    fn map_fixed(&mut self, slot: usize) -> Outcome {
        let (from, pages) = self.part(slot);
        if !self.may(slot, from, pages) {
            return Ok(());
        }
        let protection = self.protection();
        let (mut flags, mut fds) = (PLAIN, [-1, -1]);
        match self.random.below(6) {
            0 => (flags, fds) = (libc::MAP_PRIVATE, self.files),
            1 => (flags, fds) = (libc::MAP_SHARED, self.files),
            2 => flags = libc::MAP_PRIVATE, // of no file: nothing is unmapped
            _ => {}
        }
        flags |= libc::MAP_FIXED;
        let what = format!("mmap of {pages} pages, {protection}, {flags:#x}");
        let done = self.both(slot, from, &what, |side, at| {
            let fd = fds[usize::from(side == Side::Kernel)];
            let mapped = side.mmap(at, pages * PAGE, protection, flags, fd, 0);
            mapped.map(|mapped| mapped - at)
        })?;
        if done {
            self.slots[slot].live[from..from + pages].fill(true);
            self.slots[slot].private &= fds == [-1, -1];
        }
        Ok(())
    }

    /// A map at a fixed address, if nothing is there.
    fn map_noreplace(&mut self, slot: usize) -> Outcome {
        let (from, pages) = self.part(slot);
        if !self.may(slot, from, pages) {
            return Ok(());
        }
        let flags = PLAIN | libc::MAP_FIXED_NOREPLACE;
        let what = format!("mmap of {pages} pages, if free");
        let done = self.both(slot, from, &what, |side, at| {
            let mapped = side.mmap(at, pages * PAGE, 3, flags, -1, 0);
            mapped.map(|mapped| mapped - at)
        })?;
        if done {
            self.slots[slot].live[from..from + pages].fill(true);
        }
        Ok(())
    }

    /// A map where the room is free.
    fn map_in_the_room(&mut self) -> Outcome {
        let (start, _) = room();
        if self.slots.len() >= SLOTS {
            return Ok(());
        }
        // Each its part.
        let a = start + (self.number << 30) + self.random.below(1 << 12) * PAGE;
        let pages = 1 + self.random.below(8);
        let ours = |slot: &Slot| slot.at[0] < a + pages * PAGE && a < slot.end();
        if self.slots.iter().any(ours) {
            return Ok(());
        }
        let how = self
            .random
            .pick(&[libc::MAP_FIXED, libc::MAP_FIXED_NOREPLACE]);
        // The library may have given another thread a map there, between fixed ones: MAP_FIXED would destroy that. Only
        // what the kernel has free is taken, and kept until then.
        let kept = libc::MAP_FIXED_NOREPLACE | PLAIN;
        if Side::Kernel.mmap(a, pages * PAGE, 0, kept, -1, 0) != Ok(a) {
            return Ok(());
        }
        if how == libc::MAP_FIXED_NOREPLACE {
            assert_eq!(Side::Kernel.munmap(a, pages * PAGE), Ok(0));
        }
        let at = [a, self.new_b()];
        let mapped = each(at, |side, at| {
            side.mmap(at, pages * PAGE, 3, PLAIN | how, -1, 0)
        });
        // Another thread's map came first.
        if !self.only && mapped == [Err(libc::EEXIST), Ok(at[1])] {
            assert_eq!(Side::Kernel.munmap(at[1], pages * PAGE), Ok(0));
            return Ok(());
        }
        if self.judge(&format!("mmap in the room, {pages}"), mapped, at)? {
            self.slots.push(Slot::new(at, pages, true));
        }
        Ok(())
    }

    fn remap(&mut self, slot: usize) -> Outcome {
        let (from, pages) = self.part(slot);
        if !self.may(slot, from, pages) || pages > 700 || self.cut_differently(slot, from, pages) {
            return Ok(());
        }
        match self.random.below(10) {
            0..3 => self.shrink(slot, from, pages),
            3..5 => self.grow_in_place(slot, from, pages),
            5..8 => self.move_and_grow(slot, from, pages),
            8 => self.move_over(slot, from, pages),
            _ => self.leave_behind(slot, from, pages),
        }
    }

    /// A range of several VMAs cannot be moved; into how many it is cut, nothing promises.
    fn cut_differently(&self, slot: usize, from: usize, pages: usize) -> bool {
        let shown = maps::read();
        let slot = &self.slots[slot];
        let [a, b] = slot
            .page(from)
            .map(|at| maps::lines(&shown, at, pages * PAGE));
        a != b && slot.all_live(from, pages)
    }

    fn shrink(&mut self, slot: usize, from: usize, pages: usize) -> Outcome {
        let fewer = self.random.below(pages + 1);
        // A map whose holes may be another thread's shrinks only at its end.
        let one = &self.slots[slot];
        let tight = one.in_room();
        if !(tight || from + pages == one.pages() && one.all_live(from, pages)) {
            return Ok(());
        }
        let flags = self.random.pick(&[0, libc::MREMAP_MAYMOVE]);
        let at = self.slots[slot].page(from);
        let remapped = each(at, |side, at| {
            side.mremap(at, pages * PAGE, fewer * PAGE, flags, 0)
        });
        let what = format!("mremap of slot {slot}, {from}+{pages} to {fewer}, {flags}");
        if self.judge(&what, remapped, at)? {
            let live = &mut self.slots[slot].live;
            live[from + fewer..from + pages].fill(false);
            if !tight {
                live.truncate(from + fewer);
            }
            self.drop_dead(slot);
        }
        Ok(())
    }

    fn grow_in_place(&mut self, slot: usize, from: usize, pages: usize) -> Outcome {
        let more = 1 + self.random.below(4);
        let at = self.slots[slot].page(from);
        let (old, new) = (pages * PAGE, (pages + more) * PAGE);
        let within = from + pages + more <= self.slots[slot].pages();
        if within && !self.may(slot, from, pages + more) || !within && self.takes_holes(slot, more)
        {
            return Ok(());
        }
        let a = Side::Library.mremap(at[0], old, new, 0, 0);
        let what = format!("mremap of slot {slot}, {from}+{pages} by {more}");
        // Beyond its own addresses there may be others', or none, as with the kernel; and another thread may have been
        // quicker with the hole.
        if a == Err(libc::ENOMEM) && !(within && self.only && alone()) {
            self.note(format!("{what}: no room"));
            return Ok(());
        }
        let b = Side::Kernel.mremap(at[1], old, new, 0, 0);
        if self.judge(&what, [a, b], at)? {
            self.slots[slot].grow(from, from + pages + more);
        }
        Ok(())
    }

    /// Whether growing beyond its own addresses may take another slot's hole, which would be this one's then.
    fn takes_holes(&self, slot: usize, more: usize) -> bool {
        let end = self.slots[slot].end();
        let beyond = |other: &Slot| (end..end + more * PAGE).contains(&other.at[0]);
        !self.only || self.slots.iter().any(beyond)
    }

    fn move_and_grow(&mut self, slot: usize, from: usize, pages: usize) -> Outcome {
        let more = 1 + self.random.below(70);
        // The kernel grows into what is free.
        if self.slots[slot].within_room() && self.takes_holes(slot, more) {
            return Ok(());
        }
        let at = self.slots[slot].page(from);
        let (old, new) = (pages * PAGE, (pages + more) * PAGE);
        let moves = libc::MREMAP_MAYMOVE;
        let a = Side::Library.mremap(at[0], old, new, moves, 0);
        let what = format!("mremap of slot {slot}, {from}+{pages} by {more}, may move");
        let by_kernel = |flags, to| Side::Kernel.mremap(at[1], old, new, flags, to);
        let Ok(to) = a else {
            return self
                .judge(&what, [a, by_kernel(moves, 0)], [0; 2])
                .map(drop);
        };
        if to == at[0] {
            // In its place: into its own hole, or beyond its end.
            self.judge(&what, [a, by_kernel(0, 0)], at)?;
            self.slots[slot].grow(from, from + pages + more);
            return Ok(());
        }
        let to = [to, self.new_b()];
        let b = by_kernel(moves | libc::MREMAP_FIXED, to[1]);
        self.judge(&what, [a, b], to)?;
        // A slot of the pages that have moved out of another slot.
        let private = self.slots[slot].private;
        self.slots.push(Slot::new(to, pages + more, private));
        self.compare(self.slots.len() - 1, &maps::read())?;
        self.slots[slot].live[from..from + pages].fill(false);
        // For a moment there was a hole, for any thread's or signal handler's map that the kernel places.
        self.slots[slot].grown |= !(self.only && alone());
        self.tidy(slot)
    }

    /// A slot whose holes are the kernel's keeps none: what is left of it goes, too. One without live pages is nobody's.
    fn tidy(&mut self, slot: usize) -> Outcome {
        let one = &self.slots[slot];
        if !one.in_room() && one.live.contains(&false) {
            return self.unmap_rest(slot);
        }
        self.drop_dead(slot);
        Ok(())
    }

    /// Unmaps what is live of a slot, map by map, and forgets it.
    fn unmap_rest(&mut self, slot: usize) -> Outcome {
        let slot = self.slots.swap_remove(slot);
        for page in (0..slot.pages()).filter(|page| slot.live[*page]) {
            let [a, b] = each(slot.page(page), |side, at| side.munmap(at, PAGE));
            agree("munmap of what is left", a, b)?;
        }
        Ok(())
    }

    /// To a fixed address, over another slot.
    fn move_over(&mut self, slot: usize, from: usize, pages: usize) -> Outcome {
        let other = self.random.below(self.slots.len());
        let (to, room) = self.part(other);
        let pages = pages.min(room);
        if other == slot
            || !self.may(other, to, room)
            || !self.slots[slot].in_room()
            || !self.slots[slot].all_live(from, pages)
            || self.cut_differently(slot, from, pages)
        {
            return Ok(());
        }
        let now = 1 + self.random.below(room);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (at, over) = (self.slots[slot].page(from), self.slots[other].page(to));
        let both = [(at[0], over[0]), (at[1], over[1])];
        let remapped = each(both, |side, (at, over)| {
            side.mremap(at, pages * PAGE, now * PAGE, flags, over)
        });
        let what = format!(
            "mremap of slot {slot} ({:x}), {from}+{pages} to {now} over slot {other} ({:x})",
            at[0], over[0]
        );
        self.judge(&what, remapped, over)?;
        self.slots[slot].grown |= !(self.only && alone());
        self.slots[other].private &= self.slots[slot].private;
        // A failed one may have unmapped what is there: as the kernel's side shows it.
        let shown = maps::read();
        for slot in [slot, other] {
            let pages: Vec<_> = (0..self.slots[slot].pages())
                .map(|page| maps::at(&shown, self.slots[slot].page(page)[1]).is_some())
                .collect();
            self.slots[slot].live = pages;
        }
        self.tidy(slot.max(other))?;
        self.tidy(slot.min(other))
    }

    /// `MREMAP_DONTUNMAP`: the pages go, the map stays.
    fn leave_behind(&mut self, slot: usize, from: usize, pages: usize) -> Outcome {
        if !self.slots[slot].all_live(from, pages) || self.slots.len() >= SLOTS {
            return Ok(());
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        let length = pages * PAGE;
        let at = self.slots[slot].page(from);
        let a = Side::Library.mremap(at[0], length, length, flags, 0);
        let new_b = self.new_b();
        let (fixed, b_to) = match a {
            Ok(_) => (libc::MREMAP_FIXED, new_b),
            Err(_) => (0, 0),
        };
        let b = Side::Kernel.mremap(at[1], length, length, flags | fixed, b_to);
        let to = [a.unwrap_or(0), new_b];
        let what = format!("mremap of slot {slot}, {from}+{pages}, leaves the map behind");
        if !self.judge(&what, [a, b], to)? {
            return Ok(());
        }
        let private = self.slots[slot].private;
        self.slots.push(Slot::new(to, pages, private));
        // What was locked is locked where it went, but where that is just below: then it is one VMA with what is left,
        // which is unlocked (6.18). Where a map lies may differ, so none stays locked.
        let unlocked = each(to, |side, at| side.munlock(at, length));
        self.judge("munlock", unlocked, [0; 2])?;
        self.compare(self.slots.len() - 1, &maps::read())
    }

    /// Makes an invalid call.
    fn nonsense(&mut self, slot: usize) -> Outcome {
        const GROWS: c_int = libc::PROT_GROWSDOWN | libc::PROT_GROWSUP;
        type Call = fn(Side, usize) -> Result<usize, Errno>;
        const CALLS: [Call; 9] = [
            |side, at| side.munmap(at + 1, PAGE),
            |side, at| side.munmap(at, 0),
            |side, at| side.munmap(at, usize::MAX - at),
            |side, at| side.mprotect(at + 7, PAGE, 1),
            |side, at| side.madvise(at + 7, PAGE, libc::MADV_DONTNEED),
            |side, at| side.mremap(at + 7, PAGE, PAGE, 0, 0),
            |side, at| side.mremap(at, PAGE, 0, 0, 0),
            |side, at| side.mremap(at, PAGE, PAGE, libc::MREMAP_FIXED, at),
            |side, at| side.mprotect(at, PAGE, GROWS),
        ];
        let which = self.random.below(CALLS.len());
        self.both(slot, 0, &format!("nonsense {which}"), CALLS[which])?;
        Ok(())
    }

    fn compare_all(&mut self) -> Outcome {
        let shown = maps::read();
        for slot in 0..self.slots.len() {
            self.compare(slot, &shown)?;
        }
        Ok(())
    }

    /// Permissions as they are shown, and contents.
    fn compare(&self, slot: usize, shown: &[maps::Line]) -> Outcome {
        let one = &self.slots[slot];
        let differs = |page: usize, how: String| {
            Err(format!("slot {slot} ({:x}), page {page}: {how}", one.at[0]))
        };
        let mut alike = 0;
        for page in 0..one.pages() {
            let at = one.page(page);
            let [a, b] = at.map(|at| maps::at(shown, at));
            let same = match (a, b) {
                (a, Some(b)) => a == Some(b),
                (None, None) => true,
                // Outside the room somebody else may have it by now. In the room a signal's handler may have had a map
                // there, which the library keeps: nobody can look into that either.
                (Some(shown), None) => !one.in_room() || (keeps() && shown == (*b"---p", None)),
            };
            if !same {
                return differs(page, format!("shown as {:x?}", (a, b)));
            }
            if b.is_none() && !one.in_room() || page < alike {
                continue;
            }
            alike = page + one.alike(page);
            if page < alike {
                continue;
            }
            let [(a, in_a), (b, in_b)] = at.map(|at| {
                let mut bytes = [0; PAGE];
                (read(at, &mut bytes), bytes)
            });
            if a != b {
                return differs(page, format!("reading gives {:x?}", (a, b)));
            }
            if a.is_ok() && in_a != in_b {
                let at = in_a.iter().zip(&in_b).position(|(a, b)| a != b);
                return differs(page, format!("contents differ from byte {at:?} on"));
            }
        }
        Ok(())
    }

    /// A child goes on from here, and must find what its parent has.
    fn fork(&mut self) -> Outcome {
        let bare = self.random.below(2) == 0;
        self.note(format!("fork, bare {bare}"));
        // SAFETY: the child only does what this thread does, and allocates by glibc's malloc, which a fork leaves
        // usable; after the bare call, which repairs no lock of malloc's, only where there is no other thread.
        let child = unsafe {
            if bare && alone() {
                libc::syscall(libc::SYS_fork) as c_int
            } else {
                libc::fork()
            }
        };
        if child == 0 {
            // The holders are the parent's.
            std::mem::forget(std::mem::take(&mut self.held));
            let mut done = self.compare_all();
            for _ in 0..60 {
                done = done.and_then(|()| self.step());
            }
            let done = done.and_then(|()| self.end());
            if let Err(why) = &done {
                println!("in a child: {why}\nlast calls:\n{}", self.log());
            }
            // SAFETY: nothing of the parent's is run.
            unsafe { libc::_exit(i32::from(done.is_err())) };
        }
        let mut status = 0;
        loop {
            // SAFETY: `status` is ours.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            if waited == child {
                break;
            }
        }
        if status == 0 {
            Ok(())
        } else {
            Err(format!("a forked child ended with status {status:#x}"))
        }
    }
}
