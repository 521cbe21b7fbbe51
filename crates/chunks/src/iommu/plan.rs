use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{MapError, PageSizes};

/// Physical memory without a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First physical address, bytes.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

/// Entries of one size that follow one another in both address spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Device address of the first.
    pub iova: u64,
    /// Physical address of the first.
    pub physical: u64,
    /// Bytes that each maps.
    pub size: u64,
    /// How many; at least 1.
    pub count: u64,
}

impl Batch {
    /// Bytes that all of them map.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.size * self.count
    }
}

/// The batches that map `runs` from `iova` on.
///
/// # Errors
/// [`MapError::NoPageFits`] and [`MapError::TooLong`].
pub fn map(runs: &[Run], sizes: PageSizes, iova: u64) -> Result<Vec<Batch>, MapError> {
    let mut batches = Vec::new();
    let mut at = iova;
    for run in joined(runs)? {
        map_one(run, sizes, at, |batch| batches.push(batch))?;
        at += run.length; // no overflow: it could be mapped there
    }
    Ok(batches)
}

/// The batches that map one `run`, whose end is checked, from `iova` on, each handed to `each`.
pub(super) fn map_one(
    run: Run,
    sizes: PageSizes,
    iova: u64,
    mut each: impl FnMut(Batch),
) -> Result<(), MapError> {
    let end = iova.checked_add(run.length).ok_or(MapError::TooLong)?;
    let (mut at, mut physical) = (iova, run.start);
    while at < end {
        let batch = next(at, physical, end - at, sizes)?;
        each(batch);
        // No overflow: the batch lies inside the run, whose ends were checked.
        at += batch.length();
        physical += batch.length();
    }
    Ok(())
}

/// Entries by size in bytes that map `runs` from `iova` on.
///
/// # Errors
/// As [`map`].
pub fn entries(runs: &[Run], sizes: PageSizes, iova: u64) -> Result<BTreeMap<u64, u64>, MapError> {
    let mut counts = BTreeMap::new();
    for batch in map(runs, sizes, iova)? {
        *counts.entry(batch.size).or_insert(0) += batch.count;
    }
    Ok(counts)
}

/// Runs that continue one another become one; empty ones go.
pub(super) fn joined(runs: &[Run]) -> Result<Vec<Run>, MapError> {
    let mut joined: Vec<Run> = Vec::new();
    for run in runs.iter().filter(|run| run.length > 0) {
        run.start.checked_add(run.length).ok_or(MapError::TooLong)?;
        match joined.last_mut() {
            // No overflow: the sum was checked when `last` or its part came in.
            Some(last) if last.start + last.length == run.start => last.length += run.length,
            _ => joined.push(*run),
        }
    }
    Ok(joined)
}

/// The batch at the start of `left` bytes; `left` is not 0.
fn next(iova: u64, physical: u64, left: u64, sizes: PageSizes) -> Result<Batch, MapError> {
    // Sizes up to the alignment of both addresses; at address 0 of both, every size.
    let aligned = match iova | physical {
        0 => u64::MAX,
        both => both ^ (both - 1), // the lowest set bit and all below
    };
    let size = sizes
        .iter()
        .take_while(|&size| size & aligned != 0 && size <= left)
        .last()
        .ok_or(MapError::NoPageFits {
            iova,
            physical,
            length: left,
            smallest: sizes.smallest(),
        })?;
    // A larger page becomes possible where both addresses reach its next multiple together,
    // and as much as it needs is left there.
    let until_larger = sizes
        .iter()
        .filter(|&larger| larger > size && (iova ^ physical) & (larger - 1) == 0)
        .map(|larger| (larger, iova.wrapping_neg() & (larger - 1)))
        .filter(|&(larger, offset)| left.checked_sub(offset).is_some_and(|rest| rest >= larger))
        .map(|(_, offset)| offset)
        .min();
    // Multiples of `size` all: the addresses are, and so is a larger page's boundary.
    let count = until_larger.unwrap_or(left) / size;
    Ok(Batch {
        iova,
        physical,
        size,
        count,
    })
}
