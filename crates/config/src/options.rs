//! All settings, in the sections of the file.

mod cluster;
mod daemon;
mod feature;
mod gateway;
mod kubernetes;
mod network;
mod node;
mod serving;

use crate::spec::Spec;
pub use cluster::{BgpManaged, ClusterManager, ClusterManagerHa, HybridOverlay, NoOverlay};
pub use daemon::{Logging, Process, Roles};
pub use feature::Features;
pub use gateway::Gateway;
pub use kubernetes::Kubernetes;
pub use network::{Cni, Default, Ipfix, Monitoring, Northbound, OvsPaths, Southbound};
pub use node::OvnkubeNode;
pub use serving::{EgressIpHealthcheckTls, Metrics, Tls};

const SECTIONS: [&[Spec]; 22] = [
    Roles::OPTIONS,
    Process::OPTIONS,
    Logging::OPTIONS,
    Kubernetes::OPTIONS,
    Default::OPTIONS,
    ClusterManager::OPTIONS,
    Northbound::OPTIONS,
    Southbound::OPTIONS,
    OvsPaths::OPTIONS,
    Cni::OPTIONS,
    Gateway::OPTIONS,
    OvnkubeNode::OPTIONS,
    ClusterManagerHa::OPTIONS,
    Metrics::OPTIONS,
    Tls::OPTIONS,
    Features::OPTIONS,
    EgressIpHealthcheckTls::OPTIONS,
    HybridOverlay::OPTIONS,
    NoOverlay::OPTIONS,
    BgpManaged::OPTIONS,
    Monitoring::OPTIONS,
    Ipfix::OPTIONS,
];

/// Every setting, in the order of `--help`.
pub fn all() -> impl Iterator<Item = &'static Spec> {
    SECTIONS.iter().copied().flatten()
}

/// The setting whose flag or flag alias is `name` (without dashes).
pub fn by_flag(name: &str) -> Option<&'static Spec> {
    all().find(|s| s.flag && (s.name == name || s.aliases.contains(&name)))
}

/// The setting a file's `section.key` sets; both parts ignore case.
pub fn by_key(section: &str, key: &str) -> Option<&'static Spec> {
    all().find(|spec| {
        spec.keys.iter().any(|k| {
            k.split_once('.')
                .is_some_and(|(s, k)| s.eq_ignore_ascii_case(section) && k.eq_ignore_ascii_case(key))
        })
    })
}

/// The setting of that name.
pub fn by_name(name: &str) -> Option<&'static Spec> {
    all().find(|s| s.name == name)
}

/// Whether any setting lives in that section of the file.
pub fn has_section(section: &str) -> bool {
    all().any(|s| {
        s.keys.iter().any(|k| k.split_once('.').is_some_and(|(s, _)| s.eq_ignore_ascii_case(section)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_consistent() {
        let (mut names, mut flags, mut keys) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for spec in all() {
            assert!(names.insert(spec.name), "{} twice", spec.name);
            for name in spec.flag.then_some(spec.name).iter().chain(spec.aliases) {
                assert!(flags.insert(*name), "--{name} twice");
            }
            for key in spec.keys {
                assert!(key.split_once('.').is_some(), "{key}");
                assert!(keys.insert(*key), "{key} twice");
            }
            assert!(spec.deprecated.iter().all(|d| spec.aliases.contains(d)), "{}", spec.name);
            assert!(
                (spec.check)(spec.default).is_ok(),
                "default of {}: {:?}",
                spec.name,
                (spec.check)(spec.default)
            );
            assert!(!spec.help_line().is_empty() && spec.help_line().ends_with('.'), "help of {}", spec.name);
            if let Some(feature) = spec.feature {
                assert!(
                    crate::features::FEATURES.iter().any(|f| f.name == feature),
                    "{}: {feature}",
                    spec.name
                );
            }
        }
    }
}
