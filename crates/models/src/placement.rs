//! Memory events through placement policies, side by side.
//!
//! ```text
//! events -> Compiler -> Batch (64 Ki operations) -> every contender in turn, timed -> rows
//! ```
//!
//! * [`operation`]: events become compact operations, so that making events is outside of what is
//!   timed, and a stream that makes no sense is refused with the event's index.
//! * [`contender`]: what can carry operations out: a policy, a peer's allocator, or [`Driver`], which
//!   decides nothing and shows what the loop itself costs.
//! * [`lane`]: one contender with its slots, counts and limits.
//! * [`mod@rung`]: all contenders on one workload at one N, interleaved, repeated, and the rows of it.
//! * [`mod@growth`]: how rows grow over N. [`mod@mail`]: the model held against mail 000.

pub mod contender;
pub mod growth;
pub mod lane;
pub mod mail;
pub mod operation;
pub mod rows;
pub mod rung;

pub use contender::{Contender, Driver, Entry, Scene, Start};
pub use growth::growth;
pub use operation::{Batch, Compiler, StreamError};
pub use rung::{Meter, ReplayError, Rung, Settings};

#[cfg(test)]
mod tests;
