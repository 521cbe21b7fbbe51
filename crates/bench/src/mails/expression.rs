//! Expressions of figures: `within(2, old / new, 7.7) && new < old`.
//!
//! Numbers, names of figures, `+ - * /`, parentheses, chains of comparisons (`1 <= x <= 2`), `&&`, `||`, and the functions `abs`,
//! `ln` and `within(factor, a, b)`. What is true is 1.

use std::collections::BTreeMap;

use stopgap_events::units::Nanos;
use stopgap_report::text::{number, thousands};

/// Named figures.
pub(super) type Figures = BTreeMap<String, f64>;

/// Returns the value of an expression.
///
/// # Errors
/// Where it is no expression, or names no figure; with the place.
pub(super) fn value(text: &str, figures: &Figures) -> Result<f64, String> {
    let mut parser = Parser {
        rest: text.trim(),
        figures,
    };
    let value = parser.level(0)?;
    match parser.rest {
        "" => Ok(value),
        rest => Err(format!("'{text}': not understood from '{rest}' on")),
    }
}

/// Fills in a template: `{old / new}x`, `{ms old}`. The word before an expression says how it is printed: `count`, a time in `ns`,
/// `us` or `ms`, or so many digits (`.2`).
///
/// # Errors
/// As [`value`].
pub(super) fn filled(template: &str, figures: &Figures) -> Result<String, String> {
    let mut parts = template.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (inner, after) = part.split_once('}').ok_or("a brace is not closed")?;
        let (format, expression) = match inner.split_once(' ') {
            Some((word @ ("count" | "ns" | "us" | "ms" | ".2"), expression)) => (word, expression),
            _ => ("", inner),
        };
        let value = value(expression, figures)?;
        let time = |unit: f64| Nanos((value * unit).max(0.0).round() as u64).to_string();
        text += &match format {
            "count" => thousands(value.max(0.0).round() as u64),
            "ns" => time(1.0),
            "us" => time(1e3),
            "ms" => time(1e6),
            ".2" => format!("{value:.2}"),
            _ => number(value),
        };
        text += after;
    }
    Ok(text)
}

/// Whether two positive figures differ by at most this factor.
fn within(factor: f64, a: f64, b: f64) -> bool {
    a > 0.0 && b > 0.0 && (a / b).max(b / a) <= factor
}

struct Parser<'a> {
    rest: &'a str,
    figures: &'a Figures,
}

impl<'a> Parser<'a> {
    /// Consumes `token` where the text goes on with it.
    fn take(&mut self, token: &str) -> bool {
        let after = self.rest.strip_prefix(token);
        self.rest = after.map_or(self.rest, str::trim_start);
        after.is_some()
    }

    /// Consumes the longest beginning of such letters.
    fn word(&mut self, is_part: fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|letter| !is_part(letter));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        word
    }

    /// Consumes operators of this level and above, the loosest at level 0: `||`, `&&`, comparisons, sums, products.
    fn level(&mut self, level: usize) -> Result<f64, String> {
        type Apply = fn(f64, f64) -> f64;
        const LEVELS: [&[(&str, Apply)]; 5] = [
            &[("||", f64::max)],
            &[("&&", f64::min)],
            &[
                ("<=", |a, b| f64::from(u8::from(a <= b))),
                (">=", |a, b| f64::from(u8::from(a >= b))),
                ("<", |a, b| f64::from(u8::from(a < b))),
                (">", |a, b| f64::from(u8::from(a > b))),
            ],
            &[("+", |a, b| a + b), ("-", |a, b| a - b)],
            &[("*", |a, b| a * b), ("/", |a, b| a / b)],
        ];
        const COMPARED: usize = 2;
        let Some(operators) = LEVELS.get(level) else {
            return self.factor();
        };
        let mut value = self.level(level + 1)?;
        let (mut left, mut holds) = (value, 1.0_f64);
        while let Some((_, apply)) = operators.iter().find(|(sign, _)| self.take(sign)) {
            let right = self.level(level + 1)?;
            value = apply(left, right);
            // Each comparison of a chain must hold: `1 <= x <= 2`.
            holds = holds.min(value);
            left = if level == COMPARED { right } else { value };
            value = if level == COMPARED { holds } else { value };
        }
        Ok(value)
    }

    fn factor(&mut self) -> Result<f64, String> {
        if self.take("(") {
            let value = self.level(0)?;
            return self.take(")").then_some(value).ok_or_else(|| self.wrong());
        }
        let number = self.word(|letter| letter.is_ascii_digit() || letter == '.');
        if !number.is_empty() {
            return number
                .parse()
                .map_err(|error| format!("'{number}': {error}"));
        }
        let name = self.word(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        if !self.take("(") {
            let figure = self.figures.get(name).copied();
            return figure.ok_or_else(|| format!("no figure '{name}' before '{}'", self.rest));
        }
        let mut values = vec![self.level(0)?];
        while self.take(",") {
            values.push(self.level(0)?);
        }
        match (name, values.as_slice()) {
            _ if !self.take(")") => Err(self.wrong()),
            ("abs", [value]) => Ok(value.abs()),
            ("ln", [value]) => Ok(value.ln()),
            ("within", &[factor, a, b]) => Ok(f64::from(u8::from(within(factor, a, b)))),
            _ => Err(format!("no function '{name}' of {} values", values.len())),
        }
    }

    fn wrong(&self) -> String {
        format!("not understood: '{}'", self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_the_values_of_hand_computed_ones() {
        let figures = Figures::from([("old".to_owned(), 6.0), ("new".to_owned(), 2.0)]);
        for (text, wanted) in [
            ("1 + 2 * old / new - 3", 4.0),
            ("100 * (old - new) / 4", 100.0),
            ("1 <= new <= 3", 1.0),
            ("old > new > 2", 0.0),
            ("old < new || new >= 2 && old > 1", 1.0),
            ("within(2, old / new, 5)", 1.0),
            ("within(1.5, old / new, 5) || within(2, 0, 1)", 0.0),
            ("abs(new - old) + ln(1)", 4.0),
        ] {
            assert_eq!(value(text, &figures), Ok(wanted), "{text}");
        }
        for wrong in [
            "", "older", "old +", "(old", "ln(1, 2)", "old new", "within(1",
        ] {
            assert!(value(wrong, &figures).is_err(), "{wrong}");
        }
        let text = filled(
            "{ms new} -> {old}, {old / new}x, {count old}, N^{.2 old}",
            &figures,
        );
        assert_eq!(text.unwrap(), "2 ms -> 6.00, 3.00x, 6, N^6.00");
        assert!(filled("{old", &figures).is_err());
    }
}
