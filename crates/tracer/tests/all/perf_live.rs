//! Records of perf from the running kernel. Where it refuses them, skipped, and said so.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::files::Files;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::perf::Wanted;
use stopgap_kernel::linux::{Ended, Held};
use stopgap_testing::{Skip, skip};
use stopgap_trace::{Event, Kind, Metadata};
use stopgap_tracer::capture::{Capture, Options, PerfSpool};
use stopgap_tracer::description::Subject;
use stopgap_tracer::events::EventSet;
use stopgap_tracer::perf::{ElfNames, Records, records_of};
use stopgap_tracer::spool::End;
use stopgap_tracer::symbols::Symbols;
use stopgap_tracer::trace::{Source as _, Trace};

use crate::{A_HANG, alone, or_skip};

/// Set for the process that is sampled.
const SPIN: &str = "STOPGAP_TEST_SPINS";

fn symbols() -> Symbols {
    let text = Linux.read(Path::new("/proc/kallsyms")).unwrap_or_default();
    Symbols::parse(&String::from_utf8_lossy(&text))
}

fn events_of(mut trace: Trace) -> (Vec<Event>, Metadata) {
    let mut events = Vec::new();
    while let Some(event) = trace.next_event().unwrap() {
        events.push(event);
    }
    (events, trace.metadata())
}

/// Records `words` with perf only.
fn record(words: &[&str], wanted: Wanted) -> Option<(Vec<Event>, u32, Ended)> {
    let folder = tempfile::tempdir().unwrap();
    let opened = Folder::open(folder.path()).unwrap();
    let mut spool = or_skip(PerfSpool::open(&Linux, &opened, wanted))?;
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let held = Held::start(&words).unwrap();
    let pid = held.pid();
    spool.follow(&Linux, [pid]).unwrap();
    spool.start(&Linux, pid).unwrap();
    let child = held.release().unwrap();
    let deadline = Linux.now() + A_HANG;
    let ended = loop {
        spool
            .pump(Some(child.watched()), Nanos::millis(50))
            .unwrap();
        if let Some(ended) = child.ended().unwrap() {
            break ended;
        }
        assert!(Linux.now() < deadline, "it does not end");
    };
    println!("{:?}", spool.missing());
    let description = spool.description().clone();
    let (losses, missing) = spool.stop();
    assert_eq!((losses.as_slice(), missing.as_slice()), (&[][..], &[][..]));
    let mut sources = Vec::new();
    for &cpu in &description.cpus {
        let file = File::open(folder.path().join(records_of(cpu))).unwrap();
        sources.push((cpu, Box::new(BufReader::new(file)) as Box<dyn Read>));
    }
    let names = Box::new(ElfNames::new(None));
    let mut records = Records::new(&description, &[], symbols(), names, sources).unwrap();
    let mut events = Vec::new();
    while let Some(event) = records.next_event().unwrap() {
        events.push(event);
    }
    Some((events, pid, ended))
}

fn counts(events: &[Event]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for event in events {
        *counts.entry(event.kind.word()).or_insert(0) += 1;
    }
    counts
}

/// Two processes that answer each other a byte at a time: their switches by rusage.
#[test]
fn switches_are_those_that_the_kernel_counts() {
    const ROUNDTRIPS: u64 = 2_000;
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let pipe = |name: &str| folder.path().join(name).display().to_string();
    let (there, back) = (pipe("there"), pipe("back"));
    let script = format!(
        "mkfifo {there} {back}; \
         dd bs=1 count={ROUNDTRIPS} <{there} >{back} 2>/dev/null & \
         exec 3>{there} 4<{back}; printf x >&3; \
         dd bs=1 count={} <&4 >&3 2>/dev/null; dd bs=1 count=1 <&4 >/dev/null 2>&1; wait",
        ROUNDTRIPS - 1
    );
    let wanted = Wanted {
        switches: true,
        samples: None,
    };
    let Some((events, _, ended)) = record(&["sh", "-c", &script], wanted) else {
        return;
    };
    let (mut outs, mut involuntary, mut ins) = (0, 0, 0);
    for event in &events {
        if let Kind::Switch {
            preempted,
            next_tid,
            ..
        } = event.kind
        {
            assert_ne!(event.tid.is_some(), next_tid.is_some(), "one side each");
            outs += u64::from(event.tid.is_some());
            ins += u64::from(next_tid.is_some());
            involuntary += u64::from(preempted == Some(true));
        }
    }
    let truth = ended.switches;
    println!("out {outs}, of these pre-empted {involuntary}, in {ins}; {truth:?}");
    assert!(truth.total() > ROUNDTRIPS, "{truth:?}");
    // The last switches of the five processes, on their way out, have no record.
    let near = |one: u64, other: u64| one.abs_diff(other) <= other / 50 + 15;
    assert!(near(outs, truth.total()), "{outs} {truth:?}");
    assert!(
        near(involuntary, truth.involuntary),
        "{involuntary} {truth:?}"
    );
    assert!(near(ins, outs), "{ins} {outs}");
}

