//! A Debian package's kernel, unpacked into a folder of ours: an ar archive with a compressed tar archive in it.
//!
//! Only regular files with the names that a kernel package has are written, and under names of ours: an entry's own name
//! never becomes a path. Links and devices are not made; a name that leads out of the package (`..`) is an error,
//! because nobody packs such a thing by mistake. The package's scripts are not run. Nothing is installed.
//!
//! Lineage: deb(5), ar(5). Cost: the kernel's part of the archive is decompressed, and all of it once modules are asked for.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use stopgap_events::bounded;
use stopgap_events::units::Bytes;
use tar::{EntryType, PaxExtensions};

use crate::compressed::{self, Compression};
use crate::{Error, Result, folder, image, modules};

/// How an ar archive begins.
pub(crate) const MAGIC: &[u8] = b"!<arch>\n";
/// No kernel package takes more when unpacked, in bytes.
const LARGEST: u64 = 4 << 30;
/// The most that is read of an entry that has the name of the next one.
const LARGEST_NAME: Bytes = Bytes::mib(1);
/// No kernel package has more entries.
const MOST_ENTRIES: usize = 200_000;

/// The files of a kernel package, modules left out.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub kernel: PathBuf,
    /// The text behind `vmlinuz-` in the kernel's name.
    pub release: String,
    pub config: Option<PathBuf>,
}

/// Unpacks kernel and configuration of the package at `path` into `folder`; `name` is for errors.
///
/// dpkg writes /boot before /lib, so that what comes after it is neither decompressed nor looked at.
pub(crate) fn unpack(name: &str, path: &Path, folder: &Path) -> Result<Unpacked> {
    let (mut release, mut config) = (None, None);
    read(name, path, folder, &mut |parts| match parts {
        ["boot", file] => match file.strip_prefix("vmlinuz-") {
            Some(of) if release.is_none() => {
                release = Some(of.to_owned());
                Take::As("vmlinuz".into(), image::LARGEST)
            }
            None if file.starts_with("config-") => {
                config = Some(folder.join("config"));
                Take::As("config".into(), image::LARGEST_CONFIG)
            }
            _ => Take::Skip,
        },
        _ if release.is_some() => Take::Stop,
        _ => Take::Skip,
    })?;
    let why = "no /boot/vmlinuz-* in it: a package that only depends on a kernel's? Give the one that has the release in its \
               name (linux-image-6.12.1-...)";
    Ok(Unpacked {
        kernel: folder.join("vmlinuz"),
        release: release.ok_or_else(|| Error::about(name, why))?,
        config,
    })
}

/// Unpacks its modules, and the kernel's lists of them, below `folder`. All of the package is decompressed.
pub(crate) fn unpack_modules(name: &str, path: &Path, folder: &Path) -> Result<()> {
    read(name, path, folder, &mut |parts| {
        let (["usr", "lib", "modules", _, inside @ ..] | ["lib", "modules", _, inside @ ..]) =
            parts
        else {
            return Take::Skip;
        };
        let most = match inside.last() {
            Some(&"modules.builtin") => modules::LARGEST_LIST,
            Some(name) if modules::name_of(name).is_some() => modules::LARGEST,
            _ => return Take::Skip,
        };
        Take::As(inside.iter().collect(), most)
    })
}

/// The fate of an entry.
enum Take {
    Skip,
    /// Written under this name below the folder, where it has no more than so many bytes.
    As(PathBuf, u64),
    /// Nothing more is needed.
    Stop,
}

