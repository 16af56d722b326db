//! Joins the roles.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use config::Config;
use kube_io::Kube;
use net::Family;
use telemetry::Telemetry;
use tokio_util::sync::CancellationToken;

use crate::pods::Pods;
use crate::settings;

type Role = Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;

/// Runs the roles of `config` until `stop` is cancelled (then it cleans up and returns Ok) or one of them fails for good.
///
/// # Errors
/// When a role cannot go on.
pub(crate) async fn run(
    mut config: Config,
    telemetry: Telemetry,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    if let Some(name) = &config.roles.cleanup_node {
        return cleanup(&config, name).await;
    }
    let mut roles: Vec<Role> = Vec::new();
    fit_mtu(&mut config)?;
    if let Some(identity) = &config.roles.cluster_manager {
        roles.push(cluster_manager(&config, identity, &telemetry, &stop).await?);
    } else {
        zone(&config, &telemetry, &stop, &mut roles).await?;
    }
    // The first role that ends, ends the process; when asked to stop, all get the time to do so.
    let (ended, _, rest) = futures::future::select_all(roles).await;
    if ended.is_ok() && stop.is_cancelled() {
        for role in rest {
            role.await?;
        }
    }
    ended
}

/// Where nobody gave the MTU of pods, makes it one that the node's network carries. Controller and agent need the same.
fn fit_mtu(config: &mut Config) -> anyhow::Result<()> {
    let given = config.origin("mtu") != Some(&config::Origin::Default);
    let Some(name) = config.roles.node.as_deref().filter(|_| !given) else { return Ok(()) };
    let settings = settings::node(config, name)?;
    let view = host::Handle::open().and_then(|handle| node::host_view::observe(&handle));
    let fits = node::mtu::fitting(&settings, &view.context("cannot read the interfaces of this node")?);
    if fits != config.default.mtu {
        tracing::warn!(
            mtu = fits,
            "the node's network has no room for the usual MTU of pods; using less, unless --mtu says otherwise"
        );
        config.default.mtu = fits;
    }
    Ok(())
}

async fn cluster_manager(
    config: &Config,
    identity: &str,
    telemetry: &Telemetry,
    stop: &CancellationToken,
) -> anyhow::Result<Role> {
    let settings = settings::cluster_manager(config, identity)?;
    let kube = Kube::connect(settings::kube(config, "ovnkube-cluster-manager", identity)).await?;
    let ready = telemetry.health.ready("cluster manager");
    ready.fail("the cluster manager is starting");
    let figures = Arc::new(Figures { metrics: telemetry.metrics.clone(), ready });
    let stop = stop.clone();
    Ok(Box::pin(async move {
        let shutdown = async move { stop.cancelled().await };
        cluster_manager::run(settings, kube, figures, shutdown).await.context("cluster manager")
    }))
}

/// Controller and node agent of this node, together or alone.
async fn zone(
    config: &Config,
    telemetry: &Telemetry,
    stop: &CancellationToken,
    roles: &mut Vec<Role>,
) -> anyhow::Result<()> {
    let (controller, agent) = (config.roles.ovnkube_controller.as_deref(), config.roles.node.as_deref());
    let Some(name) = controller.or(agent) else { return Ok(()) };
    let kube = Kube::connect(settings::kube(config, "ovnkube", name)).await?;
    let boards = node::Boards::default();
    let services = agent.is_some().then(|| boards.services.clone());
    let pods = Arc::new(Pods::new(name, boards.pods.clone(), services, telemetry.metrics.clone()));
    if let Some(name) = controller {
        roles.push(network_controller(config, name, kube.clone(), pods.clone(), telemetry, stop));
    }
    if let Some(name) = agent {
        let settings = settings::node(config, name)?;
        let status = node::Status::new();
        let probe = status.clone();
        telemetry.health.ready_probe("node agent", move || std::future::ready(probe.ready()));
        telemetry.metrics.node.nodeport_enabled.set_bool(config.gateway.nodeport);
        let hooks = node::Hooks { observer: Some(pods), kube_auth: settings::kube_auth(config) };
        roles.push(Box::pin(ready_time(status.clone(), telemetry.clone(), stop.clone())));
        let stop = stop.clone();
        roles.push(Box::pin(async move {
            node::run(settings, kube, boards, hooks, status, stop).await.context("node agent")
        }));
    }
    Ok(())
}

fn network_controller(
    config: &Config,
    name: &str,
    kube: Kube,
    pods: Arc<Pods>,
    telemetry: &Telemetry,
    stop: &CancellationToken,
) -> Role {
    let options = settings::controller(config, name);
    let probe = pods.clone();
    telemetry
        .health
        .ready_probe("network controller", move || std::future::ready(probe.not_ready().map_or(Ok(()), Err)));
    let local = config.gateway.mode == Some(config::GatewayMode::Local);
    telemetry.metrics.controller.egress_routing_via_host.set_bool(local);
    let stop = stop.clone();
    Box::pin(async move {
        tokio::select! {
            outcome = controller::run(options, kube, pods) => outcome.context("network controller"),
            () = stop.cancelled() => Ok(()),
        }
    })
}

/// Notes how long the node agent took to serve pods, then waits for the end.
async fn ready_time(
    status: node::Status,
    telemetry: Telemetry,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let started = Instant::now();
    tokio::select! {
        () = status.wait_ready() => {
            telemetry.metrics.node.ready_duration.set(started.elapsed().as_secs_f64());
            tracing::info!(after = ?started.elapsed(), "node agent is ready");
            stop.cancelled().await;
        }
        () = stop.cancelled() => {}
    }
    Ok(())
}

async fn cleanup(config: &Config, name: &str) -> anyhow::Result<()> {
    node::cleanup(&settings::node(config, name)?).await.map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("not everything could be removed from node {name}: {}", texts.join("; "))
    })
}

/// The cluster manager's figures as metrics.
struct Figures {
    metrics: telemetry::Metrics,
    ready: telemetry::Check,
}

impl cluster_manager::Observe for Figures {
    fn leader(&self, leads: bool) {
        self.metrics.cluster_manager.leader.set_bool(leads);
    }

    fn host_subnets(&self, network: &str, family: Family, allocated: u64, capacity: u64) {
        let figures = &self.metrics.cluster_manager;
        figures.host_subnets(network, family == Family::V6, capacity as f64, allocated as f64);
    }

    fn ready(&self, after: Duration) {
        self.metrics.cluster_manager.ready_duration.set(after.as_secs_f64());
        self.ready.pass();
    }
}
