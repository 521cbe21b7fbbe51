//! `stopgap export`: what goes in comes out, and what is wrong is told in one line.

use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{Run, text};
use stopgap_events::random::Random;
use stopgap_events::workload::Workload;
use stopgap_trace::{Clock, Event, Input};

fn path(run: &Run, name: &str) -> PathBuf {
    run.directory.path().join(name)
}

/// Exports, in the run's folder; standard output.
fn exported(run: &Run, words: &[&str]) -> String {
    let words = [&["export"], words].concat();
    let mut command = run.command(&words);
    let output = command.current_dir(run.directory.path()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    text(&output.stdout)
}

/// Fails to, with status 1 and one line that has all of `parts`, and leaves nothing behind.
fn refused(run: &Run, words: &[&str], parts: &[&str]) {
    let before = names(run.directory.path());
    let words = [&["export"], words].concat();
    let mut command = run.command(&words);
    let output = command.current_dir(run.directory.path()).output().unwrap();
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {line}");
    assert_eq!(line.trim_end().lines().count(), 1, "{words:?}: {line}");
    for part in parts {
        assert!(line.contains(part), "{words:?}: no '{part}' in: {line}");
    }
    assert_eq!(names(run.directory.path()), before, "{words:?}");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries.map(|e| name(e).into_string().unwrap()).collect();
    names.sort();
    names
}

fn events(path: &Path) -> Vec<Event> {
    let input = Input::new(File::open(path).unwrap()).unwrap();
    input.map(Result::unwrap).collect()
}

#[test]
fn a_workload_there_and_back() {
    let run = Run::new();
    let flags = ["--n", "300", "--ops", "5k", "--seed", "9"];
    for &workload in Workload::ALL {
        let flags = if workload.n_may_be_chosen() {
            &flags[..]
        } else {
            &flags[2..]
        };
        let word = workload.word();
        let said = exported(
            &run,
            &[&[word, "--to", "trace", "-o", "a.parquet"], flags].concat(),
        );
        let original: Vec<_> = workload.events(300, 5_000, 9).collect();
        assert!(
            said.contains(&format!("a.parquet: {} events", original.len())),
            "{said}"
        );
        exported(&run, &["a.parquet", "--to", "jsonl", "-o", "b.jsonl"]);
        exported(&run, &["b.jsonl", "--to", "trace", "-o", "c.parquet"]);
        let lines = exported(&run, &["c.parquet", "--to", "jsonl", "-o", "-"]);
        assert_eq!(
            lines,
            fs::read_to_string(path(&run, "b.jsonl")).unwrap(),
            "{workload}"
        );
        let same = |name| fs::read(path(&run, name)).unwrap();
        assert!(same("a.parquet") == same("c.parquet"), "{workload}");

        let back = events(&path(&run, "a.parquet"));
        let back: Vec<_> = back
            .iter()
            .map(|event| event.kind.memory().unwrap())
            .collect();
        assert_eq!(back, original, "{workload}");
    }
    assert_eq!(
        names(run.directory.path()),
        ["a.parquet", "b.jsonl", "c.parquet"]
    );
}

#[test]
fn the_metadata_says_what_it_is() {
    let run = Run::new();
    exported(
        &run,
        &[
            "tight-1.03",
            "--to",
            "trace",
            "-o",
            "t",
            "--n",
            "50",
            "--ops",
            "10",
        ],
    );
    let input = Input::new(File::open(path(&run, "t")).unwrap()).unwrap();
    let metadata = input.metadata();
    assert_eq!(metadata.clock, Some(Clock::Order));
    assert_eq!(metadata.window, Some(Workload::Tight103.window(50, 10, 1)));
    assert_eq!(
        metadata.source.as_deref(),
        Some("workload tight-1.03, n 50, operations 10, seed 1")
    );
    assert_eq!(metadata.losses.as_deref(), Some(&[][..]));
}

#[test]
fn flags_that_make_no_sense() {
    let run = Run::new();
    refused(
        &run,
        &["frga", "--to", "jsonl", "-o", "x"],
        &["frga", "tight-1.06"],
    );
    refused(
        &run,
        &["frag", "--to", "svg", "-o", "x"],
        &["svg", "trace", "jsonl", "perfetto", "chrome", "csv"],
    );
    refused(
        &run,
        &["frag", "--to", "trace", "-o", "-"],
        &["standard output", "-o"],
    );
    refused(&run, &["frag", "--to", "trace"], &["--output"]);
    let posted = ["freegap-posted", "--to", "trace", "-o", "x", "--n", "5"];
    refused(&run, &posted, &["1025", "--n"]);
    for large in ["4000000000", "5g"] {
        let large = ["frag", "--to", "trace", "-o", "x", "--n", large];
        refused(&run, &large, &["000000000", "at most"]);
    }
    fs::write(path(&run, "in"), "").unwrap();
    let file = ["in", "--to", "trace", "-o", "x", "--seed", "5"];
    refused(&run, &file, &["--seed", "workload"]);
}

#[test]
fn files_that_are_no_traces() {
    let run = Run::new();
    let to = ["--to", "jsonl", "-o", "x"];
    refused(
        &run,
        &[&["/no/such"], &to[..]].concat(),
        &["/no/such", "no such file"],
    );
    refused(&run, &[&["."], &to[..]].concat(), &[".: Is a directory"]);
    let foreign = "PAR1 but not really, as you see";
    fs::write(path(&run, "foreign"), foreign).unwrap();
    refused(
        &run,
        &[&["foreign"], &to[..]].concat(),
        &["foreign: it does not end"],
    );
    fs::write(path(&run, "words"), "hello\n").unwrap();
    refused(
        &run,
        &[&["words"], &to[..]].concat(),
        &["words: it is no trace"],
    );
    let lines = "{\"time_ns\":1,\"kind\":\"unmap\",\"id\":1}\n{\"time_ns\":2,\"kind\":\"unmap\"}\n";
    fs::write(path(&run, "lines"), lines).unwrap();
    refused(
        &run,
        &["lines", "--to", "trace", "-o", "x"],
        &["lines: line 2: column id is null"],
    );
    refused(
        &run,
        &["lines", "--to", "jsonl", "-o", "no/x"],
        &["cannot write no/x"],
    );
}

#[test]
fn the_input_stays() {
    let run = Run::new();
    exported(
        &run,
        &[
            "frag", "--to", "trace", "-o", "in", "--n", "50", "--ops", "10",
        ],
    );
    let before = fs::read(path(&run, "in")).unwrap();
    std::os::unix::fs::symlink("in", path(&run, "link")).unwrap();
    for name in ["in", "./in", "link"] {
        refused(
            &run,
            &["in", "--to", "jsonl", "-o", name],
            &["it is the input"],
        );
    }
    assert_eq!(fs::read(path(&run, "in")).unwrap(), before);
    // An older output stays too where the new one fails.
    fs::write(path(&run, "bad"), "{\"time_ns\":1,\"kind\":\"exit\"}\nx\n").unwrap();
    refused(
        &run,
        &["bad", "--to", "trace", "-o", "in"],
        &["bad: line 2"],
    );
    assert_eq!(fs::read(path(&run, "in")).unwrap(), before);
}

#[test]
fn a_disk_that_is_full() {
    let run = Run::new();
    for form in ["trace", "jsonl", "csv"] {
        let words = ["frag", "--to", form, "-o", "/dev/full"];
        refused(&run, &words, &["/dev/full", "No space left"]);
    }
}

#[test]
fn a_pipe_is_not_waited_for() {
    let run = Run::new();
    let mut mkfifo = std::process::Command::new("mkfifo");
    assert!(mkfifo.arg(path(&run, "pipe")).status().unwrap().success());
    let words = ["pipe", "--to", "jsonl", "-o", "x"];
    refused(&run, &words, &["pipe: ", "a pipe or a device"]);
}

/// `stopgap export ... -o - | head -n 2`: it has seen what it wanted.
#[test]
fn a_reader_that_goes_away() {
    let run = Run::new();
    for (form, begin) in [("jsonl", &b"{\"schema\":"[..]), ("csv", b"time_ns,ki")] {
        let mut command = run.command(&["export", "frag", "--to", form, "-o", "-"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        assert_eq!(first, begin);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(text(&output.stderr), "");
    }
}

/// What only recorded traces have.
#[test]
fn drawings_need_times() {
    let run = Run::new();
    for form in ["perfetto", "chrome"] {
        refused(
            &run,
            &["frag", "--to", form, "-o", "x"],
            &["frag", "clock order", "--to csv"],
        );
    }
    for content in ["\n", "{\"schema\":\"stopgap.trace/1\"}\n"] {
        fs::write(path(&run, "empty"), content).unwrap();
        for form in ["perfetto", "chrome", "csv"] {
            refused(
                &run,
                &["empty", "--to", form, "-o", "x"],
                &["empty: it has no event"],
            );
        }
    }
    fs::create_dir(path(&run, "folder")).unwrap();
    let to_folder = ["frag", "--to", "csv", "-o", "folder"];
    refused(&run, &to_folder, &["cannot write folder", "directory"]);
    let late = "{\"time_ns\":18446744073709551615,\"kind\":\"exit\"}\n";
    fs::write(path(&run, "late"), late).unwrap();
    let draw = ["late", "--to", "chrome", "-o", "x"];
    refused(&run, &draw, &["late: event 0: ", "2^63"]);
    fs::write(
        path(&run, "one"),
        "{\"time_ns\":5,\"kind\":\"exit\",\"tid\":7}\n",
    )
    .unwrap();
    for form in ["perfetto", "trace"] {
        refused(&run, &["one", "--to", form, "-o", "-"], &[form, "-o"]);
    }
    let said = exported(&run, &["one", "--to", "perfetto", "-o", "x"]);
    assert_eq!(said, "x: 1 events as perfetto\n");
    let drawn = exported(&run, &["one", "--to", "chrome", "-o", "-"]);
    let drawn: serde_json::Value = serde_json::from_str(&drawn).unwrap();
    assert_eq!(drawn["traceEvents"][1]["ts"], 0.005);
}

/// A file that is cut off anywhere, or has another byte anywhere: whole events or one error, and
/// the command says the same as the library.
#[test]
fn a_file_that_is_damaged() {
    let run = Run::new();
    exported(
        &run,
        &[
            "limits", "--to", "trace", "-o", "good", "--n", "200", "--ops", "400",
        ],
    );
    let good = fs::read(path(&run, "good")).unwrap();
    let mut random = Random::new(1);
    let cut = |random: &mut Random| good[..random.index(good.len())].to_vec();
    let flipped = |random: &mut Random| {
        let mut bytes = good.clone();
        bytes[random.index(good.len())] ^= 1 << random.below(8);
        bytes
    };
    for round in 0..60 {
        let bytes = if round % 2 == 0 {
            cut(&mut random)
        } else {
            flipped(&mut random)
        };
        fs::write(path(&run, "bad"), &bytes).unwrap();
        let read = Input::new(Cursor::new(&bytes)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        match read {
            Ok(_) => drop(exported(&run, &["bad", "--to", "jsonl", "-o", "x"])),
            Err(error) => {
                let told = error.to_string();
                let _ = fs::remove_file(path(&run, "x"));
                refused(
                    &run,
                    &["bad", "--to", "jsonl", "-o", "x"],
                    &["bad: ", &told],
                );
            }
        }
    }
    for end in (0..good.len()).step_by(good.len() / 20) {
        fs::write(path(&run, "bad"), &good[..end]).unwrap();
        let _ = fs::remove_file(path(&run, "x"));
        if end == 0 {
            continue; // no line at all: a trace of no event
        }
        refused(&run, &["bad", "--to", "jsonl", "-o", "x"], &["bad: "]);
    }
}
