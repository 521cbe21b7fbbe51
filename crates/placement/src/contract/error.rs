use core::fmt;

/// Why no range was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlaceError {
    /// No free area is left that the policy would use. Free something, or widen the limits.
    Exhausted,
    /// Not even an empty space could answer.
    Impossible(Impossible),
    /// The policy has no notion of this part of the contract.
    Lacks(Lack),
}

/// Why not even an empty space could answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Impossible {
    /// The size is 0.
    ZeroSize,
    /// The alignment is no power of two.
    Alignment,
    /// The offset is not made of whole pages.
    Offset,
    /// The limits are crossed, or empty.
    LimitsCrossed,
    /// The limits leave the window.
    LimitsOutside,
    /// The size, aligned, does not fit between the limits, or leaves 64 bits.
    TooLarge,
}

/// A part of the contract that a policy may have no notion of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lack {
    /// Alignment above a page.
    Alignment,
    /// Limits narrower than the window.
    Limits,
    /// The other direction.
    Direction,
    /// An address to be given if it is free.
    Hint,
    /// Freeing by nothing but the range.
    FreeByRange,
    /// A window this large.
    Window,
}

/// Why a range was not freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreeError {
    /// Empty, crossed, not made of whole pages, or outside the window.
    Malformed,
    /// No page of it is taken: freed before, or never given.
    AlreadyFree,
    /// Some of it is taken, but it is not one range as it was given.
    NotAsGiven,
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Exhausted => f.write_str("exhausted: no free area is left for it"),
            PlaceError::Impossible(why) => write!(f, "impossible: {why}"),
            PlaceError::Lacks(what) => write!(f, "the policy lacks {what}"),
        }
    }
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Impossible::ZeroSize => "the size is 0",
            Impossible::Alignment => "the alignment is no power of two",
            Impossible::Offset => "the alignment's offset is not made of whole pages",
            Impossible::LimitsCrossed => "the limits are crossed or empty",
            Impossible::LimitsOutside => "the limits leave the window",
            Impossible::TooLarge => "it is larger than the limits allow",
        })
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lack::Alignment => "alignment",
            Lack::Limits => "limits of a request",
            Lack::Direction => "this direction",
            Lack::Hint => "hints",
            Lack::FreeByRange => "freeing by range alone",
            Lack::Window => "a window this large",
        })
    }
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FreeError::Malformed => "it is empty, not made of whole pages, or outside the window",
            FreeError::AlreadyFree => "it is free already, or was never given",
            FreeError::NotAsGiven => "it is not one range as it was given",
        })
    }
}

impl From<Impossible> for PlaceError {
    fn from(why: Impossible) -> PlaceError {
        PlaceError::Impossible(why)
    }
}

impl core::error::Error for PlaceError {}
impl core::error::Error for Impossible {}
impl core::error::Error for FreeError {}
