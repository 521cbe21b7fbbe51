//! Which frame of the model a frame of the machine is.
//!
//! ```text
//! machine   [ DMA32 ]              [ Normal     hole      Normal ]
//! model     [ DMA32 ][ Normal     ][Normal ]
//! ```
//!
//! The zones lie side by side, each from a multiple of the largest block on, so that every frame keeps its alignment
//! and no block reaches from one zone into another. Holes that are at least as large as that block are left out.
//! Frames that two zones span are the lower zone's.

use std::ops::Range;

use stopgap_events::snapshot::{Kind, Snapshot, Zone};
use stopgap_events::units::Bytes;

use super::super::super::buddy::{Buddy, ORDERS};
use super::super::super::machine::MachineError;

/// Pages of the largest block.
const LARGEST: u64 = 1 << (ORDERS - 1);

/// The memory of a snapshot in the model's own numbering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frames {
    /// By zone, ascending.
    zones: Vec<Vec<Piece>>,
    pages: u64,
}

/// Frames of the machine that follow one another in the model too.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    machine: Range<u64>,
    /// The first one's number in the model.
    model: u64,
}

impl Frames {
    /// Lays the zones of `snapshot` side by side. O(runs of the layouts).
    ///
    /// # Errors
    /// [`MachineError::Snapshot`] where they hold more than the model does ([`Buddy::MOST_PAGES`], 64 GiB of
    /// 4 KiB pages), or nothing.
    pub fn from_snapshot(snapshot: &Snapshot) -> Result<Frames, MachineError> {
        let mut frames = Frames {
            zones: Vec::new(),
            pages: 0,
        };
        for zone in &snapshot.zones {
            if zone.start_frame.checked_add(zone.pages.0).is_none() {
                let (node, name) = (zone.node, &zone.name);
                let why = format!("node {node}, zone {name}: ends beyond any memory");
                return Err(MachineError::Snapshot(why));
            }
            let pieces = frames.lay(zone);
            frames.zones.push(pieces);
        }
        let (pages, most) = (frames.pages, Buddy::MOST_PAGES);
        if (1..=most).contains(&pages) {
            return Ok(frames);
        }
        let bytes = |pages: u64| Bytes(pages.saturating_mul(snapshot.page_bytes.0));
        Err(MachineError::Snapshot(format!(
            "its zones span {} without large holes; the model holds up to {}",
            bytes(pages),
            bytes(most)
        )))
    }

    /// Pages of the model's memory.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The model's number of a frame of the machine; `None` where the model has no such frame.
    #[must_use]
    pub fn model_frame(&self, frame: u64) -> Option<u64> {
        (0..self.zones.len()).find_map(|zone| self.in_zone(zone, frame))
    }

    /// The model's frames of a zone, named by its place in the snapshot; empty where it has no memory.
    pub(super) fn span(&self, zone: usize) -> Range<u64> {
        let pieces = self.zones.get(zone).map_or(&[][..], Vec::as_slice);
        match (pieces.first(), pieces.last()) {
            (Some(first), Some(last)) => {
                first.model..last.model + (last.machine.end - last.machine.start)
            }
            _ => 0..0,
        }
    }

    /// The model's number of a frame that this zone has.
    pub(super) fn in_zone(&self, zone: usize, frame: u64) -> Option<u64> {
        let pieces = self.zones.get(zone)?;
        let after = pieces.partition_point(|piece| piece.machine.start <= frame);
        let piece = &pieces[after.checked_sub(1)?];
        let there = piece.machine.contains(&frame);
        there.then(|| piece.model + (frame - piece.machine.start))
    }

    /// Adds what a zone spans; gives its pieces, as far as the model holds them.
    fn lay(&mut self, zone: &Zone) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut lay = |memory: Range<u64>| {
            let start = memory.start / LARGEST * LARGEST;
            let end = memory.end.div_ceil(LARGEST).saturating_mul(LARGEST);
            match pieces.last_mut() {
                Some(last) if start <= last.machine.end => {
                    self.pages = self.pages.saturating_add(end - last.machine.end);
                    last.machine.end = end;
                }
                // Beyond that it is only counted.
                _ => {
                    let model = self.pages;
                    self.pages = self.pages.saturating_add(end - start);
                    if model <= Buddy::MOST_PAGES {
                        let machine = start..end;
                        pieces.push(Piece { machine, model });
                    }
                }
            }
        };
        match zone.runs() {
            Some(runs) => runs
                .filter(|run| run.kind != Kind::Hole)
                .for_each(|run| lay(run.start..run.start.saturating_add(run.pages.0))),
            None if zone.present.0 > 0 => lay(memory(zone)),
            None => {}
        }
        pieces
    }
}

/// Frames of a zone of which nothing is known page by page: as many as are present, its last ones.
pub(super) fn memory(zone: &Zone) -> Range<u64> {
    let end = zone.start_frame.saturating_add(zone.pages.0);
    end.saturating_sub(zone.present.0.min(zone.pages.0))..end
}
