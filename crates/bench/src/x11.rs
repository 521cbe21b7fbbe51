//! `stopgap-bench x11`: whether `explain` is right about the switches of a real X server.
//!
//! Runs of Xvfb and `xwininfo -root -tree` on one CPU, recorded and explained, the client as it is and under `SCHED_BATCH`, in turn;
//! and beside each of them one that is not recorded, because being recorded costs switches. Held against bounds: the trace against the
//! kernel's own counts, the causes against their total, the pre-emptions of the server, the advice, and the gain of following the advice

use std::collections::BTreeMap;
use std::process::ExitCode;

use stopgap_cli::{Failure, progress_bar, tell};
use stopgap_explain::{Explainer, Findings, Options};
use stopgap_kernel::files::Files;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::x11::{Placing, X11, XRun};
use stopgap_kernel::{Error, Linux, signals};
use stopgap_stats::explain::{Cause, CauseKind};
use stopgap_trace::{Event, Kind};
use stopgap_tracer::capture::{Capture, Options as Capturing};
use stopgap_tracer::events::EventSet;
use stopgap_tracer::symbols::Symbols;

use crate::common::{Bounds, failed, journal, last_cpu, middle};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Runs of each policy, each with a server of its own.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The CPU of both; it should be idle [default: the last one that we may use].
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
}

/// Windows that the client asks for.
pub(crate) const WINDOWS: u32 = 500;
/// How many times the switches of SCHED_BATCH the default takes.
pub(crate) const RATIO: f64 = 1.8;
/// Names of the two, as the kernel has them.
const CLIENT: &str = "xwininfo";
const SERVER: &str = "Xvfb";
/// By what share the trace's switches may differ from the kernel's, in any run.
const OFF: f64 = 0.02;
/// Involuntary switches of the server that the share of causes needs.
const ENOUGH: u64 = 200;
/// Least share of them that `explain` must put down to the server's own reply.
const ATTRIBUTED: f64 = 0.95;
/// Least switches a flush for which `explain` advises.
const WORTH_ADVICE: f64 = 2.2;

/// Runs, prints a line for each and one for each bound.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    Linux.x_programs()?;
    let cpu = last_cpu(flags.cpu, &Linux.cpus()?);
    // We sleep while they run, the buffers have room for all. Bound to another CPU than theirs, we saw a client under
    // SCHED_BATCH take as many switches as one that is not; why is not known.
    Linux.set_cpus(&[cpu])?;
    let journal = journal()?;
    println!(
        "Xvfb with {WINDOWS} windows, xwininfo -root -tree, both on CPU {cpu}, {} runs of each policy\n\
         run  policy   flushes (trace)  switches: trace  rusage  off  per flush  unrecorded  server pre-empted  by whom it \
         answered  advice",
        flags.runs
    );
    let bar = progress_bar();
    let mut all: [Vec<Recorded>; 2] = Default::default();
    let mut free: [Vec<f64>; 2] = Default::default();
    'runs: for run in 0..flags.runs {
        for batch in [false, true] {
            if signals::interrupted() {
                tell("interrupted: fewer runs");
                break 'runs;
            }
            bar.set_position(u64::from(run) * 1_000 / u64::from(flags.runs));
            let placing = Placing {
                server: vec![cpu],
                client: vec![cpu],
                batch,
                through: Vec::new(),
            };
            let recorded = record(&journal, &placing)?;
            let unrecorded = unrecorded(&placing)?;
            bar.suspend(|| println!("{}", recorded.line(run, batch, unrecorded)));
            free[usize::from(batch)].extend(unrecorded);
            all[usize::from(batch)].push(recorded);
        }
    }
    bar.finish_and_clear();
    let [usual, batch] = &all;
    if usual.is_empty() || batch.is_empty() {
        return Err(Failure::error("interrupted before anything was measured"));
    }
    println!(
        "\n{}\n{}",
        causes("default", usual),
        causes("SCHED_BATCH", batch)
    );
    bounds(usual, batch, &free).print()
}

/// A run and what its trace shows.
struct Recorded {
    /// The kernel's counts.
    counted: XRun,
    findings: Findings,
    /// How often the client began to send, in the trace.
    sends: u64,
}

