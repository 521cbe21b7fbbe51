use stopgap_testing::assert_contains;

use stopgap_kernel::fake::Fake;
use stopgap_kernel::journal::Journal;
use stopgap_stats::histogram::Recorder;
use stopgap_stats::verdict::Word;

use super::*;
use crate::contract::test_context;

fn probe() -> Wakeup {
    Wakeup {
        runs: 4,
        ..Wakeup::check(false)
    }
}

fn with<T>(fake: &Fake, time: Nanos, act: impl FnOnce(&Context<'_>) -> T) -> T {
    let journal = Journal::new(fake, "/journal".as_ref());
    act(&Context {
        time,
        privilege: Privilege::Root,
        ..test_context(fake, &journal)
    })
}

fn measure(fake: &Fake) -> Measured {
    with(fake, Nanos::secs(4), |context| {
        probe().run(context).unwrap()
    })
}

#[test]
fn a_machine_that_is_always_on_time() {
    let fake = Fake::default().with_file(CPU_LATENCY, "");
    let measured = measure(&fake);
    assert_eq!(measured.missing, []);
    let all = measured.series.iter().find(|s| s.name == WAKE_UP).unwrap();
    // 4 runs of 1 s, a wake-up a millisecond, none late.
    let counts: Vec<u64> = all.blocks.iter().map(|block| block.samples).collect();
    assert_eq!(counts, [1_000; 4]);
    assert_eq!(all.pooled().max(), Some(0));
    assert_eq!(all.word("policy"), Some("fifo"));
    let demand = fake.content(CPU_LATENCY).unwrap();
    assert_eq!(demand.as_bytes(), 0i32.to_ne_bytes(), "held at 0");
    let answer = probe().judge(measured, 1, Privilege::Root);
    assert_eq!(answer.verdict.word, Word::Clean, "{:?}", answer.verdict);
    let text = "clean: no wake-up above 10 ms in 4 runs, 4 s (at most 0.75/s); longest 0 ns, SCHED_FIFO 80";
    assert_eq!(answer.verdict.text, text);
}

#[test]
fn what_an_ordinary_user_lacks_is_said_and_the_rest_measured() {
    let fake = Fake::default().ordinary();
    let measured = measure(&fake);
    let all = measured.series.iter().find(|s| s.name == WAKE_UP).unwrap();
    assert_eq!(
        (all.word("policy"), all.number("priority")),
        (Some("other"), None)
    );
    let what: Vec<&str> = measured.missing.iter().map(|one| &*one.what).collect();
    assert_eq!(what.len(), 3, "{what:?}"); // idle states, memory, policy: each once
    let answer = probe().judge(measured, 1, Privilege::None);
    assert!(
        answer.verdict.text.ends_with("SCHED_OTHER"),
        "{:?}",
        answer.verdict
    );
    assert_contains(&answer.advice[0], &["RLIMIT_RTPRIO"]);
}

#[test]
fn what_makes_no_sense_is_named() {
    let fake = Fake::default();
    let whole = probe();
    type Change = fn(&mut Wakeup);
    let wrong: [(Change, &str); 4] = [
        (|probe| probe.interval = Nanos::micros(10), "50 us"),
        (|probe| probe.runs = 0, "runs"),
        (|probe| probe.priority = 0, "1 to 99"),
        (|probe| probe.stall = Nanos(0), "--stall"),
    ];
    with(&fake, Nanos::secs(1), |context| {
        assert!(whole.plan(context).is_ok());
        for (change, word) in wrong {
            let mut probe = whole.clone();
            change(&mut probe);
            let why = probe.plan(context).unwrap_err().to_string();
            assert!(why.contains(word), "{why}");
        }
        let poor = Context {
            budget: Bytes::mib(1),
            ..*context
        };
        let why = whole.plan(&poor).unwrap_err().to_string();
        assert!(why.contains("--memory"), "{why}");
    });
}

#[test]
fn short_time_is_fewer_runs() {
    let probe = Wakeup::check(false);
    assert_eq!(probe.division(Nanos::secs(60)), (10, Nanos::secs(6)));
    assert_eq!(probe.division(Nanos::secs(1)), (4, Nanos::millis(250)));
    assert_eq!(probe.division(Nanos::millis(300)), (3, Nanos::millis(100)));
    assert_eq!(probe.division(Nanos(3)), (3, Nanos::millis(1)));
}

/// Runs of 10 s a CPU on two CPUs; `late` is how late a period of a run was, each on its own.
fn runs(late: &[&[u64]]) -> Measured {
    let mut measured = Measured::default();
    measured.facts.insert(CPUS.to_owned(), 2.0);
    for (run, late) in (0..).zip(late) {
        let mut recorder = Recorder::new(10_000_000);
        for at in 0..20_000u64 {
            let late = usize::try_from(at).ok().and_then(|at| late.get(at));
            recorder.record(at * 1_000_000_000, late.copied().unwrap_or(5_000));
        }
        let block = recorder.into_block(run, 0);
        let parameters = probe().parameters(Policy::Fifo);
        measured.block(WAKE_UP, "ns", &parameters, block);
    }
    measured
}

#[test]
fn stalls_in_two_runs_are_stalls_and_in_one_are_not() {
    let judge = |late: &[&[u64]]| probe().judge(runs(late), 1, Privilege::Root);
    const MS: u64 = 1_000_000;
    let twice = judge(&[&[12 * MS, 40 * MS], &[], &[30 * MS], &[]]);
    assert_eq!(twice.verdict.word, Word::Stalls);
    // 3 in 4 runs of 10 s.
    let figure = twice.figure.unwrap();
    assert!((figure.value - 0.075).abs() < 1e-9, "{figure:?}");
    let text = twice.verdict.text;
    assert!(text.starts_with("stalls 0.0750/s (0.0000.."), "{text}");
    assert!(text.contains(") above 10 ms: longest 40"), "{text}");
    let once = judge(&[&[12 * MS, 40 * MS], &[], &[9 * MS], &[]]);
    let text = once.verdict.text;
    assert!(
        text.starts_with("inconclusive: 2 stalls above 10 ms in one run of 4: not repeated"),
        "{text}"
    );
    let text = judge(&[&[12 * MS], &[], &[9 * MS], &[]]).verdict.text;
    assert!(text.starts_with("inconclusive: 1 stall above"), "{text}");
    let few = judge(&[&[], &[]]);
    assert!(
        few.verdict
            .text
            .starts_with("inconclusive: 2 runs are too few"),
        "{:?}",
        few.verdict
    );
    let none = judge(&[&[], &[], &[9 * MS], &[]]);
    assert_eq!(none.verdict.word, Word::Clean);
    assert_eq!(none.figure.unwrap().high, Some(3.0 / 40.0));
}

#[test]
fn cpus_of_a_run_are_one_block() {
    let block = |start, late: &[(u64, u64)]| {
        let mut recorder = Recorder::new(10);
        for &(at, late) in late {
            recorder.record(at, late);
        }
        recorder.into_block(3, start).unwrap()
    };
    let one = block(7, &[(100, 1), (200, 50)]);
    let other = block(5, &[(100, 20), (300, 2)]);
    let both = together(3, vec![one, other]).unwrap();
    assert_eq!((both.run, both.start_ns, both.samples), (3, 5, 4));
    assert_eq!(both.histogram.unwrap().max(), Some(50));
    let stalls = both.stalls.unwrap();
    assert_eq!(stalls.count, 2);
    let starts: Vec<u64> = stalls.episodes.iter().map(|stall| stall.start_ns).collect();
    assert_eq!(starts, [100, 200], "in the order of time");
    assert_eq!(together(0, Vec::new()), None);
}
