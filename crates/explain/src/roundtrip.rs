//! Round trips: from a client's flush to its last reply.
//!
//! Wakings show who talks to whom: a thread that wakes another inside a call that sends, on a descriptor, has
//! a *link* to it. Two threads with links both ways are a *pair*; the client is who first sent on the link's descriptor (which may have
//! woken nobody) since that number was given to this file, unless it alone waits for several descriptors, as servers do:
//! then the trace began in the middle. A round trip begins with a send of the client, goes on while it sends more before a reply, and its switches are those of both
//! until the next flush, so that what happens after the last reply (the server goes back to sleep) is in it.
//!
//! ```text
//! client  writev   read read        writev       read
//! server         write write                write
//!         |- round trip --------|   |- round trip --------|
//!         |- switches of ----------|- switches of ---...
//! ```
//!
//! A pair shows by its first waking in each direction; round trips before that, in which one of the two never slept,
//! are not counted.
//!
//! Not seen: requests through shared memory, and pairs of which one never sleeps (there is no waking). Each pair of a server
//! with several clients counts all its switches within the pair's own round trips.

use std::collections::{BTreeMap, HashMap};

use stopgap_stats::explain::Pair;
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::quantile;
use stopgap_trace::Text;

use crate::chain::Quick;
use crate::spread::Counts;
use crate::thread::Cpus;

/// Switch-outs of a thread so far, and of another.
pub(crate) type Outs = (u64, u64);

/// A pair that is being followed.
struct Following {
    client: u32,
    server: u32,
    open: Option<Open>,
    /// The round trip before. A thread's leaving is told when it runs again, so switch-outs may be missing.
    closed: Option<Closed>,
    totals: Totals,
}

/// A round trip that is over.
struct Closed {
    trip: Open,
    at: u64,
    outs: Outs,
}

/// A round trip that has begun.
struct Open {
    begin: u64,
    /// Switch-outs of the client and of the server when it did.
    outs: Outs,
    sends: u64,
    replies: u64,
    /// When the client had the last reply.
    received: Option<u64>,
}

impl Open {
    fn new(begin: u64, outs: Outs) -> Open {
        let (sends, replies, received) = (1, 0, None);
        Open {
            begin,
            outs,
            sends,
            replies,
            received,
        }
    }
}

/// Counts of a pair.
#[derive(Default)]
struct Totals {
    switches: Counts,
    sends: u64,
    replies: u64,
    lengths: Option<Box<Histogram>>,
}

/// All pairs.
#[derive(Default)]
pub(crate) struct RoundTrips {
    /// (thread, descriptor) -> whom a send on it woke last.
    links: HashMap<(u32, u64), u32, Quick>,
    /// (from, to) -> the last send that is not answered, where there is no pair yet.
    asked: HashMap<(u32, u32), Asked, Quick>,
    /// (thread, descriptor) -> when it first sent on it.
    first: HashMap<(u32, u64), u64, Quick>,
    /// (process, descriptor) -> since when the number stands for the file that it stands for now.
    opened: HashMap<(u32, u64), u64, Quick>,
    /// By their threads, the lower first.
    pairs: HashMap<(u32, u32), Following, Quick>,
    /// With whom a thread is paired.
    partners: HashMap<u32, Vec<u32>, Quick>,
    done: BTreeMap<(Text, Text), (Totals, Cpus)>,
    /// The same, of pairs of which the recorder followed neither thread.
    of_others: BTreeMap<(Text, Text), (Totals, Cpus)>,
    made: Vec<Made>,
    /// Those that are over, or never will be, since somebody took them.
    pub(crate) trips: Vec<Trip>,
}

/// A round trip; `end` is `None` where its answer was not seen.
pub(crate) struct Trip {
    pub(crate) client: u32,
    pub(crate) server: u32,
    pub(crate) begin: u64,
    pub(crate) end: Option<u64>,
}

/// A pair there was.
pub(crate) struct Made {
    pub(crate) client: u32,
    pub(crate) server: u32,
    /// One of them was followed when the first of them ended.
    pub(crate) followed: bool,
}

