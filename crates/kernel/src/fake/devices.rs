//! Devices of a fake: makers of objects that run out, and a PCI device that behaves like QEMU's `edu`.

use std::collections::BTreeMap;

use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

use super::Fake;
use crate::devices::pci::PciAddress;
use crate::devices::{Devices, Handle, Maker, Object, ObjectDevice, Region, Room, Vfio};
use crate::error::{Error, Result};
use crate::memory::{MapKind, MapRequest, Mapping, Memory};

const PAGE: u64 = 4096;
/// Cost of making or destroying an object, ns.
const OBJECT_NS: u64 = 2_000;
/// Cost of a page that is mapped for the device, and of an entry of its IOMMU, ns.
const PIN_NS: u64 = 300;
/// Time that a transfer takes, as edu's does: 100 ms.
const TRANSFER_NS: u64 = 100_000_000;

/// A maker of objects.
#[derive(Debug, Clone, Copy)]
pub struct FakeMaker {
    /// Objects that it has at most at one time.
    pub most: u64,
    /// With what it refuses the next one.
    pub errno: i32,
    /// What looking at one live object costs each time one is made, ns; 0: it looks at none.
    pub visit_ns: u64,
}

/// A PCI device bound to `vfio-pci`, which behaves like QEMU's `edu`.
#[derive(Debug, Clone)]
pub struct FakeVfio {
    /// Whether there is an IOMMU of type 1.
    pub type1: bool,
    /// Whether its group is viable.
    pub viable: bool,
    /// Number of the byte that it writes wrongly by DMA.
    pub wrong_byte: Option<u64>,
    /// Bits of a device address that it has.
    pub address_bits: u32,
    /// Whether its transfers ever end.
    pub ends: bool,
}

