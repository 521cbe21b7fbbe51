//! Which kernel: what was given on the command line, made into a file that QEMU takes and what is known about it.
//!
//! | given | made of it |
//! |---|---|
//! | a bzImage (`vmlinuz`) | itself; configuration from the image (IKCONFIG) or from beside it, modules from beside it |
//! | an arm64 `Image`, also in gzip or in an EFI envelope (`vmlinuz.efi`) | unpacked |
//! | a Debian package (`linux-image-*.deb`) | unpacked into a folder of our own; never installed |
//! | `host` | the running kernel's image, where it may be read |
//!
//! Everything else is refused by the name of what it is.

mod arm64;
mod bzimage;
mod refuse;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use stopgap_kernel::folder::read;

use crate::compressed::{self, Compression};
use crate::folder::{self, Folder};
use crate::modules::Modules;
use crate::{Error, Result, package, sha256};

/// No kernel image is larger: what is, is not read into memory. In bytes.
pub(crate) const LARGEST: u64 = 512 << 20;
/// No configuration is larger, in bytes.
pub(crate) const LARGEST_CONFIG: u64 = 8 << 20;
/// The reason that a larger image is refused for.
pub(crate) const TOO_LARGE: &str =
    "larger than any kernel image, of which at most 512 MiB are read";

/// A machine's architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// 64-bit PCs.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Architecture {
    /// As QEMU and uname(1) write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Aarch64 => "aarch64",
        }
    }
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A kernel that can be booted. Cheap to clone; what was unpacked goes with the last clone.
#[derive(Debug, Clone)]
pub struct Image {
    /// As it was given: a path, or `host`.
    pub name: String,
    /// The file that QEMU is given.
    pub kernel: PathBuf,
    /// SHA-256 of that file, 64 hexadecimal digits.
    pub sha256: String,
    /// Its architecture.
    pub architecture: Architecture,
    /// `uname -r`, where the image says so: `6.12.117+deb12-cloud-amd64`.
    pub release: Option<String>,
    /// The text of the configuration (`CONFIG_SMP=y`...).
    pub config: Option<String>,
    /// Where the configuration comes from, or why there is none.
    pub config_from: String,
    /// Its modules; none where none were found.
    pub modules: Modules,
    /// The folder of unpacked files.
    folder: Option<Arc<Folder>>,
}

impl Image {
    /// Opens a file, or `host`. Decompresses the kernel's part of a package: a second.
    ///
    /// # Errors
    ///
    /// What is no kernel that can be booted, with what it is instead; what the system refuses.
    pub fn open(given: &str) -> Result<Image> {
        if given == "host" {
            let name = rustix::system::uname();
            return Image::host(Path::new("/"), &name.release().to_string_lossy());
        }
        Image::of_file(given, Path::new(given))
    }

