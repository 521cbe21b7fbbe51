//! The running kernel.

mod clock;
mod command;
mod devices;
mod files;
mod holds;
mod ipc;
mod mapping_count;
mod memory;
pub mod perf;
mod pressure_trigger;
mod realtime;
mod switches;
mod tasks;
pub(crate) mod taskstats;
mod trace_pipe;
mod trace_reader;
mod x11;
mod xvfb;

pub use command::{Child, Conditions, Ended, Guard, Held, Watched};
pub use mapping_count::MappingCount;
pub(crate) use perf::Ring;
pub use pressure_trigger::PressureTrigger;
pub use trace_pipe::TracePipe;
pub use trace_reader::TraceReader;

/// The running kernel. It has no state of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

impl Linux {
    /// From now on this process, and what it starts, runs where others leave the CPU (nice 19).
    ///
    /// # Errors
    /// As setpriority(2).
    pub fn be_nice(self) -> crate::Result<()> {
        rustix::process::setpriority_process(None, 19)
            .map_err(|e| crate::Error::call("setpriority", "this process", e))
    }
}
