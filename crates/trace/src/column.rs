//! The columns of the trace file, each once. A JSON line has the same names.

/// The type of a column's values. Any value may be null where the event has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// An unsigned number of 32 bits.
    U32,
    /// A signed number of 32 bits.
    I32,
    /// An unsigned number of 64 bits.
    U64,
    /// A signed number of 64 bits.
    I64,
    /// True or false.
    Bool,
    /// UTF-8.
    Text,
}

impl ColumnType {
    /// As the documentation and SQL call it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            ColumnType::U32 => "uint32",
            ColumnType::I32 => "int32",
            ColumnType::U64 => "uint64",
            ColumnType::I64 => "int64",
            ColumnType::Bool => "bool",
            ColumnType::Text => "text",
        }
    }
}

macro_rules! columns {
    ($($column:ident $name:literal $type:ident $unit:literal $what:literal;)+) => {
        /// One column of the trace file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // each has its text in `what`
        pub enum Column { $($column),+ }

        impl Column {
            /// All of them, in the order of the file.
            pub const ALL: &'static [Column] = &[$(Column::$column),+];

            /// Its name in the file and in a JSON line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Column::$column => $name),+ }
            }

            /// Returns the type of its values.
            #[must_use]
            pub const fn column_type(self) -> ColumnType {
                match self { $(Column::$column => ColumnType::$type),+ }
            }

            /// Its unit; empty where it has none.
            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self { $(Column::$column => $unit),+ }
            }

            /// Returns its meaning, as `docs/schema/stopgap.trace-2.md` has it.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Column::$column => $what),+ }
            }

            /// The column of that name.
            #[must_use]
            pub fn named(name: &str) -> Option<Column> {
                match name { $($name => Some(Column::$column),)+ _ => None }
            }
        }
    };
}

