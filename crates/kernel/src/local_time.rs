//! The time of day where the machine stands, for people and for names of files; in UTC for other machines.

pub use stopgap_events::date::utc;

/// A moment as clocks on walls show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// As 2026.
    pub year: i32,
    /// 1 to 12.
    pub month: i32,
    /// 1 to 31.
    pub day: i32,
    /// 0 to 23.
    pub hour: i32,
    /// 0 to 59.
    pub minute: i32,
    /// 0 to 60.
    pub second: i32,
}

impl LocalTime {
    /// Returns the time of a number of seconds since 1970, UTC, in the time zone of this process (`TZ`, `/etc/localtime`);
    /// `None` beyond the years that the C library knows.
    #[must_use]
    pub fn at(unix_seconds: u64) -> Option<LocalTime> {
        let seconds = libc::time_t::try_from(unix_seconds).ok()?;
        // SAFETY: an all-zero tm is a valid value (its zone is a null pointer, which nobody reads);
        // localtime_r fills it and gives null where it cannot.
        let tm = unsafe {
            let mut tm: libc::tm = std::mem::zeroed();
            if libc::localtime_r(&raw const seconds, &raw mut tm).is_null() {
                return None;
            }
            tm
        };
        Some(LocalTime {
            year: tm.tm_year + 1900,
            month: tm.tm_mon + 1,
            day: tm.tm_mday,
            hour: tm.tm_hour,
            minute: tm.tm_min,
            second: tm.tm_sec,
        })
    }

    /// `14:02:11`.
    #[must_use]
    pub fn clock(self) -> String {
        format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second)
    }

    /// `20261121-140211`: names of files in the order of time.
    #[must_use]
    pub fn stamp(self) -> String {
        format!(
            "{:04}{:02}{:02}-{:02}{:02}{:02}",
            self.year, self.month, self.day, self.hour, self.minute, self.second
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each day of 500 years, counted one by one.
    #[test]
    fn days_of_the_calendar() {
        let mut day = 0_u64;
        for year in 1970_u64..2470 {
            let leap = year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
            let lengths = [
                31,
                28 + u64::from(leap),
                31,
                30,
                31,
                30,
                31,
                31,
                30,
                31,
                30,
                31,
            ];
            for (month, length) in (1..).zip(lengths) {
                for date in 1..=length {
                    let expected = format!("{year}-{month:02}-{date:02}T23:59:58Z");
                    assert_eq!(utc(day * 86_400 + 86_398), expected);
                    day += 1;
                }
            }
        }
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
    }

    /// No zone is further from UTC than 14 hours.
    #[test]
    fn a_known_moment() {
        let time = LocalTime::at(1_700_000_000).unwrap(); // 2023-11-14 22:13:20 UTC
        assert_eq!((time.year, time.month, time.second), (2023, 11, 20));
        assert!(time.day == 14 || time.day == 15);
        assert!(time.clock().ends_with(":20"), "{}", time.clock());
        assert_eq!(time.stamp().len(), 15);
        assert!(time.stamp().starts_with("2023111"));
        assert_eq!(LocalTime::at(u64::MAX), None);
    }
}
