//! The files that stopgap hands to other processes: the library under `run --fix`, the first program of a guest of `kernels`, the plugin of
//! `kernels --functions`.
//!
//! [`Helper::find`] looks in this order, and takes the first that exists:
//!
//! 1. the file that the helper's variable names (`STOPGAP_PRELOAD`, `STOPGAP_GUEST`, `STOPGAP_PLUGIN`),
//! 2. the copy in the command itself, if it was built with one (`cargo install --path crates/cli`),
//! 3. the directory of the command, as `cargo build` leaves it,
//! 4. `../lib/stopgap` from there, as packages have it.

mod private;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use stopgap_kernel::folder;

pub use private::write_private;

/// The directory of packages, from that of the command.
const LIBRARY: &str = "../lib/stopgap";

/// The copies in the command, in the order of [`Helper::ALL`].
#[cfg(builtin)]
const BUILT_IN: Option<[&[u8]; 3]> = Some([
    include_bytes!(concat!(env!("OUT_DIR"), "/libstopgap_preload.so")),
    include_bytes!(concat!(env!("OUT_DIR"), "/stopgap-guest")),
    include_bytes!(concat!(env!("OUT_DIR"), "/libstopgap_plugin.so")),
]);
#[cfg(not(builtin))]
const BUILT_IN: Option<[&[u8]; 3]> = None;

/// A file that another process loads or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    /// The `LD_PRELOAD` library of `run --fix`.
    Preload,
    /// The guest's first program.
    Guest,
    /// The plugin for QEMU.
    Plugin,
}

/// Where a helper was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The helper's variable names this file, which may not exist.
    Named(PathBuf),
    /// A copy in the command itself.
    BuiltIn(&'static [u8]),
    /// The file lies beside the command.
    Beside(PathBuf),
    /// The file lies in `../lib/stopgap` from the command.
    Library(PathBuf),
}

impl Helper {
    /// All of them.
    pub const ALL: [Helper; 3] = [Helper::Preload, Helper::Guest, Helper::Plugin];

    /// Returns the name of the file.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Helper::Preload => "libstopgap_preload.so",
            Helper::Guest => "stopgap-guest",
            Helper::Plugin => "libstopgap_plugin.so",
        }
    }

    /// Returns the variable that names another file.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Helper::Preload => "STOPGAP_PRELOAD",
            Helper::Guest => "STOPGAP_GUEST",
            Helper::Plugin => "STOPGAP_PLUGIN",
        }
    }

    /// Returns the command that builds the file.
    #[must_use]
    pub fn build(self) -> &'static str {
        match self {
            Helper::Preload => "cargo build --release -p stopgap-preload",
            Helper::Guest => {
                "cargo rustc --release -p stopgap-guest --bin stopgap-guest -- -C target-feature=+crt-static"
            }
            Helper::Plugin => "cargo build --release -p stopgap-plugin",
        }
    }

    fn built_in(self) -> Option<&'static [u8]> {
        BUILT_IN.map(|files| files[self as usize])
    }

    /// Finds the file; `None` where no rule finds one.
    #[must_use]
    pub fn find(self) -> Option<Place> {
        let named = std::env::var_os(self.variable()).filter(|named| !named.is_empty());
        if let Some(named) = named {
            return Some(Place::Named(named.into()));
        }
        if let Some(bytes) = self.built_in() {
            return Some(Place::BuiltIn(bytes));
        }
        let command = std::env::current_exe().ok()?;
        self.near(command.parent()?)
    }

    /// Looks in the directory of the command, and in that of packages.
    fn near(self, directory: &Path) -> Option<Place> {
        let beside = directory.join(self.file());
        if beside.is_file() {
            return Some(Place::Beside(beside));
        }
        // Resolves `..`: the path goes into the environment of each process of the command.
        let library = directory.join(LIBRARY).canonicalize().ok()?;
        let file = library.join(self.file());
        file.is_file().then_some(Place::Library(file))
    }

    /// Returns what to do where the file is missing or useless.
    #[must_use]
    pub fn advice(self) -> String {
        format!(
            "build it ({}), or name it with {}=FILE",
            self.build(),
            self.variable()
        )
    }

    /// Returns where [`Helper::find`] did not find the file.
    #[must_use]
    pub fn missing(self) -> String {
        format!(
            "no {} beside this command or in {LIBRARY}: {}",
            self.file(),
            self.advice()
        )
    }
}

impl Place {
    /// Returns the content of the file, of at most `most` bytes.
    ///
    /// # Errors
    /// As [`folder::read`].
    pub fn read(&self, most: u64) -> io::Result<Cow<'static, [u8]>> {
        match self.path() {
            Err(bytes) => Ok(Cow::Borrowed(bytes)),
            Ok(path) => folder::read(path, most).map(Cow::Owned),
        }
    }

    /// Returns the path of the file.
    ///
    /// # Errors
    /// The bytes of a copy in the command, which has no path.
    pub fn path(&self) -> Result<&Path, &'static [u8]> {
        match self {
            Place::Named(path) | Place::Beside(path) | Place::Library(path) => Ok(path),
            Place::BuiltIn(bytes) => Err(bytes),
        }
    }
}

/// Writes the place and the rule by which it was found.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Named(path) => write!(f, "{}, named by its variable", path.display()),
            Place::BuiltIn(bytes) => {
                write!(f, "built into this command ({} KiB)", bytes.len() / 1024)
            }
            Place::Beside(path) => write!(f, "{}, beside this command", path.display()),
            Place::Library(path) => write!(f, "{}, in {LIBRARY} from this command", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beside_the_command_comes_before_the_one_of_a_package() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (bin, lib) = (root.join("bin"), root.join("lib/stopgap"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        for helper in Helper::ALL {
            assert_eq!(helper.near(&bin), None);
            let packaged = lib.join(helper.file());
            std::fs::write(&packaged, "").unwrap();
            assert_eq!(helper.near(&bin), Some(Place::Library(packaged)));
            let beside = bin.join(helper.file());
            std::fs::create_dir(&beside).unwrap();
            assert!(
                matches!(helper.near(&bin), Some(Place::Library(_))),
                "a directory is no helper"
            );
            std::fs::remove_dir(&beside).unwrap();
            std::fs::write(&beside, "").unwrap();
            assert_eq!(helper.near(&bin), Some(Place::Beside(beside)));
        }
    }
}
