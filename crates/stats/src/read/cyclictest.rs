//! Output of cyclictest (rt-tests 1.0 to 2.8).
//!
//! ```text
//! T: 0 (  792) P: 0 I:500 C:   6801 Min:     26 Act:   88 Avg:  175 Max:   35377     -q
//!
//! # Histogram                                                                        -h
//! 000017 000003 000000
//! # Total: 000003795 000002507
//! # Max Latencies: 11849 265566
//! # Histogram Overflows: 00051 00123
//! ```
//!
//! Latencies are in microseconds, or with `--nsecs` (`-N`) in nanoseconds. `--json` names the unit. Lines of threads
//! show it by the width of `Act` and `Avg`: five places for microseconds, eight for nanoseconds. A text of a
//! histogram with `-q` has no such line. There, a sample below [`SHORTEST_NS`] shows microseconds; else
//! [`Options::unit`] must be given.
//!
//! The interval is that of the first thread: with `-q`, each further thread has one longer by `--distance`. `--json`
//! has it in the command line. The text of a histogram does not have it.
//!
//! All threads of a file are one run, because a disturbance delays them together. `Total` counts the samples within
//! the histogram.

use std::collections::BTreeMap;

use serde::Deserialize;
use stopgap_events::machine::Missing;

use super::counts::Counts;
use super::{Format, Options, Read, ReadError, Unit, ends_with_a_line};
use crate::compare::Run;

const QUESTION: &str = "cyclictest wake-up latency";
/// On any machine, a timer's interrupt, the wake-up and the return to user space together take longer than this.
const SHORTEST_NS: u64 = 300;

/// Microseconds between two wake-ups without `-i`.
const INTERVAL: &str = "1000";

const NO_STALLS: &str =
    "for how long it ran is only in --json, or the threshold is beyond the histogram";

pub(super) fn read(text: &str, options: &Options) -> Result<Read, ReadError> {
    if text.trim_start().starts_with('{') {
        return json(text, options);
    }
    let read = if text.lines().any(|line| line.starts_with("# Histogram")) {
        histogram(text, options)
    } else {
        summary(text, options)
    }?;
    ends_with_a_line(text)?;
    Ok(read)
}

fn new() -> Read {
    let mut read = Read::new(Format::Cyclictest);
    read.question = Some(QUESTION.to_owned());
    read
}

/// Sets the unit and the interval, from the file or from the options.
fn settle(
    read: &mut Read,
    told: Option<Unit>,
    interval: Option<String>,
    options: &Options,
) -> Result<(), ReadError> {
    if let (Some(told), Some(given)) = (told, options.unit)
        && told != given
    {
        return Err(ReadError::whole(format!(
            "its latencies are in {told}, and the unit given is {given}"
        )));
    }
    let unit = told.or(options.unit);
    read.unit = unit.map_or_else(String::new, |unit| unit.to_string());
    match interval {
        Some(interval) => drop(read.parameters.insert("interval".to_owned(), interval)),
        None => read.unsaid.push("interval".to_owned()),
    }
    Ok(())
}

/// Returns the spaces and digits after `label` in a line of `-q`.
fn places(line: &str, label: &str) -> Option<(usize, usize)> {
    let rest = &line[line.find(label)? + label.len()..];
    let number = rest.trim_start_matches(' ');
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    Some((rest.len() - number.len(), digits))
}

/// Returns the unit of a thread's line by the width of its columns; `None` if numbers fill them, or if spaces were
/// removed.
fn unit_of_line(line: &str) -> Option<Unit> {
    let (spaces, digits) = places(line, "Min:")?;
    if spaces + digits < 7 {
        return None;
    }
    ["Act:", "Avg:"]
        .iter()
        .find_map(|label| match places(line, label)? {
            (spaces, digits) if spaces > 0 && spaces + digits == 8 => Some(Unit::Ns),
            (spaces, digits) if spaces > 0 && spaces + digits == 5 => Some(Unit::Us),
            (0, 5..8) => Some(Unit::Us),
            _ => None,
        })
}

