//! `stopgap watch`: the flight recorder. The waits of the whole machine come by BPF into memory, of which the last seconds
//! stay; when something fires, what was around the stall becomes a trace and a page that names the cause. The watch goes on meanwhile.
//!
//! | module | what |
//! |---|---|
//! | `stream` | which waits fire |
//! | `frames` | frames of a thread's own rhythm, and which are late |
//! | `triggers` | what else fires |
//! | `growth` | whose mappings come to the kernel's limit |
//! | `pace` | how often a window may be written |
//! | `aside` | what waits for the disk does not keep the rings from being drained |
//! | `losses` | records that rings lost, and when |
//! | `survive` | the last seconds on the disk, and out of it |
//! | `folder` | names, the bound on the disk, what a killed watch left |
//! | `history` | what the kernel counts, kept for 30 days, and shown |
//! | `page` | a window becomes files, in a process of its own |

mod aside;
mod folder;
mod frames;
mod growth;
mod history;
mod losses;
mod pace;
mod page;
mod stream;
mod survive;
mod triggers;

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::linux::{Watched, heap};
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, budget, signals};
use stopgap_stats::watch::{Document, End, Stall, Told, Trigger, TriggerKind};
use stopgap_tracer::black_box::{BlackBox, Record, Window};
use stopgap_tracer::description::Subject;
use stopgap_tracer::waits::syscall_names;

use crate::failure::{DONE, ERROR, Failure};
use crate::record::remove;
use crate::record::targets::{Asked, Others};
use crate::session::{tell, tell_error};
use crate::{args, output, places, voice};
use aside::Aside;
use frames::Frames;
use growth::MapGrowth;
use history::Keeper;
use losses::Losses;
use pace::Pace;
use stream::{Stream, Whose};
use survive::Survivor;
use triggers::Triggers;

/// From one look at waits that are open to the next, at least.
const LOOK: Nanos = Nanos::secs(1);
/// Looks take one part in so many of CPU time: each asks for all threads.
const LOOK_PART: u64 = 300;
/// The trace and the page of a short stall.
const LEAST_DISK: Bytes = Bytes::mib(1);
/// Time after a stall's end that its trace has, too.
const SETTLE: Nanos = Nanos::secs(1);
/// Longest wait for the end of an open wait, so that the trace has it.
const OPEN: Nanos = Nanos::secs(5);
/// Time for which who maps is asked, where mappings grow.
const ASKED: Nanos = Nanos::secs(3);
/// The kernel's limit of mappings.
const MAX_MAP_COUNT: &str = "/proc/sys/vm/max_map_count";
/// Longest time that triggers may follow one another in one stall: what never ends has a page, too.
const LONGEST: Nanos = Nanos::secs(15);
/// A trace of a longer stall has its end only.
const LONGEST_TRACE: Nanos = Nanos::secs(60);
/// A second of a quiet machine.
const LEAST_BUFFER: Bytes = Bytes::mib(1);
/// Stalls whose end has not come: those that fire meanwhile belong to one of them.
const MOST_PENDING: usize = 8;
/// Most windows that may wait to become pages, because a machine without a free CPU makes none for a while.
const MOST_WAITING: usize = 100;
/// They may take one part in so many of the room for stalls.
const WAITING_PART: u64 = 4;
/// Time after a page in which I/O pressure may be our own, because writing a page waits for the disk.
const AFTERMATH: Nanos = Nanos::secs(2);
/// Memory that is given back where records take less than half of what they took.
const MUCH: Bytes = Bytes::mib(4);
/// Longest wait for the last page when a watch ends.
const LAST_PAGE: Nanos = Nanos::secs(120);

