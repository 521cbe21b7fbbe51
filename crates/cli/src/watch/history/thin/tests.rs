use super::*;
use crate::watch::history::files::{Level, due, names};
use crate::watch::history::keep::write;
use crate::watch::history::rows::metadata_of;
use std::os::unix::fs::DirBuilderExt;
use stopgap_events::random::Random;
use stopgap_stats::history::Sum;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// A folder of a history.
fn folder() -> (tempfile::TempDir, Folder) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("history");
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .unwrap();
    let folder = Folder::open(&path).unwrap();
    (place, folder)
}

fn machine(host: &str) -> Metadata {
    metadata_of(&Metadata {
        host: Some(host.to_owned()),
        boot_id: Some("b".to_owned()),
        ..Metadata::default()
    })
}

/// A row of ten seconds.
fn row(unix_s: u64, process: &str, waits: u64) -> Row {
    Row {
        begin: unix_s * SECOND,
        end: (unix_s + 10) * SECOND,
        uptime: Some(unix_s),
        boot: Some("b".into()),
        key: Key {
            cause: "io".to_owned(),
            process: Some(process.to_owned()),
            cgroup: None,
            call: Some("read".to_owned()),
        },
        sum: Sum {
            waits,
            ns: waits * 2_000,
            longest_ns: 2_000 + waits,
            buckets: [(1_792, waits)].into(),
        },
    }
}

/// Writes a part of ten seconds with one wait of `a` and two of `b`.
fn part(folder: &Folder, unix_s: u64, host: &str) {
    let rows = [row(unix_s, "a", 1), row(unix_s, "b", 2)];
    write(folder, &Name::at(Level::Part, unix_s), &machine(host), rows).unwrap();
}

/// All waits of all files, how many rows they are in, and what cannot be read.
fn total(folder: &Folder) -> (u64, usize, usize) {
    let (left, wrong) = files::not_merged(folder, names(folder));
    let (mut waits, mut rows, mut unread) = (0, 0, 0);
    for name in left.iter().filter(|name| !wrong.contains_key(*name)) {
        let read = rows::read(folder, name, |row| {
            waits += row.sum.waits;
            rows += 1;
        });
        unread += usize::from(read.is_err());
    }
    (waits, rows, unread + wrong.len())
}

fn shown(folder: &Folder) -> Vec<String> {
    names(folder).iter().map(ToString::to_string).collect()
}

#[test]
fn what_was_counted_stays_while_it_grows_old() {
    let (_place, folder) = folder();
    let begin = 20_000 * DAY + 3_600;
    for at in 0..12 {
        part(&folder, begin + 10 * at, "here");
    }
    assert_eq!(total(&folder), (36, 24, 0));
    assert!(thin_at(&folder, begin + 100, MOST), "the hour goes on");
    assert_eq!(names(&folder).len(), 12);
    for (days, rows, level) in [
        (0, 24, "hour"),
        (2, 4, "day"),
        (8, 2, "old"),
        (20, 2, "old"),
    ] {
        assert!(thin_at(&folder, begin + 7_200 + days * DAY, MOST));
        let files = shown(&folder);
        assert!(files.len() == 1 && files[0].starts_with(level), "{files:?}");
        assert_eq!(total(&folder), (36, rows, 0), "{level}");
    }
    let name = &names(&folder)[0];
    let mut longest = 0;
    rows::read(&folder, name, |row| {
        longest = longest.max(row.sum.longest_ns);
        assert_eq!(row.sum.buckets.values().sum::<u64>(), row.sum.waits);
    })
    .unwrap();
    assert_eq!(longest, 2_002);
    assert!(thin_at(&folder, begin + 32 * DAY, MOST));
    assert!(names(&folder).is_empty(), "after 30 days it goes");
}

/// Killed between the new file and the removal of its parts, nothing counts twice.
#[test]
fn a_merge_that_was_killed_counts_nothing_twice() {
    let (place, folder) = folder();
    let begin = 20_000 * DAY;
    for at in 0..3 {
        part(&folder, begin + 10 * at, "here");
    }
    let (merges, _) = due(&names(&folder), begin + 7_200);
    merge(&folder, &merges[0].0, &merges[0].1).unwrap();
    std::fs::write(
        place
            .path()
            .join("history/.hour-20241004-05.parquet.partial"),
        "half",
    )
    .unwrap();
    assert_eq!(names(&folder).len(), 4);
    assert_eq!(total(&folder).0, 9);
    assert!(thin_at(&folder, begin + 7_200, MOST));
    assert_eq!((names(&folder).len(), total(&folder).0), (1, 9));
    assert!(
        folder
            .names()
            .iter()
            .all(|name| !name.to_string_lossy().ends_with(PARTIAL))
    );
}

