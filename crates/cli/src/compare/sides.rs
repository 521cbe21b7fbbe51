//! Files and directories to two sides of runs that answer the same question.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use stopgap_events::order::{Inserted as _, SortRows as _};
use stopgap_stats::compare::{MOST_RUNS, Run, Side, in_turn};
use stopgap_stats::gather::Gathered;
use stopgap_stats::read::{self, Format, Read, compatible};

use super::Input;
use crate::args;
use crate::failure::Failure;
use crate::input_file;

/// Reads the gathered runs of a file, which are both sides.
pub(super) fn gathered(path: &Path) -> Result<Gathered, Failure> {
    let text = if path.is_dir() {
        Vec::new()
    } else {
        contents(path)?
    };
    let text = String::from_utf8_lossy(&text);
    if !Gathered::is_named_in(&text) {
        return Err(Failure::error(format!(
            "{}: one side only; give BEFORE and AFTER, or one file of runs that compare --run gathered",
            path.display()
        )));
    }
    Gathered::from_json(&text).map_err(|error| wrong(path, &error))
}

/// Reads the files and directories of both sides. `whole`: a file of numbers is one occasion, too, as those of other formats are.
pub(super) fn read(
    given: [&[PathBuf]; 2],
    args: &args::Compare,
    whole: bool,
) -> Result<Input, Failure> {
    let asked = read::Options {
        format: None,
        question: args.question,
        series: args.series.clone(),
        stall_threshold_ns: args.threshold.map(|time| time.0),
        unit: args.unit,
    };
    let mut seen = BTreeMap::new();
    let mut sides: [Vec<(PathBuf, Read)>; 2] = [Vec::new(), Vec::new()];
    for (paths, side) in given.into_iter().zip(&mut sides) {
        let mut files = Vec::new();
        for path in paths {
            files_of(path, &mut files)?;
        }
        let mut runs = 0;
        for file in files {
            let id = super::identity(&file).map_err(|error| wrong(&file, &error))?;
            if let Some(other) = seen.insert(id, file.clone()) {
                return Err(Failure::error(format!(
                    "{} and {} are the same file: a run counts once",
                    other.display(),
                    file.display()
                )));
            }
            let read = one(&file, &asked)?;
            runs += read.runs.len();
            if runs > MOST_RUNS {
                return Err(too_many(&file));
            }
            side.push((file, read));
        }
    }
    let passed_over = agree(&mut sides, &asked)?;
    let called: Vec<(String, &Read)> = sides
        .iter()
        .flatten()
        .map(|(file, read)| (file.display().to_string(), read))
        .collect();
    let all: Vec<(&str, &Read)> = called.iter().map(|(name, read)| (&**name, *read)).collect();
    let mut warnings = compatible(&all).map_err(|error| Failure::error(error.to_string()))?;
    warnings.extend(passed_over);
    warnings.extend(one_after_the_other(&sides));
    let reads: Vec<&Read> = all.iter().map(|(_, read)| *read).collect();
    let together = read::together(&reads);
    let series = all.first().and_then(|(_, read)| {
        let question = read.question.as_deref()?;
        Some(format!("{question}: {}", read.series.first()?))
    });
    let mut options = super::options(args);
    if let Some((_, read)) = all.first() {
        options.unit.clone_from(&read.unit);
        options.number_unit.clone_from(&read.number_unit);
    }
    for number in &together {
        let unit = number.unit.clone();
        options.of_setups.insert(number.name.clone(), unit);
    }
    let machines = [0, 1].map(|side: usize| {
        let known = sides[side].iter();
        known
            .filter_map(|(_, read)| read.environment.clone())
            .collect()
    });
    let pairs = in_turn(made(&sides).each_ref().map(Vec::as_slice));
    let [before, after] = sides;
    // Records alone have numbers of all setups, and each of them is one occasion.
    let mut files = 0..;
    let mut side = |paths, of_side: Vec<(PathBuf, Read)>| {
        let mut all = Vec::new();
        for (file, at) in of_side.into_iter().zip(&mut files) {
            let mut own = runs(file, whole);
            for run in &mut own {
                let numbers = together
                    .iter()
                    .map(|all| (all.name.clone(), all.values[at]));
                run.numbers.extend(numbers);
            }
            all.extend(own);
        }
        Side {
            name: name(paths),
            runs: all,
        }
    };
    let (mut before, mut after) = (side(given[0], before), side(given[1], after));
    if let Some(orders) = pairs {
        for (side, order) in [&mut before, &mut after].into_iter().zip(orders) {
            side.runs = order.iter().map(|&at| side.runs[at].clone()).collect();
        }
        options.in_pairs = true;
    }
    Ok(Input {
        before,
        after,
        series,
        machines,
        files: seen.into_keys().inserted(),
        warnings,
        options,
        gathered: None,
    })
}

