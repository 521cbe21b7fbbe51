//! Every screen of the tool, so that a reviewer can read them all in one sitting: `docs/screens/`.
//!
//! A screen of stored input must be printed as it stands there. A screen of this machine, or of its clock, is another one each
//! time: only its form is held. `UPDATE_SCREENS=1 cargo test -p stopgap-cli screens` writes all of them, also the slow ones, and
//! `UPDATE_SCREENS=replay` those with that in their name.

use std::path::{Path, PathBuf};

use crate::common::{FILES, Run, text};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of stored input: the same on each machine.
    Stored,
    /// Of this machine.
    Live,
    /// The same, and longer than a test may take.
    Slow,
}

use Kind::{Live, Slow, Stored};

/// Name of the file, kind, command. Words have one space between them; a command that begins with `sh: ` is the shell's.
const SCREENS: &[(&str, Kind, &str)] = &[
    ("help", Stored, "--help"),
    ("check", Slow, "check"),
    ("check-quick", Slow, "check --quick"),
    ("check-passive", Live, "check --passive"),
    ("check-verbose", Slow, "check --verbose"),
    ("doctor", Live, "doctor"),
    ("probe-placement", Slow, "probe placement -d 10s"),
    (
        "probe-roundtrip",
        Live,
        "probe roundtrip --client poll --server poll --k 1 --work 0 --runs 3 --round-trips 500 -d 2s",
    ),
    ("probe-chunks", Slow, "probe chunks -d 10s"),
    ("probe-reclaim", Slow, "probe reclaim -d 20s"),
    (
        "probe-wakeup",
        Live,
        "probe wakeup --policy other --runs 3 -d 1s",
    ),
    ("record", Slow, "record -o out.parquet -- ls"),
    ("explain-stalls", Stored, "explain files/stalls.jsonl"),
    (
        "explain-roundtrips",
        Stored,
        "explain files/roundtrips.jsonl",
    ),
    ("explain-recorded", Stored, "explain files/recorded.parquet"),
    (
        "explain-verbose",
        Stored,
        "explain --verbose files/stalls.jsonl",
    ),
    (
        "compare-regression",
        Stored,
        "compare files/steady.txt files/worse.txt --seed 1",
    ),
    (
        "compare-same",
        Stored,
        "compare files/steady.txt files/same.txt --seed 1",
    ),
    (
        "compare-few",
        Stored,
        "compare files/few.txt files/steady.txt --seed 1",
    ),
    (
        "ministat",
        Stored,
        "ministat files/steady.txt files/worse.txt",
    ),
    (
        "advise",
        Stored,
        "advise chunks --device 4K,64K,2M --access rotate-90",
    ),
    (
        "replay-placement",
        Live,
        "replay placement pbobench --policy linux-2.6.35,linux-6.12,stopgap --n 100,1k --ops 2000",
    ),
    ("replay-chunks", Stored, "replay chunks kept-1/4"),
    (
        "replay-roundtrip",
        Stored,
        "replay roundtrip --round-trips 200 --work 50us",
    ),
    (
        "replay-reclaim",
        Stored,
        "replay reclaim --limit 64M --time 300ms --runs 3 --seed 5",
    ),
    ("snapshot", Live, "snapshot"),
    (
        "run-measure",
        Slow,
        "run --fix batch-client --measure -n 6 --seed 1 -- sleep 0.02",
    ),
    (
        "compare-run",
        Slow,
        "sh: stopgap compare --run 'seq 100000' --run 'seq 200000' --seed 1",
    ),
    (
        "watch",
        Slow,
        "sh: (sleep 1; exec sleep 0.5) & stopgap watch -p $! --psi off --slow clock_nanosleep=200ms -d 3s -o stalls",
    ),
    (
        "watch-page",
        Slow,
        "sh: (sleep 1; exec sleep 0.5) & stopgap watch -p $! --psi off --slow clock_nanosleep=200ms -d 3s -o stalls -q; cat stalls/*.txt",
    ),
    (
        "watch-history",
        Slow,
        "sh: stopgap watch --psi off --slow off -d 5s -o stalls -q; stopgap watch --history -1h -o stalls",
    ),
    (
        "kernels",
        Stored,
        "sh: mkdir bin; cp files/kernels/qemu bin/qemu-system-x86_64; chmod +x bin/*; PATH=$PWD/bin:$PATH STOPGAP_GUEST=files/kernels/guest stopgap kernels files/kernels/linux-a files/kernels/linux-b --workloads roundtrip",
    ),
    (
        "report-terminal",
        Stored,
        "report --terminal files/check.json",
    ),
];

