use std::ops::Range;

use stopgap_events::random::Random;

use crate::chunks::buddy::{BuddyError, Mobility, Piece, Use};

use super::{Pair, Step};

/// Events of a soak so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Met {
    /// Steps taken.
    pub steps: u64,
    /// Blocks taken.
    pub taken: u64,
    /// Requests for which nothing was large enough.
    pub exhausted: u64,
    /// Blocks freed.
    pub given: u64,
    /// Steps that could not be: of a page beyond the memory, a free page given, and so on.
    pub refused: u64,
    /// Fallbacks for which 2 MiB blocks changed their type.
    pub claimed: u64,
    /// Fallbacks that took a piece.
    pub pieces: u64,
}

/// Steps from one seed: then the next scene begins.
const STRETCH: u64 = 5_000;

/// Between two comparisons of all that can be seen.
const COMPARE_EVERY: u64 = 97;

/// Pages of the memory, and the largest order that is asked for often: whole and broken 2 MiB and 4 MiB blocks at the
/// end, from some pages to several times the largest block.
const SCENES: [(u64, u32); 12] = [
    (1, 0),
    (7, 2),
    (64, 4),
    (512, 9),
    (300, 6),
    (1_024, 10),
    (1_023, 4),
    (1_536, 9),
    (1_600, 3),
    (2_048, 1),
    (3_000, 9),
    (4_096, 10),
];

/// Holds a [`Buddy`](crate::chunks::buddy::Buddy) to a [`Naive`](super::Naive) for `steps` random steps that `seed`
/// fixes, of all kinds, good and bad, in memories of several sizes, crowded and roomy in turn. A few
/// microseconds a step. `go_on` receives the events from time to time and returns whether to continue.
///
/// # Errors
/// The first difference, and the seed from which a soak meets it at once: the step's number is counted from there.
pub fn soak(steps: u64, seed: u64, mut go_on: impl FnMut(&Met) -> bool) -> Result<Met, String> {
    let mut met = Met::default();
    let mut seed = seed;
    while met.steps < steps && go_on(&met) {
        // The seed alone leads to a scene again.
        let scene = (seed % (2 * SCENES.len() as u64)) as usize;
        let (pages, order) = SCENES[scene / 2];
        let of = [None, Some(Use::Reclaimable)][scene % 2];
        let old = seed / (2 * SCENES.len() as u64) % 2 == 1;
        let named = |what: String| {
            let begins = of.map_or("free", Use::word);
            format!("seed {seed} ({pages} pages, {begins} at first): {what}")
        };
        let pair = Pair::new(pages, of).map_err(|what| named(what.to_string()))?;
        let pair = if old { pair.of_3_14() } else { pair };
        let left = STRETCH.min(steps - met.steps);
        Stretch::new(pair, order, seed)
            .run(left, &mut met)
            .map_err(named)?;
        seed = seed.wrapping_add(1);
    }
    Ok(met)
}

/// Random steps on one memory.
struct Stretch {
    pair: Pair,
    random: Random,
    largest: u32,
    /// What is used, by first frame and order; some pages of it may be free or holes by now.
    held: Vec<(u64, u32)>,
    /// A hole that was met in what was to be given: it is filled next, so that the memory can become whole again.
    hole: Option<u64>,
    /// Out of 64 steps, how many take: it changes, so that the memory fills and empties.
    takes: u64,
    /// Out of 8 takes, how many are movable: it changes, so that one type grows into the other's blocks.
    movable: u64,
}

impl Stretch {
    fn new(pair: Pair, largest: u32, seed: u64) -> Stretch {
        let mut stretch = Stretch {
            pair,
            random: Random::new(seed),
            largest,
            held: Vec::new(),
            hole: None,
            takes: 32,
            movable: 4,
        };
        stretch.hold_used(0..u64::MAX);
        stretch
    }

    fn run(mut self, steps: u64, met: &mut Met) -> Result<(), String> {
        for taken in 1..=steps {
            if taken % 512 == 1 {
                self.takes = 2 + self.random.below(46);
                self.movable = self.random.below(9);
            }
            let held = self.held.len();
            let step = self.draw();
            let answer = self
                .pair
                .step(step)
                .map_err(|what| format!("step {taken}: {what}"))?;
            met.steps += 1;
            match (step, answer) {
                (_, Err(why)) => {
                    met.refused += 1;
                    if self.held.len() < held {
                        self.mend(step, why);
                    }
                }
                (Step::Take(..), Ok(None)) => met.exhausted += 1,
                (Step::Take(order, ..), Ok(Some(frame))) => {
                    met.taken += 1;
                    self.held.push((frame, order));
                }
                (Step::Give(..), Ok(_)) => met.given += 1,
                (Step::TakeAt(frame, _), Ok(_)) => self.held.push((frame, 0)),
                (Step::SetUse(..) | Step::SetBlock(..), Ok(_)) => {}
            }
            if taken == steps || taken.is_multiple_of(COMPARE_EVERY) {
                let whole = self.pair.compare();
                whole.map_err(|what| format!("after step {taken}, {step:?}: {what}"))?;
            }
        }
        let fallbacks = self.pair.buddy().fallbacks();
        met.claimed += fallbacks.claimed;
        met.pieces += fallbacks.pieces;
        Ok(())
    }

