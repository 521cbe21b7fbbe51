use std::io;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong with what the kernel or a spool says, or what the system refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A description (an event's format, a page's layout, a spool's own) reads otherwise than
    /// expected.
    #[error("{file}: {why}")]
    Description {
        /// Which.
        file: String,
        /// The fault, with its field where it has one.
        why: String,
    },
    /// A file of a spool could not be read or written.
    #[error("{file}: {source}")]
    File {
        /// Which.
        file: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A call of the system failed.
    #[error(transparent)]
    System(#[from] stopgap_kernel::Error),
    /// The trace file could not be written.
    #[error("{0}")]
    Trace(#[from] stopgap_trace::Error),
}

impl Error {
    /// `file` does not read as it should.
    pub(crate) fn description(file: impl Into<String>, why: impl Into<String>) -> Error {
        Error::Description {
            file: file.into(),
            why: why.into(),
        }
    }

    /// Returns whether a file was missing.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Error::File { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// The system's word on a file of ours.
    pub(crate) fn file(path: &std::path::Path, source: io::Error) -> Error {
        Error::File {
            file: path.display().to_string(),
            source,
        }
    }
}
