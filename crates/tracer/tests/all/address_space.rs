//! The address space that a recording's calls make, beside the one that the kernel has and the one of another source: of a real
//! program, live, as root; otherwise skipped, and said.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use stopgap_events::range::AddressRange;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::{Held, Watched};
use stopgap_kernel::memory::Memory;
use stopgap_testing::{Skip, skip};
use stopgap_trace::{AddressSpaces, Event, Kind, Recorded};
use stopgap_tracer::capture::{Capture, Options};
use stopgap_tracer::description::Subject;
use stopgap_tracer::events::EventSet;
use stopgap_tracer::recording::{By, Recording};
use stopgap_tracer::spool::{End, Spool};
use stopgap_tracer::symbols::Symbols;
use stopgap_tracer::waits::{self, Part};

use crate::{alone, or_skip};

/// Strings of all sizes come, grow and go; by then its maps are written out and it ends without another
/// call. The buffer for them is there before, so that reading them maps nothing.
const PROGRAM: &str = r#"
    my $buffer = "\0" x 3000000; $buffer = "";
    sysread STDIN, my $go, 1 if $ARGV[0];
    srand 7; my @held;
    for (1..1500) {
        my $i = int rand 96;
        if (rand() < 0.3) { undef $held[$i] }
        elsif (rand() < 0.3) { $held[$i] .= "y" x int rand 300000 }
        else { $held[$i] = "x" x int(rand(30) ** 4) }
    }
    open my $maps, "<", "/proc/self/maps" or die;
    my ($at, $n) = (0);
    $at += $n while $n = sysread $maps, $buffer, 65536, $at;
    syswrite STDOUT, $buffer, $at;
    kill 9, $$;
"#;