pub(crate) fn run(args: &args::Watch) -> Result<ExitCode, Failure> {
    signals::install();
    if let Some(folder) = &args.finish {
        return page::finish(folder, args.disk, args.json);
    }
    if let Some(file) = &args.keep_in {
        return survive::keep_in(file, args.buffer);
    }
    if let Some(folder) = &args.thin {
        return history::thin(folder);
    }
    if let Some(back) = args.history {
        return history::show(args, back);
    }
    if args.duration == Some(Nanos(0)) {
        return Err(Failure::error(
            "-d 0: there is nothing to watch for no time".to_owned(),
        ));
    }
    if args.buffer < LEAST_BUFFER {
        return Err(Failure::error(format!(
            "--buffer {}: what happened last takes at least {LEAST_BUFFER}",
            args.buffer
        )));
    }
    let memory = budget::meminfo(&Linux, "MemTotal")?;
    if args.buffer.0 > memory.0 / 2 {
        return Err(Failure::error(format!(
            "--buffer {}: memory is {memory}; at most {}",
            args.buffer,
            Bytes(memory.0 / 2)
        )));
    }
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
    heap::keep_small();
    signals::take_requests();
    let mut others = Others::open(&Asked {
        pids: &args.pid,
        // Names are those of records.
        names: &[],
        groups: &args.cgroup,
        all: false,
    })?;
    let subject = match (&others, args.comm.is_empty()) {
        (Some(others), _) => others.subject(),
        (None, true) => "the whole system".into(),
        (None, false) => args.comm.join(", ").into(),
    };
    let source = subject.source.clone();
    let subject = Subject {
        source: format!("watch of {source}"),
        ..subject
    };
    let directory = match &args.output {
        Some(directory) => places::records(Some(directory))?,
        None => places::records(Some(&places::records(None)?.join("watch")))?,
    };
    let names = syscall_names();
    let mut black_box = BlackBox::start(&Linux, subject, args.buffer)
        .map_err(|error| needs_root(error.into(), Linux.uid()))?;
    for missing in black_box.missing() {
        tell(&format!("not watched: {}: {}", missing.what, missing.why));
    }
    let limits = args.limits();
    let whose = Whose {
        pids: args.pid.clone(),
        found: !args.cgroup.is_empty(),
        comms: args.comm.clone(),
        marks: args.mark.clone(),
        not: std::process::id(),
    };
    let keeper = Keeper::start(&directory, &black_box, names.clone());
    let frames = Frames::new(args.frame.clone(), args.frame_late);
    let mut stream = Stream::new(&limits, names, whose, frames);
    let now = Linux.now();
    black_box.drain(now.saturating_sub(args.keep), |record| {
        stream.record(record);
    })?;
    stream.begun();
    if let Some(others) = &mut others {
        stream.follows(&others.fresh());
    }
    let groups = others.as_ref().map_or(&[][..], Others::groups);
    let triggers = Triggers::new(&args.pressures(), &args.pid, groups);
    let mut fires = triggers.describe();
    fires.extend(
        limits
            .iter()
            .map(|limit| format!("{} {}", limit.what.word(), limit.time)),
    );
    let growth = match args.map_growth {
        args::MapGrowth::Off => None,
        args::MapGrowth::On(horizon, window) => {
            fires.push(format!("map growth {horizon}/{window}"));
            Some(MapGrowth::new(horizon, window))
        }
    };
    fires.extend(args.mark.iter().map(|mark| format!("mark {mark}")));
    let late = args.frame_late.map(|late| format!(" {late} late"));
    let late = late.as_deref().unwrap_or(" a period late");
    fires.extend(
        args.frame
            .iter()
            .map(|frame| format!("frame of {}{late}", frame.of)),
    );
    fires.push(format!("kill -USR1 {}", std::process::id()));
    let left = folder::unfinished(&directory).into_iter();
    let left = left.chain(survive::recover(&directory));
    let waiting = left.map(|spool| Waiting { spool, bytes: 0 }).collect();
    let survivor = match args.survive {
        true => Some(Survivor::start(&directory, args.buffer, &black_box)?),
        false => None,
    };
    tell(&format!(
        "watching {source}; Ctrl-C ends; what fires: --verbose"
    ));
    tell(&format!("stalls go to {}", places::short(&directory)));
    if voice::style().verbose {
        tell(&format!("fires: {}", fires.join(", ")));
    }
    let mut watch = Watch {
        args,
        waiting,
        survivor,
        keeper,
        directory,
        black_box,
        stream,
        triggers,
        growth,
        readings: [now; 2],
        next_look: now + LOOK,
        paces: BTreeMap::new(),
        pending: Vec::new(),
        hurries: false,
        fired_aside: Vec::new(),
        taking: Aside::new(),
        writing: None,
        most: Bytes(0),
        quiet_after: Nanos(0),
        stalls: 0,
        failed: 0,
        losses: Losses::default(),
    };
    let began = Linux.now();
    let why = watch.follow(others.as_mut(), began)?;
    watch.end(why, Linux.now().saturating_sub(began))
}

