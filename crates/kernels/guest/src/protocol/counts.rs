use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Exact counts of an operation: how many took how many guest instructions. Ascending, each count once, no buckets, so two
/// boots that did the same have equal `Counts`.
///
/// As text `17749x300 17750x2`. A record has that text: pairs of numbers would be five times as long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(Vec<(u64, u64)>);

impl Counts {
    /// Counts `values`, in any order.
    #[must_use]
    pub fn of(mut values: Vec<u64>) -> Counts {
        values.sort_unstable();
        let equal = values.chunk_by(|a, b| a == b);
        Counts(equal.map(|some| (some[0], some.len() as u64)).collect())
    }

    /// Makes counts of pairs (guest instructions, how many operations), in any order.
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
            (operations, total) = sums.ok_or_else(|| {
                format!("{times} operations of {count} guest instructions: more than 64 bits hold")
            })?;
            match merged.last_mut() {
                // The sum of all is within 64 bits, so is a part of it.
                Some(last) if last.0 == count => last.1 += times,
                _ => merged.push((count, times)),
            }
        }
        Ok(Counts(merged))
    }

    /// Makes counts of pairs as a program of ours writes them: ascending, each count once, none of 0 operations.
    ///
    /// # Errors
    /// Other pairs, and as [`Counts::new`].
    pub fn ascending(pairs: Vec<(u64, u64)>) -> Result<Counts, String> {
        if let Some((count, _)) = pairs.iter().find(|pair| pair.1 == 0) {
            return Err(format!("counts: {count} came 0 times"));
        }
        if let Some(two) = pairs.windows(2).find(|two| two[0].0 >= two[1].0) {
            return Err(format!("counts: {} after {}", two[1].0, two[0].0));
        }
        Counts::new(pairs)
    }

    /// Each count with how many operations took it, ascending.
    #[must_use]
    pub fn pairs(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// How many operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.iter().map(|pair| pair.1).sum()
    }

    /// The guest instructions of all operations together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let each = self.0.iter();
        each.fold(0, |sum, pair| {
            sum.saturating_add(pair.0.saturating_mul(pair.1))
        })
    }

    /// The median: of an even number of operations the lower of the two in the middle, which is a count that was seen.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        median(&self.0)
    }
}

/// The median of pairs (count, how often), ascending; of an even number the lower of the two in the middle.
#[must_use]
pub fn median(pairs: &[(u64, u64)]) -> Option<u64> {
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
        for (index, (count, times)) in self.0.iter().enumerate() {
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
    fn schema_name() -> Cow<'static, str> {
        "Counts".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "How many operations took how many guest instructions: 17749x300 17750x2.",
            "pattern": "^([0-9]+x[0-9]+( [0-9]+x[0-9]+)*)?$"
        })
    }
}

/// Counts in a guest's line: pairs of numbers.
pub(super) mod in_pairs {
    use super::{Counts, Deserialize, Deserializer, Serialize, Serializer};
    use serde::de::Error as _;

    pub(crate) fn serialize<S: Serializer>(counts: &Counts, to: S) -> Result<S::Ok, S::Error> {
        counts.pairs().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Counts, D::Error> {
        Counts::ascending(Vec::deserialize(from)?).map_err(D::Error::custom)
    }
}
