//! Reads a run record of ours: the blocks of one series, each of which was a process.
//!
//! Histograms are decoded one at a time: as text a histogram may be 4,000 times smaller than in memory.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use stopgap_events::machine::{Environment, Missing};
use stopgap_events::order::SortRows;
use stopgap_events::question::Question;

use super::{Format, Options, Read, ReadError, Setups, choose};
use crate::compare::{MOST_RUNS, Run, RunStalls};
use crate::histogram::Histogram;
use crate::quantile::median;
use crate::record::{Parameter, SCHEMA, Stalls};

/// Parameters of an answer that do not change what a series measured: the number of runs, the seed, and the number of
/// threads of its contended part, which is the machine's number of CPUs. Series of that part have their own parameter
/// for it.
const PASSING: [&str; 3] = ["runs", "seed", "threads"];

#[derive(Deserialize)]
struct Record {
    schema: String,
    #[serde(default)]
    started_unix_s: Option<u64>,
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
    error: Option<String>,
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
    let asked = series(answer, options.series.as_deref())?;
    let series = asked[0];

    let mut read = Read::new(Format::Stopgap);
    read.series = asked.into_iter().map(label).collect();
    if options.series.is_none() {
        let judged_by = answer.question.facts().judged_by.iter();
        read.setups = judged_by.filter_map(|name| setups(answer, name)).collect();
    }
    read.question = Some(answer.question.to_string());
    read.started_unix_s = record.started_unix_s;
    read.environment = Some(record.environment);
    read.parameters
        .insert("series".to_owned(), series.name.clone());
    let of_all = answer.parameters.iter();
    let of_all = of_all.filter(|(name, _)| !PASSING.contains(&&***name));
    for (name, value) in of_all.chain(&series.parameters) {
        read.parameters.insert(name.clone(), said(value));
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

/// Returns every setup in which a series was measured, by its label; `None` where there is none.
fn setups(answer: &Answer, name: &str) -> Option<Setups> {
    let all = answer.series.iter().filter(|series| series.name == name);
    let figure = |series: &Series| {
        let each = series.blocks.iter().map(|block| block.value).collect();
        Some((label(series), median(each)?))
    };
    let mut each: Vec<(String, f64)> = all.clone().filter_map(figure).collect();
    each.sort_rows(|(one, _), (other, _)| one.cmp(other));
    let unit = all.clone().next()?.unit.clone();
    Some(Setups {
        name: name.to_owned(),
        unit,
        each,
    })
}

fn said(parameter: &Parameter) -> String {
    match parameter {
        Parameter::Number(number) => number.to_string(),
        Parameter::Word(word) => word.clone(),
    }
}

/// Returns the selected series, the one to compare first. With a selection these are the series of the name, with the
/// parameters that follow the name (`map backend=memfd n=200`). Without one it is the series that leads its question
/// (`FACTS`), if the record has it; else the latency whose name and workload come first as text. Among these the
/// series of the largest `n` comes first, then the one whose parameters come first as text. The order within a record
/// is random and does not matter. A series that failed is not replaced by another one.
fn series<'a>(answer: &'a Answer, wanted: Option<&str>) -> Result<Vec<&'a Series>, ReadError> {
    let (mut name, mut parameters) = (Vec::new(), Vec::new());
    for word in wanted.unwrap_or_default().split(' ') {
        match word.split_once('=') {
            Some(parameter) => parameters.push(parameter),
            None => name.push(word),
        }
    }
    let mut name = name.join(" ");
    let workload = |series: &Series| series.parameters.get("workload").map(said);
    let of_all = || answer.series.iter();
    let facts = answer.question.facts();
    let leads = |series: &Series| {
        let on = facts.led_by_workload;
        series.name == facts.led_by && on.is_none_or(|on| workload(series).as_deref() == Some(on))
    };
    let usual = of_all().any(leads).then_some(facts);
    let latencies = of_all().filter(|series| series.unit == "ns");
    let first = latencies.min_by_key(|series| (&series.name, workload(series)));
    let first = first.or(of_all().min_by_key(|series| (&series.name, workload(series))));
    let (usual, on) = match (usual, first) {
        (Some(facts), _) => (
            facts.led_by.to_owned(),
            facts.led_by_workload.map(str::to_owned),
        ),
        (None, Some(first)) => (first.name.clone(), workload(first)),
        (None, None) => (String::new(), None),
    };
    if name.is_empty() {
        name = usual;
        if let (None, Some(on)) = (wanted, &on) {
            parameters.push(("workload", on));
        }
    }
    let asked = of_all().filter(|series| {
        let has = |(key, value): &(&str, &str)| {
            let own = series.parameters.get(*key).map(said);
            own.is_some_and(|own| own == *value)
        };
        series.name == name && parameters.iter().all(has)
    });
    let mut asked: Vec<&Series> = asked.collect();
    asked.sort_rows_by_key(|series| {
        let n = match series.parameters.get("n") {
            Some(Parameter::Number(n)) => Some(*n),
            _ => None,
        };
        (std::cmp::Reverse(n), label(series))
    });
    let Some(series) = asked.first() else {
        // A longer error would be cut off within a name.
        let all: Vec<String> = of_all().map(label).collect();
        let mut named = all.len().min(8);
        while named > 1 && all[..named].join(", ").len() > 200 {
            named -= 1;
        }
        let more = match all.len() - named {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let wanted = wanted.unwrap_or(&name);
        return Err(ReadError::whole(format!(
            "no series '{wanted}'; there is {}{more}",
            all[..named].join(", ")
        )));
    };
    let label = label(series);
    if series.blocks.is_empty() {
        let why = series.error.as_deref().unwrap_or("nobody says why");
        return Err(ReadError::whole(format!(
            "series {label} has no figure: {why}"
        )));
    }
    // More of an amount per second is better.
    if series.unit.ends_with("/s") {
        return Err(ReadError::whole(format!(
            "series {label} is {}, of which more is better; compare takes less for better",
            series.unit
        )));
    }
    Ok(asked)
}

/// Returns the text that selects a series.
fn label(series: &Series) -> String {
    let parameters = series.parameters.iter();
    let each = parameters.map(|(key, value)| format!(" {key}={}", said(value)));
    each.fold(series.name.clone(), |label, parameter| label + &parameter)
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
    let looked = match series.parameters.get("interval-ns") {
        // There is a sample in every interval, for any number of CPUs. So the measurement covered all of the time.
        Some(Parameter::Number(interval)) => histogram.len().saturating_mul(*interval),
        // Samples follow each other. Their sum is the time in which a stall could be seen.
        _ => looked(&histogram),
    };
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
        "{name} kept stalls of at least {} ns, but not all of them; the number of at least {threshold} ns is unknown",
        stalls.threshold_ns
    );
    missing.push(Missing::new("stalls", why));
    Ok(run)
}

/// Returns the sum of all samples in nanoseconds.
fn looked(histogram: &Histogram) -> u64 {
    let each = histogram.buckets();
    each.fold(0, |sum: u64, (ns, count)| {
        sum.saturating_add(ns.saturating_mul(count))
    })
}
