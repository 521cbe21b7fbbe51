//! What `go test -bench` prints: a line a run, with as many lines of one benchmark as `-count` says.
//!
//! ```text
//! pkg: example.org/bench
//! BenchmarkFields-2      15548     2099 ns/op     2048 B/op     1 allocs/op
//! ```
//!
//! Less is better of the first three units by Go's own convention, of others where a line `Unit NAME better=lower` says so.
//! Other metrics are left out. Lines of other text belong to the program.

use std::collections::{BTreeMap, BTreeSet};

use stopgap_events::machine::Missing;

use super::{Format, LONGEST_LINE, Options, Read, ReadError, choose, ends_with_a_line};
use crate::compare::{MOST_RUNS, Run};

const LESS_IS_BETTER: [&str; 3] = ["ns/op", "B/op", "allocs/op"];

/// Benchmarks of a file, many times those of a real one.
const MOST_BENCHMARKS: usize = 100_000;

/// A benchmark's name, and its lines by their numbers.
type Benchmark<'a> = (&'a str, Vec<(usize, &'a str)>);

/// A line's benchmark and what follows it; `None` of other lines, as of text that begins with `Benchmarking`.
fn name(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix("Benchmark")?;
    if rest.starts_with(char::is_lowercase) {
        return None;
    }
    let end = line.find(char::is_whitespace).unwrap_or(line.len());
    Some((&line[..end], line[end..].trim()))
}

/// Numbers by their units; `None` of what is no result.
fn figures(rest: &str) -> Option<Vec<(&str, f64)>> {
    if rest.len() > LONGEST_LINE {
        return None;
    }
    let mut words = rest.split_whitespace();
    words
        .next()?
        .parse::<u64>()
        .ok()
        .filter(|&times| times > 0)?;
    let mut figures = Vec::new();
    while let Some(word) = words.next() {
        let value: f64 = word.parse().ok()?;
        let unit = words.next()?;
        if !value.is_finite() || value < 0.0 {
            return None;
        }
        figures.push((unit, value));
    }
    (!figures.is_empty()).then_some(figures)
}

/// Whether it is a line of a result.
pub(super) fn is_result(line: &str) -> bool {
    name(line).is_some_and(|(_, rest)| figures(rest).is_some())
}

pub(super) fn read(text: &str, options: &Options) -> Result<Read, ReadError> {
    let mut package = "";
    let mut found: BTreeMap<(&str, &str), Vec<(usize, &str)>> = BTreeMap::new();
    let mut failed = BTreeSet::new();
    let mut better: BTreeMap<&str, bool> = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(name) = line.strip_prefix("pkg:") {
            package = name.trim();
        } else if let Some(rest) = line.trim_start().strip_prefix("--- FAIL: ") {
            failed.insert(rest.split_whitespace().next().unwrap_or_default());
        } else if let Some(rest) = line.strip_prefix("Unit ") {
            let mut words = rest.split_whitespace();
            let unit = words.next().unwrap_or_default();
            for word in words {
                if let Some(way) = word.strip_prefix("better=") {
                    better.insert(unit, way == "lower");
                }
            }
        } else if let Some((name, rest)) = name(line) {
            // With -v a benchmark's name stands alone before it runs.
            if rest.is_empty() {
                continue;
            }
            if figures(rest).is_none() {
                let why = "no result of a benchmark: it is cut off, or the program printed into it";
                return Err(ReadError::at(number, why));
            }
            if found.len() == MOST_BENCHMARKS && !found.contains_key(&(package, name)) {
                let why = format!("more than {MOST_BENCHMARKS} benchmarks");
                return Err(ReadError::at(number, why));
            }
            found
                .entry((package, name))
                .or_default()
                .push((number, rest));
        }
    }
    ends_with_a_line(text)?;
    let mut packages: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, name) in found.keys() {
        *packages.entry(name).or_default() += 1;
    }
    let all: Vec<(String, Benchmark<'_>)> = found
        .into_iter()
        .map(|((package, name), lines)| {
            let label = match packages.get(name) {
                Some(1) | None => name.to_owned(),
                _ => format!("{package} {name}"),
            };
            (label, (name, lines))
        })
        .collect();
    let (name, lines) = choose("benchmark", &all, options.series.as_deref())?;
    let processors = name
        .rsplit_once('-')
        .filter(|(_, end)| end.parse::<u32>().is_ok());
    let plain = processors.map_or(*name, |(plain, _)| plain);
    if failed.contains(name) || failed.contains(plain) {
        return Err(ReadError::whole(format!(
            "{name} failed, and what it measured is no evidence"
        )));
    }
    if lines.len() > MOST_RUNS {
        let (many, line) = (lines.len(), lines[MOST_RUNS].0);
        return Err(ReadError::at(
            line,
            format!("{many} runs, at most {MOST_RUNS}"),
        ));
    }
    let mut read = Read::new(Format::Go);
    read.question = Some("Go benchmark".to_owned());
    read.parameters
        .insert("benchmark".to_owned(), (*name).to_owned());
    for &(number, rest) in lines {
        let mut run = Run::new(format!("line {number}"));
        for (unit, value) in figures(rest).unwrap_or_default() {
            let lower = better.get(unit).copied();
            if lower.unwrap_or(LESS_IS_BETTER.contains(&unit)) {
                run.numbers.insert(unit.to_owned(), value);
                continue;
            }
            if read.missing.iter().any(|missing| missing.what == unit) {
                continue;
            }
            let why = match lower.is_some() || unit.ends_with("/s") {
                true => "more of it is better, and compare takes less for better".to_owned(),
                false => format!(
                    "whether less of it is better is not known; a line 'Unit {unit} better=lower' in the file says so"
                ),
            };
            read.missing.push(Missing::new(unit, why));
        }
        if run.numbers.is_empty() {
            let why = "there is no figure of which less is better";
            return Err(ReadError::at(number, why));
        }
        read.runs.push(run);
    }
    Ok(read)
}
