//! Naive policies and second statements of the rules, against which every policy is tested.
//!
//! * [`Naive`]: a sorted list of areas, walked from end to end by each call. Slow, and too simple to
//!   be wrong.
//! * [`Differential`]: carries the same steps out on a policy and on [`Naive`], and stops at the first
//!   difference.
//! * [`Pair`]: the same against a reference with a state of its own, such as [`NaiveFreeAreaCache`] or [`Fragments`].
//! * [`best_fit`], [`linux_3_8`], [`linux_6`]: what these policies must answer, as rules over [`Naive`].
//! * [`Walk`]: random steps, good and bad, that a seed fixes.
//! * [`soak`]: all of the registry, each against what it is held to, for as long as one likes.

pub mod best_fit;
mod by_range;
mod differential;
mod free_area_cache;
pub mod linux_3_8;
pub mod linux_6;
mod naive;
mod pair;
pub mod soak;
mod walk;

use alloc::format;
use alloc::string::String;

pub use best_fit::Fragments;
pub use by_range::ByRange;
pub use differential::{Answer, Differential};
pub use free_area_cache::{Era, NaiveFreeAreaCache};
pub use naive::{Area, Naive};
pub use pair::Pair;
pub use walk::{Shape, Step, Walk};

fn same<T: PartialEq + core::fmt::Debug>(has: &T, right: &T) -> Result<(), String> {
    if has == right {
        Ok(())
    } else {
        Err(format!("{has:x?}, but {right:x?} is right"))
    }
}
