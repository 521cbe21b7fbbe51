//! The likely mistakes: one line that says what and what to do, exit status 1 or 3, nothing
//! lost that had been measured.

use std::process::Stdio;

use crate::common::{Run, root, text};
use stopgap_kernel::fake::skipped as skip;

/// Fails with one line on standard error that has all of `words`.
fn refused(run: &Run, arguments: &[&str], words: &[&str]) {
    let output = run.output(arguments);
    let line = text(&output.stderr);
    let status = output.status.code();
    assert!(
        matches!(status, Some(1 | 3)),
        "{arguments:?}: {status:?} {line}"
    );
    assert_eq!(line.trim_end().lines().count(), 1, "{arguments:?}: {line}");
    for word in words {
        assert!(line.contains(word), "{arguments:?}: no '{word}' in: {line}");
    }
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
}

#[test]
fn a_question_that_there_is_not() {
    let run = Run::new();
    let known = ["gpu", "placement", "roundtrip", "chunks", "reclaim"];
    refused(&run, &["probe", "gpu"], &known);
    refused(&run, &["check", "--only", "gpu"], &known);
}

#[test]
fn figures_that_make_no_sense() {
    let run = Run::new();
    let placement = |flags: &[&str], words: &[&str]| {
        let arguments = [&["probe", "placement"], flags].concat();
        refused(&run, &arguments, words);
    };
    placement(&["--n", "0"], &["N of 0"]);
    placement(&["--n", "4000000000"], &["sysctl vm.max_map_count="]);
    placement(&["--runs", "0"], &["at least 1"]);
    placement(
        &["--n", "100", "--threads", "5000"],
        &["5000 threads", "CPUs"],
    );
    placement(&["--cpus", "4000"], &["CPU 4000", "may use CPUs"]);
    placement(&["--memory", "lots"], &["'lots' is no size", "2G"]);
    placement(&["--memory", "1M"], &["budget", "--memory"]);
    // What is computed from them would not fit into 64 bits.
    placement(&["-d", "18446744073s"], &["30 days"]);
    placement(&["--memory", "16777215T"], &["at most 1024 TiB"]);
    for flags in [
        ["--bytes", "18446744073709551615"],
        ["--block", "9223372036854775807"],
        ["--each", "18446744073s"],
        ["--passes", "4294967295"],
    ] {
        refused(
            &run,
            &[&["probe", "reclaim"], &flags[..]].concat(),
            &[flags[1]],
        );
    }
}

#[test]
fn a_process_by_its_name() {
    let run = Run::new();
    for word in ["bash", "-1", "4294967296", "1.5", ""] {
        let flag = format!("--pid={word}");
        let parts = [&format!("'{word}' is no process id"), "pgrep"];
        refused(&run, &["check", "--passive", &flag], &parts);
    }
}

/// Words from outside neither end the program nor paint the screen.
#[test]
fn words_that_are_no_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let run = Run::new();
    let odd = run
        .directory
        .path()
        .join(OsStr::from_bytes(b"a\xff\x1b[31m\nb"));
    let mut command = run.command(&["check", "--passive", "-o"]);
    let output = command.arg(&odd).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let screen = text(&output.stdout);
    assert!(!screen.contains('\x1b'), "{screen}");
    assert!(screen.contains("\\u{a}b/check-"), "{screen}");
    assert_eq!(crate::common::records(&odd).len(), 1);

    refused(&run, &["probe", "a\nb\x1b[31m"], &["a\\u{a}b\\u{1b}"]);
    let output = run.command(&[]).arg(OsStr::from_bytes(b"\xff")).output();
    assert_eq!(output.unwrap().status.code(), Some(1));
}

/// The packages are built without OpenGL: the error names the build that has it.
#[cfg(not(feature = "gl"))]
#[test]
fn opengl_without_its_feature() {
    let run = Run::new();
    let words = ["probe", "placement", "--backend", "gl", "--n", "100"];
    let output = run.output(&[&words[..], &["--runs", "1"]].concat());
    let screen = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{screen}");
    assert!(screen.contains("built without OpenGL"), "{screen}");
    assert!(screen.contains("--features gl"), "{screen}");
}

