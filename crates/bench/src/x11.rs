//! `stopgap-bench x11`: whether `explain` is right about the switches of a real X server.
//!
//! Runs of Xvfb and `xwininfo -root -tree` on one CPU, recorded and explained, the client as it is and under `SCHED_BATCH`, in turn;
//! and beside each of them one that is not recorded, because being recorded costs switches. Held against bounds: the trace against the
//! kernel's own counts, the causes against their total, the pre-emptions of the server, the advice, and the gain of following the advice

use std::collections::BTreeMap;
use std::process::ExitCode;

use stopgap_cli::{Failure, print};
use stopgap_explain::Findings;
use stopgap_kernel::files::Files;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::x11::{Placing, X11, XRun};
use stopgap_kernel::{Error, Linux};
use stopgap_report::table::{join, known_or};
use stopgap_stats::explain::{Cause, CauseKind};
use stopgap_trace::{Event, Kind};
use stopgap_tracer::capture::{Capture, Options};
use stopgap_tracer::events::EventSet;
use stopgap_tracer::spool::End;
use stopgap_tracer::symbols::Symbols;

use crate::common::{Bounds, Rounds, explained, failed, journal, last_cpu, middle, rounds, table};

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
    let all = rounds(flags.runs, &[2], |_, side| {
        let placing = Placing {
            server: vec![cpu],
            client: vec![cpu],
            batch: side == 1,
            through: Vec::new(),
        };
        let recorded = record(&journal, &placing)?;
        Ok((recorded, unrecorded(&placing)?))
    })?;
    let runs = &all[0];
    let rows = runs.0.iter().zip(1..).flat_map(|(round, number)| {
        let sides = round.iter().zip(["default", "batch"]);
        sides.map(move |((run, free), policy)| run.row(number, policy, *free))
    });
    let head = "run|policy|flushes|(trace)|switches: trace|rusage|off|per flush|unrecorded|server pre-empted|by whom it answered|advice";
    print(&format!(
        "Xvfb with {WINDOWS} windows, xwininfo -root -tree, both on CPU {cpu}, {} runs of each policy\n{}\n{}\n{}",
        flags.runs,
        table(head, rows),
        causes("default", runs, 0),
        causes("SCHED_BATCH", runs, 1)
    ))?;
    bounds(runs).print()
}

/// A run and what its trace shows.
struct Recorded {
    /// The kernel's counts.
    counted: XRun,
    findings: Findings,
    /// How often the client began to send, in the trace.
    sends: u64,
}

/// Runs of both policies: each recorded, and the switches a flush of one beside it that is not.
type Runs = Rounds<(Recorded, Option<f64>)>;

