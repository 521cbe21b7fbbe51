//! Which way of holding memory to use, and why.
//!
//! **Contract.** Rows are compared load by load and share by share. First a way that runs out of memory is left out, then
//! one that makes others wait longer: by the mean of a 2 MiB allocation where the load has that, else by time inside
//! reclaim; a tenth more counts as the same. Among equals: the shortest time in which nobody else may run, then the cheapest
//! to take and release. The advice is the way that is best in most of them, unless it makes others wait longer than nothing
//! held does. Without a row that holds anything there is none.

use std::collections::BTreeMap;

use stopgap_stats::replay::ReclaimRow;

use super::Policy;

/// Beyond this factor two waits differ.
const SAME: f64 = 1.1;

/// Rows of one load and share.
#[derive(Default)]
struct Group<'a> {
    /// The row with nothing held, where it was asked for.
    none: Option<&'a ReclaimRow>,
    held: Vec<&'a ReclaimRow>,
}

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

/// `others allocate 2 MiB in 1891.0 us, with held in 519.0 us (the kernel scans 22.81 and 1.00 pages per page reclaimed)`: what others wait beside `row`, and
/// beside `other`, which `label` names.
fn against(row: &ReclaimRow, with: &str, other: &ReclaimRow) -> Option<String> {
    let (own, others) = (wait(row)?, wait(other)?);
    let mut text = match row.allocation {
        Some(_) => format!("others allocate 2 MiB in {own:.1} us, with {with} in {others:.1} us"),
        None => {
            format!("others reclaim for {own:.1} ms per GiB read, with {with} for {others:.1} ms")
        }
    };
    if let (Some(own), Some(others)) = (row.scanned_per_reclaimed, other.scanned_per_reclaimed) {
        text.push_str(&format!(
            " (the kernel scans {own:.2} and {others:.2} pages per page reclaimed)"
        ));
    }
    Some(text)
}

/// Returns the advice that `rows` give, a sentence; `None` where they give none.
#[must_use]
pub fn advice(rows: &[ReclaimRow]) -> Option<String> {
    let mut groups: BTreeMap<_, Group<'_>> = BTreeMap::new();
    for row in rows {
        let pinned = row.parameters.get("pinned");
        let pinned = pinned.map(|value| format!("{value:?}"));
        let group = groups.entry((&row.workload, pinned)).or_default();
        if row.policy == Policy::None.word() {
            group.none = Some(row);
        } else {
            group.held.push(row);
        }
    }
    let bests: Vec<(&ReclaimRow, &Group<'_>)> = groups
        .values()
        .filter_map(|group| Some((best(&group.held)?, group)))
        .collect();
    let votes = |row: &ReclaimRow| {
        let name_of = name(row);
        bests
            .iter()
            .filter(|(other, _)| name(other) == name_of)
            .count()
    };
    let (winner, group) = bests.iter().rev().max_by_key(|(row, _)| votes(row))?;
    let beside = &group.held;
    // By how much others wait longer than with nothing held, under the load where that is most.
    let factor = |(row, group): &&(&ReclaimRow, &Group<'_>)| Some(wait(row)? / wait(group.none?)?);
    let same_way = bests.iter().filter(|(row, _)| name(row) == name(winner));
    let dearest = same_way
        .filter_map(|best| Some((factor(&best)?, best)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let dear = match dearest {
        Some((factor, (row, group))) if factor > SAME => against(row, "nothing held", group.none?),
        _ => None,
    };
    if let (Some(told), 1) = (&dear, beside.len()) {
        return Some(format!(
            "{} makes others wait longer than nothing held: {told}; --policy all compares it with other ways",
            name(winner)
        ));
    }
    let mut text = format!("use {}: ", name(winner));
    let worst = beside.iter().filter_map(|row| Some((wait(row)?, *row)));
    match (wait(winner), worst.max_by(|a, b| a.0.total_cmp(&b.0)), dear) {
        (Some(own), Some((most, other)), dear) if most > own * SAME => {
            text.push_str(&against(winner, &name(other), other)?);
            if let (Some(none), Some(_)) = (group.none.and_then(wait), dear) {
                text.push_str(&format!(", with nothing held {none:.1}"));
            }
        }
        (.., Some(told)) => {
            text.push_str("every way here makes others wait longer than nothing held: ");
            text.push_str(&told);
        }
        _ => text.push_str("nothing here makes others wait noticeably longer"),
    }
    let longest = beside
        .iter()
        .map(|row| row.longest_unpreempted_us)
        .fold(0.0, f64::max);
    if longest > winner.longest_unpreempted_us * SAME {
        text.push_str(&format!(
            "; it keeps everybody else from running for {:.0} us at most, other ways for up to {longest:.0} us",
            winner.longest_unpreempted_us
        ));
    }
    for row in beside.iter().filter(|row| row.out_of_memory.is_some()) {
        text.push_str(&format!("; {} runs out of memory", name(row)));
    }
    Some(text)
}
