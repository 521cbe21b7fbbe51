//! VFIO with an IOMMU of type 1 (Documentation/driver-api/vfio.rst, Linux 6.12): container, group, device.

use std::ffi::{CString, c_ulong};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use stopgap_events::order::SortRows;
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

use super::super::Linux;
use super::ioctl::{
    self, DmaMap, DmaUnmap, GroupStatus, IommuInfo, Plain, RegionInfo, SetContainer, argsz,
};
use super::{cannot_open, open};
use crate::devices::pci::{self, PciAddress, VFIO_PCI};
use crate::devices::{Region, Vfio};
use crate::error::{Error, Result};
use crate::memory::{Mapping, Origin};

/// The version of the interface, since it is there (3.6).
const API: i32 = 0;
/// `VFIO_TYPE1v2_IOMMU`: a mapping is unmapped as a whole.
const TYPE1_V2: c_ulong = 3;
/// `VFIO_GROUP_FLAGS_VIABLE`: every device of the group is bound to VFIO, or to nobody.
const VIABLE: u32 = 1;
/// `VFIO_IOMMU_INFO_PGSIZES`, `VFIO_IOMMU_INFO_CAPS`.
const PAGE_SIZES: u32 = 1;
const CAPABILITIES: u32 = 2;
/// `VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE`.
const IOVA_RANGES: u16 = 1;
/// `VFIO_DMA_MAP_FLAG_READ` and `_WRITE`.
const READ_WRITE: u32 = 3;

const CONTAINER: &str = "/dev/vfio/vfio";
const NO_VFIO: &str = "as root: modprobe vfio-pci";

/// A device in a container of its own. The fields are closed in this order: device, group, container.
pub(super) struct Device {
    device: OwnedFd,
    _group: OwnedFd,
    container: OwnedFd,
    page_sizes: u64,
    addresses: Vec<AddressRange>,
    bar0: Place,
    config: Place,
}

/// Where a region lies in the device's file.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u64,
    size: u64,
}

impl Device {
    pub(super) fn open(system: Linux, address: PciAddress) -> Result<Device> {
        let what = format!("vfio of {address}");
        let unsupported = |advice: String| Error::unsupported(&what, advice);
        let shown = pci::device(&system, address).map_err(|error| match error.is_absent() {
            true => unsupported("there is no such device".to_owned()),
            false => error,
        })?;
        let number = shown.group.ok_or_else(|| {
            unsupported(
                "no IOMMU is at work for it: boot with intel_iommu=on, or the like".to_owned(),
            )
        })?;
        if shown.driver.as_deref() != Some(VFIO_PCI) {
            let has = shown
                .driver
                .map_or("no driver has it".to_owned(), |driver| {
                    format!("{driver} has it")
                });
            return Err(unsupported(format!("{has}: bind it to {VFIO_PCI} first")));
        }

        let path = Path::new(CONTAINER);
        let container = open(path).map_err(|e| cannot_open(&what, path, e, NO_VFIO))?;
        let version = ioctl::ask_plain(&container, CONTAINER, Plain::ApiVersion, 0)?;
        if version != API {
            return Err(unsupported(format!(
                "VFIO's interface has version {version}, we know {API}"
            )));
        }
        if ioctl::ask_plain(&container, CONTAINER, Plain::CheckExtension, TYPE1_V2)? == 0 {
            return Err(unsupported(
                "no IOMMU of type 1: as root, modprobe vfio_iommu_type1".to_owned(),
            ));
        }

        let path = PathBuf::from(format!("/dev/vfio/{number}"));
        let group = open(&path).map_err(|error| match error.errno() {
            Some(libc::EBUSY) => {
                unsupported(format!("{} is in use by another program", path.display()))
            }
            _ => cannot_open(&what, &path, error, NO_VFIO),
        })?;
        let mut status = GroupStatus {
            argsz: argsz::<GroupStatus>(),
            flags: 0,
        };
        ioctl::ask(&group, path.display(), &mut status)?;
        if status.flags & VIABLE == 0 {
            return Err(unsupported(format!(
                "IOMMU group {number} is not viable: other devices in it have drivers; bind all of them to {VFIO_PCI}"
            )));
        }
        let mut of = SetContainer {
            container: container.as_raw_fd(),
        };
        ioctl::ask(&group, path.display(), &mut of)?;
        ioctl::ask_plain(&container, CONTAINER, Plain::SetIommu, TYPE1_V2)?;

        let name = CString::new(address.to_string()).map_err(|e| Error::parse("an address", e))?;
        let device = ioctl::device_fd(&group, &name)?;
        let (page_sizes, addresses) = iommu_info(&container)?;
        let (bar0, config) = (place(&device, 0)?, place(&device, 7)?);
        Ok(Device {
            device,
            _group: group,
            container,
            page_sizes,
            addresses,
            bar0,
            config,
        })
    }

