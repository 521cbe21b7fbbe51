//! Traces that a builder writes, with answers that are known.

mod builder;
mod exchange;
mod memory;
mod roundtrips;
mod slow;
mod states;
