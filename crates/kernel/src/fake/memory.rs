use std::collections::BTreeMap;
use std::fmt::Write;

use stopgap_events::memory::Protection;
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

use super::Fake;
use crate::error::{Error, Result};
use crate::memory::{Advice, MapRequest, Mapping, MemFile, Memory, Origin};

/// How the fake kernel finds room for a mapping, and what that costs on its virtual clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// At a constant cost.
    Constant,
    /// By walking down from the top over every mapping until a hole fits, as 2.6.35's full
    /// scan does: [`VISIT_NS`] a mapping.
    Linear,
}

/// Cost of any call, ns.
const CALL_NS: u64 = 1_500;
/// Cost of looking at one mapping, ns.
const VISIT_NS: u64 = 40;
/// Cost of printing one line of maps, ns.
const LINE_NS: u64 = 300;
/// Cost of the first use of a page, ns.
const FAULT_NS: u64 = 500;
const PAGE: u64 = 4096;
const TOP: u64 = 0x7fff_0000_0000;
const BOTTOM: u64 = 0x1_0000;
const LIMIT: usize = 65_530;

/// The fake address space: mappings by start address. None ever merges.
#[derive(Debug, Default)]
pub(super) struct Space {
    live: BTreeMap<u64, u64>,
}

impl Space {
    /// The highest hole for `length` and how many mappings were looked at to find it.
    fn find(&self, length: u64) -> Option<(u64, u64)> {
        let (mut ceiling, mut visited) = (TOP, 0);
        for (&start, &end) in self.live.iter().rev() {
            visited += 1;
            if ceiling - end >= length {
                return Some((ceiling - length, visited));
            }
            ceiling = start;
        }
        (ceiling - BOTTOM >= length).then_some((ceiling - length, visited))
    }
}

impl Fake {
    pub(super) fn print_maps(&self) -> Vec<u8> {
        let mut state = self.state();
        let lines = LINE_NS * state.memory.live.len() as u64;
        state.spend(CALL_NS + lines);
        let mut text = String::new();
        for (start, end) in &state.memory.live {
            let _ = writeln!(
                text,
                "{start:x}-{end:x} rw-s 00000000 00:01 1 /dev/zero (deleted)"
            );
        }
        text.into_bytes()
    }
}

impl Memory for Fake {
    fn page_size(&self) -> Bytes {
        Bytes(PAGE)
    }

    fn map(&self, request: &MapRequest<'_>) -> Result<Mapping> {
        let length = request.length.page_aligned(Bytes(PAGE));
        let mut state = self.state();
        if length.0 == 0 {
            return Err(Error::refusal("mmap", length, libc::EINVAL));
        }
        if state.memory.live.len() >= LIMIT {
            return Err(Error::refusal("mmap", length, libc::ENOMEM));
        }
        let align = request.align.0.max(PAGE);
        let (start, visited) = state
            .memory
            .find(length.0 + align - PAGE)
            .ok_or_else(|| Error::refusal("mmap", length, libc::ENOMEM))?;
        let start = start.next_multiple_of(align);
        let range = AddressRange {
            start,
            end: start + length.0,
        };
        state.memory.live.insert(range.start, range.end);
        state.spend(
            CALL_NS
                + match self.search {
                    Search::Constant => 0,
                    Search::Linear => VISIT_NS * visited,
                },
        );
        let writable = request.protection == Protection::Write;
        Ok(Mapping::new(range, writable, Origin::Fake))
    }

    fn unmap(&self, mapping: Mapping) -> Result<()> {
        assert_eq!(mapping.origin(), Origin::Fake, "a mapping of the kernel");
        let mut state = self.state();
        state.spend(CALL_NS);
        let range = mapping.range();
        match state.memory.live.remove(&range.start) {
            Some(_) => Ok(()),
            None => Err(Error::refusal("munmap", range, libc::EINVAL)),
        }
    }

    fn protect(
        &self,
        mapping: &mut Mapping,
        offset: Bytes,
        length: Bytes,
        protection: Protection,
    ) -> Result<()> {
        let length = length.page_aligned(Bytes(PAGE));
        if mapping.range().part(offset, length).is_none() {
            return Err(Error::refusal("mprotect", length, libc::EINVAL));
        }
        mapping.set_writable(protection == Protection::Write);
        self.state().spend(CALL_NS);
        Ok(())
    }

    fn advise(
        &self,
        mapping: &Mapping,
        offset: Bytes,
        length: Bytes,
        advice: Advice,
    ) -> Result<()> {
        if mapping.range().part(offset, length).is_none() {
            return Err(Error::refusal("madvise", length, libc::EINVAL));
        }
        let mut state = self.state();
        state.spend(CALL_NS);
        if advice == Advice::PageOut {
            let cost = state.page_out(mapping.range(), length.pages(Bytes(PAGE)).0)?;
            state.now_ns += cost;
        }
        Ok(())
    }

    fn touch(&self, mapping: &Mapping, offset: Bytes, length: Bytes) -> Result<()> {
        if mapping.range().part(offset, length).is_none() {
            return Err(Error::refusal("touch", length, libc::EINVAL));
        }
        self.state().spend(FAULT_NS * length.pages(Bytes(PAGE)).0);
        Ok(())
    }

    fn mem_file(&self, _length: Bytes) -> Result<MemFile> {
        Ok(MemFile { fd: None })
    }
}
