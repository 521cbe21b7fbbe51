//! The built-in workloads. Each is one definition, an iterator of
//! [`crate::memory::MemoryEvent`]s that a
//! printed seed fixes: the probe carries it out on the kernel, a model on a policy.
//!
//! | workload | source | what it asks |
//! |---|---|---|
//! | [`Pbobench`] | mail 000 | does a map cost more as mappings pile up? |
//! | [`Agua`] | mail 003, the port described in libMicro's style | how long do 10,000 maps and 2,500 unmaps take among many? |
//! | [`Freegap`] | mail 003 as posted, and its author's corrected form | what does keeping the gap information cost? |
//! | [`Frag`] | ours | how well are holes of every size used, aligned and limited requests among them? |
//! | [`Tight`] | ours | how long does it go well where hardly any room is left? |
//! | [`ManySizes`], [`Phases`], [`Sequential`] | ours | and where no size comes back soon? |
//!
//! [`Workload`] names them all, with the parameters that each usually has.

mod agua;
mod builtin;
mod churn;
mod frag;
mod freegap;
mod log_normal;
mod many_sizes;
mod pbobench;
mod phases;
mod sequential;
mod tight;

pub use agua::Agua;
pub use builtin::Workload;
pub use frag::Frag;
pub use freegap::{Form, Freegap};
pub use many_sizes::ManySizes;
pub use pbobench::Pbobench;
pub use phases::Phases;
pub use sequential::Sequential;
pub use tight::Tight;

use crate::memory::{MapId, MemoryEvent, Merge, Placing, Protection};
use crate::random::Random;
use crate::units::Bytes;

/// The unit of sizes in our own workloads, on machines with any page size.
const PAGE: Bytes = Bytes::kib(4);
/// Where windows begin.
const START: u64 = 65_536;
/// The largest range of [`Frag`] and [`Tight`], in pages.
const LARGEST_PAGES: u64 = 64;

/// Streams for sizes, for the choice of what is freed, and for what else a workload draws: apart,
/// so that workloads that differ in one thing share the rest.
fn streams(seed: u64) -> [Random; 3] {
    let mut seeds = Random::new(seed);
    std::array::from_fn(|_| Random::new(seeds.bits()))
}

/// The map event of our own workloads: a buffer that merges with nothing.
fn map(id: MapId, length: Bytes, placing: Placing) -> MemoryEvent {
    MemoryEvent::Map {
        id,
        length,
        protection: Protection::Write,
        merge: Merge::Never,
        placing,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::memory::{MapId, MemoryEvent};

    /// What every consumer relies on: no name is used twice at a time, none is used that is
    /// not live, no length is 0. Returns the names still live.
    fn check(events: impl Iterator<Item = MemoryEvent>) -> HashSet<MapId> {
        let mut live = HashSet::new();
        for (index, event) in events.enumerate() {
            match event {
                MemoryEvent::Map { id, length, .. } => {
                    assert!(length.0 > 0, "event {index}: empty map");
                    assert!(live.insert(id), "event {index}: {id:?} mapped twice");
                }
                MemoryEvent::Unmap { id } => {
                    assert!(live.remove(&id), "event {index}: {id:?} is not mapped");
                }
                MemoryEvent::Protect { id, .. } | MemoryEvent::Touch { id } => {
                    assert!(live.contains(&id), "event {index}: {id:?} is not mapped");
                }
                MemoryEvent::Begin(_) => {}
            }
        }
        live
    }

    #[test]
    fn all_workloads_keep_the_contract() {
        for seed in 0..4 {
            assert!(check(Pbobench::new(200, 5_000, seed).events()).len() >= 200);
        }
        check(Agua::new(12, 30_000).events());
        for &form in Form::ALL {
            check(Freegap::new(form, 100).events());
        }
        for &workload in Workload::ALL {
            for (n, seed) in [(0, 1), (1, 2), (2, 3), (1_000, 4)] {
                let names = check(workload.events(n, 5_001, seed));
                let most = names.iter().map(|id| id.0).max().unwrap_or(0);
                let dense = u64::from(n) + 20_000; // agua: what a loop adds to its ceiling
                assert!(u64::from(most) < dense, "{workload}: name {most}");
            }
        }
    }
}
