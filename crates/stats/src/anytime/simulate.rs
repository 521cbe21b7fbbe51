//! Measures the bets beside other methods, in simulations with a known truth.
//!
//! Each simulation draws the noise of 600 moments, and every method runs both commands in them in its own order:
//!
//! * ours: 300 pairs, each in an order drawn by a coin, and 150 blocks `ABBA` or `BAAB`, looked at after each;
//! * Mann and Whitney's test and Welch's of the first 10, 30 and 60 of the same pairs, and after each pair from 5 to 60;
//! * hyperfine: ten runs of one command, then ten of the other, and Welch's test;
//! * the anytime-valid t-test of Lindon and others, of the same pairs, after each of 300;
//! * tango: alternating pairs, its filter and its threshold, after 60 and 300.
//!
//! The later side is then changed by each of [`CHANGES`] in the same noise, so the columns are not independent.
//!
//! # Figures
//!
//! `stopgap-bench anytime --simulations 2000 --seed 1`, in per cent; the standard error is 0.2 at 1 %, 0.5 at 5 % and 1.1 at 50 %.
//! MW is Mann and Whitney's test at 5 %; "looking" is after each pair from 5 to 60; Lindon is the anytime-valid t-test at 1 %.
//!
//! | called different, equal sides | ours 1 % | ours 5 % | MW 60 | MW looking | Welch looking | hyperfine | tango 300 |
//! |---|---|---|---|---|---|---|---|
//! | normal noise, 1 to 15 % | 0.5 | 2.9 | 4.6 | 25 | 27 | 4 | 0 to 0.9 |
//! | 10 % of runs twice as slow | 0.6 | 3.5 | 4.3 | 26 | 20 | 1 | 17 |
//! | drift, random walk, AR(1) | 0.4 to 0.7 | 2.7 to 3.4 | 0 to 0.8 | 4 to 14 | 4 to 16 | 17 to 55 | 0 to 1.6 |
//! | Pareto tails | 1.0 | 4.0 | 4.9 | 26 | 15 | 1 | 5 |
//! | every second run 5 % slower | 0.5 | 3.1 | 14 | 56 | 61 | 0 | 0 |
//! | skew, clock steps, stretches, counts | 0.4 to 0.8 | 3.2 to 3.7 | 4 to 5 | 25 to 28 | 21 to 30 | 2 to 5 | 0 to 3 |
//!
//! | found within 60 pairs | ours 1 % | ours 5 % | Lindon 1 % | MW 30 | MW 60 | Welch 60 |
//! |---|---|---|---|---|---|---|
//! | +2 %, noise 1 % | 100 | 100 | 100 | 100 | 100 | 100 |
//! | +2 %, noise 5 % | 8 | 22 | 11 | 30 | 54 | 56 |
//! | +5 %, noise 5 % | 92 | 98 | 95 | 94 | 100 | 100 |
//! | +2 %, 10 % of runs twice as slow | 85 | 92 | 6 | 100 | 100 | 6 |
//! | +2 %, Pareto tails | 64 | 81 | 20 | 97 | 100 | 35 |
//! | slow mode 10 -> 40 % | 62 | 81 | 67 | 51 | 80 | 98 |
//!
//! The price of looking is the distance to a test of a fixed number at the same level. The price of assuming nothing of
//! the noise is the distance to Lindon's test under normal noise: 35 pairs for 31 (+5 %, noise 5 %), 153 for 141 (+2 %). Within
//! 300 pairs all of the changes above are found, the second one in 92 %. The slow mode takes 51 pairs at the median.
//!
//! Blocks take more runs than pairs, in every world but the one in which each second run is slower: a block that meets a slow
//! run is lost as a whole, and ten blocks are the fewest.
//!
//! Equal sides are called `same` within 3 % after 11 pairs (noise 1 %), 107 (5 %), 46 (Pareto tails). With slow runs of
//! 10 % it takes more than 300 in 72 %, because the mean is open that long. A changed slow mode was called `same` in 0.2 %, and a
//! side slower by 5 % never. Intervals held the truth at all of 300 looks in 99.0 to 99.8 %. Comparisons that stop at
//! `same` call equal sides `worse` or `better` in 0.1 % (noise 1 %) to 0.85 % (Pareto tails).

mod peers;
mod world;