    /// What was held and could not be given is tried again, or the pages of it that are still used.
    fn mend(&mut self, step: Step, why: BuddyError) {
        match (step, why) {
            (Step::Give(frame, order), BuddyError::IsHole { frame: hole }) => {
                self.hole = Some(hole);
                self.held.push((frame, order));
            }
            (Step::Give(frame, order), BuddyError::IsFree { .. }) => {
                self.hold_used(frame..frame + (1 << order));
            }
            _ => {}
        }
    }

    /// Each used page for itself.
    fn hold_used(&mut self, frames: Range<u64>) {
        for piece in self.pair.buddy().walk(frames) {
            if let Piece::Used { frame, .. } = piece {
                self.held.push((frame, 0));
            }
        }
    }

    fn draw(&mut self) -> Step {
        if let Some(hole) = self.hole.take() {
            return Step::SetUse(hole, Use::Movable);
        }
        let of = Use::ALL[self.random.index(Use::ALL.len())];
        match self.random.below(64) {
            n if n < self.takes => self.draw_take(),
            n if n < 54 => self.draw_give(),
            54 | 55 => Step::TakeAt(self.frame(), of),
            56 | 57 => Step::SetUse(self.frame(), of),
            58 | 59 => {
                let mobility = Mobility::ALL[self.random.index(Mobility::ALL.len())];
                Step::SetBlock(self.frame(), mobility)
            }
            // Mostly bad: a free page, not aligned, a hole, beyond the memory, no such order.
            60 | 61 => Step::Give(self.frame(), self.order()),
            62 => Step::Take(self.random.below(1 << 32) as u32, self.mobility(), of),
            _ => Step::Give(self.random.bits(), self.random.below(12) as u32),
        }
    }

    fn draw_take(&mut self) -> Step {
        let mobility = self.mobility();
        let of = match (mobility, self.random.below(16)) {
            (_, 0) => Use::Pinned,
            (Mobility::Movable, 1..5) => Use::Movable,
            (Mobility::Movable, _) => Use::Reclaimable,
            (Mobility::Unmovable | Mobility::Reserve, _) => Use::Unmovable,
        };
        Step::Take(self.order(), mobility, of)
    }

    /// Something held, whole or in part; some of it may be free by now.
    fn draw_give(&mut self) -> Step {
        if self.held.is_empty() {
            return Step::Give(self.frame(), 0);
        }
        let place = self.random.index(self.held.len());
        let (frame, order) = self.held[place];
        if order > 0 && self.random.below(8) == 0 {
            let part = self.random.below(u64::from(order)) as u32;
            let at = self.random.below(1 << (order - part)) << part;
            return Step::Give(frame + at, part);
        }
        self.held.swap_remove(place);
        Step::Give(frame, order)
    }

    fn mobility(&mut self) -> Mobility {
        if self.random.below(8) < self.movable {
            Mobility::Movable
        } else {
            Mobility::Unmovable
        }
    }

    /// Often the least and the scene's largest, and seldom one above that.
    fn order(&mut self) -> u32 {
        match self.random.below(32) {
            0 => self.random.below(11) as u32,
            1..12 => 0,
            12..16 => self.largest,
            _ => self.random.below(u64::from(self.largest) + 1) as u32,
        }
    }

    /// A frame of the memory, or one of the next beyond it.
    fn frame(&mut self) -> u64 {
        self.random.below(self.pair.buddy().pages() + 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_does_as_the_naive_one() {
        let met = soak(300_000, 1, |_| true).unwrap();
        assert_eq!(met.steps, 300_000);
        let Met {
            steps: _,
            taken,
            exhausted,
            given,
            refused,
            claimed,
            pieces,
        } = met;
        for count in [taken, exhausted, given, refused, claimed, pieces] {
            assert!(count > 300, "{met:?}");
        }
        println!("{met:?}");
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        let met = soak(1_000_000, 1, |met| met.steps < 10_000).unwrap();
        assert_eq!(met.steps, 10_000);
    }
}
