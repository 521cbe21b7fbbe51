/// Parts of a capture beside waits. Each part is a set of programs, which is not attached if the part is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The kernel's stack, for waits that are long or the first of their kind.
    KernelStacks,
    /// The program's stack, once for each place of waiting.
    UserStacks,
    /// Direct reclaim, reclaim of a memory cgroup, and throttling by them.
    Reclaim,
    /// Compaction.
    Compaction,
    /// Shrinkers, each by its function.
    Shrinkers,
    /// Contention of locks that sleep, with the holder of mutexes and of semaphores held for writing.
    Locks,
    /// Each wait of more than 1 us for an mmap_lock, including that of another process.
    MmapLock,
    /// Waits for DMA fences.
    Fences,
    /// Driver, timeline and submitter of these fences. The kernel's tracefs must be readable.
    FenceNames,
    /// Failed attempts to lock a file, with the lock's holder: by flock, by fcntl and by locks of open files.
    FileLocks,
    /// Address and begin of the page fault in which a thread sleeps.
    Faults,
    /// Waits for locked pages. No event of the kernel shows them, only the kernel's stack. The part has no program;
    /// the reader uses it.
    PageLock,
    /// Waits for the writing of a page.
    Writeback,
    /// Block requests from insertion to completion, by the thread that made them, and requests of other threads that
    /// were merged into them.
    Block,
    /// Long softirqs and hard interrupts.
    Interrupts,
    /// Long work items.
    Work,
    /// Signals from and to followed threads.
    Signals,
    /// The system calls that change an address space, with arguments and result: mmap, munmap, brk, mremap, mprotect,
    /// madvise. All of them or none. The programs are at the kernel's functions of these calls (fentry), so other
    /// calls cost nothing more. With [`Part::Calls`] that part reports them.
    AddressSpace,
    /// System calls, including those that do not block.
    Calls,
}

/// A program of the object, and its tracepoint or system call.
pub(crate) type Program = (&'static str, &'static str);

/// The programs without which there are no waits.
pub(crate) const ALWAYS: &[Program] = &[
    ("on_switch", "sched_switch"),
    ("on_waking", "sched_waking"),
    ("on_new", "task_newtask"),
    ("on_rename", "task_rename"),
    ("on_exec", "sched_process_exec"),
    ("on_exit", "sched_process_exit"),
];

impl Part {
    /// All parts.
    pub const ALL: [Part; 19] = [
        Part::KernelStacks,
        Part::UserStacks,
        Part::Reclaim,
        Part::Compaction,
        Part::Shrinkers,
        Part::Locks,
        Part::MmapLock,
        Part::Fences,
        Part::FenceNames,
        Part::FileLocks,
        Part::Faults,
        Part::PageLock,
        Part::Writeback,
        Part::Block,
        Part::Interrupts,
        Part::Work,
        Part::Signals,
        Part::AddressSpace,
        Part::Calls,
    ];

