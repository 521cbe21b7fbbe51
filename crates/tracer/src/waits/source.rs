//! Records of a spool as events.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use stopgap_capture::{Record, SpanKind, TaskEvent, Waking, flag};
use stopgap_events::machine::Missing;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::wait::{self, Call, Context, State, Waker, Within};
use stopgap_trace::{Activity, Event, Kind, Moment, Span, TaskCounts, Text};

use super::unwind::Chains;
use super::{Mapped, waits_of};
use crate::error::{Error, Result};
use crate::perf::{File, Mappings, Names, Stacks};
use crate::symbols::Symbols;
use crate::trace::{Damage, Heads, Source, SourceReport};

/// Places and stacks that are kept; of more, each is as it came.
const MOST: usize = 1 << 16;
/// The largest record: a user stack.
const LARGEST: usize = 16 << 10;

/// The file's records of a ring, in the order in which they were written.
struct Ring<R> {
    source: R,
    bytes: Vec<u8>,
}

/// Events of records of waits. What is damaged is passed over and told.
pub(crate) struct Waits<R> {
    rings: Vec<Ring<R>>,
    heads: Heads<Record>,
    threads: HashMap<u32, Thread>,
    syscalls: HashMap<u32, Text>,
    stacks: Stacks,
    chains: Chains,
    symbols: Symbols,
    mappings: HashMap<u32, Vec<(u64, Mappings)>>,
    /// The last kernel stack of a place: instruction, call and depth.
    kernel: HashMap<(u64, Option<u32>, u32), wait::Stack>,
    /// Stacks of programs, by process, instruction and stack pointer.
    user: HashMap<(u32, u64, u64), wait::Stack>,
    /// The last one of a process in a call at an instruction.
    user_like: HashMap<(u32, u64, Option<u32>), wait::Stack>,
    /// Open waits of the end: of each thread when it left. A ring may have the same one closed.
    closed: HashMap<u32, u64>,
    ready: VecDeque<Event>,
    damage: Damage,
    missing: Vec<Missing>,
}

/// What records say of a thread.
#[derive(Debug, Clone, Default)]
struct Thread {
    pid: Option<u32>,
    comm: Option<Text>,
    priority: Option<i32>,
}

