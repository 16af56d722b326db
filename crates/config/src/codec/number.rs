//! Booleans, integers, durations, ranges.

use super::Codec;
use std::{fmt, time::Duration};

/// A boolean as Go's flag package reads it.
pub(crate) struct Bool;

impl Codec for Bool {
    type Out = bool;
    const PLACEHOLDER: &'static str = "";
    const BOOLEAN: bool = true;
    const WEAK_DEFAULT: bool = true;

    fn parse(text: &str) -> Result<bool, String> {
        // The file's dialect adds yes/no and on/off to the words of Go's strconv.
        match text.to_ascii_lowercase().as_str() {
            "1" | "t" | "true" | "yes" | "on" => Ok(true),
            "" | "0" | "f" | "false" | "no" | "off" => Ok(false),
            _ => Err("is not a boolean; write true or false".into()),
        }
    }
}

/// An integer from `MIN` to `MAX`, decimal or with the prefix 0x, 0o or 0b.
pub(crate) struct Number<const MIN: u64, const MAX: u64, T>(std::marker::PhantomData<T>);

impl<const MIN: u64, const MAX: u64, T: TryFrom<u64> + PartialEq> Codec for Number<MIN, MAX, T> {
    type Out = T;
    const PLACEHOLDER: &'static str = "N";
    const WEAK_DEFAULT: bool = true;

    fn parse(text: &str) -> Result<T, String> {
        let number = integer(text).ok_or("is not a whole number")?;
        if !(MIN..=MAX).contains(&number) {
            return Err(format!("is out of range; it must be {MIN} to {MAX}"));
        }
        T::try_from(number).map_err(|_| format!("is out of range; it must be {MIN} to {MAX}"))
    }
}

fn integer(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let (digits, radix) = match text.get(..2) {
        Some("0x" | "0X") => (&text[2..], 16),
        Some("0o" | "0O") => (&text[2..], 8),
        Some("0b" | "0B") => (&text[2..], 2),
        _ => (text, 10),
    };
    // from_str_radix would take another sign.
    digits
        .starts_with(|c: char| c.is_ascii_alphanumeric())
        .then(|| u64::from_str_radix(digits, radix).ok())?
}

/// Whole seconds, or a duration with units.
pub(crate) struct Seconds;
/// Whole milliseconds, or a duration with units.
pub(crate) struct Millis;
/// A duration with units (`1h2m3.5s`); a bare number is seconds.
pub(crate) struct GoDuration;

fn duration(text: &str, unit: Duration) -> Result<Duration, String> {
    // Bounded so that sums of settings cannot overflow.
    const MAX: Duration = Duration::from_secs(10 * 366 * 86_400);
    let value = match integer(text) {
        Some(number) => {
            unit.checked_mul(u32::try_from(number).map_err(|_| "is too long a time (more than ten years)")?)
        }
        None => go_duration(text),
    };
    match value {
        Some(value) if value <= MAX => Ok(value),
        Some(_) => Err("is too long a time (more than ten years)".into()),
        None => Err("is not a duration; write a number or for example 90s, 1m30s, 250ms".into()),
    }
}

macro_rules! duration_codec {
    ($name:ident, $placeholder:literal, $unit:expr) => {
        impl Codec for $name {
            type Out = Duration;
            const PLACEHOLDER: &'static str = $placeholder;
            const WEAK_DEFAULT: bool = true;

            fn parse(text: &str) -> Result<Duration, String> {
                duration(text, $unit)
            }
        }
    };
}
duration_codec!(Seconds, "SECONDS", Duration::from_secs(1));
duration_codec!(Millis, "MILLISECONDS", Duration::from_millis(1));
duration_codec!(GoDuration, "DURATION", Duration::from_secs(1));

/// A non-negative duration in Go's notation; nothing if it is not one or does not fit.
pub(crate) fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    let mut nanos = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_len = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        nanos += number
            * match &rest[..unit_len] {
                "ns" => 1.0,
                "us" | "µs" | "μs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                _ => return None,
            };
        rest = &rest[unit_len..];
    }
    (nanos.is_finite() && nanos < u64::MAX as f64).then(|| Duration::from_nanos(nanos.round() as u64))
}

/// A VLAN id, 0 for none.
pub(crate) struct VlanId;

impl Codec for VlanId {
    type Out = Option<u16>;
    const PLACEHOLDER: &'static str = "ID";
    const WEAK_DEFAULT: bool = true;

    fn parse(text: &str) -> Result<Option<u16>, String> {
        match integer(text) {
            Some(0) => Ok(None),
            Some(id @ 1..=4094) => Ok(Some(id as u16)),
            _ => Err("is not a VLAN id; write 1 to 4094, or 0 for none".into()),
        }
    }
}

/// An inclusive range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// First port.
    pub min: u16,
    /// Last port.
    pub max: u16,
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}

/// `min-max`.
pub(crate) struct Ports;

impl Codec for Ports {
    type Out = Option<PortRange>;
    const PLACEHOLDER: &'static str = "MIN-MAX";

    fn parse(text: &str) -> Result<Option<PortRange>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let bad = || "is not a port range; write it as 32768-60999, the lower port first".to_owned();
        let (min, max) = text.split_once('-').ok_or_else(bad)?;
        let port = |t: &str| t.trim().parse::<u16>().ok().filter(|p| *p > 0).ok_or_else(bad);
        let range = PortRange { min: port(min)?, max: port(max)? };
        if range.min > range.max { Err(bad()) } else { Ok(Some(range)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in
            [("100s", 100_000), ("1m30s", 90_000), ("0.5h", 1_800_000), ("1h0m1.5s", 3_601_500)]
        {
            assert_eq!(go_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "1x", "-1s", "1s2", ".s", "1..2s", "1e9s"] {
            assert_eq!(go_duration(text), None, "{text}");
        }
        assert_eq!(Millis::parse("180000"), Ok(Duration::from_secs(180)));
        assert_eq!(Seconds::parse("137"), Ok(Duration::from_secs(137)));
        assert_eq!(Seconds::parse("2m"), Ok(Duration::from_secs(120)));
        assert!(Seconds::parse("99999999999").is_err());
        assert!(Seconds::parse("9999999h").is_err());
    }

    #[test]
    fn integers() {
        type Port = Number<0, 65535, u16>;
        assert_eq!(Port::parse("0x10"), Ok(16));
        assert_eq!(Port::parse("+7"), Ok(7));
        for text in ["", "-1", "++1", "0x", "0x+1", "1 ", "é"] {
            assert!(Port::parse(text).is_err(), "{text}");
        }
        assert_eq!(Port::parse("65536"), Err("is out of range; it must be 0 to 65535".into()));
    }

    #[test]
    fn port_ranges() {
        assert_eq!(Ports::parse("1024-2048"), Ok(Some(PortRange { min: 1024, max: 2048 })));
        for text in ["1024", "2-1", "0-5", "1-70000", "a-b"] {
            assert!(Ports::parse(text).is_err(), "{text}");
        }
    }
}
