use stopgap_events::units::Nanos;
use stopgap_stats::record::Block;
use stopgap_testing::assert_contains;

use super::*;

fn series(cell: &Cell, name: &str, values: &[f64]) -> Series {
    let blocks = (0u32..).zip(values);
    let blocks = blocks.map(|(run, &value)| Block::number(run, 0, 1_000, value));
    Series::new(name, PER_ROUND_TRIP, &cell_parameters(cell), blocks)
}

const POLL: Cell = Cell {
    work: Nanos::micros(50),
    ..Cell::PLAIN
};
const READ: Cell = Cell {
    client: ClientWait::Read,
    ..POLL
};
const TOGETHER: Cell = Cell {
    batch: 32,
    ..Cell::PLAIN
};
const EACH: Cell = Cell {
    reply: Reply::Each,
    ..TOGETHER
};

fn probe(cells: &[Cell]) -> Roundtrip {
    Roundtrip {
        cells: cells.to_vec(),
        cpus: Vec::new(),
        runs: 5,
        round_trips: 1_000,
    }
}

/// The answer to these totals of these cells, with shares of the client that are half of them.
fn answer(cells: &[(Cell, &[f64])], records: f64) -> Answer {
    let all: Vec<Cell> = cells.iter().map(|(cell, _)| *cell).collect();
    let probe = probe(&all);
    let mut measured = Measured::default();
    for (cell, totals) in cells {
        measured.add(series(cell, SWITCHES, totals));
        let half: Vec<f64> = totals.iter().map(|total| total / 2.0).collect();
        measured.add(series(cell, CLIENT_VOLUNTARY, &half));
        measured.add(series(cell, SERVER_VOLUNTARY, &vec![1.0; half.len()]));
        let rest: Vec<f64> = half.iter().map(|half| half - 1.0).collect();
        measured.add(series(cell, SERVER_INVOLUNTARY, &rest));
        measured.add(series(cell, CLIENT_INVOLUNTARY, &vec![0.0; half.len()]));
        let by_records: Vec<f64> = totals.iter().map(|total| total * records).collect();
        measured.add(series(cell, RECORDS, &by_records));
    }
    judge(&probe, measured, 1, Privilege::None)
}

const TWO: &[f64] = &[2.0, 2.01, 2.0, 2.02, 2.0];
const FOUR: &[f64] = &[3.8, 3.9, 3.8, 3.7, 3.8];

#[test]
fn a_blocking_read_is_named_with_what_removes_it() {
    let answer = answer(&[(POLL, TWO), (READ, FOUR)], 1.0);
    assert_eq!(answer.verdict.word, Word::Excess);
    let text = &answer.verdict.text;
    assert!(text.starts_with("excess 1.90x ("), "{text}");
    assert!(
        text.ends_with(
            "): blocking-read client woken by the server's read (client 1.9, server 1.9); \
             poll instead removes it (2.00)"
        ),
        "{text}"
    );
    let figure = answer.figure.unwrap();
    assert_eq!((figure.value, figure.unit.as_str()), (1.9, "x"));
    assert!(figure.low.unwrap() > 1.7 && figure.high.unwrap() < 2.1);
    assert!(answer.advice[0].starts_with("poll instead: 3.8 -> 2.0"));
}

#[test]
fn a_write_per_reply_is_compared_with_one_writev() {
    let many: &[f64] = &[34.0, 35.0, 34.0, 33.0, 34.0];
    let answer = answer(
        &[(POLL, TWO), (READ, FOUR), (TOGETHER, TWO), (EACH, many)],
        1.0,
    );
    // One request and one reply lead; the write per reply stands beside it.
    assert!(answer.verdict.text.contains("blocking-read client"));
    let beside = &answer.evidence[0];
    assert!(beside.contains("32 replies by a write each"), "{beside}");
    assert!(beside.ends_with("one writev removes it (2.00)"), "{beside}");

    let alone = self::answer(&[(POLL, TWO), (TOGETHER, TWO), (EACH, many)], 1.0);
    let text = &alone.verdict.text;
    assert!(text.starts_with("excess 17.0x ("), "{text}");
    assert!(text.contains("34 switches for 32 replies"), "{text}");
    assert!(text.ends_with("one writev removes it (2.00)"), "{text}");
}