/// Something has fired, and what comes after it is still to be recorded.
struct Pending {
    triggers: Vec<Trigger>,
    /// When the stall began, as far as is known.
    begin: Nanos,
    /// When it was over.
    end: Nanos,
    /// When the first of its triggers came.
    came: Nanos,
    due: Nanos,
}

/// The most triggers that a stall names, and those of one thread in one call: the worst.
const MOST_TRIGGERS: usize = 20;
const MOST_OF_CALL: usize = 3;

impl Pending {
    fn new(trigger: Trigger, now: Nanos) -> Pending {
        let mut pending = Pending {
            begin: Nanos(trigger.at_ns),
            end: Nanos(trigger.at_ns),
            due: now,
            came: now,
            triggers: Vec::new(),
        };
        pending.add(trigger, now);
        pending
    }

    /// Whether the trigger belongs to this stall: it is of the same time.
    fn has(&self, trigger: &Trigger) -> bool {
        let own = |trigger: &Trigger| trigger.kind == TriggerKind::MapGrowth;
        trigger.kind != TriggerKind::Request
            && !own(trigger)
            && !self.triggers.iter().any(own)
            && began(trigger) <= self.end + SETTLE
    }

    /// The process whose mappings grow, where it is that.
    fn growing(&self) -> Option<u32> {
        let mut triggers = self.triggers.iter();
        let growth = triggers.find(|trigger| trigger.kind == TriggerKind::MapGrowth);
        growth.and_then(|trigger| trigger.pid)
    }

    /// Adds a trigger, in place of the least severe one where there are too many.
    fn keep_worst(&mut self, trigger: Trigger) {
        let of = |trigger: &Trigger| (trigger.kind, trigger.tid, trigger.call.clone());
        let own = of(&trigger);
        let alike = self.triggers.iter().filter(|there| of(there) == own);
        let full = trigger.tid.is_some() && alike.count() >= MOST_OF_CALL;
        if !full && self.triggers.len() < MOST_TRIGGERS {
            return self.triggers.push(trigger);
        }
        let others = self.triggers.iter_mut();
        let others = others.filter(|there| !full || of(there) == own);
        let least = others.min_by(|a, b| severity(a).total_cmp(&severity(b)));
        if let Some(least) = least
            && severity(least) < severity(&trigger)
        {
            *least = trigger;
        }
    }

    fn add(&mut self, trigger: Trigger, now: Nanos) {
        self.begin = self.begin.min(began(&trigger));
        self.end = self.end.max(Nanos(trigger.at_ns));
        let same = |there: &&mut Trigger| {
            there.tid == trigger.tid
                && there.tid.is_some()
                && there.begin_ns == trigger.begin_ns
                && there.call == trigger.call
        };
        // The same loss has become longer, or has ended.
        if let Some(there) = self.triggers.iter_mut().find(same) {
            *there = trigger;
        } else {
            self.keep_worst(trigger);
        }
        let open = self.triggers.iter().any(|trigger| trigger.open);
        let after = match (open, self.growing()) {
            (_, Some(_)) => ASKED.min(Nanos(self.triggers[0].window_ns.unwrap_or(ASKED.0))),
            (true, None) => OPEN,
            (false, None) => SETTLE,
        };
        // Somebody who asks has seen it already.
        let request = self
            .triggers
            .iter()
            .all(|trigger| trigger.kind == TriggerKind::Request);
        self.due = match request {
            true => now,
            false => (self.end + after).min(self.came + LONGEST),
        };
    }
}

/// When the stall of a trigger began.
fn began(trigger: &Trigger) -> Nanos {
    let back = match trigger.kind {
        // The kernel looks ten times a window; what it saw began up to a window before.
        TriggerKind::MemoryPressure | TriggerKind::IoPressure => {
            trigger.window_ns.unwrap_or(0) / 10 * 12
        }
        // Somebody has felt something and typed: some seconds.
        TriggerKind::Request => Nanos::secs(10).0,
        _ => 0,
    };
    Nanos(
        trigger
            .begin_ns
            .unwrap_or(trigger.at_ns.saturating_sub(back)),
    )
}

/// Stalls of one kind of one program, which are paced together.
fn paced(trigger: &Trigger) -> (TriggerKind, String) {
    let of = [&trigger.call, &trigger.task].map(|text| text.as_deref().unwrap_or_default());
    (trigger.kind, of.join(" of "))
}

