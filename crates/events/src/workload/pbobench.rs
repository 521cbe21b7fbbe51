use crate::memory::{MapId, MemoryEvent, Merge, Phase, Placing, Protection};
use crate::random::Random;
use crate::units::Bytes;

/// pbobench of mail 000 (r6144, 2011), without the OpenGL around it.
///
/// `n` one-page mappings that can never merge are laid out first and stay. Then each step picks
/// one of [`Pbobench::SLOTS`] slots at random: an empty slot gets a mapping of 1 to 16,384 bytes,
/// all sizes equally likely; a full one is unmapped. So a step is a map half of the time.
///
/// The mail's base mappings ask for 4,000 bytes; so do ours: one page wherever pages are 4 KiB
/// or larger. It used a Mersenne twister; the stream here is [`Random`]'s.
#[derive(Debug, Clone)]
pub struct Pbobench {
    n: u32,
    steps: u64,
    seed: u64,
}

impl Pbobench {
    /// Slots that the steps choose from (the mail's L).
    pub const SLOTS: u32 = 100;
    /// Largest size of a slot's mapping in bytes.
    pub const LARGEST: u64 = 16_384;

    /// `n` base mappings, then `steps` steps; `seed` fixes slots and sizes.
    #[must_use]
    pub fn new(n: u32, steps: u64, seed: u64) -> Pbobench {
        Pbobench { n, steps, seed }
    }

    /// Mappings live at most at one time.
    #[must_use]
    pub fn peak(n: u32) -> u64 {
        u64::from(n) + u64::from(Pbobench::SLOTS)
    }

    /// Its events. Base mappings are named 0 to `n - 1`, slots from `n` on.
    pub fn events(&self) -> impl Iterator<Item = MemoryEvent> + use<> {
        let n = self.n;
        let layout = (0..n).map(|i| MemoryEvent::Map {
            id: MapId(i),
            length: Bytes(4_000),
            protection: Protection::Write,
            merge: Merge::Never,
            placing: Placing::ANYWHERE,
        });
        let mut random = Random::new(self.seed);
        let mut full = [false; Pbobench::SLOTS as usize];
        let steps = (0..self.steps).flat_map(move |_| {
            let slot = random.index(full.len());
            full[slot] = !full[slot];
            let id = MapId(n + slot as u32);
            if full[slot] {
                let map = MemoryEvent::Map {
                    id,
                    length: Bytes(1 + random.below(Pbobench::LARGEST)),
                    protection: Protection::Write,
                    merge: Merge::Never,
                    placing: Placing::ANYWHERE,
                };
                [Some(map), Some(MemoryEvent::Touch { id })]
            } else {
                [Some(MemoryEvent::Unmap { id }), None]
            }
        });
        std::iter::once(MemoryEvent::Begin(Phase::Layout))
            .chain(layout)
            .chain(std::iter::once(MemoryEvent::Begin(Phase::Steady)))
            .chain(steps.flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_uniform_and_half_of_the_steps_map() {
        let (mut maps, mut unmaps, mut bytes) = (0u64, 0u64, 0u64);
        for event in Pbobench::new(0, 100_000, 7).events() {
            match event {
                MemoryEvent::Map { length, .. } => {
                    assert!((1..=Pbobench::LARGEST).contains(&length.0));
                    maps += 1;
                    bytes += length.0;
                }
                MemoryEvent::Unmap { .. } => unmaps += 1,
                _ => {}
            }
        }
        assert_eq!(maps + unmaps, 100_000);
        assert!(maps - unmaps <= u64::from(Pbobench::SLOTS));
        let mean = bytes / maps;
        assert!((8_000..8_400).contains(&mean), "mean size {mean}");
    }

    #[test]
    fn a_seed_fixes_the_stream() {
        let events = |seed| Pbobench::new(10, 500, seed).events().collect::<Vec<_>>();
        assert_eq!(events(1), events(1));
        assert_ne!(events(1), events(2));
    }
}
