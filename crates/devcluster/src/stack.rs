//! Everything together: nodes, API, our programs, a runner a node.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{
    agent::{AgentOptions, Agents},
    api::{self, Api, ApiChoice},
    cluster::{Builder, Cluster},
    node::Node,
    runner::{PodHandle, Runner},
};

/// A cluster that runs pods. Dropping it takes everything down; [`Stack::stop`] also cleans up an API server that lives
/// on.
pub struct Stack {
    // Dropped in this order.
    runners: BTreeMap<String, Runner>,
    /// Our programs, once [`Stack::start_agents`] was called.
    agents: Option<Agents>,
    api: Api,
    cluster: Cluster,
    applied: Vec<Value>,
}

// === impl Stack ===

impl Stack {
    /// Starts nodes, API, our programs and runners.
    pub async fn start(cluster: Builder, choice: ApiChoice, options: AgentOptions) -> Result<Self> {
        let mut stack = Self::without_agents(cluster.start().await?, choice).await?;
        stack.start_agents(options).await?;
        Ok(stack)
    }

    /// API and runners on nodes that are up; [`Stack::start_agents`] follows.
    pub async fn without_agents(cluster: Cluster, choice: ApiChoice) -> Result<Self> {
        let mut stack = Self::without_runners(cluster, choice).await?;
        let nodes = stack.cluster.nodes().iter();
        stack.runners = nodes
            .map(|node| (node.name().to_owned(), Runner::start(node.clone(), stack.api.client())))
            .collect();
        Ok(stack)
    }

    /// Only the API, on nodes that are up: pods stay objects. [`Stack::start_agents`] follows.
    pub async fn without_runners(cluster: Cluster, choice: ApiChoice) -> Result<Self> {
        let api = Api::start(&cluster, choice).await?;
        Ok(Self { runners: BTreeMap::new(), agents: None, api, cluster, applied: Vec::new() })
    }

    /// Starts our programs on all nodes.
    pub async fn start_agents(&mut self, options: AgentOptions) -> Result<&mut Agents> {
        let agents = Agents::start(&self.cluster, &self.api, options).await?;
        Ok(self.agents.insert(agents))
    }

    /// The nodes.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The API.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Our programs, to kill and start again.
    pub fn agents(&mut self) -> Result<&mut Agents> {
        self.agents.as_mut().context("our programs were not started")
    }

    /// Kills the process of a node and starts it again.
    pub async fn restart_agent(&mut self, number: u8) -> Result<()> {
        let node = self.cluster.node(number).clone();
        let agents = self.agents.as_mut().context("our programs were not started")?;
        if let Some(process) = agents.nodes.get(node.name()) {
            process.kill9().await?;
        }
        agents.start_node(&node).await.map(drop)
    }

    /// Ends all of our programs and starts them with other command lines.
    pub async fn restart_agents(&mut self, options: AgentOptions) -> Result<()> {
        let agents = self.agents.take().context("our programs were not started")?;
        for process in agents.nodes.values().chain([&agents.manager]) {
            process.terminate().await?;
        }
        self.start_agents(options).await.map(drop)
    }

    /// The runner of a node.
    pub fn runner(&self, node: &str) -> Result<&Runner> {
        self.runners.get(node).with_context(|| format!("there is no {node}"))
    }

    /// Applies an object; [`Stack::stop`] deletes it from an API server that lives on.
    pub async fn apply(&mut self, object: &Value) -> Result<Value> {
        let applied = api::apply(&self.api.client(), object).await?;
        self.applied.push(object.clone());
        Ok(applied)
    }

    /// Waits until a pod's containers run, wherever it is bound; a failure shows the end of that node's log.
    pub async fn running(&self, namespace: &str, name: &str, patience: Duration) -> Result<PodHandle> {
        let bound = self.runners.iter().map(|(node, runner)| {
            Box::pin(async move { (node, runner.running(namespace, name, patience).await) })
        });
        let mut waiting: Vec<_> = bound.collect();
        let mut errors = Vec::new();
        while !waiting.is_empty() {
            let ((node, result), _, rest) = futures::future::select_all(waiting).await;
            waiting = rest;
            match result {
                Ok(pod) => return Ok(pod),
                Err(error) => errors.push((node, error)),
            }
        }
        // The node that has seen it is the one to blame.
        let seen = errors.iter().position(|(node, _)| {
            self.runners.get(*node).is_some_and(|runner| runner.record(namespace, name).is_some())
        });
        if errors.is_empty() {
            bail!("a cluster without nodes runs no pods");
        }
        let (node, error) = errors.swap_remove(seen.unwrap_or(0));
        let node: Option<&Arc<Node>> = self.cluster.nodes().iter().find(|one| one.name() == node);
        let log = node.map(|node| Agents::log_tail(node, 30)).unwrap_or_default();
        bail!("{error:#}\nThe end of ovnkube's log there:\n{log}")
    }

    /// Takes everything down and waits until it is gone.
    pub async fn stop(mut self) -> Result<()> {
        let mut failed = Vec::new();
        if self.api.is_elsewhere() {
            for object in self.applied.iter().chain(self.api.made()).rev() {
                if let Err(error) = api::delete(&self.api.client(), object).await {
                    failed.push(format!("{error:#}"));
                }
            }
        }
        self.runners.clear();
        drop(self.agents.take());
        self.cluster.stop().await;
        if failed.is_empty() {
            return Ok(());
        }
        bail!("left behind in the API: {}", failed.join("; "))
    }
}

/// A pod of one container that runs `argv`, bound to `node`.
pub fn mk_pod(namespace: &str, name: &str, node: &str, argv: &[&str]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "busybox:1.36", "command": argv }],
        },
    })
}

/// A namespace.
pub fn mk_namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}
