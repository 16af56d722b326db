//! A zone around the core: an API with watches that lag, databases that can fail, and a check of what must
//! always hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use compile::Db;
use controller::{
    Change, Core, Input, Output, PatchError, PolicyCondition, PolicyObject, TxnFailure, Unreadable,
};
use kapi::annotations::POD_NETWORKS;
use kapi::{EndpointSlice, Namespace, Node, Pod, PodKey, Service, ServiceKey};
use ovsdb::{Op, Rejection, Row, Update};
use policy::{Kind, Policy, PolicyId};

use super::database::Database;
use super::objects;

/// What happens to a transaction or a patch on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Made and answered.
    Made,
    /// Lost before it reached the server.
    LostBefore,
    /// Made, but the answer is lost.
    LostAfter,
    /// Refused by the server.
    Refused,
}

pub(crate) struct Zone {
    pub(crate) core: Core,
    pub(crate) now: Duration,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) namespaces: BTreeMap<String, Namespace>,
    pub(crate) policies: BTreeMap<PolicyId, Policy>,
    pub(crate) pods: BTreeMap<PodKey, Pod>,
    pub(crate) services: BTreeMap<PodKey, Service>,
    pub(crate) slices: BTreeMap<PodKey, EndpointSlice>,
    pub(crate) nb: Database,
    pub(crate) sb: Database,
    /// Inputs on their way to the core, one queue per source: sources overtake each other, not themselves.
    pub(crate) queues: BTreeMap<&'static str, VecDeque<Input>>,
    pub(crate) transactions: VecDeque<(Db, u64, Vec<Op>)>,
    pub(crate) patches: VecDeque<(PodKey, String, String)>,
    pub(crate) warnings: Vec<(PodKey, String)>,
    pub(crate) service_warnings: Vec<(ServiceKey, String)>,
    /// Services whose changes were told to be in the database.
    pub(crate) programmed: Vec<ServiceKey>,
    pub(crate) conditions: BTreeMap<PolicyId, PolicyCondition>,
    pub(crate) policy_warnings: Vec<(PolicyId, String)>,
    pub(crate) refusals: Vec<String>,
    /// Keys in one transaction at the most: small values show every intermediate state.
    pub(crate) batch: usize,
    /// Whether load balancers for node ports use template variables.
    pub(crate) templates: bool,
    local: String,
    dual: bool,
}

