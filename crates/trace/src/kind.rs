//! What can happen, and which columns say it: one definition for the Parquet file, the JSON line
//! and their documentation.

use super::cell::{Cell, Get, Put, Text, Wrong, word_cells};
use super::column::Column;
use super::row::Row;
use stopgap_events::memory::MemoryEvent;
use stopgap_events::range::AddressRange;
use stopgap_events::units::{Bytes, Nanos, Pages};
use stopgap_events::wait::Context;
use stopgap_events::words;

/// The agent that frees memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reclaimer {
    /// The task that needs memory, for itself (`mm_vmscan_direct_reclaim_*`).
    Direct,
    /// The kernel's thread (`mm_vmscan_kswapd_wake`, `_sleep`).
    Kswapd,
    /// The task whose memory cgroup is full (`mm_vmscan_memcg_reclaim_*`).
    Memcg,
    /// One shrinker, within one of the others (`mm_shrink_slab_*`).
    Shrinker,
    /// Nobody: the task is made to wait for the others (`mm_vmscan_throttled`).
    Throttled,
}

words!(
    Reclaimer, "reclaimer",
    Direct "direct",
    Kswapd "kswapd",
    Memcg "memcg",
    Shrinker "shrinker",
    Throttled "throttled",
);
word_cells!(Reclaimer);

