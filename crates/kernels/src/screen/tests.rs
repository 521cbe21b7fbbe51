//! Screens of comparisons that are judged here.

use stopgap_events::machine::Missing;
use stopgap_guest::protocol::Dma;

use super::*;
use crate::judge::{Emulator, Function, Measured, judge};
use crate::testing::{self, holds};

const CELL: &str = "pbobench N=1000";

fn measured(name: &str, config: &str, counts: &str) -> Measured {
    let mut measured = testing::measured(name, CELL, "churn", &[counts; 5]);
    measured.kernel.release = Some("6.1.0".to_owned());
    measured.kernel.architecture = "x86_64".to_owned();
    measured.kernel.config_from = "the package".to_owned();
    measured.config = (!config.is_empty()).then(|| config.to_owned());
    measured
}

fn judged(kernels: Vec<Measured>) -> Kernels {
    let plan = Kernels {
        margin: 0.002,
        seeds: (1..=5).collect(),
        emulator: Emulator {
            qemu: Some("7.2.22".to_owned()),
            cpu: Some("max,-erms".to_owned()),
        },
        ..Kernels::default()
    };
    judge(plan, &[CELL.to_owned()], kernels)
}

fn shown(record: &Kernels) -> String {
    let style = Style {
        width: 200,
        colour: false,
        verbose: true,
    };
    let text = screen(record, Some("/tmp/a.json"), style);
    assert!(
        text.lines().all(|line| line.chars().count() <= 120),
        "{text}"
    );
    text
}

#[test]
fn the_answer_its_cause_its_rows_and_its_limits() {
    let options: String = (0..20).map(|n| format!("CONFIG_{n:02}=y\n")).collect();
    let before = measured("a", &options, "21888x90");
    let after = measured("b", "CONFIG_00=m\n", "17749x90");
    let text = shown(&judged(vec![before, after]));
    holds(
        &text,
        &[
            "A a, 6.1.0, x86_64, sha256 aaaaaaaaaaaa\n",
            "B against A: RUNS FEWER INSTRUCTIONS\n1 of 1 shorter by 18.91 %\n",
            "a difference is of config + code: 20 options differ, 1 of which both know: CONFIG_00 y -> m, CONFIG_01 y -> (not there)",
            "and 12 more in the record",
            "gate, margin 0.2 %: pass: under no layout longer by more than 0.2 %",
            "pbobench N=1000 churn  21,888  17,749  -4,139  -18.91       0         shorter",
            "what this cannot tell\n  time: a guest instruction has no duration",
            "SMP, contention",
            "caches, TLB",
            "5 layouts, each booted 2 times; QEMU 7.2.22, CPU max,-erms",
            "record /tmp/a.json\n",
        ],
    );
    // Nothing of it is called a time.
    assert!(!text.contains(" ns") && !text.contains(" us "), "{text}");
}

#[test]
fn modes_and_means_are_named() {
    // Two modes a side; the rare operation became longer, which the mean alone sees.
    let before = measured("a", "", "1000x50 2000x46 9000x4");
    let after = measured("b", "", "1000x50 2000x46 9900x4");
    let text = shown(&judged(vec![before, after]));
    holds(
        &text,
        &[
            "2, 2  longer (mean)",
            "pbobench N=1000, churn: the mean; the median: identical",
            "and of configuration for all that is known: A the package; B the package",
            "1,780",
            "+36",
        ],
    );
}

#[test]
fn a_boot_that_was_set_aside_is_told() {
    let mut record = judged(vec![measured("a", "", "1x9"), measured("b", "", "1x9")]);
    assert!(!shown(&record).contains("set aside"));
    record.kernels[1].boots[4].set_aside = true;
    let told = "B: 1 of 10 boots set aside, the first under layout 3: its counts are not those of the layout's others";
    holds(&shown(&record), &[told]);
}

#[test]
fn a_kernel_that_did_not_boot_shows_its_last_lines() {
    let mut broken = measured("b", "", "1x9");
    broken.boots.truncate(1);
    let boot = &mut broken.boots[0].boot;
    boot.whole = false;
    boot.end = "the kernel panicked: no init".to_owned();
    boot.last_lines = (0..40).map(|n| format!("line {n}\u{1b}[2J")).collect();
    broken.boots[0].said.clear();
    broken.boots[0].missing = vec![Missing::new("vgem", "no device"); 1];
    let mut record = judged(vec![measured("a", "", "1x9"), broken]);
    let text = shown(&record);
    holds(
        &text,
        &[
            "B: 1 of 1 boots gave no result; layout 1: the kernel panicked: no init",
            "| line 39\\u{1b}[2J",
            "not measured: b: vgem: no device",
            "B against A: CANNOT TELL\n1 of 1 inconclusive\n",
            "pbobench N=1000, churn: the later kernel gave no figures",
        ],
    );
    assert!(
        !text.contains("line 27") && text.contains("line 28"),
        "{text}"
    );
    record.interrupted = true;
    assert!(shown(&record).contains("B: 1 boots were interrupted"));
}