/// Programs and calls that are paced by themselves; more are paced together.
const MOST_PACES: usize = 1_000;

/// Returns how many times its limit a trigger is; 1 where that is unknown.
fn severity(trigger: &Trigger) -> f64 {
    match (trigger.measured_ns, trigger.threshold_ns) {
        (Some(left), Some(horizon)) if trigger.kind == TriggerKind::MapGrowth => {
            horizon as f64 / left.max(1) as f64
        }
        (Some(measured), Some(limit)) if limit > 0 => measured as f64 / limit as f64,
        _ => 1.0,
    }
}

/// A window that is to become a page.
struct Waiting {
    spool: PathBuf,
    /// Bytes that it takes on the disk; 0 where an earlier watch left it.
    bytes: u64,
}

struct Watch<'a> {
    args: &'a args::Watch,
    directory: PathBuf,
    black_box: BlackBox<'static>,
    stream: Stream,
    /// Keeps the last seconds on the disk.
    survivor: Option<Survivor>,
    /// Keeps the history.
    keeper: Option<Keeper>,
    triggers: Triggers,
    growth: Option<MapGrowth>,
    /// When the rings were read for the last time but one, and the last time.
    readings: [Nanos; 2],
    /// When waits that are open are looked at next.
    next_look: Nanos,
    paces: BTreeMap<(TriggerKind, String), Pace>,
    pending: Vec<Pending>,
    /// Whether it goes before ordinary threads.
    hurries: bool,
    /// Triggers that fired while a window was taken.
    fired_aside: Vec<Trigger>,
    /// The window that is written to the disk.
    taking: Aside<Result<Waiting, String>>,
    /// Windows that are to be made into pages, and the one that is.
    waiting: VecDeque<Waiting>,
    writing: Option<Child>,
    /// The most that records took since memory was given back.
    most: Bytes,
    /// Until then I/O pressure may be our own.
    quiet_after: Nanos,
    stalls: u64,
    failed: u64,
    losses: Losses,
}

