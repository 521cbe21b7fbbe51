//! Kinds whose own columns make a type: [`Wait`], [`Span`], [`TaskCounts`].

use super::cell::{Cell, Get, Put, Text, Wrong, word_cells};
use super::column::Column;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::wait::{Call, Context, Stack, State, Task, Wait, Waker, Within};
use stopgap_events::words;

/// Something that a thread was in the midst of, from `begin` to the time of its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What it was.
    pub what: Activity,
    /// When it began; of a block request when it came into the device's queue, or where it has none, was issued.
    pub begin: Nanos,
    /// Whether its end was not seen: it was not over when the recording ended.
    pub open: bool,
    /// When a block request was issued to the device.
    pub issued: Option<Nanos>,
    /// The function of a work item, the name of a softirq, the handler or the number of an interrupt.
    pub name: Option<Text>,
    /// Memory was reclaimed or compacted for an allocation of this order.
    pub order: Option<u32>,
    /// Flags of that allocation.
    pub gfp: Option<Text>,
    /// The memory node that is reclaimed or compacted.
    pub node: Option<u32>,
    /// Whether compaction may wait.
    pub synchronous: Option<bool>,
    /// Pages looked at; a shrinker's objects.
    pub scanned: Option<u64>,
    /// Pages freed; a shrinker's objects.
    pub reclaimed: Option<u64>,
    /// How compaction ended.
    pub status: Option<Text>,
    /// Why the thread was throttled.
    pub reason: Option<Text>,
    /// The shrinker's function.
    pub shrinker: Option<Text>,
    /// The kind of a lock.
    pub lock: Option<Text>,
    /// The address of a lock, of a page fault or of what the page maps; of a file's lock the first byte.
    pub address: Option<u64>,
    /// Whether a lock is taken, or memory used, for writing.
    pub write: Option<bool>,
    /// The thread that held the lock when the wait began; of a fence the one that submitted its work.
    pub holder: Option<u32>,
    /// The file that is locked.
    pub inode: Option<u64>,
    /// The driver of a fence.
    pub driver: Option<Text>,
    /// The timeline of a fence.
    pub timeline: Option<Text>,
    /// The context of a fence.
    pub context: Option<u64>,
    /// The sequence number of a fence.
    pub seqno: Option<u64>,
    /// The block device; of a file that of its file system.
    pub device: Option<Text>,
    /// The first sector of a block request.
    pub sector: Option<u64>,
    /// The size of a block request; of a file's lock as far as it goes, where that is not the file's end.
    pub length: Option<Bytes>,
    /// The operation of a block request.
    pub operation: Option<Text>,
    /// 0 or -errno: of the wait for a lock, of a block request. Of a file's lock -EAGAIN; `None` where the thread waits for it.
    pub result: Option<i64>,
}

/// What a [`Span`] is, with the kernel's events at its begin and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Activity {
    /// The thread freed memory for itself: `mm_vmscan_direct_reclaim_begin`, `_end`.
    DirectReclaim,
    /// The thread freed memory of its cgroup, which is full: `mm_vmscan_memcg_reclaim_begin`, `_end`.
    MemcgReclaim,
    /// The kernel's own thread freed memory for all: `mm_vmscan_kswapd_wake`, `mm_vmscan_kswapd_sleep`.
    Kswapd,
    /// The thread had to wait until others had freed memory: `mm_vmscan_throttled`, which comes at the end.
    Throttled,
    /// A shrinker ran: `mm_shrink_slab_start`, `_end`.
    Shrinker,
    /// Pages were moved together: `mm_compaction_begin`, `_end`.
    Compaction,
    /// The thread waited for a lock: `contention_begin`, `_end`.
    Lock,
    /// The thread waited for an mmap_lock: `mmap_lock_start_locking`, `mmap_lock_acquire_returned`.
    MmapLock,
    /// The thread waited for a fence: `dma_fence_wait_start`, `_end`.
    Fence,
    /// A moment: the thread found a file locked by another: `posix_lock_inode`, `flock_lock_inode`.
    FileLock,
    /// A page fault, from `page_fault_user` or `page_fault_kernel` to the return of `handle_mm_fault()`.
    PageFault,
    /// The thread waited until a page was unlocked: `folio_wait_bit()`, `__folio_lock()`.
    PageLock,
    /// The thread waited until a page was written: `folio_wait_writeback()`.
    Writeback,
    /// A block request of the thread: `block_rq_insert` or `block_rq_issue`, `block_rq_complete`.
    Block,
    /// A softirq on the CPU that the thread had: `softirq_entry`, `softirq_exit`.
    Softirq,
    /// A hard interrupt on the CPU that the thread had: `irq_handler_entry`, `irq_handler_exit`.
    Interrupt,
    /// A work item that the thread, a kernel's worker, carried out: `workqueue_execute_start`, `_end`.
    Work,
}

