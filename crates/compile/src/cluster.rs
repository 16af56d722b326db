//! What exists once in every zone, whatever nodes and pods there are.

use net::{Dual, IpNet, Mac};
use ovn::names::{self, ObjectIds};
use policy::Direction;

use crate::acl;
use crate::desired::{Desired, RowId};
use crate::settings::Settings;
use crate::table;

/// Packets a second each kind of control-plane traffic may send to ovn-controller.
const COPP_RATE: u32 = 25;
/// Kinds of traffic that reach ovn-controller (ovn-nb(5), table Copp).
const COPP_KINDS: &[&str] = &[
    "arp",
    "arp-resolve",
    "bfd",
    "event-elb",
    "icmp4-error",
    "icmp6-error",
    "reject",
    "svc-monitor",
    "tcp-reset",
];

pub(crate) fn rows(settings: &Settings) -> Desired {
    let mut desired = Desired::default();
    protection(&mut desired, settings);
    groups(&mut desired, settings);
    cluster_router(&mut desired, settings);
    switches(&mut desired);
    desired
}

fn protection(desired: &mut Desired, settings: &Settings) {
    let mut meters: Vec<(String, u32)> =
        COPP_KINDS.iter().map(|kind| (format!("{kind}-rate-limiter"), COPP_RATE)).collect();
    meters.push((names::ACL_METER.to_owned(), settings.acl_logging_rate));
    let mut rates: Vec<u32> = meters.iter().map(|(_, rate)| *rate).collect();
    rates.sort_unstable();
    rates.dedup();
    for rate in rates {
        desired
            .row(table::METER_BAND, crate::identity::band_name("drop", i64::from(rate), 0))
            .set("action", "drop")
            .set("rate", i64::from(rate));
    }
    for (name, rate) in meters {
        let band = RowId::new(table::METER_BAND, crate::identity::band_name("drop", i64::from(rate), 0));
        desired
            .row(table::METER, &*name)
            .set("name", name)
            .set("unit", "pktps")
            .set("fair", true)
            .refs("bands", [band]);
    }
    desired
        .row(table::COPP, names::COPP)
        .set("name", names::COPP)
        .map("meters", COPP_KINDS.iter().map(|kind| (*kind, format!("{kind}-rate-limiter"))));
}

fn groups(desired: &mut Desired, settings: &Settings) {
    for name in [names::CLUSTER_LB_GROUP, names::SWITCH_LB_GROUP, names::ROUTER_LB_GROUP] {
        desired.row(table::LOAD_BALANCER_GROUP, name).set("name", name);
    }
    for name in ["clusterPortGroup", "clusterRtrPortGroup"] {
        let ids = ObjectIds::named("Cluster", name);
        desired
            .row(table::PORT_GROUP, ids.primary())
            .set("name", ids.hashed_name())
            .entries("external_ids", ids.external_ids().iter().cloned());
    }
    // A pod that reaches itself through a Service comes back from this address; no policy may cut that.
    let parts: Vec<String> =
        settings.hairpin().families().map(|(family, ip)| format!("{}.src == {ip}", family.ovn())).collect();
    let matching = match parts.as_slice() {
        [] => return,
        [one] => one.clone(),
        many => format!("({})", many.join(" || ")),
    };
    let parent = RowId::new(table::PORT_GROUP, ObjectIds::named("Cluster", "clusterPortGroup").primary());
    for (name, direction) in [("Ingress", Direction::Ingress), ("Egress", Direction::Egress)] {
        let keys = [(names::OBJECT_NAME, "allow-hairpinning"), ("direction", name)];
        acl::allow(desired, parent.clone(), &ObjectIds::new("NetpolDefault", &keys), direction, &matching);
    }
}

fn cluster_router(desired: &mut Desired, settings: &Settings) {
    let mut options = vec![("always_learn_from_arp_request", "false")];
    if settings.multicast {
        options.push(("mcast_relay", "true"));
    }
    desired
        .row(table::ROUTER, names::CLUSTER_ROUTER)
        .set("name", names::CLUSTER_ROUTER)
        .map("options", options)
        .entries("external_ids", [("k8s-cluster-router", "yes")])
        .refs("copp", [RowId::new(table::COPP, names::COPP)]);
    let port = names::router_to_join(names::CLUSTER_ROUTER);
    let addresses = settings.numbered(&settings.join, 1);
    router_port(desired, names::CLUSTER_ROUTER, &port, &addresses);
}

fn switches(desired: &mut Desired) {
    desired.row(table::SWITCH, names::JOIN_SWITCH).set("name", names::JOIN_SWITCH);
    let port = names::join_to_router(names::CLUSTER_ROUTER);
    let peer = names::router_to_join(names::CLUSTER_ROUTER);
    switch_port_to_router(desired, names::JOIN_SWITCH, &port, &[("router-port", &peer)]);
    let mut config = vec![
        ("interconn-ts", names::TRANSIT_SWITCH.to_owned()),
        ("requested-tnl-key", names::TRANSIT_TUNNEL_KEY.to_string()),
        ("mcast_snoop", "true".to_owned()),
        ("mcast_querier", "false".to_owned()),
        ("mcast_flood_unregistered", "true".to_owned()),
    ];
    config.sort();
    desired
        .row(table::SWITCH, names::TRANSIT_SWITCH)
        .set("name", names::TRANSIT_SWITCH)
        .map("other_config", config);
}

/// Adds a router port whose MAC follows from its first address.
pub(crate) fn router_port<'a>(
    desired: &'a mut Desired,
    router: &str,
    name: &str,
    addresses: &Dual<IpNet>,
) -> &'a mut crate::desired::RowSpec {
    desired.member(RowId::new(table::ROUTER, router), "ports", RowId::new(table::ROUTER_PORT, name));
    let row = desired.row(table::ROUTER_PORT, name);
    row.set("name", name).strings("networks", addresses.iter().map(IpNet::to_string));
    if let Some(first) = addresses.first() {
        row.set("mac", Mac::from_ip(first.addr()).to_string());
    }
    row
}

/// Adds a switch port that leads to a router port.
pub(crate) fn switch_port_to_router<'a>(
    desired: &'a mut Desired,
    switch: &str,
    name: &str,
    options: &[(&str, &str)],
) -> &'a mut crate::desired::RowSpec {
    desired.member(RowId::new(table::SWITCH, switch), "ports", RowId::new(table::SWITCH_PORT, name));
    let row = desired.row(table::SWITCH_PORT, name);
    row.set("name", name)
        .set("type", "router")
        .set("addresses", "router")
        .map("options", options.iter().copied());
    row
}
