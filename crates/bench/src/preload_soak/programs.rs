//! The programs, each with checks of its own: `scripts/*.sh`, and how their steps are run.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A real program.
pub(super) struct Program {
    /// The name for `--only`.
    pub(super) name: &'static str,
    /// Its steps, in shell.
    script: &'static str,
    /// Debian packages that have what it needs.
    pub(super) packages: &'static str,
    /// Files that it needs: absolute paths, and names in PATH.
    needs: &'static [&'static str],
    /// It is linked statically: no dynamic loader, no library.
    pub(super) is_static: bool,
}

const COMMON: &str = include_str!("scripts/common.sh");
const CPYTHON: Program = Program {
    name: "cpython",
    script: include_str!("scripts/cpython.sh"),
    packages: "python3.11 libpython3.11-testsuite",
    needs: &[
        "/usr/bin/python3.11",
        "/usr/lib/python3.11/test/test_mmap.py",
        "/usr/lib/python3.11/test/test_multiprocessing_fork.py",
    ],
    is_static: false,
};
const POSTGRESQL: Program = Program {
    name: "postgresql-start",
    script: include_str!("scripts/postgresql.sh"),
    packages: "postgresql-15 postgresql-client-15 util-linux",
    needs: &[
        "/usr/lib/postgresql/15/bin/postgres",
        "/usr/lib/postgresql/15/bin/pgbench",
        "/usr/lib/postgresql/15/bin/pg_amcheck",
        "setpriv",
    ],
    is_static: false,
};
const STRESS_NG: Program = Program {
    name: "stress-ng-mmap",
    script: include_str!("scripts/stress-ng.sh"),
    packages: "stress-ng",
    needs: &["stress-ng"],
    is_static: false,
};
const GO: Program = Program {
    name: "go",
    script: include_str!("scripts/go.sh"),
    packages: "golang-go gcc libc6-dev",
    needs: &["go", "gcc"],
    is_static: false,
};
const RUST: Program = Program {
    name: "rust-buffers",
    script: include_str!("scripts/rust.sh"),
    packages: "gcc libc6-dev, and a rustc in PATH",
    needs: &["gcc"],
    is_static: false,
};

const fn named(name: &'static str, program: &Program) -> Program {
    Program { name, ..*program }
}

/// All of them, the short ones first.
pub(super) const ALL: [Program; 16] = [
    CPYTHON,
    named("cpython-fork", &CPYTHON),
    Program {
        name: "redis",
        script: include_str!("scripts/redis.sh"),
        packages: "redis-server redis-tools",
        needs: &["redis-server", "redis-benchmark", "redis-cli"],
        is_static: false,
    },
    Program {
        name: "sqlite",
        script: include_str!("scripts/sqlite.sh"),
        packages: "sqlite3",
        needs: &["sqlite3"],
        is_static: false,
    },
    POSTGRESQL,
    named("pgbench", &POSTGRESQL),
    Program {
        name: "chromium",
        script: include_str!("scripts/chromium.sh"),
        packages: "chromium poppler-utils",
        needs: &["chromium", "pdftoppm"],
        is_static: false,
    },
    Program {
        name: "jvm",
        script: include_str!("scripts/jvm.sh"),
        packages: "openjdk-17-jdk-headless",
        needs: &["java", "javac"],
        is_static: false,
    },
    STRESS_NG,
    named("stress-ng-vma", &STRESS_NG),
    named("stress-ng-mmapmany", &STRESS_NG),
    Program {
        name: "go-static",
        is_static: true,
        ..GO
    },
    GO,
    RUST,
    named("rust-ranges", &RUST),
    Program {
        name: "rust-static",
        is_static: true,
        ..RUST
    },
];

/// Files that the scripts compile and read: `$SOURCES`.
const SOURCES: [(&str, &str); 6] = [
    ("Churn.java", include_str!("sources/Churn.java")),
    ("buffers.rs", include_str!("sources/buffers.rs.txt")),
    ("churn.go", include_str!("sources/churn.go.txt")),
    ("page.html", include_str!("sources/page.html")),
    ("ranges.rs", include_str!("sources/ranges.rs.txt")),
    ("tables.sql", include_str!("sources/tables.sql")),
];

const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

impl Program {
    /// Returns the first of the files that it needs and that is missing.
    pub(super) fn missing(&self) -> Option<&'static str> {
        let exists = |file: &str| match file.starts_with('/') {
            true => Path::new(file).exists(),
            false => PATH
                .split(':')
                .any(|folder| Path::new(folder).join(file).exists()),
        };
        self.needs.iter().copied().find(|file| !exists(file))
    }
}

