//! Against the running kernel, by other means than the code's own.

use std::path::Path;
use std::time::{Duration, Instant};

use stopgap_events::units::{Bytes, Nanos};

use super::*;
use crate::Linux;
use crate::clock::Clock;
use crate::memory::{MapKind, MapRequest, Memory};
use crate::tasks::{ChildLimits, Tasks};

const MAPPINGS: u64 = 9_000;

fn quick(pid: Option<u32>) -> Options {
    Options {
        interval: Nanos::millis(100),
        deadline: Nanos::millis(1_000),
        pid,
    }
}

/// What a driver's client looks like: one-page mappings of one file that can never merge;
/// then a switch every millisecond until `stop` appears.
fn hold_mappings(folder: &Path) -> Vec<u8> {
    let page = Linux.page_size();
    let file = Linux.mem_file(Bytes(page.0 * 2 * MAPPINGS)).unwrap();
    for i in 0..MAPPINGS {
        let request = MapRequest::writable(
            page,
            MapKind::File {
                file: &file,
                offset: Bytes(2 * i * page.0),
            },
        );
        drop(Linux.map(&request).unwrap()); // stays mapped
    }
    std::fs::write(folder.join("pid.new"), Linux.pid().to_string()).unwrap();
    std::fs::rename(folder.join("pid.new"), folder.join("pid")).unwrap();
    while !folder.join("stop").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Vec::new()
}

fn with_holder(look: impl FnOnce(u32)) {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let child = scope.spawn(|| {
            let limits = ChildLimits::within(Nanos::secs(20));
            Linux.run_child(&limits, &mut || hold_mappings(folder.path()))
        });
        let start = Instant::now();
        let pid = loop {
            if let Ok(text) = std::fs::read_to_string(folder.path().join("pid")) {
                break Some(text.parse().unwrap());
            }
            if child.is_finished() || start.elapsed() > Duration::from_secs(15) {
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        // Told to stop also when an assertion fails, or the scope would wait for it.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            look(pid.expect("the child maps its file"));
        }));
        std::fs::write(folder.path().join("stop"), "").unwrap();
        child.join().unwrap().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn voluntary(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let (_, rest) = text.split_once("\nvoluntary_ctxt_switches:").unwrap();
    rest.lines().next().unwrap().trim().parse().unwrap()
}

#[test]
fn a_process_with_nine_thousand_mappings_comes_first_with_its_file() {
    with_holder(|pid| {
        let now = read(&Linux, &quick(None)).unwrap();
        let row = now.mappings.iter().find(|row| row.pid == pid);
        // Another test on this machine may hold still more.
        let others_hold_more = now
            .mappings
            .iter()
            .filter(|row| row.mappings > MAPPINGS)
            .count();
        let row = match row {
            Some(row) => row,
            None if others_hold_more == TOP => return,
            None => panic!("not listed: {:?}", now.mappings),
        };
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert_eq!(row.mappings, maps.lines().count() as u64);
        assert!(row.mappings > MAPPINGS);
        assert!(
            row.backing[0].file.starts_with("/memfd:stopgap"),
            "{:?}",
            row.backing[0]
        );
        let of_file = maps
            .lines()
            .filter(|line| line.contains("/memfd:stopgap"))
            .count() as u64;
        assert_eq!(row.backing[0].mappings, of_file);
        assert_eq!((of_file, row.backing[0].one_page), (MAPPINGS, MAPPINGS));
        assert_eq!(row.backing.len(), TOP);
        assert!(
            now.mappings
                .is_sorted_by_key(|row| std::cmp::Reverse(row.mappings))
        );
    });
}

