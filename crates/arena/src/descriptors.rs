//! Buffers that have a descriptor, mapped once and used again: memfds, dma-bufs, objects of a driver, memory that several
//! processes share. No malloc has such.
//!
//! * [`Cache`]: objects of any maker, each with its own descriptor, by size class. A program that makes an object, maps it,
//!   writes, unmaps and destroys it, as the X server does with each picture, pays for that the first time only.
//! * [`Pool`]: parts of one file in memory, which any process that has the file takes and frees.
//!
//! ```
//! use stopgap_arena::descriptors::{Cache, Memfd};
//!
//! let cache = Cache::new(Memfd)?;
//! for frame in 0..3 {
//!     // Mapped, of a new memfd the first time, then of the same.
//!     let buffer = cache.take(4 << 20)?;
//!     // SAFETY: nobody else writes to it now.
//!     let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.address().as_ptr(), 4 << 20) };
//!     bytes.fill(frame);
//!     // `buffer.object()` is the descriptor that goes to a compositor, a driver, another process.
//!     // SAFETY: all of them are done with it.
//!     unsafe { cache.give(buffer) };
//! }
//! assert_eq!(cache.statistics().made, 1);
//! # Ok::<(), stopgap_arena::Error>(())
//! ```
//!
//! [`Memfd`] makes memfds, [`DmaHeap`] and [`Udmabuf`] dma-bufs, [`DumbBuffers`] GEM objects of a graphics card:
//!
//! ```no_run
//! use stopgap_arena::descriptors::{Cache, DmaHeap};
//!
//! // A buffer whose device is still at work is not handed out again before that has ended.
//! let cache = Cache::new(DmaHeap::open("/dev/dma_heap/system")?)?;
//! let buffer = cache.take(4 << 20)?;
//! # Ok::<(), stopgap_arena::Error>(())
//! ```
//!
//! Another driver's objects come from a maker of one's own; a closure is one:
//!
//! ```
//! # use std::os::fd::OwnedFd;
//! use stopgap_arena::descriptors::{Cache, DmaBuf};
//! # let make_in_the_driver = |_: usize| -> stopgap_arena::Result<OwnedFd> {
//! #     Err(stopgap_arena::Error::Call { call: "ioctl", errno: rustix::io::Errno::NODEV })
//! # };
//!
//! let cache = Cache::new(|bytes: usize| make_in_the_driver(bytes).map(DmaBuf))?;
//! # assert!(cache.take(1).is_err());
//! # Ok::<(), stopgap_arena::Error>(())
//! ```
//!
//! # Before a buffer is given back
//!
//! Unmapping and closing leave a page to those that still refer to it; [`Cache::give`] and [`Pool::free`] do not: what
//! "Before a buffer is freed" in [`crate::arena`] says must be so, and no other process may use it any more. Where that cannot
//! be known, drop the [`Buffer`]: it is unmapped and closed then.
//!
//! # Lineage
//!
//! The buffer caches of Mesa's and libdrm's drivers, each for its own objects: classes of size, the last first, busy ones passed
//! over, old ones closed.

#![allow(unsafe_code)]

mod cache;
mod makers;
mod pool;

pub use cache::{Buffer, Cache, DmaBuf, Maker, Memfd, Object, Statistics};
pub use makers::{DmaHeap, DumbBuffer, DumbBuffers, Udmabuf};
pub use pool::Pool;
