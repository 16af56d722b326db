//! Does the underlay carry an overlay packet of full size? If not, large packets vanish while small ones pass, so the agent
//! refuses to start instead, or takes what fits where nobody said how large packets shall be.

use std::net::IpAddr;

use crate::addresses::HostAddress;
use crate::error::NodeError;
use crate::host_view::HostView;
use crate::settings::Settings;

/// The usual MTU of pods where the underlay has room for it.
pub const USUAL: u32 = 1400;
/// Bytes Geneve adds to an IPv4-only overlay.
pub const GENEVE_V4: u32 = 58;
/// Bytes Geneve adds where the overlay carries IPv6.
pub const GENEVE_V6: u32 = 78;

/// The least MTU the interface of a tunnel address needs.
pub fn required(settings: &Settings) -> u32 {
    settings.mtu + overhead(settings)
}

fn overhead(settings: &Settings) -> u32 {
    match (settings.encap.none, settings.has_v6()) {
        (true, _) => 0,
        (false, false) => GENEVE_V4,
        (false, true) => GENEVE_V6,
    }
}

/// The MTU of pods where none was given: the usual one, or less where the interface that tunnels leave by has no room for
/// it. Never more: pods that run have it, and other nodes need not have this one's network.
pub fn fitting(settings: &Settings, view: &HostView) -> u32 {
    let holds = |address: &&HostAddress| settings.encap.ips.contains(&address.net.addr());
    let of_tunnels = view.addresses.iter().find(holds).map(|address| address.interface.as_str());
    let named = Some(settings.gateway.interface.as_str()).filter(|name| !name.is_empty());
    let default = view.default_routes.iter().min_by_key(|route| route.metric);
    let interface = of_tunnels.or(named).or(default.map(|route| route.interface.as_str()));
    let mtu = interface.and_then(|interface| view.mtus.get(interface));
    mtu.map_or(USUAL, |mtu| mtu.saturating_sub(overhead(settings)).min(USUAL))
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
    fn where_none_was_given_the_usual_or_what_fits() {
        let view = |mtu: u32| HostView {
            addresses: vec![HostAddress { interface: "eth1".into(), net: "192.0.2.7/24".parse().unwrap() }],
            mtus: [("eth0".to_owned(), mtu), ("eth1".to_owned(), mtu + 1)].into(),
            default_routes: vec![crate::uplink::DefaultRoute {
                interface: "eth0".into(),
                gateway: "192.0.2.1".parse().unwrap(),
                metric: 0,
            }],
            ..HostView::default()
        };
        let mut settings = settings(false);
        assert_eq!(fitting(&settings, &view(1500)), 1400);
        assert_eq!(fitting(&settings, &view(9000)), 1400);
        assert_eq!(fitting(&settings, &view(1458)), 1400);
        assert_eq!(fitting(&settings, &view(1450)), 1392);
        settings.cluster_subnets.push("fd00::/48".parse().unwrap());
        assert_eq!(fitting(&settings, &view(1450)), 1372);
        settings.encap.ips = vec!["192.0.2.7".parse().unwrap()];
        assert_eq!(fitting(&settings, &view(1450)), 1373, "tunnels leave by the other interface");
        settings.encap = crate::Encap { none: true, ips: vec![], ..settings.encap };
        settings.gateway.interface = "eth1".into();
        assert_eq!(fitting(&settings, &view(1300)), 1301);
        assert_eq!(fitting(&settings, &HostView::default()), 1400, "nothing is known yet");
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
