//! Which address leads to which endpoints, in each place.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use kapi::Protocol;
use net::Family;
use ovn::names;
use service::{Backend, FrontendKind, MAX_AFFINITY, PortView, View};

use super::site::Site;
use crate::settings::Settings;

/// Addresses with ports, and the endpoints each leads to, as OVN writes both.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Vips(BTreeMap<String, String>);

/// The addresses of one service and protocol by place.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// The same everywhere.
    pub(super) cluster: Vips,
    /// On the node's gateway router.
    pub(super) router: Vips,
    /// On the node's gateway router, leaving the client's address as it is.
    pub(super) kept_source: Vips,
    /// On the node's switch.
    pub(super) switch: Vips,
    /// Node ports at addresses that are variables: router and switch by family.
    pub(super) templates: BTreeMap<Family, (Vips, Vips)>,
}

impl Vips {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_texts(self) -> BTreeMap<String, String> {
        self.0
    }

    fn add(&mut self, address: &str, port: u16, targets: &str) {
        let known = self.0.entry(format!("{address}:{port}")).or_default();
        if !known.is_empty() && !targets.is_empty() {
            known.push(',');
        }
        known.push_str(targets);
    }
}

impl Rules {
    pub(super) fn of(view: &View<'_>, protocol: Protocol, settings: &Settings, site: &Site<'_>) -> Rules {
        let mut rules = Rules::default();
        for port in view.ports.iter().filter(|port| port.port.protocol == protocol) {
            rules.port(view, port, settings, site);
        }
        rules
    }

    fn port(&mut self, view: &View<'_>, port: &PortView<'_>, settings: &Settings, site: &Site<'_>) {
        let service = view.service;
        let remembers = service.affinity.is_some_and(|seconds| seconds < MAX_AFFINITY);
        let on_hosts = port.cluster.iter().any(|backend| site.is_outside(backend.ip));
        for frontend in service.frontends(port.port) {
            let outside = frontend.kind != FrontendKind::ClusterIp;
            let policy = Policy {
                external_local: outside && service.external_local,
                internal_local: !outside && service.internal_local,
            };
            match frontend.ip {
                None if settings.service_templates && !policy.external_local && !remembers => {
                    for family in settings.families() {
                        self.template(frontend.port, port, site, family);
                    }
                }
                None => {
                    for family in [Family::V4, Family::V6] {
                        for ip in site.addresses(family) {
                            if policy.external_local
                                && let Some(kept) = site.kept(family)
                            {
                                // What the host sends to a node port of its own comes in by this address.
                                let targets = targets(&port.local, family, |ip| ip);
                                self.switch
                                    .0
                                    .insert(format!("{}:{}", bracketed(kept), frontend.port), targets);
                            }
                            self.on_node(ip, frontend.port, port, policy, site);
                        }
                    }
                }
                // External addresses keep to the place of the cluster addresses unless their policy differs.
                Some(ip) if on_hosts || service.internal_local || policy.external_local => {
                    self.on_node(ip, frontend.port, port, policy, site);
                }
                Some(ip) => {
                    let targets = targets(&port.cluster, Family::of(ip), |ip| ip);
                    self.cluster.add(&bracketed(ip), frontend.port, &targets);
                }
            }
        }
    }

    fn on_node(&mut self, ip: IpAddr, number: u16, port: &PortView<'_>, policy: Policy, site: &Site<'_>) {
        let family = Family::of(ip);
        let address = bracketed(ip);
        let inside = if policy.internal_local { &port.local } else { &port.cluster };
        self.switch.add(&address, number, &targets(inside, family, |ip| ip));
        let outside = if policy.external_local { &port.local } else { &port.cluster };
        let from_router = targets(outside, family, |ip| site.through_router(ip));
        let place = match policy.external_local && !from_router.is_empty() {
            true => &mut self.kept_source,
            false => &mut self.router,
        };
        place.add(&address, number, &from_router);
    }

    fn template(&mut self, number: u16, port: &PortView<'_>, site: &Site<'_>, family: Family) {
        let count = site.addresses(family).count();
        if count == 0 {
            return;
        }
        let (router, switch) = self.templates.entry(family).or_default();
        for index in 0..count {
            let address = format!("^{}", names::node_address_variable(family.name(), index));
            switch.add(&address, number, &targets(&port.cluster, family, |ip| ip));
            router.add(&address, number, &targets(&port.cluster, family, |ip| site.through_router(ip)));
        }
    }
}

#[derive(Clone, Copy)]
struct Policy {
    external_local: bool,
    internal_local: bool,
}

/// The endpoints of a family, comma separated, each once.
fn targets(backends: &[Backend], family: Family, address: impl Fn(IpAddr) -> IpAddr) -> String {
    let mut text = String::new();
    let mut seen: Vec<(IpAddr, u16)> = Vec::new();
    for backend in backends.iter().filter(|backend| backend.family() == family) {
        let ip = address(backend.ip);
        if ip != backend.ip {
            if seen.contains(&(ip, backend.port)) {
                continue;
            }
            seen.push((ip, backend.port));
        }
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{}:{}", bracketed(ip), backend.port);
    }
    text
}

/// An address as it stands before a port.
fn bracketed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}
