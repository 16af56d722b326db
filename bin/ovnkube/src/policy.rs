//! `ovnkube policy`: network policies explained, from manifests or from a cluster.

mod input;
mod progress;
mod render;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use diagnose::policy::{self, Cluster, Party, Question};
use serde::Serialize;

use crate::output;
use input::{InputError, Source};
use progress::Progress;

/// Exit code of a question that cannot be answered.
const TROUBLE: u8 = 2;
/// Exit code of a `check` that is denied and of a `diff` that finds something.
const NO: u8 = 1;

#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// Which policies are for a pod, what they say, who reaches it and whom it reaches.
    #[command(after_help = EXPLAIN_HELP)]
    Explain {
        /// The pod: NAMESPACE/NAME, or NAME in the namespace of -n.
        pod: String,
        #[command(flatten)]
        state: State,
        #[command(flatten)]
        format: Format,
    },
    /// Whether a connection is allowed, and which policy, rule and ACL decides.
    #[command(after_help = CHECK_HELP)]
    Check {
        /// Who connects: NAMESPACE/POD, node/NAME or an address.
        src: String,
        /// To whom: DST:PORT, DST:PORT/udp, DST:PORT/sctp or DST:icmp. A port may be a container port's name.
        dst: String,
        #[command(flatten)]
        state: State,
        #[command(flatten)]
        format: Format,
    },
    /// What a change of policies, pods or namespaces opens and closes, before it is made.
    #[command(after_help = DIFF_HELP)]
    Diff {
        /// The change: a file, a directory of *.yaml, *.yml and *.json, or - for standard input.
        #[arg(short, long = "filename", value_name = "FILE|DIR", required = true)]
        filename: Vec<PathBuf>,
        /// The change takes the policies of -f away instead of applying them.
        #[arg(long)]
        delete: bool,
        /// Read the cluster's state from manifests instead of the API server.
        #[arg(long = "on", value_name = "FILE|DIR")]
        on: Vec<PathBuf>,
        #[command(flatten)]
        access: Access,
        #[command(flatten)]
        format: Format,
    },
}

const EXPLAIN_HELP: &str = "\
Examples:
  # A pod of the cluster that kubectl talks to
  ovnkube policy explain shop/web-1
  # The same before anything is deployed
  ovnkube policy explain shop/web-1 -f manifests/

Exit code: 0, or 2 if there is no such pod or the state cannot be read.";

const CHECK_HELP: &str = "\
Examples:
  # May web reach the database?
  ovnkube policy check shop/web-1 shop/db-1:5432
  # By the name of a container port; from a node; from outside
  ovnkube policy check shop/web-1 shop/db-1:postgres
  ovnkube policy check node/node2 shop/web-1:8080
  ovnkube policy check 203.0.113.7 shop/web-1:8080
  # In a script, from manifests
  ovnkube policy check -f manifests/ mon/prom-1 shop/web-1:9090 -o json && echo allowed

Exit code: 0 allowed, 1 denied (over one IP family at least), 2 the question cannot be answered.
A service is not looked up: ask for one of its pods and the pod's own port.";

const DIFF_HELP: &str = "\
Examples:
  # What would this change do to the cluster?
  ovnkube policy diff -f new-policy.yaml
  # What if a policy were removed?
  ovnkube policy diff --delete -f old-policy.yaml
  # Without a cluster, in a review
  ovnkube policy diff --on manifests/ -f new-policy.yaml

Exit code: 0 nothing opens or closes, 1 something does, 2 the question cannot be answered.";

#[derive(Args)]
pub(crate) struct State {
    /// Read the state from manifests instead of the API server: a file, a directory, or - for standard input.
    #[arg(short, long = "filename", value_name = "FILE|DIR")]
    filename: Vec<PathBuf>,
    #[command(flatten)]
    access: Access,
}

#[derive(Args)]
pub(crate) struct Access {
    /// The kubeconfig file; else KUBECONFIG, ~/.kube/config, or the pod's own account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of names without one.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// The namespace that stands for the nodes, as in the cluster's configuration.
    #[arg(long, value_name = "NAME", default_value = "ovn-host-network")]
    host_network_namespace: String,
    /// ICMP is exempt from NetworkPolicies, as in the cluster's configuration.
    #[arg(long)]
    allow_icmp_network_policy: bool,
}

