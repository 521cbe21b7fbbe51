//! One thread's maps on both sides, and what it does to them.
//!
//! A slot is a map and the addresses around it that are known to be nobody else's: `a` on the library's side, where it
//! or the kernel chose, and `b` on the kernel's, in a part of the address space of this thread's own. What was unmapped
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
        let plain = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let top = Side::Kernel.mmap(0, PAGE, 3, plain, -1, 0).expect("a page");
        assert_eq!(Side::Kernel.munmap(top, PAGE), Ok(0));
        // A call of the library's own may be made to fail.
        let mut maps = (0..8).map(|_| {
            let at = Side::Library.mmap(0, PAGE, 3, plain, -1, 0);
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

fn within_room(slot: &Slot) -> bool {
    let (start, end) = room();
    (start..end).contains(&slot.a)
}

pub(crate) struct Slot {
    pub(crate) a: usize,
    pub(crate) b: usize,
    live: Vec<bool>,
    /// Nothing but anonymous private memory was ever mapped there, and nothing else holds its pages.
    private: bool,
    /// What of it is unmapped may be another's: it has grown beyond the place that it was given, or a part of it moved
    /// away.
    grown: bool,
}

impl Slot {
    pub(crate) fn pages(&self) -> usize {
        self.live.len()
    }

    /// What of it is unmapped is nobody else's: only this thread maps in the room, and knows what it has mapped.
    fn in_room(&self) -> bool {
        within_room(self) && !self.grown && !crate::SEVERAL.load(Ordering::Relaxed)
    }

    /// The slot's pages from one to another.
    fn piece(&self, from: usize, to: usize) -> Slot {
        Slot {
            a: self.a + from * PAGE,
            b: self.b + from * PAGE,
            live: self.live[from..to].to_vec(),
            ..*self
        }
    }

    fn all_live(&self, from: usize, pages: usize) -> bool {
        self.live[from..from + pages].iter().all(|live| *live)
    }

    /// Counts pages from `page` on that hold the same on both sides, up to a limit. 0: compare them one by one.
    fn alike(&self, page: usize) -> usize {
        const MOST: usize = 16;
        let pages = self.live[page..].iter().take_while(|live| **live).count();
        let length = pages.min(MOST) * PAGE;
        let (mut a, mut b) = (vec![0; length], vec![0; length]);
        let all = |got| got == Ok(length);
        let at = page * PAGE;
        let same = all(read(self.a + at, &mut a)) && all(read(self.b + at, &mut b)) && a == b;
        if same { length / PAGE } else { 0 }
    }
}

/// The same answer on both sides.
pub(crate) fn agree(what: &str, a: Result<usize, Errno>, b: Result<usize, Errno>) -> Outcome {
    if a == b {
        Ok(())
    } else {
        Err(format!(
            "{what}: {a:x?} through the library, {b:x?} by the kernel"
        ))
    }
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

    /// Makes a call at a page of a slot on both sides, and compares the answers. Returns whether both succeeded.
    fn both(
        &mut self,
        slot: usize,
        page: usize,
        what: &str,
        call: impl Fn(Side, usize) -> Result<usize, Errno>,
    ) -> Result<bool, String> {
        let Slot { a, b, .. } = self.slots[slot];
        let a_answer = call(Side::Library, a + page * PAGE);
        let b_answer = call(Side::Kernel, b + page * PAGE);
        self.note(format!(
            "{what}, slot {slot} ({a:x}), from page {page} = {a_answer:x?}"
        ));
        agree(what, a_answer, b_answer)?;
        Ok(a_answer.is_ok())
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
        let pages = self.slots[slot].pages();
        let one = &self.slots[slot];
        let (a, b) = (one.a, one.b);
        let which = self.random.below(5);
        // A fork of another thread between two writes makes the sides copy their pages at different times.
        let goes = !self.only || self.random.below(4) != 0;
        let held = match which {
            0 => Held::pipes(
                [a, b],
                pages.min(held::PIPE_PAGES),
                self.random.below(2) == 0,
            ),
            1 => Held::reads([a, b], pages),
            2 => Held::buffers([a, b], pages),
            3 => Held::segments([a, b], pages, &mut self.random),
            _ if self.forks && !crate::held::too_many_children() => {
                let child = Held::child(|| self.compare(slot, &maps::read()));
                Ok(Some(child))
            }
            _ => Ok(None),
        };
        let Some(held) = held? else { return Ok(()) };
        self.note(format!("{} of slot {slot} ({a:x}), {pages}", held.name()));
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
        self.place(
            pages * PAGE,
            3,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            false,
            0,
        )?;
        if self.random.below(4) != 0 {
            self.present(self.slots.len() - 1)?;
        }
        Ok(())
    }

    /// Detaches the segments that are attached over a slot, and unmaps the holes.
    fn detach(&mut self, slot: usize) -> Outcome {
        let slot = self.slots.swap_remove(slot);
        let done = [slot.a, slot.b].map(held::detach);
        self.note(format!("shmdt({:x}) = {:x?}", slot.a, done[0]));
        agree("shmdt", done[0], done[1])?;
        let length = slot.pages() * PAGE;
        let a = Side::Library.munmap(slot.a, length);
        agree("munmap after shmdt", a, Side::Kernel.munmap(slot.b, length))
    }

    /// Writes to each page of a slot. Returns whether all pages can be written to.
    fn present(&mut self, slot: usize) -> Result<bool, String> {
        let bytes = self.random.next().to_le_bytes();
        let Slot { a, b, .. } = self.slots[slot];
        for page in 0..self.slots[slot].pages() {
            let at = page * PAGE + 8 * self.random.below(PAGE / 8);
            let (a, b) = (write(a + at, &bytes), write(b + at, &bytes));
            agree(&format!("write to page {page}"), a, b)?;
            if a.is_err() {
                return Ok(false);
            }
        }
        self.note(format!("write to all of slot {slot}"));
        Ok(true)
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
            if end <= one.a || one.a + one.pages() * PAGE <= a {
                continue;
            }
            let before = one.piece(0, a.saturating_sub(one.a) / PAGE);
            let behind = one.piece(((end - one.a) / PAGE).min(one.pages()), one.pages());
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
        let plain = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut pages = self.some_pages();
        let (mut protection, mut flags, mut file, mut offset, mut length) =
            (3, plain, false, 0, pages * PAGE);
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
        let fixed = libc::MAP_FIXED_NOREPLACE;
        let a = Side::Library.mmap(0, length, protection, flags, fds[0], offset);
        let b_at = self.new_b();
        let b = match a {
            Ok(_) => Side::Kernel.mmap(b_at, length, protection, flags | fixed, fds[1], offset),
            Err(_) => Side::Kernel.mmap(0, length, protection, flags, fds[1], offset),
        };
        let what = format!(
            "mmap({length:#x}, {protection}, {flags:#x}, of a file {of_file}, offset {offset}) = {a:x?}, {b:x?}"
        );
        self.note(what.clone());
        match (a, b) {
            (Ok(a), Ok(b)) => {
                self.give_way(a, length.div_ceil(PAGE));
                self.slots.push(Slot {
                    a,
                    b,
                    live: vec![true; length.div_ceil(PAGE)],
                    private: flags & 3 == libc::MAP_PRIVATE && !of_file,
                    grown: false,
                });
                // Zero, or the file.
                self.compare(self.slots.len() - 1, &maps::read())
            }
            (a, b) => agree(&what, a, b),
        }
    }

    fn write(&mut self, slot: usize) -> Outcome {
        let (from, pages) = self.part(slot);
        let pages = pages.min(20);
        let bytes = self.random.next().to_le_bytes();
        self.note(format!("write to slot {slot}, {from}+{pages}"));
        for page in from..from + pages {
            let at = page * PAGE + 8 * self.random.below(PAGE / 8);
            let (a, b) = (self.slots[slot].a + at, self.slots[slot].b + at);
            let (a, b) = (write(a, &bytes), write(b, &bytes));
            agree(&format!("write to page {page}"), a, b)?;
        }
        Ok(())
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
        for page in 0..slot.pages() {
            let mut bytes = [0; PAGE];
            // Another thread may have been given it, and be gone by now: only where there never was one.
            if self.only
                && slot.in_room()
                && alone()
                && read(slot.a + page * PAGE, &mut bytes).is_ok()
            {
                return Err(format!(
                    "page {page} of {:x} can be read after munmap",
                    slot.a
                ));
            }
        }
        Ok(())
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
            self.note(format!("slot {slot} ({:x}) is gone", self.slots[slot].a));
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
        let (mut flags, mut fds) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, [-1, -1]);
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
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
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
        // Each its part, far below what the library gives out.
        let at = start + (self.number << 30) + self.random.below(1 << 12) * PAGE;
        let pages = 1 + self.random.below(8);
        let ours = |slot: &Slot| slot.a < at + pages * PAGE && at < slot.a + slot.pages() * PAGE;
        if self.slots.iter().any(ours) {
            return Ok(());
        }
        let how = self
            .random
            .pick(&[libc::MAP_FIXED, libc::MAP_FIXED_NOREPLACE]);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | how;
        let a = Side::Library.mmap(at, pages * PAGE, 3, flags, -1, 0);
        let b_at = self.new_b();
        let b = Side::Kernel.mmap(b_at, pages * PAGE, 3, flags, -1, 0);
        self.note(format!("mmap in the room at {at:x}, {pages} = {a:x?}"));
        agree("mmap in the room", a.map(|a| a - at), b.map(|b| b - b_at))?;
        if a.is_ok() {
            self.slots.push(Slot {
                a: at,
                b: b_at,
                live: vec![true; pages],
                private: true,
                grown: false,
            });
        }
        Ok(())
    }

    fn remap(&mut self, slot: usize) -> Outcome {
        let (from, pages) = self.part(slot);
        if !self.may(slot, from, pages) || pages > 700 {
            return Ok(());
        }
        if self.cut_differently(slot, from, pages) {
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
        let cut = |at: usize| maps::lines(&shown, at + from * PAGE, pages * PAGE);
        let slot = &self.slots[slot];
        cut(slot.a) != cut(slot.b) && slot.all_live(from, pages)
    }

    fn shrink(&mut self, slot: usize, from: usize, pages: usize) -> Outcome {
        let fewer = self.random.below(pages + 1);
        // A map whose holes may be another thread's shrinks only at its end.
        let tight = self.slots[slot].in_room();
        let end = from + pages == self.slots[slot].pages();
        if !(tight || end && self.slots[slot].all_live(from, pages)) {
            return Ok(());
        }
        let flags = self.random.pick(&[0, libc::MREMAP_MAYMOVE]);
        let at = from * PAGE;
        let (a_at, b_at) = (self.slots[slot].a + at, self.slots[slot].b + at);
        let a = Side::Library.mremap(a_at, pages * PAGE, fewer * PAGE, flags, 0);
        let b = Side::Kernel.mremap(b_at, pages * PAGE, fewer * PAGE, flags, 0);
        self.note(format!(
            "mremap of slot {slot} ({a_at:x}), {from}+{pages} to {fewer}, {flags} = {a:x?}"
        ));
        if fewer == pages && a.is_ok() && b.is_ok() {
            return Ok(());
        }
        agree(
            "mremap to less",
            a.map(|at| at - a_at),
            b.map(|at| at - b_at),
        )?;
        if a.is_ok() {
            self.slots[slot].live[from + fewer..from + pages].fill(false);
            if !tight {
                self.slots[slot].live.truncate(from + fewer);
            }
            self.drop_dead(slot);
        }
        Ok(())
    }

    fn grow_in_place(&mut self, slot: usize, from: usize, pages: usize) -> Outcome {
        let more = 1 + self.random.below(4);
        let at = from * PAGE;
        let (a_at, b_at) = (self.slots[slot].a + at, self.slots[slot].b + at);
        let (old, new) = (pages * PAGE, (pages + more) * PAGE);
        let within = from + pages + more <= self.slots[slot].pages();
        if within && !self.may(slot, from, pages + more) {
            return Ok(());
        }
        if !within && self.takes_holes(slot, more) {
            return Ok(());
        }
        let a = Side::Library.mremap(a_at, old, new, 0, 0);
        self.note(format!(
            "mremap of slot {slot} ({a_at:x}), {from}+{pages} by {more} = {a:x?}"
        ));
        // Beyond its own addresses there may be others', or none: as with the kernel.
        if !within && a == Err(libc::ENOMEM) {
            return Ok(());
        }
        // Another thread may have been quicker with the hole.
        let raced = within && a == Err(libc::ENOMEM) && !(self.only && alone());
        if raced {
            return Ok(());
        }
        let b = Side::Kernel.mremap(b_at, old, new, 0, 0);
        agree(
            "mremap to more",
            a.map(|at| at - a_at),
            b.map(|at| at - b_at),
        )?;
        if a.is_ok() {
            let slot = &mut self.slots[slot];
            let end = from + pages + more;
            if slot.live.len() < end {
                slot.live.resize(end, true);
                slot.grown = true;
            }
            slot.live[from..end].fill(true);
        }
        Ok(())
    }

    /// Whether growing beyond its own addresses may take another slot's hole, which would be this one's then.
    fn takes_holes(&self, slot: usize, more: usize) -> bool {
        let end = self.slots[slot].a + self.slots[slot].pages() * PAGE;
        let beyond = |other: &Slot| other.a >= end && other.a < end + more * PAGE;
        !self.only || self.slots.iter().any(beyond)
    }

    fn move_and_grow(&mut self, slot: usize, from: usize, pages: usize) -> Outcome {
        let more = 1 + self.random.below(70);
        // The kernel grows into what is free.
        if within_room(&self.slots[slot]) && self.takes_holes(slot, more) {
            return Ok(());
        }
        let at = from * PAGE;
        let (a_at, b_at) = (self.slots[slot].a + at, self.slots[slot].b + at);
        let (old, new) = (pages * PAGE, (pages + more) * PAGE);
        let a = Side::Library.mremap(a_at, old, new, libc::MREMAP_MAYMOVE, 0);
        self.note(format!(
            "mremap of slot {slot} ({a_at:x}), {from}+{pages} by {more}, may move = {a:x?}"
        ));
        let Ok(to) = a else {
            let b = Side::Kernel.mremap(b_at, old, new, libc::MREMAP_MAYMOVE, 0);
            return agree("mremap that may move", a, b);
        };
        if to == a_at {
            // In its place: into its own hole, or beyond its end.
            let b = Side::Kernel.mremap(b_at, old, new, 0, 0);
            agree("mremap that need not move", Ok(0), b.map(|at| at - b_at))?;
            let slot = &mut self.slots[slot];
            let end = from + pages + more;
            if slot.live.len() < end {
                slot.live.resize(end, true);
                slot.grown = true;
            }
            slot.live[from..end].fill(true);
            return Ok(());
        }
        let new_b = self.new_b();
        let b = Side::Kernel.mremap(
            b_at,
            old,
            new,
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            new_b,
        );
        agree("mremap that moved", Ok(0), b.map(|at| at - new_b))?;
        self.moved(slot, from, pages, to, new_b, pages + more)
    }

    /// Makes a slot of the pages that have moved out of another slot.
    fn moved(
        &mut self,
        slot: usize,
        from: usize,
        pages: usize,
        a: usize,
        b: usize,
        now: usize,
    ) -> Outcome {
        self.slots.push(Slot {
            a,
            b,
            live: vec![true; now],
            private: self.slots[slot].private,
            grown: false,
        });
        let last = self.slots.len() - 1;
        self.compare(last, &maps::read())?;
        self.slots[slot].live[from..from + pages].fill(false);
        // For a moment there was a hole, for any thread's or signal handler's map that the kernel places.
        self.slots[slot].grown |= !(self.only && alone());
        if !self.slots[slot].in_room() && self.slots[slot].live.contains(&true) {
            // Its hole is the kernel's; what is left of it goes, too.
            return self.unmap_rest(slot);
        }
        self.drop_dead(slot);
        Ok(())
    }

    /// Unmaps what is live of a slot, map by map, and forgets it.
    fn unmap_rest(&mut self, slot: usize) -> Outcome {
        let slot = self.slots.swap_remove(slot);
        for (page, _) in slot.live.iter().enumerate().filter(|(_, live)| **live) {
            let a = Side::Library.munmap(slot.a + page * PAGE, PAGE);
            let b = Side::Kernel.munmap(slot.b + page * PAGE, PAGE);
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
        let (a_at, b_at) = (
            self.slots[slot].a + from * PAGE,
            self.slots[slot].b + from * PAGE,
        );
        let (a_to, b_to) = (
            self.slots[other].a + to * PAGE,
            self.slots[other].b + to * PAGE,
        );
        let a = Side::Library.mremap(a_at, pages * PAGE, now * PAGE, flags, a_to);
        let b = Side::Kernel.mremap(b_at, pages * PAGE, now * PAGE, flags, b_to);
        self.note(format!("mremap of slot {slot} ({a_at:x}), {from}+{pages} to {now} over slot {other} ({a_to:x}) = {a:x?}"));
        agree(
            "mremap, MREMAP_FIXED",
            a.map(|at| at - a_to),
            b.map(|at| at - b_to),
        )?;
        self.slots[slot].grown |= !(self.only && alone());
        self.slots[other].private &= self.slots[slot].private;
        // A failed one may have unmapped what is there: as the kernel's side shows it.
        let shown = maps::read();
        for slot in [slot, other] {
            self.see(slot, &shown);
        }
        let (first, second) = (slot.max(other), slot.min(other));
        for slot in [first, second] {
            if !self.slots[slot].in_room() && self.slots[slot].live.contains(&false) {
                self.unmap_rest(slot)?;
            } else {
                self.drop_dead(slot);
            }
        }
        Ok(())
    }

    /// Which pages are mapped, by the kernel's side.
    fn see(&mut self, slot: usize, shown: &[maps::Line]) {
        let slot = &mut self.slots[slot];
        for (page, live) in slot.live.iter_mut().enumerate() {
            *live = maps::at(shown, slot.b + page * PAGE).is_some();
        }
    }

    /// `MREMAP_DONTUNMAP`: the pages go, the map stays.
    fn leave_behind(&mut self, slot: usize, from: usize, pages: usize) -> Outcome {
        if !self.slots[slot].all_live(from, pages) || self.slots.len() >= SLOTS {
            return Ok(());
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        let length = pages * PAGE;
        let (a_at, b_at) = (
            self.slots[slot].a + from * PAGE,
            self.slots[slot].b + from * PAGE,
        );
        let a = Side::Library.mremap(a_at, length, length, flags, 0);
        self.note(format!(
            "mremap of slot {slot} ({a_at:x}), {from}+{pages}, leaves the map behind = {a:x?}"
        ));
        let new_b = self.new_b();
        let b = match a {
            Ok(_) => Side::Kernel.mremap(b_at, length, length, flags | libc::MREMAP_FIXED, new_b),
            Err(_) => Side::Kernel.mremap(b_at, length, length, flags, 0),
        };
        match (a, b) {
            (Ok(a), Ok(b)) => {
                self.slots.push(Slot {
                    a,
                    b,
                    live: vec![true; pages],
                    private: self.slots[slot].private,
                    grown: false,
                });
                // What was locked is locked where it went, but where that is just below: then it is one VMA with what
                // is left, which is unlocked (6.18). Where a map lies may differ, so none stays locked.
                let unlocked = Side::Library.munlock(a, length);
                agree("munlock", unlocked, Side::Kernel.munlock(b, length))?;
                self.compare(self.slots.len() - 1, &maps::read())
            }
            (a, b) => agree("mremap, MREMAP_DONTUNMAP", a, b),
        }
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
        let mut alike = 0;
        for page in 0..one.pages() {
            let (a, b) = (one.a + page * PAGE, one.b + page * PAGE);
            let permitted = (maps::at(shown, a), maps::at(shown, b));
            let same = match permitted {
                (a, Some(b)) => a == Some(b),
                (None, None) => true,
                // Outside the room somebody else may have it by now. In the room a signal's handler may have had a map
                // there, which the library keeps: nobody can look into that either.
                (Some(shown), None) => !one.in_room() || (keeps() && shown == (*b"---p", None)),
            };
            if !same {
                return Err(format!(
                    "slot {slot} ({:x}), page {page}: shown as {permitted:x?}",
                    one.a
                ));
            }
            if permitted.1.is_none() && !one.in_room() {
                continue;
            }
            if page < alike {
                continue;
            }
            alike = page + one.alike(page);
            if page < alike {
                continue;
            }
            let (mut in_a, mut in_b) = ([0; PAGE], [0; PAGE]);
            let got = (read(a, &mut in_a), read(b, &mut in_b));
            if got.0 != got.1 {
                return Err(format!(
                    "slot {slot} ({:x}), page {page}: reading gives {got:x?}",
                    one.a
                ));
            }
            if got.0.is_ok() && in_a != in_b {
                let at = in_a.iter().zip(&in_b).position(|(a, b)| a != b);
                return Err(format!(
                    "slot {slot} ({:x}), page {page}: contents differ from byte {at:?} on",
                    one.a
                ));
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
