//! CPU time that the machine and its processes have had, by `/proc`: counted in ticks of 10 ms.

use stopgap_events::units::Nanos;

use crate::error::{Error, Result};
use crate::files::{Files, read_text};
use crate::proc::stat_fields;

/// A tick of these files: one hundredth of a second on every architecture that we run on (`USER_HZ`).
const TICK: Nanos = Nanos::millis(10);

/// CPU time of all CPUs together, since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// All of it, idle time and steal included.
    pub all: Nanos,
    /// In which a CPU was used: by programs, the kernel and interrupts.
    pub busy: Nanos,
    /// In which the hypervisor gave the CPU to somebody else.
    pub steal: Nanos,
}

/// Reads the machine's CPU time.
///
/// # Errors
/// Where `/proc/stat` cannot be read, or its first line is not of the form that we know (proc_stat(5)).
pub fn of_machine(files: &(impl Files + ?Sized)) -> Result<CpuTime> {
    const STAT: &str = "/proc/stat";
    let text = read_text(files, STAT)?;
    let line = text.lines().next().unwrap_or_default();
    let numbers = line.strip_prefix("cpu ").map(|numbers| {
        let numbers = numbers.split_ascii_whitespace();
        numbers.map_while(|word| word.parse().ok())
    });
    let numbers: Vec<u64> = numbers.into_iter().flatten().collect();
    // Time of guests, which follows, is in user and nice already.
    let &[user, nice, system, idle, iowait, irq, softirq, steal, ..] = &numbers[..] else {
        let why = format!("line 1: '{line}' has no eight times of all CPUs");
        return Err(Error::parse(STAT, why));
    };
    let sum = |ticks: &[u64]| {
        ticks
            .iter()
            .fold(0_u64, |sum, &more| sum.saturating_add(more))
    };
    let busy = sum(&[user, nice, system, irq, softirq]);
    Ok(CpuTime {
        all: time(sum(&[busy, idle, iowait, steal])),
        busy: time(busy),
        steal: time(steal),
    })
}

/// Reads the CPU time of a process and of those children that ended and that it waited for.
///
/// # Errors
/// Where there is no such process, or its `stat` is not of the form that we know (proc_pid_stat(5)).
pub fn of_process(files: &(impl Files + ?Sized), pid: u32) -> Result<Nanos> {
    let file = format!("/proc/{pid}/stat");
    let text = read_text(files, &file)?;
    // utime, stime, cutime and cstime are the 14th field to the 17th; the first of these is the third.
    let fields = stat_fields(&text);
    let sum = |times: &[&str]| {
        times.iter().try_fold(0_u64, |sum, time| {
            Some(sum.saturating_add(time.parse().ok()?))
        })
    };
    let ticks = fields.get(11..15).and_then(sum);
    ticks
        .map(time)
        .ok_or_else(|| Error::parse(file, "fields 14 to 17 are no CPU times"))
}

fn time(ticks: u64) -> Nanos {
    Nanos(ticks.saturating_mul(TICK.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn times_of_the_machine() {
        let stat = "cpu  10 2 30 400 50 6 7 8 9 1\ncpu0 1 2 3\nintr 5\n";
        let fake = Fake::default().with_file("/proc/stat", stat);
        let expected = CpuTime {
            all: Nanos::millis(5_130),
            busy: Nanos::millis(550),
            steal: Nanos::millis(80),
        };
        assert_eq!(of_machine(&fake).unwrap(), expected);
        for broken in [
            "",
            "cpu",
            "cpu 1 2 3 4 5 6 7",
            "cpu0 1 2 3 4 5 6 7 8",
            "cpu 1 x 3 4 5 6 7 8",
        ] {
            let fake = Fake::default().with_file("/proc/stat", broken);
            let error = of_machine(&fake).unwrap_err().to_string();
            assert!(
                error.contains("/proc/stat") && error.contains("line 1"),
                "{error}"
            );
        }
        let most = format!("cpu {}", "18446744073709551615 ".repeat(8));
        let fake = Fake::default().with_file("/proc/stat", most);
        assert_eq!(of_machine(&fake).unwrap().all, Nanos(u64::MAX));
    }

    #[test]
    fn times_of_a_process() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 900 80 0 0 11 22 33 44 20 0 1 0 5 6 7\n";
        let fake = Fake::default().with_file("/proc/7/stat", stat);
        assert_eq!(of_process(&fake, 7).unwrap(), Nanos::millis(1_100));
        for broken in [
            "",
            "7 (sh) S 1 2",
            "7 (sh) S 1 7 7 0 -1 4 9 8 0 0 11 22 x 44 20",
        ] {
            let fake = Fake::default().with_file("/proc/7/stat", broken);
            let error = of_process(&fake, 7).unwrap_err().to_string();
            assert!(error.contains("fields 14 to 17"), "{error}");
        }
        assert!(of_process(&Fake::default(), 8).unwrap_err().is_absent());
    }
}
