//! What the arena's fixes would bring on this machine: the last column of `check`.
//!
//! Each question's own workload, without the fix and with it, in turn, in one load child. Where a probe has already
//! measured both, its runs are the pairs. What cannot be tried says why.

pub mod channel;
mod chunks;
mod placement;
mod reclaim;
mod roundtrip;

use serde::Serialize;
use serde::de::DeserializeOwned;
use stopgap_events::question::Question;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::tasks::{ChildLimits, Tasks};
use stopgap_stats::fix::Fix;
use stopgap_stats::record::{Answer, Series};

/// Resources of trials.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed {
    /// Memory.
    pub(crate) memory: Bytes,
    /// Less of everything.
    pub(crate) quick: bool,
    /// Seed of all random choices.
    pub(crate) seed: u64,
}

impl Allowed {
    /// How often each side has its turn.
    fn turns(self) -> u32 {
        if self.quick { 5 } else { 9 }
    }

    /// Says why a trial whose load takes `need` may not be made; `None` where it may.
    fn refuses(self, need: Bytes) -> Option<String> {
        let memory = self.memory;
        (need > memory).then(|| {
            format!("it takes about {need}, more than the memory budget of {memory}; give a larger --memory")
        })
    }
}

/// Memory of a load child beside what it tries.
const CHILD: Bytes = Bytes::mib(16);

/// Longest time of a trial; it takes a second or so.
const LIMIT: ChildLimits = ChildLimits {
    time: Nanos::secs(20),
    cgroup: None,
};

/// The fixes that belong to `answer`'s question, the one that leads first.
pub(crate) fn of(answer: &Answer, allowed: Allowed) -> Vec<Fix> {
    match answer.question {
        Question::Placement => vec![placement::arena(allowed)],
        Question::Roundtrip => roundtrip::fixes(answer, allowed),
        Question::Chunks => vec![chunks::chunked(allowed)],
        Question::Reclaim => reclaim::fixes(answer, allowed),
        Question::Wakeup => Vec::new(),
    }
}

/// Runs `body` in a load child of its own. Returns its result, or why there is none.
fn in_child<T: Serialize + DeserializeOwned>(
    body: impl Fn() -> Result<T, String>,
) -> Result<T, String> {
    let outcome = Linux.run_child(&LIMIT, &mut || {
        serde_json::to_vec(&body()).unwrap_or_default()
    });
    let outcome = outcome.map_err(|error| error.to_string())?;
    serde_json::from_slice(&outcome.output).unwrap_or_else(|error| Err(error.to_string()))
}

/// Figures of two series of the same answer, those of the same run beside each other.
fn pairs(before: &Series, after: &Series) -> Vec<[f64; 2]> {
    let of = |run| after.blocks.iter().find(|block| block.run == run);
    before
        .blocks
        .iter()
        .filter_map(|block| Some([block.value, of(block.run)?.value]))
        .collect()
}

/// Microseconds since `start`.
fn us_since(start: Nanos) -> f64 {
    use stopgap_kernel::clock::Clock;
    Linux.now().saturating_sub(start).0 as f64 / 1e3
}
