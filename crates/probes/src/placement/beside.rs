//! Two kinds of buffers under one workload, in turn, in one process: what a fix would bring.

use stopgap_events::memory::{MemoryEvent, Phase};
use stopgap_events::workload::Pbobench;
use stopgap_kernel::{Result, System};

use super::STALL;
use super::execute::{Buffers, apply, lay_out};
use crate::meter::{Clock, Step};

/// Calls of a turn. With them a median rests on hundreds, and a turn takes some milliseconds.
const TURN: usize = 1_500;

/// pbobench with `n` buffers that stay: `turns` times a stretch of its steady phase on `one`, then the same stretch on
/// `other`. Gives each turn's two costs of a cycle, in ns: the sum of the medians of map, first touch and unmap. It ends
/// early, with what there is, where `stop` says so.
///
/// # Errors
/// Those of [`Buffers`].
pub fn beside<A: Buffers, B: Buffers>(
    clock: &dyn System,
    (one, other): (A, B),
    n: u32,
    turns: u32,
    seed: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<[f64; 2]>> {
    let mut one = Side::new(clock, one, n, seed)?;
    let mut other = Side::new(clock, other, n, seed)?;
    let mut costs = Vec::new();
    for _ in 0..turns {
        if stop() {
            break;
        }
        if let (Some(a), Some(b)) = (one.turn()?, other.turn()?) {
            costs.push([a, b]);
        }
    }
    one.buffers.clear()?;
    other.buffers.clear()?;
    Ok(costs)
}

struct Side<'s, B> {
    clock: &'s dyn System,
    buffers: B,
    events: Box<dyn Iterator<Item = MemoryEvent>>,
}

impl<'s, B: Buffers> Side<'s, B> {
    /// With the `n` buffers that stay.
    fn new(clock: &'s dyn System, mut buffers: B, n: u32, seed: u64) -> Result<Self> {
        lay_out(&mut buffers, n, seed, &|| false)?;
        let events = Pbobench::new(n, u64::MAX, seed).events();
        let steady = |event: &MemoryEvent| *event != MemoryEvent::Begin(Phase::Steady);
        Ok(Side {
            clock,
            buffers,
            events: Box::new(events.skip_while(steady).skip(1)),
        })
    }

    /// The cost of a cycle in the next stretch; `None` where one of its calls did not come.
    fn turn(&mut self) -> Result<Option<f64>> {
        let mut calls = Clock::new(self.clock, STALL);
        for event in self.events.by_ref().take(TURN) {
            apply(&mut self.buffers, event, &mut calls)?;
        }
        let median = |step| calls.recorders.get(step)?.histogram().median();
        let sum = Step::MAPPING.iter().map(median).sum::<Option<u64>>();
        Ok(sum.map(|ns| ns as f64))
    }
}

#[cfg(test)]
mod tests {
    use stopgap_kernel::fake::Fake;

    use super::*;
    use crate::placement::execute::{Backend, Mapped};
    use crate::placement::names;

    /// The same buffers on both sides, on a virtual clock: what is measured is the same to the nanosecond.
    #[test]
    fn equal_buffers_cost_the_same() {
        let fake = Fake::default();
        let buffers = || Mapped::new(&fake, Backend::Memfd, names(100)).unwrap();
        let costs = beside(&fake, (buffers(), buffers()), 100, 5, 1, &|| false).unwrap();
        assert_eq!(costs.len(), 5);
        for [a, b] in costs {
            assert!(a > 0.0 && (a / b - 1.0).abs() < 0.05, "{a} {b}");
        }
        let stopped = beside(&fake, (buffers(), buffers()), 100, 5, 1, &|| true).unwrap();
        assert!(stopped.is_empty());
    }
}
