//! Read back by the messages that it was written with; that these are Perfetto's own,
//! `checks/perfetto` shows.

use std::collections::{BTreeMap, HashMap};

use super::messages::{Ftrace, FtraceEvent, SchedSwitch};
use super::*;
use crate::export;
use crate::export::tests::{at, story, switch, waking, with_waits};
use crate::tests::mixed;
use crate::{Activity, Loss, Stack};
use stopgap_events::random::Random;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

fn packets(events: &[Event]) -> Vec<TracePacket> {
    let losses = Some(vec![Loss {
        what: "cpu 0".to_owned(),
        count: 3,
    }]);
    let metadata = Metadata {
        losses,
        ..Metadata::default()
    };
    let mut bytes = Vec::new();
    let mut timeline = export::perfetto(&mut bytes, &metadata);
    for event in events {
        timeline.write(event.clone()).unwrap();
    }
    timeline.finish().unwrap();
    Trace::decode(&bytes[..]).unwrap().packet
}

fn track_events(packets: &[TracePacket]) -> impl Iterator<Item = (u64, &TrackEvent)> {
    packets.iter().filter_map(|packet| match &packet.data {
        Some(Data::TrackEvent(event)) => Some((packet.timestamp.unwrap(), event)),
        _ => None,
    })
}

fn ftrace(packets: &[TracePacket]) -> impl Iterator<Item = (u32, &FtraceEvent)> {
    let bundles = packets.iter().filter_map(|packet| match &packet.data {
        Some(Data::FtraceEvents(bundle)) => Some(bundle),
        _ => None,
    });
    bundles.flat_map(|bundle| {
        bundle
            .event
            .iter()
            .map(|event| (bundle.cpu.unwrap(), event))
    })
}

/// The switches, in order of time and CPU.
fn switches(packets: &[TracePacket]) -> Vec<(u64, u32, SchedSwitch)> {
    let switch = |(cpu, event): (u32, &FtraceEvent)| match &event.event {
        Some(Ftrace::Switch(switch)) => Some((event.timestamp.unwrap(), cpu, switch.clone())),
        _ => None,
    };
    let mut all: Vec<_> = ftrace(packets).filter_map(switch).collect();
    all.sort_by_key(|(time, cpu, _)| (*time, *cpu));
    all
}

