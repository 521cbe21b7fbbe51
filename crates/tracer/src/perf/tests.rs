//! Records made by hand, and those of a running kernel; `tests/all/perf_live.rs` of this crate records.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use std::rc::Rc;

use stopgap_trace::{Event, Kind, Text};

use super::record::{Body, parse};
use super::*;
use crate::description::TaskName;
use crate::symbols::Symbols;
use crate::trace::{Source, SourceReport};

/// A record with its words and its `sample_id`: process and thread 7 and 8, CPU 1.
fn record(kind: u32, misc: u16, time: u64, words: &[u64]) -> Vec<u8> {
    let id = [7 | 8 << 32, time, 1];
    raw(kind, misc, &[words, &id].concat())
}

fn raw(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
    let length = u64::try_from(8 + words.len() * 8).unwrap();
    let header = u64::from(kind) | u64::from(misc) << 32 | length << 48;
    let words = std::iter::once(&header).chain(words);
    words.flat_map(|word| word.to_ne_bytes()).collect()
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn text(text: &str) -> Vec<u64> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((text.len() + 8) / 8 * 8, 0);
    let words = bytes.as_chunks().0.iter();
    words.map(|&word| u64::from_ne_bytes(word)).collect()
}

const KERNEL: u64 = (-128_i64).cast_unsigned();
const USER: u64 = (-512_i64).cast_unsigned();
const GUEST: u64 = (-2048_i64).cast_unsigned();

fn sample(time: u64, chain: &[u64]) -> Vec<u8> {
    let head = [pair(7, 8), time, 1, u64::try_from(chain.len()).unwrap()];
    raw(9, 0, &[&head, chain].concat())
}

fn mapping(time: u64, start: u64, length: u64, offset: u64, inode: u64, name: &str) -> Vec<u8> {
    let head = [
        pair(7, 8),
        start,
        length,
        offset,
        pair(8, 1),
        inode,
        0,
        pair(5, 2),
    ];
    record(10, 0, time, &[&head[..], &text(name)].concat())
}

fn fork(time: u64, pid: u32, tid: u32) -> Vec<u8> {
    record(7, 0, time, &[pair(pid, 7), pair(tid, 8), time])
}

/// Functions of `/bin/program`: `early` below 0x2000, `late` above.
struct TwoFunctions;

impl Names for TwoFunctions {
    fn function(&mut self, file: &Rc<File>, offset: u64) -> Option<Text> {
        let known = file.name == "/bin/program" && file.inode == 99;
        known.then(|| Text::from(if offset < 0x2000 { "early" } else { "late" }))
    }
}

fn description() -> PerfDescription {
    PerfDescription {
        cpus: vec![1],
        scheduling: true,
        period: None,
        mappings: vec![Mapping {
            pid: 7,
            start: 0x50_0000,
            end: 0x50_1000,
            offset: 0x1000,
            inode: 99,
            name: "/bin/program".to_owned(),
        }],
    }
}

fn read(description: &PerfDescription, cpus: Vec<Vec<u8>>) -> (Vec<Event>, SourceReport) {
    let task = TaskName {
        tid: 8,
        pid: 7,
        comm: Some("first".to_owned()),
    };
    let symbols = Symbols::parse("ffffffff81000000 T one\nffffffff81000100 T two");
    let sources = (0..).zip(cpus.into_iter().map(Cursor::new)).collect();
    let names = Box::new(TwoFunctions);
    let mut records = Records::new(description, &[task], symbols, names, sources).unwrap();
    let mut events = Vec::new();
    while let Some(event) = records.next_event().unwrap() {
        events.push(event);
    }
    (events, records.report())
}

fn stacks(records: &[Vec<u8>]) -> Vec<String> {
    let (events, told) = read(&description(), vec![records.concat()]);
    assert_eq!(told, SourceReport::default());
    let stacks = events.iter().filter_map(|event| match &event.kind {
        Kind::Sample { stack } => Some(stack.0.to_string()),
        _ => None,
    });
    stacks.collect()
}

