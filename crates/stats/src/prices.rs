//! Costs of the page allocator's work on a machine, JSON `stopgap.prices/1`, fitted to buffers whose work was
//! counted.
//!
//! **Contract.** A buffer's time is its counts times five prices: a page fault, clearing a page, scanning 512 pages
//! for compaction, moving a page, reclaiming a page. [`fit`] finds the prices of at least 0 with the least squares of
//! `predicted / measured - 1`. It needs three runs. A price is *fitted* only if its work was at least [`SEEN`] of the
//! time of buffers in two runs, for any run that is left out. Otherwise it is left out, and a reader of the file
//! assumes it. If each page is a fault, the data cannot separate a fault from clearing. Then one of the two prices
//! contains both, and the other is 0.
//!
//! **Certainty.** `least` and `greatest` are over the fits that leave out one run each. [`Prices::strategies`] has
//! the distance of each strategy's time from its counts at prices that were fitted *without* that strategy. So no
//! price is judged by a figure to which it was fitted.
//!
//! **Cost.** 2^5 systems of at most five equations per fit; one fit per run and strategy.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::order::Inserted as _;

/// Name and version of the file's format.
pub const SCHEMA: &str = "stopgap.prices/1";

/// Least share of a buffer's time for the work of a fitted price.
pub const SEEN: f64 = 0.05;

/// Faults that the price of clearing contains: per page at most this many times those of the buffers to which it was
/// fitted.
const ALIKE: f64 = 1.1;

/// Names of the prices in the file. Counts have the same order.
pub const NAMES: [&str; 5] = [
    "fault_ns",
    "clear_page_ns",
    "scan_block_ns",
    "move_page_ns",
    "reclaim_page_ns",
];

/// Index of cleared pages in [`NAMES`].
const CLEARED: usize = 1;

/// Usual prices on today's machines. They show whether work without a price is small.
const USUAL: [f64; 5] = [1_000.0, 250.0, 15_000.0, 2_500.0, 3_000.0];

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prices {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The kernel's release, where it is known.
    pub kernel: Option<String>,
    /// When the probe began, seconds since 1970.
    pub started_unix_s: u64,
    /// Bytes of a base page.
    pub page_bytes: u64,
    /// The fitted prices.
    pub prices: Vec<Price>,
    /// Distance of the time of each strategy's buffers from its counts at these prices.
    pub strategies: Vec<Check>,
}

/// One price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// `fault_ns` per page fault, `clear_page_ns` per page, `scan_block_ns` per 512 pages, `move_page_ns` per page,
    /// `reclaim_page_ns` per page.
    pub name: String,
    /// Nanoseconds.
    pub value: f64,
    /// The least value of the fits that leave out one run each.
    pub least: f64,
    /// The greatest value of these.
    pub greatest: f64,
}

/// A strategy's time, and its counts at prices that were fitted without it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// Bytes of the buffers.
    pub size_bytes: u64,
    /// The strategy, as `thp-direct`.
    pub strategy: String,
    /// Nanoseconds per buffer, the mean of the runs.
    pub measured_ns: f64,
    /// Cost of the counts; absent if only this strategy did some of the work, so that the price is unknown without
    /// it.
    pub predicted_ns: Option<f64>,
}

impl Check {
    /// Returns predicted over measured.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        Some(self.predicted_ns? / self.measured_ns)
    }
}

/// Buffers of one size and strategy in one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Bytes of the buffers.
    pub size_bytes: u64,
    /// Their strategy.
    pub strategy: String,
    /// The run.
    pub run: u32,
    /// Nanoseconds per buffer, above 0.
    pub time_ns: f64,
    /// Counts per buffer, in the order of [`NAMES`].
    pub counts: [f64; 5],
}

/// Prices in the order of [`NAMES`]; 0 if another price contains it, `None` if it could not be fitted.
pub type Fitted = [Option<f64>; 5];

/// Fits the prices to `rows`. Keeps those that at least two of the fits without one run also have, so three runs are
/// needed.
#[must_use]
pub fn fit(rows: &[Row]) -> Fitted {
    let fits = without_each_run(rows);
    let mut fitted = fit_once(rows);
    for (at, price) in fitted.iter_mut().enumerate() {
        if fits.iter().filter(|other| other[at].is_some()).count() < 2 {
            *price = None;
        }
    }
    fitted
}

