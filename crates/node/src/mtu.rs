//! Does the underlay carry an overlay packet of full size? If not, large packets vanish while small ones pass,
//! so the agent refuses to start instead.

use std::net::IpAddr;

use crate::addresses::HostAddress;
use crate::error::NodeError;
use crate::settings::Settings;

/// Bytes Geneve adds to an IPv4-only overlay.
pub const GENEVE_V4: u32 = 58;
/// Bytes Geneve adds where the overlay carries IPv6.
pub const GENEVE_V6: u32 = 78;

/// The least MTU the interface of a tunnel address needs.
pub fn required(settings: &Settings) -> u32 {
    match (settings.encap.none, settings.has_v6()) {
        (true, _) => settings.mtu,
        (false, false) => settings.mtu + GENEVE_V4,
        (false, true) => settings.mtu + GENEVE_V6,
    }
}

/// Checks the interface of every tunnel address. An address no interface holds is not an error here: it may sit
/// behind address translation, and the interface that carries it is unknown then.
pub fn check(
    settings: &Settings,
    encap_ips: &[IpAddr],
    addresses: &[HostAddress],
    mtu_of: impl Fn(&str) -> Option<u32>,
) -> Result<(), NodeError> {
    let required = required(settings);
    for ip in encap_ips {
        let Some(holder) = addresses.iter().find(|a| a.net.addr() == *ip) else { continue };
        let Some(mtu) = mtu_of(&holder.interface) else { continue };
        if mtu < required {
            return Err(NodeError::MtuTooSmall {
                interface: holder.interface.clone(),
                encap_ip: *ip,
                mtu,
                overlay: settings.mtu,
                required,
                largest: settings.mtu.saturating_sub(required - mtu),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(v6: bool) -> Settings {
        let mut cidrs = vec!["10.244.0.0/16".parse().unwrap()];
        if v6 {
            cidrs.push("fd00:10:244::/48".parse().unwrap());
        }
        Settings { mtu: 1400, ..Settings::new("n1", cidrs, vec![]) }
    }

    fn check_mtu(settings: &Settings, mtu: u32) -> Result<(), NodeError> {
        let addresses = [HostAddress { interface: "eth0".into(), net: "192.0.2.7/24".parse().unwrap() }];
        check(settings, &["192.0.2.7".parse().unwrap()], &addresses, |name| (name == "eth0").then_some(mtu))
    }

    #[test]
    fn overhead_depends_on_the_families_of_the_overlay() {
        assert!(check_mtu(&settings(false), 1458).is_ok());
        assert!(check_mtu(&settings(false), 1457).is_err());
        assert!(check_mtu(&settings(true), 1478).is_ok());
        assert!(check_mtu(&settings(true), 1477).is_err());
    }

    #[test]
    fn no_overhead_without_an_overlay() {
        let mut settings = settings(true);
        settings.encap.none = true;
        assert!(check_mtu(&settings, 1400).is_ok());
        assert!(check_mtu(&settings, 1399).is_err());
    }

    #[test]
    fn the_error_names_interface_need_and_cure() {
        let text = check_mtu(&settings(false), 1450).unwrap_err().to_string();
        for part in ["eth0", "192.0.2.7", "1450", "1400", "1458", "1392"] {
            assert!(text.contains(part), "{part} missing in: {text}");
        }
    }

    #[test]
    fn a_tunnel_address_of_no_interface_is_let_through() {
        let settings = settings(false);
        assert!(check(&settings, &["203.0.113.1".parse().unwrap()], &[], |_| Some(100)).is_ok());
    }
}
