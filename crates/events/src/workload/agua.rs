use crate::memory::{MapId, MemoryEvent, Merge, Phase, Placing, Protection};
use crate::units::Bytes;

/// `agua_frag_test`, whose loop time mail 003 quotes (294 ms a loop, then 38).
///
/// Each loop makes 10,000 private anonymous read-only maps, sizes repeating 16 x 128 B,
/// 4 x 25,000 B, 1 x 100,000 B, then 2,500 unmaps that walk the list of live mappings from a
/// start offset, skipping `gap` survivors between two frees. `gap` starts at 5 and after each
/// loop becomes `gap + 3`, or 3 if it had exceeded 20. When more than `ceiling` mappings are
/// live, `drop` more are freed, from an offset of the loop's number, skipping `gap / 2`.
///
/// The original runs 10 x 1,000 loops with a ceiling of 200,000, which is beyond the usual
/// `vm.max_map_count`: here loops, ceiling and drop are parameters, and the executor
/// scales them and says so. The maps may merge with equal neighbours, as in the original, so
/// fewer VMAs than mappings live.
///
/// Source: the port in libMicro's style by Red Hat, 2012; there is no randomness in it.
#[derive(Debug, Clone)]
pub struct Agua {
    loops: u32,
    ceiling: u32,
    drop: u32,
}

/// Bytes of the maps of one cycle.
const SIZES: [(u32, u64); 3] = [(16, 128), (4, 25_000), (1, 100_000)];
const MAPS_PER_LOOP: u32 = 10_000;
const UNMAPS_PER_LOOP: u32 = 2_500;
const FULL_CEILING: u64 = 200_000;
const FULL_DROP: u64 = 35_000;

impl Agua {
    /// Maps of one loop: so many more than the ceiling may be live before it is looked at.
    pub const PER_LOOP: u64 = MAPS_PER_LOOP as u64;
    /// Mappings that the original keeps live at most.
    pub const ORIGINAL_CEILING: u64 = FULL_CEILING;

    /// `loops` loops that keep at most about `ceiling` mappings live; what is dropped above it
    /// keeps the original's proportion (35,000 of 200,000).
    #[must_use]
    pub fn new(loops: u32, ceiling: u32) -> Agua {
        let drop = u64::from(ceiling) * FULL_DROP / FULL_CEILING;
        Agua::with_drop(loops, ceiling, drop as u32)
    }

    /// As [`Agua::new`] with the number of mappings to drop given.
    #[must_use]
    pub fn with_drop(loops: u32, ceiling: u32, drop: u32) -> Agua {
        Agua {
            loops,
            ceiling,
            drop: drop.min(ceiling),
        }
    }

    /// Mappings live at most between two loops.
    #[must_use]
    pub fn ceiling(&self) -> u32 {
        self.ceiling
    }

    /// Mappings live at most at one time: the ceiling is only looked at between loops.
    #[must_use]
    pub fn peak(&self) -> u64 {
        u64::from(self.ceiling) + u64::from(MAPS_PER_LOOP)
    }

