//! The running kernel.

mod clock;
mod files;
mod holds;
mod memory;
mod tasks;

/// The running kernel. It has no state of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;
