//! Names of functions in programs and libraries.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use stopgap_kernel::folder;
use stopgap_trace::Text;

use super::go::Functions;
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

/// Functions by the symbol tables of ELF files on this machine, C++ and Rust names in their own form; those of Go without one, by Go's.
/// A file that is gone, is another one by now, or was written to after the recording has none.
pub struct ElfNames {
    /// Names as they are in the files.
    plain: Symbolizer,
    /// Names of C++ and Rust in their own form; made for the first of them. It would take a function of C, `f`, for the
    /// type `float`.
    readable: Option<Symbolizer>,
    /// The end of the recording, where it is known.
    until: Option<SystemTime>,
    /// Each stays open: it is read by its descriptor, because by then its name may be another file's.
    files: HashMap<Rc<File>, Option<Opened>>,
}

struct Opened {
    elf: Elf,
    file: fs::File,
    /// Of a program of Go.
    go: Option<Functions>,
}

impl ElfNames {
    /// Names for a recording that ended at `until`.
    #[must_use]
    pub fn new(until: Option<SystemTime>) -> ElfNames {
        ElfNames {
            plain: symbolizer(false),
            readable: None,
            until,
            files: HashMap::new(),
        }
    }
}

impl Names for ElfNames {
    fn function(&mut self, file: &Rc<File>, offset: u64) -> Option<Text> {
        let until = self.until;
        let elf = self.files.entry(Rc::clone(file));
        let opened = elf.or_insert_with(|| elf_of(file, until)).as_ref()?;
        let source = Source::Elf(opened.elf.clone());
        let input = Input::FileOffset(offset);
        match self.plain.symbolize_single(&source, input) {
            Ok(Symbolized::Sym(symbol)) if is_mangled(&symbol.name) => {
                let readable = self.readable.get_or_insert_with(|| symbolizer(true));
                match readable.symbolize_single(&source, input) {
                    Ok(Symbolized::Sym(symbol)) => Some(Text::from(&*symbol.name)),
                    _ => Some(Text::from(&*symbol.name)),
                }
            }
            Ok(Symbolized::Sym(symbol)) => Some(Text::from(&*symbol.name)),
            Ok(Symbolized::Unknown(_)) => {
                let go = opened.go.as_ref();
                if let Some(name) = go.and_then(|go| go.name(&opened.file, offset)) {
                    return Some(name.into());
                }
                // The frame of a call has the address before the one to which it returns.
                returns_from_signal(&opened.file, offset + 1).then(|| RESTORER.into())
            }
            Err(_) => {
                self.files.insert(Rc::clone(file), None); // no ELF file: not again
                None
            }
        }
    }
}

fn symbolizer(readable: bool) -> Symbolizer {
    // A file is looked at before its first use; line numbers need DWARF, which is not read.
    let builder = Symbolizer::builder().enable_auto_reload(false);
    let builder = builder.enable_code_info(false);
    builder.enable_demangling(readable).build()
}

/// What the C libraries call the function to which a signal's handler returns. A stripped library does not have the name.
const RESTORER: &str = "__restore_rt";

/// Whether a signal's handler returns to this place of a file: what is there calls sigreturn (`SA_RESTORER`, sigaction(2)).
fn returns_from_signal(file: &fs::File, offset: u64) -> bool {
    let mut code = [0; 9];
    // x86-64: mov $15, %rax or %eax; syscall.
    file.read_exact_at(&mut code, offset).is_ok()
        && (code == *b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05"
            || code.starts_with(b"\xb8\x0f\0\0\0\x0f\x05"))
}

/// Whether this is a name of C++ or Rust.
fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// The symbols of the file where it still is the one that was mapped.
fn elf_of(file: &File, until: Option<SystemTime>) -> Option<Opened> {
    let file = open_mapped(file, until)?;
    let mut elf = Elf::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    elf.debug_syms = false;
    let go = Functions::of(&file);
    Some(Opened { elf, file, go })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Mangled, `f` is the type `float`, and `h` is `unsigned char`.
    #[expect(unsafe_code, reason = "no other symbol of the test has this name")]
    #[unsafe(no_mangle)]
    extern "C" fn f() -> u32 {
        std::hint::black_box(1)
    }

    #[inline(never)]
    fn of_rust() -> u32 {
        std::hint::black_box(2)
    }

    /// The name of the function at this address of the test itself.
    fn name(address: usize) -> String {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let offset = maps.lines().find_map(|line| {
            let mut fields = line.split_whitespace();
            let (begin, end) = fields.next()?.split_once('-')?;
            let [begin, end] = [begin, end].map(|hex| usize::from_str_radix(hex, 16).unwrap());
            let offset = usize::from_str_radix(fields.nth(1)?, 16).unwrap();
            (begin..end)
                .contains(&address)
                .then(|| address - begin + offset)
        });
        let own = std::env::current_exe().unwrap();
        let file = Rc::new(File {
            inode: fs::metadata(&own).unwrap().ino(),
            name: own.into_os_string().into_string().unwrap(),
        });
        let offset = offset.unwrap() as u64;
        let name = ElfNames::new(None).function(&file, offset);
        name.unwrap().to_string()
    }

    /// The bytes of glibc's and musl's restorers, and of a call of another number.
    #[test]
    fn a_restorer_without_a_name_is_known_by_its_code() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(
            &mut file,
            b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05\xb8\x0f\0\0\0\x0f\x05\x48\xc7\xc0\x0e\0\0\0\x0f\x05",
        )
        .unwrap();
        let found: Vec<u64> = (0..25)
            .filter(|&at| returns_from_signal(&file, at))
            .collect();
        assert_eq!(found, [0, 9]);
    }

    #[test]
    fn a_function_of_c_is_not_a_type_of_cpp() {
        assert_eq!(f() + of_rust(), 3);
        assert_eq!(name(f as *const () as usize), "f");
        let rust = name(of_rust as *const () as usize);
        assert!(rust.ends_with("::names::tests::of_rust"), "{rust}");
    }
}
