//! From a trace's events to causes. Pure: events in, [`Findings`] out; no file, no clock.
//!
//! ```text
//! events -> Explainer -> thread      state, call and what it is in the middle of
//!                     -> chain       each wait, followed to who or what ended it; idle or a loss
//!                     -> switch_cause why each switch-out
//!                     -> roundtrip    who asks whom, switches a round trip
//!                     -> windows     frames, requests and round trips: where their time went (request)
//!                     -> operation    calls, faults and computing, time taken apart (why, interval, stack)
//!                     -> memory       mappings over time, reclaim
//!                     -> short        many short calls that are a stall together
//!                     -> profile      samples by thread, state and function
//!           finish() -> findings     the record, with verdict and advice
//!                          -> around   the cause of one stall of it
//! events -> Exchanges -> exchange     how each pair talks, for a model of it (a second pass)
//! ```
//!
//! One pass: events are looked at once and dropped. Memory grows with threads that live at a time (about 1 KiB
//! each), task names, distinct causes and block requests in flight, never with the number of events.
//!
//! What is not in a trace is not known. A thread's time before its first event, a call whose begin was lost, a count
//! of events that were not captured: each is `unknown`, or `None` with a line in `missing`, never 0.

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

/// What to look for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// How many slow operations to keep.
    pub top: usize,
    /// What marks a frame: a mark's name, a system call's (when it begins), or the word of a kind of event.
    pub frame_marker: Option<String>,
    /// What begins and what ends a request.
    pub request: Option<Request>,
}

/// Share of lost events above which the verdict is `inconclusive`: figures of switches must be right within
/// some per cent.
pub const LOSS_LIMIT: f64 = 0.01;

#[cfg(test)]
mod tests;
