//! `stopgap export`: exports hold all events of the input, and an error takes one line.

use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::Path;

use crate::common::{Run, has, names};
use stopgap_events::random::Random;
use stopgap_events::workload::Workload;
use stopgap_trace::{Clock, Event, Input};

/// Exports in the run's folder; standard output.
fn exported(run: &Run, line: &str) -> String {
    run.stopgap(format!("export {line}")).quiet()
}

/// Fails unless it is refused in one line that has all of `parts`, and leaves nothing behind.
fn refused(run: &Run, line: &str, parts: &[&str]) {
    run.refuses(format!("export {line}"), parts);
}

fn events(path: &Path) -> Vec<Event> {
    let input = Input::new(File::open(path).unwrap()).unwrap();
    input.map(Result::unwrap).collect()
}

#[test]
fn a_workload_there_and_back() {
    let run = Run::new();
    for &workload in Workload::ALL {
        let n = if workload.n_may_be_chosen() {
            "--n 300"
        } else {
            ""
        };
        let line = format!("{workload} --to trace -o a.parquet --ops 5k --seed 9 {n}");
        let said = exported(&run, line.trim_end());
        let original: Vec<_> = workload.events(300, 5_000, 9).collect();
        has(&said, &[&format!("a.parquet: {} events", original.len())]);
        exported(&run, "a.parquet --to jsonl -o b.jsonl");
        exported(&run, "b.jsonl --to trace -o c.parquet");
        let lines = exported(&run, "c.parquet --to jsonl -o -");
        assert_eq!(lines, run.read("b.jsonl"), "{workload}");
        let bytes = |name: &str| fs::read(run.path(name)).unwrap();
        assert!(bytes("a.parquet") == bytes("c.parquet"), "{workload}");

        let back = events(&run.path("a.parquet"));
        let back = back.iter().map(|event| event.kind.memory().unwrap());
        assert_eq!(back.collect::<Vec<_>>(), original, "{workload}");
    }
    let made = ["a.parquet", "b.jsonl", "c.parquet"];
    assert_eq!(names(run.directory.path()), made);
}

#[test]
fn the_metadata_says_what_it_is() {
    let run = Run::new();
    exported(&run, "tight-1.03 --to trace -o t --n 50 --ops 10");
    let input = Input::new(File::open(run.path("t")).unwrap()).unwrap();
    let metadata = input.metadata();
    assert_eq!(metadata.clock, Some(Clock::Order));
    assert_eq!(metadata.window, Some(Workload::Tight103.window(50, 10, 1)));
    let source = "workload tight-1.03, n 50, operations 10, seed 1";
    assert_eq!(metadata.source.as_deref(), Some(source));
    assert_eq!(metadata.losses.as_deref(), Some(&[][..]));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let run = Run::new();
    run.write("in", "");
    run.write("foreign", "PAR1 but not really, as you see");
    run.write("words", "hello\n");
    let lines = "{\"time_ns\":1,\"kind\":\"unmap\",\"id\":1}\n{\"time_ns\":2,\"kind\":\"unmap\"}\n";
    run.write("lines", lines);
    let mut mkfifo = std::process::Command::new("mkfifo");
    assert!(mkfifo.arg(run.path("pipe")).status().unwrap().success());
    run.write("nothing", "\n");
    run.write("header", "{\"schema\":\"stopgap.trace/1\"}\n");
    fs::create_dir(run.path("folder")).unwrap();
    let late = "{\"time_ns\":18446744073709551615,\"kind\":\"exit\"}\n";
    run.write("late", late);
    run.write("one", "{\"time_ns\":5,\"kind\":\"exit\",\"tid\":7}\n");
    for (line, parts) in [
        ("frga --to jsonl -o x", &["frga", "tight-1.06"][..]),
        (
            "frag --to svg -o x",
            &["svg", "trace", "jsonl", "perfetto", "chrome", "csv"],
        ),
        ("frag --to trace -o -", &["standard output", "-o"]),
        ("frag --to trace", &["--output"]),
        ("freegap-posted --to trace -o x --n 5", &["1025", "--n"]),
        (
            "frag --to trace -o x --n 4000000000",
            &["000000000", "at most"],
        ),
        ("frag --to trace -o x --n 5g", &["000000000", "at most"]),
        ("in --to trace -o x --seed 5", &["--seed", "workload"]),
        // Files that are no traces.
        ("/no/such --to jsonl -o x", &["/no/such", "no such file"]),
        (". --to jsonl -o x", &[".: Is a directory"]),
        ("foreign --to jsonl -o x", &["foreign: it does not end"]),
        ("words --to jsonl -o x", &["words: it is no trace"]),
        (
            "lines --to trace -o x",
            &["lines: line 2: column id is null"],
        ),
        ("pipe --to jsonl -o x", &["pipe: ", "a pipe or a device"]),
        // Places that cannot be written to.
        ("lines --to jsonl -o no/x", &["cannot write no/x"]),
        (
            "frag --to csv -o folder",
            &["cannot write folder", "directory"],
        ),
        (
            "frag --to trace -o /dev/full",
            &["/dev/full", "No space left"],
        ),
        (
            "frag --to jsonl -o /dev/full",
            &["/dev/full", "No space left"],
        ),
        (
            "frag --to csv -o /dev/full",
            &["/dev/full", "No space left"],
        ),
        // Drawings need times and events, which only recorded traces have.
        (
            "frag --to perfetto -o x",
            &["frag", "clock order", "--to csv"],
        ),
        (
            "frag --to chrome -o x",
            &["frag", "clock order", "--to csv"],
        ),
        ("nothing --to perfetto -o x", &["nothing: it has no event"]),
        ("nothing --to chrome -o x", &["nothing: it has no event"]),
        ("nothing --to csv -o x", &["nothing: it has no event"]),
        ("header --to perfetto -o x", &["header: it has no event"]),
        ("header --to chrome -o x", &["header: it has no event"]),
        ("header --to csv -o x", &["header: it has no event"]),
        ("late --to chrome -o x", &["late: event 0: ", "2^63"]),
        ("one --to perfetto -o -", &["perfetto", "-o"]),
        ("one --to trace -o -", &["trace", "-o"]),
    ] {
        refused(&run, line, parts);
    }
    let said = exported(&run, "one --to perfetto -o x");
    assert_eq!(said, "x: 1 events as perfetto\n");
    let drawn = exported(&run, "one --to chrome -o -");
    let drawn: serde_json::Value = serde_json::from_str(&drawn).unwrap();
    assert_eq!(drawn["traceEvents"][1]["ts"], 0.005);
}

