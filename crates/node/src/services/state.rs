//! All services of the host together: what is known of them, what it comes to, and what a change changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use kapi::ServiceKey;
use tracing::debug;

use super::board::{Pending, ServiceBoard};
use super::claims::{self, Claims};
use super::forget::{self, Forgetter};
use super::health::Health;
use super::host_service::HostService;
use super::ledger::{Ledger, Turn};
use super::wants::{self, Context, SetName};
use crate::gateway::Flow;
use crate::gateway::nft_text::Table;
use crate::gateway::service_flows::{self, BridgeContext};

/// Chain of the rules for external addresses that must stay on the node but have no node port.
const RULES: &str = "services-etp-no-nodeport";

/// Where in a bridge a flow is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowPlace {
    table: u8,
    priority: u16,
    matches: String,
}

/// What everything that is derived from services depends on besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Around {
    /// The host.
    pub(crate) context: Context,
    /// The gateway bridge, once its ports have numbers.
    pub(crate) bridge: Option<BridgeContext>,
}

/// Something a service's author has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The service.
    pub(crate) service: Arc<service::Service>,
    /// One word for machines.
    pub(crate) reason: &'static str,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

/// What changes of services change on the host.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    /// Entries of the firewall's sets and maps.
    pub(crate) elements: Vec<Turn<(SetName, String), Option<String>>>,
    /// The rules of a chain, if they change.
    pub(crate) rules: Option<(&'static str, Vec<String>)>,
    /// Flows that were there.
    pub(crate) old_flows: Vec<Flow>,
    /// Flows that are to be there in their place.
    pub(crate) new_flows: Vec<Flow>,
    /// What to tell.
    pub(crate) notices: Vec<Notice>,
}

/// The services of this host.
pub(crate) struct HostServices {
    node: String,
    board: ServiceBoard,
    around: Option<Around>,
    known: BTreeMap<ServiceKey, Arc<HostService>>,
    /// All services that exist are known.
    complete: bool,
    elements: Ledger<(SetName, String), Option<String>>,
    rules: BTreeMap<ServiceKey, Vec<String>>,
    flows: Ledger<FlowPlace, (String, u64)>,
    claims: Claims,
    health: Health,
    /// Services that did not get all the ports of the host they want.
    deprived: BTreeSet<ServiceKey>,
    forgetter: Forgetter,
}

fn split(flow: Flow) -> (FlowPlace, (String, u64)) {
    let Flow { table, priority, matches, actions, cookie } = flow;
    (FlowPlace { table, priority, matches }, (actions, cookie))
}

fn join(place: FlowPlace, (actions, cookie): (String, u64)) -> Flow {
    let FlowPlace { table, priority, matches } = place;
    Flow { table, priority, matches, actions, cookie }
}

impl HostServices {
    /// No services yet. `run_dir` has the sockets of Open vSwitch. Needs a tokio runtime.
    pub(crate) fn new(node: &str, board: ServiceBoard, run_dir: PathBuf) -> HostServices {
        HostServices {
            node: node.to_owned(),
            board,
            around: None,
            known: BTreeMap::new(),
            complete: false,
            elements: Ledger::default(),
            rules: BTreeMap::new(),
            flows: Ledger::default(),
            claims: Claims::default(),
            health: Health::default(),
            deprived: BTreeSet::new(),
            forgetter: Forgetter::start(run_dir),
        }
    }

    /// The board they are told on.
    pub(crate) fn board(&self) -> ServiceBoard {
        self.board.clone()
    }

    /// Whether everything is known, so that what is derived may be written.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// The host and the bridge are now so. Everything is derived anew if that is not as before.
    pub(crate) fn set_around(&mut self, around: Around) -> Vec<Notice> {
        let mut notices = Vec::new();
        if self.around.as_ref() == Some(&around) {
            for key in std::mem::take(&mut self.deprived) {
                if let Some(service) = self.known.get(&key).cloned() {
                    notices.extend(self.take_ports(&key, Some(&service)));
                }
            }
            return notices;
        }
        self.around = Some(around);
        self.elements = Ledger::default();
        self.rules.clear();
        self.flows = Ledger::default();
        for (key, service) in std::mem::take(&mut self.known) {
            let delta = self.replace(key, Some(service));
            notices.extend(delta.notices);
        }
        notices
    }

