//! `stopgap replay QUESTION`: what if.

mod placement;

pub use placement::run as placement;

pub use crate::args::{ReplayPlacement as Flags, count};
