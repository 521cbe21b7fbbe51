//! Noise for tests of statistics.

use stopgap_events::random::Random;

/// A draw from the normal distribution with mean 0 and deviation 1 (Box and Muller).
pub(crate) fn normal(random: &mut Random) -> f64 {
    let mut unit = || ((random.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (radius, angle) = (unit(), unit());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}
