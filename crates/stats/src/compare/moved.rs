//! Finds the figures that moved between two sides of explained traces.
//!
//! # Contract
//!
//! [`moved`] takes an [`Account`] per trace and gives a [`Moved`] (JSON `stopgap.moved/1`). The unit of evidence is a
//! trace. A figure that some trace does not show is `unknown`, never 0. The same accounts and seed always give the
//! same answer.
//!
//! # Method
//!
//! * A figure is tested where it is large enough *on both sides together* and where some arrangement of its values could be
//!   significant. Both look at all traces without their sides, so the test's level stays exact (Bourgon, Gentleman and Huber, *Independent
//!   filtering*, 2010; Tarone 1990 and Gilbert 2005 for figures that are 0 in most traces).
//! * The test: the permutation of Brunner and Munzel's ranks of `two.rs`, as for all files.
//! * Together: Benjamini and Hochberg's false discovery rate. Its bound needs tests that are independent or depend positively. Figures
//!   of a trace do: an fsync more is a call more, a wait more and time more of the disk. Some move against each other; [`simulate`]
//!   shows that the rate holds for them, too. Benjamini and Yekutieli's bound for every dependence asks for 4 to 6 times smaller
//!   probabilities, which 5 to 7 traces a side never give.
//! * The interval of a figure that moved is at the level of its selection, `0.05 R / m` of `m` tested figures of which `R` moved
//!   (Benjamini and Yekutieli 2005): of such intervals 95 % hold the truth, and 0 is in none but as the end of one. That of another
//!   figure is at `0.05 (R + 1) / m`, so 0 is always in it.
//!
//! The least probability of n traces a side is `2 / C(2n, n)`. [`Moved::together`] says how many figures must move together for that to be
//! enough, and [`Moved::alone_at`] with how many traces a side one would do.

mod account;
mod record;
pub mod simulate;

use std::collections::{BTreeMap, BTreeSet};

use stopgap_events::machine::Missing;
use stopgap_events::order::{Inserted as _, SortRows};

use crate::quantile::median;

use super::LEVEL;
use super::adjust::benjamini_hochberg;
use super::record::Difference;
use super::two::{Tested, Untied, arrangements};

pub use account::{Account, Key};
pub use record::{
    Family, Figure, FigureWord, Frame, Moved, Per, Picture, SCHEMA, SideOf, Verdict, Word,
};

/// Arrangements that are drawn if there are more than 20,000.
const DRAWS: u32 = 9_999;

/// Least share of the time of a tested figure, on average over all traces.
const LEAST: f64 = 0.002;

/// Most figures of a family that are tested, the largest first.
const MOST: usize = 60;

/// Most frames of a picture.
const MOST_FRAMES: usize = 1_200;

/// Options of a comparison.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Seed of the arrangements, if they are drawn.
    pub seed: u64,
    /// The unit; `None` for a run if every trace has a whole one, else for a second.
    pub per: Option<Per>,
    /// The command line, for the record.
    pub command: Vec<String>,
    /// The names of the sides.
    pub names: [String; 2],
    /// Differences between the sides' machines and recordings.
    pub environment: Vec<Difference>,
    /// Warnings, most important first.
    pub warnings: Vec<String>,
}

/// A figure of each trace of each side; `None` where a trace does not show it.
type Known = [Vec<Option<f64>>; 2];

/// A figure of all traces.
type Row<'k> = (&'k Key, Known);

/// A row before it is judged: a figure of each trace of each side.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Values(pub(crate) [Vec<f64>; 2]);

/// The test's answer for one row.
#[derive(Debug, Clone)]
pub(crate) struct Judged {
    /// The test; `None` where there is none.
    tested: Option<Tested>,
    p: Option<f64>,
    adjusted: Option<f64>,
    /// Whether the figure moved.
    moved: bool,
}

/// The results of all rows.
#[derive(Debug, Clone)]
pub(crate) struct Together {
    rows: Vec<Judged>,
    /// Number of tested figures, and of those that moved.
    tested: usize,
    moved: usize,
}

