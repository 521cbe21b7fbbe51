//! Records of a spool as events.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use stopgap_capture::{FenceNames, LockOwner, Record, SpanKind, TaskEvent, Waking, flag};
use stopgap_events::machine::Missing;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::wait::{self, Call, Context, State, Waker, Within};
use stopgap_trace::{Activity, Event, Kind, Moment, Span, TaskCounts, Text};

use super::cgroups::Grouped;
use super::jit::Jit;
use super::keyed::Keyed;
use super::unwind::Chains;
use super::{Mapped, mark_of, waits_of};
use crate::error::{Error, Result};
use crate::growing::{Complete, WholeLines};
use crate::perf::{File, Mappings, Names, Stacks};
use crate::symbols::Symbols;
use crate::trace::{Damage, Heads, Source, SourceReport};

/// Files of lines that are read beside the rings.
const LINES: [&str; 2] = [super::MAPS, super::CGROUPS];
/// Places and stacks that are kept; of more, each is as it came.
const MOST: usize = 1 << 16;
/// Parts of requests that are not complete; of more, the first are forgotten.
const MOST_MERGED: usize = 1 << 12;
/// Bytes of a sector.
const SECTOR: u64 = 512;
/// The largest record: a user stack.
const LARGEST: usize = 16 << 10;
/// Bytes of a record's length.
const LENGTH: usize = 4;
/// Bytes of a ring's file that are read at a time.
const CHUNK: usize = 1 << 18;

/// The records of a ring's file, in the order in which they were written. The file may grow.
struct Ring<R> {
    source: R,
    bytes: Vec<u8>,
    /// Where in `bytes` the next record begins, with its length in front.
    at: usize,
    /// Its bytes beyond this are not read.
    ended: bool,
}

/// What stands at a ring's place in its file.
enum Next {
    /// A record of so many bytes, after the four of its length.
    Record(usize),
    /// The end of the file, or a part of a record of which so many bytes are there.
    End(usize),
    /// No record: its length is impossible.
    Garbage(usize),
}

impl<R: Read> Ring<R> {
    fn new(source: R) -> Ring<R> {
        Ring {
            source,
            bytes: Vec::new(),
            at: 0,
            ended: false,
        }
    }

    /// Looks at the next record, which stays.
    fn next(&mut self) -> io::Result<Next> {
        if !self.holds(LENGTH)? {
            return Ok(Next::End(0)); // a length that is cut off is nothing
        }
        let length = self.bytes[self.at..].first_chunk().copied();
        let length = u32::from_le_bytes(length.unwrap_or_default()) as usize;
        if length > LARGEST {
            return Ok(Next::Garbage(length));
        }
        Ok(match self.holds(LENGTH + length)? {
            true => Next::Record(length),
            false => Next::End(self.bytes.len() - self.at),
        })
    }

