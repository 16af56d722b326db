//! CNI ADD.

use std::{sync::Arc, time::Duration};

use ::cni::{CniResult, Interface, IpConfig, NetConf, PodIfInfo, PodRef};
use host::{
    NetNs,
    attach::{PodLink, PodLinkSpec, PodPair},
};
use kapi::{PodKey, annotations::PodNetwork};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::board::{PodBoard, PodView};

use super::{
    bandwidth::Limits,
    context::CniServer,
    failure::Failure,
    observe::Stage,
    plug::{Plug, PlugIds},
    progress::{Progress, Step},
    undo::Made,
};

/// What is to be attached.
#[derive(Debug, Clone)]
pub(crate) struct AddRequest {
    pub(crate) key: PodKey,
    /// UID the runtime knows; none from old runtimes.
    pub(crate) uid: Option<String>,
    pub(crate) sandbox: String,
    pub(crate) netns: String,
    pub(crate) ifname: String,
    /// MTU of the configuration, 0 for the server's.
    pub(crate) mtu: u32,
}

/// A pod that may be attached.
#[derive(Debug, Clone)]
struct Ready {
    view: Arc<PodView>,
    network: Arc<PodNetwork>,
    limits: Limits,
}

// === impl AddRequest ===

impl AddRequest {
    pub(crate) fn new(pod: &PodRef, sandbox: &str, netns: &str, ifname: &str, conf: &NetConf) -> AddRequest {
        AddRequest {
            key: PodKey::new(&*pod.namespace, &*pod.name),
            uid: pod.uid.clone(),
            sandbox: sandbox.to_owned(),
            netns: netns.to_owned(),
            ifname: ifname.to_owned(),
            mtu: conf.mtu,
        }
    }

    /// Name of the host's end: the reference's rule for the cluster network.
    fn host_name(&self) -> String {
        host_name(&self.sandbox)
    }

    fn iface_id(&self) -> String {
        format!("{}_{}", self.key.namespace, self.key.name)
    }
}

/// The first 15 characters of the sandbox id.
pub(crate) fn host_name(sandbox: &str) -> String {
    sandbox.chars().take(host::link::NAME_MAX).collect()
}

// === impl CniServer ===

