//! The measuring thread and the busy thread of each CPU.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::budget::meminfo;
use stopgap_kernel::files::Kind;
use stopgap_kernel::memory::{Advice, MapKind, MapRequest};
use stopgap_kernel::{Error, System};
use stopgap_stats::histogram::Recorder;
use stopgap_stats::record::Block;

/// Priority of measuring threads.
const PRIORITY: u32 = 99;
/// A timer expires so much ahead, and [`SPREAD`] at most beyond that.
const AHEAD: Nanos = Nanos::micros(100);
const SPREAD: Nanos = Nanos::millis(1);
/// Size that is mapped and touched with `-m`.
pub(super) const ALLOCATION: Bytes = Bytes::mib(2);
/// Size that a busy thread drops and makes anew with `-m`.
pub(super) const OBJECT: Bytes = Bytes::mib(16);
/// CPU time of one pass of a busy thread beside that.
const PASS: Nanos = Nanos::micros(20);
/// Readings of the clock whose cost is taken off.
const READINGS: u64 = 1_024;

/// When they work, and who may stop them.
#[derive(Clone, Copy)]
pub(super) struct Times<'a> {
    pub(super) begin: Nanos,
    pub(super) end: Nanos,
    pub(super) interrupted: &'a dyn Fn() -> bool,
}

impl Times<'_> {
    /// Sleeps until it begins. On a busy machine a thread may be there late: it then works for as long all the same.
    fn started(self, system: &dyn System) -> Self {
        system.sleep_until(self.begin);
        let begin = system.now();
        Times {
            begin,
            end: begin + self.end.saturating_sub(self.begin),
            ..self
        }
    }

    pub(super) fn go_on(&self, system: &dyn System) -> bool {
        system.now() < self.end && !(self.interrupted)()
    }
}

/// Figures of one CPU's thread.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// Every sample.
    pub(super) all: Option<Block>,
    /// Mean of all less the clock's cost, microseconds.
    pub(super) mean_us: Option<f64>,
    /// The same without periods that were missed, as the original counts.
    pub(super) original_us: Option<f64>,
    /// The longest, microseconds.
    pub(super) max_us: Option<f64>,
    /// Periods that passed while it slept for an earlier one.
    pub(super) missed: u64,
    /// Passes of a busy thread.
    pub(super) cycles: u64,
    /// Why it ran as an ordinary thread.
    pub(super) ordinary: Option<String>,
    /// Why it ended before its time.
    pub(super) error: Option<String>,
}

/// Measures the cost of a reading of the clock, nanoseconds.
fn overhead(system: &dyn System) -> f64 {
    let begin = system.now();
    let end = (0..READINGS).fold(begin, |_, _| system.now());
    (end.saturating_sub(begin)).0 as f64 / READINGS as f64
}

/// A measuring thread: of a timer, or with `allocate` of 2 MiB that are mapped, touched and unmapped.
pub(super) fn measure(
    system: &dyn System,
    (cpu, seed): (u32, u64),
    stall: Nanos,
    allocate: bool,
    times: Times<'_>,
) -> Report {
    let mut report = Report::default();
    if let Err(error) = system.set_cpus(&[cpu]) {
        report.error = Some(error.to_string());
        return report;
    }
    if let Err(error) = system.set_fifo(PRIORITY) {
        report.ordinary = Some(error.to_string());
    }
    let cost = overhead(system);
    let times = times.started(system);
    let mut taken = Taken {
        all: Recorder::new(stall.0),
        slept: (0, 0),
    };
    if allocate {
        if let Err(error) = allocations(system, times, &mut taken) {
            report.error = Some(error.to_string());
        }
    } else {
        report.missed = timers(system, &mut Random::new(seed), times, &mut taken);
    }
    let micros = |ns: f64| (ns - cost).max(0.0) / 1_000.0;
    report.mean_us = taken.all.histogram().mean().map(micros);
    let slept = (taken.slept.1 > 0).then(|| taken.slept.0 as f64 / taken.slept.1 as f64);
    report.original_us = slept.map(micros);
    let max = taken.all.histogram().max().map(|ns| ns as f64 / 1_000.0);
    report.max_us = max;
    report.all = taken.all.into_block(0, times.begin.0);
    report
}

