use stopgap_stats::histogram::Recorder;
use stopgap_stats::record::Parameter;
use stopgap_testing::assert_contains;

use super::*;
use crate::chunks::series::{PHYSICAL_RUNS, TAKE, entries_name};

const MS: u64 = 1_000_000;

/// A machine of 4 KiB pages with `free` bytes free and this index at orders 4 and 9.
fn measured(free: u64, index: [f64; 2], series: Vec<Series>) -> Measured {
    let facts = [
        ("page_bytes", 4096.0),
        ("pmd_bytes", 2_097_152.0),
        ("free_bytes", free as f64),
        ("uptime_s", 7_300.0),
        ("index_order_0", 0.0),
        ("index_order_4", index[0]),
        ("index_order_9", index[1]),
    ];
    Measured {
        series,
        facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
        ..Measured::default()
    }
}

/// Blocks of 64 MiB buffers; a list of lengths in ms a run.
fn blocks(strategy: Strategy, runs: &[&[u64]]) -> Series {
    let (chunk, direct) = match strategy {
        Strategy::ThpDirect => ("2M", "yes"),
        Strategy::ThpNoReclaim => ("2M", "no"),
        _ => ("4K", "no"),
    };
    let block = |(run, lengths): (usize, &&[u64])| {
        let mut recorder = Recorder::new(10 * MS);
        for (i, length) in lengths.iter().enumerate() {
            recorder.record(i as u64 * 1_000 * MS, length * MS);
        }
        recorder.into_block(u32::try_from(run).unwrap(), 0).unwrap()
    };
    let words = [
        ("size", "64M"),
        ("strategy", &strategy.to_string()),
        ("chunk", chunk),
        ("block", "2M"),
        ("direct-reclaim", direct),
    ];
    let words = words.map(|(name, word)| (name.to_owned(), Parameter::from(word)));
    let mut parameters = BTreeMap::from(words);
    parameters.insert("buffers".to_owned(), 2u64.into());
    Series {
        name: BLOCK.to_owned(),
        unit: "ns".to_owned(),
        parameters,
        blocks: runs.iter().enumerate().map(block).collect(),
        error: None,
    }
}

fn answer(measured: Measured) -> Answer {
    judge(measured, BTreeMap::new(), 1, Privilege::Root)
}

/// Judges memory so fragmented that 64 MiB are not at hand in 2 MiB blocks.
fn scarce(series: Vec<Series>) -> Answer {
    answer(measured(4 << 30, [0.9, 0.99], series))
}

#[test]
fn stalls_in_two_runs_are_stalls() {
    let direct = blocks(
        Strategy::ThpDirect,
        &[&[1, 148, 1], &[1, 1, 1], &[1, 50, 1]],
    );
    let quiet = blocks(Strategy::ThpNoReclaim, &[&[1], &[1], &[1]]);
    let answer = scarce(vec![direct.clone(), quiet]);
    assert_eq!(answer.verdict.word, Word::Stalls);
    // 2 stalls in 205 ms.
    let expected = "stalls 9.8/s above 10 ms: THP with direct reclaim, worst 2 MiB block 148 ms";
    assert_eq!(answer.verdict.text, expected);
    assert!(answer.advice[0].contains("defer"), "{:?}", answer.advice);
    let figure = answer.figure.unwrap();
    assert!((figure.value - 50.0).abs() < 0.1, "{figure:?}");
    assert!(figure.low.unwrap() < 50.0 && figure.high.unwrap() > 50.0);

    // They are what they are on memory that is not fragmented, too; and without a strategy
    // that was seen to help nothing is advised.
    let answer = super::judge(
        measured(4 << 30, [0.0, 0.0], vec![direct]),
        BTreeMap::new(),
        1,
        Privilege::None,
    );
    assert_eq!(answer.verdict.word, Word::Stalls);
    assert!(answer.advice.is_empty());
}

#[test]
fn a_stall_in_one_run_is_no_verdict() {
    let direct = blocks(Strategy::ThpDirect, &[&[1, 148, 148], &[1, 1], &[1, 1]]);
    let base = blocks(Strategy::Base, &[&[1], &[40], &[1]]);
    let text = scarce(vec![direct.clone(), base]).verdict.text;
    let expected = "inconclusive: 2 stalls in one run of 3 (THP with direct reclaim, \
                    worst 2 MiB block 148 ms): repeats disagree";
    assert_eq!(text, expected);
    let text = answer(measured(4 << 30, [0.1, 0.2], vec![direct]))
        .verdict
        .text;
    assert!(
        text.starts_with("inconclusive: not fragmented (index 0.20, up 2 h); 2 stalls"),
        "{text}"
    );
}

