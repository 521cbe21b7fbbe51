//! What the interposed calls do. Each function here is one of them with the kernel's answer, `errno` aside.

#![allow(unsafe_code)]

mod change;
mod files;
mod forks;
mod remap;

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicUsize, Ordering, fence,
};

use crate::inject;
use crate::kept::{Kept, Map, Runs};
use crate::kernel::{self, Errno, PAGE, Result};
use crate::lock::Refused;
use crate::notes::{Kind, Notes};
use crate::own::{Own, own};
use crate::report::{Count, count};
use crate::setup::{self, Settings};
use crate::window::{Span, Window};

pub(crate) use change::{madvise, mlock, mprotect, pkey_mprotect};
pub(crate) use forks::watch_forks;
use forks::{forks, lock_survives, notice_fork};
pub(crate) use remap::mremap;

const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
const RESERVED: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Longest map that is taken over.
pub(crate) const LIMIT: usize = 8 << 20;
/// The same in pages.
pub(crate) const LIMIT_PAGES: usize = LIMIT / PAGE;

/// A freed map with fewer resident pages is not kept: two changes of protection cost what they save.
const LEAST_RESIDENT: usize = 2;
/// Maps of one size in a row that were not worth it, until maps of that size pass through for a while.
const PATIENCE: u8 = 4;
/// Maps that then pass through first; each time twice as many.
const FIRST_REST: u16 = 256;

/// What the arena is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Stage {
    /// Nothing was mapped yet.
    Idle = 0,
    /// A thread makes the window.
    Starting = 1,
    Serving = 2,
    /// Everything goes to the kernel, for good.
    Aside = 3,
}

/// Each time a process has forked so often it is looked at what that costs.
const FORKS: u32 = 64;
/// Page faults that must have been saved for each: what lies in our structures and in the window is copied for a child
/// and taken away from it again, a third of a microsecond a page, and two VMAs more; a fault is half a microsecond.
const FAULTS_A_FORK: u64 = 32;

static STAGE: AtomicU32 = AtomicU32::new(Stage::Idle as u32);
/// The window, 0 and 0 where there is none.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Whether somebody who has the lock is in the midst of it: the lock itself is not there for a child to see.
static INSIDE: AtomicBool = AtomicBool::new(false);
static NOTES: Notes = Notes::new();
/// By length in pages: how many maps pass through before one is taken again; [`Own::passed`] counts them. A child
/// begins a rest anew.
static REST: [AtomicU16; LIMIT_PAGES + 1] = [const { AtomicU16::new(0) }; LIMIT_PAGES + 1];

/// Two pages below the end of all addresses, where no program can have a map: the kernel's answer to a call on nothing.
const NOWHERE: usize = usize::MAX - (2 * PAGE - 1);

/// For maps of a huge page and more.
static ADVICE: AtomicI32 = AtomicI32::new(NO_ADVICE);
const NO_ADVICE: c_int = -1;
const HUGE: usize = 2 << 20;

/// Tells the kernel about huge pages for a map that is large enough, where a policy was asked for.
#[inline]
fn advise(address: usize, length: usize) {
    let advice = ADVICE.load(Ordering::Relaxed);
    if advice != NO_ADVICE && length >= HUGE {
        let _ = kernel::madvise(address, length.next_multiple_of(PAGE), advice);
    }
}

struct Shelf(UnsafeCell<Option<Arena>>);

// SAFETY: only who has the lock looks inside.
unsafe impl Sync for Shelf {}

static ARENA: Shelf = Shelf(UnsafeCell::new(None));

/// What the lock protects.
struct Arena {
    window: Window,
    kept: Kept,
    /// By length in pages, of sizes that had any: maps in a row that were not worth it, and how long they rest next.
    losses: BTreeMap<usize, (u8, u16)>,
    /// For mincore(2).
    resident: Vec<u8>,
}

fn stage() -> u32 {
    STAGE.load(Ordering::Acquire)
}

/// In words, for the report.
pub(crate) fn state() -> &'static str {
    match stage() {
        0 => "idle",
        1 => "starting",
        2 => "serving",
        _ => "aside",
    }
}

/// Of the window; empty where there is none.
#[inline]
fn window() -> Span {
    Span::new(START.load(Ordering::Relaxed), END.load(Ordering::Relaxed))
}

