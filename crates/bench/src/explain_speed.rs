//! `stopgap-bench explain-speed`: how many waits `explain` reads and follows per second, part by part.
//!
//! ```text
//! read      rows of the file become events
//! graph     each wait is followed to what it waited for (explain::chain), without the rest
//! explain   everything: states, causes, operations, round trips, and the graph
//! finish    sums become the record
//! ```
//!
//! CPU time of this thread is counted, so that other work on the machine matters little. Each part sees the same events, some
//! thousand at a time, so that none is charged for the others' memory.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::ExitCode;

use stopgap_cli::Failure;
use stopgap_events::units::Nanos;
use stopgap_events::wait::{Call, Context, State, Task, Wait, Waker, Within};
use stopgap_explain::chain::Graph;
use stopgap_explain::{Explainer, Options};
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_trace::file::Writer;
use stopgap_trace::{Event, Input, Kind, Metadata, Text};

use crate::common::{BROKEN, failed};

/// Waits of the trace that is made up.
const WAITS: u32 = 1_000_000;
/// Events that each part gets at a time.
const AT_A_TIME: usize = 4_096;
/// Waits that the graph follows per second, at least.
const GRAPH_AT_LEAST: u64 = 1_000_000;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// The trace to explain [default: a million waits of a made-up server between a client and a lock]
    trace: Option<PathBuf>,
}

/// CPU time by part.
#[derive(Default)]
struct Spent {
    read: Nanos,
    graph: Nanos,
    explain: Nanos,
}

/// Measures and prints; status 2 where the graph is slower than promised.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    let folder = tempfile::tempdir().map_err(failed("a temporary folder"))?;
    let path = match &flags.trace {
        Some(path) => path.clone(),
        None => {
            let path = folder.path().join("made.parquet");
            let file = File::create(&path).map_err(failed("the trace"))?;
            made(file).map_err(failed("the trace"))?;
            path
        }
    };
    let file = File::open(&path).map_err(failed(path.display()))?;
    let mut input = Input::new(file).map_err(failed(path.display()))?;
    let options = Options {
        top: 10,
        frame_marker: None,
        request: None,
    };
    let mut explainer = Explainer::new(input.metadata(), options);
    let (mut graph, mut spent) = (Graph::new(), Spent::default());
    let (mut events, mut waits) = (0_u64, 0_u64);
    let mut some: Vec<Event> = Vec::with_capacity(AT_A_TIME);
    loop {
        let begin = Linux.thread_cpu();
        for event in input.by_ref().take(AT_A_TIME) {
            some.push(event.map_err(failed(path.display()))?);
        }
        let read = Linux.thread_cpu();
        some.iter().for_each(|event| graph.event(event));
        let followed = Linux.thread_cpu();
        some.iter().for_each(|event| explainer.event(event));
        let explained = Linux.thread_cpu();
        spent.read += read.saturating_sub(begin);
        spent.graph += followed.saturating_sub(read);
        spent.explain += explained.saturating_sub(followed);
        if some.is_empty() {
            break;
        }
        events += some.len() as u64;
        waits += some
            .iter()
            .filter(|event| matches!(event.kind, Kind::Wait(_)))
            .count() as u64;
        some.clear();
    }
    let begin = Linux.thread_cpu();
    let findings = explainer.finish();
    let finish = Linux.thread_cpu().saturating_sub(begin);
    println!(
        "{events} events, {waits} waits, {} switch-outs explained",
        findings.switches.total.unwrap_or(0)
    );
    let rate = |took: Nanos| waits.saturating_mul(1_000_000_000) / took.0.max(1);
    for (what, took) in [
        ("read", spent.read),
        ("graph", spent.graph),
        ("explain", spent.explain),
        ("finish", finish),
        ("all", spent.read + spent.explain + finish),
    ] {
        println!(
            "{what:8} {took:>10}  {:>9} waits per second, {} ns each",
            rate(took),
            took.0 / waits.max(1)
        );
    }
    println!("most memory: {}", most_memory());
    Ok(match rate(spent.graph) >= GRAPH_AT_LEAST {
        true => ExitCode::SUCCESS,
        false => {
            println!(
                "NOT AS PROMISED: the graph follows at least {GRAPH_AT_LEAST} waits per second"
            );
            ExitCode::from(BROKEN)
        }
    })
}

/// Returns the most memory that this process had, as the kernel writes it.
fn most_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |line| line.trim().to_owned())
}

/// Writes waits of three threads: a client asks a server, which waits for a lock that a third thread has.
fn made(file: File) -> Result<(), stopgap_trace::Error> {
    let names = ["client", "server", "holder"].map(Text::from);
    let calls = ["poll", "futex", "nanosleep"].map(Text::from);
    let sends = Text::from("write");
    let mut writer = Writer::new(file)?;
    for turn in 0..WAITS {
        let who = turn as usize % 3;
        let now = 1_000_000 + u64::from(turn) * 1_000;
        let task = |at: usize| Task {
            tid: 100 + at as u32,
            comm: Some(Text::clone(&names[at])),
        };
        let call = |number, name: &Text, arguments| Call {
            number,
            name: Some(Text::clone(name)),
            arguments,
        };
        let arguments = match who {
            1 => [Some(0x7f00_0000_1000), Some(0x80), Some(2)],
            _ => [Some(0x7ffd_0000_1000), Some(1), Some(u64::MAX)],
        };
        let by = (who + 1) % 3;
        let wait = Wait {
            left: Nanos(now - 2_500),
            woken: Some(Nanos(now - 300)),
            ran: Some(Nanos(now)),
            left_cpu: Some(who as u32 % 2),
            state: Some(State::Sleeping),
            preempted: Some(false),
            for_io: Some(false),
            within: Some(Within::Call),
            call: Some(call(7 + who as u32, &calls[who], arguments)),
            previous: Some(task(by)),
            waker: (who < 2).then(|| Waker {
                task: task(by),
                context: Some(Context::Task),
                call: Some(call(1, &sends, [Some(4), None, None])),
            }),
            ..Wait::default()
        };
        writer.write(&Event {
            time: Nanos(now),
            cpu: Some(who as u32 % 2),
            pid: Some(100 + who as u32),
            tid: Some(100 + who as u32),
            comm: Some(Text::clone(&names[who])),
            kind: Kind::Wait(Box::new(wait)),
        })?;
    }
    writer.finish(&Metadata::default()).map(drop)
}