impl Watch<'_> {
    /// Watches until the end; why it ended.
    fn follow(
        &mut self,
        mut others: Option<&mut Others>,
        began: Nanos,
    ) -> Result<&'static str, Failure> {
        let deadline = self.args.duration.map(|duration| began + duration);
        let mut over = None;
        loop {
            let step = self.black_box.step();
            let watched = others.as_ref().and_then(|others| others.watched());
            let end = watched.filter(|_| over.is_none()).map(Watched::end);
            let deadline = deadline.filter(|_| over.is_none());
            let left = deadline.map_or(step, |end| end.saturating_sub(Linux.now()));
            let longest = Nanos(step.0.min(left.0).max(1));
            let mut fired = self.triggers.wait(end, longest);
            self.drain(&mut fired)?;
            if let Some(others) = &mut others {
                self.stream.follows(&others.fresh());
            }
            if over.is_none() {
                fired.into_iter().for_each(|trigger| self.fired(trigger));
            }
            self.taken();
            self.write_pages();
            let now = Linux.now();
            if over.is_none() {
                over = match () {
                    () if others.as_ref().is_some_and(|others| others.have_ended()) => {
                        Some(match (self.args.pid.len(), self.args.cgroup.len()) {
                            (1, 0) => "the process ended",
                            (0, 1) => "the control group is gone",
                            (0, _) => "the control groups are gone",
                            _ => "the processes ended",
                        })
                    }
                    () if signals::interrupted() => Some("interrupted"),
                    () if deadline.is_some_and(|end| now >= end) => Some("its time was over"),
                    () => None,
                };
            }
            // One window at a time: its memory is shared with the ring until it is on the disk.
            let due = |pending: &Pending| over.is_some() || now >= pending.due;
            if !self.taking.busy()
                && let Some(at) = self.pending.iter().position(due)
            {
                let pending = self.pending.remove(at);
                self.take(pending);
            }
            if let Some(why) = over
                && self.pending.is_empty()
                && !self.taking.busy()
            {
                return Ok(why);
            }
        }
    }

    /// Takes the records that have come, and from time to time the waits that are open. Adds what they fire to `fired`.
    fn drain(&mut self, fired: &mut Vec<Trigger>) -> Result<(), Failure> {
        let now = Linux.now();
        let pending = self.pending.iter().map(|pending| pending.begin);
        let oldest = pending
            .chain(self.stream.oldest_open())
            .min()
            .unwrap_or(now);
        let stream = &mut self.stream;
        let lost = self.black_box.drain(
            oldest
                .max(now.saturating_sub(LONGEST_TRACE))
                .saturating_sub(self.args.keep),
            |record| {
                fired.extend(stream.record(record));
            },
        )?;
        self.have_lost(now, lost);
        self.hurry();
        fired.append(&mut self.fired_aside);
        let frames = self.stream.frames();
        // A wait that ended meanwhile may be in a ring that had been read, and the batch of a CPU that filled it meanwhile comes with the
        // next reading. So all is there that was over two readings ago.
        fired.extend(frames.until(self.readings[0].0));
        self.readings = [self.readings[1], now];
        frames.said().iter().for_each(|line| tell(line));
        if let Some(survivor) = &mut self.survivor {
            survivor.send(&self.black_box.last());
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.step(&mut self.black_box);
        }
        if now >= self.next_look {
            let ran = Linux.thread_cpu();
            let open = self.black_box.open()?;
            fired.extend(self.stream.look(&open, Linux.now()));
            fired.extend(self.stream.look_at_frames(&open, now));
            if let Some(survivor) = &mut self.survivor {
                survivor.send(&self.black_box.last_open(&open));
            }
            fired.extend(self.grown(now, &open));
            let step = self.growth.as_ref().map_or(LOOK, MapGrowth::step);
            let took = Linux.thread_cpu().saturating_sub(ran);
            self.next_look = now + Nanos(LOOK.min(step).0.max(took.0.saturating_mul(LOOK_PART)));
            self.give_back();
        }
        Ok(())
    }

    /// Goes before ordinary threads while rings fill quickly: a storm of wakings fills one in a quarter of a second, and the load that makes
    /// it keeps watch from a CPU for longer. A machine that refuses that has what it has.
    fn hurry(&mut self) {
        let busy = self.black_box.is_busy();
        if busy != self.hurries {
            self.hurries = busy;
            let _ = Linux.hurry(busy); // what is lost is counted and said
        }
    }

    /// So many records were lost before a reading at `now`.
    fn have_lost(&mut self, now: Nanos, lost: u64) {
        if lost > 0 {
            self.stream.frames().lost();
        }
        if let Some(line) = self.losses.read(now, lost) {
            tell(&line);
        }
    }

    /// Gives the memory of a busy moment back.
    fn give_back(&mut self) {
        let bytes = self.black_box.bytes();
        self.most = self.most.max(bytes);
        if self.most >= MUCH && bytes.0 < self.most.0 / 2 {
            heap::trim();
            self.most = bytes;
        }
    }

    /// Triggers of growing mappings, found in a look at all threads.
    fn grown(&mut self, now: Nanos, look: &[Vec<u8>]) -> Vec<Trigger> {
        let Some(growth) = self.growth.as_mut().filter(|growth| growth.is_due(now)) else {
            return Vec::new();
        };
        let limit = std::fs::read_to_string(MAX_MAP_COUNT).ok();
        let Some(limit) = limit.and_then(|text| text.trim().parse().ok()) else {
            return Vec::new(); // no /proc
        };
        let counts = look.iter().filter_map(|record| Record::maps_of(record));
        let fired = growth.look(now, limit, counts).into_iter();
        let growth = &*growth;
        let fired = fired.filter(|(pid, ..)| self.stream.concerns(*pid));
        let trigger = |(pid, grows, left): growth::Fired| Trigger {
            measured_ns: Some(left.0),
            threshold_ns: Some(growth.horizon().0),
            window_ns: Some(growth.window().0),
            pid: Some(pid),
            task: self.stream.name(pid),
            growth: Some(grows),
            ..Trigger::new(TriggerKind::MapGrowth, now.0)
        };
        fired.map(trigger).collect()
    }

    fn fired(&mut self, trigger: Trigger) {
        let now = Linux.now();
        let ours = self.writing.is_some() || self.taking.busy() || now < self.quiet_after;
        if ours && trigger.kind == TriggerKind::IoPressure {
            return; // the page's, most likely
        }
        let same = self
            .pending
            .iter_mut()
            .find(|pending| pending.has(&trigger));
        if let Some(pending) = same {
            pending.add(trigger, now);
        } else if self.pending.len() < MOST_PENDING && self.may(&trigger, now) {
            let pending = Pending::new(trigger, now);
            if let Some(pid) = pending.growing()
                && let Err(error) = self.black_box.ask_mappers(Some(pid))
            {
                tell(&format!("who maps is unknown: {error}"));
            }
            self.pending.push(pending);
        }
    }

    fn pace(&mut self, trigger: &Trigger) -> &mut Pace {
        let mut of = paced(trigger);
        if self.paces.len() >= MOST_PACES && !self.paces.contains_key(&of) {
            of.1.clear();
        }
        self.paces.entry(of).or_insert_with(Pace::new)
    }

    /// Whether it may have a window. Each kind has a pace of its own, and a request needs none.
    fn may(&mut self, trigger: &Trigger, now: Nanos) -> bool {
        trigger.kind == TriggerKind::Request || self.pace(trigger).allows(now, severity(trigger))
    }

    /// Has what there is of a stall, and from some seconds before it, written to the disk.
    fn take(&mut self, pending: Pending) {
        let unix_s = Linux.unix_seconds();
        let now = Linux.now();
        let mut worst: BTreeMap<(TriggerKind, String), (f64, &Trigger)> = BTreeMap::new();
        for trigger in &pending.triggers {
            let severity = severity(trigger);
            let worst = worst.entry(paced(trigger)).or_insert((severity, trigger));
            worst.0 = worst.0.max(severity);
        }
        let mut suppressed = 0;
        for (worst, trigger) in worst.into_values() {
            suppressed += self.pace(trigger).written(now, worst);
        }
        let bytes: u64 = self.waiting.iter().map(|waiting| waiting.bytes).sum();
        if self.waiting.len() >= MOST_WAITING || bytes > self.args.disk.0 / WAITING_PART {
            self.failed += 1;
            tell_error("a stall is not written: the pages of those before are not ready");
            return;
        }
        let begin = pending.begin.max(now.saturating_sub(LONGEST_TRACE));
        let from = begin.saturating_sub(self.args.keep);
        let (stream, fired) = (&mut self.stream, &mut self.fired_aside);
        let window = self.black_box.window(from, |record| {
            fired.extend(stream.record(record));
        });
        let window = window.map(|(window, lost)| {
            self.have_lost(now, lost);
            window
        });
        if pending.growing().is_some() {
            let _ = self.black_box.ask_mappers(None); // an error was said when it was asked
        }
        let directory = self.directory.clone();
        let started = match window {
            Ok(window) => self
                .taking
                .start(move || write_window(&directory, window, pending, unix_s, suppressed))
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = started {
            self.not_written(&why);
        }
    }

    /// Looks whether a window is on the disk.
    fn taken(&mut self) {
        match self.taking.done() {
            None => {}
            Some(Ok(waiting)) => self.waiting.push_back(waiting),
            Some(Err(why)) => self.not_written(&why),
        }
    }

    fn not_written(&mut self, why: &str) {
        self.failed += 1;
        tell_error(&format!("a stall could not be written: {why}"));
    }

    /// Looks whether the page being made is ready, and has the next one made.
    fn write_pages(&mut self) {
        if let Some(child) = &mut self.writing {
            match child.try_wait() {
                Ok(None) => return,
                Ok(Some(status)) if has_made_page(status) => self.stalls += 1,
                _ => self.failed += 1, // it has said why
            }
            self.writing = None;
            self.quiet_after = Linux.now() + AFTERMATH;
        }
        if let Some(Waiting { spool, .. }) = self.waiting.pop_front() {
            match start_page(&spool, self.args) {
                Ok(child) => self.writing = Some(child),
                Err(error) => {
                    self.failed += 1;
                    tell_error(&format!("a page cannot be made: {error}"));
                }
            }
        }
    }

    fn end(mut self, why: &str, watched: Nanos) -> Result<ExitCode, Failure> {
        let deadline = Linux.now() + LAST_PAGE;
        if let Some(keeper) = self.keeper.take() {
            keeper.end(&mut self.black_box);
        }
        // Nothing is recorded any more while the last page is made.
        drop(self.black_box);
        if let Some(survivor) = self.survivor.take() {
            survivor.end();
        }
        let mut next = || match self.writing.take() {
            Some(child) => Some(child),
            None => start_page(&self.waiting.pop_front()?.spool, self.args).ok(),
        };
        while let Some(mut child) = next() {
            while Linux.now() < deadline && matches!(child.try_wait(), Ok(None)) {
                Linux.sleep_until(Linux.now() + Nanos::millis(50));
            }
            match child.try_wait() {
                Ok(Some(status)) if has_made_page(status) => self.stalls += 1,
                Ok(None) => {
                    tell(&still_to_come(self.waiting.len(), &self.directory));
                    break;
                }
                _ => self.failed += 1,
            }
        }
        let suppressed = self.paces.values().map(Pace::suppressed).sum();
        let (stalls, failed) = (self.stalls, self.failed);
        let frames = self.stream.frames().rhythms();
        let unmet = self.stream.frames().unmet();
        unmet.iter().for_each(|line| tell(line));
        if self.args.json {
            let told = Told::End(End {
                stalls,
                suppressed,
                failed,
                watched_ns: watched.0,
                why: why.to_owned(),
                frames,
            });
            output::print(&Document::new(env!("CARGO_PKG_VERSION"), told).to_line())?;
        } else {
            let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            output::screen(&format!(
                "watched for {watched}, {why}: {} in {}, {} too near to the one before, {failed} not written",
                count(stalls, "stall"),
                self.directory.display(),
                count(suppressed, "trigger"),
            ))?;
            for told in &frames {
                output::screen(&frames::summary(told))?;
            }
        }
        if self.losses.all() > 0 {
            tell(&format!(
                "{} records were lost because a ring of the kernel was full",
                self.losses.all()
            ));
        }
        Ok(ExitCode::from(if failed > 0 { ERROR } else { DONE }))
    }
}

