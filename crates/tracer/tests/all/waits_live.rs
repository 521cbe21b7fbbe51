//! Waits by BPF of commands on the running kernel, as root; otherwise skipped, and said so.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stopgap_events::units::Nanos;
use stopgap_events::wait::{State, Wait, Within};
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::linux::{Ended, Held};
use stopgap_trace::{Activity, Event, Kind, Metadata, Moment, TaskCounts};
use stopgap_tracer::recording::{By, Recording};
use stopgap_tracer::spool::{End, Spool};
use stopgap_tracer::symbols::Symbols;
use stopgap_tracer::waits::Options;

use crate::{A_HANG, alone, or_skip};
use stopgap_testing::{Skip, skip};

/// Records the command; `None` where this machine does not let us.
fn spool_of(folder: &Path, words: &[&str]) -> Option<(Spool, Ended, u32)> {
    let _alone = alone();
    let by = By::Waits(Options::default());
    let spool = folder.join("spool");
    let prepared = Recording::prepare(&Linux, &spool, words.join(" ").into(), None, &by);
    let mut recording = or_skip(prepared)?;
    let words: Vec<_> = words.iter().map(std::ffi::OsString::from).collect();
    let held = Held::start(&words).unwrap();
    let pid = held.pid();
    recording.start(pid).unwrap();
    let child = held.release().unwrap();
    let deadline = Linux.now() + A_HANG;
    let ended = loop {
        recording
            .pump(Some(child.watched()), Nanos::millis(50))
            .unwrap();
        if let Some(ended) = child.ended().unwrap() {
            break ended;
        }
        assert!(Linux.now() < deadline, "it does not end");
    };
    Some((recording.stop(End::default()).unwrap(), ended, pid))
}

fn events_of(spool: &Spool) -> (Vec<Event>, Metadata) {
    let mut trace = spool.trace(&Symbols::default()).unwrap();
    let mut events = Vec::new();
    while let Some(event) = trace.next_event().unwrap() {
        events.push(event);
    }
    (events, trace.metadata())
}

/// A trace file that is made while its command runs has what the one has that is made afterwards.
#[test]
fn a_trace_that_is_written_meanwhile_is_the_one_that_is_written_afterwards() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let by = By::Waits(Options::default());
    let path = folder.path().join("spool");
    let prepared = Recording::prepare(&Linux, &path, "sh".into(), None, &by);
    let Some(mut recording) = or_skip(prepared) else {
        return;
    };
    let held = Held::start(&["sh", "-c", PROCESSES].map(std::ffi::OsString::from)).unwrap();
    recording.start(held.pid()).unwrap();
    assert!(recording.may_be_followed());
    let child = held.release().unwrap();
    let spool = Spool::open(&path).unwrap();
    assert!(spool.may_be_followed());
    let mut following = spool.follow(&Symbols::default(), Vec::new()).unwrap();
    let (mut marks, begin, mut ended) = (0, Linux.now(), None);
    // On, until some of it is older than the watermark. On a busy machine each turn may take long.
    while ended.is_none() || Linux.now() < begin + Nanos::millis(500) || marks <= 10 {
        ended = ended.or_else(|| child.ended().unwrap());
        recording
            .pump(Some(child.watched()), Nanos::millis(5))
            .unwrap();
        marks += 1;
        following.reach(recording.drained(), || Ok(())).unwrap();
    }
    let early = following.written();
    let spool = recording.stop(End::default()).unwrap();
    let written = following.finish(|| Ok(())).unwrap();
    let all: u64 = written.counts.values().sum();
    assert!(0 < early && early < all, "{early} of {all} while it ran");
    let (expected, metadata) = events_of(&spool);
    assert_eq!(written.metadata, metadata);
    let file = folder.path().join("trace");
    fs::write(&file, written.out).unwrap();
    let reader = stopgap_trace::file::Reader::new(fs::File::open(&file).unwrap()).unwrap();
    let events: Vec<Event> = reader.map(Result::unwrap).collect();
    assert_eq!(events.len(), expected.len());
    // Which cgroup a process is in is read a little later: who reads afterwards knows it earlier.
    let without_cgroup = |mut event: Event| {
        if let Kind::Task(task) = &mut event.kind {
            task.cgroup = None;
        }
        event
    };
    let pairs = events.into_iter().zip(expected);
    let mut pairs = pairs.map(|(own, other)| (without_cgroup(own), without_cgroup(other)));
    assert_eq!(pairs.find(|(own, other)| own != other), None);
}

/// A shell that starts processes and waits for them.
const PROCESSES: &str = "for i in 1 2 3 4 5 6 7 8; do sleep 0.01; done; echo x | cat >/dev/null";

