//! A trace of our own kinds, read by Perfetto's messages: every field that was written is known,
//! and where it should be.

use std::collections::HashMap;

use perfetto_protos::debug_annotation::debug_annotation::Value;
use perfetto_protos::ftrace_event::ftrace_event::Event as Ftrace;
use perfetto_protos::trace::Trace;
use perfetto_protos::trace_packet::trace_packet::Data;
use perfetto_protos::track_event::track_event::Type;
use protobuf::reflect::ReflectValueRef;
use protobuf::{Message, MessageDyn};
use stopgap_events::units::Nanos;
use stopgap_trace::export;
use stopgap_trace::{Input, Metadata};

/// Two calls in one process, of which one reclaims; a switch in which a thread sleeps; a wake-up; a
/// new thread; a counter; a sample; a request.
const LINES: &str = r#"
{"time_ns":1,"kind":"syscall-enter","cpu":0,"pid":800,"tid":801,"comm":"worker","syscall":9,"syscall_name":"mmap","argument1":4096}
{"time_ns":2,"kind":"reclaim-begin","cpu":0,"pid":800,"tid":801,"reclaim":"direct","order":3}
{"time_ns":3,"kind":"compaction-begin","cpu":0,"pid":800,"tid":801,"synchronous":true}
{"time_ns":4,"kind":"compaction-end","cpu":0,"pid":800,"tid":801,"status":"success"}
{"time_ns":5,"kind":"reclaim-end","cpu":0,"pid":800,"tid":801,"reclaim":"direct","reclaimed":7}
{"time_ns":6,"kind":"syscall-exit","cpu":0,"pid":800,"tid":801,"syscall":9,"syscall_name":"mmap","result":-12}
{"time_ns":7,"kind":"switch","cpu":1,"pid":800,"tid":801,"comm":"worker","state":"S","preempted":false,"priority":120,"next_tid":900,"next_comm":"other","next_priority":110,"stack":"main;do_wait_[k];schedule_[k]"}
{"time_ns":8,"kind":"waking","cpu":1,"pid":900,"tid":900,"comm":"other","target_tid":801,"target_comm":"worker","target_priority":120,"target_cpu":0}
{"time_ns":9,"kind":"new","cpu":1,"pid":900,"tid":900,"comm":"other","target_tid":901,"target_comm":"child","target_priority":119,"target_cpu":2}
{"time_ns":10,"kind":"counter","pid":800,"name":"mappings","value":-5}
{"time_ns":11,"kind":"sample","cpu":1,"pid":900,"tid":900,"stack":"main;read;vfs_read_[k]"}
{"time_ns":12,"kind":"block-issue","device":"8:0","sector":5,"operation":"W"}
{"time_ns":13,"kind":"mark","tid":77,"name":"frame"}
"#;

fn exported() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut timeline = export::perfetto(&mut bytes, &Metadata::default());
    for event in Input::new(std::io::Cursor::new(LINES)).unwrap() {
        timeline.write(event.unwrap()).unwrap();
    }
    let who = |tid| export::Who { tid, pid: Some(800), name: format!("t{tid}") };
    let part = export::LostPart { begin: Nanos(14), ns: 3, by: Some(who(802)), text: "t802 ran".to_owned() };
    let lost = export::Lost {
        thread: who(801),
        waker: Some(who(802)),
        woken: Nanos(17),
        ran: Nanos(18),
        parts: vec![part],
    };
    timeline.lost(&lost).unwrap();
    timeline.finish().unwrap();
    bytes
}

/// Fields that a message does not know, in it and all below.
fn unknown(message: &dyn MessageDyn, found: &mut Vec<String>) {
    let descriptor = message.descriptor_dyn();
    for (number, _) in message.unknown_fields_dyn().iter() {
        found.push(format!("{} field {number}", descriptor.full_name()));
    }
    for field in descriptor.fields() {
        if field.is_repeated() {
            for value in field.get_repeated(message) {
                if let ReflectValueRef::Message(below) = value {
                    unknown(&*below, found);
                }
            }
        } else if let Some(ReflectValueRef::Message(below)) = field.get_singular(message) {
            unknown(&*below, found);
        }
    }
}

#[test]
fn perfetto_knows_every_field() {
    let bytes = exported();
    let trace = Trace::parse_from_bytes(&bytes).unwrap();
    let mut found = Vec::new();
    unknown(&trace, &mut found);
    assert!(found.is_empty(), "{found:?}");
    // A number of another type's field would be read and written otherwise.
    assert_eq!(trace.write_to_bytes().unwrap().len(), bytes.len());
}

