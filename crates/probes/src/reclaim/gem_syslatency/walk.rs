//! The background load: walks a file system and brings each regular file into the page cache.
//!
//! It only reads, at most 64 MiB of a file are mapped at once, and what it fills memory with is clean page cache, which
//! the kernel gives to anybody who asks. Where little is available all the same it waits.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::System;
use stopgap_kernel::budget::meminfo;
use stopgap_kernel::files::Kind;

use super::measure::Times;

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
    use super::*;
    use stopgap_kernel::clock::Clock;
    use stopgap_kernel::fake::Fake;

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
