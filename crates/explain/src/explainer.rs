//! The one pass over the events of a trace.

mod actions;
mod sampled;
mod waits;

use std::collections::{HashMap, HashSet, VecDeque};

use stopgap_events::units::Nanos;
use stopgap_stats::explain::{Chains, Findings, Waiting, WindowKind};
use stopgap_trace::{Event, Kind, Metadata, Text, Waits};

use crate::Options;
use crate::call::{Family, name_of};
use crate::chain::{Graph, Quick, StallWindow};
use crate::findings;
use crate::memory::Mappings;
use crate::operation::{Ending, Operation, Operations};
use crate::profile::Samples;
use crate::recent::{Recent, is_same};
use crate::request::Requests;
use crate::roundtrip::{Partner, RoundTrips, Trip};
use crate::space::Spaces;
use crate::spread::Counts;
use crate::tasks::{Tasks, name};
use crate::thread::{Cpus, State, Thread};
use crate::tids::Tids;
use crate::why::Why;
use crate::windows::{Who, Window, Windows};

/// Takes events in the order of the trace and returns [`Findings`].
///
/// ```
/// use stopgap_trace::Metadata;
/// use stopgap_explain::{Explainer, Options};
/// let options = Options { top: 10, ..Options::default() };
/// let findings = Explainer::new(&Metadata::default(), options).finish();
/// assert_eq!(findings.switches.total, None, "no scheduling events: not known, not 0");
/// ```
pub struct Explainer {
    pub(crate) metadata: Metadata,
    pub(crate) options: Options,
    pub(crate) threads: Tids<Thread>,
    /// The thread that was last seen on each CPU.
    cpus: HashMap<u32, u32, Quick>,
    /// Processes that the recorder followed, if it also recorded others.
    pub(crate) followed: HashSet<u32, Quick>,
    /// Threads that have begun to end, and when.
    ending: VecDeque<(u64, u32)>,
    /// Joins switches and wake-ups to waits, for sources without waits.
    rows: Option<Rows>,
    pub(crate) graph: Graph,
    /// Buffer for the causes of one wait's sleep; allocated once.
    sleep: Vec<(Why, u64)>,
    /// Ended operations whose memory the next ones use.
    #[expect(
        clippy::vec_box,
        reason = "they are moved from thread to thread as they are"
    )]
    spare: Vec<Box<Operation>>,
    /// Cache of the causes of sleeps, by stack.
    stacks: Recent<Option<Why>>,
    /// All threads that were ever followed.
    pub(crate) ever_followed: HashSet<u32>,
    /// The life of the first thread of the first followed process, as far as it was seen.
    run: Option<Run>,
    /// Whether the recorded program has begun.
    begun: bool,
    pub(crate) tasks: Tasks,
    pub(crate) roundtrips: RoundTrips,
    pub(crate) operations: Operations,
    /// The operations of threads that were not followed.
    pub(crate) of_others: Operations,
    pub(crate) mappings: Mappings,
    pub(crate) spaces: Spaces,
    pub(crate) frames: Frames,
    windows: Windows,
    requests: Option<Requests>,
    pub(crate) samples: Samples,
    pub(crate) seen: Seen,
    pub(crate) first: Option<u64>,
    pub(crate) now: u64,
    pub(crate) events: u64,
    pub(crate) disordered: u64,
    /// System calls whose begin or end is missing.
    pub(crate) contradictions: u64,
    /// Waits of followed threads of which the begin or the end is missing.
    pub(crate) untold: u64,
    pub(crate) cut_short: Option<String>,
}

/// The life of a thread within the trace.
struct Run {
    tid: u32,
    name: Text,
    begin: u64,
    end: u64,
}

/// Rows of a source without waits, on their way to waits.
#[derive(Default)]
struct Rows {
    waits: Waits,
    /// The latest time so far.
    time: Nanos,
    ready: VecDeque<Event>,
}

