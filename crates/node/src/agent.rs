//! The agent's loop: look at database, host and Node, plan, apply, and wait until one of them changes.
//!
//! ```text
//!   Open_vSwitch replica ─┐                 ┌─▶ one OVSDB transaction
//!   netlink events ───────┼─▶ wake ─▶ pass ─┼─▶ netlink writes
//!   Node watch ───────────┘                 └─▶ one annotation patch
//! ```
//! Start-up, steady state, a changed node address, a re-created Node and a take-over are all the same pass. A pass
//! that finds everything as wanted writes nothing. Once the first pass succeeds the CNI server starts and then,
//! last of all, the CNI configuration file is written. Where that file is in place already, the server starts as soon
//! as there is a database.

mod facts;
mod gateway;
mod pass;
mod services;
mod wake;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use host::Handle;
use kapi::annotations::GatewayMode;
use kube_io::{Backoff, Kube, ObjectRef, Severity};
use ovn::names;
use ovsdb::{Endpoint, Options, Replica};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::pass::Pass;
use crate::board::PodBoard;
use crate::cni::diagnose::Diagnose;
use crate::conf_file;
use crate::encap_port;
use crate::error::NodeError;
use crate::gateway::apply::{InPlace, run_dir};
use crate::host_watch::{HostWatch, Writers};
use crate::kube_feed::{self, NodeFeed, OwnNode, RemoteNodes};
use crate::ovn_sync;
use crate::ovs;
use crate::run::diagnosis;
use crate::services::{HostServices, ServiceBoard};
use crate::settings::Settings;
use crate::status::{Awaited, Status};

/// How often everything is looked at though nobody said that it changed: rules and neighbours have no notification.
const RESYNC: Duration = Duration::from_secs(30);
/// How long OVN may take to set up the router of a new node.
const ROUTER_PATIENCE: Duration = Duration::from_secs(10);
/// How often a wait that does not end is logged.
const REMINDER: Duration = Duration::from_secs(10);

/// What the CNI server needs from the agent.
#[derive(Clone)]
pub struct Shared {
    /// The agent's settings.
    pub settings: Arc<Settings>,
    /// The Open_vSwitch database, connected and loaded.
    pub ovs: Replica,
    /// The pods of this node.
    pub board: PodBoard,
}

/// What the agent is told by others in the process, or tells itself where there are none.
#[derive(Debug, Clone, Default)]
pub struct Boards {
    /// The pods of this node. Unless [`Settings::watch_pods`] is set, somebody else keeps them.
    pub pods: PodBoard,
    /// The cluster's services. Unless [`Settings::watch_services`] is set, somebody else tells them.
    pub services: ServiceBoard,
}

