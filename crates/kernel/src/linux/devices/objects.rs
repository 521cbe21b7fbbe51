//! Objects of device files: GEM, dma-heap, udmabuf, and a device that is mapped itself.

use std::ffi::c_char;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
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
/// Bits of a pixel of a dumb buffer: four bytes.
const PIXEL_BITS: u32 = 32;
const PIXEL: u64 = 4;

fn whole_pages(length: Bytes) -> Result<Bytes> {
    let page = Linux.page_size();
    let length = length
        .0
        .checked_next_multiple_of(page.0)
        .filter(|&length| length > 0);
    length.map(Bytes).ok_or_else(|| {
        let empty = std::io::Error::from_raw_os_error(libc::EINVAL);
        Error::call("an object of", "0 or too many bytes", empty)
    })
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
    let range = AddressRange {
        start,
        end: start + length.0,
    };
    Ok(Mapping::new(range, true, Origin::Kernel))
}

fn not_ours(object: &Object) -> Error {
    Error::unsupported(format!("{:?}", object.handle), "another device made it")
}

/// How objects are touched and unmapped, whatever made them.
fn touch(object: &Object) -> Result<()> {
    let mapping = object.mapping.as_ref().ok_or_else(|| not_mapped("touch"))?;
    Linux.touch(mapping, Bytes(0), object.length)
}

fn unmap(object: &mut Object) -> Result<()> {
    Linux.unmap(object.mapping.take().ok_or_else(|| not_mapped("munmap"))?)
}

pub(super) fn not_mapped(call: &'static str) -> Error {
    let not_there = std::io::Error::from_raw_os_error(libc::EINVAL);
    Error::call(call, "an object that is not mapped", not_there)
}

/// The driver vgem's card.
pub(super) struct Vgem {
    card: OwnedFd,
    path: PathBuf,
    version: (i32, i32, i32),
}

const CARDS: &str = "/sys/class/drm";
const NO_VGEM: &str =
    "as root: modprobe vgem (Debian: in the generic kernel's package, not in the cloud kernel's)";

impl Vgem {
    /// Finds it in `/sys`, so that no other card is opened: who opens one that nobody has becomes its master.
    pub(super) fn open(system: Linux) -> Result<Vgem> {
        let none = || Error::unsupported("vgem", format!("no card of the driver vgem; {NO_VGEM}"));
        let names = match system.list(Path::new(CARDS)) {
            Err(error) if error.is_absent() => return Err(none()),
            names => names?,
        };
        let is_vgem = |name: &&String| {
            let number = name.strip_prefix("card").unwrap_or_default();
            let link = system.link(&Path::new(CARDS).join(name)).ok();
            let parts = link.as_deref().map(Path::components).into_iter().flatten();
            number.parse::<u32>().is_ok()
                && parts.into_iter().any(|part| part.as_os_str() == "vgem")
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
        let length = version.name_length.min(name.len());
        if &name[..length] != b"vgem" {
            let is = String::from_utf8_lossy(&name[..length]).into_owned();
            return Err(Error::unsupported(
                "vgem",
                format!("{} is of {is}", path.display()),
            ));
        }
        let version = (version.major, version.minor, version.patch);
        Ok(Vgem {
            card,
            path,
            version,
        })
    }

    fn handle(object: &Object) -> Result<u32> {
        match object.handle {
            Handle::Gem(handle) => Ok(handle),
            _ => Err(not_ours(object)),
        }
    }
}

impl ObjectDevice for Vgem {
    fn describe(&self) -> String {
        let (major, minor, patch) = self.version;
        format!("{}, vgem {major}.{minor}.{patch}", self.path.display())
    }

    fn create(&mut self, length: Bytes) -> Result<Object> {
        let length = whole_pages(length)?;
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
        ioctl::ask(&self.card, length, &mut dumb)?;
        let object = Object {
            handle: Handle::Gem(dumb.handle),
            length,
            mapping: None,
        };
        if dumb.size < length.0 {
            let reason = format!("an object of {length} has {} bytes", dumb.size);
            self.destroy(object)?;
            return Err(Error::parse("DRM_IOCTL_MODE_CREATE_DUMB", reason));
        }
        Ok(object)
    }

    fn map(&mut self, object: &mut Object) -> Result<()> {
        if object.mapping.is_none() {
            let mut map = MapDumb {
                handle: Vgem::handle(object)?,
                pad: 0,
                offset: 0,
            };
            ioctl::ask(&self.card, object.length, &mut map)?;
            object.mapping = Some(map_file(&self.card, object.length, map.offset)?);
        }
        Ok(())
    }

    fn touch(&mut self, object: &mut Object) -> Result<()> {
        touch(object)
    }

