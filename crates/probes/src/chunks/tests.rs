//! The probe against a machine in memory. Against the running kernel: `tests/chunks.rs`.

use std::path::Path;
use stopgap_testing::assert_contains;

use stopgap_events::units::Nanos;
use stopgap_kernel::fake::Fake;
use stopgap_kernel::files::read_choice;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::thp::DIRECTORY;
use stopgap_stats::record::Parameter;
use stopgap_stats::record::Series;
use stopgap_stats::verdict::Word;

use super::*;
use crate::contract::test_context;

/// Runs `with` in a context of this machine.
fn within<T>(fake: &Fake, privilege: Privilege, with: impl FnOnce(&Context<'_>) -> T) -> T {
    let journal = Journal::new(fake, Path::new("/run/stopgap"));
    with(&Context {
        privilege,
        ..test_context(fake, &journal)
    })
}

fn machine() -> Fake {
    Fake::default()
        .with_file("/run/x", "")
        .with_file("/proc/uptime", "7260.12 1.00\n")
        .with_file(
            "/proc/meminfo",
            "MemTotal: 2097152 kB\nMemFree: 1048576 kB\nMemAvailable: 1048576 kB\n",
        )
        .with_file(
            "/proc/buddyinfo",
            "Node 0, zone Normal 0 0 0 0 0 0 0 0 0 0 256\n",
        )
}

fn with_thp(fake: Fake) -> Fake {
    let at = |name: &str| format!("{DIRECTORY}/{name}");
    fake.with_file(at("enabled"), "always [madvise] never")
        .with_file(at("defrag"), "always defer defer+madvise [madvise] never")
        .with_file(at("hpage_pmd_size"), "2097152")
        .with_file(
            at("hugepages-64kB/enabled"),
            "always inherit madvise [never]",
        )
        .with_file(
            at("hugepages-2048kB/enabled"),
            "always [inherit] madvise never",
        )
}

fn with_pool(fake: Fake, free: u64) -> Fake {
    let at = |name: &str| format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
    fake.with_file(at("nr_hugepages"), free.to_string())
        .with_file(at("free_hugepages"), free.to_string())
        .with_file(at("resv_hugepages"), "0")
}

fn run(fake: &Fake, privilege: Privilege, probe: &Chunks) -> Measured {
    within(fake, privilege, |context| probe.run(context).unwrap())
}

/// Why nothing could be taken; `None` where it could.
fn error(measured: &Measured, strategy: &str, size: &str) -> Option<String> {
    find(measured, "take", strategy, size).error.clone()
}

fn find<'a>(measured: &'a Measured, name: &str, strategy: &str, size: &str) -> &'a Series {
    let is = |series: &Series, key: &str, word: &str| {
        series.parameters.get(key) == Some(&Parameter::from(word))
    };
    let found = measured.series.iter().find(|series| {
        series.name == name && is(series, "strategy", strategy) && is(series, "size", size)
    });
    found.unwrap_or_else(|| panic!("no {name} of {strategy} {size}"))
}

#[test]
fn a_kernel_without_thp_and_hugetlb_is_measured_with_base_pages() {
    let fake = machine();
    let probe = Chunks::check(true);
    let measured = run(&fake, Privilege::Root, &probe);
    for (strategy, why) in [
        ("mthp", "this kernel has no THP"),
        ("thp-direct", "this kernel has no THP"),
        ("thp-noreclaim", "this kernel has no THP"),
        ("collapse", "this kernel has no THP"),
        ("hugetlb", "this kernel has no hugetlb"),
    ] {
        let series = find(&measured, "take", strategy, "64M");
        assert_eq!(series.error.as_deref(), Some(why), "{strategy}");
        assert!(series.blocks.is_empty());
    }
    // 500 ns a page on the fake's clock, 1.5 us the call: no step is left out or counted twice.
    let base = find(&measured, "take", "base", "4M");
    assert_eq!(base.blocks.len(), 3);
    let expected = 1024.0 * 500.0 + 1_500.0;
    assert!(
        (base.blocks[0].value / expected - 1.0).abs() < 0.001,
        "{base:?}"
    );
    let blocks = find(&measured, "block", "base", "4M");
    assert_eq!(blocks.blocks[0].samples, 2);

    let answer = probe.judge(measured, 1, Privilege::Root);
    assert_eq!(
        answer.verdict.text,
        "inconclusive: not fragmented (index 0.00, up 2 h)"
    );
    for what in ["physical layout", "direct reclaim", "time without a CPU"] {
        let mut missing = answer.missing.iter();
        assert!(missing.any(|one| one.what.starts_with(what)), "{what}");
    }
}

