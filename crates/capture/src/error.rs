use std::io;

/// Reason for which a capture fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel lacks something, or refuses it to this user.
    #[error("capture in the kernel (BPF) is not possible: {0}")]
    Unsupported(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// The attempt.
        what: &'static str,
        /// The system's reason.
        #[source]
        error: io::Error,
    },
}

/// Returns the innermost reason of a chain of errors, on one line.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string().lines().next().unwrap_or_default().to_owned()
}