impl Default for FakeVfio {
    fn default() -> FakeVfio {
        FakeVfio {
            type1: true,
            viable: true,
            wrong_byte: None,
            address_bits: 28,
            ends: true,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct FakeDevices {
    makers: Vec<(Maker, FakeMaker)>,
    vfio: Vec<(PciAddress, FakeVfio)>,
    /// Stored bytes, by the address of their page.
    contents: BTreeMap<u64, Vec<u8>>,
}

impl FakeDevices {
    fn bytes(&mut self, address: u64) -> &mut u8 {
        let page = self
            .contents
            .entry(address / PAGE)
            .or_insert_with(|| vec![0; PAGE as usize]);
        &mut page[(address % PAGE) as usize]
    }
}

impl Fake {
    /// With a maker of objects.
    #[must_use]
    pub fn with_maker(self, maker: Maker, fake: FakeMaker) -> Fake {
        self.state().devices.makers.push((maker, fake));
        self
    }

    /// With a device at this address, in IOMMU group 1, bound to `vfio-pci`.
    ///
    /// # Panics
    /// Where the address is none.
    #[must_use]
    pub fn with_vfio(self, address: &str, fake: FakeVfio) -> Fake {
        let at = format!("/sys/bus/pci/devices/{address}");
        let address: PciAddress = address.parse().expect("a PCI address");
        self.state().devices.vfio.push((address, fake));
        self.with_file(format!("{at}/vendor"), "0x1234\n")
            .with_file(format!("{at}/device"), "0x11e8\n")
            .with_link(
                format!("{at}/driver"),
                "../../../../bus/pci/drivers/vfio-pci",
            )
            .with_link(
                format!("{at}/iommu_group"),
                "../../../../kernel/iommu_groups/1",
            )
    }

    fn part(mapping: &Mapping, offset: Bytes, length: usize) -> Result<AddressRange> {
        let part = mapping.range().part(offset, Bytes(length as u64));
        part.ok_or_else(|| Error::refusal("part", offset, libc::EINVAL))
    }
}

impl Devices for Fake {
    fn objects(&self, maker: &Maker, room: Room) -> Result<Box<dyn ObjectDevice + '_>> {
        let makers = self.state().devices.makers.clone();
        let found = makers.into_iter().find(|(is, _)| is == maker);
        let (_, fake) = found.ok_or_else(|| {
            let advice = format!(
                "not on this machine; modprobe {}",
                maker.modules().join(" ")
            );
            Error::unsupported(maker, advice)
        })?;
        Ok(Box::new(Objects {
            system: self,
            fake,
            room,
            live: 0,
        }))
    }

    fn vfio(&self, address: PciAddress) -> Result<Box<dyn Vfio + '_>> {
        let devices = self.state().devices.vfio.clone();
        let found = devices.into_iter().find(|(is, _)| *is == address);
        let what = format!("vfio of {address}");
        let (_, fake) =
            found.ok_or_else(|| Error::unsupported(&what, "there is no such device"))?;
        if !fake.type1 {
            return Err(Error::unsupported(
                what,
                "no IOMMU of type 1: as root, modprobe vfio_iommu_type1",
            ));
        }
        if !fake.viable {
            return Err(Error::unsupported(
                what,
                "IOMMU group 1 is not viable: other devices in it have drivers",
            ));
        }
        Ok(Box::new(Edu {
            system: self,
            fake,
            addresses: vec![AddressRange {
                start: 0,
                end: 0xfee0_0000,
            }],
            mapped: BTreeMap::new(),
            registers: BTreeMap::new(),
            buffer: vec![0; PAGE as usize],
            written: 0,
            busy_until: 0,
        }))
    }

    fn store(&self, mapping: &Mapping, offset: Bytes, bytes: &[u8]) -> Result<()> {
        let part = Fake::part(mapping, offset, bytes.len())?;
        let mut state = self.state();
        for (address, &byte) in (part.start..).zip(bytes) {
            *state.devices.bytes(address) = byte;
        }
        Ok(())
    }

    fn load(&self, mapping: &Mapping, offset: Bytes, into: &mut [u8]) -> Result<()> {
        let part = Fake::part(mapping, offset, into.len())?;
        let mut state = self.state();
        for (address, byte) in (part.start..).zip(into) {
            *byte = *state.devices.bytes(address);
        }
        Ok(())
    }
}

struct Objects<'a> {
    system: &'a Fake,
    fake: FakeMaker,
    room: Room,
    live: u64,
}

impl ObjectDevice for Objects<'_> {
    fn describe(&self) -> String {
        "a fake".to_owned()
    }

    fn memory(&self) -> &dyn Memory {
        self.system
    }

    fn create(&mut self, length: Bytes) -> Result<Object> {
        self.system.state().now_ns += OBJECT_NS + self.fake.visit_ns * self.live;
        if self.live >= self.fake.most {
            return Err(Error::refusal("create", length, self.fake.errno));
        }
        assert!(
            self.live < self.room.objects && length <= self.room.largest,
            "more than it asked for"
        );
        self.live += 1;
        Ok(Object::new(Handle::Fake, length.page_aligned(Bytes(PAGE))))
    }

    fn map(&mut self, object: &mut Object) -> Result<()> {
        let request = MapRequest::writable(object.length, MapKind::AnonymousAlone);
        object.mapping = Some(self.system.map(&request)?);
        Ok(())
    }

    fn destroy(&mut self, mut object: Object) -> Result<()> {
        if object.mapping.is_some() {
            self.unmap(&mut object)?;
        }
        self.system.state().now_ns += OBJECT_NS;
        self.live -= 1;
        Ok(())
    }
}

impl Drop for Objects<'_> {
    fn drop(&mut self) {
        assert!(
            self.live == 0 || std::thread::panicking(),
            "{} objects were not destroyed",
            self.live
        );
    }
}

