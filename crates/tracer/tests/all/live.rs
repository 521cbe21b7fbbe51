//! Captures from the running kernel, as root; otherwise skipped, and said so.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::wait::{State, Wait, Within};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::files::Files;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::{Ended, Held};
use stopgap_kernel::{Linux, System};
use stopgap_trace::{Event, Kind};
use stopgap_tracer::capture::{Capture, Options};
use stopgap_tracer::events::EventSet;
use stopgap_tracer::spool::End;
use stopgap_tracer::symbols::Symbols;

use crate::{A_HANG, alone, or_skip};

/// The recording of a command.
struct Recorded {
    events: Vec<Event>,
    metadata: stopgap_trace::Metadata,
    pid: u32,
    ended: Ended,
}

/// Records `words`; `None` where this machine does not let us.
fn record(words: &[&str], events: EventSet) -> Option<Recorded> {
    let folder = tempfile::tempdir().unwrap();
    let journal_folder = folder.path().join("journal");
    let journal = Journal::new(&Linux, &journal_folder);
    let options = Options {
        events,
        buffer: Some(Bytes::mib(8)),
        spool: folder.path().join("spool"),
        subject: words.join(" ").into(),
    };
    let _alone = alone();
    let mut capture = or_skip(Capture::prepare(&Linux, &journal, &options))?;
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let held = Held::start(&words).unwrap();
    let pid = held.pid();
    capture.start(pid).unwrap();
    let child = held.release().unwrap();
    let deadline = Linux.now() + A_HANG;
    let ended = loop {
        capture
            .pump(Some(child.watched()), Nanos::millis(50))
            .unwrap();
        if let Some(ended) = child.ended().unwrap() {
            break ended;
        }
        assert!(Linux.now() < deadline, "it does not end");
    };
    let spool = capture.stop(End::default()).unwrap();
    let kallsyms = Linux.read(Path::new("/proc/kallsyms")).unwrap();
    let symbols = Symbols::parse(&String::from_utf8_lossy(&kallsyms));
    let mut trace = spool.trace(&symbols).unwrap();
    let mut events = Vec::new();
    while let Some(event) = trace.next_event().unwrap() {
        events.push(event);
    }
    let metadata = trace.metadata();
    drop(trace);
    spool.remove().unwrap();
    assert_eq!(instances(&Linux), 0, "the instance is gone");
    assert!(journal.undo().is_empty());
    Some(Recorded {
        events,
        metadata,
        pid,
        ended,
    })
}

/// Instances of this process.
fn instances(system: &dyn System) -> usize {
    let tracefs = system.tracefs().unwrap();
    let names = system.list(&tracefs.path().join("instances")).unwrap();
    let own = format!("stopgap-{}", std::process::id());
    names.iter().filter(|name| **name == own).count()
}

fn counts(events: &[Event]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for event in events {
        *counts.entry(event.kind.word()).or_insert(0) += 1;
    }
    counts
}

/// Threads of a process and its children, as the trace itself tells.
fn family(events: &[Event], pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    for event in events {
        if let Kind::Fork { target_tid, .. } = event.kind {
            family.push(target_tid);
        }
    }
    family
}

fn switch_outs(recorded: &Recorded) -> u64 {
    let family = family(&recorded.events, recorded.pid);
    let outs = recorded.events.iter().filter(|event| {
        // Nobody counts the last one, of a dead thread; what is new has not left a CPU yet.
        let left = |wait: &Wait| {
            let is_new = wait.within == Some(Within::New);
            !wait.began_before && !is_new && wait.state != Some(State::Dead)
        };
        matches!(&event.kind, Kind::Wait(wait) if left(wait))
            && event.tid.is_some_and(|tid| family.contains(&tid))
    });
    outs.count() as u64
}

