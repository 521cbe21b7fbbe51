//! The questions: the verdict of each, the picture that shows it, and the folded rest.

use std::fmt::Display;

use stopgap_events::question::Question;
use stopgap_stats::record::{Answer, Run};
use stopgap_stats::verdict::format_interval;

use super::chart::Chart;
use super::side::{Measured, Side, measured, named};
use super::write::{Section, escaped, list};
use super::{dots, growth, latency, mails, side, stack, top};
use crate::fix;
use crate::table::Table;
use crate::text::{figure, number};

/// Sentences of evidence that are shown of a run.
const EVIDENCE: usize = 12;

/// Runs whose evidence is shown in full.
const IN_FULL: usize = 4;

/// A picture of a question.
enum Picture {
    /// The time of a whole cycle of map, touch and unmap against N, beside the control.
    Growth,
    /// The time of each call against N.
    Calls,
    /// A dot per run: series, title, text below the picture.
    Dots(&'static str, &'static str, &'static str),
    /// The same of the largest buffers only.
    Largest(&'static str, &'static str, &'static str),
    /// The same with a broken line at 2 switches.
    Switches(&'static str, &'static str, &'static str),
    /// A dot per run of each kind of IOMMU entries.
    Entries,
    /// Switch-outs by thread and kind.
    Parts,
    /// Latency by percentile: series, its subject.
    Tail(&'static str, &'static str),
}

/// Returns the pictures of a question, in the order of the page. The first that has figures answers the question; the others
/// are folded.
fn pictures(question: Question) -> &'static [Picture] {
    use Picture::{Calls, Dots, Entries, Growth, Largest, Parts, Switches, Tail};
    match question {
        Question::Placement => &[Growth, Calls, Tail("map", "A call of mmap")],
        Question::Roundtrip => &[
            Switches(
                "switches",
                "Context switches per round trip",
                "Client and server on one CPU need two switches from a request to its reply. On every Linux a client that \
                 blocks in read costs up to four, and a server that writes each reply by itself up to two per reply.",
            ),
            Parts,
            Tail("latency", "A round trip"),
        ],
        Question::Chunks => &[
            Largest(
                "take",
                "Time to build the largest buffer",
                "Time to map and touch one whole buffer, by the pages that it is built from.",
            ),
            Entries,
            Tail("block", "Touching a block"),
        ],
        Question::Reclaim => &[
            Dots(
                "scanned per reclaimed",
                "Pages scanned per page reclaimed",
                "Pages that the kernel looks at for each page that it frees. At 1 it frees every page that it looks at.",
            ),
            Dots(
                "memory stall per GiB read",
                "Time that tasks waited for memory",
                "PSI some, per GiB that a reader read beside the held buffers.",
            ),
            Dots(
                "take",
                "Cost of holding a page",
                "Paid once, when the buffer is taken.",
            ),
            Dots(
                "pass 2",
                "Cost of a held page in a later pass of reclaim",
                "Paid in each pass.",
            ),
            Dots(
                "release",
                "Cost of releasing a page",
                "Paid once, when the buffer is released.",
            ),
            Tail("populate a block", "Populating a block"),
        ],
        Question::Wakeup => &[
            Tail("wake-up", "Lateness of a wake-up"),
            Dots(
                "wake-up",
                "Lateness of a wake-up, run by run",
                "A mark is the median of a run.",
            ),
            Tail("wake-up of a CPU", "Lateness of a wake-up, CPU by CPU"),
        ],
    }
}

/// Returns the section of one question; `None` where no run asked it.
pub(super) fn section(question: Question, sides: &[Side<'_>]) -> Option<String> {
    let asked = sides.iter().flat_map(|side| {
        let answers = side.answers(question);
        answers.map(move |(name, run, answer)| (side, name, run, answer))
    });
    let asked: Vec<(&Side<'_>, &str, &Run, &Answer)> = asked.collect();
    if asked.is_empty() {
        return None;
    }
    let title = format!("{question}: {}", question.facts().asks);
    let mut section = Section::new(question.word(), &title);
    if let [(_, _, run, answer)] = asked[..] {
        let row = top::answer(run, answer);
        section.verdict(row.state, &row.text);
        section.add(&top::next(&row));
    } else {
        let mut verdicts = Table::new("answer | sign | figure | record | machine");
        for (side, name, run, answer) in &asked {
            let row = top::answer(run, answer);
            let state = row.state.map_or("", top::mark);
            let figure = figure_of(answer);
            verdicts.row(&[&row.text, &state, &figure, name, &side.name]);
        }
        section.table(&format!("Verdicts on {question}"), &verdicts);
    }
    let groups = measured(sides, question);
    let pictures = pictures(question).iter();
    let pictures = pictures.map(|picture| {
        let charts = charts(picture, &groups, sides);
        charts.iter().map(Chart::html).collect::<String>()
    });
    let mut pictures = pictures.filter(|html| !html.is_empty());
    section.add(&pictures.next().unwrap_or_default());
    section.fold_pictures(&pictures.collect::<String>());
    let evidence: String = asked
        .iter()
        .take(IN_FULL)
        .map(|(_, name, _, answer)| evidence(name, answer, asked.len() > 1))
        .collect();
    section.fold("Evidence", &evidence);
    mails::add(question, &groups, sides, &mut section);
    section.folded_table(&format!("All figures of {question}"), &all(&groups, sides));
    Some(section.finish())
}

/// Returns the verdict as the record has it, with its evidence and advice; `named` after its record where there are several.
fn evidence(name: &str, answer: &Answer, named: bool) -> String {
    let verdict = format!("{}. Figure: {}", answer.verdict.text, figure_of(answer));
    let evidence = answer.evidence.iter().take(EVIDENCE).cloned();
    let lines: Vec<String> = [verdict].into_iter().chain(evidence).collect();
    let advice = answer.advice.iter().take(EVIDENCE);
    let advice = advice.map(|advice| format!("try: {advice}"));
    let advice: Vec<String> = advice
        .chain(answer.fixes.iter().map(fix::sentence))
        .collect();
    let name = match named {
        true => format!("<h3>{}</h3>", escaped(name)),
        false => String::new(),
    };
    name + &list(&lines, "evidence") + &list(&advice, "advice")
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
        Picture::Growth => growth::cycles(groups, sides),
        Picture::Calls => growth::calls(groups, sides),
        Picture::Dots(series, title, about) => dots(series, title, about, None),
        Picture::Largest(series, title, about) => {
            let largest = side::largest(named(groups, series));
            let chart = dots::chart(title, about, &largest, sides, None);
            chart.into_iter().collect()
        }
        Picture::Switches(series, title, about) => {
            dots(series, title, about, Some((2.0, "2: needed on one CPU")))
        }
        Picture::Entries => {
            let is_entries =
                |group: &&Vec<Measured<'_>>| group[0].series.name.starts_with("entries ");
            let about = "Entries that an IOMMU of these page sizes needs for one buffer. Fewer entries miss less.";
            let chart = |group: &Vec<Measured<'_>>| {
                let title = format!("IOMMU {}", group[0].series.name);
                dots::chart(&title, about, group, sides, None)
            };
            groups.iter().filter(is_entries).filter_map(chart).collect()
        }
        Picture::Parts => {
            let each = sides.iter().enumerate();
            stack::charts(each.map(|(side, one)| parts(groups, side, one)))
        }
        Picture::Tail(series, what) => latency::charts(what, named(groups, series), sides),
    }
}

/// Returns switch-outs of one side, taken apart.
fn parts(groups: &[Vec<Measured<'_>>], index: usize, side: &Side<'_>) -> stack::Given<'static> {
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
    stack::Given {
        title: format!("Who left the CPU, and how{}", side.of),
        about: "Switches per round trip by the thread that left the CPU. Blocked: it waited. Pre-empted: another thread took its CPU. \
         Medians of runs.",
        axis: ("context switches", "per round trip"),
        row: "client and server",
        rows,
    }
}

/// Returns every figure of a question.
fn all(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Table {
    let alone = sides.len() == 1;
    let mut table = Table::new(match alone {
        true => "quantity | unit | measured with | runs | median of runs",
        false => "quantity | unit | measured with | machine | runs | median of runs",
    });
    for one in groups.iter().flatten() {
        let series = one.series;
        for (index, side) in sides.iter().enumerate() {
            let middle = one.median(index).map(|middle| figure(middle, &series.unit));
            let runs = one.values(index).len();
            if let Some(middle) = middle.or_else(|| series.error.clone()) {
                let mut cells: Vec<&dyn Display> = vec![&series.name, &series.unit, &one.label];
                if !alone {
                    cells.push(&side.name);
                }
                cells.extend([&runs as &dyn Display, &middle]);
                table.row(&cells);
            }
        }
    }
    table
}
