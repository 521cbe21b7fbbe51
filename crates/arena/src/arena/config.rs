//! How an arena is to be.

use std::time::Duration;

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

/// How an arena is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Bytes of address space, rounded up to whole pages; below 2^30 pages, which is 4 TiB of 4 KiB pages. The tables take
    /// 9.5 bytes of address space a page besides, of which what is used is memory.
    pub window: usize,
    /// The memory behind the buffers.
    pub backing: Backing,
    /// How long freed memory is kept that nobody needs; half of that at least. Until then it is given out again without a page
    /// fault. Never more is kept than is used, or 64 MiB, and nothing where the kernel says that memory is short. Less than a
    /// millisecond: it goes back with the free, by a system call each.
    ///
    /// No thread of the arena does it: what is due goes at a call that takes a lock, or at [`Arena::decay`](super::Arena::decay).
    pub decay: Duration,
    /// Whether the page after each buffer faults.
    pub guard: bool,
}

impl Default for Config {
    /// 64 GiB, anonymous, given back after a second, no guards.
    fn default() -> Config {
        Config {
            window: 64 << 30,
            backing: Backing::Anonymous,
            decay: Duration::from_secs(1),
            guard: false,
        }
    }
}
