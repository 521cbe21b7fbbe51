use super::churn::Churn;
use super::log_normal::log_uniform;
use super::{PAGE, map, streams};
use crate::memory::{MemoryEvent, Placing};
use crate::random::Random;
use crate::units::Bytes;

/// A program that changes its mind: `n` ranges live, one freed at random and one mapped in turn.
/// The sizes are a mix of [`Phases::SIZES`], equally likely, and every [`Phases::STEPS`] steps (a
/// free and a map) there is a fresh mix, so that ranges kept for the old sizes are useless.
/// The sizes of a mix are drawn from 1 to 512 pages, their logarithm uniform; two may be equal.
#[derive(Debug, Clone)]
pub struct Phases {
    n: u32,
    operations: u64,
    seed: u64,
}

impl Phases {
    /// Sizes of one mix.
    pub const SIZES: usize = 16;
    /// Steps with one mix. The first also has the layout.
    pub const STEPS: u32 = 50_000;
    /// The default number of live ranges.
    pub const USUAL_N: u32 = 10_000;

    /// `n` ranges live, then `operations` operations: a free, a map, a free ...
    #[must_use]
    pub fn new(n: u32, operations: u64, seed: u64) -> Phases {
        Phases {
            n,
            operations,
            seed,
        }
    }

    /// Its events.
    pub fn events(&self) -> impl Iterator<Item = MemoryEvent> + use<> {
        let [mut sizes, choice, mut mixes] = streams(self.seed);
        let mut mix = fresh(&mut mixes);
        let mut left = u64::from(self.n) + u64::from(Phases::STEPS);
        Churn::new(self.n, self.n, self.operations, choice, move |id| {
            if left == 0 {
                mix = fresh(&mut mixes);
                left = u64::from(Phases::STEPS);
            }
            left -= 1;
            map(id, mix[sizes.index(mix.len())], Placing::ANYWHERE)
        })
    }
}

fn fresh(random: &mut Random) -> [Bytes; Phases::SIZES] {
    std::array::from_fn(|_| Bytes(PAGE.0 * log_uniform(random, 9)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_mix_shifts_and_only_then() {
        let steps = u64::from(Phases::STEPS);
        let sizes: Vec<u64> = Phases::new(1_000, 6 * steps, 4)
            .events()
            .filter_map(|event| match event {
                MemoryEvent::Map { length, .. } => Some(length.0),
                _ => None,
            })
            .collect();
        let (first, rest) = sizes.split_at(1_000 + Phases::STEPS as usize);
        let mixes: Vec<BTreeSet<u64>> = std::iter::once(first)
            .chain(rest.chunks(Phases::STEPS as usize))
            .map(|phase| phase.iter().copied().collect())
            .collect();
        assert_eq!(mixes.len(), 3);
        for pair in mixes.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
        for mix in &mixes {
            assert!((2..=16).contains(&mix.len()), "{mix:?}");
            assert!(mix.iter().all(|size| (4_096..=512 * 4_096).contains(size)));
        }
    }
}
