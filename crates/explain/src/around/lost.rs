//! What a thread, or all of them, lost in a stall, by their waits and by what they were in the middle of: the account of a
//! trigger. It needs no operation: only the waits between the stall's begin and its end.

use std::collections::BTreeMap;

use stopgap_events::wait::{State, Wait, Within};
use stopgap_stats::watch::{Cause, Trigger, TriggerKind};
use stopgap_trace::{Activity, Event, Kind, Span};

use super::{LEAST_NS, ms};
use crate::stack;

/// Waits and spans of one stall that are kept; a stall of so many is many short ones, of which the first tell the cause.
const MOST: usize = 100_000;
/// Causes of memory pressure.
const MEMORY: [&str; 5] = [
    "direct-reclaim",
    "memcg-reclaim",
    "compaction",
    "shrinker",
    "throttled",
];

/// Calls that wait for work, for time or for a child: an interruptible sleep in one of them is idle unless somebody says otherwise.
const IDLE: &str = "poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2 nanosleep clock_nanosleep pause \
    rt_sigsuspend rt_sigtimedwait accept accept4 wait4 waitid read readv pread64 preadv preadv2 recvfrom recvmsg recvmmsg \
    io_getevents io_pgetevents io_uring_enter msgrcv mq_timedreceive semop semtimedop futex futex_wait futex_waitv \
    restart_syscall ioctl exit exit_group ptrace";
/// Calls that wait for a disk, whatever the kernel calls the sleep.
const DISK: &str = "fsync fdatasync sync syncfs sync_file_range msync";
/// Calls that wait for a lock of a file.
const FILE_LOCK: &str = "flock fcntl";

/// Calls that wait until a child runs another program or ends: the rest waits as it does.
const CHILD: &str = "vfork clone clone3";

fn is_one_of(call: &str, calls: &str) -> bool {
    calls.split_whitespace().any(|one| one == call)
}

/// Returns whether an interruptible sleep in `call` is one for work that has not come, and so no stall by itself. A futex is,
/// unless its operation and value say that it is a lock: the locks of glibc and of Rust wait for the value 2, and those with
/// priority inheritance have operations of their own.
#[must_use]
pub fn is_idle(call: &str, arguments: [Option<u64>; 3]) -> bool {
    is_one_of(call, IDLE) && !(call == "futex" && is_lock(arguments))
}

fn is_lock([_, operation, value]: [Option<u64>; 3]) -> bool {
    const COMMAND: u64 = 0x7f;
    match operation.map(|operation| operation & COMMAND) {
        Some(6 | 13) => true,
        Some(0 | 9) => value.map(|value| value & 0xffff_ffff) == Some(2),
        _ => false,
    }
}

/// Returns the cause of a sleep of which nothing is known but the call `name` and how the kernel counts it.
#[must_use]
pub fn word_of_sleep(stopped: bool, for_io: bool, name: &str, futex_is_lock: bool) -> &'static str {
    match name {
        _ if stopped => "stopped",
        _ if for_io || is_one_of(name, DISK) => "io",
        _ if is_one_of(name, FILE_LOCK) => "file-lock",
        _ if is_one_of(name, CHILD) => "child",
        "futex" if futex_is_lock => "lock",
        _ if is_one_of(name, IDLE) => "event",
        _ => "unknown",
    }
}

/// The account of one trigger: of its thread, or where it has none, of all.
#[derive(Debug)]
pub struct Lost<'t> {
    trigger: &'t Trigger,
    begin: u64,
    threads: BTreeMap<u32, Thread>,
    waits: usize,
    names: BTreeMap<u32, String>,
}

/// What one thread did meanwhile.
#[derive(Debug, Default)]
struct Thread {
    comm: String,
    waits: Vec<Wait>,
    spans: Vec<(u64, Span)>,
}

/// A cause within the account.
#[derive(Debug, Default)]
struct Part {
    ns: u64,
    /// By the longest piece of it: how long, and what is known of it.
    longest: u64,
    detail: String,
}

/// A piece of lost time.
struct Piece {
    word: &'static str,
    ns: u64,
    detail: String,
}

