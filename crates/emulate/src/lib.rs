//! Kernels booted in QEMU with counted instructions: from an image, a Debian package or the running kernel to the end
//! of a boot, and what happened where it ended badly.
//!
//! | module | what |
//! |---|---|
//! | [`image`] | which kernel: bzImage, arm64 `Image`, a Debian package, `host`; its configuration and symbols |
//! | [`modules`] | a kernel's modules: which files, in which order, for names that somebody asks for |
//! | [`initramfs`] | the archive that the guest starts from (cpio, newc): the same input, the same bytes |
//! | [`machine`] | QEMU's command line, every flag of it pinned, and the guest's |
//! | [`qemu`] | QEMU itself: found, asked for its version, refused where it is too old |
//! | [`boot`] | guests run side by side to their ends; the ends told apart |
//! | [`functions`] | what the plugin counted, by function and caller |
//! | [`compressed`] | xz, zstd and gzip by their first bytes |
//!
//! Nothing here installs anything, needs root, KVM or a network, or starts a thread. What is unpacked lies in folders of
//! our own (mode 0700) that go with their owner; those of a killed process go with the start of the next ([`sweep`]).
//! No guest outlives the process that started it: it is killed by its handle, and by the kernel where we are killed.
//!
//! Everything that is read (packages, images, modules, what a guest says) may be wrong: it is an error with its name,
//! never a panic.

pub mod boot;
pub mod compressed;
mod error;
mod folder;
pub mod functions;
pub mod image;
pub mod initramfs;
mod loaded;
pub mod machine;
pub mod modules;
mod package;
pub mod qemu;
mod sha256;
#[cfg(test)]
mod testing;

pub use boot::{Boot, End, run_all};
pub use error::{Error, Result};
pub use folder::{Folder, sweep};
pub use image::{Architecture, Image};
pub use initramfs::{Initramfs, InitramfsFile};
pub use machine::{Device, Machine, Plugin};
pub use modules::{Module, Modules, Resolved};