#[test]
fn a_short_command_is_recorded_from_its_exec_to_its_end() {
    let script = "/bin/true; /bin/true | cat";
    let Some(recorded) = record(&["sh", "-c", script], EventSet::All) else {
        return;
    };
    let counts = counts(&recorded.events);
    println!("{counts:?} {:?}", recorded.metadata);
    assert_eq!(recorded.ended.how, Ok(0));
    assert!(recorded.events.is_sorted_by_key(|event| event.time));
    assert_eq!(recorded.metadata.losses, Some(Vec::new()));
    let on = recorded.metadata.events.as_deref().expect("it says which");
    let lacking = |event: &stopgap_tracer::events::EventName| {
        let name = event.to_string();
        let lack = format!("event {name}");
        !on.contains(&name) && !recorded.metadata.missing.iter().any(|m| m.what == lack)
    };
    assert_eq!(EventSet::All.events().find(lacking), None, "{on:?}");
    // sh, true, true and cat: each runs, and all but the first are forked.
    assert!(counts["exec"] >= 4, "{counts:?}");
    assert!(counts["exit"] >= 4 && counts["fork"] >= 3, "{counts:?}");
    for word in [
        "switch",
        "waking",
        "new",
        "lock-begin",
        "lock-end",
        "block-issue",
    ] {
        assert!(!counts.contains_key(word), "{word} is made into others");
    }
    for word in [
        "syscall-enter",
        "syscall-exit",
        "unmapped-area",
        "wait",
        "span",
    ] {
        assert!(counts[word] > 0, "{word}");
    }
    // Every one of its threads has a process and a name.
    let family = family(&recorded.events, recorded.pid);
    for event in &recorded.events {
        if event.tid.is_some_and(|tid| family.contains(&tid)) {
            assert!(event.pid.is_some() && event.comm.is_some(), "{event:?}");
        }
    }
    // Who waits uninterruptibly has a stack, with the scheduler at its end; who waits otherwise has
    // one where nobody else wants the CPU.
    let (mut deep, mut light) = (0, 0);
    for event in &recorded.events {
        let Kind::Wait(wait) = &event.kind else {
            continue;
        };
        if wait.began_before || wait.within == Some(Within::New) {
            continue;
        }
        let (state, stack) = (wait.state, &wait.stack);
        let waits = match state {
            Some(State::Blocked) => true,
            Some(State::Sleeping) => wait.next.as_ref().is_some_and(|next| next.tid == 0),
            _ => false,
        };
        assert_eq!(stack.is_some(), waits, "{event:?}");
        if let Some(stack) = stack {
            let last = stack.frames.rsplit(';').next();
            assert_eq!(last, Some("__schedule_[k]"), "{stack:?}");
        }
        deep += u64::from(state == Some(State::Blocked));
        light += u64::from(state == Some(State::Sleeping));
    }
    println!("{deep} uninterruptible waits, {light} others");
    assert!(deep + light > 0, "sh waits for its children");
}

/// Two processes that answer each other: the kernel counts their switches in two ways.
#[test]
fn switch_outs_are_those_that_the_kernel_counts() {
    const ROUNDTRIPS: u64 = 2_000;
    for events in [EventSet::Scheduling, EventSet::All] {
        let folder = tempfile::tempdir().unwrap();
        let pipe = |name: &str| folder.path().join(name).display().to_string();
        let (there, back) = (pipe("there"), pipe("back"));
        // dd reads and writes one byte at a time: each blocks until the other has answered.
        let script = format!(
            "mkfifo {there} {back}; \
         dd bs=1 count={ROUNDTRIPS} <{there} >{back} 2>/dev/null & \
         exec 3>{there} 4<{back}; printf x >&3; \
         dd bs=1 count={} <&4 >&3 2>/dev/null; dd bs=1 count=1 <&4 >/dev/null 2>&1; wait",
            ROUNDTRIPS - 1
        );
        let Some(recorded) = record(&["sh", "-c", &script], events) else {
            return;
        };
        assert_eq!(recorded.ended.how, Ok(0));
        let traced = switch_outs(&recorded);
        let counted = recorded.ended.switches.total();
        println!(
            "{events}: traced {traced}, rusage {counted} {:?}",
            recorded.ended
        );
        assert!(counted > ROUNDTRIPS, "{counted}");
        assert_eq!(recorded.metadata.losses, Some(Vec::new()));
        let ratio = traced as f64 / counted as f64;
        assert!((0.98..=1.02).contains(&ratio), "{traced} of {counted}");
    }
}
