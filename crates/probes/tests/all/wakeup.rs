//! The wake-up probe beside a stall that is made: as root, where real-time threads may be made.

use stopgap_events::machine::Privilege;
use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::realtime::Realtime;
use stopgap_kernel::tasks::{ChildLimits, Tasks};
use stopgap_probes::wakeup::{MISSED, Policy, SLEPT_FOR, WAKE_UP, Wakeup};
use stopgap_probes::{Context, Probe};
use stopgap_stats::histogram::Histogram;
use stopgap_testing::{Skip, skip};

use crate::{alone, context, no_changes};

const LIMITS: ChildLimits = ChildLimits::within(Nanos::secs(20));
const STALL: Nanos = Nanos::millis(200);

/// A thread of higher priority takes the CPU for 200 ms:
///
/// ```text
/// intended   | | | | | | | | | ...  every millisecond
/// spinner          [-- 200 ms --)
/// ours       s s s s............s s s     slept for: one late sample
///                   mmmmmmmmmmmm          missed: samples from 199 ms down to 1 ms
/// ```
#[test]
fn a_stall_is_as_many_samples_as_it_held_up() {
    let _alone = alone();
    let mut try_it = || {
        Linux
            .set_fifo(90)
            .map_or_else(|e| e.to_string().into_bytes(), |()| Vec::new())
    };
    let refused = Linux.run_child(&LIMITS, &mut try_it).unwrap().output;
    if !refused.is_empty() {
        return skip(&Skip::root(String::from_utf8_lossy(&refused)));
    }
    let cpu = Linux.cpus().unwrap()[0];
    Linux.set_cpus(&[cpu]).unwrap(); // this test's own thread
    let at = Linux.now() + Nanos::millis(500);
    let spin = move || {
        Linux.set_fifo(90).unwrap();
        Linux.sleep_until(at);
        Linux.spin(STALL);
        Vec::new()
    };
    let spinner = Linux.start_child(&LIMITS, Box::new(spin)).unwrap();
    let probe = Wakeup {
        interval: Nanos::millis(1),
        policy: Policy::Fifo,
        priority: 80,
        stall: Nanos::millis(50),
        runs: 1,
    };
    let journal = no_changes(&Linux);
    let measured = probe
        .run(&Context {
            time: Nanos::secs(1),
            privilege: Privilege::Root,
            ..context(&Linux, &journal)
        })
        .unwrap();
    spinner.finish().unwrap();
    let of = |name: &str| {
        let mut all = measured.series.iter();
        all.find(|series| series.name == name).unwrap()
    };
    let late = |histogram: &Histogram, from: u64| -> u64 {
        let each = histogram
            .buckets()
            .filter(|(ns, _)| *ns >= from * 1_000_000);
        each.map(|(_, count)| count).sum()
    };
    let all = of(WAKE_UP).pooled();
    let slept = of(SLEPT_FOR).pooled();
    // Whatever else the machine does can only add. 198: begun within a period, and less the last one.
    for (from, least) in [(2, 198), (50, 149), (100, 99), (150, 49), (190, 9)] {
        let count = late(&all, from);
        assert!(count >= least, "{count} samples of {from} ms and more");
    }
    let longest = all.max().unwrap();
    assert!(longest >= 198_000_000, "{longest}");
    // What cyclictest counts: the wake-up that the stall ended with, once. No more stalls of 100 ms than ten fit into the second
    // that is measured; the hypervisor makes some.
    let kept = late(&slept, 100);
    assert!(
        (1..=10).contains(&kept),
        "{kept} wake-ups slept for were 100 ms late"
    );
    let missed: u64 = measured
        .counters
        .iter()
        .filter(|c| c.name == MISSED)
        .map(|c| c.value)
        .sum();
    assert_eq!(all.len(), slept.len() + missed);
    assert!(missed >= 198, "{missed}");
    let stalls = of(WAKE_UP).blocks[0].stalls.clone().unwrap();
    assert!(stalls.count >= 1, "one episode, not 150: {stalls:?}");
    let longest = stalls.episodes.iter().map(|stall| stall.length_ns).max();
    assert!(longest >= Some(198_000_000), "{stalls:?}");
    // Those of 50 ms that fit into a second; samples are 150.
    assert!(stalls.count <= 20, "{stalls:?}");
}
