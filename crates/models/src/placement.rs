//! Memory events through placement policies, side by side.
//!
//! ```text
//! events -> Compiler -> Batch (64 Ki operations) -> every allocator in turn, timed -> rows
//! ```
//!
//! * [`operation`]: events become compact operations, so that making events is outside of what is
//!   timed, and a stream that makes no sense is refused with the event's index.
//! * [`allocator`]: what can carry operations out: a policy, a peer's allocator, or [`Driver`], which
//!   decides nothing and shows what the loop itself costs.
//! * [`execution`]: one allocator with its slots, counts and limits.
//! * [`mod@experiment`]: all allocators on one workload at one N, interleaved, repeated, and the rows of it.
//! * [`mod@growth`]: how rows grow over N. [`mod@mail`]: the model held against mail 000.

pub mod allocator;
pub mod execution;
pub mod experiment;
pub mod growth;
pub mod mail;
pub mod operation;
pub mod rows;

pub use allocator::{Allocator, Driver, Entry, Scene, Start};
pub use experiment::{Experiment, Meter, ReplayError, Settings};
pub use growth::growth;
pub use operation::{Batch, Compiler, StreamError};

#[cfg(test)]
mod tests;
