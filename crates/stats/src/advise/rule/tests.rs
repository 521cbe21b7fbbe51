//! Costs that can be worked out by hand.

use stopgap_events::random::Random;

use super::*;
use crate::advise::AdviceWord;
use crate::advise::sentence::by_passes;
use crate::replay::chunks::TlbFigures;

/// A policy that takes `build` ms and `pass` ms per pass. Bystanders try 1,000 times, and `failing` tries fail.
fn row(policy: &str, build: f64, pass: f64, failing: u64) -> ChunksRow {
    ChunksRow {
        workload: "thread".to_owned(),
        policy: policy.to_owned(),
        operations: 100,
        time_ms: Some(build),
        tlb: vec![TlbFigures {
            access: "linear".to_owned(),
            accesses: 65_536.0,
            misses_per_access: 0.5,
            pass_ms: pass,
        }],
        bystander_tries: 1_000,
        bystander_failures: failing,
        bystanders: vec![usb(1_000, failing)],
        ..ChunksRow::default()
    }
}

fn usb(tries: u64, failures: u64) -> Bystander {
    Bystander {
        name: "usb".to_owned(),
        order: 3,
        tries,
        failures,
    }
}

/// Four buffers of 4 MiB at a time in 1 GiB.
fn setting(alone: Vec<Bystander>) -> ChunksSetting {
    ChunksSetting {
        memory_bytes: 1 << 30,
        page_bytes: 4_096,
        size_bytes: Some(4 << 20),
        buffers: 100,
        live: Some(4),
        access: vec!["linear".to_owned()],
        single_pages: true,
        bystanders_alone: alone,
        ..ChunksSetting::default()
    }
}

/// The advice where no bystander fails without a buffer.
fn advise(rows: &[ChunksRow], access: &str, passes: u64) -> Advice {
    super::advise(rows, &setting(vec![usb(1_000, 0)]), access, passes)
}

fn walk(mut row: ChunksRow, factor: f64) -> ChunksRow {
    row.sensitivity.push(Sensitivity {
        assumption: "walk".to_owned(),
        factor: Some(factor),
        quantity: "pass_ms".to_owned(),
        access: Some("linear".to_owned()),
        value: row.tlb[0].pass_ms * factor,
    });
    row
}

/// Milliseconds over passes: `one-page` 250 + 13 p, `list` 700 + 1 p, `old` 24,000 + 0.5 p.
///
/// ```text
///      |one-page          /
///      |                /        list
///  700 |............../---------------
///      |          /   .
///  250 |      /       .
///      +--------------37.5---- passes       old joins at 46,600
/// ```
#[test]
fn the_choice_turns_where_the_lines_cross() {
    let rows = [
        row("old", 24_000.0, 0.5, 0),
        row("one-page", 250.0, 13.0, 0),
        row("list", 700.0, 1.0, 0),
        row("landed", 702.0, 1.0, 0),
    ];
    let few = advise(&rows, "linear", 37);
    assert_eq!(few.policy.as_deref(), Some("one-page"));
    let many = advise(&rows, "linear", 60);
    assert_eq!(many.policy.as_deref(), Some("list"));
    assert_eq!(many.as_good, ["landed"]);
    assert_eq!(many.runner_up.as_deref(), Some("one-page"));
    assert_eq!(many.verdict.word, AdviceWord::Use);
    assert_eq!(
        by_passes(&many.stretches),
        "one-page, list from 38, old from 46600"
    );
    for words in [
        "use list",
        "760 ms",
        "60 passes",
        "runner-up one-page, 1.03 s",
    ] {
        assert!(many.verdict.text.contains(words), "{}", many.verdict.text);
    }
    // At each break-even the new policy costs no more, and one pass earlier it costs more.
    let life = |policy: &str, passes: u64| {
        let row = rows.iter().find(|row| row.policy == policy).unwrap();
        lines(&[row], "linear", None)[0].life(passes)
    };
    assert!(life("list", 38) <= life("one-page", 38) && life("list", 37) > life("one-page", 37));
    assert!(life("old", 46_600) <= life("list", 46_600));
    let order: Vec<&str> = many.candidates.iter().map(|c| c.policy.as_str()).collect();
    assert_eq!(order, ["list", "landed", "one-page", "old"]);
}