use stopgap_events::random::Random;

use super::{Look, Options, Sequence, Word, difference, log_margin, ratio};
use world::Slot;
pub use world::{EQUAL, UNEQUAL, World};

/// Most pairs of a comparison.
pub const UNITS: usize = 300;

/// Pairs after which results are counted a first time. Methods that look after each pair stop there.
pub const EARLY: usize = 60;

/// Shares by which the later side is made longer.
pub const CHANGES: [f64; 4] = [0.0, 0.02, 0.05, 0.10];

/// Levels of our method.
pub const ALPHAS: [f64; 2] = [0.01, 0.05];

/// The margin of `same`.
pub const MARGIN: f64 = super::MARGIN;

/// Other methods, in the order of [`Tally::peers`].
pub const PEERS: [&str; 11] = [
    "Mann-Whitney, 10 pairs",
    "Mann-Whitney, 30 pairs",
    "Mann-Whitney, 60 pairs",
    "Mann-Whitney, each look to 60",
    "Welch, 10 pairs",
    "Welch, 30 pairs",
    "Welch, 60 pairs",
    "Welch, each look to 60",
    "hyperfine, 10 then 10",
    "tango, 60 pairs",
    "tango, 300 pairs",
];

/// Counts of one of our comparisons.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ours {
    /// Comparisons whose evidence ever reached the level within 60 and 300 pairs of runs, with any word.
    pub different: [u32; 2],
    /// Comparisons whose word was `worse`, and `better`.
    pub words: [u32; 2],
    /// Comparisons called `same` within 60 and 300 pairs of runs.
    pub same: [u32; 2],
    /// Pairs of runs that each difference took.
    pub pairs_different: Vec<u32>,
    /// Likewise for `same`.
    pub pairs_same: Vec<u32>,
    /// Intervals that held the truth from beginning to end.
    pub covered: u32,
}

impl Ours {
    fn add(&mut self, other: Ours) {
        for at in 0..2 {
            self.different[at] += other.different[at];
            self.same[at] += other.same[at];
        }
        for at in 0..2 {
            self.words[at] += other.words[at];
        }
        self.pairs_different.extend(other.pairs_different);
        self.pairs_same.extend(other.pairs_same);
        self.covered += other.covered;
    }

    /// Takes the units of one comparison. Each unit is `pairs_of_unit` pairs of runs.
    fn count(&mut self, alpha: f64, units: &[f64], pairs_of_unit: usize, truth: f64) {
        let mut sequence = Sequence::new(Options {
            alpha,
            endpoints: 1,
            margin: log_margin(MARGIN),
        });
        let mut different = None;
        for (at, &d) in units.iter().enumerate() {
            if sequence.push(d).is_err() {
                return;
            }
            if different.is_none() && sequence.is_different() {
                different = Some((at + 1) * pairs_of_unit);
            }
        }
        let look: Look = sequence.look();
        if let Some(pairs) = different {
            self.different[0] += u32::from(pairs <= EARLY);
            self.different[1] += 1;
            self.pairs_different.push(pairs as u32);
        }
        for (count, word) in self.words.iter_mut().zip([Word::Worse, Word::Better]) {
            *count += u32::from(look.word == word);
        }
        if look.word == Word::Same {
            let pairs = look.decided_at.unwrap_or(0) * pairs_of_unit;
            self.same[0] += u32::from(pairs <= EARLY);
            self.same[1] += 1;
            self.pairs_same.push(pairs as u32);
        }
        self.covered += u32::from(look.one_shift && look.holds(truth));
    }
}

/// Counts of a world and a change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Simulations.
    pub simulations: u32,
    /// Ours with pairs, by level.
    pub pairs: [Ours; 2],
    /// Ours with blocks, at the first level.
    pub blocks: Ours,
    /// Pairs that the anytime-valid t-test took at the first of [`ALPHAS`].
    pub anytime_t: Vec<u32>,
    /// How often each of [`PEERS`] called the sides different.
    pub peers: [u32; PEERS.len()],
}

impl Tally {
    /// Adds another part of the same simulations.
    pub fn add(&mut self, other: Tally) {
        self.simulations += other.simulations;
        for (ours, other) in self.pairs.iter_mut().zip(other.pairs) {
            ours.add(other);
        }
        self.blocks.add(other.blocks);
        self.anytime_t.extend(other.anytime_t);
        for (own, other) in self.peers.iter_mut().zip(other.peers) {
            *own += other;
        }
    }
}