#[test]
fn every_switch_of_a_command_and_its_children_is_a_wait() {
    let folder = tempfile::tempdir().unwrap();
    let Some((spool, ended, pid)) = spool_of(folder.path(), &["sh", "-c", PROCESSES]) else {
        return;
    };
    let (events, metadata) = events_of(&spool);
    assert_eq!(metadata.losses, Some(Vec::new()));
    let sorted = events
        .windows(2)
        .filter(|pair| pair[0].time > pair[1].time)
        .count();
    assert!(
        sorted <= events.len() / 100,
        "{sorted} of {} come late",
        events.len()
    );
    // The command and all that it forked.
    let mut ours = vec![pid];
    for event in &events {
        if let Kind::Fork { target_tid, .. } = event.kind
            && event.tid.is_some_and(|maker| ours.contains(&maker))
        {
            ours.push(target_tid);
        }
    }
    assert_eq!(ours.len(), 11, "the shell, 8 sleeps, 2 of the pipe");
    let is_ours = |event: &&Event| event.tid.is_some_and(|tid| ours.contains(&tid));
    let mut counts: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    // A thread counts itself in its exit, and may lose its CPU after that.
    let (mut ended_threads, mut after) = (Vec::new(), 0);
    for event in events.iter().filter(is_ours) {
        let wait = match &event.kind {
            Kind::Wait(wait) => wait,
            Kind::Exit { .. } => {
                ended_threads.push(event.tid);
                continue;
            }
            _ => continue,
        };
        check(wait, event.time);
        if ended_threads.contains(&event.tid) {
            after += 1;
            continue;
        }
        if wait.within == Some(Within::New) {
            continue;
        }
        let (slept, ready) = counts.entry(event.tid.unwrap()).or_default();
        *if wait.state == Some(State::Runnable) {
            ready
        } else {
            slept
        } += 1;
    }
    let exits = events
        .iter()
        .filter(is_ours)
        .filter_map(|event| match &event.kind {
            Kind::Task(task) if task.moment == Moment::Exit => Some((event.tid.unwrap(), &**task)),
            _ => None,
        });
    let exits: Vec<(u32, &TaskCounts)> = exits.collect();
    assert_eq!(exits.len(), ours.len());
    for (tid, counted) in exits {
        let (slept, ready) = counts.get(&tid).copied().unwrap_or_default();
        // The recorder held the command before it was followed.
        let edge = if tid == pid { 6 } else { 2 };
        let kernel = counted.voluntary.unwrap() + counted.involuntary.unwrap();
        assert!(
            kernel.abs_diff(slept + ready) <= edge,
            "{tid}: {slept} + {ready}, {counted:?}"
        );
    }
    let before: u64 = counts.values().map(|(slept, ready)| slept + ready).sum();
    let all = before + after;
    let rusage = ended.switches.voluntary + ended.switches.involuntary;
    assert!(
        all.abs_diff(rusage) <= 2 * 11 + 4,
        "{all} waits, rusage {rusage}"
    );
    sleeps(&events, &ours);
    spool.remove().unwrap();
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing stays"
    );
}

/// Times of a wait are in order.
fn check(wait: &Wait, time: Nanos) {
    assert_eq!(wait.ran, Some(time), "{wait:?}");
    let woken = wait.woken.unwrap_or(wait.left);
    assert!(wait.left <= woken && woken <= time, "{wait:?}");
}

/// The eight sleeps of 10 ms, in the call and woken by a timer. One that lost its CPU between the timer's start and its sleep
/// sleeps less.
fn sleeps(events: &[Event], ours: &[u32]) {
    let of_sleep = events.iter().filter_map(|event| match &event.kind {
        Kind::Wait(wait)
            if event.comm.as_deref() == Some("sleep")
                && event.tid.is_some_and(|tid| ours.contains(&tid)) =>
        {
            Some(wait)
        }
        _ => None,
    });
    let long: Vec<_> = of_sleep
        .filter(|wait| wait.asleep().is_some_and(|slept| slept >= Nanos::millis(5)))
        .collect();
    assert!((6..=8).contains(&long.len()), "{long:?}");
    for wait in long {
        let call = wait.call.as_ref().and_then(|call| call.name.as_deref());
        assert_eq!(call, Some("clock_nanosleep"), "{wait:?}");
        let stack = wait.stack.as_ref().expect("a long wait has a stack");
        assert!(!stack.of_a_like_wait);
        assert!(wait.user_stack.is_some(), "{wait:?}");
        let waker = wait.waker.as_ref().and_then(|waker| waker.context);
        assert_eq!(waker, Some(stopgap_events::wait::Context::Interrupt));
    }
}

