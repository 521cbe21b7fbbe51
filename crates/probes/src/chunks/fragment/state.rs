//! The holder beside us.

use stopgap_events::units::Nanos;
use stopgap_kernel::System;
use stopgap_kernel::ipc::Endpoint;
use stopgap_kernel::tasks::{ChildLimits, Running};

use super::build::{self, Built};
use super::recipe::Recipe;

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
