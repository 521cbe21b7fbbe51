//! A recorded program that wants the recorder to read wrongly: its names, its execs, its registers, its arguments.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Output;

use stopgap_trace::{Event, Input, Kind};

use crate::common::{self, Run, has, text, words};

/// What a file's name, and so a process's, may have: a line feed, an escape sequence, quotes, braces, what separates frames
/// of a stack, no UTF-8.
const NAME: &[u8] = b"a\n\x1b[1m\"'{;}\xff\\";

/// Sources that record here, each with flags that record only the command.
fn sources() -> Vec<&'static str> {
    common::sources(
        "--source bpf --only",
        &["--source tracefs --events scheduling", "--source perf"],
    )
}

/// Records a command into `t.parquet`; the summary, in which nothing was lost.
fn record(run: &Run, source: &str, command: &[&OsStr]) -> String {
    let mut all = words("record");
    all.extend(words(source));
    all.extend(["-o", "t.parquet", "--"]);
    let output = run.command(&all).args(command).output().unwrap();
    let summary = plain(&output);
    has(&summary, &["lost      none"]);
    summary
}

/// Checks that nothing was printed that a terminal would obey, and returns standard output.
fn plain(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for text in [&output.stdout, &output.stderr] {
        let text = std::str::from_utf8(text).expect("UTF-8");
        let control = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{text:?}");
    }
    text(&output.stdout)
}

fn trace(run: &Run) -> Vec<Event> {
    let file = File::open(run.path("t.parquet")).unwrap();
    let input = Input::new(file).unwrap().as_recorded();
    input.map(Result::unwrap).collect()
}

/// Explains the trace, and reads it as JSON lines, one by one.
fn read(run: &Run) -> Vec<serde_json::Value> {
    plain(&run.output(&["explain", "t.parquet"]));
    let exported = run.output(&["export", "t.parquet", "--to", "jsonl", "-o", "-"]);
    assert_eq!(exported.status.code(), Some(0), "{exported:?}");
    let lines = text(&exported.stdout);
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

/// A program with such a name, which others have mapped, too: rows have the name, and a screen shows it without its control characters.
#[test]
fn a_name_is_data() {
    for source in sources() {
        let run = Run::new();
        let program = run.path(OsStr::from_bytes(NAME));
        stopgap_kernel::fake::install(Path::new("/bin/sh"), &program);
        let script = OsStr::new("sleep 0.02; sleep 0.02; :");
        let summary = record(
            &run,
            source,
            &[program.as_os_str(), OsStr::new("-c"), script],
        );
        has(&summary, &["ended with status 0"]);
        let lines = read(&run);
        let named = |line: &&serde_json::Value| {
            let comm = line["comm"].as_str();
            comm.is_some_and(|comm| comm.starts_with("a\n\u{1b}[1m\"'{;}"))
        };
        let named: Vec<_> = lines.iter().filter(named).collect();
        assert!(named.len() > 2, "{source}: {:?}", &lines[..5]);
        // Its file's name is part of a frame, and separates none.
        let stacks = named.iter().filter_map(|line| line["user_stack"].as_str());
        let stacks: Vec<_> = stacks.collect();
        assert_eq!(source.contains("bpf"), !stacks.is_empty(), "{source}");
        let half = |stack: &&&str| stack.split(';').any(|frame| frame.starts_with('}'));
        assert_eq!(stacks.iter().find(half), None);
    }
}

/// A shell that gives itself another name all the time: each name is a row, and names after the storm are right.
#[test]
fn a_process_may_rename_itself_all_the_time() {
    const RENAMES: usize = 1_000;
    for source in sources() {
        let run = Run::new();
        let script = format!(
            "i=0; while [ $i -lt {RENAMES} ]; do printf 'n\\033;%s\\n' $i >/proc/$$/comm; i=$((i+1)); done; sleep 0.02; :"
        );
        record(&run, source, &["sh", "-c", &script].map(OsStr::new));
        let lines = read(&run);
        let slept = lines
            .iter()
            .find(|line| line["kind"] == "exec" && line["comm"] == "sleep");
        assert!(slept.is_some(), "{source}");
        if source.contains("bpf") {
            let renamed = lines.iter().filter(|line| line["moment"] == "renamed");
            assert!(renamed.count() >= RENAMES, "{source}");
        }
    }
}

/// A script that executes itself again and again is one process to the end.
#[test]
fn a_storm_of_execs_is_one_process() {
    const EXECS: usize = 100;
    for source in sources() {
        let run = Run::new();
        let script = format!("#!/bin/sh\n[ $1 -ge {EXECS} ] && exit 0\nexec $0 $(($1+1))\n");
        let path = run.path("storm");
        stopgap_kernel::fake::script(&path, &script);
        let summary = record(&run, source, &[path.as_os_str(), OsStr::new("1")]);
        has(&summary, &["ended with status 0"]);
        let events = trace(&run);
        let execs: Vec<_> = events
            .iter()
            .filter(|event| event.kind.word() == "exec")
            .collect();
        let ours = execs
            .iter()
            .filter(|event| event.pid == execs.last().and_then(|last| last.pid));
        assert_eq!(ours.count(), EXECS, "{source}");
        read(&run);
    }
}

/// Tells a process of this test that it is the recorded one.
const POINTS_NOWHERE: &str = "STOPGAP_TEST_POINTS_NOWHERE";

/// Addresses that are nowhere, in the kernel, off alignment, across the end of all addresses.
const PLACES: [u64; 7] = [
    0,
    8,
    0x13,
    0xdead_0000,
    0x7fff_ffff_fff8,
    0xffff_8000_0000_0000,
    u64::MAX - 6,
];

/// Waits for 3 ms in poll(2) of no descriptors at all, with the stack pointer and the first argument at `place`.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn waits_with_stack_at(place: u64) {
    const POLL: i64 = 7;
    // SAFETY: nothing uses the stack between the two moves, no signal comes, and poll(2) of 0 descriptors reads none.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, r13",
            "syscall",
            "mov rsp, r12",
            inlateout("rax") POLL => _,
            in("rdi") place,
            in("rsi") 0,
            in("rdx") 3,
            in("r13") place,
            out("r12") _,
            out("rcx") _,
            out("r11") _,
        );
    }
}

