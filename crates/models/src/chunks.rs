//! Which physical pages a buffer gets, and what getting them costs: a model of the kernel's memory.
//!
//! ```text
//! Scenario -> Machine <- policy (stopgap-chunks) asks for chunks
//!             | slow_path: watermarks, then compaction and reclaim as the kernel's version has them
//!             | buddy: the pages     others: who takes and frees pages meanwhile
//!             Counts x Costs = time, by cause
//! ```
//!
//! * [`buddy`]: the memory itself: free lists, migrate types, watermarks.
//! * [`machine`]: the memory, a kernel and its other tasks: buffers are built there.
//! * [`kernel`], [`watermarks`]: whose rules, and how much has to stay free.
//! * `slow_path`, `reclaim`, [`compaction`]: what an allocation goes through when nothing suitable is free.
//! * [`walkers`], [`bystanders`]: other tasks that take pages meanwhile, and those that need large blocks.
//! * [`cost`]: what the work costs. [`scenario`]: where it begins.
//! * [`experiment`]: the same buffers by every policy, and the rows of it.

pub mod buddy;
pub mod bystanders;
pub mod compaction;
pub mod cost;
pub mod experiment;
pub mod faults;
pub mod kernel;
pub mod machine;
mod others;
mod reclaim;
pub mod scenario;
mod slow_path;
pub mod walkers;
pub mod watermarks;
mod zone;

#[cfg(test)]
mod tests;
