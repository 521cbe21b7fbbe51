//! The triggers that are waits: each record of the machine is looked at once, when it comes, and those that cost a thread more
//! time than it may lose fire.
//!
//! What counts as lost of a wait:
//!
//! | the thread | lost |
//! |---|---|
//! | sleeps for work, by the rules of [`stopgap_explain::chain::live`] | the time without a CPU after the wake-up |
//! | sleeps for a lock or an answer, in a page fault, or uninterruptibly (state D) in any call | all |
//! | is ready and has no CPU | all |
//! | is stopped by a signal (state T), and not by that of a terminal | all |
//!
//! Waits of a thread in the same call at the same place, one right after the other, are one loss. But an interruptible sleep that is
//! too long by itself is another one: the next answer that a client waits for is another answer.

use std::collections::{BTreeMap, HashMap, HashSet};

use rustix::process::Signal;
use stopgap_events::units::Nanos;
use stopgap_explain::chain::live::{Asks, ByCall, Slept, are_of_a_pool, by_call, may_carry};
use stopgap_stats::watch::{Sender, Trigger, TriggerKind};
use stopgap_tracer::black_box::{Record, Signal as SignalRecord, TaskEvent, Wait, Waking, flag};
use stopgap_tracer::perf::go::is_go;
use stopgap_tracer::waits::mark_of;

use super::frames::{Frames, SleepPlace, Slept as SleptForFrame};
use crate::args::{FAULT, Limit, What};

/// A thread that runs for longer between two waits has begun something new.
const BREATH: u64 = 2_000_000;
/// But not in state D, where it runs for less than one part in so many of the longest: an fsync computes for 4 ms before each of its
/// 70 ms for the disk.
const BREATH_PART: u64 = 4;
/// The time over which losses by a CPU quota are added: the quota's own period is a tenth of it.
const QUOTA: u64 = 1_000_000_000;
/// The kernel's priority of a thread that nobody has made nicer. What is nicer has agreed to wait for a CPU.
const ORDINARY: i32 = 120;
/// Sleeps of these states may be stalls: interruptible and uninterruptible.
const INTERRUPTIBLE: u32 = 1;
const UNINTERRUPTIBLE: u32 = 2;
/// State T. What a debugger stops has another state.
const STOPPED: u32 = 4;
/// Together with `UNINTERRUPTIBLE`: a kernel thread that idles.
const NO_LOAD: u32 = 0x400;

/// No machine numbers its calls higher.
const MOST_CALLS: usize = 1 << 12;

/// After a sleep of so many ns, `watch` looks up whether the program has a scheduler.
const LOOKED_AT: u64 = 5_000_000;
/// Threads of a process stop for one signal within this time.
const SAME_STOP: u64 = 1_000_000_000;

fn is(signal: Signal, number: u32) -> bool {
    u32::try_from(signal.as_raw()) == Ok(number)
}

/// Whether a signal is one by which a terminal stops a program.
fn is_of_terminal(number: u32) -> bool {
    [Signal::TSTP, Signal::TTIN, Signal::TTOU]
        .iter()
        .any(|&signal| is(signal, number))
}

/// Whether a sleep that is not over may be one for work: who will end it is unknown.
fn waits_for_work(call: &Call, wait: &Wait) -> bool {
    call.by != ByCall::Loss && by_call(&call.name, wait.arguments.map(Some)) != ByCall::Loss
}

/// Returns the system call of a wait, where its number is one of this machine's.
fn call_of<'c>(calls: &'c [Option<Call>], wait: &Wait) -> Option<&'c Call> {
    let native = wait.flags & (flag::COMPAT | flag::NEW) == 0;
    let known = wait.call.filter(|_| native);
    known.and_then(|number| calls.get(number as usize)?.as_ref())
}

/// Where in its program a thread waits.
fn place_of(wait: &Wait) -> SleepPlace {
    (wait.call, wait.ip, wait.sp)
}

/// Whether a sleep that is over was a loss, and not for work.
fn is_loss(
    asks: &mut Asks,
    threads: &HashMap<u32, Thread>,
    calls: &[Option<Call>],
    call: &Call,
    wait: &Wait,
) -> bool {
    let waker_call = wait
        .waker_call
        .and_then(|number| calls.get(number as usize)?.as_ref());
    let by_task = match wait.waker_context {
        Some(Waking::Task) => true,
        // Loopback: the packet of the thread that is on this CPU.
        Some(Waking::Softirq) => waker_call.is_some_and(|call| call.carries),
        _ => false,
    };
    let waker = Some(wait.waker).filter(|&waker| by_task && waker != 0 && wait.woken > 0);
    let woken = if wait.woken > 0 { wait.woken } else { wait.ran };
    asks.is_loss(&Slept {
        tid: wait.tid,
        left: wait.left,
        woken,
        call: &call.name,
        arguments: wait.arguments.map(Some),
        waker,
        waker_call: waker_call.map(|call| &*call.name),
        by_its_pool: match (threads.get(&wait.tid), threads.get(&wait.waker)) {
            (Some(own), Some(by)) => own.pid == by.pid && are_of_a_pool(&own.comm, &by.comm),
            _ => false,
        },
    })
}

