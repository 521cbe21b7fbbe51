//! Tables of rows that are made up.

use std::collections::BTreeMap;

use stopgap_events::machine::Missing;
use stopgap_events::question::Question;
use stopgap_stats::replay::chunks::{
    Assumption, Bystander, ChunksRow, ChunksSetting, MailKind, MailTime, Sensitivity, TlbFigures,
};
use stopgap_stats::replay::{Replay, Row, SCHEMA};

use super::*;

pub(crate) fn row(policy: &str, ms: f64, entries: [f64; 2], failing: u64) -> ChunksRow {
    let sensitive =
        |assumption: &str, factor, quantity: &str, access: Option<&str>, value| Sensitivity {
            assumption: assumption.to_owned(),
            factor: Some(factor),
            quantity: quantity.to_owned(),
            access: access.map(str::to_owned),
            value,
        };
    ChunksRow {
        workload: "thread".to_owned(),
        policy: policy.to_owned(),
        n: None,
        operations: 50,
        failures: 0,
        tries_per_buffer: 1_024.0,
        failed_tries_per_buffer: 1.0,
        tries_per_buffer_at_worst: 1,
        tries_per_buffer_by_order: vec![1_024.0],
        failed_tries_per_buffer_by_order: vec![1.0],
        time_ms: Some(ms),
        time_p99_ms: None,
        time_worst_ms: Some(ms * 1.5),
        time_by_cause_ms: BTreeMap::from([
            ("reclaim".to_owned(), ms * 0.9),
            ("clear".to_owned(), ms * 0.1),
        ]),
        entries: BTreeMap::from([
            ("4K".to_owned(), entries[0]),
            ("64K".to_owned(), entries[1]),
        ]),
        table_bytes: Some(12_288.0),
        tlb_misses_per_access: Some(0.015_6),
        tlb: vec![TlbFigures {
            access: "linear".to_owned(),
            accesses: 65_536.0,
            misses_per_access: 0.015_6,
            pass_ms: 0.2,
        }],
        bystander_tries: 100,
        bystander_failures: failing,
        bystanders: vec![Bystander {
            name: "dwc2".to_owned(),
            order: 3,
            tries: 100,
            failures: failing,
        }],
        large_blocks_per_mib: Some(-0.25),
        unusable_before: vec![Some(0.0), Some(0.5), None],
        unusable_after: vec![Some(0.0), Some(0.75), None],
        sensitivity: vec![
            sensitive("reclaim a page", 0.5, "time_ms", None, ms * 0.55),
            sensitive("reclaim a page", 2.0, "time_ms", None, ms * 1.9),
            sensitive("call", 2.0, "time_ms", None, ms),
            sensitive("entries", 0.5, "misses_per_access", Some("linear"), 0.031),
            sensitive("entries", 2.0, "misses_per_access", Some("linear"), 0.007_8),
        ],
        mail: Some(MailTime {
            mail_ms: Some(250.0),
            factor: Some(ms / 250.0),
            kind: MailKind::Compared,
        }),
        missing: vec![Missing::new("time_p99_ms", "n too small")],
    }
}

pub(crate) fn replay(rows: Vec<ChunksRow>) -> Replay {
    Replay {
        schema: SCHEMA.to_owned(),
        version: String::new(),
        command: Vec::new(),
        question: Question::Chunks,
        seed: 7,
        repetitions: 1,
        clock_ns: None,
        interrupted: false,
        rows: rows.into_iter().map(Row::Chunks).collect(),
        growth: Vec::new(),
        mail: None,
        roundtrip: None,
        reclaim: None,
        chunks: Some(ChunksSetting {
            memory: "thread".to_owned(),
            memory_bytes: 2 << 30,
            kernel: "3.14".to_owned(),
            page_bytes: 4_096,
            size_bytes: Some(4 << 20),
            buffers: 50,
            live: Some(4),
            device: vec!["4K".to_owned(), "64K".to_owned()],
            access: vec!["linear".to_owned()],
            single_pages: true,
            bystanders_alone: vec![Bystander {
                name: "dwc2".to_owned(),
                order: 3,
                tries: 100,
                failures: 2,
            }],
            assumptions: vec![Assumption {
                name: "reclaim a page".to_owned(),
                value: Some(244.0),
                unit: "us".to_owned(),
                why: "fit".to_owned(),
            }],
        }),
    }
}

const STYLE: Style = Style {
    width: 110,
    colour: false,
    verbose: true,
};