/// Goes through the regular files of a package, by the parts of their names.
fn read(
    name: &str,
    path: &Path,
    folder: &Path,
    take: &mut dyn FnMut(&[&str]) -> Take,
) -> Result<()> {
    let file = folder::open(path).map_err(|e| Error::file(path, e))?;
    let length = file.metadata().map_err(|e| Error::file(path, e))?.len();
    let mut file = BufReader::with_capacity(1 << 16, file);
    let (member, size) = data_member(&mut file, length).map_err(|why| Error::about(name, why))?;
    let mut data = BufReader::with_capacity(1 << 16, file.take(size));
    let bad = |why: &str| Error::about(name, format!("{member}: {why}"));
    let compression = Compression::of(data.fill_buf().map_err(|e| Error::file(path, e))?);
    let data = compressed::reader(compression, data).map_err(|e| bad(&e.to_string()))?;
    // The crate reads headers piece by piece.
    let data = BufReader::with_capacity(1 << 18, data);
    // One byte more than allowed: a read of it is over the limit.
    let mut archive = tar::Archive::new(data.take(LARGEST + 1));
    let mut bytes = 0_u64;
    let entries = archive.entries().map_err(|e| bad(&e.to_string()))?;
    let mut name_before = None;
    // Raw: the crate would take the long name of an entry into memory, however long.
    for (number, entry) in entries.raw(true).enumerate() {
        let mut entry = entry.map_err(|e| bad(&format!("truncated or corrupted: {e}")))?;
        bytes = bytes.saturating_add(entry.size());
        if number >= MOST_ENTRIES || bytes > LARGEST {
            return Err(bad("more than a kernel package holds"));
        }
        match entry.header().entry_type() {
            EntryType::GNULongName | EntryType::XHeader => {
                let pax = entry.header().entry_type() == EntryType::XHeader;
                let text = bounded::read(&mut entry, LARGEST_NAME)
                    .map_err(|e| bad(&format!("the name of an entry: {e}")))?;
                name_before = long_name(&text, pax).or(name_before);
                continue;
            }
            EntryType::GNULongLink | EntryType::XGlobalHeader => continue,
            _ => {}
        }
        let inside = match name_before.take() {
            Some(name) => name,
            None => entry.path().map_err(|e| bad(&e.to_string()))?.into_owned(),
        };
        let parts = parts(&inside).map_err(|why| bad(&why))?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (inside, most) = match take(&parts) {
            Take::Skip => continue,
            Take::Stop => return Ok(()),
            Take::As(inside, most) => (inside, most),
        };
        let (target, inside) = (folder.join(&inside), inside.display());
        // Its header says it, and the archive's reader takes no more of it: nothing of it is written.
        if entry.size() > most {
            return Err(bad(&format!(
                "{inside}: larger than such a file of any kernel, of which at most {} are read",
                Bytes(most)
            )));
        }
        let writing = |e| Error::file(&target, e);
        fs::create_dir_all(target.parent().unwrap_or(folder)).map_err(writing)?;
        // An entry that comes twice replaces the first, as tar(1) has it.
        let mut to = fs::File::create(&target).map_err(writing)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match entry
                .read(&mut buffer)
                .map_err(|e| bad(&format!("{inside}: truncated or corrupted: {e}")))?
            {
                0 => break,
                read => to.write_all(&buffer[..read]).map_err(writing)?,
            }
        }
    }
    Ok(())
}

/// The name in an entry that has the next one's: pax(1)'s, or GNU tar's.
fn long_name(text: &[u8], pax: bool) -> Option<PathBuf> {
    let name = match pax {
        true => {
            let mut all = PaxExtensions::new(text).flatten();
            let path = all.find(|one| one.key_bytes() == b"path")?;
            path.value_bytes()
        }
        false => text
            .split(|&byte| byte == 0)
            .next()
            .filter(|name| !name.is_empty())?,
    };
    Some(OsStr::from_bytes(name).into())
}

/// The names of an entry's folders and of itself; `./` in front does not count.
fn parts(path: &Path) -> std::result::Result<Vec<String>, String> {
    path.components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| match part {
            Component::Normal(name) => name
                .to_str()
                .map(str::to_owned)
                .ok_or_else(|| format!("an entry's name is not text: {}", path.display())),
            // Some archives have a slash in front of every name.
            Component::RootDir => Err(format!(
                "an entry with an absolute name: {}",
                path.display()
            )),
            _ => Err(format!(
                "an entry that leads out of the package: {}",
                path.display()
            )),
        })
        .collect()
}

/// Finds `data.tar*`: its name and size. `file` stands before its bytes then.
fn data_member(
    file: &mut (impl Read + Seek),
    length: u64,
) -> std::result::Result<(String, u64), String> {
    const HEADER: u64 = 60;
    let mut at = MAGIC.len() as u64;
    let mut first = true;
    while at < length {
        let mut header = [0; HEADER as usize];
        file.seek(SeekFrom::Start(at)).map_err(|e| e.to_string())?;
        file.read_exact(&mut header)
            .map_err(|_| "truncated: the archive ends in a member's header".to_owned())?;
        if header[58..60] != *b"`\n" {
            return Err("not a Debian package: an ar archive with a damaged header".to_owned());
        }
        let text = |range: std::ops::Range<usize>| {
            std::str::from_utf8(&header[range])
                .map(|text| text.trim().trim_end_matches('/').to_owned())
        };
        let damaged = |_| "not a Debian package: a member's header is not text".to_owned();
        let name = text(0..16).map_err(damaged)?;
        let size: u64 = text(48..58)
            .map_err(damaged)?
            .parse()
            .map_err(|_| format!("not a Debian package: {name} has no size"))?;
        let begin = at + HEADER;
        let end = begin
            .checked_add(size)
            .ok_or_else(|| format!("{name} is larger than any file"))?;
        if end > length {
            return Err(format!(
                "truncated: {name} should end at byte {end}, the file ends at {length}"
            ));
        }
        if first && name != "debian-binary" {
            return Err("an ar archive, but not a Debian package".to_owned());
        }
        first = false;
        if name.starts_with("data.tar") {
            return Ok((name, size));
        }
        at = end + end % 2; // members begin at even offsets
    }
    Err("truncated: no data.tar in it".to_owned())
}

#[cfg(test)]
mod tests;