/// Where the usual place is not ours, `-o` is enough.
#[test]
fn a_directory_is_given_where_there_is_no_other() {
    if !root() {
        return skip("a folder that is somebody else's: becoming nobody needs root");
    }
    let run = Run::new();
    let bad = |words: &[&str]| {
        let mut command = run.as_nobody(words);
        command.env("HOME", "/nowhere").env("TMPDIR", "/nowhere");
        command.output().unwrap()
    };
    let output = bad(&["check", "--passive"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("-o"), "{output:?}");
    let output = bad(&["check", "--passive", "-o", "here"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        crate::common::records(&run.directory.path().join("nobody/here")).len(),
        1
    );
    assert_eq!(bad(&["check", "--dry-run"]).status.code(), Some(0));
}

/// A link that somebody laid where our files will be is not followed.
#[test]
fn a_link_in_the_output_directory_is_not_followed() {
    let run = Run::new();
    let precious = run.directory.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    let out = run.directory.path().join("out");
    std::fs::create_dir(&out).unwrap();
    // The id that the command will have: that of the shell that becomes it.
    let script = "ln -s \"$1\" \"$2/.stopgap-$$\"; exec \"$0\" check --passive -o \"$2\"";
    let output = std::process::Command::new("sh")
        .args(["-c", script, crate::common::STOPGAP])
        .args([&precious, &out])
        .env("XDG_STATE_HOME", run.directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    assert_eq!(crate::common::records(&out).len(), 1);
}

/// `ulimit -f`: the write fails, the run does not end by SIGXFSZ.
#[test]
fn a_limit_on_file_sizes_loses_nothing() {
    let run = Run::new();
    let output = std::process::Command::new("sh")
        .args([
            "-c",
            "ulimit -f 0; exec \"$0\" check --passive --json",
            crate::common::STOPGAP,
        ])
        .env("XDG_STATE_HOME", run.directory.path())
        .env("TMPDIR", run.directory.path())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        said.contains("File too large") && said.contains("printed instead"),
        "{said}"
    );
    let printed = text(&output.stdout);
    let record = printed.split_inclusive("\n}\n").next().unwrap();
    crate::common::assert_valid(record);
}

/// Neither does any other command end by SIGXFSZ.
#[test]
fn a_limit_on_file_sizes_is_an_error_of_every_command() {
    let run = Run::new();
    for words in hostile(&run) {
        let out = std::fs::File::create(run.directory.path().join("out")).unwrap();
        let output = std::process::Command::new("sh")
            .args([
                "-c",
                "ulimit -f 0; exec \"$0\" \"$@\"",
                crate::common::STOPGAP,
            ])
            .args(&words)
            .env("XDG_STATE_HOME", run.directory.path())
            .env("TMPDIR", run.directory.path())
            .stdout(out)
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        assert!(
            said.contains("cannot write") && said.contains("File too large"),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn a_process_that_is_gone() {
    let run = Run::new();
    refused(&run, &["check", "--passive", "-p", "4194304"], &["4194304"]);
    refused(&run, &["check", "-p", "x"], &["'x'"]);
}

#[test]
fn a_directory_that_cannot_be_written() {
    let run = Run::new();
    refused(
        &run,
        &["check", "--passive", "-o", "/proc/stopgap"],
        &["/proc/stopgap", "another directory"],
    );
}

/// The disk fills while the record is written: it is found elsewhere, whole.
#[test]
fn a_full_disk_loses_nothing() {
    if !root() {
        return skip("a full disk: mounting a small one needs root");
    }
    let run = Run::new();
    let small = run.directory.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4k", "stopgap-test"])
        .arg(&small)
        .status()
        .unwrap();
    assert!(mounted.success());
    let elsewhere = run.directory.path().join("tmp");
    std::fs::create_dir(&elsewhere).unwrap();
    let output = run
        .command(&["check", "--passive", "-o", small.to_str().unwrap()])
        .env("TMPDIR", &elsewhere)
        .output()
        .unwrap();
    std::process::Command::new("umount")
        .arg(&small)
        .status()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("No space left") && said.contains("the record is in"),
        "{said}"
    );
    let records = crate::common::records(&elsewhere.join("stopgap-0"));
    assert_eq!(records.len(), 1);
    crate::common::assert_valid(&std::fs::read_to_string(&records[0]).unwrap());
}

/// `stopgap check --json | head -c 0`: no panic; the record is on the disk and named.
#[test]
fn a_reader_that_closes_the_pipe() {
    let run = Run::new();
    let mut child = run
        .command(&["check", "--passive", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(run.records().len(), 1);
}

/// A trace whose threads have names that would set the terminal's title, ring and clear it.
fn hostile_trace(run: &Run) -> std::path::PathBuf {
    let name = "\\u001b]0;owned\\u0007\\u001b[31m\\u001b[2Jx";
    let mut text = String::new();
    for at in 0..200u64 {
        let (tid, next) = (10 + at % 2, 10 + (at + 1) % 2);
        text.push_str(&format!(
            "{{\"time_ns\":{},\"kind\":\"switch\",\"cpu\":0,\"pid\":{tid},\"tid\":{tid},\"comm\":\"{name}\",\
             \"state\":\"S\",\"preempted\":false,\"next_tid\":{next},\"next_comm\":\"{name}\"}}\n",
            at * 1_000_000
        ));
    }
    let path = run.directory.path().join("hostile.jsonl");
    std::fs::write(&path, text).unwrap();
    path
}

/// The trace, its explanation as a record, and numbers in a file whose name is as bad.
fn hostile(run: &Run) -> Vec<Vec<String>> {
    let trace = hostile_trace(run).display().to_string();
    let explained = run.output(&["explain", &trace, "--json"]);
    assert_eq!(explained.status.code(), Some(0), "{explained:?}");
    let record = run.directory.path().join("\u{1b}]0;owned\u{7}.json");
    std::fs::write(&record, &explained.stdout).unwrap();
    let numbers = run.directory.path().join("\u{1b}[2Jnumbers");
    std::fs::write(&numbers, "1\n2\n3\n4\n5\n").unwrap();
    let other = run.directory.path().join("other");
    std::fs::write(&other, "1\n2\n3\n4\n6\n").unwrap();
    let path = |path: &std::path::Path| path.display().to_string();
    let page = run.directory.path().join("page.html");
    [
        &["explain", &trace][..],
        &["explain", &trace, "--json"],
        &["report", "--terminal", &path(&record)],
        &["report", &path(&record), "-o", &path(&page)],
        &["compare", &path(&numbers), &path(&other)],
        &["compare", &path(&numbers), &path(&other), "--ktap"],
        &["compare", &path(&numbers), &path(&other), "--annotations"],
        &["ministat", &path(&numbers), &path(&other)],
        &["export", &trace, "--to", "csv", "-o", "-"],
        &["export", &trace, "--to", "chrome", "-o", "-"],
        &["export", &trace, "--to", "jsonl", "-o", "-"],
        &["doctor"],
    ]
    .iter()
    .map(|words| words.iter().map(|word| (*word).to_owned()).collect())
    .collect()
}

/// `stopgap ... | head -n 1` has seen enough: that is no error, and nobody is there to read of one.
#[test]
fn a_reader_that_has_seen_enough() {
    let run = Run::new();
    for words in hostile(&run) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut child = run
            .command(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "", "{words:?}");
        assert_eq!(output.status.code(), Some(0), "{words:?}");
    }
}

/// What `words` print on a terminal; `None`, said, where none can be made.
fn on_a_terminal(run: &Run, words: &[&str]) -> Option<Vec<u8>> {
    let quoted = |word: &&str| format!("'{word}'");
    let line: Vec<String> = [crate::common::STOPGAP]
        .iter()
        .chain(words)
        .map(quoted)
        .collect();
    let output = std::process::Command::new("script")
        .args(["-qec", &line.join(" "), "/dev/null"])
        .env("XDG_STATE_HOME", run.directory.path())
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => Some(output.stdout),
        Err(error) => {
            skip(format!("what a terminal shows: script(1): {error}"));
            None
        }
    }
}

/// A name cannot ring, set a title, clear the screen or colour it.
#[test]
fn names_do_nothing_to_a_terminal() {
    let run = Run::new();
    for words in hostile(&run) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some(shown) = on_a_terminal(&run, &words) else {
            return;
        };
        let shown = String::from_utf8_lossy(&shown);
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
    let trace = hostile_trace(&run).display().to_string();
    let exact = run.output(&["export", &trace, "--to", "csv", "-o", "-"]);
    let exact = String::from_utf8_lossy(&exact.stdout).into_owned();
    assert!(
        exact.contains("\u{1b}]0;owned\u{7}\u{1b}[31m\u{1b}[2Jx"),
        "{exact}"
    );
}

#[test]
fn help_and_version_are_no_errors() {
    let run = Run::new();
    for words in [
        &["--help"][..],
        &["--version"],
        &["check", "--help"],
        &["probe", "--help"],
    ] {
        let output = run.output(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(!output.stdout.is_empty(), "{words:?}");
    }
    assert_eq!(run.output(&[]).status.code(), Some(1));
}
