//! A pod's network namespace on a node, and the CNI plugin called on it as a container runtime does.

use std::{fs::File, io::Read, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{
    node::Node,
    space::Process,
    wire::{Exit, Program},
};

/// Where nodes keep CNI configurations.
pub const CONF_DIR: &str = "/etc/cni/net.d";
/// Where nodes keep CNI plugins.
pub const PLUGIN_DIR: &str = "/opt/cni/bin";

/// What the runtime tells the plugin about a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodArgs {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID; an old runtime leaves it out.
    pub uid: Option<String>,
}

/// A network namespace named after a sandbox id.
#[derive(Clone)]
pub struct Sandbox {
    node: Arc<Node>,
    id: String,
    interface: String,
}

/// What a CNI call came to.
#[derive(Debug, Clone)]
pub struct CniReply {
    /// How the plugin ended and what it wrote.
    pub exit: Exit,
    /// From the plugin's start to its end.
    pub took: Duration,
    /// What it printed: the result, or the error object of the specification.
    pub output: Value,
}

/// A plugin at work.
pub struct CniCall {
    process: Process,
}

// === impl Sandbox ===

impl Sandbox {
    /// Makes the namespace, with loopback up, under a random 64-digit id.
    pub async fn create(node: &Arc<Node>) -> Result<Self> {
        let mut bytes = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let sandbox = Self { node: node.clone(), id, interface: "eth0".to_owned() };
        let name = sandbox.netns_name();
        {
            // The first `ip netns add` turns the directory into a mount point; two at once may do so twice.
            let _one = node.netns_lock().await;
            node.exec(&["ip", "netns", "add", &name]).await?;
        }
        node.exec(&["ip", "-n", &name, "link", "set", "lo", "up"]).await?;
        Ok(sandbox)
    }

    /// The same namespace, for the plugin called with another interface name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Self {
        Self { interface: name.to_owned(), ..self.clone() }
    }

    /// `CNI_CONTAINERID`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The node it is on.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    fn netns_name(&self) -> String {
        format!("cni-{}", &self.id[..16])
    }

    /// `CNI_NETNS`, a path on the node.
    pub fn netns(&self) -> String {
        format!("/var/run/netns/{}", self.netns_name())
    }

    /// Calls the plugin of the node's configuration.
    pub async fn cni(&self, command: &str, pod: &PodArgs) -> Result<CniReply> {
        self.cni_with(command, pod, json!({})).await
    }

    /// Calls the plugin with the keys of `more` put over the node's configuration.
    pub async fn cni_with(&self, command: &str, pod: &PodArgs, more: Value) -> Result<CniReply> {
        self.start_cni(command, pod, more).await?.wait().await
    }

    /// Starts a call whose end can be waited for, or that can be given up as a runtime does.
    pub async fn start_cni(&self, command: &str, pod: &PodArgs, more: Value) -> Result<CniCall> {
        let mut args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={}",
            pod.namespace, pod.name, self.id
        );
        if let Some(uid) = &pod.uid {
            args.push_str(&format!(";K8S_POD_UID={uid}"));
        }
        let env = [
            ("CNI_CONTAINERID", self.id.clone()),
            ("CNI_NETNS", self.netns()),
            ("CNI_IFNAME", self.interface.clone()),
            ("CNI_ARGS", args),
        ];
        CniCall::start(&self.node, command, &env, more).await
    }

    /// Runs a command in the namespace to its end and gives its standard output.
    pub async fn exec<S: AsRef<str>>(&self, argv: &[S]) -> Result<String> {
        let name = self.netns_name();
        let mut full = vec!["ip", "netns", "exec", &name];
        full.extend(argv.iter().map(AsRef::as_ref));
        self.node.exec(&full).await
    }

    /// Starts a program in the namespace.
    pub async fn spawn(&self, mut program: Program) -> Result<Process> {
        let prefix = ["ip", "netns", "exec", &self.netns_name()].map(str::to_owned);
        program.argv.splice(0..0, prefix);
        self.node.spawn(program).await
    }

    /// Ends what runs in the namespace and removes it.
    pub async fn remove(&self) -> Result<()> {
        let name = self.netns_name();
        let left = self.node.exec(&["ip", "netns", "pids", &name]).await?;
        let pids: Vec<&str> = left.split_whitespace().collect();
        if !pids.is_empty() {
            let mut kill = vec!["kill", "-9"];
            kill.extend(pids);
            // One of them may have ended by itself, which is no failure.
            let program =
                Program { argv: kill.into_iter().map(str::to_owned).collect(), ..Program::default() };
            self.node.run(program).await?;
        }
        self.node.exec(&["ip", "netns", "delete", &name]).await.map(drop)
    }
}

