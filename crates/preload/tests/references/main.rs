//! Tests what outlives a munmap: references that the kernel, a device or another process holds on pages, and state of
//! the VMA, the page frame or the process. Each way is a small program. It runs three times and prints what it saw:
//! without the library (plain), with `arena` (`STOPGAP_KEEP=0`), and with `arena-keep` (`STOPGAP_KEEP=32M`). `ways.md` lists
//! them.
//!
//! * `arena` must see what plain sees.
//! * `arena-keep` must see something else where it is unsafe, which proves that the program can detect a fault. Where
//!   `arena-keep` cannot fail, the row says why.
//!
//! ```text
//! cargo test -p stopgap-preload --test references              # the table at the end
//! cargo test -p stopgap-preload --test references -- vmsplice  # ways whose name contains the word
//! ```

#![allow(unsafe_code)]

#[path = "../common/aio.rs"]
mod aio;
#[path = "../common/mod.rs"]
mod common;
mod direct;
mod mapped_over;
mod marked;
mod pipes;
mod processes;
#[path = "../common/raw.rs"]
mod raw;
mod rings;
mod sockets;
#[path = "../common/uring.rs"]
mod uring;
mod userfault;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use stopgap_testing::{Skip, skip};

/// Result of a program: a line to compare, or (`Err`) why the program cannot run here.
type Seen = Result<String, String>;

/// Programs of ways, by name.
type Programs = &'static [(&'static str, fn() -> Seen)];

/// One way by which something outlives a munmap: a row of `ways.md`.
struct Way {
    name: &'static str,
    /// Description of the program, for the table.
    does: &'static str,
    /// `None`: there is no program, and `kept` says why.
    program: Option<fn() -> Seen>,
    kept: Kept,
}

/// Expectation for `arena-keep`.
enum Kept {
    /// The program must see something else than in plain.
    Unsafe,
    /// The program must see the same as in plain, for this reason.
    Safe(&'static str),
}

fn ways() -> Vec<Way> {
    let mut programs: BTreeMap<_, _> = [
        pipes::PROGRAMS,
        direct::PROGRAMS,
        rings::PROGRAMS,
        sockets::PROGRAMS,
        processes::PROGRAMS,
        mapped_over::PROGRAMS,
        marked::PROGRAMS,
        userfault::PROGRAMS,
    ]
    .concat()
    .into_iter()
    .collect();
    let rows = include_str!("ways.md").lines();
    let ways: Vec<_> = rows
        .filter_map(|row| row.strip_prefix("| ")?.strip_suffix(" |"))
        .skip(1) // the head
        .map(|row| {
            let [name, does, kept] = row.split(" | ").collect::<Vec<_>>()[..] else {
                panic!("{row}")
            };
            let program = programs.remove(name);
            let (program, kept) = match kept.split_once(": ") {
                None if kept == "**differs**" => (program, Kept::Unsafe),
                Some(("same", why)) => (program, Kept::Safe(why)),
                Some(("not run", why)) => (None, Kept::Safe(why)),
                _ => panic!("{row}"),
            };
            assert_eq!(program.is_none(), row.contains("| not run: "), "{row}");
            Way {
                name,
                does,
                program,
                kept,
            }
        })
        .collect();
    assert!(programs.is_empty(), "not in ways.md: {:?}", programs.keys());
    ways
}

/// Environment variable that names the way whose program this process runs.
const PROGRAM: &str = "STOPGAP_TEST_WAY";
/// Time limit of a program.
const SECONDS: u32 = 30;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Plain,
    Arena,
    ArenaKeep,
}

impl Mode {
    const ALL: [Mode; 3] = [Mode::Plain, Mode::Arena, Mode::ArenaKeep];

    fn name(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Arena => "arena",
            Mode::ArenaKeep => "arena-keep",
        }
    }
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(PROGRAM) {
        return program(&name);
    }
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-')) // what cargo hands to every test
        .collect();
    let wanted = |way: &Way| words.is_empty() || words.iter().any(|word| way.name.contains(word));
    let ways: Vec<Way> = ways().into_iter().filter(wanted).collect();
    let library = common::library();
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(way) = ways.get(index) else { break };
                    let row = judge(way, &library);
                    rows.lock().unwrap().insert(index, row);
                }
            });
        }
    });
    let rows = rows.into_inner().unwrap();
    println!("| way | plain Linux | `arena` | `arena-keep` |\n|---|---|---|---|");
    for row in rows.values() {
        println!("{}", row.text);
    }
    for row in rows.values() {
        if let Some(why) = &row.skipped {
            skip(&Skip::machine(why));
        }
    }
    let failures: Vec<&String> = rows
        .values()
        .filter_map(|row| row.failure.as_ref())
        .collect();
    for failure in &failures {
        eprintln!("FAILED: {failure}");
    }
    let skipped = rows.values().filter(|row| row.skipped.is_some()).count();
    println!(
        "{} ways, {skipped} skipped, {} failed",
        rows.len(),
        failures.len()
    );
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs the program of a way, and prints what it saw.
fn program(name: &str) -> ExitCode {
    // SAFETY: SIGALRM ends this process if it hangs.
    unsafe { libc::alarm(SECONDS) };
    // SAFETY: the process's children may look at its memory, where a security module (Yama) asks for that.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    // The library is set up before the program begins.
    raw::Map::filled(3, 0x11).unmap();
    let way = ways().into_iter().find(|way| way.name == name);
    let program = way
        .and_then(|way| way.program)
        .expect("a way with a program");
    match program() {
        Ok(seen) => println!("saw {seen}"),
        Err(why) => println!("skipped {why}"),
    }
    ExitCode::SUCCESS
}

