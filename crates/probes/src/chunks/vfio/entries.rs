//! How many entries of the IOMMU a buffer took.
//!
//! | source | when | what |
//! |---|---|---|
//! | shown | the kernel has `CONFIG_INTEL_IOMMU_DEBUGFS` and we are root | the table itself, entry by entry |
//! | computed | physical addresses are shown to us (root) | entries that the planner of `stopgap-chunks` gives for them |
//! | unknown | else | why; never 0 |
//!
//! Computed is what `iommu_map` does with what VFIO hands it (Linux 6.12, `drivers/vfio/vfio_iommu_type1.c`,
//! `vfio_pin_map_dma`: pages that follow one another go as one; `drivers/iommu/iommu.c`, `iommu_pgsize`). Beside it the
//! pages that tables took (`nr_iommu_pages` of `/proc/vmstat`, 6.11 on) are read, which no planner has touched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stopgap_chunks::iommu::{self, PageSizes, Run};
use stopgap_events::range::AddressRange;
use stopgap_events::units::{Bytes, Pages};
use stopgap_kernel::devices::pci::PciAddress;
use stopgap_kernel::memory::Mapping;
use stopgap_kernel::{System, cgroup, pagemap};

/// Why nothing is known of a buffer some of which is swapped out.
pub(super) const ABSENT: &str = "pages of the buffer are not in memory";

/// Where a number of entries comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Source {
    /// The kernel shows the table.
    Shown,
    /// Worked out from physical addresses.
    Computed,
}

impl Source {
    /// Its word in a record.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Source::Shown => "shown",
            Source::Computed => "computed",
        }
    }
}

/// Entries of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries {
    /// Number of entries by the bytes that each maps. In a table that is shown, an entry's bytes reach to the next one, or the end.
    pub by_size: BTreeMap<u64, u64>,
    /// Source of the counts.
    pub source: Source,
}

impl Entries {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_size.values().sum()
    }
}

/// The physical runs of a mapping, all of whose pages are there; else the reason is `absent`.
///
/// # Errors
/// Why they are not known, in words for the record.
pub(in crate::chunks) fn runs(
    system: &dyn System,
    mapping: &Mapping,
    absent: &str,
) -> Result<Vec<Run>, String> {
    let layout = pagemap::layout(system, mapping.range())?;
    let physical = layout.runs.ok_or("needs root (CAP_SYS_ADMIN)")?;
    if (layout.swapped, layout.absent) != (Pages(0), Pages(0)) {
        return Err(absent.to_owned());
    }
    let run = |range: &AddressRange| Run {
        start: range.start,
        length: range.length().0,
    };
    Ok(physical.iter().map(run).collect())
}

/// The entries of `mapping` that is mapped at `iova` for the device at `address`, on an IOMMU with pages of `sizes`.
///
/// # Errors
/// Why they are not known, in words for the record.
pub fn entries(
    system: &dyn System,
    address: PciAddress,
    mapping: &Mapping,
    iova: u64,
    sizes: &[Bytes],
) -> Result<Entries, String> {
    let range = AddressRange {
        start: iova,
        end: iova + mapping.range().length().0,
    };
    if let Some(by_size) = shown(system, address, range) {
        return Ok(Entries {
            by_size,
            source: Source::Shown,
        });
    }
    let sizes: Vec<u64> = sizes.iter().map(|size| size.0).collect();
    let sizes =
        PageSizes::new(&sizes).map_err(|_| "the kernel does not say which pages the IOMMU has")?;
    let by_size = iommu::entries(&runs(system, mapping, ABSENT)?, sizes, iova)
        .map_err(|error| error.to_string())?;
    Ok(Entries {
        by_size,
        source: Source::Computed,
    })
}

/// Where the Intel driver shows tables: a folder a device since 6.7, before that one file of all.
const SHOWN: &str = "/sys/kernel/debug/iommu/intel";
const TABLE: &str = "domain_translation_struct";

/// The table of a device as the kernel shows it; `None` where it shows none that we could read.
fn shown(
    system: &dyn System,
    address: PciAddress,
    range: AddressRange,
) -> Option<BTreeMap<u64, u64>> {
    let paths: [PathBuf; 2] = [
        Path::new(SHOWN).join(address.to_string()).join(TABLE),
        Path::new(SHOWN).join(TABLE),
    ];
    let text = paths.iter().find_map(|path| system.read(path).ok())?;
    table(&String::from_utf8_lossy(&text), address, range)
}

