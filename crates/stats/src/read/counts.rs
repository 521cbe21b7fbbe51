//! Samples by their length, of a histogram that some other tool kept.

use std::collections::BTreeMap;

use stopgap_events::machine::Missing;

use super::{Options, Read, ReadError};
use crate::compare::{Run, RunStalls};
use crate::quantile::{needed, quantile_of_counts};

/// Samples that can be added up without care.
const MOST: u64 = 1 << 53;

/// How often each length was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Counts {
    /// By length, in the file's unit.
    seen: BTreeMap<u64, u64>,
    /// Samples that were longer than the histogram is.
    beyond: u64,
    pub(super) total: u64,
}

impl Counts {
    /// Counts `count` samples of length `value`.
    pub(super) fn add(&mut self, value: u64, count: u64) -> Result<(), String> {
        self.sum(count)?;
        if count > 0 {
            *self.seen.entry(value).or_insert(0) += count;
        }
        Ok(())
    }

    /// Counts samples that are longer than all others.
    pub(super) fn add_beyond(&mut self, count: u64) -> Result<(), String> {
        self.sum(count)?;
        self.beyond += count;
        Ok(())
    }

    fn sum(&mut self, count: u64) -> Result<(), String> {
        let total = self.total.checked_add(count).filter(|&total| total <= MOST);
        self.total = total.ok_or("it counts more than 2^53 samples")?;
        Ok(())
    }

    /// Adds what another counted.
    pub(super) fn merge(&mut self, other: &Counts) -> Result<(), String> {
        self.add_beyond(other.beyond)?;
        other
            .seen
            .iter()
            .try_for_each(|(&value, &count)| self.add(value, count))
    }

    /// The value that a share `q` of the samples does not exceed; `None` where there are too few, or it is beyond.
    fn at(&self, q: f64) -> Option<f64> {
        let seen = self.seen.iter().map(|(&value, &count)| (value, count));
        quantile_of_counts(seen, self.total, q).map(|value| value as f64)
    }

    /// Adds the run of these samples to `read`; figures that are beyond the histogram go to its missing ones. `longest` is the
    /// longest sample where the file has it. Samples of the threshold of `options` or longer are stalls where the file has
    /// its `duration_ns`; `no_stalls` says why they may be unknown. A unit of the histogram is `unit_ns` nanoseconds.
    pub(super) fn put_run(
        &self,
        mut read: Read,
        longest: Option<u64>,
        (unit_ns, duration_ns): (u64, Option<u64>),
        options: &Options,
        no_stalls: &str,
    ) -> Result<Read, ReadError> {
        if self.total == 0 {
            return Err(ReadError::whole("there is no sample in it"));
        }
        for (q, what) in [(0.5, "median"), (0.99, "p99"), (0.999, "p99.9")] {
            if self.total >= needed(q) && self.at(q).is_none() {
                let (beyond, total) = (self.beyond, self.total);
                let why = format!(
                    "{beyond} of {total} samples were longer than the histogram: it lies among them"
                );
                read.missing.push(Missing::new(what, why));
            }
        }
        let last = self.seen.last_key_value().map(|(&value, _)| value);
        let longest = longest.or(last.filter(|_| self.beyond == 0));
        let mut run = Run::of_quantiles("", longest.map(|longest| longest as f64), |q| self.at(q));
        if let Some(threshold) = options.stall_threshold_ns {
            run.stalls = duration_ns.and_then(|time| self.stalls(unit_ns, threshold, time));
            if run.stalls.is_none() {
                read.missing.push(Missing::new("stalls", no_stalls));
            }
        }
        read.runs.push(run);
        Ok(read)
    }

    /// Samples of `threshold_ns` or longer; `None` where the threshold is beyond the histogram's end and samples are, too.
    fn stalls(&self, unit_ns: u64, threshold_ns: u64, duration_ns: u64) -> Option<RunStalls> {
        let from = threshold_ns.div_ceil(unit_ns);
        let last = self.seen.last_key_value().map_or(0, |(&value, _)| value);
        if self.beyond > 0 && from > last.saturating_add(1) {
            return None;
        }
        let long = || self.seen.range(from..);
        let time =
            long().map(|(&value, &count)| value.saturating_mul(unit_ns).saturating_mul(count));
        Some(RunStalls {
            count: long().map(|(_, count)| count).sum::<u64>() + self.beyond,
            time_ns: (self.beyond == 0).then(|| time.fold(0, u64::saturating_add)),
            threshold_ns,
            duration_ns,
        })
    }
}
