//! Decides from endpoints to one word.
//!
//! An endpoint is *worse* or *better* where its probability, adjusted for all endpoints, is at most [`LEVEL`] and its effect points
//! the same way; worse only where its interval does not end below the margin, because a difference that is certain and
//! does not matter is no regression. It is *not worse* where the upper end of its interval, and a step of its clock beyond, are
//! below the margin.
//!
//! | the endpoints | the verdict |
//! |---|---|
//! | one is worse | `regression` |
//! | else one is better | `improvement` |
//! | else a side was measured once or twice | `inconclusive` |
//! | else one cannot be tested, or all together cannot reach [`LEVEL`] | `inconclusive` |
//! | else all are not worse, or nothing was seen on either side | `not worse` |
//! | else | `no difference proven` |

use stopgap_events::order::SortRows;

use super::LEVEL;
use super::adjust::{benjamini_hochberg, holm};
use super::paired::{Pairs, judged};
use super::record::{Row, RowWord, Scale, Verdict, Word};
use super::row::{self, Test};
use super::side::MEAN;
use super::steps;
use super::two::arrangements;

/// Occasions per side that can prove a difference, in pairs and in up to six endpoints in none.
const ENOUGH: u32 = 6;

/// Gives each row its adjusted probabilities, and its word if it was tested and is `no difference proven` so far;
/// then gives the verdict over all rows. `sizes` are the numbers of runs of the sides.
pub(super) fn judge(
    rows: &mut [Row],
    tests: &[Option<Test>],
    margin: f64,
    sizes: [usize; 2],
) -> Verdict {
    let p: Vec<f64> = rows.iter().filter_map(|row| row.p).collect();
    // Endpoints in pairs are judged together.
    let pairs: Vec<&Pairs> = tests.iter().flatten().filter_map(Test::pairs).collect();
    let in_pairs = !pairs.is_empty();
    let mut of_all = judged(&pairs).into_iter();
    let adjusted = holm(&p).into_iter().zip(benjamini_hochberg(&p));
    let adjusted = adjusted.zip(levels(&p));
    let tested = rows
        .iter_mut()
        .zip(tests)
        .filter(|(row, _)| row.p.is_some());
    for ((row, test), ((by_holm, p_bh), level)) in tested.zip(adjusted) {
        let pairs = test.as_ref().and_then(Test::pairs);
        let of_all = pairs.and_then(|_| of_all.next());
        (row.p_holm, row.p_bh) = (Some(by_holm), Some(p_bh));
        row.p_westfall_young = of_all.map(|of_all| of_all.p);
        if row.word == RowWord::NoDifferenceProven {
            if let Some(test) = test {
                row::bound(row, test, level, of_all.as_ref());
            }
            row.word = word(row, row.p_adjusted().unwrap_or(1.0), margin);
        }
    }
    let with =
        |word: RowWord| -> Vec<&Row> { rows.iter().filter(|row| row.word == word).collect() };
    let names = |rows: &[&Row]| -> String {
        // A mean that moved in the same way as its runs is no news.
        let other = |row: &&&Row| {
            !rows
                .iter()
                .any(|of| row.name == format!("{MEAN}{}", of.name))
        };
        let each = rows.iter().filter(other);
        let each = each.map(|row| format!("{} {}", row.name, row.text));
        each.collect::<Vec<_>>().join(", ")
    };
    let just = |rows: &[&Row]| -> String {
        let each: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
        each.join(", ")
    };
    let [worse, better, not_worse, open, nothing, untold] = [
        RowWord::Worse,
        RowWord::Better,
        RowWord::NotWorse,
        RowWord::NoDifferenceProven,
        RowWord::NothingSeen,
        RowWord::Inconclusive,
    ]
    .map(with);
    let verdict = |word: Word, text: String| Verdict {
        word,
        text: format!("{word}: {text}"),
    };

    if !worse.is_empty() {
        let but = if better.is_empty() {
            String::new()
        } else {
            format!("; better: {}", names(&better))
        };
        return verdict(Word::Regression, names(&worse) + &but);
    }
    if !better.is_empty() {
        let but = if open.is_empty() && untold.is_empty() {
            String::new()
        } else {
            let rest: Vec<&Row> = open.into_iter().chain(untold).collect();
            format!("; of {} nothing is proven", just(&rest))
        };
        return verdict(Word::Improvement, names(&better) + &but);
    }
    if rows.is_empty() {
        return verdict(Word::Inconclusive, "there is nothing to compare".to_owned());
    }
    let once = match (sizes.into_iter().min(), sizes[0] == sizes[1]) {
        (Some(1), true) => Some("measured once a side"),
        (Some(2), true) => Some("measured twice a side"),
        (Some(1), false) => Some("one side was measured once"),
        (Some(2), false) => Some("one side was measured twice"),
        _ => None,
    };
    if let (Some(once), false) = (once, p.is_empty()) {
        let text = format!(
            "{once}: what differs between any two occasions cannot be told from a change. Compare two commands with --run, or \
             {ENOUGH} occasions or more a side, made in turn (over reboots: stopgap campaign)"
        );
        return verdict(Word::Inconclusive, text);
    }
    if let Some(first) = untold.first() {
        let text = format!("{}: {}", first.name, first.text);
        return verdict(Word::Inconclusive, text);
    }
    let least = 2.0 / arrangements(sizes[0], sizes[1]) * p.len() as f64;
    if least > LEVEL && !in_pairs {
        let text = format!(
            "n too small: of {} endpoints together so few runs cannot give a p below {:.2}",
            p.len(),
            least.min(1.0)
        );
        return verdict(Word::Inconclusive, text);
    }
    if open.is_empty() && !not_worse.is_empty() {
        let but = if nothing.is_empty() {
            String::new()
        } else {
            format!("; {}: {}", just(&nothing), nothing[0].text)
        };
        let per_cent = (margin * 1e5).round() / 1e3;
        let text = format!("by {per_cent} % or more: {}{but}", names(&not_worse));
        return verdict(Word::NotWorse, text);
    }
    let left = if open.is_empty() { nothing } else { open };
    let text = format!("nor that there is none: {}", names(&left));
    verdict(Word::NoDifferenceProven, text)
}

