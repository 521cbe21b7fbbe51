//! A state that is fragmented enough, with every knob as it was before.

use stopgap_events::units::Nanos;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::shortage::fragmentation;
use stopgap_kernel::thp::Thp;
use stopgap_kernel::{Error, System};

use super::recipe::Recipe;
use super::state::State;
use crate::chunks::{judge, knobs};

/// Unusable index, at the first costly order and at that of huge pages, at which a state counts as
/// fragmented: the rest lies where faults do not reach (what lower zones protect).
const MADE: f64 = 0.95;

/// How often a state is made until it is fragmented enough.
const TRIES: u32 = 2;

/// Means by which a state is made.
#[derive(Clone, Copy)]
pub struct Maker<'a> {
    /// The system.
    pub system: &'a dyn System,
    /// Where knobs are written down before they are set.
    pub journal: &'a Journal<'a>,
    /// How long the holder lives at most.
    pub time: Nanos,
    /// Whether to stop early.
    pub interrupted: &'a dyn Fn() -> bool,
}

/// A fresh state that is fragmented enough, at the second try perhaps. Why knobs could not be put back
/// is added to `left`.
///
/// # Errors
/// Why there is none, in words.
pub fn fresh(maker: &Maker<'_>, recipe: &Recipe, left: &mut Vec<Error>) -> Result<State, String> {
    let system = maker.system;
    let thp = Thp::read(system)?;
    let thp = thp.ok_or("this kernel has no THP")?;
    let pmd = thp.pmd_size.0.ilog2() - system.page_size().0.ilog2();
    let mut index = None;
    for _ in 0..TRIES {
        let scope = maker.journal.scope();
        for (knob, word) in knobs::any_size_that_is_free(&thp) {
            let set = maker.journal.set(&knob, word);
            set?;
        }
        let state = State::make(system, recipe, maker.time, maker.interrupted);
        left.extend(scope.undo());
        let state = state?;
        let indices = fragmentation(system).unwrap_or_default();
        let of = |order| indices.iter().find(|of| of.order == order);
        let least = [judge::COSTLY_ORDER, pmd]
            .map(|order| of(order).map_or(0.0, |of| of.index))
            .into_iter()
            .fold(1.0, f64::min);
        if least >= MADE {
            return Ok(state);
        }
        index = Some(least);
        state.release();
    }
    Err(format!(
        "unusable index {:.2}, not {MADE}: others gave large blocks back meanwhile; ask again on a \
         quiet machine",
        index.unwrap_or(0.0)
    ))
}
