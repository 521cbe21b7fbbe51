//! How a client and a server talk: the facts that a model of the two needs.
//!
//! [`crate::Explainer`] finds the pairs. This module reads the events a second time, because a pair shows only after
//! its first request.
//!
//! ```text
//! client  send ..... receive  user  send ..... receive  user  send
//! server       user send                 user send
//!         |- counted ---------------|- counted -----------|
//! ```
//!
//! Counted is the time between flushes. A flush is a send of the client after a reply. Nothing counts before the
//! first flush and after the last one.

use std::collections::{BTreeMap, HashMap};

use stopgap_events::order::SortRows;
use stopgap_events::wait::{Waker, Within};
use stopgap_trace::{Event, Kind, Text};

use crate::call::{Role, name_of, role};
use crate::roundtrip::{With, with};

/// Activity of a pair between its first flush and its last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The thread that asks.
    pub client: u32,
    /// The thread that answers.
    pub server: u32,
    /// Their last names; `None` where no event has one.
    pub names: (Option<Text>, Option<Text>),
    /// Round trips: flushes after which another one came.
    pub roundtrips: u64,
    /// Switch-outs of each thread in which the other one got the CPU or ended the sleep.
    pub switches: u64,
    /// Calls by which the client sent.
    pub sends: u64,
    /// Calls by which the server sent.
    pub replies: u64,
    /// CPU time of the client outside of system calls, in nanoseconds; `None` if its calls have no rows.
    pub client_user_ns: Option<u64>,
    /// CPU time of the server outside of system calls, in nanoseconds; `None` if its calls have no rows.
    pub server_user_ns: Option<u64>,
    /// Calls in which the client waits for descriptors, by name.
    pub client_waits: BTreeMap<Text, u64>,
    /// Calls in which the server waits for descriptors, by name.
    pub server_waits: BTreeMap<Text, u64>,
    /// The most descriptors of a poll of the server, or the highest descriptor plus one of a select.
    pub server_descriptors: Option<u64>,
    /// Whether both always ran on the same CPU; `None` if no event names a CPU.
    pub one_cpu: Option<bool>,
}

/// State of one of the two threads.
#[derive(Debug, Default)]
struct Side {
    tid: u32,
    name: Option<Text>,
    /// When it last began to run outside of system calls.
    user_since: Option<u64>,
    /// Its current call.
    call: Option<(Text, Option<u64>)>,
    /// The descriptor on which it sends to the other thread.
    descriptor: Option<u64>,
    /// Whether its calls have rows. Without them, only its waits and wakings are known.
    calls: bool,
    since: Activity,
}

/// Activity of one side since the last flush.
#[derive(Debug, Default)]
struct Activity {
    switches: u64,
    sends: u64,
    user_ns: u64,
    waits: BTreeMap<Text, u64>,
    descriptors: Option<u64>,
    cpus: Vec<u32>,
}

#[derive(Debug, Default)]
struct Pair {
    client: Side,
    server: Side,
    /// The first flush and the last one. Nothing counts before the first.
    flushes: Option<(u64, u64)>,
    cpus: Vec<u32>,
    /// CPU time in nanoseconds outside of calls, of the client and of the server.
    user_ns: (u64, u64),
    total: Exchange,
}

/// Takes the events of a trace a second time, with waits in place of switches and wake-ups. Returns what each pair
/// did. Memory grows with the number of pairs only.
#[derive(Debug)]
pub struct Exchanges {
    pairs: Vec<Pair>,
    /// For each thread its pairs, and whether it is the client there.
    of: HashMap<u32, Vec<(usize, bool)>>,
}

impl Exchanges {
    /// Creates the counts for `pairs` of a client and a server, from [`crate::Explainer::pairs`].
    #[must_use]
    pub fn new(pairs: &[(u32, u32)]) -> Exchanges {
        let mut of: HashMap<u32, Vec<(usize, bool)>> = HashMap::new();
        let pair = |(index, &(client, server)): (usize, &(u32, u32))| {
            of.entry(client).or_default().push((index, true));
            of.entry(server).or_default().push((index, false));
            let mut pair = Pair::default();
            (pair.client.tid, pair.server.tid) = (client, server);
            pair
        };
        Exchanges {
            pairs: pairs.iter().enumerate().map(pair).collect(),
            of,
        }
    }

    /// Takes the next event.
    pub fn event(&mut self, event: &Event) {
        let now = event.time.0;
        let Some(tid) = event.tid else { return };
        self.sides(tid, |pair, client| pair.acts(client, event, now));
        if let Kind::Wait(wait) = &event.kind
            && let (Some(woken), Some(waker)) = (wait.woken, &wait.waker)
        {
            self.sides(waker.task.tid, |pair, client| {
                if pair.side(!client).tid == tid {
                    pair.wakes(client, waker, woken.0);
                }
            });
        }
    }

    fn sides(&mut self, tid: u32, mut act: impl FnMut(&mut Pair, bool)) {
        for &(index, client) in self.of.get(&tid).into_iter().flatten() {
            act(&mut self.pairs[index], client);
        }
    }