/// The device: registers and buffer as `hw/misc/edu.c` of QEMU 7.2 has them.
struct Edu<'a> {
    system: &'a Fake,
    fake: FakeVfio,
    addresses: Vec<AddressRange>,
    /// Device address -> address, length.
    mapped: BTreeMap<u64, (u64, u64)>,
    registers: BTreeMap<(Region, u64), u32>,
    buffer: Vec<u8>,
    written: u64,
    busy_until: u64,
}

impl Edu<'_> {
    /// The address behind a device address; a device without one would read ones and write nowhere.
    fn address(&self, iova: u64) -> Option<u64> {
        let iova = iova & ((1 << self.fake.address_bits) - 1);
        let (&start, &(address, length)) = self.mapped.range(..=iova).next_back()?;
        (iova - start < length).then(|| address + (iova - start))
    }

    fn transfer(&mut self, command: u32) {
        let register = |at: u64| u64::from(*self.registers.get(&(Region::Bar0, at)).unwrap_or(&0));
        let (source, target, count) = (register(0x80), register(0x88), register(0x90));
        let out = command & 2 != 0;
        let inside = if out { source } else { target };
        // QEMU 7.2 gives up (hw_error) where the end is not inside of the buffer.
        assert!(
            inside >= 0x40000 && inside + count < 0x41000,
            "QEMU would abort"
        );
        let master = self.registers.get(&(Region::Config, 4)).unwrap_or(&0) & 4 != 0;
        let offset = (inside - 0x40000) as usize;
        for index in 0..count as usize {
            let address = self
                .address(if out { target } else { source } + index as u64)
                .filter(|_| master);
            let mut state = self.system.state();
            if out {
                let wrong = self.fake.wrong_byte == Some(self.written);
                self.written += 1;
                if let Some(address) = address {
                    *state.devices.bytes(address) = self.buffer[offset + index] ^ u8::from(wrong);
                }
            } else {
                self.buffer[offset + index] =
                    address.map_or(0xff, |address| *state.devices.bytes(address));
            }
        }
        self.busy_until = self.system.state().now_ns + TRANSFER_NS;
    }
}

impl Vfio for Edu<'_> {
    fn page_sizes(&self) -> Vec<Bytes> {
        vec![Bytes::kib(4), Bytes::mib(2), Bytes::gib(1)]
    }

    fn device_addresses(&self) -> &[AddressRange] {
        &self.addresses
    }

    fn map_dma(&mut self, iova: u64, mapping: &Mapping) -> Result<()> {
        let range = mapping.range();
        if self.mapped.contains_key(&iova) {
            return Err(Error::refusal("map_dma", range, libc::EEXIST));
        }
        self.system.state().now_ns += PIN_NS * range.length().pages(Bytes(PAGE)).0;
        self.mapped.insert(iova, (range.start, range.length().0));
        Ok(())
    }

    fn unmap_dma(&mut self, iova: u64, length: Bytes) -> Result<Bytes> {
        match self.mapped.get(&iova) {
            Some(&(_, has)) if has == length.0 => {
                self.mapped.remove(&iova);
                self.system.state().now_ns += PIN_NS * length.pages(Bytes(PAGE)).0;
                Ok(length)
            }
            Some(_) => Err(Error::refusal("unmap_dma", length, libc::EINVAL)),
            None => Ok(Bytes(0)),
        }
    }

    fn read_register(&mut self, region: Region, offset: u64) -> Result<u32> {
        let running = !self.fake.ends || self.system.state().now_ns < self.busy_until;
        Ok(match (region, offset) {
            (Region::Bar0, 0) => 0x0100_00ed,
            (Region::Bar0, 0x98) => u32::from(running),
            _ => *self.registers.get(&(region, offset)).unwrap_or(&0),
        })
    }

    fn write_register(&mut self, region: Region, offset: u64, value: u32) -> Result<()> {
        self.registers.insert((region, offset), value);
        if (region, offset) == (Region::Bar0, 0x98) && value & 1 != 0 {
            self.transfer(value);
        }
        Ok(())
    }
}
