//! Mail 001's machine: "a device under memory pressure".
//!
//! **Source.** The mail: Linux 3.14 on 32-bit Arm, buffers of 4 MiB that are allocated for each video, four programs that
//! walk through 350 MiB each, USB and Wi-Fi drivers that want orders 3 and 4. It says neither how much memory there is
//! nor what is in it. Assumed are 2 GiB, so that 1,400 MiB beside a browser are too much, of which the kernel maps
//! 760 MiB for itself: its watermarks come from these (`nr_free_buffer_pages`); and that one page in five, anywhere,
//! can neither be moved nor reclaimed: what zram stores, the GPU's and other buffers, the kernel's own. All
//! other pages can be reclaimed, none that are free are adjacent but by chance, and as many are free as the min mark.
//!
//! **How much hangs on the assumptions.** From one page in ten to one in four: `old` 7 to 13 s, `sticky` 3.0 to 3.2 s,
//! the others not at all. One zone, where the machine has two.

use stopgap_events::random::Random;

use super::super::buddy::{Buddy, Use};
use super::super::machine::{Machine, MachineError, Setting};
use super::super::walkers::Walkers;
use super::super::watermarks::Watermarks;

const BYTES: u64 = 2 << 30;
const LOW_BYTES: u64 = 760 << 20;

/// Of so many pages one is unmovable.
pub const UNMOVABLE_SHARE: u64 = 5;

pub(super) fn machine(setting: &Setting) -> Result<Machine, MachineError> {
    let pages = BYTES / setting.page;
    let mut buddy = Buddy::new(pages, Use::Reclaimable)?;
    let mut random = Random::new(setting.seed);
    for frame in 0..pages {
        if random.below(UNMOVABLE_SHARE) == 0 {
            buddy.set_use(frame, Use::Unmovable)?;
        }
    }
    let marks = Watermarks::of(setting.kernel, LOW_BYTES / setting.page, setting.page);
    Machine::new(buddy, setting)?
        .with_marks(marks)
        .with_walkers(Walkers::THREAD)
}
