//! Result of a run of `check`: a headline over rows of states.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::words;

/// The finding, as one of four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Headline {
    /// A row is [`State::Cause`].
    LikelyCause,
    /// A row is [`State::Look`], and none is a cause.
    WorthALook,
    /// At least one row could be judged, and all judged rows are [`State::Ok`].
    NothingFound,
    /// No row could be judged.
    CouldNotLook,
}

words!(
    Headline, "headline",
    LikelyCause "likely_cause",
    WorthALook "worth_a_look",
    NothingFound "nothing_found",
    CouldNotLook "could_not_look",
);

/// The state of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As on a healthy machine of this kernel.
    Ok,
    /// Not as on a healthy machine (`!`).
    Look,
    /// Explains a freeze of a second by itself (`!!`).
    Cause,
    /// Could not be judged (`?`).
    Unknown,
}

words!(
    State, "state",
    Ok "ok",
    Look "look",
    Cause "cause",
    Unknown "unknown",
);

/// A row: the state of one resource or question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// One word: a resource (`disk`) or a question (`placement`).
    pub about: String,
    /// Its state.
    pub state: State,
    /// One sentence.
    pub sentence: String,
    /// What to do first about it, in a few words; empty where the row is ok.
    pub why: String,
    /// The command that does it; empty where there is none.
    pub command: String,
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Overall {
    /// The finding.
    pub headline: Headline,
    /// The headline in words.
    pub text: String,
    /// What to do next, in a few words.
    pub why: String,
    /// The command that does it.
    pub command: String,
    /// The machine as it was before any load.
    pub now: Vec<Row>,
    /// Known causes, tested.
    pub causes: Vec<Row>,
}

impl Headline {
    /// Returns the headline that follows from these states.
    pub fn of(states: impl IntoIterator<Item = State>) -> Headline {
        let mut headline = Headline::CouldNotLook;
        for state in states {
            let other = match state {
                State::Cause => return Headline::LikelyCause,
                State::Look => Headline::WorthALook,
                State::Ok if headline != Headline::WorthALook => Headline::NothingFound,
                State::Ok | State::Unknown => headline,
            };
            headline = other;
        }
        headline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_known_state_makes_the_headline() {
        use State::{Cause, Look, Ok, Unknown};
        for (states, expected) in [
            (&[][..], Headline::CouldNotLook),
            (&[Unknown, Unknown], Headline::CouldNotLook),
            (&[Unknown, Ok, Unknown], Headline::NothingFound),
            (&[Ok, Look, Ok, Unknown], Headline::WorthALook),
            (&[Look, Ok, Cause, Ok], Headline::LikelyCause),
        ] {
            assert_eq!(Headline::of(states.iter().copied()), expected, "{states:?}");
        }
    }
}
