//! Objects of device files: GEM, dma-heap, udmabuf, and a device that is mapped itself.

use std::ffi::c_char;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

use rustix::fs::{FileType, SealFlags, fcntl_add_seals, fstat};
use rustix::mm::{self, MapFlags, ProtFlags};
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

use super::super::Linux;
use super::ioctl::{
    self, CreateDumb, DestroyDumb, DrmVersion, HeapAllocation, MapDumb, UdmabufCreate,
};
use super::{cannot_open, open};
use crate::devices::{Handle, Object, ObjectDevice, Room};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::ipc::Ipc;
use crate::memory::{Mapping, Memory, Origin};

/// Open files that a process has beside its objects'.
const OTHER_FILES: u64 = 64;
/// Bits and bytes of a pixel of a dumb buffer.
const PIXEL_BITS: u32 = 32;
const PIXEL: u64 = 4;

const CARDS: &str = "/sys/class/drm";
const NO_VGEM: &str =
    "as root: modprobe vgem (Debian: in the generic kernel's package, not in the cloud kernel's)";
const HEAP: &str = "/dev/dma_heap/system";
const NO_HEAP: &str =
    "the kernel needs CONFIG_DMABUF_HEAPS_SYSTEM (where it is a module: modprobe system_heap)";
const UDMABUF: &str = "/dev/udmabuf";
const NO_UDMABUF: &str = "the kernel needs CONFIG_UDMABUF (where it is a module: modprobe udmabuf)";

/// An open device file, and how it makes objects.
pub(super) struct Objects {
    device: OwnedFd,
    description: String,
    kind: Kind,
}

enum Kind {
    /// GEM objects of a DRM card, as dumb buffers.
    Gem,
    /// dma-bufs of a heap.
    Heap,
    /// dma-bufs of parts of one memfd, as a virtual machine's memory is behind its guest's buffers.
    Udmabuf {
        memory: OwnedFd,
        /// Bytes of a part.
        stride: Bytes,
        /// Parts that no object has; the next is the last.
        free: Vec<u64>,
    },
    /// No objects: the device is mapped itself, always from its offset 0 on. Two neighbours never continue one another,
    /// so they never merge.
    Plain,
}

impl Objects {
    fn new(device: OwnedFd, description: impl Into<String>, kind: Kind) -> Objects {
        Objects {
            device,
            description: description.into(),
            kind,
        }
    }

    pub(super) fn vgem() -> Result<Objects> {
        let (card, description) = vgem_card()?;
        Ok(Objects::new(card, description, Kind::Gem))
    }

    pub(super) fn heap(room: Room) -> Result<Objects> {
        let path = Path::new(HEAP);
        let heap = open(path).map_err(|e| cannot_open("dma-heap", path, e, NO_HEAP))?;
        Linux.allow_files(room.objects.saturating_add(OTHER_FILES))?;
        Ok(Objects::new(heap, HEAP, Kind::Heap))
    }

    pub(super) fn udmabuf(room: Room) -> Result<Objects> {
        let device = open_udmabuf()?;
        Linux.allow_files(room.objects.saturating_add(OTHER_FILES))?;
        let stride = whole_pages(room.largest)?;
        let length = stride.0.checked_mul(room.objects);
        let length = length
            .filter(|&length| length > 0)
            .ok_or_else(|| Error::unsupported("udmabuf", "no room was asked for, or too much"))?;
        let file = Linux.mem_file(Bytes(length))?.fd;
        let memory = file.ok_or_else(|| Error::unsupported("udmabuf", "no file in memory"))?;
        seal(&memory)?;
        let free = (0..room.objects).rev().collect();
        let kind = Kind::Udmabuf {
            memory,
            stride,
            free,
        };
        let description = format!("{UDMABUF}, parts of one memfd");
        Ok(Objects::new(device, description, kind))
    }

    /// Opens a character device that is mapped itself.
    pub(super) fn plain(path: &Path) -> Result<Objects> {
        let what = format!("device:{}", path.display());
        let device = open(path).map_err(|e| cannot_open(&what, path, e, "load its driver"))?;
        let stat = fstat(&device).map_err(|e| Error::call("fstat", path.display(), e))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice {
            return Err(Error::unsupported(what, "it is no character device"));
        }
        let description = path.display().to_string();
        Ok(Objects::new(device, description, Kind::Plain))
    }
}

impl ObjectDevice for Objects {
    fn describe(&self) -> String {
        self.description.clone()
    }

    fn memory(&self) -> &dyn Memory {
        &Linux
    }