    /// Its events. A loop ends with [`Phase::Round`].
    pub fn events(&self) -> impl Iterator<Item = MemoryEvent> + use<> {
        let agua = self.clone();
        let mut live: Vec<MapId> = Vec::new();
        let mut free_names: Vec<MapId> = Vec::new();
        let mut next_name = 0u32;
        let mut gap = 5usize;
        std::iter::once(MemoryEvent::Begin(Phase::Steady)).chain((0..agua.loops).flat_map(
            move |number| {
                let mut events = Vec::with_capacity(MAPS_PER_LOOP as usize * 2);
                for length in sizes().take(MAPS_PER_LOOP as usize) {
                    let id = free_names.pop().unwrap_or_else(|| {
                        next_name += 1;
                        MapId(next_name - 1)
                    });
                    live.push(id);
                    events.push(MemoryEvent::Map {
                        id,
                        length,
                        protection: Protection::Read,
                        merge: Merge::May,
                        placing: Placing::ANYWHERE,
                    });
                }
                let mut free = |live: &mut Vec<MapId>, from, skip, count| {
                    for id in take_spread(live, from, skip, count) {
                        events.push(MemoryEvent::Unmap { id });
                        free_names.push(id);
                    }
                };
                free(&mut live, gap, gap, UNMAPS_PER_LOOP as usize);
                if live.len() > agua.ceiling as usize {
                    free(&mut live, number as usize, gap / 2, agua.drop as usize);
                    // The original's walk may reach the list's end before it has dropped
                    // enough; the ceiling is a promise to the kernel's limit, so go on from
                    // the start without skipping.
                    let excess = live.len().saturating_sub(agua.ceiling as usize);
                    free(&mut live, 0, 0, excess);
                }
                gap = if gap > 20 { 3 } else { gap + 3 };
                events.push(MemoryEvent::Begin(Phase::Round));
                events
            },
        ))
    }
}

/// The sizes of one loop, in order.
fn sizes() -> impl Iterator<Item = Bytes> {
    SIZES
        .into_iter()
        .flat_map(|(times, length)| std::iter::repeat_n(Bytes(length), times as usize))
        .collect::<Vec<_>>()
        .into_iter()
        .cycle()
}

/// Takes up to `count` items out of `live`: the one at `from`, then each after `skip`
/// survivors; the order of the survivors is kept.
///
/// ```text
/// from 1, skip 2:   a B c d E f g H i
///                     ^     ^     ^    taken
/// ```
fn take_spread(live: &mut Vec<MapId>, from: usize, skip: usize, count: usize) -> Vec<MapId> {
    let mut taken = Vec::with_capacity(count);
    let mut position = 0;
    live.retain(|&id| {
        let here = position;
        position += 1;
        let take = here >= from && (here - from).is_multiple_of(skip + 1) && taken.len() < count;
        if take {
            taken.push(id);
        }
        !take
    });
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_maps_ten_thousand_and_frees_a_quarter() {
        let events: Vec<_> = Agua::new(1, 100_000).events().collect();
        let count = |wanted: fn(&MemoryEvent) -> bool| events.iter().filter(|e| wanted(e)).count();
        assert_eq!(count(|e| matches!(e, MemoryEvent::Map { .. })), 10_000);
        // gap 5: one in six of 10,000 is all that the walk meets.
        assert_eq!(count(|e| matches!(e, MemoryEvent::Unmap { .. })), 1_666);
        let first: Vec<u64> = events
            .iter()
            .filter_map(|e| match e {
                MemoryEvent::Map { length, .. } => Some(length.0),
                _ => None,
            })
            .take(22)
            .collect();
        assert_eq!(&first[..16], &[128; 16]);
        assert_eq!(
            &first[16..],
            &[25_000, 25_000, 25_000, 25_000, 100_000, 128]
        );
    }

    #[test]
    fn the_ceiling_holds_between_loops() {
        let agua = Agua::new(40, 30_000);
        let (mut live, mut peak) = (0u64, 0u64);
        for event in agua.events() {
            match event {
                MemoryEvent::Map { .. } => live += 1,
                MemoryEvent::Unmap { .. } => live -= 1,
                MemoryEvent::Begin(Phase::Round) => assert!(live <= 30_000, "{live} live"),
                _ => {}
            }
            peak = peak.max(live);
        }
        assert!(peak <= agua.peak(), "{peak} live at once");
        assert!(peak > 30_000, "the ceiling was never reached: {peak}");
    }

    #[test]
    fn the_walk_skips_survivors() {
        let mut live: Vec<MapId> = (0..9).map(MapId).collect();
        let taken = take_spread(&mut live, 1, 2, 9);
        assert_eq!(taken, [MapId(1), MapId(4), MapId(7)]);
        assert_eq!(live.len(), 6);
    }
}
