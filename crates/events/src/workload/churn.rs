use crate::memory::{MapId, MemoryEvent, Phase};
use crate::random::Random;

/// The frame that most of the workloads share: lay `n` ranges out, free some of them at random,
/// then free one of the rest at random and map another in its place, in turn.
///
/// A range is named by its slot, 0 to `n - 1`; its replacement takes over its name. The
/// events come lazily; the memory that they need is four bytes a slot.
pub(super) struct Churn<M> {
    stage: Stage,
    n: u32,
    keep: usize,
    operations: u64,
    live: Vec<MapId>,
    choice: Random,
    map: M,
}

enum Stage {
    Start,
    Map(u32),
    Thin,
    Free,
    Replace(MapId),
}

impl<M: FnMut(MapId) -> MemoryEvent> Churn<M> {
    /// `n` ranges of which `keep` stay, then `operations` operations (a free is one and a map is
    /// one). `choice` says which are freed; `map` makes the map event of a slot, first of 0 to
    /// `n - 1` in order, later of slots just freed.
    pub(super) fn new(n: u32, keep: u32, operations: u64, choice: Random, map: M) -> Churn<M> {
        Churn {
            stage: Stage::Start,
            n,
            keep: keep as usize,
            operations,
            live: Vec::new(),
            choice,
            map,
        }
    }
}

impl<M: FnMut(MapId) -> MemoryEvent> Iterator for Churn<M> {
    type Item = MemoryEvent;

    fn next(&mut self) -> Option<MemoryEvent> {
        match self.stage {
            Stage::Start => {
                self.stage = Stage::Map(0);
                Some(MemoryEvent::Begin(Phase::Layout))
            }
            Stage::Map(slot) if slot < self.n => {
                self.stage = Stage::Map(slot + 1);
                self.live.push(MapId(slot));
                Some((self.map)(MapId(slot)))
            }
            Stage::Map(_) | Stage::Thin if self.live.len() > self.keep => {
                self.stage = Stage::Thin;
                let at = self.choice.index(self.live.len());
                let id = self.live.swap_remove(at);
                Some(MemoryEvent::Unmap { id })
            }
            Stage::Map(_) | Stage::Thin => {
                self.stage = Stage::Free;
                Some(MemoryEvent::Begin(Phase::Steady))
            }
            _ if self.operations == 0 || self.live.is_empty() => None,
            Stage::Free => {
                self.operations -= 1;
                let id = self.live[self.choice.index(self.live.len())];
                self.stage = Stage::Replace(id);
                Some(MemoryEvent::Unmap { id })
            }
            Stage::Replace(id) => {
                self.operations -= 1;
                self.stage = Stage::Free;
                Some((self.map)(id))
            }
        }
    }
}
