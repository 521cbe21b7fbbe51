//! Makes spans of the events at their two ends.
//!
//! A span goes out at its end, so spans stand in the order of time among the other events. A thread's spans lie within each
//! other; a request to a block device ends on whichever thread then has the CPU, and is that of the thread that put it
//! into the queue or, where that was not seen, issued it.
//!
//! # Where one end is missing
//!
//! An end without a begin makes no span, nor does a begin whose end is known to be missing: the thread calls the
//! kernel again or comes back from it, ends, or begins the same thing anew. [`Spans::halves`] counts both. What is open when
//! the recording ends is a span with [`Span::open`].
//!
//! Where an end and the next begin of the same thing are missing, within one system call, the two spans become one.

mod file_locks;

use std::collections::{HashMap, VecDeque};

use stopgap_events::order::SortRows as _;
use stopgap_events::units::{Bytes, Nanos};

use crate::{Activity, Event, Kind, Reclaimer, Span, Text};
use file_locks::FileLocks;

/// Spans that a thread may be in the midst of. The kernel does not go so deep; a trace that lost its ends would.
const DEEPEST: usize = 64;
/// Parts of requests that are remembered.
const MOST_MERGED: usize = 1 << 12;
/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Threads with open spans, and open requests, that are kept; of more there are no spans.
const MOST: usize = 1 << 16;

/// Spans that have begun.
#[derive(Debug, Default)]
pub(super) struct Spans {
    threads: HashMap<Doer, Vec<Open>>,
    requests: HashMap<(Text, u64), Open>,
    files: FileLocks,
    /// Who submitted the work of a fence, by context and sequence number.
    submitters: HashMap<(u64, u64), u32>,
    /// What became a part of a request that is not done.
    merged: VecDeque<Open>,
    halves: u64,
}

/// A thread; of the idle tasks, which all have the number 0, that of a CPU.
type Doer = (u32, Option<u32>);

/// A span without its end.
#[derive(Debug)]
struct Open {
    key: Key,
    pid: Option<u32>,
    tid: Option<u32>,
    comm: Option<Text>,
    span: Box<Span>,
    /// Of a lock, the words of its last begin.
    words: Option<Text>,
}

impl Open {
    fn new(event: &Event, key: Key, span: Box<Span>) -> Open {
        Open {
            key,
            pid: event.pid,
            tid: event.tid,
            comm: event.comm.clone(),
            words: span.lock.clone(),
            span,
        }
    }
}

/// What the two ends of a span have in common, beside the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Plain(Activity),
    Shrinker(Option<Text>),
    /// A lock of this address.
    Lock(Activity, Option<u64>),
    /// A fence of this context and sequence number.
    Fence(Option<u64>, Option<u64>),
    /// A device and its first sector.
    Request(Text, u64),
}

/// What an event means for spans.
enum Side {
    Begins(Key, Box<Span>),
    Ends(Key, Box<Span>),
    /// Becomes a part of a request.
    Merges(Key, Box<Span>),
    /// A span that is told when it is over.
    Whole(Box<Span>),
    /// The thread is in the midst of nothing.
    Clears,
    /// The thread with this number is a new one.
    New(u32),
}

