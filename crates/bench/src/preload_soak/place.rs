//! Where a program runs, and with what.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::Guarded;

/// How long a server may take to answer, and a step to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Variable with the bytes of freed maps that the library keeps (fix arena-keep).
const KEEP: &str = "STOPGAP_KEEP";
/// User and group `nobody`.
const NOBODY: u32 = 65_534;
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

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
    pub(crate) folder: PathBuf,
    pub(crate) fix: Fix,
}

impl Place {
    pub(crate) fn new(folder: &Path, fix: Fix) -> Place {
        let folder = folder.to_owned();
        Place { folder, fix }
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

    /// Makes an empty `run` and an empty `report`, both open to the user nobody: PostgreSQL does not run as root.
    pub(crate) fn clear(&self) -> Result<(), String> {
        let (run, report) = (self.run(), self.report());
        if run.exists() {
            fs::remove_dir_all(&run).map_err(failed(&run))?;
        }
        for folder in [&self.folder, &self.shared(), &run] {
            fs::create_dir_all(folder).map_err(failed(folder))?;
        }
        write(&report, "")?;
        for (path, mode) in [(&self.folder, 0o755), (&report, 0o666)] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(path, mode).map_err(failed(path))?;
        }
        Ok(())
    }

    /// Returns `program` with the fix, in an environment of few variables.
    pub(crate) fn command(&self, program: &str) -> Command {
        let run = self.run();
        let started: &Path = match &self.fix {
            Fix::Run(stopgap, _) => stopgap,
            _ => program.as_ref(),
        };
        let mut command = Command::new(started);
        command
            .env_clear()
            .envs([("PATH", PATH), ("LC_ALL", "C.UTF-8"), ("TZ", "UTC")])
            .envs([("HOME", &run), ("TMPDIR", &run)])
            .current_dir(&run)
            .stdin(Stdio::null());
        match &self.fix {
            Fix::None => return command,
            Fix::Preload(library) => _ = command.env("LD_PRELOAD", library),
            Fix::Run(_, library) => {
                let fix = if kept().is_some() {
                    "arena-keep"
                } else {
                    "arena"
                };
                command.env("STOPGAP_PRELOAD", library);
                command.args(["run", "--fix", fix, "--", program]);
            }
        }
        command.env("STOPGAP_REPORT", self.report());
        command.envs(kept().map(|keep| (KEEP, keep)));
        command
    }

    /// Fails where `stopgap run` does not say of a static program that it passes through.
    pub(crate) fn passes_through(&self, said: &Said) -> Result<(), String> {
        match self.fix {
            Fix::Run(..) if !said.err.contains("is statically linked") => {
                let said = said.err.trim();
                Err(format!(
                    "stopgap run does not say that the program is static: {said}"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Returns `program` without the fix: for preparing and checking.
    pub(crate) fn plain(&self, program: &str) -> Command {
        Place::new(&self.folder, Fix::None).command(program)
    }

    /// Returns `program` with the fix, as the user nobody where we are root.
    pub(crate) fn command_as_nobody(&self, program: &str) -> Command {
        if !is_root() {
            return self.command(program);
        }
        let mut command = self.command("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--",
            program,
        ]);
        command
    }

    /// Gives `run` to the user nobody where we are root.
    pub(crate) fn give_to_nobody(&self) -> Result<(), String> {
        if !is_root() {
            return Ok(());
        }
        chown(self.run(), Some(NOBODY), Some(NOBODY)).map_err(failed(&self.run()))
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns what makes an error a sentence, with the path or program that it is about.
pub(crate) fn failed<E: Display>(what: impl AsRef<Path>) -> impl FnOnce(E) -> String {
    move |error| format!("{}: {error}", what.as_ref().display())
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(failed(path))
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(failed(path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Finds a program as [`Place::command`] does.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let mut paths = PATH
        .split(':')
        .map(|folder| Path::new(folder).join(program));
    paths.find(|path| path.exists())
}

/// Returns the first of `files` that is missing.
pub(crate) fn first_missing<'a>(files: &[&'a str]) -> Option<&'a str> {
    let mut files = files.iter().copied();
    files.find(|file| match file.starts_with('/') {
        true => !Path::new(file).exists(),
        false => which(file).is_none(),
    })
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn both(&self) -> String {
        format!("{}\n{}", self.out, self.err)
    }
}

/// Returns a path that no other file of this process has.
fn unique(folder: &Path, name: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    folder.join(format!("{name}.{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Runs a command to its end. What it writes goes to files: a process that it leaves behind keeps no pipe open.
///
/// # Errors
/// Where it cannot be run, and where it ends otherwise than well; with the last lines that it wrote.
pub(crate) fn finish(mut command: Command, folder: &Path) -> Result<Said, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let [out, err] = ["said.out", "said.err"].map(|name| unique(folder, name));
    let file = |path: &Path| fs::File::create(path).map_err(failed(path));
    command.stdout(file(&out)?).stderr(file(&err)?);
    let status = command.status().map_err(failed(&name))?;
    let (out, err) = (read(&out)?, read(&err)?);
    let said = Said { out, err };
    ended_well(&name, status, &said.both())?;
    Ok(said)
}

/// Fails where a program did not end with status 0.
pub(crate) fn ended_well(name: &str, status: ExitStatus, said: &str) -> Result<(), String> {
    if status.success() {
        return Ok(());
    }
    let lines = said.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.collect();
    let last = &lines[lines.len().saturating_sub(8)..];
    Err(format!("{name}: {status}: {}", last.join(" | ")))
}

/// A server of a run. Dropped, it is killed.
pub(crate) struct Server(Guarded);

impl Server {
    /// Starts it; what it says goes to a file in `folder`.
    pub(crate) fn start(mut command: Command, folder: &Path) -> Result<Server, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = unique(folder, "server.log");
        let file = fs::File::create(&log).map_err(failed(&log))?;
        let other = file.try_clone().map_err(failed(&log))?;
        let child = command.stdout(file).stderr(other).spawn();
        Ok(Server(Guarded(child.map_err(failed(name))?)))
    }

    /// Waits until `ready`, or until it has ended. Fails where that takes more than a minute.
    fn wait(&mut self, ready: impl Fn() -> bool) -> Result<Option<ExitStatus>, String> {
        let begin = Instant::now();
        while !ready() {
            if let Some(status) = self.0.0.try_wait().map_err(failed("a server"))? {
                return Ok(Some(status));
            }
            if begin.elapsed() > PATIENCE {
                return Err("the server is not ready, or has not ended, after a minute".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(None)
    }

    /// Waits until `ready`.
    ///
    /// # Errors
    /// Where it ends before, or takes too long.
    pub(crate) fn wait_for(&mut self, ready: impl Fn() -> bool) -> Result<(), String> {
        match self.wait(ready)? {
            Some(status) => Err(format!("the server ended before it was ready: {status}")),
            None => Ok(()),
        }
    }

    /// Waits until it ends by itself.
    pub(crate) fn ended(&mut self) -> Result<ExitStatus, String> {
        let status = self.wait(|| false)?;
        status.ok_or_else(|| "the server has not ended".to_owned())
    }
}
