use core::fmt;

use super::{Direction, Impossible, Need, Request};

/// The addresses from `start` up to, not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// First address that is no longer inside.
    pub end: u64,
}

impl Range {
    /// The addresses from `start` up to `end`.
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    /// Its length; 0 where the ends are crossed.
    #[must_use]
    pub const fn length(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether all of `inner` lies inside.
    #[must_use]
    pub const fn contains(self, inner: Range) -> bool {
        self.start <= inner.start && inner.end <= self.end
    }

    /// Whether the two share an address.
    #[must_use]
    pub const fn overlaps(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.start, self.end)
    }
}

/// Why there can be no such [`Space`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpaceError {
    /// The page size is 0 or no power of two.
    Page,
    /// The window has no page, or its ends are crossed or not multiples of the page size.
    Window,
    /// The window ends above 2^48: no address space of a process is larger.
    TooHigh,
    /// The window has more than [`Space::MOST_PAGES`] pages: policies count them in fewer bits than
    /// addresses.
    TooMany,
}

impl fmt::Display for SpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SpaceError::Page => "the page size is no power of two",
            SpaceError::Window => "the window is empty, crossed or not made of whole pages",
            SpaceError::TooHigh => "the window ends above 2^48",
            SpaceError::TooMany => "the window has more than 2^44 pages",
        })
    }
}

impl core::error::Error for SpaceError {}

/// A window of addresses and the size of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    window: Range,
    page: u64,
}

impl Space {
    /// The highest address at which a window may end.
    pub const HIGHEST: u64 = 1 << 48;
    /// The most pages that a window may have: with pages of 16 bytes or more, all that fit.
    pub const MOST_PAGES: u64 = 1 << 44;

    /// The first page of all, for what has no window yet.
    pub(crate) const PAGE_ZERO: Space = Space {
        window: Range::new(0, 4096),
        page: 4096,
    };

    /// The pages of `page` bytes in `window`.
    ///
    /// # Errors
    /// Where `window` is not made of whole pages, is none, or has too many.
    pub const fn new(window: Range, page: u64) -> Result<Space, SpaceError> {
        if !page.is_power_of_two() {
            return Err(SpaceError::Page);
        }
        if window.start >= window.end || (window.start | window.end) & (page - 1) != 0 {
            return Err(SpaceError::Window);
        }
        if window.end > Space::HIGHEST {
            return Err(SpaceError::TooHigh);
        }
        if window.length() / page > Space::MOST_PAGES {
            return Err(SpaceError::TooMany);
        }
        Ok(Space { window, page })
    }

    /// All addresses.
    #[must_use]
    pub const fn window(self) -> Range {
        self.window
    }

    /// Bytes in a page, a power of two.
    #[must_use]
    pub const fn page(self) -> u64 {
        self.page
    }

    /// `bytes` rounded up to whole pages; `None` where that leaves 64 bits.
    #[must_use]
    pub const fn page_up(self, bytes: u64) -> Option<u64> {
        match bytes.checked_add(self.page - 1) {
            Some(sum) => Some(sum & !(self.page - 1)),
            None => None,
        }
    }

    /// Whether `range` is made of whole pages of the window, at least one.
    #[must_use]
    pub const fn holds(self, range: Range) -> bool {
        range.start < range.end
            && (range.start | range.end) & (self.page - 1) == 0
            && self.window.contains(range)
    }

    /// What a request comes to in this space: sizes in whole pages, limits drawn in to whole pages.
    ///
    /// # Errors
    /// Where not even an empty space could answer it.
    #[inline]
    pub fn need(self, request: &Request) -> Result<Need, Impossible> {
        if request.size == 0 {
            return Err(Impossible::ZeroSize);
        }
        // No power of two; asked without counting bits, a dozen instructions on the oldest x86-64.
        if request.alignment == 0 || request.alignment & (request.alignment - 1) != 0 {
            return Err(Impossible::Alignment);
        }
        let mask = self.page - 1;
        if request.offset & mask != 0 {
            return Err(Impossible::Offset);
        }
        let size = self.page_up(request.size).ok_or(Impossible::TooLarge)?;
        let align_mask = (request.alignment - 1) | mask;
        let limits = match request.limits {
            None => self.window,
            Some(limits) => {
                if limits.start >= limits.end {
                    return Err(Impossible::LimitsCrossed);
                }
                if !self.window.contains(limits) {
                    return Err(Impossible::LimitsOutside);
                }
                // Cannot overflow: the window ends at 2^48 at most.
                Range::new((limits.start + mask) & !mask, limits.end & !mask)
            }
        };
        let need = Need {
            size,
            align_mask,
            align_offset: request.offset & align_mask,
            limits,
            direction: request.direction,
            hint: request.hint,
            merge: request.merge,
        };
        let first = need.first_from(limits.start).ok_or(Impossible::TooLarge)?;
        match first.checked_add(size) {
            Some(end) if end <= limits.end => Ok(need),
            _ => Err(Impossible::TooLarge),
        }
    }
}

impl Need {
    /// The first address from `from` on that is aligned as asked; `None` where that leaves 64 bits.
    #[must_use]
    #[inline]
    pub const fn first_from(&self, from: u64) -> Option<u64> {
        from.checked_add(self.align_offset.wrapping_sub(from) & self.align_mask)
    }