    fn create(&mut self, length: Bytes) -> Result<Object> {
        let length = whole_pages(length)?;
        let handle = match &mut self.kind {
            Kind::Plain => Handle::Device,
            Kind::Gem => {
                let width = u32::try_from(length.0 / PIXEL);
                let mut dumb = CreateDumb {
                    height: 1,
                    width: width.map_err(|e| Error::parse("the width of a dumb buffer", e))?,
                    bits_per_pixel: PIXEL_BITS,
                    flags: 0,
                    handle: 0,
                    pitch: 0,
                    size: 0,
                };
                ioctl::ask(&self.device, length, &mut dumb)?;
                let handle = Handle::Gem(dumb.handle);
                if dumb.size < length.0 {
                    let reason = format!("an object of {length} has {} bytes", dumb.size);
                    self.destroy(Object::new(handle, length))?;
                    return Err(Error::parse("DRM_IOCTL_MODE_CREATE_DUMB", reason));
                }
                handle
            }
            Kind::Heap => {
                let mut allocation = HeapAllocation {
                    length: length.0,
                    fd: 0,
                    fd_flags: (libc::O_RDWR | libc::O_CLOEXEC).cast_unsigned(),
                    heap_flags: 0,
                };
                ioctl::ask(&self.device, length, &mut allocation)?;
                let number = i32::try_from(allocation.fd);
                let number = number.map_err(|e| Error::parse("DMA_HEAP_IOCTL_ALLOC", e))?;
                // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
                Handle::DmaBuf(unsafe { OwnedFd::from_raw_fd(number) }, None)
            }
            Kind::Udmabuf {
                memory,
                stride,
                free,
            } => {
                let part = free.pop().filter(|_| length <= *stride);
                let part = part.ok_or_else(|| {
                    let beyond = format!("{length}, beyond the room asked for");
                    Error::refusal("UDMABUF_CREATE", beyond, libc::ENOSPC)
                })?;
                // Inside of the file, whose length is a product of both.
                let fd = dma_buf(&self.device, memory, part * stride.0, length)
                    .inspect_err(|_| free.push(part))?;
                Handle::DmaBuf(fd, Some(part))
            }
        };
        Ok(Object::new(handle, length))
    }

    fn map(&mut self, object: &mut Object) -> Result<()> {
        if object.mapping.is_some() {
            return Ok(());
        }
        object.mapping = Some(match (&object.handle, &self.kind) {
            (Handle::Gem(handle), Kind::Gem) => {
                let mut map = MapDumb {
                    handle: *handle,
                    pad: 0,
                    offset: 0,
                };
                ioctl::ask(&self.device, object.length, &mut map)?;
                map_file(&self.device, object.length, map.offset)?
            }
            (Handle::DmaBuf(fd, _), Kind::Heap | Kind::Udmabuf { .. }) => {
                map_file(fd, object.length, 0)?
            }
            (Handle::Device, Kind::Plain) => map_file(&self.device, object.length, 0)?,
            _ => return Err(not_ours(object)),
        });
        Ok(())
    }

    fn destroy(&mut self, mut object: Object) -> Result<()> {
        if object.mapping.is_some() {
            self.unmap(&mut object)?;
        }
        match (object.handle, &mut self.kind) {
            (Handle::Gem(handle), Kind::Gem) => {
                let mut destroy = DestroyDumb { handle };
                ioctl::ask(&self.device, object.length, &mut destroy).map(drop)
            }
            (Handle::DmaBuf(fd, part), Kind::Udmabuf { free, .. }) => {
                drop(fd);
                free.extend(part);
                Ok(())
            }
            (Handle::DmaBuf(..), Kind::Heap) | (Handle::Device, Kind::Plain) => Ok(()),
            (handle, _) => Err(not_ours(&Object::new(handle, object.length))),
        }
    }
}

/// Opens the card of the driver vgem. `/sys` names it, so no other card is opened: the process that opens a card
/// without a master becomes its master. Beside it, its name and version.
pub(super) fn vgem_card() -> Result<(OwnedFd, String)> {
    let none = || Error::unsupported("vgem", format!("no card of the driver vgem; {NO_VGEM}"));
    let names = match Linux.list(Path::new(CARDS)) {
        Err(error) if error.is_absent() => return Err(none()),
        names => names?,
    };
    let is_vgem = |name: &&String| {
        let number = name.strip_prefix("card").unwrap_or_default();
        let link = Linux.link(&Path::new(CARDS).join(name)).unwrap_or_default();
        number.parse::<u32>().is_ok() && link.iter().any(|part| part == "vgem")
    };
    let card = names.iter().find(is_vgem).ok_or_else(none)?;
    let path = Path::new("/dev/dri").join(card);
    let card = open(&path).map_err(|e| cannot_open("vgem", &path, e, NO_VGEM))?;
    let mut name = [0_u8; 16];
    let mut version = DrmVersion {
        major: 0,
        minor: 0,
        patch: 0,
        pad: 0,
        name_length: name.len(),
        name: name.as_mut_ptr().cast::<c_char>(),
        date_length: 0,
        date: ptr::null_mut(),
        description_length: 0,
        description: ptr::null_mut(),
    };
    ioctl::ask(&card, path.display(), &mut version)?;
    let name = &name[..version.name_length.min(name.len())];
    let path = path.display();
    if name != b"vgem" {
        let is = String::from_utf8_lossy(name);
        return Err(Error::unsupported("vgem", format!("{path} is of {is}")));
    }
    let DrmVersion {
        major,
        minor,
        patch,
        ..
    } = version;
    let description = format!("{path}, vgem {major}.{minor}.{patch}");
    Ok((card, description))
}

