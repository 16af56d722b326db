//! What this program was built from; releases set the variables when they build.

use telemetry::BuildInfo;

const fn or(value: Option<&'static str>, otherwise: &'static str) -> &'static str {
    match value {
        Some(value) => value,
        None => otherwise,
    }
}

/// Labels of the build_info metrics.
pub(crate) const INFO: BuildInfo = BuildInfo {
    version: env!("CARGO_PKG_VERSION"),
    revision: or(option_env!("OVNKUBE_REVISION"), "unknown"),
    branch: or(option_env!("OVNKUBE_BRANCH"), "unknown"),
    build_user: or(option_env!("OVNKUBE_BUILD_USER"), "unknown"),
    build_date: or(option_env!("OVNKUBE_BUILD_DATE"), "unknown"),
    compiler: concat!("rust", env!("CARGO_PKG_RUST_VERSION")),
};

/// `ovnkube version`
pub(crate) fn version() -> String {
    format!(
        "ovnkube {} (revision {}, {}, built {})\n",
        INFO.version, INFO.revision, INFO.compiler, INFO.build_date
    )
}
