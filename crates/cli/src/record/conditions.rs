//! Other work of the machine during a recording.

use stopgap_events::machine::Pressure;
use stopgap_events::units::Nanos;
use stopgap_kernel::System;
use stopgap_kernel::cpu_time::{self, CpuTime};
use stopgap_kernel::environment;
use stopgap_kernel::linux::Ended;
use stopgap_trace::Conditions;

/// The state of the machine when the recording of a process began.
pub(super) struct Before {
    pids: Vec<u32>,
    pressure: Vec<Pressure>,
    machine: Option<CpuTime>,
    program: Option<Nanos>,
    recorder: Nanos,
}

impl Before {
    /// Reads the state of the machine and of the processes `pids`.
    pub(super) fn read(system: &dyn System, pids: Vec<u32>) -> Before {
        Before {
            pressure: environment::pressure(system).0,
            machine: cpu_time::of_machine(system).ok(),
            program: of_processes(system, &pids),
            recorder: system.thread_cpu(),
            pids,
        }
    }

    /// Returns the conditions from then until now. `ended` has the CPU time of the process where it has ended.
    pub(super) fn until_now(self, system: &dyn System, ended: Option<&Ended>) -> Conditions {
        let program = match ended {
            Some(ended) => Some(ended.user_time + ended.system_time),
            None => of_processes(system, &self.pids),
        };
        let own = program.zip(self.program);
        let recorder = system.thread_cpu().saturating_sub(self.recorder);
        let own = own.map(|(now, before)| now.saturating_sub(before) + recorder);
        let machine = cpu_time::of_machine(system).ok().zip(self.machine);
        let since = |of: fn(CpuTime) -> Nanos| {
            machine.map(|(now, before)| of(now).saturating_sub(of(before)))
        };
        let busy = since(|time| time.busy);
        Conditions {
            pressure_before: self.pressure,
            pressure_after: environment::pressure(system).0,
            cpu_time_ns: since(|time| time.all),
            steal_ns: since(|time| time.steal),
            // The kernel counts the machine's time in ticks, which may be fewer than a process has had.
            others_ns: busy.zip(own).map(|(busy, own)| busy.saturating_sub(own)),
        }
    }
}

/// The CPU time of all these processes; `None` where that of one is unknown.
fn of_processes(system: &dyn System, pids: &[u32]) -> Option<Nanos> {
    let times = pids
        .iter()
        .map(|&pid| cpu_time::of_process(system, pid).ok());
    let sum = times.sum::<Option<Nanos>>();
    sum.filter(|_| !pids.is_empty())
}

#[cfg(test)]
mod tests {
    use stopgap_kernel::clock::Clock;
    use stopgap_kernel::fake::Fake;

    use super::*;

    fn stat(user: u64, idle: u64, steal: u64) -> String {
        format!("cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\n")
    }

    fn process(user: u64) -> String {
        format!("7 (sh) S 1 7 7 0 -1 4194560 900 80 0 0 {user} 0 0 0 20 0 1 0 5\n")
    }

    #[test]
    fn others_have_what_neither_the_program_nor_the_recorder_had() {
        let fake = Fake::default();
        fake.put("/proc/stat", stat(1_000, 5_000, 10));
        fake.put("/proc/7/stat", process(100));
        let before = Before::read(&fake, vec![7]);
        fake.put("/proc/stat", stat(1_090, 5_100, 15));
        fake.put("/proc/7/stat", process(130));
        fake.spin(Nanos::millis(200));
        let conditions = before.until_now(&fake, None);
        assert_eq!(conditions.cpu_time_ns, Some(Nanos::millis(1_950)));
        assert_eq!(conditions.steal_ns, Some(Nanos::millis(50)));
        let others = conditions.others_ns.unwrap();
        assert!(
            others <= Nanos::millis(400) && others > Nanos::millis(399),
            "{others}"
        );
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let fake = Fake::default();
        fake.put("/proc/stat", stat(1_000, 5_000, 10));
        let conditions = Before::read(&fake, vec![7]).until_now(&fake, None);
        assert_eq!(conditions.steal_ns, Some(Nanos(0)));
        assert_eq!(conditions.others_ns, None, "the process has no stat");
    }
}
