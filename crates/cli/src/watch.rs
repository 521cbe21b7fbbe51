//! `stopgap watch`: the flight recorder. The last seconds are kept in the kernel's buffers; when
//! something fires they are taken out, and become a trace and a page that names the cause.
//!
//! | module | what |
//! |---|---|
//! | `triggers` | what fires |
//! | `pace` | how often a window may be written |
//! | `folder` | names, the bound on the disk, what a killed watch left |
//! | `page` | a window becomes files, in a process of its own |

mod folder;
mod pace;
mod page;
mod triggers;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::Watched;
use stopgap_kernel::{Linux, budget, signals};
use stopgap_stats::watch::{Document, End, Stall, Told, Trigger, TriggerKind};
use stopgap_tracer::capture::{Options, Window, default_buffer};
use stopgap_tracer::description::Subject;
use stopgap_tracer::events::EventSet;
use stopgap_tracer::slow_calls::SlowCalls;

use crate::failure::{DONE, ERROR, Failure};
use crate::record::{affordable, remove, subject_of};
use crate::session::tell;
use crate::{args, output, places};
use pace::Pace;
use triggers::Triggers;

/// Time between two looks at calls and at pressure so far, which do not wake the watch.
const TICK: Nanos = Nanos::millis(250);
/// The trace and the page of a short stall.
const LEAST_DISK: Bytes = Bytes::mib(1);
/// Time after a trigger that still belongs to its stall.
const SETTLE: Nanos = Nanos::millis(500);
/// Longest wait for the end of an open call, so that the trace has it.
const OPEN: Nanos = Nanos::secs(2);
/// A CPU's buffer by default: ten seconds of a busy desktop, and 0.1 s to take out and write.
const LARGEST_BUFFER: Bytes = Bytes::mib(16);
/// Some pages: the events of a millisecond.
const LEAST_BUFFER: Bytes = Bytes::kib(64);
/// Most windows that may wait to become pages: a page takes seconds, and windows are 15 s apart.
const MOST_WAITING: usize = 3;
/// Time after a page in which I/O pressure may be our own, because writing a page waits for the disk.
const AFTERMATH: Nanos = Nanos::secs(2);
/// Longest wait for the last page when a watch ends.
const LAST_PAGE: Nanos = Nanos::secs(120);

pub(crate) fn run(args: &args::Watch) -> Result<ExitCode, Failure> {
    signals::install();
    if let Some(folder) = &args.finish {
        return page::finish(folder, args.json);
    }
    if args.duration == Some(Nanos(0)) {
        return Err(Failure::error(
            "-d 0: there is nothing to watch for no time".to_owned(),
        ));
    }
    if let Some(buffer) = args.buffer.filter(|buffer| *buffer < LEAST_BUFFER) {
        return Err(Failure::error(format!(
            "--buffer {buffer}: a CPU's window takes at least {LEAST_BUFFER}"
        )));
    }
    affordable(args.buffer)?;
    if args.disk < LEAST_DISK {
        return Err(Failure::error(format!(
            "--disk {}: stalls take at least {LEAST_DISK}",
            args.disk
        )));
    }
    if let Some(parent) = args.output.as_deref().and_then(Path::parent)
        && !parent.as_os_str().is_empty()
        && !parent.is_dir()
    {
        return Err(Failure::error(format!(
            "cannot write to {}: the directory above it must exist",
            args.output.as_deref().unwrap_or(parent).display()
        )));
    }
    signals::take_requests();
    let watched = args.pid.map(Watched::open).transpose()?;
    let journal = Journal::new(&Linux, &places::journal(None)?);
    let subject = match args.pid {
        Some(pid) => subject_of(pid),
        None => "the whole system".into(),
    };
    let source = subject.source.clone();
    let cpus = stopgap_kernel::tasks::Tasks::cpus(&Linux)?.len() as u64;
    let usual = default_buffer(budget::meminfo(&Linux, "MemTotal")?, cpus);
    let options = Options {
        events: EventSet::All,
        buffer: Some(args.buffer.unwrap_or(usual.min(LARGEST_BUFFER))),
        spool: PathBuf::new(),
        subject: Subject {
            source: format!("watch of {source}"),
            ..subject
        },
    };
    let mut window = Window::prepare(&Linux, &journal, &options)?;
    let directory = match &args.output {
        Some(directory) => places::records(Some(directory))?,
        None => places::records(Some(&places::records(None)?.join("watch")))?,
    };
    window.start(args.pid)?;
    for missing in window.missing() {
        tell(&format!("not watched: {}: {}", missing.what, missing.why));
    }
    let limits = args.limits();
    let slow = match limits.is_empty() {
        true => None,
        false => Some(SlowCalls::start(&Linux, &journal, &limits, args.pid)?),
    };
    let triggers = Triggers::new(&args.pressures(), args.pid, slow);
    let mut fires = triggers.describe();
    fires.extend(
        limits
            .iter()
            .map(|limit| format!("{} {}", limit.call, limit.time)),
    );
    fires.push(format!("kill -USR1 {}", std::process::id()));
    tell(&format!(
        "watching {source}; fires: {}; stalls go to {}; Ctrl-C ends",
        fires.join(", "),
        directory.display()
    ));
    let mut watch = Watch {
        args,
        waiting: folder::unfinished(&directory).into(),
        directory,
        window,
        triggers,
        paces: BTreeMap::new(),
        pending: None,
        writing: None,
        quiet_after: Nanos(0),
        stalls: 0,
        failed: 0,
    };
    let began = Linux.now();
    let why = watch.follow(watched.as_ref(), began);
    watch.end(why, Linux.now().saturating_sub(began))
}