/// Entries of a table as text (Linux 6.12, `drivers/iommu/intel/debugfs.c`):
///
/// ```text
/// Device 0000:00:04.0 @0x104f42000
/// IOVA_PFN          PML5E               PML4E               PDPE                PDE                 PTE
/// 0x0000000000400 | 0x0000000000000000  0x0000000104f43003  0x0000000104f44003  0x0000000112200083
/// ```
///
/// A line is an entry, large or small; it begins with the number of its first page of 4 KiB. `None` where nothing of
/// the device is in it, or nothing of `range`.
fn table(text: &str, address: PciAddress, range: AddressRange) -> Option<BTreeMap<u64, u64>> {
    let device = format!("Device {address}");
    let mut is_ours = false;
    let mut starts = Vec::new();
    for line in text.lines() {
        if line.starts_with("Device ") {
            let rest = line.strip_prefix(&device);
            is_ours = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        } else if let Some((number, _)) = line.split_once('|').filter(|_| is_ours) {
            let digits = number.trim().trim_start_matches("0x");
            let start = u64::from_str_radix(digits, 16).ok()?.checked_mul(4096)?;
            if (range.start..range.end).contains(&start) {
                starts.push(start);
            }
        }
    }
    starts.sort_unstable();
    starts.dedup(); // of several PASIDs, each shows the same table
    if starts.first() != Some(&range.start) {
        return None;
    }
    let ends = starts.iter().skip(1).copied().chain([range.end]);
    let mut by_size = BTreeMap::new();
    for (start, end) in starts.iter().zip(ends) {
        *by_size.entry(end - start).or_insert(0) += 1;
    }
    Some(by_size)
}

/// Pages that tables of IOMMUs take on this machine.
///
/// # Errors
/// Why it is not known, in words for the record.
pub fn table_pages(system: &dyn System) -> Result<u64, String> {
    // Each CPU keeps some changes for itself; being read, this file makes them known. Root's.
    system.read(Path::new("/proc/sys/vm/stat_refresh"))?;
    let counters = cgroup::counters(system, "/proc/vmstat")?;
    let pages = counters.get("nr_iommu_pages").copied();
    pages.ok_or_else(|| "this kernel does not count them (6.11 on)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Device 0000:00:02.0 @0x104f00000
IOVA_PFN\t\tPML5E\t\t\tPML4E\t\t\tPDPE\t\t\tPDE\t\t\tPTE
0x0000000000400 |\t0x0000000000000000\t0x0000000104f43003\t0x0000000104f44003\t0x0000000112200083

Device 0000:00:04.0 with pasid 0 @0x104f42000

IOVA_PFN\t\tPML5E\t\t\tPML4E\t\t\tPDPE\t\t\tPDE\t\t\tPTE
0x00000000003ff |\t0x0000000000000000\t0x0000000104f43003\t0x0000000104f44003\t0x0000000104f45003\t0x0000000112000003
0x0000000000400 |\t0x0000000000000000\t0x0000000104f43003\t0x0000000104f44003\t0x0000000112200083
0x0000000000600 |\t0x0000000000000000\t0x0000000104f43003\t0x0000000104f44003\t0x0000000104f45003\t0x0000000112400003
0x0000000000601 |\t0x0000000000000000\t0x0000000104f43003\t0x0000000104f44003\t0x0000000104f45003\t0x0000000112401003

Device 0000:00:04.1 @0x104f42000
0x0000000000402 |\t0x0
";

    fn address(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    /// ```text
    /// page  3ff 400 ............ 5ff 600 601 602
    /// ours   .  [  2 MiB           ] [ ] [ ]
    /// range     [------------------------)
    /// ```
    #[test]
    fn a_table_is_counted_entry_by_entry() {
        let range = AddressRange {
            start: 0x40_0000,
            end: 0x60_2000,
        };
        let entries = table(TEXT, address("0000:00:04.0"), range).unwrap();
        assert_eq!(entries, BTreeMap::from([(2 << 20, 1), (4096, 2)]));
    }

    #[test]
    fn a_table_without_the_device_or_the_range_is_unknown() {
        let range = AddressRange {
            start: 0x40_0000,
            end: 0x60_2000,
        };
        assert_eq!(table(TEXT, address("0000:00:05.0"), range), None);
        let elsewhere = AddressRange {
            start: 0x80_0000,
            end: 0x90_0000,
        };
        assert_eq!(table(TEXT, address("0000:00:04.0"), elsewhere), None);
        assert_eq!(
            table(
                "Device 0000:00:04.0\nzz | 1\n",
                address("0000:00:04.0"),
                range
            ),
            None
        );
        assert_eq!(table("", address("0000:00:04.0"), range), None);
    }

    #[test]
    fn tables_are_counted_where_the_kernel_counts_them() {
        use stopgap_kernel::fake::Fake;
        let refresh = "/proc/sys/vm/stat_refresh";
        let kernel = |vmstat: &str| {
            Fake::default()
                .with_file(refresh, "")
                .with_file("/proc/vmstat", vmstat)
        };
        assert_eq!(table_pages(&kernel("nr_iommu_pages 7\n")), Ok(7));
        let older = table_pages(&kernel("nr_free_pages 7\n")).unwrap_err();
        assert!(older.contains("6.11"), "{older}");
        let user = Fake::default().with_file("/proc/vmstat", "nr_iommu_pages 7\n");
        assert!(table_pages(&user).is_err());
    }
}
