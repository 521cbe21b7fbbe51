//! Devices that make buffer objects, and PCI devices behind an IOMMU.
//!
//! An [`Object`] is what a graphics driver calls a buffer: made by an ioctl, found by a handle or a descriptor, mapped
//! by mmap(2) where somebody wants to look at it, and destroyed by another ioctl. Its five steps are calls of their own
//! here, so that each can be timed apart. A [`Vfio`] is a PCI device that the kernel has handed to a program, in an
//! IOMMU address space (a *container*) of its own.
//!
//! Who calls this may not break memory with it: a mapping of an object is never handed out, and what a device writes to
//! by DMA is a [`Mapping`] into which no reference exists; its pages stay pinned until the device forgets them.

pub mod pci;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

use crate::error::{Error, Result};
use crate::memory::{Mapping, Memory};
use pci::PciAddress;

/// Who makes buffer objects. Its name (`Display`, `FromStr`) is the word for the command line and the record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Maker {
    /// `vgem`: GEM objects of the driver vgem, by `DRM_IOCTL_MODE_CREATE_DUMB`, `MAP_DUMB` and `DESTROY_DUMB`.
    Vgem,
    /// `dma-heap`: dma-bufs of `/dev/dma_heap/system`.
    DmaHeap,
    /// `udmabuf`: dma-bufs of `/dev/udmabuf`, made of pages of one sealed memfd.
    Udmabuf,
    /// `gl`: OpenGL ES pixel-buffer objects, through EGL without a surface.
    Gl,
    /// `device:PATH`: no objects; mappings of this character device from its offset 0 on.
    Path(PathBuf),
}

impl Maker {
    /// Those that have a name of their own.
    pub const NAMED: [Maker; 4] = [Maker::Vgem, Maker::DmaHeap, Maker::Udmabuf, Maker::Gl];

    /// Modules that must be loaded for it where they are not built in, in any order; what they depend on comes with
    /// them. `gl` and a path have none that could be known.
    #[must_use]
    pub fn modules(&self) -> &'static [&'static str] {
        match self {
            Maker::Vgem => &["vgem"],
            Maker::DmaHeap => &["system_heap"],
            Maker::Udmabuf => &["udmabuf"],
            Maker::Gl | Maker::Path(_) => &[],
        }
    }

    /// Memory that one object of one page takes, mapped, with all that the kernel keeps of it.
    #[must_use]
    pub fn an_object(&self, page: Bytes) -> Bytes {
        match self {
            // A page that is there from the map on at the latest, and the object, its file, place and mapping.
            Maker::Vgem | Maker::DmaHeap | Maker::Udmabuf => page + Bytes::kib(4),
            // As the driver likes: Mesa's software renderer has it in user memory.
            Maker::Gl => page + Bytes::kib(8),
            Maker::Path(_) => Bytes(512),
        }
    }

    /// Returns whether objects are made and destroyed; else there are only mappings.
    #[must_use]
    pub fn has_objects(&self) -> bool {
        !matches!(self, Maker::Path(_))
    }

    /// Whether each object holds an open file.
    #[must_use]
    pub fn has_files(&self) -> bool {
        matches!(self, Maker::DmaHeap | Maker::Udmabuf)
    }
}

impl fmt::Display for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Maker::Vgem => "vgem",
            Maker::DmaHeap => "dma-heap",
            Maker::Udmabuf => "udmabuf",
            Maker::Gl => "gl",
            Maker::Path(path) => return f.pad(&format!("device:{}", path.display())),
        })
    }
}

impl FromStr for Maker {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Maker, String> {
        if let Some(path) = word.strip_prefix("device:") {
            return match path.starts_with('/') {
                true => Ok(Maker::Path(path.into())),
                false => Err(format!(
                    "'{word}': give the device's whole path, as device:/dev/name"
                )),
            };
        }
        let named = Maker::NAMED
            .into_iter()
            .find(|maker| maker.to_string() == word);
        named.ok_or_else(|| {
            format!("unknown device '{word}'; there are vgem, dma-heap, udmabuf, gl, device:PATH")
        })
    }
}

/// Most objects that will live at once, and the largest one's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Objects that live at one time.
    pub objects: u64,
    /// Bytes of the largest.
    pub largest: Bytes,
}

/// A buffer object. It can only come from [`ObjectDevice::create`] and is given up with [`ObjectDevice::destroy`];
/// dropped, a dma-buf is closed and any other lives as long as its device is open.
#[derive(Debug)]
#[must_use = "an object that is dropped may stay"]
pub struct Object {
    pub(crate) handle: Handle,
    pub(crate) length: Bytes,
    pub(crate) mapping: Option<Mapping>,
}

/// By what a device finds its object.
#[derive(Debug)]
pub(crate) enum Handle {
    /// There is none: the device is mapped itself.
    Device,
    /// A GEM handle.
    Gem(u32),
    /// A dma-buf; with the part of the memfd behind it, where it has one.
    DmaBuf(std::os::fd::OwnedFd, Option<u64>),
    /// A GL name and where it is mapped.
    #[cfg(feature = "gl")]
    Gl(glow::Buffer, Option<std::ptr::NonNull<u8>>),
    #[cfg(any(test, feature = "fake"))]
    Fake,
}

