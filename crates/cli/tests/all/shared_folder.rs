//! A directory that all may write to. Another user has put links at every name that a command will write to, or may use on
//! its way; none is followed. As root: `nobody` owns the links.
//!
//! A directory of mode 1777 and one of 0777: in the first the kernel refuses to follow such links (`fs.protected_symlinks`,
//! where it is on), in the second it never does.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::common::{NOBODY, Run, STOPGAP, may, pipe, root, spool, text, wait_for, words};
use stopgap_testing::{Skip, skip};

/// A command that writes.
struct Row {
    words: Vec<&'static str>,
    /// Flags that name the same output.
    covers: Vec<&'static str>,
    /// Names in the directory. PID is the command's process id, NOW the time in seconds.
    planted: Vec<&'static str>,
    /// Files that must be there in the end, ours and regular. The command ends well, then.
    made: Vec<&'static str>,
}

/// The rows: command, flags that name the same output, names that are planted, files that must be made. SHARED is the
/// directory, IN one with inputs.
fn rows() -> Vec<Row> {
    let row = |(words, covers, planted, made): (
        &'static str,
        &'static str,
        &'static str,
        &'static str,
    )| Row {
        words: words.split(' ').collect(),
        covers: covers.split(", ").filter(|flag| !flag.is_empty()).collect(),
        planted: planted.split_whitespace().collect(),
        made: made.split_whitespace().collect(),
    };
    [
        (
            "check --passive -o SHARED",
            "check --output",
            ".stopgap-PID .stopgap.PID.partial check-NOW-PID.json check-NOW-PID.partial check-NOW-PID.html \
             .check-NOW-PID.json.PID.partial .check-NOW-PID.html.PID.partial",
            "",
        ),
        (
            "probe wakeup --runs 1 -d 300ms -o SHARED",
            "probe placement --output, probe roundtrip --output, probe chunks --output, probe reclaim --output, \
             probe wakeup --output",
            ".stopgap-PID probe-wakeup-NOW-PID.json probe-wakeup-NOW-PID.partial \
             .probe-wakeup-NOW-PID.json.PID.partial",
            "",
        ),
        (
            "record -d 50ms -o SHARED/t.parquet -- sleep 0.02",
            "record --output",
            "t.parquet .t.parquet.PID.partial .t.parquet.PID.spool",
            "t.parquet",
        ),
        ("record --recover IN/spool -o SHARED/r.parquet", "", "r.parquet .r.parquet.PID.partial", "r.parquet"),
        (
            "replay placement pbobench --n 10 --ops 100 --policy linux-6.12 -o SHARED",
            "replay placement --output, replay chunks --output, replay roundtrip --output, replay reclaim --output, \
             advise chunks --output",
            ".stopgap-PID replay-placement-NOW-PID.json replay-placement-NOW-PID.partial \
             .replay-placement-NOW-PID.json.PID.partial",
            "",
        ),
        (
            "compare IN/before IN/after -o SHARED --junit SHARED/j.xml --openmetrics SHARED/m.prom",
            "compare --output, compare --junit, compare --openmetrics",
            "j.xml m.prom .j.xml.PID.partial .m.prom.PID.partial compare-NOW-PID.json compare-NOW-PID.partial \
             .compare-NOW-PID.json.PID.partial",
            "j.xml m.prom",
        ),
        (
            "compare -n 10 --run true --run true -o SHARED",
            "",
            ".stopgap-PID gather-NOW-PID.json gather-NOW-PID.partial compare-NOW-PID.json compare-NOW-PID.partial",
            "",
        ),
        (
            "run --fix batch-client --measure -n 4 -o SHARED -- true",
            "run --output",
            ".stopgap-PID gather-NOW-PID.json gather-NOW-PID.partial run-fix-NOW-PID.json run-fix-NOW-PID.partial",
            "",
        ),
        // No kernel is there: it ends when it has tried the directory. Its record is written as all others.
        ("kernels IN/none IN/none -o SHARED", "kernels --output", ".stopgap-PID .stopgap.PID.partial", ""),
        (
            "export pbobench --n 10 --ops 100 --to csv -o SHARED/e.csv",
            "export --output",
            "e.csv .e.csv.PID.partial",
            "e.csv",
        ),
        (
            "export pbobench --n 10 --ops 100 --to trace -o SHARED/e.parquet",
            "",
            "e.parquet .e.parquet.PID.partial",
            "e.parquet",
        ),
        ("snapshot -o SHARED/s.json", "snapshot --output", "s.json .s.json.PID.partial", "s.json"),
        ("report IN/record.json -o SHARED/r.html", "report --output", "r.html .r.html.PID.partial", "r.html"),
        ("watch --history -1h -o IN/watched --html SHARED/h.html", "watch --html", "h.html .h.html.PID.partial", "h.html"),
        // Beside the record, whose name everybody sees.
        ("report SHARED/record.json", "", "record.html .record.html.PID.partial", "record.html"),
    ]
    .map(row)
    .into()
}

