//! Kernels compared in emulation: the verdict, the rows, which functions differ, and flame graphs of those that differ most.

mod flame;

use stopgap_events::order::SortRows;
use stopgap_report::html::{OtherAnswer, OtherRecord, escaped, marks};
use stopgap_report::table::{Table, known_or};
use stopgap_report::text::{number, plain};

use crate::judge::{Against, Figure, Kernels, Profiled, Row, Word};

use crate::screen::{cause, dma, headline, signed};

/// Functions of a table.
const MOST_FUNCTIONS: usize = 60;
/// Flame graphs of a comparison.
const MOST_FLAMES: usize = 6;

/// The class of an answer.
fn class(word: Word) -> &'static str {
    match word {
        Word::Longer | Word::Mixed | Word::Void => "bad",
        Word::Identical | Word::Shorter => "good",
        Word::NoDifferenceProven | Word::Inconclusive => "open",
    }
}

/// The name of a kernel, by its place.
fn called(record: &Kernels, place: usize) -> &str {
    record.kernels.get(place).map_or("?", |kernel| &kernel.name)
}

/// Returns a kernel's name without its folders.
fn file(name: &str) -> &str {
    name.rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or(name)
}

/// Returns ` (2 layouts; 5 are needed)` where each row has this one reason.
fn all_because(against: &Against) -> String {
    let mut rows = against.rows.iter();
    let first = rows.next().map_or("", |row| &*row.why);
    match !first.is_empty() && rows.all(|row| row.why == first) {
        true => format!(" ({first})"),
        false => String::new(),
    }
}

/// Reads a record, and returns what a report shows of it; `name` is what it is called there.
///
/// # Errors
/// Text that is no such record.
pub fn report(text: &str, name: &str) -> Result<OtherRecord, serde_json::Error> {
    let record: Kernels = serde_json::from_str(text)?;
    let names: Vec<String> = record
        .kernels
        .iter()
        .map(|kernel| plain(&kernel.name))
        .collect();
    let answer = |against: &Against| {
        let [old, new] = [against.before, against.after].map(|place| called(&record, place));
        let (head, text) = headline(against);
        OtherAnswer {
            class: class(against.verdict.word),
            head: head.to_owned(),
            text: against.verdict.text.clone(),
            about: format!(
                "{} against {}: {text}{}",
                file(new),
                file(old),
                all_because(against)
            ),
        }
    };
    Ok(OtherRecord {
        kind: "kernels",
        version: record.version.clone(),
        command: record.command.clone(),
        html: section(name, &record),
        answers: record.against.iter().map(answer).collect(),
        missing: record.missing.clone(),
        line: format!("kernels {}", names.join(", ")),
    })
}

/// The section of a record: of each comparison its picture, and all else folded.
fn section(name: &str, record: &Kernels) -> String {
    let mut html = format!(
        "<h2>kernels, {}</h2>\n<p>{}: {} layouts, each booted {} times.</p>\n",
        escaped(&record.unit),
        escaped(name),
        record.seeds.len(),
        record.repetitions,
    );
    for against in &record.against {
        // The top of the page has the answers.
        if record.against.len() > 1 {
            let [old, new] = [against.before, against.after].map(|place| called(record, place));
            html.push_str(&format!(
                "<h3>{} against {}</h3>\n",
                escaped(new),
                escaped(old)
            ));
        }
        html.push_str(&changes(against));
        html.push_str(&fold(
            "What a gate makes of it",
            &paragraph(&against.gate.text),
        ));
        html.push_str(&fold(
            "In what the kernels differ",
            &paragraph(&cause(record, against)),
        ));
        html.push_str(&fold("Figures of all operations", &rows(against)));
        html.push_str(&functions(record, against));
    }
    let (rows, unknown) = dma::rows(record, |number| called(record, number).to_owned());
    if !rows.is_empty() {
        let mut table = Table::with_heads(dma::HEAD);
        table.rows = rows;
        let title = "What buffers took of the IOMMU";
        let unknown: String = unknown
            .iter()
            .map(|why| paragraph(&format!("Unknown: {why}")))
            .collect();
        html.push_str(&fold(title, &(table.html(title) + &unknown)));
    }
    let mut table = Table::new("what | why");
    for one in &record.cannot_tell {
        table.row(&[&one.what, &one.why]);
    }
    let title = "What this comparison cannot tell";
    html + &fold(title, &table.html(title))
}

fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escaped(text))
}

/// Returns HTML that is folded under a title.
fn fold(title: &str, html: &str) -> String {
    format!(
        "<details><summary>{}</summary>{html}</details>\n",
        escaped(title)
    )
}

/// Returns the picture of all operations: by how much each changed under which layout.
fn changes(against: &Against) -> String {
    let shares = |row: &Row| {
        let figure = row.median.as_ref().or(row.mean.as_ref())?;
        let pairs = figure.differences.iter().zip(&figure.before);
        let shares = pairs.filter(|(_, before)| **before > 0.0);
        let shares: Vec<f64> = shares.map(|(by, before)| by / before * 100.0).collect();
        (!shares.is_empty()).then(|| (format!("{}: {}", row.name(), row.word), shares))
    };
    marks(
        "By how much each operation changed",
        "A mark is a layout: guest instructions of the median operation on the later kernel against those on the earlier one. Right \
         of 0 is more, which is worse.",
        ("change", "%"),
        (0.0, "no change"),
        against.rows.iter().filter_map(shares).collect(),
    )
}

fn rows(against: &Against) -> String {
    let mut table = Table::new("workload | operation | word | median change | mean change | why");
    let change = |figure: &Option<Figure>| {
        known_or(
            "-",
            figure.as_ref().map(|figure| {
                let change = signed(figure.change, number);
                match figure.share {
                    Some(share) => format!("{change} ({:+.2} %)", share * 100.0),
                    None => change,
                }
            }),
        )
    };
    for row in &against.rows {
        let (median, mean) = (change(&row.median), change(&row.mean));
        table.row(&[
            &row.cell,
            &row.operation,
            &row.word,
            &median,
            &mean,
            &row.why,
        ]);
    }
    table.html("Rows")
}

/// The functions, and the pictures.
fn functions(record: &Kernels, against: &Against) -> String {
    let (of, _) = record.functions_of(against);
    if of.is_empty() && record.profiles.is_empty() {
        return String::new();
    }
    let mut table = Table::new(
        "workload | operation | function | before | after | change | between two layouts of one kernel",
    );
    for of in of.iter().take(MOST_FUNCTIONS) {
        let [before, after] = [of.before, of.after].map(|value| known_or("-", value.map(number)));
        let change = signed(of.difference, number);
        table.row(&[
            &of.cell,
            &of.operation,
            &of.function,
            &before,
            &after,
            &change,
            &known_or("-", of.between_layouts.map(number)),
        ]);
    }
    let title = "Which functions differ: mean guest instructions an operation, first layout";
    let mut html = match table.rows.is_empty() {
        true => String::new(),
        false => fold(title, &table.html("Which functions differ")),
    };
    let mut pairs: Vec<(&Profiled, &Profiled, f64)> = Vec::new();
    for after in record
        .profiles
        .iter()
        .filter(|of| of.kernel == against.after)
    {
        let same = |of: &&Profiled| {
            of.kernel == against.before && of.cell == after.cell && of.operation == after.operation
        };
        let before = record.profiles.iter().find(same);
        let each = before.map(|before| (before.profile.each(), after.profile.each()));
        if let (Some(before), Some((Some(old), Some(new)))) = (before, each) {
            pairs.push((before, after, (new - old).abs()));
        }
    }
    pairs.sort_rows(|a, b| b.2.total_cmp(&a.2));
    let mut flames = String::new();
    for (before, after, _) in pairs.into_iter().take(MOST_FLAMES) {
        let title = format!("{}, {}", after.cell, after.operation);
        flames.extend(flame::figure(&title, &before.profile, &after.profile));
    }
    if !flames.is_empty() {
        html += &fold("Where the instructions went, by operation", &flames);
    }
    html
}

#[cfg(test)]
mod tests;