#[test]
fn the_plan_names_every_knob_and_touches_none() {
    let fake = with_pool(with_thp(machine()), 0);
    let plan = |privilege, probe: &Chunks| {
        within(&fake, privilege, |context| probe.plan(context).unwrap())
    };
    let probe = Chunks::check(false);
    let touches = plan(Privilege::Root, &probe).touches.join("\n");
    for expected in [
        "hugepages-64kB/enabled: set to 'madvise' and put back",
        "hugepages-2048kB/enabled: set to 'never' and put back",
        "defrag: set to 'never' and put back",
        "nr_hugepages: set to 64 at most (now 0), put back",
    ] {
        assert!(touches.contains(expected), "{expected} in\n{touches}");
    }
    assert!(plan(Privilege::None, &probe).touches.is_empty());
    let without = Chunks {
        knobs: false,
        ..probe
    };
    assert!(plan(Privilege::Root, &without).touches.is_empty());
    assert_eq!(plan(Privilege::Root, &without).memory, Bytes::mib(128));
    assert_eq!(
        fake.content(format!("{DIRECTORY}/defrag"))
            .unwrap()
            .matches('[')
            .count(),
        1
    );
}

#[test]
fn knobs_are_put_back_after_each_strategy() {
    let fake = with_pool(with_thp(machine()), 100);
    let probe = Chunks {
        runs: 1,
        ..Chunks::check(true)
    };
    let measured = run(&fake, Privilege::Root, &probe);
    for strategy in [
        "mthp-64K",
        "thp-direct",
        "thp-noreclaim",
        "collapse",
        "hugetlb",
    ] {
        assert_eq!(error(&measured, strategy, "4M"), None, "{strategy}");
    }
    assert!(
        measured
            .missing
            .iter()
            .all(|missing| missing.what != "putting a knob back")
    );
    for (knob, word) in [
        ("defrag", "madvise"),
        ("hugepages-64kB/enabled", "never"),
        ("hugepages-2048kB/enabled", "inherit"),
    ] {
        let now = read_choice(&fake, format!("{DIRECTORY}/{knob}")).unwrap();
        assert_eq!(now, word, "{knob}");
    }
    let parameters = &find(&measured, "block", "thp-noreclaim", "4M").parameters;
    assert_eq!(parameters["defrag"], Parameter::from("never"));
    assert_eq!(parameters["knobs-set"], Parameter::from("yes"));
}

/// What it finds in the knobs then is the other run's: neither taken as the machine's own, nor
/// changed.
#[test]
fn while_another_run_has_knobs_set_it_measures_what_needs_none() {
    let theirs = r#"{"schema": "stopgap.journal/1", "pid": 2, "start_time": 0, "boot": "",
        "changes": [{"change": "setting", "path": "/proc/sys/vm/x", "before": "1"}]}"#;
    let fake = with_thp(machine()).with_file("/run/stopgap/2.json", theirs);
    let probe = Chunks {
        runs: 1,
        ..Chunks::check(true)
    };
    let measured = run(&fake, Privilege::Root, &probe);
    for strategy in ["base", "collapse"] {
        assert_eq!(error(&measured, strategy, "4M"), None, "{strategy}");
    }
    for strategy in ["mthp-64K", "thp-direct", "thp-noreclaim"] {
        assert_contains(error(&measured, strategy, "4M").unwrap(), &["process 2"]);
    }
    let knob = format!("{DIRECTORY}/hugepages-64kB/enabled");
    assert_eq!(read_choice(&fake, knob).unwrap(), "never");
}

#[test]
fn knobs_that_refuse_are_used_as_they_stand() {
    let fake = with_thp(machine()).read_only(DIRECTORY);
    let probe = Chunks {
        runs: 1,
        ..Chunks::check(true)
    };
    let measured = run(&fake, Privilege::Root, &probe);
    assert_eq!(error(&measured, "thp-direct", "4M"), None);
    let error = error(&measured, "mthp-64K", "4M").unwrap();
    assert!(
        error.starts_with("needs root to set hugepages-64kB/enabled"),
        "{error}"
    );
    assert!(
        error.contains("/enabled: "),
        "the refusal itself is named: {error}"
    );
}

#[test]
fn without_root_knobs_are_left_alone_and_the_row_says_so() {
    let fake = with_pool(with_thp(machine()), 0);
    let probe = Chunks::check(true);
    let measured = run(&fake, Privilege::None, &probe);
    let direct = find(&measured, "take", "thp-direct", "4M");
    assert_eq!(direct.parameters["knobs-set"], Parameter::from("no"));
    assert_eq!(direct.parameters["defrag"], Parameter::from("madvise"));
    let error = |strategy| error(&measured, strategy, "4M").unwrap();
    assert_eq!(error("thp-noreclaim"), "needs root to set defrag to never");
    assert_eq!(error("hugetlb"), "no huge pages in the pool");
}