// === impl CniReply ===

impl CniReply {
    /// The result of a call that succeeded; the plugin's own words if it failed.
    pub fn success(&self) -> Result<&Value> {
        if self.exit.success() {
            return Ok(&self.output);
        }
        let field = |name: &str| self.output.get(name).and_then(Value::as_str).unwrap_or_default();
        let said = match self.output.get("code") {
            Some(code) => format!("code {code}: {} {}", field("msg"), field("details")),
            None => format!("{}{}", self.exit.stdout, self.exit.stderr),
        };
        bail!("the CNI plugin failed ({}): {}", self.exit.how(), said.trim())
    }

    /// The error code of a call that failed.
    pub fn code(&self) -> Option<i64> {
        if self.exit.success() { None } else { self.output.get("code")?.as_i64() }
    }

    /// Addresses of the result, with prefix lengths.
    pub fn addresses(&self) -> Vec<String> {
        let ips = self.output.get("ips").and_then(Value::as_array);
        ips.into_iter().flatten().filter_map(|ip| ip.get("address")?.as_str().map(str::to_owned)).collect()
    }

    /// MAC of the interface inside the pod.
    pub fn mac(&self) -> Option<String> {
        let interfaces = self.output.get("interfaces")?.as_array()?;
        let inside = interfaces.iter().find(|interface| {
            interface.get("sandbox").and_then(Value::as_str).is_some_and(|sandbox| !sandbox.is_empty())
        })?;
        Some(inside.get("mac")?.as_str()?.to_owned())
    }
}

/// Calls the plugin without a sandbox: STATUS, VERSION, GC.
pub async fn call_on_node(node: &Arc<Node>, command: &str, more: Value) -> Result<CniReply> {
    CniCall::start(node, command, &[], more).await?.wait().await
}

// === impl CniCall ===

impl CniCall {
    async fn start(node: &Arc<Node>, command: &str, env: &[(&str, String)], more: Value) -> Result<Self> {
        let mut conf = conf(node)?;
        let plugin = conf
            .get("type")
            .and_then(Value::as_str)
            .context("the CNI configuration names no type")?
            .to_owned();
        if let (Some(conf), Value::Object(more)) = (conf.as_object_mut(), more) {
            conf.extend(more);
        }
        let mut env: Vec<(String, String)> =
            env.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        env.push(("CNI_COMMAND".to_owned(), command.to_owned()));
        env.push(("CNI_PATH".to_owned(), PLUGIN_DIR.to_owned()));
        let program = Program {
            argv: vec![format!("{PLUGIN_DIR}/{plugin}")],
            env,
            stdin: Some(serde_json::to_vec(&conf)?),
            ..Program::default()
        };
        Ok(Self { process: node.spawn(program).await? })
    }

    /// Waits for the plugin's end.
    pub async fn wait(&self) -> Result<CniReply> {
        let exit = self.process.wait().await?;
        let took = Duration::from_micros(exit.micros);
        let output = serde_json::from_str(exit.stdout.trim()).unwrap_or(Value::Null);
        Ok(CniReply { exit, took, output })
    }

    /// Kills the plugin, as a runtime does whose own caller went away.
    pub async fn give_up(&self) -> Result<()> {
        self.process.kill9().await.map(drop)
    }
}

/// The configuration a runtime would take: the first in the order of file names.
pub fn conf(node: &Node) -> Result<Value> {
    let Some(file) = conf_file(node) else {
        bail!("{}: no CNI configuration in {CONF_DIR} yet", node.name())
    };
    let text = std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", file.display()))
}

fn conf_file(node: &Node) -> Option<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(node.outside(CONF_DIR))
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf" || extension == "json"))
        .collect();
    files.sort();
    files.into_iter().next()
}

/// Waits until the node has a CNI configuration: only then does a runtime report its network as ready.
pub async fn network_ready(node: &Node) -> Result<()> {
    let dir = node.outside(CONF_DIR);
    crate::notify::wait_in_dir(&dir, || conf_file(node).map(drop)).await
}