impl CniServer {
    /// Attaches a pod. Ends early when `cancel` fires, and takes back everything whenever it fails.
    pub(crate) async fn add(
        &self,
        request: &AddRequest,
        cancel: &CancellationToken,
    ) -> Result<CniResult, Failure> {
        let progress = Progress::new(&*self.observer);
        let netns = self.open_netns(&request.netns).await?;
        let since = netns.since()?;
        let key = (request.key.clone(), request.ifname.clone());
        let mut place = self
            .turns
            .add(key, &request.sandbox, since, cancel)
            .map_err(|o| Failure::Outdated { ours: request.sandbox.clone(), newer: o.newer })?;
        let made = Made::default();
        let deadline = Instant::now() + self.settings.add_timeout;
        let attach = async {
            place.turn().await;
            progress.done(Stage::Queued, Step::Annotation);
            self.attach(request, &netns, since, &made, &progress).await
        };
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Failure::Cancelled),
            outcome = tokio::time::timeout_at(deadline, attach) => match outcome {
                Ok(outcome) => outcome,
                Err(_) => Err(self.timed_out(request, progress.step()).await),
            },
        };
        if outcome.is_err() {
            made.undo(&self.ports).await;
        }
        outcome
    }

    /// Waits for the pod and says what an unprivileged shim has to plumb.
    pub(crate) async fn add_unprivileged(
        &self,
        request: &AddRequest,
        cancel: &CancellationToken,
    ) -> Result<PodIfInfo, Failure> {
        let deadline = Instant::now() + self.settings.add_timeout;
        let ready = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Failure::Cancelled),
            ready = tokio::time::timeout_at(deadline, self.pod_ready(request)) => match ready {
                Ok(ready) => ready?,
                Err(_) => return Err(self.timed_out(request, Step::Annotation).await),
            },
        };
        Ok(PodIfInfo {
            network: (*ready.network).clone(),
            mtu: self.mtu(request),
            routable_mtu: self.settings.routable_mtu,
            ingress: ready.limits.ingress.map_or(0, |b| b as i64),
            egress: ready.limits.egress.map_or(0, |b| b as i64),
            is_dpu_host_mode: false,
            skip_ip_config: false,
            pod_uid: ready.view.uid.clone(),
            vf_netdev_name: String::new(),
            enable_udp_aggregation: false,
            net_name: kapi::annotations::DEFAULT_NETWORK.to_owned(),
            nad_key: kapi::annotations::DEFAULT_NETWORK.to_owned(),
            pod_if_names: Some(vec![request.ifname.clone()]),
            disable_tx_checksum: self.ports.is_userspace(),
        })
    }

    async fn attach(
        &self,
        request: &AddRequest,
        netns: &Arc<NetNs>,
        since: Duration,
        made: &Made,
        progress: &Progress<'_>,
    ) -> Result<CniResult, Failure> {
        // The pair needs nothing of what the pod is waited for.
        let pair = self.pair(request);
        made.link(&pair.host_name);
        let create = {
            let (host, netns, pair) = (self.host.clone(), netns.clone(), pair.clone());
            blocking(made, move || PodLink::create(&host, &netns, &pair))
        };
        let wait = async {
            let ready = self.pod_ready(request).await?;
            progress.done(Stage::Annotation, Step::Plug);
            self.ports.ready().await;
            self.refuse_outdated(request, since).await.map(|()| ready)
        };
        let (created, ready) = tokio::join!(create, wait);
        // What is wrong with the pod is told rather than what is wrong with its namespace.
        let ready = ready?;
        created?;

        let spec = Arc::new(self.link_spec(pair, &ready.network));
        let configure = {
            let (host, netns, spec) = (self.host.clone(), netns.clone(), spec.clone());
            blocking(made, move || PodLink::configure(&host, &netns, &spec))
        };
        let plug = self.plug(request, &ready, since);
        let mut watch = self.ports.watch(plug.ids.interface);
        let commit = async {
            let ops = self.ports.read(|cache| plug.ops(cache, self.ports.bridge()))?;
            made.port(plug.ids, &request.sandbox);
            self.ports.commit(&ops, |cache| cache.row("Port", &plug.ids.port).is_some()).await?;
            self.ledger.put(plug.clone());
            progress.done(Stage::Plugged, Step::Installed);
            Ok::<(), Failure>(())
        };
        // ovn-controller works on the port while the pod's end gets its addresses.
        let ((), link) = tokio::try_join!(commit, configure)?;
        progress.done(Stage::Configured, Step::Installed);

        let mut seen = false;
        let installed = watch.until(|row| {
            seen |= row.is_some();
            let lost = || Failure::LostPort { name: spec.pair.host_name.clone() };
            match row {
                Some(row) if row.key("external_ids", "iface-id") != Some(&plug.iface_id) => Some(Err(lost())),
                Some(row) => (row.key("external_ids", "ovn-installed") == Some("true")).then_some(Ok(())),
                None => seen.then(|| Err(lost())),
            }
        });
        tokio::select! {
            biased;
            outcome = installed => outcome?,
            changed = self.pod_changes(request, &ready) => return Err(changed),
        }
        progress.done(Stage::Installed, Step::Installed);
        announce(made, request.key.clone(), netns.clone(), spec.clone());
        self.observer.attached(&ready.view);
        Ok(result(request, &link, &spec))
    }

    /// Waits until the pod is known under the runtime's UID and has addresses.
    async fn pod_ready(&self, request: &AddRequest) -> Result<Ready, Failure> {
        // The runtime may know the pod a moment before our watch does.
        let known =
            |view: Option<&PodView>| view.is_some_and(|v| other_uid(request, v).is_none()).then_some(());
        let mut matched = tokio::select! {
            biased;
            () = self.board.wait(&request.key, known) => true,
            () = async { tokio::time::sleep(self.settings.lag).await; self.board.current().await } => false,
        };
        let look = |view: Option<&PodView>| -> Option<Result<Arc<PodNetwork>, Failure>> {
            let key = request.key.clone();
            let Some(view) = view else {
                return Some(Err(if matched { Failure::PodDeleted(key) } else { Failure::NoPod(key) }));
            };
            if let Some((asked, actual)) = other_uid(request, view) {
                return Some(Err(if matched {
                    Failure::Recreated { key, asked, actual }
                } else {
                    Failure::OtherUid { key, asked, actual }
                }));
            }
            matched = true;
            if view.host_network {
                return Some(Err(Failure::HostNetwork(key)));
            }
            view.annotation.clone().map(Ok)
        };
        let network = self.board.wait(&request.key, look).await?;
        let view = self.board.get(&request.key).ok_or_else(|| Failure::PodDeleted(request.key.clone()))?;
        let limits = Limits::of(&view.bandwidth)?;
        Ok(Ready { view, network, limits })
    }

    /// Ends when the pod is no longer the one being attached.
    async fn pod_changes(&self, request: &AddRequest, ready: &Ready) -> Failure {
        let key = || request.key.clone();
        self.board
            .wait(&request.key, |view| {
                let Some(view) = view else { return Some(Failure::PodDeleted(key())) };
                if view.uid != ready.view.uid {
                    let (asked, actual) = (ready.view.uid.clone(), view.uid.clone());
                    return Some(Failure::Recreated { key: key(), asked, actual });
                }
                match &view.annotation {
                    None => Some(Failure::AnnotationGone(key())),
                    Some(now) if now.mac != ready.network.mac || now.ips != ready.network.ips => {
                        Some(Failure::AddressesChanged {
                            key: key(),
                            old: addresses(&ready.network),
                            new: addresses(now),
                        })
                    }
                    Some(_) => None,
                }
            })
            .await
    }

    /// A sandbox may not take the port from a newer one that lives.
    async fn refuse_outdated(&self, request: &AddRequest, since: Duration) -> Result<(), Failure> {
        let iface_id = request.iface_id();
        let newer = self
            .ports
            .of_iface_id(&iface_id)
            .into_iter()
            .find(|p| p.sandbox != request.sandbox && p.on_bridge && p.since > since.as_nanos());
        let Some(newer) = newer else { return Ok(()) };
        let (host, name) = (self.host.clone(), newer.name.clone());
        let alive =
            tokio::task::spawn_blocking(move || host.link(&name)).await.map_err(|_| Failure::Thread)??;
        match alive {
            Some(link) if link.running => {
                Err(Failure::Outdated { ours: request.sandbox.clone(), newer: newer.sandbox })
            }
            _ => Ok(()),
        }
    }

    async fn timed_out(&self, request: &AddRequest, step: Step) -> Failure {
        let seconds = self.settings.add_timeout.as_secs();
        let view = self.board.get(&request.key);
        match step {
            Step::Queued => Failure::TimedOut {
                seconds,
                what: format!("an earlier CNI request of pod {} to end", request.key),
            },
            Step::Annotation => Failure::NoAnnotation {
                key: request.key.clone(),
                seconds,
                why: no_annotation(&self.board, view.as_deref()),
            },
            Step::Plug if !self.ports.is_up() => {
                let reason = self.ports.link().borrow().reason.clone();
                let what = format!(
                    "the Open vSwitch database ({})",
                    reason.as_deref().unwrap_or("not connected yet; is ovsdb-server running?")
                );
                Failure::TimedOut { seconds, what }
            }
            Step::Plug => Failure::TimedOut {
                seconds,
                what: "the interface to be plugged into Open vSwitch".to_owned(),
            },
            Step::Installed => {
                let network = view.and_then(|v| v.annotation.clone());
                Failure::NotInstalled {
                    mac: network.as_ref().map(|n| n.mac.to_string()).unwrap_or_default(),
                    ips: network.as_ref().map(|n| addresses(n)).unwrap_or_default(),
                    seconds,
                    why: self.why_not_installed(request).await,
                }
            }
        }
    }

    async fn why_not_installed(&self, request: &AddRequest) -> String {
        let iface_id = request.iface_id();
        let broken = self.ports.of_iface_id(&iface_id).into_iter().find_map(|p| {
            let row = self.ports.read(|cache| cache.row("Interface", &p.interface).cloned())?;
            row.str("error").map(|e| format!("Open vSwitch cannot use interface {}: {e}", p.name))
        });
        match (broken, &self.diagnose) {
            (Some(text), _) => text,
            (None, Some(diagnose)) => diagnose.missing(&iface_id).await.describe(&iface_id),
            (None, None) => format!("ovn-controller has not installed the flows of logical port {iface_id}"),
        }
    }

    fn mtu(&self, request: &AddRequest) -> u32 {
        if request.mtu == 0 { self.settings.mtu } else { request.mtu }
    }

    fn pair(&self, request: &AddRequest) -> PodPair {
        PodPair { host_name: request.host_name(), pod_name: request.ifname.clone(), mtu: self.mtu(request) }
    }

    fn link_spec(&self, pair: PodPair, network: &PodNetwork) -> PodLinkSpec {
        PodLinkSpec {
            pair,
            mac: network.mac.0,
            addresses: network.ips.clone(),
            gateways: network.gateways.clone(),
            routes: network.routes.iter().map(|r| (r.dest, r.next_hop)).collect(),
            route_mtu: (self.settings.routable_mtu != 0).then_some(self.settings.routable_mtu),
            disable_tx_checksum: self.ports.is_userspace(),
            skip_ip_config: false,
        }
    }

    fn plug(&self, request: &AddRequest, ready: &Ready, since: Duration) -> Plug {
        Plug {
            name: request.host_name(),
            iface_id: request.iface_id(),
            mac: ready.network.mac.to_string(),
            pod_uid: ready.view.uid.clone(),
            sandbox: request.sandbox.clone(),
            pod_ifname: request.ifname.clone(),
            ips: ready.network.ips.iter().map(ToString::to_string).collect(),
            since,
            limits: ready.limits,
            ids: self.fresh_ids(),
        }
    }

    pub(crate) fn fresh_ids(&self) -> PlugIds {
        PlugIds::new(&self.nonce.next())
    }

    async fn open_netns(&self, path: &str) -> Result<Arc<NetNs>, Failure> {
        // Opening follows a mount only; it does not block.
        Ok(Arc::new(NetNs::open(path)?))
    }
}

