//! What is held, by address.

use crate::contract::Range;

use super::Stopgap;
use super::map::Start;

impl Stopgap {
    /// The ranges held, by address. Copies everything first and walks it.
    pub fn ranges(&self) -> impl Iterator<Item = Range> + '_ {
        // The map has what magazines keep as held; a copy's map is given it.
        let mut copy = self.clone();
        copy.flush();
        let mut boundaries = copy.map.boundaries().into_iter().peekable();
        core::iter::from_fn(move || {
            let (start, what) = boundaries.next()?;
            // The last boundary is the end of the map.
            let &(end, _) = boundaries.peek()?;
            Some((start, end, what))
        })
        .filter(|(_, _, what)| *what == Start::Range)
        .map(|(start, end, _)| self.range(start, end - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Policy, Request, Space};
    use alloc::vec::Vec;

    /// Some ranges over several tiles, every third one freed, so that magazines keep some of them.
    #[test]
    fn the_ranges_are_those_given_and_not_freed() {
        let space = Space::new(Range::new(0x7000, 0x4000_0000), 0x1000).unwrap();
        let mut stopgap = Stopgap::new(space);
        let sizes = (0..900).map(|i| 1 + (i * 37) % 0x2_5000);
        let mut held: Vec<Range> = sizes
            .map(|size| stopgap.place(&Request::of(size)).unwrap())
            .collect();
        let mut count = 0;
        held.retain(|&range| {
            count += 1;
            count % 3 != 0 || stopgap.free(range) != Ok(())
        });
        held.sort_unstable();
        assert_eq!(held.len(), 600);
        assert!(stopgap.ranges().eq(held));
    }
}
