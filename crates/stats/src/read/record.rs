//! A run record of ours: the blocks of one series, each of which was a process.
//!
//! Histograms are decoded one at a time: in text one may be 4,000 times smaller than in memory.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use stopgap_events::machine::{Environment, Missing};
use stopgap_events::question::Question;

use super::{Format, Options, Read, ReadError, choose};
use crate::compare::{MOST_RUNS, Run, RunStalls};
use crate::histogram::Histogram;
use crate::record::{Parameter, SCHEMA, Stalls};

/// Parameters that say nothing of what was measured: how often, and by which dice.
const PASSING: [&str; 2] = ["runs", "seed"];

#[derive(Deserialize)]
struct Record {
    schema: String,
    environment: Environment,
    answers: Vec<Answer>,
    #[serde(default)]
    interrupted: bool,
}

#[derive(Deserialize)]
struct Answer {
    question: Question,
    parameters: BTreeMap<String, Parameter>,
    series: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    name: String,
    unit: String,
    parameters: BTreeMap<String, Parameter>,
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    run: u32,
    value: f64,
    /// Base64, not decoded yet.
    histogram: Option<String>,
    stalls: Option<Stalls>,
}

pub(super) fn read(text: &str, options: &Options) -> Result<Read, ReadError> {
    let record: Record =
        serde_json::from_str(text).map_err(|error| ReadError::json("a run record", &error))?;
    if record.schema != SCHEMA {
        let found = &record.schema;
        return Err(ReadError::whole(format!(
            "the document's schema is '{found}', expected '{SCHEMA}'"
        )));
    }
    let answers: Vec<(String, Answer)> = record
        .answers
        .into_iter()
        .filter(|answer| answer.series.iter().any(|series| !series.blocks.is_empty()))
        .map(|answer| (answer.question.to_string(), answer))
        .collect();
    let wanted = options.question.map(Question::word);
    let answer = choose("question with figures", &answers, wanted)?;
    let series = series(answer, options.series.as_deref())?;

    let mut read = Read::new(Format::Stopgap);
    read.question = Some(answer.question.to_string());
    read.environment = Some(record.environment);
    read.parameters
        .insert("series".to_owned(), series.name.clone());
    for (name, value) in answer.parameters.iter().chain(&series.parameters) {
        if !PASSING.contains(&&**name) {
            read.parameters.insert(name.clone(), said(value));
        }
    }
    if record.interrupted {
        let why = "the run was interrupted: it has fewer samples than were planned";
        read.missing.push(Missing::new("the rest of the run", why));
    }
    if series.blocks.len() > MOST_RUNS {
        let many = series.blocks.len();
        return Err(ReadError::whole(format!(
            "{many} runs, at most {MOST_RUNS}"
        )));
    }
    if series.blocks.iter().any(|block| block.histogram.is_some()) {
        read.unit = "ns".to_owned();
    } else {
        read.number_unit.clone_from(&series.unit);
    }
    for block in &series.blocks {
        let name = format!("run {}", block.run);
        let run = run(&name, series, block, options, &mut read.missing)
            .map_err(|why| ReadError::whole(format!("series {}, {name}: {why}", series.name)))?;
        read.runs.push(run);
    }
    Ok(read)
}

fn said(parameter: &Parameter) -> String {
    match parameter {
        Parameter::Number(number) => number.to_string(),
        Parameter::Word(word) => word.clone(),
    }
}

/// The series of that name, else the first one that is a latency, else the first one; of several with a name the last.
fn series<'a>(answer: &'a Answer, wanted: Option<&str>) -> Result<&'a Series, ReadError> {
    let measured = || {
        answer
            .series
            .iter()
            .filter(|series| !series.blocks.is_empty())
    };
    let name = match wanted {
        Some(name) => name,
        None => {
            let latency =
                |series: &&Series| series.blocks.iter().any(|block| block.histogram.is_some());
            let first = measured().find(latency).or_else(|| measured().next());
            first.map_or("", |series| &*series.name)
        }
    };
    measured()
        .rfind(|series| series.name == name)
        .ok_or_else(|| {
            let mut names: Vec<&str> = measured().map(|series| &*series.name).collect();
            names.dedup();
            names.truncate(20);
            ReadError::whole(format!("no series '{name}'; there is {}", names.join(", ")))
        })
}

fn run(
    name: &str,
    series: &Series,
    block: &Block,
    options: &Options,
    missing: &mut Vec<Missing>,
) -> Result<Run, String> {
    let Some(text) = &block.histogram else {
        return Ok(Run::of_number(name, &*series.name, block.value));
    };
    let text = IntoDeserializer::<ValueError>::into_deserializer(&**text);
    let histogram = Histogram::deserialize(text).map_err(|error| error.to_string())?;
    if histogram.is_empty() {
        return Err("its histogram is empty".to_owned());
    }
    let run = Run::of_histogram(name, &histogram);
    let Some(stalls) = &block.stalls else {
        return Ok(run);
    };
    // Samples follow each other: all of them together are the time in which a stall could be seen.
    let looked = looked(&histogram);
    let threshold = options.stall_threshold_ns.unwrap_or(stalls.threshold_ns);
    if threshold == stalls.threshold_ns {
        return Ok(run.with_stalls(RunStalls::of_record(stalls, looked)));
    }
    if threshold > stalls.threshold_ns && stalls.episodes.len() as u64 == stalls.count {
        let mut longer = stalls.clone();
        longer.episodes.retain(|stall| stall.length_ns >= threshold);
        longer.count = longer.episodes.len() as u64;
        longer.threshold_ns = threshold;
        return Ok(run.with_stalls(RunStalls::of_record(&longer, looked)));
    }
    let why = format!(
        "{name} kept its stalls from {} ns on, and not every one of them: from {threshold} ns on they cannot be told",
        stalls.threshold_ns
    );
    missing.push(Missing::new("stalls", why));
    Ok(run)
}

/// The sum of all samples, nanoseconds.
fn looked(histogram: &Histogram) -> u64 {
    let each = histogram.buckets();
    each.fold(0, |sum: u64, (ns, count)| {
        sum.saturating_add(ns.saturating_mul(count))
    })
}
