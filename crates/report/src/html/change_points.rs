//! The section of a history: its points, the level between changes, and where each change may lie.

use stopgap_stats::change_points::{ChangePoints, Word};

use super::chart::{Axis, Chart, Layer, Scale, Shape};
use super::write::{escaped, list};
use super::{OtherAnswer, OtherRecord};
use crate::change_points::{between, date, headline, moved, power, table};
use crate::table::Table;
use crate::text::{count, level};

/// Points that the picture and its table have, the last ones.
const MOST: usize = 5_000;

/// Returns what a report shows of a history; `name` is what it is called there.
#[must_use]
pub fn change_points(record: &ChangePoints, name: &str) -> OtherRecord {
    let top = headline(record);
    let mut facts = record.warnings.clone();
    facts.extend(power(record));
    let about = match &record.series {
        Some(series) => format!("{} of {series}", record.what),
        None => record.what.clone(),
    };
    let moved: Vec<String> = record.last().map_or(Vec::new(), |last| {
        let each = last.moved.iter();
        each.map(|one| moved(one, &record.unit)).collect()
    });
    let changes = table(record, &record.changes).html("Changes");
    let html = format!(
        "<h2>history: {}</h2>\n{}{}{}<details><summary>Changes</summary>{changes}</details>\n",
        escaped(&about),
        list(&facts, "evidence"),
        picture(record).html(),
        list(&moved, "evidence"),
    );
    OtherRecord {
        kind: "compare --history",
        version: record.version.clone(),
        command: record.command.clone(),
        html,
        answers: vec![OtherAnswer {
            class: match record.verdict.word {
                Word::Regression => "bad",
                Word::Improvement | Word::NoChange => "good",
                Word::Inconclusive => "open",
            },
            head: top.in_a_line(),
            text: top.in_a_line(),
            about: String::new(),
        }],
        missing: record.missing.clone(),
        line: format!(
            "history of {about}, {name}, {}",
            count(record.points.len(), "occasion")
        ),
    }
}

/// Where points lie along the time: days before the last one, or numbers of occasions where not each has a date of its own.
struct Times {
    title: &'static str,
    unit: &'static str,
    places: Vec<f64>,
}

impl Times {
    fn of(record: &ChangePoints) -> Times {
        let dates: Option<Vec<u64>> = record
            .points
            .iter()
            .map(|point| point.date_unix_s)
            .collect();
        match dates.as_deref() {
            Some([first, .., last]) if first < last => {
                let dates = dates.iter().flatten();
                let ago = |date: &u64| (*date as f64 - *last as f64) / 86_400.0;
                Times {
                    title: "before the last occasion",
                    unit: "days",
                    places: dates.map(ago).collect(),
                }
            }
            _ => Times {
                title: "occasion",
                unit: "number",
                places: (1..=record.points.len()).map(|at| at as f64).collect(),
            },
        }
    }
}

fn picture(record: &ChangePoints) -> Chart {
    let times = Times::of(record);
    let n = record.points.len();
    let from = n.saturating_sub(MOST);
    let at = |point: usize| (times.places[point], record.points[point].value);
    let mut points = Layer::new("an occasion", 0);
    points
        .shapes
        .push(Shape::Marks((from..n).map(at).collect()));
    let mut levels = Layer::new("level (median)", 1);
    let mut dates = Layer::new("where the change lies (95 %)", 4);
    let mut begins = from;
    for (number, change) in record.changes.iter().enumerate() {
        if change.bad < from {
            begins = begins.max(change.at);
            continue;
        }
        dates.shapes.push(Shape::Band(
            times.places[change.good.max(from)],
            times.places[change.bad],
        ));
        let last = number + 1 == record.changes.len();
        let next = record.changes.get(number + 1).map_or(n - 1, |next| next.at);
        for (span, level, drawn) in [
            ((begins, change.at), change.before, true),
            ((change.at, next), change.after, last),
        ] {
            if drawn {
                levels.shapes.push(Shape::Line(vec![
                    (times.places[span.0], level),
                    (times.places[span.1], level),
                ]));
            }
        }
        begins = change.at;
    }
    // Linear axes begin at 0, where a change of a few per cent is not seen.
    let scale = match record.points.iter().all(|point| point.value > 0.0) {
        true => Scale::Log,
        false => Scale::Linear,
    };
    let mut table = Table::new("date | label | value | change");
    for point in from..n {
        let here = record.changes.iter().find(|change| change.at == point);
        let change = here.map_or_else(String::new, |change| {
            format!("between {}", between(record, change))
        });
        let shown = level(record.points[point].value, &record.unit);
        table.row(&[
            &date(record, point),
            &record.points[point].label,
            &shown,
            &change,
        ]);
    }
    // A missing band or level needs no entry in the legend.
    let layers = [dates, points, levels];
    Chart {
        layers: layers
            .into_iter()
            .filter(|layer| !layer.shapes.is_empty())
            .collect(),
        table,
        ..Chart::new(
            format!("{}, occasion by occasion", record.what),
            "A mark is an occasion. A line is the median between two changes. The shaded time holds the change with 95 % confidence.",
            Axis::new(times.title, times.unit, Scale::Linear),
            Axis::new(&record.what, &record.unit, scale),
        )
    }
}
