//! Physical memory as it lies at this moment ([`Snapshot`]), for a model to start from.
//!
//! Zones, watermarks and free blocks everybody may read (`/proc/zoneinfo`, `/proc/buddyinfo`);
//! migrate types root alone (`/proc/pagetypeinfo`, since Linux 5.5), and what each page is too
//! (`/proc/kpageflags`, `/proc/kpagecount`). What may not be read is `None`, and
//! [`Snapshot::missing`] says why.
//!
//! Nothing holds the machine still meanwhile: the parts are of moments up to some seconds apart.

use std::ops::Range;
use std::path::Path;

use stopgap_events::machine::Missing;
use stopgap_events::order::SortRows;
use stopgap_events::snapshot::{
    Builder, Kind, LAYOUT_OF_SAME_MOMENT, Layout, SCHEMA, Snapshot, TYPES_OF_SAME_MOMENT, Zone,
};
use stopgap_events::units::{Bytes, Pages};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::files::{Files, read_lossy, read_text};
use crate::memory::Memory;
use crate::proc::pagetypeinfo::{self, PageTypes};
use crate::proc::{OfZone, buddyinfo, zoneinfo};

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
    let mut zones = zoneinfo::zones(&read_lossy(system, "/proc/zoneinfo")?)?;
    let types = read_lossy(system, "/proc/pagetypeinfo").and_then(|text| pagetypeinfo::read(&text));
    let types = keep(
        types,
        "free blocks by migrate type, and the size of the blocks that have one",
        &mut missing,
    );
    let pageblock_order = types.as_ref().map(|types| types.pageblock_order);
    let free = buddyinfo::zones(&read_lossy(system, "/proc/buddyinfo")?)?;
    add_blocks(&mut zones, free, types)?;
    let mut snapshot = Snapshot {
        schema: SCHEMA.to_owned(),
        version: version.to_owned(),
        taken_unix_s: system.unix_seconds(),
        kernel: read_text(system, "/proc/sys/kernel/osrelease").ok(),
        page_bytes: system.page_size(),
        pageblock_order,
        zones,
        missing,
    };
    snapshot
        .zones
        .sort_rows_by_key(|zone| (zone.node, zone.start_frame));
    let go_on = read(system, &mut snapshot, progress);
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

/// Takes what a file says of a zone out of what it says of all.
fn take_of<T>(all: &mut Vec<OfZone<T>>, zone: &Zone) -> Option<T> {
    let ours = |(node, name, _): &OfZone<T>| *node == zone.node && *name == zone.name;
    let place = all.iter().position(ours)?;
    Some(all.swap_remove(place).2)
}

