//! Asking services from every place of a cluster, with what is to be expected.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context, Result};
use devcluster::{Families, GATEWAY, Node, PodHandle, Process, Program, Stack, api, mk_namespace, mk_pod};
use serde_json::{Value, json};

use crate::lab::{self, NAMESPACE, addresses, eventually, probe};

/// How often each place asks each target.
const TRIES: &str = "12";

/// Whoever asks.
#[derive(Clone)]
pub(crate) enum Place {
    Pod(PodHandle),
    Node(Arc<Node>),
    Outside,
}

/// What a place got from a target.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Got {
    /// Servers that answered.
    pub(crate) names: BTreeSet<String>,
    /// Addresses under which they saw the client.
    pub(crate) peers: BTreeSet<String>,
    /// What went wrong, by class.
    pub(crate) errors: BTreeSet<String>,
}

/// A running cluster with clients, and who listens where.
pub(crate) struct Site {
    pub(crate) stack: Stack,
    pub(crate) pods: BTreeMap<String, PodHandle>,
    /// Servers of the nodes themselves.
    pub(crate) servers: Vec<Process>,
}

/// A pod that answers to its own name and leaves slowly, as a well-behaved server does.
pub(crate) fn server(name: &str, node: &str, labels: Value) -> Result<Value> {
    let probe = probe()?;
    let line = format!("trap '' TERM; exec {probe} serve --name {name}");
    let mut pod = mk_pod(NAMESPACE, name, node, &["sh", "-c", &line]);
    pod["metadata"]["labels"] = labels;
    pod["spec"]["terminationGracePeriodSeconds"] = json!(4);
    Ok(pod)
}

/// A pod that does nothing by itself.
pub(crate) fn client(name: &str, node: &str) -> Value {
    mk_pod(NAMESPACE, name, node, &["sleep", "100000"])
}

/// A Service of the name; `spec` has what it does not share with the others. TCP, UDP and SCTP at port 80, from 8080.
pub(crate) fn service(name: &str, spec: &Value) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "ipFamilyPolicy": "PreferDualStack", "ports": ports() },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        service["spec"][key] = value.clone();
    }
    service
}

pub(crate) const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

fn ports() -> Vec<Value> {
    let port = |protocol: &str| json!({ "name": protocol, "port": 80, "targetPort": 8080, "protocol": protocol.to_uppercase() });
    PROTOCOLS.map(port).to_vec()
}

impl Place {
    pub(crate) async fn exec(&self, stack: &Stack, argv: &[String]) -> Result<String> {
        match self {
            Place::Pod(pod) => pod.exec(argv).await,
            Place::Node(node) => node.exec(argv).await,
            Place::Outside => stack.cluster().underlay().exec(argv).await,
        }
    }

    /// Starts a program that writes to a file.
    pub(crate) async fn spawn_logged(
        &self,
        stack: &Stack,
        argv: Vec<String>,
        log: std::path::PathBuf,
    ) -> Result<Process> {
        let program = Program { argv, log: Some(log), ..Program::default() };
        match self {
            Place::Pod(pod) => pod.spawn(program).await,
            Place::Node(node) => node.spawn(program).await,
            Place::Outside => stack.cluster().underlay().spawn(program).await,
        }
    }
}

impl Site {
    /// The pods run.
    pub(crate) async fn with_pods(mut stack: Stack, pods: Vec<Value>) -> Result<Site> {
        stack.apply(&mk_namespace(NAMESPACE)).await?;
        let mut names = Vec::new();
        for pod in &pods {
            stack.apply(pod).await?;
            names.push(pod["metadata"]["name"].as_str().context("a pod without a name")?.to_owned());
        }
        let handles = lab::running(&stack, &names).await?;
        let pods = names.into_iter().zip(handles).collect();
        let site = Site { stack, pods, servers: Vec::new() };
        for node in site.stack.cluster().nodes() {
            lab::ready(node).await?;
        }
        Ok(site)
    }

    pub(crate) fn pod(&self, name: &str) -> Result<&PodHandle> {
        self.pods.get(name).with_context(|| format!("no pod {name}"))
    }

    pub(crate) fn node(&self, number: u8) -> Place {
        Place::Node(self.stack.cluster().node(number).clone())
    }

    /// One more pod, running.
    pub(crate) async fn add(&mut self, pod: Value) -> Result<()> {
        let name = pod["metadata"]["name"].as_str().context("a pod without a name")?.to_owned();
        self.stack.apply(&pod).await?;
        let handles = lab::running(&self.stack, std::slice::from_ref(&name)).await?;
        self.pods.extend(handles.into_iter().map(|handle| (name.clone(), handle)));
        Ok(())
    }