/// Tests all rows, and holds their rate of false discoveries to [`LEVEL`].
pub(crate) fn judge(rows: &[Values], sizes: [usize; 2], seed: u64) -> Together {
    let could = least_p(sizes) <= LEVEL;
    let untied = could.then(|| Untied::new(sizes, DRAWS, seed));
    let mut judged: Vec<Judged> = (rows.iter())
        .map(|Values(sides)| {
            let test = |untied| Tested::ranks(untied, sides.clone(), DRAWS, seed);
            let tested = untied.as_ref().map(test);
            let tested = tested.filter(|tested| tested.least_p() <= LEVEL);
            Judged {
                p: tested.as_ref().map(Tested::p),
                tested,
                adjusted: None,
                moved: false,
            }
        })
        .collect();
    let p: Vec<f64> = judged.iter().filter_map(|row| row.p).collect();
    let adjusted = benjamini_hochberg(&p);
    let of_tested = judged.iter_mut().filter(|row| row.p.is_some());
    for (row, adjusted) in of_tested.zip(adjusted) {
        row.adjusted = Some(adjusted);
        row.moved = adjusted <= LEVEL * (1.0 + 1e-9);
    }
    Together {
        tested: p.len(),
        moved: judged.iter().filter(|row| row.moved).count(),
        rows: judged,
    }
}

impl Together {
    /// Returns the difference of a row with its interval.
    fn difference(&self, row: &Judged) -> (Option<f64>, Option<[f64; 2]>) {
        let Some(tested) = &row.tested else {
            return (None, None);
        };
        let value = tested.estimate();
        let chosen = self.moved + usize::from(!row.moved);
        let level = LEVEL * chosen as f64 / self.tested.max(1) as f64 * (1.0 + 1e-9);
        let ends = value.and_then(|value| tested.ends(value, level));
        let ends = ends.filter(|ends| ends.low.is_finite() && ends.high.is_finite());
        (value, ends.map(|ends| [ends.low, ends.high]))
    }
}

/// Returns the least probability that this many traces can give.
fn least_p([before, after]: [usize; 2]) -> f64 {
    let all = arrangements(before, after);
    let most = f64::from(super::two::EXACT);
    if all <= most {
        2.0 / all
    } else {
        1.0 / f64::from(DRAWS + 1)
    }
}

