//! Do held buffers make everyone else wait when memory is short?
//!
//! Two experiments, both in guarded children:
//!
//! * the **cost** of each way to hold memory, a page: to take, until it is resident, until it
//!   is off the scanned lists, for each later pass of reclaim, to release. Needs no
//!   privilege; within `RLIMIT_MEMLOCK` without it;
//! * the **load**, which needs root and a memory cgroup: pages scanned for each page
//!   reclaimed, and what that costs bystanders, beside a set that is held and beside none.
//!
//! Words: *locked* is mlock and `SHM_LOCK` (it may still migrate), *pinned* is page references.

mod cost;
mod evidence;
mod gather;
pub mod gem_syslatency;
mod judge;
mod parameters;
mod pressure;
mod run;
mod set;
mod shrinker;
mod threads;

pub use parameters::{Mode, PressureParameters, Reclaim};
pub use pressure::{Hold, Scanned, beside_held};
pub use stopgap_kernel::holds::Way;

#[cfg(test)]
mod tests;
