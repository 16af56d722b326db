//! The interface of a pod: a veth pair with its end in the pod's namespace, addressed and announced.
//!
//! Shared by the CNI server and by the shim in unprivileged mode. Two steps, so that the first can be over before the
//! pod's addresses are known: [`PodLink::create`] makes the pair (its host end may join the bridge at once),
//! [`PodLink::configure`] gives the pod's end its MAC, addresses and routes.
//!
//! The pair is made when it is needed. Pairs kept ready would cost more: moving an end into the pod's namespace waits for
//! a grace period of the kernel (15 ms), making it there does not (0.5 ms).

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    Error, Handle, MacBytes, NetNs, Result,
    addr::AddrFlags,
    announce::Announcer,
    link::{LinkChange, VethEnd},
    route::Route,
    sysctl,
};

/// Transmit queue of a pod interface, as the reference's with bandwidth limits; 0 would mean no queue at all.
const TXQLEN: u32 = 1000;

/// The two ends of a pod's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPair {
    /// Name on the host, at most 15 characters.
    pub host_name: String,
    /// Name in the pod.
    pub pod_name: String,
    /// MTU of both ends.
    pub mtu: u32,
}

/// What the pod's interface shall be.
#[derive(Debug, Clone)]
pub struct PodLinkSpec {
    /// Its ends.
    pub pair: PodPair,
    /// MAC address of the pod's end.
    pub mac: MacBytes,
    /// Addresses with prefix length.
    pub addresses: Vec<IpNet>,
    /// Default gateways.
    pub gateways: Vec<IpAddr>,
    /// Further routes; no next hop is on-link.
    pub routes: Vec<(IpNet, Option<IpAddr>)>,
    /// MTU the routes carry; none if they need none.
    pub route_mtu: Option<u32>,
    /// Finish checksums in the pod (userspace datapath).
    pub disable_tx_checksum: bool,
    /// Leave addresses and routes to the guest.
    pub skip_ip_config: bool,
}

/// A pod's interface that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodLink {
    /// Name on the host.
    pub host_name: String,
    /// MAC address of the host's end.
    pub host_mac: MacBytes,
}

// === impl PodLink ===

impl PodLink {
    /// Creates the pair: host end up in the namespace of `host`, the other end, still down, in `pod`. A leftover
    /// host link of that name (an earlier attempt of the same sandbox) is replaced.
    pub fn create(host: &Handle, pod: &NetNs, pair: &PodPair) -> Result<()> {
        use std::os::fd::AsFd;
        // The switch's userspace datapath reads packets beside the kernel. Without this the kernel would answer a pod
        // that asks for one of the node's addresses, the management port's among them, and mislead it.
        let end = VethEnd { name: &pair.host_name, up: true, no_arp: true, ..VethEnd::default() };
        let peer = VethEnd { name: &pair.pod_name, netns: Some(pod.as_fd()), ..VethEnd::default() };
        if let Err(e) = host.create_veth(&end, &peer, pair.mtu, TXQLEN) {
            if !e.is_exists() {
                return Err(e);
            }
            // Either end may be in the way: ours from an earlier attempt, or an interface of the pod.
            host.delete_link_named(&pair.host_name)?;
            host.create_veth(&end, &peer, pair.mtu, TXQLEN)?;
        }
        Ok(())
    }

    /// Brings the pod's end up with its addresses and routes, and looks at the host's end. After it no address is
    /// tentative. Runs in the pod's namespace on a thread of its own.
    pub fn configure(host: &Handle, pod: &NetNs, spec: &PodLinkSpec) -> Result<PodLink> {
        pod.run(|| configure_here(spec))??;
        let link = host.link_required(&spec.pair.host_name)?;
        Ok(PodLink { host_name: link.name, host_mac: link.mac.unwrap_or_default() })
    }

    /// Tells the neighbours who has the addresses now. Meant for the moment the port carries packets. Closing the
    /// socket that comes back takes the kernel some 10 ms (an RCU grace period), so drop it when nobody waits.
    pub fn announce(pod: &NetNs, spec: &PodLinkSpec) -> Result<Option<Announcer>> {
        if spec.skip_ip_config || spec.addresses.is_empty() {
            return Ok(None);
        }
        pod.run(|| {
            let index = Handle::open()?.link_required(&spec.pair.pod_name)?.index;
            let announcer = Announcer::open()?;
            for net in &spec.addresses {
                announcer.announce(index, spec.mac, net.addr())?;
            }
            Ok(Some(announcer))
        })?
    }

    /// Whether the pod's end has the addresses and is up; the error says what is missing.
    pub fn check(pod: &NetNs, pod_name: &str, mac: Option<MacBytes>, addresses: &[IpNet]) -> Result<()> {
        let handle = pod.handle()?;
        let link = handle.link_required(pod_name)?;
        if !link.up {
            return Err(Error::Invalid(format!("interface {pod_name} is down")));
        }
        if let Some(mac) = mac
            && link.mac != Some(mac)
        {
            return Err(Error::Invalid(format!(
                "interface {pod_name} has MAC address {}, expected {}",
                link.mac.map(mac_text).unwrap_or_default(),
                mac_text(mac)
            )));
        }
        let have = handle.addresses(Some(link.index))?;
        match addresses.iter().find(|want| !have.iter().any(|a| a.net == **want)) {
            Some(missing) => {
                Err(Error::Invalid(format!("interface {pod_name} does not have address {missing}")))
            }
            None => Ok(()),
        }
    }
}

fn configure_here(spec: &PodLinkSpec) -> Result<()> {
    let handle = Handle::open()?;
    let index = handle.link_required(&spec.pair.pod_name)?.index;
    let wants_v6 = !spec.skip_ip_config && spec.addresses.iter().any(|net| net.addr().is_ipv6());
    if wants_v6 {
        let conf = |key, value| sysctl::set(&["net", "ipv6", "conf", &spec.pair.pod_name, key], value);
        // Some runtimes switch IPv6 off in a new namespace.
        conf("disable_ipv6", "0")?;
        // OVN owns the addresses: nobody can have them twice, and nothing may be tentative when ADD returns.
        conf("accept_dad", "0")?;
        conf("dad_transmits", "0")?;
    }
    if spec.disable_tx_checksum {
        handle.set_tx_checksum(&spec.pair.pod_name, false)?;
    }
    // The kernel sets the MAC before it brings the link up, so the link-local address made from it (mode 0) is the one
    // that port security expects.
    let addr_gen_mode = wants_v6.then_some(0);
    let change = LinkChange { up: Some(true), mac: Some(spec.mac), addr_gen_mode, ..LinkChange::default() };
    handle.set_link(index, &change)?;
    if spec.skip_ip_config {
        return Ok(());
    }
    let flags = AddrFlags { nodad: true, ..AddrFlags::default() };
    for net in &spec.addresses {
        handle.replace_address(index, *net, flags)?;
    }
    for gateway in &spec.gateways {
        let route = Route { oif: Some(index), mtu: spec.route_mtu, ..Route::default_via(*gateway) };
        handle.replace_route(&route)?;
    }
    for (dst, gateway) in &spec.routes {
        let route = Route { oif: Some(index), gateway: *gateway, mtu: spec.route_mtu, ..Route::to(*dst) };
        handle.replace_route(&route)?;
    }
    Ok(())
}

fn mac_text(mac: MacBytes) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}
