//! What the lock protects: the room, the freed maps that are kept, and the changes that wait to be applied.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;

use crate::inject;
use crate::kept::{Kept, Map, Runs};
use crate::kernel::{self, PAGE};
use crate::lock::Lock;
use crate::notes::{Kind, Notes};
use crate::report::{Count, count};
use crate::room::{Room, Span};
use crate::setup;
use crate::stage::{self, Serving, keeping};

/// A freed map with fewer resident pages is not kept: the two changes of its protection cost what they save.
const LEAST_RESIDENT: usize = 2;
pub(crate) static LOCK: Lock = Lock::new();
static NOTES: Notes = Notes::new();

struct Locked(UnsafeCell<Books>);

// SAFETY: only the holder of `LOCK` looks inside.
unsafe impl Sync for Locked {}

static BOOKS: Locked = Locked(UnsafeCell::new(Books {
    room: Room::closed(),
    kept: Kept::new(),
    resident: Vec::new(),
}));

/// See the module.
pub(crate) struct Books {
    room: Room,
    kept: Kept,
    /// For mincore(2).
    resident: Vec<u8>,
}

/// The lock is taken: by another thread, or by this one below a signal handler.
pub(crate) struct Busy;

/// Opens the room unless another thread has done so, and returns whether there is one.
#[cold]
pub(crate) fn open() -> bool {
    let opened = locked(|books| {
        if stage::is_idle() {
            stage::begin(books.open().as_ref());
        }
        stage::is_serving()
    });
    opened.unwrap_or(false)
}

/// Works on the books, after the changes that could not be applied when they were made.
pub(crate) fn locked<T>(work: impl FnOnce(&mut Books) -> T) -> Result<T, Busy> {
    if !LOCK.enter() {
        return Err(Busy);
    }
    // SAFETY: the lock is held.
    let books = unsafe { &mut *BOOKS.0.get() };
    books.apply_notes();
    let result = work(books);
    LOCK.leave();
    Ok(result)
}

/// Applies a change to the books, now or when the lock is next taken.
pub(crate) fn apply(kind: Kind, span: Span) {
    if locked(|books| books.apply(kind, span)).is_err() {
        note(kind, span);
    }
}

/// Leaves a change to the next holder of the lock.
#[cold]
pub(crate) fn note(kind: Kind, span: Span) {
    count(Count::busy, 1);
    if !NOTES.leave(kind, span) {
        // Without it the books are wrong. For places that is harmless, for kept pages it is not.
        stage::stop_keeping();
    }
}

/// Unmaps all that is kept, and keeps nothing any more. Where the lock is taken, what is kept stays as it is, without
/// access, and is never used again: nobody could say then what the program has mapped over it.
#[cold]
pub(crate) fn keep_no_more() {
    if keeping() {
        let _ = locked(Books::drop_kept);
        stage::stop_keeping();
    }
}

/// Prepares for a map that the program puts into `span`: unmaps what is kept there.
pub(crate) fn make_way(span: Span) {
    if keeping() && locked(|books| books.evict(span)).is_err() {
        keep_no_more();
    }
}

/// Prepares for a change of the maps in `span` that leaves them where they are.
pub(crate) fn change(span: Span) {
    if keeping() && locked(|books| books.change(span)).is_err() {
        note(Kind::Changed, span);
    }
}

/// Unmaps all that is kept, because the kernel had no memory or no room. Returns whether anything was.
#[cold]
pub(crate) fn relieve() -> bool {
    let relieved = keeping() && locked(Books::drop_kept).unwrap_or(false);
    if relieved && setup::limited() {
        stage::stop_keeping();
    }
    count(Count::relieved, usize::from(relieved));
    relieved
}

impl Books {
    /// Opens the room. `None` where there can be none.
    fn open(&mut self) -> Option<Serving> {
        let settings = setup::settings()?;
        let span = setup::room(settings.window)?;
        if !self.room.open(span) {
            return None;
        }
        let keeps = settings.keep > 0 && !setup::limited();
        if keeps {
            self.kept.allow(settings.keep);
            self.resident.resize(crate::calls::LIMIT / PAGE, 0);
        }
        Some(Serving {
            room: span,
            keeps,
            advice: settings.advice,
        })
    }

