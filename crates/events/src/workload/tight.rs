use super::churn::Churn;
use super::frag::size;
use super::{LARGEST_PAGES, PAGE, START, map, streams};
use crate::memory::{MemoryEvent, Placing};
use crate::range::AddressRange;
use crate::units::Bytes;

/// The least difference between the bytes laid out and the live bytes.
const SPARE_PAGES: u64 = 256;

/// Hardly any room: `n` ranges of 1 to 64 pages are always live in a window only a few per cent
/// larger than they are, and one after the other is replaced at random.
///
/// So that the window is what it says, the live bytes stay between 99.75 % and 100 % of those laid
/// out (of few ranges: up to 256 pages below): a replacement is of 1 to 64 pages, all equally
/// likely but those that would leave these bounds. A map therefore always has room in bytes;
/// whether it has room in one piece is the question.
///
/// ```text
/// window   |AAAABBCCCCCCDDDEE....FFFFFFGGGG.|   factor x (A+B+...+G as laid out)
/// ```
#[derive(Debug, Clone)]
pub struct Tight {
    percent: u32,
    n: u32,
    operations: u64,
    seed: u64,
}

impl Tight {
    /// The default number of ranges.
    pub const USUAL_N: u32 = 20_000;

    /// `n` ranges in a window of `percent` per cent of their bytes (at least 100), then
    /// `operations` operations: a free, a map, a free ...
    #[must_use]
    pub fn new(percent: u32, n: u32, operations: u64, seed: u64) -> Tight {
        Tight {
            percent: percent.max(100),
            n,
            operations,
            seed,
        }
    }

    /// The most bytes that are ever live: those laid out. Costs `n` random numbers.
    #[must_use]
    pub fn peak(&self) -> Bytes {
        let [mut sizes, _, _] = streams(self.seed);
        (0..self.n).map(|_| size(&mut sizes)).sum()
    }

    /// Where all of it must lie: from 64 KiB on, the given per cent of [`Tight::peak`], rounded
    /// up to whole pages; one page where nothing is laid out.
    #[must_use]
    pub fn window(&self) -> AddressRange {
        let pages = self.peak().0 / PAGE.0 * u64::from(self.percent);
        AddressRange {
            start: START,
            end: START + pages.div_ceil(100).max(1) * PAGE.0,
        }
    }

    /// Its events.
    pub fn events(&self) -> impl Iterator<Item = MemoryEvent> + use<> {
        let [mut sizes, choice, _] = streams(self.seed);
        let mut pages_of: Vec<u8> = Vec::new();
        let mut laid_out = 0; // pages
        let mut room = 0; // pages between what is live and what was laid out
        Churn::new(self.n, self.n, self.operations, choice, move |id| {
            let length = match pages_of.get_mut(id.0 as usize) {
                None => {
                    let length = size(&mut sizes);
                    pages_of.push(pages(length));
                    laid_out += length.0 / PAGE.0;
                    length
                }
                Some(old) => {
                    room += u64::from(*old);
                    let spare = SPARE_PAGES.max(laid_out / 400);
                    let (least, most) = (room.saturating_sub(spare), room.min(LARGEST_PAGES));
                    let least = least.max(1);
                    let new = least + sizes.below(most - least + 1);
                    room -= new;
                    let length = Bytes(new * PAGE.0);
                    *old = pages(length);
                    length
                }
            };
            map(id, length, Placing::ANYWHERE)
        })
    }
}

fn pages(length: Bytes) -> u8 {
    (length.0 / PAGE.0) as u8
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::memory::Phase;

    #[test]
    fn the_window_is_honest() {
        let mut seen = [0u32; 65];
        for (percent, seed) in [(103, 1), (106, 2), (103, 3), (106, 4)] {
            let tight = Tight::new(percent, 20_000, 200_000, seed);
            let (peak, window) = (tight.peak().0, tight.window());
            assert_eq!(window.start, 65_536);
            let exact = peak * u64::from(percent) / 100;
            assert!((exact..=exact + PAGE.0).contains(&window.length().0));

            let (mut live, mut total, mut steady) = (HashMap::new(), 0, false);
            for event in tight.events() {
                match event {
                    MemoryEvent::Begin(phase) => steady = phase == Phase::Steady,
                    MemoryEvent::Unmap { id } => total -= live.remove(&id).unwrap(),
                    MemoryEvent::Map { id, length, .. } => {
                        seen[usize::try_from(length.0 / PAGE.0).unwrap()] += 1;
                        total += length.0;
                        live.insert(id, length.0);
                        if steady {
                            assert_eq!(live.len(), 20_000);
                            assert!(total <= peak);
                            assert!(
                                total * 10_000 >= peak * 9_975,
                                "seed {seed}: {total} of {peak}"
                            );
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        // The bounds hardly bend the sizes: 7,500 of each were drawn.
        assert_eq!(seen[0], 0);
        assert!(
            seen[1..].iter().all(|n| (6_900..8_100).contains(n)),
            "{seen:?}"
        );
    }

    #[test]
    fn few_ranges_have_a_window_too() {
        for n in 0..4 {
            let tight = Tight::new(103, n, 100, 1);
            assert!(tight.window().length().0 >= tight.peak().0.max(PAGE.0));
            assert_eq!(
                tight.events().count(),
                2 + n as usize + if n > 0 { 100 } else { 0 }
            );
        }
    }
}