impl Spans {
    /// Takes an event. `true`: it is an end of a span and does not stand by itself; where the span is over, it is appended to
    /// `out`. `now` is the latest time so far.
    pub(super) fn takes(&mut self, event: &Event, now: Nanos, out: &mut VecDeque<Event>) -> bool {
        if let Kind::FileLock { .. } = &event.kind {
            let found = self.files.takes(event);
            out.extend(found.map(|span| row(event.clone(), Box::new(span), now)));
            return true;
        }
        if let Kind::FenceInit { context, seqno, .. } = event.kind {
            if self.submitters.len() >= MOST {
                self.submitters.clear();
            }
            let tid = event.tid.filter(|&tid| tid != 0);
            self.submitters
                .extend(tid.map(|tid| ((context, seqno), tid)));
            return true;
        }
        let Some(side) = side(event) else {
            return false;
        };
        match side {
            Side::Begins(key, mut span) => {
                if let Key::Fence(Some(context), Some(seqno)) = key {
                    span.holder = self.submitters.get(&(context, seqno)).copied();
                }
                self.begins(event, key, span);
            }
            Side::Ends(key, end) => match self.ended(doer(event), &key) {
                Some(open) => {
                    let tid = open.tid;
                    let span = joined(open.span, &end);
                    let parts = match key {
                        Key::Request(..) => self.parts(&span, end.length),
                        _ => VecDeque::new(),
                    };
                    // What the thread itself added is in its own span.
                    let others = parts.into_iter().filter(|part| part.tid != tid);
                    let others = others
                        .map(|part| (part.pid, part.tid, part.comm, joined(part.span, &span)));
                    let pid = open.pid.or(event.pid.filter(|_| tid == event.tid));
                    let own = (pid, tid, open.comm, span.clone());
                    for (pid, tid, comm, span) in std::iter::once(own).chain(others) {
                        let of = Event {
                            pid,
                            tid,
                            comm,
                            ..event.clone()
                        };
                        out.push_back(row(of, span, now));
                    }
                }
                // A lock that was free, or that the thread only tried to take, has an end alone.
                None => {
                    let half = !matches!(key, Key::Lock(Activity::MmapLock, _));
                    self.halves += u64::from(half);
                }
            },
            Side::Merges(key, span) => self.merges(event, key, span),
            Side::Whole(span) => out.push_back(row(event.clone(), span, now)),
            Side::Clears => {
                self.clear(doer(event));
                return false;
            }
            Side::New(tid) => {
                self.clear(Some((tid, None)));
                return false;
            }
        }
        true
    }

    /// The recording ended at `end`: appends the spans that are open, the earlier ones first.
    pub(super) fn finish(self, end: Nanos, out: &mut VecDeque<Event>) {
        let of_threads = self.threads.into_values().flatten();
        let of_disks = self.requests.into_values().chain(self.merged);
        let mut all: Vec<Open> = of_threads.chain(of_disks).collect();
        all.sort_rows(|a, b| {
            (a.span.begin, a.tid, &a.span.sector).cmp(&(b.span.begin, b.tid, &b.span.sector))
        });
        out.extend(all.into_iter().map(|open| {
            let span = Span {
                open: true,
                ..*open.span
            };
            Event {
                time: end,
                cpu: None,
                pid: open.pid,
                tid: open.tid,
                comm: open.comm,
                kind: Kind::Span(Box::new(span)),
            }
        }));
    }

    /// Returns how many begins and ends had no partner so far.
    pub(super) fn halves(&self) -> u64 {
        self.halves
    }

    fn clear(&mut self, doer: Option<Doer>) {
        let open = doer.and_then(|doer| self.threads.remove(&doer));
        self.halves += open.map_or(0, |open| open.len() as u64);
    }

    fn begins(&mut self, event: &Event, key: Key, span: Box<Span>) {
        let open = Open::new(event, key, span);
        if let Key::Request(device, sector) = &open.key {
            return self.requested((Text::clone(device), *sector), open);
        }
        let full = self.threads.len() >= MOST;
        // Where the thread is unknown, so is which end is its.
        let Some(doer) = doer(event).filter(|doer| !full || self.threads.contains_key(doer)) else {
            self.halves += 1;
            return;
        };
        let all = self.threads.entry(doer).or_default();
        if let Some(last) = all.last_mut()
            && goes_on(last, &open)
        {
            if !has_word(&open.words, "SPIN") {
                last.span.lock.clone_from(&open.words);
            }
            last.words = open.words;
            return;
        }
        let before = all.len();
        // It cannot be in the midst of the same thing twice.
        all.retain(|other| other.key != open.key);
        if all.len() >= DEEPEST {
            all.clear();
        }
        self.halves += (before - all.len()) as u64;
        all.push(open);
    }