    /// The running kernel, of release `release`, below `root`.
    fn host(root: &Path, release: &str) -> Result<Image> {
        // A release is a file's name here; the kernel's own has no slash.
        if release.contains('/') || release.is_empty() {
            let why = format!("the running kernel calls itself {release:?}");
            return Err(Error::about("host", why));
        }
        let places = [
            format!("boot/vmlinuz-{release}"),
            format!("lib/modules/{release}/vmlinuz"),
            format!("usr/lib/modules/{release}/vmlinuz"),
            format!("boot/kernel-{release}"),
            format!("boot/Image-{release}"),
        ];
        let mut refused = None;
        for place in &places {
            let path = root.join(place);
            match folder::open(&path) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    refused = Some(format!("{}: {error}", path.display()));
                    continue;
                }
            }
            let mut image = Image::of_file("host", &path)?;
            let has = image.release.replace(release.to_owned());
            if let Some(has) = has.filter(|has| has != release) {
                let why = format!("{} is {has}, but {release} runs", path.display());
                return Err(Error::about("host", why));
            }
            // /proc/config.gz is the running kernel's own.
            let running = read(&root.join("proc/config.gz"), LARGEST_CONFIG);
            let running = running.and_then(|bytes| compressed::all(&bytes, LARGEST_CONFIG));
            let running = running.ok().and_then(|text| String::from_utf8(text).ok());
            if let (None, Some(text)) = (&image.config, running) {
                image.config = Some(text);
                "/proc/config.gz".clone_into(&mut image.config_from);
            }
            return Ok(image);
        }
        let why = refused.unwrap_or_else(|| {
            let places = places.join(", /");
            format!("no image of the running kernel {release} (looked for /{places}); give a file")
        });
        Err(Error::about("host", why))
    }

    fn of_file(name: &str, path: &Path) -> Result<Image> {
        // Looked at before it is opened: opening a pipe waits for a writer, and Ctrl-C does not end that.
        let kind = fs::metadata(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Error::about(
                name,
                "no such file: give a bzImage, a Debian linux-image package or \"host\"",
            ),
            _ => Error::file(path, e),
        })?;
        if !kind.is_file() {
            return Err(Error::about(
                name,
                "not a file: give a bzImage, a Debian linux-image package or \"host\"",
            ));
        }
        let mut first = Vec::new();
        let file = folder::open(path).and_then(|file| file.take(8).read_to_end(&mut first));
        file.map_err(|e| Error::file(path, e))?;
        if first == package::MAGIC {
            return Image::of_package(name, path);
        }
        let mut image = Image::of_kernel(name, path, None)?;
        image.take_beside(path);
        Ok(image)
    }

    /// The kernel at `path`; what must be unpacked goes to `folder`, or to one of its own.
    fn of_kernel(name: &str, path: &Path, folder: Option<Arc<Folder>>) -> Result<Image> {
        let bytes = read(path, LARGEST).map_err(|e| match e.kind() {
            io::ErrorKind::FileTooLarge => Error::about(name, TOO_LARGE),
            _ => Error::file(path, e),
        })?;
        let mut image = Image {
            name: name.to_owned(),
            kernel: path.to_path_buf(),
            sha256: String::new(),
            architecture: Architecture::X86_64,
            release: None,
            config: None,
            config_from: String::new(),
            modules: Modules::default(),
            folder,
        };
        let bad = |why| Error::about(name, why);
        let version = if bzimage::is(&bytes) {
            image.sha256 = sha256::hex(&bytes);
            // Where a configuration lies beside the image, unpacking the kernel for its own would take a second for
            // nothing; `take_config` asks for it when it must.
            bzimage::version(&bytes).map_err(bad)?
        } else {
            let unpacked = arm64::unpack(&bytes).map_err(bad)?;
            let kernel = unpacked.ok_or_else(|| bad(refuse::why(&bytes)))?;
            image.architecture = Architecture::Aarch64;
            image.sha256 = sha256::hex(&kernel);
            if kernel != bytes {
                let folder = match image.folder.take() {
                    Some(folder) => folder,
                    None => Arc::new(Folder::new()?),
                };
                image.kernel = folder.write("Image", &kernel)?;
                image.folder = Some(folder);
            }
            arm64::version(&kernel)
        };
        image.release = version.and_then(|text| Some(text.split_whitespace().next()?.to_owned()));
        Ok(image)
    }

    fn of_package(name: &str, path: &Path) -> Result<Image> {
        let folder = Arc::new(Folder::new()?);
        let unpacked = package::unpack(name, path, folder.path())?;
        let mut image = Image::of_kernel(name, &unpacked.kernel, Some(folder.clone()))?;
        // A package of another architecture may hold a kernel of a form that we know under a release that we do not.
        if image.release.is_none() {
            image.release = Some(unpacked.release.clone());
        }
        if let Some(config) = &unpacked.config {
            image.config = Some(text(config).map_err(|e| Error::file(config, e))?);
            image.config_from = format!("the package's /boot/config-{}", unpacked.release);
        } else {
            image.take_config();
        }
        image.modules = Modules::Package {
            name: name.to_owned(),
            path: path.to_path_buf(),
            folder,
        };
        Ok(image)
    }

    /// What distributions and kernel trees put beside an image, taken where its release fits.
    fn take_beside(&mut self, path: &Path) {
        let folder = path.parent().unwrap_or(Path::new("."));
        if let Some(release) = &self.release {
            let modules = Path::new("/lib/modules").join(release);
            let is_own = path.starts_with("/boot") || path.starts_with(&modules);
            if is_own && fs::read_dir(&modules).is_ok() {
                self.modules = Modules::Folder(modules);
            }
            // /boot/vmlinuz-R, /boot/config-R; and arch/x86/boot/bzImage of a tree that was built: two and three folders up.
            let trees = folder.ancestors().skip(1).take(3).filter(|tree| {
                let built = text(&tree.join("include/config/kernel.release"));
                built.is_ok_and(|text| text.trim() == release)
            });
            let beside = folder.join(format!("config-{release}"));
            for config in [beside]
                .into_iter()
                .chain(trees.map(|tree| tree.join(".config")))
            {
                if let Ok(text) = text(&config) {
                    self.config = Some(text);
                    self.config_from = config.display().to_string();
                    return;
                }
            }
        }
        self.take_config();
    }

    /// The configuration that is built into the image (`CONFIG_IKCONFIG`). Unpacks the kernel: about a second.
    fn take_config(&mut self) {
        let taken = read(&self.kernel, LARGEST)
            .map_err(|e| e.to_string())
            .and_then(|bytes| match self.architecture {
                Architecture::X86_64 => bzimage::payload(&bytes),
                Architecture::Aarch64 => Ok(bytes),
            })
            .and_then(|kernel| built_in_config(&kernel));
        match taken {
            Ok(text) => {
                self.config = Some(text);
                "the image itself".clone_into(&mut self.config_from);
            }
            Err(why) => self.config_from = format!("no configuration: {why}"),
        }
    }

    /// The value of an option of the configuration, with its prefix: `CONFIG_SMP`. `None` where there is no
    /// configuration; `Some("n")` where it is not set.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        let config = self.config.as_deref()?;
        let value = config
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .unwrap_or("n");
        Some(value)
    }

    /// Whether what QEMU is given was unpacked by us.
    #[must_use]
    pub fn is_unpacked(&self) -> bool {
        self.folder.is_some()
    }
}

