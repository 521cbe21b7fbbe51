//! The questions: of each its verdict by run, and the pictures that a person of its field looks at.

use stopgap_events::question::Question;
use stopgap_stats::quantile::median;
use stopgap_stats::record::Answer;
use stopgap_stats::verdict::format_interval;

use super::chart::Chart;
use super::side::{Measured, Side, measured};
use super::write::{Table, escaped, list};
use super::{dots, growth, latency, mails, stack};
use crate::details::figure;
use crate::fix;
use crate::text::number;

/// Sentences of evidence that are shown of a run.
const EVIDENCE: usize = 12;

/// Runs whose evidence is shown in full.
const IN_FULL: usize = 4;

/// The section of one question; `None` where no run asked it.
pub(super) fn section(question: Question, sides: &[Side<'_>]) -> Option<String> {
    let asked: Vec<(&Side<'_>, &str, &Answer)> = sides
        .iter()
        .flat_map(|side| {
            side.runs.iter().flat_map(move |&(name, run)| {
                let answers = run.answers.iter().filter(move |a| a.question == question);
                answers.map(move |answer| (side, name, answer))
            })
        })
        .collect();
    if asked.is_empty() {
        return None;
    }
    let mut html = format!(
        "<section id=\"{question}\"><h2>{question}: {}</h2>\n",
        asks(question)
    );
    if let [(_, _, answer)] = asked[..] {
        let text = format!("{}; figure: {}", answer.verdict.text, figure_of(answer));
        html.push_str(&format!("<p class=\"verdict\">{}</p>\n", escaped(&text)));
    } else {
        let mut verdicts = Table::new(&["verdict", "figure", "record", "machine"]);
        for (side, name, answer) in &asked {
            verdicts.rows.push(vec![
                answer.verdict.text.clone(),
                figure_of(answer),
                (*name).to_owned(),
                side.name.clone(),
            ]);
        }
        html.push_str(&verdicts.html(&format!("Verdicts on {question}")));
    }
    for (_, name, answer) in asked.iter().take(IN_FULL) {
        if answer.evidence.is_empty() && answer.advice.is_empty() && answer.fixes.is_empty() {
            continue;
        }
        html.push_str(&format!(
            "<details{}><summary>Evidence of {}</summary>",
            if asked.len() == 1 { " open" } else { "" },
            escaped(name)
        ));
        html.push_str(&list(
            &answer.evidence[..answer.evidence.len().min(EVIDENCE)],
            "evidence",
        ));
        let advice: Vec<String> = answer
            .advice
            .iter()
            .take(EVIDENCE)
            .map(|a| format!("try: {a}"))
            .chain(answer.fixes.iter().map(fix::sentence))
            .collect();
        html.push_str(&list(&advice, "advice"));
        html.push_str("</details>\n");
    }
    let groups = measured(sides, question);
    let charts = charts(question, &groups, sides);
    html.push_str("<div class=\"charts\">");
    html.extend(charts.iter().map(Chart::html));
    html.push_str("</div>\n");
    html.push_str(&mails::section(question, &groups, sides));
    html.push_str(&all(question, &groups, sides));
    html.push_str("</section>\n");
    Some(html)
}

/// The answer as a number.
fn figure_of(answer: &Answer) -> String {
    let Some(figure) = &answer.figure else {
        return "none".to_owned();
    };
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format_interval(figure.value, low, high, &figure.unit),
        _ => format!("{} {} (no interval)", number(figure.value), figure.unit),
    }
}

/// What is asked.
pub(super) fn asks(question: Question) -> &'static str {
    match question {
        Question::Placement => "does mapping memory slow down as mappings pile up?",
        Question::Roundtrip => {
            "does a request and its reply cost more context switches than they must?"
        }
        Question::Chunks => "does building a big buffer stall, and can the IOMMU map it well?",
        Question::Reclaim => "do held buffers make everyone else wait when memory is short?",
        Question::Wakeup => "how late does a thread wake?",
    }
}

/// The group of a name, as a list to choose from.
pub(super) fn named<'g, 'a>(groups: &'g [Vec<Measured<'a>>], name: &str) -> Vec<&'g Measured<'a>> {
    let group = groups.iter().find(|group| group[0].series.name == name);
    group.into_iter().flatten().collect()
}

