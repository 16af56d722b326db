//! The recordings.

use serde_json::Value;

use crate::canonical::Rows;

/// One recorded scenario.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name, such as `04-pods`.
    pub name: &'static str,
    /// The manifest that was applied, a document at a time.
    pub manifest: &'static str,
    objects: &'static str,
    northbound: [&'static str; 2],
    databases: Option<[&'static [u8]; 2]>,
}

macro_rules! scenario {
    ($name:literal raw) => {
        Scenario {
            databases: Some([
                include_bytes!(concat!("../data/", $name, "/node1.ovnnb.db")),
                include_bytes!(concat!("../data/", $name, "/node2.ovnnb.db")),
            ]),
            ..scenario!($name)
        }
    };
    ($name:literal) => {
        Scenario {
            name: $name,
            manifest: include_str!(concat!("../data/", $name, "/objects.yaml")),
            objects: include_str!(concat!("../data/", $name, "/objects.after.json")),
            northbound: [
                include_str!(concat!("../data/", $name, "/node1.nb.json")),
                include_str!(concat!("../data/", $name, "/node2.nb.json")),
            ],
            databases: None,
        }
    };
}

impl Scenario {
    /// Shared gateway, no pods.
    pub const BASE: Scenario = scenario!("01-base-shared");
    /// Local gateway, no pods.
    pub const LOCAL: Scenario = scenario!("02-base-local");
    /// Dual stack.
    pub const DUAL_STACK: Scenario = scenario!("03-base-dualstack");
    /// Pods of every kind.
    pub const PODS: Scenario = scenario!("04-pods" raw);
    /// Services of every kind.
    pub const SERVICES: Scenario = scenario!("05-services" raw);
    /// NetworkPolicies.
    pub const POLICIES: Scenario = scenario!("06-netpol" raw);
    /// An AdminNetworkPolicy and a baseline.
    pub const ADMIN_POLICIES: Scenario = scenario!("08-anp" raw);

    /// All of them.
    pub const ALL: [Scenario; 7] = [
        Scenario::BASE,
        Scenario::LOCAL,
        Scenario::DUAL_STACK,
        Scenario::PODS,
        Scenario::SERVICES,
        Scenario::POLICIES,
        Scenario::ADMIN_POLICIES,
    ];

    /// Objects as they were at the end, in the recorder's form: kind, name, annotations, status …
    pub fn objects(&self) -> Vec<Value> {
        serde_json::from_str(self.objects).unwrap_or_default()
    }

    /// The Northbound database of node `number` (1 or 2) at the end.
    pub fn northbound(&self, number: usize) -> Rows {
        let text = self.northbound.get(number.wrapping_sub(1)).copied().unwrap_or_default();
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The raw Northbound database of node `number` (1 or 2) at the end, as a file of ovsdb-server; kept only where
    /// take-over is tested with it.
    pub fn database(&self, number: usize) -> Option<&'static [u8]> {
        self.databases?.get(number.wrapping_sub(1)).copied()
    }
}
