//! Exact counts of an operation: how many took how many guest instructions; and the modes that they fall into.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Two neighbouring counts belong to different modes from a gap of this part of the smaller one on: a twentieth, 5 %; and of
/// at least so many instructions, because of 40 two are a twentieth and nothing that anybody asks about.
const GAP: u64 = 20;
const GAP_LEAST: u64 = 32;

/// A cluster is a mode from this part of all operations on: a twentieth, 5 %.
const PART: u64 = 20;

/// A cluster of fewer operations than this is no mode, however few there are of all.
const LEAST: u64 = 3;

/// How many operations took how many guest instructions: ascending, each count once, none of 0 operations.
///
/// As text `17749x300 17750x2`; JSON has that text, since pairs of numbers would be five times as long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pairs: Vec<(u64, u64)>,
}

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

impl Counts {
    /// Of pairs (guest instructions, how many operations), in any order.
    ///
    /// # Errors
    /// Where the operations, or their sum of instructions, are more than 64 bits hold: no guest counts so far.
    pub fn new(mut pairs: Vec<(u64, u64)>) -> Result<Counts, String> {
        pairs.retain(|pair| pair.1 > 0);
        pairs.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(pairs.len());
        let (mut operations, mut total) = (0u64, 0u64);
        for (count, times) in pairs {
            let sums = count
                .checked_mul(times)
                .and_then(|all| Some((operations.checked_add(times)?, total.checked_add(all)?)));
            (operations, total) =
                sums.ok_or_else(|| format!("{times} operations of {count} guest instructions"))?;
            match merged.last_mut() {
                // The sum of all is within 64 bits, so is a part of it.
                Some(last) if last.0 == count => last.1 += times,
                _ => merged.push((count, times)),
            }
        }
        Ok(Counts { pairs: merged })
    }

    /// The pairs, ascending.
    #[must_use]
    pub fn pairs(&self) -> &[(u64, u64)] {
        &self.pairs
    }

    /// How many operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.1).sum() // within 64 bits, by `new`
    }

    /// The guest instructions of all operations together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.pairs.iter().map(|(count, times)| count * times).sum() // likewise
    }

    /// The fewest; `None` of no operation.
    #[must_use]
    pub fn least(&self) -> Option<u64> {
        self.pairs.first().map(|pair| pair.0)
    }

    /// The most.
    #[must_use]
    pub fn most(&self) -> Option<u64> {
        self.pairs.last().map(|pair| pair.0)
    }

    /// The median: of an even number of operations the lower of the two in the middle, which is a count that was seen.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        median(&self.pairs)
    }

    /// The modes, ascending, and how many operations are in none.
    ///
    /// The counts are cut wherever a gap between neighbours is at least a twentieth of the smaller one and
    /// 32 instructions. A piece is a mode where
    /// it has at least a twentieth of all operations, and three. All in whole numbers: the same counts give the same modes.
    /// Where no piece is one, as of one or two operations far apart, there is no mode.
    #[must_use]
    pub fn modes(&self) -> (Vec<Mode>, u64) {
        let all = self.operations();
        let mut modes = Vec::new();
        let mut inside = 0;
        let near = |low: &(u64, u64), high: &(u64, u64)| {
            let gap = high.0 - low.0;
            gap < GAP_LEAST || u128::from(gap) * u128::from(GAP) < u128::from(low.0)
        };
        for piece in self.pairs.chunk_by(near) {
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
}

fn median(pairs: &[(u64, u64)]) -> Option<u64> {
    let all: u64 = pairs.iter().map(|pair| pair.1).sum();
    let mut before = all.checked_sub(1)? / 2;
    for &(count, times) in pairs {
        if before < times {
            return Some(count);
        }
        before -= times;
    }
    None
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (count, times)) in self.pairs.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{count}x{times}")?;
        }
        Ok(())
    }
}

impl FromStr for Counts {
    type Err = String;

    fn from_str(text: &str) -> Result<Counts, String> {
        let pair = |word: &str| {
            let (count, times) = word.split_once('x')?;
            Some((count.parse().ok()?, times.parse().ok()?))
        };
        let pairs = text.split_whitespace().map(|word| {
            pair(word).ok_or_else(|| format!("'{word}' is no count; they are written as 17749x300"))
        });
        Counts::new(pairs.collect::<Result<_, _>>()?)
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Counts, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl JsonSchema for Counts {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Counts".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "How many operations took how many guest instructions: 17749x300 17750x2.",
            "pattern": "^([0-9]+x[0-9]+( [0-9]+x[0-9]+)*)?$"
        })
    }
}