/// Compares the accounts of two sides.
///
/// 200 figures of 7 traces per side take about 0.1 s, of 100 traces per side 10 s.
#[must_use]
pub fn moved(sides: &[Vec<Account>; 2], options: Options) -> Moved {
    let sizes = [sides[0].len(), sides[1].len()];
    let all = || sides.iter().flatten();
    let per = match options.per {
        Some(per) => per,
        None if all().all(|one| one.run_ns.is_some()) => Per::Run,
        None => Per::Second,
    };
    let mut missing = Vec::new();
    let lacking = lacking(sides, &mut missing);
    // Number of units in each trace, by which figures are divided; none where a trace has no unit.
    let units = sides.each_ref().map(|side| {
        let units = side.iter().map(|one| one.units(&per));
        units.collect::<Vec<Option<f64>>>()
    });
    let without = all().zip(units.iter().flatten());
    let without: Vec<&Account> = without
        .filter_map(|(one, unit)| unit.is_none().then_some(one))
        .collect();
    if let Some(first) = without.first() {
        let why = match per {
            Per::Run => "the trace lacks a part of the recorded program's first thread",
            Per::Second => "times are no times",
            Per::Roundtrip | Per::Request(_) => "there is none",
        };
        let why = format!(
            "{why} in {} of {} traces, the first {}",
            without.len(),
            all().count(),
            first.name
        );
        missing.push(Missing::new(per.to_string(), why));
    }
    let value = |key: &Key, side: usize, at: usize| -> Option<f64> {
        let account = &sides[side][at];
        if account.lacks.contains_key(&key.family) {
            return None;
        }
        Some(account.figures.get(key).copied().unwrap_or(0.0) / units[side][at]?)
    };
    let values = |key: &Key| {
        [0, 1].map(|side: usize| -> Vec<Option<f64>> {
            (0..sizes[side]).map(|at| value(key, side, at)).collect()
        })
    };
    // Time of a unit, over all traces.
    let lengths = sides
        .iter()
        .zip(&units)
        .flat_map(|(side, units)| side.iter().zip(units));
    let lengths = lengths.filter_map(|(one, unit)| Some(one.length_ms(&per)? / (*unit)?));
    let least = LEAST * mean(lengths);

    let keys: BTreeSet<&Key> = all().flat_map(|one| one.figures.keys()).inserted();
    let mut by_family: BTreeMap<Family, Vec<(f64, Row<'_>)>> = BTreeMap::new();
    for key in keys {
        let values = values(key);
        let level = mean(values.iter().flatten().filter_map(|value| *value));
        let enough = match key.family {
            Family::Count => level * per.per_second(least / LEAST) >= 1.0,
            _ => level >= least,
        };
        if enough {
            by_family
                .entry(key.family)
                .or_default()
                .push((level, (key, values)));
        }
    }
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut left_out = 0;
    for mut family in by_family.into_values() {
        family.sort_rows(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.0.cmp(b.1.0)));
        left_out += family.len().saturating_sub(MOST);
        family.truncate(MOST);
        rows.extend(family.into_iter().map(|(_, row)| row));
    }
    let same_as = the_same(&rows);
    let known = |row: usize| -> Option<Values> {
        let [before, after] = &rows[row].1;
        let whole = |side: &[Option<f64>]| side.iter().copied().collect::<Option<Vec<f64>>>();
        Some(Values([whole(before)?, whole(after)?]))
    };
    let own: Vec<usize> = (0..rows.len()).filter(|&row| same_as[row] == row).collect();
    let tested: Vec<usize> = own
        .iter()
        .copied()
        .filter(|&row| known(row).is_some())
        .collect();
    let candidates: Vec<Values> = tested.iter().filter_map(|&row| known(row)).collect();
    let together = judge(&candidates, sizes, options.seed);

    let once = sizes == [1, 1];
    let could = least_p(sizes) <= LEVEL;
    let idle = |key: &Key| {
        let sum = |of: &dyn Fn(&Account) -> Option<f64>| all().filter_map(of).sum::<f64>();
        let waited = sum(&|one| one.idle.get(&key.path[0]).copied());
        let whole = sum(&|one| one.figures.get(key).copied());
        key.family == Family::Call && waited >= whole / 2.0
    };
    let mut figures: Vec<Figure> = Vec::new();
    let mut words: BTreeMap<&Key, FigureWord> = BTreeMap::new();
    for &row in &own {
        let (key, sides) = &rows[row];
        let place = tested.iter().position(|&tested| tested == row);
        let judged = place.map(|place| &together.rows[place]);
        let [before, after] = sides.each_ref().map(|side| {
            let known: Vec<f64> = side.iter().filter_map(|value| *value).collect();
            (known.len() == side.len()).then(|| median(known)).flatten()
        });
        // A figure that is 0 in most traces and can prove nothing is left out.
        let rare = judged.is_some_and(|judged| judged.p.is_none()) && could;
        if rare && before == Some(0.0) && after == Some(0.0) {
            continue;
        }
        let (difference, ends) = judged.map_or((None, None), |judged| together.difference(judged));
        let word = match judged {
            None => FigureWord::Unknown,
            Some(Judged {
                moved: true,
                tested: Some(tested),
                ..
            }) => match tested.is_more() {
                true => FigureWord::More,
                false => FigureWord::Less,
            },
            Some(_) if once => FigureWord::SeenOnce,
            Some(_) => FigureWord::NotProven,
        };
        words.insert(key, word);
        let runs = |side: &[Option<f64>]| {
            side.iter()
                .map(|value| value.filter(|v| v.is_finite()))
                .collect()
        };
        figures.push(Figure {
            family: key.family,
            name: key.family.told(&key.path),
            path: key.path.clone(),
            unit: unit_of(key.family, &per),
            before,
            after,
            difference: difference.or_else(|| Some(after? - before?)),
            low: ends.map(|ends| ends[0]),
            high: ends.map(|ends| ends[1]),
            p: judged.and_then(|judged| judged.p),
            p_adjusted: judged.and_then(|judged| judged.adjusted),
            word,
            idle: idle(key),
            before_traces: runs(&sides[0]),
            after_traces: runs(&sides[1]),
        });
    }
    for (row, (key, _)) in rows.iter().enumerate() {
        let word = words.get(rows[same_as[row]].0).copied();
        words.insert(key, word.unwrap_or(FigureWord::NotProven));
    }
    figures.sort_rows(|a, b| {
        let open = |figure: &Figure| !figure.word.is_proven();
        let counted = |figure: &Figure| figure.family == Family::Count;
        let far = |figure: &Figure| figure.difference.map_or(-1.0, f64::abs);
        (open(a).cmp(&open(b)))
            .then_with(|| counted(a).cmp(&counted(b)))
            .then_with(|| far(b).total_cmp(&far(a)))
            .then_with(|| (a.family, &a.path).cmp(&(b.family, &b.path)))
    });
    let pictures = pictures(sides, &units, &lacking, &words, least);
    let together_needed = (least_p(sizes) * together.tested as f64 / LEVEL - 1e-9).ceil();
    let possible = could && together.tested > 0;
    let mut record = Moved {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command,
        seed: options.seed,
        level: LEVEL,
        per: per.to_string(),
        before: SideOf::new(&options.names[0], &sides[0]),
        after: SideOf::new(&options.names[1], &sides[1]),
        verdict: Verdict {
            word: Word::Inconclusive,
            text: String::new(),
        },
        tested: together.tested,
        moved: together.moved,
        left_out,
        together: possible.then_some((together_needed as usize).max(1)),
        alone_at: alone_at(own.len()),
        figures,
        pictures,
        environment: options.environment,
        warnings: options.warnings,
        missing,
    };
    for account in all() {
        if let Some(why) = &account.doubt {
            record.warnings.push(format!("{}: {why}", account.name));
        }
    }
    record.verdict = record.judged(once);
    record
}

