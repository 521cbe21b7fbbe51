//! A memory from a snapshot of a real machine.
//!
//! **Contract.** Zones that have a layout are taken over page by page. From a zone without one only the number of free blocks of
//! each order is known: so many lie at random places, no two of them buddies, so that the model's free lists have the very
//! counts of buddyinfo. Each zone has its own free lists, watermarks and reserve against requests for a higher one, and a request
//! goes through them from the highest down. What no snapshot has is in [`Assumptions`]: the
//! migrate type of each 2 MiB block, pins, and for zones without a layout what the used pages are. A caller tries
//! others to see what hangs on them.
//!
//! **Numbering.** The zones lie side by side ([`Frames`]), wherever they are in the machine: what counts is what they
//! span. At most 2^24 pages (64 GiB of 4 KiB).
//!
//! **Cost.** O(frames).
//!
//! Left out: which node a CPU is near to (zones of all nodes serve, the last one first), pages on CPUs' own lists (used here). Blocks above order 10 are there as
//! several of order 10, and a migrate type is always that of 512 pages.

mod assumptions;
mod frames;
mod spread;
#[cfg(test)]
mod tests;

use stopgap_events::random::Random;
use stopgap_events::snapshot::{Kind, Snapshot, Zone};
use stopgap_events::units::Bytes;

use super::super::buddy::{BLOCK_PAGES, Buddy, ORDERS, Use};
use super::super::machine::{Machine, MachineError, Setting};
use super::super::watermarks::Watermarks;

pub use assumptions::{Assumptions, BlockRule};
pub use frames::Frames;

/// A machine in the state of `snapshot`.
///
/// # Errors
/// Another page size than the setting's, more memory than the model holds, counts of free blocks that do not
/// fit into their zone, assumptions that are no shares, and those of [`Setting::check`].
pub fn machine(
    snapshot: &Snapshot,
    assumptions: &Assumptions,
    setting: &Setting,
) -> Result<Machine, MachineError> {
    setting.check()?;
    assumptions.check()?;
    snapshot
        .require_page(Bytes(setting.page))
        .map_err(|error| MachineError::Snapshot(error.to_string()))?;
    let frames = Frames::from_snapshot(snapshot)?;
    let mut random = Random::new(setting.seed);
    let mut zones = Vec::new();
    for (place, zone) in snapshot.zones.iter().enumerate() {
        let span = frames.span(place);
        if span.is_empty() {
            continue;
        }
        let mut memory = Memory {
            buddy: Buddy::new(span.end - span.start, Use::Hole)?,
            random: &mut random,
            assumptions,
        };
        let ours = |frame: u64| {
            let ours = frames.in_zone(place, frame).ok_or_else(|| {
                let (node, name) = (zone.node, &zone.name);
                MachineError::Snapshot(format!("node {node}, zone {name}: no frame {frame}"))
            });
            ours.map(|frame| frame - span.start)
        };
        let free = match zone.runs() {
            Some(runs) => {
                let lower = &snapshot.zones[..place];
                let elsewhere = |frame| lower.iter().any(|zone| spans(zone, frame));
                let memory_runs = runs.filter(|run| run.kind != Kind::Hole);
                let mut blocks = Vec::new();
                for run in memory_runs {
                    let start = ours(run.start)?;
                    // Nobody knows whose they are: once is enough.
                    let shared = run.kind == Kind::Unknown && elsewhere(run.start);
                    if !shared {
                        blocks.extend(memory.take_over(start, run.pages.0, run.kind)?);
                    }
                }
                blocks
            }
            None => memory.spread(zone, ours(frames::memory(zone).start)?)?,
        };
        for (frame, order) in free {
            memory.buddy.free(frame, order)?;
        }
        memory.type_blocks()?;
        zones.push((memory.buddy, marks(zone), reserve(snapshot, zone)));
    }
    // The kernel looks through the highest first.
    zones.reverse();
    Ok(Machine::of_zones(zones, setting)?.with_drivers_anywhere())
}

