//! `stopgap-bench occasions`: how often `stopgap compare` of real records is wrong where nothing changed, and how often it finds a change
//! that was put into them. `checks/occasions/run` makes the records.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stopgap_cli::{Failure, print};
use stopgap_events::random::Random;
use stopgap_stats::compare::{Options, Run, Side, Word, compare, in_turn};
use stopgap_stats::read::{self, Read};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Folders of records of one question each, made one after the other.
    #[arg(required = true, value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// Occasions a side.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u8).range(5..=50))]
    side: u8,
    /// Comparisons of each kind.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    draws: u32,
    /// Put so many per cent into the later side.
    #[arg(long, value_name = "PER CENT", default_value_t = 10)]
    planted: u8,
    /// Seed of the coins.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Compares the records of each folder, and prints a line of each.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    let mut text = format!(
        "{:<10}  {:>9}  {:>14}  {:>14}  {:>14}  of\n{:<10}  {:>9}  {:>14}  {:>14}  {:>14}\n",
        "folder",
        "occasions",
        "one a side",
        "nothing done",
        "planted",
        "",
        "",
        "called",
        "called",
        "found"
    );
    for folder in &flags.folders {
        let Records {
            series,
            runs: all,
            of_setups,
        } = records(folder)?;
        let options = |seed| Options {
            seed,
            resamples: 0,
            of_setups: of_setups.clone(),
            ..Options::default()
        };
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let side = usize::from(flags.side);
        let mut random = Random::new(flags.seed);
        let pairs = all.windows(2);
        let neighbours = pairs
            .clone()
            .filter(|two| is_called(word(&two[..1], &two[1..], &options(flags.seed))))
            .count();
        let (mut called, mut found) = (0, 0);
        if all.len() < 2 * side {
            return Err(Failure::error(format!(
                "{name}: {} records, it takes {}",
                all.len(),
                2 * side
            )));
        }
        for draw in 0..flags.draws {
            let (before, after) = drawn(&all, side, &mut random);
            let options = options(flags.seed + u64::from(draw));
            called += u32::from(is_called(word(&before, &after, &options)));
            let factor = 1.0 + f64::from(flags.planted) / 100.0;
            let slower: Vec<Made> = (after.iter())
                .map(|(made, run)| (*made, times(run, factor)))
                .collect();
            found += u32::from(word(&before, &slower, &options) == Word::Regression);
        }
        let share = |count: u32| format!("{count} of {}", flags.draws);
        text += &format!(
            "{name:<10}  {:>9}  {:>14}  {:>14}  {:>14}  {series}\n",
            all.len(),
            format!("{neighbours} of {}", pairs.len()),
            share(called),
            share(found),
        );
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Pairs of neighbouring occasions, as an honest comparison makes them: a coin draws which one of each pair is before. The first pair is
/// drawn, too.
fn drawn(all: &[Made], side: usize, random: &mut Random) -> (Vec<Made>, Vec<Made>) {
    let first = random.index(all.len() - 2 * side + 1);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for pair in all[first..first + 2 * side].chunks(2) {
        let a = random.index(2);
        before.push(pair[a].clone());
        after.push(pair[1 - a].clone());
    }
    (before, after)
}

/// The word of two sides, as `stopgap compare` of their files gives it.
fn word(before: &[Made], after: &[Made], options: &Options) -> Word {
    let times = |side: &[Made]| -> Vec<u64> { side.iter().map(|(time, _)| *time).collect() };
    let side = |runs: &[Made]| Side {
        name: String::new(),
        runs: runs.iter().map(|(_, run)| run.clone()).collect(),
    };
    let options = Options {
        // Both sides are in the order of time already.
        in_pairs: in_turn([&times(before), &times(after)]).is_some(),
        ..options.clone()
    };
    compare(&side(before), &side(after), &options).verdict.word
}

fn is_called(word: Word) -> bool {
    matches!(word, Word::Regression | Word::Improvement)
}

/// The run with every time and number longer by a factor.
fn times(run: &Run, factor: f64) -> Run {
    let mut run = run.clone();
    for figure in [
        &mut run.median,
        &mut run.p10,
        &mut run.p99,
        &mut run.p999,
        &mut run.max,
    ] {
        *figure = figure.map(|value| value * factor);
    }
    run.deciles = run.deciles.map(|all| all.map(|value| value * factor));
    for number in run.numbers.values_mut() {
        *number *= factor;
    }
    run
}

/// An occasion, and when it was made: seconds since 1970.
type Made = (u64, Run);

/// The records of a folder.
struct Records {
    /// The series that is read: the first one that all have.
    series: String,
    /// Each record as one occasion.
    runs: Vec<Made>,
    /// The numbers of all setups, and their units.
    of_setups: BTreeMap<String, String>,
}

fn records(folder: &Path) -> Result<Records, Failure> {
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        Failure::error(format!("{}: {why}", path.display()))
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| failed(folder, &error))? {
        let path = entry.map_err(|error| failed(folder, &error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("probe-") && name.ends_with(".json") {
            files.push((
                path.clone(),
                std::fs::read(&path).map_err(|error| failed(&path, &error))?,
            ));
        }
    }
    let read_all = |options: &read::Options| -> Result<Vec<Read>, Failure> {
        let one = |(path, bytes): &(PathBuf, Vec<u8>)| {
            read::read(bytes, options).map_err(|error| failed(path, &error))
        };
        files.iter().map(one).collect()
    };
    let first = read_all(&read::Options::default())?;
    let common = first.first().and_then(|read| {
        let everywhere = |series: &&String| first.iter().all(|read| read.series.contains(series));
        read.series.iter().find(everywhere).cloned()
    });
    let Some(series) = common else {
        return Err(failed(folder, &"its records have no series in common"));
    };
    let mut all = read_all(&read::Options {
        series: Some(series.clone()),
        ..read::Options::default()
    })?;
    for (read, of_all) in all.iter_mut().zip(first) {
        read.setups = of_all.setups;
    }
    all.sort_by_key(|read| read.started_unix_s);
    let mut runs: Vec<Made> = all
        .iter()
        .map(|read| {
            let made = read.started_unix_s.unwrap_or_default();
            (made, Run::of_occasion("", &read.runs))
        })
        .collect();
    let mut of_setups = BTreeMap::new();
    for number in read::together(&all.iter().collect::<Vec<_>>()) {
        of_setups.insert(number.name.clone(), number.unit);
        for ((_, run), value) in runs.iter_mut().zip(number.values) {
            run.numbers.insert(number.name.clone(), value);
        }
    }
    Ok(Records {
        series,
        runs,
        of_setups,
    })
}