columns! {
    TimeNs "time_ns" U64 "ns" "when, on the clock that the metadata names; never null";
    Kind "kind" Text "" "what happened: a word of the table above; never null";
    Cpu "cpu" U32 "" "CPU on which it happened";
    Pid "pid" U32 "" "process (thread group) to which it happened";
    Tid "tid" U32 "" "thread to which it happened; of a switch the one that leaves";
    Comm "comm" Text "" "that thread's name";
    Id "id" U32 "" "the mapping's name: of no two at a time, later of another perhaps";
    Address "address" U64 "" "where: a mapping's start, the address of a fault or of a lock; of a file's lock the first byte of its range";
    LengthBytes "length_bytes" U64 "bytes" "how much";
    Protection "protection" Text "" "`none`, `read` or `write`";
    Merge "merge" Text "" "`may` or `never`: whether the mapping may join its neighbours";
    AlignmentBytes "alignment_bytes" U64 "bytes" "power of two that its start is to be a multiple of, less `offset_bytes`";
    OffsetBytes "offset_bytes" U64 "bytes" "what its start is to be modulo `alignment_bytes`";
    LimitStart "limit_start" U64 "" "first address that is allowed";
    LimitEnd "limit_end" U64 "" "first address that is no longer allowed";
    Hint "hint" U64 "" "address to be given if it is free";
    Phase "phase" Text "" "`layout`, `steady` or `round`: the part of the workload that begins";
    LeftNs "left_ns" U64 "ns" "when the thread left its CPU; where `began_before` is true, the first moment at which it may have been off one";
    BeganBefore "began_before" Bool "" "whether its leaving was not seen: it was before the recording began, or that switch was lost; null is false";
    WokenNs "woken_ns" U64 "ns" "when the thread was made runnable; null where that was not seen, or it was runnable all the time";
    Open "open" Bool "" "whether its end was not seen: `time_ns` is the end of the recording, or, of a wait whose last switch was lost, when the thread was seen; null is false";
    LeftCpu "left_cpu" U32 "" "CPU that the thread left; `cpu` is that on which it ran again";
    State "state" Text "" "state in which a thread leaves its CPU, in the kernel's letters: `R` runnable, `S` asleep, `D` asleep and no signal wakes it, `I` an idle kernel thread, `T` stopped, `t` stopped by a tracer, `P` parked, `X` ended";
    Preempted "preempted" Bool "" "whether it was pre-empted: it could have run on";
    Throttled "throttled" Bool "" "whether it left because its cgroup had used up its CPU time (`cpu.max`)";
    ForIo "for_io" Bool "" "whether the kernel counts the sleep as one for I/O";
    Within "within" Text "" "where the thread was when it left: `call`, `user`, `kernel` (a kernel thread), `new` (it had not run yet)";
    Priority "priority" I32 "" "the kernel's priority of the thread, lower is more urgent";
    NextTid "next_tid" U32 "" "thread that gets the CPU; 0 is the idle task";
    NextComm "next_comm" Text "" "its name";
    NextPriority "next_priority" I32 "" "its priority";
    PreviousTid "previous_tid" U32 "" "thread that had the CPU on which this one ran again, before it; 0 is the idle task, null where a kernel hides that switch";
    PreviousComm "previous_comm" Text "" "its name";
    WakerTid "waker_tid" U32 "" "thread that had the CPU on which the wake-up happened";
    WakerComm "waker_comm" Text "" "its name";
    WakerContext "waker_context" Text "" "on whose behalf that CPU acted: `task` (the thread itself), `softirq`, `interrupt` (where the source does not tell them apart, either of the two)";
    WakerSyscall "waker_syscall" U32 "" "number of the system call that the waker was in";
    WakerSyscallName "waker_syscall_name" Text "" "its name";
    WakerArgument0 "waker_argument0" U64 "" "its first argument";
    WakerArgument1 "waker_argument1" U64 "" "second";
    WakerArgument2 "waker_argument2" U64 "" "third";
    TargetTid "target_tid" U32 "" "thread that is woken or made, or gets a signal";
    TargetPid "target_pid" U32 "" "its process";
    TargetComm "target_comm" Text "" "its name";
    TargetPriority "target_priority" I32 "" "its priority";
    TargetCpu "target_cpu" U32 "" "CPU that it is to run on";
    Filename "filename" Text "" "program that is started";
    OldTid "old_tid" U32 "" "thread id before an exec from a thread that is not the first";
    Syscall "syscall" U32 "" "number of the system call, as the machine counts them";
    SyscallName "syscall_name" Text "" "its name";
    Argument0 "argument0" U64 "" "first argument, as the register had it";
    Argument1 "argument1" U64 "" "second";
    Argument2 "argument2" U64 "" "third";
    Argument3 "argument3" U64 "" "fourth";
    Argument4 "argument4" U64 "" "fifth";
    Argument5 "argument5" U64 "" "sixth";
    Result "result" I64 "" "what came back; an error as -errno; of a signal 0 delivered, 1 ignored, 2 pending already, 3 no memory to queue it, 4 details lost";
    InstructionPointer "instruction_pointer" U64 "" "instruction that faulted; of a wait the next one in user mode";
    StackPointer "stack_pointer" U64 "" "stack pointer in user mode";
    ErrorCode "error_code" U64 "" "the processor's error code of a fault";
    User "user" Bool "" "whether the fault came from user mode";
    TopDown "top_down" Bool "" "whether the search began at the highest address";
    TotalPages "total_pages" U64 "pages" "pages mapped by the process";
    Reclaim "reclaim" Text "" "who reclaims: `direct`, `kswapd`, `memcg`, `shrinker`; `throttled` waits for it";
    Order "order" U32 "" "order of the allocation: 2^order pages";
    Gfp "gfp" Text "" "flags of the allocation, the kernel's words joined by `|`, or a hexadecimal number";
    Node "node" U32 "" "memory node";
    Scanned "scanned" U64 "pages" "pages looked at; of a shrinker: objects";
    Reclaimed "reclaimed" U64 "pages" "pages freed; of a shrinker: objects";
    Shrinker "shrinker" Text "" "the shrinker's function";
    Reason "reason" Text "" "why a task was throttled";
    DurationNs "duration_ns" U64 "ns" "how long it took, where the event itself says so";
    Synchronous "synchronous" Bool "" "whether compaction may wait";
    Status "status" Text "" "how compaction ended, the kernel's word";
    Frame "frame" U64 "pages" "page frame number";
    FallbackOrder "fallback_order" U32 "" "order of the block that was taken instead";
    Inode "inode" U64 "" "number of the file that is locked";
    Owner "owner" U64 "" "what the lock of a file belongs to: address of the process's table of files, or of the open file";
    MigrateType "migrate_type" Text "" "migrate type asked for";
    FallbackMigrateType "fallback_migrate_type" Text "" "migrate type of the block that was taken";
    ChangedOwnership "changed_ownership" Bool "" "whether the whole pageblock changed its type";
    Lock "lock" Text "" "which lock: `mmap`, or the kernel's words for its kind; of a file `fcntl` (a process's), `open-file` (`F_OFD_SETLK`), `flock`";
    Write "write" Bool "" "whether it is taken for writing";
    Device "device" Text "" "block device, or that of a file's file system, `major:minor`";
    Sector "sector" U64 "sectors of 512 bytes" "first sector";
    Operation "operation" Text "" "kind of request, the kernel's letters (`R`, `WS`)";
    Driver "driver" Text "" "driver of the fence";
    Timeline "timeline" Text "" "timeline of the fence";
    Context "context" U64 "" "context of the fence";
    Seqno "seqno" U64 "" "sequence number of the fence";
    Stack "stack" Text "" "call stack, outermost first, frames joined by `;`; kernel frames end in `_[k]`; of a wait the kernel's frames alone";
    StackOfLikeWait "stack_of_like_wait" Bool "" "whether `stack` was taken of an earlier wait in the same call, at the same depth and instruction; null is false";
    UserStack "user_stack" Text "" "where in the program the thread waited, as `stack`";
    UserStackOfLikeWait "user_stack_of_like_wait" Bool "" "whether `user_stack` was taken of an earlier wait; null is false";
    Name "name" Text "" "name of a counter or a mark; of a span the work item's function, the softirq's name, the interrupt's handler or number";
    Value "value" I64 "" "the counter's value";
    What "what" Text "" "what it was, with the kernel's events at its ends: `direct-reclaim` (`mm_vmscan_direct_reclaim_begin`, `_end`), `memcg-reclaim` (`mm_vmscan_memcg_reclaim_begin`, `_end`), `kswapd` (`mm_vmscan_kswapd_wake`, `mm_vmscan_kswapd_sleep`), `throttled` (`mm_vmscan_throttled`), `shrinker` (`mm_shrink_slab_start`, `_end`), `compaction` (`mm_compaction_begin`, `_end`), `lock` (`contention_begin`, `_end`), `mmap-lock` (`mmap_lock_start_locking`, `mmap_lock_acquire_returned`), `fence` (`dma_fence_wait_start`, `_end`), `file-lock` (`posix_lock_inode`, `flock_lock_inode`: a moment), `page-fault` (`page_fault_user`, `page_fault_kernel`), `page-lock` (`folio_wait_bit()`), `writeback` (`folio_wait_writeback()`), `block` (`block_rq_insert` or `block_rq_issue`, `block_rq_complete`), `softirq` (`softirq_entry`, `_exit`), `interrupt` (`irq_handler_entry`, `_exit`), `work` (`workqueue_execute_start`, `_end`)";
    BeginNs "begin_ns" U64 "ns" "when the span began; of a block request when it came into the device's queue, or where that has none, was issued";
    IssuedNs "issued_ns" U64 "ns" "when the block request was issued to the device";
    HolderTid "holder_tid" U32 "" "thread that held the lock when the wait for it began; of a fence the one that submitted its work; of a file's lock of fcntl perhaps the first thread of the process";
    Moment "moment" Text "" "when the kernel's counts of the thread were read: `begin` of the recording, `new` thread (`task_newtask`), `renamed` (`task_rename`; `comm` is the new name), `exit` (`sched_process_exit`), `end` of the recording";
    ParentPid "parent_pid" U32 "" "process that made the thread's process";
    NamespaceTid "namespace_tid" U32 "" "the thread's number in its own PID namespace";
    StartedNs "started_ns" U64 "ns" "when the thread began";
    Cgroup "cgroup" Text "" "path of its cgroup, from the root of the hierarchy";
    VoluntarySwitches "voluntary_switches" U64 "" "how often it has left its CPU by itself";
    InvoluntarySwitches "involuntary_switches" U64 "" "how often its CPU was taken from it";
    CpuTimeNs "cpu_time_ns" U64 "ns" "CPU time that it has had";
    RunDelayNs "run_delay_ns" U64 "ns" "time in which it was ready and had no CPU";
    MinorFaults "minor_faults" U64 "" "page faults of it that needed no disk";
    MajorFaults "major_faults" U64 "" "page faults of it that needed the disk";
    Signal "signal" U32 "" "number of the signal";
    ToProcess "to_process" Bool "" "whether the signal is sent to the whole process";
    UptimeNs "uptime_ns" U64 "ns" "the row's time on the clock that runs since boot (`CLOCK_MONOTONIC`), where `time_ns` is on another";
    BootId "boot_id" Text "" "the boot in which it was";
    Cause "cause" Text "" "why threads waited, in `explain`'s words; `idle`: for work, for time or for a child";
    Waits "waits" U64 "" "how many waits; a sleep and the time without a CPU after it are two";
    SumNs "sum_ns" U64 "ns" "their lengths together";
    LongestNs "longest_ns" U64 "ns" "the longest of them";
    Buckets "buckets" Text "" "how many waits of which length, as `1024:5 1280:2`: 5 of at least 1,024 and less than 1,280 ns; four buckets for each doubling; `0` is below 1,024";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for (index, &column) in Column::ALL.iter().enumerate() {
            assert_eq!(column as usize, index);
            assert_eq!(Column::named(column.name()), Some(column));
        }
        assert_eq!(Column::named("Time_ns"), None);
    }
}
