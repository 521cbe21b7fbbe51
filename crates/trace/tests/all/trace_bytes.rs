//! Traces with changed bytes: what the fuzz target asserts, and that no file of a few kilobytes takes more memory than
//! it is worth.

use std::sync::atomic::Ordering;

use stopgap_events::memory::MemoryEvent;
use stopgap_events::random::Random;
use stopgap_events::workload::Workload;
use stopgap_trace::{Event, Kind, Metadata, Stack, Text, file, lines};

use crate::{LIVE, PEAK, seed_and_rounds};

#[path = "../../../../fuzz/bodies/trace_file.rs"]
mod body;

/// A file of the version before, whose pages have no checksums: what is changed in them is read.
const WITHOUT_CHECKSUMS: &[u8] =
    include_bytes!("../../../../checks/compatibility/trace-2/waits.parquet");
/// Bytes that one changed file may take, with its 50,000 events that the test keeps and writes twice.
const LARGEST: usize = 192 << 20;

/// Events of several shapes: of a workload, and with texts that repeat and that do not.
fn events(count: usize, seed: u64) -> Vec<Event> {
    let mut random = Random::new(seed);
    let memory = Workload::Limits.events(20, count as u64, seed).take(count);
    let event = |(index, event): (usize, MemoryEvent)| {
        let mut event = Event::of_workload(index as u64 * 997, event);
        event.cpu = Some(index as u32 % 3);
        event.comm = (index % 5 != 0).then(|| Text::from(format!("task-{}", index % 7)));
        if index % 9 == 5 {
            event.kind = Kind::LockBegin {
                lock: None,
                address: Some(random.bits()),
                write: Some(index % 2 == 0),
            };
        } else if index % 4 == 0 {
            event.kind = Kind::Switch {
                state: Some("S".into()),
                preempted: Some(index % 8 == 0),
                priority: Some(120 - index as i32 % 20),
                next_tid: Some(random.bits() as u32),
                next_comm: None,
                next_priority: None,
                stack: Some(Stack::new(["a", format!("{:x}", random.bits()).as_str()])),
            };
        }
        event
    };
    memory.enumerate().map(event).collect()
}

fn files(seed: u64) -> Vec<Vec<u8>> {
    let metadata = Metadata::default();
    let parquet = |count| {
        let mut writer = file::Writer::new(Vec::new()).unwrap();
        for event in events(count, seed) {
            writer.write(&event).unwrap();
        }
        writer.finish(&metadata).unwrap()
    };
    let mut writer = lines::Writer::new(Vec::new(), &metadata).unwrap();
    for event in events(20, seed) {
        writer.write(&event).unwrap();
    }
    vec![
        parquet(400),
        parquet(15),
        writer.finish().unwrap(),
        WITHOUT_CHECKSUMS.to_vec(),
    ]
}

/// A few changes, more often where a Parquet file declares sizes.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let end = bytes.len();
    let footer = match bytes[end - 8..] {
        [a, b, c, d, b'P', b'A', b'R', b'1'] => u32::from_le_bytes([a, b, c, d]) as usize,
        _ => end / 2,
    };
    for _ in 0..1 + random.below(4) {
        let at = match random.below(3) {
            0 => random.index(end),
            1 => end - 1 - random.index(footer + 8),
            _ => random.index(end - footer),
        };
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = bytes[at].wrapping_add(1),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.index(5)],
            3 => {
                let from = random.index(end);
                let count = (1 + random.index(16)).min(end - from.max(at));
                bytes.copy_within(from..from + count, at);
            }
            4 => bytes[at..(at + 5).min(end)].fill(0xff), // a varint that is as large as can be
            _ => bytes[at] = random.bits().to_le_bytes()[0],
        }
    }
    if random.below(50) == 0 {
        bytes.truncate(random.index(end));
    }
}

#[test]
fn changed_bytes_are_events_or_one_error() {
    let (seed, rounds) = seed_and_rounds(1, 1_500);
    let mut random = Random::new(seed);
    let files = files(seed);
    for file in &files {
        assert!(body::run(file), "a file that is well");
    }
    let mut refused = 0;
    for round in 0..rounds {
        let mut bytes = files[random.index(files.len())].clone();
        mutate(&mut bytes, &mut random);
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        refused += u64::from(!body::run(&bytes));
        let took = PEAK.load(Ordering::Relaxed) - before;
        assert!(
            took < LARGEST,
            "round {round} of seed {seed} took {took} bytes"
        );
    }
    assert!(
        refused > rounds / 8,
        "the changes change nothing: {refused} of {rounds}"
    );
}