#[test]
fn the_input_stays() {
    let run = Run::new();
    exported(&run, "frag --to trace -o in --n 50 --ops 10");
    let before = fs::read(run.path("in")).unwrap();
    std::os::unix::fs::symlink("in", run.path("link")).unwrap();
    for name in ["in", "./in", "link"] {
        refused(
            &run,
            &format!("in --to jsonl -o {name}"),
            &["it is the input"],
        );
    }
    assert_eq!(fs::read(run.path("in")).unwrap(), before);
    // An older output stays too where the new one fails.
    run.write("bad", "{\"time_ns\":1,\"kind\":\"exit\"}\nx\n");
    refused(&run, "bad --to trace -o in", &["bad: line 2"]);
    assert_eq!(fs::read(run.path("in")).unwrap(), before);
}

/// `stopgap export ... -o - | head -n 2`: it has seen what it wanted.
#[test]
fn a_reader_that_goes_away() {
    let run = Run::new();
    for (form, begin) in [("jsonl", &b"{\"schema\":"[..]), ("csv", b"time_ns,ki")] {
        let mut started = run.start(&format!("export frag --to {form} -o -"));
        let mut first = [0; 10];
        let mut out = started.child.stdout.take().unwrap();
        out.read_exact(&mut first).unwrap();
        assert_eq!(first, begin);
        drop(out);
        started.end().quiet();
    }
}

/// A file that is cut off anywhere, or has another byte anywhere: whole events or one error, and the command says the same as
/// the library.
#[test]
fn a_file_that_is_damaged() {
    let run = Run::new();
    exported(&run, "limits --to trace -o good --n 200 --ops 400");
    let good = fs::read(run.path("good")).unwrap();
    let mut random = Random::new(1);
    for round in 0..60 {
        let mut bytes = good.clone();
        match round % 2 {
            0 => bytes.truncate(random.index(good.len())),
            _ => bytes[random.index(good.len())] ^= 1 << random.below(8),
        }
        run.write("bad", &bytes);
        let read = Input::new(Cursor::new(&bytes)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        match read {
            Ok(_) => drop(exported(&run, "bad --to jsonl -o x")),
            Err(error) => {
                let _ = fs::remove_file(run.path("x"));
                refused(&run, "bad --to jsonl -o x", &["bad: ", &error.to_string()]);
            }
        }
    }
    let _ = fs::remove_file(run.path("x"));
    // An empty file is a trace without events.
    for end in (0..good.len()).step_by(good.len() / 20).skip(1) {
        run.write("bad", &good[..end]);
        refused(&run, "bad --to jsonl -o x", &["bad: "]);
    }
}
