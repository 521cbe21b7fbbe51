//! Physical memory as it lies at this moment ([`Snapshot`]), for a model to start from.
//!
//! Zones, watermarks and free blocks everybody may read (`/proc/zoneinfo`, `/proc/buddyinfo`);
//! migrate types root alone (`/proc/pagetypeinfo`, since Linux 5.5), and what each page is too
//! (`/proc/kpageflags`, `/proc/kpagecount`). What may not be read is `None`, and
//! [`Snapshot::missing`] says why.
//!
//! Nothing holds the machine still meanwhile: the parts are of moments up to some seconds apart.

mod pages;

use std::ops::Range;
use std::path::Path;

use stopgap_events::machine::Missing;
use stopgap_events::snapshot::{
    LAYOUT_OF_SAME_MOMENT, SCHEMA, Snapshot, TYPES_OF_SAME_MOMENT, TypeBlocks, Watermarks, Zone,
};
use stopgap_events::units::{Bytes, Pages};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::files::{Files, read_lossy, read_text};
use crate::memory::Memory;
use crate::proc::buddyinfo::{self, FreeBlocks};
use crate::proc::pagetypeinfo::{self, PageTypes};
use crate::proc::zoneinfo;

/// Takes a snapshot; `version` is the caller's. `progress` is called now and then with the share
/// done (0 to 1), and returns whether to go on: `None` where it did not.
///
/// As root about 0.1 us a page in each of the two files of pages; they are read in pieces of
/// 512 KiB, and what is held is the snapshot alone, 2 to 6 bytes a run of like pages.
/// Nothing is changed. `/proc/pagetypeinfo` stops a zone's allocations while it counts a free
/// list, at most 100,000 blocks at a time.
///
/// # Errors
/// Where the zones or their free blocks cannot be read: there is nothing to write then.
pub fn take<S: Files + Memory + Clock + ?Sized>(
    system: &S,
    version: &str,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<Snapshot>> {
    let mut missing = never_known();
    let zones = zoneinfo::zones(&read_lossy(system, "/proc/zoneinfo")?)?;
    let types = read_lossy(system, "/proc/pagetypeinfo").and_then(|text| pagetypeinfo::read(&text));
    let types = keep(
        types,
        "free blocks by migrate type, and the size of the blocks that have one",
        &mut missing,
    );
    let free = buddyinfo::zones(&read_lossy(system, "/proc/buddyinfo")?)?;
    let mut snapshot = Snapshot {
        schema: SCHEMA.to_owned(),
        version: version.to_owned(),
        taken_unix_s: system.unix_seconds(),
        kernel: read_text(system, "/proc/sys/kernel/osrelease").ok(),
        page_bytes: system.page_size(),
        pageblock_order: types.as_ref().map(|types| types.pageblock_order),
        zones: zones_of(zones, free, types)?,
        missing,
    };
    snapshot
        .zones
        .sort_by_key(|zone| (zone.node, zone.start_frame));
    let go_on = pages::read(system, &mut snapshot, progress);
    if !go_on {
        return Ok(None);
    }
    note_per_cpu(&mut snapshot);
    note_changes(&mut snapshot);
    snapshot.check().map_err(|why| {
        Error::parse(
            "/proc",
            format!("{why}; memory changed while it was read: try again"),
        )
    })?;
    Ok(Some(snapshot))
}

/// Returns the facts that no snapshot has, on any kernel.
fn never_known() -> Vec<Missing> {
    vec![
        Missing::new(
            "migrate type of each page",
            "the kernel tells only how many blocks of each type a zone has",
        ),
        Missing::new(
            "which pages are pinned",
            "the kernel tells of a page how often it is mapped, not how many references it has",
        ),
    ]
}

/// The value, or none and why.
fn keep<T>(result: Result<T>, what: &str, missing: &mut Vec<Missing>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let root = if error.is_refused() {
                "; it needs root"
            } else {
                ""
            };
            missing.push(Missing::new(what, format!("{error}{root}")));
            None
        }
    }
}

/// Puts together what the three files say of each zone.
fn zones_of(
    zones: Vec<zoneinfo::Zone>,
    mut free: Vec<FreeBlocks>,
    types: Option<PageTypes>,
) -> Result<Vec<Zone>> {
    let mut types = types.map_or_else(Vec::new, |types| types.zones);
    let whole = zones.into_iter().map(|zone| {
        let ours = |node: u32, name: &str| (node, name) == (zone.node, zone.name.as_str());
        let place = free.iter().position(|one| ours(one.node, &one.zone));
        let place = place.ok_or_else(|| {
            let (node, name) = (zone.node, &zone.name);
            Error::parse(
                "/proc/buddyinfo",
                format!("has no node {node}, zone {name}"),
            )
        })?;
        let free_blocks = free.swap_remove(place).blocks;
        let of_type = types.iter().position(|one| ours(one.node, &one.zone));
        let by_type: Option<Vec<TypeBlocks>> = of_type.map(|place| types.swap_remove(place).types);
        Ok(Zone {
            node: zone.node,
            name: zone.name,
            start_frame: zone.start,
            pages: Pages(zone.spanned),
            present: Pages(zone.present),
            managed: Pages(zone.managed),
            watermarks: Watermarks {
                min: Pages(zone.min),
                low: Pages(zone.low),
                high: Pages(zone.high),
            },
            per_cpu: zone.per_cpu.map(Pages),
            free_blocks,
            by_type,
            layout: None,
            mapped: None,
        })
    });
    whole.collect()
}

/// Says how many pages of the layout are free without being told so. Since Linux 6.7 a CPU's lists
/// may grow to a gigabyte and more (`high_max` of `/proc/zoneinfo`).
fn note_per_cpu(snapshot: &mut Snapshot) {
    let listed = snapshot.zones.iter().filter(|zone| zone.layout.is_some());
    let pages: Pages = listed.filter_map(|zone| zone.per_cpu).sum();
    if pages == Pages(0) {
        return;
    }
    let bytes = pages.0.saturating_mul(snapshot.page_bytes.0);
    let why = format!(
        "{} that are free but kept for one CPU each are told without a sign, so the layout has \
         them as the kernel's",
        Bytes(bytes)
    );
    let what = "which pages are on per-CPU lists";
    snapshot.missing.push(Missing::new(what, why));
}

/// Says where the layout or the migrate types are not of the same moment as the free blocks.
fn note_changes(snapshot: &mut Snapshot) {
    if let Some(apart) = snapshot.layout_apart() {
        let why = format!(
            "memory changed while pages were read: {apart}; take it again when the machine is \
             quieter (before Linux 4.6 only the first page of a free block is told to be free)"
        );
        let missing = Missing::new(LAYOUT_OF_SAME_MOMENT, why);
        snapshot.missing.push(missing);
    }
    if let Some(apart) = snapshot.types_apart() {
        let why = format!("memory changed while it was read: {apart}");
        let missing = Missing::new(TYPES_OF_SAME_MOMENT, why);
        snapshot.missing.push(missing);
    }
}

#[cfg(all(test, feature = "fake"))]
mod tests;
