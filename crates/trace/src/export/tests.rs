//! Every form read back: by a CSV reader, a JSON reader, and Perfetto's messages.

use std::collections::{HashMap, VecDeque};

use serde_json::Value as Json;

use super::*;
use crate::cell::{Put, Value};
use crate::column::Column;
use crate::tests::{mixed, of_every_kind};
use crate::{Activity, Clock, Kind, Metadata, Reclaimer, Text, Waits};
use stopgap_events::units::Nanos;

fn metadata() -> Metadata {
    Metadata {
        clock: Some(Clock::Monotonic),
        source: Some("a \"test\"".to_owned()),
        ..Metadata::default()
    }
}

fn all(mut form: Box<dyn Export + '_>, events: &[Event]) {
    for event in events {
        form.write(event.clone()).unwrap();
    }
    form.finish().unwrap();
}

/// The cells of an event as text.
struct Cells(HashMap<Column, String>);

impl Put for Cells {
    fn put_cell(&mut self, column: Column, value: Value<'_>) {
        let text = match value {
            Value::Unsigned(number) => number.to_string(),
            Value::Signed(number) => number.to_string(),
            Value::Bool(value) => value.to_string(),
            Value::Text(text) => text.to_string(),
            Value::Word(word) => word.to_owned(),
        };
        self.0.insert(column, text);
    }
}

#[test]
fn csv_has_every_cell() {
    let mut events = of_every_kind();
    for name in ["a,b", "\"", "two\nlines", "\r", "ü", ""] {
        let mut event = events[0].clone();
        event.comm = Some(Text::from(name));
        events.push(event);
    }
    let mut bytes = Vec::new();
    all(csv(&mut bytes).unwrap(), &events);
    let mut reader = ::csv::Reader::from_reader(&bytes[..]);
    let names: Vec<&str> = Column::ALL.iter().map(|column| column.name()).collect();
    assert_eq!(reader.headers().unwrap(), &names[..]);
    let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), events.len());
    for (row, event) in rows.iter().zip(&events) {
        let mut cells = Cells(HashMap::new());
        event.put_cells(&mut cells);
        for (text, column) in row.iter().zip(Column::ALL) {
            let expected = cells.0.get(column).map_or("", String::as_str);
            assert_eq!(text, expected, "{} of {event:?}", column.name());
        }
    }
    // A null and an empty text are two things.
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.lines().last().unwrap().contains(",\"\","));
}

pub(super) fn at(time: u64, tid: u32, kind: Kind) -> Event {
    Event {
        time: Nanos(time),
        cpu: Some(tid % 2),
        pid: Some(800),
        tid: Some(tid),
        comm: Some(Text::from("worker")),
        kind,
    }
}

pub(super) fn enter(number: u32) -> Kind {
    Kind::SyscallEnter {
        number,
        name: Some(Text::from("mmap")),
        arguments: [Some(0), Some(4_096), None, None, None, None],
    }
}

pub(super) fn exit(number: u32) -> Kind {
    Kind::SyscallExit {
        number,
        name: Some(Text::from("mmap")),
        result: Some(-12),
    }
}

pub(super) fn reclaim(begin: bool, by: Reclaimer, duration: Option<u64>) -> Kind {
    let (order, node, shrinker) = (Some(0), None, None);
    match begin {
        true => Kind::ReclaimBegin {
            by,
            order,
            gfp: None,
            node,
            shrinker,
        },
        false => Kind::ReclaimEnd {
            by,
            order,
            node,
            scanned: None,
            reclaimed: Some(7),
            shrinker,
            reason: None,
            duration: duration.map(Nanos),
        },
    }
}

/// The events with waits in place of their switches and wake-ups.
pub(super) fn with_waits(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let (mut waits, mut out, mut end) = (Waits::default(), VecDeque::new(), Nanos(0));
    for event in events {
        end = end.max(event.time);
        waits.event(event, &mut out);
    }
    waits.finish(end, &mut out);
    out.into()
}

pub(super) fn switch(next: u32) -> Kind {
    Kind::Switch {
        state: Some(Text::from("S")),
        preempted: Some(false),
        priority: Some(120),
        next_tid: Some(next),
        next_comm: Some(Text::from("next")),
        next_priority: Some(120),
        stack: None,
    }
}

pub(super) fn waking(target_tid: u32) -> Kind {
    Kind::Waking {
        target_tid,
        target_comm: None,
        target_priority: None,
        target_cpu: None,
        waker_context: None,
    }
}

/// ```text
/// time  0    5    10   15   20   25   30   35   40
/// 801        mmap            [compaction   ]           in a reclaim whose end was lost
/// 802   ]         [mmap                             ...  the trace begins and ends in a call
/// CPU 0           802 | 804 -----------------------|
/// ```
pub(super) fn story() -> Vec<Event> {
    let compaction = |begin: bool| match begin {
        true => Kind::CompactionBegin {
            order: Some(9),
            gfp: None,
            node: None,
            synchronous: Some(true),
        },
        false => Kind::CompactionEnd {
            order: Some(9),
            node: None,
            status: Some(Text::from("success")),
        },
    };
    with_waits([
        at(0, 802, exit(9)),
        at(5, 801, enter(9)),
        at(10, 801, reclaim(true, Reclaimer::Direct, None)),
        at(11, 802, enter(9)),
        at(12, 806, switch(802)),
        at(15, 801, compaction(true)),
        at(18, 802, waking(804)),
        at(20, 802, switch(804)),
        at(22, 801, reclaim(false, Reclaimer::Throttled, Some(7))),
        at(25, 801, compaction(false)),
        at(30, 801, exit(9)),
        at(40, 804, switch(0)),
    ])
}

