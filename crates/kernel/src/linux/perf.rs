//! perf_event_open(2): what the kernel tells of threads without tracefs, and without root.
//!
//! Software events alone: records of switches, forks, names, ends and mappings, which an event that
//! counts nothing carries, and samples of the CPU clock.

pub(super) mod attr;
mod recorder;

pub(crate) use attr::Ring;
pub use recorder::{Recorder, Wanted};
