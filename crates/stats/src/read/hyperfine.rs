//! What hyperfine exports as JSON (1.0 and later): of each command the elapsed time of each run, in seconds. User and system
//! time stand there as means of all runs only, and a mean cannot be compared by runs.

use std::collections::BTreeMap;

use serde::Deserialize;
use stopgap_events::machine::Missing;

use super::{Format, Options, Read, ReadError, choose};
use crate::compare::{MOST_RUNS, Run};

#[derive(Deserialize)]
struct Document {
    results: Vec<Command>,
}

#[derive(Deserialize)]
struct Command {
    command: String,
    times: Option<Vec<f64>>,
    memory_usage_byte: Option<Vec<u64>>,
    exit_codes: Option<Vec<Option<i64>>>,
    parameters: Option<BTreeMap<String, serde_json::Value>>,
}

pub(super) fn read(text: &str, options: &Options) -> Result<Read, ReadError> {
    let document: Document =
        serde_json::from_str(text).map_err(|error| ReadError::json("hyperfine's JSON", &error))?;
    let commands: Vec<(String, Command)> = document
        .results
        .into_iter()
        .map(|one| (one.command.clone(), one))
        .collect();
    let command = choose("command", &commands, options.series.as_deref())?;
    let times = command.times.as_deref().unwrap_or_default();
    if times.is_empty() {
        return Err(ReadError::whole(
            "it has no time of each run, only their mean, which cannot be compared",
        ));
    }
    if times.len() > MOST_RUNS {
        let many = times.len();
        return Err(ReadError::whole(format!(
            "{many} runs, at most {MOST_RUNS}"
        )));
    }
    if let Some(at) = times.iter().position(|&time| time < 0.0) {
        let (run, time) = (at + 1, times[at]);
        return Err(ReadError::whole(format!("run {run} took {time} s")));
    }
    let mut read = Read::new(Format::Hyperfine);
    read.question = Some("elapsed time of a command".to_owned());
    read.number_unit = "s".to_owned();
    for (name, value) in command.parameters.iter().flatten() {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        read.parameters.insert(name.clone(), value);
    }
    let codes = command.exit_codes.as_deref().unwrap_or_default();
    let failed = |run: usize| codes.get(run).is_some_and(|code| *code != Some(0));
    let runs = times.iter().enumerate().filter(|(at, _)| !failed(*at));
    read.runs = runs
        .map(|(at, &time)| Run::of_number(format!("run {}", at + 1), "elapsed", time))
        .collect();
    // A run that failed took the time of a failure.
    let failures = times.len() - read.runs.len();
    if read.runs.is_empty() {
        return Err(ReadError::whole(format!(
            "all {failures} runs of '{}' failed, which is no evidence of how long it takes",
            command.command
        )));
    }
    if failures > 0 {
        let why = format!(
            "{failures} of its {} runs failed and are left out",
            times.len()
        );
        read.missing.push(Missing::new("runs that failed", why));
    }
    if command.memory_usage_byte.is_some() {
        let why = "elapsed time and memory have no common unit; only time is compared";
        read.missing.push(Missing::new("memory", why));
    }
    Ok(read)
}