    fn at(&self, region: Region, offset: u64) -> Result<u64> {
        let place = match region {
            Region::Bar0 => self.bar0,
            Region::Config => self.config,
        };
        let fits = offset.checked_add(4).is_some_and(|end| end <= place.size);
        let at = place.offset.checked_add(offset).filter(|_| fits);
        at.ok_or_else(|| {
            let place = format!("{offset:#x} of {region:?}");
            Error::refusal("register", place, libc::EINVAL)
        })
    }
}

/// The region of that number (`VFIO_PCI_BAR0_REGION_INDEX` 0, `VFIO_PCI_CONFIG_REGION_INDEX` 7).
fn place(device: &OwnedFd, index: u32) -> Result<Place> {
    let mut info = RegionInfo {
        argsz: argsz::<RegionInfo>(),
        flags: 0,
        index,
        cap_offset: 0,
        size: 0,
        offset: 0,
    };
    ioctl::ask(device, format!("region {index}"), &mut info)?;
    Ok(Place {
        offset: info.offset,
        size: info.size,
    })
}

/// Sizes of page, as bits, and ranges of device addresses.
fn iommu_info(container: &OwnedFd) -> Result<(u64, Vec<AddressRange>)> {
    let mut info = IommuInfo {
        argsz: argsz::<IommuInfo>(),
        flags: 0,
        page_sizes: 0,
        cap_offset: 0,
        pad: 0,
        capabilities: [0; IommuInfo::CAPABILITIES],
    };
    ioctl::ask(container, CONTAINER, &mut info)?;
    let page_sizes = if info.flags & PAGE_SIZES == 0 {
        0
    } else {
        info.page_sizes
    };
    let addresses = match info.flags & CAPABILITIES {
        0 => Vec::new(),
        _ => ranges(&info.capabilities, info.cap_offset),
    };
    Ok((page_sizes, addresses))
}

/// The usable ranges in the chain of capabilities that begins at byte `next` of the whole structure. A chain that leaves
/// it, or goes backwards, ends there.
fn ranges(capabilities: &[u8], next: u32) -> Vec<AddressRange> {
    let number = |at: usize, bytes: usize| {
        let part = capabilities.get(at..at.checked_add(bytes)?)?;
        Some(
            part.iter()
                .rev()
                .fold(0_u64, |number, &byte| number << 8 | u64::from(byte)),
        )
    };
    let (mut found, mut next, mut last) = (Vec::new(), next as usize, 0);
    while let Some(at) = next.checked_sub(IommuInfo::HEADER).filter(|_| next > last) {
        let (Some(id), Some(after)) = (number(at, 2), number(at + 4, 4)) else {
            break;
        };
        if id == u64::from(IOVA_RANGES) {
            let count = number(at + 8, 4).unwrap_or(0);
            let each = (0..count).map_while(|index| {
                let at = at + 16 + usize::try_from(index).ok()?.checked_mul(16)?;
                let (start, last) = (number(at, 8)?, number(at + 8, 8)?);
                // Their ends are the last byte's; the last of all is no end that we could say, and none to map.
                Some(AddressRange {
                    start,
                    end: last.saturating_add(1),
                })
            });
            found.extend(each.filter(|range| range.start < range.end));
        }
        (last, next) = (next, usize::try_from(after).unwrap_or(0));
    }
    found.sort_rows_by_key(|range| range.start);
    found
}