    /// Reads until there are so many bytes; whether there are.
    fn holds(&mut self, count: usize) -> io::Result<bool> {
        while self.bytes.len() - self.at < count {
            self.bytes.drain(..self.at);
            self.at = 0;
            let held = self.bytes.len();
            self.bytes.resize(held + CHUNK, 0);
            let read = self.source.read(&mut self.bytes[held..]);
            self.bytes.truncate(held + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(false),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Returns the next record, of this length, which stays.
    fn peek(&self, length: usize) -> &[u8] {
        &self.bytes[self.at + LENGTH..][..length]
    }

    /// Takes the next record, of this length.
    fn take(&mut self, length: usize) -> &[u8] {
        let begin = self.at + LENGTH;
        self.at = begin + length;
        &self.bytes[begin..self.at]
    }
}

/// Events of records of waits. What is damaged is passed over and told.
pub(crate) struct Waits<R> {
    rings: Vec<Ring<R>>,
    /// The files of [`LINES`], and how many lines of each were read.
    lines: [Option<Box<dyn BufRead>>; 2],
    lines_read: [u64; 2],
    /// Whether the files grow no more.
    complete: Complete,
    /// No record is given that is later.
    until: u64,
    /// Whether the files have more than was read.
    grown: bool,
    /// Length of the next record of each ring.
    heads: Heads<usize>,
    threads: Keyed<u32, Thread>,
    /// By number.
    syscalls: Vec<Option<Text>>,
    stacks: Stacks,
    chains: Chains,
    symbols: Symbols,
    mappings: Keyed<u32, Vec<(u64, Mappings)>>,
    files: HashMap<(String, u64), Rc<File>>,
    /// Paths of cgroups by their id, and of processes in hierarchies of version 1.
    cgroups: Keyed<u64, Text>,
    cgroup_of_process: Keyed<u32, Text>,
    jit: Jit,
    /// The last kernel stack of a place: instruction, call and depth.
    kernel: Keyed<(u64, Option<u32>, u32), KernelStack>,
    page_locks: bool,
    /// What became a part of requests that are not complete.
    merged: VecDeque<Merged>,
    /// Stacks of programs, by process, instruction and stack pointer.
    user: Keyed<(u32, u64, u64), wait::Stack>,
    /// The last one of a process in a call at an instruction.
    user_like: Keyed<(u32, u64, Option<u32>), wait::Stack>,
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
    /// Its number in its own PID namespace.
    own_tid: Option<u32>,
    /// When the last wait that ended began: the end of the recording may tell of it as an open one.
    left: Option<u64>,
    /// Whether spans are kept of it.
    is_whole: bool,
    /// It said in this call that it waits for the writing of a page.
    writes_back: Option<Option<u32>>,
    /// The page fault in which it slept last.
    fault: Option<Fault>,
    /// The fence that it began to wait for last.
    fence: Option<Box<FenceNames>>,
}

/// A page fault in which a thread has slept.
#[derive(Debug, Clone, Copy)]
struct Fault {
    address: u64,
    /// Where in the program: instruction and stack pointer.
    at: (u64, u64),
    /// When the last sleep in it ended.
    ran: u64,
}

/// A kernel stack of a place.
struct KernelStack {
    stack: wait::Stack,
    /// The page that a thread with this stack waits for.
    page: Option<Activity>,
    for_io: bool,
}

/// What a thread asked of a block device, as a part of a request.
struct Merged {
    device: u32,
    sector: u64,
    bytes: u32,
    tid: u32,
    time: u64,
}

impl Thread {
    /// The span of the page fault in which it slept. The kernel tells the address at the first sleep; the thread that sleeps again at the
    /// same place is in the same fault, and has another span from there on.
    fn fault(&mut self, wait: &stopgap_capture::Wait) -> Option<Span> {
        let before = self.fault.take();
        let at = (wait.ip, wait.sp);
        let no_fault = flag::NEW | flag::KERNEL_THREAD | flag::BEGAN_BEFORE;
        // Asleep, not stopped or dead.
        if wait.call.is_some() || wait.flags & no_fault != 0 || wait.state & 3 == 0 {
            return None;
        }
        let (address, begin) = match wait.arguments {
            [0, ..] => {
                let before = before.filter(|before| before.at == at)?;
                (before.address, before.ran)
            }
            [address, began, _] => (address, began.min(wait.left)),
        };
        let ran = wait.ran;
        self.fault = Some(Fault { address, at, ran });
        Some(Span {
            address: Some(address),
            ..Span::new(Activity::PageFault, Nanos(begin))
        })
    }

    /// Whether this is the wait for the writing of a page that the thread has told of.
    fn waits_for_writing(&mut self, wait: &stopgap_capture::Wait) -> bool {
        let told = self.writes_back.take();
        wait.flags & flag::FOR_IO != 0 && told == Some(wait.call)
    }
}

impl<R: Read> Waits<R> {
    /// The events of the records in `rings`; `syscalls` are names by number, `lines` the files of mappings and of cgroups.
    /// Where `complete` is false, the files still grow, and nothing is given before [`Source::reach`].
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub(crate) fn new(
        syscalls: impl Iterator<Item = (u32, Text)>,
        symbols: Symbols,
        names: Box<dyn Names>,
        rings: Vec<R>,
        lines: [Option<impl Read + 'static>; 2],
        complete: bool,
    ) -> Result<Waits<R>> {
        let mut missing = Vec::new();
        if symbols.is_empty() {
            missing.push(Missing::new(
                "names of kernel functions in stacks",
                "/proc/kallsyms of the machine and boot of the recording says none",
            ));
        }
        let until = if complete { u64::MAX } else { 0 };
        let complete = Complete::new(complete.into());
        let lines = lines.map(|file| {
            let lines = WholeLines::new(file?, Complete::clone(&complete));
            Some(Box::new(BufReader::new(lines)) as Box<dyn BufRead>)
        });
        let mut waits = Waits {
            heads: Heads::new(rings.len()),
            rings: rings.into_iter().map(Ring::new).collect(),
            lines,
            lines_read: [0; 2],
            complete,
            until,
            grown: false,
            threads: Keyed::default(),
            syscalls: by_number(syscalls),
            stacks: Stacks::new(symbols.clone(), names),
            chains: Chains::default(),
            symbols,
            mappings: Keyed::default(),
            files: HashMap::new(),
            cgroups: Keyed::default(),
            cgroup_of_process: Keyed::default(),
            jit: Jit::default(),
            kernel: Keyed::default(),
            page_locks: true,
            merged: VecDeque::new(),
            user: Keyed::default(),
            user_like: Keyed::default(),
            ready: VecDeque::new(),
            damage: Damage::default(),
            missing,
        };
        waits.refill()?;
        Ok(waits)
    }

    /// Gives no spans of waits for locked pages.
    pub(crate) fn leave_out_page_locks(&mut self) {
        self.page_locks = false;
    }

    /// Reads what the files have by now.
    fn refill(&mut self) -> Result<()> {
        for file in 0..self.lines.len() {
            if let Some(mut lines) = self.lines[file].take() {
                let read = self.read_lines(file, &mut lines);
                self.lines[file] = Some(lines);
                read?;
            }
        }
        for ring in 0..self.rings.len() {
            if !self.heads.has(ring) {
                self.advance(ring)?;
            }
        }
        Ok(())
    }

    /// Reads what one of the files of lines has by now.
    fn read_lines(&mut self, file: usize, lines: &mut dyn BufRead) -> Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line);
            let read = read.map_err(|source| Error::File {
                file: LINES[file].to_owned(),
                source,
            })?;
            if read == 0 {
                return Ok(());
            }
            self.lines_read[file] += 1;
            let known = match LINES[file] {
                super::MAPS => serde_json::from_slice(&line).map(|mapped| self.maps(mapped)),
                _ => serde_json::from_slice(&line).map(|grouped| self.groups(grouped)),
            };
            if known.is_err() {
                // The last line of a recording that was cut off.
                self.damage.add(
                    format!("line {} of {}", self.lines_read[file], LINES[file]),
                    "it is cut off".to_owned(),
                );
            }
        }
    }

    fn maps(&mut self, Mapped { time_ns, mapping }: Mapped) {
        let key = (mapping.name.clone(), mapping.inode);
        let file = self.files.entry(key).or_insert_with(|| {
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

    fn groups(&mut self, Grouped { id, pid, path }: Grouped) {
        let path = Text::from(path);
        if id == 0 {
            self.cgroup_of_process.insert(pid, path);
        } else {
            self.cgroups.insert(id, path);
        }
    }

    /// The path of the cgroup of a thread: of version 1 that of its process or of the one that made it.
    fn cgroup(&mut self, task: &stopgap_capture::Task) -> Option<Text> {
        let maker = || self.threads.get(&task.maker?)?.pid;
        if let Some(of_maker) = maker().and_then(|maker| self.cgroup_of_process.get(&maker))
            && !self.cgroup_of_process.contains_key(&task.tgid)
        {
            let path = Text::clone(of_maker);
            self.cgroup_of_process.insert(task.tgid, path);
        }
        let of_process = self.cgroup_of_process.get(&task.tgid);
        of_process.or(self.cgroups.get(&task.cgroup)).cloned()
    }

    /// Reads the next record of a ring.
    fn advance(&mut self, number: usize) -> Result<()> {
        let ring = &mut self.rings[number];
        let file = || waits_of(u32::try_from(number).unwrap_or(u32::MAX));
        while !ring.ended {
            let next = ring.next().map_err(|source| Error::File {
                file: file(),
                source,
            })?;
            let length = match next {
                Next::Record(length) => length,
                Next::End(bytes) => {
                    if self.complete.get() {
                        ring.ended = true;
                        if bytes > 0 {
                            let why = "its last record is cut off".to_owned();
                            self.damage.add(file(), why);
                        }
                    }
                    return Ok(());
                }
                Next::Garbage(length) => {
                    ring.ended = true;
                    let why = format!(
                        "a record of {length} bytes, which is more than the largest; the rest is not read"
                    );
                    self.damage.add(file(), why);
                    return Ok(());
                }
            };
            if let Some(time) = Record::time_of(ring.peek(length)) {
                self.heads.push(number, time, length);
                return Ok(());
            }
            if let Err(error) = Record::parse(ring.take(length)) {
                self.damage.add(file(), error.to_string());
            }
        }
        Ok(())
    }

    fn record(&mut self, record: Record) {
        let (time, cpu, tid, kind) = match record {
            Record::Wait(wait) => {
                let event = self.wait_event(&wait);
                return self.ready.extend(event);
            }
            Record::UserStack(stack) => return self.user_stack(&stack),
            Record::Span(span) if span.what == SpanKind::Writeback => {
                let call = u32::try_from(span.a).ok().filter(|&call| call != u32::MAX);
                self.threads.entry(span.tid).or_default().writes_back = Some(call);
                return;
            }
            Record::Span(span) if span.what == SpanKind::Merge => {
                if self.merged.len() >= MOST_MERGED {
                    self.merged.pop_front();
                }
                let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or_default();
                return self.merged.push_back(Merged {
                    device: half(span.b),
                    sector: span.a,
                    bytes: half(span.b >> 32),
                    tid: span.tid,
                    time: span.begin,
                });
            }
            Record::Span(span) => {
                let (time, cpu, tid) = (span.end, Some(span.cpu), span.tid);
                (time, cpu, tid, Kind::Span(Box::new(self.span(&span))))
            }
            Record::Task(task) => {
                if task.event == TaskEvent::Renamed {
                    if let Some(mark) = mark_of(&task.comm) {
                        let kind = Kind::Mark { name: mark.into() };
                        return self.put(task.time, None, task.tid, kind);
                    }
                    // Its own name again after a mark.
                    if self.comm(task.tid).as_deref() == Some(task.comm.as_str()) {
                        return;
                    }
                }
                let thread = self.threads.entry(task.tid).or_default();
                thread.pid = Some(task.tgid);
                thread.comm = Some(Text::from(task.comm.as_str()));
                thread.priority = Some(task.priority);
                thread.is_whole = task.is_whole;
                thread.own_tid = Some(task.own_tid).filter(|&tid| tid != 0);
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
                    cgroup: self.cgroup(&task),
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
                self.names(block.tid, block.tgid, &block.comm);
                let begin = [block.inserted, block.issued]
                    .into_iter()
                    .find(|&time| time > 0);
                let span = Span {
                    issued: Some(Nanos(block.issued)).filter(|time| time.0 > 0),
                    device: Some(device(block.device)),
                    sector: Some(block.sector),
                    length: Some(Bytes(u64::from(block.bytes))),
                    operation: Some(operation(block.flags).into()),
                    result: Some(if block.status == 0 { 0 } else { -5 }),
                    ..Span::new(Activity::Block, Nanos(begin.unwrap_or(block.completed)))
                };
                self.merged(&block, &span);
                (
                    block.completed,
                    Some(block.cpu),
                    block.tid,
                    Kind::Span(Box::new(span)),
                )
            }
            Record::FenceNames(fence) => {
                let thread = self.threads.entry(fence.tid).or_default();
                thread.fence = Some(fence);
                return;
            }
            Record::FileLock(lock) => {
                let (time, cpu, tid) = (lock.time, Some(lock.cpu), lock.tid);
                (time, cpu, tid, Kind::Span(Box::new(file_lock(&lock))))
            }
            Record::Signal(signal) => {
                self.names(signal.tid, signal.tgid, &signal.comm);
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

    /// The event of a wait; `None` of an open one that was told of as it ended.
    fn wait_event(&mut self, wait: &stopgap_capture::Wait) -> Option<Event> {
        let open = wait.flags & flag::OPEN != 0;
        let thread = self.threads.entry(wait.tid).or_default();
        // The same wait may have ended while the open ones were written down.
        match open {
            true if thread.left.is_some_and(|left| left >= wait.left) => return None,
            true => {}
            false => thread.left = Some(wait.left),
        }
        // It may have changed since the thread was told of.
        if thread.priority.is_some() {
            thread.priority = wait.priority.or(thread.priority);
        }
        let (pid, priority, is_whole) = (thread.pid, thread.priority, thread.is_whole);
        let comm = thread.comm.clone();
        let (fault, writes_back) = match wait.state {
            0 => (None, false),
            _ => (thread.fault(wait), thread.waits_for_writing(wait)),
        };
        let event = |kind, comm| Event {
            time: Nanos(wait.ran),
            cpu: (!open).then_some(wait.cpu),
            pid,
            tid: (wait.tid != 0).then_some(wait.tid),
            comm,
            kind,
        };
        let (stack, page) = self.kernel_stack(wait);
        let page = match writes_back {
            true => Some(Activity::Writeback),
            false => {
                page.filter(|&page| is_whole && (self.page_locks || page != Activity::PageLock))
            }
        };
        let of_page = page.map(|what| Span::new(what, Nanos(wait.left)));
        // What is inside comes first.
        for span in of_page.into_iter().chain(fault) {
            let kind = Kind::Span(Box::new(Span { open, ..span }));
            self.ready.push_back(event(kind, comm.clone()));
        }
        let kind = Kind::Wait(self.wait(wait, stack, pid, priority));
        Some(event(kind, comm))
    }

    /// Learns the name of a thread that need not be followed. One that is has told its name, which may be another one by now.
    fn names(&mut self, tid: u32, tgid: u32, comm: &str) {
        let known = self.threads.get(&tid);
        if tid == 0 || known.is_some_and(|known| known.priority.is_some()) {
            return;
        }
        let thread = self.threads.entry(tid).or_default();
        thread.pid = Some(tgid);
        thread.comm = Some(Text::from(comm));
    }

    /// Gives the spans of what other threads asked for as parts of a request that is complete; `span` is that of the request.
    fn merged(&mut self, block: &stopgap_capture::Block, span: &Span) {
        let end = block.sector.saturating_add(u64::from(block.bytes) / SECTOR);
        let is_in = |part: &Merged| {
            part.device == block.device
                && part.time <= block.completed
                && (block.sector..end).contains(&part.sector)
        };
        let (parts, others) = std::mem::take(&mut self.merged)
            .into_iter()
            .partition::<VecDeque<_>, _>(is_in);
        self.merged = others;
        for part in parts.into_iter().filter(|part| part.tid != block.tid) {
            let span = Span {
                begin: Nanos(part.time),
                sector: Some(part.sector),
                length: Some(Bytes(u64::from(part.bytes))),
                ..span.clone()
            };
            let kind = Kind::Span(Box::new(span));
            self.put(block.completed, Some(block.cpu), part.tid, kind);
        }
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
        let known = (!is_compat).then(|| self.syscalls.get(number as usize));
        known.flatten()?.clone()
    }

    fn comm(&self, tid: u32) -> Option<Text> {
        self.threads.get(&tid)?.comm.clone()
    }

    fn task(&self, tid: u32) -> wait::Task {
        let comm = self.comm(tid);
        wait::Task { tid, comm }
    }

    fn wait(
        &mut self,
        wait: &stopgap_capture::Wait,
        stack: Option<wait::Stack>,
        pid: Option<u32>,
        priority: Option<i32>,
    ) -> Box<wait::Wait> {
        let has = |bit: u8| wait.flags & bit != 0;
        let within = match () {
            () if has(flag::NEW) => Within::New,
            () if has(flag::KERNEL_THREAD) => Within::Kernel,
            () if wait.call.is_some() => Within::Call,
            () => Within::User,
        };
        let call = wait
            .call
            .filter(|_| within == Within::Call)
            .map(|number| Call {
                number,
                name: self.call_name(number, has(flag::COMPAT)),
                arguments: wait.arguments.map(Some),
            });
        let sleeps = wait.state != 0;
        let (open, before) = (has(flag::OPEN), has(flag::BEGAN_BEFORE));
        // A waking of a thread that could run changes nothing for it.
        let woken = wait.woken > 0 && (sleeps || before) && within != Within::New;
        // Most often who woke it had its CPU, or gets it.
        let previous = wait.previous.filter(|_| !open);
        let previous = previous.map(|tid| self.task(tid));
        let task = |tid| match &previous {
            Some(same) if same.tid == tid => same.clone(),
            _ => self.task(tid),
        };
        let next = (!before && within != Within::New).then(|| task(wait.next));
        let waker = woken.then(|| Waker {
            task: task(wait.waker),
            context: wait.waker_context.map(|context| match context {
                // The idle task wakes nobody of its own accord: an interrupt has asked it to.
                Waking::Task if wait.waker == 0 => Context::Interrupt,
                Waking::Task => Context::Task,
                Waking::Softirq => Context::Softirq,
                Waking::Interrupt => Context::Interrupt,
            }),
            call: wait.waker_call.map(|number| Call {
                number,
                name: self.call_name(number, false),
                arguments: [Some(wait.waker_argument), None, None],
            }),
        });
        let yields = call
            .as_ref()
            .is_some_and(|call| call.name.as_deref() == Some("sched_yield"));
        let in_user = within == Within::Call || within == Within::User;
        let user_stack = match in_user && sleeps {
            true => pid.and_then(|pid| self.stack_of_place(pid, wait)),
            false => None,
        };
        // It is made where it stays: to move its 400 bytes would be a tenth of what decoding it takes.
        let mut made = Box::write(Box::new_uninit(), wait::Wait::default());
        made.left = Nanos(wait.left);
        made.began_before = before;
        made.woken = woken.then_some(Nanos(wait.woken));
        made.ran = (!open).then_some(Nanos(wait.ran));
        made.left_cpu = wait.left_cpu;
        made.state = Some(state(wait.state));
        // As the kernel counts (`nivcsw`), but for a thread that yields: on its way out to user mode a thread gives
        // its CPU away because it has to, although the switch does not say so.
        made.preempted =
            (within != Within::New).then(|| has(flag::PREEMPTED) || (!sleeps && !yields));
        made.throttled = (!sleeps).then_some(has(flag::THROTTLED));
        made.for_io = sleeps.then_some(has(flag::FOR_IO));
        made.priority = priority;
        made.within = Some(within);
        made.call = call;
        made.instruction_pointer = in_user.then_some(wait.ip);
        made.stack_pointer = in_user.then_some(wait.sp);
        made.stack = stack;
        made.user_stack = user_stack;
        made.next = next;
        made.previous = previous;
        made.waker = waker;
        made
    }

    /// The wait's own kernel stack, or the last one of a like wait; and the page that such a stack waits for.
    fn kernel_stack(
        &mut self,
        wait: &stopgap_capture::Wait,
    ) -> (Option<wait::Stack>, Option<Activity>) {
        let place = (wait.ip, wait.call, wait.depth);
        let for_io = wait.flags & flag::FOR_IO != 0;
        if wait.stack.is_empty() {
            let like = self.kernel.get(&place).filter(|_| wait.state != 0);
            let Some(like) = like else {
                return (None, None);
            };
            // Every wait for a page is one for I/O: a like wait that is none was in another function.
            let page = like.page.filter(|_| for_io && like.for_io);
            return (Some(like.stack.clone()), page);
        }
        let frames = self.symbols.stack(&wait.stack).0;
        let page = wait_for_page(&frames);
        if self.kernel.len() < MOST || self.kernel.contains_key(&place) {
            let stack = wait::Stack {
                frames: Text::clone(&frames),
                of_a_like_wait: true,
            };
            self.kernel.insert(
                place,
                KernelStack {
                    stack,
                    page,
                    for_io,
                },
            );
        }
        let stack = wait::Stack {
            frames,
            of_a_like_wait: false,
        };
        (Some(stack), page)
    }

    /// The program's stack at the wait's place, or the last one of the same call at the same instruction.
    fn stack_of_place(&mut self, pid: u32, wait: &stopgap_capture::Wait) -> Option<wait::Stack> {
        let like = (pid, wait.ip, wait.call);
        if let Some(own) = self.user.get(&(pid, wait.ip, wait.sp)) {
            let room = self.user_like.len() < MOST;
            let stack = || wait::Stack {
                frames: Text::clone(&own.frames),
                of_a_like_wait: true,
            };
            match self.user_like.get_mut(&like) {
                Some(last) if std::ptr::eq(&raw const *last.frames, &raw const *own.frames) => {}
                Some(last) => *last = stack(),
                None if room => drop(self.user_like.insert(like, stack())),
                None => {}
            }
            return Some(own.clone());
        }
        self.user_like.get(&like).cloned()
    }

    fn user_stack(&mut self, stack: &stopgap_capture::UserStack) {
        // One that mapped is of no wait.
        if self.user.len() >= MOST || stack.maps {
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
        let (jit, pid) = (&mut self.jit, stack.tgid);
        let own_pid = self.threads.get(&pid).and_then(|thread| thread.own_tid);
        let named = |address| jit.function(pid, own_pid.unwrap_or(pid), address);
        let frames = self.stacks.user_stack(mappings, &chain, named).0;
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
            SpanKind::Fence => {
                let low = |number: u64| number & 0xffff_ffff;
                let names = self.threads.get(&span.tid);
                let names = names.and_then(|thread| thread.fence.as_ref());
                let names = names.filter(|of| {
                    let of = [of.context, of.seqno].map(u64::from);
                    of == [low(span.a), low(span.b)]
                });
                let text = |text: &String| Text::from(text.as_str());
                Span {
                    context: Some(span.a),
                    seqno: Some(span.b),
                    driver: names.map(|names| text(&names.driver)),
                    timeline: names.map(|names| text(&names.timeline)),
                    holder: names.and_then(|names| names.submitter),
                    ..new(Activity::Fence)
                }
            }
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
            // Moments: `record` takes them.
            SpanKind::Writeback => new(Activity::Writeback),
            SpanKind::Merge => new(Activity::Block),
        }
    }
}

impl<R: Read> Source for Waits<R> {
    fn reach(&mut self, time: u64) {
        self.until = time;
        self.complete.set(time == u64::MAX);
        self.grown = true;
    }

    fn next_event(&mut self) -> Result<Option<Event>> {
        if std::mem::take(&mut self.grown) {
            self.refill()?;
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.heads.first_time().is_none_or(|time| time > self.until) {
                return Ok(None);
            }
            let Some((ring, length)) = self.heads.pop() else {
                return Ok(None);
            };
            let bytes = self.rings[ring].take(length);
            if let Some(wait) = Record::plain_wait(bytes) {
                self.advance(ring)?;
                let event = self.wait_event(&wait);
                // Spans that end with it come first.
                if !self.ready.is_empty() {
                    self.ready.extend(event);
                } else if event.is_some() {
                    return Ok(event);
                }
                continue;
            }
            match Record::parse(bytes) {
                Ok(record) => self.record(record),
                Err(error) => {
                    let file = waits_of(u32::try_from(ring).unwrap_or(u32::MAX));
                    self.damage.add(file, error.to_string());
                }
            }
            self.advance(ring)?;
        }
    }

    fn report(&self) -> SourceReport {
        let mut missing = self.missing.clone();
        self.damage.tell(&mut missing);
        SourceReport {
            losses: Vec::new(),
            missing,
            files: self.chains.build_ids(),
        }
    }
}

fn file_lock(lock: &stopgap_capture::FileLock) -> Span {
    const AGAIN: i64 = -11;
    let to_the_end = lock.end >= i64::MAX.cast_unsigned();
    let by = match lock.owner {
        LockOwner::Process => "fcntl",
        LockOwner::OpenFile => "open-file",
        LockOwner::Flock => "flock",
    };
    Span {
        lock: Some(by.into()),
        address: Some(lock.start),
        length: (!to_the_end).then(|| Bytes(lock.end.saturating_sub(lock.start) + 1)),
        write: Some(lock.is_for_writing),
        // Of a lock from before the recording the process alone is known: its first thread has the same number.
        holder: lock.holder.or(lock.holder_process),
        inode: Some(lock.inode),
        device: Some(device(lock.device)),
        result: (!lock.blocks).then_some(AGAIN),
        ..Span::new(Activity::FileLock, Nanos(lock.time))
    }
}

/// Returns `major:minor` of a device as the kernel has it.
fn device(number: u32) -> Text {
    format!("{}:{}", number >> 20, number & 0xf_ffff).into()
}

/// Names in the order of their numbers; of numbers that no architecture has, none.
fn by_number(names: impl Iterator<Item = (u32, Text)>) -> Vec<Option<Text>> {
    const MOST: usize = 1 << 16;
    let mut all = Vec::new();
    for (number, name) in names {
        let number = number as usize;
        if number < MOST {
            all.resize(all.len().max(number + 1), None);
            all[number] = Some(name);
        }
    }
    all
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

/// Returns what a thread with this kernel stack waits for, if it is a page. No event of the kernel says when such a wait ends, and
/// of page locks none says that one begins.
fn wait_for_page(frames: &str) -> Option<Activity> {
    let names = frames
        .split(';')
        .map(|frame| frame.trim_end_matches("_[k]"));
    let is = |known: &[&str]| names.clone().any(|name| known.contains(&name));
    // Outside of the functions by which every page is waited for.
    if is(&["folio_wait_writeback", "folio_wait_writeback_killable"]) {
        return Some(Activity::Writeback);
    }
    is(&[
        "folio_wait_bit_common",
        "__folio_lock",
        "__folio_lock_or_retry",
    ])
    .then_some(Activity::PageLock)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_a_page_is_known_by_its_stack() {
        let cold = "vfs_read_[k];filemap_get_pages_[k];folio_wait_bit_common_[k]";
        let synced = "vfs_fsync_range_[k];folio_wait_writeback_[k];folio_wait_bit_common_[k]";
        assert_eq!(wait_for_page(cold), Some(Activity::PageLock));
        assert_eq!(wait_for_page(synced), Some(Activity::Writeback));
        for other in ["", "fsync;jbd2_log_wait_commit", "my_folio_wait_writeback2"] {
            assert_eq!(wait_for_page(other), None, "{other}");
        }
    }

    /// A record with its length in front, as a ring's file has it.
    fn framed(fields: &[&[u8]]) -> Vec<u8> {
        let record = fields.concat();
        let length = u32::try_from(record.len()).unwrap();
        [&length.to_le_bytes()[..], &record].concat()
    }

    /// A thread asks for a part of what becomes another's request: both have a span that ends with it. A part of one's own has none, nor has
    /// one of another device or place.
    #[test]
    fn a_part_of_anothers_request_ends_with_it() {
        const DEVICE: u32 = 254 << 20 | 1;
        let merge = |tid: u32, time: u64, sector: u64, device: u32| {
            let what = u64::from(device) | 4096 << 32;
            let head = [4, 12, 0, 0];
            let (tid, time) = (tid.to_le_bytes(), time.to_le_bytes());
            framed(&[
                &head,
                &tid,
                &time,
                &time,
                &sector.to_le_bytes(),
                &what.to_le_bytes(),
            ])
        };
        let block = {
            let times = [100_u64, 150, 900].map(u64::to_le_bytes);
            let numbers = [16 << 10, DEVICE, 1, 0].map(u32::to_le_bytes);
            let (tid, sector) = (5_u32.to_le_bytes(), 64_u64.to_le_bytes());
            let head = [7, 0, 1, 0];
            framed(&[
                &head,
                &tid,
                times.as_flattened(),
                &sector,
                numbers.as_flattened(),
                &[0; 24],
            ])
        };
        let ring = [
            merge(5, 110, 72, DEVICE),
            merge(7, 120, 80, DEVICE),
            merge(8, 121, 96, DEVICE),
            merge(9, 122, 80, DEVICE + 1),
            block.clone(),
            block,
        ]
        .concat();
        let names = Box::new(crate::perf::ElfNames::new(None));
        let none: [Option<std::io::Empty>; 2] = [None, None];
        let mut waits = Waits::new(
            std::iter::empty(),
            Symbols::default(),
            names,
            vec![&ring[..]],
            none,
            true,
        )
        .unwrap();
        let mut spans = Vec::new();
        while let Some(event) = waits.next_event().unwrap() {
            let Kind::Span(span) = event.kind else {
                panic!("{event:?}");
            };
            let length = span.length.unwrap().0;
            spans.push((
                event.tid.unwrap(),
                span.begin.0,
                event.time.0,
                span.sector,
                length,
            ));
        }
        let part = (7, 120, 900, Some(80), 4096);
        let whole = (5, 100, 900, Some(64), 16 << 10);
        assert_eq!(spans, [part, whole, whole]);
    }
}
