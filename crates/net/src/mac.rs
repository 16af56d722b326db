//! Ethernet addresses and the rule that derives them from IP addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// An Ethernet (MAC) address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

/// The text is not six colon-separated hexadecimal octets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address (expected six hexadecimal octets such as 0a:58:0a:80:00:03)")]
pub struct ParseMacError(pub String);

impl Mac {
    /// The address OVN-Kubernetes gives to the owner of `ip`: `0a:58` followed by the four IPv4 octets, or by
    /// the first four octets of SHA-256 over the textual IPv6 address.
    pub fn from_ip(ip: IpAddr) -> Mac {
        let tail = match ip {
            IpAddr::V4(v4) => v4.octets(),
            IpAddr::V6(v6) => {
                let digest = Sha256::digest(v6.to_string().as_bytes());
                [digest[0], digest[1], digest[2], digest[3]]
            }
        };
        Mac([0x0a, 0x58, tail[0], tail[1], tail[2], tail[3]])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Mac, ParseMacError> {
        let bad = || ParseMacError(text.to_owned());
        let mut octets = [0u8; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *octet = u8::from_str_radix(part.ok_or_else(bad)?, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(Mac(octets))
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Mac, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_octets_become_the_tail() {
        assert_eq!(Mac::from_ip("10.244.0.3".parse().unwrap()).to_string(), "0a:58:0a:f4:00:03");
    }

    #[test]
    fn ipv6_uses_the_digest_of_the_text() {
        let digest = Sha256::digest(b"fd00:10:244:1::3");
        let mac = Mac::from_ip("fd00:10:244:1::3".parse().unwrap());
        assert_eq!(mac.0[..2], [0x0a, 0x58]);
        assert_eq!(mac.0[2..], digest[..4]);
    }

    #[test]
    fn text_round_trips_and_bad_text_is_refused() {
        let mac: Mac = "0A:58:0a:f4:00:03".parse().unwrap();
        assert_eq!(mac.to_string().parse::<Mac>().unwrap(), mac);
        for bad in [
            "",
            "0a:58",
            "0a:58:0a:f4:00:03:01",
            "0a-58-0a-f4-00-03",
            "+a:58:0a:f4:00:03",
            "0a:58:0a:f4:00:0",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad:?} was accepted");
        }
    }
}