/// What a watch says that ends while a page is being made and `waiting` windows wait for theirs.
fn still_to_come(waiting: usize, directory: &Path) -> String {
    const SOON: &str = "a page is still being made; it will be there soon";
    let windows = match waiting {
        0 => return SOON.to_owned(),
        1 => "1 window waits".to_owned(),
        count => format!("{count} windows wait"),
    };
    format!(
        "{SOON}. {windows} for a page: the next watch with -o {} makes them",
        directory.display()
    )
}

/// Writes a window into a folder of its own.
fn write_window(
    directory: &Path,
    window: Window,
    pending: Pending,
    unix_s: u64,
    suppressed: u64,
) -> Result<Waiting, String> {
    let name = folder::name(directory, unix_s);
    let spool = folder::spool(directory, &name, std::process::id());
    let taken = window.write(&spool).map_err(|error| error.to_string());
    let written = taken.and_then(|taken| {
        let stall = Stall {
            unix_s,
            triggers: pending.triggers,
            begin_ns: pending.begin.max(taken.since).0,
            end_ns: pending.end.0,
            from_ns: taken.since.0,
            taken_ns: taken.end.0,
            suppressed,
        };
        write_stall(&spool, &stall).map(|()| taken.spool.bytes())
    });
    match written {
        Ok(bytes) => Ok(Waiting { spool, bytes }),
        Err(why) => {
            let _ = remove(&spool); // of no use to anybody
            Err(why)
        }
    }
}

