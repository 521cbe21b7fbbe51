//! Names of functions in programs and libraries.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use stopgap_events::trace::Text;

use super::mappings::File;

/// Whoever knows functions of files.
pub trait Names {
    /// The function at `offset` of `file`; `None` where nobody knows.
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
    files: HashMap<Rc<File>, Option<Elf>>,
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
        let elf = elf.or_insert_with(|| elf_of(file, until)).as_ref()?.clone();
        let source = Source::Elf(elf);
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

/// The file where it still is the one that was mapped.
fn elf_of(file: &File, until: Option<SystemTime>) -> Option<Elf> {
    let path = Path::new(&file.name);
    // Of all else opening may wait, or do something.
    let there = path.is_absolute().then(|| path.metadata().ok()).flatten()?;
    let written = there.modified().ok();
    let later = written
        .zip(until)
        .is_some_and(|(written, until)| written > until);
    let same = there.is_file() && there.ino() == file.inode && !later;
    same.then(|| {
        let mut elf = Elf::new(path);
        elf.debug_syms = false;
        elf
    })
}
