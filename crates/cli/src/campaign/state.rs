//! The state of a campaign, and what it makes due. Pure: who reads and writes the file, measures and boots is elsewhere.
//!
//! ```text
//!            fits                      measured
//! [due: i] ---------> attempt, begun -----------> done: i + 1 is due
//!    |  ^                   | power cut: cut          |
//!    |  |                   | it failed: failed       | all done: the end
//!    |  +-------------------+                         v
//!    | no boot of this side, or it was used
//!    +-> asked for a boot ---> another boot: fits, or wrong boot
//! ```
//!
//! The file is written before each step and after it. A boot serves one attempt.

use serde::{Deserialize, Serialize};
use stopgap_events::random::Random;
use stopgap_stats::compare::Occasion;
use stopgap_stats::gather::{Label, order};

use super::plan::Plan;

pub(super) const SCHEMA: &str = "stopgap.campaign/1";

/// So many failures of one occasion, so many boots that were none of its side, and so many requests for a boot that did not come
/// end a campaign.
const TRIES: usize = 3;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) schema: String,
    pub(super) plan: Plan,
    pub(super) seed: u64,
    pub(super) started_unix_s: u64,
    /// Whose turn it is, occasion by occasion.
    pub(super) order: Vec<Label>,
    /// All that was begun, in its order.
    pub(super) attempts: Vec<Attempt>,
    /// The boot in which the next one was asked for, and how often.
    pub(super) asked: Option<(String, usize)>,
    /// The side whose `set` was run and whose `undo` was not.
    pub(super) entered: Option<Label>,
    /// How it ended; absent while it goes on.
    pub(super) ended: Option<String>,
}

/// One try at an occasion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Attempt {
    /// From 0.
    pub(super) occasion: usize,
    pub(super) boot: String,
    pub(super) started_unix_s: u64,
    pub(super) outcome: Outcome,
    /// Why it is not done.
    pub(super) why: String,
    /// Conditions, of an attempt that is done.
    pub(super) under: Option<Occasion>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    Begun,
    Done,
    /// It was cut off: by a power cut, a crash, a kill.
    Cut,
    /// By Ctrl-C, or by a stop of the unit.
    Interrupted,
    Failed,
    /// The boot that was asked for was none of this side.
    WrongBoot,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Measure(usize),
    /// Ask for a boot for this occasion.
    Boot(usize),
    /// The boot is none of the side of this occasion.
    WrongBoot(usize, String),
    Finish,
    GiveUp(String),
}

impl State {
    pub(super) fn new(plan: Plan, seed: u64, started_unix_s: u64) -> State {
        let mut random = Random::new(seed);
        let order = (0..plan.occasions).flat_map(|_| order(&mut random));
        State {
            schema: SCHEMA.to_owned(),
            order: order.collect(),
            plan,
            seed,
            started_unix_s,
            attempts: Vec::new(),
            asked: None,
            entered: None,
            ended: None,
        }
    }

    pub(super) fn count(&self, outcome: Outcome) -> usize {
        let of = self.attempts.iter().filter(|of| of.outcome == outcome);
        of.count()
    }

    /// Returns how many occasions are done: they are the first ones of the order.
    pub(super) fn done(&self) -> usize {
        self.count(Outcome::Done)
    }

    /// Returns the done occasions of a side: number and what it took place under.
    pub(super) fn done_of(&self, label: Label) -> impl Iterator<Item = (usize, Occasion)> {
        let of = self.attempts.iter().filter(move |of| {
            of.outcome == Outcome::Done && self.order.get(of.occasion) == Some(&label)
        });
        of.map(|of| (of.occasion, of.under.clone().unwrap_or_default()))
    }

    /// Begins an attempt.
    pub(super) fn begin(&mut self, occasion: usize, boot: &str, unix_s: u64) {
        self.attempts.push(Attempt {
            occasion,
            boot: boot.to_owned(),
            started_unix_s: unix_s,
            outcome: Outcome::Begun,
            why: String::new(),
            under: None,
        });
    }

    /// Ends the attempt that was begun last.
    pub(super) fn end(&mut self, outcome: Outcome, why: &str) {
        if let Some(last) = self.attempts.last_mut() {
            last.outcome = outcome;
            last.why = why.to_owned();
        }
    }

    /// Marks an attempt that has no end as cut off. Only for a caller that holds the lock: nobody measures then.
    pub(super) fn note_cut(&mut self) -> bool {
        let begun = |of: &Attempt| of.outcome == Outcome::Begun;
        let cut = self.attempts.last().is_some_and(begun);
        if cut {
            self.end(Outcome::Cut, "cut off");
        }
        cut
    }

