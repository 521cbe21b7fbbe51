//! The same buffers by every policy, each on a memory of its own that was made alike.
//!
//! ```text
//! steps (videos, or a trace's mappings) -> policy -> machine: time by cause, bystanders, what is left
//!                                            |
//!                                          built -> device: entries, tables, TLB -> row
//! ```
//!
//! Policies need no turns as a probe's strategies do: time is counted, not measured, and nothing that one policy
//! does reaches another's memory.
//!
//! * [`Step`], [`videos`]: what is asked for.
//! * [`Device`], [`Pattern`]: who reads it.
//! * [`mail`]: the times of mail 001.

mod assumptions;
mod device;
pub mod mail;
mod sensitivity;
mod steps;
mod tally;

use std::collections::BTreeMap;

use stopgap_chunks::policy::{BuildError, Built, Chunk, Effort, Name, Request, Source};
use stopgap_events::machine::Missing;
use stopgap_stats::replay::chunks::{Bystander, ChunksRow};

pub use assumptions::assumptions;
pub use device::{Device, Pattern};
pub use steps::{Step, videos};

use super::bystanders::{self, Fared};
use super::machine::{Machine, MachineError};
use tally::Tally;

/// Steps after which it is known how the bystanders fare alone: hundreds of their tries.
const ALONE: usize = 200;

/// The setting that all policies share.
#[derive(Clone, Copy)]
pub struct Experiment<'a> {
    /// The name that the rows have.
    pub workload: &'a str,
    /// The memory as each policy finds it.
    pub machine: &'a Machine,
    /// The same memory, were something else assumed of it, and what: for the sensitivity.
    pub otherwise: &'a [(String, Machine)],
    /// The requested size.
    pub steps: &'a [Step],
    /// The device that reads it.
    pub device: &'a Device,
    /// Whether times are to stand beside mail 001's: in its scenario, with its buffers.
    pub beside_mail: bool,
    /// Seed of random accesses.
    pub seed: u64,
}

impl<'a> Experiment<'a> {
    /// Carries all steps out by `policy`; the row of what was done until `stop` said so, or `None` where that was
    /// before the first buffer was built. It is asked within buffers too. `progress` hears the share that is done.
    ///
    /// # Errors
    /// Those of a request that makes no sense; that memory ends is a figure of the row.
    pub fn row(
        &self,
        policy: Name,
        stop: &dyn Fn() -> bool,
        progress: &dyn Fn(f64),
    ) -> Result<Option<ChunksRow>, MachineError> {
        let part = 1.0 / (1 + self.otherwise.len()) as f64;
        let usual = self.carry_out(policy, self.machine, stop, &|share| progress(share * part))?;
        let Some((tally, machine)) = usual else {
            return Ok(None);
        };
        let mut row = self.finish(policy, tally, &machine);
        let mut done = part;
        for (assumed, machine) in self.otherwise {
            let progress = |share: f64| progress(done + share * part);
            let other = self.carry_out(policy, machine, stop, &progress)?;
            if let Some((tally, machine)) = other {
                let other = tally.row(self.workload, &machine.costs());
                row.sensitivity.extend(sensitivity::of_row(assumed, &other));
            }
            done += part;
        }
        Ok(Some(row))
    }

    /// How the bystanders fare where every buffer is a single page: what they lack then is no policy's doing.
    ///
    /// # Errors
    /// As [`Experiment::row`].
    pub fn alone(&self, stop: &dyn Fn() -> bool) -> Result<Vec<Bystander>, MachineError> {
        let single = |step: &Step| match *step {
            Step::Build { id, .. } => Step::Build { id, pages: 1 },
            release @ Step::Release { .. } => release,
        };
        let steps: Vec<Step> = self.steps.iter().take(ALONE).map(single).collect();
        let alone = Experiment {
            steps: &steps,
            ..*self
        };
        let done = alone.carry_out(Name::OnePage, self.machine, stop, &|_| ())?;
        let fared = done.map(|(_, machine)| machine.bystanders());
        Ok(bystanders(&fared.unwrap_or_default()))
    }

