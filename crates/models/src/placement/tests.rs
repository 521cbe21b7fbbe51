//! Experiments on a clock that ticks by itself, and the figures that the models are known by.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use stopgap_events::memory::{MapId, MemoryEvent, Merge, Placing, Protection};
use stopgap_events::units::Bytes;
use stopgap_events::workload::Workload;
use stopgap_placement::registry::Name;
use stopgap_placement::{Direction, FreeError, Lack, PlaceError, Range, Request, Space};
use stopgap_stats::replay::PlacementRow;

use super::allocator::{Allocator, Scene, Start};
use super::experiment::{Events, Outcome};
use super::operation::BATCH;
use super::{Driver, Entry, Experiment, Meter, ReplayError, Settings, growth, mail};

const PAGE: u64 = 4_096;

fn settings() -> Settings {
    Settings {
        repetitions: 2,
        visits: 800_000,
        ns: u64::MAX,
        memory: 1 << 30,
        repeated: u64::MAX,
        thorough: false,
    }
}

fn run(
    entries: &[Entry],
    settings: Settings,
    window: Range,
    n: Option<u64>,
    events: &dyn Fn() -> Result<Events, String>,
) -> Result<Outcome, ReplayError> {
    let time = Cell::new(0);
    let tick = || {
        time.set(time.get() + 7);
        time.get()
    };
    let experiment = Experiment {
        workload: "pbobench",
        n,
        scene: Scene {
            space: Space::new(window, PAGE).unwrap(),
            direction: Direction::Any,
            live: None,
        },
        events,
    };
    let meter = Meter {
        now: &tick,
        cpu: &tick,
        interrupted: &|| false,
        progress: &|_| (),
    };
    experiment.run(entries, settings, &meter)
}

fn workload(
    workload: Workload,
    n: u32,
    operations: u64,
    entries: &[Entry],
    settings: Settings,
) -> Outcome {
    let window = workload.window(n, operations, 1);
    let window = Range::new(window.start, window.end);
    let events = move || -> Result<Events, String> {
        Ok(Box::new(workload.events(n, operations, 1).map(Ok)))
    };
    run(entries, settings, window, Some(u64::from(n)), &events).unwrap()
}

fn map(id: u32, pages: u64) -> MemoryEvent {
    MemoryEvent::Map {
        id: MapId(id),
        length: Bytes(pages * PAGE),
        protection: Protection::Write,
        merge: Merge::Never,
        placing: Placing::ANYWHERE,
    }
}

fn few(
    entries: &[Entry],
    settings: Settings,
    events: &[MemoryEvent],
) -> Result<Outcome, ReplayError> {
    let window = Range::new(0x1_0000, 0x1_0000 + 4 * PAGE);
    let events = events.to_vec();
    let open =
        move || -> Result<Events, String> { Ok(Box::new(events.clone().into_iter().map(Ok))) };
    run(entries, settings, window, None, &open)
}

/// The model's visits and mail 000's microseconds, within 25 % at all five N; and about 0.41 N visits a
/// map (the exact figure is in placement's tests: here the limit on visits cuts the largest N short).
#[test]
fn the_old_search_lies_near_the_mail() {
    let entries = [Entry::policy(Name::Linux2_6_35)];
    let once = Settings {
        repetitions: 1,
        ..settings()
    };
    let mut rows = Vec::new();
    for (n, _) in mail::MAIL_000 {
        rows.extend(workload(Workload::Pbobench, n, 20_000, &entries, once).rows);
    }
    for measured in &rows {
        let row = &measured.row;
        let share = row.visited.unwrap() as f64 / row.maps as f64 / row.n.unwrap() as f64;
        // Some hundred maps at the largest N, then it is stopped.
        assert!(
            row.n < Some(1_000) || (0.33..0.49).contains(&share),
            "{row:?}"
        );
        assert_eq!(row.stopped.is_some(), row.n >= Some(1_000), "{row:?}");
    }
    let only: Vec<&PlacementRow> = rows.iter().map(|measured| &measured.row).collect();
    let fit = mail::fit(&only).unwrap();
    for point in &fit.points {
        assert!(point.deviation.abs() < 0.25, "{fit:?}");
    }
    let growth = growth(&rows, 1);
    // N visits, each through a tree as deep as the logarithm of N.
    assert!(
        growth[0].text.starts_with("grows ~N^1.1") || growth[0].text.starts_with("grows ~N^1.0"),
        "{growth:?}"
    );
}

