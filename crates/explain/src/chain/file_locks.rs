//! Short sleeps between attempts to lock a file that another thread holds. Nobody wakes such a thread. The attempt
//! before the sleep names the lock's holder. What the holder did meanwhile is known only when the holder's own next
//! wait is over.

use std::collections::{HashMap, VecDeque};

use stopgap_stats::explain::Idleness;
use stopgap_trace::Span;

use super::history::{Line, MOST_PIECES};
use super::path::{Doing, For, HopId, NOT_KEPT, PathId, Quick};
use super::sleeps::Ended;
use super::{Graph, MOST_PARENTS, MOST_THREADS, follow};

/// Nanoseconds. A longer sleep between two attempts may be idle: a standby that checks from time to time whether to
/// take over.
const LONGEST_LOOK: u64 = 250_000_000;
/// Most sleeps that still miss the holder's time.
const MOST_PENDING: usize = 1 << 12;

#[derive(Debug, Default)]
pub(super) struct FileLocks {
    last: HashMap<u32, Attempt, Quick>,
    /// Sleeps by the thread that held the lock.
    pending: HashMap<u32, VecDeque<Nap>, Quick>,
    naps: usize,
}

/// The last attempt of a thread that found a file locked.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    inode: u64,
    holder: Option<u32>,
    /// Whether the thread sleeps within the attempt itself.
    blocks: bool,
    /// Whether the thread has not slept since the attempt.
    fresh: bool,
    /// Sleeps before it, each of them after an attempt for the same file.
    naps: u32,
}

/// The part of a file's lock in a sleep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looks {
    pub(super) holder: Option<u32>,
    /// How the sleep is judged; `None`: as a wait for a lock.
    pub(super) idleness: Option<Idleness>,
}

#[derive(Debug, Clone, Copy)]
struct Nap {
    tid: u32,
    left: u64,
    woken: u64,
    /// The waiting thread's hop, and the chain that only says who held the lock.
    hop: HopId,
    path: PathId,
    idleness: Idleness,
}

impl FileLocks {
    /// Notes that `tid` found a file locked.
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

    /// Notes that `tid` slept for `ns`. Returns the part of a file's lock in the sleep; `None` if there is none, or
    /// if the lock's holder ended the sleep.
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
        // A first sleep may have nothing to do with the lock, unless functions on the stack say so.
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
    /// Returns the chain that says who held the file's lock while `tid` slept. The holder's time replaces it when it
    /// is known.
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

    /// Notes that the wait of `holder` is over, so its time is known up to now, and gives it to the sleeps of threads
    /// that waited for its locks.
    pub(super) fn tells_who_waited(&mut self, holder: u32) {
        if self.file_locks.naps == 0 {
            return;
        }
        let Some(naps) = self.file_locks.pending.remove(&holder) else {
            return;
        };
        self.file_locks.naps -= naps.len();
        for nap in naps {
            self.follow_holder(holder, nap);
        }
    }

    fn follow_holder(&mut self, holder: u32, nap: Nap) {
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