/// Whether a call on these addresses is our business.
#[inline]
fn concerns(address: usize, length: usize) -> Option<Span> {
    // The end is 0 first where the window is given up.
    touches(window(), address, length)
}

/// The pages of a range, if it shares any with `room`; the kernel judges what is no range at all.
#[inline]
fn touches(room: Span, address: usize, length: usize) -> Option<Span> {
    if address >= room.end || length == 0 || !address.is_multiple_of(PAGE) {
        return None;
    }
    let end = address
        .checked_add(length)?
        .checked_next_multiple_of(PAGE)?;
    (room.start < end).then_some(Span::new(address, end))
}

/// Works under the lock, which is the only one: on the window or on the places of files.
fn alone<T>(work: impl FnOnce() -> T) -> std::result::Result<T, Refused> {
    notice_fork()?;
    if !lock_survives(own()) {
        // It was to be wiped, and the page for it could not be had.
        return Err(Refused::Own);
    }
    let lock = &own().lock;
    lock.enter()?;
    INSIDE.store(true, Ordering::Relaxed);
    // Who forks meanwhile copies no change without that.
    fence(Ordering::Release);
    let result = work();
    INSIDE.store(false, Ordering::Release);
    lock.leave();
    Ok(result)
}

/// Works on the window.
fn locked<T>(work: impl FnOnce(&mut Arena) -> T) -> std::result::Result<T, Refused> {
    // SAFETY: the lock is ours.
    alone(|| match unsafe { &mut *ARENA.0.get() } {
        // The window was given up while we came here: what was reserved is anybody's by now.
        _ if window().length() == 0 => Err(Refused::Own),
        Some(arena) => {
            arena.read_notes();
            let result = work(arena);
            arena.read_notes();
            Ok(result)
        }
        // Not made yet, or never.
        None => Err(Refused::Own),
    })
    .and_then(|result| result)
}

/// The lock was refused: who abandoned it may have left the structures half changed.
fn refused(why: Refused) {
    count(Count::passed_busy, 1);
    // To fork a large process takes its time.
    if why == Refused::Abandoned && own().forking.load(Ordering::Relaxed) == 0 {
        abandon();
    }
}

/// Everything is the kernel's from now on, the window's maps, too; what is reserved or kept stays reserved, and is
/// nobody's.
#[cold]
fn abandon() {
    files::give_up();
    STAGE.store(Stage::Aside as u32, Ordering::Release);
    END.store(0, Ordering::Relaxed);
    START.store(0, Ordering::Relaxed);
}

fn note(kind: Kind, span: Span) {
    let span = span.with(window());
    if span.length() > 0 && !NOTES.leave(kind, span) {
        abandon();
    }
}

