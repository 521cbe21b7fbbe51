//! Traces that a builder writes, with answers that are known.

mod builder;
mod states;