/// Adds to each zone what the two other files say of it.
fn add_blocks(
    zones: &mut [Zone],
    mut free: Vec<OfZone<Vec<u64>>>,
    types: Option<PageTypes>,
) -> Result<()> {
    let mut types = types.map_or_else(Vec::new, |types| types.zones);
    for zone in zones {
        let (node, name) = (zone.node, &zone.name);
        let none = || {
            let why = format!("has no node {node}, zone {name}");
            Error::parse("/proc/buddyinfo", why)
        };
        zone.free_blocks = take_of(&mut free, zone).ok_or_else(none)?;
        zone.by_type = take_of(&mut types, zone);
    }
    Ok(())
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

// What each page is, from `/proc/kpageflags`, and which are mapped, from `/proc/kpagecount`: 64
// bits a page frame (Documentation/admin-guide/mm/pagemap.rst, Linux 6.12).

const FLAGS: &str = "/proc/kpageflags";
const COUNTS: &str = "/proc/kpagecount";
/// Page frames read by one call.
const AT_ONCE: u64 = 1 << 16;
/// A run of pages without any flag that is at least as long is no allocation. The buddy system
/// hands out 2^10 pages at once, and an allocation without a flag (a driver's) that is 32 times as
/// large has neighbours of other kinds in between. It is a hole in memory, of which Linux
/// since 6.16 says 0 instead of `KPF_NOPAGE`, or that is not in use yet (deferred `struct page`s).
const LONGEST_WITHOUT_FLAGS: u64 = 1 << 15;

// include/uapi/linux/kernel-page-flags.h; the last two are exported for debugging.
const LRU: u64 = 1 << 5;
const SLAB: u64 = 1 << 7;
/// On every page of a free block since Linux 4.6, before only on its first.
const BUDDY: u64 = 1 << 10;
const ANON: u64 = 1 << 12;
const SWAPBACKED: u64 = 1 << 14;
const HUGE: u64 = 1 << 17;
const UNEVICTABLE: u64 = 1 << 18;
const HWPOISON: u64 = 1 << 19;
const NOPAGE: u64 = 1 << 20;
const OFFLINE: u64 = 1 << 23;
const PGTABLE: u64 = 1 << 26;
const RESERVED: u64 = 1 << 32;
const MLOCKED: u64 = 1 << 33;

/// Adds layout and mapped pages to each zone, or why they are not known. Returns whether `progress`
/// let it finish.
fn read<F: Files + ?Sized>(
    files: &F,
    snapshot: &mut Snapshot,
    progress: &mut dyn FnMut(f64) -> bool,
) -> bool {
    let spans: Vec<Range<u64>> = snapshot.zones.iter().map(span).collect();
    let total: u64 = spans.iter().map(|span| span.end - span.start).sum();
    let mut reader = Reader {
        files,
        progress,
        done: 0,
        total: total.saturating_mul(2), // each page in each of the two files
    };
    let shared = shared(&spans);
    if !shared.is_empty() {
        let frames: u64 = shared.iter().map(|range| range.end - range.start).sum();
        snapshot.missing.push(Missing::new(
            "pages that several zones span",
            format!("of {frames} page frames nothing tells to which zone they belong"),
        ));
    }
    // All flags first: the less time passes since the free blocks were counted, the better.
    let layouts = spans.iter().map(|span| layout(&mut reader, span, &shared));
    let layouts = layouts.collect::<Result<Option<Vec<_>>>>();
    let layouts = match keep(layouts, "what each page is", &mut snapshot.missing) {
        None => return true,
        Some(None) => return false,
        Some(Some(layouts)) => layouts,
    };
    for (zone, layout) in snapshot.zones.iter_mut().zip(layouts) {
        zone.layout = Some(layout);
    }
    let mapped = spans.iter().map(|span| mapped(&mut reader, span, &shared));
    let mapped = mapped.collect::<Result<Option<Vec<_>>>>();
    let mapped = match keep(mapped, "which pages are mapped", &mut snapshot.missing) {
        None => return true,
        Some(None) => return false,
        Some(Some(mapped)) => mapped,
    };
    for (zone, mapped) in snapshot.zones.iter_mut().zip(mapped) {
        zone.mapped = Some(Pages(mapped));
    }
    true
}

fn span(zone: &Zone) -> Range<u64> {
    zone.start_frame..zone.start_frame.saturating_add(zone.pages.0)
}

/// Frames that more than one span has, in order, none twice.
fn shared(spans: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<&Range<u64>> = spans.iter().filter(|span| !span.is_empty()).collect();
    sorted.sort_rows_by_key(|span| span.start);
    let mut shared: Vec<Range<u64>> = Vec::new();
    let mut reached = 0;
    for span in sorted {
        let both = span.start..span.end.min(reached);
        match shared.last_mut() {
            Some(last) if both.start <= last.end => last.end = last.end.max(both.end),
            _ if both.is_empty() => {}
            _ => shared.push(both),
        }
        reached = reached.max(span.end);
    }
    shared
}

/// One zone's layout; `None` where it was to stop.
fn layout<F: Files + ?Sized>(
    reader: &mut Reader<'_, F>,
    span: &Range<u64>,
    shared: &[Range<u64>],
) -> Result<Option<Layout>> {
    let mut kinds = Kinds::default();
    for (piece, ours) in pieces(span, shared) {
        if !ours {
            kinds.push(Kind::Unknown, piece.end - piece.start);
            reader.done += piece.end - piece.start;
        } else if !reader.each(FLAGS, &piece, |flags| kinds.add(flags))? {
            return Ok(None);
        }
    }
    Ok(Some(kinds.finish()))
}

/// How many pages of a zone are mapped; `None` where it was to stop.
fn mapped<F: Files + ?Sized>(
    reader: &mut Reader<'_, F>,
    span: &Range<u64>,
    shared: &[Range<u64>],
) -> Result<Option<u64>> {
    let mut mapped = 0;
    for (piece, _) in pieces(span, shared).filter(|(_, ours)| *ours) {
        let count = |mappings: u64| mapped += u64::from(mappings > 0);
        if !reader.each(COUNTS, &piece, count)? {
            return Ok(None);
        }
    }
    Ok(Some(mapped))
}

/// `span` cut at the ends of the shared ranges: its pieces in order, and whether it alone has them.
fn pieces(span: &Range<u64>, shared: &[Range<u64>]) -> impl Iterator<Item = (Range<u64>, bool)> {
    let ends = shared.iter().flat_map(|range| [range.start, range.end]);
    let inside = ends.filter(|end| span.contains(end));
    let cuts = [span.start].into_iter().chain(inside).chain([span.end]);
    let mut cuts: Vec<u64> = cuts.collect();
    cuts.dedup(); // the shared ranges are in order
    let theirs = |frame: u64| shared.iter().any(|range| range.contains(&frame));
    let pieces: Vec<_> = cuts
        .windows(2)
        .map(|ends| (ends[0]..ends[1], !theirs(ends[0])))
        .collect();
    pieces.into_iter()
}

struct Reader<'a, F: ?Sized> {
    files: &'a F,
    progress: &'a mut dyn FnMut(f64) -> bool,
    /// Entries read so far, of `total`.
    done: u64,
    total: u64,
}

