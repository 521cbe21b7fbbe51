//! The ioctls of devices: numbers and arguments as the kernel's headers have them (Linux 6.12, `include/uapi`).
//!
//! An argument is `repr(C)` without padding, and its size is part of the number, so that a wrong one is `ENOTTY`, not
//! memory that is overwritten; the sizes are checked here too, against the headers'.

use std::ffi::{c_char, c_int, c_ulong};
use std::os::fd::{AsFd, AsRawFd};

use rustix::ioctl::{Opcode, opcode};

use crate::error::{Error, Result};

/// An argument of an ioctl: a structure of the kernel's that holds numbers alone, or pointers to what outlives the call.
///
/// # Safety
/// `NUMBER` is of an ioctl that takes a pointer to this structure, reads and writes no more than it, and, of what it
/// points to, no more than it says.
pub(super) unsafe trait Argument {
    /// Its number.
    const NUMBER: Opcode;
    /// Its name, for errors.
    const NAME: &'static str;
}

macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident($call:literal, $number:expr, $size:literal) {
        $($field:ident: $kind:ty),+ $(,)?
    })+) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy)]
            pub(super) struct $name {
                $(pub(super) $field: $kind),+
            }

            const _: () = assert!(size_of::<$name>() == $size);

            // SAFETY: number, fields and size are the header's; an ioctl with this number takes a
            // pointer to this structure.
            unsafe impl Argument for $name {
                const NUMBER: Opcode = $number;
                const NAME: &'static str = $call;
            }
        )+
    };
}

/// Type and first number of VFIO's ioctls, which carry no size: the structures begin with it.
const fn vfio(number: u8) -> Opcode {
    opcode::none(b';', 100 + number)
}

arguments! {
    /// `struct drm_version`, drm.h.
    DrmVersion("DRM_IOCTL_VERSION", opcode::read_write::<DrmVersion>(b'd', 0x00), 64) {
        major: c_int, minor: c_int, patch: c_int, pad: c_int,
        name_length: usize, name: *mut c_char,
        date_length: usize, date: *mut c_char,
        description_length: usize, description: *mut c_char,
    }
    /// `struct drm_mode_create_dumb`, drm_mode.h.
    CreateDumb("DRM_IOCTL_MODE_CREATE_DUMB", opcode::read_write::<CreateDumb>(b'd', 0xB2), 32) {
        height: u32, width: u32, bits_per_pixel: u32, flags: u32,
        handle: u32, pitch: u32, size: u64,
    }
    /// `struct drm_mode_map_dumb`, drm_mode.h.
    MapDumb("DRM_IOCTL_MODE_MAP_DUMB", opcode::read_write::<MapDumb>(b'd', 0xB3), 16) {
        handle: u32, pad: u32, offset: u64,
    }
    /// `struct drm_mode_destroy_dumb`, drm_mode.h.
    DestroyDumb("DRM_IOCTL_MODE_DESTROY_DUMB", opcode::read_write::<DestroyDumb>(b'd', 0xB4), 4) {
        handle: u32,
    }
    /// `struct dma_heap_allocation_data`, dma-heap.h.
    HeapAllocation("DMA_HEAP_IOCTL_ALLOC", opcode::read_write::<HeapAllocation>(b'H', 0x0), 24) {
        length: u64, fd: u32, fd_flags: u32, heap_flags: u64,
    }
    /// `struct udmabuf_create`, udmabuf.h.
    UdmabufCreate("UDMABUF_CREATE", opcode::write::<UdmabufCreate>(b'u', 0x42), 24) {
        memfd: u32, flags: u32, offset: u64, size: u64,
    }
    /// `struct vfio_group_status`, vfio.h.
    GroupStatus("VFIO_GROUP_GET_STATUS", vfio(3), 8) {
        argsz: u32, flags: u32,
    }
    /// The container's descriptor, vfio.h.
    SetContainer("VFIO_GROUP_SET_CONTAINER", vfio(4), 4) {
        container: c_int,
    }
    /// `struct vfio_region_info`, vfio.h.
    RegionInfo("VFIO_DEVICE_GET_REGION_INFO", vfio(8), 32) {
        argsz: u32, flags: u32, index: u32, cap_offset: u32, size: u64, offset: u64,
    }
    /// `struct vfio_iommu_type1_dma_map`, vfio.h.
    DmaMap("VFIO_IOMMU_MAP_DMA", vfio(13), 32) {
        argsz: u32, flags: u32, vaddr: u64, iova: u64, size: u64,
    }
    /// `struct vfio_iommu_type1_dma_unmap`, vfio.h.
    DmaUnmap("VFIO_IOMMU_UNMAP_DMA", vfio(14), 24) {
        argsz: u32, flags: u32, iova: u64, size: u64,
    }
    /// `struct vfio_iommu_type1_info`, vfio.h, with room for what follows it.
    IommuInfo("VFIO_IOMMU_GET_INFO", vfio(12), 1024) {
        argsz: u32, flags: u32, page_sizes: u64, cap_offset: u32, pad: u32,
        capabilities: [u8; IommuInfo::CAPABILITIES],
    }
}

