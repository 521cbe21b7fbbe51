//! Causes of time inside an operation: one at any moment, so the parts add up to the whole. [`CAUSES`] has the facts
//! of each cause.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use stopgap_events::order::SortRows;
use stopgap_stats::explain::Part;

/// A cause. If several hold at a time, the first in this list counts:
///
/// 1. [`Why::RunQueue`]: a thread without a CPU makes no progress.
/// 2. [`Why::Throttled`]: the kernel makes the thread wait on purpose.
/// 3. The innermost of shrinker, compaction and reclaim. Memory is *why*; whether it took the CPU, a lock or a disk
///    is *how*.
/// 4. [`Why::Fence`], [`Why::MmapLock`], [`Why::Lock`], [`Why::Io`], [`Why::Rcu`].
/// 5. The reason of a sleep, by its call and by the thread or device that ended it: a lock, a disk, a child, an
///    answer, a signal to continue; or no work ([`Why::Idle`], [`Why::MayBeIdle`]).
/// 6. [`Why::OnCpu`] if the thread runs, else [`Why::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Why {
    OnCpu,
    RunQueue,
    DirectReclaim,
    MemcgReclaim,
    Compaction,
    /// With the shrinker's function, if it is known.
    Shrinker(Option<Arc<str>>),
    Throttled,
    MmapLock,
    Lock,
    Io,
    Fence,
    /// A grace period of RCU: until every CPU has passed a quiescent state.
    Rcu,
    /// An answer that the thread had asked for, or room for what it writes.
    Answer,
    /// The end of a child, or of a thread that it joins.
    Child,
    /// A stop by a signal.
    Stopped,
    /// The thread's cgroup had used up its CPU quota.
    CpuQuota,
    MayBeIdle,
    Idle,
    Unknown,
}

/// How a cause explains a stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No wait for anything: more of it explains less.
    Work,
    /// A wait because of memory pressure.
    Memory,
    /// Another wait for a thread or a thing.
    Wait,
}

/// What to try against a cause: a word and a sentence.
pub(crate) type Advice = (&'static str, &'static str);

/// The facts of a cause.
pub(crate) struct Cause {
    why: Why,
    pub(crate) word: &'static str,
    pub(crate) kind: Kind,
    /// Kernel functions on the stack of a sleeping thread that show the cause (Linux 6.12 and 6.18).
    functions: &'static str,
    pub(crate) advice: Option<Advice>,
}

const RECLAIM: Advice = (
    "reclaim",
    "give it more memory or a higher memory.high, or look who holds it: stopgap probe reclaim",
);
const COMPACTION: Advice = (
    "compaction",
    "ask for smaller chunks where large ones are only nice to have: stopgap probe chunks, stopgap advise chunks",
);
const MMAP_LOCK: Advice = (
    "mmap-lock",
    "map and unmap less in a process with many threads (reserve once: the arena), or look who holds the lock",
);

/// All causes, in the order of [`Why`].
pub(crate) static CAUSES: [Cause; 19] = [
    cause(Why::OnCpu, "on-cpu", Kind::Work, "", None),
    cause(Why::RunQueue, "run-queue", Kind::Work, "", None),
    cause(
        Why::DirectReclaim,
        "direct-reclaim",
        Kind::Memory,
        "try_to_free_pages __alloc_pages_direct_reclaim",
        Some(RECLAIM),
    ),
    cause(
        Why::MemcgReclaim,
        "memcg-reclaim",
        Kind::Memory,
        "try_to_free_mem_cgroup_pages",
        Some(RECLAIM),
    ),
    cause(
        Why::Compaction,
        "compaction",
        Kind::Memory,
        "compact_zone compact_zone_order try_to_compact_pages __alloc_pages_direct_compact",
        Some(COMPACTION),
    ),
    cause(
        Why::Shrinker(None),
        "shrinker",
        Kind::Memory,
        "",
        Some(RECLAIM),
    ),
    cause(
        Why::Throttled,
        "throttled",
        Kind::Memory,
        "reclaim_throttle throttle_direct_reclaim balance_dirty_pages mem_cgroup_handle_over_high \
         __mem_cgroup_handle_over_high",
        Some(RECLAIM),
    ),
    cause(Why::MmapLock, "mmap_lock", Kind::Wait, "", Some(MMAP_LOCK)),
    cause(
        Why::Lock,
        "lock",
        Kind::Wait,
        "rwsem_down_read_slowpath rwsem_down_write_slowpath __mutex_lock __mutex_lock_slowpath __ww_mutex_lock \
         schedule_preempt_disabled rt_mutex_slowlock rtlock_slowlock_locked percpu_rwsem_wait __down_common __down \
         __down_killable __down_timeout",
        None,
    ),
    cause(
        Why::Io,
        "io",
        Kind::Wait,
        "io_schedule io_schedule_timeout folio_wait_bit_common folio_wait_writeback submit_bio_wait blk_io_schedule \
         blk_mq_get_tag rq_qos_wait wait_on_buffer __wait_on_buffer bit_wait_io",
        None,
    ),
    cause(
        Why::Fence,
        "fence",
        Kind::Wait,
        "dma_fence_wait_timeout dma_fence_default_wait dma_resv_wait_timeout drm_syncobj_array_wait_timeout \
         i915_request_wait i915_request_wait_timeout",
        None,
    ),
    // kernel/rcu; and waits for what RCU frees: fs/aio.c, kernel/rcu/sync.c.
    cause(
        Why::Rcu,
        "rcu",
        Kind::Wait,
        "synchronize_rcu synchronize_rcu_normal synchronize_rcu_expedited __wait_rcu_gp rcu_barrier rcu_sync_enter \
         synchronize_srcu __synchronize_srcu synchronize_srcu_expedited synchronize_rcu_tasks exit_aio",
        None,
    ),
    cause(Why::Answer, "answer", Kind::Wait, "", None),
    cause(Why::Child, "child", Kind::Wait, "", None),
    cause(Why::Stopped, "stopped", Kind::Wait, "", None),
    cause(Why::CpuQuota, "cpu-quota", Kind::Work, "", None),
    cause(Why::MayBeIdle, "may-be-idle", Kind::Wait, "", None),
    cause(
        Why::Idle,
        "idle",
        Kind::Wait,
        "poll_schedule_timeout do_sys_poll do_poll ep_poll do_select do_epoll_wait",
        None,
    ),
    cause(Why::Unknown, "unknown", Kind::Work, "", None),
];

