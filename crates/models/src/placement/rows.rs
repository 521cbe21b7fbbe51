//! Measurements as rows.

use stopgap_events::machine::Missing;
use stopgap_stats::quantile::{median, quantile};
use stopgap_stats::replay::{Loops, PlacementRow, Spread};

use super::allocator::Entry;
use super::execution::{Facts, Stop};
use super::experiment::{Experiment, Shown};
use super::mail;

/// A row and what it is fitted from.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The row.
    pub row: PlacementRow,
    /// Nanoseconds an operation in each repetition, the driver's taken off.
    pub runs: Vec<f64>,
    /// Bytes held, and from the first to the last, each 4,096 operations; empty unless [`thorough`].
    ///
    /// [`thorough`]: super::Settings::thorough
    pub spans: Vec<(u64, u64)>,
}

/// The quantile of single operations.
const TAIL: f64 = 0.9999;

/// A row an entry; `shown` has the driver first. Nothing where nothing was measured.
pub(super) fn rows(
    experiment: &Experiment<'_>,
    entries: &[Entry],
    shown: &[Shown],
) -> Vec<Measured> {
    let Some((driver, others)) = shown.split_first() else {
        return Vec::new();
    };
    if driver.facts.is_none() {
        return Vec::new();
    }
    entries
        .iter()
        .zip(others)
        .map(|(entry, shown)| one(experiment, entry, driver, shown))
        .collect()
}

fn one(experiment: &Experiment<'_>, entry: &Entry, driver: &Shown, shown: &Shown) -> Measured {
    let mut missing = Vec::new();
    let mut unknown = |what: &str, why: &str| missing.push(Missing::new(what, why));
    let facts = shown.facts.clone().unwrap_or_default();
    let lacks = shown.lacks.clone().or(match shown.stop {
        Some(Stop::Lacks(what)) => Some(what.to_string()),
        _ => None,
    });
    // What could not do the workload has no figures of it: those of its part would be another's.
    let told = lacks.is_none();
    // The first pass counts; the others, with smaller limits, are stopped sooner.
    let stopped = match shown.stop {
        Some(Stop::Visits(visits)) => Some(format!(
            "after {visits} visits, {} operations",
            facts.operations
        )),
        Some(Stop::Time(ns)) => Some(format!("after {} ms", ns / 1_000_000)),
        Some(Stop::Lacks(_)) | None => None,
    };

    let driver_ns = over_batches(&driver.times, median);
    // Of the operations that all repetitions have.
    let common = shown.times.iter().map(Vec::len).min().unwrap_or(0);
    let runs: Vec<f64> = shown
        .times
        .iter()
        .zip(&driver.times)
        .filter_map(|(own, driver)| {
            let [own, driver] = [own, driver].map(|times| mean(times.get(..common)?));
            Some(own? - driver?)
        })
        .collect();
    let taken_off = |own: Option<f64>| own.zip(driver_ns).map(|(own, driver)| own - driver);
    let ns = taken_off(over_batches(&shown.times, median));
    let least = |per: Vec<f64>| per.into_iter().reduce(f64::min);
    let most = |per: Vec<f64>| per.into_iter().reduce(f64::max);
    let low = taken_off(over_batches(&shown.times, least));
    let high = taken_off(over_batches(&shown.times, most));
    let spread = low.zip(high).map(|(low, high)| Spread { low, high });
    let timed: u64 = shown.times.iter().flatten().map(|time| time.1).sum();
    let short = facts.operations < FEW && timed < LEAST_TIMED_NS;
    if told && ns.is_none() {
        unknown("ns_per_operation", "it stopped before anything was timed");
    } else if told && short {
        unknown("ns_per_operation", "it was over too soon to be timed");
    }
    let (ns, spread) = if short { (None, None) } else { (ns, spread) };

    let (p9999_ns, worst_ns) = singles(shown);
    if let Err(why) = &p9999_ns
        && told
    {
        unknown("p9999_ns", why);
    }
    let work = facts.work.filter(|_| told);
    if told && work.is_none() {
        unknown("work_per_map", "it does not count its work");
    }
    let work_per_map = work
        .filter(|_| facts.maps > 0)
        .map(|work| share(work.visited + work.descended + work.propagated, facts.maps));
    if work.is_some() && work_per_map.is_none() {
        unknown("work_per_map", "the workload maps nothing");
    }
    let span = facts.used_and_span.filter(|_| told);
    if told && span.is_none() {
        unknown("span_over_live", span_unknown(&facts));
    }
    let memory = facts.memory.filter(|_| told && facts.live > 0);
    if told && memory.is_none() {
        unknown("bytes_per_range", memory_unknown(&facts));
    }
    let row = PlacementRow {
        workload: experiment.workload.to_owned(),
        policy: entry.name().to_owned(),
        n: experiment.n,
        operations: facts.operations,
        maps: facts.maps,
        ns_per_operation: ns.filter(|_| told),
        spread: spread.filter(|_| told),
        driver_ns,
        work_per_map,
        visited: work.map(|work| work.visited),
        descended: work.map(|work| work.descended),
        propagated: work.map(|work| work.propagated),
        resets: work.map(|work| work.resets),
        full_scans: work.map(|work| work.full_scans),
        flushes: work.map(|work| work.flushes),
        p9999_ns: p9999_ns.ok().filter(|_| told),
        worst_ns: worst_ns.filter(|_| told),
        span_over_live: span.map(|(used, span)| share(span, used)),
        failures: facts.failures,
        live: facts.live,
        bytes_per_range: memory.map(|memory| share(memory, facts.live)),
        loops: loops(driver, shown).filter(|_| told),
        mail_003: mail::of_003(experiment.workload, entry.name()),
        stopped,
        lacks,
        note: entry.note().map(str::to_owned),
        missing,
    };
    let runs = if told { runs } else { Vec::new() };
    let spans = shown.spans.clone();
    Measured { row, runs, spans }
}

