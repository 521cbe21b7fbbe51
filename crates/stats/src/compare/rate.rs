//! Rates: amounts per time.

/// An amount (of stalls, of time) in a duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    pub(super) amount: f64,
    /// More than 0.
    pub(super) duration: f64,
}

impl Rate {
    /// Returns the rate of this run.
    pub(super) fn each(&self) -> f64 {
        self.amount / self.duration
    }

    /// Returns all amounts over all durations; NaN without runs.
    pub(super) fn pooled(runs: &[Rate]) -> f64 {
        let (amount, duration) = Rate::sum(runs);
        amount / duration
    }

    fn sum(runs: &[Rate]) -> (f64, f64) {
        runs.iter().fold((0.0, 0.0), |(amount, duration), run| {
            (amount + run.amount, duration + run.duration)
        })
    }
}