/// Writes when and why into the folder of a window.
fn write_stall(spool: &Path, stall: &Stall) -> Result<(), String> {
    let written = Folder::open(spool)
        .and_then(|folder| folder.write(page::STALL.as_ref(), output::json(stall).as_bytes()));
    written.map_err(|error| error.to_string())
}

/// Returns whether the process that makes a page ended with `status` when the page was made. Where nobody read the line that it
/// prints, this watch ends, too.
fn has_made_page(status: ExitStatus) -> bool {
    let unread = status.signal() == Some(signals::CLOSED_PIPE);
    if unread {
        output::reader_has_gone();
    }
    unread || status.success()
}

/// Starts the process that makes a page: this program again, though its file may have been replaced since.
fn start_page(spool: &Path, args: &args::Watch) -> std::io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("watch").arg("--finish").arg(spool);
    command.args(voice::flags());
    command.arg(format!("--disk={}", args.disk.0));
    if args.json {
        command.arg("--json");
    }
    command.stdin(Stdio::null()).spawn()
}

/// Returns the failure of a watch that could not begin. For a user who is not root, its message begins with how to become root.
fn needs_root(failure: Failure, uid: u32) -> Failure {
    match failure {
        Failure::Told { message, status } if uid != 0 => Failure::Told {
            message: format!("watch needs root: sudo stopgap watch ({message})"),
            status,
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(tid: u32, begin_ms: u64, end_ms: u64) -> Trigger {
        Trigger {
            tid: Some(tid),
            begin_ns: Some(Nanos::millis(begin_ms).0),
            ..Trigger::new(TriggerKind::SlowCall, Nanos::millis(end_ms).0)
        }
    }

    #[test]
    fn a_user_is_told_first_that_it_needs_root() {
        let of = |uid| match needs_root(Failure::unsupported("capture by BPF: refused"), uid) {
            Failure::Told { message, status } => (message, status),
            Failure::Silent { .. } => panic!("silent"),
        };
        let told = "watch needs root: sudo stopgap watch (capture by BPF: refused)";
        assert_eq!(of(1_000), (told.to_owned(), 3));
        assert_eq!(of(0), ("capture by BPF: refused".to_owned(), 3));
    }

    #[test]
    fn an_end_says_how_many_pages_are_to_come() {
        let of = |waiting| still_to_come(waiting, Path::new("stalls"));
        assert_eq!(of(0), "a page is still being made; it will be there soon");
        assert!(
            of(1).ends_with("1 window waits for a page: the next watch with -o stalls makes them")
        );
        assert!(of(20).contains("soon. 20 windows wait for a page"));
    }

    /// ```text
    /// s   0   1   2   3   4   5   6   7
    /// 7   [---]
    /// 8     [-----]                        the same stall: it began before the end of the first
    /// 9                       [---]        another
    /// ```
    #[test]
    fn losses_of_the_same_time_are_one_stall() {
        let now = Nanos::secs(1);
        let mut stall = Pending::new(trigger(7, 0, 1_000), now);
        assert_eq!(stall.due, Nanos::secs(2));
        let second = trigger(8, 500, 2_000);
        assert!(stall.has(&second));
        stall.add(second, now);
        assert_eq!(
            (stall.begin, stall.end, stall.due),
            (Nanos(0), Nanos::secs(2), Nanos::secs(3))
        );
        assert!(!stall.has(&trigger(9, 5_000, 6_000)));
        assert!(!stall.has(&Trigger::new(TriggerKind::Request, 0)));
    }

    /// Many short stalls of one thread leave room for the others, and a worse one comes last.
    #[test]
    fn a_stall_names_the_worst_of_its_triggers() {
        let of = |tid, begin: u64, ms: u64| Trigger {
            measured_ns: Some(Nanos::millis(ms).0),
            threshold_ns: Some(Nanos::millis(100).0),
            call: Some("read".to_owned()),
            ..trigger(tid, begin, begin + ms)
        };
        let mut stall = Pending::new(of(7, 0, 300), Nanos::secs(1));
        for (begin, ms) in [(300, 200), (500, 400), (900, 110), (1_010, 500)] {
            stall.add(of(7, begin, ms), Nanos::secs(2));
        }
        let told = |stall: &Pending| {
            let ms = stall.triggers.iter().filter_map(|one| one.measured_ns);
            ms.map(|ns| ns / 1_000_000).collect::<Vec<_>>()
        };
        assert_eq!(told(&stall), [300, 500, 400]);
        for tid in 8..40 {
            stall.add(of(tid, 0, 250), Nanos::secs(2));
        }
        stall.add(of(40, 0, 600), Nanos::secs(2));
        assert_eq!(stall.triggers.len(), MOST_TRIGGERS);
        assert!(told(&stall).contains(&600) && told(&stall).contains(&300));
    }

    #[test]
    fn a_loss_that_goes_on_is_waited_for_and_named_once() {
        let open = Trigger {
            open: true,
            ..trigger(7, 0, 1_000)
        };
        let mut stall = Pending::new(open, Nanos::secs(1));
        assert_eq!(stall.due, Nanos::secs(6));
        stall.add(trigger(7, 0, 3_000), Nanos::secs(3));
        assert_eq!((stall.triggers.len(), stall.due), (1, Nanos::secs(4)));
        stall.add(trigger(8, 3_000, 40_000), Nanos::secs(40));
        assert_eq!(stall.due, Nanos::secs(16), "not for ever");
    }
}
