//! Skips of tests: a third result beside pass and fail.
//!
//! A test that cannot run here returns a [`Skip`] through [`skip`]. The reason goes to standard error, past the test harness's
//! capture, and to the file that the environment variable `STOPGAP_SKIPS` names. `checks/test` sets the variable, counts the
//! skips by kind, and `checks/test --strict KINDS` fails where one of these kinds occurs.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;

/// Environment variable with the file that skips are added to.
pub const FILE: &str = "STOPGAP_SKIPS";

/// The reason why a test cannot run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skip {
    /// The test needs root, or a capability that this process lacks. The text names what for.
    Root(String),
    /// A program or library is not installed. The text names it.
    Program(String),
    /// No kernel image, or no guest program, was handed to the test. The text names what is missing.
    Image(String),
    /// This kernel, its configuration or this machine lacks something. The text is the error or names it.
    Machine(String),
}

impl Skip {
    /// Returns a skip because the test needs root for `what`.
    pub fn root(what: impl fmt::Display) -> Skip {
        Skip::Root(what.to_string())
    }

    /// Returns a skip because the program or library `name` is missing.
    pub fn program(name: impl fmt::Display) -> Skip {
        Skip::Program(name.to_string())
    }

    /// Returns a skip because the kernel image or guest program `what` is missing.
    pub fn image(what: impl fmt::Display) -> Skip {
        Skip::Image(what.to_string())
    }

    /// Returns a skip because this kernel or machine lacks `what`.
    pub fn machine(what: impl fmt::Display) -> Skip {
        Skip::Machine(what.to_string())
    }

    /// Returns the word by which `checks/test` counts this skip.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Skip::Root(_) => "root",
            Skip::Program(_) => "program",
            Skip::Image(_) => "image",
            Skip::Machine(_) => "machine",
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skip::Root(what) => write!(f, "needs root: {what}"),
            Skip::Program(name) => write!(f, "not installed: {name}"),
            Skip::Image(what) => write!(f, "no kernel to boot: {what}"),
            Skip::Machine(what) => write!(f, "not on this machine: {what}"),
        }
    }
}

impl std::error::Error for Skip {}

/// Reports that the running test is skipped for `reason`.
///
/// Writes `skipped: KIND: TEST: REASON` to standard error and adds the line to the file that `STOPGAP_SKIPS` names.
/// The test's name is that of its thread, as the test harness sets it.
///
/// # Panics
///
/// Panics where the file cannot be written: a skip that nobody counts would pass for a pass.
pub fn skip(reason: &Skip) {
    let thread = std::thread::current();
    let text = reason.to_string().replace('\n', " ");
    let line = format!(
        "skipped: {}: {}: {text}\n",
        reason.kind(),
        thread.name().unwrap_or("?")
    );
    // Not `eprintln`, which the harness captures. A closed standard error is no reason to fail.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(FILE) {
        let file = OpenOptions::new().append(true).create(true).open(&path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("cannot add a skip to {}: {error}", path.display()));
    }
}

/// Asserts that a text has each of these parts.
///
/// # Panics
///
/// Panics where it lacks one, with both.
#[track_caller]
pub fn assert_contains(text: impl AsRef<str>, parts: &[&str]) {
    let text = text.as_ref();
    for part in parts {
        assert!(text.contains(part), "no '{part}' in: {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs this test again in a process of its own, because the variable belongs to a whole process.
    #[test]
    fn a_skip_is_counted_in_the_file() {
        if std::env::var_os("STOPGAP_SKIP_NOW").is_some() {
            return skip(&Skip::program("a\nb"));
        }
        let path = std::env::temp_dir().join(format!("stopgap-skips-{}", std::process::id()));
        let name = "tests::a_skip_is_counted_in_the_file";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env("STOPGAP_SKIP_NOW", "1")
            .env(FILE, &path)
            .output()
            .unwrap();
        let counted = std::fs::read_to_string(&path);
        let _ = std::fs::remove_file(&path);
        let line = format!("skipped: program: {name}: not installed: a b\n");
        assert_eq!(counted.unwrap(), line);
        assert!(String::from_utf8_lossy(&child.stderr).contains(&line));
    }
}