    /// What the thread asks for, or a request that waits in the queue, becomes a part of a request.
    fn merges(&mut self, event: &Event, key: Key, span: Box<Span>) {
        let queued = match &key {
            Key::Request(device, sector) => {
                let place = (Text::clone(device), *sector);
                let waits = self.requests.get(&place);
                let waits = waits.is_some_and(|open| open.span.issued.is_none());
                waits.then(|| self.requests.remove(&place)).flatten()
            }
            _ => None,
        };
        if self.merged.len() >= MOST_MERGED {
            self.merged.pop_front();
            self.halves += 1;
        }
        let part = queued.unwrap_or_else(|| Open::new(event, key, span));
        self.merged.push_back(part);
    }

    /// Takes out the parts of a request that is done.
    fn parts(&mut self, request: &Span, done: Option<Bytes>) -> VecDeque<Open> {
        let (Some(device), Some(sector), Some(length)) =
            (&request.device, request.sector, done.or(request.length))
        else {
            return VecDeque::new();
        };
        let end = sector.saturating_add(length.0 / SECTOR);
        let is_in = |part: &Open| {
            part.span.device.as_ref() == Some(device)
                && part
                    .span
                    .sector
                    .is_some_and(|at| (sector..end).contains(&at))
        };
        let all = std::mem::take(&mut self.merged).into_iter();
        let (parts, others) = all.partition::<VecDeque<_>, _>(is_in);
        self.merged = others;
        parts
    }

    /// Takes out a request in the queue to which something was added at its front: it has another first sector then.
    fn grown(&mut self, key: &(Text, u64), length: Option<Bytes>) -> Option<Open> {
        let added = |part: &Open| part.key == Key::Request(Text::clone(&key.0), key.1);
        if !self.merged.iter().any(added) {
            return None;
        }
        let end = key.1.saturating_add(length?.0 / SECTOR);
        let inside = self.requests.iter().filter(|((device, sector), open)| {
            *device == key.0 && (key.1..end).contains(sector) && open.span.issued.is_none()
        });
        let at = inside
            .map(|(at, _)| at.clone())
            .min_by_key(|(_, sector)| *sector)?;
        let mut open = self.requests.remove(&at)?;
        open.span.sector = Some(key.1);
        open.key = Key::Request(Text::clone(&key.0), key.1);
        Some(open)
    }

    /// A request comes into the queue of its device, or goes to the device.
    fn requested(&mut self, key: (Text, u64), new: Open) {
        let is_issue = new.span.issued.is_some();
        if is_issue
            && !self.requests.contains_key(&key)
            && let Some(open) = self.grown(&key, new.span.length)
        {
            self.requests.insert(key.clone(), open);
        }
        if let Some(open) = self.requests.get_mut(&key) {
            if is_issue && open.span.issued.is_none() {
                open.span.issued = new.span.issued.max(Some(open.span.begin));
                open.span.length = new.span.length.or(open.span.length);
                return;
            }
            self.halves += 1;
            *open = new;
        } else if self.requests.len() < MOST {
            self.requests.insert(key, new);
        } else {
            self.halves += 1;
        }
    }

    /// Takes out the span that ends, and drops what the thread began inside of it.
    fn ended(&mut self, doer: Option<Doer>, key: &Key) -> Option<Open> {
        if let Key::Request(device, sector) = key {
            return self.requests.remove(&(Text::clone(device), *sector));
        }
        let doer = doer?;
        let all = self.threads.get_mut(&doer)?;
        let at = all.iter().rposition(|open| open.key == *key)?;
        self.halves += (all.len() - at - 1) as u64;
        all.truncate(at + 1);
        let open = all.pop();
        if all.is_empty() {
            self.threads.remove(&doer);
        }
        open
    }
}

