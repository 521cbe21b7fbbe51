use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{Timespec, clock_gettime};
use stopgap_events::units::Nanos;

use super::{Linux, timespec};
use crate::clock::Clock;

fn nanos(time: Timespec) -> Nanos {
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

impl Clock for Linux {
    fn now(&self) -> Nanos {
        nanos(clock_gettime(rustix::time::ClockId::Monotonic))
    }

    fn thread_cpu(&self) -> Nanos {
        nanos(clock_gettime(rustix::time::ClockId::ThreadCPUTime))
    }

    fn sleep_until(&self, deadline: Nanos) {
        // Ended early by a signal: the caller looks at the interrupt flag next.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(deadline));
    }

    fn unix_seconds(&self) -> u64 {
        nanos(clock_gettime(rustix::time::ClockId::Realtime)).0 / 1_000_000_000
    }
}