/// Kinds of events that the trace has. If a kind never came, what it would say is unknown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) switches: bool,
    pub(crate) wakings: bool,
    pub(crate) stacks: bool,
    pub(crate) calls: bool,
    /// Whether begins and ends of calls have rows, not only calls in which a thread waits.
    pub(crate) call_rows: bool,
    pub(crate) nameless_calls: bool,
    pub(crate) faults: bool,
    pub(crate) reclaim: bool,
    pub(crate) compaction: bool,
    pub(crate) locks: bool,
    pub(crate) samples: bool,
    /// Nanoseconds of followed threads for which a hidden switch leaves unknown whether they had a CPU.
    pub(crate) untold_ns: u64,
}

/// Switch-outs between marks. A switch-out becomes known when its thread runs again, which may be frames later.
#[derive(Default)]
pub(crate) struct Frames {
    /// Begins of the last frames, and their switch-outs so far.
    last: VecDeque<(u64, u64)>,
    /// Switch-outs of the frames before.
    counts: Counts,
}

/// Most frames to which switch-outs may still be added.
const OPEN_FRAMES: usize = 1 << 16;

impl Frames {
    fn mark(&mut self, at: u64) {
        self.last.push_back((at, 0));
        if self.last.len() > OPEN_FRAMES
            && let Some((_, outs)) = self.last.pop_front()
        {
            self.counts.add(outs);
        }
    }

    fn left(&mut self, at: u64) {
        let next = self.last.partition_point(|(begin, _)| *begin <= at);
        if let Some((_, outs)) = next
            .checked_sub(1)
            .and_then(|frame| self.last.get_mut(frame))
        {
            *outs += 1;
        }
    }

    /// Returns the switch-outs of each frame that has ended.
    pub(crate) fn counts(&self) -> Counts {
        let mut all = self.counts.clone();
        let ended = self.last.len().saturating_sub(1);
        self.last
            .iter()
            .take(ended)
            .for_each(|(_, outs)| all.add(*outs));
        all
    }
}

/// How long after its exit the last wait of a thread may come.
const AFTER_EXIT_NS: u64 = 1_000_000_000;

/// Most ended operations whose memory is kept.
const MOST_SPARE: usize = 64;

/// Most threads and names that are kept. Each takes about 2 KiB.
const MOST_KEPT: usize = 1 << 18;

impl Explainer {
    /// Creates an explainer that has seen no event.
    #[must_use]
    pub fn new(metadata: &Metadata, options: Options) -> Explainer {
        Explainer {
            metadata: metadata.clone(),
            operations: Operations::new(options.top),
            threads: Tids::default(),
            cpus: HashMap::default(),
            followed: HashSet::default(),
            ending: VecDeque::new(),
            rows: None,
            of_others: Operations::new(options.top),
            graph: Graph::of(metadata),
            sleep: Vec::new(),
            spare: Vec::new(),
            stacks: Recent::default(),
            ever_followed: HashSet::new(),
            run: None,
            begun: false,
            tasks: Tasks::default(),
            roundtrips: RoundTrips::default(),
            mappings: Mappings::new(metadata),
            spaces: Spaces::new(metadata.page_size),
            frames: Frames::default(),
            windows: Windows::default(),
            requests: options.request.clone().map(Requests::new),
            samples: Samples::default(),
            seen: Seen::default(),
            first: None,
            now: 0,
            events: 0,
            disordered: 0,
            contradictions: 0,
            untold: 0,
            cut_short: None,
            options,
        }
    }

    /// Takes the next row of a source that has switches and wake-ups in place of waits. All rows of a trace must come
    /// through this method, or all through [`Explainer::event`].
    pub fn row(&mut self, row: Event) {
        let mut rows = self.rows.take().unwrap_or_default();
        let late = row.time < rows.time;
        rows.time = row.time.max(rows.time);
        let disordered = self.disordered;
        rows.waits.event(row, &mut rows.ready);
        for event in rows.ready.drain(..) {
            self.event(&event);
        }
        // The waits that come from late rows may be in order, so the rows are counted here.
        self.disordered = self.disordered.max(disordered + u64::from(late));
        self.rows = Some(rows);
    }