/// The text of a configuration, or of the name of a release.
fn text(path: &Path) -> io::Result<String> {
    let bytes = read(path, LARGEST_CONFIG)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not text"))
}

/// The text up to a NUL, a line feed or `limit` bytes.
fn text_at(bytes: &[u8], at: usize, limit: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let rest = &rest[..rest.len().min(limit)];
    let end = rest.iter().position(|&byte| byte == 0 || byte == b'\n')?;
    let text: String = String::from_utf8_lossy(&rest[..end])
        .trim()
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    (!text.is_empty()).then_some(text)
}

/// Where `needle` is first found.
fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let first = needle.first()?;
    let starts = bytes.iter().enumerate().filter(|(_, byte)| *byte == first);
    let mut starts = starts.map(|(at, _)| at);
    starts.find(|&at| bytes[at..].starts_with(needle))
}

/// Returns the configuration that a kernel carries (`CONFIG_IKCONFIG`): gzip between two marks.
///
/// Lineage: Linux kernel/configs.c; scripts/extract-ikconfig looks for the same mark.
fn built_in_config(kernel: &[u8]) -> std::result::Result<String, String> {
    const BEGIN: &[u8] = b"IKCFG_ST";
    const END: &[u8] = b"IKCFG_ED";
    let at =
        find(kernel, BEGIN).ok_or("the kernel was built without CONFIG_IKCONFIG=y")? + BEGIN.len();
    let rest = &kernel[at..];
    let end = find(rest, END).ok_or("the configuration in the kernel has no end")?;
    let text = compressed::all(&rest[..end], LARGEST_CONFIG)
        .map_err(|e| format!("the configuration in the kernel: {e}"))?;
    String::from_utf8(text).map_err(|_| "the configuration in the kernel is not text".to_owned())
}

/// Decompresses what is no larger than a kernel.
fn unpack(bytes: &[u8]) -> std::result::Result<Vec<u8>, String> {
    compressed::all(bytes, LARGEST).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests;
