//! The four questions. One word each, everywhere: modules, sub-commands, reports, documents.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What stopgap can be asked.
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
}

impl Question {
    /// All of them, in the order in which `check` asks.
    pub const ALL: [Question; 4] = [
        Question::Placement,
        Question::Roundtrip,
        Question::Chunks,
        Question::Reclaim,
    ];

    /// Its one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Question::Placement => "placement",
            Question::Roundtrip => "roundtrip",
            Question::Chunks => "chunks",
            Question::Reclaim => "reclaim",
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Question {
    type Err = String;
    fn from_str(word: &str) -> Result<Question, String> {
        Question::ALL
            .into_iter()
            .find(|question| question.word() == word)
            .ok_or_else(|| {
                let words = Question::ALL.map(Question::word).join(", ");
                format!("unknown question '{word}'; the questions are {words}")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for question in Question::ALL {
            assert_eq!(question.word().parse::<Question>(), Ok(question));
        }
        assert!("gpu".parse::<Question>().unwrap_err().contains("placement"));
    }
}
