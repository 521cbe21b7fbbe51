//! Otava's method (Fleming and others, *Hunter: Using Change Point Detection to Hunt for Performance Regressions*,
//! 2023), written from the paper: E-divisive means (Matteson and James, 2014) in windows that overlap, with Student's
//! t-test in place of permutations. Weak points are found at ten times the level. Then the least certain point is
//! dropped until all others are below the level.

/// Values of a window. Each window begins half a window later than the one before, or at the last point found in it.
const WINDOW: usize = 50;

/// The level: Otava's own.
const LEVEL: f64 = 0.001;

/// Returns the first values after each change that Otava would report.
pub(in crate::change_points) fn otava(x: &[f64]) -> Vec<usize> {
    let mut points = Vec::new();
    let mut from = 0;
    while from < x.len() {
        let to = (from + WINDOW).min(x.len());
        let found = divide(&x[from..to], 10.0 * LEVEL);
        let last = found.last().map_or(0, |at| from + at);
        points.extend(found.iter().map(|at| from + at));
        from = last.max(from + WINDOW / 2);
    }
    points.sort_unstable();
    points.dedup();
    loop {
        let least_certain = (0..points.len())
            .map(|at| (at, p_of(x, &points, at)))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        match least_certain {
            Some((at, p)) if p > LEVEL => points.remove(at),
            _ => return points,
        };
    }
}

/// Returns the probability at one point, from the stretches beside it.
fn p_of(x: &[f64], points: &[usize], at: usize) -> f64 {
    let from = at.checked_sub(1).map_or(0, |before| points[before]);
    let to = points.get(at + 1).copied().unwrap_or(x.len());
    student(&x[from..points[at]], &x[points[at]..to])
}

/// E-divisive means: takes the best division of all parts as long as it is significant.
fn divide(x: &[f64], level: f64) -> Vec<usize> {
    let mut points: Vec<usize> = Vec::new();
    loop {
        let ends = std::iter::once(0).chain(points.iter().copied());
        let ends: Vec<usize> = ends.chain([x.len()]).collect();
        let parts = ends.windows(2).map(|part| (part[0], part[1]));
        let best = parts
            .filter_map(|(from, to)| {
                let (at, q) = best_division(&x[from..to])?;
                Some((from, from + at, to, q))
            })
            .max_by(|a, b| a.3.total_cmp(&b.3));
        match best {
            Some((from, at, to, _)) if student(&x[from..at], &x[at..to]) <= level => {
                points.push(at);
                points.sort_unstable();
            }
            _ => return points,
        }
    }
}

/// Returns the division with the largest energy statistic: twice the mean distance between the sides, minus the mean
/// distances within them, times the harmonic size. Each place takes one pass, because only one value changes sides.
pub(super) fn best_division(x: &[f64]) -> Option<(usize, f64)> {
    let n = x.len();
    let to = |at: usize, side: &[f64]| side.iter().map(|y| (x[at] - y).abs()).sum::<f64>();
    let (mut between, mut left, mut right) = (0.0, 0.0, 0.0);
    for at in 0..n {
        right += to(at, &x[..at]);
    }
    let mut best: Option<(usize, f64)> = None;
    for at in 0..n.saturating_sub(1) {
        // Value `at` goes to the left side.
        let (with_left, with_right) = (to(at, &x[..at]), to(at, &x[at + 1..]));
        between += with_right - with_left;
        left += with_left;
        right -= with_right;
        let (l, r) = ((at + 1) as f64, (n - at - 1) as f64);
        let pairs = |sum: f64, n: f64| {
            if n > 1.0 {
                2.0 * sum / (n * (n - 1.0))
            } else {
                0.0
            }
        };
        let energy = 2.0 * between / (l * r) - pairs(left, l) - pairs(right, r);
        let q = energy * l * r / (l + r);
        if best.is_none_or(|best| q > best.1) {
            best = Some((at + 1, q));
        }
    }
    best
}

