//! Reading a snapshot, which may have been cut short, changed, or made by another version.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read};

use serde::Deserialize;

use super::agree::two_largest;
use super::{Apart, Kind, LAYOUT_OF_SAME_MOMENT, SCHEMA, Snapshot, TYPES_OF_SAME_MOMENT, Zone};
use crate::bounded;
use crate::units::{Bytes, Pages};

/// Largest file that is read, 256 MiB. That is the layout of 400 GiB without two equal neighbouring pages, at least
/// ten times what such memory usually takes.
pub const MOST_BYTES: u64 = 1 << 28;
/// Most orders: more than any address has bits.
const MOST_ORDERS: usize = 64;
/// Bits of a physical address, the most of any architecture (RISC-V).
const ADDRESS_BITS: u32 = 56;
/// Most characters of a file's own words in an error.
const LONGEST: usize = 60;

/// Reason for which a snapshot cannot be used: one line without the file's name. The caller knows the name.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    Read(io::Error),
    /// It is larger than [`MOST_BYTES`].
    TooLarge,
    /// The file is truncated: its writing or its copying was interrupted.
    CutShort,
    /// The file is no JSON, or a field is missing or of the wrong kind.
    Json(String),
    /// A document of another kind, or of an unknown version.
    Schema(String),
    /// Its content is impossible; the text has the place (zone, section) and the reason.
    Wrong(String),
    /// The base pages have another size than the needed one.
    PageSize {
        /// The size in the snapshot.
        has: Bytes,
        /// The needed size.
        needed: Bytes,
    },
}

impl Error {
    pub(super) fn page_size(has: Bytes, needed: Bytes) -> Error {
        Error::PageSize { has, needed }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read(error) => error.fmt(f),
            Error::TooLarge => write!(
                f,
                "larger than {}: no snapshot is; was it written by stopgap snapshot?",
                Bytes(MOST_BYTES)
            ),
            Error::CutShort => f.write_str(
                "cut short: it ends before the document does; take it again or copy it again",
            ),
            Error::Json(why) => write!(f, "no snapshot: {why}"),
            Error::Schema(found) => write!(
                f,
                "its schema is '{found}', not {SCHEMA}; take it with this version of stopgap"
            ),
            Error::Wrong(why) => f.write_str(why),
            Error::PageSize { has, needed } => write!(
                f,
                "its base pages are of {has}; what is asked for needs pages of {needed}"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Read(error) => Some(error),
            _ => None,
        }
    }
}

/// The field that every document of ours has, in any version.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

impl Snapshot {
    /// Reads a whole snapshot and checks it. Needs twice the file's size in memory.
    ///
    /// # Errors
    /// Each variant of [`Error`] except [`Error::PageSize`].
    pub fn read(input: impl Read) -> Result<Snapshot, Error> {
        Snapshot::from_json(&up_to(input, MOST_BYTES)?)
    }

    /// Reads a snapshot from its JSON text.
    ///
    /// # Errors
    /// As [`Snapshot::read`].
    pub fn from_json(text: &[u8]) -> Result<Snapshot, Error> {
        let head: Head = serde_json::from_slice(text).map_err(|error| json(&error))?;
        if head.schema != SCHEMA {
            return Err(Error::Schema(shown(&head.schema)));
        }
        let snapshot: Snapshot = serde_json::from_slice(text).map_err(|error| json(&error))?;
        snapshot.check()?;
        Ok(snapshot)
    }

    /// Writes the snapshot as JSON, for [`Snapshot::read`].
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write(&self, out: impl io::Write) -> io::Result<()> {
        serde_json::to_writer_pretty(out, self).map_err(io::Error::from)
    }

    /// Checks that the snapshot is possible: not more pages are free than managed, sections add up, letters are
    /// kinds, and contradictions are listed as missing. Every snapshot that was read has passed this check.
    ///
    /// # Errors
    /// [`Error::Wrong`], [`Error::Schema`].
    pub fn check(&self) -> Result<(), Error> {
        if self.schema != SCHEMA {
            return Err(Error::Schema(shown(&self.schema)));
        }
        let wrong = |why: String| Err(Error::Wrong(why));
        let page = self.page_bytes.0;
        if !page.is_power_of_two() || !(1 << 10..=1 << 24).contains(&page) {
            return wrong(format!("page_bytes is {page}, which no page has"));
        }
        if self
            .pageblock_order
            .is_some_and(|order| order as usize >= MOST_ORDERS)
        {
            return wrong("pageblock_order is more than an address has bits".to_owned());
        }
        if self.zones.is_empty() {
            return wrong("no zones: no memory at all".to_owned());
        }
        let mut seen = BTreeSet::new();
        for zone in &self.zones {
            let why = if seen.insert((zone.node, &zone.name)) {
                check_zone(zone, self)
            } else {
                Err("is there twice".to_owned())
            };
            let name = shown(&zone.name);
            why.map_err(|why| Error::Wrong(format!("node {}, zone {name}: {why}", zone.node)))?;
        }
        self.check_agreement()
    }

    /// Refuses a snapshot with a contradiction that it does not list.
    fn check_agreement(&self) -> Result<(), Error> {
        let unsaid = |apart: Option<Apart>, what| apart.filter(|_| !self.says_missing(what));
        let apart = unsaid(self.layout_apart(), LAYOUT_OF_SAME_MOMENT)
            .or_else(|| unsaid(self.types_apart(), TYPES_OF_SAME_MOMENT));
        match apart {
            None => Ok(()),
            Some(apart) => Err(Error::Wrong(format!(
                "{apart}: it contradicts itself; take it again"
            ))),
        }
    }
}

