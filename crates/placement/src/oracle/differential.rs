use alloc::format;
use alloc::string::String;

use crate::contract::{FreeError, Need, PlaceError, Policy, Range};

use super::{Naive, Shape, Step, Walk, same};

/// Requirement on a policy's answers.
#[derive(Clone, Copy)]
pub enum Answer {
    /// Anything valid; [`PlaceError::Exhausted`] only where nothing fits.
    Valid,
    /// Anything valid; [`PlaceError::Exhausted`] where something fits at most once in 1,000 ranges placed.
    Nearly,
    /// Exactly what this rule says of the areas that are taken: the start, or `None` for
    /// [`PlaceError::Exhausted`]. It says all, hints too.
    Rule(fn(&Naive, &Need) -> Option<u64>),
}

/// Carries steps out on a policy and on [`Naive`] side by side.
pub struct Differential<P> {
    policy: P,
    naive: Naive,
    walk: Walk,
    answer: Answer,
    steps: u64,
    /// Refusals with [`PlaceError::Exhausted`], answers, and frees carried out: a test that sees none
    /// of one of them has tested nothing.
    counts: [u64; 3],
    /// Refusals with [`PlaceError::Exhausted`] where something fits.
    early: u64,
}

impl<P: Policy> Differential<P> {
    /// `policy`, fresh, on steps of `shape` that `seed` fixes.
    pub fn new(policy: P, answer: Answer, shape: Shape, seed: u64) -> Differential<P> {
        let space = policy.space();
        Differential {
            naive: Naive::new(space, policy.keeps_vmas()),
            walk: Walk::new(space, shape, seed),
            policy,
            answer,
            steps: 0,
            counts: [0; 3],
            early: 0,
        }
    }

    /// The policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// Refusals as exhausted, ranges placed, ranges freed.
    pub fn counts(&self) -> [u64; 3] {
        self.counts
    }

    /// Takes `steps` steps, checking the policy's invariants and statistics after every
    /// `check_every` (0: at the end alone).
    ///
    /// # Errors
    /// The first difference: the step's number, the step, and both answers.
    pub fn run(&mut self, steps: u64, check_every: u64) -> Result<(), String> {
        for taken in 1..=steps {
            let step = self.walk.step();
            self.steps += 1;
            self.one(step)
                .map_err(|what| format!("step {}, {step:x?}: {what}", self.steps))?;
            if taken == steps || (check_every > 0 && taken.is_multiple_of(check_every)) {
                self.compare()
                    .map_err(|what| format!("after step {}, {step:x?}: {what}", self.steps))?;
            }
        }
        Ok(())
    }

