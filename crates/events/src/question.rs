//! The four questions. One word each, everywhere: modules, sub-commands, reports, documents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words;

/// What stopgap can be asked, in the order in which `check` asks.
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

words!(
    Question, "question",
    Placement "placement",
    Roundtrip "roundtrip",
    Chunks "chunks",
    Reclaim "reclaim",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for &question in Question::ALL {
            assert_eq!(question.word().parse::<Question>(), Ok(question));
        }
        assert!("gpu".parse::<Question>().unwrap_err().contains("placement"));
    }
}
