//! What a command is, before it is run: whether the dynamic linker will load a library into it at all.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use stopgap_kernel::folder;

/// As deep as the kernel follows scripts.
const SCRIPTS: u32 = 4;
/// The reason of a static program.
const STATIC: &str = "is statically linked (its ELF file names no interpreter, PT_INTERP)";
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// Why the library will not be in a program.
pub(super) struct Reason {
    /// The program's file, and the reason.
    pub(super) why: String,
    /// Whether the program is linked statically: no program of that file can have a library.
    pub(super) is_static: bool,
}

/// Why the library will not be in `word`, found as a shell finds it; `None` where it will, or where nothing is known.
pub(super) fn passes_through(word: &OsStr) -> Option<Reason> {
    let path = find(word)?;
    of_file(&path, SCRIPTS)
}

pub(crate) fn find(word: &OsStr) -> Option<PathBuf> {
    if word.as_bytes().contains(&b'/') {
        return Some(word.into());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(word))
        .find(|path| {
            let meta = std::fs::metadata(path);
            meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

fn of_file(path: &Path, scripts: u32) -> Option<Reason> {
    // A pipe with such a name is no program, and is not waited for.
    let file = folder::open(path, |_| false).ok()?;
    let mut head = Vec::new();
    Read::by_ref(&mut (&file))
        .take(4096)
        .read_to_end(&mut head)
        .ok()?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next()?;
        let words = line.split(u8::is_ascii_whitespace);
        let mut words = words.filter(|word| !word.is_empty());
        let interpreter = words.next()?;
        // `#!/usr/bin/env NAME`: who is meant is the next word.
        let named = words.next().filter(|_| interpreter.ends_with(b"/env"));
        let next = match named {
            Some(name) => find(OsStr::from_bytes(name))?,
            None => PathBuf::from(std::ffi::OsString::from_vec(interpreter.to_vec())),
        };
        let left = scripts.checked_sub(1)?;
        return of_file(&next, left);
    }
    let meta = file.metadata().ok()?;
    // The linker ignores the variable where somebody gains rights.
    let gains = (meta.mode() & SETUID != 0 && meta.uid() != rustix::process::getuid().as_raw())
        || (meta.mode() & SETGID != 0 && meta.gid() != rustix::process::getgid().as_raw())
        || has_capabilities(path);
    if gains {
        return Some(Reason {
            why: format!(
                "{} gains rights when it is run (set-user-ID, set-group-ID or file capabilities), and ld.so then ignores \
                 LD_PRELOAD",
                path.display()
            ),
            is_static: false,
        });
    }
    let why = elf(&file, &head)?;
    Some(Reason {
        is_static: why == STATIC,
        why: format!("{} {why}", path.display()),
    })
}

fn has_capabilities(path: &Path) -> bool {
    let mut none = [0_u8; 0];
    rustix::fs::getxattr(path, "security.capability", &mut none).is_ok_and(|length| length > 0)
}

/// A part of an ELF file as its program header has it.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    length: u64,
}

/// The segments of a 64-bit ELF file of this machine's byte order; `None` where the file ends before they do.
fn segments(file: &File, head: &[u8]) -> Option<Vec<Segment>> {
    let half = |at: usize| Some(u16::from_ne_bytes(*head.get(at..)?.first_chunk()?));
    let table = u64::from_ne_bytes(*head.get(32..)?.first_chunk()?);
    let (size, count) = (u64::from(half(54)?), u64::from(half(56)?));
    let segment = |index: u64| {
        let mut entry = [0; 40];
        let at = table.checked_add(index * size)?;
        file.read_exact_at(&mut entry, at).ok()?;
        Some(Segment {
            kind: u32::from_ne_bytes(*entry.first_chunk()?),
            offset: u64::from_ne_bytes(*entry[8..].first_chunk()?),
            address: u64::from_ne_bytes(*entry[16..].first_chunk()?),
            length: u64::from_ne_bytes(*entry[32..].first_chunk()?),
        })
    };
    (0..count).map(segment).collect()
}

/// Returns what of an ELF file keeps our library out of it: the dynamic linker, or a sanitizer's runtime.
fn elf(file: &File, head: &[u8]) -> Option<String> {
    const CLASS_64: u8 = 2;
    const PT_INTERP: u32 = 3;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if *head.get(4)? != CLASS_64 {
        return Some("is a 32-bit program, the library is not".to_owned());
    }
    let segments = segments(file, head)?;
    if !segments.iter().any(|segment| segment.kind == PT_INTERP) {
        return Some(STATIC.to_owned());
    }
    let runtime = sanitizer(file, &segments)?;
    Some(format!(
        "is built with a sanitizer ({runtime}), which must see every map itself"
    ))
}

/// Returns the sanitizer's runtime that a program asks the dynamic linker for (`DT_NEEDED`), if it does.
fn sanitizer(file: &File, segments: &[Segment]) -> Option<String> {
    const RUNTIMES: [&[u8]; 4] = [b"libasan", b"libtsan", b"libhwasan", b"libclang_rt."];
    const PT_LOAD: u32 = 1;
    const PT_DYNAMIC: u32 = 2;
    const NEEDED: u64 = 1;
    const STRINGS: u64 = 5;
    const STRINGS_LENGTH: u64 = 10;
    /// Longer than any table is; what a broken file claims is not allocated.
    const MOST: u64 = 1 << 20;
    let read = |offset: u64, length: u64| {
        let mut bytes = vec![0; usize::try_from(length.min(MOST)).ok()?];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    };
    let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let table = read(dynamic.offset, dynamic.length)?;
    let entries: Vec<(u64, u64)> = table
        .chunks_exact(16)
        .map(|entry| {
            let word = |at: usize| {
                entry[at..]
                    .first_chunk()
                    .map(|word| u64::from_ne_bytes(*word))
            };
            (word(0).unwrap_or(0), word(8).unwrap_or(0))
        })
        .collect();
    let value = |tag: u64| {
        entries
            .iter()
            .find(|entry| entry.0 == tag)
            .map(|entry| entry.1)
    };
    let address = value(STRINGS)?;
    let load = segments.iter().find(|segment| {
        segment.kind == PT_LOAD
            && (segment.address..segment.address.saturating_add(segment.length)).contains(&address)
    })?;
    let strings = read(
        load.offset.checked_add(address - load.address)?,
        value(STRINGS_LENGTH)?,
    )?;
    let needed = entries.iter().filter(|entry| entry.0 == NEEDED);
    let mut names = needed.filter_map(|(_, at)| {
        let name = strings.get(usize::try_from(*at).ok()?..)?;
        name.split(|byte| *byte == 0).next()
    });
    let found = names.find(|name| RUNTIMES.iter().any(|runtime| name.starts_with(runtime)))?;
    Some(String::from_utf8_lossy(found).into_owned())
}

/// The note by which the library is known (`crates/preload/src/lib.rs`): lengths of name and version, kind, name, version.
fn note() -> Vec<u8> {
    let [name_length, version_length, kind, version] = [8_u32, 4, 1, 3].map(u32::to_ne_bytes);
    [name_length, version_length, kind]
        .concat()
        .into_iter()
        .chain(*b"stopgap\0")
        .chain(version)
        .collect()
}

/// Whether an ELF file has [`note`] among its notes.
fn is_ours(file: &File, head: &[u8]) -> bool {
    const PT_NOTE: u32 = 4;
    /// Longer than all notes of a library are together.
    const MOST: u64 = 1 << 16;
    let ours = note();
    let segments = segments(file, head).unwrap_or_default();
    let mut notes = segments.iter().filter(|segment| segment.kind == PT_NOTE);
    notes.any(|segment| {
        let mut bytes = vec![0; segment.length.min(MOST) as usize];
        let read = file.read_exact_at(&mut bytes, segment.offset);
        read.is_ok() && bytes.windows(ours.len()).any(|part| part == ours)
    })
}

/// Why `library` is none that can be preloaded: ld.so could not load it into a program of this machine, or it is another
/// one, which would change nothing. `None` where nothing is against it.
pub(super) fn cannot_load(library: &Path) -> Option<String> {
    /// Parts of an ELF file's head: class and byte order, kind, machine.
    const TELLING: [std::ops::Range<usize>; 3] = [4..6, 16..18, 18..20];
    const SHARED: [u8; 2] = 3_u16.to_ne_bytes();
    let head = |path: &Path| {
        let mut head = [0_u8; 64];
        let mut file = folder::open(path, |_| false)?;
        file.read_exact(&mut head)?;
        Ok::<_, std::io::Error>((file, head))
    };
    let (file, of_library) = match head(library) {
        Ok(read) => read,
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Some("is no library".to_owned());
        }
        Err(error) => return Some(format!("cannot be read: {error}")),
    };
    let [format, kind, machine] = TELLING;
    if !of_library.starts_with(b"\x7fELF") {
        return Some("is no library".to_owned());
    }
    // This command runs here, so its head says what does.
    let (_, own) = head(Path::new("/proc/self/exe")).ok()?;
    let same = |part: std::ops::Range<usize>| of_library[part.clone()] == own[part];
    if !same(format) || !same(machine) {
        return Some("is of another machine".to_owned());
    }
    if of_library[kind] != SHARED {
        return Some("is no shared library".to_owned());
    }
    let other = "is another library, or that of another version of stopgap";
    (!is_ours(&file, &of_library)).then(|| other.to_owned())
}

#[cfg(test)]
mod tests;
