//! Nine pods in three namespaces on two nodes, each with a prober, and questions to all of them at once.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use devcluster::{
    AgentOptions, ApiChoice, Cluster as Nodes, Families, Program, Stack, api, binaries,
    matrix::{self, Request, Target},
};
use policy_model::tables;
use policy_model::{Cluster, Party, Protocol, Traffic};
use serde_json::{Value, json};

use crate::lab::{self, PATIENCE, eventually};
use crate::named;

/// How long a packet may take before it counts as lost; whoever waits for a connection asks again.
const TIMEOUT: u64 = 400;

/// The cluster with its probers.
pub(crate) struct Lab {
    pub(crate) stack: Stack,
    /// Where the prober of each pod and node is asked.
    sockets: BTreeMap<Party, PathBuf>,
}

fn socket(name: &str) -> String {
    format!("/run/matrix-{name}.sock")
}

/// A kind of policies that is not built into the API server: just its name, without a schema.
fn definition(kind: &str, plural: &str, version: &str) -> Value {
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.policy.networking.k8s.io"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, a test" } },
        "spec": { "group": "policy.networking.k8s.io", "scope": "Cluster",
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                "singular": kind.to_lowercase() },
            "versions": [{ "name": version, "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }] } })
}

/// Kinds of policies with the paths of their lists.
const POLICIES: [(&str, &str); 4] = [
    ("NetworkPolicy", "/apis/networking.k8s.io/v1/networkpolicies"),
    ("AdminNetworkPolicy", "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies"),
    ("BaselineAdminNetworkPolicy", "/apis/policy.networking.k8s.io/v1alpha1/baselineadminnetworkpolicies"),
    ("ClusterNetworkPolicy", "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"),
];

impl Lab {
    pub(crate) async fn start(families: Families) -> Result<Lab> {
        let nodes = Nodes::builder().nodes(2).families(families).start().await?;
        let mut stack = Stack::without_agents(nodes, ApiChoice::Any).await?;
        let client = stack.api().client();
        for (kind, plural, version) in [
            ("AdminNetworkPolicy", "adminnetworkpolicies", "v1alpha1"),
            ("BaselineAdminNetworkPolicy", "baselineadminnetworkpolicies", "v1alpha1"),
            ("ClusterNetworkPolicy", "clusternetworkpolicies", "v1alpha2"),
        ] {
            api::apply(&client, &definition(kind, plural, version)).await?;
        }
        let extra = vec!["--enable-admin-network-policy".to_owned()];
        stack.start_agents(AgentOptions { extra, ..AgentOptions::default() }).await?;
        let prober = binaries::find("devcluster-matrix")?.display().to_string();
        let argv = |name: &str| {
            let mut argv = vec![prober.clone(), socket(name)];
            argv.extend(policy_model::random::PORTS.iter().map(ToString::to_string));
            argv
        };
        let names: Vec<String> = stack.cluster().nodes().iter().map(|node| node.name().to_owned()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut sockets = BTreeMap::new();
        for object in tables::objects(&names, |namespace, name| argv(&format!("{namespace}-{name}"))) {
            stack.apply(&object).await?;
        }
        for (namespace, name) in
            tables::NAMESPACES.iter().flat_map(|namespace| tables::PODS.map(|name| (*namespace, name)))
        {
            let pod = stack.running(namespace, name, PATIENCE).await?;
            let path = pod.node().outside(socket(&format!("{namespace}-{name}")));
            sockets.insert(Party::Pod(namespace.to_owned(), name.to_owned()), path);
        }
        for node in stack.cluster().nodes().to_vec() {
            // It only asks: its ports are the node's own.
            let argv = vec![prober.clone(), socket(node.name())];
            node.spawn(Program { argv, ..Program::default() }).await?;
            sockets.insert(Party::Node(node.name().to_owned()), node.outside(socket(node.name())));
        }
        let lab = Lab { stack, sockets };
        for path in lab.sockets.values() {
            let nothing = Request { timeout_ms: 1, targets: Vec::new() };
            eventually("a prober", async || matrix::ask(path, &nothing).await).await?;
        }
        Ok(lab)
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.stack.api().client()
    }

    /// Nodes, namespaces and pods as they are.
    pub(crate) async fn objects(&self) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        for (kind, path) in [("Node", "nodes"), ("Namespace", "namespaces"), ("Pod", "pods")] {
            all.extend(named(kind, lab::get(&self.stack, &format!("/api/v1/{path}")).await?));
        }
        // Namespaces of the server's own have no pods here.
        Ok(all)
    }

    /// Sets labels of a pod or namespace; null takes one away.
    pub(crate) async fn label(&self, namespace: &str, pod: Option<&str>, labels: &Value) -> Result<()> {
        let mut path = format!("/api/v1/namespaces/{namespace}");
        if let Some(pod) = pod {
            path += &format!("/pods/{pod}");
        }
        let patch = json!({ "metadata": { "labels": labels } });
        let request = http::Request::patch(path)
            .header("content-type", "application/merge-patch+json")
            .body(serde_json::to_vec(&patch)?)?;
        self.client().request::<Value>(request).await?;
        Ok(())
    }

    pub(crate) async fn delete_policies(&self) -> Result<()> {
        for (kind, path) in POLICIES {
            for mut policy in named(kind, lab::get(&self.stack, path).await?) {
                // "/apis/GROUP/VERSION/…"
                let version: Vec<&str> = path.split('/').skip(2).take(2).collect();
                policy["apiVersion"] = version.join("/").into();
                api::delete(&self.client(), &policy).await?;
            }
        }
        Ok(())
    }

    /// Fails unless exactly the connections come about that `passes` says, once rows and flows have followed.
    ///
    /// Hundreds at once are slow on a busy machine: what seems wrong is asked again, alone and with more time.
    pub(crate) async fn shows(&self, traffic: &[Traffic], passes: impl Fn(&Traffic) -> bool) -> Result<()> {
        let cluster = Cluster::new(&self.objects().await?);
        eventually("the connections", async || {
            let mut wrong = traffic.to_vec();
            for timeout in [TIMEOUT, 2 * TIMEOUT, 8 * TIMEOUT] {
                let reached = self.ask(&cluster, &wrong, timeout).await?;
                let mut answers = reached.into_iter();
                wrong.retain(|one| answers.next() != Some(passes(one)));
                if wrong.is_empty() {
                    return Ok(());
                }
            }
            let shown = wrong.iter().take(12);
            let shown =
                shown.map(|one| format!("{one} {}", if passes(one) { "does not pass" } else { "passes" }));
            bail!("{} of {} are wrong:\n{}", wrong.len(), traffic.len(), shown.collect::<Vec<_>>().join("\n"))
        })
        .await
    }

    /// Fails unless a pod reaches a TCP port of an address, or does not, once rows and flows have followed.
    pub(crate) async fn reaches(&self, from: &Party, address: IpAddr, port: u16, wanted: bool) -> Result<()> {
        let path = self.sockets.get(from).with_context(|| format!("{from} has no prober"))?;
        let targets = vec![Target { address, port, protocol: matrix::Protocol::Tcp }];
        eventually(&format!("{from} -> {address}:{port}"), async || {
            let request = Request { timeout_ms: 2 * TIMEOUT, targets: targets.clone() };
            let reached = matrix::ask(path, &request).await?;
            ensure!(reached == [wanted], "reached: {reached:?}");
            Ok(())
        })
        .await
    }

    /// Which connections come about, all tried at once.
    async fn ask(&self, cluster: &Cluster, traffic: &[Traffic], timeout_ms: u64) -> Result<Vec<bool>> {
        let mut by_source: BTreeMap<&Party, Vec<(usize, Target)>> = BTreeMap::new();
        for (at, one) in traffic.iter().enumerate() {
            let to = cluster.destination(&one.to, one.v6).with_context(|| format!("{one}: no address"))?;
            let protocol = match one.protocol {
                Protocol::Udp => matrix::Protocol::Udp,
                Protocol::Sctp => matrix::Protocol::Sctp,
                Protocol::Tcp | Protocol::Icmp => matrix::Protocol::Tcp,
            };
            let target = Target { address: to.ip, port: one.port, protocol };
            by_source.entry(&one.from).or_default().push((at, target));
        }
        let asked = by_source.into_iter().map(async |(from, targets)| {
            let path = self.sockets.get(from).with_context(|| format!("{from} has no prober"))?;
            let (indexes, targets): (Vec<usize>, Vec<Target>) = targets.into_iter().unzip();
            let reached = matrix::ask(path, &Request { timeout_ms, targets }).await?;
            anyhow::Ok(indexes.into_iter().zip(reached).collect::<Vec<_>>())
        });
        let mut all = vec![false; traffic.len()];
        for (at, reached) in futures::future::try_join_all(asked).await?.into_iter().flatten() {
            all[at] = reached;
        }
        Ok(all)
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.stack.stop().await
    }
}

/// Time for a trace, should the program hang.
pub(crate) const TRACE_PATIENCE: Duration = Duration::from_secs(30);
