//! An outcome as a row of the record, beside what a probe measured of the same, and the advice of all rows.

use std::collections::BTreeMap;

use stopgap_events::machine::Missing;
use stopgap_events::order::Inserted as _;
use stopgap_events::reclaim::Load;
use stopgap_stats::quantile::quantile;
use stopgap_stats::record::{Answer, Parameter, Series};
use stopgap_stats::replay::{Allocation, MeasuredScans, OutOfMemory, ReclaimRow};

use super::{Outcome, PAGE, Policy, Setting};

/// The lists that are modelled, by the word that the probe has for them: active and inactive.
pub const LRU: &str = "classic";
/// The probe's series.
const RATIO: &str = "scanned per reclaimed";

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn ms(ns: u64) -> f64 {
    us(ns) / 1e3
}

/// The row of `outcome`, beside what `measured` has of the same setting, where there is one.
#[must_use]
pub fn row(setting: &Setting, outcome: &Outcome, measured: Option<&Answer>) -> ReclaimRow {
    let ratio = outcome.scanned_per_reclaimed();
    let mut missing = Vec::new();
    if ratio.is_none() {
        let why = match outcome.out_of_memory {
            Some(_) => "memory was out before a page was reclaimed",
            None => "nothing was reclaimed: no pressure came about",
        };
        missing.push(Missing::new("scanned_per_reclaimed", why));
    }
    let beside = measured.and_then(|answer| match beside(setting, answer, ratio) {
        Ok(beside) => Some(beside),
        Err(why) => {
            missing.push(Missing::new("measured", why));
            None
        }
    });
    let causes = outcome
        .causes
        .iter()
        .map(|(cause, &ns)| (cause.to_string(), ms(ns)));
    ReclaimRow {
        workload: setting.load.to_string(),
        policy: setting.policy.to_string(),
        release: setting.policy.marks().then(|| setting.release.to_string()),
        n: None,
        operations: outcome.read,
        parameters: parameters(setting),
        scanned: outcome.scanned,
        scanned_anonymous: outcome.scanned_anon,
        reclaimed: outcome.reclaimed,
        swapped: outcome.written,
        culled: outcome.culled,
        shrunk: outcome.shrunk,
        runs: outcome.runs,
        scanned_per_reclaimed: ratio,
        scanned_per_reclaimed_least: outcome.ratios.iter().copied().reduce(f64::min),
        scanned_per_reclaimed_most: outcome.ratios.iter().copied().reduce(f64::max),
        reclaim_ms_per_gib: outcome.reclaim_ms_per_gib(),
        allocation: allocation(outcome),
        longest_interrupts_off_us: us(outcome.longest_irq_off_ns),
        longest_unpreempted_us: us(outcome.longest_unpreempted_ns),
        first_reclaim_ms: outcome.first_reclaim_ns.map(ms),
        out_of_memory: outcome.out_of_memory.map(|point| OutOfMemory {
            at_ms: ms(point.at_ns),
            used_bytes: point.used * PAGE,
            held_bytes: point.held * PAGE,
        }),
        take_ns_per_page: outcome.take_ns_per_page,
        release_ns_per_page: outcome.release_ns_per_page,
        causes_ms: causes.inserted(),
        measured: beside,
        missing,
    }
}

fn allocation(outcome: &Outcome) -> Option<Allocation> {
    let times = &outcome.allocations;
    let at = |q| quantile(times, q).ok().map(us);
    Some(Allocation {
        count: times.len(),
        mean_us: times.mean()? / 1e3,
        p50_us: us(times.median()?),
        p90_us: at(0.9),
        p99_us: at(0.99),
        max_us: us(times.max()?),
    })
}

/// By the names of the flags.
fn parameters(setting: &Setting) -> BTreeMap<String, Parameter> {
    let all: [(&str, Parameter); 11] = [
        ("pinned", setting.pinned.0.into()),
        ("limit", setting.limit.0.into()),
        ("load", setting.load.word().into()),
        ("file", setting.file_size().0.into()),
        ("swap", setting.swap.0.into()),
        ("swappiness", setting.swappiness.into()),
        ("lru", LRU.into()),
        ("kernel", setting.kernel.word().into()),
        ("folio", setting.folio.0.into()),
        ("statistics", setting.statistics.to_string().as_str().into()),
        ("time", setting.time.to_string().as_str().into()),
    ];
    all.map(|(name, value)| (name.to_owned(), value)).into()
}

/// How the probe holds memory in the way of `policy`.
fn modes(policy: Policy) -> &'static [&'static str] {
    match policy {
        Policy::None => &["none"],
        Policy::Held => &["vmsplice", "io-uring"],
        Policy::Mlock => &["mlock"],
        // The probe's memory is there before it is locked.
        Policy::Mapping => &[],
        Policy::MappingLate => &["shm-lock"],
    }
}

fn number(series: &Series, name: &str) -> Option<u64> {
    match series.parameters.get(name)? {
        Parameter::Number(number) => Some(*number),
        Parameter::Word(_) => None,
    }
}

/// Whether `series` was measured under `setting`: held as much (`pinned`, in older records `held`) of the same limit (else
/// the same `room`), loaded alike, with swap or without, on the same lists.
fn same(series: &Series, setting: &Setting) -> bool {
    let held = || number(series, "pinned").or_else(|| number(series, "held"));
    let room = || match number(series, "room") {
        Some(room) => Some(room),
        None => Some(number(series, "limit")?.saturating_sub(held()?)),
    };
    let load = series.word("load").unwrap_or(Load::Mixed.word());
    let swap = series
        .word("swap")
        .is_none_or(|kind| (kind == "none") == (setting.swap.0 == 0));
    let lru = series.word("lru").is_none_or(|lru| lru == LRU);
    let as_much = setting.policy == Policy::None || held() == Some(setting.pinned.0);
    as_much && room() == Some(setting.room().0) && load == setting.load.word() && swap && lru
}

/// Returns the probe's figures for `setting`, or why there are none.
fn beside(
    setting: &Setting,
    answer: &Answer,
    ratio: Option<f64>,
) -> Result<MeasuredScans, &'static str> {
    let none = "the record has no figure of this pinned set, limit and load";
    let of = |mode: &&'static str| {
        let fits = |series: &&Series| {
            series.name == RATIO && series.word("mode") == Some(mode) && same(series, setting)
        };
        let series = answer.series.iter().find(fits)?;
        Some((*mode, series, series.median()?))
    };
    let (mode, series, median) = modes(setting.policy).iter().find_map(of).ok_or(none)?;
    let (least, most) = series.range().ok_or(none)?;
    Ok(MeasuredScans {
        mode: mode.to_owned(),
        runs: series.blocks.len() as u64,
        scanned_per_reclaimed: median,
        least,
        most,
        factor: ratio.filter(|_| median > 0.0).map(|ratio| ratio / median),
    })
}