    fn unmap(&mut self, object: &mut Object) -> Result<()> {
        unmap(object)
    }

    fn destroy(&mut self, mut object: Object) -> Result<()> {
        if object.mapping.is_some() {
            unmap(&mut object)?;
        }
        let mut destroy = DestroyDumb {
            handle: Vgem::handle(&object)?,
        };
        ioctl::ask(&self.card, object.length, &mut destroy).map(drop)
    }
}

/// What dma-bufs have in common, whoever made them.
fn map_buffer(object: &mut Object) -> Result<()> {
    if object.mapping.is_none() {
        let Handle::DmaBuf(fd, _) = &object.handle else {
            return Err(not_ours(object));
        };
        object.mapping = Some(map_file(fd, object.length, 0)?);
    }
    Ok(())
}

/// Gives up the descriptor; the part of the memfd that was behind it.
fn close_buffer(mut object: Object) -> Result<Option<u64>> {
    if object.mapping.is_some() {
        unmap(&mut object)?;
    }
    match object.handle {
        Handle::DmaBuf(fd, part) => {
            drop(fd);
            Ok(part)
        }
        _ => Err(not_ours(&object)),
    }
}

/// `/dev/dma_heap/system`.
pub(super) struct DmaHeap {
    heap: OwnedFd,
}

const HEAP: &str = "/dev/dma_heap/system";
const NO_HEAP: &str =
    "the kernel needs CONFIG_DMABUF_HEAPS_SYSTEM (where it is a module: modprobe system_heap)";

impl DmaHeap {
    pub(super) fn open(system: Linux, room: Room) -> Result<DmaHeap> {
        let path = Path::new(HEAP);
        let heap = open(path).map_err(|e| cannot_open("dma-heap", path, e, NO_HEAP))?;
        system.allow_files(room.objects.saturating_add(OTHER_FILES))?;
        Ok(DmaHeap { heap })
    }
}

impl ObjectDevice for DmaHeap {
    fn describe(&self) -> String {
        HEAP.to_owned()
    }

    fn create(&mut self, length: Bytes) -> Result<Object> {
        let length = whole_pages(length)?;
        let mut allocation = HeapAllocation {
            length: length.0,
            fd: 0,
            fd_flags: (libc::O_RDWR | libc::O_CLOEXEC).cast_unsigned(),
            heap_flags: 0,
        };
        ioctl::ask(&self.heap, length, &mut allocation)?;
        let number = i32::try_from(allocation.fd);
        let number = number.map_err(|e| Error::parse("DMA_HEAP_IOCTL_ALLOC", e))?;
        // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Object {
            handle: Handle::DmaBuf(fd, None),
            length,
            mapping: None,
        })
    }

    fn map(&mut self, object: &mut Object) -> Result<()> {
        map_buffer(object)
    }

    fn touch(&mut self, object: &mut Object) -> Result<()> {
        touch(object)
    }

    fn unmap(&mut self, object: &mut Object) -> Result<()> {
        unmap(object)
    }

    fn destroy(&mut self, object: Object) -> Result<()> {
        close_buffer(object).map(drop)
    }
}

/// `/dev/udmabuf`, and one memfd with a part for each object, as a virtual machine's memory is behind its guest's
/// buffers.
pub(super) struct Udmabuf {
    device: OwnedFd,
    memory: OwnedFd,
    /// Bytes of a part.
    stride: Bytes,
    /// Parts that no object has; the next is the last.
    free: Vec<u64>,
}

const UDMABUF: &str = "/dev/udmabuf";
const NO_UDMABUF: &str = "the kernel needs CONFIG_UDMABUF (where it is a module: modprobe udmabuf)";

