//! Records of the programs. Their layout is that of `bpf/waits.bpf.c`; all numbers are little-endian.

/// Bits of [`Wait::flags`].
pub mod flag {
    /// The scheduler took the CPU: the thread could have run on.
    pub const PREEMPTED: u8 = 1;
    /// Its cgroup had used up its share of CPU time.
    pub const THROTTLED: u8 = 2;
    /// It slept for I/O (`task_struct.in_iowait`).
    pub const FOR_IO: u8 = 4;
    /// It left its CPU before it was followed; `left` is the begin of following.
    pub const BEGAN_BEFORE: u8 = 8;
    /// It has not run again; `ran` is the end of the capture.
    pub const OPEN: u8 = 16;
    /// It is new and had not run yet.
    pub const NEW: u8 = 32;
    /// It is a kernel thread.
    pub const KERNEL_THREAD: u8 = 64;
    /// Its call is one of the 32-bit interface.
    pub const COMPAT: u8 = 128;
}

/// Stands for an unknown thread.
const UNKNOWN: u32 = u32::MAX;
/// Bits of [`Wait::waker_context`].
const CONTEXT_KNOWN: u16 = 1;
const CONTEXT_SOFTIRQ: u16 = 2;
const CONTEXT_INTERRUPT: u16 = 4;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A thread was off its CPU.
    Wait(Box<Wait>),
    /// The stack of a place in a program.
    UserStack(Box<UserStack>),
    /// An activity of a thread.
    Span(Span),
    /// A thread appeared, changed its name or ended.
    Task(Box<Task>),
    /// A process executed another program.
    Exec(Box<Exec>),
    /// A block request is complete.
    Block(Block),
    /// A signal was sent.
    Signal(Signal),
    /// A thread begins to wait for a fence.
    FenceNames(Box<FenceNames>),
    /// An attempt to lock a file failed, because another thread holds the lock.
    FileLock(FileLock),
    /// A system call begins.
    Enter(Box<Enter>),
    /// A system call ends.
    Leave(Leave),
}

/// One interval off the CPU. Times are CLOCK_MONOTONIC in nanoseconds; 0 means never.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wait {
    /// The thread.
    pub tid: u32,
    /// The CPU on which it ran again.
    pub cpu: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// When it left its CPU.
    pub left: u64,
    /// When it was woken; 0: never (it was runnable, or the capture ended first). If another CPU wakes the thread
    /// while it is leaving its own, this is the time of leaving.
    pub woken: u64,
    /// When it ran again.
    pub ran: u64,
    /// Its system call; `None`: none.
    pub call: Option<u32>,
    /// Its state, bits of `task_struct.__state`; 0: runnable.
    pub state: u32,
    /// The call's first arguments. Without a call, the first is the address of its page fault, or 0, and the second
    /// is the begin of the fault.
    pub arguments: [u64; 3],
    /// The next instruction in user mode.
    pub ip: u64,
    /// The stack pointer in user mode.
    pub sp: u64,
    /// The thread that got its CPU; 0: idle.
    pub next: u32,
    /// The thread that had the CPU before, on which it ran again; 0: idle. `None`: unknown, for example because the
    /// kernel hid that switch. Then the time of the switch follows from the kernel's count of the thread's CPU time.
    pub previous: Option<u32>,
    /// The thread on whose CPU it was woken.
    pub waker: u32,
    /// Context of the waking; `None`: unknown.
    pub waker_context: Option<Waking>,
    /// The CPU that it left; `None` if it left before it was followed.
    pub left_cpu: Option<u32>,
    /// The system call of the waker.
    pub waker_call: Option<u32>,
    /// That call's first argument.
    pub waker_argument: u64,
    /// Depth of its kernel stack in bytes. With the call and the instruction it identifies the place of a wait.
    pub depth: u32,
    /// Its kernel stack, innermost first; empty where none was taken.
    pub stack: Vec<u64>,
    /// The kernel's priority of the thread when it left; lower is more urgent. Only for a wait with a stack.
    pub priority: Option<i32>,
}

/// Context in which a CPU woke a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waking {
    /// The thread itself.
    Task,
    /// A softirq.
    Softirq,
    /// A hard interrupt.
    Interrupt,
}

