//! The programs: a table, and what their entries do.

mod servers;

use std::fs;
use std::path::Path;
use std::process::Command;

use super::place::{Place, Said, ended_well, failed, finish, read, which, write};

/// Whether a program loads the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loads {
    /// It is loaded, and says so.
    Yes,
    /// The program is linked statically: no dynamic loader, no library.
    Static,
}

/// A real program with checks of its own. Its steps fail with a sentence: what is wrong.
pub(super) struct Program {
    /// The name for `--only`.
    pub(super) name: &'static str,
    /// Debian packages that have what it needs.
    pub(super) packages: &'static str,
    /// Files that it needs: absolute paths, and names in PATH.
    pub(super) needs: &'static [&'static str],
    /// Whether the library is expected in it.
    pub(super) loads: Loads,
    /// A remark for its line, such as where it stands for another.
    pub(super) remark: fn() -> Option<String>,
    /// Once, without the library, not timed: compiles, writes inputs.
    pub(super) prepare: fn(&Place) -> Result<(), String>,
    /// One run, timed, in a process of its own whose children are all counted.
    pub(super) run: fn(&Place) -> Result<(), String>,
    /// What the run left, after it and not timed. It must be the same with the library and without.
    pub(super) check: fn(&Place) -> Result<Vec<u8>, String>,
}

/// A program without preparation, whose run is its check.
const PLAIN: Program = Program {
    name: "",
    packages: "",
    needs: &[],
    loads: Loads::Yes,
    remark: || None,
    prepare: |_| Ok(()),
    run: |_| Ok(()),
    check: |_| Ok(Vec::new()),
};

const CPYTHON: Program = Program {
    packages: "python3.11 libpython3.11-testsuite",
    ..PLAIN
};
const POSTGRESQL: Program = Program {
    packages: "postgresql-15 postgresql-client-15 util-linux",
    needs: &[
        "/usr/lib/postgresql/15/bin/initdb",
        "/usr/lib/postgresql/15/bin/postgres",
        "/usr/lib/postgresql/15/bin/psql",
        "/usr/lib/postgresql/15/bin/pgbench",
        "/usr/lib/postgresql/15/bin/pg_amcheck",
        "setpriv",
    ],
    ..PLAIN
};
const STRESS_NG: Program = Program {
    packages: "stress-ng",
    needs: &["stress-ng"],
    ..PLAIN
};
const GO: Program = Program {
    packages: "golang-go gcc libc6-dev",
    needs: &["go", "gcc"],
    check: answer,
    ..PLAIN
};
const RUST: Program = Program {
    packages: "gcc libc6-dev, and a rustc in PATH",
    needs: &["gcc"],
    run: |place| run_built(place, Loads::Yes),
    check: answer,
    ..PLAIN
};

