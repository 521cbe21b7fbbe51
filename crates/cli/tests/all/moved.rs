//! `stopgap compare` of traces: what moved between programs that differ in one known thing, and what it refuses.
//!
//! The programs are recorded: that needs root and a C compiler; otherwise skipped, and said.

use std::process::Command;

use serde_json::Value;

use crate::common::{Run, has, may, text, valid};
use stopgap_testing::{Skip, skip};

const SCHEMA: &str = "stopgap.moved-1.json";

/// 80 times: a read, two sleeps of 0.5 ms, and each fourth time between them a write and an fsync. The second kind has one write and
/// one fsync more each time, before the sleeps: so a trace without the begins of calls tells one fsync from the next. Both do the same of
/// everything else.
const OPS: &str = r"
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
static char b[4096];
static int flushed(int fd) { return pwrite(fd, b, 512, 0) < 0 || fsync(fd); }
int main(int argc, char **argv) {
    struct timespec half = {0, 500000};
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || pwrite(fd, b, sizeof b, 0) < 0) return 1;
    for (int i = 0; i < 80; i++) {
        if (pread(fd, b, sizeof b, 0) < 0 || (argc > 2 && flushed(fd))) return 1;
        nanosleep(&half, 0);
        if (i % 4 == 0 && flushed(fd)) return 1;
        nanosleep(&half, 0);
    }
    return 0;
}
";

/// Compiles the program; skips the test and returns `None` where that fails.
fn compiled(run: &Run) -> Option<()> {
    run.write("ops.c", OPS);
    let built = Command::new("cc")
        .args(["-O1", "-o", "ops", "ops.c"])
        .current_dir(run.directory.path())
        .output();
    let why = match built {
        Ok(output) if output.status.success() => return Some(()),
        Ok(output) => text(&output.stderr),
        Err(error) => error.to_string(),
    };
    skip(&Skip::program(format!("cc: {why}")));
    None
}

/// Records `n` traces a side on a disk, in turn: A, B, B, A, ...
fn recorded(run: &Run, n: usize, sides: [(&str, &str); 2]) {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = disk.path().join("f").display().to_string();
    for (folder, _) in sides {
        std::fs::create_dir(run.path(folder)).unwrap();
    }
    for index in 0..n {
        let mut turn = sides;
        if index % 2 == 1 {
            turn.reverse();
        }
        for (folder, more) in turn {
            let line = format!("record -o {folder}/{index}.parquet -- ./ops {file} {more}");
            run.stopgap(line).ok();
        }
    }
}

fn compared(run: &Run, line: &str) -> Value {
    let done = run.stopgap(format!("compare {line} --json")).ok();
    valid(SCHEMA, &done.out)
}

/// The figures of `word`: family and name.
fn told(record: &Value, word: &str) -> Vec<String> {
    let figures = record["figures"].as_array().unwrap().iter();
    let of_it = figures.filter(|figure| figure["word"] == word);
    of_it
        .map(|figure| {
            format!(
                "{} {}",
                figure["family"].as_str().unwrap(),
                figure["name"].as_str().unwrap()
            )
        })
        .collect()
}

/// Whether the time in fsync is told as what moved. Its number is in any case, and nothing that both programs do alike.
fn more_fsync(run: &Run) -> bool {
    let record = compared(run, "a b");
    assert_eq!(record["verdict"]["word"], "moved", "{record:#}");
    assert_eq!(record["per"], "run");
    let more = told(&record, "more");
    assert!(more.contains(&"count fsync".to_owned()), "{more:#?}");
    for name in more.iter().chain(&told(&record, "less")) {
        let alike = ["nanosleep", "pread", "open", "exec", "mmap", "exit"];
        assert!(
            !alike.iter().any(|call| name.contains(call)),
            "{name}\n{record:#}"
        );
    }
    let screen = run.stopgap("compare a b").ok().out;
    let mut lines = screen.lines();
    assert_eq!(lines.next(), Some("MOVED"), "{screen}");
    assert!(screen.lines().count() <= 40, "{screen}");
    let waits = ["call fsync", "chain ops was in fsync", "cause disk"];
    let of_it = |name: &String| waits.iter().any(|wait| name.starts_with(wait));
    more.iter().any(of_it) && lines.next().is_some_and(|line| line.contains("fsync"))
}

#[test]
fn one_more_fsync_is_what_moved() {
    let run = Run::alone();
    if !may("record") || compiled(&run).is_none() {
        return;
    }
    // Beside other tests a disk and a CPU may scatter by more than an fsync takes: then once more.
    let mut told_fsync = false;
    for _ in 0..3 {
        for folder in ["a", "b"] {
            let _ = std::fs::remove_dir_all(run.path(folder)); // the first time there is none
        }
        recorded(&run, 8, [("a", ""), ("b", "more")]);
        told_fsync = more_fsync(&run);
        if told_fsync {
            break;
        }
    }
    assert!(told_fsync, "{}", run.stopgap("compare a b").out);
    // The other way round, and by the second.
    let back = compared(
        &run,
        "--before b/0.parquet b/1.parquet b/2.parquet b/3.parquet b/4.parquet b/5.parquet b/6.parquet b/7.parquet --after a",
    );
    assert!(
        told(&back, "less").contains(&"count fsync".to_owned()),
        "{back:#}"
    );
    let second = compared(&run, "a b --per second");
    assert_eq!(second["per"], "second");
    assert!(
        second["figures"][0]["unit"]
            .as_str()
            .unwrap()
            .ends_with("/s"),
        "{second:#}"
    );
    // One a side is seen once, however large it is.
    let once = compared(&run, "a/0.parquet b/0.parquet");
    assert_eq!(once["verdict"]["word"], "inconclusive");
    assert_eq!(
        (told(&once, "more"), told(&once, "less")),
        (Vec::new(), Vec::new())
    );
    let screen = run.stopgap("compare a/0.parquet b/0.parquet").ok().out;
    has(&screen, &["CANNOT TELL\nmeasured once a side", "seen once"]);
    // The page of it.
    let done = run.stopgap("compare a b -o .").ok();
    let record = done
        .out
        .lines()
        .find_map(|line| line.strip_prefix("record "))
        .unwrap();
    let record = record.split(' ').next().unwrap();
    run.stopgap(format!("report {record} -o moved.html")).ok();
    has(
        &run.read("moved.html"),
        &["MOVED", "Where lost time differs", "hatched"],
    );
}

