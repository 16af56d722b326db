//! The interface of a pod: a veth pair with its end in the pod's namespace, addressed and announced.
//!
//! Shared by the CNI server and by the shim in unprivileged mode. Two steps, so that the first can be over before the
//! pod's addresses are known: [`PodLink::create`] makes the pair (its host end may join the bridge at once),
//! [`PodLink::configure`] gives the pod's end its MAC, addresses and routes.
//!
//! The pair is made when it is needed. Pairs kept ready would cost more: moving an end into the pod's namespace waits for
//! a grace period of the kernel (15 ms), making it there does not (0.5 ms).

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

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

/// The kernel makes no link-local address by itself (`IN6_ADDR_GEN_MODE_NONE`).
const GENERATE_NONE: u8 = 1;
/// The kernel makes one from the MAC address (`IN6_ADDR_GEN_MODE_EUI64`).
const GENERATE_EUI64: u8 = 0;

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
    if wants_v6 {
        // The kernel's own link-local address would be tentative until its work queue has got round to it; ours never
        // is. A request of its own: in one request the link would come up first.
        handle
            .set_link(index, &LinkChange { addr_gen_mode: Some(GENERATE_NONE), ..LinkChange::default() })?;
    }
    handle.set_link(index, &LinkChange { up: Some(true), mac: Some(spec.mac), ..LinkChange::default() })?;
    if spec.skip_ip_config {
        return Ok(());
    }
    let flags = AddrFlags { nodad: true, ..AddrFlags::default() };
    if wants_v6 {
        handle.replace_address(index, link_local(spec.mac), flags)?;
        // As the kernel had it, for a link that somebody takes down and up again.
        let addr_gen_mode = Some(GENERATE_EUI64);
        handle.set_link(index, &LinkChange { addr_gen_mode, ..LinkChange::default() })?;
    }
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

/// The link-local address made from a MAC address (RFC 4291, appendix A), the one that port security expects.
fn link_local([a, b, c, d, e, f]: MacBytes) -> IpNet {
    let pair = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    let ip = Ipv6Addr::new(0xfe80, 0, 0, 0, pair(a ^ 2, b), pair(c, 0xff), pair(0xfe, d), pair(e, f));
    IpNet::V6(Ipv6Net::new_assert(ip, 64))
}

fn mac_text(mac: MacBytes) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}
