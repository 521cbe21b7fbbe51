use alloc::format;
use alloc::string::String;

use crate::contract::{PlaceError, Policy, Statistics, Work};

use super::{Shape, Step, Walk, same};

/// Carries the same steps out on a policy and on a reference that has a state of its own, and stops at
/// the first difference: in an answer, in an error, or in the work that it took.
///
/// Where the reference's rule needs no state, [`super::Differential`] serves.
pub struct Pair<P, Q> {
    policy: P,
    reference: Q,
    walk: Walk,
    /// Whether the reference counts the same work.
    counts_work: bool,
    steps: u64,
    counts: [u64; 3],
}

impl<P: Policy, Q: Policy> Pair<P, Q> {
    /// Both fresh and of the same space, on steps of `shape` that `seed` fixes.
    pub fn new(policy: P, reference: Q, shape: Shape, seed: u64) -> Pair<P, Q> {
        Pair {
            walk: Walk::new(policy.space(), shape, seed),
            policy,
            reference,
            counts_work: true,
            steps: 0,
            counts: [0; 3],
        }
    }

    /// Compares no work: the reference counts none.
    #[must_use]
    pub fn without_work(self) -> Pair<P, Q> {
        Pair {
            counts_work: false,
            ..self
        }
    }

    /// The policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// The reference.
    pub fn reference(&self) -> &Q {
        &self.reference
    }

    /// Refusals as exhausted, ranges placed, ranges freed: a test that sees none of one of them
    /// has tested nothing.
    pub fn counts(&self) -> [u64; 3] {
        self.counts
    }

    /// Takes `steps` steps, comparing invariants and statistics after every `check_every` (0: at the end
    /// alone).
    ///
    /// # Errors
    /// The first difference: the step's number, the step, and both answers.
    pub fn run(&mut self, steps: u64, check_every: u64) -> Result<(), String> {
        for taken in 1..=steps {
            let step = self.walk.step();
            self.steps += 1;
            let check = taken == steps || (check_every > 0 && taken.is_multiple_of(check_every));
            self.one(step)
                .and_then(|()| if check { self.compare() } else { Ok(()) })
                .map_err(|what| format!("step {}, {step:x?}: {what}", self.steps))?;
        }
        Ok(())
    }

    fn one(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Place(request) => {
                let given = self.policy.place(&request);
                same(&given, &self.reference.place(&request))?;
                match given {
                    Ok(range) => {
                        self.counts[1] += 1;
                        self.walk.gave(range, request.merge);
                    }
                    Err(why) => self.counts[0] += u64::from(why == PlaceError::Exhausted),
                }
            }
            Step::Free(range) => {
                let freed = self.policy.free(range);
                same(&freed, &self.reference.free(range))?;
                if freed.is_ok() {
                    self.counts[2] += 1;
                    self.walk.took(range);
                }
            }
            Step::Protect(part, merge) => {
                let changed = self.policy.protect(part, merge);
                same(&changed, &self.reference.protect(part, merge))?;
            }
        }
        if !self.counts_work {
            return Ok(());
        }
        // How deep a tree is, is the policy's own.
        let work = Work {
            descended: 0,
            ..self.policy.work()
        };
        same(&work, &self.reference.work())
    }

    fn compare(&self) -> Result<(), String> {
        self.policy.check()?;
        // Each has its own memory.
        let without_memory = |statistics| Statistics {
            memory: 0,
            ..statistics
        };
        same(
            &without_memory(self.policy.statistics()),
            &without_memory(self.reference.statistics()),
        )
    }
}
