//! The one seam between stopgap and the system it runs on.
//!
//! Everything that touches the system goes through the trait [`System`], which [`Linux`]
//! carries out for real and `fake::Fake` (feature `fake`) in memory, on a virtual clock. It is
//! made of parts, each in a file of its own:
//!
//! | part | what |
//! |---|---|
//! | [`clock::Clock`] | monotonic time, CPU time, sleeping |
//! | [`files::Files`] | `/proc`, `/sys`, cgroup directories, our own scratch files |
//! | [`memory::Memory`] | the mmap family |
//! | [`tasks::Tasks`] | affinity, guarded children, context-switch counts |
//! | [`ipc::Ipc`] | socket pairs and waiting for them |
//! | [`holds::Holds`] | locking memory (mlock, `SHM_LOCK`) and pinning it (page references) |
//! | [`realtime::Realtime`] | what a thread needs that must wake on time |
//! | [`x11::X11`] | an X server of our own and what is asked of it |
//! | [`devices::Devices`] | buffer objects of drivers, PCI devices behind an IOMMU |
//!
//! On top of the seam, and so testable without a kernel: [`environment`], [`hardware`] and [`now`] read
//! what the machine is and shows, [`snapshot`] how its physical memory lies, [`journal`] puts back
//! what was changed, [`budget`] says how much memory a probe may use, [`cgroup`] and [`swap`]
//! make memory short where it may be.
//!
//! `unsafe` lives here alone (and later in the crates that make their own system calls), one
//! reason a block. What is given out is safe: a [`memory::Mapping`] can only come from a map
//! call, and no reference into it is ever handed out.

#![allow(unsafe_code)] // this crate is where the system calls are

pub mod budget;
pub mod cgroup;
pub mod clock;
pub mod conditions;
pub mod cpu_time;
pub mod devices;
pub mod doctor;
pub mod environment;
pub mod error;
pub mod files;
pub mod folder;
pub mod hardware;
pub mod holds;
pub mod hugetlb;
pub mod ipc;
pub mod journal;
pub mod linux;
pub mod local_time;
pub mod memory;
mod notes;
pub mod now;
pub mod own;
pub mod pagemap;
pub mod pressure;
mod proc;
pub mod process;
pub mod realtime;
pub mod shortage;
pub mod signals;
pub mod snapshot;
pub mod swap;
pub mod switches;
pub mod syscalls;
pub mod tasks;
pub mod taskstats;
pub mod thp;
pub mod tracefs;
pub mod x11;

#[cfg(any(test, feature = "fake"))]
pub mod fake;

pub use error::{Error, Result};
pub use linux::Linux;

/// The system: the running one, or a fake.
pub trait System:
    clock::Clock
    + files::Files
    + memory::Memory
    + tasks::Tasks
    + ipc::Ipc
    + holds::Holds
    + realtime::Realtime
    + x11::X11
    + devices::Devices
    + Send
    + Sync
{
}

impl<T> System for T where
    T: clock::Clock
        + files::Files
        + memory::Memory
        + tasks::Tasks
        + ipc::Ipc
        + holds::Holds
        + realtime::Realtime
        + x11::X11
        + devices::Devices
        + Send
        + Sync
        + ?Sized
{
}
