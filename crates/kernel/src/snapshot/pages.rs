//! What each page is, from `/proc/kpageflags`, and which are mapped, from `/proc/kpagecount`: 64
//! bits a page frame (Documentation/admin-guide/mm/pagemap.rst, Linux 6.12).

use super::{Error, Files, Missing, Pages, Path, Range, Result, Snapshot, Zone, keep};
use stopgap_events::snapshot::{Builder, Kind, Layout};

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
pub(super) fn read<F: Files + ?Sized>(
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
    sorted.sort_by_key(|span| span.start);
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
mod tests {
    use super::*;

    /// ```text
    /// frame    0   10   20   30   40   50
    ///          [ A                ]
    ///              [ B  ]
    ///                        [ C       ]
    ///                                       [ D
    /// shared       [    ]    [    ]
    /// ```
    #[test]
    fn frames_of_two_zones_are_found() {
        let spans = [30..50, 0..40, 10..20, 55..60, 60..70];
        let both = shared(&spans);
        assert_eq!(both, [10..20, 30..40]);
        let of = |span: Range<u64>| pieces(&span, &both).collect::<Vec<_>>();
        assert_eq!(
            of(0..40),
            [
                (0..10, true),
                (10..20, false),
                (20..30, true),
                (30..40, false)
            ]
        );
        assert_eq!(of(30..50), [(30..40, false), (40..50, true)]);
        assert_eq!(of(10..20), [(10..20, false)]);
        assert_eq!(of(55..60), [(55..60, true)]);
        // Three at one place.
        let of = |spans: &[Range<u64>]| {
            let both = shared(spans).into_iter();
            both.map(|range| (range.start, range.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&[0..9, 0..9, 0..9, 9..12]), [(0, 9)]);
        assert_eq!(of(&[0..9, 2..4, 3..9]), [(2, 9)]);
    }

    #[test]
    fn flags_say_what_a_page_is() {
        // As read on Linux 6.18.
        for (flags, expected) in [
            (0x400, Kind::Free),
            (0x408, Kind::Free),
            (0x1_0000_0000, Kind::Reserved),
            (0x1_0100_0000, Kind::Reserved), // the zero page
            (0x8_0000_002c, Kind::File),
            (0x4_0000_5828, Kind::Anonymous),
            (0x4028, Kind::Shmem),
            (0x80, Kind::Kernel),
            (PGTABLE, Kind::Kernel),
            (1 << 11, Kind::Kernel), // a driver's, mapped
            (0x2_0004_5828, Kind::Locked),
            (LRU | UNEVICTABLE, Kind::Locked),
            (HUGE | 1 << 15, Kind::Hugetlb),
            (OFFLINE, Kind::Reserved),
            (NOPAGE, Kind::Hole),
        ] {
            assert_eq!(kind(flags), expected, "{flags:#x}");
        }
    }
}
