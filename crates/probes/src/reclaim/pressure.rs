//! The load that makes memory short for a group of ours alone, beside a set that is held.
//!
//! ```text
//!  limit |<------------------------------------------------------------>|
//!        |  held set (by a mode; for `none`: nothing, and a lower limit) | room |
//!                                                                        |2 MiB blocks|
//!  file  |<-- larger than the room: each page is gone when its turn comes again -->|
//! ```
//!
//! One thread populates and unmaps 2 MiB blocks, as the bystander of mail 004 (gem_syslatency
//! -m) does; one reads a sparse file round and round. The file must *refault*: a file that
//! fits, and a stream that is read once, show nothing. `none` has the same room, so that the
//! held set is the only difference. Page cache is charged to its first toucher, so every load
//! has a group and a file of its own.
//!
//! # From when to when is counted
//!
//! Not by the clock. A *turnover* is as many pages reclaimed as the room has. Counting begins after
//! [`WARM_UP`] turnovers (or a third of the time), because
//!
//! * until the room is full nothing is reclaimed, and filling takes a hundred times longer where fresh
//!   memory must come from a host (a virtual machine with a balloon) than where it was used before;
//! * then anonymous pages are passed over (`cache_trim_mode`, `prepare_scan_control`, mm/vmscan.c 6.12)
//!   until the kernel has *seen* file pages refault. It sees that in statistics of the group that are
//!   summed up every 2 s (`FLUSH_TIME`, mm/memcontrol.c). A window of one or two seconds from the start
//!   therefore holds the scanning of a pinned set or does not, by luck: intervals of 1.3 to 3.8;
//! * and what comes then changes with each summing up. A *storm*: what the kernel knows is a long inactive
//!   list of files, which has meanwhile run empty since every page that is read again becomes active; so
//!   nothing active is made inactive, the priority rises, whole lists of pinned pages are walked for every
//!   few pages reclaimed, and readers stand still, for 2 s. Or a *plateau*: it knows that the list is short,
//!   and each pass looks at a few of the pinned pages and keeps them. How few hangs on the file's folios,
//!   which go whole: where one of 2 MiB is enough, hardly any.
//!
//! So two figures: the total, scanned over reclaimed of all that was counted, in which storms weigh most
//! and which needs several of them to settle; and the *steady* one, the median over turnovers, which does
//! not depend on how many storms a run happened to have. Swappiness is the machine's unless another is
//! asked for, since what is looked at hangs on it.
//!
//! On cgroup version 1 scanned and reclaimed pages and PSI are the whole machine's: somebody else's
//! reclaim at the same time counts as ours.

use std::any::Any;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stopgap_events::reclaim::Load;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::cgroup::{self, MemoryGroup, Reclaimed, Site};
use stopgap_kernel::tasks::ChildLimits;
use stopgap_kernel::{Error, Result, System, own};
use stopgap_stats::quantile::median;

use super::Mode;
use super::threads::Set;
use super::threads::{self, Lengths, Threads};
use crate::contract::Context;
use crate::runner;

/// Turnovers before anything is counted, unless a third of the time is over before.
pub(super) const WARM_UP: u64 = 8;
/// How often the counters are read.
const TICK: Nanos = Nanos::millis(15);
/// How long the room may take to fill.
const FILLING: Nanos = Nanos::secs(40);

/// One load beside one set.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    pub(super) load: Load,
    /// Mode of the set; [`Mode::None`]: there is no set.
    pub(super) mode: Mode,
    /// The set.
    pub(super) pinned: Bytes,
    /// Memory that the rest of the group may use.
    pub(super) room: Bytes,
    /// Size of the file that is read round and round.
    pub(super) file: Bytes,
    /// Size that is populated at a time.
    pub(super) block: Bytes,
    /// How long it runs from the first page reclaimed on.
    pub(super) time: Nanos,
    /// Swappiness of its group; `None`: the machine's.
    pub(super) swappiness: Option<u32>,
}

