//! What a kernel stack at a switch-out says about why the thread sleeps.
//!
//! Function names are those of Linux 6.12 and 6.18; a name that another version calls differently is not found, and
//! the sleep stays `unknown` or what the events around it say. A compiler's suffix (`.constprop.0`, `.isra.0`) is
//! taken off.

use stopgap_trace::{Stack, Text};

use crate::why::Why;

/// The cause, by the innermost function that tells; memory comes before how it waits.
pub(crate) fn why(stack: &Stack) -> Option<Why> {
    let inner_first = || stack.frames().rev().filter_map(kernel_function);
    let told: Vec<Why> = inner_first().filter_map(one).collect();
    if told.contains(&Why::Throttled) {
        return Some(Why::Throttled);
    }
    let mut inner: Option<&str> = None;
    for function in inner_first() {
        // What do_shrink_slab calls is the shrinker.
        if matches!(function, "do_shrink_slab" | "shrink_slab") {
            return Some(Why::Shrinker(inner.map(Text::from)));
        }
        if let Some(why @ (Why::Compaction | Why::DirectReclaim | Why::MemcgReclaim)) =
            one(function)
        {
            return Some(why);
        }
        inner = Some(function);
    }
    let first = told.into_iter().next()?;
    let of_mm = first == Why::Lock
        && inner_first().any(|f| f.starts_with("rwsem_down_"))
        && inner_first()
            .skip_while(|f| !f.starts_with("rwsem_down_"))
            .find(|f| !is_rwsem(f))
            .is_some_and(takes_mmap_lock);
    Some(if of_mm { Why::MmapLock } else { first })
}

/// Whether the thread came there by a system call.
pub(crate) fn in_call(stack: &Stack) -> bool {
    // x86 (arch/x86/entry), arm64 (arch/arm64/kernel/syscall.c).
    let entry = |function: &str| {
        function.starts_with("entry_SYSCALL")
            || matches!(
                function,
                "do_syscall_64"
                    | "do_int80_syscall_32"
                    | "do_fast_syscall_32"
                    | "el0_svc"
                    | "invoke_syscall"
            )
    };
    stack.frames().filter_map(kernel_function).any(entry)
}

/// The system call by which the thread came there, as the name of its entry function says
/// (arch/x86/include/asm/syscall_wrapper.h and the same of arm64).
pub(crate) fn call(stack: &Stack) -> Option<&str> {
    let entries = ["__x64_sys_", "__arm64_sys_", "__ia32_sys_", "__do_sys_"];
    let name = |function| {
        entries
            .iter()
            .find_map(|entry| str::strip_prefix(function, entry))
    };
    stack.frames().filter_map(kernel_function).find_map(name)
}

/// Whether the thread came there by a page fault.
pub(crate) fn in_fault(stack: &Stack) -> bool {
    // x86 (arch/x86/mm/fault.c), arm64 (arch/arm64/mm/fault.c), mm/memory.c.
    let fault = |function: &str| {
        matches!(
            function,
            "asm_exc_page_fault"
                | "exc_page_fault"
                | "page_fault"
                | "do_user_addr_fault"
                | "do_page_fault"
                | "do_mem_abort"
                | "handle_mm_fault"
        )
    };
    stack.frames().filter_map(kernel_function).any(fault)
}

/// The function of a kernel frame.
pub(crate) fn kernel_function(frame: &str) -> Option<&str> {
    let function = frame.strip_suffix("_[k]")?;
    Some(function.split('.').next().unwrap_or(function))
}

