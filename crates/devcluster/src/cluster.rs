//! A cluster: underlay and nodes, started together and taken down together.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use futures::future::try_join_all;

use crate::{
    addresses::Families,
    node::{Node, Templates},
    prefix::Prefix,
    space::Space,
    underlay,
    work_dir::WorkDir,
};

/// What kind of cluster to start.
#[derive(Debug, Clone)]
pub struct Builder {
    nodes: u8,
    families: Families,
    work_dir: Option<PathBuf>,
}

/// A running cluster. Dropping it ends every process in it and removes its files.
pub struct Cluster {
    // Dropped in this order: processes first, files last.
    nodes: Vec<Arc<Node>>,
    underlay: Space,
    families: Families,
    prefix: Prefix,
    work: WorkDir,
}

// === impl Builder ===

impl Builder {
    /// How many nodes; two unless told.
    #[must_use]
    pub fn nodes(mut self, nodes: u8) -> Self {
        self.nodes = nodes;
        self
    }

    /// Address families of the nodes; IPv4 unless told.
    #[must_use]
    pub fn families(mut self, families: Families) -> Self {
        self.families = families;
        self
    }

    /// Where the directory for the cluster's files is made; in memory unless told.
    #[must_use]
    pub fn work_dir(mut self, base: impl Into<PathBuf>) -> Self {
        self.work_dir = Some(base.into());
        self
    }

    /// Starts the nodes with all their OVS and OVN daemons. Nothing of ours runs on them yet.
    pub async fn start(self) -> Result<Cluster> {
        let prefix = Prefix::find()?;
        let work = WorkDir::new(self.work_dir.as_deref())?;
        let (underlay, templates) = futures::future::try_join(
            underlay::start(work.path(), self.families),
            Templates::make(&prefix, work.path()),
        )
        .await?;
        let nodes = try_join_all((1..=self.nodes).map(|number| {
            let (work, underlay, prefix, templates) = (work.path(), &underlay, &prefix, &templates);
            async move {
                Node::start(work, underlay, number, self.families, prefix, templates)
                    .await
                    .map(Arc::new)
                    .with_context(|| format!("starting node{number}"))
            }
        }))
        .await?;
        Ok(Cluster { nodes, underlay, families: self.families, prefix, work })
    }
}

// === impl Cluster ===

impl Cluster {
    /// Starts describing a cluster.
    pub fn builder() -> Builder {
        Builder { nodes: 2, families: Families::V4, work_dir: None }
    }

    /// The nodes, node1 first.
    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// Node number `number`, counted from 1.
    ///
    /// # Panics
    /// When the cluster has no such node.
    pub fn node(&self, number: u8) -> &Arc<Node> {
        &self.nodes[usize::from(number) - 1]
    }

    /// The network between the nodes; its address is the nodes' gateway.
    pub fn underlay(&self) -> &Space {
        &self.underlay
    }

    /// Address families of the nodes.
    pub fn families(&self) -> Families {
        self.families
    }

    /// The OVN programs the nodes run.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Directory of the cluster's files; gone with the cluster.
    pub fn work_dir(&self) -> &Path {
        self.work.path()
    }

    /// Ends every process in the cluster and removes its files; returns when that is done.
    pub async fn stop(self) {
        // Waiting for processes to be gone blocks; callers may run an API server on this thread's runtime.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Callers may still hold nodes and processes: end them here and now, all at once.
        std::thread::scope(|scope| {
            for node in &self.nodes {
                scope.spawn(|| node.stop());
            }
            scope.spawn(|| self.underlay.stop());
        });
    }
}