/// Returns the number after `label` in a line of `-q`.
fn field(line: &str, label: &str) -> Option<u64> {
    let rest = &line[line.find(label)? + label.len()..];
    let rest = rest.trim_start();
    let end = rest.find(|letter: char| !letter.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

fn summary(text: &str, options: &Options) -> Result<Read, ReadError> {
    let mut read = new();
    let mut threads = BTreeMap::new();
    let mut unit = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with("policy:") {
            continue;
        }
        let told = || {
            let thread = field(line.strip_prefix("T:")?, "")?;
            let [cycles, average, max] = ["C:", "Avg:", "Max:"].map(|label| field(line, label));
            Some((thread, (cycles?, average?, max?, field(line, "I:"))))
        };
        let Some((thread, told)) = told() else {
            return Err(ReadError::at(
                number,
                "it is no line of a thread: it is cut off or damaged",
            ));
        };
        unit = unit.or_else(|| unit_of_line(line));
        // Without -q the line is printed repeatedly. The last one counts.
        threads.insert(thread, told);
    }
    let interval = threads.first_key_value().and_then(|(_, told)| told.3);
    settle(&mut read, unit, interval.map(|us| us.to_string()), options)?;
    read.parameters
        .insert("threads".to_owned(), threads.len().to_string());
    let threads = threads
        .into_values()
        .map(|(cycles, average, max, _)| (cycles, to_f64(average), Some(max)));
    // Among files of one kind the rounding changes nothing. Compared with --json it is half a unit on average.
    let why = "cyclictest's text rounds it down to a whole number, and --json does not";
    read.missing
        .push(Missing::new("fraction of the average", why));
    averages(read, threads)
}

/// Returns the run of a file without a histogram, from the cycles, average and maximum of each thread.
fn averages(
    mut read: Read,
    threads: impl Iterator<Item = (u64, f64, Option<u64>)>,
) -> Result<Read, ReadError> {
    let (mut sum, mut all, mut longest) = (0.0, 0.0, None);
    for (cycles, average, max) in threads {
        sum += average * to_f64(cycles);
        all += to_f64(cycles);
        longest = longest.max(max);
    }
    let average = sum / all;
    if !average.is_finite() {
        return Err(ReadError::whole("there is no cycle in it"));
    }
    read.number_unit.clone_from(&read.unit);
    read.runs.push(Run {
        max: longest.map(to_f64),
        ..Run::of_number("", "average", average)
    });
    let why = "without -h cyclictest keeps only the least, the longest and the average";
    read.missing
        .push(Missing::new("median, p99 and stalls", why));
    Ok(read)
}

fn to_f64(value: u64) -> f64 {
    value as f64
}

fn histogram(text: &str, options: &Options) -> Result<Read, ReadError> {
    let mut read = new();
    let mut rows: Vec<(u64, Vec<u64>)> = Vec::new();
    let mut totals = None;
    let (mut beyond, mut longest) = (None, None);
    let (mut unit, mut interval) = (None, None);
    for (number, line) in (1..).zip(text.lines()) {
        let all = |text: &str| -> Result<Vec<u64>, ReadError> {
            let words = text.split_whitespace().map(|word| {
                let why = || ReadError::at(number, format!("'{word}' is no count"));
                word.parse::<u64>().map_err(|_| why())
            });
            words.collect()
        };
        if let Some(rest) = line.strip_prefix("# Total:") {
            totals = Some(all(rest)?);
        } else if let Some(rest) = line.strip_prefix("# Histogram Overflows:") {
            beyond = Some(all(rest)?);
        } else if let Some(rest) = line.strip_prefix("# Max Latencies:") {
            longest = Some(all(rest)?);
        } else if line.starts_with("T:") {
            // This line is printed without -q.
            unit = unit.or_else(|| unit_of_line(line));
            interval = interval.or_else(|| field(line, "I:"));
        } else if line.starts_with(['#', 'T'])
            || line.trim().is_empty()
            || line.starts_with("policy:")
        {
            // Headings, and other lines that are printed without -q.
        } else {
            let mut row = all(line)?;
            let (width, index) = (row.len(), row.first().copied().unwrap_or(0));
            if width < 2
                || rows
                    .first()
                    .is_some_and(|(_, first)| first.len() + 1 != width)
            {
                return Err(ReadError::at(
                    number,
                    "a row of another width: it is cut off",
                ));
            }
            if rows.last().is_some_and(|(before, _)| *before >= index) {
                return Err(ReadError::at(number, "the latency does not grow"));
            }
            row.remove(0);
            rows.push((index, row));
        }
    }
    let totals = totals.ok_or_else(|| ReadError::whole("no line '# Total:': it is cut off"))?;
    let width = rows.first().map_or(0, |(_, row)| row.len());
    let mut sums = vec![0u64; width];
    for (_, row) in &rows {
        for (sum, count) in sums.iter_mut().zip(row) {
            *sum = sum.saturating_add(*count);
        }
    }
    // These lines come after the rows. Without them the longest samples would be missing.
    let of_all = |figures: Option<Vec<u64>>, name: &str| {
        let why = || ReadError::whole(format!("no whole line '{name}': it is cut off"));
        // With --histofall a row has a sum, which these lines may lack.
        let fits = |figures: &Vec<u64>| figures.len() + 1 >= width.max(2);
        figures.filter(fits).ok_or_else(why)
    };
    let longest = of_all(longest, "# Max Latencies:")?;
    let beyond = of_all(beyond, "# Histogram Overflows:")?;
    if sums != totals {
        return Err(ReadError::whole(format!(
            "it has {sums:?} samples, and says {totals:?}: it is cut off or damaged"
        )));
    }
    // With --histofall the last column is the sum of the others.
    let sum_of_all = |row: &[u64]| match row {
        [threads @ .., last] if threads.len() > 1 => {
            threads
                .iter()
                .fold(0, |sum: u64, count| sum.saturating_add(*count))
                == *last
        }
        _ => false,
    };
    let threads = if sum_of_all(&totals) && rows.iter().all(|(_, row)| sum_of_all(row)) {
        width - 1
    } else {
        width
    };
    let mut counts = Counts::default();
    let mut add = || {
        for (value, row) in &rows {
            row.iter()
                .take(threads)
                .try_for_each(|&count| counts.add(*value, count))?;
        }
        beyond
            .iter()
            .take(threads)
            .try_for_each(|&count| counts.add_beyond(count))
    };
    add().map_err(ReadError::whole)?;
    read.parameters
        .insert("threads".to_owned(), threads.to_string());
    let max = longest.into_iter().take(threads).max();
    let seen = |(_, row): &&(u64, Vec<u64>)| row.iter().any(|&count| count > 0);
    let shortest = rows.iter().find(seen).map(|(value, _)| *value);
    let short = shortest.is_some_and(|shortest| shortest < SHORTEST_NS);
    let unit = unit.or(short.then_some(Unit::Us));
    settle(&mut read, unit, interval.map(|us| us.to_string()), options)?;
    // Without a unit the lengths are unknown, so no stall is counted.
    let unit_ns = unit.or(options.unit).map_or(1, Unit::ns);
    counts.put_run(read, max, (unit_ns, None), options, NO_STALLS)
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "cmdline:", alias = "cmdline")]
    command: Option<String>,
    start_time: Option<String>,
    end_time: Option<String>,
    resolution_in_ns: Option<u64>,
    thread: BTreeMap<String, Thread>,
}

