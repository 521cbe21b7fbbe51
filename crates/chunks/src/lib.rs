//! Which physical chunks a buffer is made of, and how an IOMMU can map them.
//!
//! Pure arithmetic: no clock, no system call, no dependency; `no_std` with `alloc`.
//!
//! * [`policy`]: the rules by which a buffer gets its chunks, by name.
//! * [`iommu`]: the entries that an IOMMU needs to map physical runs, by page size; the log, the page tables and
//!   the start of a mapping.
//! * [`tlb`]: how often a device that reads through such a mapping misses the IOMMU's TLB.

#![no_std]

extern crate alloc;

pub mod iommu;
pub mod policy;
pub mod tlb;