/// Flags that name an input, and those of a test of its own.
const OTHERS: [&str; 8] = [
    "advise chunks --prices",
    "record --cgroup",
    "watch --cgroup",
    "record --recover",
    "replay chunks --prices",
    "replay reclaim --beside",
    "replay roundtrip --beside",
    "watch --output",
];

/// Inputs, made once.
struct Inputs {
    run: Run,
}

impl Inputs {
    fn new() -> Inputs {
        let run = Run::new();
        let at = |name: &str| run.directory.path().join(name);
        let output = run.output(&["check", "--passive", "--json"]);
        assert!(output.status.success(), "{output:?}");
        fs::write(at("record.json"), &output.stdout).unwrap();
        fs::write(at("before"), "1\n2\n3\n4\n").unwrap();
        fs::write(at("after"), "2\n3\n4\n5\n").unwrap();
        fs::create_dir_all(at("watched/history")).unwrap();
        Inputs { run }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.run.directory.path().join(name)
    }
}

/// A directory that all may write to, and what links in it would lead to.
struct Shared {
    folder: tempfile::TempDir,
    victim: tempfile::TempDir,
    /// Target of the links: a file of root's, or a name that does not exist yet.
    target: PathBuf,
}

impl Shared {
    fn new(mode: u32, exists: bool) -> Shared {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        let victim = tempfile::tempdir().unwrap();
        fs::write(victim.path().join("precious"), "precious").unwrap();
        let target = victim.path().join(if exists { "precious" } else { "new" });
        Shared {
            folder,
            victim,
            target,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a link of nobody's at `name`.
    fn plant(&self, name: &str) {
        let link = self.path(name);
        if symlink(&self.target, &link).is_ok() {
            lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// Returns how a link's target was changed, or made.
    fn harm(&self) -> Option<String> {
        let names: Vec<_> = fs::read_dir(self.victim.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        let precious = fs::read(self.victim.path().join("precious")).unwrap_or_default();
        let same = precious == b"precious" && names == ["precious"];
        (!same).then(|| format!("{names:?}, {} bytes", precious.len()))
    }
}

/// Starts a command whose process id is known before it begins.
fn start(run: &Run, words: &[String]) -> std::process::Child {
    let mut command = Command::new("sh");
    command
        .args(["-c", "read go; exec \"$0\" \"$@\" </dev/null", STOPGAP])
        .args(words)
        .current_dir(run.directory.path())
        .env("XDG_STATE_HOME", run.directory.path())
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// Carries a row out; what harm was done.
fn carry_out(row: &Row, mode: u32, exists: bool, inputs: &Inputs) -> Result<(), String> {
    let shared = Shared::new(mode, exists);
    if row.words.contains(&"SHARED/record.json") {
        fs::copy(inputs.path("record.json"), shared.path("record.json")).unwrap();
    }
    if row.words.contains(&"IN/spool") {
        spool(&inputs.path("spool"));
    }
    let words: Vec<String> = row
        .words
        .iter()
        .map(|word| {
            let word = word.replace("SHARED", shared.folder.path().to_str().unwrap());
            match word.strip_prefix("IN/") {
                Some(name) => inputs.path(name).to_str().unwrap().to_owned(),
                None => word,
            }
        })
        .collect();
    let mut child = start(&inputs.run, &words);
    let pid = child.id().to_string();
    let begin = now();
    for name in &row.planted {
        let name = name.replace("PID", &pid);
        match name.contains("NOW") {
            true => (begin..begin + 8)
                .for_each(|second| shared.plant(&name.replace("NOW", &second.to_string()))),
            false => shared.plant(&name),
        }
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = format!("{:?}: {}", row.words, text(&output.stderr));
    if let Some(harm) = shared.harm() {
        return Err(format!("mode {mode:o}: {harm}: {said}"));
    }
    for name in &row.made {
        let there = fs::symlink_metadata(shared.path(name));
        if !there.is_ok_and(|there| there.is_file() && there.uid() == 0) {
            return Err(format!("mode {mode:o}: no {name}: {said}"));
        }
    }
    let warned = said.contains("no sticky bit");
    if warned != (mode == 0o777) {
        return Err(format!("mode {mode:o}: {said}"));
    }
    // Nothing was watched there.
    let fails = ["kernels", "IN/watched"];
    if output.status.success() == fails.iter().any(|word| row.words.contains(word)) {
        return Err(format!("mode {mode:o}: {:?} {said}", output.status));
    }
    Ok(())
}

#[test]
fn no_link_of_another_user_is_followed() {
    if !root() {
        return skip(&Skip::root("links of another user"));
    }
    let inputs = Inputs::new();
    let mut harm = Vec::new();
    let mut tried = 0;
    for row in rows() {
        for (mode, exists) in [(0o1777, false), (0o777, true)] {
            tried += 1;
            harm.extend(carry_out(&row, mode, exists, &inputs).err());
        }
    }
    println!("{tried} commands, {} harmed", harm.len());
    assert!(
        harm.is_empty(),
        "{} of {tried}:\n{}",
        harm.len(),
        harm.join("\n")
    );
}

/// A flag that names an output is in the table.
#[test]
fn every_flag_that_names_a_file_is_known() {
    let mut found = BTreeSet::new();
    let mut left = vec![Vec::new()];
    while let Some(command) = left.pop() {
        let help = Command::new(STOPGAP).args(&command).arg("--help").output();
        let help = text(&help.unwrap().stdout);
        let mut lines = help.lines();
        for line in lines.by_ref() {
            if let Some(rest) = line.trim_start().split("--").nth(1)
                && line.trim_start().starts_with('-')
                && (rest.contains(" <FILE>") || rest.contains(" <DIR>"))
            {
                let flag = rest.split(' ').next().unwrap();
                found.insert(format!("{} --{flag}", command.join(" ")));
            }
        }
        // The commands of `stopgap` stand in groups.
        let listed = match help.split_once("Questions:\n") {
            Some((_, rest)) => rest.split("\n\n").next(),
            None => (help.split_once("Look at this machine:\n"))
                .and_then(|(_, rest)| rest.split("Options:\n").next()),
        };
        for line in listed.into_iter().flat_map(str::lines) {
            // A name stands at two blanks, its continued description further in.
            if let Some(name) = line
                .strip_prefix("  ")
                .filter(|rest| !rest.starts_with(' '))
                && let Some(name) = name.split(' ').next().filter(|name| *name != "help")
            {
                left.push([&command[..], &[name.to_owned()]].concat());
            }
        }
    }
    let mut known: BTreeSet<String> = OTHERS.map(str::to_owned).into();
    for row in rows() {
        known.extend(row.covers.into_iter().map(str::to_owned));
    }
    assert!(found.len() > 15, "{found:?}");
    assert_eq!(found, known);
}

/// A folder that another user has put there with the name of what a killed watch left.
#[test]
fn a_watch_takes_no_windows_of_another_user() {
    if !may("watch") {
        return;
    }
    let run = Run::new();
    let shared = Shared::new(0o777, true);
    let planted = shared.path(".stall-20260101-000000.4194999.spool");
    spool(&planted);
    let stall = r#"{"unix_s":1,"triggers":[],"begin_ns":0,"end_ns":1,"from_ns":0,"taken_ns":1,"suppressed":0}"#;
    fs::write(planted.join("stall.json"), stall).unwrap();
    for name in ["stall.json", "spool.json", "cpu0.raw", "cpu1.raw", "."] {
        chown(planted.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    for end in ["parquet", "txt"] {
        shared.plant(&format!("stall-20260101-000000.{end}"));
    }
    let words = words("watch -d 500ms --psi off --slow off --buffer 1M -o");
    let output = run
        .command(&words)
        .arg(shared.folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(shared.harm(), None);
    assert_eq!(fs::read_dir(&planted).unwrap().count(), 4, "{output:?}");
}

/// A directory on the way to the output is a link of another user.
#[test]
fn a_folder_that_is_another_users_link_is_refused() {
    if !root() {
        return skip(&Skip::root("links of another user"));
    }
    let run = Run::new();
    for exists in [true, false] {
        let shared = Shared::new(0o777, true);
        let link = shared.path("out");
        symlink(shared.victim.path(), &link).unwrap();
        lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
        let place = if exists {
            link.clone()
        } else {
            link.join("new")
        };
        let output = run
            .command(&["check", "--passive", "-o"])
            .arg(&place)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            text(&output.stderr).contains("a link of user 65534"),
            "{output:?}"
        );
        assert_eq!(shared.harm(), None);
    }
    // His own, or root's, leads on.
    let own = run.directory.path().join("own");
    symlink(run.directory.path(), &own).unwrap();
    let output = run
        .command(&["check", "--passive", "-o"])
        .arg(&own)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Only its owner may read an export, whoever may read its input: as a trace.
#[test]
fn an_export_is_as_private_as_a_trace() {
    let run = Run::new();
    let export = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 022; exec \"$0\" \"$@\"", STOPGAP, "export"]);
        command.args(line.split(' '));
        let output = command.current_dir(run.directory.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let mode = |name: &str| fs::metadata(run.path(name)).unwrap().permissions().mode() & 0o777;
    export("pbobench --n 10 --ops 100 -o t.parquet");
    assert_eq!(mode("t.parquet"), 0o600);
    fs::set_permissions(run.path("t.parquet"), fs::Permissions::from_mode(0o644)).unwrap();
    for name in ["t.csv", "t.jsonl", "again.parquet"] {
        export(&format!("t.parquet -o {name}"));
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

/// `-o` that names no file in a folder.
#[test]
fn devices_and_open_files_are_written_to_as_they_are() {
    let run = Run::new();
    let at = |name: &str| run.directory.path().join(name);
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, STOPGAP]);
        command.current_dir(run.directory.path()).output().unwrap()
    };
    let export = "\"$0\" export pbobench --n 10 --ops 100 --to csv -o";
    let ended = |output: &Output| assert!(output.status.success(), "{output:?}");
    ended(&shell(&format!("{export} /dev/null")));
    // After the file's content, before the summary.
    ended(&shell(&format!(
        "{{ echo first; {export} /dev/stdout; }} >all"
    )));
    let all = fs::read_to_string(at("all")).unwrap();
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines[0], "first", "{all}");
    assert!(lines[1].starts_with("time") && lines.len() > 10, "{all}");
    assert!(lines[lines.len() - 1].contains("events as csv"), "{all}");
    let piped = shell(&format!("{export} /dev/stdout | cat"));
    ended(&piped);
    assert!(text(&piped.stdout).starts_with("time"), "{piped:?}");
    // A pipe of the user's own.
    let own = shell(&format!(
        "mkfifo pipe && {{ cat pipe >read & {export} pipe; wait; }}"
    ));
    ended(&own);
    assert!(fs::read_to_string(at("read")).unwrap().starts_with("time"));
}

/// A named pipe that another user has put at the name of an output: nobody will ever read from it.
#[test]
fn a_pipe_of_another_user_is_refused() {
    if !root() {
        return skip(&Skip::root("a pipe of another user"));
    }
    let run = Run::new();
    let shared = Shared::new(0o1777, true);
    let out = shared.path("out.csv");
    pipe(&out);
    chown(&out, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut child = run
        .command(&words("export pbobench --n 10 --ops 100 --to csv -o"))
        .arg(&out)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("its end, without a reader", || child.try_wait().unwrap());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("user 65534 has put a pipe there"),
        "{output:?}"
    );
}
