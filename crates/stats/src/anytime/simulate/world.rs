//! Worlds in which the truth is known. Each has what makes real runs hard, all of it unknown to the methods.
//!
//! A *slot* is a moment at which one run happens. The world gives each slot its noise, whichever command runs there. All
//! methods see the same slots; they differ in which command they run in which slot.

use stopgap_events::random::Random;

/// A world. All noise is of the logarithm of a run's time, whose typical value is 1, unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum World {
    /// Normal noise of this deviation.
    Normal(f64),
    /// A log-normal time on top of a fixed one: short runs are alike, long ones are not.
    Skewed,
    /// Normal noise of 1 %, and one run of ten takes twice as long.
    Modes,
    /// Normal noise of 1 %, and the machine becomes 35 % slower over 600 runs.
    Drift,
    /// Normal noise of 1 %, and a random walk in steps of 0.5 %.
    Walk,
    /// Noise of 5 % of which each value keeps this share of the one before, and independent noise of 1 %.
    Correlated(f64),
    /// Noise of 1 %, and a Pareto variable of exponent 1.2 added to the time.
    Tails,
    /// Noise of 2 %, and a clock with steps of 1 %.
    Steps,
    /// Quiet and loud stretches of 20 runs on average: 1 % and 8 %.
    Stretches,
    /// Noise of 1 %, and every second run is 5 % slower than the one before.
    Second,
    /// Counts with a mean of 0.5, most of them 0. They are compared by differences and never changed.
    Counts,
    /// Noise of this deviation, and the slow mode of [`World::Modes`] takes 10 % of the earlier side's runs and 40 % of the later side's.
    MoreSlow(f64),
    /// The median is the same, noise is 2 % on one side and 6 % on the other, both skewed to the right.
    Spread,
}

/// Worlds in which both sides are equal until a change is put in.
pub const EQUAL: [World; 14] = [
    World::Normal(0.01),
    World::Normal(0.05),
    World::Normal(0.15),
    World::Skewed,
    World::Modes,
    World::Drift,
    World::Walk,
    World::Correlated(0.98),
    World::Correlated(0.5),
    World::Tails,
    World::Steps,
    World::Stretches,
    World::Second,
    World::Counts,
];

/// Worlds whose sides differ in more than a factor.
pub const UNEQUAL: [World; 3] = [World::MoreSlow(0.01), World::MoreSlow(0.05), World::Spread];

impl World {
    /// Returns its name in a table.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            World::Normal(noise) => format!("normal noise of {:.0} %", noise * 100.0),
            World::Skewed => "skewed noise".to_owned(),
            World::Modes => "10 % of runs twice as slow".to_owned(),
            World::Drift => "drift of 35 % in 600 runs".to_owned(),
            World::Walk => "random walk, steps of 0.5 %".to_owned(),
            World::Correlated(share) => format!("AR(1) {share}, 5 %"),
            World::Tails => "Pareto tails, 1.2".to_owned(),
            World::Steps => "2 %, clock steps of 1 %".to_owned(),
            World::Stretches => "quiet and loud stretches".to_owned(),
            World::Second => "every second run 5 % slower".to_owned(),
            World::Counts => "counts, mostly 0".to_owned(),
            World::MoreSlow(noise) => {
                format!("slow mode 10 -> 40 %, noise {:.0} %", noise * 100.0)
            }
            World::Spread => "equal medians, spread x 3".to_owned(),
        }
    }

    /// Returns whether values of 0 occur, so that units are differences.
    #[must_use]
    pub fn is_of_counts(self) -> bool {
        self == World::Counts
    }

    /// Returns the noise of so many slots.
    pub(super) fn slots(self, count: usize, random: &mut Random) -> Vec<Slot> {
        let mut state = 0.0;
        let mut is_loud = false;
        if let World::Correlated(_) = self {
            state = normal(random);
        }
        (0..count)
            .map(|at| {
                let own = normal(random);
                let (step, draw) = (normal(random), unit(random));
                let noise = match self {
                    World::Normal(noise) | World::MoreSlow(noise) => noise * own,
                    World::Skewed => (0.05 * own.exp()).ln_1p(),
                    World::Modes => 0.01 * own,
                    World::Drift => 0.01 * own + 0.3 * at as f64 / 600.0,
                    World::Walk => {
                        state += 0.005 * step;
                        0.01 * own + state
                    }
                    World::Correlated(share) => {
                        let noise = 0.05 * state + 0.01 * own;
                        state = share * state + (1.0 - share * share).sqrt() * step;
                        noise
                    }
                    World::Tails => ((0.01 * own).exp() + 0.01 * draw.powf(-1.0 / 1.2)).ln(),
                    World::Steps => 0.02 * own,
                    World::Stretches => {
                        is_loud ^= draw < 1.0 / 20.0;
                        own * if is_loud { 0.08 } else { 0.01 }
                    }
                    World::Second => 0.01 * own + 0.05 * (at % 2) as f64,
                    World::Counts => 0.0,
                    World::Spread => own,
                };
                Slot { noise, draw }
            })
            .collect()
    }

    /// Returns the figure of a run in a slot. `change` is added to the logarithm of the later side.
    pub(super) fn run(self, slot: Slot, is_later: bool, change: f64) -> f64 {
        let factor = (slot.noise + if is_later { change } else { 0.0 }).exp();
        let slow = |share: f64| if slot.draw < share { 2.0 } else { 1.0 };
        match self {
            World::Modes => factor * slow(0.1),
            World::MoreSlow(_) => factor * slow(if is_later { 0.4 } else { 0.1 }),
            World::Steps => (factor * 100.0).round() / 100.0,
            // A geometric count: each further one has a probability of a third.
            World::Counts => (slot.draw.ln() / (1.0f64 / 3.0).ln()).floor(),
            World::Spread => {
                let width = if is_later { 0.06 } else { 0.02 };
                // The median of the skewed noise is 0.
                1.0 + width * ((0.8 * slot.noise).exp() - 1.0)
            }
            _ => factor,
        }
    }
}

/// Noise of one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Slot {
    /// Added to the logarithm of a run's time.
    noise: f64,
    /// From 0 to 1: decides what is rare.
    draw: f64,
}

/// From 0 to 1, both excluded.
fn unit(random: &mut Random) -> f64 {
    ((random.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// A draw from the normal distribution with mean 0 and deviation 1 (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * unit(random).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(random)).cos()
}
