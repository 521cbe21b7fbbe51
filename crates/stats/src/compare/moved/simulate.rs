//! Measures how often figures that did not move are reported as moved, in thousands of comparisons of synthetic
//! accounts.
//!
//! An account has [`FIGURES`] figures. Figures of a block move together from trace to trace, every second one in the
//! opposite direction. A trace's load moves all figures. A tenth of them are 0 in most traces, and a tenth are counts
//! with ties. Some figures are larger on the later side: whole blocks or single ones.

use stopgap_events::random::Random;

use super::{Values, judge};

/// Figures of an account.
pub const FIGURES: usize = 220;

/// Figures that move together.
const BLOCK: usize = 10;

/// A world.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct World {
    /// Its special feature.
    pub name: &'static str,
    /// Number of blocks that moved.
    blocks: usize,
    /// Number of single figures that moved.
    single: usize,
    /// Share of a figure's scatter that its block has in common, 0 to 1.
    shared: f64,
    /// Whether one value in 20 is 5 times as large.
    tails: bool,
    /// Factor by which the later side's scatter is larger.
    spread: f64,
}

const fn world(name: &'static str, blocks: usize, single: usize) -> World {
    World {
        name,
        blocks,
        single,
        shared: 0.5,
        tails: false,
        spread: 1.0,
    }
}

/// All worlds.
pub const WORLDS: [World; 7] = [
    world("nothing moved", 0, 0),
    World {
        shared: 0.95,
        ..world("nothing moved, figures of a block all but equal", 0, 0)
    },
    World {
        tails: true,
        ..world("nothing moved, outliers", 0, 0)
    },
    World {
        spread: 2.0,
        ..world("nothing moved, twice the scatter after", 0, 0)
    },
    world("one block of 10 moved", 1, 0),
    world("5 single figures moved", 0, 5),
    World {
        tails: true,
        ..world("5 blocks and 10 figures moved, outliers", 5, 10)
    },
];

/// Counts of a world's simulations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    /// Simulations.
    pub simulations: u32,
    /// Mean share of false ones among the reported figures; 0 where none was reported.
    pub false_rate: f64,
    /// Share of the simulations in which a figure was reported.
    pub any: f64,
    /// Share of the moved figures that were reported.
    pub found: f64,
    /// Mean share of intervals of reported figures that miss the truth.
    pub missed: f64,
}

fn uniform(random: &mut Random) -> f64 {
    (random.below(1 << 53) as f64 + 0.5) / (1_u64 << 53) as f64
}

fn normal(random: &mut Random) -> f64 {
    let (a, b) = (uniform(random), uniform(random));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

/// By how much a figure moved, as a multiple of its scatter.
const MOVED: f64 = 4.0;

/// Makes both sides of all figures. Returns them, and by how much each moved.
fn accounts(world: &World, traces: usize, random: &mut Random) -> (Vec<Values>, Vec<f64>) {
    let mut rows = vec![Values([vec![0.0; traces], vec![0.0; traces]]); FIGURES];
    let scatter: Vec<f64> = (0..FIGURES).map(|_| 2.0 + 18.0 * uniform(random)).collect();
    // Single figures are the last ones of blocks that did not move. They are neither counts nor rare.
    let moved = |figure: usize| {
        let block = figure / BLOCK;
        let single = figure % BLOCK == 4 && (5..5 + world.single).contains(&block);
        if block < world.blocks || single {
            MOVED * scatter[figure]
        } else {
            0.0
        }
    };
    for side in [0, 1] {
        for trace in 0..traces {
            let load = normal(random);
            let mut block = 0.0;
            for figure in 0..FIGURES {
                if figure % BLOCK == 0 {
                    block = normal(random);
                }
                let sign = if figure % 2 == 0 { 1.0 } else { -1.0 };
                let own = normal(random);
                let together = 0.3 * load + sign * block;
                let mut noise = world.shared.sqrt() * together + (1.0 - world.shared).sqrt() * own;
                noise *= if side == 1 { world.spread } else { 1.0 };
                if world.tails && uniform(random) < 0.05 {
                    noise = noise.abs() * 5.0;
                }
                let mut value = 100.0 + scatter[figure] * noise;
                value += if side == 1 { moved(figure) } else { 0.0 };
                match figure % BLOCK {
                    8 => value = (value / scatter[figure]).round() * scatter[figure],
                    9 if uniform(random) < 0.7 => value = 0.0,
                    _ => {}
                }
                rows[figure].0[side][trace] = value;
            }
        }
    }
    let truth = (0..FIGURES).map(moved).collect();
    (rows, truth)
}

/// Simulates a world with this many traces per side until `goes_on` returns false.
pub fn simulate(
    world: &World,
    traces: usize,
    simulations: u32,
    seed: u64,
    mut goes_on: impl FnMut(u32) -> bool,
) -> Outcome {
    let mut outcome = Outcome::default();
    let (mut moving, mut found) = (0, 0);
    for at in 0..simulations {
        if !goes_on(at) {
            break;
        }
        let mut random = Random::new(seed.wrapping_add(u64::from(at)));
        let (rows, truth) = accounts(world, traces, &mut random);
        let together = judge(&rows, [traces; 2], seed);
        let (mut called, mut wrong, mut missed) = (0_u32, 0_u32, 0_u32);
        for (figure, (row, truth)) in together.rows.iter().zip(&truth).enumerate() {
            let moves = truth.abs() > 0.0;
            moving += u32::from(moves);
            if !row.moved {
                continue;
            }
            called += 1;
            wrong += u32::from(!moves);
            found += u32::from(moves);
            // Where most traces have 0, there is no single difference.
            let (_, ends) = together.difference(row);
            let within = ends.is_none_or(|[low, high]| (low..=high).contains(truth));
            missed += u32::from(figure % BLOCK < 8 && !within);
        }
        outcome.simulations += 1;
        outcome.any += f64::from(u8::from(called > 0));
        outcome.false_rate += f64::from(wrong) / f64::from(called.max(1));
        outcome.missed += f64::from(missed) / f64::from(called.max(1));
    }
    let n = f64::from(outcome.simulations.max(1));
    outcome.any /= n;
    outcome.false_rate /= n;
    outcome.missed /= n;
    outcome.found = f64::from(found) / f64::from(moving.max(1));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few simulations of each world. The command makes thousands.
    #[test]
    fn false_discoveries_are_held() {
        let simulations = 120;
        for world in &WORLDS {
            let outcome = simulate(world, 6, simulations, 1, |_| true);
            println!("{}: {outcome:?}", world.name);
            // 5 % plus three standard errors.
            assert!(
                outcome.false_rate <= 0.05 + 0.06,
                "{}: {outcome:?}",
                world.name
            );
        }
        let found = simulate(&WORLDS[4], 6, simulations, 1, |_| true).found;
        assert!(found > 0.3, "{found}");
        let found = simulate(&WORLDS[6], 8, simulations, 1, |_| true).found;
        assert!(found > 0.5, "{found}");
    }
}
