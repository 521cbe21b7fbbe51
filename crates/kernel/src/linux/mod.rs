//! The running kernel.

mod clock;
mod command;
mod files;
mod holds;
mod ipc;
mod mapping_count;
mod memory;
pub mod perf;
mod switches;
mod tasks;
mod trace_pipe;

pub use command::{Child, Ended, Held, Watched};
pub use mapping_count::MappingCount;
pub(crate) use perf::Ring;
pub use trace_pipe::TracePipe;

/// The running kernel. It has no state of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;
