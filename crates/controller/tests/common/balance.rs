//! What clients of services must find on the node's switch and gateway router, told from the API objects alone and
//! compared with what the load balancers in the database say.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kapi::annotations::{GatewayConfig, GatewayMode};
use kapi::{EndpointSlice, Protocol, Service, ServiceType};
use ovsdb::Row;

use super::world::Zone;

/// Where traffic meets a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Switch,
    Router,
}

/// An address clients use: place, protocol, address with port.
pub(crate) type Vip = (Place, &'static str, String);

/// Where it leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) backends: BTreeSet<String>,
    /// Whether the client's address stays as it is.
    pub(crate) keeps_source: bool,
}

/// What the API objects ask for.
pub(crate) fn expected(zone: &Zone) -> BTreeMap<Vip, Answer> {
    let mut all = BTreeMap::new();
    let Some(node) = zone.nodes.get(zone.local()) else { return all };
    let gateway = GatewayConfig::parse(&node.metadata).expect("a readable gateway");
    let gateway = gateway.filter(|gateway| gateway.mode != GatewayMode::Disabled);
    let host: Vec<IpAddr> = match gateway.as_ref().is_some_and(|gateway| gateway.node_port) {
        true => kapi::annotations::parse_host_cidrs(&node.metadata)
            .expect("readable host addresses")
            .unwrap_or_default()
            .iter()
            .map(|net| net.addr())
            .collect(),
        false => Vec::new(),
    };
    let own: Vec<IpAddr> =
        gateway.iter().flat_map(|gateway| &gateway.addresses).map(|net| net.addr()).collect();
    for service in zone.services.values().filter(|service| is_balanced(service)) {
        let slices: Vec<&EndpointSlice> =
            zone.slices.values().filter(|slice| belongs(slice, service)).collect();
        for port in &service.spec.ports {
            let sets = Sets { service, slices: &slices, port, node: zone.local(), own: &own };
            let protocol = port.protocol.lower();
            let mut ask = |ip: IpAddr, number: i32, external: bool| {
                let etp = external && service.spec.external_traffic_policy == "Local";
                let itp = !external && service.spec.internal_traffic_policy.as_deref() == Some("Local");
                let vip = text(ip, number);
                let switch = Answer { backends: sets.of(ip, itp, false), keeps_source: false };
                all.insert((Place::Switch, protocol, vip.clone()), switch);
                if gateway.is_some() {
                    let backends = sets.of(ip, etp, true);
                    let keeps_source = etp && !backends.is_empty();
                    all.insert((Place::Router, protocol, vip), Answer { backends, keeps_source });
                }
            };
            let addresses = |list: &[String]| -> Vec<IpAddr> {
                list.iter().filter_map(|text| text.parse().ok()).collect()
            };
            for ip in addresses(&cluster_ips(service)) {
                ask(ip, port.port, false);
            }
            for ip in addresses(&service.spec.external_ips) {
                ask(ip, port.port, true);
            }
            if service.spec.kind == ServiceType::LoadBalancer {
                let ingress: Vec<String> =
                    service.status.load_balancer.ingress.iter().map(|entry| entry.ip.clone()).collect();
                for ip in addresses(&ingress) {
                    ask(ip, port.port, true);
                }
            }
            if port.node_port == 0 || service.spec.kind == ServiceType::ClusterIP {
                continue;
            }
            for ip in &host {
                ask(*ip, port.node_port, true);
            }
            if service.spec.external_traffic_policy == "Local" {
                for ip in &host {
                    let kept: IpAddr =
                        if ip.is_ipv4() { "169.254.169.3" } else { "fd69::3" }.parse().expect("an address");
                    let backends = sets.of(*ip, true, false);
                    let answer = Answer { backends, keeps_source: false };
                    all.insert((Place::Switch, protocol, text(kept, port.node_port)), answer);
                }
            }
        }
    }
    all
}

fn is_balanced(service: &Service) -> bool {
    let labels = &service.metadata.labels;
    !labels.contains_key(kapi::SERVICE_PROXY_NAME)
        && !labels.contains_key(kapi::HEADLESS)
        && service.spec.kind != ServiceType::ExternalName
        && cluster_ips(service).first().is_some_and(|ip| ip != "None" && !ip.is_empty())
}

fn cluster_ips(service: &Service) -> Vec<String> {
    match service.spec.cluster_ips.is_empty() {
        true => vec![service.spec.cluster_ip.clone()],
        false => service.spec.cluster_ips.clone(),
    }
}

fn belongs(slice: &EndpointSlice, service: &Service) -> bool {
    slice.service() == Some(kapi::ServiceKey::new(&service.metadata.namespace, &service.metadata.name))
}

struct Sets<'a> {
    service: &'a Service,
    slices: &'a [&'a EndpointSlice],
    port: &'a kapi::ServicePort,
    node: &'a str,
    own: &'a [IpAddr],
}

