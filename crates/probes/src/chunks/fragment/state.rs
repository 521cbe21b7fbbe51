//! The holder beside us.

use stopgap_events::units::Nanos;
use stopgap_kernel::ipc::Endpoint;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::shortage::fragmentation;
use stopgap_kernel::tasks::{ChildLimits, Running};
use stopgap_kernel::thp::Thp;
use stopgap_kernel::{Error, System};

use super::build::{self, Built};
use super::recipe::Recipe;
use crate::chunks::{judge, knobs};

/// A fragmented machine; let go, the memory is given back.
pub struct State {
    /// The state as it was made.
    pub built: Built,
    ours: Endpoint,
    holder: Running,
}

impl State {
    /// Makes the state in a child of its own and waits until it stands; the child lives for `time`
    /// at most.
    ///
    /// # Errors
    /// The failure in the holder's own words, or how it ended.
    pub(super) fn make(
        system: &dyn System,
        recipe: &Recipe,
        time: Nanos,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<State, String> {
        let (ours, theirs) = system.stream_pair()?;
        let limits = ChildLimits::within(time);
        let recipe = *recipe;
        let body = Box::new(move || {
            let mut said = false;
            let made = build::hold(system, &recipe, interrupted, &mut |built| {
                said = true;
                // Where the parent is gone we are killed.
                let _ = theirs.write_all(&message(&Ok(built.clone())));
                let _ = theirs.read(&mut [0]);
            });
            if let (false, Err(why)) = (said, made) {
                let _ = theirs.write_all(&message(&Err(why)));
            }
            Vec::new()
        });
        let holder = system.start_child(&limits, body)?;
        match receive(&ours) {
            Some(Ok(built)) => Ok(State {
                built,
                ours,
                holder,
            }),
            Some(Err(why)) => Err(why),
            None => Err(match holder.finish() {
                Ok(_) => "the holder ended without a word".to_owned(),
                Err(error) => error.to_string(),
            }),
        }
    }

    /// Gives the memory back and waits until it is free; the holder's peak resident memory in
    /// bytes, where it ended as it should.
    pub fn release(self) -> Option<u64> {
        let _ = self.ours.write_all(b"!"); // a holder that has ended is what we want
        // Killed for its time or by hand, it holds nothing either.
        self.holder.finish().ok().map(|ended| ended.peak_resident)
    }
}

const END: u8 = b'\n';

fn message(said: &Result<Built, String>) -> Vec<u8> {
    let mut bytes = crate::runner::encode(said);
    bytes.push(END);
    bytes
}

/// Returns what the holder sends; `None` where it ends before.
fn receive(ours: &Endpoint) -> Option<Result<Built, String>> {
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    while said.last() != Some(&END) {
        match ours.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(count) => said.extend_from_slice(&buffer[..count]),
        }
    }
    serde_json::from_slice(&said).ok()
}

// A state that is fragmented enough, with every knob as it was before.

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
