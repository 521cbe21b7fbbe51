//! The model held against mail 001 and against itself.

use stopgap_chunks::iommu::PageSizes;
use stopgap_chunks::policy::{BuildError, Name, Request};

use super::buddy::{Buddy, Use};
use super::cost::Costs;
use super::experiment::Step;
use super::kernel::Kernel;
use super::machine::{Machine, MachineError, Outcome, Setting};
use super::scenario::Scenario;
use super::walkers::Walkers;

const BUFFER: Request = Request {
    pages: 1_024,
    page: 4_096,
    sizes: PageSizes::K4_K64_M2,
    single_pages: false,
};

/// `buffers` one after the other, each released before the next.
fn videos(scenario: Scenario, setting: &Setting, policy: Name, buffers: usize) -> Vec<Outcome> {
    let mut machine = scenario.machine(setting).unwrap();
    let outcomes = (0..buffers).map(|_| {
        let outcome = machine.build(policy, &BUFFER).unwrap();
        machine.release(&outcome.built);
        outcome
    });
    let outcomes = outcomes.collect();
    machine.memories().for_each(|zone| zone.check().unwrap());
    outcomes
}

/// Mail 001: "sum(int(math.log(i, 2)) + 1 for i in range(1, 1025)) => 9228".
#[test]
fn nothing_contiguous_makes_the_mails_tries() {
    for kernel in [Kernel::V3_4, Kernel::V3_14, Kernel::V6_12] {
        let setting = Setting {
            kernel,
            ..Setting::default()
        };
        for (policy, tries) in [
            (Name::Old, 9_228),
            (Name::Sticky, 1_034),
            (Name::Start64k, 1_028),
            (Name::Fold, 1_026),
            (Name::List, 1_027),
            (Name::OnePage, 1_024),
        ] {
            let outcome = &videos(Scenario::NoContiguous, &setting, policy, 1)[0];
            let counted = outcome.built.tries;
            assert_eq!(counted.total(), tries, "{policy} on {kernel}");
            assert_eq!(
                counted.total_failed(),
                tries - 1_024,
                "{policy} on {kernel}"
            );
            assert_eq!(outcome.counts.calls, tries);
        }
    }
}

/// Buffers as `replay chunks` builds them, four held at a time; the machine is there after each.
fn held_videos(seed: u64, policy: Name, buffers: u32, mut after: impl FnMut(u32, &Machine, f64)) {
    let scenario = Scenario::Thread;
    let mut machine = scenario.machine(&scenario.setting(seed)).unwrap();
    let mut held = std::collections::BTreeMap::new();
    let mut time_ns = 0.0;
    let mut built = 0;
    for step in super::experiment::videos(BUFFER.pages, buffers, 4) {
        match step {
            Step::Release { id } => machine.release(&held.remove(&id).unwrap()),
            Step::Build { id, .. } => {
                let outcome = machine.build(policy, &BUFFER).unwrap();
                time_ns += outcome.time_ns;
                built += 1;
                held.insert(id, outcome.built);
                after(built, &machine, time_ns / f64::from(built) / 1e9);
            }
        }
    }
    machine.memories().for_each(|zone| zone.check().unwrap());
}

/// Mail 001, at the command's 50 buffers and at twice as many: the Wi-Fi driver fails beside every policy that tries
/// order 4 first and then smaller ones, USB beside those that try order 3 too, and neither beside single pages. One figure
/// is fitted, the time to reclaim a page: 0.25 s for `one-page`. The other times are within a factor of 3 of the mail's;
/// `fold` is the farthest (docs/questions/chunks.md).
mod who_harms_others {
    use super::*;
    use std::ops::{Range, RangeInclusive};

    fn check(
        policy: Name,
        usb: RangeInclusive<f64>,
        wifi: RangeInclusive<f64>,
        mean_s: Range<f64>,
    ) {
        for seed in [1, 2, 3] {
            held_videos(seed, policy, 100, |built, machine, time_s| {
                if ![50, 100].contains(&built) {
                    return;
                }
                let fared = machine.bystanders();
                let failing = [3, 4].map(|o| fared.failed[o] as f64 / fared.tries[o] as f64);
                let what = format!("{policy}, seed {seed}, {built} buffers");
                println!("{what}: {time_s:.3} s, {failing:.3?} fail");
                assert!(usb.contains(&failing[0]), "{what}: {failing:?}");
                assert!(wifi.contains(&failing[1]), "{what}: {failing:?}");
                assert!(mean_s.contains(&time_s), "{what}: {time_s} s");
            });
        }
    }