#[test]
fn a_cause_is_not_named_without_its_sign() {
    // A blocking-read client that blocks once a round trip: something else is too much.
    let mut measured = Measured::default();
    for (name, value) in [
        (SWITCHES, 3.0),
        (CLIENT_VOLUNTARY, 1.0),
        (CLIENT_INVOLUNTARY, 0.0),
        (SERVER_VOLUNTARY, 1.0),
        (SERVER_INVOLUNTARY, 1.0),
    ] {
        measured.add(series(&READ, name, &[value; 5]));
    }
    let probe = probe(&[READ]);
    let text = judge(&probe, measured, 1, Privilege::None).verdict.text;
    assert_contains(
        &text,
        &["the server is pre-empted (client 1.0, server 2.0)"],
    );
}

#[test]
fn nothing_above_the_least_is_clean() {
    let answer = answer(&[(POLL, TWO), (TOGETHER, TWO)], 1.0);
    assert_eq!(answer.verdict.word, Word::Clean);
    assert!(
        answer
            .verdict
            .text
            .starts_with("clean 2.00 switches/rt (2.0"),
        "{}",
        answer.verdict.text
    );
    assert!(answer.advice.is_empty());
}

#[test]
fn runs_that_disagree_decide_nothing() {
    let answer = answer(&[(POLL, &[2.0, 6.0, 2.0, 9.0, 2.1])], 1.0);
    assert_eq!(
        answer.verdict.word,
        Word::Inconclusive,
        "{}",
        answer.verdict.text
    );
}

#[test]
fn too_few_runs_decide_nothing() {
    let answer = answer(&[(READ, &[3.8, 3.8])], 1.0);
    assert_eq!(answer.verdict.word, Word::Inconclusive);
    assert_contains(&answer.verdict.text, &["2 runs"]);
    assert_eq!(answer.figure, None);
}

#[test]
fn means_that_differ_are_said_to_and_contradictory_ones_decide_nothing() {
    let sentence = |records: f64| {
        let answer = answer(&[(POLL, TWO), (READ, FOUR)], records);
        (answer.verdict.word, answer.evidence.join("\n"))
    };
    let (word, evidence) = sentence(0.99);
    assert_eq!(word, Word::Excess);
    assert!(evidence.contains("differ by at most 1.0 %"), "{evidence}");
    assert!(!evidence.contains("doubtful"), "{evidence}");
    let (word, evidence) = sentence(0.95);
    assert_eq!(word, Word::Excess);
    assert!(evidence.contains("doubtful: rusage"), "{evidence}");
    let (word, _) = sentence(0.5);
    assert_eq!(word, Word::Inconclusive);
}

#[test]
fn a_backlog_makes_latencies_doubtful_and_counts_not() {
    let probe = probe(&[POLL]);
    let doubtful = |missed: u64| {
        let mut measured = Measured::default();
        measured.add(series(&POLL, SWITCHES, TWO));
        measured.count(PERIODS, 1_000);
        measured.lose(MISSED, missed);
        let answer = judge(&probe, measured, 1, Privilege::None);
        assert_eq!(answer.verdict.word, Word::Clean);
        answer.evidence.join(" ").contains("latencies are doubtful")
    };
    assert!(doubtful(101));
    assert!(!doubtful(100));
}

#[test]
fn a_busy_machine_is_not_clean() {
    let probe = probe(&[POLL]);
    let word = |others: f64| {
        let mut measured = Measured::default();
        measured.add(series(&POLL, SWITCHES, TWO));
        measured.add(series(&POLL, OTHERS, &[others; 5]));
        judge(&probe, measured, 1, Privilege::None).verdict.word
    };
    assert_eq!(word(5.0), Word::Clean);
    assert_eq!(word(40.0), Word::Inconclusive);
}