#[test]
fn waits_for_pages_that_are_written_are_spans() {
    let folder = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("written-back");
    let out = format!("of={}", file.display());
    let dd = [
        "dd",
        "if=/dev/zero",
        &out,
        "bs=1M",
        "count=32",
        "conv=fsync",
    ];
    let recorded = spool_of(folder.path(), &dd);
    let _ = fs::remove_file(&file); // it is not there where nothing was recorded
    let Some((spool, ..)) = recorded else { return };
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let mut trace = spool.trace(&Symbols::parse(&kallsyms)).unwrap();
    let (mut spans, mut waits) = (Vec::new(), Vec::new());
    while let Some(event) = trace.next_event().unwrap() {
        match event.kind {
            Kind::Span(span) if span.what == Activity::Writeback => {
                spans.push((event.tid, span.begin, event.time));
            }
            Kind::Wait(wait) if wait.state == Some(State::Blocked) => {
                waits.push((event.tid, wait.left, event.time));
            }
            _ => {}
        }
    }
    if spans.is_empty() {
        return skip(&Skip::machine("a file system that does not wait for pages"));
    }
    assert!(spans.iter().all(|span| waits.contains(span)), "{spans:?}");
    spool.remove().unwrap();
}

/// Touches a page in each 64 KiB of a file, in memory where it is mapped, then reads another page of each. Nothing is read ahead.
const FAULTS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **words)
{
	enum { BYTES = 4 << 20, STEP = 64 << 10, PAGE = 4096 };
	int file = open(words[1], O_RDONLY);
	volatile char *at = mmap(0, BYTES, PROT_READ, MAP_SHARED, file, 0);
	char page[PAGE];
	if (at == MAP_FAILED || madvise((void *)at, BYTES, MADV_RANDOM) || posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM))
		return 1;
	for (long to = 0; to < BYTES; to += STEP)
		(void)at[to];
	for (long to = STEP / 2; to < BYTES; to += STEP)
		if (pread(file, page, PAGE, to) != PAGE)
			return 2;
	return 0;
}
"#;

/// A file of 4 MiB that is not in the page cache.
fn cold() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cold-{}", std::process::id()));
    fs::write(&path, vec![7; 4 << 20]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    let dropped = Command::new("dd")
        .arg(format!("if={}", path.display()))
        .args(["iflag=nocache", "count=0", "status=none"])
        .status();
    assert!(dropped.unwrap().success());
    path
}

/// Each sleep in a page fault is in a span that began with the fault, and each sleep for a page, short ones too, is a span.
#[test]
fn faults_that_sleep_are_spans_and_so_are_short_waits_for_pages() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("faults.c"), folder.path().join("faults"));
    fs::write(&source, FAULTS).unwrap();
    let mut compiler = Command::new("cc");
    match compiler.arg("-o").arg(&program).arg(&source).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return skip(&Skip::machine(format!("no C compiler: {error}"))),
    }
    let file = cold();
    let words = [program.to_str().unwrap(), file.to_str().unwrap()];
    let recorded = spool_of(folder.path(), &words);
    fs::remove_file(&file).unwrap();
    let Some((spool, ended, pid)) = recorded else {
        return;
    };
    assert_eq!(ended.how, Ok(0));
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let mut trace = spool.trace(&Symbols::parse(&kallsyms)).unwrap();
    let (mut faults, mut pages, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(event) = trace.next_event().unwrap() {
        match event.kind {
            Kind::Span(span) if span.what == Activity::PageFault => {
                assert!(span.address.is_some_and(|address| address > 0), "{span:?}");
                faults.push((event.tid, event.time, span.begin));
            }
            Kind::Span(span) if span.what == Activity::PageLock => {
                pages.push((event.tid, event.time, span.begin));
            }
            Kind::Wait(wait) if wait.for_io == Some(true) && event.tid == Some(pid) => {
                waits.push((event.tid, event.time, wait));
            }
            _ => {}
        }
    }
    let in_fault = |wait: &Wait| wait.within == Some(Within::User) && !wait.began_before;
    let ours: Vec<_> = waits.iter().filter(|(.., wait)| in_fault(wait)).collect();
    if ours.len() < 8 {
        return skip(&Skip::machine("a disk that no fault waits for"));
    }
    for (tid, time, wait) in &ours {
        let span = faults.iter().find(|(of, end, _)| (of, end) == (tid, time));
        let (.., begin) = span.unwrap_or_else(|| panic!("{wait:?}"));
        assert!(*begin < wait.left, "{begin:?} {wait:?}");
    }
    let for_page = |wait: &Wait| {
        let frames = wait.stack.as_ref().map(|stack| &*stack.frames);
        frames.is_some_and(|frames| frames.contains("folio_wait_bit_common"))
    };
    let of_pages: Vec<_> = waits.iter().filter(|(.., wait)| for_page(wait)).collect();
    for (tid, time, wait) in &of_pages {
        assert!(pages.contains(&(*tid, *time, wait.left)), "{wait:?}");
    }
    println!(
        "{} sleeps in faults, {} for pages",
        ours.len(),
        of_pages.len()
    );
    spool.remove().unwrap();
}

