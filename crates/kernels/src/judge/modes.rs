//! The modes that counts of an operation fall into.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_guest::protocol::{Counts, median};

/// Two neighbouring counts belong to different modes from a gap of this part of the smaller one on: a twentieth, 5 %; and of
/// at least so many instructions: of 40 a twentieth is two.
const GAP: u64 = 20;
const GAP_LEAST: u64 = 32;

/// A cluster is a mode from this part of all operations on: a twentieth, 5 %.
const PART: u64 = 20;

/// A cluster of fewer operations than this is no mode.
const LEAST: u64 = 3;

/// Operations that took about the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mode {
    /// The fewest guest instructions.
    pub least: u64,
    /// The median of the mode.
    pub median: u64,
    /// The most.
    pub most: u64,
    /// How many operations.
    pub operations: u64,
}

/// Returns the modes, ascending, and how many operations are in none.
///
/// Cuts the counts wherever a gap between neighbours is at least a twentieth of the smaller one and 32 instructions. A piece
/// is a mode where it has at least a twentieth of all operations, and three. All in whole numbers: the same counts give the
/// same modes. One or two operations far apart give none.
pub(super) fn modes(counts: &Counts) -> (Vec<Mode>, u64) {
    let all = counts.operations();
    let mut modes = Vec::new();
    let mut inside = 0;
    let near = |low: &(u64, u64), high: &(u64, u64)| {
        let gap = high.0 - low.0;
        gap < GAP_LEAST || u128::from(gap) * u128::from(GAP) < u128::from(low.0)
    };
    for piece in counts.pairs().chunk_by(near) {
        let operations: u64 = piece.iter().map(|pair| pair.1).sum();
        let enough = operations
            .checked_mul(PART)
            .is_none_or(|times| times >= all);
        // A single operation is its only mode.
        let few = operations < LEAST.min(all);
        if let (true, false, Some(median)) = (enough, few, median(piece)) {
            inside += operations;
            modes.push(Mode {
                least: piece[0].0,
                median,
                most: piece[piece.len() - 1].0,
                operations,
            });
        }
    }
    (modes, all - inside)
}
