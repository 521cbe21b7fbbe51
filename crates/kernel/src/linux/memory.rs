use std::io;
use std::ptr;

use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};
use stopgap_events::memory::Protection;
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

use super::Linux;
use crate::error::{Error, Result};
use crate::memory::{Advice, MapKind, MapRequest, Mapping, MemFile, Memory, Origin};

fn prot(protection: Protection) -> ProtFlags {
    match protection {
        Protection::None => ProtFlags::empty(),
        Protection::Read => ProtFlags::READ,
        Protection::Write => ProtFlags::READ | ProtFlags::WRITE,
    }
}

/// The part of `mapping` as pointer and length; an error where it leaves the mapping.
pub(super) fn part(
    call: &'static str,
    mapping: &Mapping,
    offset: Bytes,
    length: Bytes,
) -> Result<(*mut u8, usize)> {
    assert_eq!(mapping.origin(), Origin::Kernel, "a mapping of a fake");
    let part = mapping.range().part(offset, length).ok_or_else(|| {
        let target = format!("{length} at {offset} of {}", mapping.range());
        Error::call(call, target, io::ErrorKind::InvalidInput)
    })?;
    // Addresses fit: the mapping lies in this process's address space.
    Ok((part.start as usize as *mut u8, length.0 as usize))
}

/// How much to map, in whole pages of `grain` bytes, and how much more so that an aligned part
/// of that length lies inside; `None` where a page or an alignment is no power of two, or the
/// sum leaves the address space. What is trimmed away later relies on it.
fn sizes(request: &MapRequest<'_>, grain: Bytes) -> Option<(Bytes, Bytes)> {
    let align = request.align.0;
    if !grain.0.is_power_of_two() || !(align == 0 || align.is_power_of_two()) {
        return None;
    }
    let length = request.length.0.checked_next_multiple_of(grain.0)?;
    // The kernel's own alignment serves up to a page; beyond, map too much and trim.
    let spare = align.saturating_sub(grain.0);
    length.checked_add(spare)?;
    Some((Bytes(length), Bytes(spare)))
}

/// Maps where the kernel likes, `length` bytes.
fn map_anywhere(length: usize, request: &MapRequest<'_>) -> io::Result<*mut u8> {
    let prot = prot(request.protection);
    let flags = match request.kind {
        MapKind::Anonymous => MapFlags::PRIVATE,
        MapKind::AnonymousAlone => MapFlags::SHARED,
        MapKind::HugeTlb { page } => {
            let size = MapFlags::from_bits_retain(page.0.trailing_zeros() << libc::MAP_HUGE_SHIFT);
            MapFlags::PRIVATE | MapFlags::HUGETLB | size
        }
        MapKind::File { file, offset } => {
            let fd = file.fd.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
            let (nowhere, flags) = (ptr::null_mut(), MapFlags::SHARED);
            // SAFETY: without MAP_FIXED the kernel chooses addresses that nothing else uses; the file is our own memfd,
            // which is never truncated, and no reference into the mapping is handed out.
            let address = unsafe { mm::mmap(nowhere, length, prot, flags, fd, offset.0) };
            return Ok(address?.cast());
        }
    };
    // SAFETY: as above.
    let address = unsafe { mm::mmap_anonymous(ptr::null_mut(), length, prot, flags) };
    Ok(address?.cast())
}

impl Memory for Linux {
    fn page_size(&self) -> Bytes {
        Bytes(rustix::param::page_size() as u64)
    }

