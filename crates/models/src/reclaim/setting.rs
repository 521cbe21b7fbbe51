//! What is asked: how memory is held, how it is released, how large all is, and who loads it.

use std::fmt;

use stopgap_events::reclaim::Load;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::words;
use thiserror::Error;

/// How pages that must stay are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// Nothing is held; what the rest may use is the same.
    None,
    /// References only: the pages stay on the lists that reclaim scans (i915 until 4.20; vmsplice, `io_uring`).
    Held,
    /// Each page locked as it is taken, and moved to the unevictable list one by one (mlock; mail 004's `lock_vma`).
    Mlock,
    /// The mapping is marked before it is filled: pages go to the unevictable list at once (i915 since 5.0).
    Mapping,
    /// The mapping is marked when pages are on a list already: reclaim moves them when it meets them (`SHM_LOCK`, a
    /// buffer that is pinned a second time).
    MappingLate,
}
words!(Policy, "policy", None "none", Held "held", Mlock "mlock", Mapping "mapping", MappingLate "mapping-late");

impl Policy {
    /// Whether its release has to move pages back to the lists that reclaim scans, in a way that can be chosen.
    #[must_use]
    pub fn marks(self) -> bool {
        matches!(self, Policy::Mapping | Policy::MappingLate)
    }
}

/// How pages of a marked mapping come back to the lists when they are released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// A second pass over the whole file first (`shmem_unlock_mapping`; mail 004's `mapping`).
    SecondPass,
    /// With the references, by batches of 15.
    Batch,
    /// As `batch`, and after each batch others may run (what landed in 5.0).
    BatchResched,
    /// With the references, page by page, a lock hold each.
    Single,
}
words!(Release, "release path", SecondPass "second-pass", Batch "batch", BatchResched "batch-resched", Single "single");

/// Whose rules the active and inactive lists follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kernel {
    /// As mail 004's: anonymous against file by what was rotated, a process's new pages active, and active pages never
    /// made inactive by force.
    Linux4_19,
    /// Anonymous against file by what reclaim has cost, new pages inactive, active pages made inactive where nothing
    /// else can be reclaimed.
    Linux6_12,
}
words!(Kernel, "kernel", Linux4_19 "linux-4.19", Linux6_12 "linux-6.12");

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of what a bystander populates at a time.
pub const BLOCK: Bytes = Bytes::mib(2);
/// Bytes of a driver's object.
pub const OBJECT: Bytes = Bytes::mib(16);
/// Most memory: 2^28 pages.
const MOST: Bytes = Bytes::gib(1 << 10);
/// Longest simulated time.
const LONGEST: Nanos = Nanos::secs(600);
/// Largest folio of a file.
const FOLIO: Bytes = Bytes::mib(2);
/// Pages of the first window of reading ahead, of a reader that asks for 256 KiB at a time, as the probe's.
const FIRST_WINDOW: u64 = 256;
/// Pages of the largest window: 8 MiB.
const AHEAD: u64 = 2_048;
/// Least room of a load beside the pinned pages.
const LEAST_ROOM: Bytes = Bytes::mib(8);

/// One run of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// How memory is held.
    pub policy: Policy,
    /// How it is released; only where [`Policy::marks`].
    pub release: Release,
    /// What is held. Of [`Load::GemSyslatency`] what a GPU uses all the time, beside the objects that it makes.
    pub pinned: Bytes,
    /// Memory in all, as the limit of a memory cgroup; of [`Load::GemSyslatency`] the machine's. [`Policy::None`] has
    /// so much less as would be held, but for that load.
    pub limit: Bytes,
    /// The load.
    pub load: Load,
    /// The file that `refault` and `mixed` read; together the blocks of `populate`. `None`: an eighth more than the room, as the probe has it.
    pub file: Option<Bytes>,
    /// Free swap; 0: none, and then anonymous lists are not scanned.
    pub swap: Bytes,
    /// 0 to 200: what anonymous pages weigh against file pages, of 200.
    pub swappiness: u64,
    /// Whose rules.
    pub kernel: Kernel,
    /// How often the statistics of the group are summed up, by which 6.12 judges what is low and what refaults
    /// ([`super::seen`]): 2 s by itself (`FLUSH_TIME`), and whenever somebody reads `memory.stat`, as the probe does
    /// each 15 ms on cgroup version 2. Where in this period the load begins is the seed's. 0: always exact.
    pub statistics: Nanos,
    /// What a file's page cache consists of: 4 KiB, or folios of more, up to 2 MiB, where the file system makes them
    /// (ext4 since 6.16, XFS since 5.18). They are read, charged, scanned and freed whole.
    pub folio: Bytes,
    /// Simulated time from the first page reclaimed on; with a [`Setting::warm_up`], the time that counts.
    pub time: Nanos,
    /// Simulated time before anything counts. `None`: as the probe has it, eight turnovers of the room, or a third of
    /// the time.
    pub warm_up: Option<Nanos>,
}

