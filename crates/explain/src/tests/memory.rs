//! Mappings over time, and what explains slow memory operations.

use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::workload::Workload;
use stopgap_trace::{Clock, Event, Kind, Metadata, Reclaimer};

use super::builder::{Builder, CLIENT, explain, options};
use crate::Options;

const MS: u64 = 1_000_000;

/// A workload has no times: its maps are counted, their rate is unknown.
#[test]
fn a_workload_is_counted() {
    let metadata = Metadata {
        clock: Some(Clock::Order),
        ..Metadata::default()
    };
    let (mut live, mut most, mut maps) = (0_i64, 0_i64, 0_u64);
    let events: Vec<Event> = (0..)
        .zip(Workload::Pbobench.events(300, 2_000, 1))
        .map(|(index, event)| Event::of_workload(index, event))
        .inspect(|event| match event.kind.word() {
            "map" => {
                live += 1;
                maps += 1;
                most = most.max(live);
            }
            "unmap" => live -= 1,
            _ => {}
        })
        .collect();
    let findings = explain(&events, &metadata, options());
    let memory = &findings.memory;
    assert_eq!((memory.maps, memory.maps_per_s), (Some(maps), None));
    let followed = memory.live.as_ref().unwrap();
    assert_eq!((followed.last, followed.most), (live, most));
    assert_eq!(findings.trace.duration_ns, None);
    assert_eq!(memory.reclaim, None, "nobody recorded it");
    assert!(
        findings.verdict.text.starts_with("unsupported: "),
        "{:?}",
        findings.verdict
    );
}

#[test]
fn a_counter_of_mappings_is_followed() {
    let mut b = Builder::new();
    for value in [5_i64, 900, 40] {
        let name = "mappings".into();
        b.after(MS).event(CLIENT, Kind::Counter { name, value });
        let pressure = Kind::Counter {
            name: "pressure".into(),
            value: 1,
        };
        b.event(CLIENT, pressure);
    }
    let live = b.explain().memory.live.unwrap();
    assert_eq!(
        (&*live.source, live.first, live.most, live.last),
        ("mappings", 5, 900, 40)
    );
    assert_eq!(live.points, [(0, 5), (MS, 900), (2 * MS, 40)]);
}

#[test]
fn compaction_explains_slow_maps() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT);
    for _ in 0..3 {
        b.enter(CLIENT, "mmap", 0).after(MS);
        b.event(
            CLIENT,
            Kind::UnmappedArea {
                address: None,
                length: Bytes(4_096),
                limits: None,
                alignment: None,
                offset: None,
                top_down: None,
                total: None,
                result: None,
            },
        );
        let (order, gfp, node, synchronous, status) = (None, None, None, None, None);
        b.event(
            CLIENT,
            Kind::CompactionBegin {
                order,
                gfp,
                node,
                synchronous,
            },
        );
        b.after(8 * MS).event(
            CLIENT,
            Kind::CompactionEnd {
                order,
                node,
                status,
            },
        );
        b.after(MS).exit(CLIENT, "mmap", 4_096);
    }
    let findings = b.explain();
    let explained = findings.memory.explained_by.as_ref().unwrap();
    assert_eq!((&*explained.cause, explained.operations), ("compaction", 3));
    assert!((explained.share - 0.8).abs() < 1e-9);
    assert_eq!(findings.memory.search_at_most_ns, Some(3 * MS));
    let slow = findings.memory.slow.as_ref().unwrap();
    assert_eq!((slow.operations, slow.total_ns), (3, 30 * MS));
    assert!((slow.placement_at_most.unwrap() - 0.1).abs() < 1e-9);
    assert!((slow.compaction.unwrap() - 0.8).abs() < 1e-9);
    assert_eq!(slow.reclaim, None, "nobody recorded it");
    assert_eq!(findings.memory.maps, Some(3));
    assert_eq!(findings.advice[0].word, "compaction");
    let reclaim = findings.memory.reclaim.unwrap();
    assert_eq!((reclaim[0].count, reclaim[0].scanned), (3, None));
}

#[test]
fn a_cut_trace_is_inconclusive() {
    let mut explainer = crate::Explainer::new(&Metadata::default(), options());
    explainer.event(&Event {
        time: Nanos(5),
        cpu: None,
        pid: None,
        tid: Some(1),
        comm: None,
        kind: Kind::Mark {
            name: "frame".into(),
        },
    });
    explainer.cut_short("row 7: it ends");
    let findings = explainer.finish();
    assert_eq!(findings.trace.cut_short.as_deref(), Some("row 7: it ends"));
    assert_eq!(
        findings.verdict.text,
        "inconclusive: the trace is cut short (row 7: it ends)"
    );
}

const PAGE: u64 = 4_096;

/// Where the kernel puts the mappings, in pages: a mapping, a hole of one page, a mapping of two, a hole of three, a
/// mapping.
///
/// ```text
/// 0         1
/// 0123456789012
///     A BB   C
/// ```
#[test]
fn calls_tell_live_mappings_and_holes() {
    let mut b = Builder::new();
    let map = |b: &mut Builder, page: u64, pages: u64| {
        // A private mapping of a file, which is never merged with others.
        b.after(MS)
            .enter_with(CLIENT, "mmap", &[0, pages * PAGE, 1, 2]);
        b.exit(CLIENT, "mmap", (page * PAGE).cast_signed());
    };
    for (page, pages) in [(4, 1), (6, 2), (11, 1), (20, 5)] {
        map(&mut b, page, pages);
    }
    b.after(MS)
        .enter_with(CLIENT, "munmap", &[20 * PAGE, 5 * PAGE]);
    b.exit(CLIENT, "munmap", 0);
    let memory = b.explain().memory;
    let live = memory.live.unwrap();
    assert_eq!(live.source, "calls (client)"); // the builder names no process
    assert_eq!((live.first, live.most, live.last), (1, 4, 3));
    assert_eq!(live.points.len(), 5);
    let space = &memory.spaces.unwrap()[0];
    assert_eq!((space.calls, space.mappings, space.bytes), (5, 3, 4 * PAGE));
    let holes = space.holes.as_ref().unwrap();
    assert_eq!(
        (holes.count, holes.bytes, holes.largest),
        (2, 4 * PAGE, 3 * PAGE)
    );
}