#[test]
fn equal_programs_have_nothing_that_moved() {
    let run = Run::alone();
    if !may("record") || compiled(&run).is_none() {
        return;
    }
    recorded(&run, 7, [("a", ""), ("b", "")]);
    let record = compared(&run, "a b");
    assert_ne!(record["verdict"]["word"], "moved", "{record:#}");
    assert_eq!(
        (told(&record, "more"), told(&record, "less")),
        (Vec::new(), Vec::new())
    );
}

/// A trace of another tool: `ops` waits 5 ms for a thread of this name, and what of it is there.
fn ftrace(other: &str, calls: bool) -> String {
    let mut lines = vec!["# tracer: nop".to_owned()];
    let mut at = 1_000_000_u64;
    let mut line = |us: u64, task: &str, event: String| {
        at += us;
        lines.push(format!(
            "{task:>24} [000] ..... {:5}.{:06}: {event}",
            at / 1_000_000,
            at % 1_000_000
        ));
    };
    for _ in 0..40 {
        if calls {
            line(
                100,
                "ops-100",
                "sys_enter: NR 202 (1, 80, 0, 0, 0, 0)".to_owned(),
            );
        }
        line(100, "ops-100", "sched_switch: prev_comm=ops prev_pid=100 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120".to_owned());
        line(
            5_000,
            &format!("{other}-200"),
            "sched_waking: comm=ops pid=100 prio=120 target_cpu=000".to_owned(),
        );
        line(10, "<idle>-0", "sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=ops next_pid=100 next_prio=120".to_owned());
        if calls {
            line(10, "ops-100", "sys_exit: NR 202 = 0".to_owned());
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn bad_input_is_refused_and_said() {
    let run = Run::new();
    run.write("a.txt", ftrace("worker", true));
    run.write(
        "b.txt",
        ftrace("w", true)
            .replace("..... ", "....1 ")
            .replacen("80,", "0,", 1)
            + "\n",
    );
    run.write("empty.txt", "");
    run.write("copy.txt", ftrace("worker", true));
    run.write("cut.jsonl", "{\"schema\":\"stopgap.trace/2\"}\n{\"time_ns\":5,\"kind\":\"unmap\",\"id\":3}\n{\"time_ns\":6,\"kin");
    run.write(
        "none.jsonl",
        "{\"schema\":\"stopgap.trace/2\",\"clock\":\"monotonic\"}\n",
    );
    run.write("numbers", "1\n2\n3\n");
    run.refuses("compare a.txt a.txt", &["same recording"]);
    run.refuses(
        "compare a.txt copy.txt",
        &["same recording", "a.txt", "copy.txt"],
    );
    run.refuses("compare a.txt empty.txt", &["empty.txt"]);
    run.refuses("compare a.txt cut.jsonl", &["cut.jsonl", "no evidence"]);
    run.refuses("compare a.txt none.jsonl", &["none.jsonl", "no event"]);
    run.refuses("compare a.txt numbers", &["numbers", "no trace"]);
    run.refuses("compare numbers a.txt", &["numbers", "no trace"]);
    run.refuses(
        "compare a.txt b.txt --fail-on regression",
        &["--fail-on", "runs"],
    );
    run.refuses(
        "compare numbers numbers --per run",
        &["--per is for traces"],
    );
}

/// What a trace does not show is unknown; names of threads neither paint the screen nor the page.
#[test]
fn what_is_missing_is_unknown_and_names_are_harmless() {
    let run = Run::new();
    run.write("a.txt", ftrace("worker", true));
    run.write("b.txt", ftrace("\u{1b}[31m<script>", false));
    let record = compared(&run, "a.txt b.txt --per second");
    let figures = record["figures"].as_array().unwrap();
    let call = figures.iter().find(|one| one["family"] == "call").unwrap();
    assert_eq!(
        (&call["word"], &call["after"]),
        (&Value::from("unknown"), &Value::Null),
        "{record:#}"
    );
    assert_eq!(call["difference"], Value::Null);
    let done = run.stopgap("compare a.txt b.txt -o . --verbose").ok();
    has(
        &done.out,
        &["unknown: system calls: 0 of 1 traces before and 1 of 1 after lack them"],
    );
    assert!(!done.out.contains('\u{1b}'), "{}", done.out);
    let record = done
        .out
        .lines()
        .find_map(|line| line.strip_prefix("record "))
        .unwrap();
    run.stopgap(format!(
        "report {} -o p.html",
        record.split(' ').next().unwrap()
    ))
    .ok();
    let page = run.read("p.html");
    assert!(!page.contains("<script>") && !page.contains('\u{1b}'));
}
