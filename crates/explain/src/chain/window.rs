//! Windows of a thread's time: sums by chain over all threads, and a picture of one window.

use std::collections::HashMap;

use stopgap_stats::explain::{Link, Step, Stop};

use super::account::Tree;
use super::history::{Line, Piece};
use super::path::{Hop, PathId, Quick};
use super::{Graph, MOST_PARENTS, follow};

/// Most steps of a picture.
const MOST_STEPS: usize = 256;

/// Pieces of a window in the order of time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pieces(Vec<Piece>);

impl Pieces {
    pub(super) fn of(pieces: &[Piece]) -> Pieces {
        Pieces(pieces.to_vec())
    }

    /// Keeps the order of the first [`MOST_STEPS`] pieces only, and sums the rest by chain, if there are more than
    /// `most` pieces.
    pub(crate) fn bound(&mut self, most: usize) {
        if self.0.len() > most {
            let mut rest = Sums::default();
            rest.add(&Pieces(self.0.split_off(MOST_STEPS)));
            let piece = |(&path, &ns)| Piece { path, ns };
            self.0.extend(rest.0.iter().map(piece));
        }
    }
}

/// Nanoseconds by chain.
#[derive(Debug, Default)]
pub(crate) struct Sums(HashMap<PathId, u64, Quick>);

impl Sums {
    /// Adds the time of each of `pieces` to its chain.
    pub(crate) fn add(&mut self, pieces: &Pieces) {
        for piece in &pieces.0 {
            *self.0.entry(piece.path).or_default() += piece.ns;
        }
    }
}

impl Graph {
    /// Appends to `pieces` what the thread `tid` did from `from` to `to`, when it has a CPU. They add up to that
    /// time.
    pub(crate) fn window(&mut self, tid: u32, from: u64, to: u64, pieces: &mut Pieces) {
        let mut line = Line(std::mem::take(&mut pieces.0));
        let (threads, paths) = (&self.threads, &mut self.paths);
        follow(threads, paths, tid, (from, to), MOST_PARENTS, &mut line);
        pieces.0 = line.0;
    }

    /// Returns the time before which the past of `tid` cannot change any more; `None` where nothing is known of the
    /// thread.
    pub(crate) fn settled(&self, tid: u32) -> Option<u64> {
        let thread = self.threads.get(&tid)?;
        thread.past.last_begin()
    }

    /// Returns the ends of the chains of `sums`, the most time first. They add up to the time of all chains.
    pub(crate) fn parts(&self, sums: &Sums) -> Vec<Link> {
        let mut tree = Tree::default();
        for (&path, &ns) in &sums.0 {
            let hops: Vec<Hop> = self.paths.hops_of(path).collect();
            let (label, tid) = self.end(&hops);
            tree.behind.entry(label).or_default().add(tid, ns);
        }
        tree.links(sums.0.values().sum(), &self.paths)
    }

    /// Returns the chain that has the most time.
    pub(crate) fn heaviest(&self, sums: &Sums) -> Vec<Stop> {
        let heaviest = (sums.0.iter()).max_by_key(|&(&path, &ns)| (ns, std::cmp::Reverse(path)));
        heaviest.map_or_else(Vec::new, |(&path, _)| self.stops_of(path))
    }

    /// Returns `pieces`, the first of which begins at `begin`, as a picture of at most [`MOST_STEPS`] steps.
    pub(crate) fn steps(&self, pieces: &Pieces, begin: u64) -> Vec<Step> {
        let mut at = begin;
        let mut steps: Vec<Step> = Vec::new();
        for piece in &pieces.0 {
            if steps.len() >= MOST_STEPS {
                break;
            }
            steps.push(Step {
                at_ns: at,
                ns: piece.ns,
                chain: self.stops_of(piece.path),
            });
            at += piece.ns;
        }
        steps
    }

    fn stops_of(&self, path: PathId) -> Vec<Stop> {
        let hops: Vec<Hop> = self.paths.hops_of(path).collect();
        let stop = |(index, hop): (usize, &Hop)| {
            let (label, tid) = self.label(*hop, &hops[..index]);
            Stop {
                // The label names the thread that has the CPU. The row of the picture belongs to the thread that
                // waits for it.
                task: (self.comm(hop.actor)).map(|comm| comm.to_string()),
                tid: match label.task == self.comm(hop.actor) {
                    true => tid,
                    false => self.paths.actor_at(hop.actor).tid.filter(|&tid| tid != 0),
                },
                cause: label.cause.to_owned(),
                text: label.text,
            }
        };
        hops.iter().enumerate().map(stop).collect()
    }
}
