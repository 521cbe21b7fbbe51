//! Do held buffers make everyone else wait when memory is short?
//!
//! Two experiments, both in guarded children:
//!
//! * the **cost** of each way to hold memory, a page: to take, until it is resident, until it
//!   is off the scanned lists, for each later pass of reclaim, to release. Needs no
//!   privilege; within `RLIMIT_MEMLOCK` without it;
//! * the **load**, which needs root and a memory cgroup: pages scanned for each page
//!   reclaimed, and what that costs bystanders, beside a set that is held and beside none.
//!
//! Words: *locked* is mlock and `SHM_LOCK` (it may still migrate), *pinned* is page references.

mod cost;
mod evidence;
pub mod gem_syslatency;
mod judge;
mod pressure;
mod run;
mod shrinker;
mod threads;

use std::fmt;
use std::str::FromStr;

use stopgap_events::reclaim::Load;
use stopgap_events::units::{Bytes, Nanos};

pub use stopgap_kernel::holds::Way;
pub use {pressure::Hold, pressure::Scanned, pressure::beside_held};

// Parameters of the probe.

/// What is done with memory whose cost is measured, or that lies beside the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// There is no such memory: the reference of each load. It has no cost a page.
    None,
    /// Nothing: it may be reclaimed.
    Plain,
    /// It is held.
    Held(Way),
    /// Objects are locked by `SHM_LOCK` and unlocked, over and over. Only under a load.
    ShmChurn,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 8] = [
        Mode::None,
        Mode::Plain,
        Mode::Held(Way::Mlock),
        Mode::Held(Way::ShmLock),
        Mode::ShmChurn,
        Mode::Held(Way::Vmsplice),
        Mode::Held(Way::IoUring),
        Mode::Held(Way::Udmabuf),
    ];

    /// Modes whose cost a page is measured by default: any kernel has them.
    pub const COSTS: [Mode; 5] = [
        Mode::Plain,
        Mode::Held(Way::Mlock),
        Mode::Held(Way::ShmLock),
        Mode::Held(Way::Vmsplice),
        Mode::Held(Way::IoUring),
    ];

    /// Modes that stand beside the load by default: a driver's page references, what
    /// would replace them, and nothing.
    pub const LOADED: [Mode; 4] = [
        Mode::None,
        Mode::Held(Way::Vmsplice),
        Mode::Held(Way::Mlock),
        Mode::Held(Way::ShmLock),
    ];

    /// Whether it has a cost a page.
    #[must_use]
    pub fn has_costs(self) -> bool {
        matches!(self, Mode::Plain | Mode::Held(_))
    }

    /// Its one word: `none`, `plain`, `shm-churn`, or the way's.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Mode::None => "none",
            Mode::Plain => "plain",
            Mode::ShmChurn => "shm-churn",
            Mode::Held(way) => way.word(),
        }
    }

    /// Returns what it does to memory, in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Mode::None => "none",
            Mode::Plain => "not held",
            Mode::ShmChurn => "locked and unlocked (SHM_LOCK)",
            Mode::Held(way) => way.words(),
        }
    }

    /// Whether it keeps page references, so that reclaim meets its pages on every pass.
    #[must_use]
    pub fn pins(self) -> bool {
        matches!(self, Mode::Held(way) if !way.locks())
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
const MOST_PASSES: u32 = 1_000;

/// The probe of the question `reclaim`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaim {
    /// Modes of [`Mode::COSTS`] whose costs are measured.
    pub modes: Vec<Mode>,
    /// Memory of each mode. `None`: 32 MiB as root; else 4 MiB, and of what is charged to
    /// `RLIMIT_MEMLOCK` no more than that allows.
    pub bytes: Option<Bytes>,
    /// Runs of the cost experiment, at least 1; an interval needs 3.
    pub runs: u32,
    /// Passes of reclaim over each set, 1 to 1,000.
    pub passes: u32,
    /// The load; `None`: it is not run.
    pub pressure: Option<PressureParameters>,
    /// Swap file to make for the time of the probe (root only); `None`: none is made.
    pub swap: Option<Bytes>,
    /// The one experiment with a shrinker, which takes the place of all else; `None`: none.
    pub shrinker: Option<String>,
}

/// The load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PressureParameters {
    /// Modes that stand beside it; [`Mode::None`] always does.
    pub modes: Vec<Mode>,
    /// Kind of load that makes memory short.
    pub load: Load,
    /// Limit of the memory cgroup, the held set included.
    pub limit: Bytes,
    /// The held set, several in turn: each over `limit` is a *share*.
    pub pinned: Vec<Bytes>,
    /// The file that is read; `None`: an eighth more than the limit leaves. The larger it is,
    /// the later the kernel turns to anonymous pages.
    pub file: Option<Bytes>,
    /// Size that is populated at a time.
    pub block: Bytes,
    /// Runs of each, at least 1; a verdict needs 3.
    pub runs: u32,
    /// How long one run of one mode is counted at most, its warm-up included and the filling of its room
    /// not; `None`: what the probe's time leaves, 250 ms to 4 s.
    pub time: Option<Nanos>,
    /// From what length on populating a block counts as a stall.
    pub stall: Nanos,
    /// Swappiness of the cgroup (only version 1 has it); `None`: the machine's.
    pub swappiness: Option<u32>,
}

