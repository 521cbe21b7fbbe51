//! Output of `perf stat` with `-x` and a separator, or with `-j` (Linux 6.0 and later): one line per event.
//!
//! ```text
//! # started on Sat Nov 28 04:35:44 2026
//!
//! 0.59,msec,task-clock,6.16%,591507,100.00,0.637,CPUs utilized
//! <not supported>,,instructions,0.00%,0,100.00,,
//! ```
//!
//! The percentage after the event comes with `-r N`, which prints the mean of its runs. Such a file has one run with
//! these means. `--append` writes one head per run. Metrics, which perf computes from the events, are skipped; some
//! are rates.
//!
//! perf prints an event's name unchanged, even if it contains the separator (`cpu/event=0xc0,umask=0/`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::IgnoredAny;
use stopgap_events::machine::Missing;

use super::{Format, LONGEST_LINE, Options, Read, ReadError, choose, ends_with_a_line};
use crate::compare::{MOST_RUNS, Run};

/// Most counters of a file, many times the number that perf has.
const MOST_COUNTERS: usize = 1_000_000;

/// Head of a file or of a run that was appended.
pub(super) const HEAD: &str = "# started on ";

/// Separators that no number and no unit contains. A colon is part of names (`cycles:u`).
const SEPARATORS: [char; 4] = [',', ';', '|', '\t'];

/// A line of an event.
struct Counter {
    event: String,
    unit: String,
    /// The value; `None` where it was not counted.
    value: Option<f64>,
    /// Whether it is a mean of several runs.
    mean: bool,
    /// Per cent of the time during which it was counted.
    running: f64,
}

