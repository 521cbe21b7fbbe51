//! Memory that reclaim leaves alone, at the least cost that a process can have it for.
//!
//! Memory that must stay and lies on the lists that reclaim scans makes everybody else wait: each pass walks past it. What
//! is *locked* is taken off those lists. (It may still migrate: it is not *pinned*.) A [`Set`] makes such memory, within a
//! budget, and gives back what its owner marked purgeable when memory gets short.
//!
//! ```
//! use stopgap_arena::locked::{Contents, Options, Set};
//!
//! let set = Set::new(Options { budget: 1 << 20, ..Options::default() })?;
//! let frame = set.take(64 << 10)?;
//! // SAFETY: 64 KiB that nobody else has.
//! unsafe { frame.as_ptr().write_bytes(7, 64 << 10) };
//! // Not needed for now, and could be made again: it may go when memory gets short.
//! frame.purgeable()?;
//! if frame.keep()? == Contents::Lost {
//!     // It reads as zero; make it again.
//! }
//! # Ok::<(), stopgap_arena::Error>(())
//! ```
//!
//! # Ways
//!
//! What the kernel does (Linux 6.12; its functions in parentheses):
//!
//! | way | to lock | pages that come later | to unlock | to give back | counts against `RLIMIT_MEMLOCK` |
//! |---|---|---|---|---|---|
//! | [`Way::SysV`] | flags the segment's mapping, moves nothing (`shmem_lock`) | go to the unevictable list at once (`lru_add`) | moves each page back (`shmem_unlock_mapping`) | flag and pages go with the segment, none is moved | a user |
//! | [`Way::Memfd`] | moves each resident page (`mlock_folio`) | are moved one by one at their fault | moves each page back | each page is unlocked at the unmapping | a process |
//!
//! A segment is flagged *before* its first page, so no page of it is ever on a list that is scanned, and nothing is left to
//! pay lazily. That is what a driver has by `mapping_set_unevictable`; a memfd's mapping cannot be flagged from user space.
//! [`Set::take`] therefore makes segments. What must be passed to another process as a descriptor is a memfd
//! ([`Set::take_shareable`], [`Set::take_file`]), as is all where the kernel gives no segments ([`Held::instead`] says why).
//!
//! Locking a segment *again* ([`Held::keep`] after [`Held::release`]) is late: its pages lie on the lists and are moved
//! when reclaim meets them, each once, for about what mlock costs up front. What is given up before that never pays.
//!
//! # Life of what is held
//!
//! ```text
//!  take -> Held --release()--> released: locked until its batch is full or flush(); then on the lists, may be swapped out
//!            |  <--keep()----     Kept, always; no call where the batch was not full yet
//!            |
//!            +---purgeable()-> purgeable: still locked; when memory gets short: its pages go
//!               <--keep()----     Kept (no call), or Lost: reads as zero, locked again
//! ```
//!
//! When memory gets short: [`Set::react`], which the owner calls; [`Set::poll_pressure`], which asks a trigger of the
//! kernel's pressure stall information whether to; [`Set::watch`], a thread that does it. And when a new one would pass the
//! budget or `RLIMIT_MEMLOCK`: what is released goes first, then the longest purgeable one by one, then
//! [`Error::Limit`](crate::Error::Limit).
//!
//! As with DRM's `DONTNEED`, a purgeable object's contents may go *at any time* until [`Held::keep`] says that they did not.
//!
//! # What outlives the process
//!
//! Nothing, but for one gap. System V knows no segment without an identifier: it is made, attached, and marked to end with
//! its last attachment, three system calls with signals blocked. A SIGKILL between the first and the last (some
//! microseconds) leaves an empty segment, which holds no page and counts against `kernel.shmmni` and `kernel.shmall`; `ipcs
//! -m` shows it with no key and nobody attached, `ipcrm -m` removes it. With `kernel.shm_rmid_forced` = 1 there is no gap.
//!
//! # After fork
//!
//! A child has the memory (it is shared) and not the set: there every call says [`Error::Invalid`](crate::Error::Invalid),
//! and dropping does nothing, so that what a child does never unlocks what its parent holds.
//!
//! # Left out
//!
//! Huge pages; locking memory that is not the set's own; moving a memfd's pages off the lists without touching each.

mod memory;
mod pressure;
mod set;
#[cfg(test)]
mod tests;

pub use memory::Way;
pub use pressure::{Pressure, Watch};
pub use set::{Contents, Held, Options, Purged, Set, Statistics};

/// The examples of the fix's page, so that they stay true.
#[cfg(doctest)]
#[doc = include_str!("../docs/locked.md")]
struct Page;
