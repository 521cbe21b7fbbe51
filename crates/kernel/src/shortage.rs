//! Whether free memory is short or in pieces, and whether allocations waited for it.

use stopgap_events::machine::OrderIndex;

use crate::error::{Error, Result};
use crate::files::{Files, read_lossy};
use crate::proc::{buddyinfo, vmstat};

/// The unusable-free-space index of each order, over all zones of all nodes together: the
/// share of free memory in blocks smaller than the order; 1 where nothing is free.
///
/// # Errors
/// Where `/proc/buddyinfo` cannot be read or understood.
pub fn fragmentation(files: &(impl Files + ?Sized)) -> Result<Vec<OrderIndex>> {
    buddyinfo::unusable_index(&read_lossy(files, "/proc/buddyinfo")?)
}

/// Returns how often since boot an allocation of any process reclaimed or compacted memory itself before
/// it could go on: `allocstall` and `compact_stall` of `/proc/vmstat` together.
///
/// Reclaim because of a memory cgroup's limit is not counted there (`mm/vmscan.c`,
/// `do_try_to_free_pages`, Linux 6.12).
///
/// # Errors
/// Where the file cannot be read or understood, or has neither counter.
pub fn direct_reclaims(files: &(impl Files + ?Sized)) -> Result<u64> {
    let path = "/proc/vmstat";
    let counters = vmstat::since_boot(&read_lossy(files, path)?)?;
    let ours = |name: &str| name == "allocstall" || name == "compact_stall";
    let found = counters.iter().filter(|counter| ours(&counter.name));
    found
        .map(|counter| counter.value)
        .reduce(u64::saturating_add)
        .ok_or_else(|| Error::parse(path, "has neither allocstall nor compact_stall"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn both_ways_to_wait_count() {
        let of = |text: &str| direct_reclaims(&Fake::default().with_file("/proc/vmstat", text));
        let text = "allocstall_normal 3\nallocstall_movable 4\ncompact_stall 5\ncompact_fail 9\n";
        assert_eq!(of(text).unwrap(), 12);
        // A kernel without CONFIG_COMPACTION.
        assert_eq!(of("allocstall 3\n").unwrap(), 3);
        assert!(of("pgfault 1\n").is_err());
        assert!(direct_reclaims(&Fake::default()).is_err());
    }

    #[test]
    #[allow(clippy::float_cmp)] // shares of powers of two are exact
    fn what_cannot_be_read_is_no_index() {
        assert!(fragmentation(&Fake::default()).is_err());
        let fake = Fake::default().with_file("/proc/buddyinfo", "Node 0, zone DMA 4 2\n");
        assert_eq!(fragmentation(&fake).unwrap()[1].index, 0.5);
    }
}