/// Every policy does every workload, or says what it lacks of the contract.
#[test]
fn every_policy_does_every_workload() {
    let entries: Vec<Entry> = Name::ALL.iter().map(|&name| Entry::policy(name)).collect();
    for &one in Workload::ALL {
        let outcome = workload(one, 300, 1_000, &entries, settings());
        assert_eq!(outcome.rows.len(), entries.len());
        for measured in outcome.rows {
            let row = measured.row;
            let aligned = matches!(one, Workload::Aligned | Workload::Limits);
            assert!(row.lacks.is_none() || aligned, "{one}: {row:?}");
            let told = row.lacks.is_none();
            assert_eq!(row.ns_per_operation.is_some(), told, "{one}: {row:?}");
            assert_eq!(row.worst_ns.is_some(), told, "{one}: {row:?}");
            assert!(!told || row.operations == 1_000, "{one}: {row:?}");
            assert!(row.visited.is_some() == told, "{one}: {row:?}");
            if row.policy == "stopgap" && told {
                assert!(row.span_over_live.unwrap() >= 1.0, "{one}: {row:?}");
            }
        }
    }
}

/// ```text
/// 0 1 2 3     pages of the window
/// a a b b     c finds no room: counted, and its unmap, touch and protection are left out
/// ```
#[test]
fn what_is_refused_is_counted_and_left_out() {
    let c = MapId(2);
    let outcome = few(
        &[Entry::policy(Name::Linux3_8)],
        settings(),
        &[
            map(0, 2),
            map(1, 2),
            map(2, 1),
            MemoryEvent::Touch { id: c },
            MemoryEvent::Unmap { id: c },
            map(2, 3),
            MemoryEvent::Unmap { id: MapId(1) },
        ],
    );
    let row = &outcome.unwrap().rows[0].row;
    assert_eq!((row.operations, row.maps, row.failures), (6, 2, 2));
    assert_eq!((row.live, row.span_over_live), (1, Some(1.0)));
    assert_eq!(row.n, None);
}

#[test]
fn a_stream_that_makes_no_sense_names_its_event() {
    let unmap = MemoryEvent::Unmap { id: MapId(9) };
    let error = few(&[], settings(), &[map(0, 1), unmap]).err().unwrap();
    assert_eq!(error.to_string(), "event 1: unmaps 9, which is not mapped");
    let lost = || -> Result<Events, String> { Err("gone".to_owned()) };
    let window = Range::new(0, PAGE);
    let error = run(&[], settings(), window, None, &lost).err().unwrap();
    assert_eq!(error.to_string(), "gone");
    let cut = || -> Result<Events, String> {
        let events = [Ok(map(0, 1)), Err("row 7: cut off".to_owned())];
        Ok(Box::new(events.into_iter()))
    };
    let error = run(&[], settings(), window, None, &cut).err().unwrap();
    assert_eq!(error.to_string(), "row 7: cut off");
}

#[test]
fn memory_is_capped() {
    let small = Settings {
        memory: 10,
        ..settings()
    };
    let error = few(&[], small, &[map(0, 1)]).err().unwrap();
    assert!(error.to_string().contains("10 are allowed"), "{error}");
}

/// Gives what it must not.
struct Broken;

impl Allocator for Broken {
    type Handle = Start;
    fn place(&mut self, request: &Request) -> Result<Start, PlaceError> {
        match request.size / PAGE {
            1 => Ok(Start::new(0)),
            2 => Err(PlaceError::Lacks(Lack::Window)),
            _ => Err(PlaceError::Impossible(
                stopgap_placement::Impossible::ZeroSize,
            )),
        }
    }
    fn free(&mut self, _: Start, _: u64) -> Result<(), FreeError> {
        Err(FreeError::AlreadyFree)
    }
    fn start(&self, handle: Start) -> Option<u64> {
        Some(handle.address())
    }
}

