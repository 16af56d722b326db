//! Access to the Kubernetes API and what we need to know of the cluster.

use crate::codec::*;
use crate::spec::section;
use ipnet::IpNet;
use std::{path::PathBuf, time::Duration};

section! {
    /// `[kubernetes]`. Credentials are read through [`crate::ApiAccess`], which also knows the service account.
    Kubernetes, "Kubernetes";
    /// Kubeconfig file; it replaces the other settings of API access.
    kubeconfig: Option<PathBuf> [OptionalPath] = "k8s-kubeconfig", ["kubernetes.kubeconfig"], "" { env: Some("KUBECONFIG") };
    /// URL of the API server.
    apiserver: String [Text] = "k8s-apiserver", ["kubernetes.apiserver"], "http://localhost:8443" { env: Some("K8S_APISERVER"), placeholder: "URL" };
    /// File with the certificates that the API server's is checked against.
    cacert: Option<PathBuf> [OptionalPath] = "k8s-cacert", ["kubernetes.cacert"], "" { env: Some("K8S_CACERT") };
    /// The same certificates, as base64 of PEM.
    cacert_data: Option<Secret> [SecretText] = "k8s-cacert-data", ["kubernetes.cacert-data"], "" { env: Some("K8S_CACERT_DATA"), placeholder: "BASE64", secret: true };
    /// Bearer token.
    token: Option<Secret> [SecretText] = "k8s-token", ["kubernetes.token"], "" { env: Some("K8S_TOKEN"), placeholder: "TOKEN", secret: true };
    /// File with the bearer token; it is read again when it changes.
    token_file: Option<PathBuf> [OptionalPath] = "k8s-token-file", ["kubernetes.tokenfile"], "" { env: Some("K8S_TOKEN_FILE") };
    /// Kubeconfig with which the node asks for its own certificate.
    bootstrap_kubeconfig: Option<PathBuf> [OptionalPath] = "bootstrap-kubeconfig", ["kubernetes.bootstrap-kubeconfig"], "" { env: Some("BOOTSTRAP_KUBECONFIG"), feature: Some("node-identity") };
    /// Directory for that certificate.
    cert_dir: Option<PathBuf> [OptionalPath] = "cert-dir", ["kubernetes.cert-dir"], "" { env: Some("CERT_DIR"), feature: Some("node-identity") };
    /// Life of that certificate.
    cert_duration: Duration [GoDuration] = "cert-duration", ["kubernetes.cert-duration"], "10m" { feature: Some("node-identity") };
    /// Prefixes of Services, at most one a family.
    service_cidrs: Vec<IpNet> [ServiceNets] = "k8s-service-cidrs", ["kubernetes.service-cidrs", "kubernetes.service-cidr"], "172.16.1.0/24" { aliases: &["k8s-service-cidr", "service-cluster-ip-range"], deprecated: &["service-cluster-ip-range"] };
    /// Namespace of our own objects, the leader's Lease among them.
    ovn_config_namespace: String [Text] = "ovn-config-namespace", ["kubernetes.ovn-config-namespace"], "ovn-kubernetes" { placeholder: "NAMESPACE" };
    /// Namespace that stands for host-network traffic in policies.
    host_network_namespace: Option<String> [OptionalText] = "host-network-namespace", ["kubernetes.host-network-namespace"], "" { env: Some("OVN_HOST_NETWORK_NAMESPACE"), placeholder: "NAMESPACE" };
    /// Label selector of nodes that get no subnet from us.
    no_hostsubnet_nodes: Option<String> [OptionalText] = "no-hostsubnet-nodes", ["kubernetes.no-hostsubnet-nodes"], "" { placeholder: "SELECTOR" };
    /// Send an event when a Service without endpoints is used.
    ovn_empty_lb_events: bool [Bool] = "ovn-empty-lb-events", ["kubernetes.ovn-empty-lb-events"], "false" { feature: Some("empty-lb-events") };
    /// Do not bind logical ports to a chassis.
    disable_requestedchassis: bool [Bool] = "disable-requestedchassis", ["kubernetes.disable-requestedchassis"], "false";
    /// Platform of the cluster.
    platform_type: Option<Platform> [OptionalChoice<Platform>] = "platform-type", ["kubernetes.platform-type"], "" { feature: Some("egress-ip") };
    /// Serve the node's health here; unset for none.
    healthz_bind_address: Option<Listen> [ListenAddress] = "healthz-bind-address", ["kubernetes.healthz-bind-address"], "";
    /// Namespace of the cluster's DNS service.
    dns_service_namespace: String [Text] = "dns-service-namespace", ["kubernetes.dns-service-namespace"], "kube-system" { placeholder: "NAMESPACE" };
    /// Name of the cluster's DNS service.
    dns_service_name: String [Text] = "dns-service-name", ["kubernetes.dns-service-name"], "kube-dns" { placeholder: "NAME" };
    /// Accepted and not used.
    pod_ip: Option<String> [OptionalText] = "pod-ip", [], "" { placeholder: "IP" };
}
