use std::fmt::{self, Display};
use std::io;
use std::path::Path;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong with a kernel that was given, or what this machine lacks to boot it, in one line for the user.
#[derive(Debug)]
pub struct Error {
    message: String,
    unsupported: bool,
}

impl Error {
    /// Whether the machine lacks something, which the message names with what to do (exit status 3 of the command).
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.unsupported
    }

    pub(crate) fn new(message: impl Into<String>) -> Error {
        Error {
            message: message.into(),
            unsupported: false,
        }
    }

    pub(crate) fn unsupported(message: String) -> Error {
        Error {
            message,
            unsupported: true,
        }
    }

    /// Names what failed (a file, a module, a call) and why.
    pub(crate) fn about(what: impl Display, why: impl Display) -> Error {
        Error::new(format!("{what}: {why}"))
    }

    /// Names a file that could not be read or written. A full file system gets advice.
    pub(crate) fn file(path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::new(format!(
                "no space left in {}: name another place with TMPDIR=FOLDER",
                path.parent().unwrap_or(path).display()
            )),
            _ => Error::about(path.display(), source),
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
