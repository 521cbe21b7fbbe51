//! The programs: a small file each.

mod chromium;
mod cpython;
mod go;
mod jvm;
mod postgresql;
mod redis;
mod rust;
mod sqlite;
mod stress_ng;

use super::place::Place;

/// What becomes of the library in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loads {
    /// It is loaded, and says so.
    Yes,
    /// The program is linked statically: no dynamic loader, no library.
    Static,
}

/// A real program with checks of its own.
pub(super) trait Program: Sync {
    /// What `--only` calls it.
    fn name(&self) -> &'static str;

    /// Debian packages that have what it needs.
    fn packages(&self) -> &'static str;

    /// What it needs: absolute paths, and names in PATH.
    fn needs(&self) -> &'static [&'static str];

    /// Whether the library is expected in it.
    fn loads(&self) -> Loads {
        Loads::Yes
    }

    /// A remark for its line, such as where it stands for another.
    fn remark(&self) -> Option<String> {
        None
    }

    /// Once, without the library, not timed: compiles, writes inputs.
    ///
    /// # Errors
    /// A sentence.
    fn prepare(&self, _place: &Place) -> Result<(), String> {
        Ok(())
    }

    /// One run, timed, in a process of its own whose children are all counted.
    ///
    /// # Errors
    /// A sentence: what it found wrong itself.
    fn run(&self, place: &Place) -> Result<(), String>;

    /// What the run left, after it and not timed. It must be the same with the library and without.
    ///
    /// # Errors
    /// A sentence: what is wrong.
    fn check(&self, _place: &Place) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }
}

/// All of them, the short ones first.
pub(super) const ALL: &[&dyn Program] = &[
    &cpython::CPYTHON,
    &cpython::CPYTHON_FORK,
    &redis::Redis,
    &sqlite::Sqlite,
    &postgresql::Start,
    &postgresql::Pgbench,
    &chromium::Chromium,
    &jvm::Jvm,
    &stress_ng::MMAP,
    &stress_ng::VMA,
    &stress_ng::MMAPMANY,
    &go::STATIC,
    &go::DYNAMIC,
    &rust::BUFFERS,
    &rust::RANGES,
    &rust::STATIC,
];

/// The program of that name.
pub(super) fn named(name: &str) -> Option<&'static dyn Program> {
    ALL.iter().copied().find(|program| program.name() == name)
}