fn one(function: &str) -> Option<Why> {
    Some(match function {
        "reclaim_throttle"
        | "throttle_direct_reclaim"
        | "balance_dirty_pages"
        | "mem_cgroup_handle_over_high"
        | "__mem_cgroup_handle_over_high" => Why::Throttled,
        "compact_zone"
        | "compact_zone_order"
        | "try_to_compact_pages"
        | "__alloc_pages_direct_compact" => Why::Compaction,
        "try_to_free_mem_cgroup_pages" => Why::MemcgReclaim,
        "try_to_free_pages" | "__alloc_pages_direct_reclaim" => Why::DirectReclaim,
        "dma_fence_wait_timeout"
        | "dma_fence_default_wait"
        | "dma_resv_wait_timeout"
        | "drm_syncobj_array_wait_timeout"
        | "i915_request_wait"
        | "i915_request_wait_timeout" => Why::Fence,
        "io_schedule"
        | "io_schedule_timeout"
        | "folio_wait_bit_common"
        | "folio_wait_writeback"
        | "submit_bio_wait"
        | "blk_io_schedule"
        | "blk_mq_get_tag"
        | "rq_qos_wait"
        | "wait_on_buffer"
        | "__wait_on_buffer"
        | "bit_wait_io" => Why::Io,
        "rwsem_down_read_slowpath"
        | "rwsem_down_write_slowpath"
        | "__mutex_lock"
        | "__mutex_lock_slowpath"
        | "__ww_mutex_lock"
        | "schedule_preempt_disabled"
        | "rt_mutex_slowlock"
        | "rtlock_slowlock_locked"
        | "percpu_rwsem_wait"
        | "__down_common"
        | "__down"
        | "__down_killable"
        | "__down_timeout" => Why::Lock,
        "poll_schedule_timeout"
        | "do_sys_poll"
        | "do_poll"
        | "ep_poll"
        | "do_select"
        | "do_epoll_wait" => Why::Event,
        _ => return None,
    })
}

fn is_rwsem(function: &str) -> bool {
    function.starts_with("rwsem_")
        || function.starts_with("down_read")
        || function.starts_with("down_write")
        || function.starts_with("__down_read")
        || function.starts_with("__down_write")
}

/// Callers that take the lock of a memory map and no other rwsem (mm/mmap.c, mm/mprotect.c, mm/memory.c,
/// arch/x86/mm/fault.c).
fn takes_mmap_lock(function: &str) -> bool {
    function.contains("mmap_lock")
        || function.contains("mmap_read_lock")
        || function.contains("mmap_write_lock")
        || matches!(
            function,
            "vm_mmap_pgoff"
                | "__vm_munmap"
                | "__do_sys_munmap"
                | "do_mprotect_pkey"
                | "__do_sys_mremap"
                | "__do_sys_brk"
                | "do_madvise"
                | "lock_mm_and_find_vma"
                | "do_user_addr_fault"
                | "madvise_lock"
                | "m_start"
                | "userfaultfd_register"
                | "exit_mmap"
                | "dup_mmap"
                | "dup_mm"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(frames: &str) -> Option<Why> {
        why(&Stack(frames.into()))
    }

    #[test]
    fn stacks_as_kernels_write_them() {
        let reclaim = "main;entry_SYSCALL_64_[k];do_anonymous_page_[k];try_to_free_mem_cgroup_pages_[k];shrink_node_[k]";
        for (frames, why) in [
            ("main;read", None),
            ("do_sys_poll_[k];schedule_[k]", Some(Why::Event)),
            (
                "vm_mmap_pgoff_[k];down_write_killable_[k];rwsem_down_write_slowpath_[k];schedule_[k]",
                Some(Why::MmapLock),
            ),
            (
                "path_openat_[k];down_write_[k];rwsem_down_write_slowpath.constprop.0_[k];schedule_[k]",
                Some(Why::Lock),
            ),
            (
                "drm_ioctl_[k];__mutex_lock.constprop.0_[k];schedule_[k]",
                Some(Why::Lock),
            ),
            (reclaim, Some(Why::MemcgReclaim)),
            (
                "try_to_free_pages_[k];shrink_node_[k];reclaim_throttle_[k];io_schedule_timeout_[k]",
                Some(Why::Throttled),
            ),
            (
                "try_to_free_pages_[k];do_shrink_slab_[k];i915_gem_shrinker_scan_[k];i915_request_wait_[k]",
                Some(Why::Shrinker(Some("i915_gem_shrinker_scan".into()))),
            ),
            (
                "filemap_fault_[k];folio_wait_bit_common_[k];io_schedule_[k]",
                Some(Why::Io),
            ),
            (
                "drm_ioctl_[k];dma_fence_default_wait_[k];schedule_timeout_[k]",
                Some(Why::Fence),
            ),
        ] {
            assert_eq!(of(frames), why, "{frames}");
        }
    }
}
