//! By what pages a buffer is asked for.

use std::fmt;
use std::str::FromStr;

use stopgap_events::units::Bytes;

/// How a buffer gets its physical memory. Its name (`Display`, `FromStr`) is the word for the
/// command line and the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// `base`: base pages alone (`MADV_NOHUGEPAGE`).
    Base,
    /// `mthp`: each size of [`Strategy::Mthp`] below the PMD's that the kernel has.
    EveryMthp,
    /// `mthp-64K`: transparent huge pages of this one size; faults reclaim directly, where we
    /// may set that.
    Mthp(Bytes),
    /// `mthp-to-64K`: transparent huge pages of every size up to this one, the largest that is to
    /// be had; faults reclaim directly for each size, where we may set that.
    MthpUpTo(Bytes),
    /// `thp-direct`: PMD-size transparent huge pages; a fault that finds none reclaims and
    /// compacts.
    ThpDirect,
    /// `thp-noreclaim`: PMD-size transparent huge pages; a fault that finds none takes base
    /// pages.
    ThpNoReclaim,
    /// `collapse`: filled with base pages, then `MADV_COLLAPSE`.
    Collapse,
    /// `hugetlb`: pages of PMD size from the pool that is set aside.
    Hugetlb,
}

impl Strategy {
    /// All that a probe takes unasked; sizes of mTHP stand under their common name.
    pub const ALL: [Strategy; 6] = [
        Strategy::Base,
        Strategy::EveryMthp,
        Strategy::ThpDirect,
        Strategy::ThpNoReclaim,
        Strategy::Collapse,
        Strategy::Hugetlb,
    ];

    /// What is taken unasked on memory that was fragmented on purpose, each from a fresh state.
    pub const FRAGMENTED: [Strategy; 5] = [
        Strategy::Base,
        Strategy::ThpNoReclaim,
        Strategy::Mthp(Bytes::kib(64)),
        Strategy::MthpUpTo(Bytes::kib(64)),
        Strategy::ThpDirect,
    ];

    /// In words, for a sentence.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Strategy::Base => "base pages".to_owned(),
            Strategy::EveryMthp => "mTHP".to_owned(),
            Strategy::Mthp(size) => format!("{size} mTHP"),
            Strategy::MthpUpTo(size) => format!("mTHP of every size up to {size}"),
            Strategy::ThpDirect => "THP with direct reclaim".to_owned(),
            Strategy::ThpNoReclaim => "THP without direct reclaim".to_owned(),
            Strategy::Collapse => "MADV_COLLAPSE".to_owned(),
            Strategy::Hugetlb => "hugetlb".to_owned(),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Base => f.pad("base"),
            Strategy::EveryMthp => f.pad("mthp"),
            Strategy::Mthp(size) => f.pad(&format!("mthp-{}", size.short())),
            Strategy::MthpUpTo(size) => f.pad(&format!("mthp-to-{}", size.short())),
            Strategy::ThpDirect => f.pad("thp-direct"),
            Strategy::ThpNoReclaim => f.pad("thp-noreclaim"),
            Strategy::Collapse => f.pad("collapse"),
            Strategy::Hugetlb => f.pad("hugetlb"),
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(word: &str) -> Result<Strategy, String> {
        if let Some(size) = word.strip_prefix("mthp-") {
            let (size, up_to) = match size.strip_prefix("to-") {
                Some(size) => (size, true),
                None => (size, false),
            };
            let size: Bytes = size.parse()?;
            return match size.0.is_power_of_two() {
                true if up_to => Ok(Strategy::MthpUpTo(size)),
                true => Ok(Strategy::Mthp(size)),
                false => Err(format!("'{word}': the size of a page is a power of two")),
            };
        }
        Strategy::ALL
            .into_iter()
            .find(|strategy| strategy.to_string() == word)
            .ok_or_else(|| {
                let words = Strategy::ALL
                    .map(|strategy| strategy.to_string())
                    .join(", ");
                format!("unknown strategy '{word}'; there are {words}, one size as mthp-64K, sizes as mthp-to-64K")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let sizes = [
            Strategy::Mthp(Bytes::kib(64)),
            Strategy::Mthp(Bytes::mib(1)),
            Strategy::MthpUpTo(Bytes::kib(64)),
        ];
        for strategy in Strategy::ALL.into_iter().chain(sizes) {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        assert_eq!(Strategy::Mthp(Bytes::kib(64)).to_string(), "mthp-64K");
    }

    #[test]
    fn wrong_names_say_what_there_is() {
        let error = "huge".parse::<Strategy>().unwrap_err();
        assert!(
            error.contains("thp-direct") && error.contains("mthp-64K"),
            "{error}"
        );
        assert!(
            "mthp-3K"
                .parse::<Strategy>()
                .unwrap_err()
                .contains("power of two")
        );
        assert!("mthp-".parse::<Strategy>().is_err());
    }
}
