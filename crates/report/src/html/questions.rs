//! The questions: of each its verdict by run, and the pictures that a person of its field looks at.

use stopgap_events::question::Question;
use stopgap_stats::record::Answer;
use stopgap_stats::verdict::format_interval;

use super::chart::Chart;
use super::side::{Measured, Side, measured, named};
use super::write::{Section, escaped, list};
use super::{dots, growth, latency, mails, stack};
use crate::fix;
use crate::table::Table;
use crate::text::{figure, number};

/// Sentences of evidence that are shown of a run.
const EVIDENCE: usize = 12;

/// Runs whose evidence is shown in full.
const IN_FULL: usize = 4;

/// A picture of a question.
enum Picture {
    /// Cost against N of all times.
    Growth,
    /// A dot a run: series, title, text below the picture.
    Dots(&'static str, &'static str, &'static str),
    /// The same with a broken line at 2 switches.
    Switches(&'static str, &'static str, &'static str),
    /// A dot a run of each kind of IOMMU entries.
    Entries,
    /// Switch-outs by thread and kind.
    Parts,
    /// How long, and the tail: series, what it is of.
    Latency(&'static str, &'static str),
}

/// Returns the pictures of a question, in the order of the page.
fn pictures(question: Question) -> &'static [Picture] {
    use Picture::{Dots, Entries, Growth, Latency, Parts, Switches};
    match question {
        Question::Placement => &[
            Growth,
            Dots("map", "A map, by run", "Median time of a call of mmap."),
            Latency("map", "A map"),
        ],
        Question::Roundtrip => &[
            Switches(
                "switches",
                "Switches a round trip, by run",
                "Switch-outs of client and server from a request to its reply; on one CPU two are needed.",
            ),
            Parts,
            Latency("latency", "A round trip"),
        ],
        Question::Chunks => &[
            Entries,
            Dots(
                "take",
                "Taking a buffer, by run",
                "Time to build one whole buffer.",
            ),
            Latency("block", "A block"),
        ],
        Question::Reclaim => &[
            Dots(
                "scanned per reclaimed",
                "Pages scanned for a page reclaimed, by run",
                "Pages that reclaim looks at for each page that it gets; 1 is no waste.",
            ),
            Dots(
                "memory stall per GiB read",
                "Memory stall, by run",
                "Time that tasks waited for memory (PSI, some) for a GiB that a reader read beside held buffers.",
            ),
            Dots(
                "take",
                "Taking hold of a page, by run",
                "Once, when the buffer is taken.",
            ),
            Dots(
                "pass 2",
                "A later pass of reclaim, by run",
                "The cost of each held page each time that reclaim comes by.",
            ),
            Dots(
                "release",
                "Releasing a page, by run",
                "Once, when the buffer is given back.",
            ),
            Latency("populate a block", "Populating a block"),
        ],
        Question::Wakeup => &[
            Latency("wake-up", "A wake-up"),
            Dots("wake-up", "A wake-up, by run", "Median lateness of a run."),
            Latency("wake-up of a CPU", "A wake-up, by CPU"),
        ],
    }
}

/// Returns the section of one question; `None` where no run asked it.
pub(super) fn section(question: Question, sides: &[Side<'_>]) -> Option<String> {
    let asked = sides.iter().flat_map(|side| {
        let answers = side.answers(question);
        answers.map(move |(name, answer)| (side, name, answer))
    });
    let asked: Vec<(&Side<'_>, &str, &Answer)> = asked.collect();
    if asked.is_empty() {
        return None;
    }
    let mut section = Section::new(
        question.word(),
        &format!("{question}: {}", question.facts().asks),
    );
    if let [(_, _, answer)] = asked[..] {
        let figure = figure_of(answer);
        section.verdict(&format!("{}; figure: {figure}", answer.verdict.text));
    } else {
        let mut verdicts = Table::new("verdict | figure | record | machine");
        for (side, name, answer) in &asked {
            verdicts.row(&[&answer.verdict.text, &figure_of(answer), name, &side.name]);
        }
        section.table(&format!("Verdicts on {question}"), &verdicts);
    }
    for (_, name, answer) in asked.iter().take(IN_FULL) {
        let open = if asked.len() == 1 { " open" } else { "" };
        section.add(&evidence(name, answer, open));
    }
    let groups = measured(sides, question);
    let pictures = pictures(question).iter();
    let charts: Vec<Chart> = pictures
        .flat_map(|picture| charts(picture, &groups, sides))
        .collect();
    section.charts(&charts);
    mails::add(question, &groups, sides, &mut section);
    section.folded_table(&format!("All figures of {question}"), &all(&groups, sides));
    Some(section.finish())
}

/// Returns evidence and advice of an answer, folded unless `open`; nothing where there is none.
fn evidence(name: &str, answer: &Answer, open: &str) -> String {
    let evidence: Vec<String> = answer.evidence.iter().take(EVIDENCE).cloned().collect();
    let advice = answer.advice.iter().take(EVIDENCE);
    let advice = advice.map(|advice| format!("try: {advice}"));
    let advice: Vec<String> = advice
        .chain(answer.fixes.iter().map(fix::sentence))
        .collect();
    if evidence.is_empty() && advice.is_empty() {
        return String::new();
    }
    format!(
        "<details{open}><summary>Evidence of {}</summary>{}{}</details>\n",
        escaped(name),
        list(&evidence, "evidence"),
        list(&advice, "advice")
    )
}

/// Returns the answer as a number.
fn figure_of(answer: &Answer) -> String {
    let Some(figure) = &answer.figure else {
        return "none".to_owned();
    };
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format_interval(figure.value, low, high, &figure.unit),
        _ => format!("{} {} (no interval)", number(figure.value), figure.unit),
    }
}

fn charts(picture: &Picture, groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Chart> {
    let dots = |series, title, about, rule| {
        let chart = dots::chart(title, about, named(groups, series), sides, rule);
        chart.into_iter().collect()
    };
    match *picture {
        Picture::Growth => growth::charts(groups, sides),
        Picture::Dots(series, title, about) => dots(series, title, about, None),
        Picture::Switches(series, title, about) => {
            dots(series, title, about, Some((2.0, "2: needed")))
        }
        Picture::Entries => {
            let is_entries =
                |group: &&Vec<Measured<'_>>| group[0].series.name.starts_with("entries ");
            let about =
                "Entries that map one buffer, by the page sizes in braces; fewer miss less.";
            let chart = |group: &Vec<Measured<'_>>| {
                let title = format!("IOMMU {} by policy", group[0].series.name);
                dots::chart(&title, about, group, sides, None)
            };
            groups.iter().filter(is_entries).filter_map(chart).collect()
        }
        Picture::Parts => sides
            .iter()
            .enumerate()
            .filter_map(|(side, one)| parts(groups, side, one))
            .collect(),
        Picture::Latency(series, what) => latency::charts(what, named(groups, series), sides),
    }
}

/// Returns switch-outs of one side, taken apart.
fn parts(groups: &[Vec<Measured<'_>>], index: usize, side: &Side<'_>) -> Option<Chart> {
    let mut rows: Vec<stack::Row> = Vec::new();
    for part in [
        "client blocked",
        "client pre-empted",
        "server blocked",
        "server pre-empted",
    ] {
        for one in named(groups, part) {
            let Some(amount) = one.median(index) else {
                continue;
            };
            let part = (part.to_owned(), amount);
            match rows.iter_mut().find(|(label, _)| *label == one.label) {
                Some((_, parts)) => parts.push(part),
                None => rows.push((one.label.clone(), vec![part])),
            }
        }
    }
    stack::chart(
        &format!("Who left the CPU, and how{}", side.of),
        "Switch-outs a round trip, taken apart; medians of runs.",
        ("switch-outs", "switches/rt"),
        "a row a cell of client and server",
        rows,
    )
}

/// Returns every figure of a question.
fn all(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Table {
    let mut table = Table::new("quantity | unit | under | machine | runs | median of runs");
    for one in groups.iter().flatten() {
        let series = one.series;
        for (index, side) in sides.iter().enumerate() {
            let middle = one.median(index).map(|middle| figure(middle, &series.unit));
            let runs = one.values(index).len();
            if let Some(middle) = middle.or_else(|| series.error.clone()) {
                table.row(&[
                    &series.name,
                    &series.unit,
                    &one.label,
                    &side.name,
                    &runs,
                    &middle,
                ]);
            }
        }
    }
    table
}
