//! A comparison for machines that build and test: what it comes to, and the forms that they read.
//!
//! | form | read by | regression | good | cannot tell |
//! |---|---|---|---|---|
//! | [`ktap`] | kernel CI (`Documentation/dev-tools/ktap.rst`, version 1) | `not ok` | `ok` | `ok ... # SKIP` |
//! | [`junit`] | Jenkins, GitLab and others | `failure` | passed | `skipped` |
//! | [`annotations`] | GitHub Actions, in the log | `::error` | `::notice` | `::warning` |
//! | [`openmetrics`] | Prometheus, node-exporter's textfile directory | figures | figures | figures |
//!
//! An endpoint of which nothing is proven is never a passed test. Names come from files and command lines: what could end a
//! field or a line is escaped by each form's own rule.

mod annotations;
mod junit;
mod ktap;
mod openmetrics;

use stopgap_stats::compare::{Row, RowWord, Word};

pub use annotations::annotations;
pub use junit::junit;
pub use ktap::ktap;
pub use openmetrics::openmetrics;

/// The result of an answer for a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Better, the same, or not worse by the margin.
    Good,
    /// Worse.
    Bad,
    /// Not proven either way.
    CannotTell,
}

impl From<Word> for Standing {
    fn from(word: Word) -> Standing {
        match word {
            Word::Improvement | Word::NotWorse | Word::Same => Standing::Good,
            Word::Regression => Standing::Bad,
            Word::NoDifferenceProven | Word::Inconclusive => Standing::CannotTell,
        }
    }
}

impl From<RowWord> for Standing {
    fn from(word: RowWord) -> Standing {
        match word {
            RowWord::Better | RowWord::NotWorse | RowWord::Same => Standing::Good,
            RowWord::Worse => Standing::Bad,
            RowWord::NoDifferenceProven | RowWord::NothingSeen | RowWord::Inconclusive => {
                Standing::CannotTell
            }
        }
    }
}

/// `worse: 1.2x (1.1..1.3)`.
fn said(row: &Row) -> String {
    format!("{}: {}", row.word, row.text)
}

#[cfg(test)]
mod tests;
