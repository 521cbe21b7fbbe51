use super::churn::Churn;
use super::{LARGEST_PAGES, PAGE, START, map, streams};
use crate::memory::{MemoryEvent, Placing};
use crate::random::Random;
use crate::range::AddressRange;
use crate::units::Bytes;

/// The demands of a [`Frag`] request beside its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Nothing,
    Alignment,
    Limits,
}

/// Holes everywhere: `n` ranges of 1 to 64 pages (all sizes equally likely) are mapped and a
/// random half of them is freed; then one of the rest is freed at random and another mapped, in
/// turn.
///
/// ```text
/// layout   AAABBCCCCCDEEEEFFFGGHHHHHI
/// thinned  AAA..CCCCC.EEEE...GG.....I     each free makes a hole, each map has to find one
/// ```
///
/// [`Frag::aligned`] and [`Frag::limits`] ask for more; with one seed the sizes and the order of
/// the frees are the same in all three.
#[derive(Debug, Clone)]
pub struct Frag {
    asks: Asks,
    n: u32,
    operations: u64,
    seed: u64,
}

impl Frag {
    /// The default number of ranges.
    pub const USUAL_N: u32 = 50_000;

    /// `n` ranges, then `operations` operations (a map is one and an unmap is one).
    #[must_use]
    pub fn new(n: u32, operations: u64, seed: u64) -> Frag {
        Frag {
            asks: Asks::Nothing,
            n,
            operations,
            seed,
        }
    }

    /// As [`Frag::new`], each request aligned to a power of two from 4 KiB to 2 MiB, all ten
    /// equally likely.
    #[must_use]
    pub fn aligned(n: u32, operations: u64, seed: u64) -> Frag {
        Frag {
            asks: Asks::Alignment,
            ..Frag::new(n, operations, seed)
        }
    }

    /// As [`Frag::new`], each request with probability one half within [`Frag::low_zone`].
    #[must_use]
    pub fn limits(n: u32, operations: u64, seed: u64) -> Frag {
        Frag {
            asks: Asks::Limits,
            ..Frag::new(n, operations, seed)
        }
    }

    /// What is live when all `n` ranges are laid out and none is freed yet: the sum of the sizes
    /// that [`Frag::events`] lays out, not an expectation. Costs `n` random numbers.
    ///
    /// For 50,000 ranges with seed 1 it is 6,650,040,320 bytes.
    #[must_use]
    pub fn peak(&self) -> Bytes {
        let [mut sizes, _, _] = streams(self.seed);
        (0..self.n).map(|_| size(&mut sizes)).sum()
    }

    /// Where the limited requests of [`Frag::limits`] must lie: from 64 KiB on, 62.5 % of
    /// [`Frag::peak`] in whole pages, and never less than the largest request.
    #[must_use]
    pub fn low_zone(&self) -> AddressRange {
        let pages = self.peak().0 / PAGE.0 * 5 / 8;
        AddressRange {
            start: START,
            end: START + pages.max(LARGEST_PAGES) * PAGE.0,
        }
    }

    /// Its events.
    pub fn events(&self) -> impl Iterator<Item = MemoryEvent> + use<> {
        let [mut sizes, choice, mut extra] = streams(self.seed);
        let asks = self.asks;
        let low_zone = (asks == Asks::Limits).then(|| self.low_zone());
        let keep = self.n - self.n / 2;
        Churn::new(self.n, keep, self.operations, choice, move |id| {
            let mut placing = Placing::ANYWHERE;
            match asks {
                Asks::Nothing => {}
                Asks::Alignment => placing.alignment = Bytes(PAGE.0 << extra.below(10)),
                Asks::Limits => placing.limits = low_zone.filter(|_| extra.below(2) == 0),
            }
            map(id, size(&mut sizes), placing)
        })
    }
}