impl Default for Setting {
    /// As the live probe was run: 512 MiB of 1 GiB, mixed, swap.
    fn default() -> Setting {
        Setting {
            policy: Policy::Held,
            release: Release::BatchResched,
            pinned: Bytes::mib(512),
            limit: Bytes::gib(1),
            load: Load::Mixed,
            file: None,
            swap: Bytes::gib(2),
            swappiness: 60,
            kernel: Kernel::Linux6_12,
            statistics: Nanos::secs(2),
            folio: Bytes(PAGE),
            time: Nanos::secs(3),
            warm_up: None,
        }
    }
}

/// Why a setting cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// Nothing is left for the load.
    #[error(
        "{pinned} pinned leave {room} of a limit of {limit}: the load needs {LEAST_ROOM}; pin less or raise the limit"
    )]
    Room {
        /// Pinned memory.
        pinned: Bytes,
        /// The limit.
        limit: Bytes,
        /// Room beside it.
        room: Bytes,
    },
    /// More memory than is modelled.
    #[error("a limit of {0}: give at most {MOST}")]
    Limit(Bytes),
    /// A driver's objects need room to be dropped in.
    #[error("gem-syslatency on a machine of {0}: give a limit of at least {1}")]
    Machine(Bytes, Bytes),
    /// A file that fits does not refault.
    #[error(
        "a file of {file} fits into the {room} that the limit leaves and never refaults: give a larger one"
    )]
    File {
        /// The file.
        file: Bytes,
        /// Room beside it.
        room: Bytes,
    },
    /// Swappiness.
    #[error("swappiness of {0}: give 0 to 200")]
    Swappiness(u64),
    /// No folio, or the mail's kernel, which had none.
    #[error(
        "folios of {0} beside {1}: give a power of two from 4 KiB to {FOLIO}; gem-syslatency has 4 KiB"
    )]
    Folio(Bytes, Load),
    /// Nothing, or too long.
    #[error("{0} of simulated time: give more than 0 and at most {LONGEST}")]
    Time(Nanos),
}

impl Setting {
    /// Returns the limit less the pinned memory.
    #[must_use]
    pub fn room(&self) -> Bytes {
        self.limit.saturating_sub(self.pinned)
    }

    /// The file that is read round and round.
    #[must_use]
    pub fn file_size(&self) -> Bytes {
        let usual = match self.load {
            // The whole of "/", round and round.
            Load::GemSyslatency => self.limit + self.limit,
            _ => self.room() + Bytes(self.room().0 / 8),
        };
        self.file.unwrap_or(usual)
    }

    /// Pages of each folio of the file that is read round and round, in order. Reading ahead begins with single pages and
    /// asks for four times as many at each of its windows, up to [`Setting::folio`]; windows double up to what is read
    /// ahead at most (`page_cache_ra_order()`, mm/readahead.c, 6.12). The last folio is whole.
    pub(super) fn folios(&self) -> Vec<u32> {
        let mut left = self.file_size().0 / PAGE;
        let largest = (self.folio.0 / PAGE) as u32;
        // Folios are no larger than what is read ahead; the largest were seen where that was 8 MiB.
        let most = if self.folio == FOLIO {
            AHEAD
        } else {
            largest.into()
        };
        let (mut size, mut window) = (1, FIRST_WINDOW.min(most));
        let mut folios = Vec::new();
        while left > 0 {
            let pages = if size == largest {
                left
            } else {
                window.min(left)
            };
            let count = pages.div_ceil(u64::from(size));
            folios.extend((0..count).map(|_| size));
            left = left.saturating_sub(count * u64::from(size));
            (size, window) = ((size * 4).min(largest), (window * 2).min(most));
        }
        folios
    }

    /// # Errors
    /// [`SettingError`]: what makes no sense, and what would.
    pub fn validate(&self) -> Result<(), SettingError> {
        if self.limit > MOST || self.file_size() > MOST {
            return Err(SettingError::Limit(self.limit.max(self.file_size())));
        }
        let machine = Bytes(OBJECT.0 * 16);
        if self.load == Load::GemSyslatency && self.limit < machine {
            return Err(SettingError::Machine(self.limit, machine));
        }
        let room = self.room();
        if room < LEAST_ROOM {
            let (pinned, limit) = (self.pinned, self.limit);
            return Err(SettingError::Room {
                pinned,
                limit,
                room,
            });
        }
        let file = self.file_size();
        if matches!(self.load, Load::Refault | Load::Mixed | Load::Populate) && file <= room {
            return Err(SettingError::File { file, room });
        }
        if self.swappiness > 200 {
            return Err(SettingError::Swappiness(self.swappiness));
        }
        let pages = self.folio.0 / PAGE;
        let folios =
            pages.is_power_of_two() && self.folio.0.is_multiple_of(PAGE) && self.folio <= FOLIO;
        if !folios || (self.load == Load::GemSyslatency && pages != 1) {
            return Err(SettingError::Folio(self.folio, self.load));
        }
        let warm_up = self.warm_up.unwrap_or_default();
        let all = Nanos(self.time.0.saturating_add(warm_up.0));
        if self.time == Nanos(0) || all > LONGEST {
            return Err(SettingError::Time(all));
        }
        Ok(())
    }
}

/// `mapping, second-pass`; the release path only where there is one to choose.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.policy)?;
        if self.policy.marks() {
            write!(f, ", {}", self.release)?;
        }
        Ok(())
    }
}