/// Returns the number of traces per side that prove a move of a single one of `figures`.
fn alone_at(figures: usize) -> usize {
    let enough = LEVEL / figures.max(1) as f64;
    let n = (4..=8).find(|&n| least_p([n, n]) <= enough);
    n.unwrap_or(9)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0_f64), |(sum, n), value| (sum + value, n + 1.0));
    sum / n.max(1.0)
}

fn unit_of(family: Family, per: &Per) -> String {
    let what = if family == Family::Count {
        "calls"
    } else {
        "ms"
    };
    match per {
        Per::Second => format!("{what}/s"),
        per => format!("{what} a {per}"),
    }
}

/// Returns families that cannot be compared, because some traces lack them or have them in another form.
fn lacking(sides: &[Vec<Account>; 2], missing: &mut Vec<Missing>) -> BTreeSet<Family> {
    let mut lacking = BTreeSet::new();
    let mut told = BTreeSet::new();
    let all = || sides.iter().flatten();
    for family in Family::ALL {
        let lacks = |side: usize| {
            sides[side]
                .iter()
                .filter(|one| one.lacks.contains_key(&family))
        };
        let [before, after] = [0, 1].map(|side| lacks(side).count());
        if before + after == 0 {
            continue;
        }
        lacking.insert(family);
        let what = lacks(0)
            .chain(lacks(1))
            .next()
            .map_or("", |one| one.lacks[&family]);
        if told.insert(what) {
            let why = match before + after == all().count() {
                true => "no trace has them".to_owned(),
                false => format!(
                    "{before} of {} traces before and {after} of {} after lack them",
                    sides[0].len(),
                    sides[1].len()
                ),
            };
            missing.push(Missing::new(what, why));
        }
    }
    lacking
}

