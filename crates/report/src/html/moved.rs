//! Draws what moved between traces: difference flame pictures, and the figures.

use stopgap_events::order::SortRows;
use stopgap_stats::compare::moved::{Family, FigureWord, Moved, Picture, Word};

use super::flame::{self, Look, Node};
use super::write::{Section, escaped};
use super::{OtherAnswer, OtherRecord};
use crate::moved::{headline, method, table, units};
use crate::table::{Table, join};
use crate::text::{count, level};

/// Returns the record as a part of a page; `name` is its file's.
#[must_use]
pub fn record(moved: &Moved, name: &str) -> OtherRecord {
    let (head, sentence) = headline(moved);
    let sides = format!("{} against {}", moved.after.name, moved.before.name);
    OtherRecord {
        kind: "compare",
        version: moved.version.clone(),
        command: moved.command.clone(),
        html: section(moved, name, &sides),
        answers: vec![OtherAnswer {
            class: match moved.verdict.word {
                Word::Moved => "bad",
                Word::NoDifferenceProven | Word::Inconclusive => "open",
            },
            head: head.to_owned(),
            text: format!("{head}: {sentence}"),
            about: format!("{sides}: {sentence}"),
        }],
        missing: moved.missing.clone(),
        line: format!("what moved: {sides}"),
    }
}

fn section(moved: &Moved, name: &str, sides: &str) -> String {
    // The page makes the section's element.
    let mut section = Section::new("", &format!("what moved: {sides}"));
    section.list(&moved.warnings, "warnings");
    let [before, after] = [&moved.before, &moved.after].map(|side| side.traces.len());
    section.paragraph(&format!(
        "{name}: {} before, {after} after. {}.",
        count(before, "trace"),
        units(moved)
    ));
    // The one that shows what moved is open.
    let mut pictures: Vec<&Picture> = moved.pictures.iter().collect();
    pictures.sort_rows_by_key(|picture| !picture.frames.iter().any(|frame| frame.word.is_proven()));
    let mut pictures = (pictures.into_iter()).filter_map(|picture| figure(moved, picture));
    section.add(&pictures.next().unwrap_or_default());
    let proven = || {
        moved
            .figures
            .iter()
            .filter(|figure| figure.word.is_proven())
    };
    match moved.moved {
        0 => section.paragraph("No figure is proven to have moved."),
        _ => section.table("Figures that moved", &table(proven(), false)),
    }
    section.fold_pictures(&pictures.collect::<String>());
    let others = moved
        .figures
        .iter()
        .filter(|figure| !figure.word.is_proven());
    section.folded_table(
        "Figures that did not move beyond their scatter, or are unknown",
        &table(others, true),
    );
    if !moved.environment.is_empty() {
        let mut differs = Table::new("what | before | after");
        for one in &moved.environment {
            differs.row(&[&one.what, &one.before, &one.after]);
        }
        section.folded_table("In what the sides differ", &differs);
    }
    section.fold(
        "How it was judged",
        &format!("<p>{}</p>", escaped(&method(moved))),
    );
    let html = section.finish();
    let inner = html.strip_prefix("<section id=\"\">").unwrap_or(&html);
    inner
        .strip_suffix("</section>\n")
        .unwrap_or(inner)
        .to_owned()
}