    /// Returns what each pair did, the most round trips first. Pairs without a round trip are left out.
    #[must_use]
    pub fn finish(self) -> Vec<Exchange> {
        let of = |pair: Pair| Exchange {
            client: pair.client.tid,
            server: pair.server.tid,
            client_user_ns: pair.client.calls.then_some(pair.user_ns.0),
            server_user_ns: pair.server.calls.then_some(pair.user_ns.1),
            names: (pair.client.name, pair.server.name),
            one_cpu: (!pair.cpus.is_empty()).then_some(pair.cpus.len() == 1),
            ..pair.total
        };
        let mut all: Vec<Exchange> = self.pairs.into_iter().map(of).collect();
        all.retain(|exchange| exchange.roundtrips > 0);
        all.sort_rows_by_key(|exchange| std::cmp::Reverse(exchange.roundtrips));
        all
    }
}

impl Pair {
    fn side(&mut self, client: bool) -> &mut Side {
        if client {
            &mut self.client
        } else {
            &mut self.server
        }
    }

    fn acts(&mut self, client: bool, event: &Event, now: u64) {
        let flushes = self.flushes;
        let partner = self.side(!client).tid;
        let side = self.side(client);
        if event.comm.is_some() {
            side.name.clone_from(&event.comm);
        }
        if let Some(cpu) = event.cpu
            && !side.since.cpus.contains(&cpu)
        {
            side.since.cpus.push(cpu);
        }
        match &event.kind {
            Kind::Wait(wait) => {
                let left = wait.left.0;
                side.book(left);
                side.user_since = side.call.is_none().then_some(now);
                if wait.began_before || wait.within == Some(Within::New) {
                    return;
                }
                if let Some(call) = wait.call.as_ref().filter(|_| !side.calls) {
                    let name = name_of(call.number, call.name.as_ref());
                    if role(&name) == Role::Waits {
                        side.waits(&name, &call.arguments);
                    }
                }
                match with(wait) {
                    With::One(other) if other != partner => return,
                    With::Nobody => return,
                    With::One(_) | With::Anybody => {}
                }
                // A flush may have come since the thread left.
                match flushes {
                    Some((first, last)) if left < last => {
                        self.total.switches += u64::from(left >= first);
                    }
                    _ => side.since.switches += 1,
                }
            }
            Kind::SyscallEnter {
                number,
                name,
                arguments,
            } => {
                side.book(now);
                side.user_since = None;
                side.calls = true;
                let name = name_of(*number, name.as_ref());
                let to = arguments[0].filter(|_| role(&name) == Role::Sends);
                let sends = to.is_some() && to == side.descriptor;
                if role(&name) == Role::Waits {
                    side.waits(&name, arguments);
                }
                side.call = Some((name, arguments[0]));
                if sends {
                    self.sends(client, now);
                }
            }
            Kind::SyscallExit { .. } => {
                side.calls = true;
                side.call = None;
                side.user_since = Some(now);
            }
            _ => {}
        }
    }

    /// Notes that a side has woken the other at `at`.
    fn wakes(&mut self, client: bool, waker: &Waker, at: u64) {
        let side = self.side(client);
        let Some(call) = &waker.call else { return };
        if role(&name_of(call.number, call.name.as_ref())) != Role::Sends {
            return;
        }
        // The send that made them a pair is the first one. Rows show the later ones.
        if side.descriptor.is_none() || !side.calls && side.descriptor == call.arguments[0] {
            side.descriptor = call.arguments[0];
            self.sends(client, at);
        }
    }

    /// Notes that a side sends to the other at `at`. Nothing counts before both descriptors are known.
    fn sends(&mut self, client: bool, at: u64) {
        if self.client.descriptor.is_none() || self.server.descriptor.is_none() {
            return;
        }
        let flush = client && (self.flushes.is_none() || self.server.since.sends > 0);
        if flush {
            let sides = [
                std::mem::take(&mut self.client.since),
                std::mem::take(&mut self.server.since),
            ];
            match &mut self.flushes {
                Some((_, last)) => {
                    *last = at;
                    self.add(sides);
                }
                None => self.flushes = Some((at, at)),
            }
        }
        self.side(client).since.sends += 1;
    }

    /// Counts a round trip that has ended.
    fn add(&mut self, [client, server]: [Activity; 2]) {
        let total = &mut self.total;
        total.roundtrips += 1;
        total.switches += client.switches + server.switches;
        total.sends += client.sends;
        total.replies += server.sends;
        let (mine, theirs) = self.user_ns;
        self.user_ns = (
            mine.saturating_add(client.user_ns),
            theirs.saturating_add(server.user_ns),
        );
        for (name, count) in client.waits {
            *total.client_waits.entry(name).or_default() += count;
        }
        for (name, count) in server.waits {
            *total.server_waits.entry(name).or_default() += count;
        }
        total.server_descriptors = total.server_descriptors.max(server.descriptors);
        for cpu in client.cpus.into_iter().chain(server.cpus) {
            if !self.cpus.contains(&cpu) {
                self.cpus.push(cpu);
            }
        }
    }
}

impl Side {
    /// Books the time outside of calls up to `now`.
    fn book(&mut self, now: u64) {
        if let Some(since) = self.user_since {
            let ns = now.saturating_sub(since);
            self.since.user_ns = self.since.user_ns.saturating_add(ns);
        }
    }

    fn waits(&mut self, name: &Text, arguments: &[Option<u64>]) {
        *self.since.waits.entry(Text::clone(name)).or_default() += 1;
        let descriptors = match &**name {
            "poll" | "ppoll" => arguments[1],
            "select" | "pselect6" => arguments[0],
            _ => None,
        };
        self.since.descriptors = self.since.descriptors.max(descriptors);
    }
}
