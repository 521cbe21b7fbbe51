//! What the threads share, or do not.

use std::sync::{Mutex, PoisonError};

use stopgap_models::placement::contender::ByRange;
use stopgap_models::placement::{Contender, Driver, Start};
use stopgap_placement::{FreeError, PlaceError, Policy, Range, Request, Shared, Space, Stopgap};

use super::run::{Load, Took, run};

/// What a run's threads place with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    /// A driver a thread: reading operations and slots, and nothing else. What the machine gives a
    /// second thread.
    Driver,
    /// A `Stopgap` a thread, and no lock.
    Apart,
    /// One [`Shared`] for all.
    Shared,
    /// One `Stopgap` for all, under a lock.
    Mutex,
}

impl Front {
    pub(super) const ALL: [Front; 4] = [Front::Driver, Front::Apart, Front::Shared, Front::Mutex];

    pub(super) fn name(self) -> &'static str {
        match self {
            Front::Driver => "driver alone",
            Front::Apart => "a Stopgap a thread",
            Front::Shared => "Shared",
            Front::Mutex => "Mutex<Stopgap>",
        }
    }

    /// Whether a thread can wait for another: one that cannot is off its CPU only for others' sake.
    pub(super) fn waits(self) -> bool {
        matches!(self, Front::Shared | Front::Mutex)
    }

    /// A run on an empty `space`, with a thread for each of `loads` on the CPU of that index.
    pub(super) fn run(self, space: Space, loads: &[Load], cpus: &[u32]) -> Result<Took, String> {
        match self {
            Front::Driver => run(loads, cpus, Driver::default),
            Front::Apart => run(loads, cpus, || ByRange(Stopgap::new(space))),
            Front::Shared => {
                let shared = Shared::new(space);
                run(loads, cpus, || OnShared(&shared))
            }
            Front::Mutex => {
                let stopgap = Mutex::new(Stopgap::new(space));
                run(loads, cpus, || OnMutex(&stopgap))
            }
        }
    }
}

fn range(handle: Start, size: u64) -> Range {
    Range::new(handle.address(), handle.address() + size)
}

struct OnShared<'a>(&'a Shared);

impl Contender for OnShared<'_> {
    type Handle = Start;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Start, PlaceError> {
        Ok(Start::new(self.0.place(request)?.start))
    }

    #[inline]
    fn free(&mut self, handle: Start, size: u64) -> Result<(), FreeError> {
        self.0.free(range(handle, size))
    }

    fn start(&self, handle: Start) -> u64 {
        handle.address()
    }
}

struct OnMutex<'a>(&'a Mutex<Stopgap>);

impl Contender for OnMutex<'_> {
    type Handle = Start;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Start, PlaceError> {
        let mut stopgap = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Start::new(stopgap.place(request)?.start))
    }

    #[inline]
    fn free(&mut self, handle: Start, size: u64) -> Result<(), FreeError> {
        let mut stopgap = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stopgap.free(range(handle, size))
    }

    fn start(&self, handle: Start) -> u64 {
        handle.address()
    }
}