#[test]
fn what_the_iommu_took_stands_under_the_rows() {
    let dma = |runs: u64, tables: &str| {
        let text = format!(
            "{{\"entries\": {{\"by_size\": {{\"4096\": {runs}, \"2097152\": 1}}, \"source\": \"computed\"}},
              \"physical_runs\": {runs}, \"table_pages\": {tables}, \"copied_bytes\": 32768}}"
        );
        vec![(
            "vfio 4K".to_owned(),
            Dma::from_json(text.as_bytes()).unwrap(),
        )]
    };
    let plan = Kernels {
        seeds: (1..=5).collect(),
        ..Kernels::default()
    };
    let mut kernels = ["a", "b", "c"].map(|name| measured(name, "", "1x9"));
    for (number, booted) in kernels[0].boots.iter_mut().enumerate() {
        booted.dma = dma(1_020 + number as u64 / 2, "2");
    }
    for booted in &mut kernels[1].boots {
        booted.dma = dma(1_024, "{\"unknown\": \"not counted before 6.11\"}");
    }
    let record = judge(plan, &["vfio 4K".to_owned()], kernels.into());
    let text = shown(&record);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    holds(
        &words,
        &[
            "for DMA kernel IOMMU entries",
            "1,020 of 4 KiB, 1 of 2 MiB (computed) or 4 more 1,020 or 4 more 2 32 KiB, as sent",
            "vfio 4K B 1,024 of 4 KiB, 1 of 2 MiB (computed) 1,024 unknown 32 KiB, as sent",
            "vfio 4K C - - - -",
            "unknown: B, table pages: not counted before 6.11",
        ],
    );
    assert_eq!(text.matches("not counted before").count(), 1, "{text}");
}

#[test]
fn functions_that_grew_stand_under_the_rows() {
    let mut record = judged(vec![measured("a", "", "1x9"), measured("b", "", "2x9")]);
    let function = |n| Function {
        before_kernel: 0,
        after_kernel: 1,
        cell: "pbobench N=1000".to_owned(),
        operation: "map".to_owned(),
        function: if n == 7 {
            "do_mmap".to_owned()
        } else {
            format!("f{n}")
        },
        before: (n > 0).then_some(100.0),
        after: Some(100.0),
        difference: if n == 7 { 62.0 } else { 0.0 },
        elsewhere: 0.0,
        between_layouts: Some(0.0),
    };
    record.functions = (0..14).map(function).collect();
    let text = shown(&record);
    holds(&text, &["do_mmap", "+62.0", "and 2 more in the record"]);
    let first = text.lines().position(|line| line.contains("do_mmap"));
    let other = text.lines().position(|line| line.contains("f1 "));
    assert!(first < other, "{text}");
    holds(&text, &["No function of a row that is longer or shorter"]);
    // Only `churn` is proven to differ: what differs more in `map`, and what its layouts differ by as much, stay in the record.
    record.functions[0].difference = 500.0;
    for (n, difference, between) in [(8, 67.0, 0.0), (9, 80.0, 80.0)] {
        record.functions[n].operation = "churn".to_owned();
        record.functions[n].difference = difference;
        record.functions[n].between_layouts = Some(between);
    }
    let text = shown(&record);
    holds(
        &text,
        &[
            "churn       f8 ",
            "Above stands",
            "and 13 more in the record",
        ],
    );
    assert!(!text.contains("do_mmap") && !text.contains("f9 "), "{text}");
}

#[test]
fn counts_are_whole_where_they_are() {
    assert_eq!(
        [17_749.0, 17_749.96, 0.0].map(count),
        ["17,749", "17,749.9", "0"]
    );
    assert_eq!(
        [-4_139.0, 0.0, 2.0].map(|value| signed(value, count)),
        ["-4,139", "0", "+2"]
    );
    assert_eq!(letter(0), "A");
    assert_eq!(letter(26), "#27");
}