/// Draws a difference: each frame as wide as its mean of both sides, so that what is only on one side is there, too.
fn figure(moved: &Moved, picture: &Picture) -> Option<String> {
    let mut root = Node::default();
    for frame in &picture.frames {
        let [before, after] = [frame.before, frame.after];
        let mean = f64::midpoint(before, after);
        // Node::after is drawn, and Node::differs is by what it exceeds Node::before.
        root.add(&frame.path, mean - (after - before), mean);
    }
    for frame in &picture.frames {
        root.prove(&frame.path, frame.word.is_proven());
    }
    if root.after <= 0.0 {
        return None;
    }
    let most = root.most(root.after);
    let per = match &*moved.per {
        "second" => "/s".to_owned(),
        per => format!(" a {per}"),
    };
    let once = picture
        .frames
        .iter()
        .any(|frame| frame.word == FigureWord::SeenOnce);
    let open = if once { "seen once" } else { "not proven" };
    let look = |_: &str, node: &Node<'_>, _: usize| {
        let differs = node.differs();
        let strength = 0.2 + 0.5 * (differs.abs() / most).min(1.0);
        let same = differs.abs() <= 1e-6 * (1.0 + node.after);
        let class = match (node.proven, differs > 0.0) {
            _ if same => "open",
            (false, true) => "open up",
            (false, false) => "open down",
            (true, true) => "more",
            (true, false) => "less",
        };
        let [before, after] =
            [-0.5, 0.5].map(|half| level((node.after + half * differs).max(0.0), ""));
        let sign = if differs > 0.0 { "+" } else { "" };
        let word = if node.proven { "proven" } else { open };
        Look {
            class,
            strength,
            about: format!(
                "{before} -> {after} ms{per}, {sign}{} ({word})",
                level(differs, "")
            ),
        }
    };
    let (title, what, below) = match picture.family {
        Family::Chain => (
            "Where lost time differs",
            "time lost in waits",
            "Below a thread stands what it waited for, and below that who or what it waited for.",
        ),
        _ => (
            "Where CPU time differs",
            "CPU time",
            "Below a thread stand its state and its functions, each below its caller. A function is proven as a whole, with all it \
             calls, on whichever stack.",
        ),
    };
    let label = format!("{title}: difference flame graph; the table of figures has the numbers");
    let (frames, cut) = flame::html(&root, &look, &label);
    let kinds = [
        ("more", "+ more after: proven"),
        ("less", "\u{2212} less after: proven"),
        ("open up", "hatched: more or less, not proven"),
    ];
    let kinds = kinds.map(|(class, means)| {
        let means = if once {
            means.replace("not proven", "seen once")
        } else {
            means.to_owned()
        };
        format!("<li><span class=\"swatch {class}\"></span>{means}</li>")
    });
    Some(format!(
        "<figure><figcaption><b>{title}</b></figcaption><ul class=\"legend\">{}</ul>{frames}<p class=\"about\">Width: {what}, mean \
         of both sides, so that what is only on one side is there, too. The stronger the colour, the larger the difference. \
         {below}{cut}</p></figure>\n",
        join(kinds, ""),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_stats::compare::moved::{Frame, Options, moved};

    fn shown(word: FigureWord, name: &str) -> String {
        let mut record = moved(&[Vec::new(), Vec::new()], Options::default());
        let frame = |path: &[&str], before, after, word| Frame {
            path: path.iter().map(|&name| name.to_owned()).collect(),
            before,
            after,
            word,
        };
        record.pictures = vec![Picture {
            family: Family::Chain,
            frames: vec![
                frame(&["ops"], 0.0, 0.0, FigureWord::NotProven),
                frame(&["ops", name], 10.0, 30.0, word),
                frame(&["ops", "only before"], 40.0, 0.0, FigureWord::NotProven),
            ],
        }];
        super::record(&record, "a.json").html
    }

    #[test]
    fn only_what_is_proven_has_a_full_colour() {
        let html = shown(FigureWord::More, "was in fsync");
        assert!(
            html.contains("title=\"was in fsync: 10 -&gt; 30 ms a run, +20 (proven)\""),
            "{html}"
        );
        assert!(
            html.contains("<b class=\"more\">was in fsync</b>"),
            "{html}"
        );
        assert!(
            html.contains("title=\"only before: 40 -&gt; 0 ms a run, -40 (not proven)\""),
            "{html}"
        );
        assert!(
            html.contains("<b class=\"open down\">only before</b>"),
            "{html}"
        );
        let html = shown(FigureWord::NotProven, "was in fsync");
        assert!(
            html.contains("<b class=\"open up\">was in fsync</b>"),
            "{html}"
        );
    }

    #[test]
    fn names_are_shown_and_never_obeyed() {
        let html = shown(
            FigureWord::More,
            "<script>alert(1)</script>\u{1b}[31m\u{202e}",
        );
        assert!(
            !html.contains("<script>") && !html.contains('\u{1b}') && !html.contains('\u{202e}'),
            "{html}"
        );
    }
}
