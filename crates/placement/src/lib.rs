//! Where to put a range: policies behind one contract.
//!
//! Pure arithmetic: no clock, no system call, no dependency; `no_std` with `alloc`.
//!
//! * [`contract`]: what is asked ([`Request`]), what is answered ([`Range`] or [`PlaceError`]), and
//!   the trait [`Policy`] that all of them are.
//! * [`oracle`]: a naive policy that is obviously right, and the differential runner that holds
//!   every other one against it.
//! * [`registry`]: the policies by name.

#![no_std]

extern crate alloc;

pub mod contract;
pub mod oracle;
pub mod registry;
mod stopgap;

pub use contract::{
    Direction, FreeError, Impossible, Lack, Merge, Need, PlaceError, Policy, Range, Request, Space,
    SpaceError, Statistics, Work,
};
pub use stopgap::Stopgap;