/// 1 to 64 pages.
pub(super) fn size(random: &mut Random) -> Bytes {
    Bytes(PAGE.0 * (1 + random.below(LARGEST_PAGES)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MapId, Phase};

    fn maps(frag: &Frag) -> Vec<(MapId, Bytes, Placing)> {
        let of = |event| match event {
            MemoryEvent::Map {
                id,
                length,
                placing,
                ..
            } => Some((id, length, placing)),
            _ => None,
        };
        frag.events().filter_map(of).collect()
    }

    #[test]
    fn a_random_half_goes_before_it_is_steady() {
        for n in [0, 1, 2, 999, 1_000] {
            let events: Vec<_> = Frag::new(n, 500, 3).events().collect();
            let steady = events
                .iter()
                .position(|event| *event == MemoryEvent::Begin(Phase::Steady))
                .unwrap();
            let freed = |events: &[MemoryEvent]| {
                let unmaps = |event: &&MemoryEvent| matches!(event, MemoryEvent::Unmap { .. });
                events.iter().filter(unmaps).count()
            };
            assert_eq!(freed(&events[..steady]), n as usize / 2);
            let after = &events[steady + 1..];
            assert_eq!(after.len(), if n == 0 { 0 } else { 500 });
            assert_eq!(freed(after), after.len() / 2);
        }
    }

    #[test]
    fn sizes_are_uniform() {
        let mut seen = [0u32; 65];
        for (_, length, placing) in maps(&Frag::new(64_000, 0, 5)) {
            assert!(placing.is_anywhere());
            assert!(length.0.is_multiple_of(PAGE.0));
            seen[usize::try_from(length.0 / PAGE.0).unwrap()] += 1;
        }
        assert_eq!(seen[0], 0);
        assert!(
            seen[1..].iter().all(|&n| (850..1_150).contains(&n)),
            "{seen:?}"
        );
    }

    /// The three differ in what they ask and in nothing else.
    #[test]
    fn the_three_share_sizes_and_frees() {
        let plain = |frag: &Frag| -> Vec<_> {
            let without = |event| match event {
                MemoryEvent::Map { id, length, .. } => map(id, length, Placing::ANYWHERE),
                other => other,
            };
            frag.events().map(without).collect()
        };
        let frag = plain(&Frag::new(500, 2_000, 9));
        assert_eq!(frag, plain(&Frag::aligned(500, 2_000, 9)));
        assert_eq!(frag, plain(&Frag::limits(500, 2_000, 9)));
        assert_ne!(frag, plain(&Frag::new(500, 2_000, 10)));
    }

    #[test]
    fn all_ten_alignments_come_equally() {
        let mut seen = [0u32; 22];
        for (_, _, placing) in maps(&Frag::aligned(20_000, 0, 2)) {
            assert!(placing.alignment.0.is_power_of_two());
            seen[placing.alignment.0.trailing_zeros() as usize] += 1;
        }
        assert_eq!(seen[..12], [0; 12]);
        assert!(
            seen[12..].iter().all(|&n| (1_800..2_200).contains(&n)),
            "{seen:?}"
        );
    }

    /// ```text
    /// 64K              62.5 % of peak                 100 %
    ///  |  limited half      |
    ///  |  the other half anywhere                        ...
    /// ```
    #[test]
    fn half_are_limited_to_a_zone_of_the_exact_peak() {
        let frag = Frag::limits(Frag::USUAL_N, 10_000, 1);
        let all = maps(&frag);
        let laid_out: u64 = all[..Frag::USUAL_N as usize].iter().map(|m| m.1.0).sum();
        assert_eq!(frag.peak(), Bytes(laid_out));
        assert_eq!(frag.peak(), Bytes(6_650_040_320), "as documented");
        let zone = frag.low_zone();
        assert_eq!(zone.start, 65_536);
        assert_eq!(zone.length().0, laid_out / 4_096 * 5 / 8 * 4_096);
        let limited = all.iter().filter(|m| m.2.limits == Some(zone)).count();
        let free = all.iter().filter(|m| m.2.is_anywhere()).count();
        assert_eq!(limited + free, all.len());
        assert!(limited.abs_diff(free) < all.len() / 50, "{limited} {free}");
        for n in 0..3 {
            assert!(Frag::limits(n, 0, 1).low_zone().length().0 >= 64 * 4_096);
        }
    }
}
