//! Requests to disks: finds the request for which a thread waits at a moment.

use std::collections::{HashMap, VecDeque};

use stopgap_trace::{Span, Text};

use super::path::{ActorId, NOBODY, Name};

/// Most finished requests of a device that are remembered.
const MOST_REQUESTS: usize = 1_024;
/// Most requests that one wait looks at.
const MOST_LOOKED_AT: usize = 256;
const MOST_DEVICES: usize = 4_096;
/// Most kinds of requests of a device. A kind is an operation and a power of two of the size.
const MOST_KINDS: usize = 64;
/// Most lengths that are kept per kind, of requests that ran alone on the device.
const MOST_ALONE: usize = 31;
/// Fewest lengths of which the shortest counts.
const LEAST_ALONE: usize = 8;
/// A request ran alone if none of this many that ended after it had begun before its end.
const LOOKED_AHEAD: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Request {
    /// When it entered the queue.
    begin: u64,
    /// When the device received it.
    issued: u64,
    end: u64,
    tid: u32,
    actor: ActorId,
    /// Index into [`Device::kinds`].
    kind: Option<usize>,
    /// Whether no other request was under way meanwhile.
    alone: bool,
}

/// How long requests of a kind take when no other request is under way.
#[derive(Debug)]
struct KindOf {
    operation: Option<Text>,
    magnitude: u32,
    /// The last lengths in nanoseconds, in the order of their ends.
    alone: VecDeque<u64>,
    least: Option<u64>,
}

#[derive(Debug, Default)]
struct Device {
    name: Name,
    done: VecDeque<Request>,
    kinds: Vec<KindOf>,
}

impl Device {
    fn kind(&mut self, span: &Span) -> Option<usize> {
        let magnitude = span.length.map_or(0, |length| {
            length.0.checked_ilog2().map_or(0, |log| log + 1)
        });
        let same = |kind: &KindOf| kind.magnitude == magnitude && kind.operation == span.operation;
        let known = self.kinds.iter().position(same);
        known.or_else(|| {
            (self.kinds.len() < MOST_KINDS).then(|| {
                self.kinds.push(KindOf {
                    operation: span.operation.clone(),
                    magnitude,
                    alone: VecDeque::new(),
                    least: None,
                });
                self.kinds.len() - 1
            })
        })
    }

    /// Takes the next request, in the order of ends.
    fn add(&mut self, mut request: Request) {
        for earlier in self.done.iter_mut().rev().take(LOOKED_AHEAD) {
            if earlier.end > request.begin {
                earlier.alone = false;
                request.alone = false;
            }
        }
        if self.done.len() >= MOST_REQUESTS {
            self.done.pop_front();
        }
        self.done.push_back(request);
        let settled = self.done.len().checked_sub(1 + LOOKED_AHEAD);
        let settled = settled.map(|at| self.done[at]).filter(|one| one.alone);
        if let Some(Request {
            kind: Some(kind),
            begin,
            end,
            ..
        }) = settled
        {
            let kind = &mut self.kinds[kind];
            if kind.alone.len() >= MOST_ALONE {
                kind.alone.pop_front();
            }
            kind.alone.push_back(end - begin);
            let least = kind.alone.iter().copied().min();
            kind.least = least.filter(|_| kind.alone.len() >= LEAST_ALONE);
        }
    }

