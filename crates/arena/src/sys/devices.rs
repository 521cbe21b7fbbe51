//! Devices that make buffers: their ioctls, as the kernel's headers have them (Linux 6.12, `include/uapi`).
//!
//! Each structure's size is part of the ioctl's number: a kernel with another one refuses the call (`ENOTTY`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode, Updater, opcode};

use super::call;
use crate::error::Result;

/// `struct dma_heap_allocation_data`, dma-heap.h.
#[repr(C)]
struct HeapAllocation {
    length: u64,
    fd: u32,
    fd_flags: u32,
    heap_flags: u64,
}

/// `struct udmabuf_create`, udmabuf.h.
#[repr(C)]
struct UdmabufCreate {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// `struct drm_mode_create_dumb`, drm_mode.h.
#[repr(C)]
#[derive(Default)]
struct CreateDumb {
    height: u32,
    width: u32,
    bits_per_pixel: u32,
    flags: u32,
    handle: u32,
    pitch: u32,
    size: u64,
}

/// `struct drm_mode_map_dumb`, drm_mode.h.
#[repr(C)]
struct MapDumb {
    handle: u32,
    pad: u32,
    offset: u64,
}

const HEAP_ALLOCATE: Opcode = opcode::read_write::<HeapAllocation>(b'H', 0x0);
const UDMABUF_CREATE: Opcode = opcode::write::<UdmabufCreate>(b'u', 0x42);
const CREATE_DUMB: Opcode = opcode::read_write::<CreateDumb>(b'd', 0xB2);
const MAP_DUMB: Opcode = opcode::read_write::<MapDumb>(b'd', 0xB3);
const DESTROY_DUMB: Opcode = opcode::read_write::<u32>(b'd', 0xB4);

/// Opens a device's file.
pub(crate) fn open(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    call("open", || fs::open(path, flags, Mode::empty()))
}

/// Carries out `CODE`, again where a signal came first.
///
/// # Safety
/// `CODE` takes a pointer to a `T`, and reads and writes no more than that.
unsafe fn update<const CODE: Opcode, T>(
    name: &'static str,
    device: BorrowedFd<'_>,
    value: &mut T,
) -> Result<()> {
    call(name, || {
        rustix::io::retry_on_intr(|| {
            // SAFETY: the caller's promise; the reference lives through the call.
            unsafe { ioctl::ioctl(device, Updater::<'_, CODE, T>::new(value)) }
        })
    })
}

/// Makes a buffer of a dma-heap.
pub(crate) fn allocate(heap: BorrowedFd<'_>, bytes: u64) -> Result<OwnedFd> {
    let mut made = HeapAllocation {
        length: bytes,
        fd: 0,
        fd_flags: (OFlags::RDWR | OFlags::CLOEXEC).bits(),
        heap_flags: 0,
    };
    // SAFETY: the header's number and structure.
    unsafe { update::<HEAP_ALLOCATE, _>("ioctl(DMA_HEAP_IOCTL_ALLOC)", heap, &mut made)? };
    // SAFETY: the kernel has just made this descriptor; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(made.fd.cast_signed()) })
}

/// `UDMABUF_CREATE`, which returns a descriptor.
struct MakeOfMemfd(UdmabufCreate);

// SAFETY: the header's number, and a pointer to its structure, which the kernel reads only; it answers with a new descriptor.
unsafe impl Ioctl for MakeOfMemfd {
    type Output = OwnedFd;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        UDMABUF_CREATE
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(
        answer: IoctlOutput,
        _: *mut rustix::ffi::c_void,
    ) -> std::result::Result<OwnedFd, Errno> {
        // SAFETY: the kernel has just made this descriptor; nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(answer) })
    }
}

/// Makes a dma-buf of a memfd's first `bytes`. The memfd must be sealed against shrinking, and not against writing.
pub(crate) fn dma_buf_of(
    device: BorrowedFd<'_>,
    memfd: BorrowedFd<'_>,
    bytes: u64,
) -> Result<OwnedFd> {
    let create = || {
        MakeOfMemfd(UdmabufCreate {
            memfd: memfd.as_raw_fd().cast_unsigned(),
            flags: 1, // UDMABUF_FLAGS_CLOEXEC
            offset: 0,
            size: bytes,
        })
    };
    call("ioctl(UDMABUF_CREATE)", || {
        rustix::io::retry_on_intr(|| {
            // SAFETY: the header's number and structure.
            unsafe { ioctl::ioctl(device, create()) }
        })
    })
}

/// Makes a dumb buffer of at least `bytes`, a row of pixels of 4 bytes: its handle, and its length.
pub(crate) fn create_dumb(card: BorrowedFd<'_>, width: u32) -> Result<(u32, u64)> {
    let mut dumb = CreateDumb {
        height: 1,
        width,
        bits_per_pixel: 32,
        ..CreateDumb::default()
    };
    // SAFETY: the header's number and structure.
    unsafe { update::<CREATE_DUMB, _>("ioctl(DRM_IOCTL_MODE_CREATE_DUMB)", card, &mut dumb)? };
    Ok((dumb.handle, dumb.size))
}

/// The offset at which a card's file has a dumb buffer.
pub(crate) fn offset_of_dumb(card: BorrowedFd<'_>, handle: u32) -> Result<u64> {
    let mut map = MapDumb {
        handle,
        pad: 0,
        offset: 0,
    };
    // SAFETY: the header's number and structure.
    unsafe { update::<MAP_DUMB, _>("ioctl(DRM_IOCTL_MODE_MAP_DUMB)", card, &mut map)? };
    Ok(map.offset)
}

/// Destroys a dumb buffer: its memory stays as long as it is mapped.
pub(crate) fn destroy_dumb(card: impl AsFd, mut handle: u32) -> Result<()> {
    let name = "ioctl(DRM_IOCTL_MODE_DESTROY_DUMB)";
    // SAFETY: the header's number; its structure is this number.
    unsafe { update::<DESTROY_DUMB, _>(name, card.as_fd(), &mut handle) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a C compiler prints them, x86-64 and arm64.
    #[test]
    fn numbers_are_the_headers() {
        assert_eq!(HEAP_ALLOCATE, 0xc018_4800);
        assert_eq!(UDMABUF_CREATE, 0x4018_7542);
        assert_eq!(CREATE_DUMB, 0xc020_64b2);
        assert_eq!(MAP_DUMB, 0xc010_64b3);
        assert_eq!(DESTROY_DUMB, 0xc004_64b4);
    }

    /// A device that knows no such ioctl.
    #[test]
    fn another_device_refuses() {
        let zero = open(Path::new("/dev/zero")).unwrap();
        let memfd = super::super::files::memfd(c"test", 4_096, fs::SealFlags::SHRINK).unwrap();
        let refused = Errno::NOTTY;
        assert!(allocate(zero.as_fd(), 4_096).unwrap_err().is(&[refused]));
        let made = dma_buf_of(zero.as_fd(), memfd.as_fd(), 4_096);
        assert!(made.unwrap_err().is(&[refused]));
        assert!(create_dumb(zero.as_fd(), 1).unwrap_err().is(&[refused]));
        assert!(offset_of_dumb(zero.as_fd(), 1).unwrap_err().is(&[refused]));
        assert!(destroy_dumb(&zero, 1).unwrap_err().is(&[refused]));
    }
}
