//! Namespaces.

use kapi::Namespace;
use policy::Logging;

use crate::Labels;

/// What is known of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceState {
    /// Its labels.
    pub labels: Labels,
    /// What of its policies' decisions is logged.
    pub logging: Logging,
    /// Why its logging annotation cannot be used, in words; nothing is logged then.
    pub problem: Option<String>,
}

impl NamespaceState {
    pub(crate) fn parse(namespace: &Namespace, labels: Labels) -> NamespaceState {
        let parsed = namespace.metadata.annotation(policy::ACL_LOGGING).map(Logging::parse);
        match parsed {
            None => NamespaceState { labels, logging: Logging::default(), problem: None },
            Some(Ok(logging)) => NamespaceState { labels, logging, problem: None },
            Some(Err(problem)) => {
                NamespaceState { labels, logging: Logging::default(), problem: Some(problem) }
            }
        }
    }
}
