//! The wait-for graph: follows each sleep backwards to the threads and things that caused it.
//!
//! ```text
//!   client  read ........................................| woken by server
//!   server  runs |fsync ......................| runs     |
//!   journal             idle |writes ........|           woken by the disk
//!
//!   client's wait = server ran + server > journal > disk + server ran
//! ```
//!
//! When a sleep ends, the graph looks at the thread that ended it: what did that thread do meanwhile? Each piece of
//! that thread's time already has a chain, because its own sleeps were followed when they ended. So a sleep costs one
//! look at the waking thread's past and no recursion, and the lengths of its pieces add up exactly to the sleep.
//!
//! Memory grows with the number of live threads. Each thread keeps its last stretches exactly, and older ones merged
//! into sums by chain (`history`). Each chain is stored once (`path`).
//!
//! Where the trace cannot say what happened, the chain breaks with a reason ([`Break`]). The graph then blames
//! nobody.

mod account;
mod cpus;
mod disk;
mod file_locks;
mod history;
mod idle;
pub mod live;
mod lost;
mod naps;
mod path;
mod sleeps;
mod user;
mod watched;
mod window;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use stopgap_events::wait::{State, Wait, Within};
use stopgap_trace::export::Lost;
use stopgap_trace::{Activity, Event, Kind, Metadata, Moment, Span, Text};

use crate::recent::is_same;
use crate::tids::Tids;
use crate::why::Why;
use account::Totals;
use cpus::{Cpus, UNKNOWN};
use disk::{Disks, Share};
use file_locks::FileLocks;
use history::{Line, MOST_PIECES, Past, Piece};
use idle::{Asked, Asleep, Met, One, Pairs, Words};
use naps::Naps;
pub use path::Break;
pub(crate) use path::Quick;
use path::{ActorId, Doing, For, HopId, IDLE, NOBODY, NOT_KEPT, Name, PathId, Paths};
use sleeps::{Ended, Sleeps};
pub(crate) use sleeps::{sleeps_on_purpose, sleeps_once};
pub use watched::StallWindow;
use watched::Windowed;
pub(crate) use window::{Pieces, Sums};

pub use stopgap_stats::explain::Idleness;

/// Most threads that are followed at a time.
const MOST_THREADS: usize = 1 << 18;
/// Most ended threads that are kept. A thread that waited for another one's end runs soon after it, and needs that
/// one's past.
const MOST_ENDED: usize = 1_024;
/// Most locks whose last holder is remembered.
const MOST_LOCKS: usize = 1 << 16;
/// Largest difference, in nanoseconds, between two clock readings that belong to one switch.
const SLACK: u64 = 10_000;
/// A disk request may have caused a waking if it ended at most this many nanoseconds before.
const DISK_SLACK: u64 = 500_000;
/// An idle CPU runs a woken thread within this time, in nanoseconds.
const WAKE_LATENCY: u64 = 1_000_000;
/// Most ancestors whose past stands in for the time before a thread existed.
const MOST_PARENTS: u32 = 4;
/// How many wakers a thread remembers, and how many threads a search for a forwarded question visits.
const MOST_TOLD: usize = 4;
const MOST_THROUGH: usize = 16;
/// Most waits of an event loop that are remembered as waits for questions.
const MOST_IDLES: usize = 8;
/// How long TCP holds an acknowledgement back, in nanoseconds, including the delay of the tick and of the wake-up.
const DELAYED_ACK: std::ops::Range<u64> = 36_000_000..52_000_000;
/// Priorities of the kernel below this value belong to real-time policies (MAX_RT_PRIO, include/linux/sched/prio.h).
const REAL_TIME: i32 = 100;
/// Bit of a futex operation: only threads of one process use the word (FUTEX_PRIVATE_FLAG).
const FUTEX_PRIVATE: u64 = 128;
/// Most pieces of one wait for a CPU.
const MOST_BEHIND: usize = 16;

/// Follows waits to their causes.
pub struct Graph {
    threads: Tids<Thread>,
    ended: VecDeque<(u32, u64)>,
    paths: Paths,
    cpus: Cpus,
    disks: Disks,
    /// Names of disks by `major:minor`.
    disk_names: BTreeMap<String, String>,
    /// Processes whose language runtime schedules tasks itself (Go, tokio), according to the trace's metadata.
    schedulers: HashSet<u32>,
    /// Waits that lost time. `None` unless [`Graph::keep_lost`] was called.
    lost: Option<Vec<Lost>>,
    sleeps: Sleeps,
    totals: Totals,
    windows: Vec<Windowed>,
    pairs: Pairs,
    /// Sender and time of the last stop signal, by the target's thread id and by its process id.
    stops: HashMap<u32, (ActorId, u64), Quick>,
    /// The recorder's child before it executed the recorded program.
    recorder: Option<ActorId>,
    /// The thread that last slept for a lock and got it, by process and address of the lock.
    holders: HashMap<(u32, u64), u32, Quick>,
    /// The thread that last released Python's interpreter lock, by process.
    givers: HashMap<u32, u32, Quick>,
    file_locks: FileLocks,
    first: Option<u64>,
    now: u64,
    pieces: Line,
    sleep: Line,
    queue: Line,
    behind: Line,
    had: Line,
    shares: Vec<Share>,
}

struct Thread {
    actor: ActorId,
    comm: Text,
    pid: Option<u32>,
    /// The thread that created this one, if that was recorded.
    parent: Option<u32>,
    /// Whether the thread was created during the recording, and when it was first seen.
    born: bool,
    began: u64,
    /// Whether it waits for several descriptors at once.
    several: bool,
    /// Used in the first thread of a process only: whether the process schedules tasks itself (Go, tokio). Then one
    /// thread may ask and another one may wait for the answer, so the first thread stands for all of them.
    schedules: bool,
    words: Words,
    /// When its last wait ended that was not for an answer.
    idled: u64,
    /// Whether that wait was a sleep for a time that the thread had chosen; whether neither a thread nor packets
    /// ended it.
    napped: bool,
    by_itself: bool,
    /// The thread that ended that wait, if a thread did.
    idled_by: Option<u32>,
    /// Last waits of an event loop for questions of others: begin and end.
    idles: [(u64, u64); MOST_IDLES],
    /// The thread that last answered a question of this one, and when.
    answer: Option<(u32, u64)>,
    /// The thread that this one asked last, and when.
    asks: Option<(u32, u64)>,
    /// The threads that last woke this one with a word of memory, bytes or events, each once.
    told: [u32; MOST_TOLD],
    /// How often it opened a connection for which another thread waited, and whether it waited for connections.
    connects: u8,
    accepts: bool,
    /// The descriptor on which it last sent something that woke a thread, and that thread.
    sent: Option<(u64, u32)>,
    /// Its short sleeps since it last asked a thread; and the thread that polls for this one's answer in short
    /// sleeps.
    naps: Naps,
    looked_at_by: Option<u32>,
    /// When its last wait for work began.
    idle_since: u64,
    /// When it was last continued after a stop.
    continued: u64,
    /// When it was last sent a signal other than a stop signal.
    signalled: u64,
    /// When its last wait outside of a signal handler began. `None`: no such wait is known. A thread may be created
    /// inside a handler, for example when a server replaces a child.
    outside: Option<u64>,
    kernel: bool,
    /// When it last got a CPU.
    ran: u64,
    cpu: Option<u32>,
    /// Number of that arrival in [`Cpus`]; `u32::MAX`: [`Cpus`] does not have it.
    arrival: u32,
    /// When another thread was first seen on that CPU since then.
    off_by: Option<u64>,
    /// The chain of its CPU time now.
    running: PathId,
    /// The same chain without a function.
    runs: PathId,
    /// The thread that woke it last, and when.
    woken_by: Option<(u32, u64)>,
    past: Past,
    last: Option<Last>,
    /// The sleep before `last`, and its pieces. Kept if the sleep was for a fence and the thread lost its CPU before
    /// an event named the fence.
    before: Option<(Last, Vec<Piece>)>,
}

