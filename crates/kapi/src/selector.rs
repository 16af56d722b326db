//! Label selectors (`metav1.LabelSelector`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::meta::or_default;

/// Selects objects by their labels; all parts must hold. An empty selector selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_default")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub match_expressions: Vec<Requirement>,
}

/// One requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How the label's value relates to `values`.
    pub operator: Operator,
    /// Values for `In` and `NotIn`; empty for the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub values: Vec<String>,
}

/// The operators of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The label exists with one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// An operator we do not know; nothing satisfies it.
    #[serde(other)]
    Unknown,
}

impl LabelSelector {
    /// Whether the labels satisfy every part of the selector. A part that means nothing is not satisfied.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

impl LabelSelector {
    /// Why the selector does not mean anything, if so. It selects nothing then.
    pub fn problem(&self) -> Option<String> {
        self.match_expressions.iter().find_map(Requirement::problem)
    }

    /// Whether the selector says nothing, so that it selects everything.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

impl Requirement {
    fn problem(&self) -> Option<String> {
        let key = &self.key;
        match self.operator {
            Operator::In | Operator::NotIn if self.values.is_empty() => {
                Some(format!("matchExpressions: operator {:?} on {key:?} needs values", self.operator))
            }
            Operator::Exists | Operator::DoesNotExist if !self.values.is_empty() => {
                Some(format!("matchExpressions: operator {:?} on {key:?} takes no values", self.operator))
            }
            Operator::Unknown => Some(format!(
                "matchExpressions: the operator on {key:?} is none of In, NotIn, Exists, DoesNotExist"
            )),
            _ => None,
        }
    }

    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        if self.problem().is_some() {
            return false;
        }
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_follow_the_api() {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let cases = [
            (r#"{}"#, true),
            (r#"{"matchLabels":{"app":"web"}}"#, true),
            (r#"{"matchLabels":{"app":"db"}}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"In","values":["db","web"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"app","operator":"NotIn","values":["web"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"tier","operator":"NotIn","values":["web"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"app","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"app","operator":"DoesNotExist"}]}"#, false),
            (r#"{"matchExpressions":[{"key":"tier","operator":"NotIn","values":[]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"Exists","values":["web"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"Gt","values":["a"]}]}"#, false),
            (
                r#"{"matchLabels":null,"matchExpressions":[{"key":"tier","operator":"Exists","values":null}]}"#,
                false,
            ),
        ];
        for (text, expected) in cases {
            let selector: LabelSelector = serde_json::from_str(text).unwrap();
            assert_eq!(selector.matches(&labels), expected, "{text}");
        }
    }
}
