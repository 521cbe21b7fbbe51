//! Whether files can be compared: the same question under the same parameters, on any machine.

use std::collections::{BTreeMap, BTreeSet};

use stopgap_events::machine::Environment;
use thiserror::Error;

use super::Read;

/// Files that answer different questions.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{second}: {what} is {after}, and in {first} {before}: they cannot be compared")]
pub struct Incompatible {
    /// The difference: `the format`, `the question`, `the unit`, `the parameter n`.
    pub what: String,
    /// The first file's name.
    pub first: String,
    /// Its value.
    pub before: String,
    /// The other file's name.
    pub second: String,
    /// The other's value.
    pub after: String,
}

/// Whether all of these, each with its name, can be compared. Gives warnings, those first that should lead a report: that
/// they were measured on different machines.
///
/// # Errors
/// [`Incompatible`] names what differs from the first of them, and in which.
pub fn compatible(files: &[(&str, &Read)]) -> Result<Vec<String>, Incompatible> {
    let Some(((first, reference), rest)) = files.split_first() else {
        return Ok(Vec::new());
    };
    for (second, read) in rest {
        let differ = |what: String, before: String, after: String| {
            Err(Incompatible {
                what,
                first: (*first).to_owned(),
                before,
                second: (*second).to_owned(),
                after,
            })
        };
        let question = |read: &Read| {
            read.question
                .clone()
                .unwrap_or_else(|| "not said".to_owned())
        };
        for (what, before, after) in [
            (
                "the format",
                reference.format.to_string(),
                read.format.to_string(),
            ),
            ("the question", question(reference), question(read)),
            ("the unit", reference.unit.clone(), read.unit.clone()),
            (
                "the unit",
                reference.number_unit.clone(),
                read.number_unit.clone(),
            ),
        ] {
            if before != after {
                return differ(what.to_owned(), before, after);
            }
        }
        let names: BTreeSet<&String> = reference
            .parameters
            .keys()
            .chain(read.parameters.keys())
            .collect();
        for name in names {
            let [before, after] = [*reference, *read].map(|read| {
                let value = read.parameters.get(name);
                value.map_or("not given", |value| &**value).to_owned()
            });
            if before != after {
                return differ(format!("the parameter {name}"), before, after);
            }
        }
    }
    Ok(warnings(files))
}

fn warnings(files: &[(&str, &Read)]) -> Vec<String> {
    let mut warnings = Vec::new();
    let machines = files
        .iter()
        .filter_map(|(_, read)| read.environment.as_ref());
    let machines: BTreeSet<String> = machines.map(machine).collect();
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