/// Captures what `run` does, given what starts the capture.
fn capture(
    run: impl FnOnce(&mut Capture<'_, '_>) -> (u32, String),
) -> Option<(u32, String, Vec<Event>)> {
    // Every Debian has it (perl-base); elsewhere it may be absent.
    if let Err(error) = Command::new("perl").arg("-e1").status() {
        skip(&Skip::program(format_args!("perl: {error}")));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::new(&Linux, &folder.path().join("journal"));
    let options = Options {
        events: EventSet::All,
        buffer: Some(Bytes::mib(16)),
        spool: folder.path().join("spool"),
        subject: Subject::default(),
    };
    let _alone = alone();
    let mut capture = or_skip(Capture::prepare(&Linux, &journal, &options))?;
    let (pid, maps) = run(&mut capture);
    let (events, _) = events_of(capture.stop(End::default()).unwrap());
    Some((pid, maps, events))
}

/// Events of a spool, and whether it lacks the part of BPF that this test is about.
fn events_of(spool: Spool) -> (Vec<Event>, bool) {
    let mut trace = spool.trace(&Symbols::default()).unwrap();
    let mut events = Vec::new();
    while let Some(event) = trace.next_event().unwrap() {
        events.push(event);
    }
    let metadata = trace.metadata();
    assert_eq!(metadata.losses, Some(Vec::new()));
    let word = Part::AddressSpace.word();
    let lacks = metadata.missing.iter().any(|missing| missing.what == word);
    drop(trace);
    spool.remove().unwrap();
    (events, lacks)
}

/// Starts the program, which waits for us where it says so, with all libraries loaded.
fn waiting() -> Child {
    let child = Command::new("perl")
        .args(["-e", PROGRAM, "wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let waits = || std::fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap();
    while !waits().starts_with("0 0x0 ") && cfg!(target_arch = "x86_64") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

fn pump_until_it_ends(capture: &mut Capture<'_, '_>, watched: &Watched) {
    while !watched.has_ended() {
        capture.pump(Some(watched), Nanos::millis(50)).unwrap();
    }
}

/// Lines of a maps file: where, and the path.
fn lines(maps: &str) -> Vec<(AddressRange, &str)> {
    maps.lines()
        .map(|line| {
            let mut words = line.splitn(6, ' ');
            let (start, end) = words.next().unwrap().split_once('-').unwrap();
            let [start, end] = [start, end].map(|word| u64::from_str_radix(word, 16).unwrap());
            let path = words.nth(4).unwrap_or("").trim();
            (AddressRange { start, end }, path)
        })
        // For everybody the same, and no mapping of the process.
        .filter(|(_, path)| *path != "[vsyscall]")
        .collect()
}

/// The mapped ranges, with neighbours joined.
fn union(ranges: impl Iterator<Item = AddressRange>) -> Vec<AddressRange> {
    let mut all: Vec<AddressRange> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => all.push(range),
        }
    }
    all
}

fn model(pid: u32, events: &[Event]) -> AddressSpaces {
    let mut spaces = AddressSpaces::new(Linux.page_size());
    for event in events {
        spaces.event(event);
    }
    assert!(spaces.process(Some(pid)).is_some());
    spaces
}

/// A process that already runs: its maps at the beginning and its calls since give its maps at the end,
/// to the byte. The stack alone may have grown, which no call tells.
#[test]
fn of_a_running_process_the_calls_give_its_final_maps() {
    let Some((pid, maps, events)) = capture(|capture| {
        let mut child = waiting();
        let watched = Watched::open(child.id()).unwrap();
        assert_eq!(
            capture.start_running(&[child.id()], &[]).unwrap(),
            [child.id()]
        );
        child.stdin.take().unwrap().write_all(b"x").unwrap();
        let mut maps = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut maps)
            .unwrap();
        pump_until_it_ends(capture, &watched);
        let _ = child.wait();
        (child.id(), maps)
    }) else {
        return;
    };
    let spaces = model(pid, &events);
    let space = spaces.process(Some(pid)).unwrap();
    let real = lines(&maps);
    let stack = real.iter().find(|(_, path)| *path == "[stack]").unwrap().0;
    let not_stack = |range: &AddressRange| !range.overlaps(&stack);
    let modelled = union(space.ranges().filter(not_stack));
    let expected = union(real.iter().map(|(range, _)| *range).filter(not_stack));
    println!(
        "{} mappings of {} in the kernel, {} of {} by the calls, {} calls",
        real.len(),
        Bytes(real.iter().map(|(range, _)| range.length().0).sum()),
        space.mappings(),
        space.bytes(),
        events
            .iter()
            .filter(|event| Recorded::is_call(event))
            .count()
    );
    assert_eq!(modelled, expected);
    // The kernel keeps apart what was joined here where its pages (anon_vma) or flags differ.
    let mappings = usize::try_from(space.mappings()).unwrap();
    assert!(mappings <= real.len(), "{mappings} of {}", real.len());
    assert!(
        mappings * 10 >= real.len() * 9,
        "{mappings} of {}",
        real.len()
    );
    assert!(space.holes().is_some());
}

/// From its exec on: what the calls do not give is what exec maps itself.
#[test]
fn of_a_command_only_what_exec_maps_is_not_seen() {
    let Some((pid, maps, events)) = capture(|capture| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("maps");
        let script = format!("exec perl -e '{PROGRAM}' >{}", file.display());
        let held = Held::start(&["sh".into(), "-c".into(), OsString::from(script)]).unwrap();
        let pid = held.pid();
        capture.start(pid).unwrap();
        let child = held.release().unwrap();
        pump_until_it_ends(capture, child.watched());
        child.ended().unwrap();
        (pid, std::fs::read_to_string(file).unwrap())
    }) else {
        return;
    };
    let spaces = model(pid, &events);
    let space = spaces.process(Some(pid)).unwrap();
    let real = lines(&maps);
    let all = union(real.iter().map(|(range, _)| *range));
    for range in union(space.ranges()) {
        let inside = all
            .iter()
            .any(|of| of.start <= range.start && range.end <= of.end);
        assert!(inside, "{range} is not mapped\n{maps}");
    }
    let seen: Vec<AddressRange> = space.ranges().collect();
    let mut before = "";
    for (range, path) in real {
        let covered: u64 = seen
            .iter()
            .map(|of| {
                let part = of
                    .end
                    .min(range.end)
                    .saturating_sub(of.start.max(range.start));
                if of.overlaps(&range) { part } else { 0 }
            })
            .sum();
        // Its zeroed data (bss) is anonymous memory beside the program, or beside its loader.
        let by_exec =
            |path: &str| path.contains("perl") || path.contains("/ld") || path.starts_with('[');
        let explained = by_exec(path) || path.is_empty() && by_exec(before);
        assert!(
            covered == range.length().0 || explained,
            "{covered} bytes of {range} {path}\n{maps}"
        );
        before = path;
    }
}

