//! The contract that every policy keeps.
//!
//! A [`Space`] is a window of addresses and a page size. A policy places ranges in it: whole pages,
//! never overlapping, until they are freed. All numbers are bytes.
//!
//! * [`Policy::place`] answers a [`Request`] with a range that is aligned, within the limits and free,
//!   or says whether none *could* be given ([`PlaceError::Impossible`]: not even by an empty space),
//!   none is left ([`PlaceError::Exhausted`]) or the policy has no notion of what is asked
//!   ([`PlaceError::Lacks`]).
//! * [`Policy::free`] takes the range alone. What is not exactly a range that was given and is still
//!   held is refused, and nothing changes.
//! * No request makes a call panic, and after every call the invariants of [`Policy::check`] hold.

mod error;
mod request;
mod space;
mod statistics;

use alloc::string::String;

pub use error::{FreeError, Impossible, Lack, PlaceError};
pub use request::{Direction, Merge, Need, Request};
pub use space::{Range, Space, SpaceError};
pub use statistics::{Statistics, Work};

/// A way of choosing addresses.
pub trait Policy {
    /// The space that it fills.
    fn space(&self) -> Space;

    /// Chooses a range and takes it.
    ///
    /// # Errors
    /// [`PlaceError`]; nothing has changed then.
    fn place(&mut self, request: &Request) -> Result<Range, PlaceError>;

    /// Gives a range back: exactly one that [`Policy::place`] gave and that was not freed since.
    ///
    /// A policy that keeps VMAs ([`Policy::keeps_vmas`]) can no longer tell ranges apart that merged
    /// ([`Merge::With`]): of those it frees any part, as munmap(2) does, so long as all of it is taken.
    ///
    /// # Errors
    /// [`FreeError`]; nothing has changed then.
    fn free(&mut self, range: Range) -> Result<(), FreeError>;

    /// Whether it keeps VMAs, which merge and split, rather than ranges as they were given.
    fn keeps_vmas(&self) -> bool {
        false
    }

    /// Changes what `part` may merge with, as mprotect(2) does: VMAs are split at its ends and joined
    /// with neighbours that are now alike. All of `part` must be of ranges placed with
    /// [`Merge::With`]. To a policy that keeps no VMAs a protection is nothing: it does nothing.
    ///
    /// # Errors
    /// [`FreeError`], by the same words; nothing has changed then.
    fn protect(&mut self, part: Range, merge: Merge) -> Result<(), FreeError> {
        let _ = (part, merge);
        Ok(())
    }

    /// What it holds now. May walk everything: for the end of a run, not for every step.
    fn statistics(&self) -> Statistics;

    /// Returns counters of all steps so far. Cheap.
    fn work(&self) -> Work;

    /// Whether its structures are as they must be.
    ///
    /// # Errors
    /// The first thing that is wrong, with the addresses concerned.
    fn check(&self) -> Result<(), String>;
}
