use stopgap_events::question::Question;
use stopgap_stats::advise::rule::advise;
use stopgap_stats::advise::{Advise, SCHEMA};

use super::*;
use crate::replay::tests::{replay, row};

#[test]
fn the_sentence_comes_first_and_who_is_set_aside_says_why() {
    let rows = vec![
        row("one-page", 250.0, [1_024.0, 0.0], 0),
        row("list", 20.0, [16.0, 63.0], 40),
    ];
    let setting = replay(Vec::new()).chunks.unwrap();
    let advice = advise(&rows, &setting, "linear", 60);
    let advise = Advise {
        schema: SCHEMA.to_owned(),
        version: String::new(),
        command: Vec::new(),
        question: Question::Chunks,
        seed: 7,
        interrupted: true,
        chunks: setting,
        advice,
        rows,
    };
    let style = Style {
        width: 110,
        colour: false,
        verbose: true,
    };
    let text = screen(&advise, style);
    assert!(
        text.starts_with("use one-page: 262 ms in a buffer's life"),
        "{text}"
    );
    let line = |word: &str| {
        let found = text.lines().find(|line| line.contains(word));
        found.unwrap_or_else(|| panic!("no '{word}' in\n{text}"))
    };
    assert!(line("no: dwc2").starts_with("list"), "{text}");
    assert!(line("dwc2:3 %").starts_with("policy"), "{text}");
    assert!(line("no: dwc2").contains("40.0  no:"), "{text}");
    assert!(line("(nothing)").ends_with("2.00"), "{text}");
    assert!(line("were it otherwise").contains("use"), "{text}");
    assert!(line("reclaim a page x1/2").contains("stands"));
    assert!(line("Interrupted").contains("not every policy"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 110, "{text}");
    }
    // Without the table a sentence says how firm the advice is.
    let short = Style {
        verbose: false,
        ..style
    };
    let text = screen(&advise, short);
    assert!(!text.contains("were it otherwise"), "{text}");
    assert!(text.contains("the advice stands under "), "{text}");
}