impl Beside {
    /// The set that there is.
    pub(super) fn set(&self) -> Bytes {
        match self.mode {
            Mode::None => Bytes(0),
            _ => self.pinned,
        }
    }

    /// Limit of its group.
    pub(super) fn limit(&self) -> Bytes {
        self.room + self.set()
    }
}

/// Figures of one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    /// When counting began, on the monotonic clock.
    pub(super) start_ns: u64,
    /// How long it was counted.
    pub(super) length_ns: u64,
    /// Pages scanned and reclaimed meanwhile, and of those scanned: anonymous.
    pub(super) scanned: u64,
    pub(super) reclaimed: u64,
    pub(super) anonymous: Option<u64>,
    /// The median over turnovers of pages scanned per page reclaimed; `None`: not one was full.
    pub(super) steady: Option<f64>,
    /// Turnovers counted.
    pub(super) turnovers: u64,
    /// How long some task waited for memory meanwhile; or why that is not known.
    pub(super) stalled_ns: std::result::Result<u64, String>,
    /// CPU time of the load inside the kernel.
    pub(super) system_ns: std::result::Result<u64, String>,
    /// Pages moved to the unevictable list by reclaim that met them, system-wide.
    pub(super) culled: Option<u64>,
    /// Pages on the group's unevictable list at the end.
    pub(super) unevictable: Option<u64>,
    /// Bytes read.
    pub(super) read: u64,
    /// Start and length of each block's populating.
    pub(super) blocks: Lengths,
    /// Intended start and lateness of each wake-up of a real-time thread, or why there is none.
    pub(super) realtime: std::result::Result<Lengths, String>,
    /// The same of an ordinary thread.
    pub(super) ordinary: Lengths,
}

/// Counts from one point in time to another.
struct Counts {
    at: Nanos,
    pages: Reclaimed,
    stalled: Result<Nanos>,
    system: Result<Nanos>,
    culled: Option<u64>,
    read: u64,
}

impl Counts {
    fn read(system: &dyn System, group: &MemoryGroup, threads: &Threads) -> Result<Counts> {
        let vmstat = cgroup::counters(system, "/proc/vmstat")?;
        Ok(Counts {
            pages: group.reclaimed(system)?,
            stalled: group.stalled(system),
            system: own::system_time(system),
            culled: vmstat.get("unevictable_pgs_culled").copied(),
            read: threads.read(),
            at: system.now(),
        })
    }
}

/// Ratios of the turnovers so far.
struct Turnovers {
    /// Pages of one.
    pages: u64,
    from: Reclaimed,
    ratios: Vec<f64>,
}

impl Turnovers {
    fn new(pages: u64, from: Reclaimed) -> Turnovers {
        Turnovers {
            pages,
            from,
            ratios: Vec::new(),
        }
    }

    /// `now` ends a turnover, or does not. What was reclaimed since the last is one however many rooms it
    /// was: between two readings of a loaded machine it may be more.
    fn see(&mut self, now: Reclaimed) {
        let since = now.since(self.from);
        if since.reclaimed >= self.pages {
            self.ratios
                .push(since.scanned as f64 / since.reclaimed as f64);
            self.from = now;
        }
    }
}

/// Watches the load from its first page reclaimed on: what was counted first and last, and the turnovers
/// between.
fn watch(
    system: &dyn System,
    group: &MemoryGroup,
    beside: &Beside,
    threads: &Threads,
) -> Result<(Counts, Counts, Turnovers)> {
    let room = beside.room.pages(system.page_size()).0.max(1);
    let begun = system.now();
    let at_first = group.reclaimed(system)?;
    let mut filled: Option<Nanos> = None;
    let before = loop {
        system.sleep_until(system.now() + TICK);
        threads.check()?;
        let (now, pages) = (system.now(), group.reclaimed(system)?.since(at_first));
        if pages.reclaimed > 0 && filled.is_none() {
            filled = Some(now);
        }
        let over = match filled {
            Some(filled) => now.saturating_sub(filled).0 >= beside.time.0 / 3,
            None => {
                now.saturating_sub(begun) >= FILLING.min(Nanos(beside.time.0.saturating_mul(10)))
            }
        };
        if over || pages.reclaimed >= WARM_UP * room {
            break Counts::read(system, group, threads)?;
        }
    };
    let end = filled.unwrap_or(before.at) + beside.time;
    let mut turnovers = Turnovers::new(room, before.pages);
    while system.now() < end {
        system.sleep_until((system.now() + TICK).min(end));
        threads.check()?;
        turnovers.see(group.reclaimed(system)?);
    }
    let after = Counts::read(system, group, threads)?;
    Ok((before, after, turnovers))
}

