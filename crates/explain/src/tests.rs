//! Traces that a builder writes, with answers that are known.

mod builder;
mod exchange;
mod lacks;
mod memory;
mod one_sided;
mod roundtrips;
mod short;
mod slow;
mod states;
mod windows;
