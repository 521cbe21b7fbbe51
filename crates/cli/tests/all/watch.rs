//! `stopgap watch` as its users run it. Needs root and tracefs; otherwise skipped, and said.

use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use crate::common::{Run, may, names, root, text, valid, wait_for, words};
use serde_json::Value;
use stopgap_kernel::Linux;
use stopgap_kernel::files::Files;
use stopgap_testing::{Skip, skip};
use stopgap_trace::Input;

/// Trace instances of the process `pid`.
fn instances(pid: u32) -> Vec<String> {
    let tracefs = Linux.tracefs().unwrap();
    let names = Linux.list(&tracefs.path().join("instances")).unwrap();
    let own = format!("stopgap-{pid}");
    let ours = |name: &String| *name == own || name.starts_with(&format!("{own}-"));
    names.into_iter().filter(ours).collect()
}

struct Watching {
    run: Run,
    child: Child,
    folder: PathBuf,
}

impl Watching {
    /// A watch that has begun.
    fn start(words: &[&str]) -> Watching {
        let run = Run::new();
        let folder = run.directory.path().join("stalls");
        let all = [&["watch", "-o", folder.to_str().unwrap()], words].concat();
        let errors = std::fs::File::create(run.directory.path().join("errors")).unwrap();
        let mut command = run.command(&all);
        command.stdout(Stdio::piped()).stderr(errors);
        let child = command.spawn().unwrap();
        let watching = Watching { run, child, folder };
        wait_for("its beginning", || {
            watching.told().contains("Ctrl-C ends").then_some(())
        });
        watching
    }

    fn told(&self) -> String {
        std::fs::read_to_string(self.run.directory.path().join("errors")).unwrap()
    }

    fn signal(&self, name: &str) {
        crate::common::signal(name, self.child.id());
    }

    fn pages(&self) -> usize {
        names(&self.folder)
            .iter()
            .filter(|name| name.ends_with(".txt"))
            .count()
    }

    fn end(self) -> (Output, Run, PathBuf) {
        let output = self.child.wait_with_output().unwrap();
        (output, self.run, self.folder)
    }
}

/// Nothing fires but what is asked for.
const QUIET: [&str; 4] = ["--psi", "off", "--slow", "off"];

#[test]
fn a_request_is_a_page_and_the_end_leaves_only_that() {
    if !may("watch") {
        return;
    }
    let mut asleep = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let pid = asleep.id().to_string();
    let watching =
        Watching::start(&[&QUIET[..], &["-p", &pid, "--json", "--buffer", "1M"]].concat());
    let own = watching.child.id();
    watching.signal("-USR1");
    wait_for("the page", || (watching.pages() == 1).then_some(()));
    asleep.kill().unwrap(); // and with it the watch ends
    asleep.wait().unwrap();
    let told = watching.told();
    let (output, _run, folder) = watching.end();
    assert_eq!(output.status.code(), Some(0), "{output:?} {told}");
    assert!(
        told.contains(&format!("fires: kill -USR1 {own}; ")),
        "{told}"
    );
    let said = text(&output.stdout);
    let lines: Vec<Value> = said
        .lines()
        .map(|line| valid("stopgap.watch-1.json", line))
        .collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert_eq!(lines[0]["triggers"][0]["kind"], "request");
    assert_eq!(lines[1]["stalls"], 1);
    assert_eq!(lines[1]["why"], "the process ended");
    let names = names(&folder);
    assert_eq!(names.len(), 2, "{names:?}");
    let trace = Path::new(lines[0]["trace"].as_str().unwrap());
    Input::new(std::fs::File::open(trace).unwrap())
        .unwrap()
        .for_each(|event| drop(event.unwrap()));
    let page = std::fs::read_to_string(folder.join(&names[1])).unwrap();
    assert!(
        page.contains("on request:") && page.contains("TRACE "),
        "{page}"
    );
    assert_eq!(instances(own), Vec::<String>::new());
}

/// A call that is slow without any doubt, of a process that is watched among all others.
#[test]
fn a_slow_call_fires_and_the_whole_system_is_seen() {
    if !may("watch") {
        return;
    }
    let words = words("--psi off --slow nanosleep=300ms,clock_nanosleep=300ms");
    let watching = Watching::start(&[&words[..], &["--buffer", "1M"]].concat());
    let slept = std::process::Command::new("sleep")
        .arg("0.6")
        .status()
        .unwrap();
    assert!(slept.success());
    wait_for("a page", || (watching.pages() > 0).then_some(()));
    watching.signal("-INT");
    let (output, _run, folder) = watching.end();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("nanosleep of ") && said.contains("-> "),
        "{said}"
    );
    // Time that other threads lost meanwhile is not the cause.
    assert!(said.contains("nanosleep is not taken apart"), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(names(&folder).len() % 2, 0);
}

#[test]
fn what_a_killed_watch_left_is_put_back() {
    let _alone = Run::alone(); // other commands would put back what the killed run left
    if !may("watch") {
        return;
    }
    let mut watching = Watching::start(&["--psi", "off", "--buffer", "1M"]);
    let pid = watching.child.id();
    assert_eq!(instances(pid).len(), 2);
    watching.child.kill().unwrap();
    watching.child.wait().unwrap();
    let restored = watching.run.output(&["restore"]);
    assert_eq!(restored.status.code(), Some(0), "{restored:?}");
    assert_eq!(instances(pid), Vec::<String>::new());
}

/// A watch on a small file system that fills: it says so, and goes on.
#[test]
fn a_full_disk_is_said_and_the_watch_goes_on() {
    if !may("watch") {
        return;
    }
    let run = Run::new();
    let small = run.directory.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=64k none {small} || exit 77; \
         {stopgap} watch --psi off --slow off --buffer 1M -o {small} & watch=$!; \
         sleep 1; dd if=/dev/zero of=/dev/null bs=1 count=100000 2>/dev/null; \
         kill -USR1 $watch; sleep 2; kill -0 $watch && echo goes on; kill -INT $watch; wait $watch; \
         echo status $?; ls -A {small} | wc -l",
        small = small.display(),
        stopgap = crate::common::STOPGAP,
    );
    let mut command = std::process::Command::new("unshare");
    let output = command
        .args(["-m", "sh", "-c", &script])
        .env("XDG_STATE_HOME", run.directory.path())
        .output()
        .unwrap();
    if output.status.code() == Some(77) {
        skip(&Skip::machine(format!(
            "mounting a small file system: {output:?}"
        )));
        return;
    }
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(
        said.contains("goes on") && said.contains("status 1"),
        "{said} {told}"
    );
    assert!(told.contains("could not be written: "), "{told}");
    assert!(
        said.ends_with("\n0\n"),
        "nothing of use to nobody is left: {said} {told}"
    );
}

#[test]
fn what_cannot_be_watched_is_said_in_one_line() {
    let run = Run::new();
    run.refuses("watch --buffer 1", &["at least 64 KiB"]);
    run.refuses("watch --finish /nonexistent", &["/nonexistent/spool.json"]);
    if root() {
        let output = run.as_nobody(&["watch", "-d", "1s"]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(text(&output.stderr).contains("needs root"), "{output:?}");
    }
}
