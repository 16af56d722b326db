//! `ovn_*` and `ovs_*` of the second server.

use super::registry::Declare;
use prometheus::GaugeVec;

/// Versions of the daemons around us. Each setter replaces what was known before, since daemons are updated under us.
#[derive(Clone)]
pub struct OvnMetrics {
    db: GaugeVec,
    controller: GaugeVec,
    northd: GaugeVec,
    ovs: GaugeVec,
}

impl OvnMetrics {
    pub(super) fn declare(d: &mut Declare<'_>) -> Self {
        let help = "Always 1; the labels are versions.";
        let library = ["version", "ovs_lib_version"];
        Self {
            db: d.gauges("ovn_db_build_info", help, &["version", "nb_schema_version", "sb_schema_version"]),
            controller: d.gauges("ovn_controller_build_info", help, &library),
            northd: d.gauges("ovn_northd_build_info", help, &library),
            ovs: d.gauges("ovs_build_info", help, &["version"]),
        }
    }

    /// Versions of ovsdb-server and of the two schemas.
    pub fn set_databases(&self, server: &str, nb_schema: &str, sb_schema: &str) {
        replace(&self.db, &[server, nb_schema, sb_schema]);
    }

    /// Versions of ovn-controller and its library.
    pub fn set_controller(&self, version: &str, library: &str) {
        replace(&self.controller, &[version, library]);
    }

    /// Versions of northd and its library.
    pub fn set_northd(&self, version: &str, library: &str) {
        replace(&self.northd, &[version, library]);
    }

    /// Version of Open vSwitch.
    pub fn set_ovs(&self, version: &str) {
        replace(&self.ovs, &[version]);
    }
}

fn replace(family: &GaugeVec, labels: &[&str]) {
    family.reset();
    family.with_label_values(labels).set(1.0);
}
