//! Servers for metrics and health, TLS.

use crate::codec::*;
use crate::spec::section;
use std::path::PathBuf;

section! {
    /// `[metrics]`
    Metrics, "Metrics and health";
    /// Serve metrics, /healthz and /readyz here; unset for none.
    bind_address: Option<Listen> [ListenAddress] = "metrics-bind-address", ["metrics.bind-address", "kubernetes.metrics-bind-address"], "";
    /// Serve the metrics of OVN here; unset for none.
    ovn_bind_address: Option<Listen> [ListenAddress] = "ovn-metrics-bind-address", ["metrics.ovn-metrics-bind-address"], "";
    /// Serve the metrics of Open vSwitch there too.
    export_ovs_metrics: bool [Bool] = "export-ovs-metrics", ["metrics.export-ovs-metrics"], "false" { feature: Some("ovs-metrics") };
    /// Let /debug/flags/v read and change the log level.
    enable_pprof: bool [Bool] = "metrics-enable-pprof", ["metrics.enable-pprof"], "false";
    /// Private key that makes the metrics servers speak TLS.
    node_server_privkey: Option<PathBuf> [OptionalPath] = "node-server-privkey", ["metrics.node-server-privkey"], "";
    /// Certificate that goes with it.
    node_server_cert: Option<PathBuf> [OptionalPath] = "node-server-cert", ["metrics.node-server-cert"], "";
    /// Measure the time from an event to its flows.
    enable_config_duration: bool [Bool] = "metrics-enable-config-duration", ["metrics.enable-config-duration"], "false" { feature: Some("config-duration") };
    /// Measure what costs at scale.
    enable_scale: bool [Bool] = "metrics-enable-scale", ["metrics.enable-scale-metrics"], "false" { feature: Some("scale-metrics") };
}

section! {
    /// `[tls]`
    Tls, "Metrics and health";
    /// Oldest TLS version of our servers; unset is TLS 1.2.
    min_version: Option<TlsVersion> [OptionalChoice<TlsVersion>] = "tls-min-version", ["tls.tls-min-version", "tls.min-version"], "";
    /// Cipher suites of our servers by their IANA names; unset are all safe ones.
    cipher_suites: Vec<String> [Words] = "tls-cipher-suites", ["tls.tls-cipher-suites", "tls.cipher-suites"], "" { placeholder: "SUITE,..." };
}

section! {
    /// `[egressip-healthcheck-tls]`: only the health check of egress nodes uses these; the flags keep their old names.
    EgressIpHealthcheckTls, "Egress IP health check";
    /// Private key.
    client_privkey: Option<PathBuf> [OptionalPath] = "nb-client-privkey", ["egressip-healthcheck-tls.client-privkey", "ovnnorth.client-privkey"], "" { feature: Some("egress-ip") };
    /// Certificate.
    client_cert: Option<PathBuf> [OptionalPath] = "nb-client-cert", ["egressip-healthcheck-tls.client-cert", "ovnnorth.client-cert"], "" { feature: Some("egress-ip") };
    /// Certificates that the other side's is checked against.
    client_cacert: Option<PathBuf> [OptionalPath] = "nb-client-cacert", ["egressip-healthcheck-tls.client-cacert", "ovnnorth.client-cacert"], "" { feature: Some("egress-ip") };
    /// Name in the other side's certificate.
    cert_common_name: Option<String> [OptionalText] = "nb-cert-common-name", ["egressip-healthcheck-tls.cert-common-name", "ovnnorth.cert-common-name"], "" { feature: Some("egress-ip") };
}