/// Free pages of a zone that requests which would rather have a higher zone of its node leave there beside the mark:
/// what `vm.lowmem_reserve_ratio` sets aside, 256 for all zones below `Normal` (`setup_per_zone_lowmem_reserve`,
/// mm/page_alloc.c, 6.12).
fn reserve(snapshot: &Snapshot, zone: &Zone) -> u64 {
    const RATIO: u64 = 256;
    let higher = |other: &&Zone| other.node == zone.node && other.start_frame > zone.start_frame;
    let above: u64 = snapshot
        .zones
        .iter()
        .filter(higher)
        .map(|other| other.managed.0)
        .sum();
    above / RATIO
}

fn marks(zone: &Zone) -> Watermarks {
    Watermarks {
        min: zone.watermarks.min.0,
        low: zone.watermarks.low.0,
        high: zone.watermarks.high.0,
    }
}

fn spans(zone: &Zone, frame: u64) -> bool {
    frame >= zone.start_frame && frame - zone.start_frame < zone.pages.0
}

/// A free block that is still to be given back.
type Block = (u64, u32);

struct Memory<'a> {
    buddy: Buddy,
    random: &'a mut Random,
    assumptions: &'a Assumptions,
}

impl Memory<'_> {
    /// A run of the layout, `start` in the model; free pages are used for now.
    fn take_over(
        &mut self,
        start: u64,
        pages: u64,
        kind: Kind,
    ) -> Result<Vec<Block>, MachineError> {
        for frame in start..start + pages {
            let of = self.use_of(kind);
            self.buddy.set_use(frame, of)?;
        }
        if kind != Kind::Free {
            return Ok(Vec::new());
        }
        let blocks = stopgap_events::snapshot::blocks_in(start, pages, ORDERS as u32 - 1);
        Ok(blocks.map(|block| (block.frame, block.order)).collect())
    }

    fn use_of(&mut self, kind: Kind) -> Use {
        let swap = self.assumptions.swap;
        match kind {
            Kind::Free => Use::Movable,
            Kind::Hole => Use::Hole,
            Kind::Kernel | Kind::Hugetlb | Kind::Reserved => Use::Unmovable,
            Kind::File => self.unless_pinned(Use::Reclaimable),
            Kind::Anonymous | Kind::Shmem if swap => self.unless_pinned(Use::Reclaimable),
            Kind::Anonymous | Kind::Shmem | Kind::Locked => self.unless_pinned(Use::Movable),
            Kind::Unknown => self.used(),
        }
    }

    fn unless_pinned(&mut self, of: Use) -> Use {
        if self.is_chosen(self.assumptions.pinned_share) {
            Use::Pinned
        } else {
            of
        }
    }

    /// A used page of which nothing is known.
    fn used(&mut self) -> Use {
        if self.is_chosen(self.assumptions.unmovable_share) {
            Use::Unmovable
        } else {
            self.unless_pinned(Use::Reclaimable)
        }
    }

    fn is_chosen(&mut self, share: f64) -> bool {
        ((self.random.bits() >> 11) as f64) < share * (1u64 << 53) as f64
    }

    /// A zone of which the free blocks are only counted, `start` in the model. Pages that it does not manage are
    /// its first ones.
    fn spread(&mut self, zone: &Zone, start: u64) -> Result<Vec<Block>, MachineError> {
        let memory = frames::memory(zone);
        let end = start + (memory.end - memory.start);
        let first = end.saturating_sub(zone.managed.0).max(start);
        for frame in start..first {
            self.buddy.set_use(frame, Use::Unmovable)?;
        }
        for frame in first..end {
            let of = self.used();
            self.buddy.set_use(frame, of)?;
        }
        let frames = first..end;
        spread::spread(frames, &zone.free_blocks, self.random).map_err(|order| {
            MachineError::Snapshot(format!(
                "node {}, zone {}: its free blocks of order {order} do not fit into its {} pages",
                zone.node, zone.name, zone.managed.0
            ))
        })
    }

    /// Gives each 2 MiB block the migrate type that is assumed of it.
    fn type_blocks(&mut self) -> Result<(), MachineError> {
        for start in (0..self.buddy.pages()).step_by(BLOCK_PAGES as usize) {
            let pieces = self.buddy.walk(start..start + BLOCK_PAGES);
            let mobility = self.assumptions.block_rule.mobility(pieces);
            self.buddy.set_block_mobility(start, mobility)?;
        }
        Ok(())
    }
}