    fn one(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Place(request) => {
                let answer = self.policy.place(&request);
                let need = match self.policy.space().need(&request) {
                    Err(why) => {
                        let right = PlaceError::Impossible(why);
                        return same(&answer.map(|_| ()), &Err(right));
                    }
                    Ok(need) => need,
                };
                match answer {
                    Err(PlaceError::Exhausted) => self.counts[0] += 1,
                    Err(other) => return Err(format!("{other}, but it is possible")),
                    Ok(_) => self.counts[1] += 1,
                }
                let answer = answer.ok();
                match self.answer {
                    Answer::Valid | Answer::Nearly => self.valid(&need, answer)?,
                    Answer::Rule(rule) => {
                        let right = rule(&self.naive, &need);
                        same(&answer.map(|range| range.start), &right)?;
                    }
                }
                if let Some(range) = answer {
                    if range.length() != need.size {
                        return Err(format!("{range} is not {:x} bytes long", need.size));
                    }
                    self.naive.take(range, need.merge)?;
                    self.walk.gave(range, need.merge);
                }
                Ok(())
            }
            Step::Free(range) => {
                let (answer, right) = (self.policy.free(range), self.naive.free(range));
                same(&answer, &right)?;
                if answer.is_ok() {
                    self.counts[2] += 1;
                    self.walk.took(range);
                }
                Ok(())
            }
            Step::Protect(part, merge) => {
                let answer = self.policy.protect(part, merge);
                let right: Result<(), FreeError> = self.naive.protect(part, merge);
                same(&answer, &right)
            }
        }
    }

    fn valid(&mut self, need: &Need, answer: Option<Range>) -> Result<(), String> {
        let hinted = need
            .hinted(self.policy.space())
            .filter(|&range| self.naive.is_free(range));
        match (answer, hinted) {
            (Some(range), Some(hinted)) => same(&range, &hinted),
            (Some(range), None) => {
                let aligned = need.first_from(range.start) == Some(range.start);
                if aligned && need.limits.contains(range) {
                    Ok(())
                } else {
                    Err(format!("{range} is not aligned, or not in its limits"))
                }
            }
            (None, _) => match self.naive.first_fit(need) {
                None => Ok(()),
                Some(_) if matches!(self.answer, Answer::Nearly) => {
                    self.early += 1;
                    Ok(())
                }
                Some(fits) => Err(format!("exhausted, but {fits} fits")),
            },
        }
    }

    fn compare(&self) -> Result<(), String> {
        self.policy.check()?;
        if self.early > 1 + self.counts[1] / 1_000 {
            return Err(format!(
                "{} times exhausted where something fits",
                self.early
            ));
        }
        let (has, right) = (self.policy.statistics(), self.naive.statistics());
        same(
            &(has.ranges, has.used, has.span, has.holes, has.largest_hole),
            &(
                right.ranges,
                right.used,
                right.span,
                right.holes,
                right.largest_hole,
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Direction, Merge, Request, Space, Statistics, Work};

    fn space() -> Space {
        Space::new(Range::new(0x10_0000, 0x18_0000), 0x1000).unwrap()
    }

    #[test]
    fn the_naive_policy_passes_and_meets_every_answer() {
        for (seed, merging) in [(1, false), (2, true), (3, false), (4, true)] {
            let shape = Shape {
                merging,
                ..Shape::ALL
            };
            let naive = Naive::new(space(), merging);
            let mut run = Differential::new(naive, Answer::Valid, shape, seed);
            run.run(20_000, 1).unwrap();
            assert!(run.counts().iter().all(|&n| n > 500), "{:?}", run.counts());
        }
    }

    /// A policy with a fault that one in some hundred steps meets.
    struct Faulty {
        inner: Naive,
        fault: fn(&Request, Range) -> Range,
    }

    impl Policy for Faulty {
        fn space(&self) -> Space {
            self.inner.space()
        }
        fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
            Ok((self.fault)(request, self.inner.place(request)?))
        }
        fn free(&mut self, range: Range) -> Result<(), FreeError> {
            self.inner.free(range)
        }
        fn statistics(&self) -> Statistics {
            self.inner.statistics()
        }
        fn work(&self) -> Work {
            self.inner.work()
        }
        fn check(&self) -> Result<(), String> {
            self.inner.check()
        }
    }

    #[test]
    fn faults_are_found() {
        let faults: [fn(&Request, Range) -> Range; 3] = [
            // Gives a page too few.
            |_, range| Range::new(range.start, range.end - 0x1000),
            // Forgets the alignment.
            |request, range| match request.alignment {
                0..=0x1000 => range,
                _ => Range::new(range.start + 0x1000, range.end + 0x1000),
            },
            // Leaves the limits.
            |request, range| match request.limits {
                Some(limits) if limits.end - range.end < 0x1000 => {
                    Range::new(range.start + 0x1000, range.end + 0x1000)
                }
                _ => range,
            },
        ];
        for fault in faults {
            let inner = Naive::new(space(), false);
            let policy = Faulty { inner, fault };
            let mut run = Differential::new(policy, Answer::Valid, Shape::ALL, 1);
            assert!(run.run(20_000, 1).is_err());
        }
    }

    #[test]
    fn a_rule_is_held_to_the_address() {
        let lowest: fn(&Naive, &Need) -> Option<u64> = |naive, need| {
            let hinted = need.hinted(naive.space());
            let hinted = hinted.filter(|&range| naive.is_free(range));
            let found = hinted.or_else(|| naive.first_fit(need));
            found.map(|range| range.start)
        };
        let naive = || Naive::new(space(), false);
        let mut right = Differential::new(naive(), Answer::Rule(lowest), Shape::ALL, 5);
        right.run(5_000, 100).unwrap();
        let highest: fn(&Naive, &Need) -> Option<u64> = |naive, need| {
            let need = Need {
                direction: Direction::TopDown,
                merge: Merge::Never,
                ..*need
            };
            naive.first_fit(&need).map(|range| range.start)
        };
        let mut wrong = Differential::new(naive(), Answer::Rule(highest), Shape::ALL, 5);
        assert!(wrong.run(5_000, 100).is_err());
    }
}
