//! What every policy is held against.
//!
//! * [`Naive`]: a sorted list of areas, walked from end to end by each call. Slow, and too simple to
//!   be wrong.
//! * [`Differential`]: carries the same steps out on a policy and on [`Naive`], and stops at the first
//!   difference.
//! * [`Walk`]: random steps, good and bad, that a seed fixes.
//! * [`best_fit`], [`linux_6`]: what these policies must answer, as rules over [`Naive`].

pub mod best_fit;
mod differential;
pub mod linux_6;
mod naive;
mod walk;

pub use best_fit::{Fragments, alike};
pub use differential::{Answer, Differential};
pub use naive::{Area, Naive};
pub use walk::{Shape, Step, Walk};
