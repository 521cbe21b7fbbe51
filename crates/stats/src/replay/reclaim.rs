//! What a replay of `reclaim` tells: a row is one way to hold and to release memory under one load.
//!
//! Counts are the modelled kernel's; times are counts at the prices of [`ReclaimSetting::prices`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;

use super::chunks::Assumption;
use crate::record::Parameter;

/// The setting that all rows share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReclaimSetting {
    /// The lists: `classic`, `mglru`.
    pub lru: String,
    /// Why these lists' figures are not held against a running kernel; absent where they are.
    pub not_validated: Option<String>,
    /// Assumed cost of each step.
    pub prices: Vec<Assumption>,
    /// Which policy to use, and why; absent where no row tells.
    pub advice: Option<String>,
    /// Whether the rows have the order of mail 004, and its figures; absent unless the mail's four rows are here.
    pub mail: Option<String>,
    /// The file of the record that the rows stand beside; absent where none was given.
    pub beside: Option<String>,
}

/// The figures of one policy under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReclaimRow {
    /// The load's word.
    pub workload: String,
    /// How memory is held.
    pub policy: String,
    /// How it is released; absent where the policy has only one way.
    pub release: Option<String>,
    /// Always absent: loads have no ladder.
    pub n: Option<u64>,
    /// Pages that were read.
    pub operations: u64,
    /// The setting, by the names of the flags; sizes in bytes.
    pub parameters: BTreeMap<String, Parameter>,
    /// Pages that reclaim scanned.
    pub scanned: u64,
    /// Anonymous and shmem pages among those.
    pub scanned_anonymous: u64,
    /// Pages that reclaim freed.
    pub reclaimed: u64,
    /// Pages among those that went to swap.
    pub swapped: u64,
    /// Pages that reclaim met and moved to the unevictable list.
    pub culled: u64,
    /// Pages that the driver's shrinker freed.
    pub shrunk: u64,
    /// Runs; what is counted is of all of them together.
    pub runs: u64,
    /// Pages scanned for each that was reclaimed, the median of the runs; absent where none was.
    pub scanned_per_reclaimed: Option<f64>,
    /// The least of a run.
    pub scanned_per_reclaimed_least: Option<f64>,
    /// The most of a run.
    pub scanned_per_reclaimed_most: Option<f64>,
    /// Milliseconds inside reclaim for each GiB read; absent where nothing was read.
    pub reclaim_ms_per_gib: Option<f64>,
    /// Times of populating 2 MiB; absent where the load does not.
    pub allocation: Option<Allocation>,
    /// Longest time with interrupts off, in microseconds, taking and releasing included.
    pub longest_interrupts_off_us: f64,
    /// Longest time during which a CPU was not given to others, in microseconds, taking and releasing included.
    pub longest_unpreempted_us: f64,
    /// From the load's beginning until reclaim was first needed, in milliseconds; absent where it never was.
    pub first_reclaim_ms: Option<f64>,
    /// Where memory was out; absent where it was not.
    pub out_of_memory: Option<OutOfMemory>,
    /// Time to take what is held, in nanoseconds a page; absent where nothing is held beforehand.
    pub take_ns_per_page: Option<f64>,
    /// Time to release it, in nanoseconds a page; absent where nothing is held beforehand.
    pub release_ns_per_page: Option<f64>,
    /// Time of all tasks by cause, in milliseconds.
    pub causes_ms: BTreeMap<String, f64>,
    /// The probe's figures of the same, where its record was given and has them.
    pub measured: Option<MeasuredScans>,
    /// Unknown figures, and why.
    pub missing: Vec<Missing>,
}

/// How long mapping, touching and unmapping 2 MiB took, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Allocation {
    /// How many.
    pub count: u64,
    /// The mean.
    pub mean_us: f64,
    /// Half took no longer.
    pub p50_us: f64,
    /// 90 % took no longer; absent where there are too few.
    pub p90_us: Option<f64>,
    /// 99 % took no longer; absent where there are too few.
    pub p99_us: Option<f64>,
    /// The longest.
    pub max_us: f64,
}

/// No page could be reclaimed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutOfMemory {
    /// Since the load began, in milliseconds; 0: what was to be held did not fit.
    pub at_ms: f64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes among those that must stay.
    pub held_bytes: u64,
}

/// Pages scanned per page reclaimed, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredScans {
    /// How the probe held the memory.
    pub mode: String,
    /// Runs.
    pub runs: u64,
    /// The median of the runs.
    pub scanned_per_reclaimed: f64,
    /// The least of a run.
    pub least: f64,
    /// The most of a run.
    pub most: f64,
    /// The model's over the median; absent where that is 0 or the model has none.
    pub factor: Option<f64>,
}
