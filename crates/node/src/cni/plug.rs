//! The transactions that put a pod's port on the integration bridge and take it off.

use std::time::Duration;

use ovsdb::{Cache, Datum, Mutation, Op, Row, Uuid};

use super::{
    bandwidth::Limits,
    limits,
    ports::{SINCE_KEY, bridge, bridge_ports},
};

/// A port to be plugged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plug {
    /// Name of the host link.
    pub(crate) name: String,
    pub(crate) iface_id: String,
    pub(crate) mac: String,
    pub(crate) pod_uid: String,
    pub(crate) sandbox: String,
    pub(crate) pod_ifname: String,
    pub(crate) ips: Vec<String>,
    /// Age stamp of the sandbox.
    pub(crate) since: Duration,
    pub(crate) limits: Limits,
    pub(crate) ids: PlugIds,
}

/// Identities of the rows, chosen by us so that a transaction of unknown outcome can be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlugIds {
    pub(crate) port: Uuid,
    pub(crate) interface: Uuid,
    pub(crate) qos: Uuid,
    pub(crate) queue: Uuid,
}

/// Why a port cannot be plugged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlugError {
    #[error("bridge {0} does not exist in Open vSwitch; is ovn-controller running on this node?")]
    NoBridge(String),
    #[error(
        "Open vSwitch already has an interface {name}, of {owner}; remove it with: ovs-vsctl del-port {name}"
    )]
    NameTaken { name: String, owner: String },
}

// === impl PlugIds ===

impl PlugIds {
    /// Fresh identities; `nonce` is never used twice.
    pub(crate) fn new(nonce: &str) -> PlugIds {
        let id = |kind: &str| Uuid::v5(&Uuid::NIL, format!("ovnkube cni {kind} {nonce}").as_bytes());
        PlugIds { port: id("port"), interface: id("interface"), qos: id("qos"), queue: id("queue") }
    }
}

// === impl Plug ===

impl Plug {
    /// One transaction: inserts interface, port and limits, and removes every other port of the bridge that has
    /// the same iface-id, so that exactly the newest sandbox owns the logical port.
    pub(crate) fn ops(&self, cache: &Cache, bridge_name: &str) -> Result<Vec<Op>, PlugError> {
        let bridge = bridge(cache, bridge_name).ok_or_else(|| PlugError::NoBridge(bridge_name.to_owned()))?;
        let doomed = self.doomed(cache, bridge_name)?;
        let (rate, burst) = self.limits.policing();
        let ids = [
            ("iface-id", &self.iface_id),
            ("attached_mac", &self.mac),
            ("iface-id-ver", &self.pod_uid),
            ("sandbox", &self.sandbox),
            ("pod-if-name", &self.pod_ifname),
        ];
        let addresses = self.ips.join(",");
        let external_ids = ids
            .into_iter()
            .map(|(key, value)| (key, value.as_str()))
            .chain((!addresses.is_empty()).then_some(("ip_addresses", addresses.as_str())));
        let mut ops = vec![Op::insert(
            "Interface",
            self.ids.interface,
            vec![
                ("name".into(), Datum::scalar(&*self.name)),
                ("external_ids".into(), Datum::map(external_ids)),
                ("ingress_policing_rate".into(), Datum::scalar(rate)),
                ("ingress_policing_burst".into(), Datum::scalar(burst)),
            ],
        )];
        let mut port = vec![
            ("name".into(), Datum::scalar(&*self.name)),
            ("interfaces".into(), Datum::set([self.ids.interface])),
            ("other_config".into(), Datum::map([("transient", "true")])),
            ("external_ids".into(), Datum::map([(SINCE_KEY, self.since.as_nanos().to_string())])),
        ];
        if let Some(rate) = self.limits.ingress {
            ops.extend(limits::insert_qos(&self.ids, &self.sandbox, rate));
            port.push(("qos".into(), Datum::set([self.ids.qos])));
        }
        ops.push(Op::insert("Port", self.ids.port, port));
        let mut mutations = Vec::new();
        if !doomed.is_empty() {
            mutations.push(Mutation::delete("ports", Datum::set(doomed.iter().copied())));
        }
        mutations.push(Mutation::insert("ports", Datum::set([self.ids.port])));
        ops.push(Op::mutate("Bridge", bridge.uuid(), mutations));
        ops.extend(delete_ports(&doomed));
        ops.extend(limits::remove_qos(cache, &self.sandbox, &doomed));
        Ok(ops)
    }

    /// Ports that must go: same iface-id, or our own name left over from an earlier attempt.
    fn doomed(&self, cache: &Cache, bridge_name: &str) -> Result<Vec<Uuid>, PlugError> {
        let (Some(interfaces), Some(ports)) = (cache.table("Interface"), cache.table("Port")) else {
            return Ok(Vec::new());
        };
        let on_bridge = bridge_ports(cache, bridge_name);
        let mut doomed = Vec::new();
        let port_of = |row: &Row| ports.find_element("interfaces", row.uuid()).next().map(|p| p.uuid());
        for row in interfaces.find_key("external_ids", "iface-id", &self.iface_id) {
            doomed.extend(port_of(row).filter(|p| on_bridge.binary_search(p).is_ok()));
        }
        if let Some(row) = interfaces.find_one("name", &*self.name) {
            let sandbox = row.key("external_ids", "sandbox");
            let iface_id = row.key("external_ids", "iface-id");
            if sandbox != Some(&self.sandbox) && iface_id != Some(&self.iface_id) {
                let owner = iface_id.or(sandbox).unwrap_or("someone else").to_owned();
                return Err(PlugError::NameTaken { name: self.name.clone(), owner });
            }
            doomed.extend(port_of(row));
        }
        doomed.sort_unstable();
        doomed.dedup();
        Ok(doomed)
    }
}

/// Takes ports off their bridge, with the limits of the sandbox. `ports` need not be in the cache (any more).
pub(crate) fn unplug(cache: &Cache, bridge_name: &str, ports: &[Uuid], sandbox: &str) -> Vec<Op> {
    let mut ops: Vec<Op> = cache
        .rows("Bridge")
        .filter_map(|row| {
            let has = |p: &&Uuid| row.str("name") == Some(bridge_name) || holds(row, p);
            let gone: Vec<Uuid> = ports.iter().filter(has).copied().collect();
            let gone = (!gone.is_empty()).then(|| Mutation::delete("ports", Datum::set(gone)))?;
            Some(Op::mutate("Bridge", row.uuid(), vec![gone]))
        })
        .collect();
    ops.extend(delete_ports(ports));
    ops.extend(limits::remove_qos(cache, sandbox, ports));
    ops
}

/// The rows themselves must go by name: collected as garbage, they would still hold on to their QoS at commit.
fn delete_ports(ports: &[Uuid]) -> impl Iterator<Item = Op> + '_ {
    ports.iter().map(|port| Op::delete("Port", *port))
}

fn holds(bridge: &Row, port: &Uuid) -> bool {
    bridge.get("ports").is_some_and(|ports| ports.uuids().any(|p| p == *port))
}
