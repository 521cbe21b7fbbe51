//! What `rtla timerlat hist` and `rtla osnoise hist` print (Linux `tools/tracing/rtla`, 5.17 to 6.17).
//!
//! ```text
//! # RTLA timerlat histogram
//! # Time unit is microseconds (us)
//! # Duration:   0 00:00:10
//! Index   IRQ-000   Thr-000   IRQ-001   Thr-001
//! 0          4764         0      4489         0
//! over:         0         2         0         1
//! count:    10001     10001     10001     10001
//! ```
//!
//! A row counts samples from its index up to the next; the index is taken as their length, as rtla's own figures are whole
//! units rounded down. A histogram of which the counts do not add up is refused.

use super::counts::Counts;
use super::{Format, Options, Read, ReadError, choose, ends_with_a_line};

struct Column {
    /// `IRQ`, `Thr`, `Usr`, `CPU`.
    kind: String,
    counts: Counts,
    count: Option<u64>,
    max: Option<u64>,
}

pub(super) fn read(text: &str, options: &Options) -> Result<Read, ReadError> {
    let mut read = Read::new(Format::Rtla);
    let mut has_max = false;
    let mut unit_ns = None;
    let mut duration = None;
    let mut columns: Vec<Column> = Vec::new();
    let mut index_before = None;
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |why: &str| ReadError::at(number, why);
        if let Some(heading) = line.strip_prefix('#') {
            let heading = heading.trim();
            if let Some(what) = heading.strip_prefix("RTLA ") {
                let what = what.trim_end_matches(" histogram");
                read.question = Some(format!("rtla {what}"));
            } else if heading.ends_with("(us)") {
                (unit_ns, read.unit) = (Some(1_000), "us".to_owned());
            } else if heading.ends_with("(ns)") {
                (unit_ns, read.unit) = (Some(1), "ns".to_owned());
            } else if let Some(time) = heading.strip_prefix("Duration:") {
                duration = seconds(time);
            }
            continue;
        }
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        // The rest is the sum over all CPUs.
        if first == "ALL:" {
            break;
        }
        if first == "Index" {
            if !columns.is_empty() {
                return Err(wrong("a second histogram begins"));
            }
            columns = words
                .map(|name| Column {
                    kind: name.split('-').next().unwrap_or_default().to_owned(),
                    counts: Counts::default(),
                    count: None,
                    max: None,
                })
                .collect();
            continue;
        }
        if columns.is_empty() {
            return Err(wrong(
                "it stands before the line 'Index' with the names of columns",
            ));
        }
        let row: Vec<&str> = words.collect();
        let known = ["over:", "count:", "min:", "avg:", "max:"].contains(&first);
        let index = match first.parse::<u64>() {
            Ok(index) => Some(index),
            Err(_) if known => None,
            Err(_) => return Err(wrong(&format!("'{first}' is no index"))),
        };
        if row.len() != columns.len() {
            let (have, need) = (row.len(), columns.len());
            return Err(wrong(&format!("{have} numbers of {need}: it is cut off")));
        }
        if let Some(index) = index {
            if index_before.is_some_and(|before| before >= index) {
                return Err(wrong("the index does not grow"));
            }
            index_before = Some(index);
        }
        has_max |= first == "max:";
        for (column, word) in columns.iter_mut().zip(row) {
            // A CPU without a sample has no least and no longest one.
            let value = match word.parse::<u64>() {
                Ok(value) => value,
                Err(_) if word == "-" && index.is_none() => continue,
                Err(_) => return Err(wrong(&format!("'{word}' is no count"))),
            };
            let done = match (index, first) {
                (Some(index), _) => column.counts.add(index, value),
                (None, "over:") => column.counts.add_beyond(value),
                (None, "count:") => {
                    column.count = Some(value);
                    Ok(())
                }
                (None, "max:") => {
                    column.max = Some(value);
                    Ok(())
                }
                _ => Ok(()),
            };
            done.map_err(|why| wrong(&why))?;
        }
    }
    // It is the last line of the summary, and a column without a sample has no number in it.
    if columns.iter().any(|column| column.count.is_some()) && !has_max {
        return Err(ReadError::whole("no line 'max:': it is cut off"));
    }
    ends_with_a_line(text)?;
    let unit_ns = unit_ns.ok_or_else(|| ReadError::whole("no line says the time unit"))?;
    pool(read, &columns, unit_ns, duration, options)
}

/// The columns of one kind, over all CPUs.
fn pool(
    mut read: Read,
    columns: &[Column],
    unit_ns: u64,
    duration: Option<u64>,
    options: &Options,
) -> Result<Read, ReadError> {
    let mut kinds: Vec<(String, String)> = Vec::new();
    for column in columns {
        if !kinds.iter().any(|(kind, _)| *kind == column.kind) {
            kinds.push((column.kind.clone(), column.kind.clone()));
        }
    }
    // The latency of a thread that waits for the timer.
    let usual = kinds.iter().any(|(kind, _)| kind == "Thr").then_some("Thr");
    let kind = choose("column", &kinds, options.series.as_deref().or(usual))?;
    let mut all = Counts::default();
    let mut max = None;
    for column in columns.iter().filter(|column| column.kind == *kind) {
        let Some(count) = column.count else {
            return Err(ReadError::whole("no line 'count:': it is cut off"));
        };
        if count != column.counts.total {
            return Err(ReadError::whole(format!(
                "a column of {kind} has {} samples, and says {count}: it is cut off or damaged",
                column.counts.total
            )));
        }
        all.merge(&column.counts).map_err(ReadError::whole)?;
        max = max.max(column.max);
    }
    read.parameters.insert("column".to_owned(), kind.clone());
    let why = "the duration is not said, or the threshold is beyond the histogram";
    all.put_run(read, max, (unit_ns, duration), options, why)
}

/// `0 00:10:00`, days and hours, minutes, seconds, as nanoseconds; `None` of none and of anything else.
fn seconds(text: &str) -> Option<u64> {
    let (days, clock) = text.trim().split_once(char::is_whitespace)?;
    let mut sum: u64 = days.parse().ok()?;
    for (part, times) in clock.trim().split(':').zip([24, 60, 60]) {
        sum = sum.checked_mul(times)?.checked_add(part.parse().ok()?)?;
    }
    sum.checked_mul(1_000_000_000).filter(|&time| time > 0)
}
