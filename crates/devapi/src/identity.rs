//! Random and time based identity of objects: uids, name suffixes, tokens, timestamps.

use std::time::{SystemTime, UNIX_EPOCH};

fn fill(bytes: &mut [u8]) {
    let secure = rustls::crypto::ring::default_provider().secure_random;
    if secure.fill(bytes).is_err() {
        // The kernel's generator never fails on a running Linux; a clock keeps uids distinct if it ever does.
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (nanos >> ((at % 16) * 8)) as u8;
        }
    }
}

/// A random (version 4) uid.
pub(crate) fn random_uid() -> String {
    let mut b = [0u8; 16];
    fill(&mut b);
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let hex = |part: &[u8]| part.iter().map(|x| format!("{x:02x}")).collect::<String>();
    format!("{}-{}-{}-{}-{}", hex(&b[..4]), hex(&b[4..6]), hex(&b[6..8]), hex(&b[8..10]), hex(&b[10..]))
}

/// Five characters as appended to `generateName`; no vowels, so that no words arise.
pub(crate) fn random_suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut b = [0u8; 5];
    fill(&mut b);
    b.iter().map(|x| char::from(ALPHABET[usize::from(*x) % ALPHABET.len()])).collect()
}

/// A bearer token.
pub(crate) fn random_token() -> String {
    let mut b = [0u8; 16];
    fill(&mut b);
    b.iter().map(|x| format!("{x:02x}")).collect()
}

/// Now, as written in `creationTimestamp`.
pub(crate) fn now() -> String {
    seconds_text(now_seconds())
}

/// Seconds since 1970.
pub(crate) fn now_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// RFC 3339 in UTC with whole seconds.
pub(crate) fn seconds_text(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Day number since 1970-01-01 → date of the proleptic Gregorian calendar, counted in years from March.
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let doy = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

/// Seconds since 1970 of an RFC 3339 text; `None` if it is not one.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    let b = text.as_bytes();
    if b.len() < 20
        || b[4] != b'-'
        || b[7] != b'-'
        || !matches!(b[10], b'T' | b't')
        || b[13] != b':'
        || b[16] != b':'
    {
        return None;
    }
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = text.get(range)?;
        part.bytes().all(|c| c.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut zone = text.get(19..)?;
    if let Some(fraction) = zone.strip_prefix('.') {
        zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        if zone.len() == fraction.len() {
            return None;
        }
    }
    let offset = match zone.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), a, b, b':', c, d] if [a, b, c, d].iter().all(|x| x.is_ascii_digit()) => {
            let n = |x: &u8| i64::from(x - b'0');
            let seconds = (n(a) * 10 + n(b)) * 3600 + (n(c) * 10 + n(d)) * 60;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    Some(day_number(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_a_round_trip() {
        for s in [0, 951_782_400, 1_709_164_800, 4_102_444_799, 1_234_567_890] {
            assert_eq!(parse_time(&seconds_text(s)), Some(s));
        }
        assert_eq!(seconds_text(1_709_164_800), "2024-02-29T00:00:00Z");
        assert_eq!(parse_time("2024-02-29T01:00:00.123456+01:00"), Some(1_709_164_800));
        for bad in ["", "2024-02-30T00:00:00Z", "2024-01-01", "2024-01-01T00:00:00", "2024-01-01T00:00:00.Z"]
        {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn uids_are_version_4_and_differ() {
        let (a, b) = (random_uid(), random_uid());
        assert_ne!(a, b);
        assert_eq!((a.len(), a.as_bytes()[14]), (36, b'4'));
    }
}