    /// Takes the next event, of a source that has waits. Takes constant time, except at the end of a thread, which
    /// costs a look at all followed threads.
    pub fn event(&mut self, event: &Event) {
        let time = event.time.0;
        // A wait or a span is about the time before its event.
        let begin = match &event.kind {
            Kind::Wait(wait) => wait.left.0.min(time),
            Kind::Span(span) => span.begin.0.min(time),
            _ => time,
        };
        self.first = Some(self.first.map_or(begin, |first| first.min(begin)));
        self.events += 1;
        if time < self.now {
            self.disordered += 1;
        }
        self.now = self.now.max(time);
        if let (Kind::Wait(_), Some(tid)) = (&event.kind, event.tid) {
            self.windows.waited(&mut self.graph, tid);
        }
        self.graph.event(event);
        self.marks(event);
        self.requests(event);
        self.spaces.event(self.at(), event);
        if let Kind::Sample { stack } = &event.kind {
            self.sampled(event, stack);
        }
        match &event.kind {
            Kind::Wait(wait) => self.waited(event, wait),
            Kind::Fork { .. } | Kind::Exec { .. } | Kind::Exit { .. } | Kind::Task(_) => {
                self.lives(event);
            }
            Kind::Memory { event, .. } => self.mappings.event(self.at(), event),
            Kind::Counter { name, value } => {
                self.counted(name, event.pid);
                self.mappings.counter(self.at(), name, event.pid, *value);
            }
            // Another thread may have sent it. Such an event says nothing about what its thread does.
            Kind::Mark { .. } | Kind::Signal { .. } | Kind::Waits { .. } => {}
            _ => self.action(event),
        }
        self.trips();
        while let Some((exit, tid)) = self.ending.front().copied()
            && exit + AFTER_EXIT_NS < self.now
        {
            self.ending.pop_front();
            if self
                .threads
                .get(&tid)
                .is_some_and(|thread| thread.exits == Some(exit))
            {
                self.end_thread(tid);
            }
        }
    }

    /// Returns why no more events should be passed: the trace has more threads or names than are kept. `None` while
    /// there is room.
    #[must_use]
    pub fn is_full(&self) -> Option<String> {
        let kept = self.threads.len()
            + self.tasks.len()
            + self.mappings.len()
            + self.operations.functions.len();
        (kept > MOST_KEPT).then(|| format!("it has more than {MOST_KEPT} threads and names"))
    }

    /// Notes that this many rows of the source were earlier than a row before them.
    pub fn out_of_order(&mut self, rows: u64) {
        self.disordered = self.disordered.max(rows);
    }

    /// Notes that the rest of the trace cannot be read, because of `why`.
    pub fn cut_short(&mut self, why: impl Into<String>) {
        self.cut_short = Some(why.into());
    }

    /// Returns the pairs of client and server that have asked and answered so far. If the recorder followed threads,
    /// only pairs with one of these.
    #[must_use]
    pub fn pairs(&self) -> Vec<(u32, u32)> {
        let traced = |tid| self.threads.get(tid).is_some_and(|thread| thread.traced);
        let any = self.tasks.any_traced() || self.threads.values().any(|thread| thread.traced);
        let made = self.roundtrips.made().iter();
        made.filter(|made| !any || made.followed || traced(&made.client) || traced(&made.server))
            .map(|made| (made.client, made.server))
            .collect()
    }

    /// Sums the waits within each of `windows`, too. Must be called before the first event.
    pub fn watch(&mut self, windows: &[StallWindow]) {
        self.graph.watch(windows);
    }

    /// Ends the pass after the last event, and returns the findings.
    #[must_use]
    pub fn finish(self) -> Findings {
        self.finish_watched().0
    }