/// Something has fired, and its window is still filling.
struct Pending {
    triggers: Vec<Trigger>,
    due: Nanos,
}

/// The most triggers that a stall names; the others are of the same.
const MOST_TRIGGERS: usize = 20;

impl Pending {
    fn add(&mut self, trigger: Trigger) {
        let same = |there: &&mut Trigger| {
            let call = there.open && there.tid == trigger.tid && there.call == trigger.call;
            call && trigger.kind == TriggerKind::SlowCall
        };
        // A call that was open has ended: now its length is known, and nobody needs to wait.
        if let Some(there) = self.triggers.iter_mut().find(same) {
            let settled = Nanos(trigger.at_ns) + SETTLE;
            *there = trigger;
            if self.triggers.iter().all(|trigger| !trigger.open) {
                self.due = Nanos(self.due.0.min(settled.0));
            }
        } else if self.triggers.len() < MOST_TRIGGERS {
            self.triggers.push(trigger);
        }
    }

    /// From where to where the stall is looked for, where the window was taken at `taken`.
    fn window(&self, taken: Nanos) -> (u64, u64) {
        let mut begin = taken.0;
        for trigger in &self.triggers {
            let back = match trigger.kind {
                // The kernel looks ten times a window; what it saw began up to a window before.
                TriggerKind::MemoryPressure | TriggerKind::IoPressure => {
                    trigger.window_ns.unwrap_or(0) / 10 * 12
                }
                TriggerKind::SlowCall => trigger.measured_ns.unwrap_or(0),
                // Somebody has felt something and typed: some seconds.
                TriggerKind::Request => Nanos::secs(10).0,
            };
            begin = begin.min(trigger.at_ns.saturating_sub(back));
        }
        (begin, taken.0)
    }
}

/// Returns how many times its limit a trigger is; 1 where that is unknown.
fn severity(trigger: &Trigger) -> f64 {
    match (trigger.measured_ns, trigger.threshold_ns) {
        (Some(measured), Some(limit)) if limit > 0 => measured as f64 / limit as f64,
        _ => 1.0,
    }
}

struct Watch<'a, 'j, 's> {
    args: &'a args::Watch,
    directory: PathBuf,
    // Before the window: what was made last is undone first.
    triggers: Triggers<'j, 's>,
    window: Window<'j, 's>,
    paces: BTreeMap<TriggerKind, Pace>,
    pending: Option<Pending>,
    /// Windows that are to be made into pages, and the one that is.
    waiting: VecDeque<PathBuf>,
    writing: Option<Child>,
    /// Until then I/O pressure may be our own.
    quiet_after: Nanos,
    stalls: u64,
    failed: u64,
}

