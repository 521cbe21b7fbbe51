//! Live experiments, one a question (and `wakeup`, which blames nobody), each through one contract:
//!
//! ```text
//! plan   -> what it will touch and use        (nothing is done; `--dry-run` prints it)
//! run    -> samples                           (the only part that reaches the system)
//! judge  -> the answer                        (pure: from samples alone)
//! ```
//!
//! A probe reaches the system through [`stopgap_kernel::System`] alone, so that the same code
//! runs against a fake kernel in tests. It works in guarded children, within a memory budget,
//! and writes every change of a setting into the journal first.

pub mod chunks;
pub mod contract;
mod load;
pub mod meter;
pub mod placement;
pub mod reclaim;
pub mod roundtrip;
pub mod wakeup;

pub use contract::{Context, Measured, Plan, Probe, ProbeError};
