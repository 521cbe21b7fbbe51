//! A thread that polls a file's lock.

use super::*;

const NONE: [u64; 3] = [0; 3];

/// Returns a row: thread 1 found the file locked at `at` ms.
fn attempt(at: u64, holder: u32, blocks: bool) -> Event {
    let span = Span {
        inode: Some(12),
        holder: Some(holder),
        result: (!blocks).then_some(-11),
        ..Span::new(Activity::FileLock, Nanos(at * MS))
    };
    Event {
        time: Nanos(at * MS),
        cpu: Some(1),
        pid: Some(7),
        tid: Some(1),
        comm: Some("t1".into()),
        kind: Kind::Span(Box::new(span)),
    }
}

fn nap(from: u64, to: u64) -> Event {
    let times = [from, to, to];
    wait_row(1, times, ("clock_nanosleep", NONE), woken_by(0, None))
}

/// Thread 2 holds the lock from 1 to 101 ms. It is in fsync for the first half and then sleeps on purpose.
fn holder() -> [Event; 2] {
    [
        wait_row(2, [1, 51, 51], ("fsync", NONE), woken_by(0, None)),
        wait_row(2, [52, 101, 101], ("nanosleep", NONE), woken_by(0, None)),
    ]
}

fn texts(rows: &[Event], cause: &str) -> Vec<(String, u64)> {
    let record = graph_of(rows).finish(&HashSet::new());
    let chains = chains(&record, "t1", cause);
    chains
        .into_iter()
        .map(|(text, ns)| (text, ns / MS))
        .collect()
}

#[test]
fn naps_between_looks_are_followed_to_the_holder() {
    let [fsync, sleeps] = holder();
    let mut rows = vec![nap(1, 2)];
    // Attempts at 2, 12, 22, ... ms, each with a sleep after it. The first sleep may have another reason.
    for look in 0..9 {
        let at = 2 + 10 * look;
        rows.extend([attempt(at, 2, false), nap(at, at + 10)]);
        if at + 10 == 52 {
            rows.insert(rows.len() - 2, fsync.clone());
        }
    }
    rows.push(sleeps.clone());
    let expected = [
        ("waited for the file lock > t2 was in fsync > a disk", 39),
        (
            "waited for the file lock > t2 slept in nanosleep > on purpose",
            40,
        ),
        ("waited for the file lock > t2 ran", 1),
    ];
    let mut found = texts(&rows, "lock");
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let mut expected = expected.map(|(text, ns)| (text.to_owned(), ns));
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(
        texts(&rows, "time").iter().map(|(_, ns)| ns).sum::<u64>(),
        11
    );
    // No more rows of the holder.
    let held = texts(&rows[..rows.len() - 1], "lock");
    assert!(
        held.contains(&("waited for the file lock > t2 held it".to_owned(), 50)),
        "{held:?}"
    );
}

#[test]
fn a_sleep_without_a_second_attempt_is_idle() {
    let idle = [
        // One attempt, then other sleeps.
        vec![attempt(2, 2, false), nap(3, 50), nap(51, 100)],
        // No attempt before this sleep.
        vec![
            attempt(2, 2, false),
            nap(3, 13),
            nap(14, 20),
            attempt(20, 2, false),
            nap(21, 100),
        ],
    ];
    for rows in idle {
        assert_eq!(texts(&rows, "lock"), []);
    }
    // A standby that checks every second whether to take over.
    let mut spare = Vec::new();
    for second in 0..4 {
        spare.extend([
            attempt(1_000 * second, 2, false),
            nap(1_000 * second, 1_000 * second + 999),
        ]);
    }
    let judged: Vec<_> = judged(&spare, true);
    assert_eq!(
        judged,
        [(Idleness::MayBeIdle, 3 * 999), (Idleness::Idle, 999)]
    );
}

#[test]
fn who_gave_up_waiting_for_a_file_names_the_holder() {
    let [fsync, sleeps] = holder();
    let (set_lock_wait, lock) = (("fcntl", [3, 7, 0]), attempt(60, 2, true));
    // The timer of a signal ended it.
    let rows = [
        fsync,
        lock,
        wait_row(1, [60, 90, 90], set_lock_wait, woken_by(0, None)),
        sleeps,
    ];
    assert_eq!(
        texts(&rows, "lock"),
        [(
            "waited for the file lock > t2 slept in nanosleep > on purpose".to_owned(),
            30
        )]
    );
}
