//! A Perfetto trace: what ui.perfetto.dev opens and its trace processor queries.
//!
//! | module | what |
//! |---|---|
//! | `messages` | its messages, as far as they are written |
//! | `blame` | who ended a wait that lost time, as arrows, and who caused it |
//! | `sched` | switches and wake-ups of ftrace, made of waits |
//! | `interned` | names and call stacks, written once each |

mod blame;
mod interned;
mod messages;
mod sched;

use std::collections::HashMap;
use std::io::{self, Write};

use prost::Message;

use super::timeline::{Form, Step, Track, What};
use super::{Lost, Out, Who, buffered};
use crate::cell::{Put, Value};
use crate::column::Column;
use crate::{Event, Kind, Metadata, Text};
use interned::Interned;
use messages::{
    AnnotationValue, CounterDescriptor, Data, DebugAnnotation, INCREMENTAL_STATE_CLEARED,
    NEEDS_INCREMENTAL_STATE, PerfSample, ProcessDescriptor, ThreadDescriptor, TracePacket,
    TrackDescriptor, TrackEvent, Type,
};
use sched::{Sched, id};
use stopgap_events::units::Nanos;

/// Every packet is of one sequence: who wrote it, in Perfetto's words.
const SEQUENCE: u32 = 1;

/// A Perfetto trace, a packet an event.
///
/// Switches and wake-ups, which are made of waits, are events of ftrace, samples are those of perf, everything else is a
/// track event. Times are written as the trace has them, without a clock's name: Perfetto could
/// turn one clock into another only with a reading of both. What is not known of a switch (who
/// leaves, who comes) Perfetto takes for the idle task.
pub(super) struct Perfetto<'w> {
    out: Out<'w>,
    buffer: Vec<u8>,
    tracks: HashMap<Described, u64>,
    names: HashMap<Track, Text>,
    interned: Interned,
    sched: Sched,
    /// Arrows so far.
    arrows: u64,
    /// The trace's description, until the first event gives it a time.
    metadata: Option<Metadata>,
}

/// The tracks that have a descriptor already.
#[derive(PartialEq, Eq, Hash)]
enum Described {
    Process(u32),
    Track(Track),
    /// The track above all of blame.
    Blame,
    /// What a thread caused, or a thing where there is none, of the waits of another.
    BlameOf(Option<Who>, String, u32),
    /// Wake-ups of a thread.
    WakeUps(u32),
}