/// The stack of a place in a program, taken when a thread waited there for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserStack {
    /// Whether the thread ended a call that added a mapping ([`crate::Capture::mappers`]); otherwise it left its CPU.
    pub maps: bool,
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// The time.
    pub time: u64,
    /// The next instruction.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The register of the frame pointer.
    pub bp: u64,
    /// The link register of arm64; 0 elsewhere.
    pub link: u64,
    /// The frames that frame pointers give, innermost first.
    pub frames: Vec<u64>,
    /// The stack's bytes from `sp` upwards, for unwinding without frame pointers.
    pub bytes: Vec<u8>,
}

/// An activity of a thread. [`SpanKind`] gives the meaning of the two numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its kind.
    pub what: SpanKind,
    /// The thread; for an interrupt the interrupted thread.
    pub tid: u32,
    /// The CPU on which it ended.
    pub cpu: u32,
    /// When it began.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// The first number.
    pub a: u64,
    /// The second.
    pub b: u64,
}

/// Kinds of [`Span`], with the meaning of its two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpanKind {
    /// Direct reclaim: order | gfp flags << 32; pages freed.
    DirectReclaim,
    /// Reclaim of a memory cgroup: the same.
    MemcgReclaim,
    /// Compaction: 1 where it may wait; how it ended (`enum compact_result`).
    Compaction,
    /// A shrinker: the address of its function; objects freed.
    Shrinker,
    /// The wait for a lock: its address; kind | holder's thread id << 32 (0: unknown). Kinds are bits:
    /// 2 for reading, 4 for writing, 8 real-time, 16 per CPU, 32 mutex, 65536 the mmap_lock of the thread's own process.
    Lock,
    /// The wait for an mmap_lock: the address of the `mm_struct`; 1 for writing.
    MmapLock,
    /// The wait for a DMA fence: its context; its sequence number.
    Fence,
    /// Throttled by reclaim: the reason; the longest delay in microseconds.
    ThrottledReclaim,
    /// A softirq: its vector.
    Softirq,
    /// A hard interrupt: its number.
    Interrupt,
    /// A work item: the address of its function.
    Work,
    /// A moment: the thread is about to wait for the writing of a page, until its next wait ends. Its call
    /// (0xffff_ffff: none); 0.
    Writeback,
    /// A moment: a request of the thread is merged into an earlier one. Its first sector; its device as in [`Block`]
    /// | bytes << 32.
    Merge,
}

const SPANS: [SpanKind; 13] = [
    SpanKind::DirectReclaim,
    SpanKind::MemcgReclaim,
    SpanKind::Compaction,
    SpanKind::Shrinker,
    SpanKind::Lock,
    SpanKind::MmapLock,
    SpanKind::Fence,
    SpanKind::ThrottledReclaim,
    SpanKind::Softirq,
    SpanKind::Interrupt,
    SpanKind::Work,
    SpanKind::Writeback,
    SpanKind::Merge,
];

/// The reason for a [`Task`] record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskEvent {
    /// It existed when following began.
    Begin,
    /// It was created.
    Forked,
    /// It has a new name.
    Renamed,
    /// It ends.
    Exited,
    /// The capture ends.
    End,
}

/// A thread with the kernel's counts of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The reason for this record.
    pub event: TaskEvent,
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Its parent process.
    pub parent: u32,
    /// The time of these counts.
    pub time: u64,
    /// When it was created, nanoseconds of CLOCK_MONOTONIC.
    pub start: u64,
    /// Id of its cgroup in the unified hierarchy: the inode number of the cgroup's folder.
    pub cgroup: u64,
    /// Voluntary switches so far.
    pub voluntary: u64,
    /// Involuntary switches so far.
    pub involuntary: u64,
    /// CPU time so far, in nanoseconds.
    pub exec_ns: u64,
    /// Time on run queues so far, in nanoseconds.
    pub run_delay_ns: u64,
    /// Page faults without I/O so far.
    pub minor_faults: u64,
    /// Page faults with I/O so far.
    pub major_faults: u64,
    /// Whether its stacks and spans are kept, too.
    pub is_whole: bool,
    /// Its thread id in its own PID namespace.
    pub own_tid: u32,
    /// The kernel's priority, lower is more urgent.
    pub priority: i32,
    /// Whether it is a kernel thread.
    pub is_kernel_thread: bool,
    /// The thread that created it, if it is new.
    pub maker: Option<u32>,
    /// Mappings of its process; 0 for a kernel thread.
    pub maps: u32,
    /// Its name.
    pub comm: String,
}

/// A process executed another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Its thread id before the exec.
    pub old_tid: u32,
    /// The time.
    pub time: u64,
    /// Its name.
    pub comm: String,
    /// The program's file, cut at 127 bytes.
    pub filename: String,
}

