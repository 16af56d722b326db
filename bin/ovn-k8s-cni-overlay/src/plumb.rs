//! Unprivileged mode: the server says what to do, the shim does it.

use std::time::{Duration, Instant};

use cni::{CniError, CniResult, Interface, Invocation, IpConfig, PodIfInfo};
use host::{
    Handle, NetNs,
    attach::{PodLink, PodLinkSpec, PodPair},
    link::NAME_MAX,
};

use crate::switch::{Port, Switch};

/// The same bound as the server's.
const PATIENCE: Duration = Duration::from_secs(120);

/// Attaches the pod; whatever was made is taken back if it fails.
pub(crate) fn add(invocation: &Invocation, info: &PodIfInfo) -> Result<CniResult, CniError> {
    let deadline = Instant::now() + PATIENCE;
    let netns = NetNs::open(&invocation.netns).map_err(failed)?;
    let spec = spec(invocation, info);
    let host = Handle::open().map_err(failed)?;
    PodLink::create(&host, &netns, &spec.pair).map_err(failed)?;
    let outcome = attach(invocation, info, &host, &netns, &spec, deadline);
    if outcome.is_err() {
        // The first error is the one to tell.
        let _ = del(invocation);
    }
    outcome.map(|link| result(invocation, &link, &spec))
}

/// Detaches the pod; what is gone already is no error.
pub(crate) fn del(invocation: &Invocation) -> Result<(), CniError> {
    // The link goes whatever becomes of the port.
    let ports = Switch::open().and_then(|mut s| s.remove(&invocation.container_id, &invocation.ifname));
    let (mut links, unplugged) = match ports {
        Ok(names) => (names, Ok(())),
        Err(e) => (Vec::new(), Err(e)),
    };
    let usual = host_name(&invocation.container_id);
    if !links.contains(&usual) {
        links.push(usual);
    }
    let host = Handle::open().map_err(failed)?;
    let deleted = links.iter().try_for_each(|name| host.delete_link_named(name).map(|_| ()).map_err(failed));
    unplugged.and(deleted)
}

fn attach(
    invocation: &Invocation,
    info: &PodIfInfo,
    host: &Handle,
    netns: &NetNs,
    spec: &PodLinkSpec,
    deadline: Instant,
) -> Result<PodLink, CniError> {
    let pod = &invocation.pod;
    let iface_id = format!("{}_{}", pod.namespace, pod.name);
    let port = Port {
        name: &spec.pair.host_name,
        iface_id: &iface_id,
        sandbox: &invocation.container_id,
        ifname: &invocation.ifname,
        info,
    };
    let mut switch = Switch::open()?;
    let interface = switch.plug(&port)?;
    let link = PodLink::configure(host, netns, spec).map_err(failed)?;
    switch.installed(interface, &port, deadline)?;
    // The pod works without; neighbours learn its addresses from its first packet.
    let _ = PodLink::announce(netns, spec);
    Ok(link)
}

fn spec(invocation: &Invocation, info: &PodIfInfo) -> PodLinkSpec {
    let network = &info.network;
    PodLinkSpec {
        pair: PodPair {
            host_name: host_name(&invocation.container_id),
            pod_name: invocation.ifname.clone(),
            mtu: info.mtu,
        },
        mac: network.mac.0,
        addresses: network.ips.clone(),
        gateways: network.gateways.clone(),
        routes: network.routes.iter().map(|r| (r.dest, r.next_hop)).collect(),
        route_mtu: (info.routable_mtu != 0).then_some(info.routable_mtu),
        disable_tx_checksum: info.disable_tx_checksum,
        skip_ip_config: info.skip_ip_config,
    }
}

fn host_name(sandbox: &str) -> String {
    sandbox.chars().take(NAME_MAX).collect()
}

fn result(invocation: &Invocation, link: &PodLink, spec: &PodLinkSpec) -> CniResult {
    let mac = |mac: [u8; 6]| mac.map(|b| format!("{b:02x}")).join(":");
    let gateway = |v6| spec.gateways.iter().copied().find(|g| g.is_ipv6() == v6);
    let host = Interface { name: link.host_name.clone(), mac: mac(link.host_mac), ..Interface::default() };
    let pod = Interface {
        name: spec.pair.pod_name.clone(),
        mac: mac(spec.mac),
        sandbox: invocation.netns.clone(),
        ..Interface::default()
    };
    let ip = |net: &ipnet::IpNet| IpConfig {
        interface: Some(1),
        address: *net,
        gateway: gateway(net.addr().is_ipv6()),
    };
    CniResult {
        interfaces: vec![host, pod],
        ips: spec.addresses.iter().map(ip).collect(),
        ..CniResult::default()
    }
}

fn failed(error: host::Error) -> CniError {
    CniError::internal(format!("failed to configure pod interface: {error}"))
}