impl Default for PressureParameters {
    fn default() -> PressureParameters {
        PressureParameters {
            modes: Mode::LOADED.to_vec(),
            load: Load::Mixed,
            limit: Bytes::mib(128),
            pinned: vec![Bytes::mib(64)],
            file: None,
            block: Bytes::mib(2),
            runs: 6,
            time: None,
            stall: Nanos::millis(10),
            swappiness: None,
        }
    }
}

/// An endless file: sparse, so that it costs no block, and longer than anybody reads in a run.
const ENDLESS: Bytes = Bytes::gib(256);

impl PressureParameters {
    /// Returns the memory that the limit leaves beside a held set.
    #[must_use]
    pub fn room(&self, pinned: Bytes) -> Bytes {
        self.limit.saturating_sub(pinned)
    }

    /// The file's size beside a held set.
    #[must_use]
    pub fn file_size(&self, pinned: Bytes) -> Bytes {
        let room = self.room(pinned);
        let usual = match self.load {
            Load::Stream => ENDLESS,
            _ => room + Bytes(room.0 / 8),
        };
        self.file.unwrap_or(usual)
    }

    /// Why a load beside this set makes no sense.
    fn wrong(&self, pinned: Bytes) -> Option<String> {
        let (limit, room) = (self.limit, self.room(pinned));
        if pinned >= limit {
            return Some(format!(
                "{pinned} pinned do not fit into a limit of {limit}: raise the limit or pin less"
            ));
        }
        // Each thread of the load needs some pages besides, and pipes need theirs.
        let least = self.block + self.block + Bytes::mib(8);
        if room < least {
            return Some(format!(
                "a limit of {limit} leaves {room} beside {pinned} pinned: the load needs {least}; raise the \
                 limit or pin less"
            ));
        }
        if self.file_size(pinned) <= room {
            return Some(format!(
                "a file of {} fits into the {room} that the limit leaves and would never refault: \
                 give a larger one",
                self.file_size(pinned),
            ));
        }
        None
    }
}

impl Reclaim {
    /// As `check` asks it; `quick`: with fewer runs.
    #[must_use]
    pub fn check(quick: bool) -> Reclaim {
        let runs = if quick { 3 } else { 5 };
        Reclaim {
            modes: Mode::COSTS.to_vec(),
            bytes: None,
            runs,
            passes: 3,
            pressure: Some(PressureParameters {
                modes: vec![Mode::Held(Way::Vmsplice), Mode::Held(Way::Mlock)],
                runs,
                ..PressureParameters::default()
            }),
            swap: None,
            shrinker: None,
        }
    }

    /// Why these parameters make no sense anywhere, in one line.
    fn wrong(&self) -> Option<String> {
        if self.runs == 0 || self.passes == 0 {
            return Some("0 runs or passes measure nothing: give at least 1".to_owned());
        }
        if self.passes > MOST_PASSES {
            let passes = self.passes;
            return Some(format!("{passes} passes: give at most {MOST_PASSES}"));
        }
        if self.modes.is_empty() && self.pressure.is_none() && self.shrinker.is_none() {
            let why = "without the load there is nothing to do: none and shm-churn have no cost a page; name another \
                       mode";
            return Some(why.to_owned());
        }
        if self.bytes == Some(Bytes(0)) {
            return Some("0 bytes hold no page: give at least one page".to_owned());
        }
        let asked = self.pressure.as_ref()?;
        if asked.runs == 0 {
            return Some("0 runs of the load measure nothing: give at least 1".to_owned());
        }
        if !Load::LIVE.contains(&asked.load) {
            return Some(format!(
                "{} is modelled alone: give another load",
                asked.load
            ));
        }
        if asked.block.0 == 0 || asked.pinned.is_empty() || asked.pinned.contains(&Bytes(0)) {
            return Some("a block or a pinned set of 0 bytes loads nothing".to_owned());
        }
        if asked.time == Some(Nanos(0)) {
            return Some("0 s of the load measure nothing: give it a second or so".to_owned());
        }
        if asked.swappiness.is_some_and(|swappiness| swappiness > 200) {
            return Some("swappiness goes from 0 to 200".to_owned());
        }
        asked.pinned.iter().find_map(|&pinned| asked.wrong(pinned))
    }
}

#[cfg(test)]
mod tests;