/// A complete block request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The thread that made it.
    pub tid: u32,
    /// That thread's process.
    pub tgid: u32,
    /// That thread's name.
    pub comm: String,
    /// The CPU on which it completed.
    pub cpu: u32,
    /// When it entered the queue; 0: it did not.
    pub inserted: u64,
    /// When it was sent to the device; 0: not seen.
    pub issued: u64,
    /// When it was complete.
    pub completed: u64,
    /// Its first sector of 512 bytes.
    pub sector: u64,
    /// Its length.
    pub bytes: u32,
    /// The device: major << 20 | minor.
    pub device: u32,
    /// Its operation in the low 8 bits, and its flags (`REQ_*`).
    pub flags: u32,
    /// Result (`blk_status_t`); 0: success.
    pub status: u32,
}

/// A signal was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: u8,
    /// The thread that sent it; 0: an interrupt, such as that of a timer.
    pub tid: u32,
    /// That thread's process.
    pub tgid: u32,
    /// That thread's name.
    pub comm: String,
    /// The time.
    pub time: u64,
    /// The target thread.
    pub target: u32,
    /// The process of that thread.
    pub target_tgid: u32,
    /// Result (`TRACE_SIGNAL_*`): 0 delivered, 1 ignored, 2 already pending.
    pub result: i32,
    /// Whether it was sent to the whole process.
    pub to_process: bool,
}

/// The names of the fence for which a thread begins to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceNames {
    /// The waiting thread.
    pub tid: u32,
    /// The time.
    pub time: u64,
    /// The low half of the fence's context.
    pub context: u32,
    /// The low half of its sequence number.
    pub seqno: u32,
    /// The thread that made the fence, and so submitted its work; `None`: before the capture.
    pub submitter: Option<u32>,
    /// That thread's process.
    pub submitter_process: Option<u32>,
    /// The driver's name, cut at 31 bytes.
    pub driver: String,
    /// The timeline's name, cut at 31 bytes.
    pub timeline: String,
}

/// A failed attempt to lock a file or a range of it: another thread held the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLock {
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// The time.
    pub time: u64,
    /// The file.
    pub inode: u64,
    /// Its file system's device: major << 20 | minor.
    pub device: u32,
    /// First byte of the range.
    pub start: u64,
    /// Last byte; `i64::MAX`: to the end of the file.
    pub end: u64,
    /// Whether the lock is for writing; otherwise for reading, beside other readers.
    pub is_for_writing: bool,
    /// The kind of object that owns the lock.
    pub owner: LockOwner,
    /// Whether the thread sleeps now until the lock is free; else the call failed with EAGAIN.
    pub blocks: bool,
    /// The thread that holds the conflicting lock; `None`: it got it before the capture, or is on another machine.
    pub holder: Option<u32>,
    /// The process of that thread.
    pub holder_process: Option<u32>,
}

/// The kind of owner of a file's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOwner {
    /// A process: a lock of fcntl.
    Process,
    /// An open file: a lock of fcntl's `F_OFD_SETLK`.
    OpenFile,
    /// An open file, for the whole file: a lock of flock.
    Flock,
}

/// A system call begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enter {
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// The time.
    pub time: u64,
    /// Its number.
    pub call: u32,
    /// Its arguments, as the registers have them.
    pub arguments: [u64; 6],
    /// Whether it is one of the 32-bit interface.
    pub is_compat: bool,
}

/// A system call ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// The time.
    pub time: u64,
    /// Its number; `None` for sigreturn(2), which restores the registers from before the signal.
    pub call: Option<u32>,
    /// Its result, an error as -errno.
    pub result: i64,
    /// Whether it is one of the 32-bit interface.
    pub is_compat: bool,
}

/// Bytes that are no record of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record of {length} bytes with kind {kind}: {why}")]
pub struct Malformed {
    kind: u8,
    length: usize,
    why: &'static str,
}

/// Most frames of a stack.
const FRAMES: usize = 32;
/// Most bytes of a user stack.
const RAW: usize = 8192;
/// Bytes of a wait without a stack.
pub(crate) const WAIT: usize = 112;

/// Kinds of records that the reader distinguishes before it parses them.
pub(crate) mod kind {
    pub(crate) const WAIT: u8 = 1;
    pub(crate) const WAIT_STACK: u8 = 2;
}

impl Task {
    /// Bytes of a record.
    pub(crate) const BYTES: usize = 128;
}