/// A dma-buf of `length` bytes of a memfd sealed against shrinking, from `offset` on.
fn dma_buf(device: &OwnedFd, memory: &OwnedFd, offset: u64, length: Bytes) -> Result<OwnedFd> {
    use std::os::fd::AsRawFd;
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

/// The driver takes no file whose end could come nearer, and none that is sealed against writing.
fn seal(memory: &OwnedFd) -> Result<()> {
    fcntl_add_seals(memory, SealFlags::SHRINK)
        .map_err(|e| Error::call("fcntl(F_ADD_SEALS)", "F_SEAL_SHRINK", e))
}

/// A dma-buf of the memfd that is mapped there, all of it, from its start on.
pub(in crate::linux) fn dma_buf_of(mapping: &Mapping) -> Result<OwnedFd> {
    let path = Path::new(UDMABUF);
    let device = open(path).map_err(|e| cannot_open("udmabuf", path, e, NO_UDMABUF))?;
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

impl Udmabuf {
    pub(super) fn open(system: Linux, room: Room) -> Result<Udmabuf> {
        let path = Path::new(UDMABUF);
        let device = open(path).map_err(|e| cannot_open("udmabuf", path, e, NO_UDMABUF))?;
        system.allow_files(room.objects.saturating_add(OTHER_FILES))?;
        let stride = whole_pages(room.largest)?;
        let length = stride
            .0
            .checked_mul(room.objects)
            .filter(|&length| length > 0);
        let length = length
            .ok_or_else(|| Error::unsupported("udmabuf", "no room was asked for, or too much"))?;
        let memory = memfd_create(
            "stopgap-udmabuf",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map_err(|e| Error::call("memfd_create", Bytes(length), e))?;
        ftruncate(&memory, length).map_err(|e| Error::call("ftruncate", Bytes(length), e))?;
        seal(&memory)?;
        Ok(Udmabuf {
            device,
            memory,
            stride,
            free: (0..room.objects).rev().collect(),
        })
    }
}

impl ObjectDevice for Udmabuf {
    fn describe(&self) -> String {
        format!("{UDMABUF}, parts of one memfd")
    }

    fn create(&mut self, length: Bytes) -> Result<Object> {
        let length = whole_pages(length)?;
        let part = self
            .free
            .pop()
            .filter(|_| length <= self.stride)
            .ok_or_else(|| {
                let none = std::io::Error::from_raw_os_error(libc::ENOSPC);
                Error::call(
                    "UDMABUF_CREATE",
                    format!("{length}, beyond the room asked for"),
                    none,
                )
            })?;
        // Inside of the file, whose length is a product of both.
        let offset = part * self.stride.0;
        let fd = dma_buf(&self.device, &self.memory, offset, length)
            .inspect_err(|_| self.free.push(part))?;
        Ok(Object {
            handle: Handle::DmaBuf(fd, Some(part)),
            length,
            mapping: None,
        })
    }

    fn map(&mut self, object: &mut Object) -> Result<()> {
        map_buffer(object)
    }

    fn touch(&mut self, object: &mut Object) -> Result<()> {
        touch(object)
    }

    fn unmap(&mut self, object: &mut Object) -> Result<()> {
        unmap(object)
    }

    fn destroy(&mut self, object: Object) -> Result<()> {
        self.free.extend(close_buffer(object)?);
        Ok(())
    }
}

/// A character device that is mapped itself, always from its offset 0 on: two neighbours never continue one another,
/// so they never merge.
pub(super) struct Plain {
    device: OwnedFd,
    path: PathBuf,
}

impl Plain {
    pub(super) fn open(_: Linux, path: &Path) -> Result<Plain> {
        let what = format!("device:{}", path.display());
        let device = open(path).map_err(|e| cannot_open(&what, path, e, "load its driver"))?;
        let kind =
            rustix::fs::fstat(&device).map_err(|e| Error::call("fstat", path.display(), e))?;
        if rustix::fs::FileType::from_raw_mode(kind.st_mode)
            != rustix::fs::FileType::CharacterDevice
        {
            return Err(Error::unsupported(what, "it is no character device"));
        }
        Ok(Plain {
            device,
            path: path.to_owned(),
        })
    }
}

impl ObjectDevice for Plain {
    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn create(&mut self, length: Bytes) -> Result<Object> {
        Ok(Object {
            handle: Handle::Device,
            length: whole_pages(length)?,
            mapping: None,
        })
    }

    fn map(&mut self, object: &mut Object) -> Result<()> {
        if object.mapping.is_none() {
            object.mapping = Some(map_file(&self.device, object.length, 0)?);
        }
        Ok(())
    }

    fn touch(&mut self, object: &mut Object) -> Result<()> {
        touch(object)
    }

    fn unmap(&mut self, object: &mut Object) -> Result<()> {
        unmap(object)
    }

    fn destroy(&mut self, mut object: Object) -> Result<()> {
        match object.mapping {
            Some(_) => unmap(&mut object),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/dev/zero` is on every machine, and can be mapped and touched: each step in its order and out of it.
    #[test]
    fn a_device_is_mapped_touched_and_unmapped() {
        let mut device = Plain::open(Linux, Path::new("/dev/zero")).unwrap();
        let mut object = device.create(Bytes(4_000)).unwrap();
        assert_eq!(object.length(), Linux.page_size());
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
        let refusal = |path: &str| {
            Plain::open(Linux, Path::new(path))
                .err()
                .unwrap()
                .to_string()
        };
        assert_eq!(
            refusal("/dev/stopgap-none"),
            "device:/dev/stopgap-none: there is no /dev/stopgap-none; load its driver"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(refusal(file.path().to_str().unwrap()).ends_with("it is no character device"));
    }
}
