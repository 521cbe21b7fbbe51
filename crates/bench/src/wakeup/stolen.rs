//! What the host takes of a CPU: the column `steal` of `/proc/stat`, in ticks of 10 ms (`USER_HZ`).

use stopgap_events::units::Nanos;
use stopgap_kernel::files::{Files, read_text};

const TICK: Nanos = Nanos::millis(10);

/// Taken of `cpu` since boot; `None`: not known. On hardware and under a host that does not say, it is 0 for ever.
pub(super) fn of(files: &(impl Files + ?Sized), cpu: u32) -> Option<Nanos> {
    let text = read_text(files, "/proc/stat").ok()?;
    let name = format!("cpu{cpu}");
    let line = text
        .lines()
        .find(|line| line.split(' ').next() == Some(&name))?;
    // user nice system idle iowait irq softirq steal
    let ticks: u64 = line.split_whitespace().nth(8)?.parse().ok()?;
    Some(Nanos(ticks.saturating_mul(TICK.0)))
}

/// What came between two readings.
pub(super) fn between(before: Option<Nanos>, after: Option<Nanos>) -> Option<Nanos> {
    Some(after?.saturating_sub(before?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::fake::Fake;

    #[test]
    fn the_column_of_the_cpu_is_read() {
        let stat = "cpu  1 2 3 4 5 6 7 900 9 9\ncpu1 1 2 3 4 5 6 7 800 9 9\ncpu10 1 2 3 4 5 6 7 35 0 0\nintr 1\n";
        let fake = Fake::default().with_file("/proc/stat", stat);
        assert_eq!(of(&fake, 10), Some(Nanos::millis(350)));
        assert_eq!(of(&fake, 0), None, "there is no such CPU");
        // Before 2.6.11 there was no such column.
        let old = Fake::default().with_file("/proc/stat", "cpu0 1 2 3 4 5 6 7\n");
        assert_eq!(of(&old, 0), None);
        assert_eq!(of(&Fake::default(), 0), None);
        assert!(of(&stopgap_kernel::Linux, 0).is_some());
    }

    #[test]
    fn what_is_not_known_is_not_0() {
        let ms = |ms| Some(Nanos::millis(ms));
        assert_eq!(between(ms(20), ms(50)), ms(30));
        assert_eq!(between(None, ms(50)), None);
        assert_eq!(between(ms(20), None), None);
    }
}
