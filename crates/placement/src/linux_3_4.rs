//! `linux-3.4`: the scan continues at the cache.
//!
//! * Source: `arch_get_unmapped_area_topdown()` of arch/x86/kernel/sys_x86_64.c after "mm: search from
//!   free_area_cache for the bigger size" (Xiao Guangrong, January 2012, b716ad953a2b), and
//!   `arch_unmap_area()` of mm/mmap.c after f44d21985eb6, up to 3.7. What it shares with 2.6.35, what is
//!   left out and how its [`Work`](crate::Work) is counted: [`crate::free_area_cache`].
//! * Rule, top-down: if a hole that was passed over may hold the request, begin at the base again
//!   (*reset*). Scan from the cache down, first fit. If that runs out and did not begin at the base,
//!   scan from the base, once, with cached_hole_size 0. If that runs out, bottom-up from
//!   TASK_UNMAPPED_BASE.
//! * Cost: a request that does not fit right under the cache no longer scans from the base; only the
//!   reset does. That makes pbobench's slope 2.5 times flatter, and leaves it linear.
//! * Bottom-up, munmap(2) moves the cache but no longer sets cached_hole_size.

use crate::free_area_cache::{FreeAreaCache, Mm, Place, Version};

/// Linux 3.4 to 3.7.
#[derive(Debug, Clone, Copy)]
pub struct V3_4;

/// The policy `linux-3.4`.
pub type Linux3_4 = FreeAreaCache<V3_4>;

impl Version for V3_4 {
    const UNMAP_FORGETS_HOLES: bool = false;

    fn top_down(mm: &mut Mm, size: u64) -> Option<Place> {
        mm.reset_if_a_hole_may_hold(size);
        mm.scan_from_cache(size)
    }
}

#[cfg(test)]
mod tests;
