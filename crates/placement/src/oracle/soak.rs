//! Steps without end: every policy of the registry against what it is held to.

use alloc::format;
use alloc::string::String;

use crate::by_handle::ByHandle;
use crate::contract::{Direction, Policy, Range, Space};
use crate::registry::{Name, Visit};
use crate::stopgap::Stopgap;

use super::{
    Answer, ByRange, Differential, Era, Fragments, NaiveFreeAreaCache, Pair, Shape, best_fit,
    linux_3_8, linux_6,
};

/// The test that a policy must pass.
#[derive(Clone, Copy)]
pub enum Held {
    /// Requests of [`Differential`], in the given shape.
    Answer(Answer),
    /// To do as [`NaiveFreeAreaCache`] does.
    FreeAreaCache(Era),
    /// To do as [`Fragments`] does.
    Fragments,
}

/// Returns the test for `name` in an address space of `layout`.
#[must_use]
pub fn held(name: Name, layout: Direction) -> Held {
    let rule = |rule| Held::Answer(Answer::Rule(rule));
    match name {
        Name::Linux2_6_35 => Held::FreeAreaCache(Era::Linux2_6_35),
        Name::Linux3_4 => Held::FreeAreaCache(Era::Linux3_4),
        Name::Linux3_8 | Name::VanRielV1 | Name::WeinerLazy => rule(linux_3_8::rule),
        Name::Linux6_1 => rule(linux_6::linux_6_1),
        Name::Linux6_7 => rule(linux_6::linux_6_7),
        Name::Linux6_12 => rule(linux_6::linux_6_12),
        Name::BestFit if layout == Direction::BottomUp => rule(best_fit::bottom_up),
        Name::BestFit => rule(best_fit::top_down),
        Name::BestFitNoCoalesce => Held::Fragments,
        Name::Stopgap => Held::Answer(Answer::Nearly),
    }
}

/// Counters of a soak so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Met {
    /// Steps taken.
    pub steps: u64,
    /// Requests refused because nothing was left.
    pub exhausted: u64,
    /// Ranges placed.
    pub placed: u64,
    /// Ranges freed.
    pub freed: u64,
}

/// Steps from one seed: then the next scene begins with an empty space.
const STRETCH: u64 = 5_000;

/// Between two looks at the policy's invariants and statistics, which walk everything.
const CHECK_EVERY: u64 = 97;

/// First page and pages of the windows, ranges held on average, largest size in pages: from crowded to
/// roomy, from some pages to all that a window may have.
const SCENES: [(u64, u64, usize, u64); 14] = [
    (0x100, 128, 48, 12),
    (5, 9_000, 60, 300),
    (0, 16, 6, 5),
    (7, 3, 2, 2),
    (1, 1_024, 200, 8),
    (0x7_fff0, 100_000, 48, 64),
    (0x400, 40, 30, 2),
    (1, 4_096, 200, 90),
    (0, 300, 30, 30),
    (16, (1 << 35) - 16, 60, 1 << 33),
    (3, 1 << 20, 200, 1 << 13),
    (1, 260_000, 1_000, 512),
    (6, 30_000, 250, 191),
    (2, 1 << 18, 90, 1 << 12),
];