    /// Ends the pass after the last event. Returns the findings, and the waits in each window of
    /// [`Explainer::watch`].
    #[must_use]
    pub fn finish_watched(mut self) -> (Findings, Vec<Vec<Waiting>>) {
        if let Some(mut rows) = self.rows.take() {
            rows.waits.finish(Nanos(self.now), &mut rows.ready);
            rows.ready.drain(..).for_each(|event| self.event(&event));
        }
        let mut tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        for &tid in &tids {
            self.stops(tid);
        }
        for tid in self.roundtrips.threads() {
            self.end_pairs(tid);
        }
        for &tid in &tids {
            self.stops_windows(tid);
        }
        for tid in tids {
            if let Some(thread) = self.threads.remove(&tid) {
                self.folds(tid, thread);
            }
        }
        if !self.tasks.any_traced() {
            self.operations = std::mem::take(&mut self.of_others);
            self.roundtrips.counts_others();
        }
        let watched = self.graph.watched();
        (findings::record(self), watched)
    }

    /// Ends the account of `tid`, which still exists when the trace ends.
    fn stops(&mut self, tid: u32) {
        let (now, scheduled) = (self.now, self.scheduled());
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let open = thread.open.take();
        // The call of a thread that is no longer seen may have ended unseen, too.
        let lost_sight = open.as_ref().is_some_and(|open| {
            open.wait.began_before && open.wait.state.is_none() && thread.operation.is_some()
        });
        if let Some(open) = open {
            self.open_to_the_end(tid, &open);
        } else if thread.exits.is_none() {
            let state = match scheduled && thread.heard {
                true => State::Running,
                false => State::Unknown,
            };
            thread.book(now, state);
        }
        if !lost_sight {
            self.end_operation(tid, None, true);
        }
    }

    /// Returns the nanoseconds since the first event.
    fn at(&self) -> u64 {
        self.now - self.first.unwrap_or(self.now)
    }

    /// Ends a frame if the event is the frame marker.
    fn marks(&mut self, event: &Event) {
        let kind = &event.kind;
        let Some(marker) = &self.options.frame_marker else {
            return;
        };
        // Old marker names still work: rows that are now part of waits and spans had names of their own.
        let end = marker.strip_suffix("-end");
        let end = end.map(|end| end.strip_suffix("-wait").unwrap_or(end));
        let is_mark = kind.word() == marker
            || match kind {
                Kind::Wait(_) => marker == "switch",
                Kind::Span(span) => [Some(&**marker), end].contains(&Some(span.what.word())),
                Kind::Mark { name } => **name == **marker,
                Kind::SyscallEnter { name, number, .. } => {
                    *name_of(*number, name.as_ref()) == **marker
                }
                _ => false,
            };
        if !is_mark {
            return;
        }
        self.frames.mark(self.now);
        if let Some(tid) = event.tid.filter(|&tid| tid != 0) {
            let (who, by) = (
                who(&self.threads, tid, event.comm.as_ref()),
                Text::from(&**marker),
            );
            let (kind, now) = (WindowKind::Frame, self.now);
            (self.windows).ends(&mut self.graph, (&who, &by), (kind, None), now);
            self.windows.begins(tid, kind, None, now);
        }
    }

    /// Passes the event to the requests, if any are followed.
    fn requests(&mut self, event: &Event) {
        let Some(requests) = &mut self.requests else {
            return;
        };
        let (windows, graph, threads) = (&mut self.windows, &mut self.graph, &self.threads);
        let comm = |tid| event.comm.as_ref().filter(|_| event.tid == Some(tid));
        let who = |tid| who(threads, tid, comm(tid));
        match &event.kind {
            Kind::Wait(wait) => {
                let calls = |tid| threads.get(&tid).is_some_and(|thread| thread.calls);
                if let Some(tid) = event.tid.filter(|&tid| tid != 0) {
                    requests.wait(tid, wait, windows, graph, who, calls);
                }
            }
            _ => requests.row(event, self.now, windows, graph, who),
        }
    }

