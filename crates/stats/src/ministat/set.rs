//! A set: the values of one column of a text, and their figures as ministat calculates them.

use thiserror::Error;

use super::student::Figures;

/// Values that a set needs.
pub const LEAST: usize = 3;

/// Where a value stands in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Which column, from 1.
    pub number: usize,
    /// Each of these characters parts columns; several in a row part once.
    pub delimiters: String,
}

impl Default for Column {
    /// The first, parted by spaces and tabs.
    fn default() -> Column {
        Column {
            number: 1,
            delimiters: " \t".to_owned(),
        }
    }
}

/// Why a text is no set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SetError {
    /// A field is no number.
    #[error("Invalid data on line {line} in {name}: '{field}' is no number")]
    Invalid {
        /// The set's name.
        name: String,
        /// The line, from 1.
        line: usize,
        /// The field, as far as it can be shown.
        field: String,
    },
    /// There are fewer than [`LEAST`] values.
    #[error("Dataset {name} must contain at least {LEAST} data points (it has {have})")]
    TooFew {
        /// The set's name.
        name: String,
        /// How many values it has.
        have: usize,
    },
}

/// The values of one file, at least [`LEAST`] of them, all finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    name: String,
    /// Ascending.
    values: Vec<f64>,
    sum: f64,
    squares: f64,
}

impl Set {
    /// Reads a column of `text`. Lines without that column are passed over, and so is the rest of a line from a field on that
    /// begins with `#`.
    ///
    /// # Errors
    /// [`SetError`]: a field that is no finite number, or too few values.
    pub fn read(name: &str, text: &[u8], column: &Column) -> Result<Set, SetError> {
        let delimiters = column.delimiters.as_bytes();
        let mut values = Vec::new();
        for (line, bytes) in text.split(|&byte| byte == b'\n').enumerate() {
            // The original takes white space off a line's end, as the carriage return of a file from Windows.
            let mut fields = bytes
                .trim_ascii_end()
                .split(|byte| delimiters.contains(byte))
                .filter(|field| !field.is_empty())
                .take_while(|field| field[0] != b'#');
            let Some(field) = fields.nth(column.number.saturating_sub(1)) else {
                continue;
            };
            match number(field) {
                Some(value) => values.push(value),
                None => {
                    return Err(SetError::Invalid {
                        name: name.to_owned(),
                        line: line + 1,
                        field: shown(field),
                    });
                }
            }
        }
        Set::new(name, values)
    }

    /// Takes values in the order in which they were measured.
    ///
    /// # Errors
    /// [`SetError::TooFew`]; [`SetError::Invalid`] where one is not finite.
    pub fn new(name: &str, mut values: Vec<f64>) -> Result<Set, SetError> {
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(SetError::Invalid {
                name: name.to_owned(),
                line: at + 1,
                field: values[at].to_string(),
            });
        }
        if values.len() < LEAST {
            return Err(SetError::TooFew {
                name: name.to_owned(),
                have: values.len(),
            });
        }
        // In this order, so that rounding is the original's.
        let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), value| {
            (sum + value, squares + value * value)
        });
        values.sort_unstable_by(f64::total_cmp);
        Ok(Set {
            name: name.to_owned(),
            values,
            sum,
            squares,
        })
    }

    /// Its name, as a file's.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its values, ascending.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Its least value.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.values[0]
    }

    /// Its largest value.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.values[self.values.len() - 1]
    }

    /// The value in the middle; of an even number the upper of the two.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.values[self.values.len() / 2]
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum / self.values.len() as f64
    }

    /// The variance of a sample, from sum and sum of squares as ministat does it: of values that differ in their last
    /// digits alone nothing is left but rounding, and it may be less than 0.
    #[must_use]
    pub fn variance(&self) -> f64 {
        let n = self.values.len() as f64;
        (self.squares - self.sum * self.sum / n) / (n - 1.0)
    }

    /// The root of the variance; NaN where rounding made that less than 0.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        self.variance().sqrt()
    }

    /// Figures for the t-test.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            n: self.values.len(),
            mean: self.mean(),
            variance: self.variance(),
        }
    }
}

/// A decimal number, finite, with white space before it as strtod(3) allows.
fn number(field: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(field).ok()?;
    let text = text.trim_start_matches([' ', '\t', '\x0b', '\x0c', '\r']);
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Enough of a field to find it.
fn shown(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field);
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(number: usize, delimiters: &str) -> Column {
        Column {
            number,
            delimiters: delimiters.to_owned(),
        }
    }

    #[test]
    fn columns_and_comments() {
        let text = b"# head\n1 10 # one\n\n 2\t20\n3 #30\n4 40\n5  50 60\n6 60";
        let read = |number| Set::read("a", text, &column(number, " \t")).map(|set| set.values);
        assert_eq!(read(1), Ok(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        assert_eq!(read(2), Ok(vec![10.0, 20.0, 40.0, 50.0, 60.0]));
        assert_eq!(
            read(3),
            Err(SetError::TooFew {
                name: "a".to_owned(),
                have: 1
            })
        );
        let text = b"a,1;x\nb, 2;x\nc,,3;x";
        let set = Set::read("a", text, &column(2, ",;")).unwrap();
        assert_eq!(set.values(), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn what_is_no_number_is_named_with_its_line() {
        for (text, line, field) in [
            ("1\n2\nx3\n", 3, "x3"),
            ("1\nnan\n", 2, "nan"),
            ("1\n2\n3\n-inf", 4, "-inf"),
            ("1\n1e999", 2, "1e999"),
            ("1\r2\n3", 1, "1\\r2"),
            ("\u{1b}[2J", 1, "\\u{1b}[2J"),
        ] {
            let error = Set::read("f", text.as_bytes(), &Column::default()).unwrap_err();
            let expected = SetError::Invalid {
                name: "f".to_owned(),
                line,
                field: field.to_owned(),
            };
            assert_eq!(error, expected);
        }
        assert!(Set::read("f", b"\xff\xfe\n1\n2\n3", &Column::default()).is_err());
        assert!(Set::read("f", b"", &Column::default()).is_err());
    }

    #[test]
    fn figures_of_the_manual() {
        let set = Set::read("iguana", b"50 200 150 400 750 400 150", &column(1, "x"));
        assert!(set.is_err(), "{set:?}");
        let set = Set::new(
            "iguana",
            vec![50.0, 200.0, 150.0, 400.0, 750.0, 400.0, 150.0],
        )
        .unwrap();
        assert_eq!((set.min(), set.median(), set.max()), (50.0, 200.0, 750.0));
        assert!((set.deviation() - 238.047_61).abs() < 1e-5);
    }
}
