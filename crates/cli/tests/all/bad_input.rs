//! The likely mistakes: one line that says what and what to do, exit status 1 or 3, nothing lost that had been measured.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::common::{Run, STOPGAP, assert_valid, has, records, root, text, trace_of_threads_named};
use stopgap_testing::{Skip, skip};

/// A shell in which the command is `"$0"`, with its state in the run's directory.
fn shell(run: &Run, script: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", script, STOPGAP])
        .current_dir(run.directory.path())
        .env("XDG_STATE_HOME", run.directory.path())
        .env("TMPDIR", run.directory.path());
    command
}

/// Those that `checks/capabilities` does not show.
#[test]
fn command_lines_that_make_no_sense() {
    let run = Run::new();
    run.write("file", "");
    run.write("record", "{\n  \"schema\": \"stopgap.run/1\"\n}\n");
    run.write("numbers", "1\n2\n");
    run.write("others", "1\n3\n");
    for (line, parts) in [
        (
            "probe placement --cpus 4000",
            &["CPU 4000", "may use CPUs"][..],
        ),
        (
            "probe placement --memory lots",
            &["'lots' is no size", "2G"],
        ),
        // Sums of these numbers overflow 64 bits.
        (
            "probe reclaim --block 9223372036854775807",
            &["9223372036854775807"],
        ),
        ("probe reclaim --each 18446744073s", &["18446744073s"]),
        (
            "probe reclaim --mode shm-churn --no-load",
            &["no cost a page"],
        ),
        ("probe reclaim --memory 1K", &["--memory"]),
        ("probe reclaim -m", &["--as-gem-syslatency"]),
        ("probe reclaim --as-gem-syslatency --limit 1G", &["--limit"]),
        ("probe reclaim --as-gem-syslatency --swap 1G", &["--swap"]),
        (
            "probe reclaim --as-gem-syslatency --shrinker x",
            &["--shrinker"],
        ),
        (
            "probe reclaim --as-gem-syslatency --no-load",
            &["--no-load"],
        ),
        (
            "check --passive --pid=-1",
            &["'-1' is no process id", "pgrep"],
        ),
        (
            "check --passive --pid=4294967296",
            &["'4294967296' is no process id"],
        ),
        ("check --passive --pid=1.5", &["'1.5' is no process id"]),
        ("check --passive --pid=", &["'' is no process id", "pgrep"]),
        (
            "snapshot -o file/x",
            &["cannot write file/x: Not a directory"],
        ),
        (
            "snapshot -o /dev/full",
            &["cannot write /dev/full: No space left"],
        ),
        ("snapshot --output=", &["a value is required"]),
        (
            "replay placement frag --n 60m",
            &["--memory", "--policy", "60,000,000"],
        ),
        (
            "replay placement frag --n 99999999999999999999",
            &["no count"],
        ),
        ("replay reclaim --pinned 2G", &["raise the limit"]),
        (
            "explain record",
            &["record: it is JSON over several lines", "stopgap report"],
        ),
        (
            "compare numbers others --endpoint cpu",
            &["no run has 'cpu'; there is value"],
        ),
        ("kernels 6.1 6.12", &["6.1: no such file: give a bzImage"]),
        (
            "replay reclaim --load gem-syslatency --folio 64K",
            &["gem-syslatency has 4 KiB"],
        ),
    ] {
        run.refuses(line, parts);
    }
}

/// Words from outside neither end the program nor paint the screen.
#[test]
fn words_that_are_no_text() {
    let run = Run::new();
    let odd = run.path(OsStr::from_bytes(b"a\xff\x1b[31m\nb"));
    let mut command = run.command(&["check", "--passive", "-o"]);
    let output = command.arg(&odd).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let screen = text(&output.stdout);
    assert!(!screen.contains('\x1b'), "{screen}");
    has(&screen, &["\\u{a}b/check-"]);
    assert_eq!(records(&odd).len(), 1);

    run.refuses("probe a\nb\x1b[31m", &["a\\u{a}b\\u{1b}"]);
    let output = run.command(&[]).arg(OsStr::from_bytes(b"\xff")).output();
    assert_eq!(output.unwrap().status.code(), Some(1));
}

