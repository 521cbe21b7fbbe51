//! The vocabulary that every other crate shares.
//!
//! * [`units`] and [`range`]: quantities and address ranges, with their unit in the type.
//! * [`machine`]: what a machine *is* ([`machine::Environment`]) and what it *shows* before
//!   any load ([`machine::Now`]). `kernel` reads them, `stats` keeps them, `report` prints them.
//! * [`memory`]: memory events (map, unmap, protect, touch), the input of probes and models alike.
//! * [`workload`]: the built-in workloads, each one definition: an iterator of memory events.
//! * [`roundtrip`]: a client and a server that talk, as the probe measures and the model runs them.
//! * [`reclaim`]: the loads that make memory short, for the probe and the model.
//! * [`snapshot`]: physical memory as it lies at one moment, and its file.
//! * [`wait`]: one interval in which a thread was off its CPU: what every capture makes and every explanation reads.
//! * [`question`]: the four questions; [`words`]: one word for each thing to choose from.
//! * [`bounded`]: reads what must be in memory as a whole, up to a limit.
//! * [`date`]: dates in UTC.
//! * [`order`]: sorts rows with one sort for all types of rows.
//! * [`random`]: the pinned random stream behind every printed seed.
//!
//! This crate knows nothing of the running system: no clock, no file, no call. What it reads and
//! writes comes and goes through `std::io` traits.

pub mod bounded;
pub mod date;
pub mod machine;
pub mod memory;
pub mod order;
pub mod question;
pub mod random;
pub mod range;
pub mod reclaim;
pub mod roundtrip;
pub mod snapshot;
pub mod units;
pub mod wait;
pub mod words;
pub mod workload;
