//! Requests to disks: which of them a thread waits for at a moment.

use std::collections::{HashMap, VecDeque};

use stopgap_trace::{Span, Text};

use super::path::{ActorId, NOBODY, Name};

/// Requests of a device that are remembered after their end.
const MOST_REQUESTS: usize = 1_024;
/// Requests that one wait looks at.
const MOST_LOOKED_AT: usize = 256;
const MOST_DEVICES: usize = 4_096;

#[derive(Debug, Clone, Copy)]
struct Request {
    /// When it came into the queue.
    begin: u64,
    /// When the device got it.
    issued: u64,
    end: u64,
    tid: u32,
    actor: ActorId,
}

#[derive(Debug, Default)]
struct Device {
    name: Name,
    done: VecDeque<Request>,
}

#[derive(Debug, Default)]
pub(super) struct Disks {
    devices: Vec<Device>,
    of_name: HashMap<Text, usize>,
}

/// Time of a wait for a disk.
pub(super) struct Share {
    pub(super) device: Name,
    /// Whose request stood first; nobody where no request is known.
    pub(super) by: ActorId,
    pub(super) ns: u64,
}

impl Disks {
    /// A request is done at `end`.
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
                    done: VecDeque::new(),
                });
                self.of_name
                    .insert(Text::clone(device), self.devices.len() - 1);
                self.devices.len() - 1
            }
        };
        let done = &mut self.devices[at].done;
        if done.len() >= MOST_REQUESTS {
            done.pop_front();
        }
        let begin = span.begin.0.min(end);
        let issued = span
            .issued
            .map_or(begin, |issued| issued.0.clamp(begin, end));
        done.push_back(Request {
            begin,
            issued,
            end,
            tid,
            actor,
        });
    }

    /// Returns whether a request ended within `slack` before `at`; of `tid` where that is given.
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
    /// At each moment that is the first in its queue of the requests under way: of the device on which the thread's own
    /// request is, or where it has none, of all devices. What the device was given before, stands before.
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
        let mut own = false;
        for device in &self.devices {
            let here = of(device);
            let here_own = here.iter().any(|request| request.tid == tid);
            if here_own && !own {
                requests.clear();
                own = true;
            }
            if here_own || !own {
                requests.extend(here.into_iter().map(|request| (device.name, request)));
            }
        }
        let mut moments: Vec<u64> = (requests.iter())
            .flat_map(|(_, request)| [request.begin, request.issued, request.end])
            .filter(|&at| at > from && at < to)
            .chain([to])
            .collect();
        moments.sort_unstable();
        moments.dedup();
        // The first in the queue: what the device was given first; what it has not got, by its coming.
        requests.sort_by_key(|(_, request)| (request.issued, request.begin));
        let mut at = from;
        for until in moments {
            let under_way = |request: &Request| request.begin <= at && request.end >= until;
            let first = requests.iter().find(|(_, request)| under_way(request));
            let (device, by) =
                first.map_or((0, NOBODY), |(device, request)| (*device, request.actor));
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
