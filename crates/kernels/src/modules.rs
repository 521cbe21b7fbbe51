//! A kernel's modules: files for names, in the order in which they must be loaded.
//!
//! A package has no `modules.dep` (depmod(8) writes it when a kernel is installed, and nothing is installed here), so
//! that what a module needs is read from the module itself, as depmod does: `depends=` and `softdep=pre:` of its
//! `.modinfo` section. Only the modules asked for and what they need are read and decompressed.
//!
//! Names: `-` and `_` are the same to the kernel; here they are written with `_`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::compressed;
use crate::elf;
use crate::folder::Folder;
use crate::image::read;
use crate::{Error, Result};
use stopgap_events::order::Inserted as _;

/// No module is larger when decompressed, in bytes.
pub(crate) const LARGEST: u64 = 256 << 20;
/// No list of what is built in is larger, in bytes.
pub(crate) const LARGEST_LIST: u64 = 16 << 20;
/// Nor are all together that one guest gets, in bytes: they are in memory at once.
const LARGEST_ALL: u64 = 512 << 20;
/// No kernel has more modules.
const MOST: usize = 100_000;
/// Folders of modules lie no deeper.
const DEEPEST: usize = 16;

/// Where modules lie in the initramfs.
pub(crate) const IN_GUEST: &str = "/stopgap/modules";

/// Where a kernel's modules are. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub enum Modules {
    /// None were found.
    #[default]
    Unknown,
    /// A folder like `/lib/modules/6.12.1`.
    Folder(PathBuf),
    /// A package's. They are unpacked when somebody asks for one: most comparisons need none, and they are nine tenths of it.
    #[doc(hidden)]
    Package {
        name: String,
        path: PathBuf,
        folder: Arc<Folder>,
    },
}

/// A module, decompressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// `vgem`
    pub name: String,
    /// The ELF file.
    pub bytes: Vec<u8>,
}

impl Module {
    /// Its path in the guest.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{IN_GUEST}/{}.ko", self.name)
    }
}

/// The result of [`Modules::resolve`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// In the order in which they must be loaded: each after what it needs.
    pub modules: Vec<Module>,
    /// Asked for, and not a module of this kernel. It may be built in all the same: lists name only what could have been a
    /// module (udmabuf could not).
    pub missing: Vec<String>,
}

impl Modules {
    /// The files for `names` and for what they need, decompressed; each once. `release` is the kernel's: a module that was
    /// built for another one is refused, because the kernel would.
    ///
    /// # Errors
    ///
    /// A folder that cannot be read; a module that does not match or is damaged, or needs a missing one.
    pub fn resolve<S: AsRef<str>>(&self, names: &[S], release: Option<&str>) -> Result<Resolved> {
        let mut resolved = Resolved::default();
        if names.is_empty() {
            return Ok(resolved);
        }
        let (files, builtin) = match self {
            Modules::Unknown => Default::default(),
            Modules::Folder(folder) => scan(folder)?,
            Modules::Package { name, path, folder } => {
                let folder = folder.path().join("modules");
                fs::create_dir_all(&folder).map_err(|e| Error::file(&folder, e))?;
                crate::package::unpack_modules(name, path, &folder)?;
                scan(&folder)?
            }
        };
        let (mut done, mut all) = (BTreeSet::new(), 0);
        for name in names.iter().map(|name| canonical(name.as_ref())) {
            if builtin.contains(&name) {
                continue;
            }
            if !files.contains_key(&name) {
                resolved.missing.push(name);
                continue;
            }
            // Depth first, without recursion: a hostile module can need itself. A module to be written out stands below
            // those that it waits for.
            let mut stack = vec![Step::Open(name, true)];
            while let Some(step) = stack.pop() {
                let (name, must) = match step {
                    Step::Open(name, must) => (name, must),
                    Step::Write(module) => {
                        resolved.modules.push(module);
                        continue;
                    }
                };
                if builtin.contains(&name) || !done.insert(name.clone()) {
                    continue;
                }
                let about = |why: String| Error::about(format!("module {name}"), why);
                let Some(path) = files.get(&name) else {
                    if must {
                        return Err(about(
                            "another module needs it, and it is missing".to_owned(),
                        ));
                    }
                    continue;
                };
                let packed = read(path, LARGEST).map_err(|e| Error::file(path, e))?;
                let bytes = compressed::all(&packed, LARGEST)
                    .map_err(|e| about(format!("does not decompress: {e}")))?;
                let needs = needs(&bytes, release).map_err(about)?;
                all += bytes.len() as u64;
                if all > LARGEST_ALL {
                    let all = LARGEST_ALL >> 20;
                    return Err(about(format!(
                        "it and what is loaded before it have more than {all} MiB"
                    )));
                }
                stack.push(Step::Write(Module { name, bytes }));
                let needs = needs.into_iter().rev();
                stack.extend(needs.map(|(name, must)| Step::Open(name, must)));
            }
        }
        Ok(resolved)
    }
}