#[test]
fn a_long_block_without_reclaim_is_not_the_allocator() {
    let direct = blocks(Strategy::ThpDirect, &[&[1, 20, 1], &[1, 30, 1], &[1, 1]]);
    let with_reclaims = |counts: [f64; 3]| {
        let mut reclaims = direct.clone();
        reclaims.name = RECLAIMS.to_owned();
        for (block, count) in reclaims.blocks.iter_mut().zip(counts) {
            block.value = count;
        }
        scarce(vec![direct.clone(), reclaims]).verdict
    };
    let none = with_reclaims([0.0, 0.0, 0.0]);
    assert_eq!(
        none.text,
        "inconclusive: blocks of up to 30.0 ms without direct reclaim or compaction: \
         not the allocator"
    );
    assert_contains(
        &with_reclaims([1.0, 0.0, 2.0]).text,
        &["a stall in one run of 3"],
    );
    assert_eq!(with_reclaims([1.0, 5.0, 0.0]).word, Word::Stalls);
}

#[test]
fn memory_that_is_not_fragmented_is_never_clean() {
    let quiet = || vec![blocks(Strategy::ThpDirect, &[&[1], &[1], &[1]])];
    let text = answer(measured(4 << 30, [0.01, 0.03], quiet()))
        .verdict
        .text;
    assert_eq!(text, "inconclusive: not fragmented (index 0.03, up 2 h)");
    // Fragmented, but 400 MiB in large blocks serve 128 MiB without compaction.
    let text = answer(measured(4 << 30, [0.5, 0.9], quiet())).verdict.text;
    assert!(text.contains("410 MiB lie free in large blocks"), "{text}");
    let mut unknown = measured(4 << 30, [0.9, 0.99], quiet());
    unknown.facts.remove("index_order_9");
    let text = answer(unknown).verdict.text;
    assert_eq!(
        text,
        "inconclusive: how fragmented memory is cannot be read"
    );
}

#[test]
fn clean_needs_a_strategy_that_had_to_compact() {
    let quiet = |strategy| blocks(strategy, &[&[1, 2], &[1, 1], &[1, 1]]);
    let answer = scarce(vec![quiet(Strategy::ThpDirect), quiet(Strategy::Base)]);
    assert_eq!(answer.verdict.word, Word::Clean);
    let expected = "clean: no block stalled in 3 runs, index 0.99, worst 2 MiB block ";
    assert!(
        answer.verdict.text.starts_with(expected),
        "{}",
        answer.verdict.text
    );
    let text = scarce(vec![quiet(Strategy::Base), quiet(Strategy::ThpNoReclaim)])
        .verdict
        .text;
    assert!(text.contains("no strategy with direct reclaim"), "{text}");
    let text = scarce(vec![blocks(Strategy::ThpDirect, &[&[1]])])
        .verdict
        .text;
    assert_eq!(text, "inconclusive: one run only");
}

#[test]
fn nothing_measured_is_unsupported_and_says_why() {
    let series = Series {
        blocks: vec![],
        error: Some("this kernel has no THP".to_owned()),
        ..blocks(Strategy::ThpDirect, &[&[1]])
    };
    let answer = scarce(vec![series]);
    assert_eq!(answer.verdict.text, "unsupported: this kernel has no THP");
    assert_eq!(answer.figure, None);
}

#[test]
fn evidence_names_times_and_entries() {
    let counted = |name: &str, unit: &str, strategy, value| {
        let mut series = blocks(strategy, &[&[1], &[1], &[1]]);
        (series.name, series.unit) = (name.to_owned(), unit.to_owned());
        series
            .blocks
            .iter_mut()
            .for_each(|block| block.value = value);
        series
    };
    let mut series = vec![
        counted(TAKE, "ns", Strategy::Base, 18e6),
        counted(TAKE, "ns", Strategy::ThpDirect, 3e6),
    ];
    for (at, count) in [32.0, 64.0, 32.0].into_iter().enumerate() {
        series.push(counted(
            &entries_name(at),
            "entries/buffer",
            Strategy::ThpDirect,
            count,
        ));
    }
    series.push(counted(PHYSICAL_RUNS, "runs/buffer", Strategy::Base, 128.0));
    let evidence = scarce(series).evidence.join("\n");
    for expected in [
        "64M of base pages: 16384 pages lie in 128 physical runs, 128.0 neighbours each by chance",
        "64 MiB takes 18 ms in base pages, 3 ms in THP (0.17x)",
        "64M took: base 18 ms, thp-direct 3 ms",
        "64M needs entries of {4K,2M,1G}/{4K,64K,1M,16M}/{4K,64K,2M}: thp-direct 32/64/32",
    ] {
        assert!(evidence.contains(expected), "{expected} in\n{evidence}");
    }
}

#[test]
fn ages_read_well() {
    let ages = [40.0, 119.0, 125.0, 7_300.0, 172_799.0, 800_000.0].map(age);
    assert_eq!(ages, ["40 s", "119 s", "2 min", "2 h", "47 h", "9 d"]);
}
