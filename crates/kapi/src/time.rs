//! Times as the API writes them.

use std::time::{Duration, SystemTime};

/// Reads an RFC 3339 time in UTC, the form `metav1.Time` has (`2026-11-29T08:15:00Z`, fractions allowed).
pub fn parse_time(text: &str) -> Option<SystemTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = clock.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = u64::try_from(days_since_1970(year, month, day)).ok()?;
    let micros: u32 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, micros * 1000))
}

/// Days of the proleptic Gregorian calendar; years are counted from March so that the leap day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        let since = |text: &str| {
            parse_time(text).map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros())
        };
        assert_eq!(since("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(since("2000-02-29T12:00:00Z"), Some(951_825_600_000_000));
        assert_eq!(since("2026-11-29T20:20:53.25Z"), Some(1_795_983_653_250_000));
        for bad in ["", "2026-11-29", "2026-13-01T00:00:00Z", "2026-11-29T20:20:53", "x-y-zT1:2:3Z"] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }
}