/// The mappings of a process that lives for some 15 milliseconds are read while it does.
#[test]
fn stacks_of_short_lived_processes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 20 ]; do sleep 0.015; i=$((i+1)); done";
    let Some((spool, _, pid)) = spool_of(folder.path(), &["sh", "-c", script]) else {
        return;
    };
    let (events, _) = events_of(&spool);
    let mut named: BTreeMap<Option<u32>, bool> = BTreeMap::new();
    // Others on this machine may sleep, too.
    let mut ours = std::collections::BTreeSet::new();
    for event in &events {
        if let Kind::Fork { target_tid, .. } = event.kind
            && event.tid == Some(pid)
        {
            ours.insert(target_tid);
        }
        let Kind::Wait(wait) = &event.kind else {
            continue;
        };
        let call = wait.call.as_ref().and_then(|call| call.name.as_deref());
        let is_ours = event.tid.is_some_and(|tid| ours.contains(&tid));
        if is_ours && call == Some("clock_nanosleep") {
            let stack = wait.user_stack.as_ref();
            let is_named = stack.is_some_and(|stack| stack.frames.ends_with("nanosleep"));
            *named.entry(event.tid).or_default() |= is_named;
        }
    }
    let count = named.values().filter(|&&is_named| is_named).count();
    assert!(named.len() >= 15, "{named:?}");
    // The machine may be busy, and the reader come too late.
    assert!(count * 4 >= named.len() * 3, "{count} of {}", named.len());
    spool.remove().unwrap();
}

/// A program without frame pointers, in a library without them, is followed down to its start.
#[test]
fn the_stack_of_a_program_is_named_down_to_its_start() {
    let folder = tempfile::tempdir().unwrap();
    // On a busy machine the recorder reads the mappings of the process late.
    let Some((spool, ..)) = spool_of(folder.path(), &["sleep", "1.5"]) else {
        return;
    };
    let (events, _) = events_of(&spool);
    let stacks = events.iter().filter_map(|event| match &event.kind {
        Kind::Wait(wait) if event.comm.as_deref() == Some("sleep") => wait.user_stack.as_ref(),
        _ => None,
    });
    let stacks: Vec<&str> = stacks.map(|stack| &*stack.frames).collect();
    let whole = |stack: &&&str| {
        let frames: Vec<&str> = stack.split(';').collect();
        frames.len() >= 4
            && frames[0].starts_with("sleep+0x")
            && frames[1] == "__libc_start_main"
            && frames
                .last()
                .is_some_and(|frame| frame.ends_with("nanosleep"))
    };
    assert!(stacks.iter().find(whole).is_some(), "{stacks:#?}");
    spool.remove().unwrap();
}

/// Whatever is in the files, reading ends, with a line for what is wrong.
#[test]
fn damaged_files_are_read_as_far_as_they_go() {
    let folder = tempfile::tempdir().unwrap();
    let Some((spool, ..)) = spool_of(folder.path(), &["sleep", "0.02"]) else {
        return;
    };
    let (whole, _) = events_of(&spool);
    let place = spool.folder().to_owned();
    let largest = (0..3).map(|ring| place.join(format!("waits{ring}.raw")));
    let largest = largest.max_by_key(|path| fs::metadata(path).map_or(0, |about| about.len()));
    let path = largest.unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    let (cut, metadata) = events_of(&spool);
    assert!(cut.len() < whole.len());
    let says =
        |metadata: &Metadata, word: &str| metadata.missing.iter().any(|one| one.why.contains(word));
    assert!(says(&metadata, "cut off"), "{:?}", metadata.missing);
    let mut random = stopgap_events::random::Random::new(7);
    for _ in 0..200 {
        let mut changed = bytes.clone();
        for _ in 0..4 {
            let at = usize::try_from(random.below(changed.len() as u64)).unwrap();
            changed[at] = u8::try_from(random.below(256)).unwrap();
        }
        fs::write(&path, &changed).unwrap();
        fs::write(place.join("maps.jsonl"), &changed[..changed.len() / 2]).unwrap();
        events_of(&spool);
    }
    fs::write(place.join("maps.jsonl"), "").unwrap();
    fs::write(&path, [0xff; 64]).unwrap();
    let (_, metadata) = events_of(&spool);
    assert!(
        says(&metadata, "more than the largest"),
        "{:?}",
        metadata.missing
    );
    spool.remove().unwrap();
}