    /// The last address up to `until` that is aligned as asked; `None` where that is below 0.
    #[must_use]
    #[inline]
    pub const fn last_until(&self, until: u64) -> Option<u64> {
        until.checked_sub(until.wrapping_sub(self.align_offset) & self.align_mask)
    }

    /// The range of the asked size in the free area `hole` that this need allows: the lowest, or with
    /// [`Direction::TopDown`] the highest. `None` where there is none.
    #[must_use]
    pub fn within(&self, hole: Range) -> Option<Range> {
        let low = hole.start.max(self.limits.start);
        let high = hole.end.min(self.limits.end);
        let start = if self.direction == Direction::TopDown {
            self.last_until(high.checked_sub(self.size)?)?
        } else {
            self.first_from(low)?
        };
        let end = start.checked_add(self.size)?;
        (start >= low && end <= high).then_some(Range::new(start, end))
    }

    /// The range that the hint asks for: `None` without a hint, or where it is outside the limits or
    /// not aligned as asked. A hint is rounded up to a whole page, as get_unmapped_area does.
    #[must_use]
    pub fn hinted(&self, space: Space) -> Option<Range> {
        let start = space.page_up(self.hint?)?;
        let range = Range::new(start, start.checked_add(self.size)?);
        let aligned = self.first_from(start)? == start;
        (aligned && self.limits.contains(range)).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        Space::new(Range::new(0x1000, 0x9000), 0x1000).unwrap()
    }

    #[test]
    fn a_space_is_made_of_whole_pages() {
        assert_eq!(
            Space::new(Range::new(0, 0x1000), 3000),
            Err(SpaceError::Page)
        );
        assert_eq!(Space::new(Range::new(0, 0x1000), 0), Err(SpaceError::Page));
        for (start, end) in [(0, 0), (0x2000, 0x1000), (0, 0x1800), (0x800, 0x2000)] {
            let made = Space::new(Range::new(start, end), 0x1000);
            assert_eq!(made, Err(SpaceError::Window));
        }
        let high = Space::new(Range::new(0, Space::HIGHEST + 0x1000), 0x1000);
        assert_eq!(high, Err(SpaceError::TooHigh));
        let all = Range::new(0, Space::HIGHEST);
        assert_eq!(Space::new(all, 8), Err(SpaceError::TooMany));
        assert!(Space::new(all, 16).is_ok());
    }

    #[test]
    fn what_no_space_could_answer_is_impossible() {
        let ask = |change: fn(&mut Request)| {
            let mut request = Request::of(0x1000);
            change(&mut request);
            space().need(&request).map(|need| need.limits)
        };
        assert_eq!(ask(|r| r.size = 0), Err(Impossible::ZeroSize));
        assert_eq!(ask(|r| r.alignment = 0), Err(Impossible::Alignment));
        assert_eq!(ask(|r| r.alignment = 0x3000), Err(Impossible::Alignment));
        assert_eq!(ask(|r| r.offset = 1), Err(Impossible::Offset));
        assert_eq!(ask(|r| r.size = u64::MAX), Err(Impossible::TooLarge));
        assert_eq!(ask(|r| r.size = 0x8001), Err(Impossible::TooLarge));
        assert_eq!(ask(|r| r.alignment = 0x10000), Err(Impossible::TooLarge));
        let limits = |start, end| {
            let mut request = Request::of(0x1000);
            request.limits = Some(Range::new(start, end));
            space().need(&request).map(|need| need.limits)
        };
        assert_eq!(limits(0x4000, 0x3000), Err(Impossible::LimitsCrossed));
        assert_eq!(limits(0x3000, 0x3000), Err(Impossible::LimitsCrossed));
        assert_eq!(limits(0, 0x3000), Err(Impossible::LimitsOutside));
        assert_eq!(limits(0x3000, 0x9001), Err(Impossible::LimitsOutside));
        assert_eq!(limits(0x3001, 0x4fff), Err(Impossible::TooLarge));
        assert_eq!(limits(0x2fff, 0x4001), Ok(Range::new(0x3000, 0x4000)));
    }

    /// ```text
    ///   1 2 3 4 5 6 7 8      pages
    ///     . . . . .          the hole
    ///       ^       ^        aligned to 4 pages with offset 3: 3 and 7
    /// ```
    #[test]
    fn alignment_counts_from_its_offset() {
        let mut request = Request::of(0x1800);
        request.alignment = 0x4000;
        request.offset = 0x3000;
        let need = space().need(&request).unwrap();
        let hole = Range::new(0x2000, 0x7000);
        assert_eq!(need.within(hole), Some(Range::new(0x3000, 0x5000)));
        let down = Need {
            direction: Direction::TopDown,
            ..need
        };
        assert_eq!(down.within(hole), Some(Range::new(0x3000, 0x5000)));
        assert_eq!(
            down.within(Range::new(0x2000, 0x9000)),
            Some(Range::new(0x7000, 0x9000))
        );
        assert_eq!(need.within(Range::new(0x4000, 0x8000)), None);
    }

    #[test]
    fn a_hint_outside_the_limits_is_none() {
        let mut request = Request::of(0x1000);
        request.hint = Some(0x1001);
        let hinted = |request: &Request| space().need(request).unwrap().hinted(space());
        assert_eq!(hinted(&request), Some(Range::new(0x2000, 0x3000)));
        for far in [0, 0x9000, u64::MAX] {
            request.hint = Some(far);
            assert_eq!(hinted(&request), None);
        }
    }
}
