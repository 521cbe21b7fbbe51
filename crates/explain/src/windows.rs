//! Frames, requests and round trips: windows of a thread's time, and where it went.
//!
//! A window's end is seen while its thread runs, so the thread's past has its chains already. Of a window that lasts long, the
//! past is taken piece by piece before it is merged.

use std::collections::HashMap;

use stopgap_events::order::SortRows as _;
use stopgap_stats::explain::{Longest, WindowKind, Windows as Record};
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::quantile;
use stopgap_trace::Text;

use crate::chain::{Graph, Pieces, Sums};
use crate::request::Place;

/// Threads that have windows, and windows of one that are open.
const MOST_THREADS: usize = 1 << 16;
const MOST_OPEN: usize = 64;
/// Names of threads, pairs and markers that are told apart.
const MOST_GROUPS: usize = 256;
/// Waits of a thread between two looks at its past, of which the last 32 are kept exactly.
const WAITS: u32 = 16;
/// Pieces of an open window that are kept in the order of time.
const MOST_PIECES: usize = 4_096;

/// What makes windows one row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    kind: WindowKind,
    task: Text,
    by: Text,
}

/// Windows of one row.
#[derive(Default)]
struct Group {
    /// Whether the recorder followed one of the threads.
    followed: bool,
    count: u64,
    total: u64,
    lengths: Option<Box<Histogram>>,
    sums: Sums,
    longest: Option<(u64, Window, Pieces)>,
    began_before: u64,
    not_over: u64,
}

/// A window's thread, begin and end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) tid: u32,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// A window that has begun.
struct Open {
    kind: WindowKind,
    /// The descriptor, where it is about one.
    on: Option<u64>,
    begin: u64,
    /// Until when its time is in `pieces`.
    taken: u64,
    pieces: Pieces,
    /// The call whose waits may have ended it, and when the last of them was over.
    over: Option<(Place, u64)>,
}

/// The windows of a thread.
#[derive(Default)]
struct Of {
    open: Vec<Open>,
    /// When the last one ended, by what it was about.
    until: Vec<(WindowKind, Option<u64>, u64)>,
    /// Waits since a look at its past.
    waits: u32,
}

/// All windows.
#[derive(Default)]
pub(crate) struct Windows {
    threads: HashMap<u32, Of>,
    groups: HashMap<Key, Group>,
}

impl Of {
    fn open(&mut self, kind: WindowKind, on: Option<u64>) -> Option<&mut Open> {
        let mut open = self.open.iter_mut();
        open.find(|open| (open.kind, open.on) == (kind, on))
    }

    fn until(&mut self, kind: WindowKind, on: Option<u64>) -> Option<&mut u64> {
        let mut until = self.until.iter_mut();
        let found = until.find(|(of, its, _)| (*of, *its) == (kind, on));
        found.map(|(_, _, until)| until)
    }
}

/// A thread as windows name it.
pub(crate) struct Who {
    pub(crate) tid: u32,
    pub(crate) name: Text,
    pub(crate) followed: bool,
}

impl Windows {
    /// Whether a window of this kind is open.
    pub(crate) fn is_open(&mut self, tid: u32, kind: WindowKind, on: Option<u64>) -> bool {
        let of = self.threads.get_mut(&tid);
        of.is_some_and(|of| of.open(kind, on).is_some())
    }