#[test]
fn a_replay_of_chunks_leads_with_a_sentence() {
    let broken = ChunksRow {
        failures: 2,
        mail: None,
        ..row("sor\u{1b}[31mted", 250.0, [1_024.0, 0.0], 0)
    };
    let rows = vec![
        row("old", 24_000.0, [16.0, 63.0], 40),
        row("one-page", 250.0, [1_024.0, 0.0], 0),
        broken,
    ];
    let text = screen(&replay(rows), STYLE);
    let line = |word: &str| {
        let found = text.lines().find(|line| line.contains(word));
        found.unwrap_or_else(|| panic!("no '{word}' in\n{text}"))
    };
    let start = text.split("\npolicy").next().unwrap().replace('\n', " ");
    for words in [
        "thread: a buffer is built fastest with one-page",
        "slowest with old, in 24 s (96.0x)",
        "fewest IOMMU entries with old, 79.0; most with one-page",
        "dwc2 fails in 2.00 % without a buffer, 0 % beside one-page",
        "40.0 % beside old",
        "50 buffers of 4 MiB",
    ] {
        let squeezed = start.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed.contains(words), "no '{words}' in {squeezed}");
    }
    for cells in ["reclaim 90 %", "96.0x", "differs", "36 s"] {
        assert!(line("36 s").contains(cells), "no '{cells}' in\n{text}");
    }
    assert!(
        line("36 s").contains("1,024     1.00"),
        "tries a buffer
{text}"
    );
    assert!(line("12.0 K").contains("40.0"));
    assert!(line("(nothing)").ends_with("2.00"), "{text}");
    assert!(line("before").contains("0.50"));
    assert!(line("13.2 s..45.6 s").contains("reclaim a page"));
    assert!(line("13.2 s..45.6 s").contains("0.78..3.10"));
    assert!(line("could not build").contains("2 of 50"));
    assert!(line("all policies: time_p99_ms").contains("n too small"));
    assert!(!text.contains('\u{1b}'));
    for line in text.lines() {
        assert!(line.chars().count() <= 110, "{} in\n{text}", line.len());
    }
}

/// Nothing to set beside, and nothing that could be built.
#[test]
fn one_policy_and_none_that_builds() {
    let text = screen(&replay(vec![row("old", 24_000.0, [16.0, 63.0], 0)]), STYLE);
    assert!(text.starts_with(
        "thread: a buffer is built in 24 s with old\nit takes 79.0 IOMMU entries with old\n"
    ));
    let nothing = ChunksRow {
        time_ms: None,
        time_worst_ms: None,
        time_by_cause_ms: BTreeMap::new(),
        entries: BTreeMap::new(),
        table_bytes: None,
        tlb: Vec::new(),
        sensitivity: Vec::new(),
        bystander_tries: 0,
        bystanders: Vec::new(),
        failures: 50,
        mail: None,
        ..row("old", 0.0, [0.0; 2], 0)
    };
    let text = screen(&replay(vec![nothing]), STYLE);
    assert!(
        text.starts_with("thread: no policy could build a buffer\n"),
        "{text}"
    );
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

/// 2 of 50 is too late at the bottom; and four of 512 MiB in 1 GiB can be no surprise.
#[test]
fn what_could_not_be_built_is_said_at_once() {
    let broken = ChunksRow {
        failures: 37,
        ..row("list", 39.4, [16.0, 63.0], 0)
    };
    let mut replay = replay(vec![broken, row("old", 24_000.0, [16.0, 63.0], 0)]);
    if let Some(setting) = &mut replay.chunks {
        setting.size_bytes = Some(1 << 30);
    }
    let text = screen(&replay, STYLE);
    let lead = text.split("50 buffers of").next().unwrap();
    let lead = lead.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = "37 of 50 buffers NOT built with list (4 held at a time are 4 GiB, and the memory has 2 GiB)";
    assert!(lead.contains(words), "{lead}");
}

/// Eleven sizes, each with a column of its own.
#[test]
fn a_device_of_many_page_sizes_keeps_to_the_width() {
    let mut replay = replay(vec![row("one-page", 250.0, [1_024.0, 0.0], 0)]);
    if let Some(setting) = &mut replay.chunks {
        setting.device = (0..11).map(|at| format!("{}K", 4_u64 << at)).collect();
        setting.device[10] = "LAST-SIZE".to_owned();
    }
    let text = screen(&replay, STYLE);
    for line in text.lines() {
        assert!(line.chars().count() <= 110, "{} in\n{text}", line.len());
    }
    for words in ["LAST-SIZE", "2048K", "blocks/MiB"] {
        let tables = text.lines().filter(|line| line.starts_with("policy"));
        assert_eq!(
            tables.filter(|line| line.contains(words)).count(),
            1,
            "{text}"
        );
    }
}
