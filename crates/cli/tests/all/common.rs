//! Running the command as its users do.

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// The command that was built.
pub(crate) const STOPGAP: &str = env!("CARGO_BIN_EXE_stopgap");

/// Inputs of `checks/capabilities`, which show what commands say of them.
pub(crate) const FILES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../checks/capabilities/files"
);

/// User and group `nobody`.
pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .any(|line| line.starts_with("Uid:\t0\t0"))
}

/// Returns whether this machine lets `command` capture, and skips the test where it does not.
pub(crate) fn may(command: &str) -> bool {
    use stopgap_kernel::files::Files;
    use stopgap_testing::{Skip, skip};
    match (root(), stopgap_kernel::Linux.tracefs()) {
        (true, Ok(_)) => true,
        (true, Err(error)) => {
            skip(&Skip::machine(error));
            false
        }
        (false, _) => {
            skip(&Skip::root(command));
            false
        }
    }
}

/// Returns flags of sources that record here: `bpf` where BPF does, then `others`. None where this machine lets nobody capture. What is
/// left out is a skip.
pub(crate) fn sources(bpf: &'static str, others: &[&'static str]) -> Vec<&'static str> {
    use stopgap_testing::{Skip, skip};
    if !may("record") {
        return Vec::new();
    }
    let tried = Run::new().stopgap("record --source bpf -o t.parquet -- true");
    let mut sources = others.to_vec();
    match tried.status {
        Some(0) => sources.insert(0, bpf),
        _ => skip(&Skip::machine(tried.err)),
    }
    sources
}

/// Tests that run the command share the machine; a test that compares the machine's state before and after runs without others.
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

    /// Returns the command, which will run in the run's directory and keep its state there.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(STOPGAP);
        command
            .args(words)
            .current_dir(self.directory.path())
            .env("XDG_STATE_HOME", self.directory.path())
            .env("TMPDIR", self.directory.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs `stopgap LINE`, whose words have one space between them.
    pub(crate) fn stopgap(&self, line: impl AsRef<str>) -> Done {
        let line = line.as_ref();
        Done::new(line, &self.output(&words(line)))
    }

    /// Runs `stopgap LINE`; fails unless it is refused in one line that has all `parts`, and prints and writes nothing.
    pub(crate) fn refuses(&self, line: impl AsRef<str>, parts: &[&str]) {
        let files = || {
            let mut names = names(self.directory.path());
            names.retain(|name| name != "stopgap"); // the place for records may be made
            (names, self.records())
        };
        let before = files();
        let done = self.stopgap(line);
        // Where a command was to be run, the others are the command's.
        let status: &[i32] = match words(&done.line).contains(&"--") {
            true if done.line.starts_with("record") => &[125, 126, 127],
            _ => &[1, 3],
        };
        assert!(
            done.status.is_some_and(|own| status.contains(&own)),
            "{done:#?}"
        );
        assert_eq!(done.err.trim_end().lines().count(), 1, "{done:#?}");
        has(&done.err, parts);
        assert_eq!(done.out, "", "{done:#?}");
        assert_eq!(files(), before, "{done:#?}");
    }

    /// Runs `stopgap LINE` with its output in a pipe that nobody reads.
    pub(crate) fn unread(&self, line: &str) -> Done {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = self.command(&words(line)).stdout(writer).output();
        Done::new(line, &output.unwrap())
    }

    /// Starts `stopgap LINE` with its output in pipes.
    pub(crate) fn start(&self, line: &str) -> Started {
        let mut command = self.command(&words(line));
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Started {
            line: line.to_owned(),
            child: command.spawn().unwrap(),
        }
    }

    /// Returns the path of `name` in the run's directory.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file in the run's directory.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Returns the text of a file in the run's directory.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
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
            .env("TMPDIR", &folder)
            .stdin(Stdio::null())
            .uid(NOBODY)
            .gid(NOBODY);
        command
    }
}

/// The words of a command line that has one space between them.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split(' ').filter(|word| !word.is_empty()).collect()
}

/// A command that was started.
pub(crate) struct Started {
    line: String,
    pub(crate) child: Child,
}

impl Started {
    /// Sends SIGINT after so long, and waits for the end.
    pub(crate) fn interrupt_after(self, time: Duration) -> Done {
        std::thread::sleep(time);
        self.interrupt()
    }

    /// Sends SIGINT, and waits for the end.
    pub(crate) fn interrupt(self) -> Done {
        signal("-INT", self.child.id());
        self.end()
    }

