//! Memory whose pages are of a size that was asked for: the mapping, its advice, what came, and the files that say what
//! the kernel allows.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use super::{call, page};
use crate::error::Result;

/// Where a log2 of a page's bytes stands in the flags of mmap (`MAP_HUGE_SHIFT`).
const HUGE_SHIFT: u32 = 26;

fn pointer(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

/// Maps private huge pages of `size` bytes from the pool at `start`, where nothing may be mapped: what is there already
/// is left alone, and `EEXIST` comes back.
pub(crate) fn map_hugetlb(start: usize, length: usize, size: usize) -> Result<()> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE
        | MapFlags::HUGETLB
        | MapFlags::FIXED_NOREPLACE
        | MapFlags::from_bits_retain(size.trailing_zeros() << HUGE_SHIFT);
    call("mmap(HUGETLB)", || {
        // SAFETY: MAP_FIXED_NOREPLACE replaces no mapping; a kernel before 4.17 takes the address as a wish.
        let address = unsafe { mm::mmap_anonymous(pointer(start), length, prot, flags) }?;
        if address.addr() == start {
            return Ok(());
        }
        // SAFETY: mapped just now, by nobody else known.
        unsafe { mm::munmap(address, length) }?;
        Err(Errno::EXIST)
    })
}

/// Whether faults may take huge pages. Contents are left alone, so it may be asked of any memory.
pub(crate) fn advise(start: usize, length: usize, huge: bool) -> Result<()> {
    let (name, advice) = match huge {
        true => ("madvise(HUGEPAGE)", Advice::LinuxHugepage),
        false => ("madvise(NOHUGEPAGE)", Advice::LinuxNoHugepage),
    };
    call(name, || {
        // SAFETY: this advice changes no content and no permission.
        unsafe { mm::madvise(pointer(start), length, advice) }
    })
}

/// Makes memory resident and writable. Contents are left alone. Before 5.14, whose kernels lack the advice, by touching
/// it.
///
/// # Safety
/// It is the caller's own, readable and writable, and nothing refers to it.
pub(crate) unsafe fn populate(start: usize, length: usize) -> Result<()> {
    call("madvise(POPULATE_WRITE)", || {
        // SAFETY: this advice changes no content and no permission.
        match unsafe { mm::madvise(pointer(start), length, Advice::LinuxPopulateWrite) } {
            Err(Errno::INVAL) => {
                for at in (0..length).step_by(page()) {
                    let byte = pointer(start + at).cast::<u8>();
                    // SAFETY: the caller's own byte, which nobody else uses.
                    unsafe { byte.write_volatile(byte.read_volatile()) };
                }
                Ok(())
            }
            done => done,
        }
    })
}

/// Whether huge pages are switched off for this process (`PR_SET_THP_DISABLE`).
pub(crate) fn thp_disabled() -> Result<bool> {
    call("prctl(PR_GET_THP_DISABLE)", || {
        rustix::thread::transparent_huge_pages_are_disabled()
    })
}

fn open(path: &str) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    call("open", || rustix::fs::open(path, flags, Mode::empty()))
}

/// The text of a short file, at most 256 bytes of it.
pub(crate) fn read_text(path: &str) -> Result<String> {
    let file = open(path)?;
    let mut bytes = [0; 256];
    let count = call("read", || rustix::io::read(&file, &mut bytes))?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// The physical pages behind this process's addresses: `/proc/self/pagemap`.
#[derive(Debug)]
pub(crate) struct Pagemap {
    file: OwnedFd,
}

impl Pagemap {
    pub(crate) fn open() -> Result<Pagemap> {
        Ok(Pagemap {
            file: open("/proc/self/pagemap")?,
        })
    }

    /// The words of the pages from `start` on, as far as they were read; one 64-bit word a base page.
    pub(crate) fn read<'a>(&self, start: usize, words: &'a mut [u64]) -> Result<&'a [u64]> {
        let at = (start / page()) as u64 * 8;
        let count = call("pread", || {
            // SAFETY: any bytes are a u64; the slice is as long as the words, and no part of it is read meanwhile.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(words))
            };
            rustix::io::pread(&self.file, bytes, at)
        })?;
        Ok(&words[..count / 8])
    }
}
