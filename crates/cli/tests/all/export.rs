//! `stopgap export`: exports hold all events of the input, and an error takes one line.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::{FILES, Run, has, names, pipe};
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
            &["frag", "clock order", "-o FILE.csv"],
        ),
        ("header --to perfetto -o x", &["header: it has no event"]),
        ("header --to csv -o x", &["header: it has no event"]),
        ("late --to chrome -o x", &["late: event 0: ", "2^63"]),
        ("one --to trace -o -", &["trace", "-o"]),
        (
            "one -o x",
            &["x does not say the form", "--to", "x.perfetto"],
        ),
        ("one -o x.txt", &["x.txt does not say the form"]),
        ("one -o -", &["standard output", "--to jsonl"]),
        (
            "one --to csv -o x.json",
            &["x.json is named as chrome and --to says csv", "x.csv"],
        ),
    ] {
        refused(&run, line, parts);
    }
    assert!(run.path("one").exists() && !run.path("x").exists());
}

/// The name of the file says the form, and `--to` says it where the name does not.
#[test]
fn the_name_of_the_file_says_its_form() {
    let run = Run::new();
    let input = format!("{FILES}/stalls.jsonl");
    for (named, form) in [
        ("t.parquet", "trace"),
        ("t.jsonl", "jsonl"),
        ("t.perfetto", "perfetto"),
        ("t.pftrace", "perfetto"),
        ("t.json", "chrome"),
        ("t.csv", "csv"),
    ] {
        exported(&run, &format!("{input} -o {named}"));
        exported(&run, &format!("{input} --to {form} -o other"));
        let bytes = |name: &str| fs::read(run.path(name)).unwrap();
        assert!(bytes(named) == bytes("other"), "{named}");
        exported(&run, &format!("{input} --to {form} -o {named}"));
    }
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
        let done = started.end();
        assert_eq!((done.status, &*done.err), (Some(141), ""), "{form}");
    }
}

/// Names of a trace, each with letters that no word of a form has.
const NAMES: [&str; 12] = [
    "xqhost",
    "xqboot",
    "xqprog",
    "xqkey",
    "xqvalue",
    "xqmain",
    "xqthread",
    "xqwaker",
    "xqfolder",
    "xqfunction",
    "xqpod",
    "xqmark",
];

const NAMED: &str = r#"{"schema":"stopgap.trace/2","clock":"monotonic","host":"xqhost","boot_id":"xqboot","source":"xqprog -c /xqfolder/conf","program":"xqprog","labels":{"xqkey":"xqvalue"},"losses":[{"what":"CPU 0","count":1}],"missing":[{"what":"stacks of xqprog","why":"/xqfolder is gone"}]}
{"time_ns":1000,"kind":"exec","cpu":0,"pid":7,"tid":7,"comm":"xqmain","filename":"/xqfolder/xqprog"}
{"time_ns":2000,"kind":"task","pid":7,"tid":8,"comm":"xqthread","moment":"begin","cgroup":"/xqpod/xqprog"}
{"time_ns":5000,"kind":"wait","cpu":0,"pid":7,"tid":8,"comm":"xqthread","left_ns":3000,"woken_ns":4000,"state":"S","within":"call","syscall":7,"syscall_name":"poll","stack":"do_poll_[k];schedule_[k]","user_stack":"xqmain;xqfunction","next_tid":7,"next_comm":"xqmain","previous_tid":7,"previous_comm":"xqmain","waker_tid":9,"waker_comm":"xqwaker"}
{"time_ns":6000,"kind":"counter","pid":7,"name":"mappings","value":3}
{"time_ns":7000,"kind":"mark","pid":7,"tid":8,"comm":"xqthread","name":"xqmark"}
{"time_ns":8000,"kind":"sample","cpu":0,"pid":7,"tid":8,"comm":"xqthread","stack":"xqmain;xqfunction;do_poll_[k]"}
"#;

/// No name is left in any form, nor in what a trace file is unpacked to.
#[test]
fn an_anonymous_export_has_no_name_in_any_form() {
    let run = Run::new();
    run.write("t.jsonl", NAMED);
    let export = |input: &str, form: &str| {
        let name = format!("a.{form}");
        let said = exported(&run, &format!("{input} --to {form} --anonymous -o {name}"));
        has(&said, &["anonymous: left are numbers"]);
        let bytes = fs::read(run.path(&name)).unwrap();
        for name in NAMES {
            let found = bytes
                .windows(name.len())
                .any(|part| part == name.as_bytes());
            assert!(!found, "{name} in {form}");
        }
        bytes
    };
    for form in ["jsonl", "csv", "chrome", "perfetto", "trace"] {
        export("t.jsonl", form);
    }
    exported(&run, "a.trace --to jsonl -o unpacked.jsonl");
    let lines = String::from_utf8(export("t.jsonl", "jsonl")).unwrap();
    assert_eq!(run.read("unpacked.jsonl"), lines);
    has(
        &lines,
        &["\"poll\"", "do_poll_[k];schedule_[k]", "mappings", "CPU 0"],
    );
    // The same name has the same hash, now and later, and another one with another salt.
    let hash = |lines: &str| {
        let (_, after) = lines.split_once("\"next_comm\":\"").unwrap();
        let (hash, _) = after.split_once('"').unwrap();
        hash.to_owned()
    };
    let own = hash(&lines);
    assert_eq!(lines.matches(&format!("\"{own}\"")).count(), 3, "{lines}");
    assert!(lines.contains(&format!("\"{own};n")), "{lines}");
    let salt = run.path("stopgap/salt");
    let mode = fs::metadata(&salt).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode, fs::read(&salt).unwrap().len()), (0o600, 32));
    assert_eq!(
        String::from_utf8(export("t.jsonl", "jsonl")).unwrap(),
        lines
    );
    fs::remove_file(&salt).unwrap();
    let other = String::from_utf8(export("t.jsonl", "jsonl")).unwrap();
    assert_ne!(hash(&other), own);
    run.write("stopgap/salt", "short");
    refused(
        &run,
        "t.jsonl --to csv --anonymous -o b.csv",
        &["stopgap/salt", "5 bytes", "remove it"],
    );
    refused(
        &run,
        "frag --to csv --anonymous -o b.csv",
        &["has no names"],
    );
}
