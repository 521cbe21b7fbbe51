//! Figures of the probe and of mail 004, what always holds, and small cases by hand.

use proptest::prelude::*;
use stopgap_events::reclaim::Load;
use stopgap_events::units::{Bytes, Nanos};

use super::*;

fn outcome(setting: &Setting) -> Outcome {
    run(setting, &Prices::RECENT, 1, &|| false).expect("a setting that makes sense")
}

/// Small: 64 MiB, of which 32 are held. What is believed of the lists is what is: in 15 ms all of so little memory is read
/// several times over.
fn small(policy: Policy) -> Setting {
    Setting {
        policy,
        pinned: Bytes::mib(32),
        limit: Bytes::mib(64),
        statistics: Nanos(0),
        time: Nanos::millis(300),
        // All that was marked late is met by then.
        warm_up: Some(Nanos::millis(300)),
        ..Setting::default()
    }
}

fn ratio(setting: &Setting) -> f64 {
    let ratio = outcome(setting).scanned_per_reclaimed();
    ratio.expect("a load that reclaims")
}

/// Linux 6.18, of 128 MiB so many pinned, mixed load, 4 s a run, medians of six (docs/questions/reclaim.md has the command).
/// One price is fitted, to the half; 48 and 96 MiB were not looked at before it was.
#[test]
fn the_measured_scans_within_30_per_cent() {
    let held = [(32, 3.63), (48, 3.72), (64, 4.70), (80, 5.03), (96, 5.79)];
    let held = held.map(|(pinned, measured)| (Policy::Held, pinned, measured));
    let flat = [(Policy::None, 64, 1.00), (Policy::Mlock, 64, 1.00)];
    for (policy, pinned, measured) in held.into_iter().chain(flat) {
        let setting = Setting {
            policy,
            pinned: Bytes::mib(pinned),
            limit: Bytes::mib(128),
            folio: Bytes::mib(2),
            time: Nanos::secs(4),
            ..Setting::default()
        };
        let outcome = runs(&setting, &Prices::RECENT, (1, 6), &|| false).unwrap();
        let modelled = outcome.scanned_per_reclaimed().unwrap();
        let factor = modelled / measured;
        assert!(
            (0.7..1.3).contains(&factor),
            "{policy}, {pinned} MiB: {modelled}, measured {measured}"
        );
    }
}

/// none < mlock ~ mapping ~ mapping-late < held, at each share; and the more is held, the more is scanned.
#[test]
fn only_references_make_reclaim_scan_more_and_more() {
    let mut before = 1.3;
    // The shares that were measured: in less room the block that is populated is a part of it that shows.
    for pinned in [32, 64, 80, 96] {
        let of = |policy| {
            ratio(&Setting {
                pinned: Bytes::mib(pinned),
                limit: Bytes::mib(128),
                time: Nanos::millis(600),
                warm_up: Some(Nanos::millis(600)),
                ..small(policy)
            })
        };
        let none = of(Policy::None);
        for policy in [Policy::Mlock, Policy::Mapping, Policy::MappingLate] {
            assert!(
                (of(policy) / none - 1.0).abs() < 0.1,
                "{policy} at {pinned} MiB: {} of {none}",
                of(policy)
            );
        }
        let held = of(Policy::Held);
        assert!(held > before, "{held} at {pinned} MiB, {before} before");
        before = held;
    }
}

/// One list of which a share p is held: 1 / (1 - p) scans a page, for every p.
///
/// ```text
/// head  F F F H  tail    F free to go, H held: a turn scans 4 and frees 3
/// ```
#[test]
fn on_one_list_a_share_p_held_scans_one_over_one_minus_p() {
    for held in 1..=3_u64 {
        let (scanned, reclaimed) = load::one_turn(held, 4 - held);
        assert_eq!(scanned * (4 - held), reclaimed * 4, "{held} of 4 held");
    }
}