/// A file that is cut anywhere is passed over and named, and the others are merged.
#[test]
fn a_cut_file_and_one_of_another_machine_stay_as_they_are() {
    let (place, folder) = folder();
    let begin = 20_000 * DAY;
    for at in 0..4 {
        part(
            &folder,
            begin + 10 * at,
            if at == 3 { "elsewhere" } else { "here" },
        );
    }
    let cut = place.path().join("history").join(shown(&folder)[1].clone());
    let bytes = std::fs::read(&cut).unwrap();
    for length in [0, 3, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&cut, &bytes[..length]).unwrap();
        assert_eq!(total(&folder), (9, 6, 1), "{length}");
    }
    assert!(thin_at(&folder, begin + 7_200, MOST));
    assert_eq!(names(&folder).len(), 3, "{:?}", shown(&folder));
    assert_eq!(total(&folder), (9, 6, 1));
}

#[test]
fn a_clock_that_was_set_back_loses_no_file() {
    let (_place, folder) = folder();
    let begin = 20_000 * DAY;
    for _ in 0..3 {
        part(&folder, begin, "here");
    }
    assert_eq!((names(&folder).len(), total(&folder).0), (3, 9));
    assert!(thin_at(&folder, begin + 7_200, MOST));
    part(&folder, begin, "here");
    assert!(thin_at(&folder, begin + 7_200, MOST));
    assert_eq!(total(&folder).0, 12);
}

#[test]
fn the_oldest_go_where_all_take_too_much() {
    let (_place, folder) = folder();
    let begin = 20_000 * DAY;
    for day in 0..3 {
        part(&folder, begin + day * DAY, "here");
    }
    let each = folder
        .find(&names(&folder)[0].os())
        .unwrap()
        .unwrap()
        .length;
    assert_eq!(bound(&folder, Bytes(2 * each + 100)).unwrap(), 1);
    assert_eq!(names(&folder)[0].begin_s(), begin + DAY);
}

/// Bytes of 30 days of a busy machine: 400 kinds of waits in each ten seconds, 800 in a minute, 1,200 in ten minutes. Some minutes of each
/// of the three sizes of rows are written and their bytes taken times the days that have them.
#[test]
fn a_busy_month_takes_less_than_a_gibibyte() {
    let (_place, folder) = folder();
    let mut random = Random::new(22);
    let mut bytes = |level: Level, at: u64, step: u64, kinds: usize, windows: u64| {
        let mut rows = Vec::new();
        for window in 0..windows {
            for kind in 0..kinds {
                let mut sum = Sum::default();
                // Around a length of its own, spread over more buckets the longer it was counted.
                let octave = 11 + kind % 18;
                for _ in 0..2 + step.ilog2() as usize + random.index(4) {
                    let begin = (4 + random.index(4) as u64) << (octave + random.index(3) - 2);
                    let waits = 1 + random.index(200) as u64 * step / 10;
                    sum.buckets.insert(begin, waits);
                    sum.waits += waits;
                    sum.ns += waits * (begin + random.index(1 << 10) as u64);
                    sum.longest_ns = sum.longest_ns.max(begin + random.index(1 << 10) as u64);
                }
                let mut row = row(at + window * step, &format!("process-{}", kind % 60), 0);
                row.end = row.begin + step * SECOND;
                row.key.cgroup = Some(format!("/system.slice/service-{}.service", kind % 25));
                row.key.call = Some(
                    ["read", "write", "futex", "epoll_wait", "fdatasync", "poll"][kind % 6]
                        .to_owned(),
                );
                row.key.cause =
                    ["run-queue", "io", "lock", "idle", "unknown"][kind / 6 % 5].to_owned();
                row.sum = sum;
                rows.push(row);
            }
        }
        let name = Name::at(level, at);
        let (count, windows) = (rows.len() as u64, windows as f64);
        write(&folder, &name, &machine("here"), rows).unwrap();
        let length = folder.find(&name.os()).unwrap().unwrap().length;
        println!("rows of {step} s: {} bytes each", length / count);
        length as f64 / windows * (DAY / step) as f64
    };
    let day = 20_000 * DAY;
    let fine = 2.0 * bytes(Level::Hour, day, 10, 400, 40);
    let minutes = 6.0 * bytes(Level::Day, day, 60, 800, 20);
    let tens = 23.0 * bytes(Level::Old, day, 600, 1_200, 12);
    let all = fine + minutes + tens;
    let mb = |bytes: f64| format!("{:.0} MB", bytes / 1e6);
    println!(
        "30 days: {} (2 days of 10 s {}, 6 of 1 min {}, 23 of 10 min {})",
        mb(all),
        mb(fine),
        mb(minutes),
        mb(tens)
    );
    assert!(all < (1_u64 << 30) as f64, "{all}");
}