impl<'w> Perfetto<'w> {
    /// Nothing is written yet.
    pub(super) fn new(out: impl Write + 'w, metadata: &Metadata) -> Perfetto<'w> {
        Perfetto {
            out: buffered(out),
            buffer: Vec::new(),
            tracks: HashMap::new(),
            names: HashMap::new(),
            interned: Interned::new(),
            sched: Sched::default(),
            arrows: 0,
            metadata: Some(metadata.clone()),
        }
    }

    fn packet(&mut self, timestamp: Option<Nanos>, data: Data) -> io::Result<()> {
        /// Field 1 of the message `Trace`, its only one: a packet, with its length.
        const PACKET: u8 = 1 << 3 | 2;
        let (interned_data, cleared) = self.interned.take_packet();
        let cleared = if cleared {
            INCREMENTAL_STATE_CLEARED
        } else {
            0
        };
        let packet = TracePacket {
            timestamp: timestamp.map(|time| time.0),
            trusted_packet_sequence_id: Some(SEQUENCE),
            interned_data,
            sequence_flags: Some(NEEDS_INCREMENTAL_STATE | cleared),
            data: Some(data),
        };
        self.buffer.clear();
        self.buffer.push(PACKET);
        packet
            .encode_length_delimited(&mut self.buffer)
            .map_err(io::Error::other)?;
        self.out.write_all(&self.buffer)
    }

    fn describe(&mut self, descriptor: TrackDescriptor) -> io::Result<()> {
        self.packet(None, Data::TrackDescriptor(descriptor))
    }

    /// The process's track, described where it is new.
    fn process(&mut self, pid: u32) -> io::Result<u64> {
        let next = self.next();
        if let Some(&uuid) = self.tracks.get(&Described::Process(pid)) {
            return Ok(uuid);
        }
        self.tracks.insert(Described::Process(pid), next);
        let first = Track::Thread {
            pid: Some(pid),
            tid: pid,
        };
        let process_name = self.names.get(&first).map(Text::to_string);
        self.describe(TrackDescriptor {
            uuid: Some(next),
            process: Some(ProcessDescriptor {
                pid: Some(id(pid)),
                process_name,
            }),
            ..TrackDescriptor::default()
        })?;
        Ok(next)
    }

    fn next(&self) -> u64 {
        self.tracks.len() as u64 + 1
    }

    /// The track, described where it is new.
    fn track(&mut self, track: &Track) -> io::Result<u64> {
        let described = Described::Track(track.clone());
        if let Some(&uuid) = self.tracks.get(&described) {
            return Ok(uuid);
        }
        let parent_uuid = match *track {
            Track::Thread { pid: Some(pid), .. } | Track::Counter { pid: Some(pid), .. } => {
                Some(self.process(pid)?)
            }
            _ => None,
        };
        let uuid = self.next();
        self.tracks.insert(described, uuid);
        let mut descriptor = self.descriptor(track, uuid);
        descriptor.parent_uuid = parent_uuid;
        self.describe(descriptor)?;
        Ok(uuid)
    }

    fn descriptor(&self, track: &Track, uuid: u64) -> TrackDescriptor {
        let comm = self.names.get(track).map(Text::to_string);
        let mut descriptor = TrackDescriptor {
            uuid: Some(uuid),
            ..TrackDescriptor::default()
        };
        match track {
            Track::Thread {
                pid: Some(pid),
                tid,
            } => {
                descriptor.thread = Some(ThreadDescriptor {
                    pid: Some(id(*pid)),
                    tid: Some(id(*tid)),
                    thread_name: comm,
                });
            }
            // Perfetto knows no thread without a process.
            Track::Thread { pid: None, tid } => {
                descriptor.name = Some(format!("{} {tid}", comm.as_deref().unwrap_or("thread")));
            }
            Track::Span { tid, what, .. } => {
                descriptor.name = Some(match tid {
                    Some(tid) => format!("thread {tid} {what}"),
                    None => what.to_string(),
                });
            }
            Track::Device { device, .. } => descriptor.name = Some(format!("block {device}")),
            Track::Counter { name, .. } => {
                descriptor.name = Some(name.to_string());
                descriptor.counter = Some(CounterDescriptor {});
            }
            Track::Machine => descriptor.name = Some("no thread".to_owned()),
        }
        descriptor
    }

    /// Tells whose thread it is and what it is called, where that is new.
    fn name(&mut self, track: &Track, comm: Option<&Text>) -> io::Result<()> {
        let &Track::Thread {
            pid: Some(pid),
            tid,
        } = track
        else {
            return Ok(());
        };
        let old = self.names.get(track);
        let renamed = comm.is_some_and(|comm| old != Some(comm));
        if let (true, Some(comm)) = (renamed, comm) {
            self.names.insert(track.clone(), Text::clone(comm));
        }
        let known = Described::Track(track.clone());
        let Some(&uuid) = self.tracks.get(&known) else {
            return self.track(track).map(|_| ());
        };
        if !renamed {
            return Ok(());
        }
        if tid == pid {
            let uuid = self.process(pid)?;
            self.describe(TrackDescriptor {
                uuid: Some(uuid),
                process: Some(ProcessDescriptor {
                    pid: Some(id(pid)),
                    process_name: comm.map(Text::to_string),
                }),
                ..TrackDescriptor::default()
            })?;
        }
        let parent_uuid = Some(self.process(pid)?);
        let descriptor = self.descriptor(track, uuid);
        self.describe(TrackDescriptor {
            parent_uuid,
            ..descriptor
        })
    }

    /// Writes the trace's description as a point at its beginning.
    fn about(&mut self, time: Nanos) -> io::Result<()> {
        let Some(metadata) = self.metadata.take() else {
            return Ok(());
        };
        let uuid = self.track(&Track::Machine)?;
        let text = serde_json::to_value(&metadata).map_err(io::Error::from)?;
        let members = text.as_object().into_iter().flatten();
        let annotation = |(name, value): (&String, &serde_json::Value)| DebugAnnotation {
            name: Some(name.clone()),
            value: Some(AnnotationValue::String(match value.as_str() {
                Some(text) => text.to_owned(),
                None => value.to_string(),
            })),
        };
        let known = members.filter(|(_, value)| !value.is_null());
        let event = TrackEvent {
            debug_annotations: known.map(annotation).collect(),
            r#type: Some(Type::Instant.into()),
            track_uuid: Some(uuid),
            categories: vec!["trace".to_owned()],
            name: Some("this trace".to_owned()),
            ..TrackEvent::default()
        };
        self.packet(Some(time), Data::TrackEvent(event))
    }
}

impl Form for Perfetto<'_> {
    fn step(&mut self, step: &Step<'_>) -> io::Result<()> {
        let mut event = TrackEvent {
            track_uuid: Some(self.track(&step.track)?),
            ..TrackEvent::default()
        };
        let (form, label) = match &step.what {
            What::Begin(label) => (Type::SliceBegin, Some(label)),
            What::End => (Type::SliceEnd, None),
            What::Point(label) => (Type::Instant, Some(label)),
            What::Count(_) => (Type::Counter, None),
        };
        event.r#type = Some(form.into());
        if let Some(label) = label {
            event.name = Some(label.name.clone());
            event.categories.push(label.category.to_owned());
        }
        match (&step.what, step.event) {
            (What::Count(value), _) => event.counter_value = Some(*value),
            (_, Some(from)) => {
                let mut annotations = Annotations(Vec::new());
                from.kind.put_cells(&mut (&mut annotations as &mut dyn Put));
                event.debug_annotations = annotations.0;
            }
            (_, None) => {}
        }
        self.packet(Some(step.time), Data::TrackEvent(event))
    }

