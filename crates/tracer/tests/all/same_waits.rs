//! One run of one program, recorded by BPF and by tracefs at once, as root: the waits are the same, field by field.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{Debug, Write as _};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::wait::{Context, State, Wait};
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::Held;
use stopgap_testing::{Skip, skip};
use stopgap_trace::{Event, Kind, Waits};
use stopgap_tracer::capture::{Capture, Options};
use stopgap_tracer::events::EventSet;
use stopgap_tracer::recording::{By, Recording};
use stopgap_tracer::spool::{End, Spool};
use stopgap_tracer::symbols::Symbols;
use stopgap_tracer::waits;

use crate::{A_HANG, alone, or_skip};

/// The folder in which the recorded process reads a cold file.
const FOLDER: &str = "STOPGAP_TEST_SAME_WAITS";
const ROUNDS: u32 = 400;
/// The kernel calls the programs of both sources one after the other, interrupts off; a hypervisor may stop the CPU in between.
const NEAR: Nanos = Nanos::micros(200);

/// No test of its own: the process that is recorded. It talks to a child through pipes, hands a turn to and fro between
/// threads, sleeps, and reads a file that is not in the page cache.
#[test]
fn works() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let mut echo = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut there, mut back) = (echo.stdin.take().unwrap(), echo.stdout.take().unwrap());
    for _ in 0..ROUNDS {
        there.write_all(b"x").unwrap();
        back.read_exact(&mut [0]).unwrap();
    }
    drop(there);
    echo.wait().unwrap();

    let turn = Arc::new((Mutex::new(0_u32), Condvar::new()));
    let players = [0, 1].map(|me| {
        let turn = Arc::clone(&turn);
        std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                let mut now = turn.0.lock().unwrap();
                while *now % 2 != me {
                    now = turn.1.wait(now).unwrap();
                }
                *now += 1;
                turn.1.notify_one();
            }
        })
    });
    players
        .into_iter()
        .for_each(|player| player.join().unwrap());

    for _ in 0..ROUNDS / 4 {
        std::thread::sleep(Duration::from_micros(200));
    }
    let cold = Path::new(&folder).join("cold");
    let mut file = File::open(cold).unwrap();
    while file.read(&mut [0; 1 << 16]).unwrap() > 0 {}
}

/// Writes the file that is read, and drops it from the page cache.
fn cold_file(folder: &Path) {
    let path = folder.join("cold");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![7; 4 << 20]).unwrap();
    file.sync_all().unwrap();
    let dropped = Command::new("dd")
        .arg(format!("if={}", path.display()))
        .args(["iflag=nocache", "count=0", "status=none"])
        .status();
    assert!(dropped.unwrap().success());
}

fn events_of(spool: Spool) -> Vec<Event> {
    let mut trace = spool.trace(&Symbols::default()).unwrap();
    let (mut waits, mut out) = (Waits::default(), std::collections::VecDeque::new());
    while let Some(event) = trace.next_event().unwrap() {
        waits.event(event, &mut out);
    }
    assert_eq!(trace.metadata().losses, Some(Vec::new()));
    drop(trace);
    spool.remove().unwrap();
    out.into()
}

/// A wait and the CPU on which it ended.
type Seen = (Option<u32>, Wait);

/// Returns how many waits of these threads lack an end, the first of each apart.
fn hidden(events: &[Event], threads: &[u32]) -> usize {
    let lacks = |event: &&Event| {
        let of_ours = event.tid.is_some_and(|tid| threads.contains(&tid));
        let lacks = |wait: &Wait| wait.began_before || wait.ran.is_none();
        of_ours && matches!(&event.kind, Kind::Wait(wait) if lacks(wait))
    };
    let all = events.iter().filter(lacks).count();
    all.saturating_sub(threads.len())
}

/// The waits of each thread that have both ends.
fn waits_of(events: &[Event], threads: &[u32]) -> BTreeMap<u32, Vec<Seen>> {
    let mut all: BTreeMap<u32, Vec<Seen>> = BTreeMap::new();
    for event in events {
        if let (Kind::Wait(wait), Some(tid)) = (&event.kind, event.tid)
            && threads.contains(&tid)
            && !wait.began_before
            && wait.ran.is_some()
        {
            let wait = Wait::clone(wait);
            all.entry(tid).or_default().push((event.cpu, wait));
        }
    }
    all
}

