//! Which events of the kernel are captured.

use stopgap_events::words;

/// How much is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSet {
    /// Switches, wake-ups, and the life of threads.
    Scheduling,
    /// That, and system calls, memory, locks, block I/O, fences, and the stacks of blocking threads.
    All,
}

/// What captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureSource {
    /// BPF programs: every wait, as one record.
    Bpf,
    /// The kernel's tracefs: switches, wake-ups and all other events.
    Tracefs,
    /// perf: switches of the user's own processes.
    Perf,
}

words!(CaptureSource, "source", Bpf "bpf", Tracefs "tracefs", Perf "perf");

words!(EventSet, "set of events", Scheduling "scheduling", All "all");

/// An event of the kernel: its system and its name in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventName {
    /// The folder below `events`.
    pub system: &'static str,
    /// The folder below that.
    pub event: &'static str,
}

impl std::fmt::Display for EventName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.system, self.event)
    }
}

macro_rules! names {
    ($($system:literal: $($event:literal)+;)+) => {
        &[$($(EventName { system: $system, event: $event },)+)+]
    };
}

/// Of [`EventSet::Scheduling`]. `task_newtask` alone says whether a fork made a thread or a process.
const SCHEDULING: &[EventName] = names! {
    "sched": "sched_switch" "sched_waking" "sched_wakeup_new"
        "sched_process_fork" "sched_process_exec" "sched_process_exit";
    "task": "task_newtask";
};

/// The events that [`EventSet::All`] adds. kswapd has none: the capture follows processes, and kswapd is no child of any.
const MORE: &[EventName] = names! {
    "raw_syscalls": "sys_enter" "sys_exit";
    "mmap": "vm_unmapped_area";
    "exceptions": "page_fault_user" "page_fault_kernel";
    "vmscan": "mm_vmscan_direct_reclaim_begin" "mm_vmscan_direct_reclaim_end"
        "mm_vmscan_memcg_reclaim_begin" "mm_vmscan_memcg_reclaim_end"
        "mm_shrink_slab_start" "mm_shrink_slab_end" "mm_vmscan_throttled";
    "compaction": "mm_compaction_try_to_compact_pages" "mm_compaction_begin" "mm_compaction_end";
    "kmem": "mm_page_alloc_extfrag";
    "mmap_lock": "mmap_lock_start_locking" "mmap_lock_acquire_returned" "mmap_lock_released";
    "lock": "contention_begin" "contention_end";
    "dma_fence": "dma_fence_wait_start" "dma_fence_wait_end";
};

/// The events of [`EventSet::All`] that are captured of all threads. A device ends a request in an interrupt of whichever thread runs
/// then, a kernel thread issues what others asked for, and a signal comes from anyone. Any process may have locked a file, or submitted the work of a fence. The exec of a program gives its name.
const OF_MACHINE: &[EventName] = names! {
    "block": "block_rq_insert" "block_rq_issue" "block_rq_complete" "block_rq_merge"
        "block_bio_backmerge" "block_bio_frontmerge";
    "signal": "signal_generate";
    "dma_fence": "dma_fence_init";
    "filelock": "posix_lock_inode" "flock_lock_inode";
    "sched": "sched_process_exec";
};

/// What a stack is written as. It is not switched on: the trigger at a switch writes it.
pub(crate) const STACK: EventName = EventName {
    system: "ftrace",
    event: "kernel_stack",
};
/// The event after which a stack is written.
pub(crate) const SWITCH: EventName = SCHEDULING[0];

impl EventSet {
    /// Its events of followed threads.
    pub fn events(self) -> impl Iterator<Item = EventName> {
        let more: &[EventName] = match self {
            EventSet::Scheduling => &[],
            EventSet::All => MORE,
        };
        SCHEDULING.iter().chain(more).copied()
    }

    /// Its events of all threads of the machine.
    pub fn of_machine(self) -> impl Iterator<Item = EventName> {
        let events: &[EventName] = match self {
            EventSet::Scheduling => &[],
            EventSet::All => OF_MACHINE,
        };
        events.iter().copied()
    }
}