fn not_ours(object: &Object) -> Error {
    Error::unsupported(format!("{:?}", object.handle), "another device made it")
}

fn whole_pages(length: Bytes) -> Result<Bytes> {
    let whole = length.0.checked_next_multiple_of(Linux.page_size().0);
    let whole = whole.filter(|&length| length > 0).map(Bytes);
    whole.ok_or_else(|| Error::refusal("an object of", "0 or too many bytes", libc::EINVAL))
}

/// Maps `length` bytes of a device or dma-buf, shared.
fn map_file(fd: impl AsFd, length: Bytes, offset: u64) -> Result<Mapping> {
    let size = usize::try_from(length.0).map_err(|e| Error::parse("a length", e))?;
    // SAFETY: without MAP_FIXED the kernel chooses addresses that nothing else uses; no reference
    // into the mapping is handed out.
    let address = unsafe {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        mm::mmap(ptr::null_mut(), size, prot, MapFlags::SHARED, fd, offset)
    }
    .map_err(|e| Error::call("mmap", length, e))?;
    let start = address as u64;
    let end = start + length.0;
    Ok(Mapping::new(
        AddressRange { start, end },
        true,
        Origin::Kernel,
    ))
}

fn open_udmabuf() -> Result<OwnedFd> {
    let path = Path::new(UDMABUF);
    open(path).map_err(|e| cannot_open("udmabuf", path, e, NO_UDMABUF))
}

/// Makes a dma-buf of `length` bytes of a memfd sealed against shrinking, from `offset` on.
fn dma_buf(device: &OwnedFd, memory: &OwnedFd, offset: u64, length: Bytes) -> Result<OwnedFd> {
    let mut create = UdmabufCreate {
        memfd: memory.as_raw_fd().cast_unsigned(),
        flags: 1, // UDMABUF_FLAGS_CLOEXEC
        offset,
        size: length.0,
    };
    let number = ioctl::ask(device, length, &mut create)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Seals a memfd against shrinking. The driver takes no file whose end could come nearer, and none that is sealed against
/// writing.
fn seal(memory: &OwnedFd) -> Result<()> {
    fcntl_add_seals(memory, SealFlags::SHRINK)
        .map_err(|e| Error::call("fcntl(F_ADD_SEALS)", "F_SEAL_SHRINK", e))
}

/// Makes a dma-buf of the memfd that is mapped there, all of it, from its start on.
pub(in crate::linux) fn dma_buf_of(mapping: &Mapping) -> Result<OwnedFd> {
    let device = open_udmabuf()?;
    let range = mapping.range();
    let file = format!("/proc/self/map_files/{:x}-{:x}", range.start, range.end);
    let memory = open(Path::new(&file)).map_err(|error| {
        let advice =
            format!("the file of a mapping cannot be opened again ({error}); as root it can");
        Error::unsupported("udmabuf", advice)
    })?;
    seal(&memory)?;
    dma_buf(&device, &memory, 0, range.length())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/dev/zero` is on every machine, and can be mapped and touched: each step in its order and out of it.
    #[test]
    fn a_device_is_mapped_touched_and_unmapped() {
        let mut device = Objects::plain(Path::new("/dev/zero")).unwrap();
        let mut object = device.create(Bytes(4_000)).unwrap();
        assert_eq!(object.length, Linux.page_size());
        assert!(device.touch(&mut object).is_err(), "not mapped yet");
        assert!(device.unmap(&mut object).is_err());
        device.map(&mut object).unwrap();
        let range = object.mapping.as_ref().unwrap().range();
        device.map(&mut object).unwrap();
        assert_eq!(
            object.mapping.as_ref().unwrap().range(),
            range,
            "mapped once"
        );
        device.touch(&mut object).unwrap();
        device.unmap(&mut object).unwrap();
        device.map(&mut object).unwrap();
        device.destroy(object).unwrap();
        assert!(device.create(Bytes(0)).is_err());
        assert!(device.create(Bytes(u64::MAX)).is_err());
    }

    #[test]
    fn what_is_no_device_is_said() {
        let refusal = |path: &str| Objects::plain(Path::new(path)).err().unwrap().to_string();
        assert_eq!(
            refusal("/dev/stopgap-none"),
            "device:/dev/stopgap-none: there is no /dev/stopgap-none; load its driver"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(refusal(file.path().to_str().unwrap()).ends_with("it is no character device"));
    }
}
