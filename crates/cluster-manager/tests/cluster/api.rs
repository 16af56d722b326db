//! An API server, clients of it, and waits for what they show.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster_manager::{NetworkPlan, Observe, Settings, run};
use devapi::{Options, Server};
use futures::StreamExt;
use kapi::{Meta, Node, Object, Resource};
use kube_io::{Change, ElectionSettings, Kube, Patch, Scope, Subresource, Watch};
use net::{ClusterCidr, Dual, Family};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Bound on every wait: only a failing test reaches it.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Api {
    pub(crate) server: Server,
    pub(crate) kube: Kube,
}

impl Api {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(Options::new(listener)).await.unwrap();
        let kube = connect(&server).await;
        Self { server, kube }
    }

    pub(crate) async fn add_node(&self, name: &str, annotations: &[(&str, &str)]) -> Node {
        let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
        let body = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "annotations": annotations },
        });
        self.kube.create(&Node::RESOURCE, None, &body).await.unwrap();
        self.kube.get::<Node>("", name).await.unwrap()
    }

    pub(crate) async fn status(&self, node: &Node, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.kube.patch::<Node>(&node.key(), Subresource::Status, patch).await.unwrap();
    }

    pub(crate) fn nodes(&self) -> Mirror<Node> {
        Mirror::of(self.kube.watch(Scope::all()))
    }

    pub(crate) fn events(&self) -> Mirror<Event> {
        Mirror::of(self.kube.watch(Scope::namespace("default")))
    }
}

pub(crate) async fn connect(server: &Server) -> Kube {
    let settings = kube_io::Settings {
        apiserver: Some(server.url()),
        token: Some(server.token().to_owned()),
        ca_data: Some(server.ca_pem().as_bytes().to_vec()),
        component: "controlplane".into(),
        ..kube_io::Settings::default()
    };
    Kube::connect(settings).await.unwrap()
}

/// The part of an Event the tests look at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Event {
    pub(crate) metadata: Meta,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) involved_object: Involved,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Involved {
    pub(crate) name: String,
}

impl Object for Event {
    const RESOURCE: Resource =
        Resource { group: "", version: "v1", plural: "events", kind: "Event", namespaced: true };

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A watched kind by name, and how often it changed.
pub(crate) struct Mirror<T> {
    watch: Watch<T>,
    objects: BTreeMap<String, T>,
    pub(crate) changes: usize,
}

impl<T: Object> Mirror<T> {
    pub(crate) fn of(watch: Watch<T>) -> Self {
        Self { watch, objects: BTreeMap::new(), changes: 0 }
    }

    /// Follows the watch until `test` has an answer.
    pub(crate) async fn until<R>(
        &mut self,
        what: &str,
        test: impl Fn(&BTreeMap<String, T>) -> Option<R>,
    ) -> R {
        let found = tokio::time::timeout(LIMIT, async {
            loop {
                if let Some(answer) = test(&self.objects) {
                    return answer;
                }
                match self.watch.next().await.expect("a watch never ends") {
                    Change::Snapshot(objects) => {
                        self.objects = objects.into_iter().map(|o| (o.meta().name.clone(), o)).collect();
                    }
                    Change::Applied(object) => {
                        self.objects.insert(object.meta().name.clone(), object);
                        self.changes += 1;
                    }
                    Change::Deleted(key) => {
                        self.objects.remove(&key.name);
                    }
                    _ => {}
                }
            }
        })
        .await;
        found.unwrap_or_else(|_| panic!("waited in vain for {what}: {:?}", self.objects))
    }
}

/// The three annotations of one node, once it has them.
pub(crate) fn assigned(nodes: &BTreeMap<String, Node>, name: &str) -> Option<[String; 3]> {
    use kapi::annotations::{NODE_ID, NODE_SUBNETS, TRANSIT_ADDRESSES};
    let meta = &nodes.get(name)?.metadata;
    let get = |key| meta.annotation(key).map(str::to_owned);
    Some([get(NODE_SUBNETS)?, get(NODE_ID)?, get(TRANSIT_ADDRESSES)?])
}

pub(crate) fn plan(cluster: &str, host_prefix: u8) -> NetworkPlan {
    NetworkPlan {
        cluster: vec![ClusterCidr { cidr: cluster.parse().unwrap(), host_prefix }],
        services: vec!["10.96.0.0/16".parse().unwrap()],
        join: Dual { v4: "100.64.0.0/16".parse().ok(), v6: "fd98::/64".parse().ok() },
        transit: Dual { v4: "100.88.0.0/16".parse().ok(), v6: "fd97::/64".parse().ok() },
        masquerade: Dual { v4: "169.254.169.0/29".parse().ok(), v6: "fd69::/125".parse().ok() },
        no_subnet_nodes: None,
    }
}

/// One running cluster manager.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    pub(crate) figures: Arc<Figures>,
}

#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) leads: AtomicBool,
    pub(crate) ready: AtomicBool,
}

impl Observe for Figures {
    fn leader(&self, leads: bool) {
        self.leads.store(leads, Ordering::SeqCst);
    }

    fn host_subnets(&self, network: &str, _family: Family, allocated: u64, capacity: u64) {
        assert!(network == "default" && allocated <= capacity);
    }

    fn ready(&self, _after: Duration) {
        assert!(!self.ready.swap(true, Ordering::SeqCst), "ready is told once");
    }
}

impl Running {
    pub(crate) async fn start(api: &Api, identity: &str, plan: NetworkPlan) -> Self {
        let election = ElectionSettings {
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_secs(1),
            ..ElectionSettings::new("kube-system", identity)
        };
        let kube = connect(&api.server).await;
        let figures = Arc::new(Figures::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let observe: Arc<dyn Observe> = figures.clone();
        let task = tokio::spawn(async move {
            let shutdown = async { drop(stopped.await) };
            run(Settings { election, plan }, kube, observe, shutdown).await.unwrap();
        });
        Self { stop, task, figures }
    }

    /// As on SIGTERM.
    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("it ended by itself");
        self.task.await.unwrap();
    }

    /// As on SIGKILL.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