impl<F: Files + ?Sized> Reader<'_, F> {
    /// Gives the entry of each page frame to `take`; false where it was to stop.
    fn each(
        &mut self,
        path: &'static str,
        frames: &Range<u64>,
        mut take: impl FnMut(u64),
    ) -> Result<bool> {
        let mut at = frames.start;
        while at < frames.end {
            let share = self.done as f64 / self.total as f64;
            if !(self.progress)(share) {
                return Ok(false);
            }
            let count = (frames.end - at).min(AT_ONCE);
            let offset = at
                .checked_mul(8)
                .ok_or_else(|| Error::parse(path, format!("there is no frame {at}")))?;
            let bytes = self
                .files
                .read_at(Path::new(path), offset, count as usize * 8)?;
            let (words, _) = bytes.as_chunks::<8>();
            if words.len() as u64 != count {
                let frame = at + words.len() as u64;
                let reason = format!("ends before page frame {frame} of {}", frames.end);
                return Err(Error::parse(path, reason));
            }
            for word in words {
                take(u64::from_ne_bytes(*word));
            }
            at += count;
            self.done += count;
        }
        Ok(true)
    }
}

/// Makes a layout of flags.
#[derive(Default)]
struct Kinds {
    builder: Builder,
    /// The flags of the pages that were not pushed yet, and how many these are.
    flags: u64,
    pages: u64,
}

impl Kinds {
    fn add(&mut self, flags: u64) {
        if flags != self.flags {
            self.flush();
            self.flags = flags;
        }
        self.pages += 1;
    }

    fn push(&mut self, kind: Kind, pages: u64) {
        self.flush();
        self.builder.push(kind, pages);
    }

    fn flush(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        let kind = match self.flags {
            0 if pages < LONGEST_WITHOUT_FLAGS => Kind::Kernel,
            0 => Kind::Hole,
            flags => kind(flags),
        };
        self.builder.push(kind, pages);
    }

    fn finish(mut self) -> Layout {
        self.flush();
        self.builder.finish()
    }
}

/// Returns the kind of a page with these flags.
fn kind(flags: u64) -> Kind {
    let has = |some: u64| flags & some != 0;
    if has(NOPAGE) {
        Kind::Hole
    } else if has(HWPOISON | OFFLINE | RESERVED) {
        Kind::Reserved
    } else if has(BUDDY) {
        Kind::Free
    } else if has(HUGE) {
        Kind::Hugetlb
    } else if has(SLAB | PGTABLE) {
        Kind::Kernel
    } else if has(UNEVICTABLE | MLOCKED) {
        Kind::Locked
    } else if has(ANON) {
        Kind::Anonymous
    } else if !has(LRU) {
        // A driver's page, also one that it maps into a process: on no list, so nobody evicts it.
        Kind::Kernel
    } else if has(SWAPBACKED) {
        Kind::Shmem
    } else {
        Kind::File
    }
}

#[cfg(test)]
mod tests;