/// Measured figures.
struct Taken {
    all: Recorder,
    /// Nanoseconds and samples that the original counts.
    slept: (u128, u64),
}

impl Taken {
    fn record(&mut self, intended: Nanos, late: Nanos, missed: bool) {
        self.all.record(intended.0, late.0);
        if !missed {
            self.slept.0 += u128::from(late.0);
            self.slept.1 += 1;
        }
    }
}

/// Sleeps until timers expire, each 100 us to 1.1 ms after the one before. The original sets the next one when it wakes,
/// and so leaves out those that would have expired while it was held up; here they were to expire all the same. How many
/// of them that are.
fn timers(system: &dyn System, random: &mut Random, times: Times<'_>, taken: &mut Taken) -> u64 {
    let (mut expires, mut missed) = (system.now(), 0);
    let mut next = || AHEAD + Nanos(random.below(SPREAD.0));
    expires += next();
    while expires < times.end && times.go_on(system) {
        system.sleep_until(expires);
        let now = system.now();
        let mut first = true;
        while expires <= now {
            taken.record(expires, now.saturating_sub(expires), !first);
            missed += u64::from(!first);
            first = false;
            expires += next();
        }
    }
    missed
}

/// Maps, touches and unmaps. Between two it sleeps as long as one took, unlike the original: a thread of the highest
/// priority that never sleeps would take the CPU from everyone, us included.
fn allocations(system: &dyn System, times: Times<'_>, taken: &mut Taken) -> Result<(), Error> {
    let request = MapRequest::writable(ALLOCATION, MapKind::Anonymous);
    while times.go_on(system) {
        let begin = system.now();
        let mapping = system.map(&request)?;
        // Without transparent huge pages it is refused, and pages are small ones.
        let _ = system.advise(&mapping, Bytes(0), ALLOCATION, Advice::HugePage);
        system.touch(&mapping, Bytes(0), ALLOCATION)?;
        system.unmap(mapping)?;
        let took = system.now().saturating_sub(begin);
        taken.record(begin, took, false);
        system.sleep_until(system.now() + took);
    }
    Ok(())
}

/// A busy thread, which stands for one that submits to a GPU: computes, and with `objects` makes an object of 16 MiB in
/// shared memory, fills it and drops it, pass by pass.
pub(super) fn be_busy(system: &dyn System, cpu: u32, objects: bool, times: Times<'_>) -> Report {
    let mut report = Report::default();
    let passes = || -> Result<u64, Error> {
        system.set_cpus(&[cpu])?;
        let times = times.started(system);
        let mut cycles = 0;
        while times.go_on(system) {
            system.spin(PASS);
            if objects {
                object(system)?;
            }
            cycles += 1;
        }
        Ok(cycles)
    };
    match passes() {
        Ok(cycles) => report.cycles = cycles,
        Err(error) => report.error = Some(error.to_string()),
    }
    report
}

fn object(system: &dyn System) -> Result<(), Error> {
    let mapping = system.map(&MapRequest::writable(OBJECT, MapKind::AnonymousAlone))?;
    system.touch(&mapping, Bytes(0), OBJECT)?;
    system.unmap(mapping)
}

// The background load: walks a file system and brings each regular file into the page cache.
//
// It only reads, at most 64 MiB of a file are mapped at once, and what it fills memory with is clean page cache, which
// the kernel gives to anybody who asks. Where little is available all the same it waits.

/// One part in this many of all memory stays available.
const RESERVE: u64 = 8;
/// How long it waits where less is available.
const WAIT: Nanos = Nanos::millis(100);

/// Files and bytes walked.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Walked {
    /// Files that were mapped, as often as they were.
    pub(super) files: u64,
    /// Bytes of them.
    pub(super) bytes: u64,
    /// Whole passes.
    pub(super) passes: u64,
    /// How often it waited for memory.
    pub(super) waits: u64,
    /// Why it ended before its time.
    pub(super) error: Option<String>,
}