/// Whether `next` is the wait of `last` for a mutex, which goes on in another way: a thread spins, sleeps and spins again,
/// and each is a `contention_begin` (`__mutex_lock_common()`, kernel/locking/mutex.c).
fn goes_on(last: &Open, next: &Open) -> bool {
    let mutexes = [last, next].map(|open| has_word(&open.words, "MUTEX"));
    last.key == next.key && last.words != next.words && mutexes == [true, true]
}

fn has_word(words: &Option<Text>, word: &str) -> bool {
    let mut all = words.iter().flat_map(|words| words.split('|'));
    all.any(|one| one == word)
}

/// Returns the begin with what the end adds.
fn joined(begin: Box<Span>, end: &Span) -> Box<Span> {
    let text = |a: Option<Text>, b: &Option<Text>| a.or_else(|| b.clone());
    Box::new(Span {
        issued: begin.issued.or(end.issued),
        order: begin.order.or(end.order),
        node: begin.node.or(end.node),
        scanned: end.scanned,
        reclaimed: end.reclaimed,
        status: end.status.clone(),
        reason: end.reason.clone(),
        lock: text(begin.lock, &end.lock),
        write: begin.write.or(end.write),
        driver: text(begin.driver, &end.driver),
        timeline: text(begin.timeline, &end.timeline),
        length: begin.length.or(end.length),
        operation: text(begin.operation, &end.operation),
        result: end.result,
        ..*begin
    })
}

/// The row of a span, at the time of `event` where the span lies before that, and else `now`.
fn row(event: Event, span: Box<Span>, now: Nanos) -> Event {
    let last = span.issued.unwrap_or(span.begin);
    Event {
        time: if event.time < last { now } else { event.time },
        kind: Kind::Span(span),
        ..event
    }
}

fn doer(event: &Event) -> Option<Doer> {
    let tid = event.tid?;
    Some((tid, event.cpu.filter(|_| tid == 0)))
}

