//! The load: a thread that pre-empts both tools' and takes the CPU.

use stopgap_cli::Failure;
use stopgap_events::random::Random;
use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::realtime::Realtime;
use stopgap_kernel::tasks::{ChildLimits, Running, Tasks};

/// Above the tools' threads.
const PRIORITY: u32 = super::PRIORITY + 10;
/// It takes the CPU for one part in so many, well below what a real-time thread may have
/// (`kernel.sched_rt_runtime_us`, 95 %).
const SHARE: u64 = 4;

/// A load at work; dropped, it is killed.
pub(super) struct Load {
    _child: Running,
}

/// Whether a real-time thread may be made here.
pub(super) fn possible() -> Result<(), Failure> {
    let mut body = || match Linux.set_fifo(PRIORITY) {
        Ok(()) => Vec::new(),
        Err(error) => error.to_string().into_bytes(),
    };
    let limits = ChildLimits {
        time: Nanos::secs(10),
        cgroup: None,
    };
    let outcome = Linux.run_child(&limits, &mut body)?;
    if outcome.output.is_empty() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&outcome.output).into_owned();
    Err(Failure::error(format!("{why}; needs root")))
}

/// How long the load of pair `number` of `of` takes the CPU for: on a logarithmic scale from the shortest to the
/// longest, each pair in a part of its own, in an order that is not the order of time.
pub(super) fn between(
    (shortest, longest): (Nanos, Nanos),
    number: u32,
    of: u32,
    random: &mut Random,
) -> Nanos {
    let within = random.below(1_000) as f64 / 1_000.0;
    // 7 shares no divisor with most counts of pairs; where it does, parts repeat, which does no harm.
    let part = (u64::from(number) * 7) % u64::from(of);
    let share = (part as f64 + within) / f64::from(of);
    let factor = longest.0 as f64 / shortest.0 as f64;
    Nanos((shortest.0 as f64 * factor.powf(share)) as u64)
}

impl Load {
    /// Takes `cpu` for `takes`, one part in [`SHARE`] of the time, for `time` at most.
    pub(super) fn repeated(cpu: u32, takes: Nanos, time: Nanos) -> Result<Load, Failure> {
        Load::start(cpu, time, move || {
            let end = Linux.now() + time;
            let mut next = Linux.now() + Nanos::millis(50);
            while next < end {
                Linux.sleep_until(next);
                Linux.spin(takes);
                next += Nanos(takes.0 * SHARE);
            }
        })
    }

    /// Takes `cpu` once, from `at` on, for `takes`.
    pub(super) fn once(cpu: u32, at: Nanos, takes: Nanos) -> Result<Load, Failure> {
        Load::start(cpu, Nanos::secs(30), move || {
            Linux.sleep_until(at);
            Linux.spin(takes);
        })
    }

    fn start(cpu: u32, time: Nanos, act: impl FnOnce() + 'static) -> Result<Load, Failure> {
        let limits = ChildLimits { time, cgroup: None };
        let body = move || {
            let ready = Linux
                .set_cpus(&[cpu])
                .and_then(|()| Linux.lock_memory())
                .and_then(|()| Linux.set_fifo(PRIORITY));
            if ready.is_ok() {
                act();
            }
            Vec::new()
        };
        let child = Linux.start_child(&limits, Box::new(body))?;
        Ok(Load { _child: child })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_spread_over_the_whole_range() {
        let mut random = Random::new(1);
        let range = (Nanos::millis(2), Nanos::millis(32));
        let mut all: Vec<u64> = (0..20)
            .map(|n| between(range, n, 20, &mut random).0)
            .collect();
        assert!(!all.is_sorted(), "not in the order of time");
        all.sort_unstable();
        for (at, takes) in (0u32..).zip(&all) {
            // The part of its own: 2 ms * 16^(at/20) to 2 ms * 16^((at+1)/20).
            let edge = |at: u32| 2e6 * 16f64.powf(f64::from(at) / 20.0);
            let takes = *takes as f64;
            assert!(
                edge(at) <= takes + 1.0 && takes < edge(at + 1),
                "{at}: {takes}"
            );
        }
    }
}
