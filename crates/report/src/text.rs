//! Numbers and words as people write them.

use stopgap_events::units::Nanos;

/// `65530` as `65,530`.
#[must_use]
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Seconds as the largest unit that gives at least one: `9 d`, `2 h`, `12 min`, `40 s`.
#[must_use]
pub fn uptime(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A number with three significant digits, larger ones whole with commas, and what no one reads digit by digit as `1.80e308`.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if (999.5..1e15).contains(&size) {
        let whole = thousands(size.round() as u64);
        return if value < 0.0 {
            format!("-{whole}")
        } else {
            whole
        };
    }
    if size.is_finite() && size >= 1e15 {
        return format!("{value:.2e}");
    }
    let digits = if size >= 99.95 {
        0
    } else if size >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

/// `number`, but `0` for nothing at all.
#[must_use]
pub(crate) fn number_or_0(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    number(value)
}

/// `part` of `whole` in per cent, without the sign.
pub(crate) fn share(part: u64, whole: u64) -> String {
    number(part as f64 / whole.max(1) as f64 * 100.0)
}

/// A share in per cent, without the sign, with two significant digits.
pub(crate) fn per_cent(share: f64) -> String {
    digits(share * 100.0, 2)
}

/// A ratio. Those near 1 differ in what follows the point, and a small one is not 0.
#[must_use]
pub fn ratio(value: f64) -> String {
    match value {
        0.1..10.0 => format!("{value:.3}"),
        _ if value < 0.1 => digits(value, 3),
        _ => number(value),
    }
}

/// A figure with its unit: a time in the unit that reads best, anything else with three significant digits.
#[must_use]
pub fn level(value: f64, unit: &str) -> String {
    let ns = (value * nanoseconds(unit).unwrap_or(f64::NAN)).abs();
    if (1.0..1e18).contains(&ns) {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", Nanos(ns.round() as u64));
    }
    let value = match value.abs() {
        0.0..999.5 => digits(value, 3),
        _ => number(value),
    };
    format!("{value} {unit}").trim_end().to_owned()
}

/// Nanoseconds in one of `unit`; `None` where it is no time.
pub(crate) fn nanoseconds(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1.0),
        "us" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    }
}

/// A figure of a series: nanoseconds in the unit that reads best, anything else without its unit.
pub(crate) fn figure(value: f64, unit: &str) -> String {
    if unit == "ns" && value >= 100.0 {
        Nanos(value.round() as u64).to_string()
    } else {
        number(value)
    }
}

/// `value` with `count` significant digits, without zeros at its end.
fn digits(value: f64, count: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let places = (f64::from(count - 1) - value.abs().log10().floor()).clamp(0.0, 12.0) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Returns words as a command line that a shell reads back as these words.
#[must_use]
pub fn command_line(words: &[String]) -> String {
    let safe = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = |word: &String| match word.is_empty() || !word.chars().all(safe) {
        true => format!("'{}'", word.replace('\'', "'\\''")),
        false => word.clone(),
    };
    let words: Vec<String> = words.iter().map(quoted).collect();
    words.join(" ")
}

/// `1 record`, `2 records`.
pub(crate) fn count(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {what}{s}", thousands(count as u64))
}

/// Words from outside (process names, paths) with control characters and bidirectional marks
/// made visible, so that a name cannot move the cursor, colour the screen or fake a line.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        push_plain(c, &mut shown);
    }
    shown
}

fn push_plain(c: char, shown: &mut String) {
    let hidden = c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if hidden {
        shown.extend(c.escape_unicode());
    } else {
        shown.push(c);
    }
}

/// A whole text for a terminal, as [`plain`] has its words: line feeds and tabs stay.
#[must_use]
pub fn visible(text: &str) -> String {
    lines(text, |_| None)
}

/// The same for a text of ours, whose colours stay, too.
#[must_use]
pub fn visible_in_colour(text: &str) -> String {
    lines(text, colour)
}

/// `colour` gives the length of what stays at the beginning of a text.
fn lines(text: &str, colour: impl Fn(&str) -> Option<usize>) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = colour(rest);
        let length = colour.unwrap_or(c.len_utf8());
        if colour.is_some() || matches!(c, '\n' | '\t') {
            shown.push_str(&rest[..length]);
        } else {
            push_plain(c, &mut shown);
        }
        rest = &rest[length..];
    }
    shown
}

/// The length of the colour that `text` begins with: `ESC [ 1 ; 31 m`.
fn colour(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let end = numbers.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    numbers[end..].starts_with('m').then_some(2 + end + 1)
}

/// `line` broken between words so that no part is longer than `width`, where its words allow
/// it; what follows the first part is set in by `indent`. Ends with a line feed.
#[must_use]
pub fn wrap(line: &str, width: u16, indent: usize) -> String {
    let set_in = line.len() - line.trim_start().len();
    let (mut text, mut used) = (" ".repeat(set_in), set_in);
    let mut begun = false;
    for word in line.split_whitespace() {
        let length = word.chars().count();
        if begun && used + 1 + length > usize::from(width) {
            text.push('\n');
            text.push_str(&" ".repeat(set_in + indent));
            used = set_in + indent;
        } else if begun {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += length;
        begun = true;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrap("  ab cd ef", 8, 2), "  ab cd\n    ef\n");
        assert_eq!(
            wrap("  longer-than-that x", 8, 2),
            "  longer-than-that\n    x\n"
        );
        assert_eq!(wrap("", 8, 2), "\n");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(thousands(7), "7");
        assert_eq!(thousands(65_530), "65,530");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(number(3.617), "3.62");
        assert_eq!(number(41.53), "41.5");
        assert_eq!(number(1_030.0), "1,030");
        assert_eq!(number(-1_030.0), "-1,030");
        assert_eq!(number(-1.797e308), "-1.80e308");
        assert_eq!(uptime(7_300), "2 h");
        assert_eq!(uptime(800_000), "9 d");
        assert_eq!(level(0.001_234, "s"), "1.23 ms");
        assert_eq!(level(-3_600.0, "ns"), "-3.60 us");
        assert_eq!(level(0.000_12, ""), "0.00012");
        assert_eq!(level(0.0, "s"), "0 s");
        assert_eq!(level(1_234_567.0, "bytes"), "1,234,567 bytes");
        assert_eq!(per_cent(0.05), "5");
        assert_eq!(per_cent(0.012_34), "1.2");
        assert_eq!(per_cent(0.25), "25");
    }

    #[test]
    fn of_a_whole_text_lines_and_colours_stay() {
        let text = "a\u{1b}[1;31mb\u{1b}[0m\n\tc";
        assert_eq!(visible_in_colour(text), text);
        assert_eq!(visible("a\u{1b}[1m\n\tb"), "a\\u{1b}[1m\n\tb");
        assert_eq!(
            visible_in_colour("\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}1m\r"),
            "\\u{1b}]0;title\\u{7}\\u{1b}[2J\\u{9b}1m\\u{d}"
        );
        assert_eq!(visible_in_colour("\u{1b}["), "\\u{1b}[");
        assert_eq!(visible("größe"), "größe");
    }

    #[test]
    fn a_name_cannot_paint_the_screen() {
        assert_eq!(plain("a\u{1b}[31m"), "a\\u{1b}[31m");
        assert_eq!(
            plain("x\nTEST placement flat"),
            "x\\u{a}TEST placement flat"
        );
        assert_eq!(plain("größe"), "größe");
    }
}
