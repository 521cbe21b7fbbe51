//! Round trips: from a client's first send of a request to the last reply.
//!
//! Wakings show which threads talk to each other. A thread that wakes another one inside a sending call has a *link*
//! to it, on the call's descriptor. Two threads with links in both directions are a *pair*. The client is the thread
//! that is idle between an answer and the next question. Before that shows, the client is the thread that sent first
//! on its descriptor since the number was given to this file; that send may have woken nobody. But if only that
//! thread waits for several descriptors, as servers do, the trace began in the middle, and the thread is the server.
//!
//! A round trip begins with a send of the client and goes on while the client sends more before a reply. Switches of
//! both threads until the client's next request belong to it, including the server's return to sleep after the last
//! reply. It also ends when the client sleeps on purpose after a reply: the next question may wake nobody.
//!
//! A switch belongs to a pair if one of the two gave its CPU to the other, or slept until the other woke it. Waits
//! for a disk, a lock or another client, and other threads that want the CPU, are no part of how the two talk.
//!
//! ```text
//! client  writev   read read        writev       read
//! server         write write                write
//!         |- round trip --------|   |- round trip --------|
//!         |- switches of ----------|- switches of ---...
//! ```
//!
//! A pair shows by its first waking in each direction. Earlier round trips, in which one of the two never slept, are
//! not counted.
//!
//! Requests through shared memory are not seen, nor are pairs of which one thread never sleeps, because nobody is
//! woken. Without rows of calls, a send that wakes nobody is not seen either. What follows it counts in the round
//! trip before.

use std::collections::{BTreeMap, HashMap};

use stopgap_events::order::SortRows;
use stopgap_events::wait::{Context, Wait, Within};
use stopgap_stats::explain::Pair;
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::quantile;
use stopgap_trace::Text;

use crate::call::{Role, name_of, role};
use crate::chain::{Quick, sleeps_on_purpose};
use crate::spread::Counts;
use crate::thread::{Cpus, could_run_on};

/// A pair that is being followed.
struct Following {
    client: u32,
    server: u32,
    /// Sends of both threads since they became a pair.
    sends: u64,
    outs: Outs,
    open: Option<Open>,
    /// The round trip before. Some of its switch-outs become known only when their thread runs again.
    closed: Option<Closed>,
    totals: Totals,
}

/// A round trip that has ended.
struct Closed {
    trip: Open,
    at: u64,
    outs: u64,
}

/// A round trip that has begun.
struct Open {
    begin: u64,
    /// Switch-outs of the pair before it began.
    outs: u64,
    sends: u64,
    replies: u64,
    /// When the client received the last reply.
    received: Option<u64>,
}

