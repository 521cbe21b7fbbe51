//! Mail 001's machine: "a device under memory pressure".
//!
//! **From the mail**: Linux 3.14 on 32-bit Arm, buffers of 4 MiB that are allocated for each video, four programs that
//! walk through 350 MiB each, USB and Wi-Fi drivers that want orders 3 and 4.
//!
//! **From the kernel of that time** (mm/page_alloc.c, 3.14), for 2 GiB of which it maps 760 MiB for itself:
//!
//! * Two zones. Buffers and user pages take high memory first, and drivers have normal memory only.
//! * `setup_per_zone_lowmem_reserve`: a page in 32 of high memory, 40 MiB, stays free in normal memory for those who
//!   can have no other. `__zone_watermark_ok` asks for it once, not again for each order. So it keeps single pages
//!   from buffers and walkers, and no large blocks.
//! * `setup_zone_migrate_reserve`: two 2 MiB blocks of each zone are `MIGRATE_RESERVE`, which serves a request for which
//!   no other block is large enough: 4 MiB, one buffer. Who asks for single pages never comes to it.
//!
//! **Assumed**: 2 GiB, so that 1,400 MiB beside a browser are too much; that one page in four, anywhere, can neither be
//! moved nor reclaimed (what zram stores, the GPU's and other buffers, the kernel's own); that half of the 2 MiB blocks
//! are of unmovable type; that all other pages can be reclaimed; and what
//! [`Walkers::THREAD`] and [`bystanders`](super::super::bystanders) say.
//!
//! **What decides who harms the drivers** (`stopgap replay chunks`): without `MIGRATE_RESERVE` both fail always, with or
//! without a buffer. With it they fail beside policies that ask for orders 3 and 4 again and again, and not beside single
//! pages. That holds with one page in 3 or in 10 unmovable and with a quarter of the blocks unmovable. With no unmovable
//! block `fold` harms nobody, and dwc2 never fails.
//!
//! Blocks that have a migrate type are 4 MiB large on such a machine (`pageblock_order` is 10), here 2 MiB; the reserve is
//! the same 4 MiB. Left out: `NR_ALLOC_BATCH`, by which the fast path takes turns between the zones.

use stopgap_events::random::Random;

use super::super::buddy::{BLOCK_ORDER, BLOCK_PAGES, Buddy, Mobility, Use};
use super::super::machine::{Machine, MachineError, Setting};
use super::super::walkers::Walkers;
use super::super::watermarks::Watermarks;

const BYTES: u64 = 2 << 30;
const LOW_BYTES: u64 = 760 << 20;

/// One of this many pages is unmovable.
pub const UNMOVABLE_SHARE: u64 = 4;

/// One 2 MiB block in so many is of unmovable type.
pub const UNMOVABLE_BLOCKS: u64 = 2;

/// `lowmem_reserve_ratio` of a zone of normal memory against requests that may have high memory
/// (`sysctl_lowmem_reserve_ratio`, mm/page_alloc.c).
const RESERVE_RATIO: u64 = 32;

/// The most blocks of `MIGRATE_RESERVE` in a zone (`setup_zone_migrate_reserve`).
const MOST_RESERVE_BLOCKS: u64 = 2;

pub(super) fn machine(setting: &Setting) -> Result<Machine, MachineError> {
    let low_pages = LOW_BYTES / setting.page;
    let high_pages = (BYTES - LOW_BYTES) / setting.page;
    let low = Watermarks::for_memory(setting.kernel, low_pages, setting.page);
    let high = low.of_high_memory(high_pages, low_pages);
    let mut random = Random::new(setting.seed);
    let zones = vec![
        (memory(high_pages, high, &mut random)?, high, 0),
        (
            memory(low_pages, low, &mut random)?,
            low,
            high_pages / RESERVE_RATIO,
        ),
    ];
    let mut machine = Machine::of_zones(zones, setting)?.with_walkers(Walkers::THREAD)?;
    machine.rest();
    Ok(machine)
}

/// A zone all of whose pages are used but those of the reserve.
fn memory(pages: u64, marks: Watermarks, random: &mut Random) -> Result<Buddy, MachineError> {
    let mut buddy = Buddy::new(pages, Use::Reclaimable)?;
    for frame in 0..pages {
        if random.below(UNMOVABLE_SHARE) == 0 {
            buddy.set_use(frame, Use::Unmovable)?;
        }
    }
    let reserved = marks.min.div_ceil(BLOCK_PAGES).min(MOST_RESERVE_BLOCKS);
    for (block, frame) in (0..pages).step_by(BLOCK_PAGES as usize).enumerate() {
        if (block as u64) < reserved {
            buddy.set_block_mobility(frame, Mobility::Reserve)?;
            buddy.free(frame, BLOCK_ORDER)?;
        } else if random.below(UNMOVABLE_BLOCKS) == 0 {
            buddy.set_block_mobility(frame, Mobility::Unmovable)?;
        }
    }
    Ok(buddy)
}
