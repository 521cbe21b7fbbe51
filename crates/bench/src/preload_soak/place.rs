//! Where a program runs, and with what.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer, and a step to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of freed maps that the library keeps, where this command was told to let it (fix arena-keep).
const KEEP: &str = "STOPGAP_KEEP";

fn kept() -> Option<OsString> {
    std::env::var_os(KEEP).filter(|keep| !keep.is_empty() && keep != "0")
}

/// With what a program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fix {
    /// Nothing: the peer.
    None,
    /// The library, by `LD_PRELOAD`.
    Preload(PathBuf),
    /// The library, by `stopgap run --fix arena`: the program, then the library.
    Run(PathBuf, PathBuf),
}

/// The folders of one run of a program, and its fix.
///
/// ```text
/// ROOT/NAME/shared      made once, by Program::prepare; no run writes to it
/// ROOT/NAME/a/run       empty before each run; current directory, HOME and TMPDIR
/// ROOT/NAME/a/report    what the library says of itself, a line a process
/// ROOT/NAME/a/said      what `stopgap run` and the programs said on standard error
/// ROOT/NAME/b/...       the same for the run beside it
/// ```
///
/// Both sides run under paths of the same length, for that is part of a process's stack, and change places.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    folder: PathBuf,
    pub(crate) fix: Fix,
}

impl Place {
    pub(crate) fn new(folder: &Path, fix: Fix) -> Place {
        Place {
            folder: folder.to_owned(),
            fix,
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn shared(&self) -> PathBuf {
        self.folder.with_file_name("shared")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.folder.join("run")
    }

    pub(crate) fn report(&self) -> PathBuf {
        self.folder.join("report")
    }

    /// An empty `run` and an empty `report`, both open to the user nobody: PostgreSQL does not run as root.
    pub(crate) fn clear(&self) -> Result<(), String> {
        let run = self.run();
        if run.exists() {
            fs::remove_dir_all(&run).map_err(|e| failed(&run, &e))?;
        }
        for folder in [&self.folder, &self.shared(), &run] {
            fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
        }
        fs::write(self.report(), "").map_err(|e| failed(&self.report(), &e))?;
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
                .map_err(|e| failed(path, &e))
        };
        open(&self.folder, 0o755)?;
        open(&self.report(), 0o666)
    }

    /// `program` with the fix, in an environment of few variables.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = match &self.fix {
            Fix::None => Command::new(program),
            Fix::Preload(library) => {
                let mut command = Command::new(program);
                self.few_variables(&mut command);
                command.env("LD_PRELOAD", library);
                command
            }
            Fix::Run(stopgap, library) => {
                let mut command = Command::new(stopgap);
                self.few_variables(&mut command);
                command.env("STOPGAP_PRELOAD", library);
                let fix = if kept().is_some() {
                    "arena-keep"
                } else {
                    "arena"
                };
                command.args(["run", "--fix", fix, "--", program]);
                command
            }
        };
        match self.fix {
            Fix::None => self.few_variables(&mut command),
            _ => {
                command.env("STOPGAP_REPORT", self.report());
                command.envs(kept().map(|keep| (KEEP, keep)));
            }
        }
        command
    }

    /// # Errors
    /// Where `stopgap run` does not say of a static program that it passes through.
    pub(crate) fn passes_through(&self, said: &Said) -> Result<(), String> {
        match self.fix {
            Fix::Run(..) if !said.err.contains("is statically linked") => Err(format!(
                "stopgap run does not say that the program is static: {}",
                said.err.trim()
            )),
            _ => Ok(()),
        }
    }

    /// `program` without it: for preparing and checking.
    pub(crate) fn plain(&self, program: &str) -> Command {
        Place::new(&self.folder, Fix::None).command(program)
    }

    fn few_variables(&self, command: &mut Command) {
        let run = self.run();
        command
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", &run)
            .env("TMPDIR", &run)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .current_dir(&run)
            .stdin(Stdio::null());
    }

    /// As [`Place::command`], as the user nobody where we are root.
    pub(crate) fn command_as_nobody(&self, program: &str) -> Command {
        if !is_root() {
            return self.command(program);
        }
        let mut command = self.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(program);
        command
    }

    /// Gives `run` to the user nobody where we are root.
    pub(crate) fn give_to_nobody(&self) -> Result<(), String> {
        if !is_root() {
            return Ok(());
        }
        chown(self.run(), Some(NOBODY), Some(NOBODY)).map_err(|e| failed(&self.run(), &e))
    }
}