/// Runs a fresh server and a client, and records both.
fn record(journal: &Journal<'_>, placing: &Placing) -> Result<Recorded, Failure> {
    let folder = tempfile::tempdir().map_err(failed("a folder"))?;
    let options = Capturing {
        events: EventSet::All,
        buffer: None,
        spool: folder.path().join("spool"),
        source: "xwininfo -root -tree".to_owned(),
    };
    let x = Linux.start_x(WINDOWS, &placing.server)?;
    let mut capture = Capture::prepare(&Linux, journal, &options)?;
    let server = x.pid();
    let mut client = 0;
    // All of it fits into the buffers: nobody reads them meanwhile.
    let counted = x.ask(placing, &mut |pid| {
        client = pid;
        let started = capture.start_all(&[server, pid]);
        started.map_err(|error| match error {
            stopgap_tracer::Error::System(error) => error,
            error => Error::unsupported("the capture", error),
        })
    })?;
    let spool = capture.stop(None)?;
    let kallsyms = Linux.read("/proc/kallsyms".as_ref()).unwrap_or_default();
    let mut trace = spool.trace(Symbols::parse(&String::from_utf8_lossy(&kallsyms)))?;
    let options = Options {
        top: 1,
        frame_marker: None,
    };
    let mut explainer = Explainer::new(&trace.metadata(), options);
    let mut sends = 0;
    while let Some(event) = trace.next_event()? {
        sends += u64::from(event.tid == Some(client) && is_send(&event));
        explainer.event(&event);
    }
    Ok(Recorded {
        counted,
        findings: explainer.finish(),
        sends,
    })
}

/// Returns the switch-outs a flush of a fresh server and a client that nobody records; `None` where flushes are not counted.
pub(crate) fn unrecorded(placing: &Placing) -> Result<Option<f64>, Failure> {
    let x = Linux.start_x(WINDOWS, &placing.server)?;
    let counted = x.ask(placing, &mut |_| Ok(()))?;
    if counted.windows < u64::from(WINDOWS) {
        let why = format!("the client named {} windows of {WINDOWS}", counted.windows);
        return Err(Failure::error(why));
    }
    let switches = counted.client.total() + counted.server.total();
    let flushes = counted.flushes.filter(|&flushes| flushes > 0);
    Ok(flushes.map(|flushes| switches as f64 / flushes as f64))
}

/// Whether a call begins by which the client sends requests. What it prints goes to descriptor 1.
fn is_send(event: &Event) -> bool {
    const SENDS: [&str; 4] = ["write", "writev", "sendto", "sendmsg"];
    match &event.kind {
        Kind::SyscallEnter {
            name, arguments, ..
        } => {
            let sends = name.as_deref().is_some_and(|name| SENDS.contains(&name));
            let to = arguments.first().copied().flatten();
            sends && to.is_some_and(|to| to > 2)
        }
        _ => false,
    }
}

impl Recorded {
    /// Returns a line of figures.
    fn line(&self, run: u32, batch: bool, unrecorded: Option<f64>) -> String {
        let (trace, kernel) = self.switches();
        let policy = if batch { "batch" } else { "default" };
        let advice: Vec<&str> = self.advice().collect();
        format!(
            "{:3}  {policy:7}  {:7} {:7}  {trace:15}  {kernel:6}  {:.1} %  {:9.2}  {:>10}  {:17}  {:19}  {}",
            run + 1,
            self.counted
                .flushes
                .map_or("?".to_owned(), |n| n.to_string()),
            self.sends,
            self.off() * 100.0,
            self.per_flush(),
            unrecorded.map_or("?".to_owned(), |n| format!("{n:.2}")),
            self.pre_empted(false),
            self.pre_empted(true),
            if advice.is_empty() {
                "none".to_owned()
            } else {
                advice.join(", ")
            },
        )
    }

    /// Returns the switch-outs of both: from the trace, and by the kernel's count.
    fn switches(&self) -> (u64, u64) {
        let tasks = self.findings.tasks.iter();
        let ours = tasks.filter(|task| task.task == CLIENT || task.task == SERVER);
        let kernel = self.counted.client.total() + self.counted.server.total();
        (ours.map(|task| task.switches).sum(), kernel)
    }

    /// Returns the share by which the two differ.
    fn off(&self) -> f64 {
        let (trace, kernel) = self.switches();
        trace.abs_diff(kernel) as f64 / kernel.max(1) as f64
    }

    /// Returns the switch-outs a flush, by the kernel's count.
    fn per_flush(&self) -> f64 {
        self.switches().1 as f64 / self.sends.max(1) as f64
    }

