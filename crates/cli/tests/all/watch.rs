//! `stopgap watch` as its users run it. Needs root and tracefs; otherwise skipped, and said.

use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Run, may, names, root, text, until_state, valid, wait_for, words};
use crate::record_targets::{Group, Program, hierarchies};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_testing::{Skip, skip};
use stopgap_trace::Input;

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

/// Names of what is in the directory but for the history.
fn stalls(folder: &Path) -> Vec<String> {
    let mut names = names(folder);
    names.retain(|name| name != "history");
    names
}

/// Nothing fires but what is asked for.
const QUIET: [&str; 6] = ["--psi", "off", "--slow", "off", "--map-growth", "off"];

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
        Watching::start(&[&QUIET[..], &["-v", "-p", &pid, "--json", "--buffer", "1M"]].concat());
    let own = watching.child.id();
    watching.signal("-USR1");
    wait_for("the page", || (watching.pages() == 1).then_some(()));
    asleep.kill().unwrap(); // and with it the watch ends
    asleep.wait().unwrap();
    let told = watching.told();
    let (output, _run, folder) = watching.end();
    assert_eq!(output.status.code(), Some(0), "{output:?} {told}");
    assert!(
        told.contains(&format!("fires: kill -USR1 {own}\n")),
        "{told}"
    );
    let said = text(&output.stdout);
    let lines: Vec<Value> = said
        .lines()
        .map(|line| valid("stopgap.watch-3.json", line))
        .collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert_eq!(lines[0]["triggers"][0]["kind"], "request");
    assert_eq!(lines[1]["stalls"], 1);
    assert_eq!(lines[1]["why"], "the process ended");
    let names = stalls(&folder);
    assert_eq!(names.len(), 2, "{names:?}");
    let trace = Path::new(lines[0]["trace"].as_str().unwrap());
    Input::new(std::fs::File::open(trace).unwrap())
        .unwrap()
        .for_each(|event| drop(event.unwrap()));
    let page = std::fs::read_to_string(folder.join(&names[1])).unwrap();
    assert!(
        page.starts_with("WRITTEN ON REQUEST\n") && page.contains("TRACE "),
        "{page}"
    );
}