/// Returns for each row the row that stands for it, because both have the same figures: for a thread with a single
/// wait that wait, for a hop that is a whole wait that wait.
fn the_same(rows: &[Row<'_>]) -> Vec<usize> {
    let near = |a: &Known, b: &Known| {
        let pairs = a.iter().flatten().zip(b.iter().flatten());
        let mut pairs = pairs.map(|(a, b)| a.zip(*b));
        pairs.all(|pair| pair.is_some_and(|(a, b)| (a - b).abs() <= 0.01 * a.max(b)))
    };
    let chains: BTreeMap<&[String], usize> = (rows.iter().enumerate())
        .filter(|(_, (key, _))| key.family == Family::Chain)
        .map(|(row, (key, _))| (&*key.path, row))
        .inserted();
    let mut same: Vec<usize> = (0..rows.len()).collect();
    for (path, &row) in &chains {
        let parent = path
            .len()
            .checked_sub(1)
            .and_then(|depth| chains.get(&path[..depth]));
        let Some(&parent) = parent.filter(|&&parent| near(&rows[row].1, &rows[parent].1)) else {
            continue;
        };
        match path.len() {
            2 => same[parent] = row,
            // The paths are in order, so the parent's row is final.
            _ => same[row] = same[parent],
        }
    }
    same
}

/// Frames of a picture: amounts of each side including the frames below, and the answer for each frame.
type Frames = BTreeMap<Vec<String>, ([f64; 2], FigureWord)>;

/// Returns the pictures: chains of waits, and stacks of CPU time.
fn pictures(
    sides: &[Vec<Account>; 2],
    units: &Known,
    lacking: &BTreeSet<Family>,
    words: &BTreeMap<&Key, FigureWord>,
    least: f64,
) -> Vec<Picture> {
    let mut waits = Frames::new();
    let mut cpu = Frames::new();
    let found = |family: Family, path: &[String]| {
        let key = Key {
            family,
            path: path.to_owned(),
        };
        words.get(&key).copied()
    };
    for (side, accounts) in sides.iter().enumerate() {
        let n = accounts.len() as f64;
        for (account, unit) in accounts.iter().zip(&units[side]) {
            let Some(unit) = unit else { return Vec::new() };
            let chains = account
                .figures
                .iter()
                .filter(|(key, _)| key.family == Family::Chain);
            for (key, amount) in chains.filter(|_| !lacking.contains(&Family::Chain)) {
                let (amounts, _) = waits.entry(key.path.clone()).or_insert_with(|| {
                    let word = found(Family::Chain, &key.path);
                    ([0.0; 2], word.unwrap_or(FigureWord::NotProven))
                });
                amounts[side] += amount / unit / n;
            }
            for (path, amount) in account
                .cpu
                .iter()
                .filter(|_| !lacking.contains(&Family::Own))
            {
                for depth in 1..=path.len() {
                    let (amounts, _) = cpu.entry(path[..depth].to_owned()).or_insert_with(|| {
                        // A thread and a state have no figure of their own.
                        let function = path[..depth].last().filter(|_| depth > 2);
                        let word = function
                            .and_then(|name| found(Family::Below, std::slice::from_ref(name)));
                        ([0.0; 2], word.unwrap_or(FigureWord::NotProven))
                    });
                    amounts[side] += amount / unit / n;
                }
            }
        }
    }
    let all = [(Family::Chain, waits), (Family::Below, cpu)];
    let drawn = all.into_iter().filter(|(_, frames)| !frames.is_empty());
    drawn
        .map(|(family, frames)| Picture {
            family,
            frames: own_frames(frames, least),
        })
        .filter(|picture| !picture.frames.is_empty())
        .collect()
}

/// Removes small frames, and subtracts from each frame the amounts of the frames below it.
fn own_frames(all: Frames, least: f64) -> Vec<Frame> {
    let mut kept: Vec<_> = all
        .into_iter()
        .filter(|(_, (amounts, _))| amounts[0] + amounts[1] >= least)
        .collect();
    kept.sort_rows(|(_, (a, _)), (_, (b, _))| (b[0] + b[1]).total_cmp(&(a[0] + a[1])));
    kept.truncate(MOST_FRAMES);
    let kept: Frames = kept.into_iter().inserted();
    let mut below: BTreeMap<&[String], [f64; 2]> = BTreeMap::new();
    for (path, (amounts, _)) in &kept {
        let sums = below.entry(&path[..path.len() - 1]).or_default();
        for (sum, amount) in sums.iter_mut().zip(amounts) {
            *sum += amount;
        }
    }
    let frames = kept.iter().map(|(path, (amounts, word))| {
        let of_others = below.get(&**path).copied().unwrap_or_default();
        let own = |side: usize| (amounts[side] - of_others[side]).max(0.0);
        // The function moved as a whole. On this stack it may have moved the other way.
        let fits = match word {
            FigureWord::More => amounts[1] > amounts[0],
            FigureWord::Less => amounts[1] < amounts[0],
            _ => true,
        };
        Frame {
            path: path.clone(),
            before: own(0),
            after: own(1),
            word: if fits { *word } else { FigureWord::NotProven },
        }
    });
    frames.collect()
}

impl Account {
    /// Returns the number of units in the trace.
    fn units(&self, per: &Per) -> Option<f64> {
        let many = match per {
            Per::Run => self.run_ns.map(|_| 1.0),
            Per::Second => self.length_ns.map(|ns| ns as f64 / 1e9),
            Per::Roundtrip | Per::Request(_) => self.operations.map(|n| n as f64),
        };
        many.filter(|many| *many > 0.0)
    }

    /// Returns the length of the run, or else of the trace, in milliseconds.
    fn length_ms(&self, per: &Per) -> Option<f64> {
        let ns = match per {
            Per::Run => self.run_ns,
            _ => self.length_ns,
        };
        ns.map(|ns| ns as f64 / 1e6)
    }
}

impl Per {
    /// Returns the factor from counts per unit to counts per second, or per run. A unit takes `ms` milliseconds.
    fn per_second(&self, ms: f64) -> f64 {
        match self {
            Per::Run | Per::Second => 1.0,
            Per::Roundtrip | Per::Request(_) => 1_000.0 / ms.max(1e-9),
        }
    }
}

#[cfg(test)]
mod tests;
