//! Services: one load balancer for each protocol and each place where it works differently.
//!
//! | place | when |
//! |---|---|
//! | `cluster` | addresses whose endpoints are the same wherever traffic comes from; in the group of all switches and routers |
//! | `node_router+switch_…` | addresses of the node, and those whose endpoints are on hosts, where router and switch agree |
//! | `node_router_…`, `node_switch_…` | the same where they differ |
//! | `node_local_router_…` | traffic from outside that stays on the node and keeps its source address |
//! | `node_…_template_…` | addresses of the nodes as variables; only where the flag for templates is set |
//!
//! The database is this zone's and the zone is one node, so all of them are for the node itself.

mod ranges;
mod rules;
mod site;

use kapi::{Protocol, ServiceKey};
use net::Family;
use ovn::names;
use service::{MAX_AFFINITY, Service};
use world::{NodeState, World};

use crate::desired::{Desired, RowId, RowSpec};
use crate::settings::Settings;
use crate::table;
use rules::{Rules, Vips};
use site::Site;

/// Longest affinity in seconds OVN can express (ovn-nb(5), `affinity_timeout`).
const LONGEST_AFFINITY: u32 = 65_535;

/// The rows of one service.
pub(crate) fn rows(world: &World, settings: &Settings, node: &NodeState, key: &ServiceKey) -> Desired {
    let mut desired = Desired::default();
    let Some(view) = world.service_view(key) else { return desired };
    let site = Site::new(settings, node);
    ranges::add(&mut desired, view.service, node);
    for protocol in Protocol::ALL {
        let rules = Rules::of(&view, protocol, settings, &site);
        let balancers = Balancers { settings, site: &site, service: view.service, protocol };
        balancers.cluster(&mut desired, rules.cluster);
        balancers.node(&mut desired, rules.router, rules.kept_source, rules.switch);
        for (family, vips) in rules.templates {
            balancers.templates(&mut desired, family, vips);
        }
    }
    desired
}

/// What the users of a service should know about it, in words.
pub fn problems(world: &World, key: &ServiceKey) -> Vec<String> {
    let Some(view) = world.service_view(key) else { return Vec::new() };
    let mut problems: Vec<String> =
        view.service.problems.iter().map(ToString::to_string).chain(view.problems).collect();
    if let Some(seconds) = view.service.affinity.filter(|seconds| is_clamped(*seconds)) {
        problems.push(format!(
            "session affinity of {seconds} s is shortened to {LONGEST_AFFINITY} s, the longest OVN can keep; ask for at most {LONGEST_AFFINITY} s, or for {MAX_AFFINITY} s, which means for ever"
        ));
    }
    problems
}

/// The variables load balancers find this node's addresses in.
pub(crate) fn templates(settings: &Settings, node: &NodeState) -> Desired {
    let mut desired = Desired::default();
    let Some(chassis) = node.chassis.as_deref().filter(|_| settings.service_templates) else {
        return desired;
    };
    let site = Site::new(settings, node);
    let mut variables = Vec::new();
    for family in settings.families() {
        let addresses = site.addresses(family).map(|ip| ip.to_string());
        let names = (0..).map(|index| names::node_address_variable(family.name(), index));
        variables.extend(names.zip(addresses));
    }
    desired.row(table::CHASSIS_TEMPLATE_VAR, chassis).set("chassis", chassis).map("variables", variables);
    desired
}

fn is_clamped(seconds: u32) -> bool {
    seconds > LONGEST_AFFINITY && seconds < MAX_AFFINITY
}

struct Balancers<'a> {
    settings: &'a Settings,
    site: &'a Site<'a>,
    service: &'a Service,
    protocol: Protocol,
}

