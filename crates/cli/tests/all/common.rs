//! Running the command as its users do.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The command that was built.
pub(crate) const STOPGAP: &str = env!("CARGO_BIN_EXE_stopgap");

/// User and group `nobody`.
pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .any(|line| line.starts_with("Uid:\t0\t0"))
}

/// Whether this machine lets `command` capture; otherwise it is said that its test is skipped.
pub(crate) fn may(command: &str) -> bool {
    use stopgap_kernel::fake::skipped;
    use stopgap_kernel::files::Files;
    match (root(), stopgap_kernel::Linux.tracefs()) {
        (true, Ok(_)) => true,
        (true, Err(error)) => {
            skipped(&error);
            false
        }
        (false, _) => {
            skipped(format!("{command}: needs root"));
            false
        }
    }
}

/// Tests that run the command share the machine; a test that compares the machine's state before and after has it alone.
static MACHINE: RwLock<()> = RwLock::new(());

thread_local! {
    /// Whether this thread holds `MACHINE`: a second `Run` of the same test must not wait for it.
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// Hold on `MACHINE`, given up when dropped.
enum Hold {
    Shared {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
    Nested,
}

impl Hold {
    fn new(alone: bool) -> Hold {
        match (HELD.replace(true), alone) {
            (true, _) => Hold::Nested,
            (false, true) => Hold::Alone {
                _guard: MACHINE.write().unwrap_or_else(PoisonError::into_inner),
            },
            (false, false) => Hold::Shared {
                _guard: MACHINE.read().unwrap_or_else(PoisonError::into_inner),
            },
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !matches!(self, Hold::Nested) {
            HELD.set(false);
        }
    }
}

/// A run in a directory of its own: nothing of this user's is touched.
pub(crate) struct Run {
    pub(crate) directory: tempfile::TempDir,
    _machine: Hold,
}

impl Run {
    pub(crate) fn new() -> Run {
        Run {
            _machine: Hold::new(false),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Waits until no other test runs the command, and keeps others from it until the run is dropped.
    pub(crate) fn alone() -> Run {
        Run {
            _machine: Hold::new(true),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// The command with its state directory inside.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(STOPGAP);
        command
            .args(words)
            .env("XDG_STATE_HOME", self.directory.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Records written so far.
    pub(crate) fn records(&self) -> Vec<PathBuf> {
        records(&self.directory.path().join("stopgap"))
    }

    /// A copy of the command in a folder that is nobody's own, run as nobody.
    pub(crate) fn as_nobody(&self, words: &[&str]) -> Command {
        use std::os::unix::fs::{PermissionsExt, chown};
        use std::os::unix::process::CommandExt;
        let folder = self.directory.path().join("nobody");
        let copy = folder.join("stopgap");
        if !copy.exists() {
            std::fs::create_dir(&folder).unwrap();
            stopgap_kernel::fake::install(Path::new(STOPGAP), &copy);
            let open = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(self.directory.path(), open).unwrap();
            chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut command = Command::new(copy);
        command
            .args(words)
            .current_dir(&folder)
            .env_clear()
            .env("HOME", &folder)
            .stdin(Stdio::null())
            .uid(NOBODY)
            .gid(NOBODY);
        command
    }
}

/// Records in a directory.
pub(crate) fn records(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Fails unless the run record fits the schema that is checked in.
pub(crate) fn assert_valid(json: &str) -> serde_json::Value {
    valid("stopgap.run-1.json", json)
}

/// Fails unless the document fits the schema of that file, as it is checked in.
pub(crate) fn valid(schema: &str, json: &str) -> serde_json::Value {
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let schema: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(schemas.join(schema)).unwrap()).unwrap();
    let document: serde_json::Value = serde_json::from_str(json).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|error| format!("{error} at {}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    document
}