/// Holds `name` to what it is held to for `steps` random steps of all kinds (good and bad requests,
/// limits, alignment, hints, all directions, VMAs that merge and such that do not, both layouts), in
/// windows of several sizes. Some microseconds a step. `go_on` gets the counters from time to time, and
/// says whether to go on.
///
/// # Errors
/// The first difference, with all that leads to it again.
pub fn soak(
    name: Name,
    steps: u64,
    seed: u64,
    mut go_on: impl FnMut(&Met) -> bool,
) -> Result<Met, String> {
    let mut met = Met::default();
    let mut seed = seed;
    for (first, pages, live, largest) in SCENES.into_iter().cycle() {
        for merging in [false, true] {
            for layout in [Direction::TopDown, Direction::BottomUp] {
                let left = STRETCH.min(steps - met.steps);
                if left == 0 || !go_on(&met) {
                    return Ok(met);
                }
                // A PMD of small pages is soon reached.
                let page = if is_linux_6(name) { 64 } else { 0x1000 };
                let window = Range::new(first * page, (first + pages) * page);
                let space = Space::new(window, page).map_err(|what| format!("{window}: {what}"))?;
                let stretch = Stretch {
                    held: held(name, layout),
                    layout,
                    shape: Shape {
                        live,
                        pages: largest,
                        merging,
                        ..Shape::ALL
                    },
                    seed,
                    steps: left,
                };
                let taken = if name == Name::Stopgap && merging && layout == Direction::BottomUp {
                    // Nor of layouts: what is placed by handle is held to the same, in the shape that it knows.
                    let shape = Shape {
                        limits: false,
                        hints: false,
                        directions: &[Direction::Any],
                        merging: false,
                        ..stretch.shape
                    };
                    let stretch = Stretch { shape, ..stretch };
                    stretch.visit(ByRange::new(ByHandle::new(space)))
                } else if name == Name::Stopgap && merging {
                    // Ours knows nothing of merging: instead it is held to fail only where nothing fits.
                    let held = Held::Answer(Answer::Valid);
                    let stretch = Stretch { held, ..stretch };
                    stretch.visit(Stopgap::new(space).certain())
                } else {
                    name.visit(space, layout, stretch)
                };
                let [exhausted, placed, freed] = taken.map_err(|what| {
                    format!("{name}, window {window}, {layout:?}, seed {seed}: {what}")
                })?;
                met.steps += left;
                met.exhausted += exhausted;
                met.placed += placed;
                met.freed += freed;
                seed = seed.wrapping_add(1);
            }
        }
    }
    Ok(met)
}

fn is_linux_6(name: Name) -> bool {
    matches!(name, Name::Linux6_1 | Name::Linux6_7 | Name::Linux6_12)
}

struct Stretch {
    held: Held,
    layout: Direction,
    shape: Shape,
    seed: u64,
    steps: u64,
}

impl Visit for Stretch {
    type Output = Result<[u64; 3], String>;

    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Result<[u64; 3], String> {
        let Stretch {
            held,
            layout,
            mut shape,
            seed,
            steps,
        } = self;
        let space = policy.space();
        match held {
            Held::Answer(answer) => {
                shape.merging &= policy.keeps_vmas();
                let mut run = Differential::new(policy, answer, shape, seed);
                run.run(steps, CHECK_EVERY)?;
                Ok(run.counts())
            }
            Held::FreeAreaCache(era) => {
                // All that these searches know.
                shape.alignment = false;
                shape.limits = false;
                shape.directions = match layout {
                    Direction::BottomUp => &[Direction::Any, Direction::BottomUp],
                    Direction::TopDown | Direction::Any => &[Direction::Any, Direction::TopDown],
                };
                let rule = NaiveFreeAreaCache::new(era, space, layout);
                let mut run = Pair::new(policy, rule, shape, seed);
                run.run(steps, CHECK_EVERY)?;
                Ok(run.counts())
            }
            Held::Fragments => {
                shape.merging = false;
                let list = Fragments::new(space, layout);
                let mut run = Pair::new(policy, list, shape, seed).without_work();
                run.run(steps, CHECK_EVERY)?;
                Ok(run.counts())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_does_what_it_is_held_to() {
        for &name in Name::ALL {
            let met = soak(name, 60_000, 1, |_| true).unwrap();
            assert_eq!(met.steps, 60_000, "{name}");
            let least = met.exhausted.min(met.placed).min(met.freed);
            assert!(least > 100, "{name}: {met:?}");
        }
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        let met = soak(Name::BestFit, 1_000_000, 1, |met| met.steps < 10_000).unwrap();
        assert_eq!(met.steps, 10_000);
    }
}