#[test]
fn a_switch_says_its_own_side() {
    const OUT: u16 = 1 << 13;
    const PREEMPTED: u16 = 1 << 14;
    let records = [
        record(14, 0, 10, &[]),
        record(14, OUT | PREEMPTED, 20, &[]),
        record(14, OUT, 30, &[]),
    ];
    let (events, _) = read(&description(), vec![records.concat()]);
    let seen: Vec<_> = events
        .iter()
        .map(|event| match &event.kind {
            Kind::Switch {
                state,
                preempted,
                next_tid,
                next_comm,
                ..
            } => (
                event.time.0,
                event.tid,
                state.as_deref(),
                *preempted,
                *next_tid,
                next_comm.as_deref(),
            ),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        seen,
        [
            (10, None, None, None, Some(8), Some("first")),
            (20, Some(8), Some("R"), Some(true), None, None),
            (30, Some(8), None, Some(false), None, None),
        ]
    );
}

/// ```text
///   8 (first): fork 20 ---- named "other" ---- exec "new" ---------------- exit
///                   20 (first, another process) ---- sample ---- exit
/// ```
#[test]
fn lives_have_processes_and_names() {
    let comm =
        |misc, time, name: &str| record(3, misc, time, &[&[pair(7, 8)][..], &text(name)].concat());
    let records = [
        fork(1, 20, 20),
        comm(0, 2, "other"),
        comm(1 << 13, 3, "new"),
        record(4, 0, 4, &[pair(20, 7), pair(20, 8), 4]),
        record(4, 0, 5, &[pair(7, 1), pair(8, 1), 5]),
    ];
    let (events, _) = read(&description(), vec![records.concat()]);
    let seen: Vec<_> = events
        .iter()
        .map(|event| {
            (
                event.kind.word(),
                event.pid.unwrap(),
                event.tid.unwrap(),
                event.comm.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("fork", 7, 8, Some("first")),
            ("exec", 7, 8, Some("new")),
            ("exit", 20, 20, Some("first")),
            ("exit", 7, 8, Some("new")),
        ]
    );
    let Kind::Fork {
        target_tid,
        target_pid,
        target_comm,
    } = &events[0].kind
    else {
        panic!("{:?}", events[0]);
    };
    assert_eq!(
        (*target_tid, *target_pid, target_comm.as_deref()),
        (20, Some(20), Some("first"))
    );
}

#[test]
fn who_tells_scheduling_is_told_once() {
    let only_samples = PerfDescription {
        scheduling: false,
        ..description()
    };
    let records = [fork(1, 20, 20), record(14, 0, 10, &[]), sample(11, &[])];
    let (events, _) = read(&only_samples, vec![records.concat()]);
    let words: Vec<_> = events.iter().map(|event| event.kind.word()).collect();
    assert_eq!(words, ["sample"]);
}

/// The innermost frame is where the thread is; of all others the call stands before the return.
#[test]
fn stacks_are_outermost_first_kernel_last() {
    let chain = [
        KERNEL,
        0xffff_ffff_8100_0100,
        0xffff_ffff_8100_0100,
        GUEST,
        0x666,
        USER,
        0x50_1000,
        0x50_0500,
        0x99,
    ];
    let records = [
        mapping(1, 0x50_1000, 0x1000, 0x2000, 99, "/bin/program"),
        mapping(2, 0x60_0000, 0x1000, 0, 98, "/lib/other.so"),
        mapping(3, 0x70_0000, 0x1000, 0, 0, "//anon"),
        sample(4, &chain),
        sample(5, &[USER, 0x50_1000, 0x50_1000]),
        sample(6, &[USER, 0x60_0010, 0x70_0021]),
        sample(7, &[]),
        sample(8, &[USER, 0x50_1000, KERNEL, 0x99]),
    ];
    assert_eq!(
        stacks(&records),
        [
            "0x99;early;late;one_[k];two_[k]",
            "early;late",
            "[anon]+0x20;other.so+0x10",
            "[unknown]",
            "0x99;late", // what lies on a user's stack is never the kernel's
        ]
    );
}

/// An exec leaves nothing mapped; a child has what its parent had when it was made.
#[test]
fn mappings_follow_forks_and_execs() {
    let of_child = |time, chain: &[u64]| {
        let mut record = sample(time, chain);
        record[8..16].copy_from_slice(&pair(20, 20).to_ne_bytes());
        record
    };
    let exec = record(3, 1 << 13, 3, &[&[pair(7, 8)][..], &text("new")].concat());
    let records = [
        sample(1, &[USER, 0x50_0000]),
        fork(2, 20, 20),
        exec,
        sample(4, &[USER, 0x50_0000]),
        of_child(5, &[USER, 0x50_0000]),
        mapping(6, 0x50_0000, 0x1000, 0, 98, "/lib/other.so"),
        sample(7, &[USER, 0x50_0000]),
        of_child(8, &[USER, 0x50_0000]),
    ];
    let seen = stacks(&records);
    assert_eq!(
        seen,
        ["early", "0x500000", "early", "other.so+0x0", "early"]
    );
}

#[test]
fn neighbours_that_an_interrupt_swapped_are_in_order() {
    let of =
        |times: &[u64]| -> Vec<u8> { times.iter().flat_map(|&time| sample(time, &[])).collect() };
    let (events, _) = read(
        &description(),
        vec![of(&[5, 9, 7, 8, 20]), of(&[6, 21, 19])],
    );
    let times: Vec<u64> = events.iter().map(|event| event.time.0).collect();
    assert_eq!(times, [5, 6, 7, 8, 9, 19, 20, 21]);
}

#[test]
fn losses_and_damage_are_told() {
    let mut records = [
        sample(1, &[]),
        record(2, 0, 2, &[77, 5]),
        record(13, 0, 3, &[4]),
        record(5, 0, 4, &[4, 0, 0]),
        record(3, 0, 5, &[]),
        sample(6, &[]),
    ]
    .concat();
    records.extend(&sample(7, &[USER, 1])[..20]);
    let (events, told) = read(&description(), vec![records]);
    assert_eq!(events.len(), 2);
    assert_eq!(told.losses[0].count, 9);
    assert!(told.losses[0].what.contains("CPU 0"), "{told:?}");
    let said = format!("{:?}", told.missing);
    for part in [
        "fewer 1 times",
        "record 4 of perf",
        "a name of 32 bytes",
        "20 of its 56",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_record_that_ends_early_is_an_error() {
    assert!(parse(&[]).is_err() && parse(&[9, 0, 0, 0]).is_err());
    assert!(
        parse(&raw(14, 0, &[1, 2])).is_err(),
        "no room for who and when"
    );
    // A chain that says more words than there are.
    let error = parse(&raw(9, 0, &[0, 0, 0, u64::MAX])).unwrap_err();
    assert!(error.contains("sample of 40 bytes"), "{error}");
    let dead = parse(&sample_of_dead()).unwrap();
    assert_eq!((dead.pid, dead.tid), (None, None));
    assert!(matches!(dead.body, Body::Sample { .. }));
}

fn sample_of_dead() -> Vec<u8> {
    raw(9, 0, &[u64::MAX, 5, 0, 0])
}

/// `sh -c "/bin/true; /bin/true | cat"` on Linux 6.18: three forks, and each runs a program.
#[test]
fn what_a_kernel_wrote_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/perf");
    let cpus = ["perf0.raw", "perf1.raw"].map(|name| std::fs::read(folder.join(name)).unwrap());
    let (events, told) = read(&description(), cpus.to_vec());
    assert_eq!(told, SourceReport::default());
    assert!(events.is_sorted_by_key(|event| event.time));
    let mut counts = BTreeMap::new();
    for event in &events {
        *counts.entry(event.kind.word()).or_insert(0) += 1;
    }
    let expected = [
        ("exec", 4),
        ("exit", 4),
        ("fork", 3),
        ("sample", 56),
        ("switch", 24),
    ];
    assert_eq!(counts, expected.into_iter().collect());
    let names: Vec<_> = events
        .iter()
        .filter(|event| event.kind.word() == "exit")
        .map(|event| event.comm.as_deref().unwrap())
        .collect();
    assert_eq!(
        names.iter().filter(|name| **name == "true").count(),
        2,
        "{names:?}"
    );
    assert_eq!((names[3], names.contains(&"cat")), ("sh", true));
    // Programs are known by their mappings: most frames lie in a file.
    let in_files = events.iter().filter(|event| match &event.kind {
        Kind::Sample { stack } => stack.frames().any(|frame| frame.contains(".so.")),
        _ => false,
    });
    assert!(in_files.count() > 20);
}