#[test]
fn without_swap_or_refaults_holding_costs_nothing() {
    let swapless = Setting {
        swap: Bytes(0),
        ..small(Policy::Held)
    };
    let stream = Setting {
        load: Load::Stream,
        ..small(Policy::Held)
    };
    for setting in [swapless, stream] {
        let outcome = outcome(&setting);
        assert_eq!(outcome.scanned_anon, 0, "{setting:?}");
        assert_eq!(outcome.scanned, outcome.reclaimed, "{setting:?}");
    }
}

/// "No page that is held is met twice": by the mark, once a page; by a lock, never.
#[test]
fn a_marked_page_is_met_at_most_once() {
    let setting = Setting {
        warm_up: Some(Nanos(0)),
        ..small(Policy::MappingLate)
    };
    let late = outcome(&setting);
    let pages = setting.pinned.0 / PAGE;
    assert!(
        (1..=pages).contains(&late.culled),
        "{} of {pages}",
        late.culled
    );
    for policy in [Policy::Mlock, Policy::Mapping] {
        assert_eq!(
            outcome(&Setting { policy, ..setting }).culled,
            0,
            "{policy}"
        );
    }
}

/// Mail 004's machine, means of three seeds, in milliseconds.
fn mail(policy: Policy, release: Release, prices: &Prices) -> f64 {
    let setting = Setting {
        policy,
        release,
        pinned: Bytes::mib(928),
        load: Load::GemSyslatency,
        kernel: Kernel::Linux4_19,
        time: Nanos::millis(400),
        warm_up: Some(Nanos::millis(200)),
        ..Setting::default()
    };
    let mean = |seed| {
        let outcome = run(&setting, prices, seed, &|| false).expect("a setting that makes sense");
        assert_eq!(outcome.out_of_memory, None);
        outcome.allocations.mean().expect("allocations") / 1e6
    };
    (1..=3).map(mean).sum::<f64>() / 3.0
}

/// A second pass at the price that `SHM_UNLOCK` has here is as good as a batch, and both are as good as locking each page:
/// mail 004 says otherwise (14.7 ms against 9.6), and [`super::mail()`] says that it does.
#[test]
fn off_the_lists_is_better_than_stock_however_it_is_released() {
    let of = |policy, release| mail(policy, release, &Prices::MAIL);
    let idle = of(Policy::None, Release::Batch);
    let locked = of(Policy::Mlock, Release::Batch);
    let stock = of(Policy::Held, Release::Batch);
    let marked = [Release::SecondPass, Release::Batch, Release::BatchResched];
    let marked = marked.map(|release| of(Policy::Mapping, release));
    let all = format!("{idle} {locked} {stock}; {marked:?}");
    // The fit: no prediction.
    assert!((0.7..0.9).contains(&idle), "{all}");
    assert!(idle * 1.03 < locked && locked * 1.03 < stock, "{all}");
    for repaired in marked {
        assert!(repaired * 1.03 < stock && repaired < locked * 1.1, "{all}");
    }
}

/// The longest stretch is an object's pages, unless others may run after each batch.
#[test]
fn a_chance_to_run_after_each_batch_shortens_the_longest_stretch() {
    let of = |release| {
        let setting = Setting {
            release,
            ..small(Policy::Mapping)
        };
        outcome(&setting).longest_unpreempted_ns
    };
    let prices = Prices::RECENT;
    let pages = OBJECT.0 / PAGE;
    assert_eq!(
        of(Release::Batch),
        pages * (prices.move_back + prices.unpin)
    );
    assert_eq!(of(Release::Single), pages * (prices.unlock + prices.unpin));
    // No longer than what is longest besides: a step of reading.
    assert_eq!(of(Release::BatchResched), 32 * prices.read);
}

/// 6.18, thread CPU time: references 80 to take; locking 341 more, 182 back; a mark next to nothing.
#[test]
fn taking_and_releasing_cost_what_was_measured() {
    let of = |policy| outcome(&small(policy));
    let held = of(Policy::Held);
    assert_eq!(held.take_ns_per_page, Some(80.0));
    let mark = of(Policy::Mapping).take_ns_per_page.unwrap() - 80.0;
    let lock = of(Policy::Mlock).take_ns_per_page.unwrap() - 80.0;
    assert!(lock > 100.0 * mark, "{lock} {mark}");
    assert!(held.release_ns_per_page < of(Policy::Mlock).release_ns_per_page);
}