/// Bystanders fail in 30 % beside `list`, in 0.4 % beside `fold`, in 0 % beside `one-page`.
#[test]
fn who_harms_others_is_set_aside_and_that_is_said() {
    let rows = [
        row("one-page", 250.0, 13.0, 0),
        row("list", 700.0, 1.0, 300),
        row("fold", 450.0, 8.0, 4),
    ];
    let advice = advise(&rows, "linear", 1_000);
    assert_eq!(advice.policy.as_deref(), Some("fold"));
    assert_eq!(advice.without_bystanders.as_deref(), Some("list"));
    let list = advice.candidates.last().unwrap();
    assert_eq!(list.policy, "list");
    assert!(list.set_aside.as_ref().unwrap().contains("30.0 %"));
    assert!(
        advice
            .verdict
            .text
            .contains("without regard to bystanders list")
    );
    // A bystander that fails as often without a buffer is not harmed.
    let advice = super::advise(&rows, &setting(vec![usb(1_000, 300)]), "linear", 1_000);
    assert_eq!(advice.policy.as_deref(), Some("list"));
    // Where nobody else tries, nobody is harmed.
    let nobody = rows.map(|row| ChunksRow {
        bystander_tries: 0,
        bystander_failures: 0,
        bystanders: Vec::new(),
        ..row
    });
    let advice = super::advise(&nobody, &setting(Vec::new()), "linear", 1_000);
    assert_eq!(advice.policy.as_deref(), Some("list"));
    assert_eq!(advice.candidates[0].bystanders_failing, None);
}

/// Three of 20 against none is no evidence; 300 of 1,000 was.
#[test]
fn a_few_tries_prove_nothing() {
    let few = ChunksRow {
        bystanders: vec![usb(20, 3)],
        ..row("list", 700.0, 1.0, 0)
    };
    let rows = [row("one-page", 250.0, 13.0, 0), few];
    let advice = super::advise(&rows, &setting(vec![usb(20, 0)]), "linear", 1_000);
    assert_eq!(advice.policy.as_deref(), Some("list"));
}

/// At 50 passes `list` wins with 750 to 900. With walks at half the price, `one-page` would win with 575 to 725.
#[test]
fn what_an_assumption_overturns_is_inconclusive() {
    let rows = [
        walk(walk(row("one-page", 250.0, 13.0, 0), 0.5), 2.0),
        walk(walk(row("list", 700.0, 1.0, 0), 0.5), 2.0),
    ];
    let advice = advise(&rows, "linear", 50);
    assert_eq!(advice.policy.as_deref(), Some("list"));
    assert_eq!(advice.verdict.word, AdviceWord::Inconclusive);
    assert!(
        advice
            .verdict
            .text
            .starts_with("inconclusive: list: but one-page with walk x1/2"),
        "{}",
        advice.verdict.text
    );
    let [half, twice] = &advice.variants[..] else {
        panic!("{:?}", advice.variants)
    };
    assert!(!half.holds && twice.holds);
    assert_eq!(by_passes(&half.stretches), "one-page, list from 75");
    assert_eq!(by_passes(&twice.stretches), "one-page, list from 19");
    // Far from the break-even, half and twice change nothing.
    let far = super::tests::advise(&rows, "linear", 1_000);
    assert_eq!(far.verdict.word, AdviceWord::Use);
}

/// 634 and 636 ms are as good. One of the two tries nine times as often if memory is at its worst.
#[test]
fn of_what_is_as_good_the_one_that_tries_least_is_used() {
    let tries = |row: ChunksRow, tries_per_buffer_at_worst| ChunksRow {
        tries_per_buffer_at_worst,
        ..row
    };
    let rows = [
        tries(row("old", 34.0, 10.0, 0), 9_228),
        tries(row("list", 36.0, 10.0, 0), 1_027),
        tries(row("one-page", 300.0, 10.0, 0), 1_024),
    ];
    let advice = advise(&rows, "linear", 60);
    assert_eq!(advice.policy.as_deref(), Some("list"));
    assert_eq!(advice.as_good, ["old"]);
    assert_eq!(advice.runner_up.as_deref(), Some("one-page"));
    assert_eq!(advice.without_bystanders, None);
}

