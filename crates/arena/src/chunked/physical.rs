//! Physical memory behind a buffer, and how many entries an IOMMU needs for it.

use stopgap_chunks::iommu::{self, MapError, PageSizes, Run};

use super::got::Got;
use crate::error::{Error, Result};
use crate::sys::{self, files};

const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
/// Words read by one call.
const AT_ONCE: usize = 1 << 9;

/// Physical memory behind a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Physical {
    /// Runs in the order of the buffer's addresses. `None` is unknown: frame numbers are hidden (they need
    /// `CAP_SYS_ADMIN`), or some page is not resident.
    pub runs: Option<Vec<Run>>,
    /// Bytes that are resident.
    pub resident: usize,
}

/// Entries that an IOMMU needs to map a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entries {
    /// Counted from physical addresses.
    Exactly(u64),
    /// Counted from the sizes of the chunks, as if no two were neighbours.
    AtMost(u64),
}

pub(super) fn read(start: usize, length: usize) -> Result<Physical> {
    let page = sys::page();
    let pagemap = files::Pagemap::open()?;
    let mut words = [0; AT_ONCE];
    let (mut runs, mut resident) = (Some(Vec::new()), 0);
    let mut at = 0;
    while at < length {
        let count = ((length - at) / page).min(AT_ONCE);
        let read = pagemap.read(start + at, &mut words[..count])?;
        if read.is_empty() {
            return Err(Error::unsupported(
                "physical memory behind addresses",
                "/proc/self/pagemap ends early",
            ));
        }
        for &word in read {
            add(word, page, &mut runs, &mut resident);
        }
        at += read.len() * page;
    }
    Ok(Physical { runs, resident })
}

/// Adds the page of a pagemap word. Without runs from the first page on that is absent or hidden.
fn add(word: u64, page: usize, runs: &mut Option<Vec<Run>>, resident: &mut usize) {
    let frame = word & FRAME;
    if word & PRESENT != 0 {
        *resident += page;
    }
    // Linux gives frame 0 to nobody: it stands for one that is hidden.
    if word & PRESENT == 0 || frame == 0 {
        *runs = None;
    }
    let Some(runs) = runs else { return };
    let (start, length) = (frame * page as u64, page as u64); // at most 2^55 x 2^18: a physical address
    match runs.last_mut() {
        Some(last) if last.start.wrapping_add(last.length) == start => last.length += length,
        _ => runs.push(Run { start, length }),
    }
}

impl Physical {
    /// Entries that `sizes` need at a device address that is aligned to the buffer's length rounded up to a
    /// power of two,
    /// as `iommu-dma` aligns it. `None`: the runs are unknown.
    ///
    /// # Errors
    /// As [`iommu::map`].
    pub fn entries(&self, sizes: PageSizes) -> std::result::Result<Option<Entries>, MapError> {
        let Some(runs) = &self.runs else {
            return Ok(None);
        };
        count(runs, sizes).map(|entries| Some(Entries::Exactly(entries)))
    }
}

impl Got {
    /// The most entries that `sizes` can need, for whom physical addresses are hidden; aligned as in
    /// [`Physical::entries`]. Memory that was swapped or moved since may need more.
    ///
    /// # Errors
    /// As [`iommu::map`].
    pub fn entries(&self, sizes: PageSizes) -> std::result::Result<Entries, MapError> {
        // Each chunk alone, aligned to itself: none continues the one before, whose length is less than the gap.
        let mut runs = Vec::new();
        let mut next = 1_u64 << 40;
        for &(bytes, count) in &self.chunks {
            let length = bytes as u64;
            for _ in 0..count {
                runs.push(Run {
                    start: next,
                    length,
                });
                next = next.checked_add(1 << 32).ok_or(MapError::TooLong)?;
            }
        }
        count(&runs, sizes).map(Entries::AtMost)
    }
}

fn count(runs: &[Run], sizes: PageSizes) -> std::result::Result<u64, MapError> {
    let length = runs.iter().map(|run| run.length).sum();
    let iova = iommu::iova_alignment(length).ok_or(MapError::TooLong)?;
    Ok(iommu::entries(runs, sizes, iova)?.values().sum())
}