/// Forks, execs, names and ends.
#[test]
fn lives_and_names_are_told() {
    const CHILDREN: u64 = 40;
    let _alone = alone();
    let script = format!("i=0; while [ $i -lt {CHILDREN} ]; do sleep 0.001; i=$((i+1)); done");
    let wanted = Wanted {
        switches: true,
        samples: Some(Nanos::micros(200)),
    };
    let Some((events, pid, _)) = record(&["sh", "-c", &script], wanted) else {
        return;
    };
    let counts = counts(&events);
    println!("{counts:?}");
    assert!(events.is_sorted_by_key(|event| event.time));
    assert_eq!((counts["fork"], counts["exit"]), (CHILDREN, CHILDREN + 1));
    assert_eq!(counts["exec"], CHILDREN + 1);
    // Each runs for more than two of these, of itself or in the kernel.
    assert!(counts["sample"] > CHILDREN);
    let all = events.iter().filter(|event| event.kind.word() != "switch");
    for event in all {
        assert!(event.pid.is_some() && event.tid.is_some(), "{event:?}");
    }
    let mut execs = events.iter().filter(|event| event.kind.word() == "exec");
    let first = execs.next().unwrap();
    assert_eq!((first.pid, first.comm.as_deref()), (Some(pid), Some("sh")));
    let sleeps = events
        .iter()
        .filter(|event| event.kind.word() == "exit" && event.comm.as_deref() == Some("sleep"));
    assert_eq!(sleeps.count() as u64, CHILDREN);
}

#[inline(never)]
fn spins_in_user_mode(rounds: u64) -> u64 {
    // No call to another function, unoptimised too: the time is to be this one's.
    let (mut state, mut left) = (rounds | 1, rounds);
    while left > 0 {
        left -= 1;
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

/// No test of its own: the process that [`as_many_samples_as_the_cpu_time_says`] samples. It computes,
/// and has the kernel zero pages.
#[test]
fn spins() {
    if std::env::var_os(SPIN).is_none() {
        return;
    }
    for _ in 0..8 {
        std::hint::black_box(spins_in_user_mode(12_000_000));
        // A fresh mapping each time: glibc maps what is larger than 32 MiB.
        let memory = vec![1_u8; 48 << 20];
        std::hint::black_box(&memory);
    }
}

/// Ticks of a hundredth of a second that the hypervisor took from this machine's CPUs, where the kernel counts them.
fn stolen() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let mut words = stat.lines().next().unwrap().split_whitespace();
    words.nth(8).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Samples against CPU time by getrusage, of both modes, and the functions that were to be hot.
#[test]
fn as_many_samples_as_the_cpu_time_says() {
    const HZ: u64 = 999;
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let journal_folder = folder.path().join("journal");
    let journal = Journal::new(&Linux, &journal_folder);
    let options = Options {
        events: EventSet::Scheduling,
        buffer: None,
        spool: folder.path().join("spool"),
        subject: Subject::default(),
    };
    let Some(mut capture) = or_skip(Capture::prepare(&Linux, &journal, &options)) else {
        return;
    };
    capture.sample(u32::try_from(HZ).unwrap()).unwrap();
    let program = std::env::current_exe().unwrap();
    let mut words: Vec<OsString> = ["env", &format!("{SPIN}=1")].map(Into::into).to_vec();
    words.push(program.into());
    words.extend(["--exact", "perf_live::spins"].map(Into::into));
    let held = Held::start(&words).unwrap();
    capture.start(held.pid()).unwrap();
    let mut missing = capture.missing().iter();
    let refused = missing.find(|missing| missing.what.contains("sample"));
    if let Some(refused) = refused.cloned() {
        held.give_up().unwrap();
        capture.stop(End::default()).unwrap();
        return skip(&Skip::machine(format_args!("{refused:?}")));
    }
    let stolen_before = stolen();
    let child = held.release().unwrap();
    let ended = loop {
        capture
            .pump(Some(child.watched()), Nanos::millis(50))
            .unwrap();
        if let Some(ended) = child.ended().unwrap() {
            break ended;
        }
    };
    // All timers that fire while the hypervisor has the CPU make one sample, when the CPU is back.
    let lacks = (stolen() - stolen_before) * HZ / 100;
    let spool = capture.stop(End::default()).unwrap();
    let (events, metadata) = events_of(spool.trace(&symbols()).unwrap());
    spool.remove().unwrap();
    assert_eq!(ended.how, Ok(0));
    assert_eq!(metadata.losses, Some(Vec::new()));
    let mut stacks = Vec::new();
    for event in &events {
        if let Kind::Sample { stack } = &event.kind {
            stacks.push(stack);
        }
    }
    let samples = stacks.len() as u64;
    let expected = (ended.user_time.0 + ended.system_time.0) * HZ / 1_000_000_000;
    let having = |part: &str| {
        let has = |stack: &&&stopgap_trace::Stack| stack.frames().any(|frame| frame.contains(part));
        stacks.iter().filter(has).count() as u64
    };
    let (user, kernel) = (having("spins_in_user_mode"), having("page_fault"));
    println!("{samples} samples, {expected} by CPU time; user {user}, faults {kernel}");
    println!("{:?}", metadata.missing);
    let near = expected / 10;
    assert!(
        samples <= expected + near && samples + lacks + near >= expected,
        "{samples} of {expected}, {lacks} stolen"
    );
    // Each of the two parts is what it was made for.
    assert!(user > samples / 4, "{user} of {samples}");
    if !symbols().is_empty() {
        assert!(kernel > samples / 20, "{kernel} of {samples}");
    }
    let unnamed = stacks
        .iter()
        .filter(|stack| stack.frames().next_back() == Some("[unknown]"));
    assert_eq!(unnamed.count(), 0);
}