#[test]
fn who_cannot_build_is_not_chosen() {
    let broken = |row: ChunksRow| ChunksRow { failures: 1, ..row };
    let rows = [broken(row("a", 1.0, 1.0, 0)), row("b", 2.0, 2.0, 0)];
    assert_eq!(advise(&rows, "linear", 9).policy.as_deref(), Some("b"));
    let rows = rows.map(broken);
    let advice = advise(&rows, "linear", 9);
    assert_eq!((advice.policy, advice.runner_up), (None, None));
    assert_eq!(advice.verdict.word, AdviceWord::Inconclusive);
    assert_eq!(advice.candidates.len(), 2);
    assert!(advise_nothing().policy.is_none());
}

fn advise_nothing() -> Advice {
    advise(&[], "linear", 1)
}

/// The one policy that was compared may be the worst of all: it is not advised.
#[test]
fn an_interrupted_comparison_advises_nothing() {
    let rows = [row("old", 24_000.0, 10.0, 0)];
    let setting = setting(vec![usb(1_000, 0)]);
    let advice = interrupted(&rows, &setting, "linear", 60, (1, 13));
    assert_eq!(advice.verdict.word, AdviceWord::Inconclusive);
    assert_eq!(
        advice.verdict.text,
        "inconclusive: interrupted, 1 of 13 policies compared"
    );
    assert_eq!((advice.policy, advice.runner_up), (None, None));
    assert_eq!(advice.candidates.len(), 1);
}

/// An equally good policy is no runner-up.
#[test]
fn where_all_are_as_good_there_is_no_runner_up() {
    let rows = [row("old", 100.0, 1.0, 0), row("list", 101.0, 1.0, 0)];
    let advice = advise(&rows, "linear", 1);
    assert_eq!(advice.policy.as_deref(), Some("old"));
    assert_eq!(advice.as_good, ["list"]);
    assert_eq!(advice.runner_up, None);
    assert!(!advice.verdict.text.contains("runner-up"));
    assert!(advice.verdict.text.contains("life of 1 pass ("));
}

/// Lines that cross at odd places, with tries in the opposite order of costs: the advice by passes is the policy that
/// is used at every number of passes, also under each assumption.
#[test]
fn by_passes_tells_what_is_used_at_each_number_of_passes() {
    let mut random = Random::new(7);
    for _ in 0..50 {
        let mut any = |most: u32| f64::from(u32::try_from(random.below(u64::from(most))).unwrap());
        let rows: Vec<ChunksRow> = (0..6)
            .map(|at| {
                let one = row(&format!("p{at}"), 50.0 + any(60), any(8) / 4.0, 0);
                let tries_per_buffer_at_worst = any(4) as u64;
                walk(
                    ChunksRow {
                        tries_per_buffer_at_worst,
                        ..one
                    },
                    0.5,
                )
            })
            .collect();
        let used = |stretches: &[Stretch], passes: u64| {
            let before = stretches.iter().rev();
            let mut before = before.filter(|one| one.from_passes <= passes);
            before.next().map(|one| one.policy.clone())
        };
        let (stretches, half) = {
            let mut advice = advise(&rows, "linear", 0);
            (advice.stretches, advice.variants.remove(0).stretches)
        };
        for passes in 0..200 {
            let advice = advise(&rows, "linear", passes);
            assert_eq!(
                advice.policy,
                used(&stretches, passes),
                "{passes}: {rows:?}"
            );
            let variant = &advice.variants[0].policy;
            assert_eq!(Some(variant), used(&half, passes).as_ref(), "{passes}");
        }
    }
}

/// Four buffers of 512 MiB do not fit into 1 GiB, and the advice says so.
#[test]
fn what_cannot_fit_is_said() {
    let broken = ChunksRow {
        failures: 1,
        ..row("a", 1.0, 1.0, 0)
    };
    let small = setting(Vec::new());
    let large = ChunksSetting {
        size_bytes: Some(512 << 20),
        ..small.clone()
    };
    let text = |setting: &ChunksSetting| {
        let rows = [broken.clone()];
        super::advise(&rows, setting, "linear", 1).verdict.text
    };
    assert!(
        text(&large).contains("(4 held at a time are 2 GiB, and the memory has 1 GiB)"),
        "{}",
        text(&large)
    );
    assert!(!text(&small).contains("held at a time"));
}
