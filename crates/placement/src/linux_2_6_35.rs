//! `linux-2.6.35`: the kernel of mail 000.
//!
//! * Source: `arch_get_unmapped_area_topdown()` of arch/x86/kernel/sys_x86_64.c, the same from 2.6.13 to
//!   3.3. What it shares with 3.4, what is left out and how its [`Work`](crate::Work) is counted:
//!   [`crate::free_area_cache`].
//! * Rule, top-down: if a hole that was passed over may hold the request, begin at the base again
//!   (*reset*). Look once right under the cache. If that is not free, scan from the base down, first
//!   fit. If that runs out, bottom-up from TASK_UNMAPPED_BASE.
//! * Cost: two routes lead to a full scan, and the mail names only the first, the reset. The other, the
//!   failed single probe, is the more frequent: pbobench scans on 78 % of its maps and resets on 19 %.
//!   A scan for k pages among contiguous one-page VMAs takes N / k lookups.
//! * A scan from the base that a failed probe began leaves cached_hole_size as it was; a reset makes
//!   it 0 first.

use crate::free_area_cache::{FreeAreaCache, Mm, Place, Version};

/// Linux 2.6.13 to 3.3.
#[derive(Debug, Clone, Copy)]
pub struct V2_6_35;

/// The policy `linux-2.6.35`.
pub type Linux2_6_35 = FreeAreaCache<V2_6_35>;

impl Version for V2_6_35 {
    const UNMAP_FORGETS_HOLES: bool = true;

    fn top_down(mm: &mut Mm, size: u64) -> Option<Place> {
        mm.reset_if_a_hole_may_hold(size);
        if let Some(place) = mm.probe_under_cache(size) {
            return Some(place);
        }
        mm.scan_from_base(size)
    }
}

#[cfg(test)]
mod tests;