#[test]
fn asked_about_alone_its_counts_agree_with_its_own_files() {
    with_holder(|pid| {
        let look = || {
            let before = (voluntary(pid), Linux.now());
            let now = read(&Linux, &quick(Some(pid))).unwrap();
            (before, now, (voluntary(pid), Linux.now()))
        };
        // Where others have its CPU for all of the interval it has no switch: then once more.
        let begin = Instant::now();
        let (before, now, after) = loop {
            let looked = look();
            let has_switches = looked.1.voluntary[0].per_second > 0.0;
            if has_switches || begin.elapsed() > Duration::from_secs(15) {
                break looked;
            }
        };
        assert_eq!(now.mappings.len(), 1);
        let process = now.process.unwrap();
        assert_eq!(
            (process.threads, process.mappings),
            (Some(1), Some(now.mappings[0].mappings))
        );
        assert_eq!(process.locked, Some(Bytes(0)));
        assert!(process.resident > Some(Bytes(0)) && process.swapped.is_some());
        // The interval measured inside cannot be longer than the one around it.
        let rate = now.voluntary[0].per_second;
        assert_eq!((now.voluntary[0].pid, now.voluntary[0].tid), (pid, pid));
        let most = (after.0 - before.0) as f64;
        let seconds = (after.1 - before.1).as_secs_f64();
        assert!(
            rate > 0.0 && rate * 0.1 <= most,
            "{rate}/s of {most} in {seconds} s"
        );
    });
}

#[test]
fn we_are_shown_only_when_asked_for() {
    let ours = Linux.pid();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let pause = || {
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        let name = "switcher".to_owned();
        std::thread::Builder::new()
            .name(name)
            .spawn_scoped(scope, pause)
            .unwrap();
        let all = read(&Linux, &quick(None));
        // Where others have its CPU for all of the interval it has no switch: then once more.
        let mut alone = read(&Linux, &quick(Some(ours)));
        let switches = |now: &Now| {
            let mut tasks = now.voluntary.iter();
            tasks.any(|task| task.tid != ours && task.per_second > 0.0)
        };
        let begin = Instant::now();
        while alone.as_ref().is_ok_and(|now| !switches(now))
            && begin.elapsed() < Duration::from_secs(15)
        {
            alone = read(&Linux, &quick(Some(ours)));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let (all, alone) = (all.unwrap(), alone.unwrap());
        let tasks = all.voluntary.iter().chain(&all.involuntary);
        assert!(tasks.map(|task| task.pid).all(|pid| pid != ours));
        assert!(all.mappings.iter().all(|row| row.pid != ours));
        assert!(alone.voluntary.iter().all(|task| task.pid == ours));
        assert!(switches(&alone));
        assert_eq!(alone.mappings[0].pid, ours);
    });
}

#[test]
fn the_index_agrees_with_a_count_from_the_other_side() {
    let text = std::fs::read_to_string("/proc/buddyinfo").unwrap();
    let ours = buddyinfo::unusable_index(&text).unwrap();
    // Free pages in blocks too small, instead of all less those large enough.
    for one in &ours {
        let (mut free, mut small) = (0u64, 0u64);
        for line in text.lines() {
            for (order, count) in line.split_whitespace().skip(4).enumerate() {
                let pages = count.parse::<u64>().unwrap() << order;
                free += pages;
                small += if (order as u32) < one.order { pages } else { 0 };
            }
        }
        assert!(
            (one.index - small as f64 / free as f64).abs() < 1e-9,
            "order {}",
            one.order
        );
    }
    let now = read(&Linux, &quick(None)).unwrap();
    assert_eq!(now.unusable_index.len(), ours.len());
}

#[test]
fn counters_and_limits_agree_with_the_files() {
    let vmstat = |name: &str| -> u64 {
        let text = std::fs::read_to_string("/proc/vmstat").unwrap();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let counts = lines.filter(|(key, _)| key.starts_with(name));
        counts.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
    };
    let counters = ["allocstall", "compact_stall", "compact_fail"];
    let before = counters.map(vmstat);
    // Not the time: others may have the CPU.
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let start = Duration::try_from(used()).unwrap();
    let now = read(&Linux, &quick(None)).unwrap();
    let took = Duration::try_from(used()).unwrap() - start;
    let after = counters.map(vmstat);
    for (i, name) in counters.iter().enumerate() {
        if let Some(counter) = now.since_boot.iter().find(|c| c.name == *name) {
            assert!((before[i]..=after[i]).contains(&counter.value), "{name}");
        }
    }
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    assert_eq!(now.max_map_count, limit.trim().parse().ok());
    let uptime = rustix::system::sysinfo().uptime.cast_unsigned();
    assert!(uptime.abs_diff(now.uptime_s.unwrap()) <= 2);
    assert!(now.voluntary.len() <= TOP && now.mappings.len() <= TOP);
    // It may look at processes for a second.
    assert!(took < Duration::from_secs(2), "{took:?}");
}
