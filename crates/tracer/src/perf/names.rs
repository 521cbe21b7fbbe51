//! Names of functions in programs and libraries.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use stopgap_kernel::folder;
use stopgap_trace::Text;

use super::mappings::File;

/// Whoever knows functions of files.
pub trait Names {
    /// Returns the function at `offset` of `file`; `None` where it is unknown.
    fn function(&mut self, file: &Rc<File>, offset: u64) -> Option<Text>;
}

/// Nobody: every frame is its file and offset.
pub struct NoNames;

impl Names for NoNames {
    fn function(&mut self, _: &Rc<File>, _: u64) -> Option<Text> {
        None
    }
}

/// Functions by the symbol tables of ELF files on this machine, C++ and Rust names in their own form.
/// A file that is gone, is another one by now, or was written to after the recording has none.
pub struct ElfNames {
    symbolizer: Symbolizer,
    /// The end of the recording, where it is known.
    until: Option<SystemTime>,
    /// Each stays open: it is read by its descriptor, because by then its name may be another file's.
    files: HashMap<Rc<File>, Option<(Elf, fs::File)>>,
}

impl ElfNames {
    /// Names for a recording that ended at `until`.
    #[must_use]
    pub fn new(until: Option<SystemTime>) -> ElfNames {
        // A file is looked at before its first use; line numbers need DWARF, which is not read.
        let builder = Symbolizer::builder().enable_auto_reload(false);
        ElfNames {
            symbolizer: builder.enable_code_info(false).build(),
            until,
            files: HashMap::new(),
        }
    }
}

impl Names for ElfNames {
    fn function(&mut self, file: &Rc<File>, offset: u64) -> Option<Text> {
        let until = self.until;
        let elf = self.files.entry(Rc::clone(file));
        let (elf, _) = elf.or_insert_with(|| elf_of(file, until)).as_ref()?;
        let source = Source::Elf(elf.clone());
        let symbol = self
            .symbolizer
            .symbolize_single(&source, Input::FileOffset(offset));
        match symbol {
            Ok(Symbolized::Sym(symbol)) => Some(Text::from(&*symbol.name)),
            Ok(Symbolized::Unknown(_)) => None,
            Err(_) => {
                self.files.insert(Rc::clone(file), None); // no ELF file: not again
                None
            }
        }
    }
}

/// The symbols of the file where it still is the one that was mapped.
fn elf_of(file: &File, until: Option<SystemTime>) -> Option<(Elf, fs::File)> {
    let opened = open_mapped(file, until)?;
    let mut elf = Elf::new(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    elf.debug_syms = false;
    Some((elf, opened))
}

/// Opens the file where it still is the one that was mapped, and was not written to after `until`.
pub(crate) fn open_mapped(file: &File, until: Option<SystemTime>) -> Option<fs::File> {
    let path = Path::new(&file.name);
    let open = || folder::open(path, |_| false).ok();
    let opened = path.is_absolute().then(open).flatten()?;
    let there = opened.metadata().ok()?;
    let written = there.modified().ok();
    let later = written
        .zip(until)
        .is_some_and(|(written, until)| written > until);
    let same = there.ino() == file.inode && !later;
    same.then_some(opened)
}
