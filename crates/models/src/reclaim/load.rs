//! The tasks that make memory short. Each has a clock, and the task furthest behind runs next.
//!
//! **Contract.** Each task runs on a CPU of its own, step by step: 32 pages, or one call of reclaim. The same setting gives
//! the same steps. A measuring task that wants to begin while its CPU is in a stretch of the kernel that nobody may
//! interrupt waits for the stretch's end.
//!
//! **Lineage.** The live probe's load (`stopgap probe reclaim`); `gem_syslatency -b -m` of igt-gpu-tools (mail 004). Left
//! out: time slices (in the mail each CPU's two threads share it, the measuring one before the other), the GPU's own work,
//! huge pages, reading ahead of the reader.

use stopgap_events::order::Inserted as _;
use stopgap_events::random::Random;
use stopgap_events::reclaim::Load;
use stopgap_stats::histogram::Histogram;

use super::driver::OBJECT_PAGES;
use super::memory::{BATCH, By, Memory, OutOfMemory};
use super::meter::{Cause, Meter};
use super::outcome::{OutOfMemoryPoint, Outcome};
use super::prices::Prices;
use super::seen::Seen;
use super::setting::{BLOCK, PAGE, Policy, Setting};

/// CPUs of the mail's machine, as modelled.
const CPUS: usize = 4;
/// Pages of a block.
const BLOCK_PAGES: u32 = (BLOCK.0 / PAGE) as u32;
/// Pages of a step.
const STEP: u32 = 32;
/// What everybody uses of files, in the mail's load: one of so many pages of memory. An assumption.
const HOT: u64 = 4;
/// Pages that must be reclaimed before compaction may make a huge page: `compact_gap()`.
const GAP: u64 = 1_024;
/// A CPU of the mail's load makes an object no sooner than this after the last: the GPU works on it. An assumption.
const PERIOD: u64 = 8_000_000;
/// Turnovers of the room before it counts, unless a third of the time is over before: as the probe has it.
const WARM_UP: u64 = 8;
/// It counts without pressure after so many times the time.
const FILLING: u64 = 10;
/// Time that kswapd sleeps before it looks again, where nobody woke it.
const NAP: u64 = 20_000;

/// Work of a task.
#[derive(Debug, Clone)]
enum Work {
    /// Reads a file round and round.
    Loop {
        place: u32,
        /// Page of it.
        slot: u32,
        places: u32,
        /// So many folios at its beginning are read in between, round and round: what everybody uses.
        hot: u32,
        next_hot: u32,
    },
    /// Reads what comes.
    Stream,
    /// Populates a block, measured, and unmaps it; of several blocks the oldest, when its turn comes again.
    Populate {
        block: u32,
        /// The task's blocks: `block` and so many after it in turn, and how many of them are populated.
        ring: u32,
        full: u32,
        done: u32,
        began: u64,
        /// Pages that are reclaimed before, as for a huge page, and how many of them were.
        gap: u64,
        reclaimed: u64,
        /// The churning task of the same CPU.
        beside: Option<usize>,
    },
    /// Drops an object and makes a new one.
    Churn {
        object: Option<u32>,
        /// It has all its pages, and is dropped next.
        full: bool,
        /// When the next may be begun.
        next: u64,
    },
    /// kswapd.
    Kswapd,
}

struct Task {
    clock: u64,
    work: Work,
    /// The last long stretch in which nobody else could have its CPU: end, length.
    stretch: (u64, u64),
}

struct Loads {
    memory: Memory,
    tasks: Vec<Task>,
    allocations: Histogram,
    random: Random,
}

/// Runs `setting`, which was validated.
pub(super) fn run(
    setting: &Setting,
    prices: &Prices,
    seed: u64,
    stop: &dyn Fn() -> bool,
) -> Outcome {
    let mut loads = Loads::new(setting, prices, seed);
    let hold = loads.hold();
    let take = (loads.memory.meter.causes[Cause::Pin as usize], hold.1);
    let begin = loads.memory.meter.clone();
    loads.begin();
    let mut out = hold.0.err().map(|OutOfMemory| loads.out(0));
    let mut counting: Option<u64> = None;
    let mut steps = 0_u64;
    while out.is_none() {
        let next = loads.next();
        let now = loads.tasks[next].clock;
        if counting.is_none() && loads.is_warm(now) {
            counting = Some(now);
            loads.count();
        }
        steps += 1;
        if now >= loads.end(counting) || (steps.is_multiple_of(4_096) && stop()) {
            break;
        }
        if loads.step(next).is_err() {
            out = Some(loads.out(loads.memory.meter.now));
        }
    }
    if counting.is_none() && out.is_none() {
        loads.count(); // interrupted in the warm-up: nothing was counted
    }
    let counted = counting.map_or(0, |from| loads.end(counting) - from);
    loads.finish(&begin, take, out, counted)
}