/// Runs a fresh server and a client, and records both.
fn record(journal: &Journal<'_>, placing: &Placing) -> Result<Recorded, Failure> {
    let folder = tempfile::tempdir().map_err(failed("a folder"))?;
    let options = Options {
        events: EventSet::All,
        buffer: None,
        spool: folder.path().join("spool"),
        subject: "xwininfo -root -tree".into(),
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
    let spool = capture.stop(End::default())?;
    let kallsyms = Linux.read("/proc/kallsyms".as_ref()).unwrap_or_default();
    let symbols = Symbols::parse(&String::from_utf8_lossy(&kallsyms));
    let mut sends = 0;
    let findings = explained(&spool, &symbols, |event| {
        sends += u64::from(event.tid == Some(client) && is_send(event));
    })?;
    Ok(Recorded {
        counted,
        findings,
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
    fn row(&self, run: u32, policy: &str, unrecorded: Option<f64>) -> Vec<String> {
        let (trace, kernel) = self.switches();
        let advice = join(self.advice(), ", ");
        vec![
            run.to_string(),
            policy.to_owned(),
            known_or("?", self.counted.flushes),
            self.sends.to_string(),
            trace.to_string(),
            kernel.to_string(),
            format!("{:.1} %", self.off() * 100.0),
            format!("{:.2}", self.per_flush()),
            known_or("?", unrecorded.map(|n| format!("{n:.2}"))),
            self.pre_empted(false).to_string(),
            self.pre_empted(true).to_string(),
            if advice.is_empty() {
                "none".to_owned()
            } else {
                advice
            },
        ]
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

/// Returns the bounds of all runs together.
fn bounds(runs: &Runs) -> Bounds {
    let all = || runs.0.iter().flatten().map(|(run, _)| run);
    let usual = || runs.side(0).map(|(run, _)| run);
    let mut bounds = Bounds::default();
    let off = all().map(Recorded::off).fold(0.0, f64::max);
    let percent = off * 100.0;
    let what = format!(
        "agreement: switches by trace and by rusage differ by at most {percent:.1} % in any run (2 %)"
    );
    bounds.add(off <= OFF, what);
    let disagrees = |run: &&Recorded| run.counted.flushes.is_some_and(|n| n != run.sends);
    let odd = all().filter(disagrees).count();
    let what = format!("flushes: by trace and by /proc/PID/io they differ in {odd} runs (0)");
    bounds.add(odd == 0, what);
    let odd = all().filter(|run| run.is_odd()).count();
    let what = format!("sums: causes do not add up to the total in {odd} runs (0)");
    bounds.add(odd == 0, what);
    let pre_empted: u64 = usual().map(|run| run.pre_empted(false)).sum();
    let what = format!("evidence: the server was pre-empted {pre_empted} times ({ENOUGH})");
    bounds.add(pre_empted >= ENOUGH, what);
    let by_its_answer: u64 = usual().map(|run| run.pre_empted(true)).sum();
    let share = by_its_answer as f64 / pre_empted.max(1) as f64;
    let percent = share * 100.0;
    let what = format!(
        "attribution: {by_its_answer} of them, {percent:.1} %, on the way out of the writev that woke the client (95 %)"
    );
    bounds.add(share >= ATTRIBUTED, what);
    let medians = [0, 1].map(|side| runs.median(side, |(run, _)| run.per_flush()));
    let free = [0, 1].map(|side| middle(runs.side(side).filter_map(|(_, free)| *free)));
    let shown = |[usual, batch]: [f64; 2]| {
        let ratio = usual / batch;
        format!("default {usual:.2}, SCHED_BATCH {batch:.2}, {ratio:.2}x")
    };
    let what = format!(
        "ratio: medians of switches a flush, not recorded: {} ({RATIO}x); recorded: {}",
        shown(free),
        shown(medians)
    );
    bounds.add(free[0] >= RATIO * free[1], what);
    let costly = || usual().filter(|run| run.per_flush() >= WORTH_ADVICE);
    let advised = costly().filter(|run| run.advice().next() == Some("sched-batch"));
    let (advised, costly) = (advised.count(), costly().count());
    let what = format!(
        "advice: sched-batch comes first in {advised} of the {costly} default runs with {WORTH_ADVICE} switches a flush or more (all)"
    );
    bounds.add(advised == costly, what);
    bounds
}

/// Returns the causes of all runs of a side together, the most frequent first.
fn causes(name: &str, runs: &Runs, side: usize) -> String {
    let runs = || runs.side(side).map(|(run, _)| run);
    let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for cause in runs().flat_map(|run| &run.findings.switches.causes) {
        *sums.entry((&cause.task, &cause.cause)).or_default() += cause.count;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let mut text = format!("{name}: why they left the CPU, all runs\n");
    for ((task, cause), count) in sums {
        text += &format!("{count:8}  {task}: {cause}\n");
    }
    let elapsed = || runs().map(|run| run.counted.elapsed);
    if let (Some(least), Some(most)) = (elapsed().min(), elapsed().max()) {
        text += &format!("a run took {least} to {most}\n");
    }
    text
}
