//! Memory events in columns.

use super::cell::{Cell, Get, Put, Wrong};
use super::column::Column::{
    self, Address, AlignmentBytes, Hint, Id, LengthBytes, LimitEnd, LimitStart, Merge, OffsetBytes,
    Phase, Protection,
};
use super::kind::Kind;
use stopgap_events::memory::{MemoryEvent, Placing};
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

/// As [`super::KINDS`].
pub(super) const KINDS: [(&str, &str, &[Column]); 5] = [
    (
        "map",
        "A mapping is made.",
        &[
            Id,
            LengthBytes,
            Protection,
            Merge,
            AlignmentBytes,
            OffsetBytes,
            LimitStart,
            LimitEnd,
            Hint,
            Address,
        ],
    ),
    (
        "unmap",
        "A whole mapping goes.",
        &[Id, Address, LengthBytes],
    ),
    (
        "protect",
        "The first bytes of a mapping get another protection.",
        &[Id, LengthBytes, Protection, Address],
    ),
    (
        "touch",
        "Every page of a mapping is used for the first time.",
        &[Id, Address, LengthBytes],
    ),
    (
        "begin",
        "No operation: another part of the workload begins.",
        &[Phase],
    ),
];

pub(super) fn word(event: &MemoryEvent) -> &'static str {
    match event {
        MemoryEvent::Map { .. } => "map",
        MemoryEvent::Unmap { .. } => "unmap",
        MemoryEvent::Protect { .. } => "protect",
        MemoryEvent::Touch { .. } => "touch",
        MemoryEvent::Begin(_) => "begin",
    }
}

pub(super) fn put_cells(event: &MemoryEvent, range: Option<AddressRange>, to: &mut impl Put) {
    match *event {
        MemoryEvent::Map {
            id,
            length,
            protection,
            merge,
            placing,
        } => {
            id.put_cells(&[Id], to);
            length.put_cells(&[LengthBytes], to);
            protection.put_cells(&[Protection], to);
            merge.put_cells(&[Merge], to);
            some(placing.alignment).put_cells(&[AlignmentBytes], to);
            some(placing.offset).put_cells(&[OffsetBytes], to);
            placing.limits.put_cells(&[LimitStart, LimitEnd], to);
            placing.hint.put_cells(&[Hint], to);
            range.map(|range| range.start).put_cells(&[Address], to);
        }
        MemoryEvent::Unmap { id } | MemoryEvent::Touch { id } => {
            id.put_cells(&[Id], to);
            range.put_cells(&[Address, LengthBytes], to);
        }
        MemoryEvent::Protect {
            id,
            length,
            protection,
        } => {
            id.put_cells(&[Id], to);
            length.put_cells(&[LengthBytes], to);
            protection.put_cells(&[Protection], to);
            range.map(|range| range.start).put_cells(&[Address], to);
        }
        MemoryEvent::Begin(phase) => phase.put_cells(&[Phase], to),
    }
}

pub(super) fn from_cells(word: &str, from: &impl Get) -> Result<Kind, Wrong> {
    let id = || Cell::from_cells(&[Id], from);
    let event = match word {
        "map" => {
            let alignment: Option<Bytes> = Cell::from_cells(&[AlignmentBytes], from)?;
            let offset: Option<Bytes> = Cell::from_cells(&[OffsetBytes], from)?;
            MemoryEvent::Map {
                id: id()?,
                length: Cell::from_cells(&[LengthBytes], from)?,
                protection: Cell::from_cells(&[Protection], from)?,
                merge: Cell::from_cells(&[Merge], from)?,
                placing: Placing {
                    alignment: alignment.unwrap_or_default(),
                    offset: offset.unwrap_or_default(),
                    limits: Cell::from_cells(&[LimitStart, LimitEnd], from)?,
                    hint: Cell::from_cells(&[Hint], from)?,
                },
            }
        }
        "unmap" => MemoryEvent::Unmap { id: id()? },
        "touch" => MemoryEvent::Touch { id: id()? },
        "protect" => MemoryEvent::Protect {
            id: id()?,
            length: Cell::from_cells(&[LengthBytes], from)?,
            protection: Cell::from_cells(&[Protection], from)?,
        },
        "begin" => {
            return Ok(Kind::from(MemoryEvent::Begin(Cell::from_cells(
                &[Phase],
                from,
            )?)));
        }
        other => return Err(Wrong(format!("unknown kind '{}'", shortened(other)))),
    };
    let range = Cell::from_cells(&[Address, LengthBytes], from)?;
    Ok(Kind::Memory { event, range })
}

/// Returns `None`, null in the file, for 0: not asked for.
fn some(bytes: Bytes) -> Option<Bytes> {
    (bytes.0 > 0).then_some(bytes)
}

/// Words of a file, as a line of ours may hold them.
fn shortened(text: &str) -> String {
    text.chars()
        .take(40)
        .flat_map(char::escape_default)
        .collect()
}

impl From<MemoryEvent> for Kind {
    /// Returns the event, at an unknown place.
    fn from(event: MemoryEvent) -> Kind {
        Kind::Memory { event, range: None }
    }
}

impl Kind {
    /// The memory event, where it is one.
    #[must_use]
    pub fn memory(&self) -> Option<MemoryEvent> {
        match self {
            Kind::Memory { event, .. } => Some(*event),
            _ => None,
        }
    }
}