impl Loads {
    fn new(setting: &Setting, prices: &Prices, seed: u64) -> Loads {
        let gem = setting.load == Load::GemSyslatency;
        let ring = (setting.file_size().0 / BLOCK.0) as u32;
        let memory = Memory::new(setting, prices, (ring as usize).max(CPUS));
        let looped = Work::Loop {
            place: 0,
            slot: 0,
            places: memory.places(),
            hot: if gem {
                (setting.room().0 / PAGE / HOT) as u32
            } else {
                0
            },
            next_hot: 0,
        };
        let populate = |block, beside| Work::Populate {
            block,
            ring: if setting.load == Load::Populate {
                ring
            } else {
                1
            },
            full: 0,
            done: 0,
            began: 0,
            gap: if gem { GAP } else { 0 },
            reclaimed: 0,
            beside,
        };
        let mut work = Vec::new();
        match setting.load {
            Load::Refault => work.push(looped),
            Load::Stream => work.push(Work::Stream),
            Load::Populate => work.push(populate(0, None)),
            Load::Mixed => work.extend([looped, populate(0, None)]),
            Load::GemSyslatency => {
                // None: "no i915 activity".
                let churns = if setting.policy == Policy::None {
                    0
                } else {
                    CPUS
                };
                work.extend((0..churns).map(|_| Work::Churn {
                    object: None,
                    full: false,
                    next: 0,
                }));
                for block in 0..4 {
                    let beside = (churns > 0).then_some(block as usize);
                    work.push(populate(block, beside));
                }
                work.extend([looped, Work::Kswapd]);
            }
        }
        let task = |work| Task {
            clock: 0,
            work,
            stretch: (0, 0),
        };
        Loads {
            memory,
            tasks: work.into_iter().map(task).collect(),
            allocations: Histogram::new(),
            random: Random::new(seed),
        }
    }

    /// Takes what is held beforehand: whether it could be, and how many pages there are.
    fn hold(&mut self) -> (Result<(), OutOfMemory>, u64) {
        let setting = self.memory.setting;
        if setting.policy == Policy::None {
            return (Ok(()), 0);
        }
        let mut left = setting.pinned.0 / PAGE;
        let all = left;
        while left > 0 {
            let object = self.memory.new_object();
            let now = left.min(u64::from(OBJECT_PAGES)) as u32;
            if self.memory.fill(object, now).is_err() {
                return (Err(OutOfMemory), all - left);
            }
            self.memory.filled(object);
            self.memory.meter.resched();
            left -= u64::from(now);
        }
        self.memory.keep_busy();
        (Ok(()), all)
    }

    /// The load begins, at 0; tasks a little apart, by the seed.
    fn begin(&mut self) {
        self.memory.meter = Meter::default();
        self.memory.first_reclaim = None;
        for task in &mut self.tasks {
            task.clock = self.random.below(1_000);
        }
        // The kernel sums up by a clock of its own. The group is new: nothing is known of it until then.
        self.memory.phase = self.random.below(self.memory.setting.statistics.0.max(1));
        self.memory.seen = Seen::default();
    }

    /// Whether what comes next counts.
    fn is_warm(&self, now: u64) -> bool {
        let setting = &self.memory.setting;
        match (setting.warm_up, self.memory.first_reclaim) {
            (Some(warm_up), _) => now >= warm_up.0,
            (None, Some(filled)) => {
                let turnovers = self.memory.counts.reclaimed / (setting.room().0 / PAGE).max(1);
                turnovers >= WARM_UP || now >= filled + setting.time.0 / 3
            }
            (None, None) => now >= setting.time.0.saturating_mul(FILLING),
        }
    }

    /// When it ends that began to count at `counting`.
    fn end(&self, counting: Option<u64>) -> u64 {
        let setting = &self.memory.setting;
        let (Some(counting), time) = (counting, setting.time.0) else {
            return u64::MAX;
        };
        match (setting.warm_up, self.memory.first_reclaim) {
            (None, Some(filled)) => (filled + time).max(counting),
            _ => counting + time,
        }
    }

