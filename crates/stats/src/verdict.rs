//! The words of an answer.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The verdict's one word, for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// Cost does not grow: the interval for cost(largest N)/cost(1,000) lies below 2, and the
    /// positive control grew as it must.
    Flat,
    /// Cost grows.
    Grows,
    /// More than the least that is possible.
    Excess,
    /// Stalls were seen.
    Stalls,
    /// Looked for where it could have been seen, and not there.
    Clean,
    /// This machine or this user cannot answer.
    Unsupported,
    /// The data does not decide.
    Inconclusive,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Word::Flat => "flat",
            Word::Grows => "grows",
            Word::Excess => "excess",
            Word::Stalls => "stalls",
            Word::Clean => "clean",
            Word::Unsupported => "unsupported",
            Word::Inconclusive => "inconclusive",
        })
    }
}

/// A verdict: a word, and the words with the number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// For scripts.
    pub word: Word,
    /// For people, beginning with the word: `grows ~N^0.97 (0.94..1.01)`,
    /// `inconclusive: not fragmented (index 0.03, up 2 h)`.
    pub text: String,
}

impl Verdict {
    /// `text` must begin with the word.
    ///
    /// # Panics
    /// In debug builds, where it does not.
    pub fn new(word: Word, text: impl Into<String>) -> Verdict {
        let text = text.into();
        debug_assert!(text.starts_with(&word.to_string()), "{word}: {text}");
        Verdict { word, text }
    }

    /// `inconclusive: why`.
    #[must_use]
    pub fn inconclusive(why: &str) -> Verdict {
        Verdict::new(Word::Inconclusive, format!("inconclusive: {why}"))
    }

    /// `unsupported: why`.
    #[must_use]
    pub fn unsupported(why: &str) -> Verdict {
        Verdict::new(Word::Unsupported, format!("unsupported: {why}"))
    }

    /// Whether the question was answered at all.
    #[must_use]
    pub fn answered(&self) -> bool {
        !matches!(self.word, Word::Unsupported)
    }
}