    fn map(&self, request: &MapRequest<'_>) -> Result<Mapping> {
        let fail = |e: io::Error| Error::call("mmap", request.length, e);
        let grain = match request.kind {
            MapKind::HugeTlb { page } => page,
            _ => self.page_size(),
        };
        let (length, spare) =
            sizes(request, grain).ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        let address = map_anywhere((length + spare).0 as usize, request).map_err(fail)?;
        let start = address as u64;
        let aligned = match request.align.0 {
            0 => start,
            align => start.next_multiple_of(align),
        };
        let end = start + (length + spare).0;
        for (from, to) in [(start, aligned), (aligned + length.0, end)] {
            if from < to {
                // SAFETY: the range is part of what was mapped above, since `spare` makes
                // room for any start that is aligned to a power of two (`sizes`), and outside
                // of the part that becomes the mapping; nothing refers to it.
                unsafe { mm::munmap(from as usize as *mut _, (to - from) as usize) }
                    .map_err(|e| Error::call("munmap", Bytes(to - from), e))?;
            }
        }
        let range = AddressRange {
            start: aligned,
            end: aligned + length.0,
        };
        let writable = request.protection == Protection::Write;
        Ok(Mapping::new(range, writable, Origin::Kernel))
    }

    fn unmap(&self, mapping: Mapping) -> Result<()> {
        let (address, length) = part("munmap", &mapping, Bytes(0), mapping.range().length())?;
        // SAFETY: the mapping is ours alone, is given up here, and no reference into it exists.
        unsafe { mm::munmap(address.cast(), length) }
            .map_err(|e| Error::call("munmap", mapping.range(), e))
    }

    fn protect(
        &self,
        mapping: &mut Mapping,
        offset: Bytes,
        length: Bytes,
        protection: Protection,
    ) -> Result<()> {
        let length = length.page_aligned(self.page_size());
        let (address, bytes) = part("mprotect", mapping, offset, length)?;
        let flags = MprotectFlags::from_bits_retain(prot(protection).bits());
        // SAFETY: the part lies inside a mapping of ours, into which no reference exists.
        unsafe { mm::mprotect(address.cast(), bytes, flags) }
            .map_err(|e| Error::call("mprotect", length, e))?;
        let whole = length == mapping.range().length();
        if whole || protection != Protection::Write {
            mapping.set_writable(protection == Protection::Write);
        }
        Ok(())
    }

    fn advise(
        &self,
        mapping: &Mapping,
        offset: Bytes,
        length: Bytes,
        advice: Advice,
    ) -> Result<()> {
        let (address, bytes) = part("madvise", mapping, offset, length)?;
        let (name, number) = match advice {
            Advice::HugePage => ("madvise(HUGEPAGE)", libc::MADV_HUGEPAGE),
            Advice::NoHugePage => ("madvise(NOHUGEPAGE)", libc::MADV_NOHUGEPAGE),
            Advice::Collapse => ("madvise(COLLAPSE)", libc::MADV_COLLAPSE),
            Advice::Cold => ("madvise(COLD)", libc::MADV_COLD),
            Advice::PageOut => ("madvise(PAGEOUT)", libc::MADV_PAGEOUT),
            Advice::DontNeed => ("madvise(DONTNEED)", libc::MADV_DONTNEED),
            Advice::PopulateWrite => ("madvise(POPULATE_WRITE)", libc::MADV_POPULATE_WRITE),
        };
        // SAFETY: the part lies inside a mapping of ours; its content may change (DONTNEED),
        // but no reference into it exists.
        if unsafe { libc::madvise(address.cast(), bytes, number) } == 0 {
            Ok(())
        } else {
            Err(Error::last(name, length))
        }
    }

    fn touch(&self, mapping: &Mapping, offset: Bytes, length: Bytes) -> Result<()> {
        let (address, bytes) = part("touch", mapping, offset, length)?;
        let step = self.page_size().0 as usize;
        for at in (0..bytes).step_by(step) {
            // SAFETY: the byte lies inside a mapping of ours that is readable (a mapping with
            // no access at all is not touched by any probe; it would end the process with
            // SIGSEGV, not corrupt it) and writable where we write.
            unsafe {
                if mapping.writable() {
                    address.add(at).write_volatile(1);
                } else {
                    address.add(at).read_volatile();
                }
            }
        }
        Ok(())
    }