#[test]
fn every_field_is_where_it_should_be() {
    let trace = Trace::parse_from_bytes(&exported()).unwrap();
    let (mut tracks, mut strings) = (HashMap::new(), HashMap::new());
    let (mut slices, mut ftrace, mut counters) = (Vec::new(), Vec::new(), Vec::new());
    let (mut callstacks, mut frames) = (HashMap::new(), HashMap::new());
    let mut samples = 0;
    for packet in &trace.packet {
        assert_eq!(packet.trusted_packet_sequence_id(), 1);
        let interned = &packet.interned_data;
        for name in interned
            .function_names
            .iter()
            .chain(&interned.kernel_symbols)
        {
            strings.insert(name.iid(), String::from_utf8(name.str().to_vec()).unwrap());
        }
        for frame in &interned.frames {
            frames.insert(frame.iid(), (frame.function_name_id(), frame.mapping_id()));
        }
        for callstack in &interned.callstacks {
            callstacks.insert(callstack.iid(), callstack.frame_ids.clone());
        }
        match packet.data.as_ref().unwrap() {
            Data::TrackDescriptor(track) => {
                tracks.insert(track.uuid(), track.clone());
            }
            Data::TrackEvent(event) => {
                let track = &tracks[&event.track_uuid()];
                match event.type_() {
                    Type::TYPE_SLICE_BEGIN => {
                        let arguments: HashMap<_, _> = event
                            .debug_annotations
                            .iter()
                            .map(|one| (one.name().to_owned(), one.value.clone().unwrap()))
                            .collect();
                        slices.push((event.name().to_owned(), packet.timestamp(), arguments));
                        if event.name() == "mmap" {
                            assert_eq!((track.thread.pid(), track.thread.tid()), (800, 801));
                            assert_eq!(track.thread.thread_name(), "worker");
                            assert_eq!(tracks[&track.parent_uuid()].process.pid(), 800);
                            assert_eq!(event.categories, ["syscall"]);
                        }
                    }
                    Type::TYPE_COUNTER => {
                        assert!(track.counter.is_some());
                        counters.push((track.name().to_owned(), event.counter_value()));
                    }
                    _ => {}
                }
            }
            Data::FtraceEvents(bundle) => {
                ftrace.extend(
                    bundle
                        .event
                        .iter()
                        .map(|event| (bundle.cpu(), event.clone())),
                );
            }
            Data::PerfSample(sample) => {
                assert_eq!((sample.cpu(), sample.pid(), sample.tid()), (1, 900, 900));
                let of_frame = |iid: &u64| &*strings[&frames[iid].0];
                let names: Vec<&str> = callstacks[&sample.callstack_iid()]
                    .iter()
                    .map(of_frame)
                    .collect();
                assert_eq!(names, ["main", "read", "vfs_read"]);
                samples += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(samples, 1);
    assert_eq!(counters, [("mappings".to_owned(), -5)]);
    let begun: Vec<(&str, u64)> = slices
        .iter()
        .map(|(name, time, _)| (&**name, *time))
        .collect();
    assert_eq!(
        begun,
        [
            ("mmap", 1),
            ("direct reclaim", 2),
            ("compaction", 3),
            ("block W", 12),
            ("t801 801: t802 ran", 14)
        ]
    );
    assert_eq!(slices[0].2["argument1"], Value::PointerValue(4_096));
    assert_eq!(slices[1].2["order"], Value::UintValue(3));
    assert_eq!(slices[2].2["synchronous"], Value::BoolValue(true));

    let [switch, blocked, waking, new] = &ftrace[..] else {
        panic!("{ftrace:?}");
    };
    assert_eq!(
        (switch.0, switch.1.timestamp(), switch.1.pid()),
        (1, 7, 801)
    );
    match switch.1.event.as_ref().unwrap() {
        Ftrace::SchedSwitch(switch) => {
            assert_eq!((switch.prev_comm(), switch.prev_pid()), ("worker", 801));
            assert_eq!((switch.prev_prio(), switch.prev_state()), (120, 1));
            assert_eq!((switch.next_comm(), switch.next_pid()), ("other", 900));
            assert_eq!(switch.next_prio(), 110);
        }
        other => panic!("{other:?}"),
    }
    match blocked.1.event.as_ref().unwrap() {
        Ftrace::SchedBlockedReason(reason) => {
            assert_eq!((reason.pid(), reason.io_wait()), (801, 0));
            assert_eq!(strings[&reason.caller()], "do_wait");
        }
        other => panic!("{other:?}"),
    }
    match waking.1.event.as_ref().unwrap() {
        Ftrace::SchedWaking(waking) => {
            assert_eq!((waking.comm(), waking.pid()), ("worker", 801));
            assert_eq!((waking.prio(), waking.target_cpu()), (120, 0));
        }
        other => panic!("{other:?}"),
    }
    match new.1.event.as_ref().unwrap() {
        Ftrace::SchedWakeupNew(new) => {
            assert_eq!((new.comm(), new.pid()), ("child", 901));
            assert_eq!((new.prio(), new.target_cpu()), (119, 2));
        }
        other => panic!("{other:?}"),
    }
}
