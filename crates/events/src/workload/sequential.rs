use super::frag::size;
use super::{PAGE, map, streams};
use crate::memory::{MapId, MemoryEvent, Phase, Placing};
use crate::units::Bytes;

/// A ring of `n` growing buffers: each step frees the oldest and maps its successor, one page
/// larger than it was. Buffers start at 1 to 64 pages (all equally likely, the only randomness);
/// one that would exceed [`Sequential::LARGEST_PAGES`] starts again at 1.
///
/// ```text
/// AABBBC -> ..BBBCAAA -> .....CAAABBBB -> ......AAABBBBCC     no hole ever fits its successor
/// ```
#[derive(Debug, Clone)]
pub struct Sequential {
    n: u32,
    operations: u64,
    seed: u64,
}

impl Sequential {
    /// A buffer's largest size, in pages of 4 KiB.
    pub const LARGEST_PAGES: u64 = 1_024;
    /// The default number of buffers.
    pub const USUAL_N: u32 = 1_000;

    /// `n` buffers, then `operations` operations: a free, a map, a free ...
    #[must_use]
    pub fn new(n: u32, operations: u64, seed: u64) -> Sequential {
        Sequential {
            n,
            operations,
            seed,
        }
    }

    /// Its events. Buffers are named 0 to `n - 1`; a successor keeps the name.
    pub fn events(&self) -> impl Iterator<Item = MemoryEvent> + use<> {
        let n = self.n;
        let [sizes, _, _] = streams(self.seed);
        let mut starts = sizes.clone();
        let layout = (0..n).map(move |i| map(MapId(i), size(&mut starts), Placing::ANYWHERE));
        // The same sizes once more, now as what grows.
        let mut starts = sizes;
        let mut pages: Vec<u64> = Vec::new();
        let operations = if n == 0 { 0 } else { self.operations };
        let steps = (0..operations).map(move |operation| {
            let id = MapId((operation / 2 % u64::from(n)) as u32);
            if operation % 2 == 0 {
                return MemoryEvent::Unmap { id };
            }
            let slot = id.0 as usize;
            if slot == pages.len() {
                pages.push(size(&mut starts).0 / PAGE.0);
            }
            pages[slot] = pages[slot] % Sequential::LARGEST_PAGES + 1;
            map(id, Bytes(pages[slot] * PAGE.0), Placing::ANYWHERE)
        });
        std::iter::once(MemoryEvent::Begin(Phase::Layout))
            .chain(layout)
            .chain(std::iter::once(MemoryEvent::Begin(Phase::Steady)))
            .chain(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_successor_is_a_page_larger_until_it_starts_again() {
        let n = 3;
        let mut last = vec![None::<u64>; n as usize];
        let mut turn = 0;
        let mut restarts = 0;
        for event in Sequential::new(n, 2 * 3 * 1_100, 8).events() {
            match event {
                MemoryEvent::Map { id, length, .. } => {
                    let pages = length.0 / PAGE.0;
                    match last[id.0 as usize].replace(pages) {
                        None => assert!((1..=64).contains(&pages)),
                        Some(1_024) => {
                            assert_eq!(pages, 1);
                            restarts += 1;
                        }
                        Some(before) => assert_eq!(pages, before + 1),
                    }
                }
                MemoryEvent::Unmap { id } => {
                    assert_eq!(id.0, turn % n, "the oldest goes");
                    turn += 1;
                }
                MemoryEvent::Begin(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((turn, restarts), (3_300, 3));
    }
}
