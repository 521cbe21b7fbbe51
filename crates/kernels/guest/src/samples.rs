//! Counts while a cell runs: kept as they come, in memory that is there before the first of them.

use crate::protocol::{Counted, Counts, Line};

use crate::mark::Operation;

/// The counts of a cell's operations.
#[derive(Debug)]
pub struct Samples(Vec<(String, Vec<u64>)>);

impl Samples {
    /// Room for `each` counts of every operation. All of it is touched here: no first touch of ours falls between two
    /// counted operations.
    #[must_use]
    pub fn of(operations: &[&str], each: usize) -> Samples {
        let room = || {
            let mut values = vec![u64::MAX; each];
            values.clear();
            values
        };
        Samples(
            operations
                .iter()
                .map(|&name| (name.to_owned(), room()))
                .collect(),
        )
    }

    /// One more of the operation at that place.
    #[inline]
    pub fn push(&mut self, place: usize, count: u64) {
        if let Some((_, values)) = self.0.get_mut(place) {
            values.push(count);
        }
    }

    /// As lines; operations that never came are left out.
    #[must_use]
    pub fn lines(self, name: &str) -> Vec<Line> {
        let came = self.0.into_iter().filter(|(_, values)| !values.is_empty());
        came.map(|(operation, values)| {
            Line::Counts(Counted {
                name: name.to_owned(),
                operation,
                counts: Counts::of(values),
            })
        })
        .collect()
    }
}

/// The words of some operations.
#[must_use]
pub fn words<const N: usize>(operations: [Operation; N]) -> [&'static str; N] {
    operations.map(Operation::word)
}
