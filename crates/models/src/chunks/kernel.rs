//! Whose rules the slow path follows.

use stopgap_events::words;

/// A version of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// 3.4.
    V3_4,
    /// 3.14, which mail 001's author ran. Its rules are those of 3.4 in all that is modelled.
    V3_14,
    /// 6.12.
    V6_12,
}

words!(Kernel, "kernel", V3_4 "3.4", V3_14 "3.14", V6_12 "6.12");

impl Kernel {
    /// Whether it is one of the two of old.
    pub(super) fn is_old(self) -> bool {
        matches!(self, Kernel::V3_4 | Kernel::V3_14)
    }
}

/// Above this order an allocation is *costly*: the kernel tries less hard (`PAGE_ALLOC_COSTLY_ORDER`).
pub(super) const COSTLY: u32 = 3;
