//! The objects every new cluster has.

use std::net::SocketAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{Store, Sub, WriteOptions};
use crate::error::ApiError;

/// Namespaces, the Service `default/kubernetes` and its endpoints, the service ranges.
pub(super) fn fill(store: &Store, cidrs: &[IpNet], endpoint: SocketAddr) -> Result<(), ApiError> {
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        store.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))?;
    }
    roles(store)?;
    let first = store.lock().services.first();
    let Some(address) = first else { return Ok(()) };
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    store.create(json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {"type": "ClusterIP", "clusterIP": address.to_string(), "clusterIPs": [address.to_string()],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": endpoint.port()}]}}))?;
    // A Service may not have loopback endpoints; on loopback the server does not publish itself.
    if !endpoint.ip().is_loopback() {
        endpoints(store, endpoint)?;
    }
    let cidrs: Vec<String> = cidrs.iter().map(|c| c.trunc().to_string()).collect();
    store.create(json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}}))?;
    let ready: Value = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"}, "status": {"conditions": [{"type": "Ready", "status": "True",
            "reason": "", "message": "Kubernetes default Service CIDR is ready",
            "lastTransitionTime": crate::identity::now()}]}});
    let kind = store.resource_kind("servicecidrs")?;
    store.update_object(&kind, "", "kubernetes", Sub::Status, ready, &WriteOptions::default())?;
    Ok(())
}

/// The roles a cluster starts with that say something here: all rights, and what everybody may read and ask.
fn roles(store: &Store) -> Result<(), ApiError> {
    let documents = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/version/"];
    let own = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    for (name, group, rules) in [
        (
            "cluster-admin",
            "system:masters",
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]}]),
        ),
        (
            "system:discovery",
            "system:authenticated",
            json!([{"nonResourceURLs": documents, "verbs": ["get"]}]),
        ),
        (
            "system:basic-user",
            "system:authenticated",
            json!([{"apiGroups": ["authorization.k8s.io"], "resources": own, "verbs": ["create"]},
                {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]}]),
        ),
    ] {
        let metadata = json!({"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}});
        let version = "rbac.authorization.k8s.io/v1";
        store.create(
            json!({"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules}),
        )?;
        store.create(json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]}))?;
    }
    Ok(())
}

/// The server itself, behind the Service `default/kubernetes`.
fn endpoints(store: &Store, endpoint: SocketAddr) -> Result<(), ApiError> {
    let family = if endpoint.is_ipv4() { "IPv4" } else { "IPv6" };
    store.create(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "endpoints": [{"addresses": [endpoint.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": endpoint.port(), "protocol": "TCP"}]}),
    )?;
    store.create(json!({"apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": endpoint.ip().to_string()}],
            "ports": [{"name": "https", "port": endpoint.port(), "protocol": "TCP"}]}]}))?;
    Ok(())
}
