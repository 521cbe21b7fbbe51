//! JSON of google-benchmark (1.5 to 1.9): of one benchmark each repetition, its CPU time and its elapsed time an iteration.
//!
//! Aggregates are left out. So are repetitions that the benchmark ended with an error or skipped, whose times say nothing. Bytes
//! and items per second are the same times turned round, and of a counter nobody says whether less is better.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use stopgap_events::machine::Missing;

use super::{Format, Options, Read, ReadError, choose};
use crate::compare::{MOST_RUNS, Run};

#[derive(Deserialize)]
struct Document {
    #[serde(deserialize_with = "few")]
    benchmarks: Vec<Entry>,
}

/// Entries of a file, many times those of a real one.
const MOST_ENTRIES: usize = 100_000;

/// An entry takes many times its size in a file.
fn few<'de, D: Deserializer<'de>>(entries: D) -> Result<Vec<Entry>, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = Vec<Entry>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of benchmarks")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Vec<Entry>, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = all.next_element()? {
                if entries.len() == MOST_ENTRIES {
                    return Err(A::Error::custom(format!(
                        "more than {MOST_ENTRIES} entries"
                    )));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }
    entries.deserialize_seq(Few)
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    run_name: Option<String>,
    run_type: Option<String>,
    aggregate_name: Option<IgnoredAny>,
    #[serde(default)]
    error_occurred: bool,
    #[serde(default)]
    skipped: bool,
    real_time: Option<f64>,
    cpu_time: Option<f64>,
    time_unit: Option<String>,
    bytes_per_second: Option<IgnoredAny>,
    items_per_second: Option<IgnoredAny>,
}

impl Entry {
    fn is_aggregate(&self) -> bool {
        self.aggregate_name.is_some() || self.run_type.as_deref() == Some("aggregate")
    }

    fn run_name(&self) -> &str {
        self.run_name.as_deref().unwrap_or(&self.name)
    }
}

pub(super) fn read(text: &str, options: &Options) -> Result<Read, ReadError> {
    let document: Document = serde_json::from_str(text)
        .map_err(|error| ReadError::json("google-benchmark's JSON", &error))?;
    let all = document.benchmarks.len();
    let entries = document.benchmarks.into_iter();
    let entries: Vec<Entry> = entries.filter(|entry| !entry.is_aggregate()).collect();
    if entries.is_empty() && all > 0 {
        return Err(ReadError::whole(
            "it has aggregates alone: let each repetition be reported (--benchmark_report_aggregates_only=false)",
        ));
    }
    let mut names: Vec<(String, String)> = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in &entries {
        let name = entry.run_name();
        if seen.insert(name) {
            names.push((name.to_owned(), name.to_owned()));
        }
    }
    let name = choose("benchmark", &names, options.series.as_deref())?;
    let mut read = Read::new(Format::Google);
    read.question = Some("time of an iteration".to_owned());
    read.number_unit = "ns".to_owned();
    read.parameters.insert("benchmark".to_owned(), name.clone());
    let (mut repetitions, mut failed) = (0, 0);
    for entry in entries.iter().filter(|entry| entry.run_name() == name) {
        repetitions += 1;
        if entry.error_occurred || entry.skipped {
            failed += 1;
            continue;
        }
        if read.runs.len() == MOST_RUNS {
            return Err(ReadError::whole(format!(
                "more than {MOST_RUNS} repetitions of '{name}'"
            )));
        }
        let run = run(entry, repetitions).map_err(|why| {
            ReadError::whole(format!("'{name}', repetition {repetitions}: {why}"))
        })?;
        read.runs.push(run);
        for (what, there) in [
            ("bytes per second", entry.bytes_per_second.is_some()),
            ("items per second", entry.items_per_second.is_some()),
        ] {
            if there && !read.missing.iter().any(|missing| missing.what == what) {
                let why = "more is better; compared are the times that it is computed from";
                read.missing.push(Missing::new(what, why));
            }
        }
    }
    if read.runs.is_empty() {
        return Err(ReadError::whole(format!(
            "all {failed} repetitions of '{name}' failed or were skipped, which is no evidence of how long it takes"
        )));
    }
    if failed > 0 {
        let why = format!("{failed} of {repetitions} are left out");
        let what = "repetitions that failed or were skipped";
        read.missing.push(Missing::new(what, why));
    }
    Ok(read)
}

fn run(entry: &Entry, number: usize) -> Result<Run, String> {
    let unit = entry.time_unit.as_deref();
    let ns = match unit {
        Some("ns") => 1.0,
        Some("us") => 1e3,
        Some("ms") => 1e6,
        Some("s") => 1e9,
        Some(other) => return Err(format!("its time unit is '{other}'")),
        None => return Err("it has no time unit".to_owned()),
    };
    let mut run = Run::new(format!("repetition {number}"));
    for (name, time) in [("cpu time", entry.cpu_time), ("real time", entry.real_time)] {
        let time = time.ok_or_else(|| format!("it has no {name}"))?;
        let length = time * ns;
        if length < 0.0 || !length.is_finite() {
            return Err(format!("its {name} is {time}"));
        }
        run.numbers.insert(name.to_owned(), length);
    }
    Ok(run)
}
