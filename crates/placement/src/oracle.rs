//! What every policy is held against.
//!
//! * [`Naive`]: a sorted list of areas, walked from end to end by each call. Slow, and too simple to
//!   be wrong.
//! * [`Differential`]: carries the same steps out on a policy and on [`Naive`], and stops at the first
//!   difference.
//! * [`Pair`]: the same against a reference with a state of its own, such as [`NaiveFreeAreaCache`].
//! * [`linux_3_8`]: which address Linux 3.8 to 6.0 choose, and a soak of any length on it.
//! * [`Walk`]: random steps, good and bad, that a seed fixes.
//! * [`best_fit`], [`linux_6`]: what these policies must answer, as rules over [`Naive`].

pub mod best_fit;
mod differential;
mod free_area_cache;
pub mod linux_6;
pub mod linux_3_8;
mod naive;
mod pair;
mod walk;

pub use best_fit::{Fragments, alike};
pub use differential::{Answer, Differential};
pub use free_area_cache::{Era, NaiveFreeAreaCache};
pub use naive::{Area, Naive};
pub use pair::Pair;
pub use walk::{Shape, Step, Walk};