    /// From here on it counts.
    fn count(&mut self) {
        self.memory.counts = super::memory::Counts::default();
        self.memory.meter.count();
        self.allocations = Histogram::new();
    }

    fn next(&self) -> usize {
        let behind = self
            .tasks
            .iter()
            .enumerate()
            .min_by_key(|(_, task)| task.clock);
        behind.map_or(0, |(index, _)| index)
    }

    fn out(&self, at_ns: u64) -> OutOfMemoryPoint {
        OutOfMemoryPoint {
            at_ns,
            used: self.memory.pages.used(),
            held: self.memory.held(),
        }
    }

    fn step(&mut self, index: usize) -> Result<(), OutOfMemory> {
        let start = self.tasks[index].clock;
        self.memory.meter.now = start;
        self.memory.meter.resched();
        self.memory.meter.last_stretch = (0, 0);
        let mut work = self.tasks[index].work.clone();
        let done = self.work(&mut work);
        let task = &mut self.tasks[index];
        task.work = work;
        if self.memory.meter.last_stretch.1 > 0 {
            task.stretch = self.memory.meter.last_stretch;
        }
        // A step that took no time, as kswapd's where there is nothing to do, must not be the next for ever.
        task.clock = self.memory.meter.now.max(start + 1);
        done
    }

    fn work(&mut self, work: &mut Work) -> Result<(), OutOfMemory> {
        match work {
            Work::Loop {
                place,
                slot,
                places,
                hot,
                next_hot,
            } => {
                let mut pages = 0;
                while pages < STEP {
                    let read = self.memory.read_looped(*place, *slot)?;
                    pages += read;
                    *slot += read;
                    if *slot == self.memory.folio(*place) {
                        (*place, *slot) = ((*place + 1) % *places, 0);
                    }
                    if *hot > 0 {
                        self.memory.read_looped(*next_hot, 0)?;
                        *next_hot = (*next_hot + 1) % *hot;
                    }
                }
            }
            Work::Stream => {
                let mut pages = 0;
                while pages < u64::from(STEP) {
                    pages += self.memory.read_streamed()?;
                }
            }
            Work::Populate {
                block,
                ring,
                full,
                done,
                began,
                gap,
                reclaimed,
                beside,
            } => {
                if *done == 0 && *reclaimed == 0 {
                    *began = self.memory.meter.now;
                    self.wait_for_cpu(*beside);
                    if *full == *ring {
                        self.memory.unmap(*block, BLOCK_PAGES);
                        *full -= 1;
                    }
                }
                if *reclaimed < *gap && !self.memory.room_for(*gap) {
                    // A huge page: reclaim until compaction has room (compact_gap()).
                    let got = self.memory.reclaim(BATCH, By::Task);
                    *reclaimed += got.max(1);
                    return Ok(());
                }
                for _ in 0..STEP {
                    self.memory.populate(*block, *done)?;
                    *done += 1;
                    self.memory.meter.resched();
                }
                if *done == BLOCK_PAGES {
                    if *ring == 1 {
                        self.memory.unmap(*block, *done);
                    } else {
                        *full += 1;
                        *block = (*block + 1) % *ring;
                    }
                    self.allocations.record(self.memory.meter.now - *began);
                    *done = 0;
                    *reclaimed = 0;
                }
            }
            Work::Churn { object, full, next } => {
                if std::mem::take(full)
                    && let Some(done) = object.take()
                {
                    self.memory.drop_object(done);
                }
                let number = match object {
                    Some(number) => *number,
                    None => {
                        *next = self.memory.meter.now + PERIOD;
                        *object.insert(self.memory.new_object())
                    }
                };
                if self.memory.fill(number, STEP)? {
                    self.memory.unuse_object(number);
                    *full = true;
                    // The GPU takes its time.
                    self.memory.meter.now = self.memory.meter.now.max(*next);
                }
            }
            Work::Kswapd => {
                if !self.memory.kswapd {
                    self.memory.meter.now += NAP;
                } else if self.memory.balanced() || self.memory.reclaim(BATCH, By::Kswapd) == 0 {
                    self.memory.kswapd = false;
                    self.memory.meter.now += NAP;
                }
            }
        }
        Ok(())
    }