/// A call that is slow without any doubt, of a process that is watched among all others.
#[test]
fn a_slow_call_fires_and_the_whole_system_is_seen() {
    if !may("watch") {
        return;
    }
    let words = words("--psi off --slow nanosleep=300ms,clock_nanosleep=300ms --comm dozer");
    let watching = Watching::start(&words);
    // Others on the machine sleep, too.
    let program = watching.run.directory.path().join("dozer");
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let slept = std::process::Command::new(&program)
        .arg("0.6")
        .status()
        .unwrap();
    assert!(slept.success());
    wait_for("a page", || (watching.pages() > 0).then_some(()));
    watching.signal("-INT");
    let (output, _run, folder) = watching.end();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    // On a busy machine the sleeper waits for a CPU, too, after its sleep.
    let named = said.contains("nanosleep of dozer (") && said.contains(" lost: idle, ");
    assert!(named && said.contains("-> "), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(stalls(&folder).len() % 2, 0);
}

/// A thread waits for a file lock: nobody named the call, and the trace has what was before the wait and what came after it.
#[test]
fn a_stall_stands_in_the_middle_of_its_trace() {
    if !may("watch") {
        return;
    }
    let own = std::process::id().to_string();
    let watching = Watching::start(&[
        "--psi",
        "off",
        "-p",
        &own,
        "--slow",
        "flock=250ms",
        "--json",
    ]);
    let place = tempfile::NamedTempFile::new().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    flock(place.as_file(), FlockOperation::LockExclusive).unwrap();
    let again = std::fs::File::open(place.path()).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let begun = Linux.now();
    let waiter = std::thread::spawn(move || {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        tell.send(own).unwrap();
        flock(&again, FlockOperation::LockExclusive).unwrap();
    });
    let waiter_is = told.recv().unwrap();
    let tid = waiter_is.file_name().and_then(|tid| tid.to_str()).unwrap();
    until_state(tid.parse().unwrap(), 'S');
    std::thread::sleep(std::time::Duration::from_millis(400));
    flock(place.as_file(), FlockOperation::Unlock).unwrap();
    waiter.join().unwrap();
    let longest = (Linux.now() - begun).0;
    wait_for("the page", || (watching.pages() == 1).then_some(()));
    watching.signal("-INT");
    let (output, _run, _folder) = watching.end();
    let said = text(&output.stdout);
    let line = valid("stopgap.watch-3.json", said.lines().next().unwrap());
    assert_eq!(line["cause"]["word"], "lock", "{said}");
    let by = &line["cause"]["culprit"]["task"];
    assert!(by.is_string(), "{said}");
    let number = |name: &str| line[name].as_u64().unwrap();
    let (begin, end) = (number("begin_ns"), number("end_ns"));
    assert!((400_000_000..longest).contains(&(end - begin)), "{said}");
    assert!(number("from_ns") + 200_000_000 < begin, "{said}");
    assert!(end + 900_000_000 < number("taken_ns"), "{said}");
    let trace = Path::new(line["trace"].as_str().unwrap());
    let (mut before, mut within, mut after) = (0, 0, 0);
    for event in Input::new(std::fs::File::open(trace).unwrap()).unwrap() {
        let event = event.unwrap();
        let stopgap_trace::Kind::Wait(wait) = &event.kind else {
            continue;
        };
        before += u64::from(event.time.0 < begin);
        after += u64::from(wait.left.0 > end);
        let name = wait.call.as_ref().and_then(|call| call.name.as_deref());
        within += u64::from(name == Some("flock") && wait.left.0 == begin);
    }
    assert!(before > 0 && after > 0, "{before} {after}");
    assert_eq!(within, 1);
}

/// One of two programs that are watched is stopped by SIGSTOP: the page names who sent it, and the watch ends with the last of them.
#[test]
fn a_stopped_process_is_a_page() {
    if !may("watch") {
        return;
    }
    let mut asleep = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let mut other = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let pid = asleep.id();
    let own = format!("{},{pid}", other.id());
    let watching = Watching::start(&[
        "--psi",
        "off",
        "-p",
        &own,
        "--slow",
        "stopped=300ms",
        "--json",
    ]);
    crate::common::signal("-STOP", pid);
    until_state(pid, 'T');
    std::thread::sleep(std::time::Duration::from_millis(400));
    crate::common::signal("-CONT", pid);
    wait_for("the page", || (watching.pages() == 1).then_some(()));
    for child in [&mut other, &mut asleep] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (output, _run, _folder) = watching.end();
    let said = text(&output.stdout);
    let line = valid("stopgap.watch-3.json", said.lines().next().unwrap());
    let trigger = &line["triggers"][0];
    assert_eq!(trigger["kind"], "stopped", "{said}");
    assert_eq!(trigger["tid"], pid, "{said}");
    let by = &trigger["stopped_by"];
    assert_eq!(
        (by["signal"].as_u64(), &by["task"]),
        (Some(19), &Value::from("kill")),
        "{said}"
    );
    assert!(
        trigger["measured_ns"].as_u64().unwrap() >= 300_000_000,
        "{said}"
    );
    assert_eq!(line["cause"]["word"], "stopped", "{said}");
    assert_eq!(line["cause"]["culprit"]["task"], "kill", "{said}");
}

/// A program marks a moment by the header, and nobody needs to know it before.
#[test]
fn a_mark_of_a_program_is_a_page() {
    if !may("watch") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("marks.c");
    let program = folder.path().join("marks");
    let content = "#include \"stopgap_mark.h\"\n#include <unistd.h>\n\
                int main(void) { stopgap_mark(\"frame\"); usleep(1000); stopgap_mark(\"late\"); return 0; }\n";
    std::fs::write(&source, content).unwrap();
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi/include");
    let built = std::process::Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-I", include, "-o"])
        .args([&program, &source])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        skip(&Skip::program("cc"));
        return;
    }
    let watching = Watching::start(&[&QUIET[..], &["--mark", "late", "--json"]].concat());
    assert!(
        std::process::Command::new(&program)
            .status()
            .unwrap()
            .success()
    );
    wait_for("the page", || (watching.pages() == 1).then_some(()));
    watching.signal("-INT");
    let (output, _run, _folder) = watching.end();
    let said = text(&output.stdout);
    let line = valid("stopgap.watch-3.json", said.lines().next().unwrap());
    assert_eq!(line["triggers"][0]["mark"], "late", "{said}");
    assert_eq!(line["triggers"][0]["task"], "marks", "{said}");
    let trace = std::fs::File::open(line["trace"].as_str().unwrap()).unwrap();
    let marks: Vec<String> = Input::new(trace)
        .unwrap()
        .filter_map(|event| match event.unwrap().kind {
            stopgap_trace::Kind::Mark { name } => Some(name.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(marks, ["frame", "late"]);
}

/// A program that maps, and tells how many mappings it has made by when.
const LEAK: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static void __attribute__((noinline)) leaky_map(void)
{
	if (mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		exit(1);
	__asm__ volatile("");
}
static void __attribute__((noinline)) serve_request(void)
{
	leaky_map();
	__asm__ volatile("");
}
int main(int argc, char **argv)
{
	long maps = argc > 1 ? atol(argv[1]) : 0;
	for (long i = 0; i < maps; i++)
		leaky_map();
	for (;;) {
		struct timespec now;
		clock_gettime(CLOCK_MONOTONIC, &now);
		printf("%lld %ld\n", now.tv_sec * 1000000000LL + now.tv_nsec, maps);
		fflush(stdout);
		for (int i = 0; i < 20; i++, maps++) {
			serve_request();
			usleep(1000);
		}
	}
}
"#;

/// A process that maps at some hundred mappings a second: the page has how many, the time to the limit and the function that maps.
#[test]
fn mappings_that_grow_are_told_long_before_the_limit() {
    if !may("watch") {
        return;
    }
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("leak.c");
    let program = folder.path().join("leak");
    std::fs::write(&source, LEAK).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-O1", "-g", "-o"])
        .args([&program, &source])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        skip(&Skip::program("cc"));
        return;
    }
    let told = folder.path().join("told");
    let mut leak = std::process::Command::new(&program)
        .arg((limit / 16).to_string())
        .stdout(std::fs::File::create(&told).unwrap())
        .spawn()
        .unwrap();
    let pid = leak.id().to_string();
    let words = ["--psi", "off", "--slow", "off", "--json", "--map-growth"];
    let watching = Watching::start(&[&words[..], &["24h/1s", "-p", &pid]].concat());
    wait_for("the page", || (watching.pages() > 0).then_some(()));
    leak.kill().unwrap();
    leak.wait().unwrap();
    let (output, _run, _folder) = watching.end();
    let said = text(&output.stdout);
    let line = valid("stopgap.watch-3.json", said.lines().next().unwrap());
    let trigger = &line["triggers"][0];
    assert_eq!(trigger["kind"], "map-growth", "{said}");
    assert_eq!(trigger["task"], "leak", "{said}");
    let number = |value: &Value| value.as_u64().unwrap() as f64;
    let growth = &trigger["growth"];
    let [maps, per_hour] = ["maps", "per_hour"].map(|name| number(&growth[name]));
    assert_eq!(growth["limit"], limit);

    let rows = std::fs::read_to_string(&told).unwrap();
    let rows: Vec<(f64, f64)> = rows
        .lines()
        .filter_map(|row| {
            let (time, made) = row.split_once(' ')?;
            Some((time.parse().ok()?, made.parse().ok()?))
        })
        .collect();
    let at = number(&trigger["at_ns"]);
    let made = rows.iter().rfind(|(time, _)| *time <= at).unwrap().1;
    // It maps on while watch looks, and beside what it made it has its program, its libraries and its stack.
    let (first, last) = (rows[0], rows[rows.len() - 1]);
    assert!(
        (made..last.1 + 100.0).contains(&maps),
        "{made} made: {said}"
    );
    // Others may take its CPU for most of a window; what a known rate gives is held by a test of watch/growth.rs.
    let rate = (last.1 - first.1) / (last.0 - first.0) * 3_600e9;
    assert!(
        (rate / 10.0..rate * 10.0).contains(&per_hour),
        "{rate}: {said}"
    );
    let left = (limit as f64 - maps) / per_hour * 3_600e9;
    let forecast = number(&trigger["measured_ns"]);
    assert!((forecast / left - 1.0).abs() < 0.02, "{left}: {said}");

    let frames = line["mapped_by"][0]["frames"].as_array().unwrap();
    let frames: Vec<&str> = frames.iter().filter_map(Value::as_str).collect();
    let code = ["main", "serve_request", "leaky_map"];
    assert!(frames.windows(3).any(|frames| frames == code), "{frames:?}");
    let cause = line["cause"]["text"].as_str().unwrap();
    assert!(cause.contains("serve_request > leaky_map"), "{cause}");
}

/// A watch that is killed leaves its last seconds, and the next one makes a page of them; one that ends in order leaves nothing.
#[test]
fn the_last_seconds_survive_a_killed_watch() {
    if !may("watch") {
        return;
    }
    let words = [&QUIET[..], &["--survive", "--buffer", "2M"]].concat();
    let mut watching = Watching::start(&words);
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    watching.child.kill().unwrap();
    watching.child.wait().unwrap();
    let left = |folder: &Path| {
        let all = names(folder);
        all.into_iter()
            .filter(|name| name.ends_with(".box"))
            .count()
    };
    assert_eq!(left(&watching.folder), 1);
    let again = watching.run.output(&[
        "watch",
        "-o",
        watching.folder.to_str().unwrap(),
        "--psi",
        "off",
        "--slow",
        "off",
        "-d",
        "2s",
    ]);
    let said = text(&again.stdout);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert!(
        said.contains("the last seconds before the watch was cut off: "),
        "{said}"
    );
    assert_eq!(left(&watching.folder), 0);
    let page = stalls(&watching.folder);
    let page = page.iter().find(|name| name.ends_with(".txt")).unwrap();
    let page = std::fs::read_to_string(watching.folder.join(page)).unwrap();
    assert!(
        page.contains("TRACE ") && page.contains("WINDOW "),
        "{page}"
    );
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
         {stopgap} watch --psi off --slow off --buffer 1M -o {small} 2>{told} & watch=$!; \
         told() {{ until grep -q \"$1\" {told} || ! kill -0 $watch; do sleep 0.05; done; }}; \
         told 'Ctrl-C ends'; \
         kill -USR1 $watch; told 'could not be written'; kill -0 $watch && echo goes on; \
         kill -INT $watch; wait $watch; \
         echo status $?; cat {told} >&2; ls -A {small} | grep -v history | wc -l",
        small = small.display(),
        stopgap = crate::common::STOPGAP,
        told = run.path("told").display(),
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

/// Waits of known calls, each measured by the program itself.
const WAITER: &str = r#"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static long long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
int main(void) {
	long long slept = 0, polled = 0;
	struct timespec length = { 0, 4000000 };
	for (int i = 0; i < 150; i++) {
		long long begin = now();
		clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL);
		slept += now() - begin;
		begin = now();
		poll(NULL, 0, 3);
		polled += now() - begin;
	}
	struct timespec ran;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ran);
	printf("%lld %lld %lld\n", slept, polled, ran.tv_sec * 1000000000LL + ran.tv_nsec);
	return 0;
}
"#;

/// Nanoseconds that the hypervisor took from this machine's CPUs, where the kernel counts them.
fn stolen() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let mut words = stat.lines().next().unwrap().split_whitespace();
    let ticks: u64 = words.nth(8).map_or(0, |word| word.parse().unwrap());
    ticks * 10_000_000
}

/// What the kernel counted is what the program measured, and another watch goes on with the history.
#[test]
fn a_history_adds_up_to_what_a_program_measured_itself() {
    if !may("watch") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (source, program) = (
        place.path().join("waiter.c"),
        place.path().join("hist-waiter"),
    );
    std::fs::write(&source, WAITER).unwrap();
    let built = std::process::Command::new("cc")
        .args([source.as_os_str(), "-o".as_ref(), program.as_os_str()])
        .output();
    if !built.is_ok_and(|built| built.status.success()) {
        return skip(&Skip::program("cc"));
    }
    // The sleeps, the polls, and the CPU time.
    let mut measured = [0_u64; 3];
    let (mut waits, stolen) = (0, stolen());
    let run = Run::new();
    let folder = run.directory.path().join("kept");
    for round in 0..2 {
        let words = [&["watch", "-o", folder.to_str().unwrap()], &QUIET[..]].concat();
        let told = run.path(format!("told-{round}"));
        let errors = std::fs::File::create(&told).unwrap();
        let mut command = run.command(&words);
        let child = command
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        wait_for("its beginning", || {
            let told = std::fs::read_to_string(&told).unwrap();
            told.contains("Ctrl-C ends").then_some(())
        });
        let output = std::process::Command::new(&program).output().unwrap();
        for (all, one) in measured
            .iter_mut()
            .zip(text(&output.stdout).split_whitespace())
        {
            *all += one.parse::<u64>().unwrap();
        }
        crate::common::signal("-INT", child.id());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        waits += 150;
    }
    let folder = folder.to_str().unwrap();
    let output = run.output(&["watch", "--history", "-1h", "--json", "-o", folder]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document = valid("stopgap.history-1.json", &text(&output.stdout));
    let sum = |call: Option<&str>, field: &str, cause: &dyn Fn(&str) -> bool| -> u64 {
        let kinds = document["kinds"].as_array().unwrap().iter();
        let ours = kinds.filter(|kind| {
            kind["process"] == "hist-waiter"
                && kind["call"].as_str() == call
                && cause(kind["cause"].as_str().unwrap())
        });
        ours.map(|kind| kind[field].as_u64().unwrap()).sum()
    };
    // Beside other tests with thousands of processes there may be no room for a kind of ours.
    let no_room = |field: &str| -> u64 {
        let kinds = document["kinds"].as_array().unwrap().iter();
        let others = kinds.filter(|kind| kind["process"].is_null());
        others.map(|kind| kind[field].as_u64().unwrap()).sum()
    };
    // Between two looks at its clock the program may also have lost its CPU outside of the call.
    let outside = sum(None, "ns", &|_| true) + no_room("ns");
    // What is no wait is its own time, or the hypervisor's, which is in no CPU time where the kernel knows of it.
    let ran = measured[2] + (self::stolen() - stolen);
    for (call, measured) in [("clock_nanosleep", measured[0]), ("poll", measured[1])] {
        let counted = sum(Some(call), "ns", &|_| true);
        assert!(
            counted <= measured + measured / 100,
            "{call}: {counted} of {measured}"
        );
        assert!(
            counted + outside + ran >= measured - measured / 100,
            "{call}: {counted}, {outside} and {ran} of {measured}"
        );
        // A sleep is none where its timer was faster than the way off the CPU.
        let slept = sum(Some(call), "waits", &|cause| cause == "idle");
        assert!(
            slept <= waits && slept + no_room("waits") >= waits - 10,
            "{call}: {slept}"
        );
    }
    let output = run.output(&["watch", "--history", "-1h", "-o", folder]);
    let said = text(&output.stdout);
    assert!(
        said.lines().count() > 3 && said.contains(" watched"),
        "{said}"
    );
    let page = run.path("history.html");
    let output = run.output(&[
        "watch",
        "--history",
        "-1h",
        "--html",
        page.to_str().unwrap(),
        "-o",
        folder,
    ]);
    assert_eq!(text(&output.stdout), format!("report {}\n", page.display()));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(
        html.contains("<svg") && html.contains("hist-waiter"),
        "{html}"
    );
    // The screen names a file that is cut, and the others are read.
    let place = Path::new(folder).join("history");
    let part = names(&place)
        .into_iter()
        .find(|name| name.starts_with("part-"))
        .unwrap();
    let bytes = std::fs::read(place.join(&part)).unwrap();
    std::fs::write(place.join(&part), &bytes[..bytes.len() / 2]).unwrap();
    let output = run.output(&["watch", "--history", "-1h", "-o", folder]);
    let said = text(&output.stdout);
    assert!(
        said.contains(&format!("unknown: what {part} has: ")),
        "{said}"
    );
}

#[test]
fn a_history_that_is_not_there_is_said_in_one_line() {
    let run = Run::new();
    run.refuses(
        "watch --history -1h -o nowhere",
        &["nowhere/history", "stopgap watch"],
    );
    run.refuses("watch --history 24", &["-24h"]);
    let empty = run.directory.path().join("empty/history");
    std::fs::create_dir_all(&empty).unwrap();
    let empty = empty.parent().unwrap().to_str().unwrap();
    let output = run.output(&["watch", "--history", "-1h", "-o", empty]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(text(&output.stdout).contains("nothing was watched in this time"));
    if root() {
        use std::os::unix::fs::PermissionsExt;
        let closed = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(Path::new(empty).join("history"), closed).unwrap();
        let output = run
            .as_nobody(&["watch", "--history", "-1h", "-o", empty])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}

#[test]
fn what_cannot_be_watched_is_said_in_one_line() {
    let run = Run::new();
    run.refuses("watch --buffer 1", &["at least 1 MiB"]);
    run.refuses("watch --finish /nonexistent", &["/nonexistent/spool.json"]);
    if root() {
        let output = run.as_nobody(&["watch", "-d", "1s"]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(text(&output.stderr).contains("or root"), "{output:?}");
    }
}

/// From one frame of the tests to the next.
const PERIOD: u64 = 16_000_000;

/// Draws frames by the clock until it is to end. Returns the longest time from a beat to the end of the sleep after its frame.
fn draw(ends: &AtomicBool, mut frame: impl FnMut()) -> u64 {
    let now = || Linux.now().0;
    let (mut beat, mut longest) = (now(), 0);
    while !ends.load(Ordering::Relaxed) {
        let due = beat;
        frame();
        beat += (now() - beat) / PERIOD * PERIOD + PERIOD;
        std::thread::sleep(Duration::from_nanos(beat.saturating_sub(now())));
        longest = longest.max(now() - due);
    }
    longest
}

/// A thread draws at 62.5 Hz and waits once for a lock. Another one draws beside it, and would be late only where it says so itself.
#[test]
fn a_late_frame_is_a_page() {
    if !may("watch") {
        return;
    }
    let words = words("--frame pulse --frame even=62.5Hz --frame-late 150ms --json");
    let watching = Watching::start(&[&QUIET[..], &words].concat());
    let (ends, misses) = (AtomicBool::new(false), AtomicBool::new(false));
    let waits = AtomicBool::new(false);
    let lock = Mutex::new(());
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let (longest, kept) = std::thread::scope(|scope| {
        let even = named("even").spawn_scoped(scope, || draw(&ends, || ()));
        let pulse = || {
            draw(&ends, || {
                if misses.load(Ordering::Relaxed) {
                    waits.store(true, Ordering::Relaxed);
                    drop(lock.lock().unwrap());
                }
            })
        };
        named("pulse").spawn_scoped(scope, pulse).unwrap();
        wait_for("the rhythm", || {
            watching.told().contains("frames of pulse (").then_some(())
        });
        let keep = || {
            let kept = lock.lock().unwrap();
            misses.store(true, Ordering::Relaxed);
            // Where it has no CPU, it comes to the lock late.
            wait_for("the one who draws", || {
                waits.load(Ordering::Relaxed).then_some(())
            });
            misses.store(false, Ordering::Relaxed);
            let begun = Linux.now();
            std::thread::sleep(Duration::from_millis(400));
            let kept_until = Linux.now();
            drop(kept);
            begun.0..kept_until.0
        };
        let keeper = named("keeper").spawn_scoped(scope, keep).unwrap();
        let kept = keeper.join().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        ends.store(true, Ordering::Relaxed);
        (even.unwrap().join().unwrap(), kept)
    });
    wait_for("the page", || (watching.pages() > 0).then_some(()));
    watching.signal("-INT");
    let (output, _run, _folder) = watching.end();
    let said = text(&output.stdout);
    let lines: Vec<Value> = said
        .lines()
        .map(|line| valid("stopgap.watch-3.json", line))
        .collect();
    let pairs = |line: &Value| {
        let of = |name: &str| line[name].as_array().cloned().unwrap_or_default();
        of("triggers")
            .into_iter()
            .zip(of("causes"))
            .collect::<Vec<_>>()
    };
    let frames: Vec<(Value, Value)> = lines.iter().flat_map(pairs).collect();
    let late = |of: &str| {
        let own = frames.iter().filter(|(trigger, _)| trigger["task"] == of);
        own.max_by_key(|(trigger, _)| trigger["measured_ns"].as_u64())
    };
    // On a busy machine others are late, too.
    let of_lock = frames.iter().find(|(trigger, _)| {
        let [begin, at] = ["begin_ns", "at_ns"].map(|name| trigger[name].as_u64().unwrap());
        trigger["task"] == "pulse" && begin <= kept.start && kept.end <= at
    });
    let (trigger, cause) = of_lock.unwrap_or_else(|| panic!("a late frame: {kept:?} {said}"));
    assert_eq!(trigger["kind"], "frame", "{said}");
    let ns = |name: &str| trigger[name].as_u64().unwrap();
    assert!(ns("measured_ns") > 300_000_000, "{said}");
    assert_eq!(
        ns("measured_ns"),
        ns("at_ns") - ns("begin_ns") - ns("window_ns")
    );
    assert!(ns("window_ns").abs_diff(PERIOD) < PERIOD / 5, "{said}");
    assert_eq!(cause["word"], "lock", "{said}");
    assert_eq!(cause["culprit"]["task"], "keeper", "{said}");
    if let Some((trigger, _)) = late("even") {
        let late = trigger["measured_ns"].as_u64().unwrap();
        assert!(longest >= late + PERIOD, "{longest} {said}");
    }
    let told = &lines.last().unwrap()["frames"][0];
    assert!(told["late"].as_u64() > Some(0), "{said}");
}

/// Three programs are stopped by SIGSTOP: one in the watched group, one that comes into it later, and one that is outside. The watch ends
/// with the group.
#[test]
fn a_control_group_is_watched_with_what_comes_into_it() {
    if !may("watch") {
        return;
    }
    const SLEEPS: &str = "while :; do sleep 0.05; done";
    for place in hierarchies() {
        let Some(group) = Group::make(&place, "watch") else {
            continue;
        };
        let run = Run::new();
        let [inside, moved, outside] =
            ["inside", "moved", "outside"].map(|name| Program::start(&run, name, SLEEPS));
        group.put("below", inside.pid());
        let folder = group.0.to_str().unwrap();
        let words = words("--psi off --map-growth off --slow stopped=100ms --json --cgroup");
        let watching = Watching::start(&[&words[..], &[folder]].concat());
        group.put("", moved.pid());
        // It is looked for ten times a second, or less often where there is no CPU.
        wait_for("the page", || {
            for name in ["-STOP", "-CONT"] {
                for program in [&inside, &moved, &outside] {
                    crate::common::signal(name, program.pid());
                }
                std::thread::sleep(Duration::from_millis(200));
            }
            (watching.pages() > 0).then_some(())
        });
        let pids = [&inside, &moved, &outside].map(Program::pid);
        drop((inside, moved, outside));
        drop(group);
        let (output, ..) = watching.end();
        let said = text(&output.stdout);
        let mut lines = said.lines().map(|line| valid("stopgap.watch-3.json", line));
        let triggers = lines.next().unwrap()["triggers"].clone();
        let fired = |pid: u32| {
            triggers
                .as_array()
                .unwrap()
                .iter()
                .any(|one| one["pid"] == pid)
        };
        assert_eq!(pids.map(fired), [true, true, false], "{said}");
        let end = lines.next_back().unwrap();
        assert_eq!(end["why"], "the control group is gone", "{said}");
    }
}
