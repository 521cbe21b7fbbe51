//! Records of perf: who runs (without tracefs, and without root), and samples of what runs.
//!
//! ```text
//! kernel::linux::perf::Recorder -> perfN.raw of each CPU -> record -> cpu (in order) -> records (events)
//!                                                                tasks, mappings -> stacks <- names
//! ```

mod cpu;
mod description;
pub mod go;
mod mappings;
mod names;
pub mod record;
mod records;
mod stacks;
mod tasks;

pub use description::{Mapping, PerfDescription};
pub use mappings::File;
pub(crate) use mappings::Mappings;
pub(crate) use names::open_mapped;
pub use names::{ElfNames, Names, NoNames};
pub(crate) use records::losses_of;
pub use records::{Records, records_of};
pub(crate) use stacks::Stacks;

#[cfg(test)]
mod tests;