/// Yang's case (64e3d12f769d): all inactive anonymous pages are held, the active ones could be swapped, and 4.19 kills;
/// since 5.5 active pages are made inactive rather than that; marked pages are out of the way in both.
#[test]
fn all_inactive_anonymous_pages_held_is_out_of_memory_on_4_19() {
    let of = |policy, kernel| {
        outcome(&Setting {
            load: Load::Populate,
            pinned: Bytes::mib(48),
            kernel,
            ..small(policy)
        })
    };
    let stock = of(Policy::Held, Kernel::Linux4_19);
    let point = stock.out_of_memory.expect("nothing can be reclaimed");
    assert_eq!(point.used * PAGE, Bytes::mib(64).0);
    assert_eq!(point.held * PAGE, Bytes::mib(48).0);
    for (policy, kernel) in [
        (Policy::Held, Kernel::Linux6_12),
        (Policy::Mlock, Kernel::Linux4_19),
        (Policy::Mapping, Kernel::Linux4_19),
    ] {
        let outcome = of(policy, kernel);
        assert_eq!(outcome.out_of_memory, None, "{policy} {kernel}");
        assert!(outcome.written > 0, "{policy} {kernel}");
    }
}

#[test]
fn the_advice_is_compared_with_nothing_held() {
    let advised = |swap| {
        let rows = [Policy::None, Policy::Held].map(|policy| {
            let setting = Setting {
                swap,
                ..small(policy)
            };
            let outcome = run(&setting, &Prices::RECENT, 1, &|| false).unwrap();
            row(&setting, &outcome, None)
        });
        advice(&rows).unwrap()
    };
    let dear = advised(Bytes::gib(2));
    let told = "held makes others wait longer than nothing held: ";
    assert!(dear.starts_with(told), "{dear}");
    assert!(
        dear.ends_with("--policy all compares it with other ways"),
        "{dear}"
    );
    // Without swap nobody looks at what is held.
    let free = advised(Bytes(0));
    let told = "use held: nothing here makes others wait noticeably longer";
    assert!(free.starts_with(told), "{free}");
}

#[test]
fn what_makes_no_sense_is_named() {
    type Change = fn(&mut Setting);
    let changes: [(Change, &str); 10] = [
        (|s| s.pinned = Bytes::mib(60), "raise the limit"),
        (|s| s.pinned = Bytes::mib(600), "600 MiB"),
        (|s| s.file = Some(Bytes::mib(1)), "never refaults"),
        (|s| s.swappiness = 201, "200"),
        (|s| s.time = Nanos(0), "more than 0"),
        (|s| s.load = Load::GemSyslatency, "256 MiB"),
        (|s| s.folio = Bytes(0), "4 KiB to 2 MiB"),
        (|s| s.folio = Bytes::kib(12), "12 KiB"),
        (|s| s.folio = Bytes::mib(4), "4 MiB"),
        (
            |s| {
                s.limit = Bytes::gib(8);
                s.folio = Bytes::kib(64);
                s.load = Load::GemSyslatency;
            },
            "gem-syslatency has 4 KiB",
        ),
    ];
    for (change, says) in changes {
        let mut setting = small(Policy::Held);
        change(&mut setting);
        let outcome = run(&setting, &Prices::RECENT, 1, &|| false);
        let why = outcome.unwrap_err().to_string();
        assert!(why.contains(says), "{why}");
    }
}