/// The last wait of a thread. Its cause may become known later, because a span is recorded only when it ends.
#[derive(Debug, Clone, Copy)]
struct Last {
    /// Where its pieces begin in the last stretch, and how many of them belong to the sleep. The rest belong to the
    /// wait for a CPU.
    from: usize,
    sleep: usize,
    hop: HopId,
    what: For,
    left: u64,
    woken: u64,
    /// `None`: each piece is judged separately, by the end of its chain.
    idleness: Option<Idleness>,
    /// Whether the thread slept at all.
    slept: bool,
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new()
    }
}

impl Graph {
    /// Creates a graph without events.
    #[must_use]
    pub fn new() -> Graph {
        Graph {
            threads: Tids::default(),
            ended: VecDeque::new(),
            paths: Paths::new(),
            cpus: Cpus::default(),
            disks: Disks::default(),
            disk_names: BTreeMap::new(),
            schedulers: HashSet::new(),
            lost: None,
            sleeps: Sleeps::default(),
            totals: Totals::default(),
            windows: Vec::new(),
            pairs: Pairs::default(),
            stops: HashMap::default(),
            recorder: None,
            holders: HashMap::default(),
            givers: HashMap::default(),
            file_locks: FileLocks::default(),
            first: None,
            now: 0,
            pieces: Line::default(),
            sleep: Line::default(),
            queue: Line::default(),
            behind: Line::default(),
            had: Line::default(),
            shares: Vec::new(),
        }
    }

