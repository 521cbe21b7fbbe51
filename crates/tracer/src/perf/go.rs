//! Names of functions in programs of Go that have no symbol table, as distributions ship them: Go's run time has a table of its own
//! (`.gopclntab`, Go's src/runtime/symtab.go and src/debug/gosym/pclntab.go), which is never stripped.
//!
//! ```text
//! header     magic, 0, 0, the size of an instruction and of a pointer; then words: functions, files, the address of the
//!            code (0 since Go 1.26), offsets of names, units, files, lines, functions
//! functions  for each, by address: its offset in the code, and where in this part it is described; u32 each
//! described  its offset in the code, i32: where in the names its name begins
//! ```

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use object::read::{Object, ObjectSection, ObjectSegment, ReadCache};
use stopgap_kernel::System;

/// Sections of the table. Of a program that may lie anywhere, some linkers' name for it is the longer one.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// The magic numbers of Go 1.18 and 1.20; later ones have the latter.
const MAGIC: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
/// Bytes of a name that are read.
const LONGEST_NAME: usize = 256;
/// Bytes to which functions are aligned, at most.
const ALIGNMENT: u64 = 64;
/// Bytes of the header.
const HEADER: usize = 72;

/// Whether a process runs a program of Go. Costs 20 to 100 us, where its program may be read.
#[must_use]
pub fn is_go(pid: u32) -> bool {
    let Ok(file) = fs::File::open(format!("/proc/{pid}/exe")) else {
        return false;
    };
    let cache = ReadCache::new(file);
    let elf = object::read::File::parse(&cache);
    elf.is_ok_and(|elf| (SECTIONS.into_iter()).any(|name| elf.section_by_name(name).is_some()))
}

/// Returns the processes of this machine that run programs of Go.
pub(crate) fn processes(system: &dyn System) -> Vec<u32> {
    let mut known: HashMap<(u64, u64), bool> = HashMap::new();
    let names = system.list("/proc".as_ref()).unwrap_or_default();
    let mut found: Vec<u32> = (names.iter().filter_map(|name| name.parse().ok()))
        .filter(|pid| {
            let program = fs::metadata(format!("/proc/{pid}/exe"));
            program.is_ok_and(|program| {
                let file = (program.dev(), program.ino());
                *known.entry(file).or_insert_with(|| is_go(*pid))
            })
        })
        .collect();
    found.sort_unstable();
    found
}

/// The table of functions of one file. Nothing of it is kept: a name costs some twenty reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Functions {
    /// Where in the file the table begins, and its end.
    begin: u64,
    end: u64,
    count: u64,
    /// Where in the table names begin, and functions.
    names: u64,
    functions: u64,
    code: u64,
    /// Offset in the file, size, and address of each segment.
    segments: Vec<(u64, u64, u64)>,
}