/// The meaning of a line.
enum Line {
    Counter(Counter),
    /// A figure that perf computed from events.
    Metric,
    /// A counter of a part of the run, in words.
    Part(&'static str),
}

const INTERVALS: &str =
    "perf stat -I counts intervals of one run, which are not independent: run it without -I";
const PARTS: &str = "it counts CPUs, threads or groups apart: run perf stat without -A, --per-* and --for-each-cgroup";

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Word(String),
    Number(f64),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Object {
    counter_value: Option<Value>,
    event: Option<String>,
    unit: Option<String>,
    variance: Option<f64>,
    pcnt_running: Option<f64>,
    metric_value: Option<IgnoredAny>,
    interval: Option<IgnoredAny>,
    aggregate_number: Option<IgnoredAny>,
    cpu: Option<IgnoredAny>,
    thread: Option<IgnoredAny>,
    cgroup: Option<IgnoredAny>,
    core: Option<IgnoredAny>,
    node: Option<IgnoredAny>,
    socket: Option<IgnoredAny>,
}

/// Returns the value of a counter; `Some(None)` where perf reports that there is none.
fn value(word: &str, separator: char) -> Option<Option<f64>> {
    let word = word.trim();
    if matches!(word, "<not counted>" | "<not supported>") {
        return Some(None);
    }
    // Some languages have a decimal comma.
    let number = match separator {
        ',' => word.parse(),
        _ => word.replacen(',', ".", 1).parse(),
    };
    let number: f64 = number.ok()?;
    (number.is_finite() && number >= 0.0).then_some(Some(number))
}

/// Returns the counter in a line's fields: value, unit, event, perhaps the spread, running time in ns, share of the
/// time.
fn counter(fields: &[&str], separator: char) -> Option<Counter> {
    let [first, unit, event, rest @ ..] = fields else {
        return None;
    };
    let number = value(first, separator)?;
    let is_number = |word: &str| value(word, separator).is_some();
    if event.trim().is_empty() || is_number(event) || is_number(unit) {
        return None;
    }
    // The event's name is everything before the first fields that fit.
    let fits = |at: usize| {
        let mean = rest.get(at)?.ends_with('%');
        let [time, share, ..] = rest.get(at + usize::from(mean)..)? else {
            return None;
        };
        time.parse::<u64>().ok()?;
        let share = value(share, separator)??;
        Some((at, mean, share))
    };
    let (at, mean, running) = (0..rest.len()).find_map(fits)?;
    let mut name = (*event).to_owned();
    for part in &rest[..at] {
        name.push(separator);
        name.push_str(part);
    }
    Some(Counter {
        event: name,
        unit: (*unit).to_owned(),
        value: number,
        mean,
        running,
    })
}

fn line(line: &str) -> Option<Line> {
    if line.len() > LONGEST_LINE {
        return None;
    }
    if line.starts_with('{') {
        return object(line);
    }
    SEPARATORS.into_iter().find_map(|separator| {
        let fields: Vec<&str> = line.split(separator).collect();
        if fields.len() > 4 && fields[..3].iter().all(|field| field.is_empty()) {
            return Some(Line::Metric);
        }
        if let Some(counter) = counter(&fields, separator) {
            return Some(Line::Counter(counter));
        }
        // In front of the counter may be a time, or a CPU and perhaps the number of CPUs.
        let part =
            (1..3).any(|at| counter(fields.get(at..).unwrap_or_default(), separator).is_some());
        let time = value(fields[0], separator).is_some();
        part.then_some(Line::Part(if time { INTERVALS } else { PARTS }))
    })
}

fn object(line: &str) -> Option<Line> {
    let object: Object = serde_json::from_str(line).ok()?;
    if object.counter_value.is_none() && object.metric_value.is_none() {
        return None; // of another program
    }
    let parts = [
        object.aggregate_number.is_some(),
        object.cpu.is_some(),
        object.thread.is_some(),
        object.cgroup.is_some(),
        object.core.is_some(),
        object.node.is_some(),
        object.socket.is_some(),
    ];
    if object.interval.is_some() {
        return Some(Line::Part(INTERVALS));
    }
    if parts.contains(&true) {
        return Some(Line::Part(PARTS));
    }
    let (Some(counted), Some(event)) = (object.counter_value, object.event) else {
        return object.metric_value.map(|_| Line::Metric);
    };
    let number = match counted {
        Value::Word(word) => value(&word, ',')?,
        Value::Number(number) => Some(number).filter(|number| *number >= 0.0)?.into(),
    };
    Some(Line::Counter(Counter {
        event,
        unit: object.unit.unwrap_or_default(),
        value: number,
        mean: object.variance.is_some(),
        running: object.pcnt_running.unwrap_or(100.0),
    }))
}

/// Returns whether it is a line of perf stat for scripts.
pub(super) fn is_line(text: &str) -> bool {
    text.starts_with(HEAD) || matches!(line(text), Some(Line::Counter(_) | Line::Part(_)))
}

pub(super) fn read(text: &str, options: &Options) -> Result<Read, ReadError> {
    // The events of each run.
    let mut runs: Vec<BTreeMap<String, Counter>> = vec![BTreeMap::new()];
    let mut names = BTreeSet::new();
    let mut counters = 0;
    for (number, text) in (1..).zip(text.lines()) {
        if text.starts_with(HEAD) {
            if runs.last().is_some_and(|run| !run.is_empty()) {
                runs.push(BTreeMap::new());
            }
            if runs.len() > MOST_RUNS {
                let why = format!("more than {MOST_RUNS} runs");
                return Err(ReadError::at(number, why));
            }
            continue;
        }
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        let counter = match line(text.trim_end()) {
            Some(Line::Counter(counter)) => counter,
            Some(Line::Metric) => continue,
            Some(Line::Part(why)) => return Err(ReadError::at(number, why)),
            None => {
                let why = "no line of perf stat: it is cut off, or a program printed into it (perf stat -o FILE keeps them apart)";
                return Err(ReadError::at(number, why));
            }
        };
        let event = counter.event.clone();
        counters += 1;
        if counters > MOST_COUNTERS {
            let why = format!("more than {MOST_COUNTERS} counters");
            return Err(ReadError::at(number, why));
        }
        if !names.contains(&event) {
            names.insert(event.clone());
        }
        let twice = runs
            .last_mut()
            .and_then(|run| run.insert(event.clone(), counter));
        if twice.is_some() {
            let why = format!("event '{event}' stands there twice");
            return Err(ReadError::at(number, why));
        }
    }
    ends_with_a_line(text)?;
    let names: Vec<(String, ())> = names.into_iter().map(|name| (name, ())).collect();
    let wanted = options.series.as_deref();
    if wanted.is_some() {
        choose("event", &names, wanted)?;
    }
    let mut read = Read::new(Format::PerfStat);
    read.question = Some("perf stat".to_owned());
    if let Some(event) = wanted {
        read.parameters.insert("event".to_owned(), event.to_owned());
    }
    let mut units: Option<String> = None;
    let mut mixed = false;
    for (number, counters) in (1..).zip(&runs) {
        let mut run = Run::new(format!("run {number}"));
        for (event, counter) in counters {
            if wanted.is_some_and(|wanted| wanted != event) {
                continue;
            }
            let mut lacks = |what: &str, why: String| {
                if !read.missing.iter().any(|missing| missing.what == what) {
                    read.missing.push(Missing::new(what, why));
                }
            };
            let Some(value) = counter.value else {
                lacks(event, "perf could not count it".to_owned());
                continue;
            };
            if counter.mean {
                let why = "perf stat -r writes only means, so that the file is one run of them";
                lacks("each run of -r", why.to_owned());
            }
            if counter.running < 100.0 {
                let share = counter.running;
                let why =
                    format!("it was counted for {share} % of the time, and scaled up by perf");
                lacks(event, why);
            }
            mixed |= units.as_ref().is_some_and(|unit| *unit != counter.unit);
            units = Some(counter.unit.clone());
            run.numbers.insert(event.clone(), value);
        }
        if !run.numbers.is_empty() {
            read.runs.push(run);
        }
    }
    if read.runs.is_empty() {
        return Err(ReadError::whole(match names.is_empty() {
            true => "there is no event in it",
            false => "perf could count none of the events",
        }));
    }
    read.number_unit = units.filter(|_| !mixed).unwrap_or_default();
    Ok(read)
}
