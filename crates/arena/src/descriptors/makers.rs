//! Makers of the kernel's own buffers: of a dma-heap, of memfds as dma-bufs, of a graphics card.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::SealFlags;

use super::cache::{DmaBuf, Maker, Object};
use crate::error::{Error, Result};
use crate::sys::{devices, files};

/// Makes dma-bufs of a dma-heap, which lie in memory that the heap takes from the kernel (`CONFIG_DMABUF_HEAPS`).
#[derive(Debug)]
pub struct DmaHeap(OwnedFd);

impl DmaHeap {
    /// Opens a heap: `/dev/dma_heap/system`, for example.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(path: impl AsRef<Path>) -> Result<DmaHeap> {
        devices::open(path.as_ref()).map(DmaHeap)
    }
}

impl Maker for DmaHeap {
    type Object = DmaBuf;

    fn make(&self, bytes: usize) -> Result<DmaBuf> {
        devices::allocate(self.0.as_fd(), bytes as u64).map(DmaBuf)
    }
}

/// Makes dma-bufs of memfds, one each, by `/dev/udmabuf` (`CONFIG_UDMABUF`). Its module's parameters limit a buffer's size:
/// 64 MiB where nobody changed `size_limit_mb`.
#[derive(Debug)]
pub struct Udmabuf(OwnedFd);

impl Udmabuf {
    /// Opens `/dev/udmabuf`.
    ///
    /// # Errors
    /// As open(2).
    pub fn open() -> Result<Udmabuf> {
        devices::open(Path::new("/dev/udmabuf")).map(Udmabuf)
    }
}

impl Maker for Udmabuf {
    type Object = DmaBuf;

    fn make(&self, bytes: usize) -> Result<DmaBuf> {
        // The driver takes no memfd that may become shorter, and none that is sealed against writing.
        let memfd = files::memfd(c"stopgap-cache", bytes as u64, SealFlags::SHRINK)?;
        devices::dma_buf_of(self.0.as_fd(), memfd.as_fd(), bytes as u64).map(DmaBuf)
    }
}

/// Makes GEM objects of a graphics card, as dumb buffers: plain memory that any driver can show, and a CPU can draw in.
#[derive(Debug)]
pub struct DumbBuffers(Arc<OwnedFd>);

impl DumbBuffers {
    /// Makes buffers of the card that is open as `card`. Its driver must have dumb buffers, and a card's own node, not a
    /// render node, must be open.
    #[must_use]
    pub fn of(card: OwnedFd) -> DumbBuffers {
        DumbBuffers(Arc::new(card))
    }
}

impl Maker for DumbBuffers {
    type Object = DumbBuffer;

    fn make(&self, bytes: usize) -> Result<DumbBuffer> {
        let width = u32::try_from(bytes.div_ceil(4));
        let width = width.map_err(|_| Error::NoRoom {
            bytes,
            largest: None,
        })?;
        let (handle, length) = devices::create_dumb(self.0.as_fd(), width)?;
        let mut buffer = DumbBuffer {
            card: Arc::clone(&self.0),
            handle,
            offset: 0,
        };
        if length < bytes as u64 {
            return Err(Error::invalid(
                "a card whose dumb buffers are shorter than was asked",
            ));
        }
        buffer.offset = devices::offset_of_dumb(self.0.as_fd(), handle)?;
        Ok(buffer)
    }
}

/// A dumb buffer. Dropping it destroys it.
///
/// A card does not say when it is done with one: give it to the cache after the page flip that showed another.
#[derive(Debug)]
pub struct DumbBuffer {
    card: Arc<OwnedFd>,
    handle: u32,
    offset: u64,
}

impl DumbBuffer {
    /// Its GEM handle, of the card's open file.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }
}

impl Object for DumbBuffer {
    fn file(&self) -> BorrowedFd<'_> {
        (*self.card).as_fd()
    }

    fn offset(&self) -> u64 {
        self.offset
    }
}

impl Drop for DumbBuffer {
    fn drop(&mut self) {
        // Nobody could do anything about a refusal; the kernel destroys it when the card's file is closed.
        let _ = devices::destroy_dumb(&*self.card, self.handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::Cache;
    use rustix::io::Errno;

    /// Where there is no such device the caller reads which call failed; the devices themselves are tried in the guests of
    /// `stopgap kernels --workloads reuse`.
    #[test]
    fn what_is_not_there_is_said() {
        let Err(error) = DmaHeap::open("/dev/dma_heap/none") else {
            panic!("a heap of that name");
        };
        assert!(error.is(&[Errno::NOENT]), "{error}");
        let zero = || devices::open(Path::new("/dev/zero")).unwrap();
        let dumb = Cache::new(DumbBuffers::of(zero())).unwrap();
        assert!(dumb.take(4_096).unwrap_err().is(&[Errno::NOTTY]));
        let too_long = dumb.take(1 << 40).unwrap_err();
        assert!(matches!(too_long, Error::NoRoom { .. }), "{too_long}");
        let heap = Cache::new(DmaHeap(zero())).unwrap();
        assert!(heap.take(4_096).unwrap_err().is(&[Errno::NOTTY]));
        let parts = Cache::new(Udmabuf(zero())).unwrap();
        assert!(parts.take(4_096).unwrap_err().is(&[Errno::NOTTY]));
        assert_eq!(parts.statistics().made, 0);
    }
}
