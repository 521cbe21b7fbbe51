//! A number a line: each is a run.

use super::{Format, Read, ReadError, ends_with_a_line};
use crate::compare::{MOST_RUNS, Run};

/// Name of the numbers.
const VALUE: &str = "value";

/// Skips comments that begin with a number sign, and empty lines.
pub(super) fn read(text: &str) -> Result<Read, ReadError> {
    let mut read = Read::new(Format::Numbers);
    for (number, line) in (1..).zip(text.lines()) {
        let word = line.split('#').next().unwrap_or_default().trim();
        if word.is_empty() {
            continue;
        }
        let value: f64 = word.parse().map_err(|_| {
            let word: String = word.chars().take(40).collect();
            ReadError::at(number, format!("'{word}' is no number"))
        })?;
        if !value.is_finite() {
            let word: String = word.chars().take(40).collect();
            return Err(ReadError::at(number, format!("{word} cannot be compared")));
        }
        if read.runs.len() == MOST_RUNS {
            return Err(ReadError::at(
                number,
                format!("more than {MOST_RUNS} runs: are these samples of few runs?"),
            ));
        }
        let name = format!("line {number}");
        read.runs.push(Run::of_number(name, VALUE, value));
    }
    ends_with_a_line(text)?;
    Ok(read)
}