    fn apply_notes(&mut self) {
        while NOTES.any() {
            let Some((kind, span)) = NOTES.first() else {
                return;
            };
            self.apply(kind, span);
        }
    }

    fn apply(&mut self, kind: Kind, span: Span) {
        let span = span.with(self.room.span());
        if span.length() == 0 {
            return;
        }
        match kind {
            Kind::Released => {
                self.forget_kept(span);
                if self.room.release(span) && keeping() {
                    let around = self.room.around(span);
                    self.evict(around);
                }
            }
            Kind::Claimed => {
                self.forget_kept(span);
                self.room.claim(span);
                if keeping() {
                    let around = self.room.around(span);
                    self.evict(around);
                }
            }
            Kind::Changed => self.change(span),
        }
    }

    /// Returns a place for a map of `length` bytes, whole pages; with it a kept map that lies there.
    pub(crate) fn place(&mut self, length: usize) -> Option<(Span, Option<Map>)> {
        if keeping()
            && let Some(map) = self.kept.pop(length / PAGE)
        {
            self.room.enliven(map.span);
            return Some((map.span, Some(map)));
        }
        Some((self.room.place(length, keeping())?, None))
    }

    /// Unmaps what is kept in `span` or right beside it: the program is about to change something there, and a kept
    /// map that came back beside it would not be joined with it as a new map is.
    pub(crate) fn evict(&mut self, span: Span) {
        if keeping() {
            for map in self.kept.remove(span.wider()) {
                self.drop_map(map);
            }
        }
    }

    /// Marks what the program is about to change in `span`. Nothing is kept in it, nor beside a map that was changed.
    pub(crate) fn change(&mut self, span: Span) {
        let around = if self.room.changed(span) {
            self.room.around(span)
        } else {
            span
        };
        self.evict(around);
    }

    /// The program has mapped or unmapped `span`, where something kept may have been: unmaps what is left beside it.
    fn forget_kept(&mut self, span: Span) {
        if !keeping() {
            return;
        }
        for map in self.kept.remove(span) {
            for rest in [
                Span::new(map.span.start, map.span.end.min(span.start)),
                Span::new(map.span.start.max(span.end), map.span.end),
            ] {
                if rest.length() > 0 {
                    let _ = kernel::munmap(rest.start, rest.length());
                }
            }
            self.room.unplace(map.span);
        }
    }

    fn drop_map(&mut self, map: Map) {
        let _ = kernel::munmap(map.span.start, map.span.length());
        self.room.unplace(map.span);
    }

    /// Unmaps all that is kept. Returns whether anything was.
    pub(crate) fn drop_kept(&mut self) -> bool {
        let any = keeping() && !self.kept.is_empty();
        while any && let Some(map) = self.kept.oldest() {
            self.drop_map(map);
        }
        any
    }

    /// Keeps the map at `span`, which the program unmaps, if it is whole, was never changed, and has pages. Returns
    /// whether it is unmapped now, to the program's eyes.
    pub(crate) fn keep(&mut self, span: Span) -> bool {
        if !keeping() || self.room.beside_changed(span) || !self.room.take(span) {
            return false;
        }
        let without_access = inject::before()
            .and_then(|()| kernel::mprotect(span.start, span.length(), libc::PROT_NONE));
        if without_access.is_err() {
            self.room.enliven(span);
            return false;
        }
        let pages = span.length() / PAGE;
        // Looked at when nobody can change it any more.
        let bytes = &mut self.resident[..pages];
        let looked = inject::before().is_ok() && kernel::resident(span.start, bytes);
        let runs = if looked {
            Runs::of(bytes)
        } else {
            Runs::default()
        };
        if runs.pages() < LEAST_RESIDENT {
            if kernel::munmap(span.start, span.length()).is_err() {
                // The kernel needs a map more to split one, and may have none: its answer is the program's.
                let _ = kernel::mprotect(
                    span.start,
                    span.length(),
                    libc::PROT_READ | libc::PROT_WRITE,
                );
                self.room.enliven(span);
                return false;
            }
            self.room.unplace(span);
            count(Count::unmapped, 1);
            return true;
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
        self.kept.push(span, runs);
        count(Count::kept, 1);
        while let Some(old) = self.kept.too_many() {
            count(Count::evicted, 1);
            self.drop_map(old);
        }
        true
    }
}