impl Functions {
    /// Finds the table of a file; `None` where it has none, or one of a version that is not known.
    pub(super) fn of(file: &fs::File) -> Option<Functions> {
        let cache = ReadCache::new(file.try_clone().ok()?);
        let elf = object::read::File::parse(&cache).ok()?;
        let named = |name| elf.section_by_name(name);
        let section = SECTIONS.into_iter().find_map(named)?;
        let (begin, size) = section.file_range()?;
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, begin).ok()?;
        let magic = u32::from_le_bytes(*header.first_chunk()?);
        if !MAGIC.contains(&magic) || header[7] != 8 {
            return None;
        }
        let word = |at: usize| {
            let bytes = header.get(8 + 8 * at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let segments = elf.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            (offset, size, segment.address())
        });
        let mut functions = Functions {
            begin,
            end: begin.checked_add(size)?,
            count: word(0)?,
            names: word(3)?,
            functions: word(7)?,
            code: word(2)?,
            segments: segments.collect(),
        };
        if functions.code == 0 {
            // Where C code lies before Go's, nothing says how much: then the functions' code is shorter than all.
            let text = named(".text")?;
            let code = functions.pair(file, functions.count)?.0;
            if text.size().checked_sub(code)? >= ALIGNMENT {
                return None;
            }
            functions.code = text.address();
        }
        Some(functions)
    }

    /// Returns the name of the function at `offset` of the file.
    pub(super) fn name(&self, file: &fs::File, offset: u64) -> Option<String> {
        let (begin, _, address) = (self.segments.iter())
            .find(|(begin, size, _)| offset.checked_sub(*begin).is_some_and(|at| at < *size))?;
        let address = address.checked_add(offset - begin)?;
        let wanted = address.checked_sub(self.code)?;
        // The last function that begins there or before. One more ends the table: the end of the code.
        let (mut first, mut last) = (0, self.count);
        if wanted >= self.pair(file, last)?.0 {
            return None;
        }
        while last - first > 1 {
            let middle = first + (last - first) / 2;
            if self.pair(file, middle)?.0 <= wanted {
                first = middle;
            } else {
                last = middle;
            }
        }
        let (entry, described) = self.pair(file, first)?;
        if entry > wanted {
            return None;
        }
        let name = self.read(
            file,
            self.functions.checked_add(described)?.checked_add(4)?,
            4,
        )?;
        let name = u32::from_le_bytes(*name.first_chunk()?);
        let name = self.read(file, self.names.checked_add(name.into())?, LONGEST_NAME)?;
        let name = name.split(|&byte| byte == 0).next()?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        (!name.is_empty()).then_some(name)
    }

    /// The offset of a function in the code, and of its description.
    fn pair(&self, file: &fs::File, which: u64) -> Option<(u64, u64)> {
        let at = self.functions.checked_add(which.checked_mul(8)?)?;
        // Of the last one, only the first is there.
        let bytes = self.read(file, at, 8)?;
        let number = |at: usize| {
            bytes
                .get(at..)?
                .first_chunk()
                .map(|four| u32::from_le_bytes(*four))
        };
        Some((number(0)?.into(), number(4).unwrap_or(0).into()))
    }

    /// At most `most` bytes of the table.
    fn read(&self, file: &fs::File, at: u64, most: usize) -> Option<Vec<u8>> {
        let at = self.begin.checked_add(at)?;
        let left = self.end.checked_sub(at)?;
        let mut bytes = vec![0; most.min(usize::try_from(left).ok()?)];
        file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u64 = 0x40_1000;
    const TEXT_AT: u64 = 0x1000;
    /// Names, and where each function begins in the code of 0x90 bytes.
    const FUNCTIONS: [(&str, u32); 3] = [("main.main", 0), ("runtime.stopm", 0x20), ("x.y", 0x80)];

    /// The table of Go 1.20, or of 1.26 where `code` is 0.
    fn table(code: u64) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = Vec::new();
        for (name, _) in FUNCTIONS {
            at.push(names.len() as u32);
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        let functions = HEADER + names.len();
        let mut table = Vec::from(MAGIC[1].to_le_bytes());
        table.extend([0, 0, 1, 8]);
        let words = [3, 1, code, HEADER as u64, 0, 0, 0, functions as u64];
        words
            .iter()
            .for_each(|word| table.extend(word.to_le_bytes()));
        table.extend(names);
        let described = 8 * FUNCTIONS.len() as u32 + 4;
        for (index, (_, begin)) in FUNCTIONS.iter().enumerate() {
            table.extend(begin.to_le_bytes());
            table.extend((described + 8 * index as u32).to_le_bytes());
        }
        table.extend(0x90_u32.to_le_bytes());
        for ((_, begin), name) in FUNCTIONS.iter().zip(at) {
            table.extend(begin.to_le_bytes());
            table.extend(name.to_le_bytes());
        }
        table
    }

    /// A program with that table, whose code has `size` bytes, as an ELF file.
    fn program(table: &[u8], size: u64) -> fs::File {
        const NAMES: &[u8] = b"\0.text\0.gopclntab\0.shstrtab\0";
        let end = TEXT_AT + size;
        let names_at = end + table.len() as u64;
        let sections_at = names_at + NAMES.len() as u64;
        let mut elf = Vec::from(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0");
        [TEXT, 64, sections_at]
            .iter()
            .for_each(|word| elf.extend(word.to_le_bytes()));
        elf.extend(0_u32.to_le_bytes());
        [64_u16, 56, 1, 64, 4, 3]
            .iter()
            .for_each(|word| elf.extend(word.to_le_bytes()));
        // One segment, of code.
        elf.extend([1_u32, 5].iter().flat_map(|word| word.to_le_bytes()));
        let segment = [TEXT_AT, TEXT, TEXT, size, size, 0x1000];
        segment
            .iter()
            .for_each(|word| elf.extend(word.to_le_bytes()));
        elf.resize(end as usize, 0);
        elf.extend_from_slice(table);
        elf.extend_from_slice(NAMES);
        elf.extend([0; 64]);
        let lengths = [size, table.len() as u64, NAMES.len() as u64];
        let places = [
            (1, 6, TEXT, TEXT_AT),
            (7, 2, 0x50_0000, end),
            (18, 0, 0, names_at),
        ];
        for ((name, flags, address, at), length) in places.into_iter().zip(lengths) {
            elf.extend(
                [name, if name == 18 { 3_u32 } else { 1 }]
                    .iter()
                    .flat_map(|word| word.to_le_bytes()),
            );
            let words = [flags, address, at, length, 0, 1, 0];
            words
                .iter()
                .for_each(|word: &u64| elf.extend(word.to_le_bytes()));
        }
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &elf).unwrap();
        file
    }

    #[test]
    fn functions_without_symbols_have_names() {
        for code in [TEXT, 0] {
            let file = program(&table(code), 0x90);
            let functions = Functions::of(&file).unwrap();
            let name = |offset| functions.name(&file, TEXT_AT + offset);
            for (offset, expected) in [
                (0, "main.main"),
                (0x1f, "main.main"),
                (0x20, "runtime.stopm"),
                (0x8f, "x.y"),
            ] {
                assert_eq!(
                    name(offset).as_deref(),
                    Some(expected),
                    "{offset:#x} {code:#x}"
                );
            }
            assert_eq!(name(0x90), None);
            assert_eq!(functions.name(&file, TEXT_AT - 1), None);
        }
    }

    /// Where Go's code begins is not known then: a wrong name is worse than none.
    #[test]
    fn code_of_c_before_that_of_go_has_no_names() {
        assert_eq!(Functions::of(&program(&table(0), 0x1090)), None);
        assert!(Functions::of(&program(&table(TEXT), 0x1090)).is_some());
    }

    /// A table is whatever somebody has put there.
    #[test]
    fn a_damaged_table_has_no_names_and_ends() {
        let whole = table(TEXT);
        for length in 0..whole.len() {
            let file = program(&whole[..length], 0x90);
            if let Some(functions) = Functions::of(&file) {
                (0..0x90).for_each(|offset| drop(functions.name(&file, TEXT_AT + offset)));
            }
        }
        for at in 4..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            let file = program(&damaged, 0x90);
            if let Some(functions) = Functions::of(&file) {
                (0..0x90).for_each(|offset| drop(functions.name(&file, TEXT_AT + offset)));
            }
        }
    }
}
