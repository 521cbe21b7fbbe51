use std::io;
use std::path::{Path, PathBuf};

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong with a kernel that was given, or what this machine lacks to boot it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was given is no kernel that can be booted here: another kind of file, another architecture, truncated.
    #[error("{name}: {why}")]
    Image {
        /// As it was given.
        name: String,
        /// What it is instead, or what is wrong with it, and what to give.
        why: String,
    },
    /// Modules of a kernel that do not fit it, or that cannot be read.
    #[error("module {name}: {why}")]
    Module {
        /// Which.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// This machine lacks something, and what to do about it.
    #[error("{0}")]
    Unsupported(String),
    /// Kernels of two architectures.
    #[error("{0}: kernels of two architectures have no path in common")]
    Architectures(String),
    /// Ctrl-C came before there was anything to report.
    #[error("interrupted {0}")]
    Interrupted(&'static str),
    /// Nothing more fits where we write.
    #[error("no space left in {}: name another place with TMPDIR=FOLDER", folder.display())]
    NoSpace {
        /// Where.
        folder: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A call of the system failed.
    #[error("{call}: {source}")]
    System {
        /// Which.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl Error {
    /// Whether this is about what the machine lacks, not about what was given (exit status 3 of the command).
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Error::Unsupported(_))
    }

    pub(crate) fn image(name: impl Into<String>, why: impl Into<String>) -> Error {
        Error::Image {
            name: name.into(),
            why: why.into(),
        }
    }

    pub(crate) fn module(name: impl Into<String>, why: impl Into<String>) -> Error {
        Error::Module {
            name: name.into(),
            why: why.into(),
        }
    }

    pub(crate) fn system(call: &'static str, source: impl Into<io::Error>) -> Error {
        Error::System {
            call,
            source: source.into(),
        }
    }

    /// The system's word on a file; a full file system gets a word of its own.
    pub(crate) fn file(path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace {
                folder: path.parent().unwrap_or(path).to_path_buf(),
            },
            _ => Error::File {
                file: path.to_path_buf(),
                source,
            },
        }
    }
}