/// Defines [`Kind`]: per kind its word, and per field the columns that it stands in.
macro_rules! kinds {
    (
        rows {
            $($boxed:ident($row:ty) $boxed_word:literal $boxed_what:literal;)*
        }
        $(
        $(#[$doc:meta])*
        $kind:ident $word:literal $what:literal {
            $( $(#[$field_doc:meta])* $field:ident: $type:ty = $($column:ident)+; )*
        }
        )+
    ) => {
        /// An event. `None` means unknown or not applicable.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Kind {
            /// A memory event: map, unmap, protect, touch, or the begin of a part.
            Memory {
                /// The request to the memory map.
                event: MemoryEvent,
                /// Where the mapping (of a protect: what changes) lies.
                range: Option<AddressRange>,
            },
            $( #[doc = $boxed_what] $boxed(Box<$row>), )*
            $(
                $(#[$doc])*
                #[doc = $what]
                $kind { $( $(#[$field_doc])* $field: $type, )* },
            )+
        }

        impl Kind {
            /// Its word in the column `kind`.
            #[must_use]
            pub fn word(&self) -> &'static str {
                match self {
                    Kind::Memory { event, .. } => super::memory::word(event),
                    $( Kind::$boxed(_) => $boxed_word, )*
                    $( Kind::$kind { .. } => $word, )+
                }
            }

            /// Puts all but the kind itself.
            pub(super) fn put_cells(&self, to: &mut impl Put) {
                match self {
                    Kind::Memory { event, range } => super::memory::put_cells(event, *range, to),
                    $( Kind::$boxed(row) => row.put_cells(to), )*
                    $( Kind::$kind { $($field),* } => {
                        $( $field.put_cells(&[$(Column::$column),+], to); )*
                    } )+
                }
            }

            /// The kind of that word from its columns.
            pub(super) fn from_cells(word: &str, from: &impl Get) -> Result<Kind, Wrong> {
                match word {
                    $( $boxed_word => Row::from_cells(from).map(Kind::$boxed), )*
                    $( $word => Ok(Kind::$kind {
                        $( $field: Cell::from_cells(&[$(Column::$column),+], from)?, )*
                    }), )+
                    _ => super::memory::from_cells(word, from),
                }
            }
        }

        /// Every kind's word, what it is, and the columns that it uses besides those of every event.
        pub const KINDS: &[(&str, &str, &[Column])] = &[
            super::memory::KINDS[0],
            super::memory::KINDS[1],
            super::memory::KINDS[2],
            super::memory::KINDS[3],
            super::memory::KINDS[4],
            $( ($boxed_word, $boxed_what, <$row>::COLUMNS), )*
            $( ($word, $what, &[$($(Column::$column),+),*]), )+
        ];
    };
}

kinds! {
    rows {
        Wait(stopgap_events::wait::Wait) "wait" "A thread was off its CPU; it runs again now (`sched_switch` twice, `sched_waking`).";
        Span(super::row::Span) "span" "What a thread was in the midst of is over: `what` says the kernel's events; the thread waited, or the work was done in its place.";
        Task(super::row::TaskCounts) "task" "What the kernel has counted of a thread (its `task_struct`), at the moment that `moment` says.";
    }
    Switch "switch" "A thread leaves its CPU, another gets it (`sched_switch`, `PERF_RECORD_SWITCH`)." {
        /// The state in which it leaves, in the kernel's letters.
        state: Option<Text> = State;
        /// Whether it could have run on.
        preempted: Option<bool> = Preempted;
        /// Its priority.
        priority: Option<i32> = Priority;
        /// The thread that gets the CPU; 0 is the idle task.
        next_tid: Option<u32> = NextTid;
        /// Its name.
        next_comm: Option<Text> = NextComm;
        /// Its priority.
        next_priority: Option<i32> = NextPriority;
        /// Where in the kernel it leaves.
        stack: Option<Stack> = Stack;
    }
    Waking "waking" "The thread wakes another (`sched_waking`)." {
        /// The woken thread.
        target_tid: u32 = TargetTid;
        /// Its name.
        target_comm: Option<Text> = TargetComm;
        /// Its priority.
        target_priority: Option<i32> = TargetPriority;
        /// Where it is to run.
        target_cpu: Option<u32> = TargetCpu;
        /// On whose behalf the CPU acts.
        waker_context: Option<Context> = WakerContext;
    }
    New "new" "A new thread may run for the first time (`sched_wakeup_new`)." {
        /// Who.
        target_tid: u32 = TargetTid;
        /// Its name.
        target_comm: Option<Text> = TargetComm;
        /// Its priority.
        target_priority: Option<i32> = TargetPriority;
        /// Where it is to run.
        target_cpu: Option<u32> = TargetCpu;
    }
    Fork "fork" "The thread makes another thread or process (`sched_process_fork`)." {
        /// The new one.
        target_tid: u32 = TargetTid;
        /// Its process: another than the row's unless it is a thread.
        target_pid: Option<u32> = TargetPid;
        /// Its name.
        target_comm: Option<Text> = TargetComm;
    }
    Exec "exec" "The process runs another program (`sched_process_exec`)." {
        /// Which.
        filename: Option<Text> = Filename;
        /// Its thread id before.
        old_tid: Option<u32> = OldTid;
    }
    Exit "exit" "The thread ends (`sched_process_exit`)." {
        /// Its priority.
        priority: Option<i32> = Priority;
    }
    SyscallEnter "syscall-enter" "A system call begins (`sys_enter`)." {
        /// Its number.
        number: u32 = Syscall;
        /// Its name.
        name: Option<Text> = SyscallName;
        /// Its arguments; unknown ones are `None`.
        arguments: [Option<u64>; 6] = Argument0 Argument1 Argument2 Argument3 Argument4 Argument5;
    }
    SyscallExit "syscall-exit" "A system call ends (`sys_exit`)." {
        /// Its number.
        number: u32 = Syscall;
        /// Its name.
        name: Option<Text> = SyscallName;
        /// Its return value.
        result: Option<i64> = Result;
    }
    UnmappedArea "unmapped-area" "The kernel has looked for a hole (`vm_unmapped_area`)." {
        /// The address that it found.
        address: Option<u64> = Address;
        /// How much was asked for.
        length: Bytes = LengthBytes;
        /// Within what.
        limits: Option<AddressRange> = LimitStart LimitEnd;
        /// The alignment asked for, as a power of two.
        alignment: Option<Bytes> = AlignmentBytes;
        /// The start asked for, modulo the alignment.
        offset: Option<Bytes> = OffsetBytes;
        /// Whether from the top.
        top_down: Option<bool> = TopDown;
        /// How much the process has mapped.
        total: Option<Pages> = TotalPages;
        /// -errno where there was none.
        result: Option<i64> = Result;
    }
    PageFault "page-fault" "A page is absent, or its access is not allowed (`page_fault_user`, `page_fault_kernel`)." {
        /// The address used.
        address: u64 = Address;
        /// By which instruction.
        instruction_pointer: Option<u64> = InstructionPointer;
        /// The processor's code.
        error_code: Option<u64> = ErrorCode;
        /// From user mode?
        user: Option<bool> = User;
    }
    ReclaimBegin "reclaim-begin" "Memory begins to be freed." {
        /// By whom.
        by: Reclaimer = Reclaim;
        /// For an allocation of this order.
        order: Option<u32> = Order;
        /// With these flags.
        gfp: Option<Text> = Gfp;
        /// On this node.
        node: Option<u32> = Node;
        /// By this shrinker.
        shrinker: Option<Text> = Shrinker;
    }
    ReclaimEnd "reclaim-end" "Memory has been freed, or the wait for that is over." {
        /// By whom.
        by: Reclaimer = Reclaim;
        /// For an allocation of this order.
        order: Option<u32> = Order;
        /// On this node.
        node: Option<u32> = Node;
        /// Pages looked at; a shrinker's objects.
        scanned: Option<u64> = Scanned;
        /// Pages freed; a shrinker's objects.
        reclaimed: Option<u64> = Reclaimed;
        /// By this shrinker.
        shrinker: Option<Text> = Shrinker;
        /// Why it was throttled.
        reason: Option<Text> = Reason;
        /// How long it was throttled.
        duration: Option<Nanos> = DurationNs;
    }
    CompactionBegin "compaction-begin" "Pages begin to be moved together (`mm_compaction_begin`)." {
        /// For an allocation of this order.
        order: Option<u32> = Order;
        /// With these flags.
        gfp: Option<Text> = Gfp;
        /// On this node.
        node: Option<u32> = Node;
        /// Whether it may wait.
        synchronous: Option<bool> = Synchronous;
    }
    CompactionEnd "compaction-end" "Compaction ends (`mm_compaction_end`)." {
        /// For an allocation of this order.
        order: Option<u32> = Order;
        /// On this node.
        node: Option<u32> = Node;
        /// How it ended.
        status: Option<Text> = Status;
    }
    Extfrag "extfrag" "A block of another migrate type was taken (`mm_page_alloc_extfrag`)." {
        /// Its first page.
        frame: Option<u64> = Frame;
        /// The order asked for.
        order: u32 = Order;
        /// The order of the block.
        fallback_order: Option<u32> = FallbackOrder;
        /// The type asked for.
        migrate_type: Option<Text> = MigrateType;
        /// The type of the block.
        fallback_migrate_type: Option<Text> = FallbackMigrateType;
        /// Whether the pageblock changed its type.
        changed_ownership: Option<bool> = ChangedOwnership;
    }
    LockBegin "lock-begin" "A thread begins to wait for a lock (`contention_begin`, `mmap_lock_start_locking`)." {
        /// Which kind.
        lock: Option<Text> = Lock;
        /// Which one.
        address: Option<u64> = Address;
        /// For writing?
        write: Option<bool> = Write;
    }
    LockEnd "lock-end" "The wait for a lock is over (`contention_end`, `mmap_lock_acquire_returned`)." {
        /// Which kind.
        lock: Option<Text> = Lock;
        /// Which one.
        address: Option<u64> = Address;
        /// For writing?
        write: Option<bool> = Write;
        /// 0 where it was got.
        result: Option<i64> = Result;
    }
    LockRelease "lock-release" "A lock is given back (`mmap_lock_released`)." {
        /// Which kind.
        lock: Option<Text> = Lock;
        /// Which one.
        address: Option<u64> = Address;
        /// Was it held for writing?
        write: Option<bool> = Write;
    }
    FileLock "file-lock" "A thread locks a range of a file, tries to, or unlocks it (`posix_lock_inode`, `flock_lock_inode`)." {
        /// By which call.
        lock: Text = Lock;
        /// On which file system.
        device: Text = Device;
        /// Which file.
        inode: u64 = Inode;
        /// The first byte.
        start: u64 = Address;
        /// How much; `None`: to the end of the file.
        length: Option<Bytes> = LengthBytes;
        /// For writing? `None`: it unlocks.
        write: Option<bool> = Write;
        /// For whom.
        owner: u64 = Owner;
        /// 0, -errno, or 1 where the thread sleeps until the lock is free.
        result: i64 = Result;
    }
    BlockInsert "block-insert" "A request comes into the queue of a block device (`block_rq_insert`)." {
        /// Which device.
        device: Text = Device;
        /// From where.
        sector: u64 = Sector;
        /// How much.
        length: Option<Bytes> = LengthBytes;
        /// What.
        operation: Option<Text> = Operation;
    }
    BlockIssue "block-issue" "A request goes to a block device (`block_rq_issue`)." {
        /// Which device.
        device: Text = Device;
        /// From where.
        sector: u64 = Sector;
        /// How much.
        length: Option<Bytes> = LengthBytes;
        /// What.
        operation: Option<Text> = Operation;
    }
    BlockMerge "block-merge" "What a thread asks of a block device becomes a part of a request that is there (`block_bio_backmerge`, `block_bio_frontmerge`), or a request of another one (`block_rq_merge`)." {
        /// Which device.
        device: Text = Device;
        /// From where.
        sector: u64 = Sector;
        /// How much.
        length: Option<Bytes> = LengthBytes;
        /// What.
        operation: Option<Text> = Operation;
    }
    BlockComplete "block-complete" "A block device is done (`block_rq_complete`)." {
        /// Which device.
        device: Text = Device;
        /// From where.
        sector: u64 = Sector;
        /// How much.
        length: Option<Bytes> = LengthBytes;
        /// What.
        operation: Option<Text> = Operation;
        /// 0 or -errno.
        result: Option<i64> = Result;
    }
    FenceInit "fence-init" "A thread submits work to a device, for which a fence stands (`dma_fence_init`)." {
        /// Whose.
        driver: Option<Text> = Driver;
        /// On which timeline.
        timeline: Option<Text> = Timeline;
        /// Its context.
        context: u64 = Context;
        /// Its sequence number.
        seqno: u64 = Seqno;
    }
    FenceWaitBegin "fence-wait-begin" "A thread begins to wait for a fence (`dma_fence_wait_start`)." {
        /// Whose.
        driver: Option<Text> = Driver;
        /// On which timeline.
        timeline: Option<Text> = Timeline;
        /// Its context.
        context: Option<u64> = Context;
        /// Its sequence number.
        seqno: Option<u64> = Seqno;
    }
    FenceWaitEnd "fence-wait-end" "The wait for a fence is over (`dma_fence_wait_end`)." {
        /// Whose.
        driver: Option<Text> = Driver;
        /// On which timeline.
        timeline: Option<Text> = Timeline;
        /// Its context.
        context: Option<u64> = Context;
        /// Its sequence number.
        seqno: Option<u64> = Seqno;
    }
    Signal "signal" "A signal is sent (`signal_generate`), by the thread or, where `tid` is null, nobody knows by whom." {
        /// Its number.
        signal: u32 = Signal;
        /// The thread that it is sent to; where it is for the process, one of its threads.
        target_tid: u32 = TargetTid;
        /// Its process.
        target_pid: Option<u32> = TargetPid;
        /// Its name.
        target_comm: Option<Text> = TargetComm;
        /// Whether it is sent to the whole process.
        to_process: Option<bool> = ToProcess;
        /// 0 delivered, 1 ignored, 2 pending already, 3 no memory to queue it, 4 details lost (`TRACE_SIGNAL_*`).
        result: Option<i64> = Result;
    }
    Sample "sample" "Where a thread was when the profiler looked (`cpu-clock`)." {
        /// The calls.
        stack: Stack = Stack;
    }
    Counter "counter" "A number that somebody reads from time to time (mappings, pressure)." {
        /// Which.
        name: Text = Name;
        /// Its present value.
        value: i64 = Value;
    }
    Mark "mark" "A point that somebody marked (a frame's end)." {
        /// What.
        name: Text = Name;
    }
    Waits "waits" "Waits of one cause in one call, of the processes of one name in one cgroup, that ended between `begin_ns` and `time_ns`, added up (the history of `watch`). Without a `comm`: of processes or calls that there was no room to tell apart." {
        /// When the counting began.
        begin: Nanos = BeginNs;
        /// The end on the clock that runs since boot (`CLOCK_MONOTONIC`).
        uptime: Option<Nanos> = UptimeNs;
        /// The boot.
        boot: Option<Text> = BootId;
        /// The cgroup of the processes.
        cgroup: Option<Text> = Cgroup;
        /// The name of the call.
        call: Option<Text> = SyscallName;
        /// Why they waited.
        cause: Text = Cause;
        /// How many waits.
        waits: u64 = Waits;
        /// Their lengths together.
        sum: Nanos = SumNs;
        /// The longest.
        longest: Nanos = LongestNs;
        /// How many of which length.
        buckets: Text = Buckets;
    }
}

/// A call stack as flame graphs write it: outermost call first, frames joined by `;`, a kernel
/// frame with `_[k]` at its end. A frame is a function's name, or its address as `0x...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack(pub Text);

impl Stack {
    /// The stack of these frames, outermost first. A `;` inside a name becomes `:`.
    pub fn new<'a>(frames: impl IntoIterator<Item = &'a str>) -> Stack {
        let frames: Vec<String> = frames
            .into_iter()
            .map(|frame| frame.replace(';', ":"))
            .collect();
        Stack(frames.join(";").into())
    }

    /// Its frames, outermost first.
    pub fn frames(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split(';').filter(|frame| !frame.is_empty())
    }
}

impl super::cell::Scalar for Stack {
    fn value(&self) -> super::cell::Value<'_> {
        self.0.value()
    }
    fn from_value(column: Column, value: super::cell::Value<'_>) -> Result<Stack, Wrong> {
        Text::from_value(column, value).map(Stack)
    }
}