    /// Returns the latest time at which the device would have begun the request if no other one had been there.
    fn own_from(&self, request: &Request) -> u64 {
        let least = request.kind.and_then(|kind| self.kinds[kind].least);
        least.map_or(request.end, |least| {
            request.end.saturating_sub(least).max(request.begin)
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Disks {
    devices: Vec<Device>,
    of_name: HashMap<Text, usize>,
}

/// A part of a wait for a disk.
pub(super) struct Share {
    pub(super) device: Name,
    /// The thread whose request was first; [`NOBODY`] where no request is known.
    pub(super) by: ActorId,
    pub(super) ns: u64,
}

impl Disks {
    /// Takes a request that was done at `end`.
    pub(super) fn done(
        &mut self,
        span: &Span,
        end: u64,
        tid: u32,
        actor: ActorId,
        name: impl FnOnce(&Text) -> Name,
    ) {
        let Some(device) = &span.device else { return };
        let at = match self.of_name.get(device) {
            Some(&at) => at,
            None if self.devices.len() >= MOST_DEVICES => return,
            None => {
                self.devices.push(Device {
                    name: name(device),
                    ..Device::default()
                });
                self.of_name
                    .insert(Text::clone(device), self.devices.len() - 1);
                self.devices.len() - 1
            }
        };
        let device = &mut self.devices[at];
        let begin = span.begin.0.min(end);
        let issued = span
            .issued
            .map_or(begin, |issued| issued.0.clamp(begin, end));
        let kind = device.kind(span);
        device.add(Request {
            begin,
            issued,
            end,
            tid,
            actor,
            kind,
            alone: true,
        });
    }

    /// Returns whether the trace has requests to disks.
    pub(super) fn has_requests(&self) -> bool {
        self.devices.iter().any(|device| !device.done.is_empty())
    }

    /// Returns whether a request ended within `slack` nanoseconds before `at`; only of `tid` if that is given.
    pub(super) fn ended_at(&self, at: u64, slack: u64, tid: Option<u32>) -> bool {
        self.devices.iter().any(|device| {
            (device.done.iter().rev())
                .take_while(|request| request.end + slack >= at)
                .take(MOST_LOOKED_AT)
                .any(|request| request.end <= at && tid.is_none_or(|tid| request.tid == tid))
        })
    }

    /// Appends, in the order of time, why the thread `tid` waited for a disk from `from` to `to`.
    ///
    /// At each moment the cause is the first request that is under way: on the device that has the thread's own
    /// request, or on any device if there is none. Requests that the device received earlier come first. But the
    /// thread's own request comes first for the last part of its time. That part is as long as the fastest request of
    /// its kind took alone, if such requests were seen. A disk serves several requests at a time, so the thread would
    /// have waited that long without the others, too.
    pub(super) fn shares(&self, tid: u32, from: u64, to: u64, out: &mut Vec<Share>) {
        let overlap = |request: &&Request| request.begin < to && request.end > from;
        let of = |device: &Device| -> Vec<Request> {
            (device.done.iter().rev())
                .take_while(|request| request.end > from)
                .take(MOST_LOOKED_AT)
                .filter(overlap)
                .copied()
                .collect()
        };
        let mut requests: Vec<(Name, Request)> = Vec::new();
        let mut own_first: Vec<(Name, ActorId, u64, u64)> = Vec::new();
        let mut own = false;
        for device in &self.devices {
            let here = of(device);
            let here_own = here.iter().any(|request| request.tid == tid);
            if here_own && !own {
                requests.clear();
                own_first.clear();
                own = true;
            }
            if here_own || !own {
                for request in here {
                    // From `own_from` to its end the thread's own request comes first.
                    if request.tid == tid {
                        let from = device.own_from(&request);
                        own_first.push((device.name, request.actor, from, request.end));
                    }
                    requests.push((device.name, request));
                }
            }
        }
        let mut moments: Vec<u64> = (requests.iter())
            .flat_map(|(_, request)| [request.begin, request.issued, request.end])
            .chain(own_first.iter().map(|&(.., from, _)| from))
            .filter(|&at| at > from && at < to)
            .chain([to])
            .collect();
        moments.sort_unstable();
        moments.dedup();
        // Order of the queue: by when the device received a request, then by when it entered the queue.
        requests.sort_by_key(|(_, request)| (request.issued, request.begin));
        let mut at = from;
        for until in moments {
            let under_way = |request: &Request| request.begin <= at && request.end >= until;
            let first = requests.iter().find(|(_, request)| under_way(request));
            let own = own_first
                .iter()
                .find(|(_, _, from, end)| *from <= at && *end >= until);
            let (device, by) = match (own, first) {
                (Some(&(device, actor, ..)), _) => (device, actor),
                (None, Some((device, request))) => (*device, request.actor),
                (None, None) => (0, NOBODY),
            };
            match out.last_mut() {
                Some(last) if last.device == device && last.by == by => last.ns += until - at,
                _ => out.push(Share {
                    device,
                    by,
                    ns: until - at,
                }),
            }
            at = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use stopgap_events::units::{Bytes, Nanos};
    use stopgap_trace::Activity;

    use super::*;

    /// A disk that serves two requests at a time: the thread's own takes 10 ms in any case.
    #[test]
    fn what_a_request_takes_by_itself_is_not_behind_others() {
        let mut disks = Disks::default();
        let mut request = |begin: u64, end: u64, tid: u32, bytes: u64| {
            let span = Span {
                device: Some("254:0".into()),
                operation: Some("WS".into()),
                length: Some(Bytes(bytes)),
                ..Span::new(Activity::Block, Nanos(begin))
            };
            disks.done(&span, end, tid, tid, |_| 1);
        };
        for index in 0..20_u64 {
            request(100 * index, 100 * index + 10 + index % 3, 7, 4096);
        }
        // A large request of another thread is under way while the thread's own request waits and is served.
        request(3_000, 3_028, 9, 1 << 20);
        request(3_001, 3_030, 7, 4096);
        let mut shares = Vec::new();
        disks.shares(7, 3_001, 3_030, &mut shares);
        let shares: Vec<_> = shares.iter().map(|share| (share.by, share.ns)).collect();
        assert_eq!(shares, [(9, 19), (7, 10)]);
    }
}
