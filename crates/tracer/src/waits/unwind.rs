//! Call chains of programs from the bytes of their stacks, by the unwind tables of their files; where a file has none, by
//! frame pointers.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use object::SegmentFlags;
use object::elf::PF_X;
use object::read::{Object, ObjectSection, ObjectSegment, ReadCache};
use stopgap_capture::UserStack;
use stopgap_events::order::SortRows as _;
use stopgap_trace::MappedFile;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, UnwindRegsAarch64, UnwinderAarch64 as Unwinder};
#[cfg(not(target_arch = "aarch64"))]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64, UnwinderX86_64 as Unwinder};

use crate::perf::{File, Mappings, open_mapped};

/// Frames of a stack; a deeper one is cut.
const FRAMES: usize = 128;
/// Processes whose tables are kept at a time.
const PROCESSES: usize = 256;

/// A section's name, addresses and bytes.
type Section = (&'static str, Range<u64>, Arc<[u8]>);

/// A file's sections that unwinding needs, and where its segments lie.
struct Tables {
    sections: Vec<Section>,
    /// Offset in the file, size, and address of each segment of code.
    segments: Vec<(u64, u64, u64)>,
    build_id: Option<Vec<u8>>,
}

const SECTIONS: [&str; 4] = [".text", ".got", ".eh_frame", ".eh_frame_hdr"];

/// Unwinds stacks of processes whose mappings are known.
#[derive(Default)]
pub(super) struct Chains {
    files: HashMap<Rc<File>, Option<Rc<Tables>>>,
    processes: HashMap<(u32, u64), Unwinder<Arc<[u8]>>>,
    cache: Cache,
}

impl Chains {
    /// Returns the chain of a stack, innermost first: never empty. `read_at` says which reading of the process's mappings
    /// `mappings` are.
    pub(super) fn chain(
        &mut self,
        stack: &UserStack,
        mappings: Option<&Mappings>,
        read_at: u64,
    ) -> Vec<u64> {
        let Some(mappings) = mappings else {
            return by_frame_pointers(stack);
        };
        let key = (stack.tgid, read_at);
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&key) {
            self.processes.clear();
        }
        let files = &mut self.files;
        let unwinder = self.processes.entry(key).or_insert_with(|| {
            let mut unwinder = Unwinder::new();
            for (start, end, offset, file) in mappings.all() {
                let tables = files
                    .entry(Rc::clone(file))
                    .or_insert_with(|| tables(file).map(Rc::new));
                if let Some(module) = tables
                    .as_ref()
                    .and_then(|tables| module(file, tables, start..end, offset))
                {
                    unwinder.add_module(module);
                }
            }
            unwinder
        });
        #[cfg(target_arch = "aarch64")]
        let registers = UnwindRegsAarch64::new(stack.link, stack.sp, stack.bp);
        #[cfg(not(target_arch = "aarch64"))]
        let registers = UnwindRegsX86_64::new(stack.ip, stack.sp, stack.bp);
        let mut read = |address: u64| -> Result<u64, ()> {
            let at = usize::try_from(address.checked_sub(stack.sp).ok_or(())?).map_err(|_| ())?;
            let bytes = stack
                .bytes
                .get(at..at.checked_add(8).ok_or(())?)
                .ok_or(())?;
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| ())?))
        };
        let mut frames = unwinder.iter_frames(stack.ip, registers, &mut self.cache, &mut read);
        let mut chain = Vec::new();
        while chain.len() < FRAMES
            && let Ok(Some(frame)) = frames.next()
        {
            chain.push(frame.address());
        }
        if chain.is_empty() {
            vec![stack.ip]
        } else {
            chain
        }
    }
}

impl Chains {
    /// Returns the build ids of the files that processes with stacks had mapped, sorted by path.
    pub(super) fn build_ids(&self) -> Vec<MappedFile> {
        let known = self.files.iter().filter_map(|(file, tables)| {
            let id = tables.as_ref()?.build_id.as_ref()?;
            let digits = id.iter().map(|byte| format!("{byte:02x}"));
            Some(MappedFile {
                path: file.name.clone(),
                build_id: digits.collect(),
            })
        });
        let mut files: Vec<MappedFile> = known.collect();
        files.sort_rows(Ord::cmp);
        files.dedup();
        files
    }
}

/// The chain that the kernel found: right where the whole program keeps frame pointers.
fn by_frame_pointers(stack: &UserStack) -> Vec<u64> {
    match stack.frames.as_slice() {
        [] => vec![stack.ip],
        frames => frames.to_vec(),
    }
}

/// Reads the tables of the file where it still is the one that was mapped, and an ELF file.
fn tables(file: &File) -> Option<Tables> {
    let opened = open_mapped(file, None)?;
    let cache = ReadCache::new(opened);
    let elf = object::read::File::parse(&cache).ok()?;
    let mut tables = Tables {
        sections: Vec::new(),
        segments: Vec::new(),
        build_id: elf.build_id().ok().flatten().map(<[u8]>::to_vec),
    };
    for name in SECTIONS {
        let Some(section) = elf.section_by_name(name) else {
            continue;
        };
        let range = section.address()..section.address().checked_add(section.size())?;
        // Of code and of the offset table their place is enough.
        let data = match name {
            ".eh_frame" | ".eh_frame_hdr" => section.data().unwrap_or_default(),
            _ => &[],
        };
        tables.sections.push((name, range, data.into()));
    }
    // Mappings of code are of segments of code; in a small file others lie in the same pages.
    let code =
        |flags: SegmentFlags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0);
    for segment in elf.segments().filter(|segment| code(segment.flags())) {
        let (offset, size) = segment.file_range();
        tables.segments.push((offset, size, segment.address()));
    }
    Some(tables)
}

fn module(
    file: &File,
    tables: &Tables,
    addresses: Range<u64>,
    offset: u64,
) -> Option<Module<Arc<[u8]>>> {
    // A mapping begins at a page, a segment perhaps within it.
    const PAGE: u64 = 1 << 16;
    let holds = |&&(begin, size, _): &&(u64, u64, u64)| {
        begin < offset.saturating_add(PAGE) && offset < begin.saturating_add(size)
    };
    let mut segments = tables.segments.iter();
    let (begin, _, address) = segments.rfind(holds)?;
    let bias = addresses
        .start
        .wrapping_sub(address.wrapping_add(offset.wrapping_sub(*begin)));
    let find = |name: &str| tables.sections.iter().find(|(known, ..)| *known == name);
    let range = |name| find(name).map(|(_, range, _)| range.clone());
    let data = |name| find(name).map(|(.., data)| Arc::clone(data));
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        ..ExplicitModuleSectionInfo::default()
    };
    Some(Module::new(file.name.clone(), addresses, bias, sections))
}
