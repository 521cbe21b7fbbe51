//! One buffer, taken in a child.

use serde_json::{Value, json};
use stopgap_arena::chunked::{Buffer, Entries, Knobs, Request};
use stopgap_chunks::iommu::{self, PageSizes, Run};
use stopgap_cli::Failure;
use stopgap_events::memory::Protection;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::memory::{Advice, MapKind, MapRequest, Memory};
use stopgap_kernel::tasks::{ChildLimits, Tasks};
use stopgap_kernel::thp::{Thp, defrag_knob};
use stopgap_kernel::{Linux, own, pagemap, shortage};

/// IOMMUs for which entries are counted.
pub(super) const IOMMUS: [PageSizes; 3] = [
    PageSizes::K4_M2_G1,
    PageSizes::K4_K64_M1_M16,
    PageSizes::K4_K64_M2,
];

/// Bytes between two looks at the clock.
const BLOCK: u64 = 1 << 21;

/// Sizes that the default policy asks for.
const WANTED: [Bytes; 3] = [Bytes::mib(2), Bytes::mib(1), Bytes::kib(64)];

/// How a buffer is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// The library's buffer, with pages of the pool or without.
    Chunked { hugetlb: bool },
    /// Mapped, advised, and every page touched.
    Touch(Advice),
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Side {
    pub(super) total: Nanos,
    /// The longest block.
    pub(super) worst: Nanos,
    /// Direct reclaims and compactions that the kernel counted meanwhile, whoever's.
    pub(super) direct: u64,
    /// For each of [`IOMMUS`]; `None`: page frames are hidden.
    pub(super) entries: Option<Vec<u64>>,
    /// What the library says of it.
    pub(super) got: String,
}

/// Lets advised memory have pages of the sizes that the default policy asks for, without reclaim.
pub(super) fn allow(journal: &Journal<'_>, defrag: &str) -> Result<(), Failure> {
    let thp = thp()?;
    for size in &thp.sizes {
        let wanted = WANTED.contains(&size.page);
        if wanted != thp.allows(size, true) {
            journal.set(&size.knob, if wanted { "madvise" } else { "never" })?;
        }
    }
    if thp.defrag != defrag {
        journal.set(&defrag_knob(), defrag)?;
    }
    Ok(())
}

/// Lets advised memory have pages of PMD size alone, and reclaims and compacts for them.
pub(super) fn direct(journal: &Journal<'_>) -> Result<(), Failure> {
    let thp = thp()?;
    for size in &thp.sizes {
        let wanted = size.page == thp.pmd_size;
        if wanted != thp.allows(size, true) {
            journal.set(&size.knob, if wanted { "madvise" } else { "never" })?;
        }
    }
    if !Thp::direct(&thp.defrag, true) {
        journal.set(&defrag_knob(), "madvise")?;
    }
    Ok(())
}

fn thp() -> Result<Thp, Failure> {
    Thp::read(&Linux)?.ok_or_else(|| Failure::error("this kernel has no THP"))
}

/// Takes a buffer in a child, looks at it, and gives it back.
pub(super) fn take(how: How, size: Bytes) -> Result<Side, Failure> {
    let limits = ChildLimits {
        time: Nanos::secs(60),
        cgroup: None,
    };
    let outcome = Linux.run_child(&limits, &mut || {
        let value = match taken(how, size) {
            Ok(value) => value,
            Err(why) => json!({ "error": why }),
        };
        value.to_string().into_bytes()
    })?;
    let said: Value = serde_json::from_slice(&outcome.output)
        .map_err(|error| Failure::error(format!("what the child sent: {error}")))?;
    if let Some(why) = said["error"].as_str() {
        return Err(Failure::error(why));
    }
    let number = |name: &str| said[name].as_u64().unwrap_or(0);
    let entries = said["entries"].as_array();
    Ok(Side {
        total: Nanos(number("total")),
        worst: Nanos(number("worst")),
        direct: number("direct"),
        entries: entries.map(|all| all.iter().filter_map(Value::as_u64).collect()),
        got: said["got"].as_str().unwrap_or_default().to_owned(),
    })
}

/// The time of blocks, without that of looking at it.
struct Watch {
    from: Nanos,
    waited: Nanos,
    total: u64,
    worst: u64,
}

impl Watch {
    fn start() -> Result<Watch, String> {
        let waited = own::waited_for_cpu(&Linux).map_err(|error| error.to_string())?;
        let from = Linux.now();
        Ok(Watch {
            from,
            waited,
            total: 0,
            worst: 0,
        })
    }

    fn block(&mut self) {
        let wall = Linux.now().saturating_sub(self.from);
        let waited = own::waited_for_cpu(&Linux).unwrap_or(self.waited);
        let took = wall.saturating_sub(waited.saturating_sub(self.waited)).0;
        self.total += took;
        self.worst = self.worst.max(took);
        self.waited = waited;
        self.from = Linux.now();
    }
}

fn taken(how: How, size: Bytes) -> Result<Value, String> {
    let before = shortage::direct_reclaims(&Linux).map_err(|error| error.to_string())?;
    let after = || shortage::direct_reclaims(&Linux).map_or(0, |now| now.saturating_sub(before));
    let mut watch = Watch::start()?;
    let (direct, entries, got) = match how {
        How::Chunked { hugetlb } => {
            let length = usize::try_from(size.0).map_err(|error| error.to_string())?;
            let request = Request {
                hugetlb,
                ..Request::new(length)
            };
            let buffer = Buffer::with(&request, &Knobs::read(), &mut |_| watch.block())
                .map_err(|error| error.to_string())?;
            let direct = after();
            let physical = buffer.physical().map_err(|error| error.to_string())?;
            let count = |&sizes: &PageSizes| match physical.entries(sizes) {
                Ok(Some(Entries::Exactly(count))) => Some(count),
                _ => None,
            };
            let entries: Option<Vec<u64>> = IOMMUS.iter().map(count).collect();
            (direct, entries, buffer.got().to_string())
        }
        How::Touch(advice) => {
            let text = |error: stopgap_kernel::Error| error.to_string();
            let mapping = Linux
                .map(&MapRequest {
                    length: size,
                    protection: Protection::Write,
                    kind: MapKind::Anonymous,
                    align: Bytes(BLOCK),
                })
                .map_err(text)?;
            Linux
                .advise(&mapping, Bytes(0), size, advice)
                .map_err(text)?;
            for at in (0..size.0).step_by(1 << 21) {
                let length = Bytes(BLOCK.min(size.0 - at));
                Linux.touch(&mapping, Bytes(at), length).map_err(text)?;
                watch.block();
            }
            let direct = after();
            let layout = pagemap::layout(&Linux, mapping.range()).map_err(text)?;
            let runs = layout.runs.map(|runs| {
                let run = |range: &stopgap_events::range::AddressRange| Run {
                    start: range.start,
                    length: range.length().0,
                };
                runs.iter().map(run).collect::<Vec<Run>>()
            });
            let entries = runs.and_then(|runs| {
                let count = |&sizes: &PageSizes| {
                    let iova = iommu::iova_alignment(size.0)?;
                    Some(iommu::entries(&runs, sizes, iova).ok()?.values().sum())
                };
                IOMMUS.iter().map(count).collect::<Option<Vec<u64>>>()
            });
            Linux.unmap(mapping).map_err(text)?;
            (direct, entries, String::new())
        }
    };
    Ok(json!({
        "total": watch.total, "worst": watch.worst, "direct": direct, "entries": entries, "got": got,
    }))
}