    pub(crate) async fn apply(&mut self, object: &Value) -> Result<Value> {
        self.stack.apply(object).await
    }

    /// Applies a service and gives it as it is stored.
    pub(crate) async fn serve(&mut self, name: &str, spec: &Value) -> Result<Value> {
        self.apply(&service(name, spec)).await?;
        lab::get(&self.stack, &format!("/api/v1/namespaces/{NAMESPACE}/services/{name}")).await
    }

    /// Gives a service addresses of a load balancer.
    pub(crate) async fn balance(&self, name: &str, ips: &[IpAddr]) -> Result<()> {
        let ingress: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": NAMESPACE },
            "status": { "loadBalancer": { "ingress": ingress } },
        });
        api::apply_status(&self.stack.api().client(), &object).await
    }

    /// A server of the node itself on every node and address, called `h1`, `h2`, …
    pub(crate) async fn serve_on_nodes(&mut self) -> Result<()> {
        let probe = probe()?;
        for node in self.stack.cluster().nodes().to_vec() {
            for address in node.addresses() {
                let (name, address) = (format!("h{}", node.number()), address.to_string());
                let argv = [probe.as_str(), "serve", "--from", &address, "--name", &name];
                let program = Program { argv: argv.map(str::to_owned).to_vec(), ..Program::default() };
                self.servers.push(node.spawn(program).await?);
            }
        }
        Ok(())
    }

    /// Waits until a pod's server answers its own node.
    pub(crate) async fn listens(&self, name: &str) -> Result<()> {
        let pod = self.pod(name)?;
        for address in addresses(pod) {
            let target = format!("{name}=tcp:{}", SocketAddr::new(address, 8080));
            let place = Place::Pod(pod.clone());
            eventually(&format!("{name} listens"), async || {
                let got = self.ask(&place, std::slice::from_ref(&target), "1").await?;
                anyhow::ensure!(got.values().all(|got| got.names.contains(name)), "{got:?}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Asks targets (`LABEL=PROTOCOL:ADDRESS:PORT`) from a place.
    pub(crate) async fn ask(
        &self,
        from: &Place,
        targets: &[String],
        tries: &str,
    ) -> Result<BTreeMap<String, Got>> {
        let mut argv = vec![probe()?, "batch".to_owned()];
        argv.extend(targets.iter().cloned());
        argv.extend(["--count", tries, "--timeout-ms", "1500"].map(str::to_owned));
        let text = from.exec(&self.stack, &argv).await?;
        text.lines().map(read).collect()
    }

    /// The same often enough to see every endpoint.
    pub(crate) async fn ask_often(&self, from: &Place, targets: &[String]) -> Result<BTreeMap<String, Got>> {
        self.ask(from, targets, TRIES).await
    }
}

fn read(line: &str) -> Result<(String, Got)> {
    let (label, rest) = line.split_once(' ').with_context(|| format!("{line:?} is no result"))?;
    let mut got = Got::default();
    for word in rest.split(' ') {
        let (key, value) = word.split_once('=').with_context(|| format!("{line:?} is no result"))?;
        let list = value.split(',').filter(|text| !text.is_empty()).map(str::to_owned);
        match key {
            "names" => got.names = list.collect(),
            "peers" => got.peers = list.collect(),
            // The number of times does not matter.
            _ => got.errors = list.filter_map(|one| Some(one.split(':').next()?.to_owned())).collect(),
        }
    }
    Ok((label.to_owned(), got))
}

/// Addresses of a host on the underlay.
pub(crate) fn on_underlay(families: Families, host: u8) -> Vec<IpAddr> {
    families.on_underlay(host).into_iter().map(|(address, _)| address).collect()
}

/// Sends what is for external addresses to a node.
pub(crate) async fn route(stack: &Stack, ips: &[IpAddr], node: u8) -> Result<()> {
    let mut lines = String::new();
    for ip in ips {
        let via = on_underlay(stack.cluster().families(), node)
            .into_iter()
            .find(|address| address.is_ipv4() == ip.is_ipv4())
            .context("a node without an address")?;
        lines += &format!("route replace {ip} via {via}\n");
    }
    stack.cluster().underlay().ip_batch(&lines).await
}

/// Addresses of the outside itself.
pub(crate) fn outside(stack: &Stack) -> Vec<IpAddr> {
    on_underlay(stack.cluster().families(), GATEWAY)
}