impl Watch<'_, '_, '_> {
    /// Watches until the end; why it ended.
    fn follow(&mut self, watched: Option<&Watched>, began: Nanos) -> &'static str {
        let deadline = self.args.duration.map(|duration| began + duration);
        loop {
            let now = Linux.now();
            let left = deadline.map_or(TICK, |deadline| deadline.saturating_sub(now));
            let due = self
                .pending
                .as_ref()
                .map_or(TICK, |p| p.due.saturating_sub(now));
            let longest = Nanos(TICK.0.min(left.0).min(due.0).max(1));
            let end = watched.map(Watched::end);
            for trigger in self.triggers.wait(end, longest) {
                self.fired(trigger);
            }
            self.write_pages();
            let now = Linux.now();
            let ended = watched.is_some_and(Watched::has_ended);
            let over = ended || signals::interrupted() || deadline.is_some_and(|end| now >= end);
            if self.pending.as_ref().is_some_and(|p| over || now >= p.due) {
                self.take();
            }
            if over {
                return match ended {
                    true => "the process ended",
                    false if signals::interrupted() => "interrupted",
                    false => "its time was over",
                };
            }
        }
    }

    fn fired(&mut self, trigger: Trigger) {
        let now = Linux.now();
        let ours = self.writing.is_some() || now < self.quiet_after;
        if ours && trigger.kind == TriggerKind::IoPressure {
            return; // the page's, most likely
        }
        if let Some(pending) = &mut self.pending {
            pending.add(trigger);
        } else if self.may(&trigger, now) {
            let due = match trigger.kind {
                TriggerKind::Request => now,
                _ if trigger.open => now + OPEN,
                _ => now + SETTLE,
            };
            self.pending = Some(Pending {
                triggers: vec![trigger],
                due,
            });
        }
    }

    /// Whether it may have a window. Each kind has a pace of its own, and a request needs none.
    fn may(&mut self, trigger: &Trigger, now: Nanos) -> bool {
        let pace = self.paces.entry(trigger.kind).or_insert_with(Pace::new);
        trigger.kind == TriggerKind::Request || pace.allows(now, severity(trigger))
    }

    /// Takes the window out.
    fn take(&mut self) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        let unix_s = Linux.unix_seconds();
        let mut suppressed = 0;
        let mut worst: BTreeMap<TriggerKind, f64> = BTreeMap::new();
        for trigger in &pending.triggers {
            let worst = worst.entry(trigger.kind).or_default();
            *worst = worst.max(severity(trigger));
        }
        for (kind, worst) in worst {
            let pace = self.paces.entry(kind).or_insert_with(Pace::new);
            suppressed += pace.written(Linux.now(), worst);
        }
        if self.waiting.len() >= MOST_WAITING {
            self.failed += 1;
            tell("a stall is not written: the pages of those before are not ready");
            return;
        }
        let name = folder::name(&self.directory, unix_s);
        let spool = folder::spool(&self.directory, &name, std::process::id());
        let taken = self.window.take(&spool).map_err(|error| error.to_string());
        let told = taken.and_then(|taken| {
            let (begin_ns, end_ns) = pending.window(taken.end);
            let stall = Stall {
                unix_s,
                triggers: pending.triggers,
                begin_ns,
                end_ns,
                from_ns: taken.since.0, // when the pages are read, what they have
                taken_ns: taken.end.0,
                gap_ns: taken.gap.0,
                suppressed,
            };
            let written = Folder::open(&spool).and_then(|folder| {
                folder.write(page::STALL.as_ref(), output::json(&stall).as_bytes())
            });
            written.map_err(|e| e.to_string())
        });
        match told {
            Ok(()) => self.waiting.push_back(spool),
            Err(why) => {
                self.failed += 1;
                tell(&format!("a stall could not be written: {why}"));
                let _ = remove(&spool); // of no use to anybody
            }
        }
        self.write_pages();
    }

    /// Looks whether the page being made is ready, and has the next one made.
    fn write_pages(&mut self) {
        if let Some(child) = &mut self.writing {
            match child.try_wait() {
                Ok(None) => return,
                Ok(Some(status)) if status.success() => self.stalls += 1,
                _ => self.failed += 1, // it has said why
            }
            self.writing = None;
            self.quiet_after = Linux.now() + AFTERMATH;
            match folder::bound(&self.directory, self.args.disk) {
                Ok(0) => {}
                Ok(count) => tell(&format!(
                    "{count} of the oldest stalls removed: all take {} at most",
                    self.args.disk
                )),
                Err(error) => tell(&format!("{}: {error}", self.directory.display())),
            }
        }
        if let Some(spool) = self.waiting.pop_front() {
            match start_page(&spool, self.args.json) {
                Ok(child) => self.writing = Some(child),
                Err(error) => {
                    self.failed += 1;
                    tell(&format!("a page cannot be made: {error}"));
                }
            }
        }
    }

    fn end(mut self, why: &str, watched: Nanos) -> Result<ExitCode, Failure> {
        let deadline = Linux.now() + LAST_PAGE;
        // Nothing is traced any more while the last page is made.
        let stopped = self.triggers.stop().and(self.window.stop());
        let json = self.args.json;
        let mut next = || match self.writing.take() {
            Some(child) => Some(child),
            None => start_page(&self.waiting.pop_front()?, json).ok(),
        };
        while let Some(mut child) = next() {
            while Linux.now() < deadline && matches!(child.try_wait(), Ok(None)) {
                Linux.sleep_until(Linux.now() + Nanos::millis(50));
            }
            match child.try_wait() {
                Ok(Some(status)) if status.success() => self.stalls += 1,
                Ok(None) => {
                    tell("the last page is still being made; it will be there soon");
                    break;
                }
                _ => self.failed += 1,
            }
        }
        let suppressed = self.paces.values().map(Pace::suppressed).sum();
        let (stalls, failed) = (self.stalls, self.failed);
        if self.args.json {
            let told = Told::End(End {
                stalls,
                suppressed,
                failed,
                watched_ns: watched.0,
                why: why.to_owned(),
            });
            output::print(&Document::new(env!("CARGO_PKG_VERSION"), told).to_line())?;
        } else {
            let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            output::print(&format!(
                "watched for {watched}, {why}: {} in {}, {} too near to the one before, {failed} not written",
                count(stalls, "stall"),
                self.directory.display(),
                count(suppressed, "trigger"),
            ))?;
        }
        stopped?;
        Ok(ExitCode::from(if failed > 0 { ERROR } else { DONE }))
    }
}

/// This program again, though its file may have been replaced since.
fn start_page(spool: &Path, json: bool) -> std::io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("watch").arg("--finish").arg(spool);
    if json {
        command.arg("--json");
    }
    command.stdin(Stdio::null()).spawn()
}
