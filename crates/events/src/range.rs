//! Address ranges.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The addresses from `start` up to, not including, `end`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct AddressRange {
    /// First address.
    pub start: u64,
    /// First address that is no longer inside.
    pub end: u64,
}

impl AddressRange {
    /// The range of `length` bytes from `start`; `None` where it would leave the address space.
    #[must_use]
    pub fn new(start: u64, length: Bytes) -> Option<AddressRange> {
        Some(AddressRange {
            start,
            end: start.checked_add(length.0)?,
        })
    }

    /// Its length.
    #[must_use]
    pub fn length(&self) -> Bytes {
        Bytes(self.end - self.start)
    }

    /// Whether the two share an address.
    #[must_use]
    pub fn overlaps(&self, other: &AddressRange) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The part from `offset` for `length` bytes; `None` where that leaves the range.
    #[must_use]
    pub fn part(&self, offset: Bytes, length: Bytes) -> Option<AddressRange> {
        let part = AddressRange::new(self.start.checked_add(offset.0)?, length)?;
        (part.end <= self.end).then_some(part)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_inside() {
        let range = AddressRange::new(0x1000, Bytes(0x3000)).unwrap();
        assert_eq!(
            range.part(Bytes(0x1000), Bytes(0x2000)).unwrap().end,
            range.end
        );
        assert_eq!(range.part(Bytes(0x1000), Bytes(0x2001)), None);
        assert_eq!(range.part(Bytes(u64::MAX), Bytes(1)), None);
        assert_eq!(AddressRange::new(u64::MAX, Bytes(2)), None);
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let low = AddressRange { start: 0, end: 8 };
        let high = AddressRange { start: 8, end: 9 };
        assert!(!low.overlaps(&high) && !high.overlaps(&low));
        assert!(low.overlaps(&AddressRange { start: 7, end: 9 }));
    }
}