/// All of them, the short ones first.
pub(super) const ALL: &[Program] = &[
    Program {
        name: "cpython",
        needs: &[
            PYTHON,
            "/usr/lib/python3.11/test/test_mmap.py",
            "/usr/lib/python3.11/test/test_gc.py",
        ],
        run: |place| python_tests(place, &["test_mmap test_gc"]),
        ..CPYTHON
    },
    // `test_multiprocessing_fork` sleeps through a minute of its 75 s. Its classes are dealt out to processes that sleep
    // at the same time; each class is in exactly one of them.
    Program {
        name: "cpython-fork",
        needs: &[
            PYTHON,
            "/usr/lib/python3.11/test/test_fork1.py",
            "/usr/lib/python3.11/test/test_multiprocessing_fork.py",
        ],
        run: |place| {
            let processes = [
                "test_fork1",
                "-m *.WithProcessesTest[A-E]* test_multiprocessing_fork",
                "-m *.WithProcessesTest[F-M]* test_multiprocessing_fork",
                "-m *.WithProcessesTest[N-Z]* test_multiprocessing_fork",
                "-m *.WithThreads* test_multiprocessing_fork",
                "-m *.WithManager* test_multiprocessing_fork",
                "-m *.TestWait.* test_multiprocessing_fork",
                "-i *.With* -i *.TestWait.* test_multiprocessing_fork",
            ];
            python_tests(place, &processes)
        },
        ..CPYTHON
    },
    Program {
        name: "redis",
        packages: "redis-server redis-tools",
        needs: &["redis-server", "redis-benchmark"],
        run: servers::redis,
        ..PLAIN
    },
    // SQLite with its file mapped (`PRAGMA mmap_size`): the mapping grows with the file, by mremap.
    Program {
        name: "sqlite",
        packages: "sqlite3",
        needs: &["sqlite3"],
        prepare: |place| {
            write(
                &place.shared().join("tables.sql"),
                include_str!("sources/tables.sql"),
            )
        },
        run: |place| {
            let mut command = place.command("sqlite3");
            command
                .args(["-batch", "-bail"])
                .arg(place.run().join("db"));
            command.arg(format!(
                ".read {}",
                place.shared().join("tables.sql").display()
            ));
            let said = finish(command, &place.run())?;
            write(&place.run().join("answer"), &said.out)
        },
        check: check_sqlite,
        ..PLAIN
    },
    Program {
        name: "postgresql-start",
        run: servers::postgresql_start,
        ..POSTGRESQL
    },
    Program {
        name: "pgbench",
        run: servers::pgbench,
        ..POSTGRESQL
    },
    // Headless Chromium printing a page to PDF. Identical are the rendered pixels; the file holds the time of day.
    Program {
        name: "chromium",
        packages: "chromium poppler-utils",
        needs: &["chromium", "pdftoppm"],
        prepare: |place| {
            write(
                &place.shared().join("page.html"),
                include_str!("sources/page.html"),
            )
        },
        run: |place| {
            let (run, shared) = (place.run(), place.shared());
            let mut command = place.command("chromium");
            // Its sandbox refuses root, and drops what LD_PRELOAD says.
            let words = "--headless --disable-gpu --no-first-run --disable-background-networking --disable-component-update \
                         --no-pdf-header-footer --no-sandbox";
            command.args(words.split(' '));
            command.arg(format!("--user-data-dir={}", run.join("profile").display()));
            command.arg(format!("--print-to-pdf={}", run.join("page.pdf").display()));
            command.arg(format!("file://{}", shared.join("page.html").display()));
            finish(command, &run).map(drop)
        },
        check: check_chromium,
        ..PLAIN
    },
    // A JVM with the G1 collector: reserves its heap, commits and uncommits parts of it by MAP_FIXED, mprotect and madvise.
    Program {
        name: "jvm",
        packages: "openjdk-17-jdk-headless",
        needs: &["java", "javac"],
        prepare: |place| {
            let path = place.shared().join("Churn.java");
            write(&path, include_str!("sources/Churn.java"))?;
            let mut javac = place.plain("javac");
            javac.arg("-d").arg(place.shared()).arg(path);
            finish(javac, &place.run()).map(drop)
        },
        run: |place| {
            let mut java = place.command("java");
            // Without -Xmn G1 makes it larger and smaller by how long its pauses took, and one run is 15 % dearer than the next.
            let words = "-XX:+UseG1GC -Xms16m -Xmx256m -Xmn8m -XX:ParallelGCThreads=2 -Xlog:gc:file=gc.log -cp";
            java.args(words.split(' ')).arg(place.shared()).arg("Churn");
            keep_answer(place, &finish(java, &place.run())?)
        },
        check: |place| {
            let log = read(&place.run().join("gc.log"))?;
            match log.contains("Using G1") && log.contains("Pause Young") {
                true => answer(place),
                false => Err(format!("G1 has not collected: {log}")),
            }
        },
        ..PLAIN
    },
    Program {
        name: "stress-ng-mmap",
        run: |place| stress_ng(place, "--mmap 1 --mmap-ops 8 --mmap-bytes 32m --verify"),
        ..STRESS_NG
    },
    Program {
        name: "stress-ng-vma",
        remark: || {
            let remark =
                "this stress-ng has no --vma: --mmapaddr, --mmapfixed, --mremap stand for it";
            (!has_vma()).then(|| remark.to_owned())
        },
        run: |place| match has_vma() {
            true => stress_ng(place, "--vma 1 --vma-ops 20000 --verify"),
            false => stress_ng(
                place,
                "--mmapaddr 1 --mmapaddr-ops 20000 --mmapfixed 1 --mmapfixed-ops 100 --mremap 1 --mremap-ops 60 --mremap-bytes 8m --verify",
            ),
        },
        ..STRESS_NG
    },
    Program {
        name: "stress-ng-mmapmany",
        run: |place| stress_ng(place, "--mmapmany 1 --mmapmany-ops 60000 --verify"),
        ..STRESS_NG
    },
    // A Go program, static, and linked with glibc by cgo. Go's runtime makes its system calls itself either way: the library
    // sees what C code asks for and nothing of Go's heap.
    Program {
        name: "go-static",
        loads: Loads::Static,
        prepare: |place| build_go(place, "0", "package main\n\nfunc leave() {}\n"),
        run: |place| run_built(place, Loads::Static),
        ..GO
    },
    Program {
        name: "go",
        // What makes the linker take glibc. Go's own exit ends the process at once: it leaves by C's, so that the library reports.
        prepare: |place| {
            let leave = "package main\n\n// #include <stdlib.h>\nimport \"C\"\n\nfunc leave() { C.exit(0) }\n";
            build_go(place, "1", leave)
        },
        run: |place| run_built(place, Loads::Yes),
        ..GO
    },
    // Rust programs that map memory themselves: the mails' own case, buffers that come and go; threads that cut up ranges; and
    // the first one linked statically.
    Program {
        name: "rust-buffers",
        prepare: |place| build_rust(place, BUFFERS, &[]),
        ..RUST
    },
    Program {
        name: "rust-ranges",
        prepare: |place| build_rust(place, include_str!("sources/ranges.rs.txt"), &[]),
        ..RUST
    },
    Program {
        name: "rust-static",
        loads: Loads::Static,
        prepare: |place| build_rust(place, BUFFERS, &["-C", "target-feature=+crt-static"]),
        run: |place| run_built(place, Loads::Static),
        ..RUST
    },
];