/// Returns the fits that leave out one run each.
fn without_each_run(rows: &[Row]) -> Vec<Fitted> {
    let runs: BTreeSet<u32> = rows.iter().map(|row| row.run).inserted();
    let without = |run: u32| -> Vec<Row> {
        let others = rows.iter().filter(|row| row.run != run);
        others.cloned().collect()
    };
    runs.into_iter()
        .map(|run| fit_once(&without(run)))
        .collect()
}

fn fit_once(rows: &[Row]) -> Fitted {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.time_ns > 0.0).collect();
    let counted = |price: usize| rows.iter().any(|row| row.counts[price] > 0.0);
    let mut wanted: Vec<usize> = (0..5).filter(|&price| counted(price)).collect();
    // A fault or clearing, if the other one has a price.
    let held_by_other = |wanted: &[usize], price: usize| {
        price <= CLEARED
            && wanted.contains(&(CLEARED - price))
            && runs_with(&rows, price, USUAL[price]) >= 2
    };
    loop {
        let prices = least_squares(&rows, &wanted);
        // The least certain price is dropped first. Then the others take over what it explained.
        let unseen = wanted
            .iter()
            .map(|&price| (runs_with(&rows, price, prices[price]), price))
            .filter(|&(runs, _)| runs < 2)
            .min();
        match unseen {
            Some((_, price)) => wanted.retain(|&other| other != price),
            None => {
                return std::array::from_fn(|price| match wanted.contains(&price) {
                    true => Some(prices[price]),
                    false => held_by_other(&wanted, price).then_some(0.0),
                });
            }
        }
    }
}

/// Returns the prices of `rows`, their ranges, and the distance of each strategy. Empty if nothing could be fitted.
#[must_use]
pub fn judged(rows: &[Row]) -> (Vec<Price>, Vec<Check>) {
    let all = fit(rows);
    let fits = without_each_run(rows);
    let price = |at: usize| {
        let value = all[at]?;
        let others = || fits.iter().filter_map(|fitted| fitted[at]);
        Some(Price {
            name: NAMES[at].to_owned(),
            value,
            least: others().fold(value, f64::min),
            greatest: others().fold(value, f64::max),
        })
    };
    let cells: BTreeSet<(u64, &str)> = rows
        .iter()
        .map(|row| (row.size_bytes, row.strategy.as_str()))
        .inserted();
    let check = |(size_bytes, strategy): (u64, &str)| {
        let others: Vec<Row> = rows
            .iter()
            .filter(|row| row.strategy != strategy)
            .cloned()
            .collect();
        let fitted = fit(&others);
        let own = || {
            let of = |row: &&Row| row.size_bytes == size_bytes && row.strategy == strategy;
            rows.iter().filter(of)
        };
        let mean = |sum: f64| sum / own().count() as f64;
        let predicted: Option<f64> = own().map(|row| cost(&fitted, &others, row)).sum();
        Check {
            size_bytes,
            strategy: strategy.to_owned(),
            measured_ns: mean(own().map(|row| row.time_ns).sum()),
            predicted_ns: predicted.map(mean),
        }
    };
    let prices = (0..5).filter_map(price).collect();
    (prices, cells.into_iter().map(check).collect())
}

/// Returns the cost of a row's counts at prices that were fitted to `others`; `None` if one that matters has no
/// price.
fn cost(prices: &Fitted, others: &[Row], row: &Row) -> Option<f64> {
    let a_page = |row: &Row, at: usize| row.counts[at] / row.counts[CLEARED];
    let of = |at: usize| match (row.counts[at] * unit(at), prices[at]) {
        (count, Some(price)) if price > 0.0 => Some(count * price),
        (count, _) if count <= 0.0 => Some(0.0),
        (count, _) => {
            // The count is so small that its part is small; or the price of clearing contains it, as for the others.
            let small = count * USUAL[at] < SEEN * row.time_ns;
            let most = others.iter().map(|other| a_page(other, at));
            let alike = a_page(row, at) <= ALIKE * most.fold(0.0, f64::max);
            (small || prices[at].is_some() && alike).then_some(0.0)
        }
    };
    (0..5).map(of).sum()
}

/// Returns the count to which one price applies.
fn unit(price: usize) -> f64 {
    match NAMES[price] {
        "scan_block_ns" => 1.0 / 512.0,
        _ => 1.0,
    }
}

/// Returns the number of runs in which the work of a price was a visible part of a buffer's time.
fn runs_with(rows: &[&Row], price: usize, value: f64) -> usize {
    let seen = |row: &&&Row| row.counts[price] * unit(price) * value >= SEEN * row.time_ns;
    let runs: BTreeSet<u32> = rows.iter().filter(seen).map(|row| row.run).inserted();
    runs.len()
}