/// A stack pointer or an argument that points nowhere: the stack is unknown, the wait is not.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_stack_may_be_nowhere() {
    if std::env::var_os(POINTS_NOWHERE).is_some() {
        PLACES.into_iter().for_each(waits_with_stack_at);
        return;
    }
    for source in sources() {
        let run = Run::new();
        let own = std::env::current_exe().unwrap();
        let name = "record_hostile::a_stack_may_be_nowhere";
        let variable = format!("{POINTS_NOWHERE}=1");
        let command = [
            OsStr::new("env"),
            OsStr::new(&variable),
            own.as_os_str(),
            OsStr::new("--exact"),
            OsStr::new(name),
        ];
        has(&record(&run, source, &command), &["ended with status 0"]);
        let events = trace(&run);
        for place in PLACES.into_iter().filter(|_| source.contains("bpf")) {
            let waited = events.iter().find_map(|event| match &event.kind {
                Kind::Wait(wait) if wait.stack_pointer == Some(place) => Some(wait),
                _ => None,
            });
            let waited = waited.unwrap_or_else(|| panic!("the wait at {place:#x}"));
            let call = waited.call.as_ref().expect("the call");
            assert_eq!(call.name.as_deref(), Some("poll"), "{waited:?}");
            assert_eq!(call.arguments[0], Some(place), "{waited:?}");
            // The function that waits is known by its instruction; who called it is not.
            let frames = waited.user_stack.as_ref();
            let frames = frames.map_or(0, |stack| stack.frames.split(';').count());
            assert!(frames <= 2, "{place:#x}: {waited:?}");
        }
        read(&run);
    }
}
