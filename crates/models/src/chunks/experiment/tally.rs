//! One policy's figures, buffer by buffer.

use std::collections::BTreeMap;
use std::fmt::Display;

use stopgap_chunks::policy::{Name, ORDERS, Request, Tries};
use stopgap_chunks::tlb::Factor;
use stopgap_events::machine::Missing;
use stopgap_events::order::Inserted as _;
use stopgap_events::units::Bytes;
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::quantile;
use stopgap_stats::replay::chunks::{ChunksRow, TlbFigures};

use super::device::{Device, Mapped, Reads};
use super::sensitivity;
use crate::chunks::buddy::Buddy;
use crate::chunks::cost::{ByCause, Costs, Counts};
use crate::chunks::machine::{Machine, Outcome};

/// Accesses that are counted for each pattern: those of four buffers of 4 MiB, or of one that is larger.
const ACCESSES: u64 = 4 << 16;

/// Pages that compaction may look at for one policy: a few seconds of ours. Where memory is full of pages that
/// cannot be moved, a single buffer may take as many.
const LOOKS: u64 = 1 << 32;

/// Figures of one policy so far.
#[derive(Debug, Clone)]
pub(super) struct Tally<'a> {
    policy: Name,
    device: &'a Device,
    seed: u64,
    /// Buffers that will be asked for.
    planned: u64,
    asked: u64,
    failures: u64,
    pages: u64,
    tries: Tries,
    times: Histogram,
    /// The longest as it is: the histogram ends at an hour.
    worst_ns: f64,
    counts: Counts,
    entries: BTreeMap<u64, u64>,
    table_bytes: Option<u64>,
    reads: Vec<Reads>,
    large_blocks: i64,
    missing: Vec<Missing>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(policy: Name, device: &'a Device, seed: u64, planned: u64) -> Tally<'a> {
        Tally {
            policy,
            device,
            seed,
            planned,
            asked: 0,
            failures: 0,
            pages: 0,
            tries: Tries::default(),
            times: Histogram::new(),
            worst_ns: 0.0,
            counts: Counts::default(),
            entries: BTreeMap::new(),
            table_bytes: Some(0),
            reads: vec![Reads::default(); device.access.len()],
            large_blocks: 0,
            missing: Vec::new(),
        }
    }

    /// A buffer was refused.
    pub(super) fn failed(&mut self, tries: &Tries) {
        self.asked += 1;
        self.failures += 1;
        self.tries += *tries;
    }

    /// A buffer was built.
    pub(super) fn built(&mut self, request: &Request, outcome: &Outcome) {
        let built = &outcome.built;
        let index = self.asked;
        self.asked += 1;
        self.tries += built.tries;
        self.pages += built.pages();
        self.large_blocks += outcome.large_blocks;
        self.counts = self.counts + outcome.counts;
        self.worst_ns = self.worst_ns.max(outcome.time_ns);
        // Below 584 years, and never negative.
        self.times.record(outcome.time_ns.round() as u64);
        match self.device.map(self.policy, request, built) {
            Ok(mapped) => self.mapped(index, &mapped, request.bytes()),
            Err(error) => unknown(&mut self.missing, "entries", &error),
        }
    }

    fn mapped(&mut self, index: u64, mapped: &Mapped, bytes: u64) {
        for (&size, &count) in &mapped.entries {
            *self.entries.entry(size).or_insert(0) += count;
        }
        self.table_bytes = self
            .table_bytes
            .zip(mapped.table_bytes)
            .map(|(sum, bytes)| sum + bytes);
        let tlb = self.device.tlb();
        for (reads, &pattern) in self.reads.iter_mut().zip(&self.device.access) {
            // Evenly over the buffers: a share of the accesses for a share of the buffers.
            let due = u128::from(ACCESSES) * u128::from(index);
            if u128::from(reads.accesses) * u128::from(self.planned) > due
                || reads.accesses >= ACCESSES
            {
                continue;
            }
            if let Err(error) = reads.add(&tlb, &mapped.plan, bytes, pattern, self.seed) {
                unknown(
                    &mut self.missing,
                    &format!("TLB misses of {pattern}"),
                    &error,
                );
            }
        }
    }

    /// Whether it has taken so long that no further buffer should be begun.
    pub(super) fn is_long(&self) -> bool {
        self.counts.scanned > LOOKS
    }

    /// Buffers asked for so far.
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// The row, all but what the machine knows: bystanders and the memory before and after. `costs` are those at
    /// which the times were counted.
    pub(super) fn row(self, workload: &str, costs: &Costs) -> ChunksRow {
        let built = self.times.len();
        let mut missing = self.missing;
        let mut none = |what: &str, why: &str| missing.push(Missing::new(what, why));
        if built == 0 {
            none("time_ms", "no buffer was built");
        }
        let p99 = quantile(&self.times, 0.99);
        let an_hour = |ns: &u64| *ns >= Histogram::HIGHEST;
        if p99.as_ref().is_ok_and(an_hour) {
            none("time_p99_ms", "an hour or more, where counting ends");
        }
        if let (Err(error), true) = (&p99, built > 0) {
            none("time_p99_ms", &error.to_string());
        }
        if self.table_bytes.is_none() {
            let why =
                "no page table is known that has these page sizes, or it does not reach so far";
            none("table_bytes", why);
        }
        if self.counts.scanned > LOOKS && self.asked < self.planned {
            let what = format!("{} of {} buffers", self.planned - self.asked, self.planned);
            let why = format!("not begun: compaction had looked at more than {LOOKS} pages");
            none(&what, &why);
        }
        let per_buffer = |count: u64| float(count) / float(self.asked.max(1));
        let mean = |sum: f64| (built > 0).then(|| sum / float(built));
        let by_cause = ByCause::priced(&self.counts, costs);
        let causes = by_cause.named().into_iter().filter(|(_, ns)| *ns > 0.0);
        let causes = causes.map(|(cause, ns)| (cause.to_owned(), ns / float(built) / 1e6));
        let entries = self
            .entries
            .iter()
            .map(|(&size, &count)| (Bytes(size).short(), float(count) / float(built)))
            .inserted();
        let walk_ns = float(self.device.tlb().walk_ns);
        let read = self.device.access.iter().zip(&self.reads);
        let tlb: Vec<TlbFigures> = read
            .filter(|(_, reads)| reads.buffers > 0)
            .map(|(pattern, reads)| TlbFigures {
                access: pattern.word().to_owned(),
                accesses: float(reads.accesses) / float(reads.buffers),
                misses_per_access: reads.misses_per_access(Factor::Same),
                pass_ms: reads.pass_ms(Factor::Same, walk_ns),
            })
            .collect();
        let first = self.device.access.first().map(|pattern| pattern.word());
        let of_first = tlb.iter().find(|tlb| Some(tlb.access.as_str()) == first);
        let mut sensitivity = sensitivity::of_tlb(self.device, &self.reads);
        if built > 0 {
            let of_time = sensitivity::of_time(&self.counts, built, costs);
            sensitivity.splice(0..0, of_time);
        }
        ChunksRow {
            workload: workload.to_owned(),
            policy: self.policy.word().to_owned(),
            operations: self.asked,
            failures: self.failures,
            tries_per_buffer: per_buffer(self.tries.total()),
            failed_tries_per_buffer: per_buffer(self.tries.total_failed()),
            tries_per_buffer_by_order: self.tries.tries.map(per_buffer).to_vec(),
            failed_tries_per_buffer_by_order: self.tries.failed.map(per_buffer).to_vec(),
            time_ms: mean(by_cause.total_ns() / 1e6),
            // A bucket may end beyond the longest in it.
            time_p99_ms: p99
                .ok()
                .filter(|ns| !an_hour(ns))
                .map(|ns| float(ns).min(self.worst_ns) / 1e6),
            time_worst_ms: (built > 0).then_some(self.worst_ns / 1e6),
            time_by_cause_ms: causes.inserted(),
            entries,
            table_bytes: self.table_bytes.and_then(|sum| mean(float(sum))),
            tlb_misses_per_access: of_first.map(|tlb| tlb.misses_per_access),
            tlb,
            sensitivity,
            missing,
            ..ChunksRow::default()
        }
    }

    /// Free blocks of order 3 that went, for each MiB delivered.
    pub(super) fn large_blocks_per_mib(&self, page: u64) -> Option<f64> {
        let mib = self.pages as f64 * page as f64 / 1_048_576.0;
        (self.pages > 0).then(|| self.large_blocks as f64 / mib)
    }
}

/// Says once that `what` is not known.
fn unknown(missing: &mut Vec<Missing>, what: &str, why: &dyn Display) {
    let one = Missing::new(what, why.to_string());
    if !missing.contains(&one) {
        missing.push(one);
    }
}

fn float(count: u64) -> f64 {
    count as f64
}

/// The unusable index by order.
pub(super) fn unusable(machine: &Machine) -> Vec<Option<f64>> {
    let free = float(machine.memories().map(Buddy::free_pages).sum());
    let share = |buddy: &Buddy, order| {
        let index = buddy.unusable_index(order)?;
        Some(index * float(buddy.free_pages()) / free)
    };
    let index = |order| {
        let shares = machine.memories().filter_map(|buddy| share(buddy, order));
        (free > 0.0).then(|| shares.sum())
    };
    (0..ORDERS as u32).map(index).collect()
}