words!(
    Activity, "activity",
    DirectReclaim "direct-reclaim",
    MemcgReclaim "memcg-reclaim",
    Kswapd "kswapd",
    Throttled "throttled",
    Shrinker "shrinker",
    Compaction "compaction",
    Lock "lock",
    MmapLock "mmap-lock",
    Fence "fence",
    FileLock "file-lock",
    PageFault "page-fault",
    PageLock "page-lock",
    Writeback "writeback",
    Block "block",
    Softirq "softirq",
    Interrupt "interrupt",
    Work "work",
);

/// Facts about a thread at one moment: the fields of its `task_struct`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCounts {
    /// Which moment.
    pub moment: Moment,
    /// The process that made its process (`real_parent`).
    pub parent_pid: Option<u32>,
    /// Its number in the PID namespace that it is in.
    pub namespace_tid: Option<u32>,
    /// When it began (`start_time`), on the trace's clock.
    pub started: Option<Nanos>,
    /// The path of its cgroup, from the root of the hierarchy.
    pub cgroup: Option<Text>,
    /// Its priority.
    pub priority: Option<i32>,
    /// How often it left its CPU by itself (`nvcsw`).
    pub voluntary: Option<u64>,
    /// How often its CPU was taken from it (`nivcsw`).
    pub involuntary: Option<u64>,
    /// CPU time that it has had (`se.sum_exec_runtime`).
    pub cpu: Option<Nanos>,
    /// Time in which it was ready and had no CPU (`sched_info.run_delay`).
    pub run_delay: Option<Nanos>,
    /// Page faults that needed no disk (`min_flt`).
    pub minor_faults: Option<u64>,
    /// Page faults that needed the disk (`maj_flt`).
    pub major_faults: Option<u64>,
}

/// When a thread was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moment {
    /// When the recording of it began: it existed before.
    Begin,
    /// When it was made (`task_newtask`).
    New,
    /// When it got another name (`task_rename`), which the row has.
    Renamed,
    /// When it ended (`sched_process_exit`).
    Exit,
    /// When the recording ended: it exists still.
    End,
}

words!(
    Moment, "moment",
    Begin "begin",
    New "new",
    Renamed "renamed",
    Exit "exit",
    End "end",
);

/// A type that has a kind's own columns.
pub(super) trait Row: Sized {
    /// The columns that it uses.
    const COLUMNS: &'static [Column];

    fn put_cells(&self, to: &mut impl Put);

    /// Reads it; the columns of every event may be read, too. It is made where it stays: a wait has 400 bytes.
    fn from_cells(from: &impl Get) -> Result<Box<Self>, Wrong>;
}

/// Says in which columns the fields of a type stand. `put` and `read` add what is not that simple, in the columns of
/// `own`.
macro_rules! row {
    (
        $type:ident { $($field:ident = $($column:ident)+;)* }
        own { $($own:ident)* }
        put |$row:ident, $to:ident| $put:expr;
        read |$made:ident, $from:ident| $read:expr;
        $(rest $rest:expr;)?
    ) => {
        impl Row for $type {
            const COLUMNS: &'static [Column] =
                &[$(Column::$own,)* $($(Column::$column),+),*];

            fn put_cells(&self, $to: &mut impl Put) {
                $( self.$field.put_cells(&[$(Column::$column),+], $to); )*
                let $row = self;
                $put
            }

            fn from_cells($from: &impl Get) -> Result<Box<$type>, Wrong> {
                #[allow(unused_mut)] // of some, all columns are fields
                let mut $made = row!(made $type { $($field = $($column)+;)* } $from $($rest)?);
                $read
            }
        }
    };
    (made $type:ident { $($field:ident = $($column:ident)+;)* } $from:ident) => {
        Box::new($type {
            $( $field: Cell::from_cells(&[$(Column::$column),+], $from)?, )*
        })
    };
    (made $type:ident { $($field:ident = $($column:ident)+;)* } $from:ident $rest:expr) => {{
        let mut made: Box<$type> = Box::write(Box::new_uninit(), $rest);
        $( made.$field = Cell::from_cells(&[$(Column::$column),+], $from)?; )*
        made
    }};
}

