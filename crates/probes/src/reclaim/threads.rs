//! Threads of the load child that make memory short inside the group, until they are stopped.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use stopgap_events::reclaim::Load;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::holds::{Held, Segment, Way};
use stopgap_kernel::memory::{Advice, Mapping};
use stopgap_kernel::{Error, Result, System};

use super::Mode;
use super::cost::{base_pages, map, populate, shared};
use super::pressure::Beside;
use crate::wakeup::schedule::Schedule;

/// State that the threads share with their watcher.
#[derive(Default)]
pub(super) struct Threads {
    stop: AtomicBool,
    read: AtomicU64,
    failed: Mutex<Option<Error>>,
}

impl Threads {
    /// Bytes read so far.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the first failure of one of them.
    pub(super) fn check(&self) -> Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take().map_or(Ok(()), Err)
    }

    fn keep(&self, result: Result<()>) {
        if let Err(error) = result {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert(error);
        }
    }
}

/// Reads the file round and round.
fn reader(system: &dyn System, threads: &Threads, file: &Path) -> Result<()> {
    while !threads.stopped() {
        let before = threads.read();
        let once = system.stream(file, &|so_far| {
            threads.read.store(before + so_far.0, Ordering::Relaxed);
            !threads.stopped()
        })?;
        threads.read.store(before + once.0, Ordering::Relaxed);
        if once.0 == 0 && !threads.stopped() {
            let advice = "it was cut short while it was read";
            return Err(Error::parse(file.display(), advice));
        }
    }
    Ok(())
}

/// Populates blocks and unmaps the oldest where they are more than `most`; start and length of each.
fn populater(
    system: &dyn System,
    threads: &Threads,
    block: Bytes,
    most: u64,
) -> (Lengths, Result<()>) {
    let mut blocks = Vec::with_capacity(1 << 14);
    let mut live = VecDeque::new();
    let mut one = || {
        let start = system.now();
        let mapping = map(system, block)?;
        let populated = populate(system, &mapping);
        blocks.push((start.0, system.now().saturating_sub(start).0));
        live.push_back(mapping);
        if live.len() as u64 >= most
            && let Some(oldest) = live.pop_front()
        {
            system.unmap(oldest)?;
        }
        populated
    };
    let mut result = Ok(());
    while !threads.stopped() && result.is_ok() {
        result = one();
    }
    (blocks, result)
}

/// Points in time and lengths, both in ns: blocks populated, wake-ups.
pub(super) type Lengths = Vec<(u64, u64)>;

/// Figures of the threads that are timed.
pub(super) struct Timed {
    /// Start and length of each block's populating.
    pub(super) blocks: Lengths,
    /// Intended start and lateness of each wake-up of a thread under `SCHED_FIFO`, or why there is none.
    pub(super) realtime: std::result::Result<Lengths, String>,
    /// The same of an ordinary thread.
    pub(super) ordinary: Lengths,
}

/// How often the bystanders wake.
const WAKE: Nanos = Nanos::millis(2);
/// Priority of the one under `SCHED_FIFO`: above what a desktop's audio has.
const PRIORITY: u32 = 80;

/// Wakes periodically and does nothing: what a bystander's thread waits that needs no memory. Each period
/// that passed while it was asleep is late, too.
fn waker(system: &dyn System, threads: &Threads) -> Lengths {
    let mut lates = Vec::with_capacity(1 << 13);
    let mut schedule = Schedule::new(system.now(), WAKE);
    while !threads.stopped() {
        system.sleep_until(schedule.next());
        let over = schedule.over(system.now());
        lates.extend(over.map(|period| (period.intended.0, period.late.0)));
    }
    lates
}

/// The timed threads at work.
pub(super) struct AtWork<'scope> {
    blocks: ScopedJoinHandle<'scope, Lengths>,
    realtime: ScopedJoinHandle<'scope, std::result::Result<Lengths, String>>,
    ordinary: ScopedJoinHandle<'scope, Lengths>,
}

impl AtWork<'_> {
    /// Waits until they have seen that they are to stop.
    pub(super) fn join(self) -> Timed {
        fn of<T>(handle: ScopedJoinHandle<'_, T>) -> T {
            handle
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }
        Timed {
            blocks: of(self.blocks),
            realtime: of(self.realtime),
            ordinary: of(self.ordinary),
        }
    }
}

