//! Devices of the running kernel.

#[cfg(feature = "gl")]
mod gl;
mod ioctl;
mod objects;
mod vfio;

use std::path::Path;
use std::ptr;

use rustix::fs::{Mode, OFlags};
use stopgap_events::units::Bytes;

use super::Linux;
use super::memory::part;
use crate::devices::pci::PciAddress;
use crate::devices::{Devices, Maker, ObjectDevice, Room, Vfio};
use crate::error::{Error, Result};
use crate::memory::Mapping;

/// Opens a device file to be read and written.
fn open(path: &Path) -> Result<std::os::fd::OwnedFd> {
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::call("open", path.display(), e))
}

/// Where `path` cannot be opened: why, in words that help.
fn cannot_open(what: impl std::fmt::Display, path: &Path, error: Error, absent: &str) -> Error {
    let path = path.display();
    if error.is_absent() {
        Error::unsupported(what, format!("there is no {path}; {absent}"))
    } else if error.is_refused() {
        let advice = format!("{path} is not permitted; be root or of the group that owns it");
        Error::unsupported(what, advice)
    } else {
        error
    }
}

use objects::Objects;
pub(super) use objects::dma_buf_of;

impl Linux {
    /// Opens the card of the driver vgem, and no other.
    ///
    /// # Errors
    /// Where there is none; as open(2).
    pub fn vgem_card(&self) -> Result<std::os::fd::OwnedFd> {
        objects::vgem_card().map(|(card, _)| card)
    }
}

impl Devices for Linux {
    fn objects(&self, maker: &Maker, room: Room) -> Result<Box<dyn ObjectDevice + '_>> {
        Ok(Box::new(match maker {
            Maker::Vgem => Objects::vgem()?,
            Maker::DmaHeap => Objects::heap(room)?,
            Maker::Udmabuf => Objects::udmabuf(room)?,
            Maker::Path(path) => Objects::plain(path)?,
            #[cfg(feature = "gl")]
            Maker::Gl => return Ok(Box::new(gl::Gl::open()?)),
            #[cfg(not(feature = "gl"))]
            Maker::Gl => {
                let advice =
                    "built without OpenGL; build with: cargo build --release --features gl";
                return Err(Error::unsupported("gl", advice));
            }
        }))
    }

    fn vfio(&self, address: PciAddress) -> Result<Box<dyn Vfio + '_>> {
        Ok(Box::new(vfio::Device::open(*self, address)?))
    }

    fn store(&self, mapping: &Mapping, offset: Bytes, bytes: &[u8]) -> Result<()> {
        if !mapping.writable() {
            return Err(Error::refusal("store", mapping.range(), libc::EACCES));
        }
        let (address, _) = part("store", mapping, offset, Bytes(bytes.len() as u64))?;
        // SAFETY: the part lies inside a mapping of ours that is writable, and no reference into
        // it exists; `bytes` is memory of ours elsewhere.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address, bytes.len()) };
        Ok(())
    }

    fn load(&self, mapping: &Mapping, offset: Bytes, into: &mut [u8]) -> Result<()> {
        let (address, _) = part("load", mapping, offset, Bytes(into.len() as u64))?;
        for (at, byte) in into.iter_mut().enumerate() {
            // SAFETY: the byte lies inside a mapping of ours that can be read; volatile, because
            // a device may have written it.
            *byte = unsafe { address.add(at).read_volatile() };
        }
        Ok(())
    }
}
