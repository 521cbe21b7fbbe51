//! Mapping a buffer for a device, by VFIO with an IOMMU of type 1.
//!
//! **Contract.** A buffer is taken in pages of one size ([`buffer`]: 4 KiB by advice against huge pages, 64 KiB as mTHP,
//! 2 MiB as THP), touched as a whole, and then mapped for the device and unmapped again and again ([`cycles`]). Each call is
//! counted by a [`Meter`] that is handed in: a clock on a host, instructions in a guest. Mapped once more, the entries
//! that it took are looked up ([`entries()`]), and a device that can copy (QEMU's `edu`) copies through the mapping, from one
//! half of the buffer to the other, and what came is compared ([`transfer`]).
//!
//! **What it says.** What mapping costs by the pages beneath: pinning each, and a call to the IOMMU for each that does not
//! continue its neighbour. A fresh machine's 4 KiB pages do continue one another, so they are touched out of order, and the
//! record says how many physical runs and entries there are.
//!
//! What it leaves out: a driver of the kernel maps by the DMA API, which allocates device addresses too; what the
//! device's IOTLB makes of the entries.

mod edu;
mod entries;
mod probe;

use std::path::Path;

use stopgap_chunks::iommu::Run;
use stopgap_events::memory::Protection;
use stopgap_events::order::SortRows;
use stopgap_events::units::Bytes;
use stopgap_kernel::devices::Vfio;
use stopgap_kernel::devices::pci::{self, PciAddress};
use stopgap_kernel::memory::{MapKind, MapRequest, Mapping};
use stopgap_kernel::thp::Thp;
use stopgap_kernel::{Error, Result, System};

use super::Strategy;
use super::knobs;
use crate::meter::{Meter, Step};
pub(super) use entries::runs;

pub use edu::{EDU, TransferError, transfer};
pub use entries::{Entries, Source, entries, table_pages};
pub use probe::VfioProbe;

/// Pages of a half of the buffer that are copied and compared. Each takes edu 0.4 s of the machine's clock.
pub const COPIED: u64 = 8;
/// Device addresses below this are left alone: the first of them are where old devices have theirs.
const LOWEST: u64 = Bytes::mib(4).0;

/// The PCI device to use: the one that is asked for, else the first `edu`, else the first that is bound to `vfio-pci`.
///
/// # Errors
/// Where there is none: how to bind one.
pub fn device(system: &dyn System, asked: Option<PciAddress>) -> Result<pci::PciDevice> {
    if let Some(address) = asked {
        return pci::device(system, address).map_err(|error| match error.is_absent() {
            true => Error::unsupported(format!("vfio of {address}"), "there is no such device"),
            false => error,
        });
    }
    let mut bound = pci::devices(system)?;
    bound.retain(|device| device.driver.as_deref() == Some(pci::VFIO_PCI));
    bound.sort_rows_by_key(|device| (device.vendor, device.device) != EDU);
    bound.into_iter().next().ok_or_else(|| {
        let advice = "no PCI device is bound to vfio-pci; as root: modprobe vfio-pci, then for a device that nobody \
                      needs: echo vfio-pci > /sys/bus/pci/devices/ADDRESS/driver_override; echo ADDRESS > \
                      /sys/bus/pci/drivers_probe";
        Error::unsupported("vfio", advice)
    })
}

/// Writes a word into a file of settings.
pub type SetKnob<'a> = dyn FnMut(&Path, &str) -> Result<()> + 'a;

/// A buffer of `length` bytes in pages of `page` bytes, all of it touched, page by page in an order in which no two
/// neighbours follow one another: a fresh machine else gives 4 KiB pages that lie side by side, and are mapped like larger
/// ones. `set` sets a knob of transparent huge pages where one must be set (root); without it they are used as they stand.
///
/// # Errors
/// Where there are no such pages (why), or the kernel gave smaller ones.
pub fn buffer(
    system: &dyn System,
    length: Bytes,
    page: Bytes,
    set: Option<&mut SetKnob<'_>>,
) -> std::result::Result<Mapping, String> {
    let thp = Thp::read(system)?;
    let base = system.page_size();
    let setup = knobs::setup(
        strategy(thp.as_ref(), base, page),
        thp.as_ref(),
        base,
        set.is_some(),
    )?;
    if let Some(set) = set {
        for (knob, word) in &setup.changes {
            set(knob, word)?;
        }
    }
    let take = || {
        let mapping = system.map(&MapRequest {
            length,
            protection: Protection::Write,
            kind: MapKind::Anonymous,
            // Entries can be as large as addresses are aligned.
            align: Bytes(page.0.max(Bytes::mib(2).0).max(base.0)),
        })?;
        let advised = setup.advice.map_or(Ok(()), |advice| {
            system.advise(&mapping, Bytes(0), length, advice)
        });
        let touch = |page_number: u64| {
            let offset = Bytes(page_number * page.0);
            system.touch(&mapping, offset, page.min(length - offset))
        };
        let filled =
            advised.and_then(|()| scattered(length.0.div_ceil(page.0)).try_for_each(touch));
        match filled {
            Ok(()) => Ok(mapping),
            Err(error) => {
                system.unmap(mapping)?;
                Err(error)
            }
        }
    };
    let mapping = take().map_err(|error: Error| error.to_string())?;
    match runs(system, &mapping, entries::ABSENT) {
        Ok(runs) if !made_of(&runs, page) => {
            system.unmap(mapping)?;
            Err(format!(
                "the kernel gave smaller pages than {}",
                page.short()
            ))
        }
        _ => Ok(mapping), // as it should be, or nobody may look
    }
}