/// Student's two-sided probability, with one variance for both sides; 1 where a side has fewer than two values.
fn student(before: &[f64], after: &[f64]) -> f64 {
    if before.len() < 2 || after.len() < 2 {
        return 1.0;
    }
    let of = |side: &[f64]| {
        let mean = side.iter().sum::<f64>() / side.len() as f64;
        let squares: f64 = side.iter().map(|x| (x - mean) * (x - mean)).sum();
        (mean, squares, side.len() as f64)
    };
    let ((a, in_a, n), (b, in_b, m)) = (of(before), of(after));
    let free = n + m - 2.0;
    let variance = (in_a + in_b) / free;
    if variance <= 0.0 {
        return if (a - b).abs() > 0.0 { 0.0 } else { 1.0 };
    }
    let t = (a - b) / (variance * (1.0 / n + 1.0 / m)).sqrt();
    beta(free / (free + t * t), free / 2.0, 0.5)
}

/// The regularised incomplete beta function, by its continued fraction.
pub(super) fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // It converges fast on one side of its middle only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    let front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln();
    // Lentz's method.
    let away = |value: f64| if value.abs() < 1e-30 { 1e-30 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..200 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for step in [even, odd] {
            d = 1.0 / away(1.0 + step * d);
            c = away(1.0 + step / c);
            fraction *= d * c;
        }
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front.exp() * fraction / a
}

/// Returns the logarithm of the gamma function, by Stirling's series for values of at least 10.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut below) = (x, 0.0);
    while x < 10.0 {
        below += x.ln();
        x += 1.0;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1_260.0 * x.powi(5));
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - below
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::random::Random;

    /// The definition: means over all pairs.
    fn brute(x: &[f64]) -> (usize, f64) {
        let mean = |pairs: Vec<f64>| match pairs.len() {
            0 => 0.0,
            n => pairs.iter().sum::<f64>() / n as f64,
        };
        let each = (1..x.len()).map(|at| {
            let (a, b) = x.split_at(at);
            let within = |side: &[f64]| {
                let pairs = (0..side.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
                mean(pairs.map(|(i, j)| (side[i] - side[j]).abs()).collect())
            };
            let across = a.iter().flat_map(|x| b.iter().map(move |y| (x - y).abs()));
            let (n, m) = (a.len() as f64, b.len() as f64);
            let energy = 2.0 * mean(across.collect()) - within(a) - within(b);
            (at, energy * n * m / (n + m))
        });
        each.fold((0, f64::NEG_INFINITY), |best, next| {
            if next.1 > best.1 + 1e-9 { next } else { best }
        })
    }

    #[test]
    fn the_fast_energy_statistic_is_the_definitions() {
        let seed = 1;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        for _ in 0..300 {
            let n = 2 + random.index(40);
            let x: Vec<f64> = (0..n).map(|_| random.below(1_000) as f64 / 7.0).collect();
            let (brute, fast) = (brute(&x), best_division(&x).unwrap());
            assert!(
                (brute.1 - fast.1).abs() < 1e-6,
                "{brute:?} {fast:?} of {x:?}"
            );
        }
        assert_eq!(best_division(&[1.0]), None);
    }

    /// Quantiles of tables.
    #[test]
    fn students_probability() {
        for (free, t, p) in [
            (1.0, 12.706, 0.05),
            (10.0, 2.228, 0.05),
            (10.0, 4.587, 0.001),
            (60.0, 2.660, 0.01),
            (4.0, 0.741, 0.5),
        ] {
            let t: f64 = t;
            let shown = beta(free / (free + t * t), free / 2.0, 0.5);
            assert!((shown / p - 1.0).abs() < 2e-3, "{free} {t}: {shown}");
        }
    }

    #[test]
    fn a_clear_step_is_found_and_equal_values_are_not() {
        let step: Vec<f64> = (0..80)
            .map(|at| f64::from(at % 3) + if at < 33 { 0.0 } else { 20.0 })
            .collect();
        assert_eq!(otava(&step), [33]);
        assert_eq!(otava(&[5.0; 60]), [0; 0]);
        assert_eq!(otava(&[1.0]), [0; 0]);
    }
}