const BUFFERS: &str = include_str!("sources/buffers.rs.txt");
/// Debian's; another one in PATH may have other tests.
const PYTHON: &str = "/usr/bin/python3.11";

/// Finds a program by its name.
pub(super) fn named(name: &str) -> Option<&'static Program> {
    ALL.iter().find(|program| program.name == name)
}

/// Runs parts of CPython's own test suite, a process for each of `processes` and all at once. CPython takes the memory of its small
/// objects by mmap, in arenas of 1 MiB, `mmap` is a module of it, and its `multiprocessing` keeps shared values in mapped files: all of
/// it before and after fork(2).
fn python_tests(place: &Place, processes: &[&str]) -> Result<(), String> {
    let mut running = Vec::new();
    for (number, &words) in processes.iter().enumerate() {
        let log = place.run().join(format!("tests.{number}"));
        let file = fs::File::create(&log).map_err(failed(&log))?;
        let other = file.try_clone().map_err(failed(&log))?;
        let mut command = place.command(PYTHON);
        command.args(["-m", "test"]).args(words.split(' '));
        let child = command.stdout(file).stderr(other).spawn();
        running.push((words, log, child.map_err(failed(PYTHON))?));
    }
    // All are waited for, even where one fails.
    let results = running.into_iter().map(|(words, log, mut child)| {
        let status = child.wait().map_err(failed(PYTHON))?;
        let said = read(&log)?;
        ended_well(words, status, &said)?;
        // "No test was run" ends with status 0, too.
        let bad = ["NO TEST", "test skipped", "tests skipped", "FAIL"];
        if !said.contains("Tests result: SUCCESS") || bad.iter().any(|bad| said.contains(bad)) {
            let last: Vec<&str> = said.lines().rev().take(4).collect();
            return Err(format!("{words}: {}", last.join(" | ")));
        }
        Ok(())
    });
    let results: Vec<Result<(), String>> = results.collect();
    results.into_iter().collect()
}

/// Keeps what a program printed, for [`answer`].
fn keep_answer(place: &Place, said: &Said) -> Result<(), String> {
    match said.out.starts_with("ok ") {
        true => write(&place.run().join("answer"), &said.out),
        false => Err(said.out.clone()),
    }
}

/// Returns what a program printed.
fn answer(place: &Place) -> Result<Vec<u8>, String> {
    read(&place.run().join("answer")).map(String::into_bytes)
}