#[derive(Deserialize)]
struct Thread {
    #[serde(default)]
    histogram: BTreeMap<String, u64>,
    cycles: u64,
    max: Option<u64>,
    avg: Option<f64>,
}

fn json(text: &str, options: &Options) -> Result<Read, ReadError> {
    let document: Document =
        serde_json::from_str(text).map_err(|error| ReadError::json("cyclictest's JSON", &error))?;
    let mut read = new();
    let unit = match document.resolution_in_ns {
        Some(1) => Unit::Ns,
        _ => Unit::Us,
    };
    let command = document.command.as_deref();
    let interval = command.map(|words| interval(words).unwrap_or_else(|| INTERVAL.to_owned()));
    settle(&mut read, Some(unit), interval, options)?;
    let threads = &document.thread;
    read.parameters
        .insert("threads".to_owned(), threads.len().to_string());
    let max = threads.values().filter_map(|thread| thread.max).max();
    if threads.values().all(|thread| thread.histogram.is_empty()) {
        let mut known = Vec::new();
        for thread in threads.values() {
            let none = || ReadError::whole("a thread has no average");
            known.push((thread.cycles, thread.avg.ok_or_else(none)?, thread.max));
        }
        return averages(read, known.into_iter());
    }
    let mut counts = Counts::default();
    for (name, thread) in threads {
        let wrong = |why: &str| ReadError::whole(format!("thread {name}: {why}"));
        let mut within: u64 = 0;
        for (value, &count) in &thread.histogram {
            let length: u64 = value
                .parse()
                .map_err(|_| wrong(&format!("'{value}' is no latency")))?;
            within = within.saturating_add(count);
            counts.add(length, count).map_err(|why| wrong(&why))?;
        }
        let beyond = thread
            .cycles
            .checked_sub(within)
            .ok_or_else(|| wrong("its histogram has more samples than cycles"))?;
        counts.add_beyond(beyond).map_err(|why| wrong(&why))?;
    }
    let ends = document
        .start_time
        .as_deref()
        .zip(document.end_time.as_deref());
    let duration = ends.and_then(|(start, end)| {
        let seconds = clock(end)?.checked_sub(clock(start)?)?;
        // Only times of day are compared, so the difference is taken within one day.
        let seconds = u64::try_from(seconds.rem_euclid(86_400)).ok()?;
        seconds.checked_mul(1_000_000_000).filter(|&time| time > 0)
    });
    counts.put_run(read, max, (unit.ns(), duration), options, NO_STALLS)
}

/// Returns the interval of a command line, in microseconds, as text.
fn interval(command: &str) -> Option<String> {
    let mut words = command.split_whitespace();
    while let Some(word) = words.next() {
        if word == "-i" || word == "--interval" {
            return words.next().map(str::to_owned);
        }
        let joined = word.strip_prefix("--interval=").or(word.strip_prefix("-i"));
        if let Some(value) = joined.filter(|value| value.parse::<u64>().is_ok()) {
            return Some(value.to_owned());
        }
    }
    None
}

/// Returns the time of day in seconds of a time such as `Sat, 21 Nov 2026 23:37:26 +0000`.
fn clock(time: &str) -> Option<i64> {
    let time = time.split_whitespace().find(|word| word.contains(':'))?;
    let mut seconds: i64 = 0;
    for part in time.split(':').take(3) {
        let part: u8 = part.parse().ok()?;
        seconds = seconds * 60 + i64::from(part);
    }
    Some(seconds)
}
