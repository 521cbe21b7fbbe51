//! How a client and a server talk: what a model of the two needs to know.
//!
//! [`crate::Explainer`] says which threads are a pair; here their events are looked at a second time, because who is a
//! pair shows only after its first request.
//!
//! ```text
//! client  send ..... receive  user  send ..... receive  user  send
//! server       user send                 user send
//!         |- counted ---------------|- counted -----------|
//! ```
//!
//! Counted is from flush to flush: a flush is a send of the client after a reply. What begins before the first one and
//! after the last one is in nothing.

use std::collections::{BTreeMap, HashMap};

use stopgap_trace::{Event, Kind, Text};

use crate::call::{Role, name_of, role, waits_for_several};

/// Activity of a pair between its first flush and its last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The thread that asks.
    pub client: u32,
    /// The thread that answers.
    pub server: u32,
    /// Their names, as they were called last; `None` where nobody said.
    pub names: (Option<Text>, Option<Text>),
    /// Round trips: flushes that another followed.
    pub roundtrips: u64,
    /// Switch-outs of both.
    pub switches: u64,
    /// Calls by which the client sent.
    pub sends: u64,
    /// Calls by which the server sent.
    pub replies: u64,
    /// CPU time of the client outside of system calls, in nanoseconds.
    pub client_user_ns: u64,
    /// CPU time of the server outside of system calls, in nanoseconds.
    pub server_user_ns: u64,
    /// Calls in which the client waits for descriptors, by name.
    pub client_waits: BTreeMap<Text, u64>,
    /// Calls in which the server waits for descriptors, by name.
    pub server_waits: BTreeMap<Text, u64>,
    /// The most descriptors that a poll of the server names, or the highest (and one) of a select.
    pub server_descriptors: Option<u64>,
    /// Whether both ran on one CPU alone; `None` where no event says on which.
    pub one_cpu: Option<bool>,
}

/// One of the two, as the events go.
#[derive(Debug, Default)]
struct Side {
    tid: u32,
    name: Option<Text>,
    /// Since when it runs outside of system calls.
    user_since: Option<u64>,
    /// The call that it is in.
    call: Option<(Text, Option<u64>)>,
    /// The descriptor on which it sends to the other.
    descriptor: Option<u64>,
    /// When it first sent, by descriptor.
    first: HashMap<u64, u64>,
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
    /// Whether a flush was seen: what comes before the first one does not count.
    begun: bool,
    cpus: Vec<u32>,
    total: Exchange,
}

/// Descriptors of a thread that are followed.
const DESCRIPTORS: usize = 1_024;

/// Takes the events of a trace a second time; gives what each pair did. Memory grows with pairs only.
///
/// The client is who sent first. That is known only when all is read, so each pair is followed both ways around. A thread
/// that waits for several descriptors stays the server: then the trace began in the middle.
#[derive(Debug)]
pub struct Exchanges {
    /// As they were given, and after each the same the other way around.
    pairs: Vec<Pair>,
    /// Thread -> its pairs, and whether it is the client there.
    of: HashMap<u32, Vec<(usize, bool)>>,
}

impl Exchanges {
    /// For `pairs` of a client and a server, from [`crate::Explainer::pairs`].
    #[must_use]
    pub fn new(pairs: &[(u32, u32)]) -> Exchanges {
        let mut of: HashMap<u32, Vec<(usize, bool)>> = HashMap::new();
        let ways = |&(a, b): &(u32, u32)| [(a, b), (b, a)];
        let both: Vec<(u32, u32)> = pairs.iter().flat_map(ways).collect();
        let pair = |(index, &(client, server)): (usize, &(u32, u32))| {
            of.entry(client).or_default().push((index, true));
            of.entry(server).or_default().push((index, false));
            let mut pair = Pair::default();
            (pair.client.tid, pair.server.tid) = (client, server);
            pair
        };
        Exchanges {
            pairs: both.iter().enumerate().map(pair).collect(),
            of,
        }
    }

    /// The next event.
    pub fn event(&mut self, event: &Event) {
        let now = event.time.0;
        if let Some(tid) = event.tid {
            self.sides(tid, |pair, client| pair.acts(client, event, now));
        }
        if let Kind::Switch {
            next_tid: Some(next),
            ..
        } = event.kind
        {
            self.sides(next, |pair, client| {
                let side = pair.side(client);
                side.user_since = side.call.is_none().then_some(now);
            });
        }
    }

