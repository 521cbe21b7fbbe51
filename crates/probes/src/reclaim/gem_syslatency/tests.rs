use stopgap_kernel::fake::Fake;
use stopgap_kernel::journal::Journal;
use stopgap_stats::read::{Options, read};
use stopgap_stats::verdict::Word;
use stopgap_testing::assert_contains;

use super::*;
use crate::contract::test_context;

fn probe(memory: bool) -> GemSyslatency {
    GemSyslatency {
        time: Nanos::secs(1),
        background: None,
        memory,
        stall: Nanos::millis(10),
    }
}

fn with<T>(fake: &Fake, act: impl FnOnce(&Context<'_>) -> T) -> T {
    let journal = Journal::new(fake, "/journal".as_ref());
    act(&Context {
        privilege: Privilege::Root,
        ..test_context(fake, &journal)
    })
}

/// A CPU whose samples are these, microseconds.
fn report(mean_us: f64, max_us: f64) -> Report {
    Report {
        mean_us: Some(mean_us),
        original_us: Some(mean_us / 2.0),
        max_us: Some(max_us),
        missed: 3,
        ..Report::default()
    }
}

fn busy(cycles: u64) -> Report {
    Report {
        cycles,
        ..Report::default()
    }
}

/// Eleven CPUs with means 1..11 us and maxima 10, 20, .. 110 us, the last of which is 9 s; busy threads 100, 101, .. 110
/// passes. By hand: cycles 105; mean 6; maxima as 1..11: trimean 6, times 10.
#[test]
fn the_line_of_a_hand_computed_case() {
    let mut measured = Measured::default();
    let mut measuring: Vec<Report> = (1..=11)
        .map(|n| report(f64::from(n), f64::from(n) * 10.0))
        .collect();
    measuring[10].max_us = Some(9_000_000.0);
    let busy: Vec<Report> = (100..=110).map(busy).collect();
    probe(false).gather(&mut measured, 11, measuring, &busy);
    let answer = probe(false).judge(measured, 1, Privilege::Root);
    assert_eq!(
        answer.evidence[0],
        "gem_syslatency: cycles=105, latency mean=6.000us max=60us"
    );
    assert_contains(&answer.evidence[1], &["9000000 us"]);
    assert!(
        answer.evidence[2].starts_with("33 timers") && answer.evidence[2].ends_with("3.000 us")
    );
    let numbers = Field::ALL.iter().map(|field| field.print(&answer).unwrap());
    assert_eq!(numbers.collect::<Vec<_>>(), ["105", "6.000", "60"]);
    assert_eq!(answer.verdict.word, Word::Inconclusive);
}

/// Its numbers, a run a line, are what compare and ministat take.
#[test]
fn numbers_of_several_runs_are_a_file_that_compare_reads() {
    let mut file = String::new();
    for mean in [6.0, 7.5, 1_000.25] {
        let mut measured = Measured::default();
        probe(false).gather(&mut measured, 1, vec![report(mean, 1.0)], &[busy(1)]);
        let answer = probe(false).judge(measured, 1, Privilege::Root);
        file += &(Field::Mean.print(&answer).unwrap() + "\n");
    }
    let read = read(file.as_bytes(), &Options::default()).unwrap();
    let values: Vec<f64> = read
        .runs
        .iter()
        .flat_map(|run| run.numbers.values().copied())
        .collect();
    assert_eq!(values, [6.0, 7.5, 1_000.25]);
}

#[test]
fn a_cpu_that_failed_is_said_and_the_others_are_folded() {
    let mut measured = Measured::default();
    let failed = Report {
        error: Some("ENOMEM".to_owned()),
        ..Report::default()
    };
    probe(true).gather(&mut measured, 2, vec![report(4.0, 9.0), failed], &[busy(7)]);
    assert_eq!(
        measured.missing,
        [stopgap_events::machine::Missing::new(
            "a thread to its end",
            "ENOMEM"
        )]
    );
    let answer = probe(true).judge(measured, 1, Privilege::Root);
    assert_eq!(
        line(&answer).unwrap(),
        "gem_syslatency: cycles=7, latency mean=4.000us max=9us"
    );
}

#[test]
fn a_fake_machine_is_measured_and_read_back() {
    let fake = Fake::default().ordinary();
    for memory in [false, true] {
        let answer = with(&fake, |context| {
            probe(memory).plan(context).unwrap();
            let measured = probe(memory).run(context).unwrap();
            probe(memory).judge(measured, 1, Privilege::None)
        });
        let name = if memory { ALLOCATE } else { TIMER };
        assert_eq!(answer.series[0].name, name);
        assert!(line(&answer).is_some(), "{answer:?}");
        let lacks = |word: &str| answer.missing.iter().any(|one| one.what.contains(word));
        assert!(
            lacks("real-time priority") && lacks("sleeping deeply"),
            "{:?}",
            answer.missing
        );
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    let fake = Fake::default();
    let never = GemSyslatency {
        time: Nanos(0),
        ..probe(false)
    };
    let ever = GemSyslatency {
        time: Nanos::secs(100_000),
        ..probe(false)
    };
    with(&fake, |context| {
        for probe in [never, ever] {
            let why = probe.plan(context).unwrap_err().to_string();
            assert!(why.contains("always ends"), "{why}");
        }
        let poor = Context {
            budget: Bytes::mib(16),
            ..*context
        };
        let why = probe(true).plan(&poor).unwrap_err().to_string();
        assert!(why.contains("--memory"), "{why}");
        let walk = GemSyslatency {
            background: Some("/".into()),
            ..probe(true)
        };
        let plan = walk.plan(context).unwrap();
        assert_eq!(plan.time, Nanos::secs(6), "with its head start");
        assert!(plan.what.contains("reading only"), "{}", plan.what);
    });
}

fn up_to(n: u32) -> Vec<f64> {
    (1..=n).map(f64::from).collect()
}

#[test]
fn up_to_five_cpus_it_is_the_mean() {
    assert_eq!(fold(&[]), None);
    assert_eq!(fold(&[7.0]), Some(7.0));
    assert_eq!(fold(&[1.0, 2.0, 3.0, 4.0, 90.0]), Some(20.0));
}

#[test]
fn up_to_nine_it_is_the_median() {
    assert_eq!(fold(&[90.0, 1.0, 2.0, 3.0, 4.0, 5.0]), Some(3.5));
    assert_eq!(
        fold(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 900.0]),
        Some(5.0)
    );
}

/// Ten: halves 1..5 and 6..10, so q1 3, q2 5.5, q3 8. Eleven: halves 1..6 and 6..11, so q1 3.5, q2 6, q3 8.5.
#[test]
fn beyond_it_is_the_trimean_and_an_odd_middle_belongs_to_both_halves() {
    assert_eq!(fold(&up_to(10)), Some((3.0 + 11.0 + 8.0) / 4.0));
    assert_eq!(fold(&up_to(11)), Some(6.0));
    // The upper half is 0 4 8 12 16 20 with the middle in it, so q3 is 10; without it, 12.
    let odd = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 8.0, 12.0, 16.0, 20.0];
    assert_eq!(fold(&odd), Some((0.0 + 0.0 + 10.0) / 4.0));
}

#[test]
fn an_outlier_disappears_in_it() {
    let mut maxima = up_to(11);
    maxima[10] = 675_000_000.0;
    assert_eq!(fold(&maxima), Some(6.0));
    maxima.swap(0, 10);
    assert_eq!(fold(&maxima), Some(6.0), "in whatever order");
}