impl IommuInfo {
    /// Bytes before the capabilities.
    pub(super) const HEADER: usize = 24;
    /// Bytes of room for them.
    pub(super) const CAPABILITIES: usize = 1000;
}

/// Bytes of a structure of VFIO, as its first field says them.
pub(super) fn argsz<T>() -> u32 {
    size_of::<T>() as u32
}

/// An ioctl of a number that takes a plain number, and what it answers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Plain {
    /// `VFIO_GET_API_VERSION`.
    ApiVersion,
    /// `VFIO_CHECK_EXTENSION`.
    CheckExtension,
    /// `VFIO_SET_IOMMU`.
    SetIommu,
}

impl Plain {
    fn number(self) -> Opcode {
        match self {
            Plain::ApiVersion => vfio(0),
            Plain::CheckExtension => vfio(1),
            Plain::SetIommu => vfio(2),
        }
    }
    fn name(self) -> &'static str {
        match self {
            Plain::ApiVersion => "VFIO_GET_API_VERSION",
            Plain::CheckExtension => "VFIO_CHECK_EXTENSION",
            Plain::SetIommu => "VFIO_SET_IOMMU",
        }
    }
}

fn answer(name: &'static str, on: impl ToString, status: c_int) -> Result<c_int> {
    match status {
        -1 => Err(Error::last(name, on)),
        status => Ok(status),
    }
}

/// Asks `fd`; where a signal came first, again, as libdrm does.
#[allow(clippy::needless_pass_by_value)] // a reference to a descriptor, or a length
pub(super) fn ask<T: Argument>(
    fd: impl AsFd,
    on: impl ToString,
    argument: &mut T,
) -> Result<c_int> {
    loop {
        // SAFETY: by `Argument` the ioctl takes a pointer to a `T` and stays inside of it; the
        // reference is to one that lives through the call.
        let status = unsafe {
            libc::ioctl(
                fd.as_fd().as_raw_fd(),
                T::NUMBER.into(),
                std::ptr::from_mut(argument),
            )
        };
        match answer(T::NAME, on.to_string(), status) {
            Err(error) if error.errno() == Some(libc::EINTR) => {}
            answered => return answered,
        }
    }
}

/// Asks `fd` with a number.
#[allow(clippy::needless_pass_by_value)] // a reference to a descriptor, or a length
pub(super) fn ask_plain(
    fd: impl AsFd,
    on: impl ToString,
    plain: Plain,
    number: c_ulong,
) -> Result<c_int> {
    // SAFETY: these ioctls take a number, no pointer.
    let status = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), plain.number().into(), number) };
    answer(plain.name(), on, status)
}

/// `VFIO_GROUP_GET_DEVICE_FD`: the descriptor of the device of that name.
#[allow(clippy::needless_pass_by_value)] // a reference to a descriptor, or a length
pub(super) fn device_fd(group: impl AsFd, name: &std::ffi::CStr) -> Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: this ioctl takes a pointer to a text that ends with a zero, which `name` is, and
    // only reads it.
    let status = unsafe { libc::ioctl(group.as_fd().as_raw_fd(), vfio(6).into(), name.as_ptr()) };
    let fd = answer("VFIO_GROUP_GET_DEVICE_FD", name.to_string_lossy(), status)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a C compiler says them, x86-64 and arm64.
    #[test]
    fn numbers_are_the_headers() {
        assert_eq!(DrmVersion::NUMBER, 0xc040_6400);
        assert_eq!(CreateDumb::NUMBER, 0xc020_64b2);
        assert_eq!(MapDumb::NUMBER, 0xc010_64b3);
        assert_eq!(DestroyDumb::NUMBER, 0xc004_64b4);
        assert_eq!(HeapAllocation::NUMBER, 0xc018_4800);
        assert_eq!(UdmabufCreate::NUMBER, 0x4018_7542);
        assert_eq!(Plain::ApiVersion.number(), 0x3b64);
        assert_eq!(IommuInfo::NUMBER, 0x3b70);
        assert_eq!(DmaMap::NUMBER, 0x3b71);
        assert_eq!(DmaUnmap::NUMBER, 0x3b72);
        assert_eq!(
            std::mem::offset_of!(IommuInfo, capabilities),
            IommuInfo::HEADER
        );
    }

    /// A file that is no such device says so, and nothing else happens.
    #[test]
    fn what_is_no_device_refuses() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut dumb = CreateDumb {
            height: 1,
            width: 1024,
            bits_per_pixel: 32,
            flags: 0,
            handle: 0,
            pitch: 0,
            size: 0,
        };
        let error = ask(&file, "/dev/null", &mut dumb).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOTTY), "{error}");
        assert!(
            error
                .to_string()
                .starts_with("DRM_IOCTL_MODE_CREATE_DUMB /dev/null: "),
            "{error}"
        );
        assert!(ask_plain(&file, "/dev/null", Plain::ApiVersion, 0).is_err());
        assert!(device_fd(&file, c"0000:00:00.0").is_err());
    }
}