impl Wait {
    /// Bytes of a record with its stack.
    pub(crate) const BYTES_WITH_STACK: usize = WAIT + 8 + 8 * FRAMES;
}

impl Record {
    /// Reads one record.
    ///
    /// # Errors
    /// If the bytes are too few for their kind, or if a number is impossible.
    pub fn parse(bytes: &[u8]) -> Result<Record, Malformed> {
        let kind = bytes.first().copied().unwrap_or(0);
        let wrong = |why| Malformed {
            kind,
            length: bytes.len(),
            why,
        };
        let all = Bytes(bytes);
        let (least, what) = match kind {
            1 => (WAIT, "a wait"),
            2 => (WAIT + 8 + 8 * FRAMES, "a wait with its stack"),
            3 => (USER + 8 + RAW, "a user stack"),
            4 => (40, "a span"),
            5 => (Task::BYTES, "a thread"),
            6 => (168, "an exec"),
            7 => (80, "a block request"),
            8 => (56, "a signal"),
            9 => (72, "the begin of a call"),
            10 => (32, "the end of a call"),
            12 => (56, "a lock of a file"),
            13 => (96, "a fence"),
            _ => return Err(wrong("there is no such kind")),
        };
        if bytes.len() < least {
            return Err(Malformed {
                why: what,
                ..wrong("")
            });
        }
        Ok(match kind {
            1 | 2 => {
                let mut wait = bytes.first_chunk().map(wait).unwrap_or_default(); // it has the bytes
                if kind == 2 {
                    wait.stack = all
                        .frames(WAIT, WAIT + 8)
                        .ok_or_else(|| wrong("too many frames"))?;
                    wait.priority = Some(all.i32(WAIT + 4));
                }
                Record::Wait(Box::new(wait))
            }
            3 => {
                let held = all.u32(USER) as usize;
                let raw = bytes.get(USER + 8..).and_then(|raw| raw.get(..held));
                Record::UserStack(Box::new(UserStack {
                    maps: bytes[1] != 0,
                    tid: all.u32(4),
                    tgid: all.u32(8),
                    time: all.u64(16),
                    ip: all.u64(24),
                    sp: all.u64(32),
                    bp: all.u64(40),
                    link: all.u64(48),
                    frames: all.frames(12, 56).ok_or_else(|| wrong("too many frames"))?,
                    bytes: raw.ok_or_else(|| wrong("too many bytes"))?.to_vec(),
                }))
            }
            4 => Record::Span(Span {
                what: *SPANS
                    .get(usize::from(bytes[1]))
                    .ok_or_else(|| wrong("there is no such span"))?,
                cpu: u32::from(all.u16(2)),
                tid: all.u32(4),
                begin: all.u64(8),
                end: all.u64(16),
                a: all.u64(24),
                b: all.u64(32),
            }),
            5 => Record::Task(Box::new(Task {
                event: match bytes[1] {
                    1 => TaskEvent::Begin,
                    2 => TaskEvent::Forked,
                    3 => TaskEvent::Renamed,
                    4 => TaskEvent::Exited,
                    5 => TaskEvent::End,
                    _ => return Err(wrong("there is no such reason")),
                },
                tid: all.u32(4),
                tgid: all.u32(8),
                parent: all.u32(12),
                time: all.u64(16),
                start: all.u64(24),
                cgroup: all.u64(32),
                voluntary: all.u64(40),
                involuntary: all.u64(48),
                exec_ns: all.u64(56),
                run_delay_ns: all.u64(64),
                minor_faults: all.u64(72),
                major_faults: all.u64(80),
                is_whole: all.u32(88) >= 2,
                own_tid: all.u32(92),
                priority: all.i32(96),
                is_kernel_thread: all.u32(100) & 0x0020_0000 != 0,
                comm: all.text(104, 16),
                maker: Some(all.u32(120)).filter(|&tid| tid != 0),
                maps: all.u32(124),
            })),
            6 => Record::Exec(Box::new(Exec {
                tid: all.u32(4),
                tgid: all.u32(8),
                old_tid: all.u32(12),
                time: all.u64(16),
                comm: all.text(24, 16),
                filename: all.text(40, 128),
            })),
            7 => Record::Block(Block {
                cpu: u32::from(all.u16(2)),
                tid: all.u32(4),
                inserted: all.u64(8),
                issued: all.u64(16),
                completed: all.u64(24),
                sector: all.u64(32),
                bytes: all.u32(40),
                device: all.u32(44),
                flags: all.u32(48),
                status: all.u32(52),
                tgid: all.u32(56),
                comm: all.text(64, 16),
            }),
            9 => Record::Enter(Box::new(Enter {
                is_compat: bytes[1] & flag::COMPAT != 0,
                cpu: u32::from(all.u16(2)),
                tid: all.u32(4),
                time: all.u64(8),
                arguments: std::array::from_fn(|argument| all.u64(16 + 8 * argument)),
                call: all.u32(64),
            })),
            10 => Record::Leave(Leave {
                is_compat: bytes[1] & flag::COMPAT != 0,
                cpu: u32::from(all.u16(2)),
                tid: all.u32(4),
                time: all.u64(8),
                result: all.u64(16).cast_signed(),
                call: u32::try_from(all.i32(24)).ok(),
            }),
            13 => Record::FenceNames(Box::new(FenceNames {
                tid: all.u32(4),
                time: all.u64(8),
                context: all.u32(16),
                seqno: all.u32(20),
                submitter: Some(all.u32(24)).filter(|&tid| tid != 0),
                submitter_process: Some(all.u32(28)).filter(|&tid| tid != 0),
                driver: all.text(32, 32),
                timeline: all.text(64, 32),
            })),
            12 => Record::FileLock(FileLock {
                tid: all.u32(4),
                cpu: u32::from(all.u16(2)),
                time: all.u64(8),
                inode: all.u64(16),
                device: all.u32(40),
                start: all.u64(24),
                end: all.u64(32),
                is_for_writing: bytes[1] & 1 != 0,
                owner: match bytes[1] {
                    how if how & 2 != 0 => LockOwner::Flock,
                    how if how & 4 != 0 => LockOwner::OpenFile,
                    _ => LockOwner::Process,
                },
                blocks: bytes[1] & 8 != 0,
                holder: Some(all.u32(44)).filter(|&tid| tid != 0),
                holder_process: Some(all.u32(48)).filter(|&tid| tid != 0),
            }),
            _ => Record::Signal(Signal {
                number: bytes[1],
                tid: all.u32(4),
                time: all.u64(8),
                target: all.u32(16),
                target_tgid: all.u32(20),
                result: all.i32(24),
                to_process: all.u32(28) != 0,
                tgid: all.u32(32),
                comm: all.text(40, 16),
            }),
        })
    }

