//! Dates in UTC.

/// Returns a number of seconds since 1970 as RFC 3339 writes it in UTC: `2026-11-25T10:47:54Z`.
#[must_use]
pub fn utc(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Years from March on, so that a leap day is the last one; 719,468 days from 0000-03-01 to 1970-01-01, 146,097 days
    // in 400 years.
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