impl<'t> Lost<'t> {
    /// Returns the account of a trigger; it is empty so far. `begin` is when the stall began: of a thread's own loss the trigger
    /// says so.
    #[must_use]
    pub fn new(trigger: &'t Trigger, begin: u64) -> Lost<'t> {
        Lost {
            trigger,
            begin: trigger.begin_ns.unwrap_or(begin),
            threads: BTreeMap::new(),
            waits: 0,
            names: BTreeMap::new(),
        }
    }

    /// Takes an event of the trace.
    pub fn event(&mut self, event: &Event) {
        let Some(tid) = event.tid else { return };
        if let Some(comm) = &event.comm
            && let Some(name) = self.names.get_mut(&tid)
        {
            comm.as_ref().clone_into(name);
        }
        let asked = self.trigger.tid.is_none_or(|asked| asked == tid);
        if !asked || event.time.0 <= self.begin {
            return;
        }
        let thread = match &event.kind {
            Kind::Wait(wait) if wait.left.0 <= self.trigger.at_ns && self.waits < MOST => {
                let thread = self.threads.entry(tid).or_default();
                let mut wait = (**wait).clone();
                // An open wait ends where the trace does.
                wait.ran = wait.ran.or(Some(event.time));
                thread.waits.push(wait);
                self.waits += 1;
                thread
            }
            Kind::Span(span) if span.begin.0 <= self.trigger.at_ns && self.waits < MOST => {
                if let Some(holder) = span.holder {
                    self.names.entry(holder).or_default();
                }
                let thread = self.threads.entry(tid).or_default();
                thread.spans.push((event.time.0, (**span).clone()));
                self.waits += 1;
                thread
            }
            _ => return,
        };
        if let Some(comm) = &event.comm {
            comm.as_ref().clone_into(&mut thread.comm);
        }
    }

    /// Returns the cause; `None` where the trace has no loss of the thread, or of any, in the stall.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        let mut parts: BTreeMap<&'static str, Part> = BTreeMap::new();
        let mut all = 0;
        for (&tid, thread) in &self.threads {
            let mut own: BTreeMap<&'static str, Part> = BTreeMap::new();
            let waits = thread.waits.iter();
            let pieces = waits.flat_map(|wait| self.pieces(thread, wait));
            for piece in pieces.chain(self.work(thread)) {
                let part = own.entry(piece.word).or_default();
                part.ns += piece.ns;
                if piece.ns > part.longest {
                    (part.longest, part.detail) = (piece.ns, piece.detail);
                }
            }
            for (word, part) in own {
                all += part.ns;
                let sum = parts.entry(word).or_default();
                sum.ns += part.ns;
                // Of many threads the one that lost most.
                if part.ns > sum.longest {
                    let who = match self.trigger.tid {
                        Some(_) => String::new(),
                        None => {
                            format!("; most by {} ({tid}): {}", thread.comm, ms(part.ns as f64))
                        }
                    };
                    (sum.longest, sum.detail) = (part.ns, format!("{who}{}", part.detail));
                }
            }
        }
        let fits = |word: &str| match self.trigger.kind {
            TriggerKind::MemoryPressure => MEMORY.contains(&word),
            TriggerKind::IoPressure => word == "io",
            _ => true,
        };
        let (word, part) = parts
            .iter()
            .filter(|(word, _)| fits(word))
            .max_by_key(|(_, part)| part.ns)?;
        if part.ns < LEAST_NS {
            return None;
        }
        let share = part.ns as f64 / all as f64;
        let others = parts.iter().filter(|(other, _)| *other != word);
        let others = others.max_by_key(|(_, part)| part.ns);
        let others = others.filter(|(_, part)| part.ns as f64 >= all as f64 * 0.1);
        let also = others.map_or(String::new(), |(word, part)| {
            let percent = part.ns as f64 / all as f64 * 100.0;
            format!("; {percent:.0} % {word}{}", part.detail)
        });
        Some(Cause {
            word: (*word).to_owned(),
            text: format!(
                "{word}, {:.0} % of {} lost{}{also}",
                share * 100.0,
                ms(all as f64),
                part.detail
            ),
            share: Some(share),
        })
    }