impl Zone {
    pub(crate) fn new(local: &str, dual: bool) -> Zone {
        Zone {
            core: Core::new(objects::settings(local, dual), objects::cluster(dual)),
            now: Duration::ZERO,
            nodes: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            policies: BTreeMap::new(),
            pods: BTreeMap::new(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            nb: Database::new(objects::schema(Db::Nb)),
            sb: Database::new(objects::schema(Db::Sb)),
            queues: BTreeMap::new(),
            transactions: VecDeque::new(),
            patches: VecDeque::new(),
            warnings: Vec::new(),
            service_warnings: Vec::new(),
            programmed: Vec::new(),
            conditions: BTreeMap::new(),
            policy_warnings: Vec::new(),
            refusals: Vec::new(),
            batch: 500,
            templates: false,
            local: local.into(),
            dual,
        }
    }

    /// A controller that starts, or starts again after a crash: nothing is known, nothing is on its way.
    pub(crate) fn start(&mut self) {
        let mut settings = objects::settings(&self.local, self.dual);
        settings.service_templates = self.templates;
        self.core = Core::with_batch(settings, objects::cluster(self.dual), self.batch);
        self.queues.clear();
        self.transactions.clear();
        self.patches.clear();
        self.send("nodes", Input::Nodes(Change::Snapshot(self.nodes.values().cloned().collect())));
        let pods = self.pods.values().cloned().collect();
        self.send("pods", Input::Pods(Change::Snapshot(pods)));
        self.relist_services();
        let namespaces = self.namespaces.values().cloned().collect();
        self.send("namespaces", Input::Namespaces(Change::Snapshot(namespaces)));
        for kind in Kind::ALL {
            let policies = self.policies.values().filter(|policy| policy.id.kind == kind).cloned();
            let policies = policies.map(PolicyObject::from).collect();
            self.send("policies", Input::Policies(kind, Change::Snapshot(policies)));
        }
        self.send("nb", Input::Loaded(Db::Nb, self.nb.dump()));
        self.send("sb", Input::Loaded(Db::Sb, self.sb.dump()));
    }

    pub(crate) fn local(&self) -> &str {
        &self.local
    }

    pub(crate) fn send(&mut self, source: &'static str, input: Input) {
        self.queues.entry(source).or_default().push_back(input);
    }

    pub(crate) fn put_node(&mut self, node: Node) {
        self.nodes.insert(node.metadata.name.clone(), node.clone());
        self.send("nodes", Input::Nodes(Change::Applied(node)));
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        if self.nodes.remove(name).is_some() {
            self.send("nodes", Input::Nodes(Change::Deleted(PodKey::new("", name))));
        }
    }

    pub(crate) fn put_namespace(&mut self, name: &str) {
        self.put_namespace_object(objects::namespace(name, &[]));
    }

    pub(crate) fn put_namespace_object(&mut self, namespace: Namespace) {
        self.namespaces.insert(namespace.metadata.name.clone(), namespace.clone());
        self.send("namespaces", Input::Namespaces(Change::Applied(namespace)));
    }

    pub(crate) fn put_policy(&mut self, policy: Policy) {
        self.policies.insert(policy.id.clone(), policy.clone());
        let kind = policy.id.kind;
        self.send("policies", Input::Policies(kind, Change::Applied(policy.into())));
    }

    pub(crate) fn remove_policy(&mut self, id: &PolicyId) {
        if self.policies.remove(id).is_some() {
            let key = PodKey::new(&*id.namespace, &*id.name);
            self.send("policies", Input::Policies(id.kind, Change::Deleted(key)));
        }
    }

    pub(crate) fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
        self.send("namespaces", Input::Namespaces(Change::Deleted(PodKey::new("", name))));
    }

    pub(crate) fn put_pod(&mut self, pod: Pod) {
        self.pods.insert(pod.pod_key(), pod.clone());
        self.send("pods", Input::Pods(Change::Applied(pod)));
    }

    pub(crate) fn remove_pod(&mut self, key: &PodKey) {
        if self.pods.remove(key).is_some() {
            self.send("pods", Input::Pods(Change::Deleted(key.clone())));
        }
    }

    pub(crate) fn put_service(&mut self, service: Service) {
        let key = PodKey::new(&*service.metadata.namespace, &*service.metadata.name);
        self.services.insert(key, service.clone());
        self.send("services", Input::Services(Box::new(Change::Applied(service))));
    }

    pub(crate) fn remove_service(&mut self, key: &PodKey) {
        if self.services.remove(key).is_some() {
            self.send("services", Input::Services(Box::new(Change::Deleted(key.clone()))));
        }
    }

    pub(crate) fn put_slice(&mut self, slice: EndpointSlice) {
        let key = PodKey::new(&*slice.metadata.namespace, &*slice.metadata.name);
        self.slices.insert(key, slice.clone());
        self.send("slices", Input::Slices(Change::Applied(slice)));
    }

    pub(crate) fn remove_slice(&mut self, key: &PodKey) {
        if self.slices.remove(key).is_some() {
            self.send("slices", Input::Slices(Change::Deleted(key.clone())));
        }
    }

    /// Both watches of services start over with complete lists.
    pub(crate) fn relist_services(&mut self) {
        let services = Change::Snapshot(self.services.values().cloned().collect());
        self.send("services", Input::Services(Box::new(services)));
        self.send("slices", Input::Slices(Change::Snapshot(self.slices.values().cloned().collect())));
    }

    /// A slice cannot be read while the watch starts over; then it can again.
    pub(crate) fn unreadable_slice(&mut self, key: &PodKey) {
        let Some(slice) = self.slices.get(key).cloned() else { return };
        let others = self.slices.iter().filter(|(other, _)| *other != key);
        let others = Change::Snapshot(others.map(|(_, slice)| slice.clone()).collect());
        self.send("slices", Input::Unreadable(Unreadable::Slice(key.to_string())));
        self.send("slices", Input::Slices(others));
        self.send("slices", Input::Slices(Change::Applied(slice)));
    }

