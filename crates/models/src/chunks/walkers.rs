//! Other tasks that want every page that becomes free.

use thiserror::Error;

/// Programs that walk through more memory than there is, over and over.
///
/// As long as more than the low mark is free, each takes a page every [`Walkers::fault_ns`], as a single movable page
/// that can be reclaimed again. At or below the low mark they change nothing: there kswapd and they themselves reclaim
/// for each page that they take another, so the level stays. Between two buffers, seconds or minutes, they go
/// through all of memory: every page that was free has been taken and others were freed, one here and one there,
/// as many as the min mark, which is where four of them hold a machine that has one kswapd.
///
/// So a task that reclaims for itself alone, page by page, loses nothing to them: it never comes above the low mark.
/// One that reclaims many pages for one large block does, and loses those that come in while it still reclaims
/// and compacts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Walkers {
    /// How many.
    pub tasks: u32,
    /// What one needs for a page that it can have at once, in nanoseconds: reading its content from swap, going on
    /// to the next.
    pub fault_ns: f64,
}

impl Walkers {
    /// Mail 001's "4 userspace programs each walking through 350 Megs of memory over and over". From the time
    /// that they need for a page nothing is known; assumed are six times what reclaiming one costs, so that they take
    /// two pages above the low mark for every three that one task reclaims. The effect of others stands at the
    /// scenario `thread`.
    pub const THREAD: Walkers = Walkers {
        tasks: 4,
        fault_ns: 6.0 * 244_000.0,
    };

    /// # Errors
    /// [`WalkersError`] where a page takes them no time at all, or none that is a number.
    pub fn check(&self) -> Result<(), WalkersError> {
        let fault_ns = self.fault_ns;
        if self.tasks == 0 || (fault_ns.is_finite() && fault_ns > 0.0) {
            return Ok(());
        }
        Err(WalkersError { fault_ns })
    }

    /// Pages that all together take in `ns`.
    pub(super) fn pages(&self, ns: f64) -> f64 {
        f64::from(self.tasks) * ns / self.fault_ns
    }
}

/// A time that no page takes.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("walkers that take a page in {fault_ns} ns: it has to be a finite time above 0")]
pub struct WalkersError {
    /// The text that was given.
    pub fault_ns: f64,
}
