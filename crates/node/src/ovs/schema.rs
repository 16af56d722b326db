//! What we need of the Open_vSwitch schema, and what we follow of its content.

use ovsdb::{Capabilities, MonitorSpec};

const NEEDED: &[(&str, &[&str])] = &[
    ("Open_vSwitch", &["bridges", "external_ids", "other_config"]),
    ("Bridge", &["datapath_type", "external_ids", "fail_mode", "name", "other_config", "ports"]),
    ("Port", &["external_ids", "interfaces", "name", "other_config", "qos", "tag"]),
    (
        "Interface",
        &[
            "error",
            "external_ids",
            "ingress_policing_burst",
            "ingress_policing_rate",
            "mac",
            "mtu_request",
            "name",
            "ofport",
            "options",
            "type",
        ],
    ),
    ("QoS", &["external_ids", "other_config", "queues", "type"]),
];

/// The tables and columns the agent follows. Counters and status columns, which change all the time, are left out.
pub fn monitor_spec() -> MonitorSpec {
    NEEDED.iter().fold(MonitorSpec::none(), |spec, (table, columns)| spec.table(table, columns))
}

/// The first column we need that the server lacks.
pub fn missing_column(capabilities: &Capabilities) -> Option<(&'static str, &'static str)> {
    let all = NEEDED.iter().flat_map(|(table, columns)| columns.iter().map(|column| (*table, *column)));
    let mut all = all;
    all.find(|(table, column)| !capabilities.has(table, column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_column_is_named() {
        let schema = super::super::testing::schema();
        assert_eq!(missing_column(&schema.capabilities()), None);
        assert_eq!(missing_column(&Capabilities::default()), Some(("Open_vSwitch", "bridges")));
    }
}