/// A call as it begins and as it ends, and what was mapped before.
#[derive(Debug, PartialEq)]
enum Told {
    Before(AddressRange),
    Begins(Option<Box<str>>, [Option<u64>; 6]),
    Ends(Option<Box<str>>, Option<i64>),
}

/// What the events of the process say of its address space.
fn told(pid: u32, events: &[Event]) -> Vec<Told> {
    const CALLS: [&str; 6] = ["mmap", "munmap", "brk", "mremap", "mprotect", "madvise"];
    let name = |name: &Option<stopgap_trace::Text>| {
        let name = name.as_deref()?;
        CALLS.contains(&name).then(|| Box::from(name))
    };
    let of_ours = events.iter().filter(|event| event.pid == Some(pid));
    let told = of_ours.filter_map(|event| match &event.kind {
        Kind::Memory { range, .. } => range.map(Told::Before),
        Kind::SyscallEnter {
            name: call,
            arguments,
            ..
        } => name(call).map(|call| Told::Begins(Some(call), *arguments)),
        Kind::SyscallExit {
            name: call, result, ..
        } => name(call).map(|call| Told::Ends(Some(call), *result)),
        _ => None,
    });
    told.collect()
}

/// One run, recorded by BPF and by tracefs at once: the same mappings before it, the same calls in the same order with the same
/// arguments and results; so a replay of both does the same. By programs at the functions of these calls, and by all calls.
#[test]
fn bpf_and_tracefs_tell_the_same_calls() {
    for part in [Part::AddressSpace, Part::Calls] {
        let folder = tempfile::tempdir().unwrap();
        let by = By::Waits(waits::Options {
            only: true,
            parts: vec![part],
            ..waits::Options::default()
        });
        let mut by_bpf = None;
        let captured = capture(|tracefs| {
            let spool = folder.path().join("bpf");
            let prepared = Recording::prepare(&Linux, &spool, "perl".into(), None, &by);
            let mut child = waiting();
            let (pid, watched) = (child.id(), Watched::open(child.id()).unwrap());
            assert_eq!(tracefs.start_running(&[pid], &[]).unwrap(), [pid]);
            let mut bpf = or_skip(prepared);
            if let Some(bpf) = &mut bpf {
                assert_eq!(bpf.start_running(&[pid], &[]).unwrap(), [pid]);
            }
            child.stdin.take().unwrap().write_all(b"x").unwrap();
            let mut out = child.stdout.take().unwrap();
            std::io::copy(&mut out, &mut std::io::sink()).unwrap();
            pump_until_it_ends(tracefs, &watched);
            child.wait().unwrap();
            by_bpf = bpf.map(|mut bpf| {
                bpf.pump(None, Nanos::millis(1)).unwrap();
                events_of(bpf.stop(End::default()).unwrap())
            });
            (pid, String::new())
        });
        let (Some((pid, _, tracefs)), Some((bpf, lacks))) = (captured, by_bpf) else {
            return;
        };
        if lacks {
            println!("this kernel lets no programs at its functions");
            continue;
        }
        let [by_bpf, by_tracefs] = [&bpf, &tracefs].map(|events| told(pid, events));
        let differs = by_bpf.iter().zip(&by_tracefs).find(|(a, b)| a != b);
        assert_eq!(differs, None);
        assert_eq!(by_bpf.len(), by_tracefs.len());
        assert!(by_bpf.len() > 200, "{}", by_bpf.len());
        let requests = |events: &[Event]| {
            let mut recorded = Recorded::new(Some(pid), Linux.page_size().0);
            let mut requests = VecDeque::new();
            for event in events {
                recorded.event(event, &mut requests);
            }
            (requests, recorded.missing())
        };
        assert_eq!(requests(&bpf), requests(&tracefs));
        println!("{}: {} of both", part.word(), by_bpf.len());
    }
}