    #[test]
    fn single_pages_harm_nobody() {
        check(Name::OnePage, 0.0..=0.0, 0.0..=0.0, 0.24..0.26);
    }

    #[test]
    fn fold_harms_wifi() {
        check(Name::Fold, 0.0..=0.0, 0.5..=1.0, 0.3..1.35);
    }

    #[test]
    fn start_64k_harms_both() {
        check(Name::Start64k, 0.2..=1.0, 0.5..=1.0, 0.34..1.35);
    }

    #[test]
    fn sticky_harms_both() {
        check(Name::Sticky, 0.2..=1.0, 0.5..=1.0, 1.6..6.4);
    }
}

/// The usual bad case of mail 001, 24 s.
#[test]
fn the_old_policy_takes_tens_of_seconds() {
    held_videos(1, Name::Old, 12, |built, _, time_s| {
        assert!(built < 12 || (8.0..72.0).contains(&time_s), "{time_s} s");
    });
}

/// The order of the policies does not hang on what is assumed of the walkers and of compaction; where `fold` and
/// `start-64k` stand to each other does.
#[test]
fn the_threads_order_holds_when_assumptions_change() {
    let policies = [Name::OnePage, Name::Start64k, Name::Sticky, Name::Old];
    let slower = Walkers {
        fault_ns: 2.0 * Walkers::THREAD.fault_ns,
        ..Walkers::THREAD
    };
    let quick = Costs {
        scan_block_ns: 30_000.0,
        ..Costs::THREAD
    };
    for (walkers, costs) in [(slower, Costs::THREAD), (Walkers::THREAD, quick)] {
        let setting = Setting {
            costs,
            ..Setting::default()
        };
        let times = policies.map(|policy| {
            let machine = Scenario::Thread.machine(&setting).unwrap();
            let mut machine = machine.with_walkers(walkers).unwrap();
            machine.build(policy, &BUFFER).unwrap().time_ns
        });
        assert!(times.is_sorted(), "{times:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for &scenario in Scenario::ALL {
        let run = |seed| videos(scenario, &scenario.setting(seed), Name::Sticky, 2);
        assert_eq!(run(5), run(5), "{scenario}");
    }
}

#[test]
fn unfragmented_memory_gives_one_chunk_at_once() {
    let setting = Scenario::Unfragmented.setting(1);
    for outcome in videos(Scenario::Unfragmented, &setting, Name::Old, 3) {
        assert_eq!(outcome.built.chunks.len(), 1);
        assert_eq!(outcome.counts.slow, 0);
        assert_eq!(outcome.bystanders.total_failed(), 0);
    }
}

/// Kept pages that move cost compaction once; pinned ones cannot be got out of the way at all.
#[test]
fn kept_pages_fragment_and_pinned_ones_stay() {
    for of in [4, 8] {
        for pinned in [false, true] {
            let scenario = Scenario::Kept { of, pinned };
            let machine = scenario.machine(&scenario.setting(1)).unwrap();
            assert!(machine.buddy().unusable_index(4).unwrap() > 0.99);
            let outcome = &videos(scenario, &scenario.setting(1), Name::List, 1)[0];
            let largest = outcome.built.chunks.iter().map(|chunk| chunk.order).max();
            assert_eq!(largest > Some(0), !pinned, "{scenario}");
        }
    }
}

#[test]
fn scenarios_have_words() {
    for &scenario in Scenario::ALL {
        assert_eq!(scenario.to_string().parse(), Ok(scenario));
    }
    let eighth = Scenario::Kept {
        of: 8,
        pinned: true,
    };
    assert_eq!("kept-1/8-pinned".parse(), Ok(eighth));
    for wrong in [
        "kept-1/0", "kept-1/1", "kept-1/x", "kept-1/", "kept", "Thread", "",
    ] {
        assert!(wrong.parse::<Scenario>().is_err(), "{wrong}");
    }
}

#[test]
fn an_aged_memory_is_fragmented_in_part() {
    let machine = Scenario::Aged.machine(&Scenario::Aged.setting(3)).unwrap();
    machine.buddy().check().unwrap();
    let buddy = machine.buddy();
    let free = buddy.free_pages() as f64 / buddy.pages() as f64;
    assert!((0.09..0.12).contains(&free), "{free}");
    let index = buddy.unusable_index(9).unwrap();
    assert!((0.8..1.0).contains(&index), "{index}");
}

#[test]
fn other_page_sizes_work() {
    for page in [16_384, 65_536] {
        let request = Request {
            pages: (4 << 20) / page,
            page,
            sizes: PageSizes::K4_K64_M2,
            single_pages: false,
        };
        let setting = Setting {
            page,
            ..Setting::default()
        };
        for &scenario in Scenario::ALL {
            let mut machine = scenario.machine(&setting).unwrap();
            let outcome = machine.build(Name::Old, &request).unwrap();
            assert_eq!(outcome.built.pages(), request.pages, "{scenario}");
        }
    }
}

#[test]
fn requests_and_settings_that_make_no_sense_are_errors() {
    let setting = Setting::default();
    let mut machine = Scenario::Thread.machine(&setting).unwrap();
    let mut refused = |request: Request| machine.build(Name::List, &request).unwrap_err();
    let pages = |pages| Request { pages, ..BUFFER };
    let error = refused(pages(1 << 30));
    assert!(matches!(error, MachineError::TooLarge { .. }), "{error}");
    assert_eq!(refused(pages(0)), MachineError::Build(BuildError::Zero));
    let page = 16_384;
    let error = refused(Request { page, ..BUFFER });
    assert!(matches!(error, MachineError::OtherPage { .. }), "{error}");

    let costs = Costs {
        call_ns: f64::NAN,
        ..Costs::THREAD
    };
    let no_cost = Setting {
        costs,
        ..Setting::default()
    };
    let page = |page| Setting {
        page,
        ..Setting::default()
    };
    for wrong in [no_cost, page(0), page(5_000), page(1 << 30)] {
        for &scenario in Scenario::ALL {
            assert!(scenario.machine(&wrong).is_err());
        }
    }
    let never = Walkers {
        fault_ns: 0.0,
        ..Walkers::THREAD
    };
    assert!(machine.with_walkers(never).is_err());
}

/// Memory ends in the middle of a buffer: all is given back, and a smaller one can be built.
#[test]
fn a_buffer_that_does_not_fit_is_undone() {
    let mut buddy = Buddy::all_free(2_048).unwrap();
    while buddy.free_pages() > 600 {
        buddy
            .allocate(0, super::buddy::Mobility::Movable, Use::Movable)
            .unwrap();
    }
    for kernel in [Kernel::V3_4, Kernel::V6_12] {
        let setting = Setting {
            kernel,
            ..Setting::default()
        };
        let mut machine = Machine::new(buddy.clone(), &setting).unwrap();
        for &policy in Name::ALL {
            let error = machine.build(policy, &BUFFER).unwrap_err();
            let exhausted = matches!(error, MachineError::Build(BuildError::Exhausted { .. }));
            assert!(exhausted, "{policy}: {error}");
            assert_eq!(machine.buddy().free_pages(), 600);
            machine.buddy().check().unwrap();
        }
        let small = Request {
            pages: 64,
            ..BUFFER
        };
        assert!(machine.build(Name::Old, &small).is_ok());
    }
}

/// Costs of nothing are costs: the mechanism does not divide by them.
#[test]
fn work_that_costs_nothing_takes_no_time() {
    let costs = Costs {
        call_ns: 0.0,
        fault_ns: 0.0,
        clear_page_ns: 0.0,
        reclaim_page_ns: 0.0,
        scan_block_ns: 0.0,
        move_page_ns: 0.0,
    };
    for scenario in [Scenario::Thread, Scenario::Aged] {
        let setting = Setting {
            costs,
            ..scenario.setting(1)
        };
        let outcome = &videos(scenario, &setting, Name::List, 1)[0];
        assert!(outcome.time_ns.abs() < f64::EPSILON);
    }
}
