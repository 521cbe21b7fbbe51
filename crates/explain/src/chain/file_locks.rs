//! Naps between looks at a file's lock that another thread holds. Nobody wakes who does that: the thread that held the lock is known by
//! the attempt before the nap, and what it did meanwhile only when its own next wait is over.

use std::collections::{HashMap, VecDeque};

use stopgap_stats::explain::Idleness;
use stopgap_trace::Span;

use super::history::{Line, MOST_PIECES};
use super::path::{Doing, For, HopId, NOT_KEPT, PathId, Quick};
use super::sleeps::Ended;
use super::{Graph, MOST_PARENTS, MOST_THREADS, follow};

/// Longer naps between two attempts may be idle: a spare that looks now and then whether it is to take over.
const LONGEST_LOOK: u64 = 250_000_000;
/// Naps whose holder has not been heard of since.
const MOST_PENDING: usize = 1 << 12;

#[derive(Debug, Default)]
pub(super) struct FileLocks {
    last: HashMap<u32, Attempt, Quick>,
    /// Naps, by holder.
    pending: HashMap<u32, VecDeque<Nap>, Quick>,
    naps: usize,
}

/// The last time that a thread found a file locked.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    inode: u64,
    holder: Option<u32>,
    /// Whether the thread sleeps in the attempt itself.
    blocks: bool,
    /// Whether it has not slept since.
    fresh: bool,
    /// Naps before it, each after an attempt for the same file.
    naps: u32,
}

/// What a sleep has to do with a file's lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looks {
    pub(super) holder: Option<u32>,
    /// How the nap is judged, where not as a wait for a lock.
    pub(super) idleness: Option<Idleness>,
}

#[derive(Debug, Clone, Copy)]
struct Nap {
    tid: u32,
    left: u64,
    woken: u64,
    /// The waiting thread's hop, and the chain that says no more than who held the lock.
    hop: HopId,
    path: PathId,
    idleness: Idleness,
}

impl FileLocks {
    /// `tid` found a file locked.
    pub(super) fn failed(&mut self, tid: u32, span: &Span) {
        if self.last.len() >= MOST_THREADS {
            self.last.clear();
        }
        let new = Attempt {
            inode: span.inode.unwrap_or(0),
            holder: span.holder.filter(|&holder| holder != tid),
            blocks: span.result.is_none(),
            fresh: true,
            naps: 0,
        };
        let last = self.last.entry(tid).or_insert(new);
        let naps = match last.inode == new.inode {
            true => last.naps + u32::from(!last.fresh),
            false => 0,
        };
        *last = Attempt { naps, ..new };
    }

    /// `tid` slept for `ns`. Returns what that has to do with a file's lock, where it was not the lock's holder who ended the sleep.
    pub(super) fn sleeps(&mut self, tid: u32, what: For, ended: Ended, ns: u64) -> Option<Looks> {
        let attempt = self.last.get_mut(&tid)?;
        let is_nap = ended == Ended::Timer && matches!(what, For::Time | For::Lock { .. });
        let given_up = attempt.blocks
            && matches!(what, For::Lock { .. })
            && matches!(ended, Ended::Timeout | Ended::Interrupt | Ended::Nobody);
        if !is_nap && !given_up {
            return None;
        }
        if !std::mem::take(&mut attempt.fresh) {
            self.last.remove(&tid);
            return None;
        }
        // Whether a first nap is one between two looks nobody knows, unless functions on the stack say so.
        if what == For::Time && attempt.naps == 0 {
            return None;
        }
        let seldom = what == For::Time && ns > LONGEST_LOOK;
        Some(Looks {
            holder: attempt.holder,
            idleness: seldom.then_some(Idleness::MayBeIdle),
        })
    }

    fn waits_for(&mut self, holder: u32, nap: Nap) {
        if self.naps >= MOST_PENDING {
            self.pending.clear();
            self.naps = 0;
        }
        self.naps += 1;
        self.pending.entry(holder).or_default().push_back(nap);
    }
}

impl Graph {
    /// Returns the chain of a thread that held a file's lock while `tid` slept, and follows it when that is known.
    pub(super) fn held_by(
        &mut self,
        tid: u32,
        looks: Looks,
        hop: HopId,
        (left, woken): (u64, u64),
    ) -> Option<PathId> {
        let holder = looks.holder?;
        let actor = self.actor(holder, None);
        let held = self.paths.leaf(actor, Doing::Held);
        let path = self.paths.chain(hop, held);
        let nap = Nap {
            tid,
            left,
            woken,
            hop,
            path,
            idleness: looks.idleness.unwrap_or(Idleness::Stalled),
        };
        self.file_locks.waits_for(holder, nap);
        Some(held)
    }

    /// The wait of `holder` is over: what it did while others waited for its locks is known up to now.
    pub(super) fn tells_who_waited(&mut self, holder: u32) {
        if self.file_locks.naps == 0 {
            return;
        }
        let Some(naps) = self.file_locks.pending.remove(&holder) else {
            return;
        };
        self.file_locks.naps -= naps.len();
        for nap in naps {
            self.tells_nap(holder, nap);
        }
    }

    fn tells_nap(&mut self, holder: u32, nap: Nap) {
        let mut behind = Line::default();
        let time = (nap.left, nap.woken);
        let (threads, paths) = (&self.threads, &mut self.paths);
        follow(threads, paths, holder, time, MOST_PARENTS, &mut behind);
        let mut told = Line::default();
        for piece in &behind.0 {
            told.push(self.paths.chain(nap.hop, piece.path), piece.ns);
        }
        if told.shorten(MOST_PIECES, NOT_KEPT) {
            let rest = self.paths.chain(nap.hop, NOT_KEPT);
            told.renames(NOT_KEPT, rest);
        }
        let Some(thread) = self.threads.get_mut(&nap.tid) else {
            return;
        };
        let last = (thread.last.as_mut()).filter(|last| last.left == nap.left);
        let booked = last.is_none();
        if thread.past.replace(time, nap.path, &told.0)
            && let Some(last) = last
        {
            last.sleep += told.0.len();
            last.sleep -= 1;
        }
        if booked {
            self.totals.moves(nap.path, nap.idleness, &told.0);
        }
    }
}