    /// Returns the process of a user stack, its instruction, and the number of the process's executable pages,
    /// without reading the rest; `None` for another record.
    #[must_use]
    pub fn place_of_stack(bytes: &[u8]) -> Option<(u32, u64, u32)> {
        let all = Bytes(bytes);
        (bytes.first() == Some(&3)).then(|| (all.u32(8), all.u64(24), all.u32(USER + 4)))
    }

    /// Returns the process and its number of mappings from a record of its first thread; `None` for another record.
    #[must_use]
    pub fn maps_of(bytes: &[u8]) -> Option<(u32, u32)> {
        let all = Bytes(bytes);
        let leads = bytes.first() == Some(&5) && all.u32(4) == all.u32(8);
        leads.then(|| (all.u32(8), all.u32(124)))
    }

    /// Returns when a record was written, as [`Record::time`], without reading the rest; `None` for an unknown kind.
    #[must_use]
    pub fn time_of(bytes: &[u8]) -> Option<u64> {
        let at = match bytes.first()? {
            1 | 2 | 7 => 24,
            3..=6 => 16,
            8..=10 | 12 | 13 => 8,
            _ => return None,
        };
        Some(Bytes(bytes).u64(at))
    }

    /// Returns thread and begin of a wait, which identify the wait. `None` for another record, and for too few bytes.
    pub(crate) fn which_wait(bytes: &[u8]) -> Option<(u32, u64)> {
        let all = Bytes(bytes);
        let is_wait = matches!(bytes.first(), Some(1 | 2)) && bytes.len() >= WAIT;
        is_wait.then(|| (all.u32(4), all.u64(8)))
    }

    /// Reads a wait without a stack, as most waits are; `None` for another record, and for too few bytes.
    #[must_use]
    pub fn plain_wait(bytes: &[u8]) -> Option<Wait> {
        let plain = bytes.first() == Some(&1);
        bytes.first_chunk().filter(|_| plain).map(wait)
    }