impl Balancers<'_> {
    fn cluster(&self, desired: &mut Desired, vips: Vips) {
        if !vips.is_empty() {
            let id = self.balancer(desired, "cluster", vips).id.clone();
            let group = RowId::new(table::LOAD_BALANCER_GROUP, names::CLUSTER_LB_GROUP);
            desired.member(group, "load_balancer", id);
        }
    }

    fn node(&self, desired: &mut Desired, router: Vips, kept_source: Vips, switch: Vips) {
        let has_router = self.site.router.is_some();
        let node = self.site.node;
        if has_router && kept_source.is_empty() && router == switch && !switch.is_empty() {
            let id = self.balancer(desired, &format!("node_router+switch_{node}"), switch).id.clone();
            self.on_router(desired, id.clone());
            self.on_switch(desired, id);
            return;
        }
        if has_router && !router.is_empty() {
            let id = self.balancer(desired, &format!("node_router_{node}"), router).id.clone();
            self.on_router(desired, id);
        }
        if has_router && !kept_source.is_empty() {
            let row = self.balancer(desired, &format!("node_local_router_{node}"), kept_source);
            option(row, "skip_snat", "true");
            let id = row.id.clone();
            self.on_router(desired, id);
        }
        if !switch.is_empty() {
            let id = self.balancer(desired, &format!("node_switch_{node}"), switch).id.clone();
            self.on_switch(desired, id);
        }
    }

    fn templates(&self, desired: &mut Desired, family: Family, (router, switch): (Vips, Vips)) {
        let places = [("switch", switch, names::SWITCH_LB_GROUP), ("router", router, names::ROUTER_LB_GROUP)];
        for (place, vips, group) in places {
            if vips.is_empty() {
                continue;
            }
            let row = self.balancer(desired, &format!("node_{place}_template_{}", family.name()), vips);
            option(row, "template", "true");
            option(row, "address-family", &family.name().to_lowercase());
            let id = row.id.clone();
            desired.member(RowId::new(table::LOAD_BALANCER_GROUP, group), "load_balancer", id);
        }
    }

    fn on_router(&self, desired: &mut Desired, id: RowId) {
        if let Some(router) = &self.site.router {
            desired.member(RowId::new(table::ROUTER, &**router), "load_balancer", id);
        }
    }

    fn on_switch(&self, desired: &mut Desired, id: RowId) {
        desired.member(RowId::new(table::SWITCH, self.site.node), "load_balancer", id);
    }

    fn balancer<'d>(&self, desired: &'d mut Desired, scope: &str, vips: Vips) -> &'d mut RowSpec {
        let service = self.service.key.as_str();
        let name = names::load_balancer(service, self.protocol.name(), scope);
        let asleep = self.settings.empty_lb_events && self.service.idled;
        let hairpin =
            [Family::V4, Family::V6].into_iter().filter_map(|family| self.settings.masqueraded(family, 5));
        let hairpin: Vec<String> = hairpin.map(|ip| ip.to_string()).collect();
        let mut options = vec![
            ("event", asleep.to_string()),
            ("hairpin_snat_ip", hairpin.join(" ")),
            ("neighbor_responder", "none".to_owned()),
            ("reject", (!asleep).to_string()),
            ("skip_snat", "false".to_owned()),
        ];
        let mut selection: &[&str] = &[];
        match self.service.affinity {
            None => {}
            // For ever: nothing is learned, the client's address alone decides.
            Some(MAX_AFFINITY..) => selection = &["ip_dst", "ip_src"],
            Some(seconds) => options.push(("affinity_timeout", seconds.min(LONGEST_AFFINITY).to_string())),
        }
        desired
            .row(table::LOAD_BALANCER, &*name)
            .set("name", name)
            .set("protocol", self.protocol.lower())
            .map("external_ids", [(names::KIND, "Service"), (names::OWNER, service)])
            .map("options", options)
            .strings("selection_fields", selection.iter().copied())
            .map("vips", vips.into_texts())
    }
}

/// Sets one option of a row that has options.
fn option(row: &mut RowSpec, key: &str, value: &str) {
    row.put_entry("options", key, value);
}
