//! The mmap family.

use stopgap_events::memory::Protection;
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

use crate::error::Result;

/// A mapping of our own. It can only come from [`Memory::map`] and is given up with
/// [`Memory::unmap`]; dropped, it stays mapped until the process ends.
#[derive(Debug)]
#[must_use = "a mapping that is dropped stays mapped"]
pub struct Mapping {
    range: AddressRange,
    writable: bool,
    origin: Origin,
}

/// Who made a mapping: the kernel must never be handed an address that a fake made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Kernel,
    #[cfg(any(test, feature = "fake"))]
    Fake,
}

impl Mapping {
    pub(crate) fn new(range: AddressRange, writable: bool, origin: Origin) -> Mapping {
        Mapping {
            range,
            writable,
            origin,
        }
    }
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }
    pub(crate) fn set_writable(&mut self, writable: bool) {
        self.writable = writable;
    }
    /// Where it lies.
    #[must_use]
    pub fn range(&self) -> AddressRange {
        self.range
    }
    /// Whether it was mapped, or last protected as a whole, for writing.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.writable
    }
}

/// A file in memory (memfd) that mappings can be backed by.
#[derive(Debug)]
pub struct MemFile {
    pub(crate) fd: Option<std::os::fd::OwnedFd>,
}

/// Backing of a mapping.
#[derive(Debug, Clone, Copy)]
pub enum MapKind<'a> {
    /// Private anonymous memory; equal neighbours merge into one VMA.
    Anonymous,
    /// Shared anonymous memory. Each has a file of its own inside the kernel, so it can never
    /// merge with a neighbour, on any kernel; it costs that file (about 1 us).
    AnonymousAlone,
    /// A memfd, shared, from `offset` (page aligned) on. Neighbours merge only where their
    /// offsets continue one another.
    File {
        /// The file.
        file: &'a MemFile,
        /// Where in it.
        offset: Bytes,
    },
    /// Private huge pages of this size from the kernel's pool.
    HugeTlb {
        /// Page size; a power of two that the kernel has a pool for.
        page: Bytes,
    },
}

/// What to map. The kernel chooses the address.
#[derive(Debug, Clone, Copy)]
pub struct MapRequest<'a> {
    /// Bytes; rounded up to whole pages.
    pub length: Bytes,
    /// Allowed accesses.
    pub protection: Protection,
    /// Backing.
    pub kind: MapKind<'a>,
    /// Alignment of the start, a power of two, at least a page; `Bytes(0)` for the kernel's own.
    /// More than the kernel's own takes a longer mapping that is trimmed: three calls, not one.
    pub align: Bytes,
}

impl<'a> MapRequest<'a> {
    /// Returns a request for memory to be read and written, at the kernel's own alignment.
    #[must_use]
    pub fn writable(length: Bytes, kind: MapKind<'a>) -> MapRequest<'a> {
        MapRequest {
            length,
            protection: Protection::Write,
            kind,
            align: Bytes(0),
        }
    }
}

/// What to tell the kernel about a part of a mapping (madvise).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_HUGEPAGE`.
    HugePage,
    /// `MADV_NOHUGEPAGE`.
    NoHugePage,
    /// `MADV_COLLAPSE` (6.1 on): make huge pages of it now.
    Collapse,
    /// `MADV_COLD` (5.4 on): reclaim it before others. A large folio that reaches beyond the range is split.
    Cold,
    /// `MADV_PAGEOUT` (5.4 on): reclaim it now.
    PageOut,
    /// `MADV_DONTNEED`: throw its content away.
    DontNeed,
    /// `MADV_POPULATE_WRITE` (5.14 on): make it resident and writable, without touching it.
    PopulateWrite,
}

/// The mmap family.
pub trait Memory {
    /// Size of a base page.
    fn page_size(&self) -> Bytes;

    /// Maps memory.
    ///
    /// # Errors
    /// As mmap(2): `ENOMEM` where `vm.max_map_count`, an rlimit or the address space ends. An
    /// alignment or a huge page that is no power of two is refused.
    fn map(&self, request: &MapRequest<'_>) -> Result<Mapping>;

    /// Unmaps the whole mapping.
    ///
    /// # Errors
    /// As munmap(2); the mapping is then lost, still mapped.
    fn unmap(&self, mapping: Mapping) -> Result<()>;

    /// Changes the protection of `length` bytes from `offset` on (page aligned; rounded up).
    ///
    /// # Errors
    /// As mprotect(2), or when the part leaves the mapping.
    fn protect(
        &self,
        mapping: &mut Mapping,
        offset: Bytes,
        length: Bytes,
        protection: Protection,
    ) -> Result<()>;

    /// Gives advice about `length` bytes from `offset` on (page aligned).
    ///
    /// # Errors
    /// As madvise(2): `EINVAL` where the kernel does not know the advice or the mapping is
    /// locked; or when the part leaves the mapping.
    fn advise(&self, mapping: &Mapping, offset: Bytes, length: Bytes, advice: Advice)
    -> Result<()>;

    /// Uses one byte of each page of `length` bytes from `offset` on: writes where the mapping
    /// is writable, reads otherwise.
    ///
    /// # Errors
    /// When the part leaves the mapping.
    fn touch(&self, mapping: &Mapping, offset: Bytes, length: Bytes) -> Result<()>;

    /// A file in memory of `length` bytes, holding no page yet.
    ///
    /// # Errors
    /// As memfd_create(2) and ftruncate(2).
    fn mem_file(&self, length: Bytes) -> Result<MemFile>;
}