/// Columns that a line may have where no terminal says how many there are.
const WIDEST: usize = 120;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screens")
}

/// Returns what the command prints, without what is of this run alone: its directory, and names with the time.
fn printed(run: &Run, command: &str) -> String {
    let output = match command.strip_prefix("sh: ") {
        None => run.output(&command.split(' ').collect::<Vec<_>>()),
        Some(script) => {
            let program = Path::new(crate::common::STOPGAP).parent().unwrap();
            let path = std::env::var("PATH").unwrap();
            let mut shell = std::process::Command::new("sh");
            shell
                .args(["-c", script])
                .current_dir(run.directory.path())
                .env("XDG_STATE_HOME", run.directory.path())
                .env("PATH", format!("{}:{path}", program.display()))
                .stdin(std::process::Stdio::null());
            shell.output().unwrap()
        }
    };
    assert_ne!(
        output.status.code(),
        Some(1),
        "{command}: {}",
        text(&output.stderr)
    );
    let here = run.directory.path().display().to_string();
    let own = |line: &&str| !line.starts_with("record ") && !line.starts_with("again ");
    let all = text(&output.stdout)
        .replace(&here, "~")
        .replace(crate::common::STOPGAP, "stopgap");
    let lines: Vec<&str> = all.lines().filter(own).map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned() + "\n"
}

#[test]
fn screens_are_those_of_the_documents() {
    let run = Run::new();
    std::os::unix::fs::symlink(FILES, run.directory.path().join("files")).unwrap();
    let wanted = std::env::var("UPDATE_SCREENS").ok();
    let mut names: Vec<String> = Vec::new();
    for (name, kind, command) in SCREENS {
        let place = folder().join(format!("{name}.txt"));
        names.push(format!("{name}.txt"));
        let update = wanted
            .as_ref()
            .is_some_and(|part| part == "1" || name.contains(&**part));
        if *kind == Slow && !update {
            assert!(
                place.exists(),
                "UPDATE_SCREENS=1 writes {}",
                place.display()
            );
            continue;
        }
        let typed = match command.strip_prefix("sh: ") {
            None => format!("stopgap {command}"),
            Some(script) => script.to_owned(),
        };
        let screen = format!("$ {typed}\n{}", printed(&run, command));
        // A stall of `watch` is one line of a log.
        let log = name.starts_with("watch");
        for line in screen.lines().skip(1) {
            let width = line.chars().count();
            assert!(
                log || width <= WIDEST,
                "{width} columns: '{line}' of {command}"
            );
            assert!(
                !line.contains('\u{1b}'),
                "colour without a terminal: {command}"
            );
        }
        assert!(
            screen.lines().nth(1).is_some_and(|line| !line.is_empty()),
            "{command} begins with nothing"
        );
        if update {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&place, &screen).unwrap();
        } else if *kind == Stored {
            let stored = std::fs::read_to_string(&place).unwrap_or_default();
            assert!(
                stored == screen,
                "{} differs (UPDATE_SCREENS=1 writes it); printed:\n{screen}",
                place.display()
            );
        }
    }
    // A screen that nobody prints any more tells of an old program.
    let stored = std::fs::read_dir(folder()).unwrap();
    for entry in stored {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            names.contains(&name),
            "docs/screens/{name} is no screen of this test"
        );
    }
}
