//! Parts of CPython's own test suite.
//!
//! CPython takes the memory of its small objects by mmap, in arenas of 1 MiB, `mmap` is a module of it, and its
//! `multiprocessing` keeps shared values in mapped files: all of it before and after fork(2).

use crate::preload_soak::place::{Place, ended_well, failed, finish};
use crate::preload_soak::programs::Program;

/// Debian's; another one in PATH may have other tests.
const PYTHON: &str = "/usr/bin/python3.11";

/// Test files that run one after another in one process.
pub(super) struct Tests {
    name: &'static str,
    needs: &'static [&'static str],
    /// The arguments of `-m test` of each process; all of them run at once.
    processes: &'static [&'static [&'static str]],
}

pub(super) const CPYTHON: Tests = Tests {
    name: "cpython",
    needs: &[
        PYTHON,
        "/usr/lib/python3.11/test/test_mmap.py",
        "/usr/lib/python3.11/test/test_gc.py",
    ],
    processes: &[&["test_mmap", "test_gc"]],
};

/// `test_multiprocessing_fork` sleeps through a minute of its 75 s. Its classes are dealt out to processes that sleep
/// at the same time; each class is in exactly one of them.
pub(super) const CPYTHON_FORK: Tests = Tests {
    name: "cpython-fork",
    needs: &[
        PYTHON,
        "/usr/lib/python3.11/test/test_fork1.py",
        "/usr/lib/python3.11/test/test_multiprocessing_fork.py",
    ],
    processes: &[
        &["test_fork1"],
        &["-m", "*.WithProcessesTest[A-E]*", FORK],
        &["-m", "*.WithProcessesTest[F-M]*", FORK],
        &["-m", "*.WithProcessesTest[N-Z]*", FORK],
        &["-m", "*.WithThreads*", FORK],
        &["-m", "*.WithManager*", FORK],
        &["-m", "*.TestWait.*", FORK],
        &["-i", "*.With*", "-i", "*.TestWait.*", FORK],
    ],
};

const FORK: &str = "test_multiprocessing_fork";

impl Program for Tests {
    fn name(&self) -> &'static str {
        self.name
    }

    fn packages(&self) -> &'static str {
        "python3.11 libpython3.11-testsuite"
    }

    fn needs(&self) -> &'static [&'static str] {
        self.needs
    }

    fn run(&self, place: &Place) -> Result<(), String> {
        if let [only] = self.processes {
            let mut command = place.command(PYTHON);
            command.args(["-m", "test"]).args(*only);
            return judge(only, &finish(command, &place.run())?.both());
        }
        let mut running = Vec::new();
        for (number, &words) in self.processes.iter().enumerate() {
            let log = place.run().join(format!("tests.{number}"));
            let file = std::fs::File::create(&log).map_err(|e| failed(&log, &e))?;
            let other = file.try_clone().map_err(|e| failed(&log, &e))?;
            let mut command = place.command(PYTHON);
            command
                .args(["-m", "test"])
                .args(words)
                .stdout(file)
                .stderr(other);
            let child = command.spawn().map_err(|e| format!("{PYTHON}: {e}"))?;
            running.push((words, log, child));
        }
        // All are waited for, whatever becomes of one.
        let mut results = Vec::new();
        for (words, log, mut child) in running {
            let status = child.wait().map_err(|e| format!("{PYTHON}: {e}"))?;
            let said = std::fs::read(&log).map_err(|e| failed(&log, &e))?;
            let said = String::from_utf8_lossy(&said);
            results.push(
                ended_well(&words.join(" "), status, &said).and_then(|()| judge(words, &said)),
            );
        }
        results.into_iter().collect()
    }
}

/// "No test was run" ends with status 0, too.
fn judge(words: &[&str], said: &str) -> Result<(), String> {
    let bad = ["NO TEST", "test skipped", "tests skipped", "FAIL"];
    if !said.contains("Tests result: SUCCESS") || bad.iter().any(|bad| said.contains(bad)) {
        let last: Vec<&str> = said.lines().rev().take(4).collect();
        return Err(format!("{}: {}", words.join(" "), last.join(" | ")));
    }
    Ok(())
}
