//! Events through policies: the same workload or recorded trace that a probe carries out on the
//! running kernel, carried out on a model.
//!
//! * [`placement`]: memory events through placement policies.
//! * [`chunks`]: buffers from a model of the kernel's physical memory.
//! * [`reclaim`]: memory that is held, and who has to walk past it.
//! * [`roundtrip`]: a client and a server by two kernels' rules of waking up.
//!
//! This crate is pure: it knows no clock and no file. Whoever times a replay hands a clock in.

pub mod chunks;
pub mod placement;
pub mod reclaim;
pub mod roundtrip;
