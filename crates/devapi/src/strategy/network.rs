//! Endpoints, EndpointSlices and NetworkPolicies.

use serde_json::{Value, json};

use super::{addresses, fill, items, items_mut, labels, text};
use crate::error::FieldError;

pub(super) fn default_endpoints(object: &mut Value) {
    for port in items_mut(object, "ports") {
        fill(port, "protocol", "TCP");
        fill(port, "name", "");
    }
    for subset in items_mut(object, "subsets") {
        for port in items_mut(subset, "ports") {
            fill(port, "protocol", "TCP");
        }
    }
}

pub(super) fn validate_slice(slice: &Value, errors: &mut Vec<FieldError>) {
    let ty = text(slice, "addressType");
    let allowed = ["FQDN", "IPv4", "IPv6"];
    if !allowed.contains(&ty) {
        if slice.get("addressType").is_some() {
            errors.push(FieldError::unsupported(
                "addressType",
                &slice["addressType"],
                &allowed.map(String::from),
            ));
        }
        return;
    }
    for (at, endpoint) in items(slice, "endpoints") {
        if endpoint["addresses"].as_array().is_none_or(Vec::is_empty) {
            errors.push(FieldError::required(
                format!("endpoints[{at}].addresses"),
                "must contain at least 1 address",
            ));
        }
        for (n, address) in items(endpoint, "addresses") {
            let value = address.as_str().unwrap_or_default();
            if let Err(why) = validate_address(ty, value) {
                let field = format!("endpoints[{at}].addresses[{n}]");
                errors.push(FieldError::invalid(field, address, why));
            }
        }
    }
}

fn validate_address(ty: &str, value: &str) -> Result<(), String> {
    if ty == "FQDN" {
        return crate::names::dns_subdomain(value).map_or(Ok(()), Err);
    }
    let ip = addresses::ip(value)?;
    if ip.is_ipv4() != (ty == "IPv4") {
        return Err(format!("must be an {ty} address"));
    }
    Ok(addresses::reachable(ip)?)
}

pub(super) fn default_policy(policy: &mut Value) {
    let spec = &mut policy["spec"];
    if spec.is_null() {
        *spec = json!({});
    }
    fill(spec, "podSelector", json!({}));
    let egress = spec["egress"].as_array().is_some_and(|e| !e.is_empty());
    let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    fill(spec, "policyTypes", types);
    for list in ["ingress", "egress"] {
        for rule in items_mut(spec, list) {
            for port in items_mut(rule, "ports") {
                fill(port, "protocol", "TCP");
            }
        }
    }
}

pub(super) fn validate_policy(policy: &Value, errors: &mut Vec<FieldError>) {
    let spec = &policy["spec"];
    labels::validate_selector(&spec["podSelector"], "spec.podSelector", errors);
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for (at, rule) in items(spec, list) {
            for (n, peer) in items(rule, peers) {
                validate_peer(peer, &format!("spec.{list}[{at}].{peers}[{n}]"), errors);
            }
            for (n, port) in items(rule, "ports") {
                validate_port(port, &format!("spec.{list}[{at}].ports[{n}]"), errors);
            }
        }
    }
    for (at, ty) in items(spec, "policyTypes") {
        if !["Ingress", "Egress"].contains(&ty.as_str().unwrap_or_default()) {
            let allowed = ["Egress", "Ingress"].map(String::from);
            errors.push(FieldError::unsupported(format!("spec.policyTypes[{at}]"), ty, &allowed));
        }
    }
}

fn validate_peer(peer: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for selector in ["podSelector", "namespaceSelector"] {
        labels::validate_selector(&peer[selector], &format!("{path}.{selector}"), errors);
    }
    let selects = peer.get("podSelector").is_some() || peer.get("namespaceSelector").is_some();
    let Some(block) = peer.get("ipBlock") else {
        if !selects {
            errors.push(FieldError::required(path, "must specify a peer"));
        }
        return;
    };
    if selects {
        errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
    }
    let network = match addresses::cidr(text(block, "cidr")) {
        Ok(network) => network,
        Err(why) => {
            errors.push(FieldError::invalid(format!("{path}.ipBlock.cidr"), &block["cidr"], why));
            return;
        }
    };
    for (at, except) in items(block, "except") {
        let field = format!("{path}.ipBlock.except[{at}]");
        match addresses::cidr(except.as_str().unwrap_or_default()) {
            Err(why) => errors.push(FieldError::invalid(field, except, why)),
            Ok(inner) if !network.contains(&inner) || network == inner => {
                errors.push(FieldError::invalid(field, except, "must be a strict subset of `cidr`"));
            }
            Ok(_) => {}
        }
    }
}

fn validate_port(port: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !["TCP", "UDP", "SCTP"].contains(&text(port, "protocol")) {
        let allowed = ["SCTP", "TCP", "UDP"].map(String::from);
        errors.push(FieldError::unsupported(format!("{path}.protocol"), &port["protocol"], &allowed));
    }
    let number = &port["port"];
    if number.is_i64() && !number.as_i64().is_some_and(|n| (1..=65535).contains(&n)) {
        let why = "must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{path}.port"), number, why));
    }
    if let Some(why) = number.as_str().and_then(addresses::port_name) {
        errors.push(FieldError::invalid(format!("{path}.port"), number, why));
    }
    let Some(end) = port.get("endPort") else { return };
    match (number.as_i64(), end.as_i64()) {
        (None, _) => errors
            .push(FieldError::required(format!("{path}.port"), "must be specified as an int with endPort")),
        (Some(first), Some(last)) if last < first => {
            let why = "must be greater than or equal to `port`";
            errors.push(FieldError::invalid(format!("{path}.endPort"), end, why));
        }
        _ => {}
    }
}
