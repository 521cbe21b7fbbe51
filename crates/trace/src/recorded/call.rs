use stopgap_events::memory::{Merge, Placing, Protection};
use stopgap_events::range::AddressRange;

/// A system call that changes a memory map, as it begins. Numbers: include/uapi/asm-generic/mman*.h,
/// which x86-64 and arm64 use.
#[derive(Debug)]
pub(crate) enum Call {
    Map(Mapping),
    Unmap {
        start: u64,
        length: u64,
    },
    Remap {
        start: u64,
        old: u64,
        new: u64,
        fixed: bool,
        keeps_old: bool,
    },
    Protect {
        start: u64,
        length: u64,
        protection: Protection,
        /// As in `PROT_*`.
        access: u8,
    },
    Heap,
}

#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) length: u64,
    pub(crate) protection: Protection,
    /// As in `PROT_*`.
    pub(crate) access: u8,
    pub(crate) merge: Merge,
    pub(crate) placing: Placing,
    /// Whether it replaces what is mapped at its address (`MAP_FIXED`).
    pub(crate) fixed: bool,
}

const MAP_PRIVATE: u64 = 0x2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
/// x86 alone: in the first 2 GiB (arch/x86/kernel/sys_x86_64.c, `find_start_end`).
const MAP_32BIT: u64 = 0x40;
const LOW: AddressRange = AddressRange {
    start: 0x4000_0000,
    end: 0x8000_0000,
};
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;

impl Call {
    /// Whether a call of that name is one of these.
    pub(crate) fn is_one(name: &str) -> bool {
        matches!(name, "mmap" | "munmap" | "mremap" | "mprotect" | "brk")
    }

    /// Its name.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Call::Map(_) => "mmap",
            Call::Unmap { .. } => "munmap",
            Call::Remap { .. } => "mremap",
            Call::Protect { .. } => "mprotect",
            Call::Heap => "brk",
        }
    }

    /// The call of that name; `None` where it is another, or an argument that tells what it does is
    /// not known.
    pub(crate) fn parse(name: &str, arguments: &[Option<u64>; 6]) -> Option<Call> {
        let [a, b, c, d, ..] = *arguments;
        Some(match name {
            "mmap" => {
                let (flags, hint) = (d?, a.filter(|&hint| hint != 0));
                let plain = MAP_PRIVATE | MAP_ANONYMOUS;
                Call::Map(Mapping {
                    length: b?,
                    protection: protection(c?),
                    access: access(c?),
                    merge: match flags & plain == plain {
                        true => Merge::May,
                        false => Merge::Never,
                    },
                    placing: Placing {
                        hint,
                        limits: (flags & MAP_32BIT != 0).then_some(LOW),
                        ..Placing::ANYWHERE
                    },
                    fixed: flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0,
                })
            }
            "munmap" => Call::Unmap {
                start: a?,
                length: b?,
            },
            "mremap" => Call::Remap {
                start: a?,
                old: b?,
                new: c?,
                fixed: d? & MREMAP_FIXED != 0,
                keeps_old: d? & MREMAP_DONTUNMAP != 0,
            },
            "mprotect" => Call::Protect {
                start: a?,
                length: b?,
                protection: protection(c?),
                access: access(c?),
            },
            "brk" => Call::Heap,
            _ => return None,
        })
    }
}

/// Read, write, execute.
fn access(bits: u64) -> u8 {
    (bits & 7) as u8
}

/// `PROT_READ` is 1, `PROT_WRITE` 2, `PROT_EXEC` 4.
fn protection(bits: u64) -> Protection {
    if bits & 2 != 0 {
        Protection::Write
    } else if bits & 5 != 0 {
        Protection::Read
    } else {
        Protection::None
    }
}
