//! The history of a watch: time lost by cause over the hours or days, and who lost it.

use std::collections::BTreeMap;

use stopgap_events::date::utc;
use stopgap_events::units::Nanos;
use stopgap_stats::history::{Bin, Document, History, IDLE, OfCause, doing, name_of, time};

use super::chart::{Axis, Chart, Layer, MOST, Scale, Shape};
use super::top::{Part, Row};
use super::write::Section;
use crate::history::{causes, doubts, kinds};
use crate::table::{Table, join};
use crate::text::{count, number, thousands};

const SECOND: u64 = 1_000_000_000;
/// Kinds that the table has.
const KINDS: usize = 100;
/// Causes at the top of the page.
const CAUSES: usize = 6;

/// Returns the headline of a history, and a row for each cause. None of them has a state: no rule says how much is too much.
pub(super) fn top(document: &Document) -> (Row, Vec<Part>) {
    let history = &document.history;
    let row = |of: &OfCause| {
        let share = of.sum.ns as f64 / history.lost_ns.max(1) as f64 * 100.0;
        let most = history.kinds.iter().find(|kind| kind.cause == of.cause);
        let most = most.map_or_else(String::new, |kind| {
            format!("; most of it {}", name_of(kind))
        });
        let text = format!(
            "{}: {} ({share:.0} %) in {}, the longest {}{most}",
            doing(&of.cause),
            time(of.sum.ns),
            match of.sum.waits {
                1 => "1 wait".to_owned(),
                waits => format!("{} waits", thousands(waits)),
            },
            Nanos(of.sum.longest_ns),
        );
        Row::new(None, &of.cause, &text)
    };
    let rows = lost(history).take(CAUSES).map(row).collect();
    (
        Row::new(None, "history", &capital(&history.verdict)),
        vec![("What threads lost time to", rows)],
    )
}

/// Returns a sentence with a capital letter.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Returns the causes that cost time.
fn lost(history: &History) -> impl Iterator<Item = &OfCause> {
    history.causes.iter().filter(|of| of.cause != IDLE)
}

/// Returns the section of a history. The verdict stands in it where it is not `alone` in the page, whose headline it is.
pub(super) fn section(id: &str, name: &str, document: &Document, alone: bool) -> String {
    let history = &document.history;
    let mut section = Section::new(id, &format!("history: {name}"));
    if !alone {
        section.verdict(None, &history.verdict);
    }
    let hosts = join(&history.hosts, " and ");
    let mut facts = vec![format!(
        "{} watched, {}{}",
        time(history.watched_ns),
        count(usize::try_from(history.boots).unwrap_or(0), "boot"),
        if hosts.is_empty() {
            String::new()
        } else {
            format!(", of {hosts}")
        },
    )];
    // The page may be read on another clock.
    let clock = |unix_s: u64| utc(unix_s).replace('T', " ").replace('Z', " UTC");
    facts.extend(doubts(history, &clock));
    section.list(&facts, "evidence");
    section.charts(&[picture(history)]);
    section.folded_table("What time was lost to", &causes(history, None));
    section.folded_table("Who waited", &kinds(history, KINDS));
    section.finish()
}

/// Returns how much each cause took in which part of the time.
fn picture(history: &History) -> Chart {
    let lost: Vec<&OfCause> = lost(history).collect();
    // The last ink is for the others together, where there are more.
    let named = match lost.len() {
        0..=MOST => lost.len(),
        _ => MOST - 1,
    };
    let mut layers: Vec<(String, Vec<&str>)> = lost[..named]
        .iter()
        .map(|of| (doing(&of.cause).to_owned(), vec![&*of.cause]))
        .collect();
    if named < lost.len() {
        let others = lost[named..].iter().map(|of| &*of.cause);
        layers.push((format!("{} others", lost.len() - named), others.collect()));
    }
    let scale = Ago::of(history);
    let mut heads = vec![format!("{} before the end", scale.unit)];
    heads.extend(layers.iter().map(|(name, _)| format!(">{name}, s per s")));
    let mut table = Table::with_heads(heads);
    for bin in &history.bins {
        let mut row = vec![number(-scale.place(history, bin.unix_s))];
        for (_, causes) in &layers {
            row.push(match bin.watched_ns {
                0 => "not watched".to_owned(),
                _ => number(rate(bin, causes)),
            });
        }
        table.rows.push(row);
    }
    let length = history.bins.first().map_or(0, |bin| bin.length_ns);
    let about = format!(
        "Seconds per second that all threads together lost to a cause, in steps of {}. A line ends where nobody watched.",
        time(length)
    );
    let x = Axis::new("before the end", scale.unit, Scale::Linear);
    let y = Axis::new("lost per second", "s", Scale::Linear);
    Chart {
        layers: layers
            .iter()
            .zip(0..)
            .map(|((name, causes), ink)| {
                let mut layer = Layer::new(name, ink);
                layer.shapes = steps(history, &scale, causes);
                layer
            })
            .collect(),
        table,
        ..Chart::new("Time lost by cause", about, x, y)
    }
}

/// Seconds lost to some causes in a second that somebody watched.
fn rate(bin: &Bin, causes: &[&str]) -> f64 {
    let of = |cause: &&str| bin.lost_ns.get(*cause).copied().unwrap_or(0);
    let lost: u64 = causes.iter().map(of).sum();
    lost as f64 / bin.watched_ns.max(1) as f64
}