/// How often both sources know a field, how often they differ, and the first difference.
#[derive(Default)]
struct Field {
    known: u32,
    differs: u32,
    example: Option<String>,
}

#[derive(Default)]
struct Table(BTreeMap<&'static str, Field>);

impl Table {
    /// Compares what BPF and what tracefs say.
    fn compare<T: PartialEq + Debug>(
        &mut self,
        name: &'static str,
        (bpf, tracefs): (Option<T>, Option<T>),
        same: impl Fn(&T, &T) -> bool,
        of: &Wait,
    ) {
        let field = self.0.entry(name).or_default();
        let (Some(bpf), Some(tracefs)) = (bpf, tracefs) else {
            return;
        };
        field.known += 1;
        if !same(&bpf, &tracefs) {
            field.differs += 1;
            let text = || format!("bpf {bpf:?}, tracefs {tracefs:?} of {of:?}");
            field.example.get_or_insert_with(text);
        }
    }

    fn equal<T: PartialEq + Debug>(
        &mut self,
        name: &'static str,
        both: (Option<T>, Option<T>),
        of: &Wait,
    ) {
        self.compare(name, both, T::eq, of);
    }

    fn wait(&mut self, (bpf_cpu, bpf): &Seen, (cpu, wait): &Seen) {
        let near = |a: &Nanos, b: &Nanos| a.0.abs_diff(b.0) <= NEAR.0;
        self.compare("left", (Some(bpf.left), Some(wait.left)), near, wait);
        self.compare("ran", (bpf.ran, wait.ran), near, wait);
        self.compare("woken", (bpf.woken, wait.woken), near, wait);
        let slept = |wait: &Wait| Some(wait.woken.is_some());
        self.equal("was woken", (slept(bpf), slept(wait)), wait);
        self.equal("cpu", (*bpf_cpu, *cpu), wait);
        self.equal("left cpu", (bpf.left_cpu, wait.left_cpu), wait);
        self.equal("state", (bpf.state, wait.state), wait);
        self.equal("pre-empted", (bpf.preempted, wait.preempted), wait);
        self.equal("priority", (bpf.priority, wait.priority), wait);
        // tracefs tells the end of a call before the thread is pre-empted on its way out of it.
        if wait.state != Some(State::Runnable) {
            self.equal("within", (bpf.within, wait.within), wait);
        }
        let call = |wait: &Wait| wait.call.as_ref().map(|call| (call.number, call.arguments));
        self.equal("call and arguments", (call(bpf), call(wait)), wait);
        let tid = |task: &Option<stopgap_events::wait::Task>| task.as_ref().map(|task| task.tid);
        self.equal("next", (tid(&bpf.next), tid(&wait.next)), wait);
        self.equal("previous", (tid(&bpf.previous), tid(&wait.previous)), wait);
        let waker = |wait: &Wait| wait.waker.as_ref().map(|waker| waker.task.tid);
        self.equal("waker", (waker(bpf), waker(wait)), wait);
        // tracefs does not tell a softirq from a hard interrupt.
        let context = |wait: &Wait| {
            let context = wait.waker.as_ref()?.context?;
            Some(if context == Context::Softirq {
                Context::Interrupt
            } else {
                context
            })
        };
        self.equal("waker's context", (context(bpf), context(wait)), wait);
        let call = |wait: &Wait| {
            let call = wait.waker.as_ref()?.call.as_ref()?;
            Some((call.number, call.arguments[0]))
        };
        self.equal("waker's call", (call(bpf), call(wait)), wait);
    }

    fn text(&self, waits: usize) -> String {
        let mut text = format!(
            "{waits} waits\n{:<20} {:>8} {:>8}\n",
            "field", "known", "differ"
        );
        for (name, field) in &self.0 {
            let (known, differs) = (field.known, field.differs);
            let example = field.example.as_deref().unwrap_or_default();
            writeln!(text, "{name:<20} {known:>8} {differs:>8} {example}").unwrap();
        }
        text
    }
}

#[test]
fn bpf_and_tracefs_tell_the_same_waits() {
    let folder = tempfile::tempdir().unwrap();
    let _alone = alone();
    let journal_folder = folder.path().join("journal");
    let journal = Journal::new(&Linux, &journal_folder);
    let options = Options {
        events: EventSet::All,
        buffer: Some(Bytes::mib(16)),
        spool: folder.path().join("tracefs"),
        subject: "works".into(),
    };
    let by = By::Waits(waits::Options {
        only: true,
        ..waits::Options::default()
    });
    let spool = folder.path().join("bpf");
    let prepared = Recording::prepare(&Linux, &spool, "works".into(), None, &by);
    let Some(mut recording) = or_skip(prepared) else {
        return;
    };
    let Some(mut capture) = or_skip(Capture::prepare(&Linux, &journal, &options)) else {
        return;
    };
    cold_file(folder.path());
    let mut words: Vec<OsString> = vec!["env".into()];
    words.push(format!("{FOLDER}={}", folder.path().display()).into());
    words.push(std::env::current_exe().unwrap().into());
    words.extend(["--exact", "same_waits::works"].map(Into::into));
    let held = Held::start(&words).unwrap();
    let pid = held.pid();
    recording.start(pid).unwrap();
    capture.start(pid).unwrap();
    let child = held.release().unwrap();
    let deadline = Linux.now() + A_HANG;
    loop {
        capture
            .pump(Some(child.watched()), Nanos::millis(10))
            .unwrap();
        recording
            .pump(Some(child.watched()), Nanos::millis(10))
            .unwrap();
        if let Some(ended) = child.ended().unwrap() {
            assert_eq!(ended.how, Ok(0));
            break;
        }
        assert!(Linux.now() < deadline, "it does not end");
    }
    let by_tracefs = capture.stop(End::default()).unwrap();
    let by_bpf = recording.stop(End::default()).unwrap();
    let (bpf, tracefs) = (events_of(by_bpf), events_of(by_tracefs));
    let mut threads = vec![pid];
    for event in &tracefs {
        if let Kind::Fork { target_tid, .. } = event.kind {
            threads.push(target_tid);
        }
    }
    assert!(threads.len() >= 5, "{threads:?}");
    let hidden = hidden(&tracefs, &threads);
    let (bpf, tracefs) = (waits_of(&bpf, &threads), waits_of(&tracefs, &threads));
    let (mut table, mut waits, mut alone) = (Table::default(), 0, Vec::new());
    for tid in threads {
        let [by_bpf, by_tracefs] =
            [&bpf, &tracefs].map(|all| all.get(&tid).map_or(&[][..], Vec::as_slice));
        waits += by_tracefs.len().max(by_bpf.len());
        let mut left = by_bpf.iter().peekable();
        for seen in by_tracefs {
            let before = |at: Nanos| at.0 + NEAR.0 < seen.1.left.0;
            while let Some(other) = left.next_if(|other| before(other.1.left)) {
                alone.push(("bpf", tid, &other.1));
            }
            match left.next_if(|other| other.1.left.0 <= seen.1.left.0 + NEAR.0) {
                Some(other) => table.wait(other, seen),
                None => alone.push(("tracefs", tid, &seen.1)),
            }
        }
        alone.extend(left.map(|other| ("bpf", tid, &other.1)));
    }
    let text = table.text(waits);
    if hidden * 1_000 > waits {
        let why = format!("this kernel hides switches from tracefs: {hidden} beside {waits} waits");
        return skip(&Skip::machine(why));
    }
    println!("{text}told by one alone: {}", alone.len());
    for (who, tid, wait) in alone.iter().take(12) {
        println!("{who} {tid} {wait:?}");
    }
    assert!(waits > 1_500, "{text}");
    assert!(
        alone.len() * 1_000 <= waits,
        "{} of {waits}: {:?}",
        alone.len(),
        &alone[..1]
    );
    for (name, field) in &table.0 {
        let few = u64::from(field.differs) * 1_000 <= u64::from(field.known);
        assert!(few, "{name}\n{text}");
    }
}