/// The numbers below `count`, each once, in an order in which no two neighbours follow one another (where there are more
/// than three): what is allocated one after the other then lies apart, as it does on a machine that has been up for weeks.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    // A step without a common factor visits each number once; by the golden section it is far from 1 and from -1, and
    // so is its inverse.
    let divides = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let section = (u128::from(count) * 618 / 1_000) as u64;
    let step = (section.max(1)..count)
        .find(|&step| divides(step, count) == 1)
        .unwrap_or(1);
    (0..count).scan(0, move |at, _| {
        let this = *at;
        *at = (u128::from(this) + u128::from(step))
            .checked_rem(u128::from(count))
            .unwrap_or(0) as u64;
        Some(this)
    })
}

/// Returns the strategy that gives pages of `page` bytes.
fn strategy(thp: Option<&Thp>, base: Bytes, page: Bytes) -> Strategy {
    match thp {
        _ if page == base => Strategy::Base,
        Some(thp) if page == thp.pmd_size => Strategy::ThpDirect,
        _ => Strategy::Mthp(page),
    }
}

/// Whether memory in these runs can be of pages of `page` bytes: each begins and ends at a multiple of it.
fn made_of(runs: &[Run], page: Bytes) -> bool {
    runs.iter()
        .all(|run| run.start.is_multiple_of(page.0) && run.length.is_multiple_of(page.0))
}

/// A device address for `length` bytes: aligned to its length rounded up to a power of two (at least 2 MiB), as
/// `iommu-dma` does, within what the IOMMU and, where `edu`, the device reach.
///
/// # Errors
/// Where there is none.
pub fn device_address(vfio: &dyn Vfio, length: Bytes, is_edu: bool) -> Result<u64> {
    let most = if is_edu { edu::SEES } else { u64::MAX };
    let align = length
        .0
        .checked_next_power_of_two()
        .map(|length| length.max(Bytes::mib(2).0));
    let fits = |start: u64, end: u64| {
        let start = start.max(LOWEST).checked_next_multiple_of(align?)?;
        (start.checked_add(length.0)? <= end.min(most)).then_some(start)
    };
    let ranges = vfio.device_addresses();
    let found = match ranges {
        [] => fits(0, u64::MAX),
        ranges => ranges.iter().find_map(|range| fits(range.start, range.end)),
    };
    found.ok_or_else(|| {
        Error::unsupported(
            format!("a device address for {length}"),
            "none is left that it reaches",
        )
    })
}

/// Maps and unmaps `operations` times; `meter` counts [`Step::DmaMap`] and [`Step::DmaUnmap`]. `false` where `stop`,
/// asked before each, ended it.
///
/// # Errors
/// As [`Vfio::map_dma`] and [`Vfio::unmap_dma`], and where less was unmapped than was mapped.
pub fn cycles(
    vfio: &mut dyn Vfio,
    mapping: &Mapping,
    iova: u64,
    operations: u64,
    meter: &mut impl Meter,
    stop: &dyn Fn() -> bool,
) -> Result<bool> {
    let length = mapping.range().length();
    for _ in 0..operations {
        if stop() {
            return Ok(false);
        }
        meter.measure(Step::DmaMap, || vfio.map_dma(iova, mapping))?;
        let unmapped = meter.measure(Step::DmaUnmap, || vfio.unmap_dma(iova, length))?;
        unmapped_all(unmapped, length)?;
    }
    Ok(true)
}

fn unmapped_all(unmapped: Bytes, length: Bytes) -> Result<()> {
    match unmapped == length {
        true => Ok(()),
        false => Err(Error::parse(
            "VFIO_IOMMU_UNMAP_DMA",
            format!("{unmapped} of {length} were unmapped"),
        )),
    }
}

/// What is known of a buffer while a device reaches it. What is not known says why.
#[derive(Debug)]
pub struct Reached {
    /// Entries of the IOMMU.
    pub entries: std::result::Result<Entries, String>,
    /// Physical runs: pages, but for those that continue their neighbour.
    pub runs: std::result::Result<u64, String>,
    /// Pages that its tables took since `before`; see [`table_pages`].
    pub table_pages: std::result::Result<u64, String>,
    /// What was copied through the mapping and compared; `None`: the device cannot copy.
    pub transferred: Option<std::result::Result<Bytes, TransferError>>,
}

/// Maps the buffer once, looks, lets an `edu` copy, and unmaps it. `before` is [`table_pages`] before anything was
/// mapped: what is unmapped piece by piece leaves its tables behind.
///
/// # Errors
/// As [`cycles`].
pub fn look(
    system: &dyn System,
    vfio: &mut dyn Vfio,
    device: &pci::PciDevice,
    mapping: &Mapping,
    iova: u64,
    before: std::result::Result<u64, String>,
) -> Result<Reached> {
    vfio.map_dma(iova, mapping)?;
    let sizes = vfio.page_sizes();
    let entries = entries(system, device.address, mapping, iova, &sizes);
    let mapped = table_pages(system);
    let is_edu = (device.vendor, device.device) == EDU;
    let transferred = is_edu.then(|| transfer(system, vfio, mapping, iova, COPIED));
    let length = mapping.range().length();
    unmapped_all(vfio.unmap_dma(iova, length)?, length)?;
    let table_pages = match (before, mapped) {
        (Ok(before), Ok(mapped)) => Ok(mapped.saturating_sub(before)),
        (Err(why), _) | (_, Err(why)) => Err(why),
    };
    let runs = runs(system, mapping, entries::ABSENT).map(|runs| runs.len() as u64);
    Ok(Reached {
        entries,
        runs,
        table_pages,
        transferred,
    })
}

#[cfg(test)]
mod tests;
