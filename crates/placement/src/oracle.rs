//! What every policy is held against.
//!
//! * [`Naive`]: a sorted list of areas, walked from end to end by each call. Slow, and too simple to
//!   be wrong.
//! * [`Differential`]: carries the same steps out on a policy and on [`Naive`], and stops at the first
//!   difference.
//! * [`linux_3_8`]: which address Linux 3.8 to 6.0 choose, and a soak of any length on it.
//! * [`Walk`]: random steps, good and bad, that a seed fixes.

mod differential;
pub mod linux_3_8;
mod naive;
mod walk;

pub use differential::{Answer, Differential};
pub use naive::{Area, Naive};
pub use walk::{Shape, Step, Walk};