impl Object {
    pub(crate) fn new(handle: Handle, length: Bytes) -> Object {
        Object {
            handle,
            length,
            mapping: None,
        }
    }
}

/// A device that makes objects, opened. Each step of an object's life is a call of its own, so that it can be timed apart.
pub trait ObjectDevice {
    /// Names the device for the record: `card0, vgem 1.0.0`, a renderer's name.
    fn describe(&self) -> String;

    /// Returns the memory in which objects are mapped.
    fn memory(&self) -> &dyn Memory;

    /// Makes an object of `length` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// As the device says: `ENOMEM`, `EMFILE`, `ENOSPC` where it has no more; more than the [`Room`] that was asked for.
    fn create(&mut self, length: Bytes) -> Result<Object>;

    /// Maps the whole object, to be read and written. Nothing happens to a mapped one.
    ///
    /// # Errors
    /// As mmap(2) and the ioctl before it.
    fn map(&mut self, object: &mut Object) -> Result<()>;

    /// Writes one byte of each of its pages.
    ///
    /// # Errors
    /// Where it is not mapped.
    fn touch(&mut self, object: &mut Object) -> Result<()> {
        let mapping = object.mapping.as_ref();
        let mapping = mapping.ok_or_else(|| not_mapped("touch"))?;
        self.memory().touch(mapping, Bytes(0), object.length)
    }

    /// Unmaps it.
    ///
    /// # Errors
    /// As munmap(2), or where it is not mapped.
    fn unmap(&mut self, object: &mut Object) -> Result<()> {
        let mapping = object.mapping.take();
        let mapping = mapping.ok_or_else(|| not_mapped("munmap"))?;
        self.memory().unmap(mapping)
    }

    /// Destroys it; unmaps it first where it is mapped.
    ///
    /// # Errors
    /// As the device says, and those of [`ObjectDevice::unmap`].
    fn destroy(&mut self, object: Object) -> Result<()>;
}

pub(crate) fn not_mapped(call: &'static str) -> Error {
    Error::refusal(call, "an object that is not mapped", libc::EINVAL)
}

/// A region of a PCI device that a program may read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// Base address register 0.
    Bar0,
    /// Configuration space.
    Config,
}

/// A PCI device that was handed to us, in a container of its own (type 1). Closed, it is reset and forgets all mappings.
pub trait Vfio {
    /// Sizes of page that the IOMMU maps, ascending; empty where the kernel does not say.
    fn page_sizes(&self) -> Vec<Bytes>;

    /// Device addresses that may be mapped, ascending; empty where the kernel does not say (before 5.4).
    fn device_addresses(&self) -> &[AddressRange];

    /// Makes the whole of `mapping` (locked in memory, counted against `RLIMIT_MEMLOCK`) reachable for the device, to
    /// be read and written, from `iova` on. Device addresses, as IOMMUs and VFIO have them, begin at 0.
    ///
    /// # Errors
    /// As `VFIO_IOMMU_MAP_DMA`: `EEXIST` where something is mapped there, `EINVAL` where it is not page aligned or
    /// not for this IOMMU, `ENOMEM` beyond the limit of locked memory.
    fn map_dma(&mut self, iova: u64, mapping: &Mapping) -> Result<()>;

    /// Takes what was mapped as a whole at `iova` back; bytes that were unmapped, 0 where nothing was there.
    ///
    /// # Errors
    /// As `VFIO_IOMMU_UNMAP_DMA`: `EINVAL` where a part of a mapping is left.
    fn unmap_dma(&mut self, iova: u64, length: Bytes) -> Result<Bytes>;

    /// Reads a register of four bytes.
    ///
    /// # Errors
    /// As pread(2), or where it lies outside of the region.
    fn read_register(&mut self, region: Region, offset: u64) -> Result<u32>;

    /// Writes a register of four bytes.
    ///
    /// # Errors
    /// As pwrite(2), or where it lies outside of the region.
    fn write_register(&mut self, region: Region, offset: u64, value: u32) -> Result<()>;
}

/// Devices.
pub trait Devices {
    /// Opens a device that makes objects; `room` of them are made sure of where that takes a limit of open files or a
    /// file behind them.
    ///
    /// # Errors
    /// Where the device is missing or not permitted: what to load, install or become; where the limit of open files cannot be
    /// raised so far.
    fn objects(&self, maker: &Maker, room: Room) -> Result<Box<dyn ObjectDevice + '_>>;

    /// Opens a PCI device that is bound to `vfio-pci`, alone in a container of type 1.
    ///
    /// # Errors
    /// Where there is no VFIO, no IOMMU or no type 1 (each with what to load), the device is not bound, its group is
    /// not viable (others in it have drivers), or somebody else has it open.
    fn vfio(&self, address: PciAddress) -> Result<Box<dyn Vfio + '_>>;

    /// Copies `bytes` into a mapping from `offset` on.
    ///
    /// # Errors
    /// When the part leaves the mapping, or it is not writable.
    fn store(&self, mapping: &Mapping, offset: Bytes, bytes: &[u8]) -> Result<()>;

    /// Copies as much out of a mapping from `offset` on as `into` holds.
    ///
    /// # Errors
    /// When the part leaves the mapping.
    fn load(&self, mapping: &Mapping, offset: Bytes, into: &mut [u8]) -> Result<()>;
}

#[cfg(test)]
mod tests;
