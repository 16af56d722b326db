//! The pod's port in Open vSwitch, for the mode in which the server may not touch it.

use std::{
    env,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use cni::{CniError, PodIfInfo, code};
use ovsdb::{Datum, Fields, Filter, Mutation, Op, Uuid, blocking::Connection};

const BRIDGE: &str = "br-int";
const SOCKET: &str = "/var/run/openvswitch/db.sock";
/// Another place for the database's socket, for tests.
const SOCKET_VARIABLE: &str = "OVN_CNI_OVS_SOCKET";
/// Bound of one question to the database.
const PATIENCE: Duration = Duration::from_secs(30);

/// An open connection to the local database.
pub(crate) struct Switch {
    connection: Connection,
}

/// The port to plug.
pub(crate) struct Port<'a> {
    pub(crate) name: &'a str,
    pub(crate) iface_id: &'a str,
    pub(crate) sandbox: &'a str,
    pub(crate) ifname: &'a str,
    pub(crate) info: &'a PodIfInfo,
}

// === impl Switch ===

impl Switch {
    pub(crate) fn open() -> Result<Switch, CniError> {
        let path = env::var_os(SOCKET_VARIABLE).map_or_else(|| PathBuf::from(SOCKET), PathBuf::from);
        let connection = Connection::open(&path, "Open_vSwitch").map_err(failed)?;
        Ok(Switch { connection })
    }

    /// Inserts the port and removes every other one with its iface-id. Returns the interface's identity.
    pub(crate) fn plug(&mut self, port: &Port<'_>) -> Result<Uuid, CniError> {
        let bridge = self.bridge()?;
        let doomed = self.ports_of(&[("iface-id", port.iface_id)])?;
        let nonce = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let id = |kind: &str| {
            let text = format!("shim {kind} {} {nonce}", port.sandbox);
            Uuid::v5(&Uuid::NIL, text.as_bytes())
        };
        let (interface, row) = (id("interface"), id("port"));
        let mut ops = self.without_shapers(port.sandbox)?;
        ops.push(Op::insert("Interface", interface, port.interface()));
        let mut columns = vec![
            ("name".into(), Datum::scalar(port.name)),
            ("interfaces".into(), Datum::set([interface])),
            ("other_config".into(), Datum::map([("transient", "true")])),
        ];
        if port.info.ingress > 0 {
            let rate = || Datum::map([("max-rate", port.info.ingress.to_string())]);
            let own = || ("external_ids".into(), Datum::map([("sandbox", port.sandbox)]));
            let (qos, queue) = (id("qos"), id("queue"));
            ops.push(Op::insert("Queue", queue, vec![("other_config".into(), rate()), own()]));
            ops.push(Op::insert(
                "QoS",
                qos,
                vec![
                    ("type".into(), Datum::scalar("linux-htb")),
                    ("other_config".into(), rate()),
                    ("queues".into(), Datum::map([(0i64, queue)])),
                    own(),
                ],
            ));
            columns.push(("qos".into(), Datum::set([qos])));
        }
        ops.push(Op::insert("Port", row, columns));
        ops.extend(unplug(bridge, &doomed));
        ops.push(Op::mutate("Bridge", bridge, vec![Mutation::insert("ports", Datum::set([row]))]));
        self.commit(&ops)?;
        Ok(interface)
    }

    /// Waits until OVN has installed the interface's flows.
    pub(crate) fn installed(
        &mut self,
        interface: Uuid,
        port: &Port<'_>,
        deadline: Instant,
    ) -> Result<(), CniError> {
        let look = |rows: &[Fields]| {
            let ids = rows.first().and_then(|row| row.get("external_ids"));
            if ids.and_then(|d| d.get("iface-id")) != Some(port.iface_id) {
                return Some(Err(CniError::internal(format!(
                    "OVS sandbox port {} is no longer active (probably due to a subsequent CNI ADD)",
                    port.name
                ))));
            }
            (ids.and_then(|d| d.get("ovn-installed")) == Some("true")).then_some(Ok(()))
        };
        match self.connection.wait_for("Interface", interface, &["external_ids"], deadline, look) {
            Ok(outcome) => outcome,
            Err(ovsdb::blocking::Error::TimedOut(_)) => Err(CniError::new(
                code::TRY_AGAIN,
                format!(
                    "timed out waiting for OVS port binding (ovn-installed) for {} {}",
                    port.info.network.mac,
                    port.addresses()
                ),
                format!("check ovn-controller on this node and logical port {}", port.iface_id),
            )),
            Err(e) => Err(failed(e)),
        }
    }

