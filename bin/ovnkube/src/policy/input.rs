//! Where the state of the cluster comes from.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use diagnose::policy::{Cluster, LoadError, Loaded, Settings};
use kapi::{
    AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy, Namespace, NetworkPolicy, Node,
    Object, Pod,
};
use kube_io::{Class, Kube, Scope};
use serde::Deserialize;
use serde_json::Value;

/// Where to read from.
pub(super) enum Source {
    /// Manifests.
    Files(Vec<PathBuf>),
    /// The API server of this kubeconfig, or of the usual one.
    Server(Option<PathBuf>),
}

/// Why an input cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    /// A document does not parse.
    #[error("{origin}: {problem}")]
    Syntax {
        /// File and number of the document.
        origin: String,
        /// What the parser says.
        problem: String,
    },
    /// A document is no usable object.
    #[error("{origin}: {error}")]
    Object {
        /// File and number of the document.
        origin: String,
        /// What is wrong.
        error: LoadError,
    },
    /// There are no documents at all.
    #[error("{path} holds no manifests; files must end in .yaml, .yml or .json")]
    Nothing {
        /// The directory.
        path: String,
    },
    /// What is taken away must be there.
    #[error("{id} is to be taken away, but it is not there")]
    NotThere {
        /// The policy.
        id: String,
    },
}

/// Reads the cluster's state.
pub(super) fn load(settings: Settings, source: Source, namespace: &str) -> anyhow::Result<Cluster> {
    let mut cluster = Cluster::new(settings);
    match source {
        Source::Files(files) => add(&mut cluster, objects(&files)?, namespace)?,
        Source::Server(kubeconfig) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(list(&mut cluster, kubeconfig))?;
        }
    }
    Ok(cluster)
}

/// Adds objects to a cluster.
pub(super) fn add(
    cluster: &mut Cluster,
    objects: Vec<(String, Value)>,
    namespace: &str,
) -> Result<(), InputError> {
    // Namespaces first, so that none that comes later is taken for missing.
    let (namespaces, others): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|(_, object)| object["kind"] == "Namespace");
    for (origin, object) in namespaces.into_iter().chain(others) {
        match cluster.add_object(object, namespace) {
            Ok(Loaded::Added | Loaded::Passed) => {}
            Err(error) => return Err(InputError::Object { origin, error }),
        }
    }
    Ok(())
}

/// The documents of files and directories, each with where it stands.
pub(super) fn objects(files: &[PathBuf]) -> anyhow::Result<Vec<(String, Value)>> {
    let mut all = Vec::new();
    for path in files {
        if path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading standard input")?;
            documents("standard input", &text, &mut all)?;
        } else if path.is_dir() {
            let before = all.len();
            for file in manifests(path)? {
                read(&file, &mut all)?;
            }
            if all.len() == before {
                return Err(InputError::Nothing { path: path.display().to_string() }.into());
            }
        } else {
            read(path, &mut all)?;
        }
    }
    Ok(all)
}

fn read(path: &Path, all: &mut Vec<(String, Value)>) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    documents(&path.display().to_string(), &text, all)
}

/// The manifests of a directory, by name; directories in it are left out, as kubectl does.
fn manifests(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_file() && matches!(extension, Some("yaml" | "yml" | "json")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn documents(file: &str, text: &str, all: &mut Vec<(String, Value)>) -> anyhow::Result<()> {
    for (at, document) in serde_norway::Deserializer::from_str(text).enumerate() {
        let origin = format!("{file}, document {}", at + 1);
        let value = Value::deserialize(document)
            .map_err(|error| InputError::Syntax { origin: origin.clone(), problem: error.to_string() })?;
        if !value.is_null() {
            all.push((origin, value));
        }
    }
    Ok(())
}

/// Everything policies are about, from the API server.
async fn list(cluster: &mut Cluster, kubeconfig: Option<PathBuf>) -> anyhow::Result<()> {
    let settings = kube_io::Settings {
        kubeconfig: kubeconfig.or_else(usual_kubeconfig),
        component: "ovnkube-policy".to_owned(),
        ..Default::default()
    };
    let kube =
        Kube::connect(settings).await.context("cannot reach the cluster; -f reads manifests instead")?;
    for namespace in all::<Namespace>(&kube).await? {
        cluster.add_namespace(&namespace);
    }
    for node in all::<Node>(&kube).await? {
        cluster.add_node(&node);
    }
    for pod in all::<Pod>(&kube).await? {
        cluster.add_pod(&pod);
    }
    for policy in all::<NetworkPolicy>(&kube).await? {
        cluster.add_policy((&policy).into());
    }
    for policy in installed::<AdminNetworkPolicy>(&kube).await? {
        cluster.add_policy((&policy).into());
    }
    for policy in installed::<BaselineAdminNetworkPolicy>(&kube).await? {
        cluster.add_policy((&policy).into());
    }
    for policy in installed::<ClusterNetworkPolicy>(&kube).await? {
        cluster.add_policy((&policy).into());
    }
    Ok(())
}

/// Where kubectl finds its kubeconfig.
fn usual_kubeconfig() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let home = PathBuf::from(std::env::var_os("HOME")?).join(".kube/config");
    home.is_file().then_some(home)
}

async fn all<T: Object>(kube: &Kube) -> anyhow::Result<Vec<T>> {
    kube.list::<T>(&Scope::default()).await.with_context(|| format!("cannot list {}", T::RESOURCE.plural))
}

/// Objects of a kind that need not be installed in the cluster.
async fn installed<T: Object>(kube: &Kube) -> anyhow::Result<Vec<T>> {
    match kube.list::<T>(&Scope::default()).await {
        Err(error) if error.class() == Class::NotFound => Ok(Vec::new()),
        listed => listed.with_context(|| format!("cannot list {}", T::RESOURCE.plural)),
    }
}