#[derive(Args)]
pub(crate) struct Format {
    /// Format of the answer.
    #[arg(short, long, value_enum, default_value_t = FormatName::Text)]
    output: FormatName,
    /// Name every pod, however many there are.
    #[arg(long)]
    all: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatName {
    Text,
    Json,
    Yaml,
}

/// Answers, and tells the exit code.
pub(crate) fn run(command: PolicyCommand) -> ExitCode {
    answer(command).unwrap_or_else(|error| output::fail(TROUBLE, &format!("{error:#}")))
}

fn answer(command: PolicyCommand) -> anyhow::Result<ExitCode> {
    match command {
        PolicyCommand::Explain { pod, state, format } => {
            let cluster = state.load()?;
            let Party::Pod(key) = Party::parse(&cluster, &pod, &state.access.namespace)? else {
                anyhow::bail!("{pod} is no pod; write NAMESPACE/NAME");
            };
            let mut progress = Progress::new("asked");
            let explained = policy::explain(&cluster, &key, |done, all| progress.tell(done, all))?;
            progress.end();
            format.print(&explained, |style| render::explanation(&explained, style))?;
            Ok(ExitCode::SUCCESS)
        }
        PolicyCommand::Check { src, dst, state, format } => {
            let cluster = state.load()?;
            let question = Question::parse(&cluster, &src, &dst, &state.access.namespace)?;
            let verdict = policy::check(&cluster, &question)?;
            format.print(&verdict, |style| render::verdict(&verdict, style))?;
            Ok(ExitCode::from(if verdict.allowed { 0 } else { NO }))
        }
        PolicyCommand::Diff { filename, delete, on, access, format } => {
            let before = access.load(&on)?;
            let after = change(before.clone(), &filename, delete, &access)?;
            let mut progress = Progress::new("compared");
            let diff = policy::diff(&before, &after, |done, all| progress.tell(done, all));
            progress.end();
            format.print(&diff, |style| render::diff(&diff, style))?;
            Ok(ExitCode::from(if diff.changes.is_empty() { 0 } else { NO }))
        }
    }
}

/// The state after the change.
fn change(mut cluster: Cluster, files: &[PathBuf], delete: bool, access: &Access) -> anyhow::Result<Cluster> {
    let objects = input::objects(files)?;
    if !delete {
        input::add(&mut cluster, objects, &access.namespace)?;
        return Ok(cluster);
    }
    let mut removed = 0;
    for id in objects.iter().filter_map(|(_, object)| Cluster::policy_id(object, &access.namespace)) {
        if !cluster.remove_policy(&id) {
            return Err(InputError::NotThere { id: id.to_string() }.into());
        }
        removed += 1;
    }
    anyhow::ensure!(removed > 0, "-f holds no policy to take away");
    Ok(cluster)
}

impl State {
    fn load(&self) -> anyhow::Result<Cluster> {
        self.access.load(&self.filename)
    }
}

impl Access {
    /// The state of the cluster: from `files`, or from the API server if there are none.
    fn load(&self, files: &[PathBuf]) -> anyhow::Result<Cluster> {
        let settings = policy::Settings {
            host_network_namespace: self.host_network_namespace.clone(),
            allow_icmp: self.allow_icmp_network_policy,
        };
        let source = if files.is_empty() {
            Source::Server(self.kubeconfig.clone())
        } else {
            Source::Files(files.to_vec())
        };
        let cluster = input::load(settings, source, &self.namespace)?;
        for line in render::warnings(&cluster) {
            output::fail(0, &format!("warning: {line}"));
        }
        Ok(cluster)
    }
}

impl Format {
    fn print(
        &self,
        value: &impl Serialize,
        text: impl FnOnce(render::Style) -> String,
    ) -> anyhow::Result<()> {
        let text = match self.output {
            FormatName::Text => text(render::Style::of_terminal(self.all)),
            FormatName::Json => serde_json::to_string_pretty(value)? + "\n",
            FormatName::Yaml => serde_norway::to_string(value)?,
        };
        output::print(&text);
        Ok(())
    }
}
