//! What moved between traces, for people: the answer, then the figures that moved.

use stopgap_stats::compare::moved::{Figure, FigureWord, Moved, Word};

use crate::table::{Screen, Style, Table, UNKNOWN, WIDEST, join, known};
use crate::text::{command_line, count, level, per_cent};

/// Rows of the screen without `--verbose`: of figures that moved, and where none did.
const MOST: usize = 12;
const MOST_OPEN: usize = 4;

/// Returns the headline and the sentences below it.
pub(crate) fn headline(moved: &Moved) -> (&'static str, String) {
    let text = &moved.verdict.text;
    let lead = moved.leading();
    match moved.verdict.word {
        Word::Moved => {
            let end = moved.in_the_end().filter(|end| Some(*end) != lead);
            let end = end.map_or_else(String::new, |end| format!("; in the end: {}", end.name));
            let lead = lead.map_or_else(String::new, change);
            ("MOVED", format!("{lead}{end}. {text}"))
        }
        Word::NoDifferenceProven => ("NOTHING PROVEN TO HAVE MOVED", text.clone()),
        Word::Inconclusive => {
            let seen = match lead {
                Some(lead) if lead.word == FigureWord::SeenOnce => "seen once",
                _ => "seen, not proven",
            };
            let lead =
                lead.map(|lead| format!("The largest difference ({seen}): {}", change(lead)));
            (
                "CANNOT TELL",
                join([Some(text.clone()), lead].into_iter().flatten(), ". "),
            )
        }
    }
}

/// Names a figure where its family does not stand beside it.
fn called(figure: &Figure) -> String {
    use stopgap_stats::compare::moved::Family;
    match figure.family {
        Family::Chain | Family::Total => figure.name.clone(),
        family => format!("{} {}", family.word(), figure.name),
    }
}

/// `ops was in fsync: 52.1 -> 155 ms a run, 103 more (95..112)`.
fn change(figure: &Figure) -> String {
    let [before, after] = [figure.before, figure.after].map(shown);
    let unit = &figure.unit;
    let more = figure.difference.map_or_else(String::new, |difference| {
        let word = if difference < 0.0 { "less" } else { "more" };
        format!(
            ", {} {word}{}",
            level(difference.abs(), ""),
            interval(figure, difference < 0.0)
        )
    });
    format!("{}: {before} -> {after} {unit}{more}", called(figure))
}

fn shown(value: Option<f64>) -> String {
    known(value.map(|value| level(value, "")))
}

/// The interval with a space before it; empty where there is none. `turned` shows it of how much less there is.
fn interval(figure: &Figure, turned: bool) -> String {
    let (Some(low), Some(high)) = (figure.low, figure.high) else {
        return String::new();
    };
    let (low, high) = if turned { (-high, -low) } else { (low, high) };
    format!(" ({}..{})", level(low, ""), level(high, ""))
}

/// The difference with its sign and interval.
pub(crate) fn difference(figure: &Figure) -> String {
    let Some(difference) = figure.difference else {
        return UNKNOWN.to_owned();
    };
    let sign = if difference > 0.0 { "+" } else { "" };
    format!("{sign}{}{}", level(difference, ""), interval(figure, false))
}

/// Returns a row for each of the figures, with the probabilities where `all` is asked for.
pub(crate) fn table<'m>(figures: impl IntoIterator<Item = &'m Figure>, all: bool) -> Table {
    let mut table = Table::new(match all {
        true => "figure | what | >before | >after | >difference (95 %) | >p | >p adjusted | word",
        false => "figure | what | >before | >after | >difference (95 %) | word",
    });
    let p = |p: Option<f64>| match p {
        Some(p) if p < 0.00005 => "<0.0001".to_owned(),
        p => known(p.map(|p| format!("{p:.4}"))),
    };
    for figure in figures {
        let (what, name, difference) = (figure.family.word(), &figure.name, difference(figure));
        let [before, after] = [figure.before, figure.after].map(shown);
        let (one, adjusted) = (p(figure.p), p(figure.p_adjusted));
        match all {
            true => table.row(&[
                name,
                &what,
                &before,
                &after,
                &difference,
                &one,
                &adjusted,
                &figure.word,
            ]),
            false => table.row(&[name, &what, &before, &after, &difference, &figure.word]),
        }
    }
    table
}

/// Says the unit of the figures in a sentence.
pub(crate) fn units(moved: &Moved) -> String {
    let per = match &*moved.per {
        "second" => "per second".to_owned(),
        per => format!("a {per}"),
    };
    format!("ms and calls {per}, medians over traces")
}

/// By what method it was judged, in a sentence.
pub(crate) fn method(moved: &Moved) -> String {
    let one = match moved.together {
        None => String::new(),
        Some(1) => "; one figure that moves is enough to be found".to_owned(),
        Some(n) => format!(
            "; so few traces tell only {n} figures or more that move together, {} a side tell one",
            moved.alone_at
        ),
    };
    format!(
        "{} tested by permuting whole traces; false discoveries at most {} % (Benjamini and Hochberg){one}; seed {}",
        count(moved.tested, "figure"),
        per_cent(moved.level),
        moved.seed
    )
}

/// Returns the text of what moved; `record` is where the record is, if one was written.
#[must_use]
pub fn screen(moved: &Moved, record: Option<&str>, style: Style) -> String {
    let width = style.width.min(WIDEST);
    let mut screen = Screen::new(Style { width, ..style });
    for warning in &moved.warnings {
        screen.say_by(9, format!("warning: {warning}"));
    }
    let (head, sentence) = headline(moved);
    screen.say_bold(head);
    screen.say(sentence);
    for (word, side) in [("before", &moved.before), ("after ", &moved.after)] {
        let traces = count(side.traces.len(), "trace");
        screen.say_by(7, format!("{word} {}, {traces}", side.name));
    }
    let lead = moved.leading();
    let rest = moved.figures.iter().filter(|figure| Some(*figure) != lead);
    let figures = lead.into_iter().chain(rest);
    let most = match (style.verbose, moved.moved) {
        (true, _) => usize::MAX,
        (false, 0) => MOST_OPEN,
        (false, moved) => moved.min(MOST),
    };
    let rows = table(figures.take(most), style.verbose);
    if !rows.rows.is_empty() {
        screen.add("\n");
        screen.wrapped_table(&rows);
        screen.say(units(moved));
        screen.add("\n");
    }
    if !moved.environment.is_empty() {
        let each = moved.environment.iter();
        let each = each.map(|of| format!("{} {} -> {}", of.what, of.before, of.after));
        screen.say(format!("the sides differ in: {}", join(each, "; ")));
    }
    screen.unknown(&moved.missing);
    if style.verbose {
        screen.say(method(moved));
        if moved.left_out > 0 {
            screen.say(format!("{} smaller figures were left out", moved.left_out));
        }
    }
    if !moved.command.is_empty() {
        screen.say(format!("again {}", command_line(&moved.command)));
    }
    if let Some(record) = record {
        screen.say(format!(
            "record {record} (stopgap report makes pictures of it)"
        ));
    }
    if !style.verbose {
        let hidden = moved.figures.len().saturating_sub(most);
        screen.say(format!(
            "--verbose adds {} and probabilities",
            count(hidden, "figure")
        ));
    }
    screen.finish()
}