/// Walks `root` without leaving its file system, again and again, until the time is over.
pub(super) fn walk(system: &dyn System, root: &Path, times: Times<'_>) -> Walked {
    let mut walked = Walked::default();
    let device = match system.entry(root) {
        Ok(entry) => entry.device,
        Err(error) => {
            walked.error = Some(error.to_string());
            return walked;
        }
    };
    while times.go_on(system) {
        let before = walked.files;
        pass(system, root, device, times, &mut walked);
        if times.go_on(system) {
            walked.passes += 1;
            if walked.files == before {
                walked.error = Some(format!("{} has no file that we may map", root.display()));
                return walked;
            }
        }
    }
    walked
}

fn pass(system: &dyn System, root: &Path, device: u64, times: Times<'_>, walked: &mut Walked) {
    let mut left: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        if !times.go_on(system) {
            return;
        }
        // A file that is gone by now, or refused to us, is passed over.
        let Ok(entry) = system.entry(&path) else {
            continue;
        };
        if entry.device != device {
            continue;
        }
        match entry.kind {
            Kind::Directory => {
                let names = system.list(&path).unwrap_or_default();
                left.extend(names.into_iter().map(|name| path.join(name)));
            }
            Kind::Regular => {
                let waits = std::cell::Cell::new(0);
                let go_on = || {
                    while is_short(system) && times.go_on(system) {
                        waits.set(waits.get() + 1);
                        system.sleep_until(system.now() + WAIT);
                    }
                    times.go_on(system)
                };
                if let Ok(Bytes(bytes)) = system.populate(&path, &go_on) {
                    walked.files += u64::from(bytes > 0);
                    walked.bytes += bytes;
                }
                walked.waits += waits.get();
            }
            Kind::Other => {}
        }
    }
}

