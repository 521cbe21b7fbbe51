//! What mail 003 asked in June 2012: does propagating gaps lazily, in batches, cost less than climbing to
//! the root? Counted on the corrected freegap test of the mail's author.

use std::collections::HashMap;

use stopgap_events::memory::{MemoryEvent, Merge as MayMerge, Phase, Protection};
use stopgap_events::units::Bytes;
use stopgap_events::workload::{Form, Freegap};
use stopgap_placement::gap_tree::{Linux3_8, VanRielV1, WeinerLazy};
use stopgap_placement::{Merge, Policy, Range, Request, Space, Work};

const ROUNDS: u64 = 2_000;

/// Cost of one round.
#[derive(Debug, Clone, Copy)]
struct Cost {
    propagated: f64,
    visited: f64,
    flushes: u64,
    vmas: u64,
}

fn merge(protection: Protection) -> Merge {
    Merge::With(match protection {
        Protection::None => 0,
        Protection::Read => 1,
        Protection::Write => 2,
    })
}

/// Carries out `form` on a policy for an x86-64 address space, and what a round costs after the layout.
fn cost<P: Policy>(make: fn(Space) -> P, form: Form) -> Cost {
    let space = Space::new(Range::new(0x1_0000, 0x7fff_ffff_f000), 0x1000).unwrap();
    let mut policy = make(space);
    let mut live = HashMap::new();
    let mut laid_out = Work::default();
    for event in Freegap::new(form, ROUNDS).events() {
        match event {
            MemoryEvent::Map {
                id,
                length,
                protection,
                merge: may,
                ..
            } => {
                let request = Request {
                    merge: match may {
                        MayMerge::May => merge(protection),
                        MayMerge::Never => Merge::Never,
                    },
                    ..Request::of(length.0)
                };
                live.insert(id, policy.place(&request).unwrap());
            }
            MemoryEvent::Unmap { id } => policy.free(live.remove(&id).unwrap()).unwrap(),
            MemoryEvent::Protect {
                id,
                length: Bytes(length),
                protection,
            } => {
                let start = live[&id].start;
                let part = Range::new(start, start + space.page_up(length).unwrap());
                policy.protect(part, merge(protection)).unwrap();
            }
            MemoryEvent::Touch { .. } => {}
            MemoryEvent::Begin(Phase::Layout | Phase::Round) => {}
            MemoryEvent::Begin(Phase::Steady) => laid_out = policy.work(),
        }
    }
    policy.check().unwrap();
    let work = policy.work();
    let per_round = |count: u64| count as f64 / ROUNDS as f64;
    Cost {
        propagated: per_round(work.propagated - laid_out.propagated),
        visited: per_round(work.visited - laid_out.visited),
        flushes: work.flushes - laid_out.flushes,
        vmas: policy.statistics().ranges,
    }
}

#[test]
fn lazy_propagation_costs_less_than_climbing_to_the_root() {
    for form in [Form::InnerMprotect, Form::InnerRemap] {
        let stop = cost(Linux3_8::new, form);
        let root = cost(VanRielV1::new, form);
        let lazy = cost(WeinerLazy::new, form);
        for (policy, cost) in [
            ("linux-3.8", stop),
            ("van-riel-v1", root),
            ("weiner-lazy", lazy),
        ] {
            let Cost {
                propagated,
                visited,
                flushes,
                vmas,
            } = cost;
            println!(
                "{form:12} {policy:12} a round: {propagated:6.2} nodes recomputed, {visited:6.2} \
                 visited; {flushes} flushes in {ROUNDS} rounds; {vmas} VMAs"
            );
            assert_eq!(vmas, 12_289);
        }
        assert!(
            lazy.propagated < root.propagated && lazy.propagated < stop.propagated,
            "{form}: {lazy:?} against {root:?} and {stop:?}"
        );
        assert!(
            stop.propagated < root.propagated,
            "{form}: {stop:?} against {root:?}"
        );
    }
}