word_cells!(State Within Context Activity Moment);

row! {
    Wait {
        left = LeftNs;
        woken = WokenNs;
        left_cpu = LeftCpu;
        state = State;
        preempted = Preempted;
        throttled = Throttled;
        for_io = ForIo;
        priority = Priority;
        within = Within;
        call = Syscall SyscallName Argument0 Argument1 Argument2;
        instruction_pointer = InstructionPointer;
        stack_pointer = StackPointer;
        stack = Stack StackOfLikeWait;
        user_stack = UserStack UserStackOfLikeWait;
        next = NextTid NextComm;
        previous = PreviousTid PreviousComm;
        waker = WakerTid WakerComm WakerContext
            WakerSyscall WakerSyscallName WakerArgument0 WakerArgument1 WakerArgument2;
    }
    own { BeganBefore Open }
    put |wait, to| {
        wait.began_before.put_cells(&[Column::BeganBefore], to);
        wait.ran.is_none().put_cells(&[Column::Open], to);
    };
    read |wait, from| {
        let time = Cell::from_cells(&[Column::TimeNs], from)?;
        let (left, woken) = ((Column::LeftNs, Some(wait.left)), (Column::WokenNs, wait.woken));
        in_order(&[left, woken, (Column::TimeNs, Some(time))])?;
        wait.began_before = is_set(Column::BeganBefore, from)?;
        // The row's time is when it ran again.
        wait.ran = (!is_set(Column::Open, from)?).then_some(time);
        Ok(wait)
    };
    rest Wait::default();
}

row! {
    Span {
        what = What;
        begin = BeginNs;
        issued = IssuedNs;
        name = Name;
        order = Order;
        gfp = Gfp;
        node = Node;
        synchronous = Synchronous;
        scanned = Scanned;
        reclaimed = Reclaimed;
        status = Status;
        reason = Reason;
        shrinker = Shrinker;
        lock = Lock;
        address = Address;
        write = Write;
        holder = HolderTid;
        inode = Inode;
        driver = Driver;
        timeline = Timeline;
        context = Context;
        seqno = Seqno;
        device = Device;
        sector = Sector;
        length = LengthBytes;
        operation = Operation;
        result = Result;
    }
    own { Open }
    put |span, to| {
        span.open.put_cells(&[Column::Open], to);
    };
    read |span, from| {
        let time = Cell::from_cells(&[Column::TimeNs], from)?;
        let (begin, issued) = ((Column::BeginNs, Some(span.begin)), (Column::IssuedNs, span.issued));
        in_order(&[begin, issued, (Column::TimeNs, Some(time))])?;
        span.open = is_set(Column::Open, from)?;
        Ok(span)
    };
    rest Span::new(Activity::Block, Nanos(0));
}

impl Span {
    /// A span of which nothing else is known.
    #[must_use]
    pub fn new(what: Activity, begin: Nanos) -> Span {
        Span {
            what,
            begin,
            open: false,
            issued: None,
            name: None,
            order: None,
            gfp: None,
            node: None,
            synchronous: None,
            scanned: None,
            reclaimed: None,
            status: None,
            reason: None,
            shrinker: None,
            lock: None,
            address: None,
            write: None,
            holder: None,
            inode: None,
            driver: None,
            timeline: None,
            context: None,
            seqno: None,
            device: None,
            sector: None,
            length: None,
            operation: None,
            result: None,
        }
    }
}

