use std::collections::HashMap;

use super::name::label;
use super::{Step, Track, What};
use crate::{Activity, Event, Kind, Reclaimer, Span, Text};
use stopgap_events::units::Nanos;

/// Slices within each other on one track at most. A kernel does not go so deep; a trace that lost
/// its ends would.
const DEEPEST: usize = 64;
/// Requests of one device that are drawn at the same time at most.
const LANES: usize = 1_024;

/// Slices that have begun, by what their end will have.
#[derive(Debug, PartialEq, Eq)]
enum Open {
    Syscall(u32),
    Reclaim(Reclaimer, Option<Text>),
    Compaction,
    Lock(Option<Text>, Option<u64>),
    Fence(Option<u64>, Option<u64>),
    Request(u64),
}

/// Turns events into steps.
#[derive(Default)]
pub(super) struct Slices {
    open: HashMap<Track, Vec<Open>>,
    /// The process of a thread, where an event said it.
    process: HashMap<u32, u32>,
    /// Until when the spans reach that were drawn on a track.
    reached: HashMap<Track, Nanos>,
    /// The sectors of the requests that each device has, by lane.
    devices: HashMap<Text, Vec<Option<u64>>>,
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
                self.close(&track, 0, &mut steps);
                self.begin(track, Open::Syscall(*number), &mut steps);
            }
            Kind::SyscallExit { number, .. } => {
                self.end(&track, &Open::Syscall(*number), &mut steps);
            }
            Kind::ReclaimBegin { by, shrinker, .. } => {
                self.begin(track, Open::Reclaim(*by, shrinker.clone()), &mut steps);
            }
            Kind::ReclaimEnd {
                by: Reclaimer::Throttled,
                duration: Some(duration),
                ..
            } if event.tid.is_some() => {
                let (tid, what) = (event.tid, Activity::Throttled);
                let begin = event.time.saturating_sub(*duration);
                self.whole(Track::Span { tid, what }, begin, &mut steps);
            }
            Kind::ReclaimEnd { by, shrinker, .. } => {
                self.end(&track, &Open::Reclaim(*by, shrinker.clone()), &mut steps);
            }
            Kind::CompactionBegin { .. } => self.begin(track, Open::Compaction, &mut steps),
            Kind::CompactionEnd { .. } => self.end(&track, &Open::Compaction, &mut steps),
            Kind::LockBegin { lock, address, .. } => {
                self.begin(track, Open::Lock(lock.clone(), *address), &mut steps);
            }
            Kind::LockEnd { lock, address, .. } => {
                self.end(&track, &Open::Lock(lock.clone(), *address), &mut steps);
            }
            Kind::FenceWaitBegin { context, seqno, .. } => {
                self.begin(track, Open::Fence(*context, *seqno), &mut steps);
            }
            Kind::FenceWaitEnd { context, seqno, .. } => {
                self.end(&track, &Open::Fence(*context, *seqno), &mut steps);
            }
            Kind::BlockIssue { device, sector, .. } => self.issue(device, *sector, &mut steps),
            Kind::BlockComplete { device, sector, .. } => {
                self.complete(device, *sector, &mut steps);
            }
            Kind::Exit { .. } => {
                steps.push(track.clone(), What::Point(label(event)));
                self.close(&track, 0, &mut steps);
            }
            _ => steps.push(track, What::Point(label(event))),
        }
        steps.list
    }

    /// A slice from `begin` to the event, as far as the track is free.
    fn whole(&mut self, track: Track, begin: Nanos, steps: &mut Steps<'_>) {
        let reached = self.reached.entry(track.clone()).or_default();
        let begin = begin.max(*reached);
        *reached = steps.event.time;
        let label = What::Begin(label(steps.event));
        steps.push_at(begin, track.clone(), label, None);
        steps.push(track, What::End);
    }

    fn span(&mut self, span: &Span, steps: &mut Steps<'_>) {
        let track = match &span.device {
            Some(device) => {
                // Beside the lanes of requests whose begin and end are two events.
                let mut lanes = (LANES..2 * LANES).map(|at| lane(device, at));
                let reached = |lane: &Track| self.reached.get(lane);
                let free = lanes.find(|lane| reached(lane).is_none_or(|&end| end <= span.begin));
                free.unwrap_or_else(|| lane(device, LANES))
            }
            None => Track::Span {
                tid: steps.event.tid,
                what: span.what,
            },
        };
        self.whole(track, span.begin, steps);
    }

    /// Closes everything.
    pub(super) fn close_all(self, end: Nanos) -> Vec<Step<'static>> {
        let close = |(track, open): (Track, Vec<Open>)| {
            open.into_iter().map(move |_| Step {
                time: end,
                track: track.clone(),
                what: What::End,
                event: None,
            })
        };
        self.open.into_iter().flat_map(close).collect()
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
        if event.pid.is_none() || self.open.get(&track).is_some_and(|all| !all.is_empty()) {
            return track;
        }
        self.process.extend(event.pid.map(|pid| (tid, pid)));
        let pid = event.pid;
        Track::Thread { pid, tid }
    }

    fn begin(&mut self, track: Track, open: Open, steps: &mut Steps<'_>) {
        if self
            .open
            .get(&track)
            .is_some_and(|all| all.len() >= DEEPEST)
        {
            self.close(&track, 0, steps);
        }
        steps.push(track.clone(), What::Begin(label(steps.event)));
        self.open.entry(track).or_default().push(open);
    }

    /// Ends what began so, and before it what began inside and has lost its end.
    fn end(&mut self, track: &Track, what: &Open, steps: &mut Steps<'_>) {
        let open = self.open.get(track);
        let Some(at) = open.and_then(|all| all.iter().rposition(|open| open == what)) else {
            steps.push(track.clone(), What::Point(label(steps.event)));
            return;
        };
        self.close(track, at + 1, steps);
        self.open.entry(track.clone()).or_default().pop();
        steps.push(track.clone(), What::End);
    }

    /// Closes what is open on the track but the outermost `keep`.
    fn close(&mut self, track: &Track, keep: usize, steps: &mut Steps<'_>) {
        let Some(open) = self.open.get_mut(track) else {
            return;
        };
        for _ in keep..open.len() {
            steps.push_at(steps.event.time, track.clone(), What::End, None);
        }
        open.truncate(keep);
    }

    fn issue(&mut self, device: &Text, sector: u64, steps: &mut Steps<'_>) {
        let lanes = self.devices.entry(Text::clone(device)).or_default();
        // Issued again: its completion was not recorded.
        let again = lanes.iter().position(|lane| *lane == Some(sector));
        let free = lanes.iter().position(Option::is_none);
        let Some(at) = again
            .or(free)
            .or((lanes.len() < LANES).then_some(lanes.len()))
        else {
            steps.push(Track::Machine, What::Point(label(steps.event)));
            return;
        };
        if at == lanes.len() {
            lanes.push(None);
        }
        lanes[at] = Some(sector);
        let track = lane(device, at);
        self.close(&track, 0, steps);
        self.begin(track, Open::Request(sector), steps);
    }

    fn complete(&mut self, device: &Text, sector: u64, steps: &mut Steps<'_>) {
        let lanes = self.devices.entry(Text::clone(device)).or_default();
        let at = lanes.iter().position(|lane| *lane == Some(sector));
        let Some(at) = at else {
            steps.push(Track::Machine, What::Point(label(steps.event)));
            return;
        };
        lanes[at] = None;
        self.end(&lane(device, at), &Open::Request(sector), steps);
    }
}

fn lane(device: &Text, at: usize) -> Track {
    Track::Device {
        device: Text::clone(device),
        // Fits: there are twice LANES at most.
        lane: u32::try_from(at).unwrap_or(u32::MAX),
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
