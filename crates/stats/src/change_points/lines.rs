//! Lists of occasions: one per line, with a date, a value or a file, and a label.

use stopgap_events::date::unix_seconds;

/// An occasion of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The line's number, from 1.
    pub number: usize,
    /// Time, seconds since 1970.
    pub date_unix_s: Option<u64>,
    /// Its figure, or the file that has it.
    pub of: Of,
    /// The rest of the line, such as a commit; empty where there is none.
    pub label: String,
}

/// Source of the figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Of {
    /// The figure itself.
    Value(f64),
    /// A file with the figure.
    File(String),
}

/// Reads a list. A line is `[DATE] VALUE [LABEL]` or `[DATE] FILE [LABEL]`, with blanks or a comma between them; a date is
/// `2026-03-04`, `2026-03-04T12:00:00Z` or seconds since 1970. `#` begins a comment; empty lines are passed over.
///
/// # Errors
/// The line's number, and what is wrong with it.
pub fn lines(text: &str) -> Result<Vec<Line>, (usize, String)> {
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let (first, rest) = word(line);
        if first.is_empty() {
            continue;
        }
        let (second, label) = word(rest);
        let value = |word: &str| word.parse::<f64>().ok();
        let date = unix_seconds(first).or_else(|| {
            // A single number is a value, and so is a number in front of a label.
            let seconds = first.parse().ok().filter(|_| value(second).is_some());
            seconds.filter(|seconds| (100_000_000..100_000_000_000).contains(seconds))
        });
        let (of, label) = match (date, second) {
            (Some(_), "") => {
                return Err((number, format!("{} has no figure", short(first))));
            }
            (Some(_), of) => (of, label),
            (None, _) => (first, rest),
        };
        let of = match value(of) {
            Some(value) => Of::Value(value),
            None => Of::File(of.to_owned()),
        };
        all.push(Line {
            number,
            date_unix_s: date,
            of,
            label: label.trim().to_owned(),
        });
    }
    Ok(all)
}

/// Returns the first word of a line, and the rest.
fn word(line: &str) -> (&str, &str) {
    let apart = |c: char| c == ',' || c.is_whitespace();
    let line = line.trim_matches(apart);
    line.split_once(apart)
        .map_or((line, ""), |(word, rest)| (word, rest.trim_matches(apart)))
}

fn short(word: &str) -> String {
    let letters = word.chars().take(40);
    letters
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_values_files_and_labels() {
        let text = "# nightly\n2026-03-04 12.5 a1b2c3 fix the cache\n2026-03-05T12:00:00Z,13\n\n1772668800 14 x # why\n15\n16 v2\n\
                    2026-03-06 out/t.parquet c4\nold.json\nnan\n";
        let all = lines(text).unwrap();
        let shown: Vec<(usize, Option<u64>, &str)> = all
            .iter()
            .map(|line| (line.number, line.date_unix_s, &*line.label))
            .collect();
        assert_eq!(
            shown,
            [
                (2, Some(1_772_582_400), "a1b2c3 fix the cache"),
                (3, Some(1_772_712_000), ""),
                (5, Some(1_772_668_800), "x"),
                (6, None, ""),
                (7, None, "v2"),
                (8, Some(1_772_755_200), "c4"),
                (9, None, ""),
                (10, None, ""),
            ]
        );
        assert_eq!(all[0].of, Of::Value(12.5));
        assert_eq!(all[5].of, Of::File("out/t.parquet".to_owned()));
        assert_eq!(all[6].of, Of::File("old.json".to_owned()));
        assert!(matches!(all[7].of, Of::Value(x) if x.is_nan()));
        let wrong = lines("1\n2026-03-04\n").unwrap_err();
        assert_eq!(wrong, (2, "2026-03-04 has no figure".to_owned()));
    }

    proptest! {
        #[test]
        fn any_text(text in ".{0,200}") {
            let _ = lines(&text);
        }
    }
}
