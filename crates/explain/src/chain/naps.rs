//! Judges short sleeps between which a thread polls for the answer that it asked for.
//!
//! Nobody wakes a thread that polls. A loop that keeps a fixed pace also sleeps often and briefly. So both count as
//! idle at first. The sleeps are judged when the asked thread waits for work again: a thread that polled for its
//! answer then stops sleeping.

use stopgap_stats::explain::Idleness;

use super::history::Line;
use super::path::{HopId, NOT_KEPT, PathId};
use super::{Graph, MOST_PARENTS, MOST_PIECES, follow, idle};

/// Nanoseconds: a longer sleep does not count as polling.
const LONGEST: u64 = 20_000_000;
/// Least number of sleeps in a row that count as polling.
const LEAST: usize = 3;
/// Most sleeps of one thread that are remembered.
const MOST: usize = 4_096;
/// A polling thread runs between two sleeps for at most this fraction of a sleep (one eighth).
const LOOK: u64 = 8;
/// Most places at which one thread was seen to keep a pace.
const MOST_PLACES: usize = 8;

/// The short sleeps of a thread since it asked another thread.
#[derive(Debug, Default)]
pub(super) struct Naps {
    /// The thread that it asked, and when.
    asked: Option<(u32, u64)>,
    hop: HopId,
    path: PathId,
    all: Vec<(u64, u64)>,
    /// Whether it has slept elsewhere since.
    over: bool,
    /// Places where it also sleeps without a question.
    paces: Vec<HopId>,
}

impl Naps {
    fn keeps_a_pace(&mut self, hop: HopId) {
        if !self.paces.contains(&hop) && self.paces.len() < MOST_PLACES {
            self.paces.push(hop);
        }
    }
}

impl Graph {
    /// Notes that `tid` slept on purpose from `left` to `woken`, or waited for events until a timeout. The time is
    /// booked on `path` as idle.
    pub(super) fn naps(
        &mut self,
        tid: u32,
        hop: HopId,
        path: PathId,
        (left, woken): (u64, u64),
        for_events: bool,
    ) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        // Events may be anything. They are an answer only of a thread that has answered before.
        let answers = |of| !for_events || self.pairs.has_answered(tid, of);
        let open =
            (thread.asks).filter(|&(of, at)| self.pairs.waits_since(tid, of, at) && answers(of));
        let looks = left.saturating_sub(thread.ran) <= (woken - left) / LOOK;
        if woken - left > LONGEST {
            thread.naps.over = true;
            return;
        }
        // The thread asks again: the earlier question was answered when the asked thread waited for work.
        let before = thread.naps.asked.filter(|_| thread.naps.asked != open);
        if let Some((of, at)) = before {
            self.was_answered(tid, of, at);
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let naps = &mut thread.naps;
        let Some((of, at)) = open else {
            naps.all.clear();
            naps.keeps_a_pace(hop);
            return;
        };
        if naps.asked != open {
            naps.all.clear();
            (naps.asked, naps.hop, naps.path, naps.over) = (open, hop, path, false);
        } else if naps.hop != hop && naps.all.len() < LEAST {
            naps.all.clear();
            (naps.hop, naps.path) = (hop, path);
        }
        if naps.over || naps.hop != hop {
            naps.over = true;
            return;
        }
        if !naps.all.is_empty() && !looks {
            naps.all.clear();
            naps.over = true;
            naps.keeps_a_pace(hop);
            return;
        }
        if naps.all.len() < MOST && left >= at {
            naps.all.push((left, woken));
        }
        if let Some(asked) = self.threads.get_mut(&of) {
            asked.looked_at_by = Some(tid);
        }
        self.was_answered(tid, of, at);
    }

    /// Judges the short sleeps of `tid` since it asked `of` at `at`, if `of` has waited for work since.
    fn was_answered(&mut self, tid: u32, of: u32, at: u64) {
        let since = self.threads.get(&of).map_or(0, |thread| thread.idle_since);
        if since > at {
            self.judges_looks(tid, of, since);
        }
    }

    /// Notes that the thread `of` waits for work since `left`, and judges the sleeps of the thread that polled for
    /// its answer.
    pub(super) fn tells_who_looked(&mut self, of: u32, left: u64) {
        let Some(thread) = self.threads.get_mut(&of) else {
            return;
        };
        thread.idle_since = left;
        if let Some(tid) = thread.looked_at_by {
            self.judges_looks(tid, of, left);
        }
    }

    /// Judges the short sleeps of `tid` since it asked `of`, which had finished at `left` what it was asked for.
    pub(super) fn judges_looks(&mut self, tid: u32, of: u32, left: u64) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let naps = &mut thread.naps;
        let (hop, path) = (naps.hop, naps.path);
        let of_it = naps
            .asked
            .is_some_and(|(asked, at)| asked == of && at < left);
        if !of_it {
            return;
        }
        let mut all = std::mem::take(&mut naps.all);
        naps.over = true;
        let later = all.iter().filter(|(begin, _)| *begin >= left).count();
        if later > 1 {
            naps.keeps_a_pace(hop);
            return;
        }
        all.retain(|(begin, _)| *begin < left);
        if all.len() < LEAST {
            return;
        }
        let paces = naps.paces.contains(&hop);
        if (thread.last.as_ref()).is_some_and(|last| last.hop == hop) {
            self.commit(tid);
        }
        let mut behind = Line::default();
        for &(begin, end) in &all {
            self.did(of, (begin, end.min(left)), &mut behind);
        }
        // A thread that keeps a pace may have handed something over to one that then slept, such as a slot of a
        // semaphore.
        let idleness = match paces {
            true if !idle::is_busy(&behind.0, &self.paths) => return,
            true => Idleness::MayBeIdle,
            false => Idleness::Stalled,
        };
        let mut whole = Line::default();
        for &(begin, end) in &all {
            let until = end.min(left);
            behind.clear();
            self.did(of, (begin, until), &mut behind);
            let mut told = Line::default();
            for piece in &behind.0 {
                let path = self.paths.chain(hop, piece.path);
                told.push(path, piece.ns);
                whole.push(path, piece.ns);
            }
            if until < end {
                told.push(path, end - until);
            }
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.past.replace((begin, end), path, &told.0);
            }
        }
        if whole.shorten(MOST_PIECES, NOT_KEPT) {
            let rest = self.paths.chain(hop, NOT_KEPT);
            whole.renames(NOT_KEPT, rest);
        }
        self.totals.unbooks(path, hop, all.len() as u64, &whole.0);
        let idleness = Some(idleness);
        self.totals
            .slept(&self.paths, hop, idleness, tid, all[0].0, &whole.0);
    }

    /// Appends what a thread did within `time`.
    fn did(&mut self, tid: u32, time: (u64, u64), behind: &mut Line) {
        let (threads, paths) = (&self.threads, &mut self.paths);
        follow(threads, paths, tid, time, MOST_PARENTS, behind);
    }
}