    /// Creates a graph without events, with the names of disks and the runtimes that the trace's metadata gives.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Graph {
        let mut graph = Graph::new();
        graph.disk_names.clone_from(&metadata.disks);
        graph.schedulers = metadata.schedulers.iter().copied().collect();
        graph
    }

    /// Takes the next event, in the order of time. Switches and wake-ups must have been joined to waits before
    /// ([`stopgap_trace::Waits`]). The cost does not grow with the number of events.
    pub fn event(&mut self, event: &Event) {
        let time = event.time.0;
        self.first.get_or_insert(time);
        self.now = self.now.max(time);
        match &event.kind {
            Kind::Wait(wait) => self.wait(event, wait),
            Kind::Span(span) => self.span(event, span),
            Kind::Signal {
                signal: 19..=22,
                target_tid,
                target_pid,
                ..
            } => {
                let by = match event.tid {
                    Some(tid) if tid != 0 => self.known(event, tid),
                    _ => NOBODY,
                };
                if self.stops.len() < MOST_THREADS {
                    self.stops.insert(*target_tid, (by, time));
                    if let Some(pid) = target_pid {
                        self.stops.insert(*pid, (by, time));
                    }
                }
            }
            Kind::Signal { target_tid, .. } => {
                if let Some(thread) = self.threads.get_mut(target_tid) {
                    thread.signalled = time;
                }
            }
            Kind::Sample { stack } => {
                let innermost = stack.frames().next_back();
                if let (Some(tid), Some(function)) = (event.tid.filter(|&tid| tid != 0), innermost)
                    && let Some(thread) = self.threads.get_mut(&tid)
                {
                    let function = self.paths.name(&function.into());
                    thread.running = self.paths.leaf(thread.actor, Doing::Runs { function });
                }
            }
            Kind::Fork { target_tid, .. } => {
                if let Some(tid) = event.tid.filter(|&tid| tid != 0) {
                    self.made(*target_tid, tid, time);
                }
            }
            Kind::Exec {
                old_tid: Some(old), ..
            } => {
                if let Some(tid) = event.tid.filter(|tid| tid != old)
                    && let Some(thread) = self.threads.remove(old)
                {
                    self.threads.insert(tid, thread);
                }
            }
            Kind::Task(task) if task.moment == Moment::New => {
                if let (Some(tid), Some(thread)) = (event.tid, task.parent_pid)
                    && self.threads.get(&tid).is_some_and(|t| t.parent.is_none())
                    && let Some(known) = self.threads.get_mut(&tid)
                {
                    known.parent = Some(thread);
                }
            }
            _ => {}
        }
    }

    /// Notes that `tid` executes the recorded program `comm`. Before that, it waited for the recorder.
    pub(crate) fn program_begins(&mut self, tid: u32, comm: Option<&Text>) {
        let thread = self.threads.get(&tid);
        self.recorder = thread
            .filter(|thread| comm.is_some_and(|comm| thread.comm != *comm))
            .map(|thread| thread.actor);
    }

    /// Returns whether the past of `tid` is kept.
    pub(crate) fn knows(&self, tid: u32) -> bool {
        self.threads.contains_key(&tid)
    }

    /// Returns which of two threads asks the other: the one that is idle between an answer and the next question. Where neither is, the
    /// one that made the other asks.
    pub(crate) fn asker(&self, one: u32, other: u32) -> Option<u32> {
        let idler = self.pairs.idler(one, other);
        idler.or_else(|| self.pairs.maker(one, other))
    }

    /// Puts the causes of the last sleep of `tid` into `whys`, piece by piece in the order of time.
    pub(crate) fn last_sleep(&self, tid: u32, whys: &mut Vec<(Why, u64)>) {
        whys.clear();
        let Some(thread) = self.threads.get(&tid) else {
            return;
        };
        let (Some(last), Some(pieces)) = (&thread.last, thread.past.last()) else {
            return;
        };
        let lost = match last.what {
            For::Lock { kind, .. } => match self.paths.name_at(kind).map(|kind| &**kind) {
                Some("mmap_lock") => Why::MmapLock,
                _ => Why::Lock,
            },
            For::Io => Why::Io,
            For::Child => Why::Child,
            For::Continue => Why::Stopped,
            For::Fence { .. } => Why::Fence,
            For::Rcu => Why::Rcu,
            For::Events | For::Data | For::Answer | For::Word { .. } | For::Signal => Why::Answer,
            For::Time | For::Memory { .. } | For::Work | For::Something => Why::Unknown,
        };
        for piece in &pieces[last.from..last.from + last.sleep] {
            let idleness = last.idleness;
            let idleness = idleness.unwrap_or_else(|| idle::of_child(self.paths.end(piece.path)));
            let why = match idleness {
                Idleness::Stalled => &lost,
                Idleness::MayBeIdle => &Why::MayBeIdle,
                Idleness::Idle => &Why::Idle,
            };
            match whys.last_mut() {
                Some((same, ns)) if same == why => *ns += piece.ns,
                _ => whys.push((why.clone(), piece.ns)),
            }
        }
    }

    /// Returns the number of chains in memory, which is bounded.
    #[must_use]
    pub fn chains(&self) -> usize {
        self.paths.len()
    }

    /// Adds the thread `tid`, which `parent` created and which does not run yet.
    fn made(&mut self, tid: u32, parent: u32, time: u64) {
        if self.threads.len() >= MOST_THREADS {
            return;
        }
        let comm = self
            .threads
            .get(&parent)
            .map_or_else(|| "".into(), |thread| Text::clone(&thread.comm));
        let mut thread = Thread::new(&mut self.paths, tid, &comm, time);
        thread.parent = Some(parent);
        thread.born = true;
        self.commit(tid);
        self.threads.insert(tid, thread);
    }

    /// Returns the actor of a thread that an event names.
    fn known(&mut self, event: &Event, tid: u32) -> ActorId {
        match (self.threads.get(&tid), &event.comm) {
            // The thread may have executed another program since its last wait.
            (Some(thread), Some(comm)) if thread.comm != *comm => self.paths.actor(Some(tid), comm),
            (Some(thread), _) => thread.actor,
            (None, Some(comm)) => self.paths.actor(Some(tid), comm),
            (None, None) => self.paths.actor(Some(tid), &"".into()),
        }
    }

    /// Returns the actor of the thread `tid`. `comm` is its name, if the event knows it.
    fn actor(&mut self, tid: u32, comm: Option<&Text>) -> ActorId {
        match (tid, self.threads.get(&tid), comm) {
            (0, ..) => IDLE,
            (_, Some(thread), _) => thread.actor,
            (_, None, Some(comm)) => self.paths.actor(Some(tid), comm),
            (_, None, None) => self.paths.actor(Some(tid), &"".into()),
        }
    }

    fn wait(&mut self, event: &Event, wait: &Wait) {
        let Some(tid) = event.tid.filter(|&tid| tid != 0) else {
            return;
        };
        if wait.within == Some(Within::New)
            && let Some(parent) = wait.waker.as_ref().map(|waker| waker.task.tid)
        {
            self.made(tid, parent, wait.left.0);
        }
        if wait.state != Some(State::Runnable) || !self.keeps_sleep(tid) {
            self.commit(tid);
        }
        if !self.threads.contains_key(&tid) {
            if self.threads.len() >= MOST_THREADS {
                return;
            }
            let comm = event.comm.clone().unwrap_or_else(|| "".into());
            let thread = Thread::new(&mut self.paths, tid, &comm, wait.left.0);
            self.threads.insert(tid, thread);
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if let Some(comm) = &event.comm
            && !is_same(&thread.comm, comm)
        {
            thread.comm = Text::clone(comm);
            thread.actor = self.paths.actor(Some(tid), comm);
            let runs = Doing::Runs { function: 0 };
            thread.runs = self.paths.leaf(thread.actor, runs);
        }
        thread.pid = event.pid.or(thread.pid);
        thread.kernel |= wait.within == Some(Within::Kernel);
        if let Some(priority) = wait.priority {
            self.paths.set_priority(thread.actor, priority);
        }
        let begin = thread.ran;
        let end = event.time.0.max(begin);
        let left = wait.left.0.clamp(begin, end);
        let woken = wait.woken.map_or(left, |woken| woken.0.clamp(left, end));

        let (actor, mut pieces) = (thread.actor, std::mem::take(&mut self.pieces));
        pieces.clear();
        let known_before = !thread.past.is_empty();
        // The thread ran until it left, unless another thread was seen on its CPU.
        let elsewhere =
            matches!((wait.left_cpu, thread.cpu), (Some(left), Some(had)) if left != had);
        let until = match thread.off_by {
            _ if wait.began_before || elsewhere => begin,
            Some(off) if off + SLACK < left => off.clamp(begin, left),
            _ => left,
        };
        pieces.push(thread.running, until - begin);
        if until < left {
            let lost = self.paths.leaf(actor, Doing::Broken(Break::Lost));
            pieces.push(lost, left - until);
        }
        if let Some(cpu) = thread.cpu {
            self.cpus.leaves(cpu, thread.arrival, tid, until);
        }

        let dead = wait.state == Some(State::Dead);
        let runnable = wait.state == Some(State::Runnable);
        self.sleep.clear();
        self.queue.clear();
        let (mut what, mut hop, mut idleness) = (For::Something, 0, Some(Idleness::Stalled));
        let mut ready = woken;
        let over = wait.ran.is_some();
        if wait.began_before {
            let why = if known_before {
                Break::Lost
            } else {
                Break::Before
            };
            ready = wait.woken.map_or(end, |_| woken);
            hop = self.paths.hop(actor, Doing::Broken(why));
            let before = self.paths.leaf(actor, Doing::Broken(why));
            self.sleep.push(before, ready - left);
            idleness = Some(idle::of_before(self.sleeps.what(wait, &mut self.paths)));
        } else if !runnable && !dead {
            if wait.woken.is_none() {
                ready = end;
            }
            let name = wait.call.as_ref().and_then(|call| call.name.as_ref());
            let call = name.map_or(0, |name| self.paths.name(name));
            (what, hop, idleness) = self.follow_sleep(tid, wait, call, (left, ready));
        }
        if !dead {
            self.follow_queue(event, wait, actor, (ready, end), over);
        }

        let from = pieces.0.len();
        if self.sleep.shorten(MOST_PIECES, NOT_KEPT) {
            let rest = self.paths.chain(hop, NOT_KEPT);
            self.sleep.renames(NOT_KEPT, rest);
        }
        if self.queue.shorten(MOST_BEHIND, NOT_KEPT) {
            let rest = self.paths.leaf(actor, Doing::Queued { behind: NOBODY });
            self.queue.renames(NOT_KEPT, rest);
        }
        pieces.0.extend(&self.sleep.0);
        pieces.0.extend(&self.queue.0);
        let slept = !self.sleep.0.is_empty();
        let last = Last {
            from,
            sleep: self.sleep.0.len(),
            hop,
            what,
            left,
            woken: ready,
            idleness,
            slept,
        };
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if begin < end {
            thread.past.remember((begin, end), &pieces.0);
            thread.last = Some(last);
        }
        self.pieces = pieces;
        thread.ran = end;
        (thread.cpu, thread.arrival) = (event.cpu, u32::MAX);
        let arrived = event.cpu.filter(|_| over && !dead).map(|cpu| {
            let previous = wait.previous.as_ref().map(|task| task.tid);
            let (before, number) = self.cpus.arrives(cpu, end, tid, previous);
            thread.arrival = number;
            (cpu, before)
        });
        thread.off_by = None;
        thread.running = thread.runs;
        if let (Some(woken), Some(waker)) = (wait.woken, &wait.waker) {
            thread.woken_by = Some((waker.task.tid, woken.0));
        }
        self.tells_who_waited(tid);
        if dead {
            self.commit(tid);
            self.ended.push_back((tid, end));
            if self.ended.len() > MOST_ENDED
                && let Some((old, at)) = self.ended.pop_front()
                && self
                    .threads
                    .get(&old)
                    .is_some_and(|thread| thread.ran == at)
            {
                self.threads.remove(&old);
            }
            return;
        }
        if let Some((cpu, Some(gone))) = arrived
            && gone != tid
            && let Some(gone) = self.threads.get_mut(&gone)
            && gone.cpu == Some(cpu)
        {
            gone.off_by.get_or_insert(end);
        }
    }

    /// Appends the chains of the sleep of `tid` from `left` to `woken` to `self.sleep`. Returns what the thread
    /// waited for, the sleep's hop, and whether the sleep is a loss.
    fn follow_sleep(
        &mut self,
        tid: u32,
        wait: &Wait,
        call: Name,
        (left, woken): (u64, u64),
    ) -> (For, HopId, Option<Idleness>) {
        let (threads, disks) = (&self.threads, &self.disks);
        let done = |own: bool| disks.ended_at(woken, DISK_SLACK, own.then_some(tid));
        let is_kernel = |by| threads.get(&by).is_some_and(|thread| thread.kernel);
        let pid = self.pid_of(tid).unwrap_or(0);
        let mut what = self.sleeps.what(wait, &mut self.paths);
        let mut ended = self.sleeps.ended(wait, what, done, is_kernel);
        let several = wait.call.as_ref().is_some_and(sleeps::of_several);
        let program = self.sleeps.program(wait, &mut self.paths);
        let unseen = wait.user_stack.is_none() && self.schedulers.contains(&pid);
        if unseen && matches!(what, For::Word { .. }) {
            what = For::Work;
        }
        if unseen || program.says == Some(user::Says::Work) {
            if let Some(first) = self.threads.get_mut(&pid) {
                first.schedules = true;
            }
            // A thread of the same process announces new work. Bytes of another process may be an answer.
            let by_its_own = matches!(ended, Ended::By(by) if self.pid_of(by) == Some(pid));
            if what == For::Events && by_its_own {
                what = For::Work;
            }
        }
        let threads = &self.threads;
        // A thread that ends wakes the thread that joins it. A process that ends wakes all of its threads, which
        // waited for something else.
        if let (Ended::By(by), Some(waker)) = (ended, &wait.waker) {
            let call = waker.call.as_ref().and_then(|call| call.name.as_deref());
            let ending = threads.get(&by);
            let same_process = ending.and_then(|waker| waker.pid) == Some(pid);
            let is_child = ending.and_then(|waker| waker.parent) == Some(tid);
            match (call, what) {
                (Some("exit_group"), what) if same_process && what != For::Child => {
                    ended = Ended::ProcessOver;
                }
                (Some("exit"), For::Word { .. }) => what = For::Child,
                // A child's end shows as an event on its pidfd, or as the end of file of a pipe to which the child
                // writes. The pipe also closes when the child executes another program.
                (
                    Some("exit" | "exit_group" | "execve" | "execveat"),
                    For::Events | For::Data | For::Signal,
                ) if is_child && (!several || wait.call.as_ref().is_some_and(sleeps::of_two)) => {
                    what = For::Child;
                }
                _ => {}
            }
        }
        if ended == Ended::Network && what == For::Data && self.is_delayed_ack(tid, left, woken) {
            ended = Ended::DelayedAck;
        }
        if matches!(ended, Ended::Network | Ended::Timeout)
            && let Some(reader) = self.makes_room(tid, wait)
        {
            ended = Ended::By(reader);
        }
        let looks = self.file_locks.sleeps(tid, what, ended, woken - left);
        if looks.is_some() && what == For::Time {
            let kind = self.paths.name(&"file lock".into());
            what = For::Lock { kind, address: 0 };
        }
        let taker = wait.waker.as_ref().and_then(|waker| waker.call.as_ref());
        let received = matches!(ended, Ended::By(_)) && taker.is_some_and(sleeps::receives);
        let sent_on = taker.filter(|call| sleeps::sends(call));
        let sent_on = sent_on.and_then(|call| call.arguments[0]);
        let connects = taker.is_some_and(|call| call.name.as_deref() == Some("connect"));
        let many = several && !wait.call.as_ref().is_some_and(sleeps::of_two);
        let makes_it = self.was_made_for_it(tid, ended, many);
        let asked = self.asked(
            (tid, wait),
            what,
            ended,
            (left, woken),
            (received, several),
            (sent_on, connects),
        );
        // A driver ended the sleep on behalf of a thread. A polled fence is signalled this way, and so are events for
        // which nobody asked.
        let in_driver = taker.is_some_and(|call| call.name.as_deref() == Some("ioctl"));
        let polled = what == For::Events && matches!(ended, Ended::By(_)) && !several;
        let asked = match asked {
            Asked::No if polled && in_driver => Asked::Perhaps,
            asked => asked,
        };
        let tells = matches!(
            what,
            For::Events | For::Data | For::Word { .. } | For::Signal
        );
        // If the answer is `Yes`, the thread asked its child in a message, so the wait is for an answer and not for
        // the child.
        if makes_it && tells && asked != Asked::Yes {
            what = For::Child;
        }
        let actor = self.threads.get(&tid).map_or(NOBODY, |thread| thread.actor);
        let place = program.place;
        let hop = self.paths.hop(actor, Doing::Waits { what, call, place });
        let held = looks.and_then(|looks| self.held_by(tid, looks, hop, (left, woken)));
        let mut behind = std::mem::take(&mut self.behind);
        behind.clear();
        match ended {
            _ if held.is_some() => behind.push(held.unwrap_or(NOT_KEPT), woken - left),
            _ if what == For::Continue => {
                let (by, doing) = self.stopped_by(tid, pid, wait, ended);
                behind.push(self.paths.leaf(by, doing), woken - left);
            }
            Ended::By(by) => {
                follow(
                    &self.threads,
                    &mut self.paths,
                    by,
                    (left, woken),
                    MOST_PARENTS,
                    &mut behind,
                );
                if matches!(asked, Asked::Yes | Asked::Unseen) {
                    self.through_loop(tid, by, left, &mut behind);
                }
            }
            Ended::Disk => {
                self.shares.clear();
                self.disks.shares(tid, left, woken, &mut self.shares);
                for share in &self.shares {
                    let device = share.device;
                    behind.push(self.paths.leaf(share.by, Doing::Disk { device }), share.ns);
                }
            }
            Ended::Timeout if asked == Asked::Yes => {
                let of = self.unanswered(tid).unwrap_or(NOBODY);
                behind.push(self.paths.leaf(of, Doing::Unanswered), woken - left);
            }
            Ended::Timeout => match self.giver(pid, tid, what) {
                // A thread that wants Python's interpreter lock wakes every 5 ms to look, until the holder releases
                // it.
                Some(giver) => {
                    let (threads, paths) = (&self.threads, &mut self.paths);
                    follow(
                        threads,
                        paths,
                        giver,
                        (left, woken),
                        MOST_PARENTS,
                        &mut behind,
                    );
                }
                None => {
                    let holder = match what {
                        For::Lock { address, .. } | For::Word { address } if address != 0 => {
                            self.holders.get(&(pid, address))
                        }
                        _ => None,
                    };
                    let holder = holder.filter(|&&holder| holder != tid);
                    let holder = holder.and_then(|holder| self.threads.get(holder));
                    let holder = holder.map_or(NOBODY, |holder| holder.actor);
                    behind.push(self.paths.leaf(holder, Doing::Timeout), woken - left);
                }
            },
            Ended::Timer => {
                let end = match what {
                    For::Lock { .. } => Doing::Broken(Break::LookedAt),
                    _ => Doing::Timer,
                };
                behind.push(self.paths.leaf(NOBODY, end), woken - left);
            }
            Ended::Network => behind.push(self.paths.leaf(NOBODY, Doing::Network), woken - left),
            Ended::DelayedAck => {
                let by = self.threads.get(&tid).and_then(|thread| thread.woken_by);
                let sender = by.and_then(|(by, _)| self.threads.get(&by));
                let sender = sender.map_or(NOBODY, |sender| sender.actor);
                behind.push(self.paths.leaf(sender, Doing::DelayedAck), woken - left);
            }
            Ended::Device => behind.push(self.paths.leaf(NOBODY, Doing::Device), woken - left),
            Ended::Interrupt => {
                behind.push(self.paths.leaf(NOBODY, Doing::Interrupt), woken - left);
            }
            Ended::ProcessOver | Ended::Uncertain | Ended::Nobody => {
                let why = match ended {
                    Ended::Uncertain => Break::Uncertain,
                    Ended::ProcessOver => Break::ProcessOver,
                    _ if wait.woken.is_none() && wait.ran.is_none() => Break::NotOver,
                    _ if wait.woken.is_none() => Break::NoWaking,
                    _ => Break::Unheard,
                };
                behind.push(self.paths.leaf(NOBODY, Doing::Broken(why)), woken - left);
            }
        }
        if ended == Ended::Timeout && asked == Asked::Yes {
            self.follow_asked(tid, (left, woken), &mut behind);
        }
        let by_itself = matches!(
            what,
            For::Time | For::Events | For::Data | For::Word { .. } | For::Signal
        );
        let idled_by = match ended {
            Ended::By(by) => Some(speaker(&self.threads, by)),
            _ => None,
        };
        // After a delayed acknowledgement the thread has the first part of a message and will answer it, so it is
        // not idle.
        if by_itself
            && ended != Ended::DelayedAck
            && !matches!(asked, Asked::Yes | Asked::Unseen)
            && !received
            && let Some(thread) = self.threads.get_mut(&speaker(&self.threads, tid))
        {
            thread.idled = woken;
            thread.napped = what == For::Time;
            thread.by_itself = !matches!(ended, Ended::By(_) | Ended::Network);
            thread.idled_by = idled_by;
            if several {
                thread.idles.rotate_right(1);
                thread.idles[0] = (left, woken);
            }
        }
        for piece in &behind.0 {
            let path = self.paths.chain(hop, piece.path);
            self.sleep.push(path, piece.ns);
        }
        match (what, ended, &*self.sleep.0) {
            (For::Time, Ended::Timer, [piece]) => {
                self.naps(tid, hop, piece.path, (left, woken), false);
            }
            (For::Events, Ended::Timeout, [piece]) if asked != Asked::Yes => {
                self.naps(tid, hop, piece.path, (left, woken), true);
            }
            (_, Ended::By(by), _) if asked == Asked::Yes => self.judges_looks(tid, by, left),
            _ => {}
        }
        if let Ended::By(by) = ended {
            self.closes_circle(by, actor);
            let call = wait.call.as_ref();
            let descriptor = call.and_then(|call| call.arguments[0]);
            let room =
                (call.and_then(|call| call.name.as_deref())).is_some_and(sleeps::waits_for_room);
            if room
                && let (Some(thread), Some(descriptor)) = (self.threads.get_mut(&tid), descriptor)
            {
                thread.sent = Some((descriptor, by));
            }
        }
        if let (For::Lock { address, .. } | For::Word { address }, Ended::By(_)) = (what, ended)
            && address != 0
        {
            if self.holders.len() >= MOST_LOCKS {
                self.holders.clear();
            }
            self.holders.insert((pid, address), tid);
        }
        if let (For::Lock { kind, .. }, Ended::By(by)) = (what, ended)
            && (self.paths.name_at(kind)).is_some_and(|kind| **kind == *user::INTERPRETER)
        {
            if self.givers.len() >= MOST_LOCKS {
                self.givers.clear();
            }
            self.givers.insert(pid, by);
        }
        let asleep = Asleep {
            call: wait.call.as_ref().and_then(|call| call.name.as_deref()),
            blocked: wait.state == Some(State::Blocked) || wait.within == Some(Within::User),
            over: wait.woken.is_some() || wait.ran.is_some(),
            what,
            ended,
            asked,
            several,
            handles_signal: self.handles_signal(tid, wait, program.handles_signal, left),
            lock_or_not: program.says == Some(user::Says::LockOrNot),
        };
        let idleness = looks.and_then(|looks| looks.idleness);
        let is_busy = || idle::is_busy(&behind.0, &self.paths);
        let idleness = idleness.or_else(|| idle::judge(&asleep, is_busy));
        self.behind = behind;
        if by_itself && what != For::Time && idleness != Some(Idleness::Stalled) {
            self.tells_who_looked(tid, left);
        }
        (what, hop, idleness)
    }

    /// Returns whether the sleep of `tid` that began at `left` is inside the handler of a signal that was sent to it,
    /// by its stack.
    fn handles_signal(&mut self, tid: u32, wait: &Wait, in_handler: bool, left: u64) -> bool {
        let Some(thread) = self
            .threads
            .get_mut(&tid)
            .filter(|_| wait.user_stack.is_some())
        else {
            return false;
        };
        thread.outside = match thread.outside {
            _ if !in_handler => Some(left),
            Some(outside) if outside <= thread.signalled => Some(outside),
            _ => None,
        };
        in_handler && thread.outside.is_some()
    }

    /// Returns who stopped a thread. Without a signal, returns who let it continue: a debugger, or the thread that
    /// thaws its cgroup.
    fn stopped_by(&mut self, tid: u32, pid: u32, wait: &Wait, ended: Ended) -> (ActorId, Doing) {
        let since = self.threads.get(&tid).map_or(0, |thread| thread.continued);
        let newer = |of: &u32| self.stops.get(of).filter(|(_, at)| *at >= since);
        let signal = [tid, pid].iter().find_map(newer).map(|(by, _)| *by);
        if let (Some(woken), Some(thread)) = (wait.woken, self.threads.get_mut(&tid)) {
            thread.continued = woken.0;
        }
        let traced = wait.state == Some(State::Traced);
        let comm = wait
            .waker
            .as_ref()
            .and_then(|waker| waker.task.comm.as_ref());
        match (signal, ended) {
            (Some(by), _) if !traced => (by, Doing::Stopped),
            // Only the debugger lets a traced thread continue.
            (_, Ended::By(by)) if traced => (self.actor(by, comm), Doing::Stopped),
            (None, Ended::By(by)) => (self.actor(by, comm), Doing::Continued),
            (by, _) => (by.unwrap_or(NOBODY), Doing::Stopped),
        }
    }

    /// Marks an earlier wait of `other` as one half of a possible deadlock, if the wait of `actor` for a lock shows
    /// that the two threads waited for each other. A timeout had ended the earlier wait.
    fn closes_circle(&mut self, other: u32, actor: ActorId) {
        let mut ends = self.sleep.0.iter().map(|piece| self.paths.end(piece.path));
        if !ends.any(|end| end == Doing::Cycle { sure: false }) {
            return;
        }
        let Some(thread) = self.threads.get_mut(&other) else {
            return;
        };
        let (Some(last), Some(pieces)) = (&thread.last, thread.past.last_mut()) else {
            return;
        };
        let circle = self.paths.leaf(actor, Doing::Cycle { sure: false });
        for piece in &mut pieces[last.from..last.from + last.sleep] {
            if self.paths.end(piece.path) == Doing::Timeout {
                piece.path = self.paths.chain(last.hop, circle);
            }
        }
    }

    /// Returns the thread that last released Python's interpreter lock, if `tid` waits for that lock with short
    /// timeouts.
    fn giver(&self, pid: u32, tid: u32, what: For) -> Option<u32> {
        let For::Lock { kind, .. } = what else {
            return None;
        };
        let is_interpreter = self
            .paths
            .name_at(kind)
            .is_some_and(|kind| **kind == *user::INTERPRETER);
        let giver = self.givers.get(&pid).filter(|_| is_interpreter);
        giver.copied().filter(|&giver| giver != tid)
    }

    /// Replaces `behind` by what the thread that `tid` asked did from `left` to `woken`, if that thread worked on the
    /// question.
    fn follow_asked(&mut self, tid: u32, (left, woken): (u64, u64), behind: &mut Line) {
        let Some((of, at)) = self.threads.get(&tid).and_then(|thread| thread.asks) else {
            return;
        };
        // A thread that has answered already waits for the next question.
        let busy = self.threads.get(&of).is_some_and(|thread| {
            let works_on = |last: &Last| last.idleness == Some(Idleness::Stalled);
            thread.woken_by == Some((tid, at)) || thread.last.as_ref().is_some_and(works_on)
        });
        if busy {
            behind.clear();
            let (threads, paths) = (&self.threads, &mut self.paths);
            follow(threads, paths, of, (left, woken), MOST_PARENTS, behind);
        }
        // The asked thread has left its CPU. Why is unknown until it returns.
        let unknown = Doing::Broken(Break::Lost);
        if let Some(asked) = self.threads.get(&of) {
            let asked = asked.actor;
            for piece in &mut behind.0 {
                if self.paths.first(piece.path).doing == unknown {
                    piece.path = self.paths.leaf(asked, Doing::Unanswered);
                }
            }
        }
    }

    /// Returns the thread that `tid` asked just before it slept, if that thread has answered before and has not
    /// answered this time.
    fn unanswered(&self, tid: u32) -> Option<ActorId> {
        let tid = speaker(&self.threads, tid);
        let thread = self.threads.get(&tid)?;
        let (of, at) = thread.asks?;
        let due = at >= thread.idled && self.pairs.waits_since(tid, of, at);
        let asked = self.threads.get(&of)?;
        (due && self.pairs.has_answered(tid, of)).then_some(asked.actor)
    }

    fn pid_of(&self, tid: u32) -> Option<u32> {
        self.threads.get(&tid).and_then(|thread| thread.pid)
    }

    /// Returns whether the thread belongs to a process that schedules tasks itself (Go, tokio).
    pub(crate) fn is_scheduled(&self, tid: u32) -> bool {
        let first = self.threads.get(&speaker(&self.threads, tid));
        first.is_some_and(|first| first.schedules)
    }

    /// Returns whether `tid` had asked for what ended its sleep at `woken`.
    fn asked(
        &mut self,
        (tid, wait): (u32, &Wait),
        what: For,
        ended: Ended,
        (left, woken): (u64, u64),
        (received, several): (bool, bool),
        (sent_on, connects): (Option<u64>, bool),
    ) -> Asked {
        let one = |threads: &Tids<Thread>, tid| {
            let thread = threads.get(&tid);
            One {
                tid,
                born: thread.is_some_and(|thread| thread.born),
                parent: thread.and_then(|thread| thread.parent),
                began: thread.map_or(0, |thread| thread.began),
                several: thread.is_some_and(|thread| thread.several),
                idled: thread.map_or(0, |thread| thread.idled),
                napped: thread.is_some_and(|thread| thread.napped),
                by_itself: thread.is_some_and(|thread| thread.by_itself),
                connects: thread.map_or(0, |thread| thread.connects),
                accepts: thread.is_some_and(|thread| thread.accepts),
                connecting: connects && ended == Ended::By(tid),
            }
        };
        if let For::Word { address } = what {
            let pid = self.pid_of(tid);
            let by = match ended {
                Ended::By(by) => self.threads.get(&by),
                _ => None,
            };
            // Processes that share a word of memory see it at the same address if one is a fork of the other.
            let operation = wait.call.as_ref().and_then(|call| call.arguments[1]);
            let shares = operation.is_some_and(|operation| operation & FUTEX_PRIVATE == 0);
            let own = self.threads.get(&tid);
            let one_of_its_pool = by.is_some_and(|by| {
                let beside = (shares || by.pid == pid) && by.words.slept_beside(address, left);
                let named = own.is_some_and(|own| idle::are_of_a_pool(&own.comm, &by.comm));
                beside || (by.pid == pid && named)
            });
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.words.slept(address, woken);
            }
            if one_of_its_pool {
                return Asked::No;
            }
        }
        let (worker, waits_for) = (ended, self.pid_of(tid));
        let tid = speaker(&self.threads, tid);
        let ended = match ended {
            Ended::By(by) => Ended::By(speaker(&self.threads, by)),
            ended => ended,
        };
        if several && let Some(thread) = self.threads.get_mut(&tid) {
            thread.several = true;
        }
        let answerable = matches!(
            what,
            For::Events | For::Data | For::Word { .. } | For::Signal
        );
        if !answerable {
            return Asked::No;
        }
        let Ended::By(by) = ended else {
            let asks = self.threads.get(&tid).and_then(|thread| thread.asks);
            let due = asks.is_some_and(|(of, at)| self.pairs.waits_since(tid, of, at));
            let unanswered = ended == Ended::Timeout && !several && self.unanswered(tid).is_some();
            return if (due && ended == Ended::Nobody) || unanswered {
                Asked::Yes
            } else {
                Asked::No
            };
        };
        let works_for = |worker: &Thread| {
            worker.comm.starts_with(sleeps::RING_WORKER) && worker.pid == waits_for
        };
        if let Ended::By(worker) = worker
            && self.threads.get(&worker).is_some_and(works_for)
        {
            return Asked::Yes;
        }
        if received && !matches!(what, For::Data | For::Events) {
            return Asked::No;
        }
        if connects {
            for (of, connects) in [(by, true), (tid, false)] {
                if let Some(thread) = self.threads.get_mut(&of) {
                    thread.connects = thread.connects.saturating_add(u8::from(connects));
                    thread.accepts |= !connects;
                }
            }
        }
        if let Some(descriptor) = sent_on
            && let Some(sender) = self.threads.get_mut(&by)
        {
            sender.sent = Some((descriptor, tid));
        }
        let met = Met {
            waker: one(&self.threads, by),
            sleeper: one(&self.threads, tid),
            left,
            woken,
            received,
            several,
            word: matches!(what, For::Word { .. }),
        };
        let through = self.asked_through(tid, by, left);
        let woken_by = |of: u32| self.threads.get(&of).and_then(|thread| thread.woken_by);
        let asked = match self.pairs.ends(&met, woken_by) {
            asked if received || several => asked,
            _ if through => {
                self.pairs.learns(tid, by);
                Asked::Yes
            }
            asked => asked,
        };
        let answers = self.pairs.who_asks(tid, by) == Some(tid);
        if let Some(thread) = self.threads.get_mut(&tid) {
            if !thread.told.contains(&by) {
                thread.told.rotate_right(1);
                thread.told[0] = by;
            }
            if answers {
                thread.answer = Some((by, woken));
            }
        }
        // A question that was read only now counts as asked now: its earlier sending was not seen.
        for (asker, of) in [(by, tid), (tid, by)] {
            if self.pairs.waits_since(asker, of, woken)
                && let Some(thread) = self.threads.get_mut(&asker)
            {
                thread.asks = Some((of, woken));
            }
        }
        asked
    }

    /// Returns whether `by` carries out a question that `tid` asked another thread before it fell asleep at `left`,
    /// as a pool behind a dispatcher does. A question to a busy thread wakes nobody, so it is inferred from three
    /// facts: `tid` was idle after `by` last woke it, and then asked; the asked thread wakes `by`, directly or
    /// through others; and none of these threads has started by itself since.
    fn asked_through(&self, tid: u32, by: u32, left: u64) -> bool {
        let Some(thread) = self.threads.get(&tid) else {
            return false;
        };
        let Some((of, at)) = thread.asks.filter(|&(of, _)| of != by) else {
            return false;
        };
        let by_itself = thread.idled > self.pairs.told_at(by, tid) && at >= thread.idled;
        if !by_itself || at > left || !self.pairs.waits_since(tid, of, at) {
            return false;
        }
        // A thread that a timer has woken since started by itself, so it does not carry the question.
        let carries = |of: &u32| {
            let thread = self.threads.get(of);
            thread.is_some_and(|thread| thread.idled < at || thread.idled_by.is_some())
        };
        let mut through = [by; MOST_THROUGH];
        let (mut count, mut next) = (usize::from(carries(&by)), 0);
        while next < count {
            let told = self.threads.get(&through[next]).map(|thread| thread.told);
            let tellers = told.into_iter().flatten().filter(|teller| *teller != tid);
            for teller in tellers.filter(carries) {
                if count < MOST_THROUGH && !through[..count].contains(&teller) {
                    through[count] = teller;
                    count += 1;
                }
            }
            next += 1;
        }
        through[..count].contains(&of)
    }

    /// Replaces an event loop's waits for other questions by what it waited for meanwhile, if the event loop `by`
    /// answers a question of `tid` for which it had to ask another thread itself.
    fn through_loop(&mut self, tid: u32, by: u32, left: u64, behind: &mut Line) {
        let Some(thread) = self.threads.get(&by).filter(|thread| thread.several) else {
            return;
        };
        let Some((of, until)) = thread.answer.filter(|&(of, at)| at > left && of != tid) else {
            return;
        };
        let idles = thread.idles;
        if !idles.iter().any(|&(_, woken)| woken > left) {
            return;
        }
        let mut line = Line::default();
        let mut at = left;
        for piece in &behind.0 {
            let end = at + piece.ns;
            let idle = idles
                .iter()
                .find(|&&(from, to)| from <= at + SLACK && end <= to + SLACK);
            if idle.is_some() && end <= until && piece.ns > 0 {
                let hop = self.paths.first_id(piece.path);
                let mut instead = Line::default();
                follow(
                    &self.threads,
                    &mut self.paths,
                    of,
                    (at, end),
                    MOST_PARENTS,
                    &mut instead,
                );
                for piece in &instead.0 {
                    line.push(self.paths.chain(hop, piece.path), piece.ns);
                }
            } else {
                line.push(piece.path, piece.ns);
            }
            at = end;
        }
        *behind = line;
    }

    /// Returns whether a thread that `tid` had just created ended its sleep with its first wake-up. Creating the
    /// thread was the question then. Later wake-ups answer later questions, or none. `many` descriptors exclude this:
    /// an event loop waits for all sorts of things.
    fn was_made_for_it(&self, tid: u32, ended: Ended, many: bool) -> bool {
        let Ended::By(by) = ended else { return false };
        let (Some(maker), Some(made)) = (self.threads.get(&tid), self.threads.get(&by)) else {
            return false;
        };
        let first = self.pairs.told_at(by, tid) == 0;
        !many && first && made.born && made.parent == Some(tid) && made.began >= maker.idled
    }

    /// Returns the thread that read what `tid` had sent over TCP on this machine, and so made room. The packet that
    /// announces the room comes while that thread reads. Or a timer sends it later, from whichever thread has the
    /// CPU: then it is the thread that `tid` last sent something to on that descriptor.
    fn makes_room(&self, tid: u32, wait: &Wait) -> Option<u32> {
        let call = wait.call.as_ref()?;
        if !sleeps::waits_for_room(call.name.as_deref()?) {
            return None;
        }
        let waker = wait.waker.as_ref()?;
        let reads = waker.call.as_ref().is_some_and(sleeps::receives);
        let by = waker.task.tid;
        if reads && self.pairs.have_met(tid, by) {
            return Some(by);
        }
        let (descriptor, reader) = self.threads.get(&tid)?.sent?;
        let same = call.arguments[0] == Some(descriptor) && self.threads.contains_key(&reader);
        same.then_some(reader)
    }

    /// Returns whether the wait of `tid` for bytes was as long as TCP holds an acknowledgement back
    /// (`TCP_DELACK_MIN`, 40 ms, include/net/tcp.h), on a connection within this machine. The sender keeps the rest
    /// of the message until then (Nagle's algorithm).
    fn is_delayed_ack(&self, tid: u32, left: u64, woken: u64) -> bool {
        let thread = self.threads.get(&tid);
        let local = thread
            .and_then(|thread| thread.woken_by)
            .is_some_and(|(by, at)| {
                by != 0 && at + DELAYED_ACK.end >= left && self.threads.contains_key(&by)
            });
        local && DELAYED_ACK.contains(&(woken - left))
    }

    /// Appends to `self.queue` the threads that had the CPU while this thread waited for it, from `ready` to `end`.
    fn follow_queue(
        &mut self,
        event: &Event,
        wait: &Wait,
        actor: ActorId,
        (ready, end): (u64, u64),
        over: bool,
    ) {
        if ready >= end {
            return;
        }
        if !over {
            let lost = self.paths.leaf(actor, Doing::Broken(Break::NotOver));
            self.queue.push(lost, end - ready);
            return;
        }
        if wait.throttled == Some(true) {
            let quota = self.paths.leaf(actor, Doing::Quota);
            self.queue.push(quota, end - ready);
            return;
        }
        let previous = wait.previous.as_ref();
        let mut cpu = event.cpu;
        let mut had = previous.map_or(UNKNOWN, |task| task.tid);
        // A CPU that became idle took the thread over from the run queue of another CPU.
        if had == 0
            && end - ready >= WAKE_LATENCY
            && wait.left_cpu != cpu
            && let Some(other) = wait.left_cpu.and_then(|cpu| self.cpus.last_on(cpu, ready))
            && event.tid != Some(other)
        {
            (cpu, had) = (wait.left_cpu, UNKNOWN);
        }
        let mut line = std::mem::take(&mut self.had);
        line.clear();
        self.cpus.behind(cpu, (ready, end), had, &mut line);
        // A real-time thread does not wait that long behind a thread of another policy. It has used up its own
        // budget.
        let is_real_time = |priority: i32| priority < REAL_TIME;
        let urgent = wait.priority.is_some_and(is_real_time) && end - ready >= WAKE_LATENCY;
        for piece in line.0.iter().rev() {
            if piece.path == UNKNOWN {
                let unknown = self.paths.queued(actor, NOBODY);
                self.queue.push(unknown, piece.ns);
                continue;
            }
            let known = previous.filter(|task| task.tid == piece.path);
            let behind = self.actor(piece.path, known.and_then(|task| task.comm.as_ref()));
            let other = self.paths.actor_at(behind).priority;
            let path = match urgent && !other.is_some_and(is_real_time) {
                true => self.paths.leaf(actor, Doing::Budget),
                false => self.paths.queued(actor, behind),
            };
            self.queue.push(path, piece.ns);
        }
        self.had = line;
    }

    /// Gives the wait within a span that has just ended its cause.
    fn span(&mut self, event: &Event, span: &Span) {
        let Some(tid) = event.tid.filter(|&tid| tid != 0) else {
            return;
        };
        if span.what == Activity::Block {
            let actor = self.known(event, tid);
            let (paths, names) = (&mut self.paths, &self.disk_names);
            let name = |device: &Text| match names.get(&**device) {
                Some(name) => paths.name(&name.as_str().into()),
                None => paths.name(device),
            };
            self.disks.done(span, event.time.0, tid, actor, name);
            return;
        }
        if span.what == Activity::FileLock {
            return self.file_locks.failed(tid, span);
        }
        if span.what == Activity::Work {
            if let Some(name) = &span.name {
                let actor = self.known(event, tid);
                let length = event.time.0.saturating_sub(span.begin.0);
                self.totals.works(actor, name, length);
            }
            return;
        }
        self.frees_memory(tid, span, event.time.0);
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let covers = |last: &Last| span.begin.0 <= last.left + SLACK;
        let before = thread.before.as_ref().map(|(last, _)| *last).filter(covers);
        let Some(mut last) = before.or(thread.last) else {
            return;
        };
        // A wait for a lock within a reclaim ends first, and has its cause already.
        let within = covers(&last) && last.woken <= event.time.0;
        let vague = match last.what {
            For::Lock { address, .. } => address == 0,
            For::Io => matches!(span.what, Activity::Lock | Activity::MmapLock),
            For::Fence { driver } => driver == 0,
            For::Memory { .. } | For::Continue | For::Rcu => false,
            _ => true,
        };
        if !within || !vague || !last.slept || last.sleep == 0 {
            return;
        }
        let is_fence = span.what == Activity::Fence;
        let submitter = span.holder.filter(|_| is_fence);
        let submitter = submitter.map(|of| self.submitter(tid, of));
        let by = submitter.as_ref().map(|(_, who)| &**who);
        let Some(what) = Sleeps::told_by(span, by, &mut self.paths) else {
            return;
        };
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let Doing::Waits { call, place, .. } = self.paths.hop_at(last.hop).doing else {
            return;
        };
        last.what = what;
        last.hop = (self.paths).hop(thread.actor, Doing::Waits { what, call, place });
        last.idleness = Some(Idleness::Stalled);
        let pieces = match &mut thread.before {
            Some((kept, pieces)) if before.is_some() => {
                *kept = last;
                Some(&mut pieces[..])
            }
            _ => {
                thread.last = Some(last);
                thread.past.last_mut()
            }
        };
        let Some(pieces) = pieces else { return };
        for piece in &mut pieces[last.from..last.from + last.sleep] {
            if let Some(mut behind) = self.paths.behind(piece.path) {
                let ended = self.paths.first(behind).doing;
                if is_fence && matches!(ended, Doing::Device | Doing::Interrupt) {
                    let of = submitter.as_ref().map_or(NOBODY, |(actor, _)| *actor);
                    behind = self.paths.leaf(of, Doing::Device);
                }
                piece.path = self.paths.chain(last.hop, behind);
            }
        }
    }

    /// Returns the thread that submitted the work of a fence for which `tid` waited, and the thread's name for a
    /// sentence.
    fn submitter(&mut self, tid: u32, of: u32) -> (ActorId, String) {
        let actor = self.actor(of, None);
        let who = match of == tid {
            true => "itself".to_owned(),
            false => self
                .comm(actor)
                .map_or_else(|| format!("thread {of}"), |comm| comm.to_string()),
        };
        (actor, who)
    }

    /// Books the CPU time that a thread spent in reclaim or compaction before its allocation succeeded. Sleeps within
    /// that time are booked as waits.
    fn frees_memory(&mut self, tid: u32, span: &Span, now: u64) {
        let frees = matches!(
            span.what,
            Activity::DirectReclaim | Activity::MemcgReclaim | Activity::Compaction
        );
        let Some(thread) = self.threads.get(&tid).filter(|_| frees && !span.open) else {
            return;
        };
        let (actor, running) = (thread.actor, thread.running);
        let begin = span.begin.0.min(now);
        let pieces = self.between(tid, begin, now);
        let ran = pieces.iter().filter(|piece| piece.path == running);
        let ns: u64 = ran.map(|piece| piece.ns).sum();
        let how = self.paths.name(&span.what.to_string().into());
        let what = For::Memory { how };
        let (call, place) = (0, 0);
        let hop = self.paths.hop(actor, Doing::Waits { what, call, place });
        let path = self.paths.leaf(actor, Doing::Waits { what, call, place });
        let piece = Piece { path, ns };
        let idleness = Some(Idleness::Stalled);
        let mut at = begin;
        for same in &pieces {
            if same.path == running {
                let piece = Piece { path, ns: same.ns };
                for window in &mut self.windows {
                    window.slept(&self.paths, hop, idleness, tid, (at, &[piece]));
                }
            }
            at += same.ns;
        }
        self.totals
            .slept(&self.paths, hop, idleness, tid, begin, &[piece]);
    }

    fn commit_all(&mut self) {
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        for tid in tids {
            self.commit(tid);
        }
    }

    /// Books the last wait of a thread, whose cause cannot change any more.
    fn commit(&mut self, tid: u32) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if let Some((last, pieces)) = thread.before.take() {
            self.settle(tid, &last, Some(&pieces));
        }
        let last = self
            .threads
            .get_mut(&tid)
            .and_then(|thread| thread.last.take());
        if let Some(last) = last {
            self.settle(tid, &last, None);
        }
    }

    /// Books a wait. `given` are its pieces; without them, they are those of the thread's last stretch.
    fn settle(&mut self, tid: u32, last: &Last, given: Option<&[Piece]>) {
        let Some(thread) = self.threads.get(&tid) else {
            return;
        };
        let Some(pieces) = given.or(thread.past.last()) else {
            return;
        };
        if self.lost.is_some()
            && last.idleness == Some(Idleness::Stalled)
            && thread.ran.saturating_sub(last.left) >= lost::LEAST
        {
            let (woken_by, ran) = (thread.woken_by, thread.ran);
            let pieces = pieces[last.from..].to_vec();
            self.loses(tid, last, woken_by, ran, &pieces);
        }
        self.book(tid, last, given);
    }

    /// Keeps a sleep whose fence is not known yet while the thread loses its CPU. Returns whether there is such a
    /// sleep.
    fn keeps_sleep(&mut self, tid: u32) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return false;
        };
        let of_whom = |last: &&mut Last| {
            let vague = matches!(last.what, For::Fence { driver: 0 });
            vague && last.slept && last.sleep > 0
        };
        let (Some(last), Some(pieces)) = (thread.last.as_mut().filter(of_whom), thread.past.last())
        else {
            return false;
        };
        let pieces = pieces[last.from..].to_vec();
        last.from = 0;
        thread.before = thread.last.take().map(|last| (last, pieces));
        true
    }

    fn book(&mut self, tid: u32, last: &Last, given: Option<&[Piece]>) {
        let past = self.threads.get(&tid).and_then(|thread| thread.past.last());
        let Some(pieces) = given.or(past) else {
            return;
        };
        let pieces = &pieces[last.from..];
        let (sleep, queue) = pieces.split_at(last.sleep.min(pieces.len()));
        for window in &mut self.windows {
            window.waited(&self.paths, tid, last, (sleep, queue));
        }
        if last.slept {
            self.totals
                .slept(&self.paths, last.hop, last.idleness, tid, last.left, sleep);
        }
        self.totals.queued(&self.paths, tid, last.woken, queue);
    }

    /// Returns what the thread `tid` did from `from` to `to`, when it has a CPU. The pieces add up to that time.
    fn between(&mut self, tid: u32, from: u64, to: u64) -> Vec<Piece> {
        let mut line = Line::default();
        follow(
            &self.threads,
            &mut self.paths,
            tid,
            (from, to),
            MOST_PARENTS,
            &mut line,
        );
        line.0
    }
}

