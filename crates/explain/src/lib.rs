//! From a trace's events to causes. Pure: events in, [`Findings`] out; no file, no clock.
//!
//! ```text
//! events -> Explainer -> thread      state, call and what it is in the middle of
//!                     -> chain       each wait, followed to its cause; idle or a loss
//!                     -> switch_cause the cause of each switch-out
//!                     -> roundtrip    client and server, switches per round trip
//!                     -> windows     where the time of frames, requests and round trips went (request)
//!                     -> operation    calls, faults and computing: their time by cause (why, interval, stack)
//!                     -> memory       mappings over time, reclaim
//!                     -> short        many short calls that are a stall together
//!                     -> profile      samples by thread, state and function
//!           finish() -> findings     the record, with verdict and advice
//!                          -> around   the cause of one stall of it
//! events -> Exchanges -> exchange     how each pair talks, for a model of it (a second pass)
//! ```
//!
//! One pass: each event is looked at once and dropped. Memory grows with the threads that live at a time (about 1 KiB
//! each), task names, distinct causes and block requests in flight, but not with the number of events.
//!
//! Unknown times and counts stay unknown: a thread's time before its first event, a call whose begin was lost, events
//! that were not captured. Each is `unknown`, or `None` with a line in `missing`, never 0.

mod advice;
pub mod around;
mod call;
pub mod chain;
mod exchange;
mod explainer;
mod findings;
mod interval;
mod lacks;
mod memory;
mod operation;
mod profile;
mod recent;
mod request;
mod roundtrip;
mod short;
mod space;
mod spread;
mod stack;
mod switch_cause;
mod tasks;
mod thread;
mod tids;
mod timeline;
mod verdict;
mod why;
mod windows;

pub use exchange::{Exchange, Exchanges};
pub use explainer::Explainer;
pub use request::Request;
pub use stopgap_stats::explain::Findings;

/// Options of an explanation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// How many slow operations to keep.
    pub top: usize,
    /// The marker of a frame: a mark's name, the name of a system call (at its begin), or the word of a kind of
    /// event.
    pub frame_marker: Option<String>,
    /// The begin and the end of a request.
    pub request: Option<Request>,
}

/// Share of lost events above which the verdict is `inconclusive`. Figures of switches must be right within a few per
/// cent.
pub const LOSS_LIMIT: f64 = 0.01;

#[cfg(test)]
mod tests;
