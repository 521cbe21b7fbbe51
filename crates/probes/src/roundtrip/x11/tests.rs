use super::*;
use stopgap_events::units::Nanos;
use stopgap_kernel::fake::Fake;
use stopgap_kernel::tasks::Switches;
use stopgap_kernel::x11::X11 as _;
use stopgap_stats::verdict::Word;

/// A run of 50 flushes in which the server was pre-empted so often; with it 50 + 50 blocked.
fn run(pre_empted: u64) -> XRun {
    let blocked = Switches {
        voluntary: 50,
        involuntary: 0,
    };
    XRun {
        client: blocked,
        server: Switches {
            involuntary: pre_empted,
            ..blocked
        },
        flushes: Some(50),
        windows: 500,
        elapsed: Nanos::millis(20),
    }
}

fn judged(measured: Measured) -> Answer {
    let probe = X11 {
        cpus: vec![1, 0],
        runs: 10,
    };
    probe.judge(measured, 7, Privilege::None)
}

#[test]
fn excess_is_told_with_its_spread_and_what_removes_it() {
    let mut measured = Measured::default();
    for n in 0..10 {
        keep_run(&mut measured, CELLS[0], n, 0, &run(200 + 10 * u64::from(n)));
        keep_run(&mut measured, CELLS[1], n, 0, &run(u64::from(n % 3)));
    }
    let answer = judged(measured);
    assert_eq!(answer.verdict.word, Word::Excess);
    let text = &answer.verdict.text;
    assert!(text.contains("one CPU: the server is pre-empted"), "{text}");
    assert!(
        text.ends_with("SCHED_BATCH for the client removes it (2.02)"),
        "{text}"
    );
    // 300 to 390 switches in 50 flushes; nine of ten took 380 at most.
    let sentence = &answer.evidence[0];
    assert!(sentence.starts_with("one CPU: 6.9"), "{sentence}");
    assert!(
        sentence.ends_with("p90 7.60, 6.00 to 7.80 in 10 runs"),
        "{sentence}"
    );
    assert!(answer.advice[0].starts_with("SCHED_BATCH for the client: 6.9"));
}

#[test]
fn two_switches_a_flush_are_clean_and_few_runs_say_nothing() {
    let mut measured = Measured::default();
    (0..3).for_each(|n| keep_run(&mut measured, CELLS[0], n, 0, &run(1)));
    let answer = judged(measured);
    assert_eq!(answer.verdict.word, Word::Clean, "{}", answer.verdict.text);
    assert!(answer.evidence[0].contains("p90 takes 10 runs"));

    let mut measured = Measured::default();
    keep_run(&mut measured, CELLS[0], 0, 0, &run(300));
    assert_eq!(judged(measured).verdict.word, Word::Inconclusive);
}

#[test]
fn what_was_not_counted_is_missing_and_no_figure() {
    let mut measured = Measured::default();
    let without = XRun {
        flushes: None,
        ..run(5)
    };
    keep_run(&mut measured, CELLS[0], 0, 0, &without);
    let some = XRun {
        windows: 3,
        ..run(5)
    };
    keep_run(&mut measured, CELLS[0], 1, 0, &some);
    let names: Vec<&str> = measured.series.iter().map(|s| &*s.name).collect();
    assert_eq!(names, [OF_A_RUN]);
    let missing: Vec<&str> = measured.missing.iter().map(|m| &*m.what).collect();
    assert_eq!(missing, ["client flushes", "one CPU"]);
}

#[test]
fn one_cpu_leaves_out_what_takes_two_and_no_x_says_what_to_install() {
    let (cells, missing) = possible(&[3]);
    assert_eq!((cells.len(), missing.len()), (2, 3));
    let error = unsupported(Fake::default().start_x(1, &[]).err().unwrap());
    assert!(matches!(error, ProbeError::Unsupported(_)));
    assert!(
        error
            .to_string()
            .starts_with("unsupported: install xvfb and x11-utils")
    );
}