    /// Memory that a thread frees for itself: pressure, though its CPU is busy with it.
    fn work<'a>(&'a self, thread: &'a Thread) -> impl Iterator<Item = Piece> + 'a {
        let spans = thread.spans.iter().filter_map(|(ended, span)| {
            let word = word_of(span.what).filter(|word| MEMORY.contains(word))?;
            let end = (*ended).min(self.trigger.at_ns);
            let ns = end.saturating_sub(span.begin.0.max(self.begin));
            // A wait of it counts as the wait.
            let asleep = thread.waits.iter().map(|wait| {
                let ran = wait.ran.map_or(0, |ran| ran.0);
                ran.min(end)
                    .saturating_sub(wait.left.0.max(span.begin.0).max(self.begin))
            });
            let ns = ns.saturating_sub(asleep.sum());
            Some(Piece {
                word,
                ns,
                detail: String::new(),
            })
        });
        let pressure = self.trigger.kind == TriggerKind::MemoryPressure;
        spans.filter(move |piece| pressure && piece.ns > 0)
    }

    /// The parts of a wait: asleep, then without a CPU.
    fn pieces(&self, thread: &Thread, wait: &Wait) -> Vec<Piece> {
        let end = match self.trigger.tid {
            Some(_) => u64::MAX,
            None => self.trigger.at_ns,
        };
        let ran = wait.ran.map_or(0, |ran| ran.0).min(end);
        let left = wait.left.0.max(self.begin);
        let sleeps = wait.state != Some(State::Runnable);
        let ready = match sleeps {
            true => wait.woken.map_or(ran, |woken| woken.0.min(ran)),
            false => left,
        };
        let mut pieces = Vec::new();
        let asleep = ready.saturating_sub(left);
        if sleeps && asleep > 0 && !self.is_idle(wait) {
            let (word, detail) = self.sleep(thread, wait, (left, ready));
            pieces.push(Piece {
                word,
                ns: asleep,
                detail,
            });
        }
        let waited = ran.saturating_sub(ready.max(left));
        if waited > 0 {
            let throttled = wait.throttled == Some(true);
            let behind = wait.previous.as_ref();
            let behind = behind.filter(|task| task.tid != 0 && !throttled);
            pieces.push(Piece {
                word: if throttled { "cpu-quota" } else { "run-queue" },
                ns: waited,
                detail: behind.map_or(String::new(), |task| format!(" behind {}", named(task))),
            });
        }
        pieces
    }

    /// Whether the thread waited for work: in a call that does, which is not the one that fired, or outside of any call.
    fn is_idle(&self, wait: &Wait) -> bool {
        match wait.state {
            Some(State::Sleeping) => wait.call.as_ref().is_none_or(|call| {
                let name = call.name.as_deref().unwrap_or_default();
                is_idle(name, call.arguments) && self.trigger.call.as_deref() != Some(name)
            }),
            // Kernel threads sleep so without being stalled, but for I/O they are.
            Some(State::Blocked) => {
                wait.within == Some(Within::Kernel) && wait.for_io != Some(true)
            }
            Some(State::Stopped | State::Traced) => self.trigger.tid.is_none(),
            _ => true,
        }
    }

    /// Why the thread slept, and what is known of it.
    fn sleep(
        &self,
        thread: &Thread,
        wait: &Wait,
        (begin, end): (u64, u64),
    ) -> (&'static str, String) {
        let function = wait.stack.as_ref().and_then(|stack| {
            let frames = stack.frames.rsplit(';').filter_map(stack::kernel_function);
            frames.map(str::to_owned).find(|name| !is_scheduler(name))
        });
        let place = function.map_or(String::new(), |function| format!(" in {function}"));
        let woken = wait.waker.as_ref().filter(|waker| waker.task.tid != 0);
        let woken = woken.map_or(String::new(), |waker| {
            let call = waker.call.as_ref().and_then(|call| call.name.as_deref());
            let call = call.map_or(String::new(), |call| format!(" in {call}"));
            format!(", ended by {}{call}", named(&waker.task))
        });
        if let Some((word, detail)) = self.span_of(thread, begin, end) {
            return (word, format!("{place}{detail}{woken}"));
        }
        let stack = wait.stack.as_ref().map(|stack| &*stack.frames);
        let told = stack.and_then(stack::why);
        let call = wait.call.as_ref();
        let name = call
            .and_then(|call| call.name.as_deref())
            .unwrap_or_default();
        let stopped = matches!(wait.state, Some(State::Stopped | State::Traced));
        let word = match told {
            Some(why) if !stopped => why.word(),
            _ => word_of_sleep(
                stopped,
                wait.for_io == Some(true),
                name,
                call.is_some_and(|call| is_lock(call.arguments)),
            ),
        };
        (word, format!("{place}{woken}"))
    }

