//! Slow models that tests compare with [`Buddy`](super::Buddy).
//!
//! * [`Naive`]: says of each page whether it is free, and derives all else from that anew.
//! * [`Pair`]: carries the same [`Step`]s out on both, and stops at the first difference.
//! * [`soak()`]: random steps, good and bad, for as long as one likes.

mod naive;
mod pair;
mod soak;

pub use naive::Naive;
pub use pair::{Pair, Step};
pub use soak::{Met, soak};
