//! Mappings outside the window, given out where the window could not be used: a table without a lock.

use super::sync::{AtomicUsize, Ordering};

/// Places in the table: more such mappings are refused.
pub(crate) const PLACES: usize = if cfg!(loom) { 2 } else { 4096 };

/// No mapping starts there, so it marks a place whose length is being written.
const RESERVED: usize = 1;

/// One place: a mapping's start, or 0.
pub(crate) struct Stray {
    start: AtomicUsize,
    bytes: AtomicUsize,
}

#[cfg(loom)]
impl Stray {
    pub(crate) fn new() -> Stray {
        Stray {
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }
}

pub(crate) struct Strays<'a>(&'a [Stray]);

impl<'a> Strays<'a> {
    pub(crate) fn new(places: &'a [Stray]) -> Strays<'a> {
        Strays(places)
    }

    /// Notes a mapping; false where there is no place.
    pub(crate) fn add(&self, start: usize, bytes: usize) -> bool {
        let free = |place: &&Stray| {
            let word = &place.start;
            word.load(Ordering::Relaxed) == 0
                && word
                    .compare_exchange(0, RESERVED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        let place = self.0.iter().find(free);
        place.is_some_and(|place| {
            place.bytes.store(bytes, Ordering::Relaxed);
            place.start.store(start, Ordering::Release);
            true
        })
    }

    /// The bytes of the mapping that starts at `start`.
    pub(crate) fn bytes(&self, start: usize) -> Option<usize> {
        self.find(start)
            .map(|place| place.bytes.load(Ordering::Relaxed))
    }

    fn find(&self, start: usize) -> Option<&Stray> {
        let mut places = self.0.iter();
        // A place's number is 0, a page's multiple, or RESERVED, which `start` is not.
        places.find(|place| start > RESERVED && place.start.load(Ordering::Acquire) == start)
    }

    /// Forgets the mapping of `bytes` that starts at `start`: of several that do, one succeeds.
    pub(crate) fn remove(&self, start: usize, bytes: usize) -> bool {
        self.find(start).is_some_and(|place| {
            let word = &place.start;
            place.bytes.load(Ordering::Relaxed) == bytes
                && word
                    .compare_exchange(start, 0, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Those noted now.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.0.iter().filter_map(|place| {
            let start = place.start.load(Ordering::Acquire);
            (start > RESERVED).then(|| (start, place.bytes.load(Ordering::Relaxed)))
        })
    }
}
