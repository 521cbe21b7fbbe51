//! Collects single waits that lost time, for a drawing.

use stopgap_events::units::Nanos;
use stopgap_trace::export::{Lost, LostPart, Who};

use super::account::culprit;
use super::history::Piece;
use super::path::{ActorId, Hop, NOBODY};
use super::{Graph, Last};

/// Nanoseconds: shorter waits are not kept.
pub(super) const LEAST: u64 = 100_000;

impl Graph {
    /// Keeps each wait that lost 100 us or more until [`Graph::take_lost`] takes it.
    pub fn keep_lost(&mut self) {
        self.lost = Some(Vec::new());
    }

    /// Returns the waits that lost time and whose cause became known since the last call. The cause of a wait is
    /// known when its thread waits again. `all` says that no more events come: then every wait is returned.
    pub fn take_lost(&mut self, all: bool) -> Vec<Lost> {
        if all {
            let tids: Vec<u32> = self.threads.keys().copied().collect();
            tids.into_iter().for_each(|tid| self.commit(tid));
        }
        self.lost.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn loses(
        &mut self,
        tid: u32,
        last: &Last,
        woken_by: Option<(u32, u64)>,
        ran: u64,
        pieces: &[Piece],
    ) {
        let mut at = last.left;
        let mut parts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let hops: Vec<Hop> = self.paths.hops_of(piece.path).collect();
            let (label, _) = self.end(&hops);
            // A chain that breaks blames nobody.
            if let Some(by) = culprit(&hops).filter(|&by| by == NOBODY || by != hops[0].actor) {
                parts.push(LostPart {
                    begin: Nanos(at),
                    ns: piece.ns,
                    by: self.actor_who(by),
                    text: label.text,
                });
            }
            at += piece.ns;
        }
        // The last waking may have ended an earlier sleep. Then it did not end this wait for a CPU.
        let waker = woken_by.filter(|&(by, at)| by != 0 && at <= ran && at >= last.left);
        let lost = Lost {
            thread: self.thread_who(tid),
            waker: waker.map(|(by, _)| self.thread_who(by)),
            woken: Nanos(last.woken),
            ran: Nanos(ran),
            parts,
        };
        if let Some(all) = &mut self.lost {
            all.push(lost);
        }
    }

    fn thread_who(&self, tid: u32) -> Who {
        let thread = self.threads.get(&tid);
        Who {
            tid,
            pid: thread.and_then(|thread| thread.pid),
            name: thread
                .map(|thread| thread.comm.to_string())
                .unwrap_or_default(),
        }
    }

    fn actor_who(&self, actor: ActorId) -> Option<Who> {
        let known = self.paths.actor_at(actor);
        let tid = known.tid.filter(|&tid| tid != 0)?;
        Some(Who {
            tid,
            pid: self.threads.get(&tid).and_then(|thread| thread.pid),
            name: known.comm.to_string(),
        })
    }
}