enum Step {
    /// A name, and whether its absence is an error (a soft dependency may be missing).
    Open(String, bool),
    Write(Module),
}

/// The module's name for the name of a file: `snd-hda-intel.ko.xz` is `snd_hda_intel`.
pub(crate) fn name_of(file: &str) -> Option<String> {
    let stem = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"]
        .iter()
        .find_map(|ending| file.strip_suffix(ending))?;
    (!stem.is_empty()).then(|| canonical(stem))
}

fn canonical(name: &str) -> String {
    name.trim().replace('-', "_")
}

/// Modules by name, and names that are built in.
type Found = (BTreeMap<String, PathBuf>, BTreeSet<String>);

/// Reads a folder like /lib/modules/R.
fn scan(folder: &Path) -> Result<Found> {
    let mut files = BTreeMap::new();
    walk(folder, 0, &mut files)?;
    let list = folder.join("modules.builtin");
    let text = match read(&list, LARGEST_LIST) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        text => text.map_err(|e| Error::file(&list, e))?,
    };
    let text = String::from_utf8_lossy(&text);
    let names = text
        .lines()
        .filter_map(|line| name_of(line.rsplit('/').next()?));
    Ok((files, names.inserted()))
}

fn walk(folder: &Path, depth: usize, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let at = |e| Error::file(folder, e);
    for entry in fs::read_dir(folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        let kind = entry.file_type().map_err(at)?;
        // Links (`build`, `source`) are not followed.
        if kind.is_dir() && depth < DEEPEST {
            walk(&entry.path(), depth + 1, files)?;
        } else if kind.is_file()
            && files.len() < MOST
            && let Some(name) = entry.file_name().to_str().and_then(name_of)
        {
            files.insert(name, entry.path());
        }
    }
    Ok(())
}

/// Returns the names of what a module needs, and whether it must be there.
///
/// # Errors
/// A file that is no module, or a module for another kernel than `release`.
fn needs(module: &[u8], release: Option<&str>) -> std::result::Result<Vec<(String, bool)>, String> {
    let mut needs = Vec::new();
    let info = String::from_utf8_lossy(elf::section(module, ".modinfo")?);
    for (key, value) in info.split('\0').filter_map(|line| line.split_once('=')) {
        match key {
            "depends" => {
                let names = value.split(',').filter(|name| !name.is_empty());
                needs.extend(names.map(|name| (canonical(name), true)));
            }
            // "pre: a b post: c"
            "softdep" => {
                let mut before = false;
                for word in value.split_whitespace() {
                    match word {
                        "pre:" => before = true,
                        "post:" => before = false,
                        name if before => needs.push((canonical(name), false)),
                        _ => {}
                    }
                }
            }
            "vermagic" => {
                let built_for = value.split_whitespace().next();
                if let (Some(release), Some(built_for)) = (release, built_for)
                    && release != built_for
                {
                    return Err(format!("built for {built_for}, the kernel is {release}"));
                }
            }
            _ => {}
        }
    }
    Ok(needs)
}

#[cfg(test)]
mod tests;