/// The slices of each track, which must nest, in order of time, on a track that was described.
fn slices(packets: &[TracePacket]) -> Vec<(String, u64, u64)> {
    let mut described = HashMap::new();
    let mut open: HashMap<u64, Vec<(String, u64)>> = HashMap::new();
    let mut reached: HashMap<u64, u64> = HashMap::new();
    let mut slices = Vec::new();
    for packet in packets {
        match &packet.data {
            Some(Data::TrackDescriptor(track)) => {
                let parent = track.parent_uuid;
                assert!(parent.is_none_or(|parent| described.contains_key(&parent)));
                described.insert(track.uuid.unwrap(), track.clone());
            }
            Some(Data::TrackEvent(event)) => {
                let uuid = event.track_uuid.unwrap();
                let time = packet.timestamp.unwrap();
                assert!(described.contains_key(&uuid), "{event:?}");
                assert!(reached.insert(uuid, time).unwrap_or(0) <= time, "{event:?}");
                let is_counter = described[&uuid].counter.is_some();
                assert_eq!(event.r#type() == Type::Counter, is_counter);
                let open = open.entry(uuid).or_default();
                match event.r#type() {
                    Type::SliceBegin => open.push((event.name.clone().unwrap(), time)),
                    Type::SliceEnd => {
                        let (name, begin) = open.pop().expect("an end without a beginning");
                        slices.push((name, begin, time));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    slices
}

#[test]
fn the_story() {
    let packets = packets(&story());
    let mut slices = slices(&packets);
    slices.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    let slices: Vec<(&str, u64, u64)> = slices.iter().map(|(n, b, e)| (&**n, *b, *e)).collect();
    assert_eq!(
        slices,
        [
            ("mmap", 5, 30),
            ("mmap", 11, 40),
            ("compaction", 15, 25),
            ("throttled", 15, 22),
        ]
    );
    let switches = switches(&packets);
    let switches: Vec<(u32, u64, i32)> = switches
        .iter()
        .map(|(time, cpu, switch)| (*cpu, *time, switch.next_pid.unwrap()))
        .collect();
    assert_eq!(switches, [(0, 12, 802), (0, 20, 804), (0, 40, 0)]);
    let woken: Vec<i32> = ftrace(&packets)
        .filter_map(|(_, event)| match &event.event {
            Some(Ftrace::Waking(waking)) => waking.pid,
            _ => None,
        })
        .collect();
    assert_eq!(woken, [804]);

    let (_, about) = track_events(&packets).next().unwrap();
    let losses = about
        .debug_annotations
        .iter()
        .find(|a| a.name.as_deref() == Some("losses"));
    let text = format!("{:?}", losses.unwrap().value);
    assert!(text.contains("cpu 0") && text.contains('3'), "{text}");
    // A call's arguments stand on its beginning, what it returned on its end.
    let call = track_events(&packets)
        .find(|(time, _)| *time == 5)
        .unwrap()
        .1;
    let length = AnnotationValue::Pointer(4_096);
    assert!(
        call.debug_annotations
            .iter()
            .any(|a| a.value == Some(length.clone()))
    );
    let end = track_events(&packets)
        .filter(|(time, _)| *time == 30)
        .last()
        .unwrap()
        .1;
    assert!(
        end.debug_annotations
            .iter()
            .any(|a| a.value == Some(AnnotationValue::Int(-12)))
    );
}

#[test]
fn any_mixture() {
    let events = mixed(20_000, 6);
    let packets = packets(&events);
    let mut begun: BTreeMap<String, usize> = BTreeMap::new();
    for (name, _, _) in slices(&packets) {
        *begun.entry(name).or_default() += 1;
    }
    let of_kind = |word: &str| {
        events
            .iter()
            .filter(|event| event.kind.word() == word)
            .count()
    };
    let begun = |word: &str| -> usize {
        let same = begun.iter().filter(|(name, _)| name.starts_with(word));
        same.map(|(_, count)| count).sum()
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
    let samples = |packet: &&TracePacket| matches!(packet.data, Some(Data::PerfSample(_)));
    let of_known = |event: &&Event| event.cpu.is_some() && event.kind.word() == "sample";
    let expected = events.iter().filter(of_known).count();
    assert_eq!(packets.iter().filter(samples).count(), expected);
    let counters = track_events(&packets).filter(|(_, event)| event.counter_value.is_some());
    assert_eq!(counters.count(), of_kind("counter"));
}

/// Switches of threads that sleep, are woken and end on two CPUs become waits, and those become the same switches:
/// CPU, time, who leaves in which state, who comes.
#[test]
fn waits_become_the_switches_that_they_were_made_of() {
    let mut random = Random::new(7);
    let (mut told, mut right) = (0_u64, 0_u64);
    for _ in 0..200 {
        let (events, expected) = schedule(&mut random);
        let wakes = wakes_of(&events);
        let packets = packets(&with_waits(events));
        let wakings = ftrace(&packets).filter_map(|(cpu, event)| match &event.event {
            Some(Ftrace::Waking(waking)) => Some((event.timestamp?, cpu, event.pid?, waking.pid?)),
            _ => None,
        });
        for waking in wakings {
            told += 1;
            // The idle task has no waits, so its CPU is unknown.
            let (time, cpu, waker, target) = waking;
            let known = wakes.get(&(time, target)).expect("a wake-up that was");
            assert_eq!(known.1, waker);
            right += u64::from(known.0 == cpu || waker == 0);
        }
        let found = switches(&packets);
        let found: Vec<Told> = found
            .iter()
            .map(|(time, cpu, switch)| {
                let pid = |pid: Option<i32>| u32::try_from(pid.unwrap()).unwrap();
                let (leaves, comes) = (pid(switch.prev_pid), pid(switch.next_pid));
                (*time, *cpu, leaves, switch.prev_state.unwrap(), comes)
            })
            .collect();
        assert_eq!(found, expected);
    }
    assert!(told > 1_000 && right * 100 > told * 99, "{right} of {told}");
}

/// The CPU and the waker of each wake-up, by time and woken thread.
fn wakes_of(events: &[Event]) -> HashMap<(u64, i32), (u32, u32)> {
    let wake = |event: &Event| match event.kind {
        Kind::Waking { target_tid, .. } => {
            let target = i32::try_from(target_tid).ok()?;
            Some(((event.time.0, target), (event.cpu?, event.tid?)))
        }
        _ => None,
    };
    events.iter().filter_map(wake).collect()
}

/// Time, CPU, who leaves in which state, who comes.
type Told = (u64, u32, u32, i64, u32);

/// What the kernel might tell of two CPUs, and its switches.
fn schedule(random: &mut Random) -> (Vec<Event>, Vec<Told>) {
    let mut running = [0_u32; 2];
    let mut made = 900;
    let (mut ready, mut asleep) = (Vec::new(), Vec::new());
    let (mut events, mut switches) = (Vec::new(), Vec::new());
    for time in 1..200_u64 {
        let cpu = random.index(2);
        let has = running[cpu];
        let cpu_number = u32::try_from(cpu).unwrap();
        let event = |kind| Event {
            cpu: Some(cpu_number),
            pid: Some(has),
            ..at(time, has, kind)
        };
        let action = random.below(3);
        if action == 0 && !asleep.is_empty() {
            let target = asleep.swap_remove(random.index(asleep.len()));
            events.push(event(waking(target)));
            ready.push(target);
            continue;
        }
        if action == 1 && made < 906 {
            events.push(event(Kind::New {
                target_tid: made,
                target_comm: None,
                target_priority: None,
                target_cpu: None,
            }));
            ready.push(made);
            made += 1;
            continue;
        }
        let comes = match random.below(4) {
            0 => 0,
            _ if ready.is_empty() => 0,
            _ => ready.swap_remove(random.index(ready.len())),
        };
        if comes == has {
            continue;
        }
        let (word, state) = match random.below(8) {
            _ if has == 0 => ("R", 0),
            0 => ("X", 0x10),
            1..4 => ("S", 1),
            4 => ("D", 2),
            _ => ("R+", 0x800),
        };
        match word {
            "R+" => ready.push(has),
            "S" | "D" => asleep.push(has),
            _ => {}
        }
        let mut kind = switch(comes);
        if let Kind::Switch {
            state, preempted, ..
        } = &mut kind
        {
            *state = Some(word.trim_end_matches('+').into());
            *preempted = Some(word == "R+");
        }
        events.push(event(kind));
        switches.push((time, cpu_number, has, state, comes));
        running[cpu] = comes;
    }
    (events, switches)
}

/// A number is defined once before its first use, and again after a reset.
#[test]
fn stacks_are_written_once() {
    let sample = |time: u64, stack: Stack| at(time, 801, Kind::Sample { stack });
    let long = "x".repeat(60_000);
    let mut events = Vec::new();
    for round in 0..400_u64 {
        let own = format!("f{round}{long}");
        events.push(sample(round * 2, Stack::new(["main", "read_[k]"])));
        events.push(sample(round * 2 + 1, Stack::new(["main", &own])));
    }
    let packets = packets(&events);
    let (mut names, mut frames) = (HashMap::new(), HashMap::new());
    let (mut stacks, mut clears) = (HashMap::new(), 0);
    let mut seen = Vec::new();
    for packet in &packets {
        if packet.sequence_flags.unwrap() & INCREMENTAL_STATE_CLEARED != 0 {
            (names, frames, stacks) = (HashMap::new(), HashMap::new(), HashMap::new());
            clears += 1;
        }
        if let Some(data) = &packet.interned_data {
            for name in &data.function_names {
                let text = String::from_utf8(name.str.clone().unwrap()).unwrap();
                assert!(names.insert(name.iid, text).is_none());
            }
            for frame in &data.frames {
                frames.insert(frame.iid, names[&frame.function_name_id].clone());
            }
            for stack in &data.callstacks {
                let words = stack.frame_ids.iter().map(|&iid| &*frames[&Some(iid)]);
                stacks.insert(stack.iid, words.collect::<Vec<_>>().join(";"));
            }
        }
        if let Some(Data::PerfSample(sample)) = &packet.data {
            seen.push(stacks[&sample.callstack_iid].clone());
        }
    }
    assert_eq!(seen.len(), 800);
    for (text, event) in seen.iter().zip(&events) {
        let Kind::Sample { stack } = &event.kind else {
            unreachable!()
        };
        assert_eq!(*text, stack.0.replace("_[k]", ""));
    }
    assert!((2..10).contains(&clears), "{clears}");
}

#[test]
fn where_a_thread_sleeps_is_told() {
    let mut event = at(5, 801, switch(0));
    if let Kind::Switch { stack, .. } = &mut event.kind {
        *stack = Some(Stack::new([
            "main",
            "wait_for_space_[k]",
            "io_schedule_[k]",
            "schedule_[k]",
        ]));
    }
    let packets = packets(&with_waits([event]));
    let reason = ftrace(&packets).find_map(|(_, event)| match &event.event {
        Some(Ftrace::BlockedReason(reason)) => Some(reason.clone()),
        _ => None,
    });
    let reason = reason.unwrap();
    assert_eq!((reason.pid, reason.io_wait), (Some(801), Some(1)));
    let symbols = packets
        .iter()
        .filter_map(|packet| packet.interned_data.as_ref());
    let symbol = symbols
        .flat_map(|data| &data.kernel_symbols)
        .find(|s| s.iid == reason.caller);
    assert_eq!(symbol.unwrap().str.as_deref(), Some(&b"wait_for_space"[..]));
}

/// A thread is described with its process, and again when it is called otherwise.
#[test]
fn names_follow_the_threads() {
    let named = |time: u64, comm: &str| Event {
        comm: Some(Text::from(comm)),
        ..at(time, 800, Kind::Exit { priority: None })
    };
    let packets = packets(&[named(1, "sh"), named(2, "sh"), named(3, "make")]);
    let mut threads = Vec::new();
    let mut processes = Vec::new();
    for packet in &packets {
        if let Some(Data::TrackDescriptor(track)) = &packet.data {
            threads.extend(track.thread.clone().and_then(|thread| thread.thread_name));
            processes.extend(
                track
                    .process
                    .clone()
                    .and_then(|process| process.process_name),
            );
        }
    }
    assert_eq!(threads, ["sh", "make"]);
    assert_eq!(processes, ["sh", "make"]);
}

/// An arrow goes from who woke to who runs again, and who caused a wait has a slice of its length.
#[test]
fn a_wait_that_lost_time_has_an_arrow_and_a_culprit() {
    let who = |tid: u32, name: &str| Who {
        tid,
        pid: Some(tid),
        name: name.to_owned(),
    };
    let part = |begin, ns, by, text: &str| export::LostPart {
        begin: Nanos(begin),
        ns,
        by,
        text: text.to_owned(),
    };
    let lost = Lost {
        thread: who(11, "client"),
        waker: Some(who(12, "server")),
        woken: Nanos(900),
        ran: Nanos(950),
        parts: vec![
            part(
                100,
                300,
                Some(who(13, "writer")),
                "disk vda, behind requests of writer",
            ),
            part(400, 500, None, "the network"),
        ],
    };
    let mut bytes = Vec::new();
    let mut timeline = export::perfetto(&mut bytes, &Metadata::default());
    timeline.lost(&lost).unwrap();
    timeline.lost(&lost).unwrap();
    timeline.finish().unwrap();
    let packets = Trace::decode(&bytes[..]).unwrap().packet;
    let mut names = HashMap::new();
    for packet in &packets {
        if let Some(Data::TrackDescriptor(track)) = &packet.data {
            names.insert(track.uuid.unwrap(), (track.name.clone(), track.parent_uuid));
        }
    }
    let name = |uuid: Option<u64>| names[&uuid.unwrap()].0.clone().unwrap_or_default();
    let (mut begins, mut arrows, mut slices) = (HashMap::new(), Vec::new(), Vec::new());
    for (time, event) in track_events(&packets) {
        for arrow in &event.flow_ids {
            begins.insert(*arrow, time);
        }
        for arrow in &event.terminating_flow_ids {
            arrows.push((begins[arrow], time, event.name.clone().unwrap()));
        }
        if let Some(text) = event.name.clone().filter(|_| event.r#type == Some(2)) {
            panic!("an end has no name: {text}");
        }
        if event.r#type == Some(1) {
            let parent = names[&event.track_uuid.unwrap()].1;
            assert_eq!(name(parent), "blame");
            slices.push((time, name(event.track_uuid), event.name.clone().unwrap()));
        }
    }
    let runs = || "runs again, woken by server".to_owned();
    assert_eq!(arrows, [(900, 950, runs()), (900, 950, runs())]);
    let texts: Vec<String> = (slices.iter().take(2))
        .map(|(time, track, text)| format!("{time} {track} | {text}"))
        .collect();
    assert_eq!(
        texts,
        [
            "100 writer 13 | client 11: disk vda, behind requests of writer",
            "400 the network | client 11: the network",
        ]
    );
    assert_eq!(
        names
            .values()
            .filter(|(name, _)| name.as_deref() == Some("blame"))
            .count(),
        1
    );
}
