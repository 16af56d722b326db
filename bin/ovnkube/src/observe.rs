//! From the configuration to log, metrics and their servers.

use crate::build;
use config::{Config, Listen, TlsVersion};
use std::{net::SocketAddr, time::Duration};
use telemetry::{
    Admin, AdminSettings, Health, LogSettings, Metrics, Roles, Telemetry,
    admin::{AdminError, TlsFiles, TlsSettings},
    log::{LogError, Rotation},
};

/// Sets up the log and declares the metrics.
pub(crate) fn telemetry(config: &Config) -> Result<Telemetry, LogError> {
    let logging = &config.logging;
    let rotation = Rotation {
        max_bytes: logging.logfile_maxsize << 20,
        max_backups: logging.logfile_maxbackups as usize,
        max_age: Duration::from_secs(u64::from(logging.logfile_maxage) * 86_400),
    };
    let file = logging.logfile.clone().map(|path| (path, rotation));
    let log = telemetry::log::init(&LogSettings { level: logging.loglevel, file })?;

    let roles = Roles {
        cluster_manager: config.roles.cluster_manager.is_some(),
        controller: config.roles.ovnkube_controller.is_some(),
        node: config.roles.node.is_some(),
    };
    let mut log_files: Vec<_> = logging.logfile.iter().cloned().collect();
    if roles.node {
        log_files.push(logging.cnilogfile.clone());
    }
    Ok(Telemetry { log, metrics: Metrics::new(roles, build::INFO, log_files), health: Health::default() })
}

/// Starts the servers for metrics and health.
pub(crate) fn admin(config: &Config, telemetry: &Telemetry) -> Result<Admin, AdminError> {
    let addresses =
        |listen: Option<Listen>| -> Vec<SocketAddr> { listen.iter().flat_map(Listen::candidates).collect() };
    let metrics = &config.metrics;
    let files = metrics.node_server_cert.clone().zip(metrics.node_server_privkey.clone());
    if files.is_some() && matches!(config.tls.min_version, Some(TlsVersion::V10 | TlsVersion::V11)) {
        tracing::warn!(
            "{} is not safe; TLS 1.2 is the oldest version served",
            config.described("tls-min-version")
        );
    }
    let tls = files.map(|(certificate, key)| TlsSettings {
        files: TlsFiles { certificate, key },
        only_tls13: config.tls.min_version == Some(TlsVersion::V13),
        cipher_suites: config.tls.cipher_suites.clone(),
    });
    let settings = AdminSettings {
        metrics: addresses(metrics.bind_address),
        ovn_metrics: addresses(metrics.ovn_bind_address),
        healthz: addresses(config.kubernetes.healthz_bind_address.filter(|_| config.roles.node.is_some())),
        tls,
        debug: metrics.enable_pprof,
    };
    Admin::start(settings, telemetry)
}
