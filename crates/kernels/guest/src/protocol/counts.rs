use serde::{Deserialize, Serialize};

/// Exact counts: values in ascending order, each with how often it came. No value is rounded, none
/// is dropped, so two boots that did the same have equal `Counts`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Counts(Vec<(u64, u64)>);

impl Counts {
    /// The counts of `values`, in any order. Sorts them: n log n.
    #[must_use]
    pub fn of(mut values: Vec<u64>) -> Counts {
        values.sort_unstable();
        let mut counts: Vec<(u64, u64)> = Vec::new();
        for value in values {
            match counts.last_mut() {
                Some((last, times)) if *last == value => *times += 1,
                _ => counts.push((value, 1)),
            }
        }
        Counts(counts)
    }

    /// Each value and how often it came, in ascending order.
    #[must_use]
    pub fn pairs(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// How many were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, times)| times).sum()
    }

    /// The sum of all values.
    #[must_use]
    pub fn sum(&self) -> u128 {
        let each = |&(value, times): &(u64, u64)| u128::from(value) * u128::from(times);
        self.0.iter().map(each).sum()
    }

    /// The value of rank `total x part / of`, rounded up, from the smallest on (nearest rank: a value
    /// that came, never one in between); `None` where nothing was counted or `of` is 0.
    ///
    /// ```
    /// use stopgap_guest::protocol::Counts;
    /// let counts = Counts::of(vec![30, 10, 20, 20]);
    /// assert_eq!(counts.quantile(1, 2), Some(20));
    /// assert_eq!(counts.quantile(99, 100), Some(30));
    /// ```
    #[must_use]
    pub fn quantile(&self, part: u64, of: u64) -> Option<u64> {
        let total = u128::from(self.total());
        let rank = (total * u128::from(part)).div_ceil(u128::from(of.max(1)));
        if total == 0 || of == 0 {
            return None;
        }
        let mut seen = 0;
        for &(value, times) in &self.0 {
            seen += u128::from(times);
            if seen >= rank.max(1) {
                return Some(value);
            }
        }
        self.0.last().map(|&(value, _)| value)
    }

    /// The median, by nearest rank.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        self.quantile(1, 2)
    }
}

impl TryFrom<Vec<(u64, u64)>> for Counts {
    type Error = String;

    fn try_from(pairs: Vec<(u64, u64)>) -> Result<Counts, String> {
        if let Some((value, _)) = pairs.iter().find(|(_, times)| *times == 0) {
            return Err(format!("counts: {value} came 0 times"));
        }
        if let Some(two) = pairs.windows(2).find(|two| two[0].0 >= two[1].0) {
            let (one, next) = (two[0].0, two[1].0);
            return Err(format!("counts: {next} after {one}; they ascend"));
        }
        let total = pairs
            .iter()
            .try_fold(0u64, |sum, (_, times)| sum.checked_add(*times));
        if total.is_none() {
            return Err("counts: more than 2^64".to_owned());
        }
        Ok(Counts(pairs))
    }
}

impl From<Counts> for Vec<(u64, u64)> {
    fn from(counts: Counts) -> Vec<(u64, u64)> {
        counts.0
    }
}
