//! Where to put a range: policies behind one contract.
//!
//! Pure arithmetic: no clock, no system call; `no_std` with `alloc`.
//!
//! ```
//! use stopgap_placement::{Policy, Range, Request, Space, Stopgap};
//!
//! let space = Space::new(Range::new(0x10_0000, 0x50_0000), 0x1000)?;
//! let mut policy = Stopgap::new(space);
//! let range = policy.place(&Request::of(10_000))?;
//! assert_eq!(range.length(), 0x3000);
//! policy.free(range)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`contract`]: what is asked ([`Request`]), what is answered ([`Range`] or [`PlaceError`]), and
//!   the trait [`Policy`] that all of them are.
//! * [`stopgap`]: ours, for use; the others are for comparison.
//! * [`by_handle`]: best fit for those who keep a handle of each range.
//! * [`linux_2_6_35`], [`linux_3_4`]: searches that continue where the last one ended, and what they
//!   share ([`free_area_cache`]).
//! * [`gap_tree`]: Linux 3.8 to 6.0, van Riel's first form of it and Weiner's proposal.
//! * [`linux_6`]: the kernels since 6.1, on a B-tree of ranges.
//! * [`best_fit`]: the proposal of mail 000, with and without coalescing.
//! * [`memory`]: where the structures of [`stopgap`] themselves lie, for those who may not call malloc.
//! * [`registry`]: all of them by name.
//! * [`returns`]: ranges that other threads free, without the lock of the thread that places.
//! * [`oracle`]: a naive policy that is obviously right, a second statement of each kernel's rule, and
//!   the runners that hold the policies against them.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod best_fit;
pub mod by_handle;
mod chunks;
mod classes;
pub mod contract;
pub mod free_area_cache;
pub mod gap_tree;
pub mod linux_2_6_35;
pub mod linux_3_4;
pub mod linux_6;
pub mod memory;
pub mod oracle;
pub mod registry;
pub mod returns;
pub mod stopgap;
mod vmas;

pub use contract::{
    Direction, FreeError, Impossible, Lack, Merge, Need, PlaceError, Policy, Range, Request, Space,
    SpaceError, Statistics, Work,
};
pub use stopgap::Stopgap;