/// Runs the program that was built. `stopgap run` must say of a static one that it passes through.
fn run_built(place: &Place, loads: Loads) -> Result<(), String> {
    let program = place.shared().join("program");
    let said = finish(place.command(&program.to_string_lossy()), &place.run())?;
    if loads == Loads::Static {
        place.passes_through(&said)?;
    }
    keep_answer(place, &said)
}

fn build_go(place: &Place, cgo: &str, leave: &str) -> Result<(), String> {
    let shared = place.shared();
    write(&shared.join("go.mod"), "module churn\n\ngo 1.19\n")?;
    write(
        &shared.join("main.go"),
        include_str!("sources/churn.go.txt"),
    )?;
    write(&shared.join("leave.go"), leave)?;
    let mut go = place.plain("go");
    go.args(["build", "-o", "program"]).current_dir(&shared);
    go.env("GOCACHE", shared.join("cache"))
        .env("GOPATH", shared.join("path"));
    go.env("CGO_ENABLED", cgo);
    go.env("GOTOOLCHAIN", "local")
        .env("GOPROXY", "off")
        .env("GOFLAGS", "-mod=mod");
    finish(go, &place.run()).map(drop)
}

fn build_rust(place: &Place, source: &str, words: &[&str]) -> Result<(), String> {
    let path = place.shared().join("main.rs");
    write(&path, source)?;
    // With our own environment: a rustc may be rustup's, which asks HOME which one it is.
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .args(["--edition", "2021", "-O", "-o"])
        .arg(place.shared().join("program"));
    rustc.arg(path).args(words);
    finish(rustc, &place.run()).map(drop)
}

/// Runs stressors of mappings, with their own verification, a fixed number of steps each.
fn stress_ng(place: &Place, words: &str) -> Result<(), String> {
    let mut command = place.command("stress-ng");
    command
        .args(words.split(' '))
        .args(["--timeout", "100", "--temp-path"])
        .arg(place.run());
    let said = finish(command, &place.run())?.both();
    match said.contains("successful run completed") && !said.contains("fail:") {
        true => Ok(()),
        false => Err(format!("stress-ng: {}", said.trim())),
    }
}

/// Whether this stress-ng knows `--vma`: Debian 12's 0.15.06 does not.
fn has_vma() -> bool {
    let help = which("stress-ng").and_then(|path| Command::new(path).arg("--help").output().ok());
    help.is_none_or(|help| {
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        help.split_whitespace().any(|word| word == "--vma")
    })
}

/// Holds the answers of SQLite's script against numbers known without it: its rows are the numbers up to 300,000 but the multiples
/// of 3, and their sum.
fn check_sqlite(place: &Place) -> Result<Vec<u8>, String> {
    const ROWS: u64 = 300_000;
    let answers = read(&place.run().join("answer"))?;
    let lines: Vec<&str> = answers.lines().collect();
    let third = ROWS / 3;
    let count = ROWS - third;
    let sum = ROWS * (ROWS + 1) / 2 - 3 * third * (third + 1) / 2;
    for wanted in [&*format!("rows {count} {sum}"), "1073741824"] {
        if !lines.contains(&wanted) {
            return Err(format!("no line '{wanted}' among {lines:?}"));
        }
    }
    match lines.iter().filter(|line| **line == "ok").count() {
        2 => Ok(answers.into_bytes()),
        _ => Err(format!("integrity_check: {lines:?}")),
    }
}

/// Returns the pixels of the printed pages.
fn check_chromium(place: &Place) -> Result<Vec<u8>, String> {
    let run = place.run();
    let mut render = place.plain("pdftoppm");
    render
        .args(["-r", "60"])
        .arg(run.join("page.pdf"))
        .arg(run.join("page"));
    finish(render, &run)?;
    let entries = fs::read_dir(&run).map_err(failed(&run))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let is_page = |path: &Path| path.extension().is_some_and(|end| end == "ppm");
    let mut pages: Vec<_> = paths.filter(|path| is_page(path)).collect();
    pages.sort();
    let mut pixels = Vec::new();
    for page in &pages {
        pixels.extend(fs::read(page).map_err(failed(page))?);
    }
    // The script's table alone fills more than one page, and white paper has one value.
    let ink = pixels.iter().filter(|byte| **byte < 128).count();
    match pages.len() >= 2 && ink >= 10_000 {
        true => Ok(pixels),
        false => Err(format!("{} pages, {ink} dark bytes", pages.len())),
    }
}