/// Which threads each trigger watches.
#[derive(Debug, Clone, Default)]
pub(super) struct Whose {
    /// These processes and what they start.
    pub(super) pids: Vec<u32>,
    /// And those that [`Stream::follows`] adds as they are found.
    pub(super) found: bool,
    /// Threads and processes of these names.
    pub(super) comms: Vec<String>,
    /// Their marks of these names.
    pub(super) marks: Vec<String>,
    /// Nothing of this process and its children: the watch.
    pub(super) not: u32,
}

/// A thread that lives.
#[derive(Debug, Default)]
struct Thread {
    pid: u32,
    parent: u32,
    comm: String,
    priority: i32,
    is_kernel: bool,
    /// When the open wait began for which a trigger has fired.
    fired: u64,
    loss: Loss,
    /// Known of the first thread of a process only: whether the threads of its run time sleep where there is nothing to run.
    schedules: Option<bool>,
    quota: Quota,
    /// Counted for the first thread of a process.
    stop: Stop,
    /// Whether its frames are asked for; `None`: its name has not been looked at.
    draws: Option<bool>,
}

/// How a process was stopped last.
#[derive(Debug, Default)]
struct Stop {
    by: Option<Sender>,
    /// The thread that fired, and when its stop began. Other threads of the process stop at the same time.
    fired: Option<(u32, u64)>,
}

/// A system call.
#[derive(Debug, Clone)]
struct Call {
    name: String,
    /// A limit of its own.
    limit: Option<u64>,
    /// What an interruptible sleep in it is, where its arguments do not say otherwise.
    by: ByCall,
    /// Whether a softirq may bring what a thread in it sent.
    carries: bool,
}

/// Waits in one call, one right after the other.
#[derive(Debug, Default)]
struct Loss {
    place: (Option<u32>, u64, u64),
    begin: u64,
    lost: u64,
    ended: u64,
    /// The longest of the waits.
    longest: u64,
    /// It fires again when it has grown by a quarter: what fires of it late may have a page where what fired first was too near to another.
    fires_at: u64,
}

#[derive(Debug, Default)]
struct Quota {
    begin: u64,
    lost: u64,
    fired: bool,
}

/// Limits, and the threads of the machine.
#[derive(Debug)]
pub(super) struct Stream {
    /// By number.
    calls: Vec<Option<Call>>,
    /// Counted for page faults.
    fault: Option<u64>,
    any: Option<u64>,
    run_queue: Option<u64>,
    blocked: Option<u64>,
    stopped: Option<u64>,
    quota: Option<u64>,
    whose: Whose,
    /// The processes of `whose.pids`, and those that were found.
    followed: HashSet<u32>,
    threads: HashMap<u32, Thread>,
    asks: Asks,
    frames: Frames,
}

impl Stream {
    /// `names` are those of system calls, by number.
    pub(super) fn new(
        limits: &[Limit],
        names: BTreeMap<u32, String>,
        whose: Whose,
        frames: Frames,
    ) -> Stream {
        let of = |what: &What| {
            let limit = limits.iter().rfind(|limit| limit.what == *what);
            limit.map(|limit| limit.time.0)
        };
        let last = names
            .last_key_value()
            .map_or(0, |(&number, _)| number as usize);
        let mut calls = vec![None; last.min(MOST_CALLS) + 1];
        for (number, name) in names {
            if let Some(call) = calls.get_mut(number as usize) {
                *call = Some(Call {
                    limit: of(&What::Call(name.clone())),
                    by: by_call(&name, [None; 3]),
                    carries: may_carry(&name),
                    name,
                });
            }
        }
        Stream {
            calls,
            fault: of(&What::Call(FAULT.to_owned())),
            any: of(&What::Any),
            run_queue: of(&What::RunQueue),
            blocked: of(&What::Blocked),
            stopped: of(&What::Stopped),
            quota: of(&What::CpuQuota),
            followed: whose.pids.iter().copied().collect(),
            whose,
            threads: HashMap::new(),
            asks: Asks::default(),
            frames,
        }
    }