/// What is known of a thread whose pairs end.
pub(crate) struct Partner {
    pub(crate) name: Text,
    pub(crate) cpus: Cpus,
    pub(crate) followed: bool,
}

struct Asked {
    at: u64,
    /// On which descriptor.
    on: u64,
}

/// Links and pairs that are followed at a time; of a trace with more, the rest is not.
const MOST: usize = 65_536;
/// Pairs whose threads are remembered after they ended.
const MADE: usize = 1_024;

fn key(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

impl RoundTrips {
    /// The number `descriptor` stands for another file of `process` from now on.
    pub(crate) fn opens(&mut self, process: u32, descriptor: u64, now: u64) {
        if self.opened.len() < MOST {
            self.opened.insert((process, descriptor), now);
        }
    }

    /// What was sent on an earlier file of this number says nothing of this one.
    fn begins_anew(&mut self, process: u32, on: (u32, u64)) {
        if let (Some(opened), Some(first)) =
            (self.opened.get(&(process, on.1)), self.first.get(&on))
            && first < opened
        {
            self.first.remove(&on);
            self.links.remove(&on);
        }
    }

    /// `tid` of `process` begins to send on `descriptor`. `outs` gives a thread's switch-outs before a moment.
    pub(crate) fn sends(
        &mut self,
        (tid, process): (u32, u32),
        descriptor: u64,
        now: u64,
        outs: impl Fn(u32, u64) -> u64,
    ) {
        self.begins_anew(process, (tid, descriptor));
        if self.first.len() < MOST {
            self.first.entry((tid, descriptor)).or_insert(now);
        }
        if let Some(&to) = self.links.get(&(tid, descriptor)) {
            self.sent((tid, descriptor), to, now, outs);
        }
    }

    /// `tid`, whose calls have no rows, has woken `to` at `now` while it sent on `descriptor`.
    pub(crate) fn sends_to(
        &mut self,
        (tid, descriptor): (u32, u64),
        to: u32,
        now: u64,
        outs: impl Fn(u32, u64) -> u64,
    ) {
        if self.links.get(&(tid, descriptor)) == Some(&to) {
            self.sent((tid, descriptor), to, now, outs);
        } else if self.first.len() < MOST {
            self.first.entry((tid, descriptor)).or_insert(now);
        }
    }

    /// `tid` has left its CPU at `left`, which is told only now.
    pub(crate) fn left(&mut self, tid: u32, left: u64) {
        for partner in self.partners.get(&tid).into_iter().flatten() {
            if let Some(pair) = self.pairs.get_mut(&key(tid, *partner)) {
                pair.left(tid, left);
            }
        }
    }

    /// `tid` has woken `to` while it sent on `descriptor`. Returns whether that makes them a pair.
    pub(crate) fn wakes(
        &mut self,
        tid: u32,
        descriptor: u64,
        to: u32,
        now: u64,
        outs: impl Fn(u32, u64) -> u64,
        waits_for_several: impl Fn(u32) -> bool,
    ) -> bool {
        let full = self.links.len().max(self.asked.len()) >= MOST;
        if tid == to || full || self.links.get(&(tid, descriptor)) == Some(&to) {
            return false;
        }
        // A descriptor that leads to another thread now is another connection.
        if self.links.insert((tid, descriptor), to).is_some() {
            self.first.insert((tid, descriptor), now);
        }
        let mut new = false;
        // Where the other one has asked before, this is the answer, and the two are a pair.
        if let Some(asked) = self.asked.remove(&(to, tid)) {
            let theirs = self.first.get(&(to, asked.on));
            let mine = self.first.get(&(tid, descriptor));
            let mine_first = mine.zip(theirs).is_some_and(|(mine, theirs)| mine < theirs);
            let asks = match (waits_for_several(to), waits_for_several(tid)) {
                (true, false) => false,
                (false, true) => true,
                _ => !mine_first,
            };
            let (client, server) = if asks { (to, tid) } else { (tid, to) };
            let pair = Following {
                client,
                server,
                open: asks.then(|| Open::new(asked.at, (outs(to, asked.at), outs(tid, asked.at)))),
                closed: None,
                totals: Totals::default(),
            };
            if self.pairs.insert(key(tid, to), pair).is_none() {
                let same = |made: &Made| (made.client, made.server) == (client, server);
                if self.made.len() < MADE && !self.made.iter().any(same) {
                    self.made.push(Made {
                        client,
                        server,
                        followed: false,
                    });
                }
                self.partners.entry(to).or_default().push(tid);
                self.partners.entry(tid).or_default().push(to);
                new = true;
            }
        }
        self.sent((tid, descriptor), to, now, outs);
        new
    }

    fn sent(&mut self, (from, on): (u32, u64), to: u32, now: u64, outs: impl Fn(u32, u64) -> u64) {
        let Some(pair) = self.pairs.get_mut(&key(from, to)) else {
            self.asked.insert((from, to), Asked { at: now, on });
            return;
        };
        if from == pair.server {
            if let Some(open) = &mut pair.open {
                open.replies += 1;
            }
            return;
        }
        let outs = (outs(pair.client, now), outs(pair.server, now));
        match &mut pair.open {
            Some(open) if open.replies == 0 => open.sends += 1,
            _ => {
                self.trips.extend(pair.trip());
                pair.close(outs, now);
                pair.open = Some(Open::new(now, outs));
            }
        }
    }

    /// `tid` has taken data from `descriptor`.
    pub(crate) fn received(&mut self, tid: u32, descriptor: Option<u64>, now: u64) {
        let link = descriptor.and_then(|descriptor| self.links.get(&(tid, descriptor)));
        let server = match (link, self.partners.get(&tid).map(Vec::as_slice)) {
            (Some(&server), _) => server,
            // The other direction of a pipe has a descriptor of its own: then the only pair is meant.
            (None, Some(&[server])) => server,
            _ => return,
        };
        if let Some(pair) = self.pairs.get_mut(&key(tid, server))
            && pair.client == tid
            && let Some(open) = &mut pair.open
            && open.replies > 0
        {
            open.received = Some(now);
        }
    }

    /// `tid` ends: its pairs are over.
    pub(crate) fn ended(
        &mut self,
        tid: u32,
        now: u64,
        outs: impl Fn(u32) -> u64,
        partner: impl Fn(u32) -> Partner,
    ) {
        self.links
            .retain(|&(from, _), &mut to| from != tid && to != tid);
        self.first.retain(|&(from, _), _| from != tid);
        // Of a process the thread that bears its number ends last, or takes no descriptor with it that matters.
        self.opened.retain(|&(process, _), _| process != tid);
        self.asked.retain(|&(from, to), _| from != tid && to != tid);
        for other in self.partners.remove(&tid).unwrap_or_default() {
            if let Some(theirs) = self.partners.get_mut(&other) {
                theirs.retain(|&another| another != tid);
            }
            let Some(mut pair) = self.pairs.remove(&key(tid, other)) else {
                continue;
            };
            self.trips.extend(pair.trip().or(pair.not_over()));
            pair.close((outs(pair.client), outs(pair.server)), now);
            pair.settle();
            let (client, server) = (partner(pair.client), partner(pair.server));
            let followed = client.followed || server.followed;
            let same = |made: &&mut Made| (made.client, made.server) == (pair.client, pair.server);
            if let Some(made) = self.made.iter_mut().find(same) {
                made.followed |= followed;
            }
            let cpus = match client.cpus == server.cpus {
                true => client.cpus,
                false => Cpus::Several,
            };
            let done = match followed {
                true => &mut self.done,
                false => &mut self.of_others,
            };
            let names = (client.name, server.name);
            let (totals, on) = (done.entry(names)).or_insert_with(|| (Totals::default(), cpus));
            totals.absorb(pair.totals);
            if *on != cpus {
                *on = Cpus::Several;
            }
        }
    }

    /// Each pair there was, in the order of their first answers.
    pub(crate) fn made(&self) -> &[Made] {
        &self.made
    }

    /// Nobody was followed: the pairs of others are all that there is.
    pub(crate) fn counts_others(&mut self) {
        self.done = std::mem::take(&mut self.of_others);
    }

    /// The threads that are followed, in order.
    pub(crate) fn threads(&self) -> Vec<u32> {
        let mut threads: Vec<u32> = self.partners.keys().copied().collect();
        threads.sort_unstable();
        threads
    }

    /// All pairs of followed threads with a round trip, the most first; and the spread over all of them.
    pub(crate) fn to_record(&self) -> (Vec<Pair>, Counts) {
        let mut all = Counts::default();
        let mut pairs = Vec::new();
        for ((client, server), (totals, cpus)) in &self.done {
            let roundtrips = totals.switches.len();
            if roundtrips == 0 {
                continue;
            }
            all.absorb(&totals.switches);
            let lengths = totals.lengths.as_deref();
            pairs.push(Pair {
                client: client.to_string(),
                server: server.to_string(),
                roundtrips,
                switches: totals.switches.sum(),
                per_roundtrip: totals.switches.to_record(),
                sends_per_roundtrip: totals.sends as f64 / roundtrips as f64,
                replies_per_roundtrip: totals.replies as f64 / roundtrips as f64,
                p50_ns: lengths.and_then(|lengths| quantile(lengths, 0.5).ok()),
                one_cpu: match cpus {
                    Cpus::One(cpu) => Some(*cpu),
                    _ => None,
                },
            });
        }
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.roundtrips));
        (pairs, all)
    }
}