/// Waits in code that it made at run time, of which it wrote a perf map; from main() through that code into nanosleep(2).
const MAKES_CODE: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static void sleeps(void) { struct timespec t = {0, 2000000}; for (int i = 0; i < 200; i++) nanosleep(&t, 0); }
int main(int count, char **words)
{
	// push rbp; mov rbp, rsp; call rdi; pop rbp; ret
	static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
	char *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(at + 64, code, sizeof code);
	char name[64];
	snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
	FILE *map = fopen(name, "w");
	fprintf(map, "%lx %zx JitCompiled:handle;request\n", (unsigned long)at + 64, sizeof code);
	fclose(map);
	((void (*)(void (*)(void)))(at + 64))(sleeps);
	// Whoever reads the map needs it until the last sleep is read.
	fclose(fopen(words[1], "w"));
	while (access(words[2], F_OK))
		usleep(10000);
	unlink(name);
	return count != 3;
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn code_made_at_run_time_has_its_name_and_files_have_build_ids() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("jit.c"), folder.path().join("jit"));
    fs::write(&source, MAKES_CODE).unwrap();
    let mut compiler = std::process::Command::new("cc");
    compiler.args([
        "-O1",
        "-g0",
        "-fno-omit-frame-pointer",
        "-Wl,--build-id=0x0badcafe00112233",
    ]);
    match compiler.arg("-o").arg(&program).arg(&source).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return skip(&Skip::machine(format!("no C compiler: {error}"))),
    }
    let _alone = alone();
    let by = By::Waits(Options::default());
    let path = folder.path().join("spool");
    let Some(mut recording) = or_skip(Recording::prepare(&Linux, &path, "jit".into(), None, &by))
    else {
        return;
    };
    let (slept, read) = (folder.path().join("slept"), folder.path().join("read"));
    let words = [&program, &slept, &read].map(|path| path.clone().into_os_string());
    let held = Held::start(&words).unwrap();
    let pid = held.pid();
    recording.start(pid).unwrap();
    let child = held.release().unwrap();
    let spool = Spool::open(&path).unwrap();
    let mut following = spool.follow(&Symbols::default(), Vec::new()).unwrap();
    let mut last = None;
    while child.ended().unwrap().is_none() {
        if slept.exists() {
            let last = *last.get_or_insert_with(|| Linux.now());
            if recording.drained() > last {
                fs::write(&read, "").unwrap();
            }
        }
        recording
            .pump(Some(child.watched()), Nanos::millis(20))
            .unwrap();
        following.reach(recording.drained(), || Ok(())).unwrap();
    }
    drop(recording.stop(End::default()).unwrap());
    let written = following.finish(|| Ok(())).unwrap();
    let own = written
        .metadata
        .files
        .iter()
        .find(|file| file.path == program.display().to_string());
    assert_eq!(
        own.map(|file| &*file.build_id),
        Some("0badcafe00112233"),
        "{:?}",
        written.metadata.files
    );
    let file = folder.path().join("trace");
    fs::write(&file, written.out).unwrap();
    let reader = stopgap_trace::file::Reader::new(fs::File::open(&file).unwrap()).unwrap();
    let mut stacks = Vec::new();
    let mut cgroups = Vec::new();
    for event in reader.map(Result::unwrap) {
        match event.kind {
            Kind::Wait(wait) if event.tid == Some(pid) => stacks.extend(wait.user_stack),
            Kind::Task(task) if event.tid == Some(pid) => cgroups.push((task.moment, task.cgroup)),
            _ => {}
        }
    }
    let named = stacks.iter().filter(|stack| {
        let frames: Vec<&str> = stack.frames.split(';').collect();
        frames.contains(&"main") && frames.contains(&"JitCompiled:handle:request")
    });
    assert!(named.count() > 100, "{:?}", stacks.last());
    // As the kernel tells of this process, which the command inherits.
    let text = fs::read_to_string("/proc/self/cgroup").unwrap();
    let (_, cgroup) = cgroups.into_iter().next_back().unwrap();
    let cgroup = cgroup.unwrap();
    assert!(
        text.lines()
            .any(|line| line.ends_with(&format!(":{cgroup}"))),
        "{cgroup} in {text}"
    );
}
