//! Whether files can be compared: the same question under the same parameters, on any machine.

use std::collections::{BTreeMap, BTreeSet};

use stopgap_events::machine::Environment;
use stopgap_events::order::Inserted as _;
use thiserror::Error;

use super::{Format, Read};

/// Files that answer different questions.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", differ(.what, (.first, .before.as_deref()), (.second, .after.as_deref())))]
pub struct Incompatible {
    /// The difference: `the format`, `the question`, `the unit`, `the parameter n`.
    pub what: String,
    /// The first file's name.
    pub first: String,
    /// Its value; `None` where it does not say.
    pub before: Option<String>,
    /// The other file's name.
    pub second: String,
    /// The other's value; `None` where it does not say.
    pub after: Option<String>,
}

/// The unit of cyclictest's latencies, which the user may give.
const LATENCIES: &str = "the unit of its latencies";

fn differ(what: &str, first: (&String, Option<&str>), second: (&String, Option<&str>)) -> String {
    let (silent, other, value) = match (first, second) {
        ((first, Some(before)), (second, Some(after))) => {
            return format!(
                "{second}: {what} is {after}, and in {first} {before}: they cannot be compared"
            );
        }
        ((silent, None), (other, value)) | ((other, value), (silent, None)) => {
            (silent, other, value.unwrap_or("unknown"))
        }
    };
    let advice = match what {
        LATENCIES => "; pass --unit ns if cyclictest ran with -N, else --unit us",
        _ => "",
    };
    format!(
        "{silent} does not say {what}, and in {other} it is {value}: they cannot be compared{advice}"
    )
}

/// What of files is compared by: quantiles, or numbers, which have a unit of their own.
fn figures(read: &Read) -> (&'static str, &str) {
    let numbers = read.runs.iter().any(|run| !run.numbers.is_empty());
    match numbers {
        true => ("numbers", &read.number_unit),
        false => ("quantiles", &read.unit),
    }
}

/// Whether all of these, each with its name, can be compared. Gives warnings, those first that should lead a report: that
/// they were measured on different machines.
///
/// # Errors
/// [`Incompatible`] names what differs, and in which two.
pub fn compatible(files: &[(&str, &Read)]) -> Result<Vec<String>, Incompatible> {
    let Some(((first, reference), rest)) = files.split_first() else {
        return Ok(Vec::new());
    };
    let said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    for (second, read) in rest {
        let unit_of = match read.format {
            Format::Cyclictest => LATENCIES,
            _ => "the unit",
        };
        let ((what, unit), (other, others)) = (figures(reference), figures(read));
        for (name, before, after) in [
            (
                "the format",
                said(reference.format.word()),
                said(read.format.word()),
            ),
            (
                "the question",
                reference.question.clone(),
                read.question.clone(),
            ),
            ("the kind of figures", said(what), said(other)),
            (unit_of, said(unit), said(others)),
        ] {
            if before == after {
                continue;
            }
            return Err(Incompatible {
                what: name.to_owned(),
                first: (*first).to_owned(),
                before,
                second: (*second).to_owned(),
                after,
            });
        }
    }
    let mut warnings = warnings(files);
    warnings.extend(parameters(files)?);
    Ok(warnings)
}

/// Whether the parameters agree in all files that can say them. Gives a warning for each that some cannot say.
fn parameters(files: &[(&str, &Read)]) -> Result<Vec<String>, Incompatible> {
    let names: BTreeSet<&String> = files
        .iter()
        .flat_map(|(_, read)| read.parameters.keys())
        .inserted();
    let mut warnings = Vec::new();
    for name in names {
        let value = |read: &Read| read.parameters.get(name).cloned();
        let (silent, telling): (Vec<_>, Vec<_>) = files
            .iter()
            .partition(|(_, read)| value(read).is_none() && read.unsaid.contains(name));
        let Some(((first, reference), rest)) = telling.split_first() else {
            continue; // one of the files has the name
        };
        if let Some((second, read)) = rest
            .iter()
            .find(|(_, read)| value(read) != value(reference))
        {
            return Err(Incompatible {
                what: format!("the parameter {name}"),
                first: (*first).to_owned(),
                before: value(reference),
                second: (*second).to_owned(),
                after: value(read),
            });
        }
        if let (Some((file, _)), Some(value)) = (silent.first(), value(reference)) {
            warnings.push(format!(
                "{name}: {file} does not say it; taken for {value}, as in {first}"
            ));
        }
    }
    Ok(warnings)
}

fn warnings(files: &[(&str, &Read)]) -> Vec<String> {
    let mut warnings = Vec::new();
    let machines = files
        .iter()
        .filter_map(|(_, read)| read.environment.as_ref());
    let machines: BTreeSet<String> = machines.map(machine).inserted();
    if machines.len() > 1 {
        let named: Vec<&str> = machines.iter().take(4).map(|machine| &**machine).collect();
        warnings.push(format!(
            "measured on {} different machines, which may be all the difference there is: {}",
            machines.len(),
            named.join("; ")
        ));
    }
    let silent = files
        .iter()
        .filter(|(_, read)| read.environment.is_none())
        .count();
    if silent > 0 && silent < files.len() {
        let all = files.len();
        warnings.push(format!(
            "of {silent} of {all} files the machine is not known"
        ));
    }
    // Merges what many files lack into one entry, in the words of the first.
    let mut missing: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for (name, read) in files {
        for one in &read.missing {
            missing
                .entry(&one.what)
                .or_default()
                .entry(name)
                .or_insert(&one.why);
        }
    }
    for (what, of) in missing {
        let Some((name, why)) = of.first_key_value() else {
            continue; // of each what there is one at least
        };
        let (some, all) = (of.len(), files.len());
        let same = of.values().all(|other| other == why);
        warnings.push(match (same, some == all) {
            (true, true) => format!("{what}: {why}"),
            _ => format!("{what}: of {some} of {all} files, as {name}: {why}"),
        });
    }
    warnings
}

/// Properties that make it another machine. A kernel or a setting is what people compare.
fn machine(environment: &Environment) -> String {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "unknown".to_owned());
    let memory = environment.memory;
    format!(
        "{} ({}, {} CPUs, {})",
        word(&environment.host),
        word(&environment.cpu),
        environment.cpus.len(),
        memory.map_or("memory unknown".to_owned(), |memory| memory.to_string())
    )
}
