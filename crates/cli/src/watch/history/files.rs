//! Names of the files of a history, what each has, and which are to be merged or to go.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;

use stopgap_events::order::SortRows;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::folder::Folder;
use stopgap_kernel::local_time::utc;

use super::rows;

const DAY: u64 = 86_400;
const HOUR: u64 = 3_600;
/// Days that have rows of ten seconds, of a minute, and at all. The first of each began before.
const FINE_DAYS: u64 = 1;
const MINUTE_DAYS: u64 = 7;
const DAYS: u64 = 30;
/// Most bytes of a history; the oldest files go.
pub(super) const MOST: Bytes = Bytes::mib(1024);
/// The labels of a file's metadata with a number of its own, and with those of the files of which it was made.
pub(super) const ID: &str = "id";
pub(super) const MADE_OF: &str = "made-of";
const END: &str = ".parquet";

/// Contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Level {
    /// Ten seconds.
    Part,
    /// An hour in rows of ten seconds.
    Hour,
    /// A day in rows of a minute.
    Day,
    /// A day in rows of ten minutes.
    Old,
}

/// Each level with the word of its files, and how much of a time its names have.
static LEVELS: [(Level, &str, usize); 4] = [
    (Level::Part, "part", 15),
    (Level::Hour, "hour", 11),
    (Level::Day, "day", 8),
    (Level::Old, "old", 8),
];

impl Level {
    /// Returns the length of its rows where it is made of others; 0: as they were.
    pub(super) fn step(self) -> Nanos {
        match self {
            Level::Part | Level::Hour => Nanos(0),
            Level::Day => Nanos::secs(60),
            Level::Old => Nanos::secs(600),
        }
    }
}

/// A file: `part-20261126-141230`, and `-2` behind it where the name was taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name {
    /// `20261126-141230`, or as much of it as its level has.
    stamp: String,
    pub(super) level: Level,
    again: u32,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = LEVELS.iter().find(|(level, ..)| *level == self.level);
        write!(f, "{}-{}", word.map_or("", |word| word.1), self.stamp)?;
        if self.again > 0 {
            write!(f, "-{}", self.again)?;
        }
        f.write_str(END)
    }
}

impl Name {
    /// Returns the name of a file of `level` with what happened at a time.
    pub(super) fn at(level: Level, unix_s: u64) -> Name {
        let digits = utc(unix_s).replace(['-', ':', 'Z'], "").replace('T', "-");
        let length = LEVELS.iter().find(|(one, ..)| *one == level);
        Name {
            stamp: digits.chars().take(length.map_or(0, |one| one.2)).collect(),
            level,
            again: 0,
        }
    }

    pub(super) fn parse(name: &str) -> Option<Name> {
        let (word, stamp) = name.strip_suffix(END)?.split_once('-')?;
        let (level, _, length) = *LEVELS.iter().find(|(_, one, _)| *one == word)?;
        let (stamp, again) = stamp.split_at_checked(length)?;
        let again = match again {
            "" => 0,
            more => more.strip_prefix('-')?.parse().ok()?,
        };
        let digits = |(at, c): (usize, char)| c.is_ascii_digit() != (at == 8);
        let name = Name {
            stamp: stamp.to_owned(),
            level,
            again,
        };
        // A text that is no date comes back as another.
        let is_one =
            stamp.char_indices().all(digits) && Name::at(level, name.begin_s()).stamp == stamp;
        is_one.then_some(name)
    }

    pub(super) fn os(&self) -> OsString {
        self.to_string().into()
    }

    /// The same with the next number.
    pub(super) fn next(&self) -> Name {
        Name {
            again: self.again + 1,
            ..self.clone()
        }
    }

