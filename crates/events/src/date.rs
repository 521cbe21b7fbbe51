//! Dates in UTC.

/// Returns a number of seconds since 1970 as RFC 3339 writes it in UTC: `2026-11-25T10:47:54Z`.
#[must_use]
pub fn utc(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Years begin in March here, so a leap day is the last day of its year. There are 719,468 days from 0000-03-01 to
    // 1970-01-01, and 146,097 days in 400 years.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, later) = match month {
        0..10 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    let year = era * 400 + year + later;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Reads a date of RFC 3339: `2026-11-25` (the begin of that day in UTC), `2026-11-25T10:47:54Z`, with a fraction of
/// a second, without seconds, or with an offset such as `+01:00`. Returns `None` for anything else, and for dates
/// before 1970.
#[must_use]
pub fn unix_seconds(text: &str) -> Option<u64> {
    let digits = |text: &str, most: u64| -> Option<u64> {
        let number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.then(|| text.parse().ok())??;
        (number <= most).then_some(number)
    };
    let (date, time) = text.split_once(['T', 't']).unwrap_or((text, ""));
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if (year.len(), month.len(), day.len()) != (4, 2, 2) || parts.next().is_some() {
        return None;
    }
    let (year, month, day) = (digits(year, 9_999)?, digits(month, 12)?, digits(day, 31)?);
    if year < 1970 || month == 0 || day == 0 {
        return None;
    }
    // Years begin in March, as in `utc`.
    let (year, later) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400;
    let days = days + (153 * later + 2) / 5 + day - 1 - 719_468;
    let mut seconds = days * 86_400;
    if time.is_empty() {
        return (!text.contains(['T', 't'])).then_some(seconds);
    }
    let at = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (time, zone) = time.split_at(at);
    let mut parts = time.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0"));
    let second = second.split('.').next()?;
    if parts.next().is_some() {
        return None;
    }
    seconds += digits(hour, 24)? * 3_600 + digits(minute, 59)? * 60 + digits(second, 60)?;
    let Some(sign) = zone.chars().next().filter(|sign| !"Zz".contains(*sign)) else {
        return (zone.len() <= 1).then_some(seconds);
    };
    let zone: String = zone[1..].split(':').collect();
    let (hours, minutes) = zone.split_at_checked(2)?;
    let away = digits(hours, 24)? * 3_600 + digits(minutes, 59)? * 60;
    match sign {
        '+' => seconds.checked_sub(away),
        _ => Some(seconds + away),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for at in (0..4_102_444_800).step_by(86_399 * 7) {
            assert_eq!(unix_seconds(&utc(at)), Some(at));
            let day = &utc(at)[..10];
            assert_eq!(unix_seconds(day), Some(at - at % 86_400), "{day}");
        }
    }

    #[test]
    fn other_ways_and_what_is_none() {
        let noon = Some(1_764_072_000);
        for text in [
            "2025-11-25T12:00:00Z",
            "2025-11-25T12:00",
            "2025-11-25t12:00:00.25z",
            "2025-11-25T13:00:00+01:00",
            "2025-11-25T06:30:00-0530",
        ] {
            assert_eq!(unix_seconds(text), noon, "{text}");
        }
        for text in [
            "",
            "2025",
            "2025-11",
            "25-11-2025",
            "2025-13-01",
            "2025-00-01",
            "2025-11-25T",
            "1969-12-31",
            "2025-11-25T1Z",
            "2025-11-25T12:00x",
            "2025-11-25T12:00:00Zjunk",
            "2025-11-25-1",
            "+025-11-25",
            "2025-11-25T12:00+é1",
        ] {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }
}
