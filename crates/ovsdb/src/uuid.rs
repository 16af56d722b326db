//! Row identities.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha1::{Digest, Sha1};

/// The identity of a row, chosen by whoever inserts it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid([u8; 16]);

/// A text that is not a UUID in the usual 8-4-4-4-12 form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID: {0:?}")]
pub struct UuidError(String);

// === impl Uuid ===

impl Uuid {
    /// All zero: the default of a UUID column, names no row.
    pub const NIL: Uuid = Uuid([0; 16]);
    /// The largest UUID, for ranges.
    pub(crate) const MAX: Uuid = Uuid([0xff; 16]);

    /// From its 16 bytes in network order.
    pub const fn from_bytes(bytes: [u8; 16]) -> Uuid {
        Uuid(bytes)
    }

    /// From one number, most significant byte first.
    pub const fn from_u128(value: u128) -> Uuid {
        Uuid(value.to_be_bytes())
    }

    /// The 16 bytes in network order.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Whether this is [`Uuid::NIL`].
    pub fn is_nil(&self) -> bool {
        *self == Uuid::NIL
    }

    /// The name-based UUID (RFC 9562, version 5) of `name` within `namespace`.
    ///
    /// The same name always gives the same UUID, which is what makes an insert safe to repeat.
    pub fn v5(namespace: &Uuid, name: &[u8]) -> Uuid {
        let digest = Sha1::new().chain_update(namespace.0).chain_update(name).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        bytes[6] = (bytes[6] & 0x0f) | 0x50;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Uuid(bytes)
    }

    /// Parses the 36 characters of a UUID, either case.
    pub(crate) fn parse(text: &[u8]) -> Option<Uuid> {
        if text.len() != 36 {
            return None;
        }
        let mut bytes = [0u8; 16];
        let mut nibbles = 0;
        for (at, c) in text.iter().enumerate() {
            if matches!(at, 8 | 13 | 18 | 23) {
                if *c != b'-' {
                    return None;
                }
                continue;
            }
            let digit = char::from(*c).to_digit(16)?;
            bytes[nibbles / 2] = (bytes[nibbles / 2] << 4) | digit as u8;
            nibbles += 1;
        }
        Some(Uuid(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; 36];
        let mut at = 0;
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                at += 1;
            }
            text[at] = HEX[usize::from(byte >> 4)];
            text[at + 1] = HEX[usize::from(byte & 15)];
            at += 2;
        }
        f.pad(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Uuid, UuidError> {
        Uuid::parse(text.as_bytes()).ok_or_else(|| UuidError(text.chars().take(64).collect()))
    }
}

impl Serialize for Uuid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uuid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Uuid, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let text = "550e8400-e29b-41d4-a716-446655440000";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.to_string(), text);
        assert_eq!(uuid, Uuid::from_u128(0x550e8400_e29b_41d4_a716_446655440000));
        assert_eq!(text.to_uppercase().parse::<Uuid>().unwrap(), uuid);
        for bad in ["", "550e8400e29b41d4a716446655440000", "550e8400-e29b-41d4-a716-44665544000g"] {
            assert!(bad.parse::<Uuid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn name_based_uuid_is_the_standard_one() {
        // The example of RFC 9562, appendix A.4.
        let dns: Uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8".parse().unwrap();
        assert_eq!(Uuid::v5(&dns, b"www.example.com").to_string(), "2ed6657d-e927-568b-95e1-2665a8aea6a2");
    }
}
