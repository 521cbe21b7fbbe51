//! Clocks.

use stopgap_events::units::Nanos;

/// Time, as the system tells it. All points in time are on `CLOCK_MONOTONIC`.
pub trait Clock {
    /// Now, on the monotonic clock.
    fn now(&self) -> Nanos;

    /// CPU time that the calling thread has used.
    fn thread_cpu(&self) -> Nanos;

    /// Sleeps until the monotonic clock shows `deadline`; returns at once where that is past.
    /// A signal may end it early.
    fn sleep_until(&self, deadline: Nanos);

    /// Computes until the calling thread has used `work` of CPU time more; it may use a little
    /// more than that (two readings of the clock, some 200 ns each).
    fn spin(&self, work: Nanos) {
        let end = self.thread_cpu() + work;
        while self.thread_cpu() < end {
            std::hint::spin_loop();
        }
    }

    /// How long the machine was suspended since it booted, which the monotonic clock does not count; a microsecond more or less.
    fn suspended(&self) -> Nanos;

    /// Seconds since 1970, UTC.
    fn unix_seconds(&self) -> u64;
}