    fn mem_file(&self, length: Bytes) -> Result<MemFile> {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        let fd = memfd_create("stopgap", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|e| Error::call("memfd_create", length, e))?;
        ftruncate(&fd, length.0).map_err(|e| Error::call("ftruncate", length, e))?;
        Ok(MemFile { fd: Some(fd) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(length: Bytes, kind: MapKind<'_>, align: Bytes) -> MapRequest<'_> {
        MapRequest {
            length,
            protection: Protection::Write,
            kind,
            align,
        }
    }

    fn vmas_inside(range: AddressRange) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines()
            .filter_map(|line| {
                let (start, rest) = line.split_once('-')?;
                let (end, _) = rest.split_once(' ')?;
                Some(AddressRange {
                    start: u64::from_str_radix(start, 16).ok()?,
                    end: u64::from_str_radix(end, 16).ok()?,
                })
            })
            .filter(|vma| vma.overlaps(&range))
            .count()
    }

    #[test]
    fn what_is_asked_for_is_mapped_aligned_and_given_back() {
        let linux = Linux;
        let align = Bytes::mib(2);
        let mapping = linux
            .map(&request(Bytes::mib(4), MapKind::Anonymous, align))
            .unwrap();
        let range = mapping.range();
        assert_eq!(range.start % align.0, 0);
        assert_eq!(range.length(), Bytes::mib(4));
        linux.touch(&mapping, Bytes(0), range.length()).unwrap();
        linux.unmap(mapping).unwrap();
        assert_eq!(vmas_inside(range), 0);
    }

    /// Trimming by sizes that wrapped would unmap memory of somebody else.
    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        let page = Linux.page_size();
        let most = Bytes(u64::MAX - Bytes::mib(1).0 + 1);
        for (length, kind, align) in [
            (most, MapKind::Anonymous, Bytes::mib(2)),
            (Bytes(u64::MAX), MapKind::Anonymous, Bytes(0)),
            (page, MapKind::Anonymous, Bytes(3 * page.0)),
            (page, MapKind::Anonymous, Bytes(page.0 + 1)),
            (page, MapKind::HugeTlb { page: Bytes(0) }, Bytes(0)),
            (
                page,
                MapKind::HugeTlb {
                    page: Bytes::mib(6),
                },
                Bytes(0),
            ),
        ] {
            let error = Linux.map(&request(length, kind, align)).unwrap_err();
            assert!(error.to_string().starts_with("mmap"), "{error}");
        }
    }

    #[test]
    fn neighbours_that_must_not_merge_do_not() {
        let linux = Linux;
        let page = linux.page_size();
        let file = linux.mem_file(Bytes(page.0 * 64)).unwrap();
        let kinds = |i: u64| {
            [
                MapKind::AnonymousAlone,
                MapKind::File {
                    file: &file,
                    offset: Bytes(2 * i * page.0),
                },
            ]
        };
        for which in 0..2 {
            let maps: Vec<_> = (0..32)
                .map(|i| {
                    linux
                        .map(&request(page, kinds(i)[which], Bytes(0)))
                        .unwrap()
                })
                .collect();
            let start = maps.iter().map(|m| m.range().start).min().unwrap();
            let end = maps.iter().map(|m| m.range().end).max().unwrap();
            assert!(vmas_inside(AddressRange { start, end }) >= 32);
            for map in maps {
                linux.unmap(map).unwrap();
            }
        }
    }

    #[test]
    fn a_part_outside_the_mapping_is_refused() {
        let linux = Linux;
        let page = linux.page_size();
        let mut mapping = linux
            .map(&request(page, MapKind::Anonymous, Bytes(0)))
            .unwrap();
        let too_long = Bytes(page.0 + 1);
        assert!(linux.touch(&mapping, Bytes(0), too_long).is_err());
        assert!(
            linux
                .protect(&mut mapping, Bytes(0), too_long, Protection::Read)
                .is_err()
        );
        linux
            .protect(&mut mapping, Bytes(0), Bytes(1), Protection::Read)
            .unwrap();
        assert!(!mapping.writable());
        linux.touch(&mapping, Bytes(0), page).unwrap(); // reads
        linux.unmap(mapping).unwrap();
    }
}
