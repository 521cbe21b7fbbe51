//! How much to fill and to eat.

use stopgap_events::units::{Bytes, Nanos};

use super::Fragment;

/// What stays free at every moment.
pub const RESERVE: Bytes = Bytes::gib(6);

/// What others may take meanwhile.
const MARGIN: Bytes = Bytes::mib(512);

/// What is to be free in the end, where there is so much.
const LEFT: Bytes = Bytes::gib(8);

/// Sizes are multiples of this, and so of every page of a usual size.
const GRAIN: Bytes = Bytes::mib(2);

/// What a GiB of a state takes, the strategy included: 25 s for 11 GiB on Linux 6.18, two CPUs.
const TIME_OF_GIB: Nanos = Nanos::millis(2_300);

/// The sizes of one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// What kind of state.
    pub fragment: Fragment,
    /// Filled with base pages, of which one in so many is kept.
    pub fill: Bytes,
    /// Eaten in huge pages at most.
    pub eat: Bytes,
    /// Never less than this is free.
    pub reserve: Bytes,
}

impl Recipe {
    /// The recipe for a machine with `free` bytes of free memory (not: available).
    ///
    /// # Errors
    /// Where less than [`RESERVE`] would stay free: what is needed, and what there is.
    pub fn new(fragment: Fragment, free: Bytes) -> Result<Recipe, String> {
        let floor = RESERVE + MARGIN;
        let keep = fragment.keep.one_in();
        // So much must be filled that so much is free once one page in `keep` is kept.
        let filling = |left: Bytes| {
            let bytes = left.0.div_ceil(keep - 1).saturating_mul(keep);
            Bytes(bytes.div_ceil(GRAIN.0).saturating_mul(GRAIN.0))
        };
        let least = filling(floor);
        let whole = |bytes: Bytes| Bytes(bytes.0 / GRAIN.0 * GRAIN.0);
        let most = whole(free.saturating_sub(floor));
        if most < least {
            return Err(format!(
                "less than {RESERVE} would stay free: fragmenting {} needs {} free, there are {free} \
                 (page cache is given back by: sync; echo 1 > /proc/sys/vm/drop_caches)",
                fragment.keep,
                floor + least,
            ));
        }
        let fill = filling(LEFT).clamp(least, most);
        Ok(Recipe {
            fragment,
            fill,
            eat: whole(free.saturating_sub(fill)),
            reserve: RESERVE,
        })
    }

    /// What the holder has at most at one time.
    #[must_use]
    pub fn peak(&self) -> Bytes {
        let kept = Bytes(self.fill.0 / self.fragment.keep.one_in());
        self.fill.max(kept + self.eat)
    }

    /// How long one state takes, about.
    #[must_use]
    pub fn time(&self) -> Nanos {
        let mib = self.peak().0 >> 20;
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

    #[test]
    fn a_machine_that_is_too_small_is_told_what_it_needs() {
        let error = Recipe::new(fragment(4), Bytes::gib(15)).unwrap_err();
        assert!(error.contains("less than 6 GiB would stay free"), "{error}");
        assert!(error.contains("there are 15 GiB"), "{error}");
        assert!(Recipe::new(fragment(4), Bytes(0)).is_err());
        assert!(Recipe::new(fragment(4), Bytes::gib(16)).is_ok());
        // Half of what is filled is kept, so that more has to be filled.
        assert!(Recipe::new(fragment(2), Bytes::gib(16)).is_err());
    }

    /// 15 states of 11 GiB take six minutes, however short the time is that they are given.
    #[test]
    fn a_plan_says_the_time_that_it_takes() {
        let recipe = Recipe::new(fragment(4), Bytes::gib(19)).unwrap();
        let each = recipe.time();
        assert!((Nanos::secs(23)..Nanos::secs(27)).contains(&each), "{each}");
        let fitting = |time| recipe.fitting(15, time);
        assert_eq!(fitting(Nanos::secs(10)), 1);
        assert_eq!(fitting(Nanos::secs(60)), 2);
        assert_eq!(fitting(Nanos::secs(540)), 15);
    }

    proptest! {
        /// At every moment of the recipe the reserve is free: while it is filled, and in the end.
        #[test]
        fn the_reserve_stays_free(one_in in 2u64..=512, gib in 0u64..4096) {
            let free = Bytes::gib(gib);
            if let Ok(recipe) = Recipe::new(fragment(one_in), free) {
                prop_assert!((free - recipe.fill) >= RESERVE);
                prop_assert!(recipe.fill.0.is_multiple_of(GRAIN.0), "{recipe:?}");
                prop_assert!(recipe.eat.0.is_multiple_of(GRAIN.0), "{recipe:?}");
                let kept = recipe.fill.0 / one_in;
                prop_assert!(free.0 - kept - recipe.eat.0 >= RESERVE.0);
                prop_assert!(recipe.peak() <= free - RESERVE);
            }
        }
    }
}
