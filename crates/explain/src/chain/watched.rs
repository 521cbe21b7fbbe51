//! Sums the waits within a window of time, of one thread or of all: the parts of a stall.

use std::collections::HashSet;

use stopgap_stats::explain::Waiting;

use super::account::Totals;
use super::history::Piece;
use super::path::{HopId, Paths};
use super::{Graph, Idleness, Last};

/// The window of time of a stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallWindow {
    /// The thread whose waits count; `None`: all threads.
    pub tid: Option<u32>,
    /// Nanoseconds on the trace's clock.
    pub begin_ns: u64,
    /// The end, exclusive.
    pub end_ns: u64,
}

/// A window, and the sums of the waits in it so far.
#[derive(Debug)]
pub(super) struct Windowed {
    window: StallWindow,
    totals: Totals,
}

impl Windowed {
    pub(super) fn new(window: StallWindow) -> Windowed {
        Windowed {
            window,
            totals: Totals::default(),
        }
    }

    fn clip(&self, pieces: &[Piece], at: u64) -> (u64, Vec<Piece>) {
        let mut at = at;
        let mut clipped = Vec::new();
        let mut first = None;
        for piece in pieces {
            let end = at.saturating_add(piece.ns);
            let from = at.max(self.window.begin_ns);
            let ns = end.min(self.window.end_ns).saturating_sub(from);
            if ns > 0 {
                first.get_or_insert(from);
                clipped.push(Piece { ns, ..*piece });
            }
            at = end;
        }
        (first.unwrap_or(at), clipped)
    }

    /// Books a wait of `tid`: a sleep, and the wait for a CPU after it.
    pub(super) fn waited(
        &mut self,
        paths: &Paths,
        tid: u32,
        last: &Last,
        (sleep, queue): (&[Piece], &[Piece]),
    ) {
        if self.window.tid.is_some_and(|of| of != tid) {
            return;
        }
        self.slept(paths, last.hop, last.idleness, tid, (last.left, sleep));
        let (at, queue) = self.clip(queue, last.woken);
        self.totals.queued(paths, tid, at, &queue);
    }

    /// Books a sleep of `tid` that began at `at`.
    pub(super) fn slept(
        &mut self,
        paths: &Paths,
        hop: HopId,
        idleness: Option<Idleness>,
        tid: u32,
        (at, pieces): (u64, &[Piece]),
    ) {
        if self.window.tid.is_some_and(|of| of != tid) {
            return;
        }
        let (at, pieces) = self.clip(pieces, at);
        if !pieces.is_empty() {
            self.totals.slept(paths, hop, idleness, tid, at, &pieces);
        }
    }
}

impl Graph {
    /// Sums the waits of each of `windows` separately, too. Must be called before the first event.
    pub fn watch(&mut self, windows: &[StallWindow]) {
        self.windows = windows.iter().copied().map(Windowed::new).collect();
    }

    /// Ends the graph after the last event. Returns the waits in each window of [`Graph::watch`], the most time
    /// first.
    pub(crate) fn watched(&mut self) -> Vec<Vec<Waiting>> {
        self.commit_all();
        let windows = std::mem::take(&mut self.windows);
        let of = |mut windowed: Windowed| {
            // Workers' names need the record of their work.
            windowed.totals.works_as(&mut self.totals);
            let all = std::mem::replace(&mut self.totals, windowed.totals);
            let waiting = self.waiting(&HashSet::new());
            let mut totals = std::mem::replace(&mut self.totals, all);
            self.totals.works_as(&mut totals);
            waiting
        };
        windows.into_iter().map(of).collect()
    }
}