    /// Returns a process and the id of its cgroup in the unified hierarchy, without reading the rest of a thread's
    /// record. For an exec, returns the process only; `None` for another record.
    #[must_use]
    pub fn cgroup_of(bytes: &[u8]) -> Option<(u32, Option<u64>)> {
        let all = Bytes(bytes);
        match bytes.first() {
            Some(5) => Some((all.u32(8), Some(all.u64(32)))),
            Some(6) => Some((all.u32(8), None)),
            _ => None,
        }
    }

    /// Returns a wait without its stack, and allocates nothing; `None` for another record.
    #[must_use]
    pub fn wait_of(bytes: &[u8]) -> Option<Wait> {
        let is_wait = matches!(bytes.first(), Some(1 | 2));
        bytes.first_chunk().filter(|_| is_wait).map(wait)
    }

    /// Returns when the record was written; for a record with a length, its end.
    #[must_use]
    pub fn time(&self) -> u64 {
        match self {
            Record::Wait(wait) => wait.ran,
            Record::UserStack(stack) => stack.time,
            Record::Span(span) => span.end,
            Record::Task(task) => task.time,
            Record::Exec(exec) => exec.time,
            Record::Block(block) => block.completed,
            Record::Signal(signal) => signal.time,
            Record::Enter(enter) => enter.time,
            Record::Leave(leave) => leave.time,
            Record::FileLock(lock) => lock.time,
            Record::FenceNames(fence) => fence.time,
        }
    }
}

/// Offset of the number of bytes in a user stack.
const USER: usize = 56 + 8 * FRAMES;

/// Reads a wait. The length is known, so every field lies within it.
#[inline]
fn wait(bytes: &[u8; WAIT]) -> Wait {
    let all = Bytes(bytes);
    let call = |number: i32| u32::try_from(number).ok();
    let context = all.u16(92);
    Wait {
        flags: all.0[1],
        cpu: u32::from(all.u16(2)),
        tid: all.u32(4),
        left: all.u64(8),
        woken: all.u64(16),
        ran: all.u64(24),
        call: call(all.i32(32)),
        state: all.u32(36),
        arguments: [all.u64(40), all.u64(48), all.u64(56)],
        ip: all.u64(64),
        sp: all.u64(72),
        next: all.u32(80),
        previous: Some(all.u32(84)).filter(|&tid| tid != UNKNOWN),
        waker: all.u32(88),
        waker_context: match context {
            _ if context & CONTEXT_KNOWN == 0 => None,
            _ if context & CONTEXT_INTERRUPT != 0 => Some(Waking::Interrupt),
            _ if context & CONTEXT_SOFTIRQ != 0 => Some(Waking::Softirq),
            _ => Some(Waking::Task),
        },
        left_cpu: Some(u32::from(all.u16(94))).filter(|&cpu| cpu != 0xffff),
        waker_call: call(all.i32(96)),
        depth: all.u32(100),
        waker_argument: all.u64(104),
        stack: Vec::new(),
        priority: None,
    }
}

/// The bytes of a record. Its length was checked against its kind.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    #[inline(always)]
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self
            .0
            .get(at..at + N)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.unwrap_or([0; N])
    }
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }
    fn i32(&self, at: usize) -> i32 {
        i32::from_le_bytes(self.array(at))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    /// Returns the addresses at `at`; their number is at `count`. `None` if there is no room for so many.
    fn frames(&self, count: usize, at: usize) -> Option<Vec<u64>> {
        let frames = self.u32(count) as usize;
        (frames <= FRAMES).then(|| (0..frames).map(|frame| self.u64(at + 8 * frame)).collect())
    }

    fn text(&self, at: usize, room: usize) -> String {
        let bytes = self.0.get(at..at + room).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(room);
        String::from_utf8_lossy(&bytes[..end.min(bytes.len())]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..9000), kind in 0..15_u8) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(record) = Record::parse(&bytes) {
                prop_assert_eq!(Record::time_of(&bytes), Some(record.time()));
                let plain = Record::plain_wait(&bytes).map(|wait| Record::Wait(Box::new(wait)));
                prop_assert!(plain.is_none_or(|plain| plain == record));
            }
        }
    }

    #[test]
    fn a_stack_longer_than_its_room_is_refused() {
        let mut bytes = vec![0; WAIT + 8 + 8 * FRAMES];
        bytes[0] = 2;
        bytes[WAIT] = 33;
        let error = Record::parse(&bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a record of 376 bytes with kind 2: too many frames"
        );
        bytes[WAIT] = 32;
        assert!(matches!(Record::parse(&bytes), Ok(Record::Wait(wait)) if wait.stack.len() == 32));
    }
}
