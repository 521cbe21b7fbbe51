//! The words of an answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::words;

use crate::record::Figure;

/// The verdict's one word, for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// Cost does not grow: the interval for cost(largest N)/cost(1,000) is below 2, and the positive control grew as
    /// expected.
    Flat,
    /// Cost grows.
    Grows,
    /// More than the possible least.
    Excess,
    /// Stalls were seen.
    Stalls,
    /// A wait that may have been a stall or a wait for work; the trace cannot tell.
    Waiting,
    /// Searched where it could have been seen, and not found.
    Clean,
    /// This machine or this user cannot give an answer.
    Unsupported,
    /// The data does not decide.
    Inconclusive,
}

words!(
    Word, "verdict",
    Flat "flat",
    Grows "grows",
    Excess "excess",
    Stalls "stalls",
    Waiting "waiting",
    Clean "clean",
    Unsupported "unsupported",
    Inconclusive "inconclusive",
);

/// A verdict: a word, and the words with the number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// For scripts.
    pub word: Word,
    /// For people, beginning with the word: `grows ~N^0.97 (0.94..1.01)`,
    /// `inconclusive: not fragmented (index 0.03, up 2 h)`.
    pub text: String,
}

impl Verdict {
    /// Creates a verdict. `text` must begin with the word.
    ///
    /// # Panics
    /// In debug builds, if `text` does not.
    pub fn new(word: Word, text: impl Into<String>) -> Verdict {
        let text = text.into();
        debug_assert!(text.starts_with(&word.to_string()), "{word}: {text}");
        Verdict { word, text }
    }

    /// Creates the verdict `inconclusive: why`.
    #[must_use]
    pub fn inconclusive(why: &str) -> Verdict {
        Verdict::new(Word::Inconclusive, format!("inconclusive: {why}"))
    }

    /// Creates the verdict `unsupported: why`.
    #[must_use]
    pub fn unsupported(why: &str) -> Verdict {
        Verdict::new(Word::Unsupported, format!("unsupported: {why}"))
    }
}

/// Returns `1.92x (1.84..2.01)`, `3.62 us (3.50..3.74)`: the value to three significant digits, the ends to as many
/// decimals, and the unit. An end of another order of magnitude has three significant digits of its own: `0.0195x
/// (0.0010..158)`. A unit of `x` (times) has no space in front; an empty one leaves none.
#[must_use]
pub fn format_interval(value: f64, low: f64, high: f64, unit: &str) -> String {
    let (low, high) = (end_text(low, value), end_text(high, value));
    let value = with_unit(value, decimals(value), unit);
    format!("{value} ({low}..{high})")
}

/// Returns the text of an end of an interval around `value`.
fn end_text(end: f64, value: f64) -> String {
    let (own, shared) = (decimals(end), decimals(value));
    // One decimal more or less than needed keeps the numbers alike. With more decimals, a large end has meaningless
    // digits; with fewer, a small end would read as 0.
    let digits = if end == 0.0 || own.abs_diff(shared) < 2 {
        shared
    } else {
        own
    };
    format!("{end:.digits$}")
}

/// Returns [`format_interval`] of a figure; only the value without an interval, and `(at least 1.84)` or `(at most
/// 2.01)` with one end.
#[must_use]
pub fn figure_text(figure: &Figure) -> String {
    let end = |end| end_text(end, figure.value);
    let value = with_unit(figure.value, decimals(figure.value), &figure.unit);
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format_interval(figure.value, low, high, &figure.unit),
        (Some(low), None) => format!("{value} (at least {})", end(low)),
        (None, Some(high)) => format!("{value} (at most {})", end(high)),
        (None, None) => value,
    }
}

/// Returns `1 run`, `2 runs`.
#[must_use]
pub fn runs_text(count: usize) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} run{s}")
}

fn with_unit(value: f64, digits: usize, unit: &str) -> String {
    match unit {
        "" | "x" => format!("{value:.digits$}{unit}"),
        _ => format!("{value:.digits$} {unit}"),
    }
}

/// Returns the number of decimals that show `value` with three significant digits; at most six, because smaller
/// values need another unit.
pub(crate) fn decimals(value: f64) -> usize {
    // Rounding may add a digit: 9.996 is shown as 10.0.
    let mut least = 99.95;
    let mut digits = 0;
    while digits < 6 && value != 0.0 && value.abs() < least {
        least /= 10.0;
        digits += 1;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_significant_digits() {
        for (value, shown) in [
            (0.0, "0"),
            (0.012_345, "0.0123"),
            (1e-9, "0.000000"),
            (1.9, "1.90"),
            (9.996, "10.0"),
            (-3.625, "-3.62"),
            (41.53, "41.5"),
            (99.97, "100"),
            (9_412.0, "9412"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(with_unit(value, decimals(value), ""), shown);
        }
    }

    /// There are no meaningless digits, and no 0 for a value that is not 0.
    #[test]
    fn a_wide_interval_reads_as_well_as_a_narrow_one() {
        for (value, low, high, shown) in [
            (0.019_5, 0.019_5, 157.651_4, "0.0195x (0.0195..158)"),
            (120.0, 0.019_5, 157.65, "120x (0.0195..158)"),
            (0.978, 0.95, 1.02, "0.978x (0.950..1.020)"),
            (9.98, 9.5, 10.24, "9.98x (9.50..10.24)"),
            (12.3, 0.0, 150.0, "12.3x (0.0..150.0)"),
            (1.25, -2.5, 1_234.5, "1.25x (-2.50..1234)"),
            (1.0, f64::NEG_INFINITY, f64::INFINITY, "1.00x (-inf..inf)"),
        ] {
            assert_eq!(format_interval(value, low, high, "x"), shown);
        }
    }

    #[test]
    fn one_run_is_no_runs() {
        assert_eq!([0, 1, 2].map(runs_text), ["0 runs", "1 run", "2 runs"]);
    }

    #[test]
    fn intervals_in_words() {
        assert_eq!(format_interval(1.9, 1.8, 2.0, "x"), "1.90x (1.80..2.00)");
        let mut figure = Figure {
            value: 3.62,
            unit: "us".to_owned(),
            low: Some(3.5),
            high: Some(3.742),
        };
        assert_eq!(figure_text(&figure), "3.62 us (3.50..3.74)");
        figure.low = None;
        assert_eq!(figure_text(&figure), "3.62 us (at most 3.74)");
        figure.high = Some(120.06);
        assert_eq!(figure_text(&figure), "3.62 us (at most 120)");
        (figure.low, figure.high) = (Some(0.012_34), None);
        assert_eq!(figure_text(&figure), "3.62 us (at least 0.0123)");
        figure.low = None;
        figure.high = None;
        assert_eq!(figure_text(&figure), "3.62 us");
    }
}
