//! Assumptions about what a snapshot lacks.

use super::super::super::buddy::{Mobility, Piece, Use};
use super::super::super::machine::MachineError;

/// Assumptions about a snapshot. Shares are 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Assumptions {
    /// The share of movable pages that somebody holds a reference to.
    pub pinned_share: f64,
    /// Whether anonymous and shared memory can be reclaimed: where there is swap.
    pub swap: bool,
    /// The share of used pages of unknown use that is the kernel's.
    pub unmovable_share: f64,
    /// Which 2 MiB blocks are unmovable.
    pub block_rule: BlockRule,
}

impl Default for Assumptions {
    /// Nothing pinned, no swap, one unknown page in ten the kernel's, blocks by their majority.
    fn default() -> Assumptions {
        Assumptions {
            pinned_share: 0.0,
            swap: false,
            unmovable_share: 0.1,
            block_rule: BlockRule::Majority,
        }
    }
}

impl Assumptions {
    /// # Errors
    /// [`MachineError::Assumption`] for what is no share.
    pub fn check(&self) -> Result<(), MachineError> {
        let shares = [
            ("pinned_share", self.pinned_share),
            ("unmovable_share", self.unmovable_share),
        ];
        match shares
            .iter()
            .find(|(_, share)| !(0.0..=1.0).contains(share))
        {
            None => Ok(()),
            Some((name, share)) => Err(MachineError::Assumption(format!(
                "{name} is {share}: a share is 0 to 1"
            ))),
        }
    }

    /// Each in one sentence, for a record.
    #[must_use]
    pub fn told(&self) -> Vec<String> {
        let anonymous = if self.swap { "can" } else { "cannot" };
        vec![
            format!("pinned: {} of the movable pages", self.pinned_share),
            format!("anonymous and shared memory {anonymous} be reclaimed"),
            format!(
                "where nothing is known of a used page, it is the kernel's at {} in 1",
                self.unmovable_share
            ),
            self.block_rule.told().to_owned(),
        ]
    }
}

/// Which migrate type a 2 MiB block has, by its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockRule {
    /// Unmovable where most used pages are.
    Majority,
    /// Unmovable where one page is.
    Any,
    /// None is unmovable.
    Movable,
}

impl BlockRule {
    fn told(self) -> &'static str {
        match self {
            BlockRule::Majority => "a 2 MiB block is unmovable where most of its used pages are",
            BlockRule::Any => "a 2 MiB block is unmovable where one of its pages is",
            BlockRule::Movable => "all 2 MiB blocks are movable",
        }
    }

    /// The type of the block that has these pages; all free, it is movable.
    pub(super) fn mobility(self, pieces: impl Iterator<Item = Piece>) -> Mobility {
        let (mut unmovable, mut others) = (0_u64, 0_u64);
        for piece in pieces {
            match piece {
                Piece::Used {
                    of: Use::Unmovable, ..
                } => unmovable += 1,
                Piece::Used { of: Use::Hole, .. } | Piece::Free { .. } => {}
                Piece::Used { .. } => others += 1,
            }
        }
        let is_unmovable = match self {
            BlockRule::Majority => unmovable > others,
            BlockRule::Any => unmovable > 0,
            BlockRule::Movable => false,
        };
        if is_unmovable {
            Mobility::Unmovable
        } else {
            Mobility::Movable
        }
    }
}
