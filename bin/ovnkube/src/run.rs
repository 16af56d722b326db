//! Joins the roles.

use anyhow::bail;
use config::Config;
use telemetry::Telemetry;
use tokio_util::sync::CancellationToken;

/// Runs the roles of `config` until `stop` is cancelled (then it cleans up and returns Ok) or one of them fails for good.
///
/// # Errors
/// When a role cannot go on.
pub(crate) async fn run(
    config: Config,
    _telemetry: Telemetry,
    _stop: CancellationToken,
) -> anyhow::Result<()> {
    let roles = &config.roles;
    let named = [
        ("cluster manager", &roles.cluster_manager),
        ("network controller", &roles.ovnkube_controller),
        ("node agent", &roles.node),
        ("clean-up", &roles.cleanup_node),
    ];
    let asked: Vec<_> = named.iter().filter(|(_, name)| name.is_some()).map(|(role, _)| *role).collect();
    bail!("these roles are not wired into this build: {}", asked.join(", "))
}
