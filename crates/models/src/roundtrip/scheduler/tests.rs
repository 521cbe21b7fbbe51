//! Wake-ups by hand. Times in the text are microseconds; tasks are 0 (S) and 1 (C).

use super::*;

const US: u64 = 1_000;

fn two(rules: Rules) -> Box<dyn RunQueue> {
    let setting = Setting {
        batch: vec![false; 2],
        preempt: true,
    };
    queue(rules, setting)
}

/// ```text
///      0      4000  4010
/// C    CCCCCCCCCC|r          4 ms of it: S has 3 ms of credit, more than 1
/// S    ..........|S
/// ```
#[test]
fn a_sleeper_of_milliseconds_pre_empts_in_2_6_35_and_one_of_microseconds_does_not() {
    let mut queue = two(Rules::Linux2_6_35);
    queue.wake(0, 0);
    queue.wake(0, 1);
    assert_eq!(queue.pick(0), Some(0));
    queue.sleep(10 * US);
    assert_eq!(queue.pick(10 * US), Some(1));
    // C has run 510 us, S 10: 500 behind, below the granularity.
    assert_eq!(queue.wake(520 * US, 0), GiveWay::No);
    assert_eq!(queue.pick(520 * US), Some(0));
    queue.sleep(530 * US);
    assert_eq!(queue.pick(530 * US), Some(1));
    assert_eq!(queue.wake(4_530 * US, 0), GiveWay::ToTheWoken);
    assert_eq!(queue.pick(4_530 * US), Some(0));
    // 3 ms behind and no more: even after 3 ms, and 3 ms is its share.
    assert_eq!(queue.tick(7_530 * US), GiveWay::No);
    assert_eq!(queue.tick(7_531 * US), GiveWay::SliceOver);
    assert_eq!(queue.pick(7_531 * US), Some(1));
}

/// What C is behind when it blocks, it is behind when it wakes, however long it slept.
///
/// ```text
///      0    100   110      10110
/// C    rrrrr|CCCC|...........|C      waited 100, ran 10: 90 behind
/// S    SSSSS|rrrr|SSSSSSSSSSS|r
/// ```
#[test]
fn eevdf_keeps_the_lag_of_a_sleeper() {
    let mut queue = two(Rules::Linux6_12);
    queue.wake(0, 0);
    queue.wake(0, 1);
    assert_eq!(queue.pick(0), Some(0));
    // S blocks beyond the average: it stays on the queue, delayed, and is woken there.
    queue.sleep(100 * US);
    assert_eq!(queue.pick(100 * US), Some(1));
    assert_eq!(queue.wake(105 * US, 0), GiveWay::No);
    queue.sleep(110 * US);
    assert_eq!(queue.pick(110 * US), Some(0));
    assert_eq!(queue.wake(10_110 * US, 1), GiveWay::ToTheWoken);
    assert_eq!(queue.pick(10_110 * US), Some(1));
    // 40 of its own leave it 50 behind; S has all its slice before it, and that protects nobody who is ahead.
    queue.sleep(10_150 * US);
    assert_eq!(queue.pick(10_150 * US), Some(0));
    assert_eq!(queue.wake(10_160 * US, 1), GiveWay::ToTheWoken);
}

/// Who sleeps while it is ahead comes back at most even, and even does not pre-empt.
///
/// ```text
///      0    100      300 310
/// C    CCCCC|dddddddd|r        100 ahead; delayed, so S's 200 count
/// S    rrrrr|SSSSSSSS|S
/// ```
#[test]
fn eevdf_gives_a_delayed_sleeper_no_credit() {
    let wake_after = |look: bool| {
        let mut queue = two(Rules::Linux6_12);
        queue.wake(0, 1);
        queue.wake(0, 0);
        // Equal in all; the first of the two runs.
        let first = queue.pick(0).expect("two are queued");
        queue.sleep(100 * US);
        assert_eq!(queue.pick(100 * US), Some(1 - first));
        if look {
            queue.read_clock(300 * US);
        }
        queue.wake(300 * US, first)
    };
    // The runner's account is of now: the sleeper is 100 behind, has that taken away, is even.
    assert_eq!(wake_after(true), GiveWay::No);
    // Its account is of when it was picked: the sleeper is seen ahead, nothing is taken away, and it is behind.
    assert_eq!(wake_after(false), GiveWay::ToTheWoken);
}

#[test]
fn batch_and_the_feature_turned_off_pre_empt_nobody() {
    for &rules in Rules::ALL {
        for (batch, preempt) in [(true, true), (false, false)] {
            let setting = Setting {
                batch: vec![batch, false],
                preempt,
            };
            let mut queue = queue(rules, setting);
            queue.wake(0, 1);
            assert_eq!(queue.pick(0), Some(1));
            assert_eq!(queue.wake(1_000 * US, 0), GiveWay::No, "{rules}");
        }
    }
}

#[test]
fn an_empty_queue_has_nobody() {
    for &rules in Rules::ALL {
        let mut queue = two(rules);
        assert_eq!(queue.pick(0), None);
        queue.wake(5, 1);
        assert_eq!(queue.pick(5), Some(1));
        queue.sleep(9);
        assert_eq!(queue.pick(9), None);
        assert_eq!(queue.tick(20), GiveWay::No);
    }
}
