//! Histograms that the kernel counts, held against the records of the same waits.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use stopgap_capture::{
    BUCKETS, Histogram, How, Options, Record, Span, SpanKind, Wait, bucket_begin,
};
use stopgap_testing::{Skip, skip};

use super::live::{ALONE, CLOCK_NANOSLEEP, joined, own_tid, start_with, until_gone};

/// How long each thread sleeps, one after the other: of each part of the table of buckets but the last, which begins at 17 s.
const SLEEPS: [Duration; 33] = {
    let mut lengths = [Duration::from_millis(300); 33];
    let mut sleep = 0;
    while sleep < 32 {
        lengths[sleep] = Duration::from_micros(1 << (sleep % 14));
        sleep += 1;
    }
    lengths
};
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
            SLEEPS.into_iter().for_each(thread::sleep);
            (own_tid(), ())
        };
        let threads: Vec<_> = (0..PROGRAMS).map(|_| thread::spawn(sleeper)).collect();
        tids.extend(threads.into_iter().map(|thread| joined(thread).0));
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
    let mut buckets = [0; BUCKETS];
    for histogram in all.iter().filter(ours) {
        waits += histogram.waits;
        ns += histogram.ns;
        longest = longest.max(histogram.longest);
        let both = buckets.iter_mut().zip(histogram.buckets);
        both.for_each(|(sum, waits)| *sum += waits);
    }
    // The test's own thread sleeps in the same call once a period: it is in the next one, or none.
    let own = (
        waits - lengths.len() as u64,
        ns - lengths.iter().sum::<u64>(),
    );
    // A timer of some microseconds, or one that fires while the hypervisor has the CPU, ends before its thread is off it: no sleep then.
    assert!(lengths.len() > PROGRAMS * SLEEPS.len(), "{}", lengths.len());
    assert!(own.0 <= 1, "{own:?}");
    assert!(own.0 == 1 || own.1 == 0, "{own:?}");
    assert_eq!(buckets.iter().sum::<u64>(), waits);
    for length in &lengths {
        buckets[(0..BUCKETS)
            .rfind(|&at| bucket_begin(at) <= *length)
            .unwrap()] -= 1;
    }
    assert_eq!(buckets.iter().sum::<u64>(), own.0, "{buckets:?}");
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

/// Threads that write to one file at once wait for its lock, and a wait for a lock counts as one as long as the thread is in its span.
#[test]
fn a_wait_for_a_lock_of_the_kernel_is_counted_as_one() {
    const PWRITE: u32 = if cfg!(target_arch = "x86_64") { 18 } else { 68 };
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(mut capture) = start_with(&Options {
        histograms: Some(1_000),
        ..Options::default()
    }) else {
        return;
    };
    let path = std::env::temp_dir().join(format!("capture-lock-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let writer = || {
        let bytes = vec![1; 4 << 20];
        for _ in 0..20 {
            file.write_all_at(&bytes, 0).unwrap();
        }
        own_tid()
    };
    let tids = thread::scope(|scope| {
        // More than CPUs, as a rule: one that spins for the lock is taken off its CPU and sleeps.
        let threads = [(); 4].map(|()| scope.spawn(writer));
        threads.map(|thread| thread.join().unwrap())
    });
    tids.into_iter().for_each(until_gone);
    capture.turn().unwrap();
    thread::sleep(Duration::from_millis(20));
    let counted: u64 = capture
        .histograms()
        .unwrap()
        .iter()
        .filter(|histogram| histogram.how == How::Lock && histogram.call == Some(PWRITE))
        .map(|histogram| histogram.waits)
        .sum();
    let (mut waits, mut spans): (Vec<Wait>, Vec<Span>) = (Vec::new(), Vec::new());
    let lost = capture.stop(|_, bytes| match Record::parse(bytes) {
        Ok(Record::Wait(wait)) if tids.contains(&wait.tid) => waits.push(*wait),
        Ok(Record::Span(span)) if span.what == SpanKind::Lock => spans.push(span),
        _ => {}
    });
    assert_eq!(lost.unwrap(), 0, "records lost");
    let in_lock = |wait: &&Wait| {
        let mut spans = spans.iter().filter(|span| span.tid == wait.tid);
        wait.state != 0 && spans.any(|span| (span.begin..span.end).contains(&wait.left))
    };
    let told = waits
        .iter()
        .filter(|wait| wait.call == Some(PWRITE))
        .filter(in_lock);
    assert_eq!(counted, told.count() as u64);
    assert!(counted > 0, "nobody waited");
}
