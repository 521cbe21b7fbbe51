//! What can be asked of the probe.

use std::fmt;
use std::str::FromStr;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::holds::Way;

/// What is done with the memory whose cost is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Nothing: it may be reclaimed.
    Plain,
    /// It is held.
    Held(Way),
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 5] = [
        Mode::Plain,
        Mode::Held(Way::Mlock),
        Mode::Held(Way::ShmLock),
        Mode::Held(Way::Vmsplice),
        Mode::Held(Way::IoUring),
    ];

    /// Its one word: `plain`, or the way's.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Held(way) => way.word(),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Mode {
    type Err = String;
    fn from_str(word: &str) -> Result<Mode, String> {
        Mode::ALL
            .into_iter()
            .find(|mode| mode.word() == word)
            .ok_or_else(|| {
                let words = Mode::ALL.map(Mode::word).join(", ");
                format!("unknown mode '{word}'; the modes are {words}")
            })
    }
}

/// Most passes: each is a line in the record, and one is like the other.
pub(super) const MOST_PASSES: u32 = 1_000;

/// The probe of the question `reclaim`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaim {
    /// What costs are measured of.
    pub modes: Vec<Mode>,
    /// Memory of each mode. `None`: 32 MiB as root; else 4 MiB, and of what is charged to
    /// `RLIMIT_MEMLOCK` no more than that allows.
    pub bytes: Option<Bytes>,
    /// Runs of the cost experiment, at least 1; an interval needs 3.
    pub runs: u32,
    /// Passes of reclaim over each set, 1 to 1,000.
    pub passes: u32,
    /// The refault load; `None`: it is not run.
    pub refault: Option<RefaultParameters>,
    /// Swap file to make for the time of the probe (root only); `None`: none is made.
    pub swap: Option<Bytes>,
}

/// The refault load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefaultParameters {
    /// What is compared with holding nothing; `shm-lock` is not: in the steady state it cannot
    /// be told from mlock.
    pub ways: Vec<Way>,
    /// Limit of the memory cgroup, the held set included.
    pub limit: Bytes,
    /// The held set.
    pub held: Bytes,
    /// The file that is read; `None`: an eighth more than the limit leaves. The larger it is,
    /// the later the kernel turns to anonymous pages.
    pub file: Option<Bytes>,
    /// What the bystander populates at a time.
    pub block: Bytes,
    /// Runs of each, at least 1; a verdict needs 3.
    pub runs: u32,
    /// How long one run of one mode takes, its warm-up (not counted) included; `None`: what the
    /// probe's time leaves, 250 ms to 4 s, and 4 s where a swap file is made. The kernel weighs
    /// anonymous against file pages by what reclaim of each has cost; it took 1 to 3 s on a
    /// Linux 6.18 with 2 CPUs before it scanned a pinned set.
    pub time: Option<Nanos>,
    /// From what length on populating a block counts as a stall.
    pub stall: Nanos,
}

impl Default for RefaultParameters {
    fn default() -> RefaultParameters {
        RefaultParameters {
            ways: vec![Way::Vmsplice, Way::Mlock],
            limit: Bytes::mib(256),
            held: Bytes::mib(128),
            file: None,
            block: Bytes::mib(2),
            runs: 5,
            time: None,
            stall: Nanos::millis(10),
        }
    }
}

impl RefaultParameters {
    /// What the limit leaves beside the held set.
    #[must_use]
    pub fn room(&self) -> Bytes {
        self.limit.saturating_sub(self.held)
    }

    /// The file's size.
    #[must_use]
    pub fn file_size(&self) -> Bytes {
        self.file.unwrap_or(self.room() + Bytes(self.room().0 / 8))
    }
}

impl Reclaim {
    /// As `check` asks it; `quick`: with fewer runs.
    #[must_use]
    pub fn check(quick: bool) -> Reclaim {
        let runs = if quick { 3 } else { 5 };
        Reclaim {
            modes: Mode::ALL.to_vec(),
            bytes: None,
            runs,
            passes: 3,
            refault: Some(RefaultParameters {
                runs,
                ..RefaultParameters::default()
            }),
            swap: None,
        }
    }

    /// Why these parameters make no sense anywhere, in one line.
    pub(super) fn wrong(&self) -> Option<String> {
        if self.runs == 0 || self.passes == 0 {
            return Some("0 runs or passes measure nothing: give at least 1".to_owned());
        }
        if self.passes > MOST_PASSES {
            let passes = self.passes;
            return Some(format!("{passes} passes: give at most {MOST_PASSES}"));
        }
        if self.modes.is_empty() && self.refault.is_none() {
            return Some(
                "neither a mode nor the refault load is asked for: nothing to do".to_owned(),
            );
        }
        if self.bytes == Some(Bytes(0)) {
            return Some("0 bytes hold no page: give at least one page".to_owned());
        }
        let refault = self.refault.as_ref()?;
        if refault.runs == 0 {
            return Some("0 runs of the refault load measure nothing: give at least 1".to_owned());
        }
        if refault.ways.contains(&Way::ShmLock) {
            return Some(
                "the refault load does not take shm-lock, which reclaim cannot tell from mlock: \
                 give mlock, vmsplice, io-uring"
                    .to_owned(),
            );
        }
        if refault.block.0 == 0 || refault.held.0 == 0 {
            return Some("a block or a held set of 0 bytes loads nothing".to_owned());
        }
        // Each thread of the load needs some pages besides, and pipes need theirs.
        let least = refault.block + refault.block + Bytes::mib(8);
        if refault.room() < least {
            return Some(format!(
                "a limit of {} leaves {} beside {} held: the load needs {least}; raise the limit \
                 or hold less",
                refault.limit,
                refault.room(),
                refault.held,
            ));
        }
        if refault.file_size() <= refault.room() {
            return Some(format!(
                "a file of {} fits into the {} that the limit leaves and would never refault: \
                 give a larger one",
                refault.file_size(),
                refault.room()
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse::<Mode>(), Ok(mode));
        }
        assert!("pinned".parse::<Mode>().unwrap_err().contains("io-uring"));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let sane = Reclaim::check(false);
        assert_eq!(sane.wrong(), None);
        assert_eq!(Reclaim::check(true).wrong(), None);
        let refault = RefaultParameters::default();
        let with = |refault| Reclaim {
            refault: Some(refault),
            ..sane.clone()
        };
        for (probe, word) in [
            (
                Reclaim {
                    runs: 0,
                    ..sane.clone()
                },
                "runs",
            ),
            (
                Reclaim {
                    passes: 1_001,
                    ..sane.clone()
                },
                "at most 1000",
            ),
            (
                Reclaim {
                    bytes: Some(Bytes(0)),
                    ..sane.clone()
                },
                "page",
            ),
            (
                Reclaim {
                    modes: vec![],
                    refault: None,
                    ..sane.clone()
                },
                "nothing to do",
            ),
            (
                with(RefaultParameters {
                    held: Bytes::mib(250),
                    ..refault.clone()
                }),
                "raise",
            ),
            (
                with(RefaultParameters {
                    held: Bytes::mib(300),
                    ..refault.clone()
                }),
                "raise",
            ),
            (
                with(RefaultParameters {
                    file: Some(Bytes::mib(1)),
                    ..refault.clone()
                }),
                "larger",
            ),
            (
                with(RefaultParameters {
                    ways: vec![Way::ShmLock],
                    ..refault
                }),
                "mlock",
            ),
        ] {
            let why = probe.wrong().unwrap_or_default();
            assert!(why.contains(word), "'{why}' does not say '{word}'");
        }
    }
}