/// Where a program runs, and with what; also the words of the process in the middle.
///
/// ```text
/// ROOT/sources          what scripts compile and read
/// ROOT/NAME/shared      made once, by the step `prepare`; no run writes to it
/// ROOT/NAME/a/run       empty before each run; current directory, HOME and TMPDIR
/// ROOT/NAME/a/report    what the library says of itself, a line a process
/// ROOT/NAME/a/log       what the step wrote to standard error
/// ROOT/NAME/b/...       the same for the run beside it
/// ```
///
/// Both sides run under paths of the same length, for that is part of a process's stack, and change places.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Place {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    /// The library; without it the run is the peer's.
    #[arg(long)]
    pub(super) library: Option<PathBuf>,
    /// Through the `run --fix arena` of this program, not by `LD_PRELOAD`.
    #[arg(long)]
    pub(super) stopgap: Option<PathBuf>,
}

impl Place {
    pub(super) fn program(&self) -> Result<&'static Program, String> {
        let program = ALL.iter().find(|program| program.name == self.name);
        program.ok_or_else(|| format!("no program {}", self.name))
    }

    pub(super) fn report(&self) -> PathBuf {
        self.folder.join("report")
    }

    /// Makes an empty `run` and an empty `report`, both open to the user nobody: PostgreSQL does not run as root.
    pub(super) fn clear(&self) -> Result<(), String> {
        let run = self.folder.join("run");
        let sources = self.folder.join("../../sources");
        if run.exists() {
            fs::remove_dir_all(&run).map_err(failed(&run))?;
        }
        for folder in [&run, &self.folder.join("../shared"), &sources] {
            fs::create_dir_all(folder).map_err(failed(folder))?;
        }
        for (name, text) in SOURCES {
            fs::write(sources.join(name), text).map_err(failed(&sources))?;
        }
        fs::write(self.report(), "").map_err(failed(&self.report()))?;
        for (path, mode) in [(&self.folder, 0o755), (&self.report(), 0o666)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed(path))?;
        }
        Ok(())
    }

    /// Runs a step to its end; returns what it wrote to standard output. What it writes goes to files: a process that it leaves behind
    /// keeps no pipe open.
    pub(super) fn step(&self, step: &str) -> Result<Vec<u8>, String> {
        let program = self.program()?;
        let [out, log] = ["out", "log"].map(|name| self.folder.join(name));
        let create = |path: &PathBuf| File::create(path).map_err(failed(path));
        let given = |name| std::env::var_os(name).unwrap_or_default();
        let path = |path: &Option<PathBuf>| path.clone().unwrap_or_default().into_os_string();
        let keep = given("STOPGAP_KEEP");
        let beside = |name| self.folder.with_file_name(name).into_os_string();
        let variables: [(&str, OsString); 17] = [
            ("PATH", PATH.into()),
            ("LC_ALL", "C.UTF-8".into()),
            ("TZ", "UTC".into()),
            ("HOME", self.folder.join("run").into()),
            ("TMPDIR", self.folder.join("run").into()),
            ("NAME", self.name.clone().into()),
            ("STATIC", if program.is_static { "yes" } else { "" }.into()),
            ("SHARED", beside("shared")),
            ("SOURCES", self.folder.join("../../sources").into()),
            ("REPORT", self.report().into()),
            ("LIBRARY", path(&self.library)),
            ("STOPGAP", path(&self.stopgap)),
            // Bytes of freed maps that the library keeps: fix arena-keep.
            ("KEEP", if keep == "0" { OsString::new() } else { keep }),
            ("CALLERS_PATH", given("PATH")),
            ("CALLERS_HOME", given("HOME")),
            (
                "RUSTC",
                std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()),
            ),
            ("STEP", step.into()),
        ];
        let status = Command::new("/bin/sh")
            .args(["-euc", &format!("{COMMON}\n{}\n$STEP", program.script)])
            .env_clear()
            .envs(variables)
            .current_dir(self.folder.join("run"))
            .stdin(Stdio::null())
            .stdout(create(&out)?)
            .stderr(create(&log)?)
            .status()
            .map_err(failed("sh"))?;
        if status.success() {
            return fs::read(&out).map_err(failed(&out));
        }
        let said = fs::read(&log).map_err(failed(&log))?;
        let said = String::from_utf8_lossy(&said);
        let lines = said.lines().filter(|line| !line.trim().is_empty());
        let lines: Vec<&str> = lines.collect();
        let last = &lines[lines.len().saturating_sub(8)..];
        Err(format!("{status}: {}", last.join(" | ")))
    }
}

/// Returns what makes an error a sentence, with the path or program that it is about.
pub(super) fn failed<E: Display>(what: impl AsRef<Path>) -> impl FnOnce(E) -> String {
    move |error| format!("{}: {error}", what.as_ref().display())
}