    fn event(&mut self, event: &Event, track: &Track) -> io::Result<()> {
        self.about(event.time)?;
        self.name(track, event.comm.as_ref())?;
        if let Kind::Wait(wait) = &event.kind {
            for bundle in self.sched.wait(event, wait, &mut self.interned) {
                self.packet(None, Data::FtraceEvents(bundle))?;
            }
            return Ok(());
        }
        match (&event.kind, track) {
            (
                Kind::Sample { stack },
                &Track::Thread {
                    pid: Some(pid),
                    tid,
                },
            ) => {
                let sample = PerfSample {
                    cpu: event.cpu,
                    pid: Some(pid),
                    tid: Some(tid),
                    callstack_iid: Some(self.interned.stack(stack)),
                };
                self.packet(Some(event.time), Data::PerfSample(sample))
            }
            // No thread that Perfetto could know.
            (Kind::Sample { .. }, _) => {
                let label = super::timeline::Label {
                    name: event.kind.word().to_owned(),
                    category: "sched",
                };
                self.step(&Step {
                    time: event.time,
                    track: track.clone(),
                    what: What::Point(label),
                    event: Some(event),
                })
            }
            _ => Ok(()),
        }
    }

    fn lost(&mut self, lost: &Lost) -> io::Result<()> {
        self.blames(lost)
    }

    fn finish(mut self, _end: Nanos) -> io::Result<()> {
        for bundle in std::mem::take(&mut self.sched).finish() {
            self.packet(None, Data::FtraceEvents(bundle))?;
        }
        self.out.flush()
    }
}

/// The columns of an event as arguments.
struct Annotations(Vec<DebugAnnotation>);

impl Put for Annotations {
    fn put_cell(&mut self, column: Column, value: Value<'_>) {
        let value = match value {
            Value::Unsigned(number) if is_address(column) => AnnotationValue::Pointer(number),
            Value::Unsigned(number) => AnnotationValue::Uint(number),
            Value::Signed(number) => AnnotationValue::Int(number),
            Value::Bool(value) => AnnotationValue::Bool(value),
            Value::Text(text) => AnnotationValue::String(text.to_string()),
            Value::Word(word) => AnnotationValue::String(word.to_owned()),
        };
        self.0.push(DebugAnnotation {
            name: Some(column.name().to_owned()),
            value: Some(value),
        });
    }
}

/// Whether people read it in hexadecimal: addresses, and what may be one.
fn is_address(column: Column) -> bool {
    matches!(
        column,
        Column::Address
            | Column::LimitStart
            | Column::LimitEnd
            | Column::Hint
            | Column::InstructionPointer
            | Column::Argument0
            | Column::Argument1
            | Column::Argument2
            | Column::Argument3
            | Column::Argument4
            | Column::Argument5
    )
}

#[cfg(test)]
mod tests;