    /// Returns its name on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Part::KernelStacks => "kernel-stacks",
            Part::UserStacks => "user-stacks",
            Part::Reclaim => "reclaim",
            Part::Compaction => "compaction",
            Part::Shrinkers => "shrinkers",
            Part::Locks => "locks",
            Part::MmapLock => "mmap-lock",
            Part::Fences => "fences",
            Part::FenceNames => "fence-names",
            Part::FileLocks => "file-locks",
            Part::Faults => "faults",
            Part::PageLock => "page-lock",
            Part::Writeback => "writeback",
            Part::Block => "block",
            Part::Interrupts => "interrupts",
            Part::Work => "work",
            Part::Signals => "signals",
            Part::AddressSpace => "address-space",
            Part::Calls => "calls",
        }
    }

    /// Returns whether the part is on by default. `MmapLock` is off because each map, unmap and fault takes that
    /// lock, and `Locks` shows the contention of the thread's own. `Calls` is off because it costs the whole machine
    /// time.
    #[must_use]
    pub fn is_usual(self) -> bool {
        !matches!(self, Part::MmapLock | Part::Calls)
    }

    pub(crate) fn programs(self) -> &'static [Program] {
        match self {
            Part::KernelStacks | Part::UserStacks | Part::PageLock => &[],
            Part::Reclaim => &[
                (
                    "on_mm_vmscan_direct_reclaim_begin",
                    "mm_vmscan_direct_reclaim_begin",
                ),
                (
                    "on_mm_vmscan_direct_reclaim_end",
                    "mm_vmscan_direct_reclaim_end",
                ),
                (
                    "on_mm_vmscan_memcg_reclaim_begin",
                    "mm_vmscan_memcg_reclaim_begin",
                ),
                (
                    "on_mm_vmscan_memcg_reclaim_end",
                    "mm_vmscan_memcg_reclaim_end",
                ),
                ("on_mm_vmscan_throttled", "mm_vmscan_throttled"),
            ],
            Part::Compaction => &[
                ("on_mm_compaction_begin", "mm_compaction_begin"),
                ("on_mm_compaction_end", "mm_compaction_end"),
            ],
            Part::Shrinkers => &[
                ("on_mm_shrink_slab_start", "mm_shrink_slab_start"),
                ("on_mm_shrink_slab_end", "mm_shrink_slab_end"),
            ],
            Part::Locks => &[
                ("on_contention_begin", "contention_begin"),
                ("on_contention_end", "contention_end"),
            ],
            Part::MmapLock => &[
                ("on_mmap_lock_start_locking", "mmap_lock_start_locking"),
                (
                    "on_mmap_lock_acquire_returned",
                    "mmap_lock_acquire_returned",
                ),
            ],
            Part::Fences => &[
                ("on_dma_fence_wait_start", "dma_fence_wait_start"),
                ("on_dma_fence_wait_end", "dma_fence_wait_end"),
            ],
            Part::FenceNames => &[
                ("on_dma_fence_init", "dma_fence_init"),
                ("name_fence", "dma_fence_wait_start"),
            ],
            Part::FileLocks => &[
                ("on_posix_lock_inode", "posix_lock_inode"),
                ("on_flock_lock_inode", "flock_lock_inode"),
            ],
            Part::Faults => &[("on_page_fault_user", "page_fault_user")],
            Part::Writeback => &[("on_folio_wait_writeback", "folio_wait_writeback")],
            Part::Block => &[
                ("on_block_bio_backmerge", "block_bio_backmerge"),
                ("on_block_bio_frontmerge", "block_bio_frontmerge"),
                ("on_block_rq_merge", "block_rq_merge"),
                ("on_block_rq_insert", "block_rq_insert"),
                ("on_block_rq_issue", "block_rq_issue"),
                ("on_block_rq_complete", "block_rq_complete"),
            ],
            Part::Interrupts => &[
                ("on_softirq_entry", "softirq_entry"),
                ("on_softirq_exit", "softirq_exit"),
                ("on_irq_handler_entry", "irq_handler_entry"),
                ("on_irq_handler_exit", "irq_handler_exit"),
            ],
            Part::Work => &[
                ("on_workqueue_execute_start", "workqueue_execute_start"),
                ("on_workqueue_execute_end", "workqueue_execute_end"),
            ],
            Part::Signals => &[("on_signal_generate", "signal_generate")],
            Part::AddressSpace => &[
                ("begin_mmap", "sys_mmap"),
                ("end_mmap", "sys_mmap"),
                ("begin_munmap", "sys_munmap"),
                ("end_munmap", "sys_munmap"),
                ("begin_brk", "sys_brk"),
                ("end_brk", "sys_brk"),
                ("begin_mremap", "sys_mremap"),
                ("end_mremap", "sys_mremap"),
                ("begin_mprotect", "sys_mprotect"),
                ("end_mprotect", "sys_mprotect"),
                ("begin_madvise", "sys_madvise"),
                ("end_madvise", "sys_madvise"),
            ],
            Part::Calls => &[("on_sys_enter", "sys_enter"), ("on_sys_exit", "sys_exit")],
        }
    }
}
