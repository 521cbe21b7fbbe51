//! Kernels compared in emulation: the verdict, the rows, which functions differ, and flame graphs of those that differ most.

mod flame;

use stopgap_report::html::{OtherAnswer, OtherRecord, escaped};
use stopgap_report::table::{Table, known_or};
use stopgap_report::text::plain;

use crate::judge::{Against, Figure, Kernels, Profiled, Word};

use crate::screen::dma;

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
        OtherAnswer {
            class: class(against.verdict.word),
            text: against.verdict.text.clone(),
            about: format!("{new} against {old}"),
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

/// The section of a record.
fn section(name: &str, record: &Kernels) -> String {
    let mut html = format!(
        "<h2>kernels, {}</h2>\n<p>{}: {} layouts, each booted {} times.</p>\n",
        escaped(&record.unit),
        escaped(name),
        record.seeds.len(),
        record.repetitions,
    );
    for against in &record.against {
        let [old, new] = [against.before, against.after].map(|place| called(record, place));
        html.push_str(&format!(
            "<h3>{} against {}</h3>\n<p class=\"verdict\">{}</p>\n<p>{}</p>\n<p>What differs: {}</p>\n",
            escaped(new),
            escaped(old),
            escaped(&against.verdict.text),
            escaped(&against.gate.text),
            escaped(&against.cause.to_string()),
        ));
        html.push_str(&rows(against));
        html.push_str(&functions(record, against));
    }
    let (rows, unknown) = dma::rows(record, |number| called(record, number).to_owned());
    if !rows.is_empty() {
        let mut table = Table::with_heads(dma::HEAD);
        table.rows = rows;
        html.push_str("<h3>What buffers took of the IOMMU</h3>");
        html.push_str(&table.html("What buffers took of the IOMMU"));
        for why in unknown {
            html.push_str(&format!("<p>Unknown: {}</p>\n", escaped(&why)));
        }
    }
    let mut table = Table::new("what | why");
    for one in &record.cannot_tell {
        table.row(&[&one.what, &one.why]);
    }
    html.push_str("<h3>What this comparison cannot tell</h3>");
    html.push_str(&table.html("What this comparison cannot tell"));
    html
}

fn rows(against: &Against) -> String {
    let mut table = Table::new("workload | operation | word | median change | mean change | why");
    let change = |figure: &Option<Figure>| {
        known_or(
            "-",
            figure.as_ref().map(|figure| match figure.share {
                Some(share) => format!("{:+.1} ({:+.2} %)", figure.change, share * 100.0),
                None => format!("{:+.1}", figure.change),
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
    let of = record.functions_of(against);
    if of.is_empty() && record.profiles.is_empty() {
        return String::new();
    }
    let mut table = Table::new("workload | operation | function | before | after | change");
    for of in of.iter().take(MOST_FUNCTIONS) {
        let [before, after] = [of.before, of.after]
            .map(|value| known_or("-", value.map(|value| format!("{value:.2}"))));
        let change = format!("{:+.2}", of.difference);
        table.row(&[
            &of.cell,
            &of.operation,
            &of.function,
            &before,
            &after,
            &change,
        ]);
    }
    let mut html = String::from(
        "<h4>Which functions differ, mean guest instructions an operation, first layout</h4>",
    );
    html.push_str(&table.html("Which functions differ"));
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
    pairs.sort_by(|a, b| b.2.total_cmp(&a.2));
    for (before, after, _) in pairs.into_iter().take(MOST_FLAMES) {
        let title = format!("{}, {}", after.cell, after.operation);
        html.extend(flame::figure(&title, &before.profile, &after.profile));
    }
    html
}

#[cfg(test)]
mod tests;
