//! Selections of pods.

use std::collections::BTreeMap;

use kapi::{LabelSelector, Operator};

/// Pods by namespace and labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selection {
    /// The pods' namespaces.
    pub namespaces: Namespaces,
    /// The pods' labels; none (as opposed to an empty selector) means all pods, and in a NetworkPolicy's peer that
    /// the form without podSelector was used.
    pub pods: Option<LabelSelector>,
    /// Whether pods on the host's network count, with their node's addresses.
    pub host_pods: bool,
    /// Whether the namespace that stands for the nodes (`host-network-namespace`), when selected, adds the addresses
    /// from which nodes reach pods.
    pub nodes: bool,
}

/// Namespaces by name or labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespaces {
    /// This one.
    Named(String),
    /// Those with these labels.
    Labelled(LabelSelector),
}

impl Selection {
    /// Whether the namespace is one of the selection.
    pub fn matches_namespace(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        match &self.namespaces {
            Namespaces::Named(wanted) => wanted == name,
            Namespaces::Labelled(selector) => selector.matches(labels),
        }
    }

    /// Whether the pod's labels are those of the selection.
    pub fn matches_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.pods.as_ref().is_none_or(|selector| selector.matches(labels))
    }

    /// The reference's text of the selection, part of the name of its address set.
    pub fn text(&self) -> String {
        let mut text = match &self.namespaces {
            Namespaces::Named(name) => name.clone(),
            Namespaces::Labelled(selector) => selector_text(selector),
        };
        text.push('_');
        match &self.pods {
            Some(selector) => text.push_str(&selector_text(selector)),
            None => text.push_str("LS{}_LNM"),
        }
        text
    }

    /// The form all selections have that differ only in the order of what they say, so that equal ones compare equal.
    pub(crate) fn normal(mut self) -> Selection {
        if let Namespaces::Labelled(selector) = &mut self.namespaces {
            sort(selector);
        }
        if let Some(selector) = &mut self.pods {
            sort(selector);
        }
        self
    }

    /// Why the selection does not mean anything, if so. It selects nothing then.
    pub(crate) fn problem(&self) -> Option<String> {
        let namespaces = match &self.namespaces {
            Namespaces::Named(_) => None,
            Namespaces::Labelled(selector) => selector.problem(),
        };
        namespaces.or_else(|| self.pods.as_ref()?.problem())
    }
}

fn sort(selector: &mut LabelSelector) {
    for requirement in &mut selector.match_expressions {
        requirement.values.sort();
    }
    selector.match_expressions.sort();
}

/// Members are sorted: selectors that differ only in the order of what they say are the same.
fn selector_text(selector: &LabelSelector) -> String {
    let mut text = String::from("LS{");
    if !selector.match_labels.is_empty() {
        text.push_str("ML:{");
        for (key, value) in &selector.match_labels {
            text.push_str(&format!("{key}: {value},"));
        }
        text.push_str("},");
    }
    if !selector.match_expressions.is_empty() {
        let mut requirements: Vec<String> = Vec::new();
        for requirement in &selector.match_expressions {
            let mut values: Vec<&str> = requirement.values.iter().map(String::as_str).collect();
            values.sort_unstable();
            let operator = match requirement.operator {
                Operator::In => "In",
                Operator::NotIn => "NotIn",
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
                Operator::Unknown => "Unknown",
            };
            let (key, values) = (&requirement.key, values.join(" "));
            requirements.push(format!("LSR{{Key:{key},Operator:{operator},Values:[{values}],}}"));
        }
        requirements.sort();
        text.push_str(&format!("ME:{{{}}},", requirements.join(",")));
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(json: &str) -> LabelSelector {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn texts_equal_the_recorded_ones() {
        let of = |namespaces: Namespaces, pods: Option<&str>| {
            let pods = pods.map(selector);
            Selection { namespaces, pods, host_pods: true, nodes: false }.text()
        };
        let own = || Namespaces::Named("shop".into());
        let labelled = |json: &str| Namespaces::Labelled(selector(json));
        assert_eq!(of(labelled(r#"{"matchLabels":{"team":"mon"}}"#), None), "LS{ML:{team: mon,},}_LS{}_LNM");
        assert_eq!(
            of(
                labelled(r#"{"matchExpressions":[{"key":"team","operator":"Exists"}]}"#),
                Some(r#"{"matchLabels":{"app":"prom"}}"#)
            ),
            "LS{ME:{LSR{Key:team,Operator:Exists,Values:[],}},}_LS{ML:{app: prom,},}"
        );
        assert_eq!(
            of(own(), Some(r#"{"matchExpressions":[{"key":"app","operator":"In","values":["web","api"]}]}"#)),
            "shop_LS{ME:{LSR{Key:app,Operator:In,Values:[api web],}},}"
        );
        assert_eq!(of(own(), Some("{}")), "shop_LS{}");
    }
}
