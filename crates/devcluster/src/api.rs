//! The Kubernetes API of a cluster: embedded, a real server started here, or one that exists already.
//!
//! Whichever it is, the nodes reach it at `https://172.18.0.254:6443`, and programs outside at a port on loopback.

mod accounts;
mod elsewhere;
mod embedded;
mod objects;
mod real;

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use devapi::external::External;
use ipnet::IpNet;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

pub use accounts::Role;
pub use objects::{apply, apply_status, delete, documents, mk_node};

use crate::{addresses::GATEWAY, cluster::Cluster, node::Node, relay::Relay, space::Space};

/// The API server's port on the underlay.
pub const PORT: u16 = 6443;

/// Where a node finds what it needs to talk to the API.
const SECRETS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Which API server to use.
#[derive(Debug, Clone, Default)]
pub enum ApiChoice {
    /// A real one where `KUBEBUILDER_ASSETS` names its programs, else the embedded one.
    #[default]
    Any,
    /// The embedded one.
    Embedded,
    /// `kube-apiserver` and `etcd` of a directory.
    Assets(PathBuf),
    /// The one a kubeconfig file leads to.
    Kubeconfig(PathBuf),
}

/// A served API. Dropping it stops a server that was started here.
pub struct Api {
    client: Client,
    kubeconfig: PathBuf,
    access: Access,
    server: Server,
    /// Nodes, and namespaces that were not there.
    made: Vec<Value>,
    _relay: Relay,
}

/// How nodes log in.
enum Access {
    Accounts { url: String, ca: String, tokens: accounts::Tokens },
    Kubeconfig(String),
}

/// What serves.
enum Server {
    Embedded(embedded::Embedded),
    Real { _until_dropped: External<Space> },
    Elsewhere,
}

// === impl Api ===

impl Api {
    /// Starts or finds the API server and creates the nodes and namespaces every cluster has.
    pub async fn start(cluster: &Cluster, choice: ApiChoice) -> Result<Self> {
        let mut api = match (choice, devapi::external::assets()) {
            (ApiChoice::Kubeconfig(file), _) => elsewhere::start(cluster, &file).await?,
            (ApiChoice::Assets(dir), _) | (ApiChoice::Any, Some(dir)) => real::start(cluster, &dir).await?,
            (ApiChoice::Any | ApiChoice::Embedded, _) => embedded::start(cluster).await?,
        };
        // The accounts' namespace is there already, unless the API has accounts of its own.
        for name in ["ovn-kubernetes", "ovn-host-network"] {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            if objects::missing(&api.client, &namespace).await? {
                api.made.push(namespace.clone());
            }
            objects::apply(&api.client, &namespace).await?;
        }
        for node in cluster.nodes() {
            let object = mk_node(node.name(), &node.addresses());
            objects::apply(&api.client, &object).await?;
            objects::apply_status(&api.client, &object).await?;
            api.made.push(object);
        }
        Ok(api)
    }

    /// A client with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A Node as the API has it.
    pub async fn node(&self, name: &str) -> Result<k8s_openapi::api::core::v1::Node> {
        Ok(kube::Api::all(self.client()).get(name).await?)
    }

    /// A kubeconfig for programs outside the nodes.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The embedded server, to inject faults into. None with a real one.
    pub fn embedded(&self) -> Option<&devapi::Server> {
        match &self.server {
            Server::Embedded(embedded) => Some(&embedded.server),
            _ => None,
        }
    }

    /// What was created at the start, to be taken away from a server that lives on.
    pub(crate) fn made(&self) -> &[Value] {
        &self.made
    }

    /// Whether the server lives on after the cluster.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.server, Server::Elsewhere)
    }

    /// Flags that lead our programs on the nodes to the API, with the rights of their role where the server was started
    /// here.
    pub fn flags(&self, role: Role) -> Vec<String> {
        match &self.access {
            Access::Accounts { url, tokens, .. } => vec![
                "--k8s-apiserver".to_owned(),
                url.clone(),
                "--k8s-token".to_owned(),
                tokens.of(role).to_owned(),
                "--k8s-cacert".to_owned(),
                format!("{SECRETS}/ca.crt"),
            ],
            Access::Kubeconfig(_) => vec!["--k8s-kubeconfig".to_owned(), format!("{SECRETS}/kubeconfig")],
        }
    }

    /// Puts the files those flags name on a node.
    pub fn give_access(&self, node: &Node) -> Result<()> {
        let dir = node.outside(SECRETS);
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        match &self.access {
            Access::Accounts { tokens, ca, .. } => {
                fs::write(dir.join("ca.crt"), ca)?;
                fs::write(dir.join("token"), tokens.of(Role::Node))?;
            }
            Access::Kubeconfig(text) => fs::write(dir.join("kubeconfig"), text)?,
        }
        Ok(())
    }

    /// An API reached with the administrator's token: the relay leads from outside to `inside`, a socket of the underlay.
    async fn with_token(
        cluster: &Cluster,
        inside: SocketAddr,
        token: String,
        ca: String,
        server: Server,
    ) -> Result<Self> {
        let relay = Relay::start(TcpListener::bind("127.0.0.1:0")?, inside, Some(cluster.underlay()))?;
        let url = format!("https://{inside}");
        // The certificate names the address on the underlay, whichever way one comes.
        let kubeconfig =
            kubeconfig(&format!("https://{}", relay.address()), &inside.ip().to_string(), &ca, &token);
        let file = cluster.work_dir().join("kubeconfig");
        fs::write(&file, &kubeconfig)?;
        let client = client(&file).await?;
        let access = Access::Accounts { url, ca, tokens: accounts::Tokens::create(&client).await? };
        Ok(Self { client, kubeconfig: file, access, server, made: Vec::new(), _relay: relay })
    }
}

/// The address on the underlay where nodes expect the API.
fn inside(cluster: &Cluster) -> SocketAddr {
    SocketAddr::new(cluster.families().primary(GATEWAY), PORT)
}

/// Ranges of the cluster's Services, the primary family first.
fn service_cidrs(cluster: &Cluster) -> Result<Vec<IpNet>> {
    let ranges = cluster.families().service_cidrs().split(',');
    ranges.map(|range| range.parse().with_context(|| format!("service range {range}"))).collect()
}

/// Listens in the underlay where nodes expect the API.
fn listen_inside(cluster: &Cluster) -> Result<TcpListener> {
    let address = inside(cluster);
    let underlay: &Space = cluster.underlay();
    underlay.in_network(|| TcpListener::bind(address).with_context(|| format!("listening on {address}")))
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let parsed = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
    // Watches are quiet for long.
    config.read_timeout = None;
    Client::try_from(config).context("making an API client")
}

fn kubeconfig(url: &str, tls_name: &str, ca: &str, token: &str) -> String {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(ca);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "devcluster",
        "clusters": [{ "name": "devcluster", "cluster": {
            "server": url, "tls-server-name": tls_name, "certificate-authority-data": ca,
        } }],
        "users": [{ "name": "admin", "user": { "token": token } }],
        "contexts": [{ "name": "devcluster", "context": { "cluster": "devcluster", "user": "admin" } }],
    })
    .to_string()
}
