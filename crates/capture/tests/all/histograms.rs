//! Histograms that the kernel counts, held against the records of the same waits.

use std::thread;
use std::time::Duration;

use stopgap_capture::{Histogram, How, Options, Record, Wait};
use stopgap_testing::{Skip, skip};

use super::live::{ALONE, own_tid, start_with};

/// Times that each thread sleeps, and how long.
const SLEEPS: usize = 40;
const LENGTH: Duration = Duration::from_millis(2);
const PROGRAMS: usize = 3;

/// Threads that sleep are captured, with room for `kinds`: what the kernel counted in two periods, all records, and the threads.
fn counted(kinds: u32) -> Option<(Vec<Histogram>, Vec<Wait>, Vec<u32>)> {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut capture = start_with(&Options {
        histograms: Some(kinds),
        ..Options::default()
    })?;
    let (mut all, mut records, mut tids) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 {
        let sleeper = || {
            for _ in 0..SLEEPS {
                thread::sleep(LENGTH);
            }
            own_tid()
        };
        let threads: Vec<_> = (0..PROGRAMS).map(|_| thread::spawn(sleeper)).collect();
        tids.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        capture.turn().unwrap();
        thread::sleep(Duration::from_millis(20));
        all.extend(capture.histograms().unwrap());
        assert!(capture.histograms().unwrap().is_empty(), "read once");
    }
    let mut keep = |_, bytes: &[u8]| {
        if let Ok(Record::Wait(wait)) = Record::parse(bytes) {
            records.push(*wait);
        }
    };
    capture.read(&mut keep);
    assert_eq!(capture.stop(&mut keep).unwrap(), 0, "records lost");
    Some((all, records, tids))
}

#[test]
fn histograms_add_up_to_the_records_of_the_same_waits() {
    if cfg!(not(target_arch = "x86_64")) {
        return skip(&Skip::machine("the numbers of x86-64's system calls"));
    }
    let Some((all, records, tids)) = counted(1_000) else {
        return;
    };
    const CLOCK_NANOSLEEP: u32 = 230;
    let of_call = |wait: &&Wait| tids.contains(&wait.tid) && wait.call == Some(CLOCK_NANOSLEEP);
    let slept = records
        .iter()
        .filter(of_call)
        .filter(|wait| wait.state & 1 != 0);
    let lengths: Vec<u64> = slept
        .map(|wait| if wait.woken > 0 { wait.woken } else { wait.ran } - wait.left)
        .collect();
    let ours = |histogram: &&Histogram| {
        histogram.call == Some(CLOCK_NANOSLEEP) && histogram.how == How::Asleep
    };
    let (mut waits, mut ns, mut longest) = (0, 0, 0);
    let mut in_buckets = 0;
    for histogram in all.iter().filter(ours) {
        waits += histogram.waits;
        ns += histogram.ns;
        longest = longest.max(histogram.longest);
        in_buckets += histogram.buckets.iter().sum::<u64>();
    }
    // The test's own thread sleeps in the same call once a period: it is in the next one, or none.
    let own = (
        waits - lengths.len() as u64,
        ns - lengths.iter().sum::<u64>(),
    );
    assert!(lengths.len() >= 2 * PROGRAMS * SLEEPS, "{}", lengths.len());
    assert!(own.0 <= 1, "{own:?}");
    assert!(own.0 == 1 || own.1 == 0, "{own:?}");
    assert_eq!(in_buckets, waits);
    assert!(longest >= *lengths.iter().max().unwrap());
    assert!(all.iter().all(|histogram| histogram.process.is_some()));
}

/// With room for two kinds all the others are counted together.
#[test]
fn what_there_is_no_room_for_is_counted_among_the_others() {
    let Some((all, records, tids)) = counted(2) else {
        return;
    };
    assert!(all.iter().any(|histogram| histogram.process.is_none()));
    let told: u64 = all.iter().map(|histogram| histogram.ns).sum();
    let ours = records.iter().filter(|wait| tids.contains(&wait.tid));
    let least: u64 = ours.map(|wait| wait.ran - wait.left).sum();
    let most: u64 = records.iter().map(|wait| wait.ran - wait.left).sum();
    assert!((least..=most).contains(&told), "{least} {told} {most}");
    let kinds = all.iter().filter(|histogram| histogram.process.is_some());
    assert!(kinds.count() <= 2 * 2, "two a period");
}