fn chrome(events: &[Event]) -> Json {
    let mut bytes = Vec::new();
    all(super::chrome(&mut bytes, &metadata()).unwrap(), events);
    serde_json::from_slice(&bytes).unwrap()
}

/// Checks that the slices of each track nest, in order of time; returns the number of slices that end.
fn nested<'a>(entries: impl Iterator<Item = &'a Json>) -> Vec<(String, f64, f64)> {
    let mut open: HashMap<(u64, u64), Vec<(String, f64)>> = HashMap::new();
    let mut reached: HashMap<(u64, u64), f64> = HashMap::new();
    let mut slices = Vec::new();
    for entry in entries {
        let phase = entry["ph"].as_str().unwrap();
        // Whole slices and arrows are written when they are over.
        if matches!(phase, "M" | "C" | "X" | "s" | "f") {
            continue;
        }
        let track = (
            entry["pid"].as_u64().unwrap(),
            entry["tid"].as_u64().unwrap(),
        );
        let time = entry["ts"].as_f64().unwrap();
        let before = reached.insert(track, time).unwrap_or(0.0);
        assert!(before <= time, "{entry} after {before}");
        let open = open.entry(track).or_default();
        if phase == "B" {
            open.push((entry["name"].as_str().unwrap().to_owned(), time));
        } else if phase == "E" {
            let (name, begin) = open.pop().expect("an end without a beginning");
            slices.push((name, begin, time));
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    slices
}

#[test]
fn chrome_draws_the_story() {
    let document = chrome(&story());
    assert_eq!(document["otherData"]["source"], "a \"test\"");
    let entries = document["traceEvents"].as_array().unwrap();
    let mut slices = nested(entries.iter());
    slices.sort_by(|a, b| (a.1, &a.0).partial_cmp(&(b.1, &b.0)).unwrap());
    let slices: Vec<(&str, f64, f64)> = slices.iter().map(|(n, b, e)| (&**n, *b, *e)).collect();
    assert_eq!(
        slices,
        [
            ("mmap", 0.005, 0.030),
            ("mmap", 0.011, 0.040),
            ("compaction", 0.015, 0.025),
            ("throttled", 0.015, 0.022),
        ]
    );
    let of_phase = |phase: &str| {
        entries
            .iter()
            .filter(|e| e["ph"] == phase)
            .collect::<Vec<_>>()
    };
    let points = of_phase("i");
    assert_eq!(points.len(), 1);
    assert_eq!(points[0]["name"], "mmap ends");
    assert_eq!(points[0]["args"]["result"], -12);
    let (arrow, head) = (of_phase("s"), of_phase("f"));
    assert_eq!((arrow.len(), head.len()), (1, 1));
    assert_eq!(arrow[0]["id"], head[0]["id"]);
    assert_eq!(
        (&arrow[0]["ts"], &head[0]["ts"]),
        (&Json::from(0.018), &Json::from(0.02))
    );
    let whole = of_phase("X");
    let whole = whole.iter().map(|entry| {
        let [from, length] =
            ["ts", "dur"].map(|name| (entry[name].as_f64().unwrap() * 1e3).round());
        let name = entry["name"].as_str().unwrap();
        (
            from as u64,
            length as u64,
            name,
            entry["tid"].as_u64().unwrap(),
        )
    });
    let mut whole: Vec<(u64, u64, &str, u64)> = whole.collect();
    whole.sort_unstable();
    let cpu = u64::from(1_u32 << 30) + 1;
    assert_eq!(
        whole,
        [
            (12, 8, "worker 802", cpu),
            (12, 28, "asleep (S)", 806),
            (18, 2, "runnable (R)", 804),
            (20, 20, "asleep (S)", 802),
            (20, 20, "worker 804", cpu),
        ]
    );
    let begin = of_phase("B");
    let call = begin.iter().find(|e| e["name"] == "mmap").unwrap();
    assert_eq!(call["args"]["argument1"], 4_096);
}

/// Events of every kind in any order, whole or without what may be left out: no begin is without
/// an end, times do not go back, and no event is lost.
#[test]
fn chrome_survives_any_mixture() {
    let events = mixed(20_000, 5);
    let document = chrome(&events);
    let entries = document["traceEvents"].as_array().unwrap();
    let slices = nested(entries.iter());
    assert!(slices.len() > 1_000);
    let counters = entries.iter().filter(|entry| entry["ph"] == "C").count();
    let of_kind = |word: &str| {
        events
            .iter()
            .filter(|event| event.kind.word() == word)
            .count()
    };
    assert_eq!(counters, of_kind("counter"));
    let begun = |name: &str| {
        let same = |e: &&Json| e["ph"] == "B" && e["name"].as_str().unwrap().starts_with(name);
        entries.iter().filter(same).count()
    };
    let spans = |what: Activity| {
        let is_one = |event: &&Event| matches!(&event.kind, Kind::Span(span) if span.what == what);
        events.iter().filter(is_one).count()
    };
    for what in [
        Activity::Compaction,
        Activity::Lock,
        Activity::Fence,
        Activity::Block,
    ] {
        assert_eq!(begun(what.word()), spans(what), "{what}");
    }
    let calls = of_kind("syscall-enter") + spans(Activity::MmapLock);
    assert_eq!(begun("mmap") + begun("syscall "), calls);
}
