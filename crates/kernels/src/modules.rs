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
use std::sync::{Arc, OnceLock};

use crate::compressed;
use crate::elf;
use crate::folder::Folder;
use crate::image::read;
use crate::{Error, Result};

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

/// What a kernel has: modules as files, and names that are built in. Cheap to clone.
///
/// A package's are unpacked when they are first asked for: most comparisons need none, and they are nine tenths of it.
#[derive(Debug, Clone, Default)]
pub struct Modules {
    source: Arc<Source>,
}

#[derive(Debug, Default)]
struct Source {
    package: Option<Package>,
    inner: OnceLock<Inner>,
}

/// A package that has not been unpacked to its end.
#[derive(Debug)]
struct Package {
    name: String,
    path: PathBuf,
    folder: Arc<Folder>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By name.
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
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
    /// The modules below a folder like `/lib/modules/6.12.1`.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be read.
    pub fn read(folder: &Path) -> Result<Modules> {
        let source = Source {
            package: None,
            inner: OnceLock::from(scan(folder)?),
        };
        Ok(Modules {
            source: Arc::new(source),
        })
    }

    /// Those of the package at `path`, to be unpacked into `folder` when somebody asks.
    pub(crate) fn of_package(name: &str, path: &Path, folder: Arc<Folder>) -> Modules {
        let package = Package {
            name: name.to_owned(),
            path: path.to_path_buf(),
            folder,
        };
        Modules {
            source: Arc::new(Source {
                package: Some(package),
                inner: OnceLock::new(),
            }),
        }
    }

    fn inner(&self) -> Result<&Inner> {
        if let Some(inner) = self.source.inner.get() {
            return Ok(inner);
        }
        let found = match &self.source.package {
            None => Inner::default(),
            Some(package) => {
                let folder = package.folder.path().join("modules");
                fs::create_dir_all(&folder).map_err(|e| Error::file(&folder, e))?;
                crate::package::unpack_modules(&package.name, &package.path, &folder)?;
                scan(&folder)?
            }
        };
        Ok(self.source.inner.get_or_init(|| found))
    }

    /// The files for `names` and for what they need, decompressed; each once. `release` is the kernel's: a module that was
    /// built for another one is refused, because the kernel would.
    ///
    /// # Errors
    ///
    /// A module that does not match or is damaged, or needs a missing one.
    pub fn resolve<S: AsRef<str>>(&self, names: &[S], release: Option<&str>) -> Result<Resolved> {
        let mut resolved = Resolved::default();
        if names.is_empty() {
            return Ok(resolved);
        }
        let inner = self.inner()?;
        let mut done = BTreeSet::new();
        for name in names {
            let name = canonical(name.as_ref());
            if inner.builtin.contains(&name) {
                continue;
            }
            if inner.files.contains_key(&name) {
                inner.load(&name, release, &mut resolved.modules, &mut done)?;
            } else {
                resolved.missing.push(name);
            }
        }
        Ok(resolved)
    }
}

impl Inner {
    /// Depth first, without recursion: a hostile module can need itself.
    fn load(
        &self,
        name: &str,
        release: Option<&str>,
        modules: &mut Vec<Module>,
        done: &mut BTreeSet<String>,
    ) -> Result<()> {
        // Modules that an earlier name brought are in memory, too.
        let mut bytes: u64 = modules.iter().map(|module| module.bytes.len() as u64).sum();
        // A module to be written out stands below those that it waits for.
        let mut stack = vec![Step::Open(name.to_owned(), true)];
        while let Some(step) = stack.pop() {
            match step {
                Step::Write(module) => modules.push(module),
                Step::Open(name, must) => {
                    if self.builtin.contains(&name) || !done.insert(name.clone()) {
                        continue;
                    }
                    let Some(path) = self.files.get(&name) else {
                        if must {
                            return Err(Error::about(
                                format!("module {name}"),
                                "another module needs it, and it is missing",
                            ));
                        }
                        continue;
                    };
                    let (module, needs) = open(&name, path, release)?;
                    bytes += module.bytes.len() as u64;
                    if bytes > LARGEST_ALL {
                        let all = LARGEST_ALL >> 20;
                        let why =
                            format!("it and what is loaded before it have more than {all} MiB");
                        return Err(Error::about(format!("module {name}"), why));
                    }
                    stack.push(Step::Write(module));
                    stack.extend(
                        needs
                            .into_iter()
                            .rev()
                            .map(|(name, must)| Step::Open(name, must)),
                    );
                }
            }
        }
        Ok(())
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

/// Reads a folder like /lib/modules/R.
fn scan(folder: &Path) -> Result<Inner> {
    let mut inner = Inner::default();
    walk(folder, 0, &mut inner.files)?;
    let builtin = folder.join("modules.builtin");
    match read(&builtin, LARGEST_LIST) {
        Ok(text) => {
            inner.builtin = String::from_utf8_lossy(&text)
                .lines()
                .filter_map(|line| name_of(line.rsplit('/').next()?))
                .collect();
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::file(&builtin, error)),
    }
    Ok(inner)
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

/// Names, and whether they must be there.
type Needs = Vec<(String, bool)>;

fn open(name: &str, path: &Path, release: Option<&str>) -> Result<(Module, Needs)> {
    let packed = read(path, LARGEST).map_err(|e| Error::file(path, e))?;
    let bytes = compressed::all(&packed, LARGEST).map_err(|e| {
        Error::about(
            format!("module {name}"),
            format!("does not decompress: {e}"),
        )
    })?;
    let info = modinfo(&bytes).map_err(|why| Error::about(format!("module {name}"), why))?;
    let mut needs = Needs::new();
    let mut built_for = None;
    for line in &info {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        match key {
            "depends" => {
                needs.extend(
                    value
                        .split(',')
                        .filter(|name| !name.is_empty())
                        .map(|name| (canonical(name), true)),
                );
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
            "vermagic" => built_for = value.split_whitespace().next().map(str::to_owned),
            _ => {}
        }
    }
    if let (Some(release), Some(built_for)) = (release, &built_for)
        && release != built_for
    {
        return Err(Error::about(
            format!("module {name}"),
            format!("built for {built_for}, the kernel is {release}"),
        ));
    }
    let name = name.to_owned();
    Ok((Module { name, bytes }, needs))
}

/// The strings of a module's `.modinfo` section.
fn modinfo(bytes: &[u8]) -> std::result::Result<Vec<String>, String> {
    let section = elf::section(bytes, ".modinfo")?;
    Ok(section
        .split(|&byte| byte == 0)
        .filter(|text| !text.is_empty())
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect())
}

#[cfg(test)]
mod tests;
