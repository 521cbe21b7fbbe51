//! The fixes, as a library for other people's programs.
//!
//! * [`arena`]: buffers in a window of addresses that is reserved once, placed in nanoseconds.
//! * [`descriptors`]: buffers that have a descriptor, mapped once and used again; memory that processes share.
//! * [`chunked`]: buffers of large pages, as far as the kernel has them without waiting.
//! * [`locked`]: shared memory that reclaim does not scan, locked the cheap way, given up under pressure.
//! * [`channel`]: requests and replies between two processes in shared memory, one wake for many.
//! * [`sched`]: a client that pre-empts nobody. [`coalesce`]: a writer that gathers replies.
//!
//! ```
//! use stopgap_arena::{Arena, Config};
//!
//! let arena = Arena::new(&Config::default())?;
//! let buffer = arena.alloc(100_000, 4096)?;
//! // SAFETY: given out above, that long.
//! let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.as_ptr(), 100_000) };
//! assert_eq!(bytes[99_999], 0);
//! bytes.fill(1);
//! // SAFETY: `bytes` is not used any more; start and length as given out.
//! unsafe { arena.free(buffer, 100_000)? };
//! # Ok::<(), stopgap_arena::Error>(())
//! ```
//!
//! It makes its own system calls, directly and not through libc's functions (`sys`), so that it can also stand behind
//! libc's functions, as in `stopgap-preload`. Nothing in it prints, starts a thread that was not asked for, or panics on
//! what a caller, a file or a peer hands it.

#[cfg(not(loom))]
pub mod arena;
pub mod channel;
pub mod chunked;
pub mod coalesce;
#[cfg(not(loom))]
pub mod descriptors;
pub mod error;
#[cfg(any(test, feature = "inject"))]
pub mod inject;
#[cfg(loom)]
#[path = "arena"]
mod under_loom {
    pub(crate) mod lock_free;
}
pub mod locked;
#[cfg(test)]
mod own_process;
#[cfg(not(loom))]
mod pressure;
pub mod sched;
mod sys;

#[cfg(not(loom))]
pub use arena::{Arena, Backing, Config, Statistics};
pub use error::{Error, Result};
