use stopgap_events::units::Nanos;

use super::Fake;
use crate::clock::Clock;

impl Fake {
    /// Lets time pass.
    pub fn pass(&self, time: Nanos) {
        let mut state = self.state();
        state.now_ns += time.0;
        state.change_due_files();
    }
}

impl Clock for Fake {
    fn now(&self) -> Nanos {
        Nanos(self.state().now_ns)
    }

    fn thread_cpu(&self) -> Nanos {
        // The only thread spends all time, except what it waited for.
        let state = self.state();
        Nanos(state.now_ns - state.waited_ns)
    }

    fn sleep_until(&self, deadline: Nanos) {
        let mut state = self.state();
        state.now_ns = state.now_ns.max(deadline.0);
        state.change_due_files();
    }

    fn spin(&self, work: Nanos) {
        self.pass(work);
    }

    fn unix_seconds(&self) -> u64 {
        1_700_000_000 + self.now().0 / 1_000_000_000
    }
}