    /// Takes the round trips that have ended or will never end.
    fn trips(&mut self) {
        for trip in self.roundtrips.trips.drain(..) {
            let Trip {
                client,
                server,
                begin,
                end,
            } = trip;
            let (client, server) = [client, server]
                .map(|tid| who(&self.threads, tid, None))
                .into();
            let followed = client.followed || server.followed;
            let client = Who { followed, ..client };
            let by = (&client, &server.name);
            match end {
                Some(end) => {
                    let window = Window {
                        tid: client.tid,
                        begin,
                        end,
                    };
                    (self.windows).was(&mut self.graph, by, WindowKind::RoundTrip, window);
                }
                None => (self.windows).not_over(&client, WindowKind::RoundTrip, &server.name),
            }
        }
    }

    /// Ends the account of the open windows of `tid`, which will not end any more.
    fn stops_windows(&mut self, tid: u32) {
        self.trips();
        let who = |tid| who(&self.threads, tid, None);
        let (windows, graph) = (&mut self.windows, &mut self.graph);
        if let Some(requests) = &mut self.requests {
            requests.stops(tid, windows, graph, who);
        }
        let marker = self.options.frame_marker.as_deref().unwrap_or_default();
        let request = self
            .requests
            .as_ref()
            .map(|requests| Text::clone(&requests.by));
        windows.stops(&who(tid), |kind| match (kind, &request) {
            (WindowKind::Request, Some(request)) => Text::clone(request),
            _ => marker.into(),
        });
    }

    /// Returns the thread `tid`, and creates it if it is new. Its life began before the trace, unless a fork was
    /// seen.
    fn thread(&mut self, tid: u32, comm: Option<&Text>) -> &mut Thread {
        let first = self.first.unwrap_or(self.now);
        let thread = (self.threads).or_insert_with(tid, || Thread::new(first));
        if let Some(comm) = comm
            && !thread
                .comm
                .as_ref()
                .is_some_and(|known| is_same(known, comm))
        {
            thread.comm = Some(Text::clone(comm));
        }
        thread
    }

    /// Returns whether a thread counts as running between its waits.
    fn scheduled(&self) -> bool {
        self.seen.switches
    }

    /// Returns the thread that acts in `event` and so has a CPU; its time is booked up to now. `None` for the idle
    /// task and for an unknown thread.
    fn acts(&mut self, event: &Event) -> Option<u32> {
        let tid = event.tid.filter(|&tid| tid != 0)?;
        self.takes_over(event, tid);
        let (now, scheduled) = (self.now, self.scheduled());
        let follows = event.pid.is_some_and(|pid| self.followed.contains(&pid));
        self.comes_back_unseen(tid);
        let thread = self.thread(tid, event.comm.as_ref());
        thread.pid = event.pid.or(thread.pid);
        thread.traced |= follows;
        thread.runs(now, scheduled);
        thread.notes_cpu(event.cpu);
        if let Some(cpu) = event.cpu {
            self.cpus.insert(cpu, tid);
        }
        Some(tid)
    }

    /// Moves the state of a thread to `tid` if `event` is the first one after an exec. An exec of a thread that is
    /// not the first of its process ends the others and takes the number of the first (`de_thread()`, fs/exec.c). The
    /// thread acts under that number even before the exec event.
    fn takes_over(&mut self, event: &Event, tid: u32) {
        let old = match &event.kind {
            Kind::Exec { old_tid, .. } => *old_tid,
            _ => event.cpu.and_then(|cpu| self.cpus.get(&cpu).copied()),
        };
        let Some(old) = old.filter(|&old| old != tid) else {
            return;
        };
        let leads = event.pid.is_none_or(|pid| pid == tid);
        if !leads || self.threads.contains_key(&tid) {
            return;
        }
        let execs = |thread: &Thread| {
            matches!(event.kind, Kind::Exec { .. })
                || (thread.open.is_none()
                    && thread.call().is_some_and(|call| &*call.name == "execve"))
        };
        if self.threads.get(&old).is_some_and(execs) {
            self.end_pairs(old);
            if let Some(thread) = self.threads.remove(&old) {
                self.threads.insert(tid, thread);
            }
        }
    }

