//! How much is held.

use stopgap_events::units::{Bytes, Nanos};

use super::Fragment;

/// What stays available at every moment, where the machine has three times as much.
pub const RESERVE: Bytes = Bytes::gib(6);

/// Taken in large blocks before most of it is given back.
pub(super) const STEP: Bytes = Bytes::mib(32);

/// What a GiB of free memory takes, the strategy included: 40 s for 18 GiB on Linux 6.18, two CPUs of a virtual machine
/// whose host takes back what is free, so that nine tenths of it are clearing pages; 0.5 s where it does not.
const TIME_OF_GIB: Nanos = Nanos::millis(2_200);

/// The sizes of one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// Kind of state.
    pub fragment: Fragment,
    /// Memory that is gone through at most: what is free, and a quarter more where the machine has as much.
    pub through: Bytes,
    /// Never less than this is available.
    pub reserve: Bytes,
}

impl Recipe {
    /// The recipe for a machine with `free` bytes of free memory, of which it keeps the share that `fragment` says, and
    /// with `available` bytes, page cache included, of `total`.
    ///
    /// # Errors
    /// Where less than [`RESERVE`], or on a smaller machine a third of what is available, would stay available.
    pub fn new(
        fragment: Fragment,
        free: Bytes,
        available: Bytes,
        total: Bytes,
    ) -> Result<Recipe, String> {
        let steps = |bytes: u64| bytes.div_ceil(STEP.0).saturating_mul(STEP.0);
        // A mapping of all memory, alignment included, is refused (6.18, mm/util.c, __vm_enough_memory).
        let most = steps(total.0).saturating_sub(2 * STEP.0);
        let recipe = Recipe {
            fragment,
            // Others give memory back meanwhile.
            through: Bytes(steps(free.0 / 4 * 5).min(most).max(steps(free.0))),
            reserve: RESERVE.min(Bytes(available.0 / 3)),
        };
        // Memory that others gave back is available as well.
        let left = available.saturating_sub(Bytes(free.0 / fragment.keep.one_in()) + STEP);
        if left < recipe.reserve || free < STEP {
            return Err(format!(
                "fragmenting {} of {free} free memory holds {}: of {available} that are available {} must stay",
                fragment.keep,
                recipe.peak(),
                recipe.reserve,
            ));
        }
        Ok(recipe)
    }

    /// Returns the most memory that the holder has at one time.
    #[must_use]
    pub fn peak(&self) -> Bytes {
        Bytes(self.through.0.div_ceil(self.fragment.keep.one_in())) + STEP
    }

    /// The largest share of pages that can be kept so that the holder has at most `budget` at one time, as `1/11`:
    /// less than one page kept in k leaves free blocks of k pages, so there is no other way to need less.
    #[must_use]
    pub fn fitting_ratio(&self, budget: Bytes) -> Option<super::Ratio> {
        let room = budget.saturating_sub(STEP);
        super::Ratio::new(self.through.0.div_ceil(room.0.max(1)).max(2))
    }

    /// How long one state takes, about.
    #[must_use]
    pub fn time(&self) -> Nanos {
        let mib = (self.through.0 / 5 * 4) >> 20;
        Nanos(mib.saturating_mul(TIME_OF_GIB.0 >> 10))
    }

    /// How many of `states` are made within `time`: at least the first, then as many as end in time.
    #[must_use]
    pub fn fitting(&self, states: u64, time: Nanos) -> u64 {
        (time.0 / self.time().0.max(1)).clamp(1, states.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::fragment::Ratio;
    use proptest::prelude::*;

    fn fragment(one_in: u64) -> Fragment {
        Fragment {
            keep: Ratio::new(one_in).unwrap(),
            pinned: false,
        }
    }

    fn recipe(one_in: u64, free: Bytes) -> Result<Recipe, String> {
        Recipe::new(fragment(one_in), free, free, Bytes(free.0 * 2))
    }

    #[test]
    fn every_size_of_machine_is_served() {
        for gib in [1, 2, 4, 8, 16, 64, 1_024] {
            let recipe = recipe(4, Bytes::gib(gib)).unwrap();
            assert!(recipe.peak() <= Bytes(Bytes::gib(gib).0 / 16 * 5 + 2 * STEP.0));
            assert!(recipe.reserve <= RESERVE);
        }
        let error = recipe(2, Bytes::mib(100)).unwrap_err();
        assert!(error.contains("must stay"), "{error}");
        assert!(recipe(4, Bytes(0)).is_err());
    }

    #[test]
    fn a_budget_has_a_ratio_that_fits_it() {
        let recipe = recipe(4, Bytes::gib(20)).unwrap();
        assert!(recipe.peak() > Bytes::gib(2));
        let fits = recipe.fitting_ratio(Bytes::gib(2)).unwrap();
        assert_eq!(fits.to_string(), "1/13");
        let recipe = Recipe::new(
            Fragment {
                keep: fits,
                pinned: true,
            },
            Bytes::gib(20),
            Bytes::gib(20),
            Bytes::gib(40),
        );
        assert!(recipe.unwrap().peak() <= Bytes::gib(2));
    }

    /// A machine that has just booted has next to all of its memory free.
    #[test]
    fn no_more_is_mapped_than_there_is() {
        let [free, total] = [23_916, 24_105].map(Bytes::mib);
        let recipe = Recipe::new(fragment(4), free, free, total).unwrap();
        assert!(recipe.through >= free && recipe.through + Bytes::mib(2) < total);
    }

    /// 15 states take ten minutes, however short the time is that they are given.
    #[test]
    fn a_plan_says_the_time_that_it_takes() {
        let recipe = recipe(4, Bytes::gib(19)).unwrap();
        let each = recipe.time();
        assert!((Nanos::secs(38)..Nanos::secs(44)).contains(&each), "{each}");
        let fitting = |time| recipe.fitting(15, time);
        assert_eq!(fitting(Nanos::secs(10)), 1);
        assert_eq!(fitting(Nanos::secs(100)), 2);
        assert_eq!(fitting(Nanos::secs(640)), 15);
    }

    proptest! {
        /// At every moment of the recipe the reserve is available.
        #[test]
        fn the_reserve_stays_available(one_in in 2u64..=512, mib in 0u64..1 << 22, cache in 0u64..1 << 22) {
            let (free, available) = (Bytes::mib(mib), Bytes::mib(mib + cache));
            if let Ok(recipe) = Recipe::new(fragment(one_in), free, available, available) {
                let kept = Bytes(free.0 / one_in) + STEP;
                prop_assert!(kept + recipe.reserve <= available);
                prop_assert!(recipe.through >= free);
            }
        }
    }
}