    /// Delivers the next input of a source.
    pub(crate) fn deliver(&mut self, source: &str) {
        let input = self
            .queues
            .iter_mut()
            .find(|(name, _)| **name == source)
            .and_then(|(_, queue)| queue.pop_front());
        if let Some(input) = input {
            self.step(input);
        }
    }

    pub(crate) fn step(&mut self, input: Input) {
        for output in self.core.step(input, self.now) {
            match output {
                Output::Transact { db, id, ops } => self.transactions.push_back((db, id, ops)),
                Output::Annotate { key, uid, value } => self.patches.push_back((key, uid, value)),
                Output::Warn { key, message, .. } => self.warnings.push((key, message)),
                Output::WarnService { key, message, .. } => self.service_warnings.push((key, message)),
                Output::Programmed { key, .. } => self.programmed.push(key),
                Output::Refused { error, .. } => self.refusals.push(error),
                Output::Report { id, uid, condition } => {
                    self.conditions.insert(id.clone(), condition);
                    self.send("reports", Input::Reported { id, uid, result: Ok(()) });
                }
                Output::WarnPolicy { id, message, .. } => self.policy_warnings.push((id, message)),
                Output::WarnNamespace { .. }
                | Output::Decided { .. }
                | Output::Waiting { .. }
                | Output::ServicesChanged(_)
                | Output::Settled { .. } => {}
            }
        }
    }

    /// Lets the oldest transaction on its way meet its fate.
    pub(crate) fn transact(&mut self, fate: Fate) {
        let Some((db, id, ops)) = self.transactions.pop_front() else { return };
        let (source, database) = match db {
            Db::Nb => ("nb", &mut self.nb),
            Db::Sb => ("sb", &mut self.sb),
        };
        let refusal = Rejection {
            op_index: Some(0),
            table: String::new(),
            error: "constraint violation".into(),
            details: "injected".into(),
        };
        let result = match fate {
            Fate::Made | Fate::LostAfter => database.transact(&ops),
            Fate::Refused => Err(refusal),
            Fate::LostBefore => Ok(Update::empty(database.schema.clone())),
        };
        let dump = database.dump();
        match (fate, result) {
            (Fate::LostBefore | Fate::LostAfter, _) => {
                // The connection is lost with the answer; what comes next is a fresh load.
                self.send(source, Input::Lost(db));
                self.send(source, Input::Transacted { db, id, result: Err(TxnFailure::Unknown) });
                self.send(source, Input::Loaded(db, dump));
            }
            (_, Ok(update)) => {
                self.send(source, Input::Updated(db, update));
                self.send(source, Input::Transacted { db, id, result: Ok(()) });
            }
            (_, Err(rejection)) => {
                if fate == Fate::Made {
                    self.refusals.push(rejection.to_string());
                }
                self.send(source, Input::Transacted { db, id, result: Err(TxnFailure::Refused(rejection)) });
            }
        }
        self.check_snapshot();
    }

    /// Lets the oldest patch on its way meet its fate.
    pub(crate) fn patch(&mut self, fate: Fate) {
        let Some((key, uid, value)) = self.patches.pop_front() else { return };
        let mut result = Ok(());
        if matches!(fate, Fate::Made | Fate::LostAfter) {
            match self.pods.get_mut(&key).filter(|pod| pod.metadata.uid == uid) {
                Some(pod) => {
                    pod.metadata.annotations.insert(POD_NETWORKS.into(), value);
                    let pod = pod.clone();
                    self.send("pods", Input::Pods(Change::Applied(pod)));
                }
                None => result = Err(PatchError::Gone),
            }
        }
        result = match fate {
            Fate::Made => result,
            Fate::LostBefore | Fate::LostAfter => Err(PatchError::Transient("connection reset".into())),
            Fate::Refused => Err(PatchError::Refused("denied by webhook".into())),
        };
        self.send("patches", Input::Annotated { key, uid, result });
    }

