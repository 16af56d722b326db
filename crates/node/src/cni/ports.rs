//! The local Open_vSwitch database as the CNI server sees it: pod ports, and waiting for one of them.
//!
//! It keeps a cache of its own, with the few columns pods need, so that a change of one interface wakes only the
//! request that waits for it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ovsdb::{
    Cache, Client, IndexSpec, MonitorSpec, Notice, Notices, Op, Options, Row, Schema, TxnError, Uuid,
};
use tokio::sync::watch;

/// Handle to the ports; cheap to clone. The connection ends with the last clone.
#[derive(Debug, Clone)]
pub struct Ports {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    state: Arc<Mutex<State>>,
    link: watch::Receiver<LinkState>,
    bridge: String,
}

#[derive(Debug)]
struct State {
    cache: Cache,
    waiters: BTreeMap<Uuid, watch::Sender<Option<Arc<Row>>>>,
}

/// State of the connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LinkState {
    /// Connected, and the content is loaded.
    pub(crate) up: bool,
    /// How often the whole content was loaded.
    pub(crate) loads: u64,
    /// Why the connection was lost.
    pub(crate) reason: Option<String>,
}

/// An interface of a pod as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodPort {
    pub(crate) port: Uuid,
    pub(crate) interface: Uuid,
    /// Name of port, interface and host link.
    pub(crate) name: String,
    pub(crate) sandbox: String,
    pub(crate) iface_id: String,
    pub(crate) mac: String,
    pub(crate) pod_ifname: String,
    pub(crate) ips: Vec<String>,
    /// User network; empty for the cluster's.
    pub(crate) network: String,
    /// Age stamp of the sandbox's namespace, nanoseconds; 0 if unknown.
    pub(crate) since: u128,
    pub(crate) on_bridge: bool,
}

/// Follows one interface; dropping it stops.
#[derive(Debug)]
pub(crate) struct InterfaceWatch {
    state: Arc<Mutex<State>>,
    uuid: Uuid,
    rows: watch::Receiver<Option<Arc<Row>>>,
}

/// Key on a port's external_ids: age stamp of the sandbox.
pub(crate) const SINCE_KEY: &str = "ovnkube-sandbox-since";

// === impl Ports ===

impl Ports {
    /// Connects to the database (`options` says where) and follows the ports of `bridge` for ever.
    pub fn connect(options: Options, bridge: &str) -> Ports {
        let indexes = vec![
            IndexSpec::map_key("Interface", "external_ids", "iface-id"),
            IndexSpec::map_key("Interface", "external_ids", "sandbox"),
            IndexSpec::elements("Port", "interfaces"),
            IndexSpec::map_key("QoS", "external_ids", "sandbox"),
            IndexSpec::map_key("Queue", "external_ids", "sandbox"),
        ];
        let spec = MonitorSpec::none()
            .table("Bridge", &["name", "ports", "datapath_type"])
            .table("Port", &["name", "interfaces", "qos", "external_ids"])
            .table(
                "Interface",
                &["name", "external_ids", "error", "ingress_policing_rate", "ingress_policing_burst"],
            )
            .table("QoS", &["type", "external_ids", "other_config", "queues"])
            .table("Queue", &["external_ids", "other_config"]);
        let state = Arc::new(Mutex::new(State {
            cache: Cache::with_indexes(Arc::new(Schema::empty(&options.database)), indexes),
            waiters: BTreeMap::new(),
        }));
        let (client, notices) = ovsdb::connect(options.monitor(spec));
        let (link, receiver) = watch::channel(LinkState::default());
        tokio::spawn(follow(notices, state.clone(), link));
        Ports { inner: Arc::new(Inner { client, state, link: receiver, bridge: bridge.to_owned() }) }
    }

    /// Whether the database is connected and its content known.
    pub fn is_up(&self) -> bool {
        self.inner.link.borrow().up
    }

    /// Name of the integration bridge.
    pub fn bridge(&self) -> &str {
        &self.inner.bridge
    }

    /// Waits until the database is connected and its content known.
    pub async fn ready(&self) {
        let _ = self.link().wait_for(|l| l.up).await;
    }

    pub(crate) fn link(&self) -> watch::Receiver<LinkState> {
        self.inner.link.clone()
    }