fn charts(question: Question, groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Chart> {
    match question {
        Question::Placement => placement(groups, sides),
        Question::Roundtrip => roundtrip(groups, sides),
        Question::Chunks => chunks(groups, sides),
        Question::Reclaim => reclaim(groups, sides),
        Question::Wakeup => wakeup(groups, sides),
    }
}

fn placement(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Chart> {
    let mut charts = growth::charts(groups, sides);
    let maps = named(groups, "map");
    charts.extend(dots::chart(
        "A map, by run",
        "Median time of a call of mmap.",
        &maps,
        sides,
        None,
    ));
    charts.extend(latency::charts("A map", &maps, sides));
    charts
}

fn roundtrip(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Chart> {
    let mut charts = Vec::new();
    charts.extend(dots::chart(
        "Switches a round trip, by run",
        "Switch-outs of client and server from a request to its reply; on one CPU two are needed.",
        &named(groups, "switches"),
        sides,
        Some((2.0, "2: needed")),
    ));
    let parts = [
        "client blocked",
        "client pre-empted",
        "server blocked",
        "server pre-empted",
    ];
    for (index, side) in sides.iter().enumerate() {
        let mut rows: Vec<stack::Row> = Vec::new();
        for part in parts {
            for one in named(groups, part) {
                let Some(amount) = median(one.values(index)) else {
                    continue;
                };
                let at = rows
                    .iter()
                    .position(|(label, _)| *label == one.label)
                    .unwrap_or_else(|| {
                        rows.push((one.label.clone(), Vec::new()));
                        rows.len() - 1
                    });
                rows[at].1.push((part.to_owned(), amount));
            }
        }
        let of = if sides.len() > 1 {
            format!(", {}", side.name)
        } else {
            String::new()
        };
        let words = stack::Words {
            title: &format!("Who left the CPU, and how{of}"),
            about: "Switch-outs a round trip, taken apart; medians of runs.",
            axis: "switch-outs",
            unit: "switches/rt",
            row: "a row a cell of client and server",
        };
        charts.extend(stack::chart(&words, &rows));
    }
    charts.extend(latency::charts(
        "A round trip",
        &named(groups, "latency"),
        sides,
    ));
    charts
}

fn chunks(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for group in groups
        .iter()
        .filter(|group| group[0].series.name.starts_with("entries "))
    {
        let name = crate::text::plain(&group[0].series.name);
        let all: Vec<&Measured<'_>> = group.iter().collect();
        charts.extend(dots::chart(
            &format!("IOMMU {name} by policy"),
            "Entries that map one buffer, by the page sizes in braces; fewer miss less.",
            &all,
            sides,
            None,
        ));
    }
    let takes = named(groups, "take");
    charts.extend(dots::chart(
        "Taking a buffer, by run",
        "Time to build one whole buffer.",
        &takes,
        sides,
        None,
    ));
    charts.extend(latency::charts("A block", &named(groups, "block"), sides));
    charts
}

fn reclaim(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (name, title, about) in [
        (
            "scanned per reclaimed",
            "Pages scanned for a page reclaimed, by run",
            "What reclaim looks at for each page that it gets; 1 is no waste.",
        ),
        (
            "memory stall per GiB read",
            "Memory stall, by run",
            "Time that tasks waited for memory (PSI, some) for a GiB that a reader read beside held buffers.",
        ),
        (
            "take",
            "Taking hold of a page, by run",
            "Once, when the buffer is taken.",
        ),
        (
            "pass 2",
            "A later pass of reclaim, by run",
            "What each held page costs each time that reclaim comes by.",
        ),
        (
            "release",
            "Releasing a page, by run",
            "Once, when the buffer is given back.",
        ),
    ] {
        charts.extend(dots::chart(title, about, &named(groups, name), sides, None));
    }
    charts.extend(latency::charts(
        "Populating a block",
        &named(groups, "populate a block"),
        sides,
    ));
    charts
}

fn wakeup(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Chart> {
    let all = named(groups, "wake-up");
    let mut charts = latency::charts("A wake-up", &all, sides);
    charts.extend(dots::chart(
        "A wake-up, by run",
        "Median lateness of a run.",
        &all,
        sides,
        None,
    ));
    charts.extend(latency::charts(
        "A wake-up, by CPU",
        &named(groups, "wake-up of a CPU"),
        sides,
    ));
    charts
}

/// Every figure of a question, folded.
fn all(question: Question, groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> String {
    let mut table = Table::new(&[
        "quantity",
        "unit",
        "under",
        "machine",
        "runs",
        "median of runs",
    ]);
    for one in groups.iter().flatten() {
        for (index, side) in sides.iter().enumerate() {
            let values = one.values(index);
            let middle = match (median(values.clone()), &one.series.error) {
                (Some(middle), _) => figure(middle, &one.series.unit),
                (None, Some(error)) => error.clone(),
                (None, None) => continue,
            };
            table.rows.push(vec![
                one.series.name.clone(),
                one.series.unit.clone(),
                one.label.clone(),
                side.name.clone(),
                values.len().to_string(),
                middle,
            ]);
        }
    }
    let title = format!("All figures of {question}");
    format!(
        "<details><summary>{title}</summary>{}</details>\n",
        table.html(&title)
    )
}