    /// Returns what is due in the boot `boot`. `fits` says why this boot is none of a side.
    pub(super) fn next(&self, boot: &str, fits: &dyn Fn(Label) -> Result<(), String>) -> Step {
        let due = self.done();
        let Some(&label) = self.order.get(due) else {
            return Step::Finish;
        };
        let of = |outcome: Outcome| {
            let mut of = self.attempts.iter().rev();
            let all = of
                .clone()
                .filter(|of| of.occasion == due && of.outcome == outcome);
            let last = of.find(|of| of.outcome == outcome);
            (all.count(), last.map_or("", |of| &of.why))
        };
        for (outcome, what) in [
            (Outcome::Failed, "failed"),
            (Outcome::Cut, "was cut off"),
            (Outcome::WrongBoot, "got a boot that is none of its side"),
        ] {
            let (times, why) = of(outcome);
            if times >= TRIES {
                let number = due + 1;
                return Step::GiveUp(format!("occasion {number} {what} {times} times: {why}"));
            }
        }
        let fit = fits(label);
        if self.plan.reboot.is_none() {
            return match fit {
                Ok(()) => Step::Measure(due),
                Err(why) => Step::GiveUp(format!("this boot is none of a side: {why}")),
            };
        }
        let used = self.attempts.iter().any(|of| of.boot == boot);
        match (&self.asked, fit) {
            (_, Ok(())) if !used => Step::Measure(due),
            (Some((from, times)), _) if from == boot && *times >= TRIES => Step::GiveUp(format!(
                "a boot was asked for {times} times and none came: '{}'",
                self.plan.reboot.as_deref().unwrap_or_default()
            )),
            (Some((from, _)), Err(why)) if from != boot && !used => Step::WrongBoot(due, why),
            _ => Step::Boot(due),
        }
    }

    /// Notes that a boot is asked for in this one.
    pub(super) fn ask(&mut self, boot: &str) {
        let times = match &self.asked {
            Some((from, times)) if from == boot => times + 1,
            _ => 1,
        };
        self.asked = Some((boot.to_owned(), times));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(reboot: bool) -> State {
        let reboot = if reboot { "reboot = \"r\"" } else { "" };
        let lines = format!("occasions = 5\ncommand = \"x\"\n{reboot}");
        State::new(super::super::plan::tests::plan(&lines).unwrap(), 7, 0)
    }

    /// A machine that boots the wrong side, crashes and fails as a seed says, and is cut off at any step: each occasion is done
    /// once, in the order, in a boot of its own that is one of its side.
    #[test]
    fn no_occasion_is_lost_or_counted_twice() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut state = state(true);
            let (mut boot, mut side) = (0_u32, Label::Before);
            let mut measured = Vec::new();
            let ended = loop {
                // All steps write the state first, so a cut loses none of it.
                state.note_cut();
                let name = boot.to_string();
                let fits = |label| match label == side {
                    true => Ok(()),
                    false => Err("other".to_owned()),
                };
                match state.next(&name, &fits) {
                    Step::Measure(at) => {
                        assert!(!state.attempts.iter().any(|of| of.boot == name));
                        state.begin(at, &name, 0);
                        match random.below(10) {
                            0 => boot += 1,
                            1 => state.end(Outcome::Failed, "f"),
                            _ => {
                                assert_eq!(state.order[at], side);
                                measured.push(at);
                                state.end(Outcome::Done, "");
                            }
                        }
                    }
                    Step::WrongBoot(at, why) => {
                        state.begin(at, &name, 0);
                        state.end(Outcome::WrongBoot, &why);
                    }
                    Step::Boot(at) => {
                        state.ask(&name);
                        if random.below(10) > 0 {
                            boot += 1;
                            side = match random.below(8) {
                                0 => Label::Before,
                                _ => state.order[at],
                            };
                        }
                    }
                    ended => break ended,
                }
            };
            let all: Vec<usize> = (0..measured.len()).collect();
            assert_eq!(measured, all, "{seed}");
            match ended {
                Step::Finish => assert_eq!(measured.len(), 10),
                Step::GiveUp(why) => assert!(why.contains(" 3 times"), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn each_block_has_both_sides() {
        let state = state(true);
        assert_eq!(state.order.len(), 10);
        assert!(state.order.chunks(2).all(|two| two[0] != two[1]));
        assert!(state.order.chunks(2).any(|two| two != &state.order[..2]));
    }

    #[test]
    fn without_a_reboot_nothing_is_asked_for() {
        let mut state = state(false);
        let fits = |_| Ok(());
        for at in 0..10 {
            assert_eq!(state.next("a", &fits), Step::Measure(at));
            state.begin(at, "a", 0);
            state.end(Outcome::Done, "");
        }
        assert_eq!(state.next("a", &fits), Step::Finish);
        let wrong = |_| Err("why".to_owned());
        state.attempts.clear();
        assert!(matches!(state.next("a", &wrong), Step::GiveUp(_)));
    }

    #[test]
    fn three_failures_end_it() {
        let mut state = state(false);
        for _ in 0..3 {
            assert_eq!(state.next("a", &|_| Ok(())), Step::Measure(0));
            state.begin(0, "a", 0);
            state.end(Outcome::Failed, "exit status 1");
        }
        let Step::GiveUp(why) = state.next("a", &|_| Ok(())) else {
            panic!("it goes on");
        };
        assert_eq!(why, "occasion 1 failed 3 times: exit status 1");
    }
}