/// One way after its three runs.
#[derive(Default)]
struct Row {
    text: String,
    failure: Option<String>,
    skipped: Option<String>,
}

fn judge(way: &Way, library: &Path) -> Row {
    let title = format!("| `{}`: {} |", way.name, way.does);
    let row = |text: String| Row {
        text: format!("{title} {text} |"),
        ..Row::default()
    };
    if let (None, Kept::Safe(why)) = (way.program, &way.kept) {
        return row(format!("not run | not run | not run: {why}"));
    }
    let mut seen = Vec::new();
    for mode in Mode::ALL {
        match run(way, mode, library) {
            Ok(Ok(line)) => seen.push(line),
            Ok(Err(why)) => {
                return Row {
                    skipped: Some(format!("{}: {why}", way.name)),
                    ..row(format!("not here: {why} ||"))
                };
            }
            Err(failure) => {
                return Row {
                    failure: Some(failure),
                    ..row("failed ||".to_owned())
                };
            }
        }
    }
    let [plain, arena, kept] = &seen[..] else {
        unreachable!("three modes")
    };
    let mut failures = Vec::new();
    if arena != plain {
        failures.push(format!(
            "arena saw `{arena}`, expected what plain saw, `{plain}`"
        ));
    }
    match way.kept {
        Kept::Unsafe if kept == plain => failures.push(format!(
            "arena-keep saw the same, `{kept}`: this way is known to be unsafe"
        )),
        Kept::Safe(_) if kept != plain => failures.push(format!(
            "arena-keep saw `{kept}`, expected what plain saw, `{plain}`"
        )),
        _ => {}
    }
    let same = if arena == plain { "same" } else { arena };
    Row {
        failure: (!failures.is_empty()).then(|| format!("{}: {}", way.name, failures.join("; "))),
        ..row(match way.kept {
            Kept::Unsafe => format!("{plain} | {same} | **{kept}**"),
            Kept::Safe(why) => format!("{plain} | {same} | same: {why}"),
        })
    }
}

/// Runs the program of a way in one mode. `Err`: the program failed.
fn run(way: &Way, mode: Mode, library: &Path) -> Result<Seen, String> {
    let mut command = Command::new(std::env::current_exe().expect("/proc is mounted"));
    command.env(PROGRAM, way.name);
    command.env("RUST_BACKTRACE", "0");
    for name in ["LD_PRELOAD", "STOPGAP_WINDOW", "STOPGAP_ADVICE"] {
        command.env_remove(name);
    }
    if mode != Mode::Plain {
        let keep = if mode == Mode::Arena { "0" } else { "32M" };
        command.env("LD_PRELOAD", library);
        command.env("STOPGAP_KEEP", keep);
        command.env("STOPGAP_REPORT", "1");
    }
    let output = command.output().expect("this test runs itself");
    let told = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = |why: &str| {
        Err(format!(
            "{}: {why} with {}: {}\n{text}{told}",
            way.name,
            mode.name(),
            output.status
        ))
    };
    let seen = text.lines().find_map(|line| {
        let seen = line.strip_prefix("saw ").map(|seen| Ok(seen.to_owned()));
        seen.or_else(|| Some(Err(line.strip_prefix("skipped ")?.to_owned())))
    });
    let Some(seen) = seen.filter(|_| output.status.success()) else {
        return failed("the program failed");
    };
    // A library that places nothing proves nothing.
    let places = |name| number(&told, name) > 0;
    if mode != Mode::Plain && seen.is_ok() && !places("placed") {
        return failed("the library placed no map");
    }
    Ok(seen)
}

/// Returns a counter of the library's report.
fn number(report: &str, name: &str) -> u64 {
    let words = report.split_ascii_whitespace();
    let mut found =
        words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    found.next().unwrap_or(0)
}
