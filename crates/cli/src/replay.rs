//! `stopgap replay QUESTION`: what if.

pub(crate) mod chunks;
mod measured;
mod memory_events;
mod placement;
pub(crate) mod reclaim;
pub(crate) mod roundtrip;

pub use placement::run as placement;

pub use crate::args::{ReplayPlacement as Flags, count};