/// Runs the agent until it is cancelled or cannot go on. `serve` starts the CNI server: it returns once the server
/// listens, and the future it returns ends only when the server fails.
pub async fn run_with<S, F>(
    settings: Settings,
    kube: Kube,
    boards: Boards,
    status: Status,
    cancel: CancellationToken,
    serve: impl FnOnce(Shared) -> S,
) -> Result<(), NodeError>
where
    S: Future<Output = Result<F, NodeError>>,
    F: Future<Output = NodeError>,
{
    let settings = Arc::new(settings);
    let Boards { pods: board, services } = boards;
    discard_stale_conf(&settings)?;
    let host_error = |what: &str, reason: String| NodeError::Host { what: what.to_owned(), reason };
    let host_watch =
        HostWatch::open().map_err(|e| host_error("listen to network notifications", e.to_string()))?;
    let handle = Handle::open().map_err(|e| host_error("open a netlink socket", e.to_string()))?;
    let endpoint: Endpoint = settings.ovs_db.parse().map_err(|e| NodeError::NoOpenVswitch {
        endpoint: settings.ovs_db.clone(),
        reason: format!("not an OVSDB address: {e}"),
    })?;
    let options = Options::new([endpoint], "Open_vSwitch").monitor(ovs::monitor_spec());
    let replica = Replica::connect(options);
    let wake = Arc::new(Notify::new());
    let (node, _) = watch::channel(NodeFeed::default());
    let (remote, _) = watch::channel(None);
    let table_touched = Arc::new(AtomicBool::new(false));
    let writers = Writers::default();
    let agent = Agent {
        settings: settings.clone(),
        kube: kube.clone(),
        replica: replica.clone(),
        handle: Arc::new(handle),
        node: node.subscribe(),
        remote: remote.subscribe(),
        wake: wake.clone(),
        in_place: InPlace::new(writers.clone()),
        external_in_place: InPlace::new(writers.clone()),
        services: HostServices::new(&settings.node, services.clone(), run_dir(&settings)),
        service_bridge: None,
        table_touched: table_touched.clone(),
        status,
        started: false,
        new_gateway: false,
        echo: pass::Echo::default(),
        reminded: Instant::now(),
        reported: String::new(),
    };
    let shared = Shared { settings: settings.clone(), ovs: replica.clone(), board: board.clone() };
    let pods = async {
        if settings.watch_pods {
            kube_feed::follow_pods(&kube, &settings.node, &board).await;
        }
        std::future::pending::<()>().await;
    };
    let told_services = async {
        if settings.watch_services && settings.gateway.mode != GatewayMode::Disabled {
            kube_feed::follow_services(&kube, &settings.node, &services).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = cancel.cancelled() => Ok(()),
        outcome = agent.run(&wake, serve(shared)) => Err(outcome),
        error = host_watch.follow(&wake, &table_touched, &writers) => {
            Err(host_error("read network notifications", error.to_string()))
        }
        () = wake::follow_ovs(&replica, &settings.node, &wake) => Ok(()),
        () = kube_feed::follow_node(&kube, &settings.node, &node, &wake) => Ok(()),
        () = kube_feed::follow_remote_nodes(&kube, &settings.node, &remote, &wake) => Ok(()),
        () = pods => Ok(()),
        () = told_services => Ok(()),
        () = encap_port::keep(&settings, &replica) => Ok(()),
    }
}

/// Removes a CNI configuration file left from before the machine was started: the runtime would otherwise start pods
/// on a network that is not there yet. One written since is left, also if the agent was away: pods keep their network.
fn discard_stale_conf(settings: &Settings) -> Result<(), NodeError> {
    let path = conf_file::path(&settings.cni_conf);
    if !conf_file::is_from_before_boot(&settings.cni_conf, &settings.cni_dir) {
        return Ok(());
    }
    warn!(path = %path.display(), "removing the CNI configuration of an earlier boot until the node is ready");
    conf_file::remove(&settings.cni_conf)
        .map(|_| ())
        .map_err(|source| NodeError::File { path: path.display().to_string(), source })
}

struct Agent {
    settings: Arc<Settings>,
    kube: Kube,
    replica: Replica,
    handle: Arc<Handle>,
    node: watch::Receiver<NodeFeed>,
    remote: watch::Receiver<RemoteNodes>,
    wake: Arc<Notify>,
    /// Flows and firewall as far as they are known to be in place.
    in_place: InPlace,
    /// The same for the flows of the second bridge.
    external_in_place: InPlace,
    services: HostServices,
    /// The bridge that carries flows of services.
    service_bridge: Option<String>,
    /// Somebody, perhaps we, changed the firewall table.
    table_touched: Arc<AtomicBool>,
    status: Status,
    /// The first pass has succeeded; from then on nothing that fails ends the process.
    started: bool,
    echo: pass::Echo,
    /// The gateway was not connected when this start found it: OVN has just heard of it.
    new_gateway: bool,
    /// When a wait was last logged.
    reminded: Instant,
    /// The last problem logged, so that a lasting one is said once.
    reported: String,
}

impl Agent {
    async fn run<S, F>(self, wake: &Notify, serve: S) -> NodeError
    where
        S: Future<Output = Result<F, NodeError>>,
        F: Future<Output = NodeError>,
    {
        // A runtime that was told of us before this start must be answered now: pods go away at any time, and their
        // removal needs neither the API server nor ovn-controller.
        let told = conf_file::path(&self.settings.cni_conf).exists();
        let replica = self.replica.clone();
        let (start, started) = oneshot::channel::<()>();
        let (listens, listening) = oneshot::channel::<()>();
        let server = async move {
            if told {
                replica.ready().await;
            } else if started.await.is_err() {
                // The passes have ended, and tell why.
                return std::future::pending().await;
            }
            let server = match serve.await {
                Ok(server) => server,
                Err(error) => return error,
            };
            let _ = listens.send(());
            server.await
        };
        tokio::select! {
            error = server => error,
            error = self.passes(wake, start, listening) => error,
        }
    }

    async fn passes(
        mut self,
        wake: &Notify,
        start: oneshot::Sender<()>,
        listening: oneshot::Receiver<()>,
    ) -> NodeError {
        if let Some(error) = self.first_passes(wake).await {
            return error;
        }
        // Whoever sees the file finds somebody listening on the socket.
        let _ = start.send(());
        if listening.await.is_err() {
            return std::future::pending().await;
        }
        let path = conf_file::path(&self.settings.cni_conf).display().to_string();
        match conf_file::write(&self.settings.cni_conf) {
            Ok(true) => info!(path, "wrote the CNI configuration"),
            Ok(false) => {}
            Err(source) => return NodeError::File { path, source },
        }
        self.status.set_serving();
        info!(node = self.settings.node, "node is ready for pods");
        self.later_passes(wake).await
    }

    /// Passes until everything is in place; `Some` if that cannot be reached.
    async fn first_passes(&mut self, wake: &Notify) -> Option<NodeError> {
        let give_up = Instant::now() + self.settings.ovs_wait;
        let mut pace = Pace::new();
        loop {
            let pass = self.pass().await;
            if let Some(error) = pass.fatal {
                return Some(error);
            }
            self.tell(&pass);
            if pass.awaited.is_none() {
                if self.new_gateway {
                    self.await_router().await;
                }
                self.started = true;
                return None;
            }
            let waits_for_ovs = matches!(pass.awaited, Some(Awaited::OpenVswitch { .. }));
            if waits_for_ovs && Instant::now() >= give_up {
                return Some(self.no_open_vswitch().await);
            }
            let deadline = waits_for_ovs.then_some(give_up);
            self.sleep(wake, &pass, &mut pace, deadline).await;
        }
    }

    /// The gateway router of a new node: until its flows are in the switch, packets of pods to the outside are lost.
    async fn await_router(&self) {
        let router = names::gateway_router(&self.settings.node);
        if let Err(problem) = ovn_sync::carried_out(&self.settings.ovn_nb, &router, ROUTER_PATIENCE).await {
            warn!("the first packets of pods to the outside may be lost: {problem}");
        }
    }

    async fn later_passes(&mut self, wake: &Notify) -> NodeError {
        let mut pace = Pace::new();
        loop {
            let pass = self.pass().await;
            self.tell(&pass);
            self.sleep(wake, &pass, &mut pace, None).await;
        }
    }

    /// Waits for a reason to look again: an event, the time for a retry, or the periodic look.
    async fn sleep(&mut self, wake: &Notify, pass: &Pass, pace: &mut Pace, deadline: Option<Instant>) {
        let now = Instant::now();
        // Nobody tells when a failed step is worth another try, and somebody who keeps undoing what we do must not
        // make us spin.
        let quiet = pace.after(pass, now);
        if !quiet.is_zero() {
            tokio::time::sleep(quiet).await;
        }
        if pass.retry {
            self.remind_in_time().await;
            return;
        }
        let until = deadline.map_or(now + RESYNC, |deadline| deadline.min(now + RESYNC));
        let services = self.services.board();
        loop {
            let look = until.min(self.reminded + REMINDER);
            tokio::select! {
                biased;
                () = wake.notified() => return,
                () = services.changed() => if !self.follow_services().await { return },
                () = tokio::time::sleep_until(look) => {
                    if Instant::now() >= until {
                        return;
                    }
                    self.remind_in_time().await;
                }
            }
        }
    }

    async fn remind_in_time(&mut self) {
        if self.reminded.elapsed() >= REMINDER {
            self.remind().await;
            self.reminded = Instant::now();
        }
    }

    /// Says what is still awaited; of ovn-controller it finds out first what it lacks.
    async fn remind(&self) {
        if let Some(Awaited::Installed { .. }) = self.status.awaited() {
            let chassis = self.replica.read(|cache| ovs::system_id(cache).map(str::to_owned));
            if let Some(diagnosis) = chassis.and_then(|chassis| diagnosis(&self.settings, &chassis)) {
                let port = ovs::iface_id(&self.settings.node);
                self.status.explain_installed(diagnosis.missing(&port).await.describe(&port));
            }
        }
        if let Some(awaited) = self.status.awaited() {
            info!("still waiting for {awaited}");
        }
    }

    fn tell(&mut self, pass: &Pass) {
        if self.status.set_awaited(pass.awaited.clone())
            && let Some(awaited) = &pass.awaited
        {
            info!("waiting for {awaited}");
            self.reminded = Instant::now();
        }
        let problems: Vec<String> = pass.problems.iter().map(ToString::to_string).collect();
        let text = problems.join("; ");
        if text != self.reported {
            match text.is_empty() {
                true => info!("earlier problems are over"),
                false => {
                    warn!("{text}");
                    if let OwnNode::Present(node) = &self.node.borrow().node {
                        self.kube.event(
                            ObjectRef::of(&**node),
                            Severity::Warning,
                            "NodeNetworkProblem",
                            text.as_str(),
                        );
                    }
                }
            }
            self.reported = text;
        }
    }

    async fn no_open_vswitch(&self) -> NodeError {
        let endpoint = self.settings.ovs_db.clone();
        let reason = match endpoint.strip_prefix("unix:") {
            Some(path) => match tokio::net::UnixStream::connect(path).await {
                Ok(_) => "it accepts connections but does not answer".to_owned(),
                Err(error) => error.to_string(),
            },
            None => "no connection".to_owned(),
        };
        NodeError::NoOpenVswitch { endpoint, reason }
    }
}

/// How long to pause after a pass that failed or that has put things right again and again.
struct Pace {
    backoff: Backoff,
    last_write: Option<Instant>,
    /// Passes that wrote, each shortly after the one before.
    run: u32,
}

impl Pace {
    /// Passes in a row that may write before they are slowed down: a start needs a few.
    const FREE: u32 = 8;

    fn new() -> Pace {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        Pace { backoff, last_write: None, run: 0 }
    }

    fn after(&mut self, pass: &Pass, now: Instant) -> Duration {
        if pass.wrote {
            let shortly = self.last_write.is_some_and(|last| now - last < Duration::from_secs(10));
            self.run = if shortly { self.run + 1 } else { 1 };
            self.last_write = Some(now);
        }
        if pass.retry || (pass.wrote && self.run > Self::FREE) {
            return self.backoff.next_delay();
        }
        if self.run <= Self::FREE {
            self.backoff.reset();
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_start_is_not_slowed_down_but_a_quarrel_is() {
        let (mut pace, now) = (Pace::new(), Instant::now());
        let wrote = Pass { wrote: true, ..Pass::default() };
        for _ in 0..Pace::FREE {
            assert_eq!(pace.after(&wrote, now), Duration::ZERO);
        }
        let (first, second) = (pace.after(&wrote, now), pace.after(&wrote, now));
        assert!(first > Duration::ZERO && second > first);
        assert_eq!(pace.after(&wrote, now + Duration::from_secs(60)), Duration::ZERO, "peace");
    }

    #[tokio::test]
    async fn failures_are_retried_more_and_more_seldom() {
        let (mut pace, now) = (Pace::new(), Instant::now());
        let failed = Pass { retry: true, ..Pass::default() };
        let delays: Vec<Duration> = (0..10).map(|_| pace.after(&failed, now)).collect();
        assert!(delays.is_sorted() && delays[9] == Duration::from_secs(5), "{delays:?}");
        assert_eq!(pace.after(&Pass::default(), now), Duration::ZERO);
        assert_eq!(pace.after(&failed, now), delays[0]);
    }
}