/// Starts what the load and the mode ask for, and the bystanders.
pub(super) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    system: &'scope dyn System,
    threads: &'scope Threads,
    file: &'scope Path,
    beside: &'scope Beside,
    set: &'scope Set,
) -> AtWork<'scope> {
    if matches!(set, Set::Churned(_)) {
        scope.spawn(|| threads.keep(set.churn(system, &threads.stop)));
    }
    if beside.load.reads() {
        scope.spawn(|| threads.keep(reader(system, threads, file)));
    }
    let most = match beside.load {
        Load::Refault | Load::Stream => 0,
        Load::Mixed | Load::GemSyslatency => 1,
        Load::Populate => (beside.room.0 + beside.room.0 / 8).div_ceil(beside.block.0),
    };
    AtWork {
        blocks: scope.spawn(move || {
            if most == 0 {
                return Vec::new();
            }
            let (blocks, result) = populater(system, threads, beside.block, most);
            threads.keep(result);
            blocks
        }),
        realtime: scope.spawn(move || {
            system.set_fifo(PRIORITY)?;
            Ok(waker(system, threads))
        }),
        ordinary: scope.spawn(move || waker(system, threads)),
    }
}

// The memory beside a load, and what keeps it there.

/// Objects that [`Mode::ShmChurn`] makes of its set, each a segment.
const OBJECTS: u64 = 16;
/// How long an object stays unlocked: one frame or so.
const UNLOCKED: Nanos = Nanos::millis(10);

/// Memory that was made resident and is not yet held.
pub(super) enum Set {
    /// There is none.
    Nothing,
    /// A mapped memfd, held in a way or not at all.
    Mapped(Mapping, Option<Way>),
    /// Segments, to be locked and to stay so.
    Locked(Vec<Segment>),
    /// Segments, to be locked and unlocked.
    Churned(Vec<Segment>),
}

/// Has reclaim meet all of a locked segment once, which moves it off the lists. A kernel that knows no such
/// advice (before 5.4) moves it when the load's reclaim meets it.
fn cull(system: &dyn System, segment: &Segment) {
    let mapping = segment.mapping();
    let length = mapping.range().length();
    let _ = system.advise(mapping, Bytes(0), length, Advice::PageOut);
}

impl Set {
    /// Makes `bytes` resident as the mode wants them.
    pub(super) fn make(system: &dyn System, mode: Mode, bytes: Bytes) -> Result<Set> {
        let segments = |count: u64| {
            let page = system.page_size();
            let each = Bytes(bytes.0 / count).page_aligned(page).max(page);
            (0..count)
                .map(|_| {
                    let segment = system.segment(each)?;
                    base_pages(system, segment.mapping());
                    populate(system, segment.mapping())?;
                    Ok(segment)
                })
                .collect::<Result<Vec<Segment>>>()
        };
        let mapped = |way| {
            let mapping = shared(system, bytes)?;
            populate(system, &mapping)?;
            Ok(Set::Mapped(mapping, way))
        };
        match mode {
            Mode::None => Ok(Set::Nothing),
            Mode::Plain => mapped(None),
            Mode::Held(Way::ShmLock) => segments(1).map(Set::Locked),
            Mode::Held(way) => mapped(Some(way)),
            Mode::ShmChurn => segments(OBJECTS).map(Set::Churned),
        }
    }

    /// Holds it until what is returned is dropped. What is locked lazily is met by reclaim here already: the
    /// price of that is the cost experiment's, and the load is about what comes after.
    pub(super) fn hold<'a>(&'a self, system: &'a dyn System) -> Result<Vec<Held<'a>>> {
        match self {
            Set::Nothing | Set::Mapped(_, None) | Set::Churned(_) => Ok(Vec::new()),
            Set::Mapped(mapping, Some(way)) => Ok(vec![system.hold(mapping, *way)?]),
            Set::Locked(segments) => segments
                .iter()
                .map(|segment| {
                    let held = system.shm_lock(segment)?;
                    cull(system, segment);
                    Ok(held)
                })
                .collect(),
        }
    }

    /// Locks all objects, then unlocks one after the other for a moment, until `stop`; at once over where
    /// there is none to churn.
    pub(super) fn churn(&self, system: &dyn System, stop: &AtomicBool) -> Result<()> {
        let Set::Churned(segments) = self else {
            return Ok(());
        };
        let held: Result<Vec<Held<'_>>> = segments.iter().map(|one| system.shm_lock(one)).collect();
        let mut held: Vec<Option<Held<'_>>> = held?.into_iter().map(Some).collect();
        let mut at = 0;
        while !stop.load(Ordering::Relaxed) {
            if let Some(lock) = held[at].take() {
                lock.release()?;
            }
            system.sleep_until(system.now() + UNLOCKED);
            let mapping = segments[at].mapping();
            system.touch(mapping, Bytes(0), mapping.range().length())?;
            held[at] = Some(system.shm_lock(&segments[at])?);
            at = (at + 1) % segments.len();
        }
        Ok(())
    }
}