    /// Counts the server's involuntary switches, or those alone on the way out of the writev in which it woke the client.
    fn pre_empted(&self, by_its_answer: bool) -> u64 {
        let counted = |cause: &&Cause| match cause.kind {
            CauseKind::PreemptedOnTheWayOut => {
                let call = cause.call.as_deref() == Some("writev");
                !by_its_answer || call && cause.by_task.as_deref() == Some(CLIENT)
            }
            CauseKind::PreemptedInCall | CauseKind::PreemptedInUser => !by_its_answer,
            _ => false,
        };
        let causes = self.findings.switches.causes.iter();
        let servers = causes.filter(|cause| cause.task == SERVER);
        servers.filter(counted).map(|cause| cause.count).sum()
    }

    /// Whether the causes do not add up to the total.
    fn is_odd(&self) -> bool {
        let causes = self.findings.switches.causes.iter();
        let sum: u64 = causes.map(|cause| cause.count).sum();
        sum != self.findings.switches.total.unwrap_or(0)
    }

    /// Returns the advice of `explain`, in its order.
    fn advice(&self) -> impl Iterator<Item = &str> {
        self.findings.advice.iter().map(|advice| &*advice.word)
    }
}

/// Returns the bounds of all runs together. `free` are the switches a flush that are not recorded.
fn bounds(usual: &[Recorded], batch: &[Recorded], free: &[Vec<f64>; 2]) -> Bounds {
    let all = || usual.iter().chain(batch);
    let mut bounds = Bounds::default();
    let off = all().map(Recorded::off).fold(0.0, f64::max);
    let percent = off * 100.0;
    let what = format!(
        "agreement: switches by trace and by rusage differ by at most {percent:.1} % in any run (2 %)"
    );
    bounds.add(off <= OFF, what);
    let disagrees = |run: &&Recorded| {
        run.counted
            .flushes
            .is_some_and(|flushes| flushes != run.sends)
    };
    let odd = all().filter(disagrees).count();
    bounds.add(
        odd == 0,
        format!("flushes: by trace and by /proc/PID/io they differ in {odd} runs (0)"),
    );
    let odd = all().filter(|run| run.is_odd()).count();
    bounds.add(
        odd == 0,
        format!("sums: causes do not add up to the total in {odd} runs (0)"),
    );
    let pre_empted: u64 = usual.iter().map(|run| run.pre_empted(false)).sum();
    let what = format!("evidence: the server was pre-empted {pre_empted} times ({ENOUGH})");
    bounds.add(pre_empted >= ENOUGH, what);
    let by_its_answer: u64 = usual.iter().map(|run| run.pre_empted(true)).sum();
    let share = by_its_answer as f64 / pre_empted.max(1) as f64;
    let percent = share * 100.0;
    let what = format!(
        "attribution: {by_its_answer} of them, {percent:.1} %, on the way out of the writev that woke the client (95 %)"
    );
    bounds.add(share >= ATTRIBUTED, what);
    let medians = [usual, batch].map(|runs| middle(runs.iter().map(Recorded::per_flush)));
    let shown = |[usual, batch]: [f64; 2]| {
        format!(
            "default {usual:.2}, SCHED_BATCH {batch:.2}, {:.2}x",
            usual / batch
        )
    };
    let free = free.each_ref().map(|runs| middle(runs.iter().copied()));
    let what = format!(
        "ratio: medians of switches a flush, not recorded: {} ({RATIO}x); recorded: {}",
        shown(free),
        shown(medians)
    );
    bounds.add(free[0] >= RATIO * free[1], what);
    let costly = || usual.iter().filter(|run| run.per_flush() >= WORTH_ADVICE);
    let advised = costly().filter(|run| run.advice().next() == Some("sched-batch"));
    let (advised, costly) = (advised.count(), costly().count());
    let what = format!(
        "advice: sched-batch comes first in {advised} of the {costly} default runs with {WORTH_ADVICE} switches a flush or more (all)"
    );
    bounds.add(advised == costly, what);
    bounds
}

/// Returns the causes of all runs together, the most frequent first.
fn causes(name: &str, runs: &[Recorded]) -> String {
    let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for cause in runs.iter().flat_map(|run| &run.findings.switches.causes) {
        *sums.entry((&cause.task, &cause.cause)).or_default() += cause.count;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let mut text = format!("{name}: why they left the CPU, all runs\n");
    for ((task, cause), count) in sums {
        text += &format!("{count:8}  {task}: {cause}\n");
    }
    let elapsed = || runs.iter().map(|run| run.counted.elapsed);
    if let (Some(least), Some(most)) = (elapsed().min(), elapsed().max()) {
        text += &format!("a run took {least} to {most}\n");
    }
    text
}
