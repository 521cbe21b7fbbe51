//! One run: recorded, explained, and counted by the kernel.

use stopgap_cli::Failure;
use stopgap_events::units::Nanos;
use stopgap_explain::{Explainer, Findings, Options};
use stopgap_kernel::files::Files;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::tasks::Switches;
use stopgap_kernel::x11::{Placing, X11, XRun};
use stopgap_kernel::{Error, Linux};
use stopgap_stats::explain::{Cause, CauseKind};
use stopgap_trace::{Event, Kind};
use stopgap_tracer::capture::{Capture, Options as Capturing};
use stopgap_tracer::events::EventSet;
use stopgap_tracer::symbols::Symbols;

use super::WINDOWS;

/// Names of the two, as the kernel has them.
pub(super) const CLIENT: &str = "xwininfo";
pub(super) const SERVER: &str = "Xvfb";

/// A run and what its trace shows.
pub(super) struct Recorded {
    /// What the kernel counted.
    counted: XRun,
    findings: Findings,
    /// How often the client began to send, in the trace.
    sends: u64,
}

/// Runs a fresh server and a client, and records both.
pub(super) fn record(journal: &Journal<'_>, placing: &Placing) -> Result<Recorded, Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::error(error.to_string()))?;
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
    let symbols = Symbols::parse(&String::from_utf8_lossy(&kallsyms));
    let mut trace = spool.trace(symbols)?;
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

/// Switch-outs a flush of a fresh server and a client that nobody records; `None` where flushes are not counted.
pub(super) fn unrecorded(placing: &Placing) -> Result<Option<f64>, Failure> {
    let counted = Linux
        .start_x(WINDOWS, &placing.server)?
        .ask(placing, &mut |_| Ok(()))?;
    let switches = counted.client.total() + counted.server.total();
    let flushes = counted.flushes.filter(|&flushes| flushes > 0);
    Ok(flushes.map(|flushes| switches as f64 / flushes as f64))
}

/// Whether a call begins by which the client sends requests. What it prints goes to descriptor 1.
fn is_send(event: &Event) -> bool {
    let Kind::SyscallEnter {
        name, arguments, ..
    } = &event.kind
    else {
        return false;
    };
    let sends = matches!(
        name.as_deref(),
        Some("write" | "writev" | "sendto" | "sendmsg")
    );
    sends
        && arguments
            .first()
            .is_some_and(|to| to.is_some_and(|to| to > 2))
}

impl Recorded {
    /// Of the columns of [`Recorded::line`].
    pub(super) const HEAD: &str = "run  policy   flushes (trace)  switches: trace  rusage  off  per flush  \
                                   unrecorded  server pre-empted  by whom it answered  advice";

    /// A line of figures.
    pub(super) fn line(&self, run: u32, batch: bool, unrecorded: Option<f64>) -> String {
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
            self.pre_empted(),
            self.by_its_answer(),
            if advice.is_empty() {
                "none".to_owned()
            } else {
                advice.join(", ")
            },
        )
    }

    /// Switch-outs of both: from the trace, and by the kernel's count.
    pub(super) fn switches(&self) -> (u64, u64) {
        let tasks = self.findings.tasks.iter();
        let ours = tasks.filter(|task| task.task == CLIENT || task.task == SERVER);
        let kernel = |switches: Switches| switches.total();
        (
            ours.map(|task| task.switches).sum(),
            kernel(self.counted.client) + kernel(self.counted.server),
        )
    }

    /// By what share the two differ.
    pub(super) fn off(&self) -> f64 {
        let (trace, kernel) = self.switches();
        trace.abs_diff(kernel) as f64 / kernel.max(1) as f64
    }

    /// Whether both means of counting flushes agree; `None` where there is but one.
    pub(super) fn flushes_agree(&self) -> Option<bool> {
        Some(self.counted.flushes? == self.sends)
    }

    /// Switch-outs a flush, by the kernel's count.
    pub(super) fn per_flush(&self) -> f64 {
        self.switches().1 as f64 / self.sends.max(1) as f64
    }

    /// Causes of the server's involuntary switches.
    fn server_pre_empted(&self) -> impl Iterator<Item = &Cause> {
        let involuntary = |cause: &&Cause| {
            let kind = cause.kind;
            cause.task == SERVER
                && matches!(
                    kind,
                    CauseKind::PreemptedOnTheWayOut
                        | CauseKind::PreemptedInCall
                        | CauseKind::PreemptedInUser
                )
        };
        self.findings.switches.causes.iter().filter(involuntary)
    }

    /// The server's involuntary switches.
    pub(super) fn pre_empted(&self) -> u64 {
        self.server_pre_empted().map(|cause| cause.count).sum()
    }

    /// Of those: on the way out of the writev in which it woke the client.
    pub(super) fn by_its_answer(&self) -> u64 {
        self.server_pre_empted()
            .filter(|cause| {
                cause.kind == CauseKind::PreemptedOnTheWayOut
                    && cause.call.as_deref() == Some("writev")
                    && cause.by_task.as_deref() == Some(CLIENT)
            })
            .map(|cause| cause.count)
            .sum()
    }

    /// All causes, of both.
    pub(super) fn causes(&self) -> &[Cause] {
        &self.findings.switches.causes
    }

    /// What causes add up to, and the total.
    pub(super) fn sum_of_causes(&self) -> (u64, u64) {
        let sum = self.causes().iter().map(|cause| cause.count).sum();
        (sum, self.findings.switches.total.unwrap_or(0))
    }

    /// What `explain` advises, the first first.
    pub(super) fn advice(&self) -> impl Iterator<Item = &str> {
        self.findings.advice.iter().map(|advice| &*advice.word)
    }

    /// How long the client took.
    pub(super) fn elapsed(&self) -> Nanos {
        self.counted.elapsed
    }
}