impl Open {
    fn new(begin: u64, outs: u64) -> Open {
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

/// Most times of switch-outs that are kept.
const LEFT: usize = 16;

/// Switch-outs of a pair, and a ring of the times of the last ones.
#[derive(Default)]
struct Outs {
    count: u64,
    left: [u64; LEFT],
}

impl Outs {
    fn add(&mut self, left: u64) {
        self.left[self.count as usize % LEFT] = left;
        self.count += 1;
    }

    /// Returns the number of known switch-outs before `at`. Exact if at most 16 came later.
    fn before(&self, at: u64) -> u64 {
        let kept = (self.count as usize).min(LEFT);
        let later = self.left[..kept].iter().filter(|&&left| left >= at);
        self.count - later.count() as u64
    }
}

/// The other thread of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum With {
    /// This thread.
    One(u32),
    /// Unknown: the trace does not say.
    Anybody,
    /// No thread that asks or answers.
    Nobody,
}

/// Returns the other thread of a switch: the thread that got the CPU, or that ended the sleep.
pub(crate) fn with(wait: &Wait) -> With {
    if could_run_on(wait) == Some(true) {
        return match &wait.next {
            Some(next) => With::One(next.tid),
            None => With::Anybody,
        };
    }
    let name = (wait.call.as_ref()).map(|call| name_of(call.number, call.name.as_ref()));
    // A wait for a disk, a page or a time is no wait for a peer, although the thread that the interrupt hit looks
    // like the waker.
    if wait.within == Some(Within::User) {
        return With::Nobody;
    }
    if name.is_some_and(|name| role(&name) == Role::Other) {
        return With::Nobody;
    }
    match &wait.waker {
        // A softirq delivers what its machine sent, and may interrupt any thread.
        Some(waker)
            if matches!(waker.context, Some(Context::Task) | None) && waker.task.tid != 0 =>
        {
            With::One(waker.task.tid)
        }
        _ => With::Anybody,
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
    /// (thread, descriptor) -> the thread that a send on it woke last.
    links: HashMap<(u32, u64), u32, Quick>,
    /// (from, to) -> the last unanswered send between threads that are no pair yet.
    asked: HashMap<(u32, u32), Asked, Quick>,
    /// (thread, descriptor) -> when the thread first sent on it.
    first: HashMap<(u32, u64), u64, Quick>,
    /// (process, descriptor) -> when the number was given to its present file.
    opened: HashMap<(u32, u64), u64, Quick>,
    /// Pairs by their threads, the lower one first.
    pairs: HashMap<(u32, u32), Following, Quick>,
    /// The threads with which a thread is paired.
    partners: HashMap<u32, Vec<u32>, Quick>,
    done: BTreeMap<(Text, Text), (Totals, Cpus)>,
    /// The same for pairs of which the recorder followed neither thread.
    of_others: BTreeMap<(Text, Text), (Totals, Cpus)>,
    made: Vec<Made>,
    /// Round trips that have ended or will never end, since they were last taken.
    pub(crate) trips: Vec<Trip>,
}

/// A round trip; `end` is `None` if its answer was not seen.
pub(crate) struct Trip {
    pub(crate) client: u32,
    pub(crate) server: u32,
    pub(crate) begin: u64,
    pub(crate) end: Option<u64>,
}

/// A pair of threads.
pub(crate) struct Made {
    pub(crate) client: u32,
    pub(crate) server: u32,
    /// Whether the recorder followed one of them when the first of them ended.
    pub(crate) followed: bool,
}

/// Facts about a thread whose pairs end.
pub(crate) struct Partner {
    pub(crate) name: Text,
    pub(crate) cpus: Cpus,
    pub(crate) followed: bool,
}

struct Asked {
    at: u64,
    /// The descriptor.
    on: u64,
}

/// Most links and most pairs that are followed at a time. Further ones are ignored.
const MOST: usize = 65_536;
/// Most pairs whose threads are remembered after the pair ended.
const MADE: usize = 1_024;

fn key(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

impl RoundTrips {
    /// Notes that `descriptor` of `process` refers to another file from the time `now`.
    pub(crate) fn opens(&mut self, process: u32, descriptor: u64, now: u64) {
        if self.opened.len() < MOST {
            self.opened.insert((process, descriptor), now);
        }
    }

    /// Forgets what was sent on an earlier file with the same descriptor.
    fn begins_anew(&mut self, process: u32, on: (u32, u64)) {
        if let (Some(opened), Some(first)) =
            (self.opened.get(&(process, on.1)), self.first.get(&on))
            && first < opened
        {
            self.first.remove(&on);
            self.links.remove(&on);
        }
    }

    /// Notes that `tid` of `process` begins to send on `descriptor`.
    pub(crate) fn sends(
        &mut self,
        (tid, process): (u32, u32),
        descriptor: u64,
        now: u64,
        asker: impl Fn(u32, u32) -> Option<u32>,
    ) {
        self.begins_anew(process, (tid, descriptor));
        if self.first.len() < MOST {
            self.first.entry((tid, descriptor)).or_insert(now);
        }
        if let Some(&to) = self.links.get(&(tid, descriptor)) {
            self.sent((tid, descriptor), to, now, &asker);
        }
    }

    /// Notes that `tid`, whose calls have no rows, woke `to` at `now` by sending on `descriptor`.
    pub(crate) fn sends_to(
        &mut self,
        (tid, descriptor): (u32, u64),
        to: u32,
        now: u64,
        asker: impl Fn(u32, u32) -> Option<u32>,
    ) {
        if self.links.get(&(tid, descriptor)) == Some(&to) {
            self.sent((tid, descriptor), to, now, &asker);
        } else if self.first.len() < MOST {
            self.first.entry((tid, descriptor)).or_insert(now);
        }
    }

    /// Notes that `tid` left its CPU at `left`. This becomes known only later, when it runs again.
    pub(crate) fn left(&mut self, tid: u32, wait: &Wait, left: u64) {
        let Some(partners) = self
            .partners
            .get(&tid)
            .filter(|partners| !partners.is_empty())
        else {
            return;
        };
        let pairs = &mut self.pairs;
        let mut count = |partner| {
            if let Some(pair) = pairs.get_mut(&key(tid, partner)) {
                pair.left(left);
            }
        };
        match with(wait) {
            With::One(partner) => count(partner),
            With::Anybody => partners.iter().for_each(|&partner| count(partner)),
            With::Nobody => {}
        }
        if sleeps_on_purpose(wait) {
            for &partner in partners {
                if let Some(pair) = self.pairs.get_mut(&key(tid, partner))
                    && pair.client == tid
                    && pair.open.as_ref().is_some_and(|open| open.replies > 0)
                {
                    self.trips.extend(pair.trip());
                    pair.close(left);
                }
            }
        }
    }

    /// Notes that `tid` woke `to` by sending on `descriptor`; `to` slept since `left`. Returns whether the two became
    /// a pair by that.
    pub(crate) fn wakes(
        &mut self,
        (tid, descriptor): (u32, u64),
        (to, left): (u32, u64),
        now: u64,
        waits_for_several: impl Fn(u32) -> bool,
        asker: impl Fn(u32, u32) -> Option<u32>,
    ) -> bool {
        let full = self.links.len().max(self.asked.len()) >= MOST;
        if tid == to || full || self.links.get(&(tid, descriptor)) == Some(&to) {
            return false;
        }
        // The descriptor leads to another thread now, so it is another connection.
        if self.links.insert((tid, descriptor), to).is_some() {
            self.first.insert((tid, descriptor), now);
        }
        let mut new = false;
        // If the other thread has asked before, this is the answer, and the two are a pair.
        if let Some(asked) = self.asked.remove(&(to, tid)) {
            let theirs = self.first.get(&(to, asked.on));
            let mine = self.first.get(&(tid, descriptor));
            let mine_first = mine.zip(theirs).is_some_and(|(mine, theirs)| mine < theirs);
            let asks = match (
                asker(to, tid),
                waits_for_several(to),
                waits_for_several(tid),
            ) {
                (Some(asker), ..) => asker == to,
                (None, true, false) => false,
                (None, false, true) => true,
                _ => !mine_first,
            };
            let (client, server) = if asks { (to, tid) } else { (tid, to) };
            let mut pair = Following {
                client,
                server,
                sends: 0,
                outs: Outs::default(),
                open: asks.then(|| Open::new(asked.at, 0)),
                closed: None,
                totals: Totals::default(),
            };
            // This switch-out was reported before the two were a pair.
            if left >= asked.at {
                pair.outs.add(left);
            }
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
        self.sent((tid, descriptor), to, now, &asker);
        new
    }

    fn sent(
        &mut self,
        (from, on): (u32, u64),
        to: u32,
        now: u64,
        asker: impl Fn(u32, u32) -> Option<u32>,
    ) {
        let Some(pair) = self.pairs.get_mut(&key(from, to)) else {
            self.asked.insert((from, to), Asked { at: now, on });
            return;
        };
        pair.sends += 1;
        // Who asks shows only after some questions. Round trips that were counted the wrong way round are dropped.
        if pair.sends.is_power_of_two() && asker(from, to) == Some(pair.server) {
            let made = (self.made.iter_mut())
                .find(|made| (made.client, made.server) == (pair.client, pair.server));
            if let Some(made) = made {
                std::mem::swap(&mut made.client, &mut made.server);
            }
            std::mem::swap(&mut pair.client, &mut pair.server);
            (pair.open, pair.closed, pair.totals) = (None, None, Totals::default());
        }
        if from == pair.server {
            if let Some(open) = &mut pair.open {
                open.replies += 1;
            }
            return;
        }
        match &mut pair.open {
            Some(open) if open.replies == 0 => open.sends += 1,
            _ => {
                self.trips.extend(pair.trip());
                pair.close(now);
                pair.open = Some(Open::new(now, pair.outs.before(now)));
            }
        }
    }

    /// Notes that `tid` has taken data from `descriptor`.
    pub(crate) fn received(&mut self, tid: u32, descriptor: Option<u64>, now: u64) {
        let link = descriptor.and_then(|descriptor| self.links.get(&(tid, descriptor)));
        let server = match (link, self.partners.get(&tid).map(Vec::as_slice)) {
            (Some(&server), _) => server,
            // The other direction of a pipe has another descriptor. Then the thread's only pair is meant.
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

    /// Ends the pairs of the thread `tid`, which has ended.
    pub(crate) fn ended(&mut self, tid: u32, partner: impl Fn(u32) -> Partner) {
        self.links
            .retain(|&(from, _), &mut to| from != tid && to != tid);
        self.first.retain(|&(from, _), _| from != tid);
        // The first thread of a process ends last, or its descriptors do not matter any more.
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
            pair.close(u64::MAX);
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

    /// Returns every pair that was found, in the order of first answers.
    pub(crate) fn made(&self) -> &[Made] {
        &self.made
    }

    /// Counts the pairs of other threads, because the recorder followed none.
    pub(crate) fn counts_others(&mut self) {
        self.done = std::mem::take(&mut self.of_others);
    }

    /// Returns the threads that have pairs, in order.
    pub(crate) fn threads(&self) -> Vec<u32> {
        let mut threads: Vec<u32> = self.partners.keys().copied().collect();
        threads.sort_unstable();
        threads
    }

    /// Returns all pairs of followed threads that have a round trip, the most round trips first; and the spread over
    /// all round trips.
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
        pairs.sort_rows_by_key(|pair| std::cmp::Reverse(pair.roundtrips));
        (pairs, all)
    }
}

impl Following {
    /// Returns the open round trip, if its last reply has come.
    fn trip(&self) -> Option<Trip> {
        let open = self.open.as_ref().filter(|open| open.replies > 0)?;
        open.received.map(|received| Trip {
            client: self.client,
            server: self.server,
            begin: open.begin,
            end: Some(received),
        })
    }

    /// Returns the open round trip as one without an answer.
    fn not_over(&self) -> Option<Trip> {
        self.open.as_ref().map(|open| Trip {
            client: self.client,
            server: self.server,
            begin: open.begin,
            end: None,
        })
    }

    /// Ends the open round trip at `at`, if it was answered.
    fn close(&mut self, at: u64) {
        self.settle();
        let Some(trip) = self.open.take() else { return };
        if trip.replies > 0 {
            let outs = self.outs.before(at);
            self.closed = Some(Closed { trip, at, outs });
        }
    }

    /// Counts the round trip that has ended.
    fn settle(&mut self) {
        let Some(Closed { trip, outs, .. }) = self.closed.take() else {
            return;
        };
        self.totals.switches.add(outs.saturating_sub(trip.outs));
        self.totals.sends += trip.sends;
        self.totals.replies += trip.replies;
        if let Some(received) = trip.received {
            let length = received.saturating_sub(trip.begin);
            let lengths = self.totals.lengths.get_or_insert_with(Box::default);
            lengths.record(length);
        }
    }

    /// Notes that one of the two left its CPU at `left`. Later moments then have one more switch-out before them.
    fn left(&mut self, left: u64) {
        self.outs.add(left);
        let add = |at: u64, outs: &mut u64| *outs += u64::from(left < at);
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