const fn cause(
    why: Why,
    word: &'static str,
    kind: Kind,
    functions: &'static str,
    advice: Option<Advice>,
) -> Cause {
    Cause {
        why,
        word,
        kind,
        functions,
        advice,
    }
}

/// Returns the cause that has the word `word` in records.
pub(crate) fn of_word(word: &str) -> Option<&'static Cause> {
    CAUSES.iter().find(|cause| cause.word == word)
}

/// Returns the cause that a kernel function on a sleeping thread's stack shows.
pub(crate) fn of_function(function: &str) -> Option<Why> {
    static BY_FUNCTION: LazyLock<HashMap<&str, &Why>> = LazyLock::new(|| {
        let functions = |cause: &'static Cause| cause.functions.split_whitespace();
        let rows = CAUSES.iter();
        rows.flat_map(|cause| functions(cause).map(|function| (function, &cause.why)))
            .collect()
    });
    BY_FUNCTION.get(function).map(|&why| why.clone())
}

impl Why {
    pub(crate) fn word(&self) -> &'static str {
        let same =
            |cause: &&Cause| std::mem::discriminant(&cause.why) == std::mem::discriminant(self);
        CAUSES
            .iter()
            .find(same)
            .map_or("unknown", |cause| cause.word)
    }

    /// Returns a shrinker's function, if it is known.
    pub(crate) fn function(&self) -> Option<&str> {
        match self {
            Why::Shrinker(function) => function.as_deref(),
            _ => None,
        }
    }

    /// Returns whether the thread had no work, or may have had none.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Why::Idle | Why::MayBeIdle)
    }

    /// Returns whether the thread frees memory or compacts it.
    pub(crate) fn is_reclaim(&self) -> bool {
        matches!(
            self,
            Why::DirectReclaim | Why::MemcgReclaim | Why::Compaction | Why::Shrinker(_)
        )
    }
}

/// Time by cause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Parts(Vec<(Why, u64)>);

impl Parts {
    pub(crate) fn add(&mut self, why: &Why, ns: u64) {
        match self.0.iter_mut().find(|(known, _)| known == why) {
            _ if ns == 0 => {}
            Some((_, sum)) => *sum = sum.saturating_add(ns),
            None => self.0.push((why.clone(), ns)),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|(_, ns)| ns).sum()
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (&Why, u64)> {
        self.0.iter().map(|(why, ns)| (why, *ns))
    }

    /// Returns the parts with their shares, largest first.
    pub(crate) fn to_record(&self) -> Vec<Part> {
        let sum = self.sum() as f64;
        let mut parts: Vec<&(Why, u64)> = self.0.iter().collect();
        parts.sort_rows(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let part = |(why, ns): &(Why, u64)| Part {
            cause: why.word().to_owned(),
            function: why.function().map(ToString::to_string),
            ns: *ns,
            share: *ns as f64 / sum,
        };
        parts.into_iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_row() {
        let words: Vec<&str> = CAUSES.iter().map(|cause| cause.why.word()).collect();
        assert!(words.iter().eq(CAUSES.iter().map(|cause| &cause.word)));
        assert!(
            CAUSES.is_sorted_by(|a, b| a.why < b.why),
            "in the order of Why"
        );
    }
}