#[test]
fn a_wrong_answer_ends_the_replay_and_a_lack_ends_a_row() {
    let broken = || [Entry::new("broken", None, |_| Ok(Broken))];
    let unmap = MemoryEvent::Unmap { id: MapId(0) };
    let error = few(&broken(), settings(), &[map(0, 1), unmap])
        .err()
        .unwrap();
    let text = error.to_string();
    assert!(
        text.starts_with("event 1: broken fails: it is free"),
        "{text}"
    );
    let error = few(&broken(), settings(), &[map(0, 3)]).err().unwrap();
    assert!(error.to_string().starts_with("event 0: broken"), "{error}");

    let outcome = few(&broken(), settings(), &[map(0, 1), map(1, 2), map(2, 1)]).unwrap();
    let row = &outcome.rows[0].row;
    assert_eq!(row.lacks.as_deref(), Some("a window this large"));
    assert_eq!((row.ns_per_operation, row.worst_ns), (None, None));
    let refuses = |_: Scene| Err::<Broken, _>(PlaceError::Lacks(Lack::Limits));
    let outcome = few(
        &[Entry::new("none", None, refuses)],
        settings(),
        &[map(0, 1)],
    )
    .unwrap();
    assert!(outcome.rows[0].row.lacks.is_some());
}

#[test]
fn a_few_short_operations_are_not_timed() {
    let entries = [Entry::policy(Name::Stopgap)];
    let outcome = workload(Workload::Frag, 500, 100, &entries, settings());
    let row = &outcome.rows[0].row;
    assert_eq!((row.ns_per_operation, row.spread), (None, None));
    let missing = row.missing.iter();
    assert!(
        missing.clone().any(|one| one.what == "ns_per_operation"),
        "{row:?}"
    );
}

/// On a clock that ticks at every reading, time is readings: the driver's cost is taken off its equal
/// to nothing.
#[test]
fn the_drivers_time_is_taken_off() {
    let entries = [Entry::new(
        "idle",
        Some("a note"),
        |_| Ok(Driver::default()),
    )];
    let outcome = workload(Workload::Frag, 500, 3_000, &entries, settings());
    let row = &outcome.rows[0].row;
    assert_eq!(row.ns_per_operation, Some(0.0));
    assert_eq!(row.note.as_deref(), Some("a note"));
    // Two readings in a row show one tick, and so does each operation: nothing is left of it.
    assert_eq!((outcome.clock_ns, row.worst_ns), (7, Some(0)));
    assert_eq!(row.visited, None);
    assert!(
        row.missing
            .iter()
            .any(|missing| missing.what == "work_per_map")
    );
}

#[test]
fn one_without_counts_is_stopped_by_time() {
    let short = Settings {
        ns: 40,
        ..settings()
    };
    let entries = [Entry::new("idle", None, |_| Ok(Driver::default()))];
    let outcome = workload(Workload::Frag, 500, 3_000, &entries, short);
    let row = &outcome.rows[0].row;
    assert!(
        row.stopped
            .as_deref()
            .is_some_and(|why| why.starts_with("after 0 ms"))
    );
    assert!(row.operations < 3_000);
}

/// The first repetition is of the whole; the second one's batches are one, and its single operations as many as ever.
#[test]
fn repetitions_of_a_long_stream_are_short() {
    static FREED: AtomicU64 = AtomicU64::new(0);
    struct Counting;
    impl Allocator for Counting {
        type Handle = Start;
        fn place(&mut self, _: &Request) -> Result<Start, PlaceError> {
            Ok(Start::new(0))
        }
        fn free(&mut self, _: Start, _: u64) -> Result<(), FreeError> {
            FREED.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }
    let entries = [Entry::new("counting", None, |_| Ok(Counting))];
    let operations = 3 * BATCH as u64;
    let freed = |repeated| {
        FREED.store(0, Ordering::Relaxed);
        let settings = Settings {
            repeated,
            ..settings()
        };
        let outcome = workload(Workload::Frag, 100, operations, &entries, settings);
        let row = &outcome.rows[0];
        assert_eq!((row.row.operations, row.runs.len()), (operations, 2));
        FREED.load(Ordering::Relaxed)
    };
    let fewer = freed(u64::MAX) - freed(1);
    assert_eq!(fewer, BATCH as u64); // of two batches half are frees
}

/// Spans are read in a pass of their own, so that times are those of long batches.
#[test]
fn spans_are_read_often() {
    let entries = [Entry::policy(Name::BestFit)];
    let settings = Settings {
        thorough: true,
        ..settings()
    };
    let operations = 3 * BATCH as u64;
    let outcome = workload(Workload::Frag, 100, operations, &entries, settings);
    let row = &outcome.rows[0];
    assert_eq!((row.row.operations, row.spans.len()), (operations, 48));
    assert!(row.spans.iter().all(|(used, span)| used < span));
    assert!(row.spans.windows(2).any(|two| two[0] != two[1]));
    assert_eq!(row.runs.len(), 2);
}
