//! Caches for tests: the Open_vSwitch content of the recorded node.

use std::sync::Arc;

use ovsdb::{Cache, Datum, Row, Schema, Update, Uuid};

const SCHEMA: &str = r#"{"name":"Open_vSwitch","version":"8.4.0","tables":{
 "Open_vSwitch":{"columns":{"bridges":{"type":{"key":{"type":"uuid","refTable":"Bridge"},"min":0,"max":"unlimited"}},
  "external_ids":MAP,"other_config":MAP}},
 "Bridge":{"columns":{"name":{"type":"string"},"datapath_type":{"type":"string"},"fail_mode":{"type":{"key":"string","min":0,"max":1}},
  "ports":{"type":{"key":{"type":"uuid","refTable":"Port"},"min":0,"max":"unlimited"}},"external_ids":MAP,"other_config":MAP},
  "indexes":[["name"]]},
 "Port":{"columns":{"name":{"type":"string"},"interfaces":{"type":{"key":{"type":"uuid","refTable":"Interface"},"min":1,"max":"unlimited"}},
  "qos":{"type":{"key":{"type":"uuid","refTable":"QoS"},"min":0,"max":1}},
  "tag":{"type":{"key":"integer","min":0,"max":1}},"external_ids":MAP,"other_config":MAP},"indexes":[["name"]]},
 "Interface":{"columns":{"name":{"type":"string"},"type":{"type":"string"},"mac":{"type":{"key":"string","min":0,"max":1}},
  "mtu_request":{"type":{"key":"integer","min":0,"max":1}},"ofport":{"type":{"key":"integer","min":0,"max":1}},
  "error":{"type":{"key":"string","min":0,"max":1}},"ingress_policing_rate":{"type":"integer"},
  "ingress_policing_burst":{"type":"integer"},"external_ids":MAP,"options":MAP},"indexes":[["name"]]},
 "QoS":{"columns":{"type":{"type":"string"},"queues":{"type":{"key":"integer","value":{"type":"uuid","refTable":"Queue"},"min":0,"max":"unlimited"}},
  "external_ids":MAP,"other_config":MAP}}}}"#;
const MAP: &str = r#"{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}"#;

/// The part of the schema the agent uses.
pub(crate) fn schema() -> Arc<Schema> {
    Arc::new(Schema::parse(SCHEMA.replace("MAP", MAP).as_bytes()).unwrap())
}

/// A row described by table, name (which also makes its identity) and columns.
pub(crate) struct Described(&'static str, String, Vec<(&'static str, Datum)>);

fn id(table: &str, name: &str) -> Uuid {
    Uuid::v5(&Uuid::default(), format!("test {table} {name}").as_bytes())
}

pub(crate) fn root_row(external_ids: &[(&str, &str)], bridges: &[&str]) -> Described {
    let bridges = Datum::set(bridges.iter().map(|name| id("Bridge", name)));
    Described(
        "Open_vSwitch",
        "root".into(),
        vec![("external_ids", Datum::map(external_ids.iter().copied())), ("bridges", bridges)],
    )
}

fn bridge(name: &str, ports: &[&str]) -> Described {
    Described(
        "Bridge",
        name.into(),
        vec![
            ("name", name.into()),
            ("datapath_type", "netdev".into()),
            ("ports", Datum::set(ports.iter().map(|port| id("Port", port)))),
        ],
    )
}

fn port(name: &str) -> Described {
    Described(
        "Port",
        name.into(),
        vec![("name", name.into()), ("interfaces", Datum::set([id("Interface", name)]))],
    )
}

fn interface(name: &str, kind: &str, more: Vec<(&'static str, Datum)>) -> Described {
    let mut columns = vec![("name", name.into()), ("type", kind.into())];
    columns.extend(more);
    Described("Interface", name.into(), columns)
}

pub(crate) fn cache(rows: impl IntoIterator<Item = Described>) -> Cache {
    let schema = schema();
    let mut cache = Cache::new(schema.clone());
    let mut update = Update::empty(schema.clone());
    for Described(table, name, columns) in rows {
        update.put(Row::new(schema.table(table).unwrap(), id(table, &name), columns));
    }
    cache.apply(&update);
    cache
}

fn recorded_rows() -> Vec<Described> {
    let external_ids = [
        ("hostname", "node1"),
        ("ovn-bridge-datapath-type", "netdev"),
        ("ovn-bridge-mappings", "physnet:breth0"),
        ("ovn-bridge-remote-probe-interval", "0"),
        ("ovn-enable-lflow-cache", "true"),
        ("ovn-encap-ip", "172.18.0.1"),
        ("ovn-encap-type", "geneve"),
        ("ovn-is-interconn", "true"),
        ("ovn-monitor-all", "true"),
        ("ovn-ofctrl-wait-before-clear", "0"),
        ("ovn-remote", "unix:/var/run/ovn/ovnsb_db.sock"),
        ("ovn-remote-probe-interval", "180000"),
        ("ovn-set-local-ip", "true"),
        ("system-id", "00000000-0000-4000-8000-000000000001"),
    ];
    let mut root = root_row(&external_ids, &["br-int", "breth0"]);
    root.2.push((
        "other_config",
        Datum::map([
            ("bundle-idle-timeout", "0"),
            ("ovn-chassis-idx-00000000-0000-4000-8000-000000000001", ""),
            ("vlan-limit", "0"),
        ]),
    ));
    let management_port = vec![
        ("mac", "0a:58:0a:f4:00:02".into()),
        ("mtu_request", 1342i64.into()),
        (
            "external_ids",
            Datum::map([
                ("iface-id", "k8s-node1"),
                ("ovn-installed", "true"),
                ("ovn-installed-ts", "1795976250190"),
            ]),
        ),
    ];
    vec![
        root,
        bridge("br-int", &["br-int", "ovn-k8s-mp0"]),
        bridge("breth0", &["breth0", "eth0"]),
        port("br-int"),
        port("ovn-k8s-mp0"),
        port("breth0"),
        port("eth0"),
        interface("br-int", "internal", vec![]),
        interface("ovn-k8s-mp0", "internal", management_port),
        interface("breth0", "internal", vec![]),
        interface("eth0", "", vec![]),
    ]
}

/// What the reference left on node1 of the base scenario.
pub(crate) fn recorded_node() -> Cache {
    cache(recorded_rows())
}

/// The same once ovn-controller has connected the gateway bridge and the switch has numbered its ports.
pub(crate) fn node_with_patch_port(gateway: &str, node: &str) -> Cache {
    let patch = super::patch_port(gateway, node);
    let mut rows: Vec<Described> = recorded_rows();
    rows.retain(|row| ![("Bridge", gateway), ("Interface", "eth0")].contains(&(row.0, row.1.as_str())));
    rows.push(bridge(gateway, &[gateway, "eth0", &patch]));
    rows.push(interface("eth0", "", vec![("ofport", 1i64.into())]));
    rows.push(port(&patch));
    rows.push(interface(&patch, "patch", vec![("ofport", 2i64.into())]));
    cache(rows)
}

/// The same with a port under the name older releases used, carrying this logical port.
pub(crate) fn node_with_legacy_port(node: &str, iface_id: &str) -> Cache {
    let name = crate::mgmt_port::legacy_name(node);
    let mut rows: Vec<Described> = recorded_rows().into_iter().filter(|row| row.1 != "br-int").collect();
    rows.push(bridge("br-int", &["br-int", "ovn-k8s-mp0", &name]));
    rows.push(port(&name));
    rows.push(interface(&name, "internal", vec![("external_ids", Datum::map([("iface-id", iface_id)]))]));
    cache(rows)
}
