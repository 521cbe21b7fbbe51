use super::Range;

/// From which end of the limits to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// As the policy likes. Policies of the kernel look from the top, as mmap(2) does by default.
    Any,
    /// From the top.
    TopDown,
    /// From the bottom.
    BottomUp,
}

/// With what a range may merge into one VMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Merge {
    /// With nothing: a driver's buffer.
    Never,
    /// With neighbours of the same number: plain anonymous memory of one protection.
    With(u32),
}

/// A request for a range. All numbers are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// How much, at least 1. Whole pages are given.
    pub size: u64,
    /// The answer's start is `offset` modulo this. A power of two; less than a page means a page.
    pub alignment: u64,
    /// What the start must be modulo `alignment`; whole pages. Counted modulo `alignment`.
    pub offset: u64,
    /// Where all of the answer must lie, inside the window; `None`: anywhere in the window.
    pub limits: Option<Range>,
    /// From which end to look.
    pub direction: Direction,
    /// An address to be given if it is free, within the limits and aligned; otherwise as if there
    /// were none.
    pub hint: Option<u64>,
    /// With what the range may merge. Only policies that keep VMAs look at it.
    pub merge: Merge,
}

impl Request {
    /// `size` bytes anywhere.
    #[must_use]
    pub const fn of(size: u64) -> Request {
        Request {
            size,
            alignment: 1,
            offset: 0,
            limits: None,
            direction: Direction::Any,
            hint: None,
            merge: Merge::Never,
        }
    }
}

/// A request that a space could answer, in whole pages: made by [`super::Space::need`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Bytes, whole pages.
    pub size: u64,
    /// Alignment - 1; at least a page - 1.
    pub align_mask: u64,
    /// Value of the start's bits under the mask.
    pub align_offset: u64,
    /// Where all of the answer must lie, whole pages.
    pub limits: Range,
    /// From which end to look.
    pub direction: Direction,
    /// An address to be given if it can be.
    pub hint: Option<u64>,
    /// With what the range may merge.
    pub merge: Merge,
}