/// Mappings from before the recording, as a recorder writes them, do not count as maps.
#[test]
fn what_was_there_before_is_not_counted_as_made() {
    let mut b = Builder::new();
    add_layout(&mut b);
    b.after(MS).enter_with(CLIENT, "mmap", &[0, PAGE, 1, 2]);
    b.exit(CLIENT, "mmap", 0x1000);
    let memory = b.explain().memory;
    assert_eq!((memory.maps, memory.unmaps), (Some(1), Some(0)));
    assert_eq!(memory.live.unwrap().first, 3);
    let space = &memory.spaces.unwrap()[0];
    assert_eq!((space.calls, space.mappings), (1, 3));
    assert_eq!(space.holes.as_ref().unwrap().count, 0);
}

/// A recorded process that only waits: it made no maps if its calls were recorded, and an unknown number otherwise.
#[test]
fn what_an_idle_process_has_mapped_is_no_call() {
    for (event, maps) in [
        ("bpf:sched_switch", None),
        ("bpf:sys_munmap", Some(0)),
        ("bpf:sys_exit", Some(0)),
    ] {
        let mut b = Builder::new();
        b.metadata.events = Some(vec![event.to_owned()]);
        add_layout(&mut b);
        b.after(10 * MS).switch(CLIENT, "S", 0);
        let findings = b.explain();
        let memory = &findings.memory;
        assert_eq!((memory.maps, memory.unmaps), (maps, maps), "{event}");
        let told = findings
            .missing
            .iter()
            .find(|m| m.what == "maps and unmaps");
        assert_eq!(told.is_none(), maps.is_some(), "{event}: {told:?}");
        assert_eq!(memory.live.as_ref().unwrap().last, 2, "{event}");
    }
}

/// Two mappings of a process, as a recorder writes them at its beginning.
fn add_layout(b: &mut Builder) {
    use stopgap_events::memory::{MapId, MemoryEvent, Merge, Placing, Protection};
    use stopgap_events::range::AddressRange;
    for page in [100, 200] {
        let event = MemoryEvent::Map {
            id: MapId(page),
            length: Bytes(PAGE),
            protection: Protection::Read,
            merge: Merge::Never,
            placing: Placing::ANYWHERE,
        };
        let range = AddressRange::new(u64::from(page) * PAGE, Bytes(PAGE));
        b.event(CLIENT, Kind::Memory { event, range });
    }
}

/// Each fault calls a shrinker that sleeps twice, and before each time one that has nothing to do. Three of the
/// faults are listed; the sums are over all.
#[test]
fn a_shrinker_that_sleeps_is_named_with_its_count() {
    const FAULTS: u64 = 23;
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT);
    for _ in 0..FAULTS {
        b.fault(CLIENT).reclaim(CLIENT, Reclaimer::Memcg, None);
        for _ in 0..2 {
            b.reclaim(CLIENT, Reclaimer::Shrinker, Some("idle_scan"))
                .after(MS / 1_000)
                .reclaimed(CLIENT, Reclaimer::Shrinker, Some("idle_scan"), None)
                .reclaim(CLIENT, Reclaimer::Shrinker, Some("sleepy_scan"))
                .switch(CLIENT, "D", 0)
                .after(100 * MS)
                .wake(0, CLIENT)
                .switch(0, "R", CLIENT)
                .reclaimed(CLIENT, Reclaimer::Shrinker, Some("sleepy_scan"), None);
        }
        b.reclaimed(CLIENT, Reclaimer::Memcg, None, None).after(MS);
    }
    let options = |top| Options { top, ..options() };
    let findings = b.explain_with(options(3));
    assert_eq!(findings.slow.len(), 3);
    let calls = findings.calls.iter().find(|calls| calls.kind == "fault");
    assert_eq!(
        calls.map(|calls| (calls.slow, calls.stalls)),
        Some((FAULTS, FAULTS))
    );
    assert_eq!(
        findings.verdict.text,
        "stalls: threads lost 10 ms or more at a time 23 times, 4.60 s in all, the longest fault of client: at least 200.0 ms, 100 % of it in the shrinker \
         sleepy_scan"
    );
    let explained = findings.memory.explained_by.as_ref().unwrap();
    assert_eq!(
        (
            &*explained.cause,
            explained.function.as_deref(),
            explained.operations
        ),
        ("shrinker", Some("sleepy_scan"), FAULTS)
    );
    let advice = &findings.advice[0];
    assert_eq!(advice.word, "reclaim");
    assert!(
        advice.text.contains("look why sleepy_scan keeps"),
        "{advice:?}"
    );
    let of_it = "; it was called 46 times, 4.60 s together, the longest 100 ms";
    assert!(advice.evidence.ends_with(of_it), "{advice:?}");

    // The sums are the same if no fault is listed.
    let findings = b.explain_with(options(0));
    assert_eq!(
        findings.verdict.text,
        "stalls: threads lost 10 ms or more at a time 23 times, 4.60 s in all"
    );
}
