//! QEMU itself: looked for on PATH, asked for its version, refused where it is too old.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::boot::ask;
use crate::image::Architecture;
use crate::{Error, Result};

/// The oldest version that has every flag that is pinned (`fsrm`, the youngest of them, came with it).
pub const OLDEST: (u32, u32) = (5, 2);
/// How long it may take to say its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// A QEMU that can be asked to boot a kernel of its architecture. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qemu {
    program: PathBuf,
    version: String,
    architecture: Architecture,
}

/// The program's name and the package of Debian that has it.
fn program(architecture: Architecture) -> (&'static str, &'static str) {
    match architecture {
        Architecture::X86_64 => ("qemu-system-x86_64", "qemu-system-x86"),
        Architecture::Aarch64 => ("qemu-system-aarch64", "qemu-system-arm"),
    }
}

impl Qemu {
    /// The one on PATH.
    ///
    /// # Errors
    ///
    /// Where there is none, or one that is too old, with what to install ([`Error::is_unsupported`]).
    pub fn find(architecture: Architecture) -> Result<Qemu> {
        Qemu::find_in(architecture, &std::env::var_os("PATH").unwrap_or_default())
    }

    /// The first one in the folders of `path`, which is written like PATH.
    ///
    /// # Errors
    ///
    /// As [`Qemu::find`].
    pub fn find_in(architecture: Architecture, path: &OsStr) -> Result<Qemu> {
        let (name, package) = program(architecture);
        let found = std::env::split_paths(path)
            .map(|folder| folder.join(name))
            .find(|file| is_program(file));
        let Some(program) = found else {
            return Err(Error::unsupported(format!(
                "unsupported: install {package} ({name} is not on PATH)"
            )));
        };
        let said = ask(&program, &[OsString::from("--version")], PATIENCE)?;
        let unsupported = |what: &str| {
            Error::unsupported(format!(
                "unsupported: {}: {what}; install {package}",
                program.display()
            ))
        };
        let line = said.lines().next().unwrap_or("").trim();
        let version = line
            .split_once("version ")
            .map(|(_, version)| version.trim())
            .filter(|_| line.starts_with("QEMU"))
            .ok_or_else(|| unsupported(&format!("it does not say its version: {line:?}")))?;
        let numbers = numbers(version)
            .ok_or_else(|| unsupported(&format!("an unknown version: {version:?}")))?;
        if numbers < OLDEST {
            let (major, minor) = OLDEST;
            return Err(unsupported(&format!(
                "version {version} is older than {major}.{minor}"
            )));
        }
        Ok(Qemu {
            version: version.to_owned(),
            program,
            architecture,
        })
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// `7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)`
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The architecture that it emulates.
    #[must_use]
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }
}

fn is_program(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Major and minor of `7.2.22 (Debian ...)`.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests;