/// Lines of a level for each bin, from each time in which somebody watched to the next in which nobody did.
fn steps(history: &History, scale: &Ago, causes: &[&str]) -> Vec<Shape> {
    let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for bin in &history.bins {
        if bin.watched_ns == 0 {
            lines.push(Vec::new());
            continue;
        }
        let end = bin.unix_s + bin.length_ns / SECOND;
        let places = [bin.unix_s, end.min(history.to_unix_s)];
        let y = rate(bin, causes);
        if let Some(line) = lines.last_mut() {
            line.extend(places.map(|unix_s| (scale.place(history, unix_s), y)));
        }
    }
    lines.retain(|line| !line.is_empty());
    lines.into_iter().map(Shape::Line).collect()
}

/// The unit of time before the end.
struct Ago {
    unit: &'static str,
    seconds: f64,
}

impl Ago {
    fn of(history: &History) -> Ago {
        let units: BTreeMap<u64, &'static str> =
            [(60, "min"), (3_600, "h"), (86_400, "days")].into();
        let begin = history
            .bins
            .first()
            .map_or(history.from_unix_s, |bin| bin.unix_s);
        let length = history.to_unix_s.saturating_sub(begin);
        let fits = units
            .into_iter()
            .rfind(|(seconds, _)| length >= 3 * seconds);
        let (seconds, unit) = fits.unwrap_or((60, "min"));
        Ago {
            unit,
            seconds: seconds as f64,
        }
    }

    /// The end is 0, and what was before it is less.
    fn place(&self, history: &History, unix_s: u64) -> f64 {
        (unix_s as f64 - history.to_unix_s as f64) / self.seconds
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use stopgap_stats::history::{Adder, Key, SCHEMA, Sum};

    /// Six hours, of which nobody watched the third and fourth; seven causes.
    fn history() -> Document {
        const HOUR: u64 = 3_600 * SECOND;
        let mut adder = Adder::new(0, 6 * HOUR);
        for minute in (0..360).filter(|minute| !(120..240).contains(minute)) {
            for (number, cause) in [
                "io",
                "lock",
                "mmap_lock",
                "run-queue",
                "event",
                "child",
                "fence",
                "idle",
            ]
            .into_iter()
            .enumerate()
            {
                let ns = SECOND * (8 - number as u64) * (1 + minute % 7);
                let key = Key {
                    cause: cause.to_owned(),
                    process: Some("postgres".to_owned()),
                    cgroup: None,
                    call: Some("fdatasync".to_owned()),
                };
                let sum = Sum {
                    waits: 1,
                    ns,
                    longest_ns: ns,
                    buckets: [(ns, 1)].into(),
                };
                let at = (60 * minute * SECOND, 60 * (minute + 1) * SECOND);
                adder.add(at, Some("b"), key, &sum);
            }
        }
        Document {
            schema: SCHEMA.to_owned(),
            version: "1".to_owned(),
            history: adder.finish(BTreeSet::from(["box".to_owned()]), Vec::new()),
        }
    }

    #[test]
    fn the_top_says_what_threads_lost_time_to() {
        let document = history();
        let (head, parts) = top(&document);
        assert!(
            head.text
                .starts_with("Threads lost most time waiting for the disk: 23 %"),
            "{}",
            head.text
        );
        let [(_, rows)] = &parts[..] else { panic!() };
        assert_eq!(rows.len(), CAUSES);
        assert_eq!(rows[0].word, "io");
        assert_eq!(
            rows[0].text,
            "waiting for the disk: 2.1 h (23 %) in 240 waits, the longest 56 s; most of it postgres in fdatasync"
        );
        let html = section("h", "h", &document, true);
        assert!(
            html.contains("from 1970-01-01 02:00:00 UTC to 1970-01-01 04:00:00 UTC nobody watched"),
            "{html}"
        );
    }

    #[test]
    fn a_cause_is_a_line_that_ends_where_nobody_watched() {
        let document = history();
        let chart = picture(&document.history);
        let names: Vec<&str> = chart.layers.iter().map(|layer| &*layer.name).collect();
        assert_eq!(
            names,
            [
                "waiting for the disk",
                "waiting for a lock",
                "waiting for an address space (mmap_lock)",
                "waiting for a CPU",
                "event",
                "2 others"
            ]
        );
        assert_eq!(chart.x.unit, "h");
        for layer in &chart.layers {
            let [Shape::Line(first), Shape::Line(second)] = &layer.shapes[..] else {
                panic!("{:?}", layer.shapes);
            };
            let ends = [
                first[0],
                first[first.len() - 1],
                second[0],
                second[second.len() - 1],
            ];
            let far = ends.iter().zip([-6.0, -4.0, -2.0, 0.0]);
            let far = far.map(|((x, _), at): (_, f64)| (x - at).abs());
            assert!(far.fold(0.0, f64::max) < 1e-9, "{ends:?}");
        }
        // 8 s on the mean times 4 in each 60 s, of the first cause.
        let Shape::Line(line) = &chart.layers[0].shapes[0] else {
            panic!();
        };
        let mean = line.iter().map(|(_, y)| y).sum::<f64>() / line.len() as f64;
        assert!((mean - 8.0 * 4.0 / 60.0).abs() < 0.02, "{mean}");
    }
}
