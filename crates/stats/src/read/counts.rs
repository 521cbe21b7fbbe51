//! Samples by their length, of a histogram that some other tool kept.

use std::collections::BTreeMap;

use stopgap_events::machine::Missing;

use crate::compare::{Run, RunStalls};
use crate::quantile::needed;

/// Samples that can be added up without care.
const MOST: u64 = 1 << 53;

/// How often each length was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Counts {
    /// By length, in the file's unit.
    seen: BTreeMap<u64, u64>,
    /// Samples that were longer than the histogram is.
    beyond: u64,
    total: u64,
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

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The value that a share `q` of the samples does not exceed; `None` where there are too few, or it is beyond.
    fn at(&self, q: f64) -> Option<f64> {
        if self.total < needed(q) {
            return None;
        }
        let rank = ((q * self.total as f64).ceil() as u64).max(1);
        let mut below = 0;
        for (&value, &count) in &self.seen {
            below += count;
            if below >= rank {
                return Some(value as f64);
            }
        }
        None
    }

    /// The run. `longest` is the longest sample where the file says it; what cannot be told goes to `missing`.
    pub(super) fn run(&self, name: &str, longest: Option<f64>, missing: &mut Vec<Missing>) -> Run {
        let mut deciles = [0.0; 9];
        let mut whole = true;
        for (place, tenth) in deciles.iter_mut().zip(1u8..) {
            match self.at(f64::from(tenth) / 10.0) {
                Some(value) => *place = value,
                None => whole = false,
            }
        }
        for (q, what) in [(0.5, "median"), (0.99, "p99"), (0.999, "p99.9")] {
            if self.total >= needed(q) && self.at(q).is_none() {
                let beyond = self.beyond;
                let total = self.total;
                let why = format!(
                    "{beyond} of {total} samples were longer than the histogram: it lies among them"
                );
                missing.push(Missing::new(what, why));
            }
        }
        let last = self.seen.last_key_value().map(|(&value, _)| value as f64);
        Run {
            median: self.at(0.5),
            p99: self.at(0.99),
            p999: self.at(0.999),
            max: longest.or(last.filter(|_| self.beyond == 0)),
            deciles: whole.then_some(deciles),
            ..Run::new(name)
        }
    }

    /// Samples of `threshold_ns` or longer, a unit of the histogram being `unit_ns` nanoseconds; `None` where the threshold is
    /// beyond its end and samples are, too.
    pub(super) fn stalls(
        &self,
        unit_ns: u64,
        threshold_ns: u64,
        duration_ns: u64,
    ) -> Option<RunStalls> {
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