/// Runs both commands in pairs of slots, the later side first where the coin says so.
fn in_pairs(world: World, slots: &[Slot], coins: &[bool], change: f64) -> (Vec<f64>, Vec<f64>) {
    let pairs = slots.chunks_exact(2).zip(coins);
    let runs = pairs.map(|(pair, &is_later_first)| {
        let (before, after) = if is_later_first {
            (pair[1], pair[0])
        } else {
            (pair[0], pair[1])
        };
        (
            world.run(before, false, 0.0),
            world.run(after, true, change),
        )
    });
    runs.unzip()
}

/// Returns the figure of a unit.
fn figure(world: World, before: &[f64], after: &[f64]) -> f64 {
    let figure = if world.is_of_counts() {
        difference(before, after)
    } else {
        ratio(before, after)
    };
    figure.unwrap_or(f64::NAN)
}

/// Simulates a world once, and counts into a tally for each of [`CHANGES`]; only into the first where the world is of counts or
/// its sides differ by themselves.
pub fn one(world: World, seed: u64, tallies: &mut [Tally; CHANGES.len()]) {
    let mut random = Random::new(seed);
    let slots = world.slots(2 * UNITS, &mut random);
    let coins: Vec<bool> = (0..UNITS).map(|_| random.bits() >> 63 == 1).collect();
    let changes = if world.is_of_counts() || UNEQUAL.contains(&world) {
        &CHANGES[..1]
    } else {
        &CHANGES[..]
    };
    for (change, tally) in changes.iter().zip(tallies) {
        let change = change.ln_1p();
        tally.simulations += 1;
        let run = |slot: &Slot, is_later| world.run(*slot, is_later, change);
        let unit = |before: &[f64], after: &[f64]| figure(world, before, after);

        let (before, after) = in_pairs(world, &slots, &coins, change);
        let units: Vec<f64> = before
            .iter()
            .zip(&after)
            .map(|(&a, &b)| unit(&[a], &[b]))
            .collect();
        for (ours, alpha) in tally.pairs.iter_mut().zip(ALPHAS) {
            ours.count(alpha, &units, 1, change);
        }

        let took = peers::anytime_t(&units, ALPHAS[0]);
        tally.anytime_t.extend(took.map(|pairs| pairs as u32));

        let blocks: Vec<f64> = slots
            .chunks_exact(4)
            .zip(&coins)
            .map(|(block, &is_outer)| {
                let outer = [&block[0], &block[3]].map(|slot| run(slot, is_outer));
                let inner = [&block[1], &block[2]].map(|slot| run(slot, !is_outer));
                if is_outer {
                    unit(&inner, &outer)
                } else {
                    unit(&outer, &inner)
                }
            })
            .collect();
        tally.blocks.count(ALPHAS[0], &blocks, 2, change);

        let alternating = |is_later: bool| -> Vec<f64> {
            let own = |(at, pair): (usize, &[Slot])| {
                run(&pair[usize::from((at % 2 == 1) != is_later)], is_later)
            };
            slots.chunks_exact(2).enumerate().map(own).collect()
        };
        let (old, new) = (alternating(false), alternating(true));
        let one_by_one = |from: usize, is_later| -> Vec<f64> {
            slots[from..from + 10]
                .iter()
                .map(|slot| run(slot, is_later))
                .collect()
        };
        let (ranks, t) = (peers::mann_whitney, peers::welch);
        let found = [
            ranks(&before[..10], &after[..10]),
            ranks(&before[..30], &after[..30]),
            ranks(&before[..60], &after[..60]),
            peers::looking(ranks, &before, &after, EARLY),
            t(&before[..10], &after[..10]),
            t(&before[..30], &after[..30]),
            t(&before[..60], &after[..60]),
            peers::looking(t, &before, &after, EARLY),
            t(&one_by_one(0, false), &one_by_one(10, true)),
            peers::tango(&old[..60], &new[..60]),
            peers::tango(&old, &new),
        ];
        for (count, found) in tally.peers.iter_mut().zip(found) {
            *count += u32::from(found);
        }
    }
}

#[cfg(test)]
mod tests;