    /// Waits for the end.
    pub(crate) fn end(self) -> Done {
        Done::new(&self.line, &self.child.wait_with_output().unwrap())
    }
}

/// Waits until the recorder of `t.parquet` records.
pub(crate) fn begun(run: &Run, mut recorder: Child) -> Child {
    let description = run.path(format!(".t.parquet.{}.spool/spool.json", recorder.id()));
    let begun = wait_for("the beginning of the record", || {
        match description.exists() {
            true => Some(true),
            false => recorder.try_wait().unwrap().map(|_| false),
        }
    });
    if !begun {
        panic!("ended at once: {:?}", recorder.wait_with_output());
    }
    recorder
}

/// Waits for what must come; a minute is a hang.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: it never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a thread is in this state, by its letter in proc(5): on a busy machine it is still on its way there.
pub(crate) fn until_state(pid: u32, state: char) {
    let (stat, is) = (format!("/proc/{pid}/stat"), format!(") {state} "));
    wait_for(&format!("state {state} of {pid}"), || {
        let stat = std::fs::read_to_string(&stat).unwrap();
        stat.contains(&is).then_some(())
    });
}

/// Makes a named pipe, to which nobody writes.
pub(crate) fn pipe(at: &Path) {
    let made = Command::new("mkfifo").args(["-m", "755"]).arg(at).status();
    assert!(made.unwrap().success(), "{}", at.display());
}

/// Copies the folder of a recording that was cut off to `to`.
pub(crate) fn spool(to: &Path) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tracer/fixtures");
    std::fs::create_dir(to).unwrap();
    for name in ["cpu0.raw", "cpu1.raw", "spool.json"] {
        std::fs::copy(fixtures.join(name), to.join(name)).unwrap();
    }
}

/// The bzImage of `checks/capabilities`, of this release.
pub(crate) fn bzimage(release: &str) -> Vec<u8> {
    let mut bytes =
        include_bytes!("../../../../checks/capabilities/files/kernels/linux-a").to_vec();
    let version = format!("{release} (somebody@somewhere) #1 SMP\0");
    bytes[0x300..0x300 + version.len()].copy_from_slice(version.as_bytes());
    bytes
}

/// A static program of no content, as a guest's.
pub(crate) fn guest() -> Vec<u8> {
    let mut guest = vec![0; 64];
    guest[..6].copy_from_slice(b"\x7fELF\x02\x01");
    guest[18] = 62;
    guest
}

/// Sends a signal to a process.
pub(crate) fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.unwrap().success());
}

/// A command's exit status, as a shell has it, and output.
#[derive(Debug)]
pub(crate) struct Done {
    line: String,
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn new(line: &str, output: &Output) -> Done {
        Done {
            line: line.to_owned(),
            status: (output.status.code()).or(output.status.signal().map(|signal| 128 + signal)),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Fails unless the exit status is 0.
    pub(crate) fn ok(self) -> Done {
        self.ends(0)
    }

    /// Fails unless the exit status is this.
    pub(crate) fn ends(self, status: i32) -> Done {
        assert_eq!(self.status, Some(status), "{}: {self:#?}", self.line);
        self
    }

    /// Fails unless it ended with status 0 and printed nothing on standard error; returns what it printed.
    pub(crate) fn quiet(self) -> String {
        assert_eq!((self.status, &*self.err), (Some(0), ""), "{self:#?}");
        self.out
    }

    /// Returns the document that was printed; fails unless it fits this schema.
    pub(crate) fn document(self, schema: &str) -> serde_json::Value {
        valid(schema, &self.ok().out)
    }
}

/// Fails unless `text` has all `parts`.
#[track_caller]
pub(crate) fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no '{part}' in: {text}");
    }
}

/// Names in a directory, in order.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries
        .map(|e| name(e).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
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

/// Returns a trace (JSON lines) of two threads that take turns, whose name is `name`, escaped for JSON.
pub(crate) fn trace_of_threads_named(name: &str) -> String {
    let event = |at: u64| {
        let (tid, next) = (10 + at % 2, 10 + (at + 1) % 2);
        format!(
            "{{\"time_ns\":{},\"kind\":\"switch\",\"cpu\":0,\"pid\":{tid},\"tid\":{tid},\"comm\":\"{name}\",\
             \"state\":\"S\",\"preempted\":false,\"next_tid\":{next},\"next_comm\":\"{name}\"}}\n",
            at * 1_000_000
        )
    };
    (0..200).map(event).collect()
}