fn side(event: &Event) -> Option<Side> {
    let time = event.time;
    let new = |what| Span::new(what, time);
    let begins = |key, span| Some(Side::Begins(key, Box::new(span)));
    let ends = |key, span| Some(Side::Ends(key, Box::new(span)));
    match &event.kind {
        Kind::ReclaimBegin {
            by,
            order,
            gfp,
            node,
            shrinker,
        } => {
            let (key, what) = reclaim(*by, shrinker.as_ref());
            begins(
                key,
                Span {
                    order: *order,
                    gfp: gfp.clone(),
                    node: *node,
                    shrinker: shrinker.clone(),
                    ..new(what)
                },
            )
        }
        Kind::ReclaimEnd {
            by,
            order,
            node,
            scanned,
            reclaimed,
            shrinker,
            reason,
            duration,
        } => {
            let (key, what) = reclaim(*by, shrinker.as_ref());
            let end = Span {
                order: *order,
                node: *node,
                scanned: *scanned,
                reclaimed: *reclaimed,
                shrinker: shrinker.clone(),
                reason: reason.clone(),
                ..new(what)
            };
            match (by, duration) {
                (Reclaimer::Throttled, Some(duration)) => Some(Side::Whole(Box::new(Span {
                    begin: time.saturating_sub(*duration),
                    ..end
                }))),
                _ => ends(key, end),
            }
        }
        Kind::CompactionBegin {
            order,
            gfp,
            node,
            synchronous,
        } => begins(
            Key::Plain(Activity::Compaction),
            Span {
                order: *order,
                gfp: gfp.clone(),
                node: *node,
                synchronous: *synchronous,
                ..new(Activity::Compaction)
            },
        ),
        Kind::CompactionEnd {
            order,
            node,
            status,
        } => ends(
            Key::Plain(Activity::Compaction),
            Span {
                order: *order,
                node: *node,
                status: status.clone(),
                ..new(Activity::Compaction)
            },
        ),
        Kind::LockBegin {
            lock,
            address,
            write,
        } => {
            let what = lock_of(lock.as_ref());
            begins(
                Key::Lock(what, *address),
                Span {
                    lock: lock.clone(),
                    address: *address,
                    write: *write,
                    ..new(what)
                },
            )
        }
        Kind::LockEnd {
            lock,
            address,
            write,
            result,
        } => {
            let what = lock_of(lock.as_ref());
            ends(
                Key::Lock(what, *address),
                Span {
                    lock: lock.clone(),
                    write: *write,
                    result: *result,
                    ..new(what)
                },
            )
        }
        Kind::FenceWaitBegin {
            driver,
            timeline,
            context,
            seqno,
        } => begins(
            Key::Fence(*context, *seqno),
            Span {
                driver: driver.clone(),
                timeline: timeline.clone(),
                context: *context,
                seqno: *seqno,
                ..new(Activity::Fence)
            },
        ),
        Kind::FenceWaitEnd {
            driver,
            timeline,
            context,
            seqno,
        } => ends(
            Key::Fence(*context, *seqno),
            Span {
                driver: driver.clone(),
                timeline: timeline.clone(),
                ..new(Activity::Fence)
            },
        ),
        Kind::BlockInsert {
            device,
            sector,
            length,
            operation,
        } => {
            let issued = None;
            Some(begins_request(
                time, issued, device, *sector, *length, operation,
            ))
        }
        Kind::BlockIssue {
            device,
            sector,
            length,
            operation,
        } => {
            let issued = Some(time);
            Some(begins_request(
                time, issued, device, *sector, *length, operation,
            ))
        }
        Kind::BlockMerge {
            device,
            sector,
            length,
            operation,
        } => {
            let key = Key::Request(Text::clone(device), *sector);
            let span = Span {
                device: Some(Text::clone(device)),
                sector: Some(*sector),
                length: *length,
                operation: operation.clone(),
                ..new(Activity::Block)
            };
            Some(Side::Merges(key, Box::new(span)))
        }
        Kind::BlockComplete {
            device,
            sector,
            length,
            operation,
            result,
        } => ends(
            Key::Request(Text::clone(device), *sector),
            Span {
                length: *length,
                operation: operation.clone(),
                result: *result,
                ..new(Activity::Block)
            },
        ),
        // A thread that calls, or comes back, or faults in its own code has left all that it was in.
        Kind::SyscallEnter { .. }
        | Kind::SyscallExit { .. }
        | Kind::PageFault {
            user: Some(true), ..
        }
        | Kind::Exec { .. }
        | Kind::Exit { .. } => Some(Side::Clears),
        Kind::Fork { target_tid, .. } | Kind::New { target_tid, .. } => {
            Some(Side::New(*target_tid))
        }
        _ => None,
    }
}

fn begins_request(
    time: Nanos,
    issued: Option<Nanos>,
    device: &Text,
    sector: u64,
    length: Option<Bytes>,
    operation: &Option<Text>,
) -> Side {
    let span = Span {
        issued,
        device: Some(Text::clone(device)),
        sector: Some(sector),
        length,
        operation: operation.clone(),
        ..Span::new(Activity::Block, time)
    };
    Side::Begins(Key::Request(Text::clone(device), sector), Box::new(span))
}

fn reclaim(by: Reclaimer, shrinker: Option<&Text>) -> (Key, Activity) {
    let what = match by {
        Reclaimer::Direct => Activity::DirectReclaim,
        Reclaimer::Kswapd => Activity::Kswapd,
        Reclaimer::Memcg => Activity::MemcgReclaim,
        Reclaimer::Throttled => Activity::Throttled,
        Reclaimer::Shrinker => {
            return (Key::Shrinker(shrinker.cloned()), Activity::Shrinker);
        }
    };
    (Key::Plain(what), what)
}

fn lock_of(lock: Option<&Text>) -> Activity {
    match lock.map(|lock| &**lock) {
        Some("mmap") => Activity::MmapLock,
        _ => Activity::Lock,
    }
}

#[cfg(test)]
mod tests;