/// The two UIDs if the runtime's is another one than the API object's. Runtimes know static pods by a UID of the
/// kubelet's own, and old runtimes give none.
fn other_uid(request: &AddRequest, view: &PodView) -> Option<(String, String)> {
    let asked = request.uid.as_ref()?;
    (!view.static_pod && *asked != view.uid).then(|| (asked.clone(), view.uid.clone()))
}

fn no_annotation(board: &PodBoard, view: Option<&PodView>) -> String {
    let problem = board.problem();
    match (view, problem) {
        (Some(view), _) if view.waiting_reason.is_some() => view.waiting_reason.clone().unwrap_or_default(),
        (_, Some(problem)) => problem,
        (Some(_), None) => "the controller has not given the pod an address yet".to_owned(),
        (None, None) => "the pod is not known to the API server".to_owned(),
    }
}

fn addresses(network: &PodNetwork) -> String {
    let ips: Vec<String> = network.ips.iter().map(ToString::to_string).collect();
    format!("[{}]", ips.join(" "))
}

fn result(request: &AddRequest, link: &PodLink, spec: &PodLinkSpec) -> CniResult {
    let mac = |mac| net::Mac(mac).to_string();
    let gateway = |v6| spec.gateways.iter().copied().find(|g| g.is_ipv6() == v6);
    CniResult {
        interfaces: vec![
            Interface { name: link.host_name.clone(), mac: mac(link.host_mac), ..Interface::default() },
            Interface {
                name: spec.pair.pod_name.clone(),
                mac: mac(spec.mac),
                sandbox: request.netns.clone(),
                ..Interface::default()
            },
        ],
        ips: spec
            .addresses
            .iter()
            .map(|net| IpConfig { interface: Some(1), address: *net, gateway: gateway(net.addr().is_ipv6()) })
            .collect(),
        ..CniResult::default()
    }
}

/// Runs blocking work that an undo waits for even if nobody waits for its result any more.
async fn blocking<T: Send + 'static>(
    made: &Made,
    work: impl FnOnce() -> host::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    made.task(tokio::task::spawn_blocking(move || {
        let _ = sender.send(work());
    }));
    Ok(receiver.await.map_err(|_| Failure::Thread)??)
}

/// Announces the addresses beside the reply: entering the namespace and closing the socket take long, and the pod works
/// without, since neighbours learn it from its first packet.
fn announce(made: &Made, pod: PodKey, netns: Arc<NetNs>, spec: Arc<PodLinkSpec>) {
    made.task(tokio::task::spawn_blocking(move || {
        if let Err(error) = PodLink::announce(&netns, &spec) {
            tracing::warn!(%pod, %error, "addresses could not be announced");
        }
    }));
}
