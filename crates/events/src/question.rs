//! The four questions, and the measurement alone that goes with them. One word each, everywhere: modules, sub-commands,
//! reports, documents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words;

/// What stopgap can be asked. A record names by it what was asked.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// Does mapping memory slow down as mappings pile up?
    Placement,
    /// Does a request and its reply cost more context switches than they must?
    Roundtrip,
    /// Does building a big buffer stall, and can the IOMMU map it well?
    Chunks,
    /// Do held buffers make everyone else wait when memory is short?
    Reclaim,
    /// How late does a thread wake? It blames nobody: none of the four.
    Wakeup,
}

impl Question {
    /// The four questions, in the order in which `check` asks.
    pub const FOUR: [Question; 4] = [
        Question::Placement,
        Question::Roundtrip,
        Question::Chunks,
        Question::Reclaim,
    ];
}

words!(
    Question, "question",
    Placement "placement",
    Roundtrip "roundtrip",
    Chunks "chunks",
    Reclaim "reclaim",
    Wakeup "wakeup",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_are_among_all_in_the_same_order() {
        assert_eq!(Question::FOUR, Question::ALL[..4]);
    }

    #[test]
    fn words_read_back() {
        for &question in Question::ALL {
            assert_eq!(question.word().parse::<Question>(), Ok(question));
        }
        assert!("gpu".parse::<Question>().unwrap_err().contains("placement"));
    }
}
