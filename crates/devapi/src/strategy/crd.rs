//! CustomResourceDefinitions as objects; serving them is `store/custom.rs`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{fill, items, items_mut, text};
use crate::{error::FieldError, names, schema};

pub(super) fn default(crd: &mut Value) {
    let spec = &mut crd["spec"];
    if !spec.is_object() {
        return;
    }
    let kind = text(&spec["names"], "kind").to_string();
    if let Some(names) = spec.get_mut("names") {
        fill(names, "singular", kind.to_lowercase());
        fill(names, "listKind", format!("{kind}List"));
    }
    fill(spec, "conversion", json!({"strategy": "None"}));
    for version in items_mut(spec, "versions") {
        for column in items_mut(version, "additionalPrinterColumns") {
            fill(column, "name", "");
        }
    }
}

pub(super) fn validate(crd: &Value, errors: &mut Vec<FieldError>) {
    let spec = &crd["spec"];
    let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
    if let Some(why) = names::dns_subdomain(group) {
        errors.push(FieldError::invalid("spec.group", &group.into(), why));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            &group.into(),
            "should be a domain with at least one dot",
        ));
    }
    let name = &crd["metadata"]["name"];
    if name.as_str() != Some(format!("{plural}.{group}").as_str()) {
        errors.push(FieldError::invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group"));
    }
    let protected = group == "k8s.io"
        || group == "kubernetes.io"
        || group.ends_with(".k8s.io")
        || group.ends_with(".kubernetes.io");
    let approved = text(&crd["metadata"]["annotations"], "api-approved.kubernetes.io");
    if protected && !approved.starts_with("http") && !approved.starts_with("unapproved") {
        errors.push(FieldError::required(
            "metadata.annotations[api-approved.kubernetes.io]",
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
             https://github.com/kubernetes/enhancements/pull/1111",
        ));
    }
    if !["Namespaced", "Cluster"].contains(&text(spec, "scope")) {
        let allowed = ["Cluster", "Namespaced"].map(String::from);
        errors.push(FieldError::unsupported("spec.scope", &spec["scope"], &allowed));
    }
    for (field, value) in [("plural", plural), ("singular", text(&spec["names"], "singular"))] {
        if let Some(why) = names::dns_1035_label(value) {
            errors.push(FieldError::invalid(format!("spec.names.{field}"), &value.into(), why));
        }
    }
    let (mut stored, mut seen) = (0, BTreeSet::new());
    for (at, version) in items(spec, "versions") {
        let here = format!("spec.versions[{at}]");
        let name = text(version, "name");
        if let Some(why) = names::dns_1035_label(name) {
            errors.push(FieldError::invalid(format!("{here}.name"), &name.into(), why));
        }
        if !seen.insert(name.to_string()) {
            errors.push(FieldError::duplicate(format!("{here}.name"), &name.into()));
        }
        stored += usize::from(version["storage"] == json!(true));
        match version.pointer("/schema/openAPIV3Schema") {
            Some(source) => schema::admit(source, &format!("{here}.schema.openAPIV3Schema"), errors),
            None => {
                let at = format!("{here}.schema.openAPIV3Schema");
                errors.push(FieldError::required(at, "schemas are required"));
            }
        }
    }
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &Value::Null, why));
    }
}