impl Thread {
    fn new(paths: &mut Paths, tid: u32, comm: &Text, begin: u64) -> Thread {
        let actor = paths.actor(Some(tid), comm);
        let runs = paths.leaf(actor, Doing::Runs { function: 0 });
        Thread {
            actor,
            comm: Text::clone(comm),
            pid: None,
            parent: None,
            born: false,
            began: begin,
            several: false,
            schedules: false,
            words: Words::default(),
            idled: 0,
            napped: false,
            by_itself: false,
            idled_by: None,
            idles: [(0, 0); MOST_IDLES],
            answer: None,
            asks: None,
            told: [0; MOST_TOLD],
            connects: 0,
            accepts: false,
            sent: None,
            naps: Naps::default(),
            looked_at_by: None,
            idle_since: 0,
            continued: 0,
            signalled: 0,
            outside: None,
            kernel: false,
            ran: begin,
            cpu: None,
            arrival: u32::MAX,
            off_by: None,
            running: runs,
            runs,
            woken_by: None,
            past: Past::default(),
            last: None,
            before: None,
        }
    }
}

/// Returns the thread that stands for `tid` in questions and answers: the first thread of a process that schedules
/// tasks itself, else `tid`.
fn speaker(threads: &Tids<Thread>, tid: u32) -> u32 {
    let pid = threads.get(&tid).and_then(|thread| thread.pid);
    let first = pid.filter(|pid| threads.get(pid).is_some_and(|first| first.schedules));
    first.unwrap_or(tid)
}