/// Whether less is available than is to be left; not where nobody says how much there is.
fn is_short(system: &dyn System) -> bool {
    let [total, available] = ["MemTotal", "MemAvailable"].map(|name| meminfo(system, name));
    match (total, available) {
        (Ok(total), Ok(available)) => available.0 < total.0 / RESERVE,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use stopgap_kernel::clock::Clock;
    use stopgap_kernel::fake::Fake;

    use super::*;

    #[test]
    fn timers_on_time_are_a_sample_each_and_none_is_missed() {
        let fake = Fake::default();
        let times = Times {
            begin: Nanos::secs(1),
            end: Nanos::secs(2),
            interrupted: &|| false,
        };
        let report = measure(&fake, (0, 7), Nanos::millis(10), false, times);
        assert_eq!(report.error, None);
        let all = report.all.unwrap();
        // 1 s in steps of 100 us to 1.1 ms, 600 us in the mean.
        assert!((1_500..1_850).contains(&all.samples), "{}", all.samples);
        assert_eq!((report.missed, report.max_us), (0, Some(0.0)));
        assert_eq!((report.mean_us, report.original_us), (Some(0.0), Some(0.0)));
        assert!(fake.now() <= Nanos::secs(2) + SPREAD);
    }

    /// Held up for 100 ms in the middle: what would have expired then is there, and the original's mean is less.
    #[test]
    fn timers_that_expire_in_a_stall_are_samples() {
        let fake = Fake::default();
        let mut taken = Taken {
            all: Recorder::new(Nanos::millis(10).0),
            slept: (0, 0),
        };
        let stalled = std::cell::Cell::new(false);
        let hold_up = || {
            if fake.now() > Nanos::millis(50) && !stalled.replace(true) {
                fake.pass(Nanos::millis(100));
            }
            false
        };
        let times = Times {
            begin: Nanos(0),
            end: Nanos::millis(300),
            interrupted: &hold_up,
        };
        let missed = timers(&fake, &mut Random::new(3), times, &mut taken);
        // 100 ms in steps of 600 us.
        assert!((120..220).contains(&missed), "{missed}");
        assert_eq!(taken.all.histogram().len(), taken.slept.1 + missed);
        let max = taken.all.histogram().max().unwrap();
        assert!((98_000_000..=101_000_000).contains(&max), "{max}");
        assert_eq!(taken.all.stalls().count, 1, "one episode");
        let all = taken.all.histogram().mean().unwrap();
        let original = taken.slept.0 as f64 / taken.slept.1 as f64;
        assert!(all > 20.0 * original, "{all} against {original}");
    }

    #[test]
    fn allocations_leave_the_cpu_for_as_long_as_they_took() {
        let fake = Fake::default();
        let times = Times {
            begin: Nanos(0),
            end: Nanos::millis(100),
            interrupted: &|| false,
        };
        let report = measure(&fake, (0, 7), Nanos::millis(10), true, times);
        let all = report.all.unwrap();
        let busy: u64 = all
            .histogram
            .unwrap()
            .buckets()
            .map(|(ns, count)| ns * count)
            .sum();
        assert!(
            (40_000_000..60_000_000).contains(&busy),
            "{busy}: half of the time"
        );
        assert_eq!(report.error, None);
    }

    #[test]
    fn busy_threads_count_their_passes() {
        let fake = Fake::default();
        let times = Times {
            begin: Nanos(0),
            end: Nanos::millis(10),
            interrupted: &|| false,
        };
        let report = be_busy(&fake, 0, false, times);
        assert_eq!((report.cycles, report.error), (500, None));
        let none = be_busy(&fake, 9, false, times);
        assert!(none.error.unwrap().contains("sched_setaffinity"));
    }

    fn times(end: Nanos) -> Times<'static> {
        Times {
            begin: Nanos(0),
            end,
            interrupted: &|| false,
        }
    }

    fn machine() -> Fake {
        Fake::default()
            .with_file("/usr/a", "12345")
            .with_file("/usr/lib/b", "123")
            .with_file("/usr/empty", "")
            .with_file("/sys/other", "of another file system")
            .with_link("/usr/link", "/usr/a")
            .without("/proc")
    }

    #[test]
    fn each_regular_file_of_one_file_system_until_the_time_is_over() {
        let fake = machine();
        // 3 files a pass, a millisecond each.
        let walked = walk(&fake, Path::new("/"), times(Nanos::millis(9)));
        assert_eq!(fake.now(), Nanos::millis(9));
        assert_eq!((walked.bytes, walked.error), (3 * 8, None));
        assert_eq!((walked.files, walked.waits), (6, 0));
    }

    #[test]
    fn what_cannot_be_read_is_passed_over_and_nothing_at_all_is_said() {
        let fake = machine().unreadable("/usr/lib", 13);
        assert_eq!(
            walk(&fake, Path::new("/"), times(Nanos::millis(2))).bytes,
            5
        );
        let none = machine().without("/usr");
        let walked = walk(&none, Path::new("/"), times(Nanos::millis(2)));
        assert!(walked.error.unwrap().contains("no file that we may map"));
        let nowhere = walk(&fake, Path::new("/nowhere"), times(Nanos::millis(2)));
        assert!(nowhere.error.unwrap().contains("/nowhere"));
    }

    /// Little is available until 500 ms have passed.
    #[test]
    fn where_memory_is_short_it_waits() {
        let short = "MemTotal: 8000 kB\nMemAvailable: 999 kB\n";
        let enough = "MemTotal: 8000 kB\nMemAvailable: 1000 kB\n";
        let fake = machine().with_file("/proc/meminfo", short).later(
            Nanos::millis(450),
            "/proc/meminfo",
            Some(enough),
        );
        let walked = walk(&fake, Path::new("/"), times(Nanos::millis(502)));
        assert_eq!(walked.waits, 5);
        assert!((1..=3).contains(&walked.files), "{walked:?}");
        let never = machine().with_file("/proc/meminfo", short);
        let walked = walk(&never, Path::new("/"), times(Nanos::millis(300)));
        assert_eq!((walked.files, walked.waits), (0, 3), "and ends in time");
    }
}