    /// The span that says most: the one that overlaps the sleep longest, of several the one that began last.
    fn span_of(&self, thread: &Thread, begin: u64, end: u64) -> Option<(&'static str, String)> {
        let overlap =
            |(ended, span): &(u64, Span)| (*ended).min(end).saturating_sub(span.begin.0.max(begin));
        let told = thread
            .spans
            .iter()
            .filter_map(|span| Some((word_of(span.1.what)?, span)));
        let (word, span) = told
            .filter(|(_, span)| overlap(span) * 2 > end - begin)
            .max_by_key(|(_, span)| span.1.begin)?;
        let holder = span.1.holder.map_or(String::new(), |tid| {
            let name = self.names.get(&tid).filter(|name| !name.is_empty());
            let name = name.map_or("a thread", String::as_str);
            format!(", held by {name} ({tid})")
        });
        Some((word, holder))
    }
}

fn named(task: &stopgap_events::wait::Task) -> String {
    format!(
        "{} ({})",
        task.comm.as_deref().unwrap_or("a thread"),
        task.tid
    )
}

fn is_scheduler(function: &str) -> bool {
    function.contains("schedule") || function.starts_with("wait_for_completion")
}

fn word_of(what: Activity) -> Option<&'static str> {
    Some(match what {
        Activity::DirectReclaim => "direct-reclaim",
        Activity::MemcgReclaim => "memcg-reclaim",
        Activity::Compaction => "compaction",
        Activity::Shrinker => "shrinker",
        Activity::Throttled => "throttled",
        Activity::Lock => "lock",
        Activity::MmapLock => "mmap_lock",
        Activity::Fence => "fence",
        Activity::Block => "io",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use stopgap_events::units::Nanos;
    use stopgap_events::wait::{Call, Task, Waker};
    use stopgap_stats::watch::TriggerKind;

    fn trigger(call: &str, begin: u64, end: u64) -> Trigger {
        Trigger {
            call: Some(call.to_owned()),
            tid: Some(7),
            begin_ns: Some(begin),
            ..Trigger::new(TriggerKind::SlowCall, end)
        }
    }

    fn task(tid: u32, comm: &str) -> Task {
        Task {
            tid,
            comm: Some(Rc::from(comm)),
        }
    }

    fn event(time: u64, tid: u32, kind: Kind) -> Event {
        Event {
            time: Nanos(time),
            cpu: None,
            pid: None,
            tid: Some(tid),
            comm: Some("keeper".into()),
            kind,
        }
    }

    fn wait(call: &str, state: State, times: [u64; 3]) -> Event {
        let wait = Wait {
            left: Nanos(times[0]),
            woken: Some(Nanos(times[1])),
            ran: Some(Nanos(times[2])),
            state: Some(state),
            call: Some(Call {
                number: 0,
                name: Some(Rc::from(call)),
                arguments: [Some(1), Some(0x80), Some(2)],
            }),
            previous: Some(task(9, "hog")),
            waker: Some(Waker {
                task: task(8, "jbd2"),
                context: None,
                call: None,
            }),
            ..Wait::default()
        };
        event(times[2], 7, Kind::Wait(Box::new(wait)))
    }

    fn cause(trigger: &Trigger, events: &[Event]) -> Option<Cause> {
        let mut lost = Lost::new(trigger, 0);
        events.iter().for_each(|event| lost.event(event));
        lost.cause()
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_sleep_and_the_run_queue_are_two_parts() {
        let trigger = trigger("fsync", 10 * MS, 1_010 * MS);
        let told = cause(
            &trigger,
            &[
                wait("fsync", State::Blocked, [0, 5 * MS, 9 * MS]),
                wait("fsync", State::Blocked, [10 * MS, 710 * MS, 1_010 * MS]),
            ],
        );
        let told = told.unwrap();
        assert_eq!(
            told.text,
            "io, 70 % of 1000 ms lost, ended by jbd2 (8); 30 % run-queue behind hog (9)"
        );
        assert_eq!(told.word, "io");
    }

    #[test]
    fn a_span_says_more_than_the_state() {
        let trigger = trigger("mmap", 0, 100 * MS);
        let mut span = Span::new(Activity::MmapLock, Nanos(MS));
        span.holder = Some(5);
        let events = [
            event(99 * MS, 7, Kind::Span(Box::new(span))),
            event(99 * MS, 5, Kind::Mark { name: "x".into() }),
            wait("mmap", State::Blocked, [MS, 99 * MS, 99 * MS]),
        ];
        let told = cause(&trigger, &events).unwrap();
        assert_eq!(
            told.text,
            "mmap_lock, 100 % of 98 ms lost, held by keeper (5), ended by jbd2 (8)"
        );
    }

    #[test]
    fn idle_sleeps_count_for_nothing_but_where_they_fired() {
        let events = [wait("nanosleep", State::Sleeping, [10, 300 * MS, 300 * MS])];
        let none = cause(&Trigger::new(TriggerKind::Request, 400 * MS), &events);
        assert_eq!(none, None);
        assert_eq!(cause(&trigger("write", 0, 300 * MS), &events), None);
        let told = cause(&trigger("nanosleep", 0, 300 * MS), &events).unwrap();
        assert_eq!(told.word, "event");
    }

    /// ```text
    /// ms        0      100     200     300
    /// 7         [memcg-reclaim, asleep from 150 on]
    /// 8         [                  run queue      ]
    /// ```
    #[test]
    fn memory_pressure_is_memorys_doing_whoever_waits_for_a_cpu() {
        let reclaim = Span::new(Activity::MemcgReclaim, Nanos(0));
        let mut queue = wait("read", State::Runnable, [0, 0, 300 * MS]);
        queue.tid = Some(8);
        let events = [
            wait("mmap", State::Blocked, [150 * MS, 200 * MS, 200 * MS]),
            event(200 * MS, 7, Kind::Span(Box::new(reclaim))),
            queue,
        ];
        let told = cause(
            &Trigger::new(TriggerKind::MemoryPressure, 300 * MS),
            &events,
        )
        .unwrap();
        assert_eq!(
            told.text,
            "memcg-reclaim, 40 % of 500 ms lost; most by keeper (7): 200 ms; 60 % run-queue; most by keeper (8): \
             300 ms behind hog (9)"
        );
        let request = cause(&Trigger::new(TriggerKind::Request, 300 * MS), &events).unwrap();
        assert_eq!(request.word, "run-queue");
        assert_eq!(
            cause(&Trigger::new(TriggerKind::IoPressure, 300 * MS), &events),
            None
        );
    }

    #[test]
    fn a_kernel_thread_stalls_for_io_alone_and_a_parent_for_its_child() {
        let of = |for_io: bool| {
            let mut event = wait("", State::Blocked, [0, 90 * MS, 90 * MS]);
            if let Kind::Wait(wait) = &mut event.kind {
                (wait.call, wait.within, wait.for_io) = (None, Some(Within::Kernel), Some(for_io));
            }
            cause(&Trigger::new(TriggerKind::IoPressure, 100 * MS), &[event])
        };
        assert_eq!(of(false), None);
        assert_eq!(of(true).unwrap().word, "io");
        let vfork = [wait("vfork", State::Blocked, [0, 300 * MS, 300 * MS])];
        assert_eq!(
            cause(&trigger("vfork", 0, 300 * MS), &vfork).unwrap().word,
            "child"
        );
    }

    #[test]
    fn a_lock_is_no_idle_futex() {
        let of = |operation: u64, value: u64| [Some(1), Some(operation), Some(value)];
        assert!(!is_idle("futex", of(0x80, 2)), "glibc's mutex");
        assert!(!is_idle("futex", of(0x86, 0)), "with priority inheritance");
        assert!(is_idle("futex", of(0x189, 14)), "a condition variable");
        assert!(is_idle("epoll_wait", of(0, 2)));
        assert!(!is_idle("fsync", of(0, 0)));
    }
}