    /// Removes the sandbox's ports of that interface name, with their shapers. Returns their names.
    pub(crate) fn remove(&mut self, sandbox: &str, ifname: &str) -> Result<Vec<String>, CniError> {
        let ports = self.ports_of(&[("sandbox", sandbox), ("pod-if-name", ifname)])?;
        if ports.is_empty() {
            return Ok(Vec::new());
        }
        let bridge = self.bridge()?;
        let mut ops = unplug(bridge, &ports);
        ops.extend(self.without_shapers(sandbox)?);
        self.commit(&ops)?;
        Ok(ports.into_iter().map(|(_, name)| name).collect())
    }

    fn bridge(&mut self) -> Result<Uuid, CniError> {
        let rows = self.select("Bridge", Filter::equal("name", BRIDGE), &["_uuid"])?;
        uuid(rows.first()).ok_or_else(|| {
            CniError::new(
                code::TRY_AGAIN,
                format!("bridge {BRIDGE} does not exist in Open vSwitch"),
                "is ovn-controller running on this node?",
            )
        })
    }

    /// Identity and name of the ports whose interface has these external-ids.
    fn ports_of(&mut self, ids: &[(&str, &str)]) -> Result<Vec<(Uuid, String)>, CniError> {
        let filter = Filter::includes("external_ids", Datum::map(ids.iter().copied()));
        let interfaces = self.select("Interface", filter, &["_uuid"])?;
        let mut ports = Vec::new();
        for interface in interfaces.iter().filter_map(|row| uuid(Some(row))) {
            let filter = Filter::includes("interfaces", Datum::set([interface]));
            for row in self.select("Port", filter, &["_uuid", "name"])? {
                let name = row.get("name").and_then(Datum::as_str).unwrap_or_default().to_owned();
                ports.extend(uuid(Some(&row)).map(|port| (port, name)));
            }
        }
        Ok(ports)
    }

    /// Deletes the shapers of a sandbox, which its ports let go of.
    fn without_shapers(&mut self, sandbox: &str) -> Result<Vec<Op>, CniError> {
        let mut ops = Vec::new();
        for table in ["QoS", "Queue"] {
            let filter = Filter::includes("external_ids", Datum::map([("sandbox", sandbox)]));
            let rows = self.select(table, filter, &["_uuid"])?;
            ops.extend(rows.iter().filter_map(|row| uuid(Some(row))).map(|row| Op::delete(table, row)));
        }
        Ok(ops)
    }

    fn select(
        &mut self,
        table: &'static str,
        filter: Filter,
        columns: &[&'static str],
    ) -> Result<Vec<Fields>, CniError> {
        self.connection.select(table, filter, columns, Instant::now() + PATIENCE).map_err(failed)
    }

    fn commit(&mut self, ops: &[Op]) -> Result<(), CniError> {
        self.connection.transact(ops, Instant::now() + PATIENCE).map(|_| ()).map_err(failed)
    }
}

// === impl Port ===

impl Port<'_> {
    fn interface(&self) -> ovsdb::ColumnValues {
        let addresses = self.addresses();
        let mac = self.info.network.mac.to_string();
        let ids = [
            ("iface-id", self.iface_id),
            ("attached_mac", &mac),
            ("iface-id-ver", &self.info.pod_uid),
            ("sandbox", self.sandbox),
            ("pod-if-name", self.ifname),
            ("ip_addresses", &addresses),
        ];
        let rate = self.info.egress.max(0) / 1000;
        vec![
            ("name".into(), Datum::scalar(self.name)),
            ("external_ids".into(), Datum::map(ids.into_iter().filter(|(_, value)| !value.is_empty()))),
            ("ingress_policing_rate".into(), Datum::scalar(rate)),
            ("ingress_policing_burst".into(), Datum::scalar(rate / 10)),
        ]
    }

    fn addresses(&self) -> String {
        let list: Vec<String> = self.info.network.ips.iter().map(ToString::to_string).collect();
        list.join(",")
    }
}

fn unplug(bridge: Uuid, ports: &[(Uuid, String)]) -> Vec<Op> {
    if ports.is_empty() {
        return Vec::new();
    }
    let gone = Mutation::delete("ports", Datum::set(ports.iter().map(|(port, _)| *port)));
    let mut ops = vec![Op::mutate("Bridge", bridge, vec![gone])];
    // By name, since a row collected as garbage still holds on to its QoS at commit.
    ops.extend(ports.iter().map(|(port, _)| Op::delete("Port", *port)));
    ops
}

fn uuid(row: Option<&Fields>) -> Option<Uuid> {
    row?.get("_uuid")?.as_uuid()
}

fn failed(error: ovsdb::blocking::Error) -> CniError {
    CniError::internal(format!("failed to configure pod interface: {error}"))
}
