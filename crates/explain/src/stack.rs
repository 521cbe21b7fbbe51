//! Causes of sleep by the kernel stack at a switch-out.
//!
//! Function names are those of Linux 6.12 and 6.18. If another version uses another name, the sleep gets its cause
//! from the events around it, or stays `unknown`. Suffixes of compilers (`.constprop.0`, `.isra.0`) are cut off.

use std::sync::Arc;

use crate::why::{Why, of_function};

/// Returns the frames of a stack, outermost first.
pub(crate) fn frames(stack: &str) -> impl DoubleEndedIterator<Item = &str> {
    stack.split(';').filter(|frame| !frame.is_empty())
}

/// Returns the cause by the innermost function that shows one. A cause in memory management goes before the way in
/// which it waits.
pub(crate) fn why(stack: &str) -> Option<Why> {
    let inner_first = || frames(stack).rev().filter_map(kernel_function);
    let causes: Vec<Why> = inner_first().filter_map(of_function).collect();
    if causes.contains(&Why::Throttled) {
        return Some(Why::Throttled);
    }
    let mut inner: Option<&str> = None;
    for function in inner_first() {
        // do_shrink_slab calls the shrinker.
        if matches!(function, "do_shrink_slab" | "shrink_slab") {
            return Some(Why::Shrinker(inner.map(Arc::from)));
        }
        if let Some(why) = of_function(function).filter(Why::is_reclaim) {
            return Some(why);
        }
        inner = Some(function);
    }
    // BPF's stacks leave out the functions of the lock. A function that takes the mmap_lock sleeps for nothing else.
    if causes.is_empty() && inner_first().next().is_some_and(takes_mmap_lock) {
        return Some(Why::MmapLock);
    }
    let first = causes.into_iter().next()?;
    let taker = inner_first()
        .skip_while(|function| !function.starts_with("rwsem_down_"))
        .find(|function| !is_rwsem(function));
    let of_mm = first == Why::Lock && taker.is_some_and(takes_mmap_lock);
    Some(if of_mm { Why::MmapLock } else { first })
}

/// Returns whether `is` holds for any kernel function of the stack.
fn any(stack: &str, is: impl Fn(&str) -> bool) -> bool {
    frames(stack).filter_map(kernel_function).any(is)
}

/// Returns whether the thread is in a system call: x86 (arch/x86/entry), arm64 (arch/arm64/kernel/syscall.c).
pub(crate) fn in_call(stack: &str) -> bool {
    let entries = "do_syscall_64 do_int80_syscall_32 do_fast_syscall_32 el0_svc invoke_syscall";
    any(stack, |f| {
        f.starts_with("entry_SYSCALL") || is_one_of(f, entries)
    })
}

/// Returns the thread's system call, from the name of the call's entry function
/// (arch/x86/include/asm/syscall_wrapper.h, and the same file of arm64).
pub(crate) fn call(stack: &str) -> Option<&str> {
    let entries = ["__x64_sys_", "__arm64_sys_", "__ia32_sys_", "__do_sys_"];
    let name = |function| {
        entries
            .iter()
            .find_map(|entry| str::strip_prefix(function, entry))
    };
    frames(stack).filter_map(kernel_function).find_map(name)
}

/// Returns whether the thread is in a page fault: x86 (arch/x86/mm/fault.c), arm64 (arch/arm64/mm/fault.c),
/// mm/memory.c.
pub(crate) fn in_fault(stack: &str) -> bool {
    let entries = "asm_exc_page_fault exc_page_fault page_fault do_user_addr_fault do_page_fault do_mem_abort \
                   handle_mm_fault";
    any(stack, |function| is_one_of(function, entries))
}

/// Returns the function of a kernel frame; `None` for other frames.
pub(crate) fn kernel_function(frame: &str) -> Option<&str> {
    let function = frame.strip_suffix("_[k]")?;
    function.split('.').next()
}

fn is_one_of(function: &str, functions: &str) -> bool {
    functions.split(' ').any(|one| one == function)
}

fn is_rwsem(function: &str) -> bool {
    let begins = [
        "rwsem_",
        "down_read",
        "down_write",
        "__down_read",
        "__down_write",
    ];
    begins.iter().any(|begin| function.starts_with(begin))
}

/// Returns whether a function takes the mmap_lock and no other rwsem (mm/mmap.c, mm/mprotect.c, mm/memory.c,
/// arch/x86/mm/fault.c).
fn takes_mmap_lock(function: &str) -> bool {
    let named = ["mmap_lock", "mmap_read_lock", "mmap_write_lock"];
    let takers = "vm_mmap_pgoff __vm_munmap __do_sys_munmap do_mprotect_pkey __do_sys_mremap __do_sys_brk do_madvise \
                  lock_mm_and_find_vma do_user_addr_fault madvise_lock m_start userfaultfd_register exit_mmap dup_mmap dup_mm";
    named.iter().any(|name| function.contains(name)) || is_one_of(function, takers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(frames: &str) -> Option<Why> {
        why(frames)
    }

    #[test]
    fn stacks_as_kernels_write_them() {
        let reclaim = "main;entry_SYSCALL_64_[k];do_anonymous_page_[k];try_to_free_mem_cgroup_pages_[k];shrink_node_[k]";
        for (frames, why) in [
            ("main;read", None),
            ("do_sys_poll_[k];schedule_[k]", Some(Why::Idle)),
            (
                "vm_mmap_pgoff_[k];down_write_killable_[k];rwsem_down_write_slowpath_[k];schedule_[k]",
                Some(Why::MmapLock),
            ),
            ("do_syscall_64_[k];vm_mmap_pgoff_[k]", Some(Why::MmapLock)),
            ("vm_mmap_pgoff_[k];security_mmap_file_[k]", None),
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
                "ksys_write_[k];cgroup_procs_write_start_[k];rcu_sync_enter_[k];synchronize_rcu_normal_[k]",
                Some(Why::Rcu),
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