impl<R: BufRead> Waits<R> {
    /// The events of the records in `rings`; `syscalls` are names by number, `mappings` the lines of the file of mappings.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub(crate) fn new(
        syscalls: impl Iterator<Item = (u32, Text)>,
        symbols: Symbols,
        names: Box<dyn Names>,
        rings: Vec<R>,
        mappings: Option<impl BufRead>,
    ) -> Result<Waits<R>> {
        let mut missing = Vec::new();
        if symbols.is_empty() {
            missing.push(Missing::new(
                "names of kernel functions in stacks",
                "/proc/kallsyms of the machine and boot of the recording says none",
            ));
        }
        let mut waits = Waits {
            heads: Heads::new(rings.len()),
            rings: rings
                .into_iter()
                .map(|source| Ring {
                    source,
                    bytes: Vec::new(),
                })
                .collect(),
            threads: HashMap::new(),
            syscalls: syscalls.collect(),
            stacks: Stacks::new(symbols.clone(), names),
            chains: Chains::default(),
            symbols,
            mappings: HashMap::new(),
            kernel: HashMap::new(),
            user: HashMap::new(),
            user_like: HashMap::new(),
            closed: HashMap::new(),
            ready: VecDeque::new(),
            damage: Damage::default(),
            missing,
        };
        if let Some(lines) = mappings {
            waits.read_mappings(lines)?;
        }
        for ring in 0..waits.rings.len() {
            waits.advance(ring)?;
        }
        Ok(waits)
    }

    fn read_mappings(&mut self, lines: impl BufRead) -> Result<()> {
        let mut files: HashMap<(String, u64), Rc<File>> = HashMap::new();
        for (number, line) in lines.split(b'\n').enumerate() {
            let line = line.map_err(|source| Error::File {
                file: super::MAPS.to_owned(),
                source,
            })?;
            let Ok(Mapped { time_ns, mapping }) = serde_json::from_slice(&line) else {
                // The last line of a recording that was cut off.
                self.damage.add(
                    format!("line {} of {}", number + 1, super::MAPS),
                    "it is cut off".to_owned(),
                );
                continue;
            };
            let key = (mapping.name.clone(), mapping.inode);
            let file = files.entry(key).or_insert_with(|| {
                Rc::new(File {
                    name: mapping.name.clone(),
                    inode: mapping.inode,
                })
            });
            let all = self.mappings.entry(mapping.pid).or_default();
            if all.last().is_none_or(|(time, _)| *time != time_ns) {
                all.push((time_ns, Mappings::default()));
            }
            if let Some((_, mappings)) = all.last_mut() {
                mappings.map(mapping.start, mapping.end, mapping.offset, file);
            }
        }
        Ok(())
    }

    /// Reads the next record of a ring.
    fn advance(&mut self, number: usize) -> Result<()> {
        loop {
            let ring = &mut self.rings[number];
            let file = || waits_of(u32::try_from(number).unwrap_or(u32::MAX));
            let failed = |source| Error::File {
                file: file(),
                source,
            };
            let mut length = [0; 4];
            if !read_whole(&mut ring.source, &mut length).map_err(failed)? {
                return Ok(());
            }
            let length = u32::from_le_bytes(length) as usize;
            if length > LARGEST {
                let why = format!(
                    "a record of {length} bytes, which is more than the largest; the rest is not read"
                );
                self.damage.add(file(), why);
                return Ok(());
            }
            ring.bytes.resize(length, 0);
            if !read_whole(&mut ring.source, &mut ring.bytes).map_err(failed)? {
                self.damage
                    .add(file(), "its last record is cut off".to_owned());
                return Ok(());
            }
            match Record::parse(&ring.bytes) {
                Ok(record) => {
                    self.heads.push(number, record.time(), record);
                    return Ok(());
                }
                Err(error) => self.damage.add(file(), error.to_string()),
            }
        }
    }

    fn record(&mut self, record: Record) {
        let (time, cpu, tid, kind) = match record {
            Record::Wait(wait) => {
                let open = wait.flags & flag::OPEN != 0;
                // The same wait may have ended while the open ones were written down.
                match open {
                    true if self
                        .closed
                        .get(&wait.tid)
                        .is_some_and(|&left| left >= wait.left) =>
                    {
                        return;
                    }
                    true => {}
                    false => drop(self.closed.insert(wait.tid, wait.left)),
                }
                let (time, cpu, tid) = (wait.ran, wait.cpu, wait.tid);
                (
                    time,
                    (!open).then_some(cpu),
                    tid,
                    Kind::Wait(Box::new(self.wait(&wait))),
                )
            }
            Record::UserStack(stack) => return self.user_stack(&stack),
            Record::Span(span) => {
                let (time, cpu, tid) = (span.end, Some(span.cpu), span.tid);
                (time, cpu, tid, Kind::Span(Box::new(self.span(&span))))
            }
            Record::Task(task) => {
                self.threads.insert(
                    task.tid,
                    Thread {
                        pid: Some(task.tgid),
                        comm: Some(Text::from(task.comm.as_str())),
                        priority: Some(task.priority),
                    },
                );
                if let Some(maker) = task.maker {
                    let kind = Kind::Fork {
                        target_tid: task.tid,
                        target_pid: Some(task.tgid),
                        target_comm: self.comm(task.tid),
                    };
                    self.put(task.time, None, maker, kind);
                }
                if task.event == TaskEvent::Exited {
                    let kind = Kind::Exit {
                        priority: Some(task.priority),
                    };
                    self.put(task.time, None, task.tid, kind);
                }
                let moment = match task.event {
                    TaskEvent::Begin => Moment::Begin,
                    TaskEvent::Forked => Moment::New,
                    TaskEvent::Renamed => Moment::Renamed,
                    TaskEvent::Exited => Moment::Exit,
                    TaskEvent::End => Moment::End,
                };
                let counts = TaskCounts {
                    moment,
                    parent_pid: Some(task.parent),
                    namespace_tid: Some(task.own_tid),
                    started: Some(Nanos(task.start)),
                    cgroup: None,
                    priority: Some(task.priority),
                    voluntary: Some(task.voluntary),
                    involuntary: Some(task.involuntary),
                    cpu: Some(Nanos(task.exec_ns)),
                    run_delay: Some(Nanos(task.run_delay_ns)),
                    minor_faults: Some(task.minor_faults),
                    major_faults: Some(task.major_faults),
                };
                (task.time, None, task.tid, Kind::Task(Box::new(counts)))
            }
            Record::Exec(exec) => {
                let thread = self.threads.entry(exec.tid).or_default();
                thread.pid = Some(exec.tgid);
                thread.comm = Some(Text::from(exec.comm.as_str()));
                let kind = Kind::Exec {
                    filename: (!exec.filename.is_empty()).then(|| exec.filename.as_str().into()),
                    old_tid: (exec.old_tid != exec.tid).then_some(exec.old_tid),
                };
                (exec.time, None, exec.tid, kind)
            }
            Record::Block(block) => {
                let begin = [block.inserted, block.issued]
                    .into_iter()
                    .find(|&time| time > 0);
                let span = Span {
                    issued: Some(Nanos(block.issued)).filter(|time| time.0 > 0),
                    device: Some(
                        format!("{}:{}", block.device >> 20, block.device & 0xf_ffff).into(),
                    ),
                    sector: Some(block.sector),
                    length: Some(Bytes(u64::from(block.bytes))),
                    operation: Some(operation(block.flags).into()),
                    result: Some(if block.status == 0 { 0 } else { -5 }),
                    ..Span::new(Activity::Block, Nanos(begin.unwrap_or(block.completed)))
                };
                (
                    block.completed,
                    Some(block.cpu),
                    block.tid,
                    Kind::Span(Box::new(span)),
                )
            }
            Record::Signal(signal) => {
                let kind = Kind::Signal {
                    signal: u32::from(signal.number),
                    target_tid: signal.target,
                    target_pid: Some(signal.target_tgid),
                    target_comm: self.comm(signal.target),
                    to_process: Some(signal.to_process),
                    result: Some(i64::from(signal.result)),
                };
                (signal.time, None, signal.tid, kind)
            }
            Record::Enter(enter) => {
                let kind = Kind::SyscallEnter {
                    number: enter.call,
                    name: self.call_name(enter.call, enter.is_compat),
                    arguments: enter.arguments.map(Some),
                };
                (enter.time, Some(enter.cpu), enter.tid, kind)
            }
            Record::Leave(leave) => {
                let kind = Kind::SyscallExit {
                    // As the kernel's own event has it.
                    number: leave.call.unwrap_or(u32::MAX),
                    name: leave
                        .call
                        .and_then(|call| self.call_name(call, leave.is_compat)),
                    result: Some(leave.result),
                };
                (leave.time, Some(leave.cpu), leave.tid, kind)
            }
            _ => return,
        };
        self.put(time, cpu, tid, kind);
    }

    fn put(&mut self, time: u64, cpu: Option<u32>, tid: u32, kind: Kind) {
        let thread = self.threads.get(&tid);
        self.ready.push_back(Event {
            time: Nanos(time),
            cpu,
            pid: thread.and_then(|thread| thread.pid),
            tid: (tid != 0).then_some(tid),
            comm: thread.and_then(|thread| thread.comm.clone()),
            kind,
        });
    }

    /// The name of a call; numbers of the 32-bit interface are others.
    fn call_name(&self, number: u32, is_compat: bool) -> Option<Text> {
        let known = (!is_compat).then(|| self.syscalls.get(&number));
        known.flatten().cloned()
    }

    fn comm(&self, tid: u32) -> Option<Text> {
        self.threads.get(&tid)?.comm.clone()
    }

    fn task(&self, tid: u32) -> wait::Task {
        let comm = self.comm(tid);
        wait::Task { tid, comm }
    }

    fn wait(&mut self, wait: &stopgap_capture::Wait) -> wait::Wait {
        let has = |bit: u8| wait.flags & bit != 0;
        let within = match () {
            () if has(flag::NEW) => Within::New,
            () if has(flag::KERNEL_THREAD) => Within::Kernel,
            () if wait.call.is_some() => Within::Call,
            () => Within::User,
        };
        // Numbers of the 32-bit interface are others.
        let named = !has(flag::COMPAT);
        let call = wait
            .call
            .filter(|_| within == Within::Call)
            .map(|number| Call {
                number,
                name: named.then(|| self.syscalls.get(&number).cloned()).flatten(),
                arguments: wait.arguments.map(Some),
            });
        let waker = (wait.woken > 0).then(|| Waker {
            task: self.task(wait.waker),
            context: wait.waker_context.map(|context| match context {
                Waking::Task => Context::Task,
                Waking::Softirq => Context::Softirq,
                Waking::Interrupt => Context::Interrupt,
            }),
            call: wait.waker_call.map(|number| Call {
                number,
                name: self.syscalls.get(&number).cloned(),
                arguments: [Some(wait.waker_argument), None, None],
            }),
        });
        let sleeps = wait.state != 0;
        let (open, before) = (has(flag::OPEN), has(flag::BEGAN_BEFORE));
        let in_user = within == Within::Call || within == Within::User;
        let thread = self.threads.get(&wait.tid).cloned().unwrap_or_default();
        let stack = self.kernel_stack(wait);
        let user_stack = match in_user && sleeps {
            true => thread.pid.and_then(|pid| self.stack_of_place(pid, wait)),
            false => None,
        };
        wait::Wait {
            left: Nanos(wait.left),
            began_before: before,
            // Clocks of two CPUs may differ by a little.
            woken: (wait.woken > 0).then_some(Nanos(wait.woken.max(wait.left))),
            ran: (!open).then_some(Nanos(wait.ran)),
            left_cpu: wait.left_cpu,
            state: Some(state(wait.state)),
            preempted: Some(has(flag::PREEMPTED)),
            throttled: (!sleeps).then_some(has(flag::THROTTLED)),
            for_io: sleeps.then_some(has(flag::FOR_IO)),
            priority: thread.priority,
            within: Some(within),
            call,
            instruction_pointer: in_user.then_some(wait.ip),
            stack_pointer: in_user.then_some(wait.sp),
            stack,
            user_stack,
            next: (!before && within != Within::New).then(|| self.task(wait.next)),
            previous: (!open).then(|| self.task(wait.previous)),
            waker: if within == Within::New { None } else { waker },
        }
    }

    /// The wait's own kernel stack, or the last one of a like wait.
    fn kernel_stack(&mut self, wait: &stopgap_capture::Wait) -> Option<wait::Stack> {
        let place = (wait.ip, wait.call, wait.depth);
        if wait.stack.is_empty() {
            let like = self.kernel.get(&place).filter(|_| wait.state != 0)?;
            return Some(like.clone());
        }
        let frames = self.symbols.stack(&wait.stack).0;
        if self.kernel.len() < MOST || self.kernel.contains_key(&place) {
            let frames = Text::clone(&frames);
            self.kernel.insert(
                place,
                wait::Stack {
                    frames,
                    of_a_like_wait: true,
                },
            );
        }
        Some(wait::Stack {
            frames,
            of_a_like_wait: false,
        })
    }

    /// The program's stack at the wait's place, or the last one of the same call at the same instruction.
    fn stack_of_place(&mut self, pid: u32, wait: &stopgap_capture::Wait) -> Option<wait::Stack> {
        let like = (pid, wait.ip, wait.call);
        if let Some(own) = self.user.get(&(pid, wait.ip, wait.sp)) {
            if self.user_like.len() < MOST || self.user_like.contains_key(&like) {
                let frames = Text::clone(&own.frames);
                self.user_like.insert(
                    like,
                    wait::Stack {
                        frames,
                        of_a_like_wait: true,
                    },
                );
            }
            return Some(own.clone());
        }
        self.user_like.get(&like).cloned()
    }

    fn user_stack(&mut self, stack: &stopgap_capture::UserStack) {
        if self.user.len() >= MOST {
            return;
        }
        // The mappings that were read next after it, or the last ones before.
        let all = self.mappings.get(&stack.tgid);
        let read = all.and_then(|all| {
            let after = all.partition_point(|(time, _)| *time < stack.time);
            all.get(after).or(all.last())
        });
        let mappings = read.map(|(_, mappings)| mappings);
        let read_at = read.map_or(0, |(time, _)| *time);
        let chain = self.chains.chain(stack, mappings, read_at);
        let frames = self.stacks.stack(mappings, &[], &chain).0;
        let place = (stack.tgid, stack.ip, stack.sp);
        self.user.insert(
            place,
            wait::Stack {
                frames,
                of_a_like_wait: false,
            },
        );
    }

    fn span(&self, span: &stopgap_capture::Span) -> Span {
        let new = |what| Span::new(what, Nanos(span.begin));
        let function = |address: u64| {
            let name = self.symbols.function(address).cloned();
            name.unwrap_or_else(|| format!("{address:#x}").into())
        };
        let reclaim = |what| Span {
            order: u32::try_from(span.a & 0xffff_ffff).ok(),
            gfp: Some(format!("{:#x}", span.a >> 32).into()),
            reclaimed: Some(span.b),
            ..new(what)
        };
        match span.what {
            SpanKind::DirectReclaim => reclaim(Activity::DirectReclaim),
            SpanKind::MemcgReclaim => reclaim(Activity::MemcgReclaim),
            SpanKind::Compaction => Span {
                synchronous: Some(span.a != 0),
                status: word(COMPACTION, span.b),
                ..new(Activity::Compaction)
            },
            SpanKind::Shrinker => Span {
                shrinker: Some(function(span.a)),
                reclaimed: Some(span.b),
                ..new(Activity::Shrinker)
            },
            SpanKind::Lock => {
                let bits = span.b & 0xffff_ffff;
                let kinds = [
                    (2, "READ"),
                    (4, "WRITE"),
                    (8, "RT"),
                    (16, "PERCPU"),
                    (32, "MUTEX"),
                ];
                let words: Vec<&str> = kinds
                    .iter()
                    .filter(|(bit, _)| bits & bit != 0)
                    .map(|(_, word)| *word)
                    .collect();
                let own_mmap = bits & (1 << 16) != 0;
                Span {
                    lock: Some(if own_mmap {
                        "mmap".into()
                    } else {
                        words.join("|").into()
                    }),
                    address: Some(span.a),
                    write: (bits & 6 != 0).then_some(bits & 4 != 0),
                    holder: u32::try_from(span.b >> 32).ok().filter(|&tid| tid != 0),
                    ..new(if own_mmap {
                        Activity::MmapLock
                    } else {
                        Activity::Lock
                    })
                }
            }
            SpanKind::MmapLock => Span {
                lock: Some("mmap".into()),
                address: Some(span.a),
                write: Some(span.b != 0),
                ..new(Activity::MmapLock)
            },
            SpanKind::Fence => Span {
                context: Some(span.a),
                seqno: Some(span.b),
                ..new(Activity::Fence)
            },
            SpanKind::ThrottledReclaim => Span {
                reason: word(THROTTLES, span.a),
                ..new(Activity::Throttled)
            },
            SpanKind::Softirq => Span {
                name: word(SOFTIRQS, span.a),
                ..new(Activity::Softirq)
            },
            SpanKind::Interrupt => Span {
                name: Some(format!("irq {}", span.a).into()),
                ..new(Activity::Interrupt)
            },
            SpanKind::Work => Span {
                name: Some(function(span.a)),
                ..new(Activity::Work)
            },
        }
    }
}

