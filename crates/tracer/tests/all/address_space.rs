//! The address space that a recording's calls make, beside the one that the kernel has: of a real program,
//! live, as root; otherwise skipped, and said.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use stopgap_events::range::AddressRange;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::{Held, Watched};
use stopgap_kernel::memory::Memory;
use stopgap_testing::{Skip, skip};
use stopgap_trace::{AddressSpaces, Event, Recorded};
use stopgap_tracer::capture::{Capture, Options};
use stopgap_tracer::description::Subject;
use stopgap_tracer::events::EventSet;
use stopgap_tracer::spool::End;
use stopgap_tracer::symbols::Symbols;

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
    let spool = capture.stop(End::default()).unwrap();
    let mut trace = spool.trace(&Symbols::default()).unwrap();
    let mut events = Vec::new();
    while let Some(event) = trace.next_event().unwrap() {
        events.push(event);
    }
    assert_eq!(trace.metadata().losses, Some(Vec::new()));
    drop(trace);
    spool.remove().unwrap();
    Some((pid, maps, events))
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
        let mut child = Command::new("perl")
            .args(["-e", PROGRAM, "wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let watched = Watched::open(child.id()).unwrap();
        // It waits for us where its program says so, with all libraries loaded.
        let waits = || std::fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap();
        while !waits().starts_with("0 0x0 ") && cfg!(target_arch = "x86_64") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
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
