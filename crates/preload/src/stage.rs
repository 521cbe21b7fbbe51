//! Whether calls are served, readable without the lock.
//!
//! ```text
//! idle --first map--> serving: maps get places
//!      \-----------> aside: there can be no room, so every call goes to the kernel as it is
//! ```

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use crate::books;
use crate::kernel::{self, PAGE};
use crate::report::{Count, count};
use crate::room::{HUGE, Span};

/// After this many hints that the kernel did not take, no more are given: somebody else uses the room.
const MOST_MISSED: u32 = 64;
const NO_ADVICE: i32 = -1;

const IDLE: u32 = 0;
const SERVING: u32 = 1;
const ASIDE: u32 = 2;

static STAGE: AtomicU32 = AtomicU32::new(IDLE);
/// The room; 0 and 0 where there is none.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Hints that were not taken.
static MISSED: AtomicU32 = AtomicU32::new(0);
/// Whether freed maps are kept.
static KEEPING: AtomicBool = AtomicBool::new(false);
/// Advice about huge pages for each large map.
static ADVICE: AtomicI32 = AtomicI32::new(NO_ADVICE);

/// How calls are served once there is a room.
pub(crate) struct Serving {
    pub(crate) room: Span,
    /// Whether freed maps are kept.
    pub(crate) keeps: bool,
    /// Advice about huge pages for each large map.
    pub(crate) advice: Option<i32>,
}

/// Returns the stage in a word, for the report.
pub(crate) fn state() -> &'static str {
    match STAGE.load(Ordering::Relaxed) {
        IDLE => "idle",
        SERVING => "serving",
        _ => "aside",
    }
}

pub(crate) fn is_idle() -> bool {
    STAGE.load(Ordering::Relaxed) == IDLE
}

pub(crate) fn is_serving() -> bool {
    STAGE.load(Ordering::Relaxed) == SERVING
}

/// Leaves the idle stage: serves, or stands aside where there is no room. The caller holds the lock.
pub(crate) fn begin(serving: Option<&Serving>) {
    let Some(serving) = serving else {
        STAGE.store(ASIDE, Ordering::Release);
        return;
    };
    KEEPING.store(serving.keeps, Ordering::Relaxed);
    ADVICE.store(serving.advice.unwrap_or(NO_ADVICE), Ordering::Relaxed);
    START.store(serving.room.start, Ordering::Relaxed);
    END.store(serving.room.end, Ordering::Relaxed);
    STAGE.store(SERVING, Ordering::Release);
}

/// Returns whether maps may be placed, and opens the room when asked for the first time.
#[inline]
pub(crate) fn serving() -> bool {
    match STAGE.load(Ordering::Acquire) {
        SERVING => MISSED.load(Ordering::Relaxed) < MOST_MISSED,
        IDLE => books::open(),
        _ => false,
    }
}

/// Returns whether freed maps may be kept.
#[inline]
pub(crate) fn keeping() -> bool {
    KEEPING.load(Ordering::Relaxed)
}

pub(crate) fn stop_keeping() {
    KEEPING.store(false, Ordering::Relaxed);
}

/// Returns the pages of a range if it shares any with the room. The kernel judges what is no range at all.
#[inline]
pub(crate) fn in_room(address: usize, length: usize) -> Option<Span> {
    let end = END.load(Ordering::Relaxed);
    if address >= end || length == 0 {
        return None;
    }
    let start = address - address % PAGE;
    let last = address
        .checked_add(length)?
        .checked_next_multiple_of(PAGE)?;
    (START.load(Ordering::Relaxed) < last).then_some(Span::new(start, last))
}

/// Counts a hint that the kernel did not take: somebody's map lies there, unknown to the books.
pub(crate) fn missed() {
    count(Count::missed, 1);
    MISSED.fetch_add(1, Ordering::Relaxed);
}

/// Advises the kernel about huge pages for a map that is large enough, where `STOPGAP_ADVICE` asks for it.
#[inline]
pub(crate) fn advise(address: usize, length: usize) {
    let advice = ADVICE.load(Ordering::Relaxed);
    if advice != NO_ADVICE && length >= HUGE {
        let _ = kernel::madvise(address, length.next_multiple_of(PAGE), advice);
    }
}