    /// A window begins at `at`, unless one is open, or it would begin before the last one ended.
    pub(crate) fn begins(&mut self, tid: u32, kind: WindowKind, on: Option<u64>, at: u64) {
        if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&tid) {
            return;
        }
        let of = self.threads.entry(tid).or_default();
        let ended_later = of.until(kind, on).is_some_and(|until| at < *until);
        if ended_later || of.open.len() >= MOST_OPEN || of.open(kind, on).is_some() {
            return;
        }
        of.open.push(Open {
            kind,
            on,
            begin: at,
            taken: at,
            pieces: Pieces::default(),
            over: None,
        });
    }

    /// The window may be over at `ran`, by the waits of a call.
    pub(crate) fn may_end(&mut self, tid: u32, on: Option<u64>, place: Place, ran: u64) {
        let of = self.threads.get_mut(&tid);
        if let Some(open) = of.and_then(|of| of.open(WindowKind::Request, on)) {
            open.over = Some((place, ran));
        }
    }

    /// Returns the requests of `tid` that may be over: on which descriptor, by the waits of which call, and when.
    pub(crate) fn over(&self, tid: u32) -> Vec<(Option<u64>, Place, u64)> {
        let open = self.threads.get(&tid).into_iter().flat_map(|of| &of.open);
        let over = |open: &Open| open.over.map(|(place, ran)| (open.on, place, ran));
        open.filter_map(over).collect()
    }

    /// A window is over at `end`. Where none was open, and none has ended before, it began before the trace.
    pub(crate) fn ends(
        &mut self,
        graph: &mut Graph,
        (who, by): (&Who, &Text),
        (kind, on): (WindowKind, Option<u64>),
        end: u64,
    ) {
        if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&who.tid) {
            return;
        }
        let of = self.threads.entry(who.tid).or_default();
        let before = of.until(kind, on).map(|until| *until = end).is_some();
        if !before && of.until.len() < MOST_OPEN {
            of.until.push((kind, on, end));
        }
        let is_it = |open: &Open| (open.kind, open.on) == (kind, on);
        let Some(at) = of.open.iter().position(is_it) else {
            if !before && let Some(group) = self.group(who, kind, by) {
                group.began_before += 1;
            }
            return;
        };
        let mut open = of.open.swap_remove(at);
        graph.window(who.tid, open.taken, end, &mut open.pieces);
        let window = Window {
            tid: who.tid,
            begin: open.begin,
            end,
        };
        self.counts((who, by), kind, window, open.pieces);
    }

    /// A window was, from begin to end.
    pub(crate) fn was(
        &mut self,
        graph: &mut Graph,
        (who, by): (&Who, &Text),
        kind: WindowKind,
        window: Window,
    ) {
        let mut pieces = Pieces::default();
        graph.window(window.tid, window.begin, window.end, &mut pieces);
        self.counts((who, by), kind, window, pieces);
    }

    fn counts(
        &mut self,
        (who, by): (&Who, &Text),
        kind: WindowKind,
        window: Window,
        pieces: Pieces,
    ) {
        let length = window.end.saturating_sub(window.begin);
        let Some(group) = self.group(who, kind, by).filter(|_| length > 0) else {
            return;
        };
        group.count += 1;
        group.total += length;
        (group.lengths.get_or_insert_with(Box::default)).record(length);
        group.sums.add(&pieces);
        let longer = |(_, than, _): &(u64, Window, Pieces)| length > than.end - than.begin;
        if group.longest.as_ref().is_none_or(longer) {
            group.longest = Some((group.count, window, pieces));
        }
    }

    fn group(&mut self, who: &Who, kind: WindowKind, by: &Text) -> Option<&mut Group> {
        let key = Key {
            kind,
            task: Text::clone(&who.name),
            by: Text::clone(by),
        };
        if self.groups.len() >= MOST_GROUPS && !self.groups.contains_key(&key) {
            return None;
        }
        let group = self.groups.entry(key).or_default();
        group.followed |= who.followed;
        Some(group)
    }

    /// A thread waited: takes what is older of its open windows.
    pub(crate) fn waited(&mut self, graph: &mut Graph, tid: u32) {
        let Some(of) = self.threads.get_mut(&tid).filter(|of| !of.open.is_empty()) else {
            return;
        };
        of.waits += 1;
        if of.waits < WAITS {
            return;
        }
        of.waits = 0;
        let Some(settled) = graph.settled(tid) else {
            return;
        };
        for open in &mut of.open {
            // Of a window that is over, the rest is later.
            let until = open.over.map_or(settled, |(_, ran)| ran.min(settled));
            if until > open.taken {
                graph.window(tid, open.taken, until, &mut open.pieces);
                open.taken = until;
                open.pieces.bound(MOST_PIECES);
            }
        }
    }

    /// A thread is no more, or the trace ends: what is open is not over.
    pub(crate) fn stops(&mut self, who: &Who, by: impl Fn(WindowKind) -> Text) {
        for open in self
            .threads
            .remove(&who.tid)
            .into_iter()
            .flat_map(|of| of.open)
        {
            self.not_over(who, open.kind, &by(open.kind));
        }
    }

    /// A window has begun and is not over.
    pub(crate) fn not_over(&mut self, who: &Who, kind: WindowKind, by: &Text) {
        if let Some(group) = self.group(who, kind, by) {
            group.not_over += 1;
        }
    }

    /// Returns all windows, the most time first: frames of all threads that mark them, others of followed threads, or where
    /// there is none, of all.
    pub(crate) fn to_record(&self, graph: &Graph, first: u64, any_followed: bool) -> Vec<Record> {
        let mut records: Vec<Record> = (self.groups.iter())
            .filter(|(key, group)| group.followed || !any_followed || key.kind == WindowKind::Frame)
            .map(|(key, group)| record(key, group, graph, first))
            .collect();
        records.sort_rows(|a, b| {
            (a.kind.cmp(&b.kind))
                .then_with(|| b.total_ns.cmp(&a.total_ns))
                .then_with(|| (&a.task, &a.by).cmp(&(&b.task, &b.by)))
        });
        records
    }
}

fn record(key: &Key, group: &Group, graph: &Graph, first: u64) -> Record {
    let lengths = group.lengths.as_deref();
    let quantile = |q| lengths.and_then(|lengths| quantile(lengths, q).ok());
    let longest = group.longest.as_ref().map(|(number, window, pieces)| {
        let at_ns = window.begin.saturating_sub(first);
        let mut sums = Sums::default();
        sums.add(pieces);
        Longest {
            number: *number,
            tid: window.tid,
            at_ns,
            length_ns: window.end - window.begin,
            parts: graph.parts(&sums),
            chain: graph.heaviest(&sums),
            steps: graph.steps(pieces, at_ns),
        }
    });
    Record {
        kind: key.kind,
        task: key.task.to_string(),
        by: key.by.to_string(),
        count: group.count,
        total_ns: group.total,
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        parts: graph.parts(&group.sums),
        longest,
        began_before: group.began_before,
        not_over: group.not_over,
    }
}