    /// Where the kernel keeps the CPU for the task beside, the wait for it.
    fn wait_for_cpu(&mut self, beside: Option<usize>) {
        let Some(beside) = beside else {
            return;
        };
        let (end, length) = self.tasks[beside].stretch;
        let now = self.memory.meter.now;
        if now < end && end - length <= now {
            self.memory.meter.spend(Cause::Unpreempted, end - now);
            self.memory.meter.resched();
        }
    }

    fn finish(
        mut self,
        hold: &Meter,
        (take_ns, pages): (u64, u64),
        out_of_memory: Option<OutOfMemoryPoint>,
        elapsed_ns: u64,
    ) -> Outcome {
        let (counts, meter) = (self.memory.counts, self.memory.meter.clone());
        let causes = Cause::ALL
            .iter()
            .map(|&cause| (cause, meter.causes[cause as usize]));
        let causes = causes.filter(|(_, ns)| *ns > 0).inserted();
        let elapsed_ns = out_of_memory.map_or(elapsed_ns, |point| point.at_ns);
        let before = self.memory.meter.now;
        if pages > 0 {
            self.memory.release_all();
        }
        let after = &self.memory.meter;
        let per_page =
            |ns: u64| (pages > 0 && out_of_memory.is_none()).then(|| ns as f64 / pages as f64);
        let ratio = (counts.reclaimed > 0).then(|| counts.scanned as f64 / counts.reclaimed as f64);
        Outcome {
            runs: 1,
            ratios: ratio.into_iter().collect(),
            scanned: counts.scanned,
            scanned_anon: counts.scanned_anon,
            reclaimed: counts.reclaimed,
            written: counts.written,
            culled: counts.culled,
            shrunk: counts.shrunk,
            read: counts.read,
            reclaim_ns: counts.reclaim_ns,
            elapsed_ns,
            allocations: self.allocations,
            causes,
            longest_irq_off_ns: after.longest_irq_off.max(hold.longest_irq_off),
            longest_unpreempted_ns: after.longest_stretch.max(hold.longest_stretch),
            first_reclaim_ns: self.memory.first_reclaim,
            out_of_memory,
            take_ns_per_page: per_page(take_ns),
            release_ns_per_page: per_page(after.now - before),
        }
    }
}

/// As [`run`], with every page of memory looked at between steps.
#[cfg(test)]
pub(super) fn checked(setting: &Setting, seed: u64) -> Outcome {
    let mut loads = Loads::new(setting, &Prices::RECENT, seed);
    let held = loads.hold();
    loads.begin();
    let all = setting.limit.0 / PAGE;
    let mut steps = 0_u64;
    while held.0.is_ok() {
        let next = loads.next();
        if loads.tasks[next].clock >= setting.time.0 || loads.step(next).is_err() {
            break;
        }
        steps += 1;
        if steps.is_multiple_of(64) {
            loads.memory.pages.check();
            assert!(loads.memory.pages.used() <= all, "more pages than memory");
            assert_eq!(loads.memory.held(), held.1, "held pages went");
        }
    }
    loads.memory.release_all();
    loads.memory.pages.check();
    assert_eq!(loads.memory.held(), 0);
    run(setting, &Prices::RECENT, seed, &|| false)
}

/// Pages scanned and reclaimed in one turn of a list of so many objects held and so many not.
#[cfg(test)]
pub(super) fn one_turn(held: u64, not_held: u64) -> (u64, u64) {
    use super::setting::OBJECT;
    use stopgap_events::units::Bytes;
    let objects = held + not_held;
    let setting = Setting {
        pinned: Bytes(OBJECT.0 * objects),
        limit: Bytes(OBJECT.0 * objects + (64 << 20)),
        swap: Bytes::gib(4),
        ..Setting::default()
    };
    let mut loads = Loads::new(&setting, &Prices::RECENT, 1);
    assert_eq!(loads.hold(), (Ok(()), u64::from(OBJECT_PAGES) * objects));
    loads.memory.free_objects(held as u32..objects as u32);
    let all = loads.memory.pages.used();
    while loads.memory.counts.scanned < all {
        loads.memory.reclaim(1, By::Task);
    }
    assert_eq!(
        loads.memory.counts.scanned, all,
        "a turn is a whole number of batches"
    );
    (loads.memory.counts.scanned, loads.memory.counts.reclaimed)
}
