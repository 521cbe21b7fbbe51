//! Laurent Pinchart's remark in mail 001: nothing stops a driver from mapping "the start of the buffer at
//! an IOVA address aligned to 64kB minus 4kB", so that the large chunk behind a small one is aligned.
//!
//! ```text
//!            0         64K        128K
//!  chunks    A BBBBBBBBBBBBBBB|B           A has 4K, B 64K: 17 entries
//!  offset              A|BBBBBBBBBBBBBBBB  after 60K: 2 entries
//! ```
//!
//! A run can use pages of a size where its device address and its physical address agree modulo that size.
//! Let `o` be the offset that needs fewest entries, and `s` the largest size at which some run agrees: then
//! `o mod s` needs as few, and it is what that run asks for modulo `s`. So what each run asks for, modulo
//! each size, is all that has to be tried.

use alloc::collections::{BTreeMap, BTreeSet};

use super::plan::{joined, map_one};
use super::{MapError, PageSizes, Run};

/// The offset from a multiple of the largest page at which `runs` need fewest entries; of several the
/// smallest. It is a multiple of the smallest page and below the largest. O(runs x sizes^2 x log runs).
///
/// # Errors
/// [`MapError::NoPageFits`] where a run can be mapped nowhere, and [`MapError::TooLong`].
pub fn best_offset(runs: &[Run], sizes: PageSizes) -> Result<u64, MapError> {
    // Entries saved by agreeing modulo a size, by the size and by the offset modulo it.
    let mut saved: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut candidates = BTreeSet::from([0]);
    let mut at: u64 = 0;
    for run in joined(runs)? {
        let mut before = aligned_entries(run, sizes.up_to(sizes.smallest()))?;
        for size in sizes.iter().skip(1).take_while(|&size| size <= run.length) {
            let entries = aligned_entries(run, sizes.up_to(size))?;
            let wanted = run.start.wrapping_sub(at) & (size - 1);
            *saved.entry(size).or_default().entry(wanted).or_default() += before - entries;
            candidates.insert(wanted);
            before = entries;
        }
        at = at.checked_add(run.length).ok_or(MapError::TooLong)?;
    }
    let at_offset = |offset: u64| -> u64 {
        let of_size =
            |(size, saved): (&u64, &BTreeMap<u64, u64>)| saved.get(&(offset & (size - 1))).copied();
        saved.iter().filter_map(of_size).sum()
    };
    let mut best = (0, 0);
    for offset in candidates {
        let saved = at_offset(offset);
        if saved > best.0 {
            best = (saved, offset);
        }
    }
    Ok(best.1)
}

/// Entries of a run whose device address agrees with its physical one modulo every size.
fn aligned_entries(run: Run, sizes: PageSizes) -> Result<u64, MapError> {
    let mut entries = 0;
    map_one(run, sizes, run.start, |batch| entries += batch.count)?;
    Ok(entries)
}

#[cfg(test)]
mod tests;