/// What a load's child holds beside the load, by means of its own, from before it begins until it is over.
pub type Hold<'a> = &'a dyn Fn() -> std::result::Result<Box<dyn Any>, String>;

/// The load's life inside the group.
fn body(
    system: &dyn System,
    group: &MemoryGroup,
    file: &Path,
    beside: &Beside,
    hold: Hold<'_>,
) -> Result<Sample> {
    let _beside = hold().map_err(|ended| Error::Child { ended })?;
    let set = Set::make(system, beside.mode, beside.set())?;
    // Released at the end of this function; the process ends soon after.
    let held = set.hold(system)?;
    let threads = Threads::default();
    let (watched, timed) = std::thread::scope(|scope| {
        let at_work = threads::start(scope, system, &threads, file, beside, &set);
        let watched = watch(system, group, beside, &threads);
        threads.stop();
        (watched, at_work.join())
    });
    let unevictable = group.stat(system).ok().and_then(|stat| {
        let bytes = Bytes(*stat.get("unevictable")?);
        Some(bytes.pages(system.page_size()).0)
    });
    drop(held);
    let (before, after, turnovers) = watched?;
    let counts = after.pages.since(before.pages);
    let counted = |lengths: Lengths| -> Lengths {
        let begun = |&(start, _): &(u64, u64)| start >= before.at.0;
        lengths.into_iter().filter(begun).collect()
    };
    let since = |before: Result<Nanos>, after: Result<Nanos>| match (before, after) {
        (Ok(before), Ok(after)) => Ok(after.saturating_sub(before).0),
        (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
    };
    Ok(Sample {
        start_ns: before.at.0,
        length_ns: after.at.saturating_sub(before.at).0,
        scanned: counts.scanned,
        reclaimed: counts.reclaimed,
        anonymous: counts.anonymous,
        turnovers: turnovers.ratios.len() as u64,
        steady: median(turnovers.ratios),
        stalled_ns: since(before.stalled, after.stalled),
        system_ns: since(before.system, after.system),
        culled: after
            .culled
            .zip(before.culled)
            .map(|(after, before)| after.saturating_sub(before)),
        unevictable,
        read: after.read.saturating_sub(before.read),
        blocks: counted(timed.blocks),
        realtime: timed.realtime.map(counted),
        ordinary: counted(timed.ordinary),
    })
}

/// Makes the group and the file, runs the load in a guarded child in it, removes both. The
/// sample, the child's peak memory in bytes, and what could not be removed.
pub(super) fn run(
    context: &Context<'_>,
    site: &Site,
    number: u32,
    beside: &Beside,
) -> Result<(Sample, u64, Vec<Error>)> {
    let nothing: Hold<'_> = &|| Ok(Box::new(()));
    run_holding(context, site, number, beside, (Bytes(0), nothing))
}

/// [`run`], the group larger by what the child holds besides.
fn run_holding(
    context: &Context<'_>,
    site: &Site,
    number: u32,
    beside: &Beside,
    (held, hold): (Bytes, Hold<'_>),
) -> Result<(Sample, u64, Vec<Error>)> {
    let system = context.system;
    let scope = context.journal.scope();
    let name = format!("stopgap-{}-{number}", system.pid());
    let group = MemoryGroup::make(system, context.journal, site, &name, beside.limit() + held)?;
    if let Some(swappiness) = beside.swappiness {
        group.set_swappiness(system, swappiness)?;
    }
    let file = context.scratch.join(&name);
    context.journal.make_file(&file, || {
        system.create(&file, b"")?;
        system.extend(&file, beside.file, false)
    })?;
    let limits = ChildLimits {
        // Taking the set and filling the room come on top; a loaded machine takes its time.
        time: Nanos(beside.time.0.saturating_mul(4)) + FILLING + Nanos::secs(40),
        cgroup: Some(group.path().to_owned()),
    };
    let outcome = runner::child(system, &limits, || {
        body(system, &group, &file, beside, hold).map_err(String::from)
    });
    let left = scope.undo();
    let (sample, peak) = outcome?;
    let sample =
        sample.map_err(|error| Error::child(format!("could not carry the load out: {error}")))?;
    Ok((sample, peak, left))
}

/// Pages scanned and reclaimed while a load ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scanned {
    /// Looked at.
    pub scanned: u64,
    /// Taken.
    pub reclaimed: u64,
    /// The median over turnovers of the one for each of the other; `None`: not one was full.
    pub steady: Option<f64>,
    /// Pages on the group's unevictable list at the end.
    pub unevictable: Option<u64>,
}

impl Scanned {
    /// Scanned for each page reclaimed; `None`: none was.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.reclaimed > 0).then(|| self.scanned as f64 / self.reclaimed as f64)
    }
}