/// What `/proc/kpageflags` showed of 64 MiB that were read 256 KiB at a time (Linux 6.18, ext4, 8 MiB read ahead): 256 of 1
/// page, 128 of 4, 64 of 16, 32 of 64, 9 of 256, 20 of 512.
#[test]
fn folios_grow_as_reading_ahead_does() {
    let counts = |folio, file| {
        let setting = Setting {
            folio,
            file: Some(file),
            ..Setting::default()
        };
        let mut counts = std::collections::BTreeMap::new();
        for pages in setting.folios() {
            *counts.entry(pages).or_insert(0) += 1;
        }
        counts.into_iter().collect::<Vec<(u32, u32)>>()
    };
    assert_eq!(
        counts(Bytes::mib(2), Bytes::mib(64)),
        [(1, 256), (4, 128), (16, 64), (64, 32), (256, 8), (512, 21)]
    );
    assert_eq!(counts(Bytes::kib(4), Bytes::mib(1)), [(1, 256)]);
    // Most disks read 128 KiB ahead, so that no folio is larger.
    assert_eq!(
        counts(Bytes::kib(128), Bytes::mib(1)),
        [(1, 32), (4, 8), (16, 2), (32, 5)]
    );
}

#[test]
fn interrupted_it_tells_what_it_counted() {
    let outcome = run(&small(Policy::Held), &Prices::RECENT, 1, &|| true).unwrap();
    assert_eq!(outcome.scanned, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is asked: pages are on one list each and no more than may be, nobody frees what is held, and no more is
    /// reclaimed than was scanned.
    #[test]
    fn what_always_holds(
        policy in prop::sample::select(Policy::ALL),
        release in prop::sample::select(Release::ALL),
        load in prop::sample::select(&Load::ALL[..4]),
        kernel in prop::sample::select(Kernel::ALL),
        pinned in 1_u64..24,
        swap in prop::sample::select(&[0_u64, 4, 1_024][..]),
        swappiness in 0_u64..=200,
        statistics in prop::sample::select(&[0_u64, 1, 15, 2_000][..]),
        folio in prop::sample::select(&[4_u64, 64, 2_048][..]),
        seed: u64,
    ) {
        let setting = Setting {
            policy, release, load, kernel, swappiness,
            pinned: Bytes::mib(pinned),
            limit: Bytes::mib(32),
            swap: Bytes::mib(swap),
            time: Nanos::millis(20),
            warm_up: Some(Nanos(0)),
            statistics: Nanos::millis(statistics),
            folio: Bytes::kib(folio),
            file: None,
        };
        let outcome = load::checked(&setting, seed);
        prop_assert!(outcome.scanned >= outcome.reclaimed);
        prop_assert!(outcome.scanned >= outcome.scanned_anon);
        prop_assert!(outcome.reclaimed >= outcome.written);
        let again = run(&setting, &Prices::RECENT, seed, &|| false).unwrap();
        prop_assert_eq!(again.scanned, outcome.scanned);
        prop_assert_eq!(again.elapsed_ns, outcome.elapsed_ns);
    }
}

/// What 6.12 believes of its lists is old by then: the inactive files run out unseen, and whole lists of held pages are
/// walked for few. Nothing that is held, nothing that is walked.
///
/// ```text
///        0        phase       phase + 2 s
///        |----------|-------------|------
///  known  nothing    as it was     as it was
///         ^ all file pages inactive, none comes back "soon": nothing held is looked at
///                    ^ now they do, all become active, and nobody knows: a storm
/// ```
#[test]
fn old_statistics_make_storms_of_held_pages() {
    let scans = |policy, statistics| {
        let setting = Setting {
            policy,
            pinned: Bytes::mib(16),
            limit: Bytes::mib(32),
            folio: Bytes::mib(2),
            statistics,
            time: Nanos::secs(2),
            ..Setting::default()
        };
        let outcome = runs(&setting, &Prices::RECENT, (1, 4), &|| false).unwrap();
        assert_eq!((outcome.runs, outcome.ratios.len()), (4, 4));
        outcome.scanned_per_reclaimed().unwrap()
    };
    let kernels = Nanos::secs(2);
    let (exact, old) = (scans(Policy::Held, Nanos(0)), scans(Policy::Held, kernels));
    assert!(exact > 1.2 && old > 1.5 * exact, "{exact} {old}");
    for statistics in [Nanos(0), Nanos::millis(15), kernels] {
        let none = scans(Policy::None, statistics);
        assert!(none < 1.05, "{statistics}: {none}");
    }
}
