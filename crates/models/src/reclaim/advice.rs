//! Which way of holding memory to use, and why.
//!
//! **Contract.** Rows are taken load by load and share by share. First whoever runs out of memory is left out, then whoever
//! makes others wait longer: by the mean of a 2 MiB allocation where the load has that, else by time inside reclaim, a tenth
//! more counts as the same. Among equals: the shortest time in which nobody else may run, then the cheapest to take and
//! release. The advice is the way that is best in most of them. Without a row that holds anything there is none.

use std::collections::BTreeMap;

use stopgap_stats::replay::ReclaimRow;

use super::Policy;

/// Beyond this factor two waits differ.
const SAME: f64 = 1.1;

/// How long others wait beside `row`; rows are only compared with rows of the same load.
fn wait(row: &ReclaimRow) -> Option<f64> {
    match &row.allocation {
        Some(times) => Some(times.mean_us),
        None => row.reclaim_ms_per_gib,
    }
}

fn name(row: &ReclaimRow) -> String {
    match &row.release {
        Some(release) => format!("{} released by {release}", row.policy),
        None => row.policy.clone(),
    }
}

fn cost(row: &ReclaimRow) -> f64 {
    row.take_ns_per_page.unwrap_or(0.0) + row.release_ns_per_page.unwrap_or(0.0)
}

/// The best of rows of one load and share.
fn best<'a>(rows: &[&'a ReclaimRow]) -> Option<&'a ReclaimRow> {
    let alive = || rows.iter().filter(|row| row.out_of_memory.is_none());
    let least = alive().filter_map(|row| wait(row)).min_by(f64::total_cmp)?;
    let near = alive().filter(|row| wait(row).is_some_and(|wait| wait <= least * SAME));
    near.copied().min_by(|a, b| {
        let stretch = a
            .longest_unpreempted_us
            .total_cmp(&b.longest_unpreempted_us);
        stretch.then(cost(a).total_cmp(&cost(b)))
    })
}

/// The advice of `rows`, a sentence; `None` where they tell none.
#[must_use]
pub fn advice(rows: &[ReclaimRow]) -> Option<String> {
    let mut groups: BTreeMap<_, Vec<&ReclaimRow>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.policy != Policy::None.word()) {
        let pinned = row
            .parameters
            .get("pinned")
            .map(|value| format!("{value:?}"));
        groups.entry((&row.workload, pinned)).or_default().push(row);
    }
    let bests: Vec<(&ReclaimRow, &Vec<&ReclaimRow>)> = groups
        .values()
        .filter_map(|rows| Some((best(rows)?, rows)))
        .collect();
    let votes = |row: &ReclaimRow| {
        bests
            .iter()
            .filter(|(other, _)| name(other) == name(row))
            .count()
    };
    let (winner, beside) = bests.iter().rev().max_by_key(|(row, _)| votes(row))?;
    let mut text = format!("use {}", name(winner));
    let worst = beside.iter().filter_map(|row| Some((wait(row)?, *row)));
    if let (Some(own), Some((most, other))) =
        (wait(winner), worst.max_by(|a, b| a.0.total_cmp(&b.0)))
        && most > own * SAME
    {
        let what = match winner.allocation {
            Some(_) => ("us a 2 MiB allocation", 1),
            None => ("ms in reclaim a GiB read", 1),
        };
        text.push_str(&format!(
            ": {own:.*} {}, {} {most:.*}",
            what.1,
            what.0,
            name(other),
            what.1
        ));
        if let (Some(own), Some(others)) =
            (winner.scanned_per_reclaimed, other.scanned_per_reclaimed)
        {
            text.push_str(&format!(
                " (scanned a page reclaimed {own:.2}, {others:.2})"
            ));
        }
    } else {
        text.push_str(": nothing here makes others wait noticeably longer");
    }
    let longest = beside
        .iter()
        .map(|row| row.longest_unpreempted_us)
        .fold(0.0, f64::max);
    if longest > winner.longest_unpreempted_us * SAME {
        text.push_str(&format!(
            "; its longest stretch in which nobody else may run is {:.0} us, of others up to {longest:.0}",
            winner.longest_unpreempted_us
        ));
    }
    for row in beside.iter().filter(|row| row.out_of_memory.is_some()) {
        text.push_str(&format!("; {} runs out of memory", name(row)));
    }
    Some(text)
}
