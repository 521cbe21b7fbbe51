//! What ARCHITECTURE.md, the documents and packaging/dependencies.md state about the whole house, held against the sources and
//! the lock file.

use std::path::Path;

mod absences;
mod arrows;
mod dependencies;
mod documents;
mod paths;

/// Crates that build and test on any machine, as any user: no file, no clock, no process, no thread of their own.
const PURE: [&str; 8] = [
    "events",
    "trace",
    "placement",
    "chunks",
    "models",
    "stats",
    "explain",
    "report",
];

/// Returns the workspace's folder.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/testing lies two folders below the workspace")
}