    /// Ends the current operation of `tid`, if any. `open` says that the trace ends before the operation does.
    fn end_operation(&mut self, tid: u32, result: Option<i64>, open: bool) {
        let (now, scheduled) = (self.now, self.scheduled());
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let Some(mut operation) = thread.operation.take() else {
            return;
        };
        if !open && operation.sure.is_none() {
            let took = thread.times.since(&operation.times);
            let unknown = if scheduled { 0 } else { took.unknown };
            let work = took.running + took.blocked + unknown;
            let at = now - self.first.unwrap_or(now);
            (thread.short).add(operation.family, work, took.blocked, at);
        }
        let ending = Ending {
            task: name(tid, thread.comm.as_ref()),
            tid,
            result,
            at: now,
            between: if scheduled {
                State::Running
            } else {
                State::Unknown
            },
            open,
        };
        match thread.traced {
            true => self.operations.ended(&mut operation, &ending),
            false => self.of_others.ended(&mut operation, &ending),
        }
        if self.spare.len() < MOST_SPARE && operation.is_small() {
            self.spare.push(operation);
        }
    }

    /// Creates an operation, from a spare one if there is one.
    fn operation(&mut self, family: Family, name: Text, begin: u64) -> Box<Operation> {
        match self.spare.pop() {
            Some(mut operation) => {
                operation.again(family, name, begin);
                operation
            }
            None => Box::new(Operation::new(family, name, begin)),
        }
    }

    /// Ends the pairs of `tid`.
    fn end_pairs(&mut self, tid: u32) {
        let threads = &self.threads;
        self.roundtrips.ended(tid, |tid| {
            let thread = threads.get(&tid);
            Partner {
                name: name(tid, thread.and_then(|t| t.comm.as_ref())),
                cpus: thread.map_or(Cpus::None, |thread| thread.cpus),
                followed: thread.is_some_and(|thread| thread.traced),
            }
        });
    }

    /// Ends the account of `tid`, which no longer exists.
    fn end_thread(&mut self, tid: u32) {
        self.comes_back_unseen(tid);
        self.end_operation(tid, None, false);
        self.end_pairs(tid);
        self.stops_windows(tid);
        if let Some(thread) = self.threads.remove(&tid) {
            self.folds(tid, thread);
        }
    }

    /// Returns the waits of followed threads and the chains behind them; `None` without scheduling events.
    pub(crate) fn chains(&mut self) -> Option<Chains> {
        if !self.seen.switches {
            return None;
        }
        let mut graph = std::mem::take(&mut self.graph);
        let path = self
            .run
            .take()
            .filter(|run| graph.knows(run.tid))
            .map(|run| {
                let of = format!("the run of {}", run.name);
                graph.critical_path(&of, run.tid, run.begin, run.end)
            });
        let (first, any) = (self.first.unwrap_or(0), !self.ever_followed.is_empty());
        let windows = self.windows.to_record(&graph, first, any);
        let mut chains = graph.finish(&self.ever_followed);
        chains.critical_path = path;
        chains.windows = windows;
        Some(chains)
    }

    /// Adds the complete account of the thread `tid` to the sums.
    fn folds(&mut self, tid: u32, thread: Thread) {
        let leads = thread.traced && thread.pid == Some(tid) && thread.begin < thread.booked;
        if leads && self.run.as_ref().is_none_or(|run| thread.begin < run.begin) {
            self.run = Some(Run {
                tid,
                name: name(tid, thread.comm.as_ref()),
                begin: thread.begin,
                end: thread.booked,
            });
        }
        if thread.traced && self.ever_followed.len() < MOST_KEPT {
            self.ever_followed.insert(tid);
        }
        self.tasks.fold(tid, thread);
    }
}

/// Returns a thread as windows name it.
fn who(threads: &Tids<Thread>, tid: u32, comm: Option<&Text>) -> Who {
    let thread = threads.get(&tid);
    Who {
        tid,
        name: name(tid, comm.or(thread.and_then(|thread| thread.comm.as_ref()))),
        followed: thread.is_some_and(|thread| thread.traced),
    }
}
