//! Records that full rings of the kernel lost: how many, when, and how late watch read them.

use stopgap_events::units::Nanos;

/// From one line to the next, at least.
const APART: Nanos = Nanos::secs(60);

/// Records lost so far.
#[derive(Debug, Default)]
pub(super) struct Losses {
    all: u64,
    /// Lost records that no line has named yet.
    untold: u64,
    /// The longest time between two readings after which records were missing.
    late: Nanos,
    /// When the rings were read last.
    read: Option<Nanos>,
    /// When a line may come again.
    next: Nanos,
}

impl Losses {
    /// The rings were read at `now`, and `lost` records more were missing. Returns a line where one is due.
    pub(super) fn read(&mut self, now: Nanos, lost: u64) -> Option<String> {
        let gap = now.saturating_sub(self.read.replace(now).unwrap_or(now));
        if lost > 0 {
            self.all += lost;
            self.untold += lost;
            self.late = self.late.max(gap);
        }
        if self.untold == 0 || now < self.next {
            return None;
        }
        self.next = now + APART;
        let line = format!(
            "{} records were lost because a ring of the kernel was full: watch had not read it for up to {}",
            std::mem::take(&mut self.untold),
            std::mem::take(&mut self.late)
        );
        Some(line)
    }

    /// Returns how many records were lost.
    pub(super) fn all(&self) -> u64 {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_when_it_happens_and_once_a_minute() {
        let mut losses = Losses::default();
        let at = Nanos::millis;
        assert_eq!(losses.read(at(100), 0), None);
        assert_eq!(
            losses.read(at(620), 25).as_deref(),
            Some(
                "25 records were lost because a ring of the kernel was full: watch had not read it for up to 520 ms"
            )
        );
        assert_eq!(losses.read(at(700), 4), None, "soon after");
        assert_eq!(losses.read(at(60_000), 6), None);
        let later = losses.read(at(61_000), 0).unwrap();
        assert!(
            later.starts_with("10 records") && later.ends_with("59.3 s"),
            "{later}"
        );
        assert_eq!(losses.read(at(200_000), 0), None);
        assert_eq!(losses.all(), 35);
    }
}