    /// All steps on a copy of `machine`, which is given back as it is then.
    fn carry_out(
        &self,
        policy: Name,
        machine: &Machine,
        stop: &dyn Fn() -> bool,
        progress: &dyn Fn(f64),
    ) -> Result<Option<(Tally<'a>, Machine)>, MachineError> {
        let mut machine = machine.clone();
        let builds = |step: &&Step| matches!(step, Step::Build { .. });
        let planned = self.steps.iter().filter(builds).count() as u64;
        let mut tally = Tally::new(policy, self.device, self.seed, planned);
        let mut held: BTreeMap<u32, Built> = BTreeMap::new();
        for (done, &step) in self.steps.iter().enumerate() {
            if stop() || tally.is_long() {
                break;
            }
            progress(done as f64 / self.steps.len() as f64);
            match step {
                Step::Release { id } => {
                    if let Some(built) = held.remove(&id) {
                        machine.release(&built);
                    }
                }
                Step::Build { id, pages } => {
                    let request = self.request(pages);
                    match machine.build_until(policy, &request, stop) {
                        Ok(outcome) => {
                            tally.built(&request, &outcome);
                            held.insert(id, outcome.built);
                        }
                        Err(MachineError::Build(BuildError::Exhausted { tries, .. })) => {
                            tally.failed(&tries);
                        }
                        // Tries for this buffer belong to no figure.
                        Err(MachineError::Stopped) => break,
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok((tally.asked() > 0).then_some((tally, machine)))
    }

    /// Tries for the largest buffer from a source that has only single pages.
    fn tries_per_buffer_at_worst(&self, policy: Name) -> u64 {
        let pages = self.steps.iter().map(|step| match *step {
            Step::Build { pages, .. } => pages,
            Step::Release { .. } => 0,
        });
        let request = self.request(pages.max().unwrap_or(0));
        let built = policy.build(&request, &mut SinglePages { next: 0 });
        built.map_or(0, |built| built.tries.total()) // it was built before, or refused as an error
    }

    fn request(&self, pages: u64) -> Request {
        Request {
            pages,
            page: self.machine.page(),
            sizes: self.device.sizes,
            single_pages: self.device.single_pages(),
        }
    }

    /// Copies the machine's own counters into the row.
    fn finish(&self, policy: Name, tally: Tally<'_>, machine: &Machine) -> ChunksRow {
        let large_blocks_per_mib = tally.large_blocks_per_mib(self.machine.page());
        let fared = machine.bystanders();
        let mut row = tally.row(self.workload, &machine.costs());
        let before = tally::unusable(self.machine);
        let after = tally::unusable(machine);
        for (what, index) in [("unusable_before", &before), ("unusable_after", &after)] {
            if index.iter().all(Option::is_none) {
                row.missing
                    .push(Missing::new(what, "not a single page is free"));
            }
        }
        let time = row.time_ms.filter(|_| self.beside_mail);
        ChunksRow {
            tries_per_buffer_at_worst: self.tries_per_buffer_at_worst(policy),
            bystander_tries: fared.total(),
            bystander_failures: fared.total_failed(),
            bystanders: bystanders(&fared),
            large_blocks_per_mib,
            unusable_before: before,
            unusable_after: after,
            mail: time.map(|ms| mail::beside(policy, ms)),
            ..row
        }
    }
}

/// Memory in which no two free pages are adjacent, without end.
struct SinglePages {
    next: u64,
}

impl Source for SinglePages {
    fn allocate(&mut self, order: u32, _: Effort) -> Option<u64> {
        self.next += 2;
        (order == 0).then_some(self.next)
    }

    fn free(&mut self, _: Chunk) {}
}

/// Those of mail 001, whom every machine has.
fn bystanders(fared: &Fared) -> Vec<Bystander> {
    let one = |one: &bystanders::Bystander| Bystander {
        name: one.name.to_owned(),
        order: one.order,
        tries: fared.tries[one.order as usize],
        failures: fared.failed[one.order as usize],
    };
    bystanders::THREAD.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