    fn sides(&mut self, tid: u32, mut act: impl FnMut(&mut Pair, bool)) {
        for &(index, client) in self.of.get(&tid).into_iter().flatten() {
            act(&mut self.pairs[index], client);
        }
    }

    /// What each pair did, the most round trips first; those without one are left out.
    #[must_use]
    pub fn finish(self) -> Vec<Exchange> {
        let of = |pair: Pair| Exchange {
            client: pair.client.tid,
            server: pair.server.tid,
            names: (pair.client.name, pair.server.name),
            one_cpu: (!pair.cpus.is_empty()).then_some(pair.cpus.len() == 1),
            ..pair.total
        };
        let mut pairs = self.pairs.into_iter();
        let mut all = Vec::new();
        while let (Some(given), Some(reversed)) = (pairs.next(), pairs.next()) {
            all.push(of(if given.is_reversed() { reversed } else { given }));
        }
        all.retain(|exchange| exchange.roundtrips > 0);
        all.sort_by_key(|exchange| std::cmp::Reverse(exchange.roundtrips));
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

    /// Whether it is the server that sent first.
    fn is_reversed(&self) -> bool {
        let first = |side: &Side| side.first.get(&side.descriptor?).copied();
        let several = self.total.server_descriptors.is_some_and(|count| count > 1)
            || (self.total.server_waits.keys()).any(|name| waits_for_several(name, None));
        let (client, server) = (first(&self.client), first(&self.server));
        !several
            && server
                .zip(client)
                .is_some_and(|(server, client)| server < client)
    }

    fn acts(&mut self, client: bool, event: &Event, now: u64) {
        let other = self.side(!client).tid;
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
            Kind::Switch { .. } => {
                side.book(now);
                side.user_since = None;
                side.since.switches += 1;
            }
            Kind::SyscallEnter {
                number,
                name,
                arguments,
            } => {
                side.book(now);
                side.user_since = None;
                let name = name_of(*number, name.as_ref());
                let to = arguments[0].filter(|_| role(&name) == Role::Sends);
                if let Some(descriptor) = to
                    && side.first.len() < DESCRIPTORS
                {
                    side.first.entry(descriptor).or_insert(now);
                }
                let sends = to.is_some() && to == side.descriptor;
                if role(&name) == Role::Waits {
                    side.waits(&name, arguments);
                }
                side.call = Some((name, arguments[0]));
                if sends {
                    self.sends(client);
                }
            }
            Kind::SyscallExit { .. } => {
                side.call = None;
                side.user_since = Some(now);
            }
            Kind::Waking { target_tid, .. } if *target_tid == other => {
                if let Some((name, descriptor)) = &side.call
                    && role(name) == Role::Sends
                    && side.descriptor.is_none()
                {
                    // The send that made them a pair is the first.
                    side.descriptor = *descriptor;
                    self.sends(client);
                }
            }
            _ => {}
        }
    }

    /// A side begins to send to the other. Nothing counts before it is known on which descriptors both do.
    fn sends(&mut self, client: bool) {
        if self.client.descriptor.is_none() || self.server.descriptor.is_none() {
            return;
        }
        let flush = client && (!self.begun || self.server.since.sends > 0);
        if flush {
            let sides = [
                std::mem::take(&mut self.client.since),
                std::mem::take(&mut self.server.since),
            ];
            if self.begun {
                self.add(sides);
            }
            self.begun = true;
        }
        self.side(client).since.sends += 1;
    }

    /// A round trip is over.
    fn add(&mut self, [client, server]: [Activity; 2]) {
        let total = &mut self.total;
        total.roundtrips += 1;
        total.switches += client.switches + server.switches;
        total.sends += client.sends;
        total.replies += server.sends;
        total.client_user_ns = total.client_user_ns.saturating_add(client.user_ns);
        total.server_user_ns = total.server_user_ns.saturating_add(server.user_ns);
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

    fn waits(&mut self, name: &Text, arguments: &[Option<u64>; 6]) {
        *self.since.waits.entry(Text::clone(name)).or_default() += 1;
        let descriptors = match &**name {
            "poll" | "ppoll" => arguments[1],
            "select" | "pselect6" => arguments[0],
            _ => None,
        };
        self.since.descriptors = self.since.descriptors.max(descriptors);
    }
}