/// Returns the level at which Holm's procedure judges each probability. An interval at that level excludes "the same"
/// exactly if the endpoint is called different.
fn levels(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_rows(|&a, &b| p[a].total_cmp(&p[b]));
    let mut levels = vec![LEVEL; p.len()];
    let mut rejected = 0;
    for &at in &order {
        let level = LEVEL / (p.len() - rejected) as f64;
        levels[at] = level;
        if p[at] <= level {
            rejected += 1;
        } else {
            break;
        }
    }
    let last = LEVEL / (p.len() - rejected).max(1) as f64;
    for &at in &order[rejected..] {
        levels[at] = last;
    }
    levels
}

fn word(row: &Row, p: f64, margin: f64) -> RowWord {
    let Some(effect) = row.effect else {
        return RowWord::Inconclusive;
    };
    let (same, limit) = match effect.scale {
        Scale::Ratio => (1.0, 1.0 + margin),
        Scale::Difference => (0.0, margin * row.before.map_or(0.0, f64::abs)),
    };
    // An infinite ratio has no value, and counts as more.
    let more = effect.value.is_none_or(|value| value > same);
    let less = effect.value.is_some_and(|value| value < same);
    // The clock hides up to one step, so the effect may be larger by that.
    let step = steps::step(&row.before_runs, &row.after_runs);
    let step = match effect.scale {
        Scale::Ratio => step / row.before.map_or(f64::NAN, f64::abs),
        Scale::Difference => step,
    };
    let within = effect.high.is_some_and(|high| high + step < limit);
    match p <= LEVEL {
        true if less => RowWord::Better,
        _ if within => RowWord::NotWorse,
        true if more => RowWord::Worse,
        _ => RowWord::NoDifferenceProven,
    }
}
