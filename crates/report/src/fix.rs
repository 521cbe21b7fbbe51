//! What a fix would bring, in words: the last column of `check` and a line below it.

use stopgap_stats::fix::Fix;
use stopgap_stats::verdict::figure_text;

use crate::text::number;

/// Returns few words for a narrow column: `arena 84x less`. `arena ?` where nothing is proven, empty where it was not tried.
fn short(fix: &Fix) -> String {
    let name = &fix.name;
    match (fix.helps(), &fix.factor) {
        (Some(true), Some(factor)) => format!("{name} {}x less", number(factor.value)),
        (Some(false), Some(factor)) => format!("{name} {}x more", number(1.0 / factor.value)),
        (_, Some(_)) => format!("{name} ?"),
        (_, None) => String::new(),
    }
}

/// Returns [`short`] of the first fix that is proven to help, else of the first.
pub(crate) fn lead(fixes: &[Fix]) -> String {
    let helps = fixes.iter().find(|fix| fix.helps() == Some(true));
    helps.or(fixes.first()).map(short).unwrap_or_default()
}

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
    fn less_more_nothing_and_unknown_are_four_things() {
        let less = tried(vec![[8.0, 0.1]; 5])
            .but("keeps 2 MiB")
            .command("stopgap run --fix arena -- CMD");
        assert_eq!(short(&less), "arena 80.0x less");
        assert_eq!(
            sentence(&less),
            "fix arena: 8.00 -> 0.10 us a map, touch and unmap, 80.0x (80.0..80.0); keeps 2 MiB; stopgap run --fix arena -- CMD"
        );
        assert_eq!(short(&tried(vec![[1.0, 2.0]; 5])), "arena 2.00x more");
        let noise = tried(vec![[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]]);
        assert_eq!(short(&noise), "arena ?");
        assert!(sentence(&noise).ends_with(": no difference proven"));
        let untried = Fix::untried("locked", "no swap");
        assert_eq!(
            (short(&untried).as_str(), sentence(&untried).as_str()),
            ("", "fix locked: not tried: no swap")
        );
    }

    #[test]
    fn what_is_proven_to_help_leads() {
        let few = tried(vec![[2.0, 3.0]]);
        let worse = tried(vec![[1.0, 2.0]; 5]);
        let helps = Fix::tried("channel", "a round trip", "us", vec![[90.0, 1.0]; 5], 1);
        assert_eq!(
            lead(&[few.clone(), worse.clone(), helps]),
            "channel 90.0x less"
        );
        assert_eq!(lead(&[worse, few.clone()]), "arena 2.00x more");
        assert_eq!((lead(&[few]), lead(&[])), (String::new(), String::new()));
    }
}