row! {
    TaskCounts {
        moment = Moment;
        parent_pid = ParentPid;
        namespace_tid = NamespaceTid;
        started = StartedNs;
        cgroup = Cgroup;
        priority = Priority;
        voluntary = VoluntarySwitches;
        involuntary = InvoluntarySwitches;
        cpu = CpuTimeNs;
        run_delay = RunDelayNs;
        minor_faults = MinorFaults;
        major_faults = MajorFaults;
    }
    own {}
    put |_task, to| {};
    read |task, from| Ok(task);
}

/// Whether a column is true; null is false.
#[inline(always)]
fn is_set(column: Column, from: &impl Get) -> Result<bool, Wrong> {
    let set: Option<bool> = Cell::from_cells(&[column], from)?;
    Ok(set == Some(true))
}

/// Refuses moments of which a later one comes first.
#[inline]
fn in_order(moments: &[(Column, Option<Nanos>)]) -> Result<(), Wrong> {
    let mut last: Option<(Column, Nanos)> = None;
    for (column, time) in moments {
        let Some(time) = *time else { continue };
        if let Some((before, early)) = last.filter(|(_, early)| *early > time) {
            let (column, before) = (column.name(), before.name());
            return Err(Wrong(format!(
                "{column} {} is before {before} {}",
                time.0, early.0
            )));
        }
        last = Some((*column, time));
    }
    Ok(())
}

/// Returns whether something is there: where the first of its columns is not null. Else all of them must be null.
#[inline(always)]
fn is_there(columns: &[Column], from: &impl Get) -> Result<bool, Wrong> {
    if from.has(columns[0]) {
        return Ok(true);
    }
    match columns.iter().find(|&&column| from.has(column)) {
        None => Ok(false),
        Some(&other) => Err(alone(columns[0], other)),
    }
}

#[cold]
fn alone(first: Column, other: Column) -> Wrong {
    Wrong(format!(
        "column {} is null, but column {} is not",
        first.name(),
        other.name()
    ))
}

impl Cell for Option<Task> {
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        let Some(task) = self else { return };
        task.tid.put_cells(&columns[..1], to);
        task.comm.put_cells(&columns[1..], to);
    }
    #[inline(always)]
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<Option<Task>, Wrong> {
        if !is_there(columns, from)? {
            return Ok(None);
        }
        Ok(Some(Task {
            tid: Cell::from_cells(&columns[..1], from)?,
            comm: Cell::from_cells(&columns[1..], from)?,
        }))
    }
}

impl Cell for Option<Call> {
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        let Some(call) = self else { return };
        call.number.put_cells(&columns[..1], to);
        call.name.put_cells(&columns[1..], to);
        call.arguments.put_cells(&columns[2..], to);
    }
    #[inline(always)]
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<Option<Call>, Wrong> {
        if !is_there(columns, from)? {
            return Ok(None);
        }
        Ok(Some(Call {
            number: Cell::from_cells(&columns[..1], from)?,
            name: Cell::from_cells(&columns[1..], from)?,
            arguments: Cell::from_cells(&columns[2..], from)?,
        }))
    }
}

impl Cell for Option<Waker> {
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        let Some(waker) = self else { return };
        waker.task.tid.put_cells(&columns[..1], to);
        waker.task.comm.put_cells(&columns[1..], to);
        waker.context.put_cells(&columns[2..], to);
        waker.call.put_cells(&columns[3..], to);
    }
    #[inline(always)]
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<Option<Waker>, Wrong> {
        if !is_there(columns, from)? {
            return Ok(None);
        }
        Ok(Some(Waker {
            task: Task {
                tid: Cell::from_cells(&columns[..1], from)?,
                comm: Cell::from_cells(&columns[1..], from)?,
            },
            context: Cell::from_cells(&columns[2..], from)?,
            call: Cell::from_cells(&columns[3..], from)?,
        }))
    }
}

impl Cell for Option<Stack> {
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        let Some(stack) = self else { return };
        stack.frames.put_cells(&columns[..1], to);
        stack.of_a_like_wait.put_cells(&columns[1..], to);
    }
    #[inline(always)]
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<Option<Stack>, Wrong> {
        if !is_there(columns, from)? {
            return Ok(None);
        }
        Ok(Some(Stack {
            frames: Cell::from_cells(&columns[..1], from)?,
            of_a_like_wait: is_set(columns[1], from)?,
        }))
    }
}

#[cfg(test)]
mod tests;
