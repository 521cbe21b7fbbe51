//! The scale of the differences seen so far: what a difference is large or small against.

use std::collections::VecDeque;

use crate::quantile::median_of_sorted;

/// How many of the last differences the scale looks at, so that it follows a machine whose noise changes.
const WINDOW: usize = 128;

/// Fewest differences that give a scale.
pub(super) const LEAST: usize = 3;

/// Median absolute deviation of the last differences from their median.
///
/// It depends on no candidate shift: moving all differences by a constant does not change it. That makes each factor of a
/// bet monotone in the shift (see [`super::bet`]). It knows only differences before the one that it scales.
#[derive(Debug, Clone, Default)]
pub(super) struct Scale {
    /// The window, oldest first.
    window: VecDeque<f64>,
    /// The same, ascending.
    sorted: Vec<f64>,
}

impl Scale {
    /// Adds a finite difference and forgets the oldest where the window is full.
    pub(super) fn push(&mut self, d: f64) {
        if self.window.len() == WINDOW
            && let Some(oldest) = self.window.pop_front()
        {
            let at = self.sorted.partition_point(|&other| other < oldest);
            self.sorted.remove(at);
        }
        let at = self.sorted.partition_point(|&other| other < d);
        self.sorted.insert(at, d);
        self.window.push_back(d);
    }

    /// Returns the scale, comparable to a standard deviation. `None` with fewer than [`LEAST`] differences; 0 where all are equal.
    pub(super) fn get(&self) -> Option<f64> {
        let n = self.sorted.len();
        if n < LEAST {
            return None;
        }
        let middle = median_of_sorted(&self.sorted)?;
        let mut distances: Vec<f64> = self.sorted.iter().map(|d| (d - middle).abs()).collect();
        distances.sort_unstable_by(f64::total_cmp);
        let mad = median_of_sorted(&distances)?;
        if mad > 0.0 {
            // The median of few distances is too small on average, by about this factor (Croux and Rousseeuw 1992).
            let few = n as f64 / (n as f64 - 0.8);
            return Some(mad * 1.4826 * few);
        }
        // More than half of the differences are equal: those that differ say how large a step is.
        Some(distances.iter().sum::<f64>() / n as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: &[f64]) -> Option<f64> {
        let mut scale = Scale::default();
        values.iter().for_each(|&d| scale.push(d));
        scale.get()
    }

    #[test]
    fn a_scale_needs_three_and_survives_ties() {
        assert_eq!(scale(&[1.0, 2.0]), None);
        assert_eq!(scale(&[4.0; 9]), Some(0.0));
        assert_eq!(scale(&[0.0, 0.0, 0.0, 0.0, 5.0]), Some(1.0));
        let three = scale(&[-1.0, 0.0, 1.0]).unwrap();
        assert!((three - 1.4826 * 3.0 / 2.2).abs() < 1e-12, "{three}");
        // One wild value of nine changes little.
        let calm = scale(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]).unwrap();
        let wild = scale(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1e9]).unwrap();
        assert!((calm - wild).abs() < 0.1 * calm, "{calm} {wild}");
    }

    #[test]
    fn the_window_forgets() {
        let mut values = vec![1e6, -1e6, 3e6];
        values.extend((0..WINDOW).map(|at| (at % 7) as f64));
        let last = scale(&values[3..]);
        assert_eq!(scale(&values), last);
    }
}