/// Which series of records are compared was chosen file by file, each its largest load. A run that ended by time may lack that
/// one: then the largest load that every file has is read instead. Gives the warning that says so. Where files have none in
/// common they stay as they are, and the check whether they can be compared names the differences.
pub(super) fn agree(
    sides: &mut [Vec<(PathBuf, Read)>; 2],
    options: &read::Options,
) -> Result<Option<String>, Failure> {
    let chosen = |read: &Read| read.series.first().cloned();
    let each: BTreeSet<Option<String>> = sides
        .iter()
        .flatten()
        .map(|(_, read)| chosen(read))
        .inserted();
    if each.len() < 2 {
        return Ok(None);
    }
    let all = || sides.iter().flatten();
    let has = |series: &&String| all().all(|(_, read)| read.series.contains(*series));
    let Some(common) = all()
        .next()
        .and_then(|(_, read)| read.series.iter().find(has))
        .cloned()
    else {
        return Ok(None);
    };
    let mut larger = each
        .into_iter()
        .flatten()
        .filter(|series| *series != common);
    let larger = larger.next().unwrap_or_default();
    let without = all().find(|(_, read)| !read.series.contains(&larger));
    let without = without.map_or_else(String::new, |(file, _)| {
        format!("; there is no '{larger}' in {}", file.display())
    });
    let warning = format!("compared is '{common}', which every file has{without}");
    let options = read::Options {
        series: Some(common.clone()),
        ..options.clone()
    };
    for (file, read) in sides.iter_mut().flatten() {
        if read.series.first() != Some(&common) {
            let setups = std::mem::take(&mut read.setups);
            *read = Read {
                setups,
                ..one(file, &options)?
            };
        }
    }
    Ok(Some(warning))
}

/// When each file of a side was made, seconds since 1970; nothing for a side of which that is unknown.
fn made(sides: &[Vec<(PathBuf, Read)>; 2]) -> [Vec<u64>; 2] {
    sides.each_ref().map(|side| {
        let all: Option<Vec<u64>> = side.iter().map(|(_, read)| read.started_unix_s).collect();
        all.unwrap_or_default()
    })
}

/// Warns of sides that were made one after the other, each several times: a drift of the machine in between looks like a change.
fn one_after_the_other(sides: &[Vec<(PathBuf, Read)>; 2]) -> Option<String> {
    let ends = |all: &[u64]| -> Option<(u64, u64)> {
        let all = Some(all).filter(|all| all.len() >= OFTEN)?;
        Some((*all.iter().min()?, *all.iter().max()?))
    };
    let [before, after] = made(sides);
    let [(first, last), (least, most)] = [ends(&before)?, ends(&after)?];
    (last < least || most < first).then(|| {
        "all of one side was made before the other: a drift of the machine looks like a change; make them in turn".to_owned()
    })
}

/// Occasions a side from which on their order is worth a word.
pub(super) const OFTEN: usize = 3;

/// A file's runs, called after it: the lines of a file of numbers, or one occasion.
fn runs((file, read): (PathBuf, Read), whole: bool) -> Vec<Run> {
    let file = file.display().to_string();
    if whole || read.format != Format::Numbers {
        return vec![Run::of_occasion(file, &read.runs)];
    }
    let mut runs = read.runs;
    for run in &mut runs {
        run.name = format!("{file}: {}", run.name);
    }
    runs
}

/// Content of one file.
pub(super) fn one(file: &Path, options: &read::Options) -> Result<Read, Failure> {
    let bytes = contents(file)?;
    if bytes.starts_with(b"{") && Gathered::is_named_in(&String::from_utf8_lossy(&bytes)) {
        let alone = "it holds both sides of a comparison: give it alone, as stopgap compare FILE";
        return Err(wrong(file, &alone));
    }
    read::read(&bytes, options).map_err(|error| wrong(file, &error))
}

/// The file, or the files of the directory, in the order of their names; hidden ones and pages, which `check` puts beside its
/// records, are left out.
pub(super) fn files_of(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
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
        let page = file.extension().is_some_and(|end| end == "html");
        if hidden || page || !fs::metadata(&file).is_ok_and(|there| there.is_file()) {
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
    found.sort_rows(Ord::cmp);
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

pub(super) fn contents(path: &Path) -> Result<Vec<u8>, Failure> {
    input_file::whole(path, input_file::LARGEST_RECORD).map_err(|error| wrong(path, &error))
}

/// Returns the name of a side.
pub(super) fn name(paths: &[PathBuf]) -> String {
    match paths {
        [] => String::new(),
        [one] => one.display().to_string(),
        [first, rest @ ..] => format!("{} and {} more", first.display(), rest.len()),
    }
}

pub(super) fn wrong(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::error(format!("{}: {why}", path.display()))
}