/// Returns the `wanted` prices of at least 0 with the least squares of `predicted / measured - 1`; the others are 0.
/// Tries every set of prices above 0.
fn least_squares(rows: &[&Row], wanted: &[usize]) -> [f64; 5] {
    let mut best = (f64::INFINITY, [0.0; 5]);
    for set in 0..1_u32 << wanted.len() {
        let chosen: Vec<usize> = wanted
            .iter()
            .enumerate()
            .filter(|(bit, _)| set >> bit & 1 == 1)
            .map(|(_, &price)| price)
            .collect();
        let Some(prices) = solve(rows, &chosen) else {
            continue;
        };
        let squares: f64 = rows
            .iter()
            .map(|row| {
                let cost: f64 = (0..5)
                    .map(|at| row.counts[at] * unit(at) * prices[at])
                    .sum();
                (cost / row.time_ns - 1.0).powi(2)
            })
            .sum();
        if prices.iter().all(|&price| price >= 0.0) && squares < best.0 {
            best = (squares, prices);
        }
    }
    best.1
}

/// Solves the normal equations by elimination with pivots; `None` if the data cannot separate two prices.
fn solve(rows: &[&Row], chosen: &[usize]) -> Option<[f64; 5]> {
    let size = chosen.len();
    let share = |row: &Row, price: usize| row.counts[price] * unit(price) / row.time_ns;
    let mut lines = vec![vec![0.0; size + 1]; size];
    for row in rows {
        for (line, &a) in lines.iter_mut().zip(chosen) {
            for (cell, &b) in line.iter_mut().zip(chosen) {
                *cell += share(row, a) * share(row, b);
            }
            line[size] += share(row, a);
        }
    }
    // As correlations: prices differ by five orders of magnitude.
    let scale: Vec<f64> = (0..size).map(|at| lines[at][at].sqrt()).collect();
    if scale.iter().any(|&scale| scale <= 0.0) {
        return None;
    }
    for (line, &own) in lines.iter_mut().zip(&scale) {
        for (cell, &other) in line.iter_mut().zip(scale.iter().chain([&1.0])) {
            *cell /= own * other;
        }
    }
    for at in 0..size {
        let pivot =
            (at..size).max_by(|&a, &b| lines[a][at].abs().total_cmp(&lines[b][at].abs()))?;
        if lines[pivot][at].abs() < 1e-6 {
            return None;
        }
        lines.swap(at, pivot);
        let own = lines[at].clone();
        for (other, line) in lines.iter_mut().enumerate() {
            if other != at {
                let times = line[at] / own[at];
                for (cell, &of) in line.iter_mut().zip(&own) {
                    *cell -= times * of;
                }
            }
        }
    }
    let mut prices = [0.0; 5];
    for (at, &price) in chosen.iter().enumerate() {
        prices[price] = lines[at][size] / lines[at][at] / scale[at];
    }
    Some(prices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::normal;
    use stopgap_events::random::Random;

    const TRUE: [f64; 5] = [1_400.0, 250.0, 30_000.0, 2_500.0, 4_000.0];

    /// Five strategies of 64 MiB, the counts as they are on fragmented memory, times with noise of `share`.
    fn rows(runs: u32, share: f64, random: &mut Random) -> Vec<Row> {
        let counts = [
            ("base", [16_384.0, 16_384.0, 0.0, 0.0, 0.0]),
            ("thp-noreclaim", [16_384.0, 16_384.0, 0.0, 0.0, 0.0]),
            ("mthp-64K", [1_200.0, 16_384.0, 2e6, 9_000.0, 0.0]),
            ("mthp-to-64K", [1_100.0, 16_384.0, 1e6, 14_000.0, 9_000.0]),
            ("thp-direct", [8_000.0, 16_384.0, 3e6, 2_000.0, 3_000.0]),
        ];
        let mut rows = Vec::new();
        for run in 0..runs {
            for (strategy, counts) in counts {
                let counts = counts.map(|count: f64| count * (1.0 + 0.3 * f64::from(run)));
                let counts = [counts[0], 16_384.0, counts[2], counts[3], counts[4]];
                let time: f64 = (0..5).map(|at| counts[at] * unit(at) * TRUE[at]).sum();
                rows.push(Row {
                    size_bytes: 64 << 20,
                    strategy: strategy.to_owned(),
                    run,
                    time_ns: time * (1.0 + share * normal(random).clamp(-2.0, 2.0)),
                    counts,
                });
            }
        }
        rows
    }

    #[test]
    fn prices_that_times_were_made_of_are_found() {
        assert_eq!(fit(&rows(2, 0.0, &mut Random::new(1))), [None; 5]);
        let fitted = fit(&rows(3, 0.0, &mut Random::new(1)));
        for (price, truth) in fitted.into_iter().zip(TRUE) {
            assert!((price.unwrap() / truth - 1.0).abs() < 1e-6, "{fitted:?}");
        }
    }

    #[test]
    fn each_strategy_is_predicted_without_itself() {
        for seed in 1..=20 {
            let (prices, checks) = judged(&rows(3, 0.1, &mut Random::new(seed)));
            // Clearing is a tenth of these times, so noise may hide it.
            assert!(prices.len() >= 3, "seed {seed}: {prices:?}");
            for price in &prices {
                assert!(price.least <= price.value && price.value <= price.greatest);
            }
            assert_eq!(checks.len(), 5);
            for check in checks {
                let near = check
                    .ratio()
                    .is_none_or(|ratio| (0.4..2.5).contains(&ratio));
                assert!(near, "seed {seed}: {check:?}");
            }
        }
    }

    #[test]
    fn work_that_nobody_did_has_no_price() {
        let mut rows = rows(3, 0.05, &mut Random::new(3));
        rows.retain(|row| row.counts[2] <= 0.0);
        let huge = |row: &Row| Row {
            strategy: "thp".to_owned(),
            counts: [32.0, 16_384.0, 0.0, 0.0, 0.0],
            time_ns: 32.0 * TRUE[0] + 16_384.0 * TRUE[1],
            ..row.clone()
        };
        let more: Vec<Row> = rows.iter().map(huge).collect();
        rows.extend(more);
        let fitted = fit(&rows);
        assert!(fitted[0].is_some() && fitted[1].is_some(), "{fitted:?}");
        assert_eq!(fitted[2..], [None; 3]);
        // A single run would be chance.
        rows[0].counts[3] = 5_000.0;
        rows[0].time_ns += 5_000.0 * TRUE[3];
        assert_eq!(fit(&rows)[3], None);
        assert_eq!(fit(&[]), [None; 5]);
    }

    /// On memory without large blocks, all strategies fault page by page.
    #[test]
    fn what_cannot_be_told_from_clearing_is_a_part_of_it() {
        for seed in 1..=20 {
            let mut rows = rows(3, 0.0, &mut Random::new(seed));
            let mut random = Random::new(seed);
            for row in &mut rows {
                let others: f64 = (2..5).map(|at| row.counts[at] * unit(at) * TRUE[at]).sum();
                row.counts[0] = 16_387.0;
                let time = others + row.counts[0] * TRUE[0] + row.counts[1] * TRUE[1];
                row.time_ns = time * (1.0 + 0.05 * normal(&mut random).clamp(-2.0, 2.0));
            }
            let (prices, checks) = judged(&rows);
            let value = |name: &str| {
                prices
                    .iter()
                    .find(|price| price.name == name)
                    .unwrap()
                    .value
            };
            let both = value("fault_ns") + value("clear_page_ns");
            let truth = TRUE[0] + TRUE[1];
            assert!(
                (0.8..1.25).contains(&(both / truth)),
                "seed {seed}: {prices:?}"
            );
            for check in &checks {
                let near = match check.strategy.as_str() {
                    "base" | "thp-noreclaim" => 0.8..1.25,
                    _ => 0.4..2.5,
                };
                let is_near = check.ratio().is_none_or(|ratio| near.contains(&ratio));
                assert!(is_near, "seed {seed}: {check:?}");
            }
            assert!(checks[0].ratio().is_some(), "{checks:?}");
        }
    }

    /// Only one strategy moves pages. Without it the price is unknown.
    #[test]
    fn what_only_one_strategy_does_is_not_checked() {
        let mut rows = rows(3, 0.0, &mut Random::new(4));
        for row in &mut rows {
            if row.strategy != "thp-direct" {
                let moved = row.counts[3] * TRUE[3];
                row.counts[3] = 0.0;
                row.time_ns -= moved;
            } else {
                row.counts[3] *= 10.0;
                row.time_ns += 0.9 * row.counts[3] * TRUE[3];
            }
        }
        let (prices, checks) = judged(&rows);
        assert_eq!(prices.len(), 5);
        let known = |strategy: &str| {
            let mut checks = checks.iter();
            checks.any(|check| check.strategy == strategy && check.predicted_ns.is_some())
        };
        assert!(known("base") && !known("thp-direct"), "{checks:?}");
    }
}