/// Appends what the thread `tid` did from `from` to `to`, when it has a CPU.
fn follow(
    threads: &Tids<Thread>,
    paths: &mut Paths,
    tid: u32,
    (from, to): (u64, u64),
    parents: u32,
    out: &mut Line,
) {
    if from >= to {
        return;
    }
    let Some(thread) = threads.get(&tid) else {
        out.push(paths.leaf(NOBODY, Doing::Broken(Break::Unheard)), to - from);
        return;
    };
    let mut at = from;
    let heard = thread.past.begin().unwrap_or(thread.ran);
    if at < heard {
        let until = heard.min(to);
        match thread.parent.filter(|_| parents > 0) {
            Some(parent) => follow(threads, paths, parent, (at, until), parents - 1, out),
            None => {
                let unheard = paths.leaf(thread.actor, Doing::Broken(Break::Unheard));
                out.push(unheard, until - at);
            }
        }
        at = until;
    }
    at = thread.past.part(at, to, out);
    if at < to {
        let until = match thread.off_by {
            Some(off) if off + SLACK < to => off.clamp(at, to),
            _ => to,
        };
        out.push(thread.running, until - at);
        if until < to {
            let lost = paths.leaf(thread.actor, Doing::Broken(Break::Lost));
            out.push(lost, to - until);
        }
    }
}

#[cfg(test)]
mod tests;
