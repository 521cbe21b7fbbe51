//! Files and directories to two sides of runs that answer the same question.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::read::{self, Read};
use stopgap_events::machine::Environment;
use stopgap_stats::compare::{MOST_RUNS, Side};
use stopgap_stats::gather::Gathered;

use crate::failure::Failure;

/// A larger file holds no runs that anybody made.
const LARGEST: u64 = 256 << 20;

/// Two sides, and what they have in common.
pub(super) struct Sides {
    pub(super) sides: [Side; 2],
    /// The machines, where the files say them.
    pub(super) machines: [Vec<Environment>; 2],
    pub(super) unit: String,
    pub(super) number_unit: String,
}

/// Reads the gathered runs of a file, which are both sides.
pub(super) fn gathered(path: &Path) -> Result<Gathered, Failure> {
    let text = contents(path)?;
    let text = String::from_utf8_lossy(&text);
    if !Gathered::is_named_in(&text) {
        return Err(Failure::error(format!(
            "{}: one side only; give BEFORE and AFTER, or one file of runs that compare --run gathered",
            path.display()
        )));
    }
    Gathered::from_json(&text).map_err(|error| wrong(path, &error))
}

/// Reads the files and directories of both sides.
pub(super) fn read(given: [&[PathBuf]; 2]) -> Result<Sides, Failure> {
    let mut seen = BTreeMap::new();
    let mut first: Option<(PathBuf, Read)> = None;
    let mut machines = [Vec::new(), Vec::new()];
    let mut sides = [Side::default(), Side::default()];
    for ((paths, side), machines) in given.into_iter().zip(&mut sides).zip(&mut machines) {
        side.name = name(paths);
        let mut files = Vec::new();
        for path in paths {
            files_of(path, &mut files)?;
        }
        for file in files {
            let there = fs::metadata(&file).map_err(|error| wrong(&file, &error))?;
            let id = (there.dev(), there.ino());
            if let Some(other) = seen.insert(id, file.clone()) {
                return Err(Failure::error(format!(
                    "{} and {} are the same file: a run counts once",
                    other.display(),
                    file.display()
                )));
            }
            let mut read = one(&file)?;
            if side.runs.len() + read.runs.len() > MOST_RUNS {
                return Err(too_many(&file));
            }
            let shown = file.display().to_string();
            for mut run in read.runs.drain(..) {
                run.name = if run.name.is_empty() || run.name == shown {
                    shown.clone()
                } else {
                    format!("{shown}: {}", run.name)
                };
                side.runs.push(run);
            }
            machines.extend(read.environment.take());
            match &first {
                None => first = Some((file, read)),
                Some((other, reference)) => same_question(other, reference, &file, &read)?,
            }
        }
    }
    let (unit, number_unit) =
        first.map_or_else(Default::default, |(_, read)| (read.unit, read.number_unit));
    Ok(Sides {
        sides,
        machines,
        unit,
        number_unit,
    })
}

/// One file's runs.
fn one(file: &Path) -> Result<Read, Failure> {
    let bytes = contents(file)?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(wrong(file, &"it is empty"));
    }
    if bytes.starts_with(b"{") && Gathered::is_named_in(&String::from_utf8_lossy(&bytes)) {
        return Err(wrong(
            file,
            &"it holds both sides of a comparison: give it alone, as stopgap compare FILE",
        ));
    }
    let name = file.display().to_string();
    let read = read::read(&name, &bytes).map_err(|error| wrong(file, &error))?;
    if read.runs.is_empty() {
        return Err(wrong(file, &"there is no run in it"));
    }
    Ok(read)
}

/// Refuses what answers another question, or the same under other parameters.
fn same_question(first: &Path, a: &Read, file: &Path, b: &Read) -> Result<(), Failure> {
    let differ = |what: &str, before: &str, after: &str| {
        Err(Failure::error(format!(
            "{}: {what} is {after}, and in {} {before}: they cannot be compared",
            file.display(),
            first.display()
        )))
    };
    for (what, before, after) in [
        ("the form", a.kind.to_string(), b.kind.to_string()),
        (
            "the question",
            a.question.clone().unwrap_or_default(),
            b.question.clone().unwrap_or_default(),
        ),
        ("the unit", a.unit.clone(), b.unit.clone()),
        ("the unit", a.number_unit.clone(), b.number_unit.clone()),
    ] {
        if before != after {
            return differ(what, &before, &after);
        }
    }
    let names: BTreeSet<&String> = a.parameters.keys().chain(b.parameters.keys()).collect();
    for name in names {
        let [before, after] = [a, b].map(|read| {
            read.parameters
                .get(name)
                .map_or("not given", |value| &**value)
        });
        if before != after {
            return differ(&format!("the parameter {name}"), before, after);
        }
    }
    Ok(())
}

/// The file, or the files of the directory, in the order of their names; hidden ones are left out.
fn files_of(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let there = fs::metadata(path).map_err(|error| wrong(path, &error))?;
    if !there.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| wrong(path, &error))? {
        let entry = entry.map_err(|error| wrong(path, &error))?;
        let file = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if hidden || !fs::metadata(&file).is_ok_and(|there| there.is_file()) {
            continue;
        }
        found.push(file);
        if files.len() + found.len() > MOST_RUNS {
            return Err(too_many(path));
        }
    }
    if found.is_empty() {
        return Err(wrong(path, &"there is no file of runs in it"));
    }
    found.sort();
    files.append(&mut found);
    Ok(())
}

fn too_many(path: &Path) -> Failure {
    wrong(
        path,
        &format!(
            "more than {MOST_RUNS} runs a side: those are samples under another name; a run is a process or a boot"
        ),
    )
}

fn contents(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    let whole = read.and_then(|_| {
        let fits = bytes.len() as u64 <= LARGEST;
        fits.then_some(())
            .ok_or_else(|| io::Error::other(format!("more than {} MiB", LARGEST >> 20)))
    });
    whole.map_err(|error| wrong(path, &error))?;
    Ok(bytes)
}

/// What a side is called.
fn name(paths: &[PathBuf]) -> String {
    match paths {
        [] => String::new(),
        [one] => one.display().to_string(),
        [first, rest @ ..] => format!("{} and {} more", first.display(), rest.len()),
    }
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::error(format!("{}: {why}", path.display()))
}
