//! Ranges of addresses as users write them.

use net::IpNet;

/// Reads a range; host bits are dropped, because OVN refuses a match that has them.
pub(crate) fn parse(text: &str) -> Result<IpNet, String> {
    text.parse::<IpNet>()
        .map(|net| net.trunc())
        .map_err(|_| format!("{text:?} is no range of addresses; write it like 10.0.0.0/8 or fd00::/64"))
}
