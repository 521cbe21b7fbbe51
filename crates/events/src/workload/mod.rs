//! The built-in workloads. Each is one definition, an iterator of
//! [`crate::memory::MemoryEvent`]s that a
//! printed seed fixes: the probe carries it out on the kernel, a model on a policy.
//!
//! | workload | source | what it asks |
//! |---|---|---|
//! | [`Pbobench`] | mail 000 | does a map cost more as mappings pile up? |
//! | [`Agua`] | mail 003, the port described in libMicro's style | how long do 10,000 maps and 2,500 unmaps take among many? |
//! | [`Freegap`] | mail 003 as posted, and its author's corrected form | what does keeping the gap information cost? |

mod agua;
mod freegap;
mod pbobench;

pub use agua::Agua;
pub use freegap::{Form, Freegap};
pub use pbobench::Pbobench;

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
    }
}