impl Sets<'_> {
    /// The endpoints for clients of `vip`: the local ones or all, as the switch or as the router writes them.
    fn of(&self, vip: IpAddr, local: bool, from_router: bool) -> BTreeSet<String> {
        let mut ready = BTreeSet::new();
        let mut draining = BTreeSet::new();
        for slice in self.slices {
            for port in slice.ports.iter().filter(|port| self.is_same(port)) {
                for endpoint in &slice.endpoints {
                    let Some(ip) = endpoint.addresses[0].parse::<IpAddr>().ok() else { continue };
                    let elsewhere = endpoint.node_name.as_deref() != Some(self.node);
                    if ip.is_ipv4() != vip.is_ipv4() || (local && elsewhere) {
                        continue;
                    }
                    let host: IpAddr =
                        if ip.is_ipv4() { "169.254.169.2" } else { "fd69::2" }.parse().expect("an address");
                    let ip = if from_router && self.own.contains(&ip) { host } else { ip };
                    let backend = text(ip, port.port.unwrap_or_default());
                    let conditions = &endpoint.conditions;
                    if conditions.ready != Some(false) || self.service.spec.publish_not_ready_addresses {
                        ready.insert(backend);
                    } else if conditions.serving == Some(true) && conditions.terminating == Some(true) {
                        draining.insert(backend);
                    }
                }
            }
        }
        if ready.is_empty() { draining } else { ready }
    }

    fn is_same(&self, port: &kapi::EndpointPort) -> bool {
        port.name == self.port.name && port.protocol == self.port.protocol && port.port.is_some()
    }
}

fn text(ip: IpAddr, port: impl std::fmt::Display) -> String {
    if ip.is_ipv4() { format!("{ip}:{port}") } else { format!("[{ip}]:{port}") }
}

/// What the database says. An address that two load balancers serve in one place is an error in any state.
pub(crate) fn found(zone: &Zone) -> BTreeMap<Vip, Answer> {
    let balancers: BTreeMap<_, Row> =
        zone.nb.rows("Load_Balancer").into_iter().map(|row| (row.uuid(), row)).collect();
    let groups: BTreeMap<_, Row> =
        zone.nb.rows("Load_Balancer_Group").into_iter().map(|row| (row.uuid(), row)).collect();
    let mut all: BTreeMap<Vip, Answer> = BTreeMap::new();
    let router = ovn::names::gateway_router(zone.local());
    let switch = zone.local().to_owned();
    for (place, table, name) in
        [(Place::Switch, "Logical_Switch", switch), (Place::Router, "Logical_Router", router)]
    {
        let rows = zone.nb.rows(table);
        let Some(row) = rows.iter().find(|row| row.str("name") == Some(&*name)) else { continue };
        let mut on: Vec<_> = row.get("load_balancer").expect("a column").uuids().collect();
        let of_groups = row.get("load_balancer_group").expect("a column").uuids();
        on.extend(of_groups.flat_map(|group| groups[&group].get("load_balancer").expect("a column").uuids()));
        for balancer in on.iter().map(|uuid| &balancers[uuid]) {
            let protocol = Protocol::ALL
                .into_iter()
                .map(Protocol::lower)
                .find(|name| balancer.str("protocol") == Some(name))
                .expect("a known protocol");
            let keeps_source = balancer.key("options", "skip_snat") == Some("true");
            for (vip, backends) in balancer.get("vips").expect("a column").str_pairs() {
                let list: Vec<String> =
                    backends.split(',').filter(|text| !text.is_empty()).map(str::to_owned).collect();
                let backends: BTreeSet<String> = list.iter().cloned().collect();
                assert_eq!(list.len(), backends.len(), "{vip} leads twice to the same: {list:?}");
                let answer = Answer { backends, keeps_source };
                let doubled = all.insert((place, protocol, vip.to_owned()), answer);
                assert!(doubled.is_none(), "two load balancers on the {place:?} serve {protocol} {vip}");
            }
        }
    }
    all
}

/// At rest the database says what the objects ask for, and no load balancer hangs in the air.
pub(crate) fn check(zone: &Zone) {
    let (wanted, found) = (expected(zone), found(zone));
    for (vip, answer) in &wanted {
        assert_eq!(found.get(vip), Some(answer), "{vip:?}");
    }
    let extra: Vec<&Vip> = found.keys().filter(|vip| !wanted.contains_key(*vip)).collect();
    assert!(extra.is_empty(), "addresses nobody asks for: {extra:?}");
    let owners: BTreeSet<String> =
        zone.services.values().filter(|service| is_balanced(service)).map(owner).collect();
    let mut listed = BTreeSet::new();
    for table in ["Logical_Switch", "Logical_Router", "Load_Balancer_Group"] {
        for row in zone.nb.rows(table) {
            listed.extend(row.get("load_balancer").expect("a column").uuids());
        }
    }
    for row in zone.nb.rows("Load_Balancer") {
        let name = row.str("name").unwrap_or_default().to_owned();
        let owner = row.key("external_ids", ovn::names::OWNER).unwrap_or_default();
        assert!(owners.contains(owner), "{name} has no service");
        assert!(listed.contains(&row.uuid()), "{name} is on nothing");
        assert!(!row.get("vips").expect("a column").is_empty(), "{name} serves nothing");
    }
}

fn owner(service: &Service) -> String {
    format!("{}/{}", service.metadata.namespace, service.metadata.name)
}
