//! How an arena is to be, and what a file's mapping may be.

use std::time::Duration;

use rustix::mm::ProtFlags;

/// The memory behind an arena's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backing {
    /// Private anonymous memory.
    #[default]
    Anonymous,
    /// One memfd, sealed against shrinking and growing, whose parts can be handed to other processes
    /// ([`Arena::export`]).
    Memfd,
}

/// When memory that was freed goes back to the kernel. Until then it is given out again without a page fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveBack {
    /// With the free: a system call each.
    AtOnce,
    /// What nobody needed for so long, and less than twice that, at the next call that takes a lock or
    /// [`Arena::trim`].
    After(Duration),
    /// All, when tasks stood still for want of memory for 150 ms of 2 s (PSI), which is looked at 10 times a second at
    /// most, at a call that takes a lock or [`Arena::pressure`].
    UnderPressure,
}

/// How an arena is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Bytes of address space, rounded up to whole pages; below 2^30 pages, which is 4 TiB of 4 KiB pages. The tables take
    /// 9.4 bytes of address space a page besides, of which what is used is memory.
    pub window: usize,
    /// The memory behind the buffers.
    pub backing: Backing,
    /// When freed memory goes back.
    pub give_back: GiveBack,
    /// Bytes of freed memory that are kept at most, by all threads together. What would be more goes back at once.
    pub keep: usize,
    /// Whether the page after each buffer faults.
    pub guard: bool,
}

impl Default for Config {
    /// 64 GiB, anonymous, 64 MiB kept, given back after a second, no guards.
    fn default() -> Config {
        Config {
            window: 64 << 30,
            backing: Backing::Anonymous,
            give_back: GiveBack::After(Duration::from_secs(1)),
            keep: 64 << 20,
            guard: false,
        }
    }
}

/// Permissions of a file's mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Protection {
    /// `PROT_READ`.
    pub read: bool,
    /// `PROT_WRITE`.
    pub write: bool,
    /// `PROT_EXEC`.
    pub execute: bool,
}

impl Protection {
    /// Nothing.
    pub const NONE: Protection = Protection {
        read: false,
        write: false,
        execute: false,
    };
    /// To be read.
    pub const READ: Protection = Protection {
        read: true,
        ..Protection::NONE
    };
    /// To be read and written.
    pub const READ_WRITE: Protection = Protection {
        write: true,
        ..Protection::READ
    };

    pub(super) fn flags(self) -> ProtFlags {
        let mut flags = ProtFlags::empty();
        flags.set(ProtFlags::READ, self.read);
        flags.set(ProtFlags::WRITE, self.write);
        flags.set(ProtFlags::EXEC, self.execute);
        flags
    }
}

/// Visibility of writes to a file's mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// All who map the file, and the file: `MAP_SHARED`.
    Shared,
    /// This process: `MAP_PRIVATE`.
    Private,
}