impl<R: BufRead> Source for Waits<R> {
    fn next_event(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some((ring, record)) = self.heads.pop() else {
                return Ok(None);
            };
            self.record(record);
            self.advance(ring)?;
        }
    }

    fn report(&self) -> SourceReport {
        let mut missing = self.missing.clone();
        self.damage.tell(&mut missing);
        SourceReport {
            losses: Vec::new(),
            missing,
        }
    }
}

/// How compaction ended: `enum compact_result` (include/linux/compaction.h).
const COMPACTION: &[&str] = &[
    "not_suitable_zone",
    "skipped",
    "deferred",
    "no_suitable_page",
    "continue",
    "complete",
    "partial_skipped",
    "contended",
    "success",
];
/// `enum vmscan_throttle_state` (include/linux/mmzone.h).
const THROTTLES: &[&str] = &["writeback", "isolated", "noprogress", "congested"];
/// Softirqs by vector (include/linux/interrupt.h).
const SOFTIRQS: &[&str] = &[
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

fn word(words: &[&str], number: u64) -> Option<Text> {
    let at = usize::try_from(number).ok()?;
    Some(
        words
            .get(at)
            .map_or_else(|| number.to_string().into(), |&word| word.into()),
    )
}

/// A request's operation and flags in the letters of `blk_fill_rwbs()` (kernel/trace/blktrace.c).
fn operation(flags: u32) -> String {
    let letter = match flags & 0xff {
        0 => "R",
        1 => "W",
        2 => "F",
        3 => "D",
        5 => "DE",
        _ => "N",
    };
    let if_set = |bit: u32, what| if flags & 1 << bit != 0 { what } else { "" };
    let (flush, unit, ahead) = (if_set(18, "F"), if_set(17, "F"), if_set(19, "A"));
    format!(
        "{flush}{letter}{unit}{ahead}{}{}",
        if_set(11, "S"),
        if_set(12, "M")
    )
}

/// The bits of `task_struct.__state` (include/linux/sched.h).
fn state(bits: u32) -> State {
    const NOLOAD: u32 = 0x400;
    match bits {
        0 => State::Runnable,
        _ if bits & 0x90 != 0 => State::Dead,
        _ if bits & 0x4 != 0 => State::Stopped,
        _ if bits & 0x8 != 0 => State::Traced,
        _ if bits & 0x40 != 0 => State::Parked,
        _ if bits & NOLOAD != 0 && bits & 2 != 0 => State::Idle,
        _ if bits & 1 != 0 => State::Sleeping,
        _ => State::Blocked,
    }
}

/// Fills `buffer`; `false` at the end of the file, also within it.
fn read_whole(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match source.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