    /// Returns the frames of threads.
    pub(super) fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }

    /// Takes a record. Returns what fires.
    pub(super) fn record(&mut self, bytes: &[u8]) -> Option<Trigger> {
        if let Some(wait) = Record::wait_of(bytes) {
            return self.wait(&wait);
        }
        let parsed = Record::parse(bytes).ok()?;
        if let Record::Signal(signal) = &parsed {
            self.signal(signal);
        }
        if let Record::Task(task) = parsed {
            if task.event == TaskEvent::Exited {
                self.threads.remove(&task.tid);
                self.asks.ended(task.tid);
                self.frames.ended(task.tid, task.time);
                return None;
            }
            if task.event == TaskEvent::Forked && !task.is_kernel_thread {
                let maker = task.maker.unwrap_or(task.parent);
                self.asks.born(task.tid, maker, task.start);
            }
            if self.followed.contains(&task.parent) {
                self.followed.insert(task.tgid);
            }
            if let Some(mark) = mark_of(&task.comm) {
                return self.mark(mark, task.tid, task.time);
            }
            // Threads may be asked for by the name of their process.
            if self.frames.are_asked() && task.tid == task.tgid {
                let own = self.threads.values_mut();
                own.filter(|thread| thread.pid == task.tgid)
                    .for_each(|thread| thread.draws = None);
            }
            let thread = self.threads.entry(task.tid).or_default();
            (thread.pid, thread.parent) = (task.tgid, task.parent);
            (thread.priority, thread.is_kernel) = (task.priority, task.is_kernel_thread);
            // It may run another program by now.
            (thread.comm, thread.draws, thread.schedules) = (task.comm, None, None);
        }
        None
    }

    /// Remembers who stopped a process.
    fn signal(&mut self, signal: &SignalRecord) {
        let sender = Sender {
            signal: signal.number.into(),
            tid: signal.tid,
            task: self.name(signal.tid),
        };
        if (is_of_terminal(sender.signal) || is(Signal::STOP, sender.signal))
            && let Some(leader) = self.threads.get_mut(&signal.target_tgid)
        {
            leader.stop.by = Some(sender);
        }
    }

    /// What fires where a wait is a stop by a signal, but for those of a terminal: somebody has typed that.
    fn stop(&mut self, wait: &Wait, asleep: u64) -> Option<Trigger> {
        let limit = self.stopped.filter(|&limit| asleep >= limit)?;
        let thread = self.threads.get(&wait.tid)?;
        let (pid, task) = (thread.pid, thread.comm.clone());
        let leader = self.threads.get_mut(&pid);
        let by = leader.as_ref().and_then(|leader| leader.stop.by.clone());
        if by.as_ref().is_some_and(|by| is_of_terminal(by.signal)) {
            return None;
        }
        if let Some(leader) = leader {
            let fired = leader.stop.fired;
            let other =
                |(tid, left): (u32, u64)| tid != wait.tid && left.abs_diff(wait.left) < SAME_STOP;
            if fired.is_some_and(other) {
                return None;
            }
            leader.stop.fired = Some((wait.tid, wait.left));
        }
        Some(Trigger {
            begin_ns: Some(wait.left),
            measured_ns: Some(asleep),
            threshold_ns: Some(limit),
            pid: Some(pid),
            tid: Some(wait.tid),
            task: Some(task),
            open: wait.flags & flag::OPEN != 0,
            stopped_by: by,
            ..Trigger::new(TriggerKind::Stopped, wait.ran)
        })
    }

    fn mark(&mut self, mark: &str, tid: u32, time: u64) -> Option<Trigger> {
        let asked = self.whose.marks.iter().any(|asked| asked == mark);
        let frame = self.frames.are_by(mark);
        if !(asked || frame) || !self.concerns(tid) {
            return None;
        }
        let thread = self.threads.get(&tid)?;
        if frame {
            let of = (thread.pid, &*thread.comm);
            self.frames.marked(mark, tid, of, time);
        }
        if !asked {
            return None;
        }
        Some(Trigger {
            mark: Some(mark.to_owned()),
            pid: Some(thread.pid),
            tid: Some(tid),
            task: Some(thread.comm.clone()),
            ..Trigger::new(TriggerKind::Mark, time)
        })
    }

    /// Takes a look at all threads, which was over by `now`: counts of each, and waits that are open. Returns what these fire.
    /// It forgets threads that the look has not, and adds those whose beginning was lost: a full ring may lose either.
    pub(super) fn look(&mut self, look: &[Vec<u8>], now: Nanos) -> Vec<Trigger> {
        let mut alive = HashSet::with_capacity(look.len());
        let mut fired = Vec::new();
        for record in look {
            if Record::wait_of(record).is_some() {
                fired.extend(self.record(record));
            } else if let Ok(Record::Task(task)) = Record::parse(record) {
                alive.insert(task.tid);
                if !self.threads.contains_key(&task.tid) {
                    self.record(record);
                }
            }
        }
        self.threads.retain(|tid, _| alive.contains(tid));
        self.frames.retain(&alive, now.0);
        let processes: HashSet<u32> = self.threads.values().map(|thread| thread.pid).collect();
        let asked = &self.whose.pids;
        self.followed
            .retain(|pid| processes.contains(pid) || asked.contains(pid));
        fired
    }

    /// Takes processes that were found, whose stalls are asked for, too.
    pub(super) fn follows(&mut self, pids: &[u32]) {
        if !pids.is_empty() {
            self.followed.extend(pids);
            self.begun();
        }
    }

    /// Takes what threads were there when the watch began: children whose number is less than that of their parent are
    /// followed, too.
    pub(super) fn begun(&mut self) {
        loop {
            let before = self.followed.len();
            for thread in self.threads.values() {
                if self.followed.contains(&thread.parent) {
                    self.followed.insert(thread.pid);
                }
            }
            if self.followed.len() == before {
                return;
            }
        }
    }

    /// Returns when the oldest wait began that has fired and was still open, of those in `open`.
    pub(super) fn oldest_open(&self) -> Option<Nanos> {
        let fired = self.threads.values().map(|thread| thread.fired);
        let fired = fired.filter(|&begin| begin > 0);
        fired.chain(self.frames.oldest_open()).min().map(Nanos)
    }

    /// Takes the same look as [`Stream::look`]. Returns the frames that are late and go on.
    pub(super) fn look_at_frames(&mut self, look: &[Vec<u8>], now: Nanos) -> Vec<Trigger> {
        if !self.frames.are_asked() {
            return Vec::new();
        }
        let waits = look.iter().filter_map(|record| Record::wait_of(record));
        let asleep = waits.filter(|wait| wait.state != 0 && wait.woken == 0);
        let asleep = asleep.map(|wait| {
            let call = call_of(&self.calls, &wait);
            let idle = wait.state & UNINTERRUPTIBLE == 0
                && call.is_some_and(|call| waits_for_work(call, &wait));
            (wait.tid, (place_of(&wait), wait.left, idle))
        });
        let asleep: HashMap<u32, (SleepPlace, u64, bool)> = asleep.collect();
        self.frames.look(&asleep, now.0)
    }

    /// Tells the frames of a thread of a sleep that is over.
    fn sleeps(&mut self, wait: &Wait, idle: bool) {
        let Some(call) = call_of(&self.calls, wait) else {
            return;
        };
        if wait.state & INTERRUPTIBLE == 0 || !waits_for_work(call, wait) {
            return;
        }
        let Some(thread) = self.threads.get(&wait.tid) else {
            return;
        };
        let woken = if wait.woken > 0 { wait.woken } else { wait.ran };
        if idle && self.frames.marks(wait.tid) {
            return (self.frames).idled(wait.tid, (wait.left, woken), wait.ran);
        }
        let draws = thread.draws.unwrap_or_else(|| {
            let leader = self.threads.get(&thread.pid);
            let leader = leader.map_or("", |leader| &*leader.comm);
            (self.frames).follow(wait.tid, thread.pid, [&thread.comm, leader])
        });
        if draws {
            let sleep = SleptForFrame {
                place: place_of(wait),
                call: call.name.clone(),
                left: wait.left,
                woken,
                by_thread: wait.waker_context == Some(Waking::Task),
                idle,
            };
            self.frames.slept(wait.tid, sleep, wait.ran);
        }
        if let Some(thread) = self.threads.get_mut(&wait.tid) {
            thread.draws = Some(draws);
        }
    }

    fn wait(&mut self, wait: &Wait) -> Option<Trigger> {
        let open = wait.flags & flag::OPEN != 0;
        let thread = self.threads.get_mut(&wait.tid)?;
        // A wait that triggered while it was open triggers again when it ends: its length is known then.
        if !open {
            thread.fired = 0;
        } else if thread.fired == wait.left {
            return None;
        }
        let trigger = self.fires(wait, open)?;
        if !self.concerns(wait.tid) {
            return None;
        }
        if open && let Some(thread) = self.threads.get_mut(&wait.tid) {
            thread.fired = wait.left;
        }
        Some(trigger)
    }

    /// Whether a thread slept for a word for which a scheduler of its program lets it sleep. Shorter sleeps than `asleep` may be are not looked at: looking
    /// takes longer.
    fn has_nothing_to_run(&mut self, wait: &Wait, asleep: u64) -> bool {
        let futex = |call: &Call| call.name == "futex";
        if asleep < LOOKED_AT || !call_of(&self.calls, wait).is_some_and(futex) {
            return false;
        }
        let pid = self.threads.get(&wait.tid).map(|thread| thread.pid);
        let Some(first) = pid.and_then(|pid| self.threads.get_mut(&pid)) else {
            return false;
        };
        *first.schedules.get_or_insert_with(|| is_go(first.pid))
    }

    fn fires(&mut self, wait: &Wait, open: bool) -> Option<Trigger> {
        if wait.flags & flag::KERNEL_THREAD != 0 {
            return None;
        }
        let ready = match wait.state {
            0 => wait.left,
            _ if wait.woken > 0 => wait.woken,
            _ => wait.ran,
        };
        let asleep = ready.saturating_sub(wait.left);
        let waited = wait.ran.saturating_sub(ready);
        if wait.state & STOPPED != 0 {
            return self.stop(wait, asleep);
        }
        let uninterruptible = wait.state & UNINTERRUPTIBLE != 0 && wait.state & NO_LOAD == 0;
        let sleeps = uninterruptible || wait.state & INTERRUPTIBLE != 0;
        let idle = !uninterruptible
            && call_of(&self.calls, wait).is_none_or(|call| match open {
                true => waits_for_work(call, wait),
                false => sleeps && !is_loss(&mut self.asks, &self.threads, &self.calls, call, wait),
            });
        let idle = idle || (!uninterruptible && self.has_nothing_to_run(wait, asleep));
        if !open && self.frames.are_asked() {
            self.sleeps(wait, idle);
        }
        let call = call_of(&self.calls, wait);
        let thread = self.threads.get_mut(&wait.tid)?;
        let fault = wait.call.is_none() && wait.state != 0;
        let name = || call.map(|call| call.name.clone());
        let trigger = |kind, begin: u64, measured: u64, limit: u64| Trigger {
            begin_ns: Some(begin),
            measured_ns: Some(measured),
            threshold_ns: Some(limit),
            call: name().or_else(|| fault.then(|| FAULT.to_owned())),
            pid: Some(thread.pid),
            tid: Some(wait.tid),
            task: Some(thread.comm.clone()),
            open,
            ..Trigger::new(kind, wait.ran)
        };
        if wait.state == 0 && wait.flags & flag::THROTTLED != 0 {
            let limit = self.quota?;
            if wait.ran.saturating_sub(thread.quota.begin) > QUOTA {
                thread.quota = Quota {
                    begin: wait.left,
                    ..Quota::default()
                };
            }
            let quota = &mut thread.quota;
            quota.lost += waited;
            if quota.fired || quota.lost < limit {
                return None;
            }
            quota.fired = true;
            let (begin, lost) = (quota.begin, quota.lost);
            return Some(trigger(TriggerKind::CpuQuota, begin, lost, limit));
        }
        if let Some(limit) = self.run_queue
            && waited >= limit
            && thread.priority <= ORDINARY
        {
            return Some(trigger(TriggerKind::RunQueue, ready, waited, limit));
        }
        if wait.flags & flag::NEW != 0 {
            return None;
        }
        let place = (wait.call, wait.ip, wait.arguments[0]);
        let cost = asleep + waited;
        let loss = &mut thread.loss;
        let breath = match wait.state & INTERRUPTIBLE {
            0 => BREATH.max(loss.longest.max(cost) / BREATH_PART),
            _ => BREATH,
        };
        let goes_on = loss.place == place && wait.left.saturating_sub(loss.ended) <= breath;
        // In the middle of a call that loses time it may be kept from a CPU, too.
        let counts = sleeps || (goes_on && wait.call.is_some());
        if !counts {
            return None;
        }
        let chosen = call.map_or(self.fault.filter(|_| fault), |call| call.limit);
        let limit = chosen.or(self.any.filter(|_| !idle));
        if let Some(limit) = limit {
            if !goes_on || (sleeps && !uninterruptible && cost >= limit) {
                *loss = Loss {
                    place,
                    begin: wait.left,
                    fires_at: limit,
                    ..Loss::default()
                };
            }
            let lost = loss.lost + cost;
            if !open {
                (loss.lost, loss.ended) = (lost, wait.ran);
                loss.longest = loss.longest.max(cost);
            }
            if lost >= loss.fires_at {
                if !open {
                    loss.fires_at = lost.saturating_add(lost / 4);
                }
                let begin = loss.begin;
                return Some(trigger(TriggerKind::SlowCall, begin, lost, limit));
            }
        }
        let limit = self.blocked.filter(|_| sleeps && uninterruptible)?;
        (asleep >= limit).then(|| trigger(TriggerKind::Blocked, wait.left, asleep, limit))
    }

    /// Returns the name of a thread that lives.
    pub(super) fn name(&self, tid: u32) -> Option<String> {
        self.threads.get(&tid).map(|thread| thread.comm.clone())
    }

    /// Whether stalls of the thread are asked for.
    pub(super) fn concerns(&self, tid: u32) -> bool {
        let Some(thread) = self.threads.get(&tid) else {
            return false;
        };
        if [thread.pid, thread.parent].contains(&self.whose.not) {
            return false;
        }
        let named = |comm: &str| self.whose.comms.iter().any(|wanted| wanted == comm);
        let leader = self.threads.get(&thread.pid);
        let by_name = || named(&thread.comm) || leader.is_some_and(|leader| named(&leader.comm));
        let some = self.whose.found || !self.whose.pids.is_empty();
        match (some, self.whose.comms.is_empty()) {
            (false, true) => true,
            (true, true) => self.followed.contains(&thread.pid),
            (false, false) => by_name(),
            (true, false) => self.followed.contains(&thread.pid) || by_name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn limits(all: &[(What, u64)]) -> Vec<Limit> {
        let limit = |(what, ms): &(What, u64)| Limit {
            what: what.clone(),
            time: Nanos::millis(*ms),
        };
        all.iter().map(limit).collect()
    }

    fn task(tid: u32, pid: u32, parent: u32, comm: &str, priority: i32) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        (bytes[0], bytes[1]) = (5, 1);
        let mut put = |at: usize, value: u32| {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        };
        put(4, tid);
        put(8, pid);
        put(12, parent);
        put(96, priority.cast_unsigned());
        bytes[104..104 + comm.len()].copy_from_slice(comm.as_bytes());
        bytes
    }

    /// A wait of thread 7 in call `call` (1 write, 7 poll): left, woken, ran in ms.
    fn wait(call: i32, state: u32, flags: u8, times: [u64; 3]) -> Vec<u8> {
        let mut bytes = vec![0; 112];
        (bytes[0], bytes[1], bytes[4]) = (1, flags, 7);
        for (at, time) in times.into_iter().enumerate() {
            bytes[8 + at * 8..16 + at * 8].copy_from_slice(&(time * MS).to_le_bytes());
        }
        bytes[32..36].copy_from_slice(&call.to_le_bytes());
        bytes[36..40].copy_from_slice(&state.to_le_bytes());
        bytes
    }

    fn stream(limits: &[Limit], whose: Whose) -> Stream {
        let names = [(1, "write".to_owned()), (7, "poll".to_owned())];
        let mut stream = Stream::new(limits, names.into(), whose, Frames::default());
        stream.record(&task(5, 5, 1, "shell", 120));
        stream.record(&task(7, 6, 5, "writer", 120));
        stream
    }

    fn usual() -> Vec<Limit> {
        limits(&[
            (What::Any, 250),
            (What::RunQueue, 100),
            (What::Blocked, 1_000),
            (What::CpuQuota, 100),
        ])
    }

    fn told(trigger: Option<Trigger>) -> Option<(TriggerKind, Option<String>, u64, u64)> {
        let trigger = trigger?;
        let (begin, measured) = (trigger.begin_ns?, trigger.measured_ns?);
        Some((trigger.kind, trigger.call, begin / MS, measured / MS))
    }

    #[test]
    fn a_call_that_loses_more_than_its_limit_fires_and_an_idle_one_does_not() {
        let mut stream = stream(&usual(), Whose::default());
        assert_eq!(stream.record(&wait(1, 1, 0, [1_000, 1_200, 1_200])), None);
        let fires = stream.record(&wait(1, 1, 0, [2_000, 2_300, 2_301]));
        let write = Some("write".to_owned());
        assert_eq!(
            told(fires),
            Some((TriggerKind::SlowCall, write.clone(), 2_000, 301))
        );
        assert_eq!(
            stream.record(&wait(7, 1, 0, [3_000, 9_000, 9_001])),
            None,
            "poll is idle"
        );
        let fires = told(stream.record(&wait(7, 2, 0, [10_000, 10_400, 10_400])));
        assert_eq!(
            fires.unwrap().0,
            TriggerKind::SlowCall,
            "but not in state D"
        );
        let fault = told(stream.record(&wait(-1, 2, 0, [11_000, 11_400, 11_400])));
        assert_eq!(fault.unwrap().1.as_deref(), Some("fault"));
    }

    #[test]
    fn waits_one_right_after_the_other_are_one_loss() {
        let mut stream = stream(&usual(), Whose::default());
        for begin in [1_000, 1_101] {
            assert_eq!(
                stream.record(&wait(1, 2, 0, [begin, begin + 100, begin + 100])),
                None
            );
        }
        let fires = told(stream.record(&wait(1, 2, 0, [1_202, 1_302, 1_302])));
        assert_eq!(fires.map(|told| (told.2, told.3)), Some((1_000, 300)));
        assert_eq!(
            stream.record(&wait(1, 2, 0, [1_303, 1_363, 1_363])),
            None,
            "said"
        );
        let more = told(stream.record(&wait(1, 2, 0, [1_364, 1_464, 1_464])));
        assert_eq!(more.map(|told| (told.2, told.3)), Some((1_000, 460)));
        for begin in [3_000, 3_200, 3_400] {
            let apart = wait(1, 2, 0, [begin, begin + 100, begin + 100]);
            assert_eq!(
                stream.record(&apart),
                None,
                "it ran for 100 ms between them"
            );
        }
    }

    /// ```text
    /// ms    0    70 74   144   154 158 228 232 302         computes for 4 ms before each, and is kept from a CPU once
    /// fsync |DDDD|  |DDDD|qqqqq|   |DDD|   |DDD|
    /// ```
    #[test]
    fn a_call_that_computes_between_its_waits_for_the_disk_is_one_loss() {
        let mut stream = stream(&usual(), Whose::default());
        let preempted = wait(1, 0, flag::PREEMPTED, [148, 0, 158]);
        for quiet in [
            wait(1, 2, 0, [0, 70, 70]),
            wait(1, 2, 0, [74, 144, 144]),
            preempted.clone(),
            wait(1, 2, 0, [162, 232, 232]),
        ] {
            assert_eq!(stream.record(&quiet), None);
        }
        let fires = told(stream.record(&wait(1, 2, 0, [236, 306, 306])));
        let write = Some("write".to_owned());
        assert_eq!(fires, Some((TriggerKind::SlowCall, write, 0, 290)));
        // In user mode nothing of the call goes on.
        let computes = wait(-1, 0, flag::PREEMPTED, [310, 0, 400]);
        assert_eq!(stream.record(&computes), None);
        assert_eq!(stream.record(&wait(1, 2, 0, [404, 474, 474])), None);
    }

    /// Two answers, the second right after the first: the second has a trigger of its own, and is not a part of the first.
    #[test]
    fn a_sleep_that_is_too_long_by_itself_is_a_loss_of_its_own() {
        let mut stream = stream(&limits(&[(What::Any, 250)]), Whose::default());
        let fires = told(stream.record(&wait(1, 1, 0, [0, 2_144, 2_144])));
        assert_eq!(fires.map(|told| (told.2, told.3)), Some((0, 2_144)));
        let fires = told(stream.record(&wait(1, 1, 0, [2_144, 2_620, 2_620])));
        assert_eq!(fires.map(|told| (told.2, told.3)), Some((2_144, 476)));
        let short = wait(1, 1, 0, [2_620, 2_720, 2_720]);
        assert_eq!(stream.record(&short), None);
    }

    #[test]
    fn the_run_queue_fires_after_an_idle_sleep_too_but_not_of_the_nice() {
        let mut stream = stream(&usual(), Whose::default());
        let late = wait(7, 1, 0, [0, 500, 640]);
        assert_eq!(
            told(stream.record(&late)),
            Some((TriggerKind::RunQueue, Some("poll".to_owned()), 500, 140))
        );
        let preempted = wait(-1, 0, flag::PREEMPTED, [700, 0, 820]);
        assert_eq!(told(stream.record(&preempted)).unwrap().3, 120);
        stream.record(&task(7, 6, 5, "writer", 139));
        assert_eq!(stream.record(&late), None);
    }

    #[test]
    fn a_quota_adds_up_within_a_second() {
        let mut stream = stream(&usual(), Whose::default());
        let stopped = |at: u64| wait(-1, 0, flag::THROTTLED, [at, 0, at + 60]);
        assert_eq!(stream.record(&stopped(1_000)), None);
        let fires = told(stream.record(&stopped(1_100)));
        assert_eq!(fires, Some((TriggerKind::CpuQuota, None, 1_000, 120)));
        assert_eq!(stream.record(&stopped(1_200)), None, "once a second");
        assert_eq!(stream.record(&stopped(5_000)), None, "a new one");
    }

    #[test]
    fn an_open_wait_fires_once_and_again_with_its_end() {
        let mut stream = stream(&limits(&[(What::Blocked, 1_000)]), Whose::default());
        let open = |now| wait(1, 2, flag::OPEN, [1_000, 0, now]);
        assert_eq!(stream.record(&open(1_900)), None);
        let fires = stream.record(&open(2_100)).unwrap();
        assert_eq!((fires.kind, fires.open), (TriggerKind::Blocked, true));
        assert_eq!(stream.record(&open(3_100)), None);
        assert_eq!(stream.oldest_open(), Some(Nanos::secs(1)));
        let ends = stream
            .record(&wait(1, 2, 0, [1_000, 4_000, 4_000]))
            .unwrap();
        assert_eq!((ends.open, ends.measured_ns), (false, Some(3_000 * MS)));
        assert_eq!(stream.oldest_open(), None);
    }

    #[test]
    fn a_mark_fires_where_its_name_is_asked_for_and_leaves_the_thread_its_own() {
        let whose = Whose {
            marks: vec!["slow".to_owned()],
            ..Whose::default()
        };
        let mut stream = stream(&[], whose);
        assert_eq!(stream.record(&task(7, 6, 5, "\u{1}frame", 120)), None);
        let fires = stream.record(&task(7, 6, 5, "\u{1}slow", 120)).unwrap();
        assert_eq!(
            (fires.kind, fires.mark.as_deref()),
            (TriggerKind::Mark, Some("slow"))
        );
        assert_eq!(fires.task.as_deref(), Some("writer"));
    }

    #[test]
    fn it_fires_for_whom_it_is_asked() {
        let slow = wait(1, 1, 0, [0, 300, 300]);
        let fires = |whose: Whose| {
            let mut stream = stream(&usual(), whose);
            stream.begun();
            stream.record(&slow).is_some()
        };
        let of = |pid| Whose {
            pids: vec![pid],
            ..Whose::default()
        };
        assert!(fires(of(6)) && fires(of(5)) && !fires(of(9)));
        let either = Whose {
            pids: vec![9, 5],
            ..Whose::default()
        };
        assert!(fires(either));
        let mut found = stream(
            &usual(),
            Whose {
                found: true,
                ..Whose::default()
            },
        );
        assert_eq!(found.record(&slow), None);
        found.follows(&[5]);
        assert!(found.record(&slow).is_some(), "what it had started, too");
        let named = |comm: &str| Whose {
            comms: vec![comm.to_owned()],
            ..Whose::default()
        };
        assert!(fires(named("writer")) && !fires(named("shell")));
        let not = |pid| Whose {
            not: pid,
            ..Whose::default()
        };
        assert!(!fires(not(6)) && !fires(not(5)) && fires(not(7)));
    }

    /// A signal from thread 5, "shell", to process 6.
    fn signal(number: u8, time: u64) -> Vec<u8> {
        let mut bytes = vec![0; 56];
        (bytes[0], bytes[1], bytes[4], bytes[16], bytes[20]) = (8, number, 5, 6, 6);
        bytes[8..16].copy_from_slice(&(time * MS).to_le_bytes());
        bytes
    }

    /// 0x104 is TASK_STOPPED, 0x108 TASK_TRACED of Linux 6.
    #[test]
    fn a_stop_fires_once_a_process_and_not_by_a_terminal_or_a_debugger() {
        let begin = || {
            let mut stream = stream(&limits(&[(What::Stopped, 1_000)]), Whose::default());
            stream.record(&task(6, 6, 5, "writer", 120));
            stream
        };
        let mut own = begin();
        own.record(&signal(19, 10));
        assert_eq!(own.record(&wait(7, 0x104, flag::OPEN, [10, 0, 900])), None);
        let fires = own.record(&wait(7, 0x104, flag::OPEN, [10, 0, 1_100]));
        let fires = fires.unwrap();
        assert_eq!((fires.kind, fires.open), (TriggerKind::Stopped, true));
        let by = fires.stopped_by.unwrap();
        assert_eq!(
            (by.signal, by.tid, by.task.as_deref()),
            (19, 5, Some("shell"))
        );
        let mut first = wait(7, 0x104, flag::OPEN, [11, 0, 1_200]);
        first[4] = 6;
        assert_eq!(own.record(&first), None, "the same stop of another thread");
        let ends = own.record(&wait(7, 0x104, 0, [10, 2_010, 2_011]));
        assert_eq!(told(ends), Some((TriggerKind::Stopped, None, 10, 2_000)));
        // Nobody has seen the signal.
        let fires = begin().record(&wait(7, 0x104, 0, [10, 2_010, 2_011]));
        assert_eq!(fires.unwrap().stopped_by, None);
        for number in [20, 21, 22] {
            let mut typed = begin();
            typed.record(&signal(19, 5));
            typed.record(&signal(number, 10));
            assert_eq!(typed.record(&wait(7, 0x104, 0, [10, 2_010, 2_011])), None);
        }
        assert_eq!(begin().record(&wait(7, 0x108, 0, [10, 2_010, 2_011])), None);
    }

    /// The beginning of 9 and the end of 7 were lost.
    #[test]
    fn a_look_forgets_threads_that_are_gone_and_learns_others() {
        let whose = Whose {
            pids: vec![5],
            ..Whose::default()
        };
        let mut stream = stream(&usual(), whose);
        assert!(stream.concerns(7));
        let seen = |tid, pid, comm| {
            let mut record = task(tid, pid, 5, comm, 120);
            record[1] = 5;
            record
        };
        stream.look(&[seen(5, 5, "shell"), seen(9, 9, "new")], Nanos(1));
        let mut threads: Vec<u32> = stream.threads.keys().copied().collect();
        threads.sort_unstable();
        assert_eq!(threads, [5, 9]);
        assert_eq!(stream.name(9).as_deref(), Some("new"));
        let mut followed: Vec<u32> = stream.followed.iter().copied().collect();
        followed.sort_unstable();
        assert_eq!(followed, [5, 9]);
        // A process that was named stays, though it has ended.
        stream.look(&[seen(9, 9, "new")], Nanos(2));
        assert!(stream.followed.contains(&5));
    }
}
