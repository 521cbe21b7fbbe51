//! Sizes by ratio: log-normal and log-uniform page counts.
//!
//! The standard library's exp and ln are the C library's and differ in the last bit from one to
//! the next. A seed must give the same events everywhere, so what is here is additions and
//! multiplications alone, which IEEE 754 fixes.

use crate::random::Random;

/// 1/10 to 1: what each term of the exponential series is multiplied by, the last first.
const SHARES: [f64; 10] = {
    let mut shares = [1.0; 10];
    let mut term = 10;
    while term > 0 {
        shares[10 - term] = 1.0 / term as f64;
        term -= 1;
    }
    shares
};

/// 2^x for x from 0 up to 63, to a billionth of it: page counts are far coarser.
fn exp2(x: f64) -> f64 {
    let whole = x as u32;
    let rest = (x - f64::from(whole)) * std::f64::consts::LN_2;
    let mut sum = 1.0;
    for share in SHARES {
        sum = 1.0 + sum * (rest * share); // Horner's form of e^rest
    }
    let scale = (1u64 << whole.min(63)) as f64;
    sum * scale
}

/// A number of the unit interval, 53 bits.
fn unit(random: &mut Random) -> f64 {
    let bits = (random.bits() >> 11) as f64;
    bits / (1u64 << 53) as f64
}

/// A page count from 1 to `2^log2_largest`, its logarithm uniform.
pub(super) fn log_uniform(random: &mut Random, log2_largest: u32) -> u64 {
    rounded(exp2(unit(random) * f64::from(log2_largest)))
}

/// A page count of median 2^`log2_median` whose logarithm to the base 2 has the standard
/// deviation `sigma`; at least 1.
///
/// The normal number is the sum of twelve uniform ones less 6 (three draws, 16 bits each): its
/// deviation is 1, its tails end at 6.
pub(super) fn log_normal(random: &mut Random, log2_median: f64, sigma: f64) -> u64 {
    let mut sum = 0;
    for _ in 0..3 {
        let bits = random.bits();
        sum += (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    }
    // The mean of a 16-bit number is 32,767.5.
    let normal = (sum as f64 + 6.0) / 65_536.0 - 6.0;
    rounded(exp2((log2_median + sigma * normal).clamp(0.0, 62.0)))
}

fn rounded(value: f64) -> u64 {
    (value + 0.5) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_right() {
        for x in [0.0, 0.25, 0.5, 0.999, 1.0, 4.875, 12.0, 61.3] {
            let exact = f64::exp2(x);
            assert!((exp2(x) / exact - 1.0).abs() < 1e-9, "{x}: {}", exp2(x));
        }
    }

    /// Half below the median, 84.1 % below one deviation more, 2.3 % above two more.
    #[test]
    fn the_distribution_is_log_normal() {
        let mut random = Random::new(1);
        let (mut below, mut one, mut two) = (0, 0, 0);
        for _ in 0..100_000 {
            let pages = log_normal(&mut random, 10.0, 1.5);
            below += u32::from(pages < 1_024);
            one += u32::from(pages < 2_896);
            two += u32::from(pages > 8_192);
        }
        assert!((49_000..51_000).contains(&below), "{below}");
        assert!((83_300..85_000).contains(&one), "{one}");
        assert!((2_000..2_600).contains(&two), "{two}");
    }

    #[test]
    fn each_octave_is_as_likely() {
        let mut random = Random::new(2);
        let mut octaves = [0; 9];
        for _ in 0..90_000 {
            let pages = log_uniform(&mut random, 9);
            assert!((1..=512).contains(&pages));
            octaves[(pages.ilog2() as usize).min(8)] += 1;
        }
        // Rounding takes a part of the lowest octaves away.
        assert!(
            octaves[3..].iter().all(|n| (9_300..11_000).contains(n)),
            "{octaves:?}"
        );
    }
}