const NOBODY: u32 = 65_534;
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Where a program is, as [`Place::command`] finds it.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let folders = PATH.split(':').map(Path::new);
    folders
        .map(|folder| folder.join(program))
        .find(|path| path.exists())
}

/// The first of `files` that is not there.
pub(crate) fn first_missing(files: &[&str]) -> Option<String> {
    let there = |file: &str| match file.starts_with('/') {
        true => Path::new(file).exists(),
        false => which(file).is_some(),
    };
    files
        .iter()
        .find(|file| !there(file))
        .map(|file| (*file).to_owned())
}

/// What a command wrote.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Both, for who looks for a word in either.
    pub(crate) fn both(&self) -> String {
        format!("{}\n{}", self.out, self.err)
    }
}

/// Runs a command to its end. What it writes goes to files: a process that it leaves behind keeps no pipe open.
///
/// # Errors
/// Where it cannot be run, and where it ends otherwise than well; with the last lines that it wrote.
pub(crate) fn finish(mut command: Command, folder: &Path) -> Result<Said, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let [out, err] = ["out", "err"].map(|which| folder.join(format!("said.{}.{which}", unique())));
    let file = |path: &PathBuf| fs::File::create(path).map_err(|e| failed(path, &e));
    command.stdout(file(&out)?).stderr(file(&err)?);
    let mut child = command.spawn().map_err(|e| format!("{name}: {e}"))?;
    let status = child.wait().map_err(|e| format!("{name}: {e}"))?;
    let read = |path: &PathBuf| {
        let bytes = fs::read(path).map_err(|e| failed(path, &e))?;
        Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let said = Said {
        out: read(&out)?,
        err: read(&err)?,
    };
    ended_well(&name, status, &said.both())?;
    Ok(said)
}

/// A number that no other file of this process has.
fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// # Errors
/// Where it did not end with status 0.
pub(crate) fn ended_well(name: &str, status: ExitStatus, said: &str) -> Result<(), String> {
    if status.success() {
        return Ok(());
    }
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(8)..];
    Err(format!("{name}: {status}: {}", last.join(" | ")))
}

/// A server of a run; dropped, it is killed.
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts it; what it says goes to a file in `folder`.
    pub(crate) fn start(mut command: Command, folder: &Path) -> Result<Server, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = folder.join(format!("server.{}.log", unique()));
        let file = fs::File::create(&log).map_err(|e| failed(&log, &e))?;
        let other = file.try_clone().map_err(|e| failed(&log, &e))?;
        let child = command.stdout(file).stderr(other).spawn();
        child.map(Server).map_err(|e| format!("{name}: {e}"))
    }

    /// Waits until `ready`.
    ///
    /// # Errors
    /// Where it ends before, or takes too long.
    pub(crate) fn wait_for(&mut self, ready: impl Fn() -> bool) -> Result<(), String> {
        let begin = Instant::now();
        while !ready() {
            if let Some(status) = self.0.try_wait().map_err(|e| e.to_string())? {
                return Err(format!("the server ended before it was ready: {status}"));
            }
            if begin.elapsed() > PATIENCE {
                return Err("the server is not ready after a minute".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until it ends by itself, as it was told to.
    pub(crate) fn ended(&mut self) -> Result<ExitStatus, String> {
        let begin = Instant::now();
        loop {
            match self.0.try_wait().map_err(|e| e.to_string())? {
                Some(status) => return Ok(status),
                None if begin.elapsed() > PATIENCE => {
                    return Err("the server has not ended a minute after it was told to".to_owned());
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

/// One question to a Redis server, and its answer: what follows the mark of a line, the bytes of a string.
pub(crate) fn ask(socket: &Path, question: &str) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("redis, asked for {question}: {e}");
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream
        .write_all(format!("{question}\r\n").as_bytes())
        .map_err(failed)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).map_err(failed)?;
    let (mark, rest) = line.trim_end().split_at_checked(1).unwrap_or(("", ""));
    match mark {
        "$" => {
            let length: u64 = rest.parse().map_err(|_| format!("redis: '{line}'"))?;
            let mut text = String::new();
            reader
                .take(length)
                .read_to_string(&mut text)
                .map_err(failed)?;
            Ok(text)
        }
        "+" | ":" => Ok(rest.to_owned()),
        _ => Err(format!(
            "redis, asked for {question}: '{}'",
            line.trim_end()
        )),
    }
}
