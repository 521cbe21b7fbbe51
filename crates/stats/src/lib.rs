//! The statistics of stalls: what was measured, what it shows, and with what certainty.
//!
//! * [`record`]: the run record (JSON `stopgap.run/1`): one run, its environment, its answers.
//! * [`replay`]: the record of a replay (JSON `stopgap.replay/1`): a row a policy, workload and N.
//! * [`advise`]: which policy to use (JSON `stopgap.advise/1`), and the rule.
//! * [`explain`]: the record of an explained trace (JSON `stopgap.explain/2`).
//! * [`watch`]: what a watch says (JSON `stopgap.watch/3`), a document a stall.
//! * [`history`]: what `watch --history` says (JSON `stopgap.history/1`), and how its rows add up.
//! * [`histogram`]: latency histograms, HdrHistogram V2 in base64 inside the record.
//! * [`prices`]: what the page allocator's work costs here (JSON `stopgap.prices/1`).
//! * [`profile`]: where CPU time went, by samples: a part of an explained trace.
//! * [`overall`]: what a run of `check` comes to.
//! * [`quantile`]: quantiles that refuse when there are too few samples.
//! * [`bootstrap`]: intervals over runs.
//! * [`compare`]: whether two sides of runs differ (JSON `stopgap.compare/1`), and what its tests are worth.
//! * [`change_points`]: when a figure changed over many occasions (JSON `stopgap.change-points/1`).
//! * [`anytime`]: comparing two commands while they run, with a look at any time.
//! * [`gather`]: runs of two commands that were made to be compared (JSON `stopgap.gather/1`), and in which order.
//! * [`ministat`]: whether means of columns differ, as FreeBSD's program says it.
//! * [`read`]: other tools' results, and ours, to runs that can be compared.
//! * [`separation`]: whether a figure distinguishes runs of two kinds.
//! * [`growth`]: how cost grows over N.
//! * [`verdict`]: the words.
//!
//! The unit of evidence is a *run*, never a sample. This crate is pure: no clock, no file.

pub mod advise;
pub mod anytime;
pub mod bootstrap;
pub mod change_points;
pub mod compare;
pub mod document;
pub mod explain;
pub mod fix;
pub mod gather;
pub mod growth;
pub mod histogram;
pub mod history;
pub mod ministat;
mod noise;
pub mod overall;
pub mod prices;
pub mod profile;
pub mod quantile;
pub mod read;
pub mod record;
pub mod replay;
pub mod roundtrip;
pub mod separation;
pub mod verdict;
pub mod watch;
