//! Ages as kubectl shows them.

use serde_json::Value;

use crate::identity::{now_seconds, parse_time};

/// Time since a timestamp; `<unknown>` without one.
pub(crate) fn age(timestamp: &Value) -> String {
    match timestamp.as_str().and_then(parse_time) {
        Some(then) => human(now_seconds() - then),
        None => "<unknown>".into(),
    }
}

/// A duration with two units where the second still matters.
pub(super) fn human(seconds: i64) -> String {
    let s = seconds.max(0);
    let (minutes, hours, days) = (s / 60, s / 3600, s / 86_400);
    let years = days / 365;
    let pair = |a: i64, unit: char, b: i64, small: char| {
        if b == 0 { format!("{a}{unit}") } else { format!("{a}{unit}{b}{small}") }
    };
    match () {
        () if s < 120 => format!("{s}s"),
        () if minutes < 10 => pair(minutes, 'm', s % 60, 's'),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => pair(days, 'd', hours % 24, 'h'),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => pair(years, 'y', days % 365, 'd'),
        () => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (86_400, "24h"),
            (200_000, "2d7h"),
            (700_000, "8d"),
            (86_400 * 800, "2y70d"),
        ];
        for (seconds, want) in cases {
            assert_eq!(human(seconds), want);
        }
    }
}
