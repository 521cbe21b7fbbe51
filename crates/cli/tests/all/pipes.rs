//! Named pipes that nobody writes to, where a command looks for a file: another user has put them there, or the user named
//! one. No command waits for them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{NOBODY, Run, bzimage, guest, pipe, root, text};
use stopgap_testing::{Skip, skip};

/// A busy machine may take seconds for what else takes milliseconds; who waits for a pipe does so for ever.
const LONGEST: Duration = Duration::from_secs(30);

/// The command's end, which must come.
fn ends(mut command: Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + LONGEST;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} waits");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// As [`ends`], with exit status 1 or 3 and one line.
fn refused(command: Command) -> String {
    let shown = format!("{command:?}");
    let output = ends(command);
    let said = text(&output.stderr);
    assert!(
        matches!(output.status.code(), Some(1 | 3)),
        "{shown}: {output:?}"
    );
    assert!(said.trim_end().lines().count() == 1, "{shown}: {said}");
    said
}

#[test]
fn a_pipe_that_is_named_as_an_input_is_refused() {
    let run = Run::new();
    let named = run.directory.path().join("pipe");
    pipe(&named);
    let named = named.to_str().unwrap();
    for words in [
        &["explain", named][..],
        &["export", named, "--to", "csv", "-o", "out"],
        &["replay", "placement", named],
        &["replay", "chunks", named],
        &["replay", "roundtrip", named],
        &["replay", "reclaim", named],
        &[
            "advise", "chunks", named, "--device", "4K", "--access", "linear",
        ],
        &["compare", named, named],
        &["compare", named],
        &["report", named],
        &["ministat", named],
        &["kernels", named, named],
        &["record", "--recover", named],
    ] {
        let mut command = run.command(words);
        command.current_dir(run.directory.path());
        refused(command);
    }
}

/// The shell's pipe for `<(CMD)` has a writer, and ends with it.
#[test]
fn a_pipe_of_the_shell_is_read() {
    let run = Run::new();
    let mut command = Command::new("bash");
    command
        .args([
            "-c",
            "\"$0\" ministat <(seq 1 5) <(seq 2 6)",
            crate::common::STOPGAP,
        ])
        .env("XDG_STATE_HOME", run.directory.path());
    if Command::new("bash").arg("--version").output().is_err() {
        return skip(&Skip::program("bash"));
    }
    let output = ends(command);
    assert!(output.status.success(), "{output:?}");
}

/// `stopgap-emulate-*` in the folder for temporary files, which is everybody's: each command looks there.
#[test]
fn folders_for_temporary_files_of_another_user_are_left_alone() {
    if !root() {
        return skip(&Skip::root("a folder of another user"));
    }
    let run = Run::new();
    let temporary = run.directory.path().join("tmp");
    let planted = temporary.join("stopgap-emulate-planted");
    fs::create_dir_all(&planted).unwrap();
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777)).unwrap();
    pipe(&planted.join("owner"));
    for path in [planted.join("owner"), planted.clone()] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // In a folder of our own no pipe counts either.
    let own = temporary.join("stopgap-emulate-own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
    pipe(&own.join("owner"));
    let kernels = ["bzImage-1", "bzImage-2"].map(|name| run.directory.path().join(name));
    for kernel in &kernels {
        fs::write(kernel, bzimage("6.12.1")).unwrap();
    }
    // QEMU is asked for its version and boots nothing; a folder is made before.
    let bin = run.directory.path().join("bin");
    fs::create_dir(&bin).unwrap();
    stopgap_kernel::fake::script(
        &bin.join("qemu-system-x86_64"),
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'QEMU emulator version 7.2.22 (a script)'\n",
    );
    run.write("guest", guest());
    for words in [&["restore"][..], &["doctor"], &["kernels"]] {
        let mut command = run.command(words);
        if words == ["kernels"] {
            command
                .args(&kernels)
                .args(["--workloads", "roundtrip", "--seeds", "1"]);
        }
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command
            .env("TMPDIR", &temporary)
            .env("PATH", path)
            .env("STOPGAP_GUEST", run.directory.path().join("guest"));
        ends(command);
    }
    assert!(planted.join("owner").exists() && own.join("owner").exists());
}

/// Beside a kernel in a folder of all, files that the user did not name.
#[test]
fn pipes_beside_a_kernel_are_not_waited_for() {
    let run = Run::new();
    let at = |name: &str| run.directory.path().join(name);
    fs::write(at("bzImage"), bzimage("6.12.1")).unwrap();
    for name in ["config-6.12.1", "System.map-6.12.1"] {
        pipe(&at(name));
    }
    let mut command = run.command(&["kernels"]);
    command
        .args([at("bzImage"), at("bzImage")])
        .env("PATH", "/nowhere");
    // It looks for QEMU when it has read the kernels.
    assert!(refused(command).contains("qemu-system"));
}

/// A spool in `folder`, whose file `name` is a pipe.
fn spool(folder: &Path, name: &str) -> PathBuf {
    let spool = folder.join(format!(".stall-{}.4194999.spool", name.replace('.', "-")));
    crate::common::spool(&spool);
    fs::set_permissions(&spool, fs::Permissions::from_mode(0o700)).unwrap();
    let stall = r#"{"unix_s":1,"triggers":[],"begin_ns":0,"end_ns":1,"from_ns":0,"taken_ns":1,"suppressed":0}"#;
    fs::write(spool.join("stall.json"), stall).unwrap();
    let pipes = spool.join(name);
    if pipes.exists() {
        fs::remove_file(&pipes).unwrap();
    }
    pipe(&pipes);
    spool
}

#[test]
fn no_file_of_a_spool_is_waited_for() {
    let run = Run::new();
    for name in [
        "spool.json",
        "cpu0.raw",
        "perf0.raw",
        "counters.jsonl",
        "end.json",
        "stall.json",
    ] {
        let spool = spool(run.directory.path(), name);
        // Whether it is an error is the file's matter: an end that cannot be read is none.
        let mut command = run.command(&["watch", "--finish"]);
        command.arg(&spool);
        ends(command);
        let mut command = run.command(&["record", "--recover"]);
        command
            .arg(&spool)
            .arg("-o")
            .arg(run.directory.path().join("out"));
        if spool.exists() {
            ends(command);
        }
        let mut command = run.command(&["restore"]);
        command.current_dir(run.directory.path());
        ends(command);
    }
}

#[test]
fn no_journal_is_waited_for() {
    let run = Run::new();
    let journal = if root() {
        let home = run.directory.path().join("nobody/.local/state/stopgap");
        run.as_nobody(&["doctor"]).output().unwrap();
        home
    } else {
        run.directory.path().join("stopgap")
    }
    .join("journal");
    fs::create_dir_all(&journal).unwrap();
    pipe(&journal.join("7.json"));
    if root() {
        for folder in journal.ancestors().take(4) {
            chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        fs::set_permissions(&journal, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let command = |words: &[&str]| match root() {
        true => run.as_nobody(words),
        false => run.command(words),
    };
    let output = ends(command(&["restore"]));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("7.json"), "{output:?}");
    // It is in nobody's way.
    let output = ends(command(&["doctor"]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