/// Returns all of `input`, if it has at most `most` bytes.
pub(super) fn up_to(input: impl Read, most: u64) -> Result<Vec<u8>, Error> {
    bounded::read(input, Bytes(most)).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => Error::TooLarge,
        _ => Error::Read(error),
    })
}

/// Returns serde's error in our words.
fn json(error: &serde_json::Error) -> Error {
    if error.is_eof() {
        return Error::CutShort;
    }
    Error::Json(shown(&error.to_string()))
}

/// Returns words of a file on one line of limited length.
pub(super) fn shown(words: &str) -> String {
    let all: Vec<char> = words.chars().flat_map(char::escape_debug).collect();
    if all.len() <= 2 * LONGEST {
        return all.into_iter().collect();
    }
    // Both ends are kept: serde_json names the place at the end.
    let (first, last) = (&all[..LONGEST], &all[all.len() - LONGEST..]);
    let dots = ['.', '.', '.'];
    first.iter().chain(&dots).chain(last).collect()
}

fn check_zone(zone: &Zone, snapshot: &Snapshot) -> Result<(), String> {
    let most_frames = 1u64 << (ADDRESS_BITS - snapshot.page_bytes.0.trailing_zeros());
    let end = zone.start_frame.checked_add(zone.pages.0);
    if end.is_none_or(|end| end > most_frames) {
        return Err(format!(
            "{} pages from frame {} on end beyond any memory",
            zone.pages.0, zone.start_frame
        ));
    }
    at_most("present", zone.present, "spanned", zone.pages)?;
    at_most("managed", zone.managed, "present", zone.present)?;
    let Pages(managed) = zone.managed;
    let marks = &zone.watermarks;
    if marks.min > marks.low || marks.low > marks.high {
        return Err(format!(
            "watermarks min {}, low {}, high {} do not rise",
            marks.min.0, marks.low.0, marks.high.0
        ));
    }
    // The min mark of a tiny zone is 32 pages all the same, and a boosted mark is a pageblock higher.
    if marks.high.0 > managed.saturating_add(two_largest(zone)) {
        return Err(format!(
            "watermark high is {} pages, but only {managed} are managed",
            marks.high.0
        ));
    }
    if let Some(per_cpu) = zone.per_cpu {
        at_most("on per-CPU lists", per_cpu, "present", zone.present)?;
    }
    if zone.free_blocks.is_empty() || zone.free_blocks.len() > MOST_ORDERS {
        let orders = zone.free_blocks.len();
        return Err(format!(
            "free_blocks has {orders} orders, not 1 to {MOST_ORDERS}"
        ));
    }
    let some: Vec<Option<u64>> = zone.free_blocks.iter().copied().map(Some).collect();
    check_blocks(&some, managed)?;
    for of_type in zone.by_type.iter().flatten() {
        let wrong = |why: String| format!("migrate type {}: {why}", shown(&of_type.name));
        let (orders, expected) = (of_type.free_blocks.len(), zone.free_blocks.len());
        if orders != expected {
            return Err(wrong(format!("{orders} orders instead of {expected}")));
        }
        check_blocks(&of_type.free_blocks, managed).map_err(wrong)?;
        let pages = |order| u128::from(of_type.pageblocks) << order;
        // The first and the last block may be only partly in the zone.
        let room = |order| u128::from(zone.pages.0) + (2u128 << order);
        if snapshot
            .pageblock_order
            .is_some_and(|order| pages(order) > room(order))
        {
            let blocks = of_type.pageblocks;
            return Err(wrong(format!("{blocks} pageblocks are more than it spans")));
        }
    }
    check_layout(zone)
}

fn at_most(what: &str, one: Pages, of: &str, other: Pages) -> Result<(), String> {
    if one <= other {
        return Ok(());
    }
    Err(format!("{} pages {what}, but only {} {of}", one.0, other.0))
}

/// Returns whether free blocks by order, as far as they are known, fit into `managed` pages.
fn check_blocks(blocks: &[Option<u64>], managed: u64) -> Result<(), String> {
    let mut pages: u128 = 0;
    for (order, &count) in blocks.iter().enumerate() {
        // Fewer than 2^64 blocks of fewer than 2^64 pages each, 64 times.
        let of_order = u128::from(count.unwrap_or(0)) << order.min(MOST_ORDERS - 1);
        pages = pages.saturating_add(of_order);
        if pages > u128::from(managed) {
            return Err(format!(
                "free blocks up to order {order} add up to {pages} pages, but only {managed} are \
                 managed"
            ));
        }
    }
    Ok(())
}

fn check_layout(zone: &Zone) -> Result<(), String> {
    if let Some(mapped) = zone.mapped {
        at_most("mapped", mapped, "present", zone.present)?;
    }
    let (Some(layout), Some(runs)) = (&zone.layout, zone.runs()) else {
        return Ok(());
    };
    let wrong = |why: String| format!("layout: {why}");
    let pages = layout.check().map_err(wrong)?;
    if pages != zone.pages.0 {
        return Err(wrong(format!(
            "its sections add up to {pages} pages; the zone spans {}",
            zone.pages.0
        )));
    }
    let free = runs.filter(|run| run.kind == Kind::Free);
    let free: Pages = free.map(|run| run.pages).sum();
    at_most("free", free, "managed", zone.managed).map_err(wrong)
}