/// The refault load of the probe, once, in a room of `room` for `time`, beside `held` bytes that the child holds by
/// means that are not the probe's; the group's limit is the two together. What could not be removed comes with it.
///
/// # Errors
/// As mkdir(2) and write(2) of the group; [`Error::Child`] where `hold` or the load fails.
pub fn beside_held(
    context: &Context<'_>,
    site: &Site,
    number: u32,
    (room, time): (Bytes, Nanos),
    (held, hold): (Bytes, Hold<'_>),
) -> Result<(Scanned, Vec<Error>)> {
    let beside = Beside {
        load: Load::Refault,
        mode: Mode::None,
        pinned: Bytes(0),
        room,
        file: room + Bytes(room.0 / 8),
        block: Bytes::mib(2),
        time,
        swappiness: None,
    };
    let (sample, _, left) = run_holding(context, site, number, &beside, (held, hold))?;
    let scanned = Scanned {
        scanned: sample.scanned,
        reclaimed: sample.reclaimed,
        steady: sample.steady,
        unevictable: sample.unevictable,
    };
    Ok((scanned, left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::holds::Way;

    #[test]
    fn without_a_set_the_room_is_the_same() {
        let beside = |mode| Beside {
            load: Load::Mixed,
            mode,
            pinned: Bytes::mib(128),
            room: Bytes::mib(100),
            file: Bytes::mib(150),
            block: Bytes::mib(2),
            time: Nanos::secs(1),
            swappiness: None,
        };
        assert_eq!(beside(Mode::None).limit(), Bytes::mib(100));
        assert_eq!(beside(Mode::Held(Way::Mlock)).limit(), Bytes::mib(228));
    }

    /// ```text
    /// reclaimed 0    60   100      190  200     320
    /// scanned   0    70   120      900  920     1040
    ///           |---------| 1.2    |-----------|  of 100 pages and more
    /// ```
    #[test]
    fn a_turnover_is_a_room_reclaimed() {
        let at = |reclaimed, scanned| Reclaimed {
            scanned,
            reclaimed,
            anonymous: None,
        };
        let mut turnovers = Turnovers::new(100, at(0, 0));
        for (reclaimed, scanned) in [(60, 70), (100, 120), (190, 900), (200, 920), (320, 1_040)] {
            turnovers.see(at(reclaimed, scanned));
        }
        assert_eq!(turnovers.ratios, [1.2, 8.0, 1.0]);
        assert_eq!(median(turnovers.ratios), Some(1.2));
    }
}