#[test]
fn parameters_that_make_no_sense_are_refused_with_what_to_do() {
    let refused = |probe: Chunks| {
        let fake = machine();
        let error = within(&fake, Privilege::None, |context| {
            assert!(probe.run(context).is_err());
            probe.plan(context).unwrap_err()
        });
        assert!(matches!(error, ProbeError::Parameter(_)));
        error.to_string()
    };
    let check = || Chunks::check(true);
    let with_size = |size| Chunks {
        sizes: vec![size],
        ..check()
    };
    assert!(refused(with_size(Bytes(5000))).contains("whole pages"));
    assert!(refused(with_size(Bytes(0))).contains("whole pages"));
    assert!(refused(with_size(Bytes::gib(4))).contains("allow more memory"));
    assert!(refused(Chunks { runs: 0, ..check() }).contains("one run"));
    let none = Chunks {
        strategies: vec![],
        ..check()
    };
    assert!(refused(none).contains("one strategy"));
}

#[test]
fn a_size_beyond_the_budget_is_an_error_in_its_row() {
    let probe = Chunks {
        sizes: vec![Bytes::mib(4), Bytes::gib(2)],
        runs: 1,
        ..Chunks::check(true)
    };
    let fake = machine();
    let measured = run(&fake, Privilege::None, &probe);
    let why = "larger than the memory budget of 1 GiB";
    assert_eq!(error(&measured, "base", "2G").as_deref(), Some(why));
    assert_eq!(error(&measured, "base", "4M"), None);
}

/// As on arm64 with 16 KiB pages: nothing takes a huge page for 2 MiB.
#[test]
fn the_pmd_size_is_the_kernels() {
    let at = |name: &str| format!("{DIRECTORY}/{name}");
    let fake = with_thp(machine())
        .with_file(at("hpage_pmd_size"), "33554432")
        .without(at("hugepages-2048kB"))
        .with_file(
            at("hugepages-32768kB/enabled"),
            "always [inherit] madvise never",
        );
    let probe = Chunks::check(true);
    let measured = run(&fake, Privilege::None, &probe);
    for strategy in ["thp-direct", "collapse"] {
        let why = "a page of 32M is larger than the buffer";
        assert_eq!(error(&measured, strategy, "4M").as_deref(), Some(why));
        let blocks = find(&measured, "block", strategy, "64M");
        assert_eq!(blocks.blocks[0].samples, 2);
        assert_eq!(blocks.parameters["block"], Parameter::from("32M"));
    }
    assert_eq!(
        find(&measured, "block", "base", "4M").parameters["block"],
        Parameter::from("4M")
    );
}

#[test]
fn interrupted_it_reports_what_there_is() {
    let fake = machine();
    let journal = Journal::new(&fake, Path::new("/run/stopgap"));
    let calls = std::cell::Cell::new(0);
    let context = Context {
        interrupted: &|| calls.replace(calls.get() + 1) >= 6,
        ..test_context(&fake, &journal)
    };
    let probe = Chunks::check(false);
    let measured = probe.run(&context).unwrap();
    assert!(measured.interrupted);
    let base = find(&measured, "take", "base", "4M");
    assert_eq!(base.blocks.len(), 1, "one run of six strategies");
    let answer = probe.judge(measured, 1, Privilege::None);
    assert_eq!(answer.verdict.word, Word::Inconclusive);
}

/// The first pass, which warms the memory, took all the time: there is no figure, and it is
/// said why.
#[test]
fn a_time_too_short_for_one_buffer_is_named() {
    let fake = machine();
    let journal = Journal::new(&fake, Path::new("/run/stopgap"));
    let context = Context {
        budget: Bytes::gib(16),
        time: Nanos(1),
        ..test_context(&fake, &journal)
    };
    let probe = Chunks {
        sizes: vec![Bytes::gib(16)],
        strategies: vec![Strategy::Base],
        runs: 1,
        ..Chunks::check(true)
    };
    let measured = probe.run(&context).unwrap();
    let takes = measured
        .series
        .iter()
        .filter(|series| series.name == "take");
    assert_eq!(takes.map(|series| series.blocks.len()).sum::<usize>(), 0);
    let said = |missing: &Missing| missing.why.contains("fewer buffers");
    assert!(measured.missing.iter().any(said), "{:?}", measured.missing);
}

#[test]
fn names_read_back() {
    let sizes = [
        Strategy::Mthp(Bytes::kib(64)),
        Strategy::Mthp(Bytes::mib(1)),
        Strategy::MthpUpTo(Bytes::kib(64)),
    ];
    for strategy in Strategy::ALL.into_iter().chain(sizes) {
        assert_eq!(strategy.to_string().parse(), Ok(strategy));
    }
    assert_eq!(Strategy::Mthp(Bytes::kib(64)).to_string(), "mthp-64K");
}

#[test]
fn wrong_names_say_what_there_is() {
    let error = "huge".parse::<Strategy>().unwrap_err();
    assert_contains(&error, &["thp-direct", "mthp-64K"]);
    assert_contains(
        "mthp-3K".parse::<Strategy>().unwrap_err(),
        &["power of two"],
    );
    assert!("mthp-".parse::<Strategy>().is_err());
}
