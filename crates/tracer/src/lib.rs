//! The kernel's trace events: captured through tracefs, decoded by the formats that the kernel
//! itself gives, and made into a trace.
//!
//! | module | what |
//! |---|---|
//! | [`format`] | which fields an event has, and where (`events/*/*/format`) |
//! | [`page`] | pages of the ring buffer (`trace_pipe_raw`) |
//! | [`print`] | names of flags and states, from an event's `print fmt` |
//! | [`symbols`] | names of kernel functions (`/proc/kallsyms`) |
//! | [`capture`] | an instance of tracefs of our own, its pages into a spool |
//! | [`events`] | which events are captured |
//! | [`decode`] | records become events of a trace |
//! | [`description`] | what must be known of a capture to read its pages later |
//! | [`perf`] | records of perf: scheduling without root, samples |
//! | [`layout`] | what was mapped when the capture began, as events |
//! | [`spool`] | the folder of pages and description |
//! | [`counters`] | numbers that are read from time to time: mappings, switches, pressure |
//! | [`recording`] | recording without tracefs: waits by BPF, or switches by perf, and counters |
//! | [`trace`] | all that was captured as one trace |
//! | [`waits`] | waits that BPF programs record: into the spool, and out of it |
//! | [`black_box`] | the last seconds of waits in memory, until something has happened |
//!
//! All but the capture and the counters is pure (names of functions are read from the files that [`perf::ElfNames`] is
//! told): bytes in, events out. What is wrong with the bytes is an error or a
//! `missing` with its name and place, never a panic.

pub mod black_box;
pub mod capture;
pub mod counters;
pub mod decode;
pub mod description;
mod error;
pub mod events;
mod filter;
pub mod format;
mod growing;
pub mod layout;
pub mod page;
pub mod perf;
pub mod print;
pub mod recording;
pub mod spool;
pub mod symbols;
pub mod trace;
pub mod waits;

pub use error::{Error, Result};
