//! `stopgap export`: exports hold all events of the input, and an error takes one line.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::common::{Run, has, names, pipe};
use stopgap_events::workload::Workload;
use stopgap_trace::{Event, Input};

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
fn what_makes_no_sense_is_refused() {
    let run = Run::new();
    run.write("foreign", "PAR1 but not really, as you see");
    pipe(&run.path("pipe"));
    run.write("header", "{\"schema\":\"stopgap.trace/1\"}\n");
    run.write(
        "late",
        "{\"time_ns\":18446744073709551615,\"kind\":\"exit\"}\n",
    );
    run.write("one", "{\"time_ns\":5,\"kind\":\"exit\",\"tid\":7}\n");
    for (line, parts) in [
        ("frag --to trace -o x --n 5g", &["000000000", "at most"][..]),
        ("foreign --to jsonl -o x", &["foreign: it does not end"]),
        ("pipe --to jsonl -o x", &["pipe: ", "a pipe or a device"]),
        (
            "frag --to trace -o /dev/full",
            &["/dev/full", "No space left"],
        ),
        (
            "frag --to csv -o /dev/full",
            &["/dev/full", "No space left"],
        ),
        (
            "frag --to chrome -o x",
            &["frag", "clock order", "--to csv"],
        ),
        ("header --to perfetto -o x", &["header: it has no event"]),
        ("header --to csv -o x", &["header: it has no event"]),
        ("late --to chrome -o x", &["late: event 0: ", "2^63"]),
        ("one --to trace -o -", &["trace", "-o"]),
    ] {
        refused(&run, line, parts);
    }
    assert!(run.path("one").exists() && !run.path("x").exists());
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