/// The packages are built without OpenGL: the error names the build that has it.
#[cfg(not(feature = "gl"))]
#[test]
fn opengl_without_its_feature() {
    let run = Run::new();
    let done = run.stopgap("probe placement --backend gl --n 100 --runs 1");
    let screen = done.ends(3);
    has(
        &(screen.out + &screen.err),
        &["built without OpenGL", "--features gl"],
    );
}

/// Where the usual place is not ours, `-o` is enough.
#[test]
fn a_directory_is_given_where_there_is_no_other() {
    if !root() {
        return skip(&Skip::root(
            "becoming nobody, to whom a folder does not belong",
        ));
    }
    let run = Run::new();
    let nobody = |words: &[&str]| {
        let mut command = run.as_nobody(words);
        command.env("HOME", "/nowhere").env("TMPDIR", "/nowhere");
        command.output().unwrap()
    };
    let output = nobody(&["check", "--passive"]);
    assert_eq!(output.status.code(), Some(1));
    has(&text(&output.stderr), &["-o"]);
    let output = nobody(&["check", "--passive", "-o", "here"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(records(&run.path("nobody/here")).len(), 1);
    assert_eq!(nobody(&["check", "--dry-run"]).status.code(), Some(0));
}

/// A link that somebody laid where our files will be is not followed.
#[test]
fn a_link_in_the_output_directory_is_not_followed() {
    let run = Run::new();
    run.write("precious", "precious");
    std::fs::create_dir(run.path("out")).unwrap();
    // The id that the command will have is that of the shell that becomes it.
    let script = "ln -s precious \"out/.stopgap-$$\"; exec \"$0\" check --passive -o out";
    let output = shell(&run, script).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(run.read("precious"), "precious");
    assert_eq!(records(&run.path("out")).len(), 1);
}

/// `ulimit -f`: the write fails, the run does not end by SIGXFSZ.
#[test]
fn a_limit_on_file_sizes_loses_nothing() {
    let run = Run::new();
    let script = "ulimit -f 0; exec \"$0\" check --passive --json";
    let output = shell(&run, script).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    has(
        &text(&output.stderr),
        &["File too large", "printed instead"],
    );
    let printed = text(&output.stdout);
    assert_valid(printed.split_inclusive("\n}\n").next().unwrap());
}

/// Neither does any other command end by SIGXFSZ.
#[test]
fn a_limit_on_file_sizes_is_an_error_of_every_command() {
    let run = Run::new();
    for words in hostile(&run) {
        let out = std::fs::File::create(run.path("out")).unwrap();
        let mut command = shell(&run, "ulimit -f 0; exec \"$0\" \"$@\"");
        let output = command.args(&words).stdout(out).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        has(&text(&output.stderr), &["cannot write", "File too large"]);
    }
}

/// The disk fills while the record is written: it is found elsewhere, whole.
#[test]
fn a_full_disk_loses_nothing() {
    if !root() {
        return skip(&Skip::root("mounting a small disk that will be full"));
    }
    let run = Run::new();
    for name in ["small", "tmp"] {
        std::fs::create_dir(run.path(name)).unwrap();
    }
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=4k", "stopgap-test"]);
    assert!(mount.arg(run.path("small")).status().unwrap().success());
    let mut command = run.command(&["check", "--passive", "-o", "small"]);
    let output = command.env("TMPDIR", run.path("tmp")).output().unwrap();
    let unmounted = Command::new("umount").arg(run.path("small")).status();
    assert!(unmounted.unwrap().success());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    has(
        &text(&output.stderr),
        &["No space left", "the record is in"],
    );
    let [record] = &records(&run.path("tmp/stopgap-0"))[..] else {
        panic!("one record");
    };
    assert_valid(&std::fs::read_to_string(record).unwrap());
}

/// A trace whose threads have names that would set the terminal's title, ring and clear it; its explanation as a record, and
/// numbers in a file whose name is as bad. Returns commands that print of them.
fn hostile(run: &Run) -> Vec<Vec<String>> {
    let name = "\\u001b]0;owned\\u0007\\u001b[31m\\u001b[2Jx";
    run.write("hostile.jsonl", trace_of_threads_named(name));
    let explained = run.stopgap("explain hostile.jsonl --json").ok().out;
    run.write("\u{1b}]0;owned\u{7}.json", explained);
    run.write("\u{1b}[2Jnumbers", "1\n2\n3\n4\n5\n");
    run.write("other", "1\n2\n3\n4\n6\n");
    [
        "explain hostile.jsonl",
        "explain hostile.jsonl --json",
        "report --terminal \u{1b}]0;owned\u{7}.json",
        "report \u{1b}]0;owned\u{7}.json -o page.html",
        "compare \u{1b}[2Jnumbers other",
        "compare \u{1b}[2Jnumbers other --ktap",
        "compare \u{1b}[2Jnumbers other --annotations",
        "ministat \u{1b}[2Jnumbers other",
        "export hostile.jsonl --to csv -o -",
        "export hostile.jsonl --to chrome -o -",
        "export hostile.jsonl --to jsonl -o -",
        "doctor",
    ]
    .map(|line| line.split(' ').map(str::to_owned).collect())
    .into()
}

/// `stopgap ... | head -n 1` ends as other programs end there, by SIGPIPE and without a word. A record is kept.
#[test]
fn a_reader_that_closes_the_pipe() {
    let run = Run::new();
    let mut lines: Vec<String> = hostile(&run).iter().map(|words| words.join(" ")).collect();
    lines.extend(
        [
            "check --passive --json",
            "--help",
            "probe --help",
            "--version",
        ]
        .map(str::to_owned),
    );
    for line in lines {
        let done = run.unread(&line);
        assert_eq!((done.status, &*done.err), (Some(141), ""), "{line}");
    }
    let checks = run.records().into_iter();
    assert_eq!(
        checks
            .filter(|path| path.display().to_string().contains("check-"))
            .count(),
        1
    );
}

/// A name cannot ring, set a title, clear the screen or colour it.
#[test]
fn names_do_nothing_to_a_terminal() {
    let run = Run::new();
    for words in hostile(&run) {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let output = Command::new("script")
            .args([
                "-qec",
                &format!("'{STOPGAP}' {}", quoted.join(" ")),
                "/dev/null",
            ])
            .current_dir(run.directory.path())
            .env("XDG_STATE_HOME", run.directory.path())
            .stdin(Stdio::null())
            .output();
        let Ok(output) = output else {
            return skip(&Skip::program("script"));
        };
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(!shown.is_empty(), "{words:?}");
        for bad in [
            "\u{7}",
            "\u{1b}]",
            "\u{1b}[2J",
            "\u{1b}[31mx",
            "\u{1b}[31m\u{1b}",
        ] {
            assert!(!shown.contains(bad), "{words:?}: {bad:?}: {shown:?}");
        }
    }
    // A pipe gets CSV as it is.
    let exact = run.stopgap("export hostile.jsonl --to csv -o -").ok().out;
    has(&exact, &["\u{1b}]0;owned\u{7}\u{1b}[31m\u{1b}[2Jx"]);
}

/// Texts of two recordings in one file, the later one first.
#[test]
fn recordings_in_a_wrong_order() {
    let run = Run::new();
    let switches = |second: u32| -> String {
        let switch = |at: u32| {
            let (from, to) = (7 + at % 2, 8 - at % 2);
            format!(
                "t{from} {from} [000] {second}.{:06}: sched:sched_switch: prev_comm=t{from} prev_pid={from} prev_prio=120 \
                 prev_state=S ==> next_comm=t{to} next_pid={to} next_prio=120\n",
                1 + at * 1000
            )
        };
        (0..100).map(switch).collect()
    };
    run.write("both.txt", switches(70) + &switches(10));
    let said = run.stopgap("explain both.txt").ok().out;
    assert!(said.starts_with("CANNOT TELL\n100 of "), "{said}");
    has(&said, &["are out of order"]);
}

/// What holds a recording and is no trace yet: the line says which command makes one of it.
#[test]
fn what_is_no_trace_yet() {
    let run = Run::new();
    std::fs::create_dir(run.directory.path().join("cut")).unwrap();
    run.write("cut/spool.json", "{}");
    run.write("perf.data", "PERFILE2\0\0");
    for (file, command) in [
        ("cut", "stopgap record --recover"),
        ("perf.data", "perf script --ns"),
    ] {
        let done = run.stopgap(format!("explain {file}")).ends(1);
        has(&done.err, &[file, command]);
    }
}
