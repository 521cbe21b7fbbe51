//! Kernels in emulation, compared: booted in QEMU with counted instructions, judged by exact counts, shown.
//!
//! The command needs [`run()`], [`dry_run`] and [`screen()`]; a report needs [`report`]; a test that boots a
//! kernel for another purpose takes [`Image`], [`Initramfs`], [`Machine`] and [`run_all`].
//!
//! | module | what |
//! |---|---|
//! | `run` | from the kernels' names to the record |
//! | `workloads` | what is run, and what a kernel needs for it |
//! | `image`, `package`, `compressed` | which kernel: bzImage, arm64 `Image`, a Debian package, `host`; its configuration |
//! | `modules` | a kernel's modules: which files, in which order, for names that somebody asks for |
//! | `initramfs`, `elf`, `guest_program` | the archive that the guest starts from: the same input, the same bytes |
//! | `machine`, `qemu` | QEMU's command line and the guest kernel's, every flag pinned; QEMU itself |
//! | `boot`, `booted` | guests run side by side to their ends; what a guest said, as it is judged |
//! | `profiled`, `counted`, `functions` | one more boot with the plugin: instructions by function and caller |
//! | `judge` | which kernel is shorter (JSON `stopgap.kernels/1`) |
//! | `screen`, `page` | the record as text, and in a report |
//!
//! Beside this package lie `guest`, the program that is a guest's first process, and `plugin`, which QEMU loads.
//!
//! Nothing here installs anything, needs root, KVM or a network, or starts a thread. What is unpacked lies in folders of
//! our own (mode 0700) that go with their owner; those of a killed process go with the start of the next ([`sweep`]).
//! No guest outlives the process that started it: it is killed by its handle, and by the kernel where we are killed.
//!
//! Everything that is read (packages, images, modules, what a guest says) may be wrong: it is an error with its name,
//! never a panic.

mod boot;
mod booted;
mod compressed;
mod counted;
mod elf;
mod error;
mod folder;
mod functions;
mod guest_program;
mod image;
mod initramfs;
pub mod judge;
pub mod machine;
mod modules;
mod package;
mod page;
mod profiled;
pub mod qemu;
mod run;
mod screen;
mod sha256;
#[cfg(test)]
mod testing;
mod workloads;

pub use boot::{Boot, End, run_all};
pub use error::{Error, Result};
pub use folder::{Folder, sweep};
pub use guest_program::read as guest_program;
pub use image::{Architecture, Image};
pub use initramfs::{Initramfs, InitramfsFile};
pub use judge::SCHEMA;
pub use machine::{Device, Machine, Plugin};
pub use modules::{Module, Modules, Resolved};
pub use page::report;
pub use run::{Compared, Flags, Progress, dry_run, run};
pub use screen::screen;
pub use stopgap_guest::protocol::Cell;
pub use workloads::parse as workloads;
