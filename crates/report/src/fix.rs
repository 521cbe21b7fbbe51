//! A fix in words: the figures without it and with it, and its cost.

use stopgap_stats::fix::Fix;
use stopgap_stats::verdict::figure_text;

use crate::text::number;

/// Returns a sentence: what was measured without and with the fix, and what it costs; or why it was not tried.
pub(crate) fn sentence(fix: &Fix) -> String {
    let name = &fix.name;
    let (Some(before), Some(after)) = (fix.before, fix.after) else {
        let why = fix.why.as_deref().unwrap_or("unknown why");
        return format!("fix {name}: not tried: {why}");
    };
    let mut text = format!("fix {name}: {} -> {}", number(before), number(after));
    for word in [&fix.unit, &fix.what] {
        if !word.is_empty() {
            text += &format!(" {word}");
        }
    }
    match (&fix.factor, &fix.why) {
        (Some(factor), _) => text += &format!(", {}", figure_text(factor)),
        (None, Some(why)) => text += &format!(" ({why})"),
        (None, None) => {}
    }
    if fix.factor.is_some() && fix.helps().is_none() {
        text += ": no difference proven";
    }
    for more in [&fix.but, &fix.command] {
        if !more.is_empty() {
            text += &format!("; {more}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(pairs: Vec<[f64; 2]>) -> Fix {
        Fix::tried("arena", "a map, touch and unmap", "us", pairs, 1)
    }

    #[test]
    fn a_fix_that_helps_one_that_does_not_and_one_untried_are_three_sentences() {
        let less = tried(vec![[8.0, 0.1]; 5])
            .but("keeps 2 MiB")
            .command("stopgap run --fix arena -- CMD");
        assert_eq!(
            sentence(&less),
            "fix arena: 8.00 -> 0.10 us a map, touch and unmap, 80.0x (80.0..80.0); keeps 2 MiB; stopgap run --fix arena -- CMD"
        );
        let noise = tried(vec![[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]]);
        assert!(sentence(&noise).ends_with(": no difference proven"));
        let untried = Fix::untried("locked", "no swap");
        assert_eq!(sentence(&untried), "fix locked: not tried: no swap");
    }
}