impl Following {
    /// Returns the open round trip, where its last reply has come.
    fn trip(&self) -> Option<Trip> {
        let open = self.open.as_ref().filter(|open| open.replies > 0)?;
        open.received.map(|received| Trip {
            client: self.client,
            server: self.server,
            begin: open.begin,
            end: Some(received),
        })
    }

    /// Returns the open round trip, where it was not answered.
    fn not_over(&self) -> Option<Trip> {
        self.open.as_ref().map(|open| Trip {
            client: self.client,
            server: self.server,
            begin: open.begin,
            end: None,
        })
    }

    /// Ends the open round trip at `at`, if it was answered.
    fn close(&mut self, outs: Outs, at: u64) {
        self.settle();
        let Some(trip) = self.open.take() else { return };
        if trip.replies > 0 {
            self.closed = Some(Closed { trip, at, outs });
        }
    }

    /// Counts the round trip that is over.
    fn settle(&mut self) {
        let Some(Closed { trip, outs, .. }) = self.closed.take() else {
            return;
        };
        let switches = outs.0.saturating_sub(trip.outs.0) + outs.1.saturating_sub(trip.outs.1);
        self.totals.switches.add(switches);
        self.totals.sends += trip.sends;
        self.totals.replies += trip.replies;
        if let Some(received) = trip.received {
            let length = received.saturating_sub(trip.begin);
            let lengths = self.totals.lengths.get_or_insert_with(Box::default);
            lengths.record(length);
        }
    }

    /// `tid` has left its CPU at `left`: moments after that come after one more switch-out.
    fn left(&mut self, tid: u32, left: u64) {
        let is_client = tid == self.client;
        let add = |at: u64, outs: &mut Outs| {
            if left < at {
                *(if is_client { &mut outs.0 } else { &mut outs.1 }) += 1;
            }
        };
        if let Some(open) = &mut self.open {
            add(open.begin, &mut open.outs);
        }
        if let Some(closed) = &mut self.closed {
            add(closed.trip.begin, &mut closed.trip.outs);
            add(closed.at, &mut closed.outs);
        }
    }
}

impl Totals {
    fn absorb(&mut self, other: Totals) {
        self.switches.absorb(&other.switches);
        self.sends += other.sends;
        self.replies += other.replies;
        match (&mut self.lengths, other.lengths) {
            (Some(mine), Some(theirs)) => mine.merge(&theirs),
            (mine @ None, theirs) => *mine = theirs,
            (Some(_), None) => {}
        }
    }
}
