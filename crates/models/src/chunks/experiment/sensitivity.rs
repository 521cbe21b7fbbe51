//! Figures with half and with twice of each assumption.
//!
//! Nothing is carried out again for it: time is counts times prices, so another price gives another time for the
//! same counts, and the TLB was read with each number of entries at once. What another price would change in what
//! others do meanwhile is left out: they are as fast as before.

use stopgap_chunks::tlb::Factor;
use stopgap_stats::replay::chunks::{ChunksRow, Sensitivity};

use super::assumptions::{PRICES, TLB_ENTRIES, WALK};
use super::device::{Device, Reads};
use crate::chunks::cost::{ByCause, Costs, Counts};

/// Half and twice.
const FACTORS: [(f64, Factor); 2] = [(0.5, Factor::Half), (2.0, Factor::Double)];

/// The sensitivity of the mean time of `built` buffers that took `counts` in all. A price that nothing was paid
/// for is not there.
pub(super) fn of_time(counts: &Counts, built: u64, costs: &Costs) -> Vec<Sensitivity> {
    let mean = |costs: &Costs| ByCause::priced(counts, costs).total_ns() / built as f64 / 1e6;
    let mut all = Vec::new();
    for price in &PRICES {
        if mean(&price.scaled(*costs, 2.0)) <= mean(costs) {
            continue;
        }
        for (factor, _) in FACTORS {
            let value = mean(&price.scaled(*costs, factor));
            all.push(one(price.name, factor, "time_ms", None, value));
        }
    }
    all
}

/// The sensitivity of what `reads` says of each pattern.
pub(super) fn of_tlb(device: &Device, reads: &[Reads]) -> Vec<Sensitivity> {
    let mut all = Vec::new();
    let walk_ns = device.tlb().walk_ns as f64;
    for (pattern, reads) in device.access.iter().zip(reads) {
        if reads.buffers == 0 {
            continue;
        }
        let access = Some(pattern.word());
        for (factor, entries) in FACTORS {
            let misses = reads.misses_per_access(entries);
            all.push(one(
                TLB_ENTRIES,
                factor,
                "misses_per_access",
                access,
                misses,
            ));
            let pass = reads.pass_ms(entries, walk_ns);
            all.push(one(TLB_ENTRIES, factor, "pass_ms", access, pass));
            let pass = reads.pass_ms(Factor::Same, walk_ns * factor);
            all.push(one(WALK, factor, "pass_ms", access, pass));
        }
    }
    all
}

/// The figures of a row that was made with something else `assumed`.
pub(super) fn of_row(assumed: &str, row: &ChunksRow) -> Vec<Sensitivity> {
    let mut all = Vec::new();
    if let Some(ms) = row.time_ms {
        all.push(one(assumed, None, "time_ms", None, ms));
    }
    for tlb in &row.tlb {
        let access = Some(tlb.access.as_str());
        let misses = tlb.misses_per_access;
        all.push(one(assumed, None, "misses_per_access", access, misses));
        all.push(one(assumed, None, "pass_ms", access, tlb.pass_ms));
    }
    all
}

fn one(
    assumption: &str,
    factor: impl Into<Option<f64>>,
    quantity: &str,
    access: Option<&str>,
    value: f64,
) -> Sensitivity {
    Sensitivity {
        assumption: assumption.to_owned(),
        factor: factor.into(),
        quantity: quantity.to_owned(),
        access: access.map(str::to_owned),
        value,
    }
}