/// Makes the window, once.
#[cold]
fn start() -> bool {
    // All that allocates has the lock: a signal handler that finds it free may allocate, too.
    let made = alone(|| {
        let begun = STAGE.compare_exchange(
            Stage::Idle as u32,
            Stage::Starting as u32,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if begun.is_err() {
            return false;
        }
        let made = setup::settings().as_ref().and_then(make).is_some();
        let stage = if made { Stage::Serving } else { Stage::Aside };
        STAGE.store(stage as u32, Ordering::Release);
        made
    });
    made.unwrap_or_else(|why| {
        refused(why);
        false
    })
}

/// Under the lock.
fn make(settings: &Settings) -> Option<()> {
    if !own().wiped() {
        // Nothing would tell a child that it is one.
        return None;
    }
    let span = setup::reserve(settings.window)?;
    let arena = Arena {
        window: Window::new(span)?,
        kept: Kept::new(settings.keep),
        losses: BTreeMap::new(),
        resident: vec![0; LIMIT_PAGES],
    };
    // SAFETY: the lock is ours.
    unsafe { *ARENA.0.get() = Some(arena) };
    ADVICE.store(settings.advise.unwrap_or(NO_ADVICE), Ordering::Relaxed);
    START.store(span.start, Ordering::Relaxed);
    END.store(span.end, Ordering::Relaxed);
    Some(())
}

/// Changes the access to a map of ours.
fn access(span: Span, protection: c_int) -> Result<()> {
    inject::before()?;
    kernel::mprotect(span.start, span.length(), protection)
}

/// Reserves addresses again; what lies there goes.
fn reserve_over(span: Span) -> Result<()> {
    inject::before()?;
    let flags = RESERVED | libc::MAP_FIXED;
    kernel::mmap(span.start, span.length(), libc::PROT_NONE, flags, -1, 0).map(drop)
}

/// Gives what a span without access holds back, and what was charged for it (vm.overcommit_memory 2).
fn give_back(span: Span) {
    if reserve_over(span).is_err() {
        // More maps than may be: the pages at least.
        let _ = kernel::madvise(span.start, span.length(), libc::MADV_DONTNEED);
    }
}

/// Reserves addresses where nothing is; `false` where something is.
fn reserve_hole(span: Span) -> bool {
    inject::before().is_ok() && is_hole(span)
}

/// Whether nothing is there; what was nothing is reserved then.
fn is_hole(span: Span) -> bool {
    let flags = RESERVED | libc::MAP_FIXED_NOREPLACE;
    match kernel::mmap(span.start, span.length(), libc::PROT_NONE, flags, -1, 0) {
        Ok(at) if at == span.start => true,
        Ok(elsewhere) => {
            // Before 4.17 it is a hint.
            let _ = kernel::munmap(elsewhere, span.length());
            false
        }
        Err(_) => false,
    }
}

impl Arena {
    fn read_notes(&mut self) {
        while NOTES.any() {
            let Some((kind, span)) = NOTES.first() else {
                return;
            };
            match kind {
                Kind::Released => self.release(span),
                Kind::Claimed => self.claim(span),
                Kind::Changed => self.changed(span),
            }
        }
    }

    /// Before something is mapped at `span`: nothing may be kept there, nor beside it.
    fn evict(&mut self, span: Span) {
        for map in self.kept.remove(span.wider()) {
            self.learn(map.span, false);
            self.drop_pages(map);
        }
    }

    /// Before the program changes `span`. Beside what is not plain nothing is kept: its pages would come back as a map
    /// that the kernel joins with a part of a range and not with all of it, and that range would be two maps to it.
    fn changed(&mut self, span: Span) {
        let turned = self.window.changed(span);
        if !turned.is_empty() {
            self.evict(self.window.around(span));
        }
        self.spoiled(&turned);
    }

    /// Nothing of `span` is live any more.
    fn release(&mut self, span: Span) {
        let turned = self.window.release(span);
        if turned.iter().any(|range| !span.contains(*range)) {
            self.evict(self.window.around(span));
        }
        self.spoiled(&turned);
    }

    /// These were ours to keep one day, and are not any more.
    fn spoiled(&mut self, ranges: &[Span]) {
        for range in ranges {
            self.learn(*range, false);
        }
    }

    /// The program has mapped `span`.
    fn claim(&mut self, span: Span) {
        let span = span.with(self.window.span());
        if span.length() == 0 {
            return;
        }
        for map in self.kept.remove(span) {
            // What was kept at `span` itself is the program's already.
            for rest in [
                Span::new(map.span.start, map.span.end.min(span.start)),
                Span::new(map.span.start.max(span.end), map.span.end),
            ] {
                if rest.length() > 0 {
                    give_back(rest);
                }
            }
            self.window.unplace(map.span);
        }
        let turned = self.window.claim(span);
        self.evict(self.window.around(span));
        self.spoiled(&turned);
    }

    /// Gives a kept map's pages and its place back.
    fn drop_pages(&mut self, map: Map) {
        give_back(map.span);
        self.window.unplace(map.span);
    }

    /// Gives back all that is kept; `false` where nothing was.
    fn relieve(&mut self) -> bool {
        let any = !self.kept.is_empty();
        while let Some(map) = self.kept.oldest() {
            self.drop_pages(map);
        }
        any
    }

    /// Looks after `span` was perhaps unmapped by a call that failed, or moved away by one that did not: what is a hole
    /// is reserved again, and not live any more. What somebody else has mapped there meanwhile stays as it is.
    fn look_again(&mut self, span: Span) {
        let span = span.with(self.window.span());
        if span.length() == 0 {
            return;
        }
        for part in self.window.live(span) {
            if reserve_hole(part) {
                self.release(part);
            }
        }
        for part in self.window.gaps(span) {
            reserve_hole(part);
        }
    }

    /// Whether it was worth it to serve a map: its pages served the next one.
    fn learn(&mut self, map: Span, worth: bool) {
        let pages = map.length() / PAGE;
        if worth {
            self.losses.remove(&pages);
            return;
        }
        let (Some(wait), Some(passed)) = (REST.get(pages), own().passed.get(pages)) else {
            return;
        };
        let (losses, rest) = self.losses.entry(pages).or_insert((0, FIRST_REST));
        *losses += 1;
        if *losses >= PATIENCE {
            // One more try after the rest.
            *losses = PATIENCE - 1;
            wait.store(*rest, Ordering::Relaxed);
            passed.store(0, Ordering::Relaxed);
            *rest = rest.saturating_mul(2);
        }
    }

    /// Unmaps a whole plain map; it was taken out of the window's live ones.
    fn put_away(&mut self, span: Span) {
        let pages = span.length() / PAGE;
        // Looked at when nobody can change it any more.
        let bytes = &mut self.resident[..pages];
        let runs = if inject::before().is_ok() && kernel::resident(span.start, bytes) {
            Runs::of(bytes)
        } else {
            Runs::default()
        };
        if runs.pages() < LEAST_RESIDENT {
            give_back(span);
            self.window.unplace(span);
            self.learn(span, false);
            count(Count::unmapped_returned, 1);
            return;
        }
        // What mincore calls absent may be swapped out, and would come back with its contents.
        let mut from = 0;
        for (start, end) in runs.iter().chain([(pages, pages)]) {
            if from < start {
                let (at, length) = (span.start + from * PAGE, (start - from) * PAGE);
                let _ = kernel::madvise(at, length, libc::MADV_DONTNEED);
            }
            from = end;
        }
        self.kept.push(span, runs, forks());
        count(Count::unmapped_kept, 1);
        while let Some(old) = self.kept.too_many() {
            count(Count::evicted, 1);
            self.learn(old.span, false);
            self.drop_pages(old);
        }
    }
}

/// mmap(2).
#[inline]
pub(crate) fn mmap(
    address: usize,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> Result<usize> {
    const PLAIN: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if flags == PLAIN
        && address == 0
        && protection == READ_WRITE
        && offset == 0
        && length > 0
        && length <= LIMIT
    {
        if let Some(address) = serve(length.next_multiple_of(PAGE)) {
            return Ok(address);
        }
    } else if address != 0 {
        count(Count::passed_address, 1);
        if flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0
            && let Some(span) = concerns(address, length)
        {
            return map_fixed(span, protection, flags, fd, offset);
        }
    } else {
        let reason = if flags & libc::MAP_ANONYMOUS == 0 {
            if let Some(address) = files::serve(length, protection, flags, fd, offset) {
                return Ok(address);
            }
            Count::passed_file
        } else if flags != PLAIN {
            Count::passed_flags
        } else if protection != READ_WRITE {
            Count::passed_protection
        } else {
            Count::passed_size
        };
        count(reason, 1);
    }
    let mapped = kernel::mmap(address, length, protection, flags, fd, offset);
    match mapped {
        Ok(at) => {
            found_in_window(at, length);
            files::mapped(at, length);
            if flags == PLAIN && address == 0 {
                advise(at, length);
            }
            Ok(at)
        }
        Err(Errno(libc::ENOMEM)) if relieve() => {
            kernel::mmap(address, length, protection, flags, fd, offset)
        }
        mapped => mapped,
    }
}

/// The kernel chose a place in the window: there was a hole, made by a system call that we did not see.
#[inline]
fn found_in_window(address: usize, length: usize) {
    if let Some(span) = concerns(address, length)
        && let Err(why) = locked(|arena| arena.claim(span))
    {
        refused(why);
        note(Kind::Claimed, span);
    }
}

/// The kernel had no memory or no room: gives back what is ours. `false` where nothing was.
#[cold]
fn relieve() -> bool {
    if stage() != Stage::Serving as u32 {
        return false;
    }
    let relieved = locked(|arena| {
        let any = arena.relieve();
        if setup::limited() {
            arena.step_aside();
            return true;
        }
        any
    });
    let relieved = relieved.unwrap_or(false);
    count(Count::relieved, usize::from(relieved));
    relieved
}

/// After a fork, without the lock: gives the window up where forks cost more than it brings. For good, and for what
/// this process still forks: to begin again takes 40 KiB of whatever stack comes by.
fn weigh_forks(own: &Own) {
    let forks = own.forks.load(Ordering::Relaxed);
    if forks.is_multiple_of(FORKS)
        && stage() == Stage::Serving as u32
        && own.count(Count::faults_saved) < u64::from(forks) * FAULTS_A_FORK
    {
        // Refused: at another fork.
        let _ = locked(Arena::step_aside);
    }
}

/// A map of ours; `None`: the kernel's.
fn serve(length: usize) -> Option<usize> {
    let now = stage();
    let serving = now == Stage::Serving as u32 || (now == Stage::Idle as u32 && start());
    if !serving {
        count(Count::passed_aside, 1);
        return None;
    }
    let pages = length / PAGE;
    let rest = REST[pages].load(Ordering::Relaxed);
    if rest > 0 {
        let passed = &own().passed[pages];
        // One access that writes: in a forked child that is one fault, and not one to read zeros and one to write.
        let before = passed.fetch_add(1, Ordering::Relaxed);
        if before < rest {
            count(Count::passed_unworthy, 1);
            return None;
        }
        passed.store(rest, Ordering::Relaxed);
    }
    let found = locked(|arena| {
        if let Some(map) = arena.kept.pop(pages) {
            arena.window.enliven(map.span);
            let stale = map.forks != forks();
            arena.learn(map.span, !stale);
            return Some((map.span, Some((map, stale))));
        }
        let span = arena.window.place(length)?;
        arena.window.enliven(span);
        Some((span, None))
    });
    let (span, map) = match found {
        Ok(Some(found)) => found,
        Ok(None) => {
            count(Count::passed_no_room, 1);
            return None;
        }
        Err(why) => {
            refused(why);
            return None;
        }
    };
    let stale = map.is_some_and(|(_, stale)| stale);
    if stale {
        // Shared with a child: to write to a page would copy it first.
        give_back(span);
    }
    if access(span, READ_WRITE).is_err() {
        // Limits, or too many maps: as it was, and let the kernel say it.
        let undone = locked(|arena| {
            give_back(span);
            arena.release(span);
        });
        if let Err(why) = undone {
            refused(why);
            if span.with(window()).length() == 0 {
                // The window went meanwhile, and this is nobody's.
                let _ = kernel::munmap(span.start, span.length());
            }
            note(Kind::Released, span);
        }
        return None;
    }
    count(Count::served_bytes, length);
    match map {
        Some((map, _)) => {
            count(Count::served_kept, 1);
            if !stale {
                for (start, end) in map.runs.iter() {
                    // SAFETY: mapped for reading and writing just now; the program does not know of it yet.
                    unsafe { kernel::zero(span.start + start * PAGE, (end - start) * PAGE) };
                }
                count(Count::faults_saved, map.runs.pages());
            }
        }
        None => {
            count(Count::served_fresh, 1);
            advise(span.start, span.length());
        }
    }
    Some(span.start)
}

/// Whether a map is rounded up to huge pages: hugetlb, by its flag or by its file.
fn huge(flags: c_int, fd: c_int) -> bool {
    if flags & libc::MAP_ANONYMOUS != 0 {
        flags & libc::MAP_HUGETLB != 0
    } else {
        kernel::is_hugetlbfs(fd)
    }
}

/// A map with a fixed address, some of it in the window.
#[cold]
fn map_fixed(span: Span, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> Result<usize> {
    count(Count::into_window, 1);
    if huge(flags, fd) {
        // It takes more addresses than it says.
        step_aside();
    }
    let call = |flags| kernel::mmap(span.start, span.length(), protection, flags, fd, offset);
    let noreplace = flags & libc::MAP_FIXED_NOREPLACE != 0;
    let done = locked(|arena| {
        if noreplace {
            return arena.map_noreplace(span, flags, call);
        }
        arena.evict(span);
        let mapped = call(flags);
        match mapped {
            Ok(_) => arena.claim(span),
            Err(_) => arena.look_again(span),
        }
        mapped
    });
    match done {
        Ok(done) => done,
        Err(why) => {
            refused(why);
            let mapped = call(flags);
            if mapped.is_ok() {
                note(Kind::Claimed, span);
            }
            mapped
        }
    }
}

impl Arena {
    /// `MAP_FIXED_NOREPLACE`: what is only reserved counts as free.
    fn map_noreplace(
        &mut self,
        span: Span,
        flags: c_int,
        call: impl Fn(c_int) -> Result<usize>,
    ) -> Result<usize> {
        let window = self.window.span();
        for part in self.window.live(span.with(window)) {
            // A hole that could not be reserved again counts as live, too.
            if !is_hole(part) {
                // The kernel says whether that is the first error.
                return call(flags);
            }
            self.release(part);
        }
        // What lies outside must be free, and stay so.
        let outside = [
            Span::new(span.start, span.end.min(window.start)),
            Span::new(span.start.max(window.end), span.end),
        ];
        let mut held = Vec::new();
        for part in outside {
            if part.length() == 0 {
                continue;
            }
            if !is_hole(part) {
                for part in held {
                    unmap_outside(part);
                }
                return call(flags);
            }
            held.push(part);
        }
        self.evict(span);
        let mapped = call(flags & !libc::MAP_FIXED_NOREPLACE | libc::MAP_FIXED);
        if mapped.is_ok() {
            self.claim(span);
        } else {
            for part in held {
                unmap_outside(part);
            }
            self.look_again(span);
        }
        mapped
    }

    /// Gives the window up: all that is not the program's goes.
    fn step_aside(&mut self) {
        STAGE.store(Stage::Aside as u32, Ordering::Release);
        self.relieve();
        for gap in self.window.gaps(self.window.span()) {
            let _ = kernel::munmap(gap.start, gap.length());
        }
        // What is live is the program's and the kernel's now: like any other map.
        END.store(0, Ordering::Relaxed);
        START.store(0, Ordering::Relaxed);
    }
}

fn unmap_outside(part: Span) {
    let _ = kernel::munmap(part.start, part.length());
}

/// Passes everything through from now on, with nothing reserved.
pub(crate) fn step_aside() {
    match stage() {
        s if s == Stage::Serving as u32 => {
            if let Err(why) = locked(Arena::step_aside) {
                refused(why);
                abandon();
            }
        }
        _ => {
            // Before the first map there is nothing to give up.
            let _ = STAGE.compare_exchange(
                Stage::Idle as u32,
                Stage::Aside as u32,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }
}

/// munmap(2).
#[inline]
pub(crate) fn munmap(address: usize, length: usize) -> Result<()> {
    match concerns(address, length) {
        None => kernel::munmap(address, length)?,
        Some(span) => unmap_ours(span)?,
    }
    files::unmapped(address, length);
    Ok(())
}

fn unmap_ours(span: Span) -> Result<()> {
    let done = locked(|arena| {
        if !arena.window.beside_changed(span) && arena.window.take(span) {
            if access(span, libc::PROT_NONE).is_ok() {
                arena.put_away(span);
                return Ok(());
            }
            arena.window.enliven(span);
        }
        arena.unmap(span)
    });
    match done {
        Ok(done) => done,
        Err(why) => {
            refused(why);
            let inside = span.with(window());
            if inside.length() == 0 {
                return kernel::munmap(span.start, span.length());
            }
            unmap_around(span, inside)?;
            match reserve_over(inside) {
                Ok(()) => note(Kind::Released, inside),
                // As in `Arena::unmap`.
                Err(Errno(libc::ENOMEM)) => {
                    kernel::munmap(inside.start, inside.length())?;
                    note(Kind::Changed, inside);
                }
                Err(errno) => return Err(errno),
            }
            Ok(())
        }
    }
}

/// Unmaps what of `span` is not `inside`.
fn unmap_around(span: Span, inside: Span) -> Result<()> {
    // The end first: that is where a range can be none at all, and then nothing may have changed.
    for part in [
        Span::new(inside.end, span.end),
        Span::new(span.start, inside.start),
    ] {
        if part.length() > 0 {
            kernel::munmap(part.start, part.length())?;
        }
    }
    Ok(())
}

impl Arena {
    /// Unmaps what the program says, whole maps or not, in the window or around it.
    fn unmap(&mut self, span: Span) -> Result<()> {
        let inside = span.with(self.window.span());
        if inside.length() == 0 {
            // Beyond the window's end: what is shrunk had grown across it.
            return kernel::munmap(span.start, span.length());
        }
        unmap_around(span, inside)?;
        for live in self.window.live(inside) {
            match reserve_over(live) {
                Ok(()) => self.release(live),
                // More maps than may be: the kernel can still take one away. What comes there then is not known to us,
                // so it stays live.
                Err(Errno(libc::ENOMEM)) => {
                    kernel::munmap(live.start, live.length())?;
                    self.changed(live);
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