    /// Returns when it begins, in seconds since 1970.
    pub(super) fn begin_s(&self) -> u64 {
        let number = |from: usize, to: usize| -> u64 {
            let digits = self.stamp.get(from..to);
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        let (year, month, day) = (number(0, 4), number(4, 6).max(1), number(6, 8).max(1));
        // Days before a year that begins in March.
        let (year, month) = match month {
            1 | 2 => (year.saturating_sub(1), month + 9),
            _ => (year, month - 3),
        };
        let days =
            365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
        days.saturating_sub(719_468) * DAY
            + number(9, 11) * HOUR
            + number(11, 13) * 60
            + number(13, 15)
    }

    /// Returns when what it has is over, at the latest.
    pub(super) fn end_s(&self) -> u64 {
        self.begin_s()
            + match self.level {
                Level::Part => 60,
                Level::Hour => HOUR,
                Level::Day | Level::Old => DAY,
            }
    }
}

/// Returns the files of a history, the oldest first.
pub(super) fn names(folder: &Folder) -> Vec<Name> {
    let names = folder.names();
    let mut names: Vec<Name> = names
        .iter()
        .filter_map(|name| Name::parse(name.to_str()?))
        .collect();
    names.sort_rows_by_key(|name| (name.begin_s(), name.level, name.again));
    names
}

/// Returns `names` without those that another file was made of, and of those that cannot be opened the reason. A merge that was
/// killed leaves both.
pub(super) fn not_merged(folder: &Folder, names: Vec<Name>) -> (Vec<Name>, BTreeMap<Name, String>) {
    let (mut ids, mut merged, mut wrong) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    for name in &names {
        match rows::metadata(folder, name) {
            Ok(mut metadata) => {
                let made_of = metadata.labels.remove(MADE_OF).unwrap_or_default();
                merged.extend(made_of.split_whitespace().map(str::to_owned));
                ids.insert(name.clone(), metadata.labels.remove(ID));
            }
            Err(why) => drop(wrong.insert(name.clone(), why)),
        }
    }
    let is_merged = |name: &Name| {
        let id = ids.get(name).and_then(Option::as_ref);
        id.is_some_and(|id| merged.contains(id))
    };
    let left = names.into_iter().filter(|name| !is_merged(name));
    (left.collect(), wrong)
}

/// A file that is to be made, and of which others.
pub(super) type Merge = (Name, Vec<Name>);

/// Returns what is to be merged at a time, and what is to go.
pub(super) fn due(names: &[Name], now_s: u64) -> (Vec<Merge>, Vec<Name>) {
    let mut merges: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
    let mut gone = Vec::new();
    let today = now_s / DAY;
    for name in names {
        let day = name.begin_s() / DAY;
        // A time in the future came with a clock that was wrong.
        let age = today.saturating_sub(day);
        let level = match () {
            () if age > DAYS => {
                gone.push(name.clone());
                continue;
            }
            () if age > MINUTE_DAYS => Level::Old,
            () if age > FINE_DAYS => Level::Day,
            () if name.begin_s() / HOUR != now_s / HOUR => Level::Hour,
            () => Level::Part,
        };
        if name.level < level {
            let into = Name::at(level, name.begin_s());
            merges.entry(into).or_default().push(name.clone());
        }
    }
    (merges.into_iter().collect(), gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_times() {
        let at = 1_795_876_350; // 2026-11-28T14:32:30Z
        let names: Vec<String> = LEVELS
            .iter()
            .map(|(level, ..)| Name::at(*level, at).to_string())
            .collect();
        let stamp = utc(at);
        assert_eq!(
            names[0],
            format!(
                "part-{}.parquet",
                stamp.replace(['-', ':', 'Z'], "").replace('T', "-")
            )
        );
        for (name, begin) in
            names
                .iter()
                .zip([at, at / HOUR * HOUR, at / DAY * DAY, at / DAY * DAY])
        {
            let parsed = Name::parse(name).unwrap();
            assert_eq!((&parsed.to_string(), parsed.begin_s()), (name, begin));
            let next = Name::parse(&parsed.next().to_string()).unwrap();
            assert_eq!(next, parsed.next());
        }
        for wrong in [
            "part-20261126.parquet",
            "day-20261326.parquet",
            "day-20260230.parquet",
            "hour-20261126-25.parquet",
            "day-20261126x.parquet",
            "day-20261126-x.parquet",
            "week-20261126.parquet",
            "day-20261126",
            ".part-20261126-141230.parquet.partial",
        ] {
            assert_eq!(Name::parse(wrong), None, "{wrong}");
        }
    }

    /// A second of each day of some years leads back to itself.
    #[test]
    fn dates_lead_back() {
        for day in (0..40_000).step_by(13) {
            let at = day * DAY + 7;
            assert_eq!(Name::at(Level::Part, at).begin_s(), at);
        }
    }

    #[test]
    fn old_files_are_merged_and_go() {
        let now = 1_000 * DAY + 5 * HOUR + 10;
        let part = |days: u64, hour: u64, second: u64| {
            Name::at(Level::Part, (1_000 - days) * DAY + hour * HOUR + second)
        };
        let names = [
            Name::at(Level::Old, 960 * DAY),
            Name::at(Level::Day, 992 * DAY),
            Name::at(Level::Hour, 998 * DAY + HOUR),
            part(2, 2, 0),
            part(0, 4, 0),
            part(0, 4, 10),
            part(0, 5, 0),
        ];
        let (merges, gone) = due(&names, now);
        assert_eq!(gone, [names[0].clone()]);
        let told: Vec<(Name, usize)> = merges
            .iter()
            .map(|(into, of)| (into.clone(), of.len()))
            .collect();
        let expected = [
            (Name::at(Level::Old, 992 * DAY), 1),
            (Name::at(Level::Day, 998 * DAY), 2),
            (Name::at(Level::Hour, 1_000 * DAY + 4 * HOUR), 2),
        ];
        assert_eq!(told.len(), 3);
        assert!(expected.iter().all(|one| told.contains(one)), "{told:?}");
    }
}
