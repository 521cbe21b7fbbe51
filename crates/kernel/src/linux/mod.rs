//! The running kernel.

mod clock;
mod files;
mod holds;
mod ipc;
mod memory;
mod switches;
mod tasks;

pub(crate) use switches::Ring;

/// The running kernel. It has no state of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;