    /// Lets everything on its way arrive, time pass, and retries happen, until nothing moves any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            if let Some(source) =
                self.queues.iter().find(|(_, queue)| !queue.is_empty()).map(|(name, _)| *name)
            {
                self.deliver(source);
            } else if !self.transactions.is_empty() {
                self.transact(Fate::Made);
            } else if !self.patches.is_empty() {
                self.patch(Fate::Made);
            } else if let Some(deadline) = self.core.deadline().filter(|deadline| *deadline < Duration::MAX) {
                self.now = self.now.max(deadline);
                self.step(Input::Tick);
            } else {
                return;
            }
        }
        panic!("the controller does not come to rest");
    }

    /// What must hold in every state a reader of the database can see.
    pub(crate) fn check_snapshot(&self) {
        let mut users: BTreeMap<IpAddr, String> = BTreeMap::new();
        for port in self.nb.rows("Logical_Switch_Port") {
            let name = port.str("name").unwrap_or_default().to_owned();
            let is_own = port.str("type") == Some("") && name != "foreign";
            for ip in compile::identity::port_ips(&port).filter(|_| is_own) {
                if let Some(other) = users.insert(ip, name.clone()) {
                    panic!("{ip} is on ports {other} and {name}");
                }
            }
        }
        super::balance::found(self);
        self.check_names();
    }

    /// Every address set and port group a rule names exists.
    fn check_names(&self) {
        let named = |table: &str| -> BTreeSet<String> {
            let rows = self.nb.rows(table).into_iter();
            rows.map(|row| row.str("name").unwrap_or_default().to_owned()).collect()
        };
        let (sets, groups) = (named("Address_Set"), named("Port_Group"));
        for rule in self.nb.rows("ACL") {
            let matching = rule.str("match").unwrap_or_default();
            for (sign, known) in [('$', &sets), ('@', &groups)] {
                for rest in matching.split(sign).skip(1) {
                    let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric());
                    let name = &rest[..end.unwrap_or(rest.len())];
                    assert!(known.contains(name), "{sign}{name} does not exist but is named in {matching}");
                }
            }
        }
    }

    /// What must hold once everything has come to rest.
    pub(crate) fn check_rest(&self) {
        self.check_snapshot();
        if self.nodes.contains_key(&self.local) && self.core.world().local_node().is_some() {
            super::balance::check(self);
        }
        let switch =
            self.nb.rows("Logical_Switch").into_iter().find(|row| row.str("name") == Some(&*self.local));
        let listed: BTreeSet<_> =
            switch.iter().flat_map(|row| row.get("ports")).flat_map(|ports| ports.uuids()).collect();
        let ports: BTreeMap<String, Row> = self
            .nb
            .rows("Logical_Switch_Port")
            .into_iter()
            .filter(|row| row.key("external_ids", "pod") == Some("true"))
            .map(|row| (row.str("name").unwrap_or_default().to_owned(), row))
            .collect();
        let mut wanted = BTreeSet::new();
        let mut held = BTreeSet::new();
        for pod in self.pods.values().filter(|pod| pod.wants_network() && pod.spec.node_name == self.local) {
            let key = pod.pod_key();
            let name = ovn::names::pod_port(&key.namespace, &key.name);
            let Some(network) = pod.metadata.default_pod_network().expect("a readable annotation") else {
                assert!(
                    self.core.ledger().waiting().any(|waiting| *waiting == key),
                    "{key} has no address and does not wait"
                );
                continue;
            };
            let Some(port) = ports.get(&name) else {
                assert!(
                    self.core.ledger().waiting().any(|waiting| *waiting == key),
                    "{key} has an address but no port"
                );
                continue;
            };
            let addresses = ovn::names::port_addresses(network.mac, network.addresses());
            assert_eq!(port.str("addresses"), Some(&*addresses), "port of {key}");
            assert_eq!(port.str("port_security"), Some(&*addresses), "port security of {key}");
            assert_eq!(port.key("options", "iface-id-ver"), Some(&*pod.metadata.uid), "{key}");
            assert!(listed.contains(&port.uuid()), "port of {key} is not on switch {}", self.local);
            if self.namespaces.contains_key(&key.namespace) {
                let group = ovn::names::ObjectIds::named("Namespace", &key.namespace).hashed_name();
                let group =
                    self.nb.rows("Port_Group").into_iter().find(|row| row.str("name") == Some(&*group));
                let members = group.iter().flat_map(|row| row.get("ports")).flat_map(|list| list.uuids());
                assert!(
                    members.into_iter().any(|uuid| uuid == port.uuid()),
                    "{key} is not in its namespace's group"
                );
            }
            wanted.insert(name);
            held.extend(network.addresses());
        }
        let extra: Vec<&String> = ports.keys().filter(|name| !wanted.contains(*name)).collect();
        assert!(extra.is_empty(), "ports without a pod: {extra:?}");
        let ledger: BTreeSet<IpAddr> = self.core.ledger().held().map(|(ip, _)| *ip).collect();
        assert_eq!(ledger, held, "addresses in the ledger and in annotations differ");
        let reserved = if self.core.world().local_node().is_some() { 2 } else { 0 };
        let inside = held.iter().filter(|ip| ip.is_ipv4()).count();
        assert_eq!(self.core.ledger().used(net::Family::V4), inside + reserved, "pool usage");
    }

    /// A fresh controller on the same API and databases writes nothing; one on empty databases writes the same.
    pub(crate) fn check_against_fresh(&self) {
        let mut again = Zone::new(&self.local, self.dual);
        again.nodes = self.nodes.clone();
        again.namespaces = self.namespaces.clone();
        again.policies = self.policies.clone();
        again.pods = self.pods.clone();
        again.services = self.services.clone();
        again.slices = self.slices.clone();
        // The node's own rows outlive its object; without it a fresh controller has nothing to go by.
        if self.core.world().local_node().is_none() || !self.nodes.contains_key(&self.local) {
            return;
        }
        again.nb = self.nb.clone();
        again.sb = self.sb.clone();
        let (nb_ops, sb_ops) = (again.nb.ops, again.sb.ops);
        again.start();
        again.settle();
        if (again.nb.ops, again.sb.ops) != (nb_ops, sb_ops) {
            let (was, is) = (text(&self.nb), text(&again.nb));
            let gone = was.iter().filter(|(name, row)| is.get(*name) != Some(row));
            let new = is.iter().filter(|(name, row)| was.get(*name) != Some(row));
            panic!(
                "a second controller writes: {:#?}\ninstead of {:#?}",
                new.collect::<Vec<_>>(),
                gone.collect::<Vec<_>>()
            );
        }
        let mut empty = Zone::new(&self.local, self.dual);
        empty.nodes = self.nodes.clone();
        empty.namespaces = self.namespaces.clone();
        empty.policies = self.policies.clone();
        empty.pods = self.pods.clone();
        empty.services = self.services.clone();
        empty.slices = self.slices.clone();
        empty.start();
        empty.settle();
        assert_eq!(text(&empty.nb), text(&self.nb), "a from-scratch compile differs");
        assert_eq!(text(&empty.sb), text(&self.sb), "a from-scratch compile differs");
    }
}

/// The contents with references by name instead of UUID, without rows of others.
pub(crate) fn text(database: &Database) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for table in compile::table::ALL {
        for row in database.rows(table.name) {
            let name = compile::identity::name(*table, &row).unwrap_or_default();
            names.insert(row.uuid(), format!("{}:{name}", table.name));
        }
    }
    let mut lines = BTreeMap::new();
    for table in compile::table::ALL {
        for row in database.rows(table.name) {
            let name = names[&row.uuid()].clone();
            if name.contains("foreign") {
                continue;
            }
            let mut columns = Vec::new();
            for (column, value) in row.columns() {
                let uuids: Vec<_> = value.uuids().collect();
                let shown = if uuids.is_empty() {
                    format!("{value:?}")
                } else {
                    let mut shown: Vec<&str> =
                        uuids.iter().map(|uuid| names.get(uuid).map_or("?", String::as_str)).collect();
                    shown.retain(|name| !name.contains("foreign"));
                    shown.sort_unstable();
                    format!("{shown:?}")
                };
                columns.push(format!("{}={shown}", column.name));
            }
            lines.insert(name, columns.join(" "));
        }
    }
    lines
}
