//! The steps in which figures were measured.

/// Returns the largest power of ten of which every figure is a multiple: the step of the clock or of the text. 0 if
/// no step is representable.
pub(super) fn step(before: &[f64], after: &[f64]) -> f64 {
    let figures = || before.iter().chain(after);
    for power in (-12..=12).rev() {
        let step = 10f64.powi(power);
        let whole = |figure: &f64| {
            let steps = figure / step;
            (steps - steps.round()).abs() <= 8.0 * f64::EPSILON * steps.abs()
        };
        if figures().all(whole) {
            // If all figures are 0, the step is unknown.
            let any = figures().any(|figure| figure.abs() > 0.0);
            return if any { step } else { 0.0 };
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::step;

    #[test]
    fn the_last_digit_that_differs() {
        let of = |figures: &[f64]| step(figures, &[]);
        assert!((of(&[8.0, 8.0, 9.0]) - 1.0).abs() < 1e-12);
        assert!((of(&[0.12, 0.3, 0.25]) - 0.01).abs() < 1e-12);
        assert!((of(&[12_000.0, 7_000.0]) - 1_000.0).abs() < 1e-9);
        assert!(of(&[1.0 / 3.0, 0.7]) < 1e-11);
        assert!(of(&[0.0, 0.0]).abs() < 1e-12);
    }
}