impl Vfio for Device {
    fn page_sizes(&self) -> Vec<Bytes> {
        let bits = (0..u64::BITS).filter(|bit| self.page_sizes >> bit & 1 == 1);
        bits.map(|bit| Bytes(1 << bit)).collect()
    }

    fn device_addresses(&self) -> &[AddressRange] {
        &self.addresses
    }

    fn map_dma(&mut self, iova: u64, mapping: &Mapping) -> Result<()> {
        assert_eq!(mapping.origin(), Origin::Kernel, "a mapping of a fake");
        let range = mapping.range();
        let mut map = DmaMap {
            argsz: argsz::<DmaMap>(),
            flags: READ_WRITE,
            vaddr: range.start,
            iova,
            size: range.length().0,
        };
        // The device may now write to a mapping of ours into which no reference
        // exists, and its pages stay pinned, also when the mapping goes.
        ioctl::ask(&self.container, range.length(), &mut map).map(drop)
    }

    fn unmap_dma(&mut self, iova: u64, length: Bytes) -> Result<Bytes> {
        let mut unmap = DmaUnmap {
            argsz: argsz::<DmaUnmap>(),
            flags: 0,
            iova,
            size: length.0,
        };
        ioctl::ask(&self.container, length, &mut unmap)?;
        Ok(Bytes(unmap.size))
    }

    fn read_register(&mut self, region: Region, offset: u64) -> Result<u32> {
        let mut bytes = [0; 4];
        let count = rustix::io::pread(&self.device, &mut bytes, self.at(region, offset)?)
            .map_err(|e| Error::call("pread", format!("{region:?} {offset:#x}"), e))?;
        four(count).map(|()| u32::from_le_bytes(bytes))
    }

    fn write_register(&mut self, region: Region, offset: u64, value: u32) -> Result<()> {
        let at = self.at(region, offset)?;
        let count = rustix::io::pwrite(&self.device, &value.to_le_bytes(), at)
            .map_err(|e| Error::call("pwrite", format!("{region:?} {offset:#x}"), e))?;
        four(count)
    }
}

/// Whether all of a register was read or written.
fn four(count: usize) -> Result<()> {
    match count {
        4 => Ok(()),
        _ => Err(Error::parse("a register", format!("{count} of 4 bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A capability: id, version, next, then what follows.
    fn capability(id: u16, next: u32, rest: &[u64]) -> Vec<u8> {
        let mut bytes = id.to_le_bytes().to_vec();
        bytes.extend(1_u16.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        bytes.extend(rest.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    #[test]
    fn ranges_are_read_out_of_the_chain() {
        let mut bytes = capability(3, 24 + 16, &[7]);
        bytes.extend(capability(
            1,
            0,
            &[2, 0xfef0_0000, 0xffff_ffff_ffff, 0, 0xfedf_ffff],
        ));
        let found = ranges(&bytes, 24);
        let expected = [(0, 0xfee0_0000), (0xfef0_0000, 1 << 48)];
        assert_eq!(
            found,
            expected.map(|(start, end)| AddressRange { start, end })
        );
    }

    proptest::proptest! {
        /// Whatever a kernel writes there, reading it ends, inside of what was written.
        #[test]
        fn any_chain_ends(bytes in proptest::collection::vec(0_u8..40, 0..200), next in 0_u32..300) {
            let found = ranges(&bytes, next);
            proptest::prop_assert!(found.len() <= bytes.len() * bytes.len());
        }
    }

    #[test]
    fn a_chain_in_a_circle_ends() {
        let mut bytes = capability(1, 48, &[1, 0, 4095]);
        bytes.extend(capability(2, 24, &[0]));
        assert_eq!(
            ranges(&bytes, 24),
            [AddressRange {
                start: 0,
                end: 4096
            }]
        );
    }
}