    /// Looks at the cache; keep it short.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&Cache) -> R) -> R {
        look(&lock(&self.inner.state).cache)
    }

    /// Follows an interface whose row may not exist yet.
    pub(crate) fn watch(&self, uuid: Uuid) -> InterfaceWatch {
        let mut state = lock(&self.inner.state);
        let row = state.cache.row("Interface", &uuid).cloned();
        let sender = state.waiters.entry(uuid).or_insert_with(|| watch::Sender::new(row));
        let rows = sender.subscribe();
        drop(state);
        InterfaceWatch { state: self.inner.state.clone(), uuid, rows }
    }

    /// Makes a transaction, waiting for the connection and repeating it after an unknown outcome unless `done` sees
    /// that it was made. Refusals of the server are returned.
    pub(crate) async fn commit(&self, ops: &[Op], done: impl Fn(&Cache) -> bool) -> Result<(), TxnError> {
        loop {
            self.ready().await;
            match self.inner.client.transact(ops.to_vec()).await {
                Ok(_) => return Ok(()),
                Err(TxnError::NotConnected | TxnError::Unknown) => {
                    let mut link = self.link();
                    let loads = link.borrow_and_update().loads;
                    // The content loaded after the loss tells what became of the transaction.
                    if link.wait_for(|l| l.up && l.loads > loads).await.is_err() {
                        return Err(TxnError::Stopped);
                    }
                    if self.read(&done) {
                        return Ok(());
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether packets pass through userspace, where pod interfaces must finish their checksums.
    pub(crate) fn is_userspace(&self) -> bool {
        self.read(|cache| {
            bridge(cache, &self.inner.bridge).and_then(|b| b.str("datapath_type")) == Some("netdev")
        })
    }

    /// All pod interfaces.
    pub(crate) fn pods(&self) -> Vec<PodPort> {
        self.read(|cache| {
            let on_bridge = bridge_ports(cache, &self.inner.bridge);
            cache.rows("Interface").filter_map(|row| PodPort::of(cache, row, &on_bridge)).collect()
        })
    }

    /// Pod interfaces of one sandbox.
    pub(crate) fn of_sandbox(&self, sandbox: &str) -> Vec<PodPort> {
        self.by_key("sandbox", sandbox)
    }

    /// Pod interfaces that claim one logical port.
    pub(crate) fn of_iface_id(&self, iface_id: &str) -> Vec<PodPort> {
        self.by_key("iface-id", iface_id)
    }

    fn by_key(&self, key: &str, value: &str) -> Vec<PodPort> {
        self.read(|cache| {
            let Some(table) = cache.table("Interface") else { return Vec::new() };
            let on_bridge = bridge_ports(cache, &self.inner.bridge);
            table
                .find_key("external_ids", key, value)
                .filter_map(|row| PodPort::of(cache, row, &on_bridge))
                .collect()
        })
    }
}

// === impl PodPort ===

impl PodPort {
    /// None for interfaces that are not of a pod: ports without our keys are nobody's business here.
    fn of(cache: &Cache, row: &Row, on_bridge: &[Uuid]) -> Option<PodPort> {
        let id = |key: &str| row.key("external_ids", key);
        let sandbox = id("sandbox")?.to_owned();
        let port = cache.table("Port")?.find_element("interfaces", row.uuid()).next()?;
        let text = |key| id(key).unwrap_or_default().to_owned();
        Some(PodPort {
            port: port.uuid(),
            interface: row.uuid(),
            name: row.str("name")?.to_owned(),
            sandbox,
            iface_id: text("iface-id"),
            mac: text("attached_mac"),
            pod_ifname: text("pod-if-name"),
            ips: text("ip_addresses").split(',').filter(|s| !s.is_empty()).map(str::to_owned).collect(),
            network: text("k8s.ovn.org/network"),
            since: port.key("external_ids", SINCE_KEY).and_then(|s| s.parse().ok()).unwrap_or(0),
            on_bridge: on_bridge.binary_search(&port.uuid()).is_ok(),
        })
    }

    /// Whether it is the interface `ifname` of its pod. Rows of old releases do not say.
    pub(crate) fn is_ifname(&self, ifname: &str) -> bool {
        self.pod_ifname.is_empty() || self.pod_ifname == ifname
    }
}

// === impl InterfaceWatch ===

impl InterfaceWatch {
    /// The row now and after each change, until `look` gives a result.
    pub(crate) async fn until<R>(&mut self, mut look: impl FnMut(Option<&Row>) -> Option<R>) -> R {
        loop {
            let row = self.rows.borrow_and_update().clone();
            if let Some(result) = look(row.as_deref()) {
                return result;
            }
            if self.rows.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for InterfaceWatch {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if state.waiters.get(&self.uuid).is_some_and(|s| s.receiver_count() <= 1) {
            state.waiters.remove(&self.uuid);
        }
    }
}

/// Keeps cache and waiters current until the client is gone.
async fn follow(mut notices: Notices, state: Arc<Mutex<State>>, link: watch::Sender<LinkState>) {
    while let Some(notice) = notices.recv().await {
        match notice {
            Notice::Up { .. } => {}
            Notice::Reset(update) => {
                lock(&state).reset(&update);
                link.send_modify(|l| *l = LinkState { up: true, loads: l.loads + 1, reason: None });
            }
            Notice::Update(update) => {
                lock(&state).apply(&update);
                // After a resumed session there is no reset: changes since then are the content.
                link.send_if_modified(|l| {
                    let resumed = !l.up && l.loads > 0;
                    if resumed {
                        *l = LinkState { up: true, loads: l.loads + 1, reason: None };
                    }
                    resumed
                });
            }
            Notice::Down { reason } => {
                tracing::warn!(reason, "lost the Open vSwitch database");
                link.send_modify(|l| *l = LinkState { up: false, loads: l.loads, reason: Some(reason) });
            }
        }
    }
}

impl State {
    fn reset(&mut self, update: &ovsdb::Update) {
        self.cache.reset(update);
        for (uuid, sender) in &self.waiters {
            sender.send_replace(self.cache.row("Interface", uuid).cloned());
        }
    }

    fn apply(&mut self, update: &ovsdb::Update) {
        for change in self.cache.apply(update) {
            if change.table() == "Interface"
                && let Some(sender) = self.waiters.get(&change.uuid)
            {
                sender.send_replace(change.new);
            }
        }
    }
}

/// The row of the bridge.
pub(crate) fn bridge<'a>(cache: &'a Cache, name: &str) -> Option<&'a Arc<Row>> {
    cache.table("Bridge")?.find_one("name", name)
}

/// Ports of the bridge, sorted.
pub(crate) fn bridge_ports(cache: &Cache, name: &str) -> Vec<Uuid> {
    let mut ports: Vec<Uuid> =
        bridge(cache, name).and_then(|b| b.get("ports")).map(|d| d.uuids().collect()).unwrap_or_default();
    ports.sort_unstable();
    ports
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