    /// Takes what was told since the last time; nothing before everything was told or before the surroundings are known.
    pub(crate) fn take(&mut self) -> Delta {
        let mut all = Delta::default();
        if self.around.is_none() {
            return all;
        }
        let Some(pending) = self.board.take() else { return all };
        self.complete = true;
        let before = self.chain_rules();
        for (key, service) in Pending::into_iter(pending) {
            let one = self.replace(key, service);
            all.elements.extend(one.elements);
            all.old_flows.extend(one.old_flows);
            all.new_flows.extend(one.new_flows);
            all.notices.extend(one.notices);
        }
        let after = self.chain_rules();
        all.rules = (before != after).then_some((RULES, after));
        all
    }

    /// Puts entries and rules into a table that has the sets and the chain.
    pub(crate) fn fill(&self, table: &mut Table) {
        for ((set, key), value) in self.elements.iter() {
            table.insert(set.0, element(key, value.as_deref()));
        }
        table.set_rules(RULES, self.chain_rules());
    }

    /// All flows.
    pub(crate) fn flows(&self) -> impl Iterator<Item = Flow> {
        self.flows.iter().map(|(place, value)| join(place.clone(), value.clone()))
    }

    fn chain_rules(&self) -> Vec<String> {
        self.rules.values().flatten().cloned().collect()
    }

    /// A service is now so, or gone.
    fn replace(&mut self, key: ServiceKey, new: Option<Arc<HostService>>) -> Delta {
        let mut delta = Delta::default();
        let Some(around) = &self.around else { return delta };
        let old = self.known.get(&key).cloned();
        if old.is_some() && old == new {
            return delta;
        }
        debug!(service = %key, known = new.is_some(), "service changed");
        let firewall = |service: &Option<Arc<HostService>>| {
            service.as_ref().map(|service| wants::firewall(&around.context, service)).unwrap_or_default()
        };
        let flows = |service: &Option<Arc<HostService>>| {
            let both = service.as_ref().zip(around.bridge.as_ref());
            both.map(|(service, bridge)| service_flows::desired(&around.context, bridge, service))
                .unwrap_or_default()
        };
        let (before, after) = (firewall(&old), firewall(&new));
        let gone = before.elements.into_iter().map(|(place, _)| place);
        delta.elements = self.elements.replace(&key, gone, after.elements);
        match after.rules.is_empty() {
            true => drop(self.rules.remove(&key)),
            false => drop(self.rules.insert(key.clone(), after.rules)),
        }
        let gone = flows(&old).into_iter().map(|flow| split(flow).0);
        let turns = self.flows.replace(&key, gone, flows(&new).into_iter().map(split));
        for Turn { place, before, after } in turns {
            delta.old_flows.extend(before.map(|value| join(place.clone(), value)));
            delta.new_flows.extend(after.map(|value| join(place, value)));
        }
        if let Some(old) = &old {
            self.forgetter.forget(forget::stale(&around.context, old, new.as_deref()));
        }
        delta.notices = self.take_ports(&key, new.as_deref());
        match new {
            Some(new) => drop(self.known.insert(key, new)),
            None => drop(self.known.remove(&key)),
        }
        delta
    }

    /// Opens the ports of the host that a service wants, and closes those it no longer wants.
    fn take_ports(&mut self, key: &ServiceKey, service: Option<&HostService>) -> Vec<Notice> {
        let Some(around) = &self.around else { return Vec::new() };
        let claims = service.map(|service| claims::wanted(&around.context, service)).unwrap_or_default();
        let conflicts = self.claims.replace(key, &claims);
        let asked = service.filter(|service| service.service.external_local);
        let port = asked.and_then(|service| service.service.health_check_port);
        let health = self.health.replace(key, port, asked.map_or(0, |service| service.ready_here));
        let mut notices = Vec::new();
        if let Some(service) = service {
            let notice = |reason, message| Notice { service: service.service.clone(), reason, message };
            notices.extend(conflicts.iter().map(|one| notice("PortClaim", one.message(&self.node))));
            notices.extend(health.err().map(|message| notice("HealthCheckNodePort", message)));
        }
        if notices.is_empty() {
            self.deprived.remove(key);
        } else {
            self.deprived.insert(key.clone());
        }
        notices
    }
}

/// An entry as nft writes it.
pub(crate) fn element(key: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("{key} : {value}"),
        None => key.to_owned(),
    }
}
