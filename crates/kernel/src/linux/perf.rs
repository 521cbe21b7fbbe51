//! perf_event_open(2): what the kernel tells of threads without tracefs, and without root.
//!
//! Records of switches, forks, names, ends and mappings, which an event that counts nothing carries; samples of the CPU clock; and counts of
//! instructions and system calls.

pub(super) mod attr;
mod counter;
mod recorder;

pub(crate) use attr::Ring;
pub use counter::Counter;
pub use recorder::{Recorder, Wanted};
