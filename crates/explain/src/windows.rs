//! Frames, requests and round trips: windows of a thread's time, and where that time went.
//!
//! A window ends while its thread runs, so the thread's past has its chains by then. The past of a long window is
//! taken piece by piece, before older pieces are merged.

use std::collections::HashMap;

use stopgap_events::order::SortRows as _;
use stopgap_stats::explain::{Longest, WindowKind, Windows as Record};
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::quantile;
use stopgap_trace::Text;

use crate::chain::{Graph, Pieces, Sums};
use crate::request::Place;

/// Most threads with windows, and most open windows of one thread.
const MOST_THREADS: usize = 1 << 16;
const MOST_OPEN: usize = 64;
/// Most rows: names of threads or pairs, and markers.
const MOST_GROUPS: usize = 256;
/// Waits of a thread after which the past of its open windows is taken. The graph keeps many more waits exactly.
const WAITS: u32 = 16;
/// Most pieces of an open window that keep the order of time.
const MOST_PIECES: usize = 4_096;

/// Key of a row of windows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    kind: WindowKind,
    task: Text,
    by: Text,
}

/// The windows of one row.
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

/// The thread, begin and end of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) tid: u32,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// An open window.
struct Open {
    kind: WindowKind,
    /// The descriptor, if the window is about one.
    on: Option<u64>,
    begin: u64,
    /// The time up to which `pieces` is complete.
    taken: u64,
    pieces: Pieces,
    /// The call that may have ended it, and the end of that call's last wait.
    over: Option<(Place, u64)>,
}

/// The windows of a thread.
#[derive(Default)]
struct Of {
    open: Vec<Open>,
    /// Ends of the last windows, by kind and descriptor.
    until: Vec<(WindowKind, Option<u64>, u64)>,
    /// Waits since the past was last taken.
    waits: u32,
}

/// The windows of all threads.
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
    /// Returns whether such a window is open.
    pub(crate) fn is_open(&mut self, tid: u32, kind: WindowKind, on: Option<u64>) -> bool {
        let of = self.threads.get_mut(&tid);
        of.is_some_and(|of| of.open(kind, on).is_some())
    }

    /// Opens a window at `at`, unless one is open, or the last one ended later than that.
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

    /// Notes that the window may have ended at `ran`, by the wait of a call.
    pub(crate) fn may_end(&mut self, tid: u32, on: Option<u64>, place: Place, ran: u64) {
        let of = self.threads.get_mut(&tid);
        if let Some(open) = of.and_then(|of| of.open(WindowKind::Request, on)) {
            open.over = Some((place, ran));
        }
    }

    /// Returns the requests of `tid` that may have ended: descriptor, call, and the end of its last wait.
    pub(crate) fn over(&self, tid: u32) -> Vec<(Option<u64>, Place, u64)> {
        let open = self.threads.get(&tid).into_iter().flat_map(|of| &of.open);
        let over = |open: &Open| open.over.map(|(place, ran)| (open.on, place, ran));
        open.filter_map(over).collect()
    }

    /// Ends a window at `end`. If none was open and none has ended before, the window began before the trace.
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

    /// Counts a window whose begin and end are known.
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

    /// Takes the older past of the thread's open windows, after some of its waits.
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
            // If the window may have ended, time after that is not taken.
            let until = open.over.map_or(settled, |(_, ran)| ran.min(settled));
            if until > open.taken {
                graph.window(tid, open.taken, until, &mut open.pieces);
                open.taken = until;
                open.pieces.bound(MOST_PIECES);
            }
        }
    }

    /// Counts the open windows of a thread as unfinished, because the thread or the trace has ended.
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

    /// Counts a window that has begun and does not end.
    pub(crate) fn not_over(&mut self, who: &Who, kind: WindowKind, by: &Text) {
        if let Some(group) = self.group(who, kind, by) {
            group.not_over += 1;
        }
    }

    /// Returns all windows, the most time first. Frames are those of all threads. Other windows are those of followed
    /// threads, or of all threads if none was followed.
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
