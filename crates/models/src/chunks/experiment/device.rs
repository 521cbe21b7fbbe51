//! What a device makes of a buffer: its IOMMU's entries, their page tables, and the misses of its TLB.

use std::collections::BTreeMap;

use stopgap_chunks::iommu::{self, Alignment, Batch, Format, MapError, PageSizes};
use stopgap_chunks::policy::{Built, Name, Request};
use stopgap_chunks::tlb::{Access, Factor, Image, Tlb, TlbError};
use stopgap_events::words;

/// How a device goes over a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Row by row: scan-out, and in the main video decoding.
    Linear,
    /// Down each column: rotation by 90 or 270 degrees.
    Rotate90,
    /// Anywhere.
    Random,
}

words!(Pattern, "access pattern", Linear "linear", Rotate90 "rotate-90", Random "random");

impl Pattern {
    fn access(self, seed: u64) -> Access {
        match self {
            Pattern::Linear => Access::Linear,
            Pattern::Rotate90 => Access::Rotate90,
            Pattern::Random => Access::Random { seed },
        }
    }
}

/// A device behind an IOMMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Page sizes that the IOMMU maps.
    pub sizes: PageSizes,
    /// How it goes over a buffer, each pattern by itself.
    pub access: Vec<Pattern>,
}

/// Where device addresses begin: aligned to the buffer's length, as `iommu-dma` does. Arm's own code stops at 1 MiB,
/// so that a 2 MiB entry needs luck; here every policy is shown with what its chunks allow.
pub(super) const ALIGNMENT: Alignment = Alignment::IommuDma;

/// A buffer as the IOMMU sees it.
pub(super) struct Mapped {
    pub(super) plan: Vec<Batch>,
    /// Entries by page size in bytes.
    pub(super) entries: BTreeMap<u64, u64>,
    /// Bytes of page table; `None` where the sizes imply no known format.
    pub(super) table_bytes: Option<u64>,
}

impl Device {
    /// Whether its driver says that large chunks do not help it: where it goes over its buffers row by row and in no
    /// other way. So does that of the video codec for which `DMA_ATTR_ALLOC_SINGLE_PAGES` was made (`s5p-mfc`).
    #[must_use]
    pub fn single_pages(&self) -> bool {
        self.access == [Pattern::Linear]
    }

    /// Maps a buffer where its policy begins.
    pub(super) fn map(
        &self,
        policy: Name,
        request: &Request,
        built: &Built,
    ) -> Result<Mapped, MapError> {
        let iova = policy.iova(request, built, ALIGNMENT)?;
        let plan = iommu::map(&built.runs(request.page)?, self.sizes, iova)?;
        let mut entries = BTreeMap::new();
        for batch in &plan {
            *entries.entry(batch.size).or_insert(0) += batch.count;
        }
        let format = Format::for_sizes(self.sizes);
        Ok(Mapped {
            table_bytes: format.and_then(|format| format.table_bytes(&plan)),
            plan,
            entries,
        })
    }

    /// Assumed TLB.
    #[must_use]
    pub fn tlb(&self) -> Tlb {
        Tlb::assumed(self.sizes)
    }
}

/// A buffer as a square image of 4 bytes a pixel, its rows a power of two: 4 MiB are 1,024 x 1,024 pixels.
pub(super) fn image(bytes: u64) -> Image {
    let pitch = (2 * bytes.isqrt()).max(64);
    Image {
        bytes,
        pitch: 1 << pitch.ilog2(),
    }
}

/// TLB misses of one access pattern over the buffers read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reads {
    pub(super) buffers: u64,
    pub(super) accesses: u64,
    /// With half of the TLB's entries, with as many as are assumed, with twice as many.
    pub(super) misses: [u64; Factor::ALL.len()],
}

impl Reads {
    /// Reads a buffer of `bytes` once through `plan`, with each number of entries.
    pub(super) fn add(
        &mut self,
        tlb: &Tlb,
        plan: &[Batch],
        bytes: u64,
        pattern: Pattern,
        seed: u64,
    ) -> Result<(), TlbError> {
        let image = image(bytes);
        let mut read = *self;
        for (misses, factor) in read.misses.iter_mut().zip(Factor::ALL) {
            let tlb = tlb.scaled(factor, Factor::Same);
            let traffic = tlb.read(plan, image, pattern.access(seed))?;
            *misses += traffic.total();
            read.accesses = self.accesses + traffic.accesses;
        }
        read.buffers += 1;
        *self = read;
        Ok(())
    }

    /// Misses over accesses, with the entries of `factor`.
    pub(super) fn misses_per_access(&self, factor: Factor) -> f64 {
        self.misses[factor as usize] as f64 / self.accesses.max(1) as f64
    }

    /// Milliseconds of walks in one pass over a buffer, the mean, at `walk_ns` a walk.
    pub(super) fn pass_ms(&self, factor: Factor, walk_ns: f64) -> f64 {
        self.misses[factor as usize] as f64 / self.buffers.max(1) as f64 * walk_ns / 1e6
    }
}