/// Returns the times of the rounds, less the driver's time for each.
fn loops(driver: &Shown, shown: &Shown) -> Option<Loops> {
    let rounds = shown.rounds.iter().zip(&driver.rounds);
    let own: Vec<u64> = rounds
        .map(|(own, driver)| own.saturating_sub(*driver))
        .collect();
    Loops::from_ns(&own)
}

/// Rows show no time of so few operations that took so little in all repetitions together: it is mostly the
/// clock's.
const FEW: u64 = 500;
const LEAST_TIMED_NS: u64 = 50_000;

fn span_unknown(facts: &Facts) -> &'static str {
    if facts.live == 0 {
        "nothing is held at the end"
    } else {
        "it keeps no statistics and was stopped"
    }
}

fn memory_unknown(facts: &Facts) -> &'static str {
    if facts.live == 0 {
        "nothing is held at the end"
    } else {
        "it does not say what memory it takes"
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Nanoseconds an operation in one repetition.
fn mean(times: &[(u64, u64)]) -> Option<f64> {
    let operations: u64 = times.iter().map(|time| time.0).sum();
    let ns: u64 = times.iter().map(|time| time.1).sum();
    (operations > 0).then(|| share(ns, operations))
}

/// Nanoseconds an operation: of each batch what `pick` takes of the repetitions, then the mean over all
/// operations. Batches that not all repetitions have, an interrupted one's, count as far as they go.
fn over_batches(times: &[Vec<(u64, u64)>], pick: impl Fn(Vec<f64>) -> Option<f64>) -> Option<f64> {
    let batches = times.iter().map(Vec::len).max()?;
    let (mut operations, mut total) = (0.0, 0.0);
    for at in 0..batches {
        let each: Vec<(u64, u64)> = times
            .iter()
            .filter_map(|batches| batches.get(at).copied())
            .filter(|time| time.0 > 0)
            .collect();
        let Some(&(count, _)) = each.first() else {
            continue;
        };
        let per = each.iter().map(|&(count, ns)| share(ns, count)).collect();
        if let Some(per) = pick(per) {
            let count = share(count, 1);
            operations += count;
            total += per * count;
        }
    }
    (operations > 0.0).then(|| total / operations)
}

/// The median of the repetitions' p99.99, or why there is none; the longest operation, of each its fastest repetition.
fn singles(shown: &Shown) -> (Result<u64, String>, Option<u64>) {
    let worst = shown.least.iter().max().map(|&ns| u64::from(ns));
    let mut tails = Vec::new();
    for all in &shown.singles {
        match quantile(all, TAIL) {
            Ok(ns) => tails.push(ns),
            Err(few) => return (Err(few.to_string()), worst),
        }
    }
    tails.sort_unstable();
    let middle = tails.len().checked_sub(1).map(|last| tails[last / 2]);
    let why = "no operation was timed alone".to_owned();
    (middle.ok_or(why), worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_repetition_of_a_batch_is_left_out() {
        let even = vec![(10, 100), (10, 100)];
        let slow = vec![(10, 100), (10, 90_000)];
        let times = [even.clone(), slow, even];
        assert_eq!(over_batches(&times, median), Some(10.0));
        assert_eq!(mean(&times[1]), Some(4_505.0));
        assert_eq!(over_batches(&[], median), None);
        assert_eq!(mean(&[(0, 7)]), None);
    }

    #[test]
    fn batches_weigh_by_their_operations() {
        let times = [vec![(30, 300), (10, 500)]];
        assert_eq!(over_batches(&times, median), Some(20.0));
    }
}
