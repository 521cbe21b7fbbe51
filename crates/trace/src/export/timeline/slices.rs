use std::collections::HashMap;

use super::name::label;
use super::{Step, Track, What};
use crate::{Event, Kind, Span, Text};
use stopgap_events::units::Nanos;

/// Spans of one activity of a thread, or requests of one device, that are drawn beside each other at most. Of more, the
/// first lane shows the part after its last one.
const LANES: u32 = 1_024;

/// Turns events into steps.
#[derive(Default)]
pub(super) struct Slices {
    /// The system calls that have begun, by their thread's track.
    calls: HashMap<Track, u32>,
    /// The process of a thread, where an event said it.
    process: HashMap<u32, u32>,
    /// Until when the spans reach that were drawn on a track.
    reached: HashMap<Track, Nanos>,
}

impl Slices {
    /// The steps of an event, which is not before those that came; `track` is [`Slices::track`] of it.
    pub(super) fn steps_of<'a>(&mut self, event: &'a Event, track: Track) -> Vec<Step<'a>> {
        let mut steps = Steps {
            event,
            list: Vec::new(),
        };
        match &event.kind {
            // Each form has its own way.
            Kind::Wait(_) | Kind::Sample { .. } => {}
            Kind::Span(span) => self.span(span, &mut steps),
            Kind::Counter { name, value } => {
                let (pid, name) = (event.pid, Text::clone(name));
                steps.push(Track::Counter { pid, name }, What::Count(*value));
            }
            Kind::SyscallEnter { number, .. } => {
                // No thread is in two system calls: the end of the other was not recorded.
                self.close(&track, &mut steps);
                steps.push(track.clone(), What::Begin(label(event)));
                self.calls.insert(track, *number);
            }
            Kind::SyscallExit { number, .. } => {
                if self.calls.get(&track) == Some(number) {
                    self.calls.remove(&track);
                    steps.push(track, What::End);
                } else {
                    steps.push(track, What::Point(label(event)));
                }
            }
            Kind::Exit { .. } => {
                steps.push(track.clone(), What::Point(label(event)));
                self.close(&track, &mut steps);
            }
            _ => steps.push(track, What::Point(label(event))),
        }
        steps.list
    }

    /// Draws a span on the first lane that is free.
    fn span(&mut self, span: &Span, steps: &mut Steps<'_>) {
        let lane = |lane: u32| match &span.device {
            Some(device) => Track::Device {
                device: Text::clone(device),
                lane,
            },
            None => Track::Span {
                tid: steps.event.tid,
                what: span.what,
                lane,
            },
        };
        let reached = |track: &Track| self.reached.get(track).copied().unwrap_or_default();
        let free = (0..LANES)
            .map(lane)
            .find(|track| reached(track) <= span.begin);
        let track = free.unwrap_or_else(|| lane(0));
        let begin = span.begin.max(reached(&track));
        self.reached.insert(track.clone(), steps.event.time);
        let label = What::Begin(label(steps.event));
        steps.push_at(begin, track.clone(), label, None);
        steps.push(track, What::End);
    }

    /// Closes everything.
    pub(super) fn close_all(self, end: Nanos) -> Vec<Step<'static>> {
        let close = |track| Step {
            time: end,
            track,
            what: What::End,
            event: None,
        };
        self.calls.into_keys().map(close).collect()
    }

    /// The track of the event's thread. Whose thread it is, is learned while nothing is open on it, so
    /// that a slice ends where it began.
    pub(super) fn track(&mut self, event: &Event) -> Track {
        if let Kind::Fork {
            target_tid,
            target_pid: Some(pid),
            ..
        } = event.kind
        {
            self.process.insert(target_tid, pid);
        }
        let Some(tid) = event.tid else {
            return Track::Machine;
        };
        let pid = self.process.get(&tid).copied();
        let track = Track::Thread { pid, tid };
        if event.pid.is_none() || self.calls.contains_key(&track) {
            return track;
        }
        self.process.extend(event.pid.map(|pid| (tid, pid)));
        let pid = event.pid;
        Track::Thread { pid, tid }
    }

    /// Closes the call that is open on the track.
    fn close(&mut self, track: &Track, steps: &mut Steps<'_>) {
        if self.calls.remove(track).is_some() {
            steps.push_at(steps.event.time, track.clone(), What::End, None);
        }
    }
}

/// The steps of one event.
struct Steps<'a> {
    event: &'a Event,
    list: Vec<Step<'a>>,
}

impl<'a> Steps<'a> {
    fn push(&mut self, track: Track, what: What) {
        self.push_at(self.event.time, track, what, Some(self.event));
    }

    fn push_at(&mut self, time: Nanos, track: Track, what: What, event: Option<&'a Event>) {
        self.list.push(Step {
            time,
            track,
            what,
            event,
        });
    }
}
