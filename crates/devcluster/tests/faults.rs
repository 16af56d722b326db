//! Anything may die or go away at any time: what runs keeps its network, and what changed meanwhile is made up for.

#[path = "common/invariants.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod invariants;
#[path = "common/lab.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lab;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use devapi::{Failure, Faults, Matcher};
use devcluster::{AgentOptions, ApiChoice, Cluster, Daemon, Node, PodArgs, PodHandle, Sandbox, Stack};
use lab::{NAMESPACE, PATIENCE, apply_server, eventually, run, servers};

/// Two nodes with two pods each, and what happens to pods around a fault.
struct Drill {
    stack: Stack,
    /// Pods that are never touched.
    old: Vec<PodHandle>,
    round: u32,
}

impl Drill {
    async fn start(choice: ApiChoice) -> Result<Self> {
        let builder = Cluster::builder().nodes(2);
        let mut stack = Stack::start(builder, choice, AgentOptions::default()).await?;
        let old = servers(&mut stack, 2).await?;
        // One on each node that is going to be re-created under its name, like a StatefulSet's.
        for node in ["node1", "node2"] {
            apply_server(&mut stack, &format!("{node}-set"), node).await?;
            stack.running(NAMESPACE, &format!("{node}-set"), PATIENCE).await?;
        }
        // Nodes learn of each other in their own time.
        lab::all_talk(&old).await?;
        Ok(Self { stack, old, round: 0 })
    }

    /// While something is broken: a new pod on each node, and one deleted whose name returns as soon as it is free.
    async fn change(&mut self) -> Result<Change> {
        self.round += 1;
        let mut change = Change { new: Vec::new(), replaced: Vec::new() };
        for node in ["node1", "node2"] {
            let set = format!("{node}-set");
            let old = lab::get(&self.stack, &format!("/api/v1/namespaces/{NAMESPACE}/pods/{set}")).await?;
            let uid = old["metadata"]["uid"].as_str().context("no uid")?.to_owned();
            lab::delete_pod(&self.stack, &set).await?;
            change.replaced.push((set, node, uid));
            let new = format!("{node}-new-{}", self.round);
            apply_server(&mut self.stack, &new, node).await?;
            change.new.push(new);
        }
        Ok(change)
    }

    /// After the repair: everything that should run does, everybody talks, and the databases are as they should be.
    async fn recovered(&mut self, change: Change) -> Result<()> {
        for (name, node, uid) in &change.replaced {
            lab::pod_gone(&self.stack, name, uid).await?;
            apply_server(&mut self.stack, name, node).await?;
        }
        let mut names = change.new.clone();
        names.extend(change.replaced.into_iter().map(|(name, ..)| name));
        let fresh = lab::running(&self.stack, &names).await?;
        lab::all_talk(&self.old).await.context("pods from before")?;
        for (at, pod) in fresh.iter().enumerate() {
            let old = &self.old[(at + 1) % self.old.len()];
            lab::talk(old, pod).await.context("an old pod to a new one")?;
            lab::talk(pod, old).await.context("a new pod to an old one")?;
        }
        for (at, name) in ["node1-0", "node1-1", "node2-0", "node2-1"].iter().enumerate() {
            let now = self.stack.running(NAMESPACE, name, PATIENCE).await?;
            ensure!(
                now.record.uid == self.old[at].record.uid && now.record.attempts == 1,
                "{name} was restarted"
            );
        }
        invariants::hold(&self.stack).await?;
        for name in change.new {
            lab::delete_pod(&self.stack, &name).await?;
        }
        Ok(())
    }

    /// Invariants once more, a restart without a write, and the end.
    async fn stop(mut self) -> Result<()> {
        invariants::hold(&self.stack).await?;
        for number in [1, 2] {
            eventually("deleted pods are taken down", async || {
                let left = lab::pods(&self.stack).await?;
                ensure!(left.iter().all(|pod| !pod.metadata.is_deleting()), "{left:?}");
                Ok(())
            })
            .await?;
            invariants::restart_writes_nothing(&mut self.stack, number).await?;
        }
        invariants::hold(&self.stack).await?;
        self.stack.stop().await
    }
}

struct Change {
    new: Vec<String>,
    /// Name, node, former UID.
    replaced: Vec<(String, &'static str, String)>,
}

/// `kill -9` of a daemon of OVN or Open vSwitch on node1, pods come and go, it starts again.
async fn killed(drill: &mut Drill, daemon: Daemon) -> Result<()> {
    let node = drill.stack.cluster().node(1).clone();
    let mut pings = Vec::new();
    // Between pods of the node: a userspace switch looks up its tunnels' routes anew whenever an interface comes or goes,
    // and drops what it would send meanwhile. ovn-controller installs all flows anew when it starts.
    if matches!(daemon, Daemon::Northd | Daemon::Nb | Daemon::Sb) {
        let to = *lab::addresses(&drill.old[1]).first().context("no address")?;
        pings.push(lab::pings::Pings::start(&drill.old[0], to).await?);
    }
    node.daemon(daemon).context("no such daemon")?.kill9().await?;
    let change = drill.change().await?;
    // Whoever only controls is not missed by running pods. The userspace datapath lives in vswitchd, which rests without
    // its database.
    if !matches!(daemon, Daemon::Vswitchd | Daemon::OvsDb) {
        lab::all_talk(&drill.old).await.with_context(|| format!("without {daemon:?}"))?;
    }
    node.start_daemon(daemon).await?;
    drill.recovered(change).await.with_context(|| format!("{daemon:?} was killed"))?;
    for ping in pings {
        let count = ping.end().await?;
        ensure!(count.lost == 0, "{daemon:?} was killed: pings were lost: {count:?}");
    }
    Ok(())
}

#[test]
fn ovns_daemons_are_killed() -> Result<()> {
    run(async {
        let mut drill = Drill::start(ApiChoice::Any).await?;
        for daemon in [Daemon::Northd, Daemon::Controller, Daemon::Nb, Daemon::Sb] {
            killed(&mut drill, daemon).await?;
        }
        drill.stop().await
    })
}

#[test]
fn open_vswitch_is_killed() -> Result<()> {
    run(async {
        let mut drill = Drill::start(ApiChoice::Any).await?;
        for daemon in [Daemon::OvsDb, Daemon::Vswitchd] {
            killed(&mut drill, daemon).await?;
        }
        drill.stop().await
    })
}

#[test]
fn our_processes_are_killed() -> Result<()> {
    run(async {
        let mut drill = Drill::start(ApiChoice::Any).await?;
        let node = drill.stack.cluster().node(1).clone();

        drill.stack.agents()?.nodes["node1"].kill9().await?;
        let change = drill.change().await?;
        drill.stack.agents()?.start_node(&node).await?;
        drill.recovered(change).await.context("the node's process was killed")?;

        let manager = drill.stack.agents()?.manager.clone();
        manager.kill9().await?;
        let change = drill.change().await?;
        drill.stack.agents()?.manager = manager.restart().await?;
        drill.recovered(change).await.context("the cluster manager was killed")?;

        // All at once, as after a power failure of the control programs.
        for name in ["node1", "node2"] {
            drill.stack.agents()?.nodes[name].kill9().await?;
        }
        node.daemon(Daemon::Nb).context("no Northbound server")?.kill9().await?;
        node.daemon(Daemon::Northd).context("no northd")?.kill9().await?;
        let change = drill.change().await?;
        for node in drill.stack.cluster().nodes().to_vec() {
            drill.stack.agents()?.start_node(&node).await?;
        }
        node.start_daemon(Daemon::Nb).await?;
        node.start_daemon(Daemon::Northd).await?;
        drill.recovered(change).await.context("several were killed")?;
        drill.stop().await
    })
}

/// A start script of Open vSwitch deletes ports marked transient, as it does after a reboot; but the pods live.
#[test]
fn transient_ports_are_deleted_under_running_pods() -> Result<()> {
    run(async {
        let mut drill = Drill::start(ApiChoice::Any).await?;
        let node = drill.stack.cluster().node(1).clone();
        for daemon in [Daemon::Vswitchd, Daemon::OvsDb] {
            node.daemon(daemon).context("no such daemon")?.kill9().await?;
        }
        node.start_daemon(Daemon::OvsDb).await?;
        let find = ["ovs-vsctl", "--bare", "--columns=name", "find", "Port", "other_config:transient=true"];
        let ports = node.ovn(&find).await?;
        let ports: Vec<&str> = ports.split_whitespace().collect();
        ensure!(ports.len() == 3, "{ports:?}");
        for port in ports {
            node.ovn(&["ovs-vsctl", "--no-wait", "del-port", "br-int", port]).await?;
        }
        node.start_daemon(Daemon::Vswitchd).await?;
        let change = drill.change().await?;
        drill.recovered(change).await?;
        drill.stop().await
    })
}

/// The Northbound database comes back empty: ports are rebuilt from annotations, and pods keep talking.
#[test]
fn the_northbound_database_is_lost() -> Result<()> {
    run(async {
        let mut drill = Drill::start(ApiChoice::Any).await?;
        let node = drill.stack.cluster().node(1).clone();
        for agent_lives in [true, false] {
            if !agent_lives {
                drill.stack.agents()?.nodes["node1"].kill9().await?;
            }
            node.daemon(Daemon::Nb).context("no Northbound server")?.kill9().await?;
            lab::empty(&drill.stack, &node, Daemon::Nb).await?;
            let change = drill.change().await?;
            node.start_daemon(Daemon::Nb).await?;
            if !agent_lives {
                drill.stack.agents()?.start_node(&node).await?;
            }
            drill.recovered(change).await.with_context(|| format!("agent lived: {agent_lives}"))?;
        }
        drill.stop().await
    })
}

fn faults(drill: &Drill) -> Result<&Faults> {
    Ok(drill.stack.api().embedded().context("faults need the embedded API")?.faults())
}

#[test]
fn the_api_server_misbehaves() -> Result<()> {
    run(async {
        let mut drill = Drill::start(ApiChoice::Embedded).await?;

        // Slow, and every other write is refused for some reason.
        faults(&drill)?.delay(Matcher::any().resource("pods"), Duration::from_millis(100));
        for failure in [Failure::Internal, Failure::Conflict, Failure::TooManyRequests, Failure::Unavailable]
        {
            faults(&drill)?.fail_next(Matcher::any().verb("patch").resource("pods/status"), 2, failure);
        }
        let change = drill.change().await?;
        drill.recovered(change).await.context("slow and refusing")?;
        faults(&drill)?.clear();

        // Watches end, with and without their history.
        let change = drill.change().await?;
        faults(&drill)?.drop_watches();
        drill.recovered(change).await.context("watches dropped")?;
        let change = drill.change().await?;
        faults(&drill)?.expire_watches();
        drill.recovered(change).await.context("watches expired")?;

        // Gone: nothing is answered while watches are lost too; then lists fail for a while.
        let change = drill.change().await?;
        faults(&drill)?.pause();
        faults(&drill)?.expire_watches();
        faults(&drill)?.fail_next(Matcher::any().verb("list"), 3, Failure::Unavailable);
        faults(&drill)?.fail_next(Matcher::any().verb("watch"), 3, Failure::Gone);
        lab::all_talk(&drill.old).await.context("without an API server")?;
        // A node's process that starts now waits for it.
        drill.stack.restart_agent(1).await?;
        lab::all_talk(&drill.old).await.context("restarted without an API server")?;
        faults(&drill)?.resume();
        drill.recovered(change).await.context("API server gone")?;
        faults(&drill)?.clear();
        drill.stop().await
    })
}

#[test]
fn forty_pods_at_once_and_deletions_while_the_agent_is_down() -> Result<()> {
    run(async {
        let builder = Cluster::builder().nodes(1);
        let mut stack = Stack::start(builder, ApiChoice::Any, AgentOptions::default()).await?;
        servers(&mut stack, 1).await?;
        let names: Vec<String> = (0..40).map(|at| format!("many-{at}")).collect();
        for name in &names {
            let pod = devcluster::mk_pod(NAMESPACE, name, "node1", &["sleep", "infinity"]);
            devcluster::api::apply(&stack.api().client(), &pod).await?;
        }
        let pods = lab::running(&stack, &names).await?;
        let distinct: BTreeSet<&String> = pods.iter().flat_map(|pod| &pod.record.addresses).collect();
        ensure!(distinct.len() == 40, "{distinct:?}");
        ensure!(pods.iter().all(|pod| pod.record.attempts == 1), "a CNI ADD failed");
        invariants::hold(&stack).await?;

        // Deleted while nobody looks: the plugin is called all the same, and nothing is left when the agent is back.
        let node = stack.cluster().node(1).clone();
        stack.agents()?.nodes["node1"].kill9().await?;
        for name in &names {
            lab::delete_pod(&stack, name).await?;
        }
        stack.agents()?.start_node(&node).await?;
        for (name, pod) in names.iter().zip(&pods) {
            lab::pod_gone(&stack, name, &pod.record.uid).await?;
        }
        invariants::hold(&stack).await?;
        eventually("ports of deleted pods", async || {
            let rows = lab::rows(&node.ovs_socket(), "Open_vSwitch").await?;
            let left =
                lab::table(&rows, "Interface").filter(|row| row.key("external_ids", "sandbox").is_some());
            ensure!(left.count() == 1, "interfaces are left");
            Ok(())
        })
        .await?;
        invariants::restart_writes_nothing(&mut stack, 1).await?;
        stack.stop().await
    })
}

/// Pod ports in Open vSwitch, by sandbox.
async fn plugged(node: &Node) -> Result<Vec<String>> {
    let rows = lab::rows(&node.ovs_socket(), "Open_vSwitch").await?;
    let sandboxes = lab::table(&rows, "Interface").filter_map(|row| row.key("external_ids", "sandbox"));
    Ok(sandboxes.map(str::to_owned).collect())
}

/// The node's process dies amid a burst, at different moments: between address, port, annotation and interface.
#[test]
fn the_agent_dies_in_the_middle_of_a_burst() -> Result<()> {
    run(async {
        let builder = Cluster::builder().nodes(1);
        let mut stack = Stack::start(builder, ApiChoice::Any, AgentOptions::default()).await?;
        servers(&mut stack, 1).await?;
        let node = stack.cluster().node(1).clone();
        let mut names = Vec::new();
        for after in [0, 1, 5] {
            let fresh: Vec<String> = (0..10).map(|at| format!("burst-{after}-{at}")).collect();
            for name in &fresh {
                let pod = devcluster::mk_pod(NAMESPACE, name, "node1", &["sleep", "infinity"]);
                devcluster::api::apply(&stack.api().client(), &pod).await?;
            }
            if after > 0 {
                let enough = stack.runner("node1")?.wait_for(|records| {
                    let up = fresh.iter().filter(|name| {
                        let record = records.get(&(NAMESPACE.to_owned(), (*name).clone()));
                        record.is_some_and(|record| !record.addresses.is_empty())
                    });
                    (up.count() >= after).then_some(())
                });
                tokio::time::timeout(PATIENCE, enough).await??;
            }
            stack.agents()?.nodes["node1"].kill9().await?;
            stack.agents()?.start_node(&node).await?;
            names.extend(fresh);
            lab::running(&stack, &names).await?;
            invariants::hold(&stack).await?;
            eventually("one interface a pod", async || {
                let plugged = plugged(&node).await?;
                ensure!(plugged.len() == names.len() + 1, "{} for {} pods", plugged.len(), names.len() + 1);
                Ok(())
            })
            .await?;
        }
        invariants::restart_writes_nothing(&mut stack, 1).await?;
        stack.stop().await
    })
}

/// After a reboot Open vSwitch's database still has the ports of pods whose namespaces and objects are gone.
#[test]
fn ports_of_a_time_before_the_reboot_are_removed() -> Result<()> {
    run(async {
        let cluster = Cluster::builder().nodes(1).start().await?;
        let mut stack = Stack::without_runners(cluster, ApiChoice::Any).await?;
        stack.start_agents(AgentOptions::default()).await?;
        let node = stack.cluster().node(1).clone();
        lab::ready(&node).await?;
        stack.apply(&devcluster::mk_namespace(NAMESPACE)).await?;
        let mut sandboxes = Vec::new();
        for name in ["gone", "stays"] {
            let pod = devcluster::mk_pod(NAMESPACE, name, "node1", &["true"]);
            let made = stack.apply(&pod).await?;
            let uid = made["metadata"]["uid"].as_str().map(str::to_owned);
            let args = PodArgs { namespace: NAMESPACE.to_owned(), name: name.to_owned(), uid };
            let sandbox = Sandbox::create(&node).await?;
            sandbox.cni("ADD", &args).await?.success()?;
            sandboxes.push((sandbox, args));
        }
        stack.agents()?.nodes["node1"].kill9().await?;
        // No DEL: whoever would have called it died too.
        sandboxes[0].0.remove().await?;
        lab::forget_pod(&stack, "gone").await?;
        stack.agents()?.start_node(&node).await?;
        lab::ready(&node).await?;
        let kept = vec![sandboxes[1].0.id().to_owned()];
        eventually("only live ports", async || {
            let plugged = plugged(&node).await?;
            ensure!(plugged == kept, "{plugged:?}");
            Ok(())
        })
        .await?;
        sandboxes[1].0.exec(&["ping", "-c1", "-W5", "10.244.0.2"]).await.context("a live pod's network")?;
        invariants::hold(&stack).await?;
        // The runtime catches up with its DEL, of the one that is gone and of the one that is there.
        for (sandbox, args) in &sandboxes {
            sandbox.cni("DEL", args).await?.success()?;
        }
        ensure!(plugged(&node).await?.is_empty());
        stack.stop().await
    })
}

/// What a failed ADD says, step by step. The limit is short, so on a busy machine an earlier step may be the one that was
/// not over: it is asked again.
async fn refused(sandbox: &Sandbox, pod: &PodArgs, part: &str) -> Result<()> {
    let mut said = String::new();
    for _ in 0..10 {
        let reply = sandbox.cni("ADD", pod).await?;
        ensure!(reply.code().is_some(), "ADD succeeded, where it should say: {part}");
        said = reply.output.to_string();
        if said.contains(part) {
            return Ok(());
        }
    }
    anyhow::bail!("{part} is not in {said}")
}

#[test]
fn a_failed_add_names_the_step_that_is_missing() -> Result<()> {
    run(async {
        let cluster = Cluster::builder().nodes(1).start().await?;
        let mut stack = Stack::without_runners(cluster, ApiChoice::Any).await?;
        let options = AgentOptions {
            // Four pods have room.
            cluster_subnets: Some("10.244.0.0/16/29".to_owned()),
            extra: vec!["--cni-add-timeout=2s".to_owned()],
            ..AgentOptions::default()
        };
        stack.start_agents(options).await?;
        let node = stack.cluster().node(1).clone();
        lab::ready(&node).await?;
        stack.apply(&devcluster::mk_namespace(NAMESPACE)).await?;
        let sandbox = Sandbox::create(&node).await?;
        let pod = async |stack: &mut Stack, name: &str| {
            let made = stack.apply(&devcluster::mk_pod(NAMESPACE, name, "node1", &["true"])).await?;
            let uid = made["metadata"]["uid"].as_str().map(str::to_owned);
            anyhow::Ok(PodArgs { namespace: NAMESPACE.to_owned(), name: name.to_owned(), uid })
        };
        let unknown =
            PodArgs { namespace: NAMESPACE.to_owned(), name: "nobody".to_owned(), uid: Some("u".to_owned()) };
        refused(&sandbox, &unknown, "pod lab/nobody is not known").await?;

        let known = pod(&mut stack, "known").await?;
        let stop = async |daemon| node.daemon(daemon).context("no such daemon")?.kill9().await;
        node.ovn(&["ovn-nbctl", "--timeout=25", "--wait=hv", "sync"]).await?;
        stop(Daemon::Northd).await?;
        let unbound = pod(&mut stack, "unbound").await?;
        refused(&sandbox, &unbound, "no binding for it: check ovn-northd").await?;
        stop(Daemon::Nb).await?;
        refused(&sandbox, &unbound, "databases could not be asked").await?;
        node.start_daemon(Daemon::Nb).await?;
        node.start_daemon(Daemon::Northd).await?;
        for name in ["third", "fourth"] {
            pod(&mut stack, name).await?;
        }
        let late = pod(&mut stack, "late").await?;
        refused(&sandbox, &late, "no free IPv4 address in node subnet").await?;

        stop(Daemon::Controller).await?;
        refused(&sandbox, &known, "is not bound to any chassis: check that ovn-controller runs").await?;
        let sbctl = async |args: &[&str]| {
            let full: Vec<&str> =
                ["ovn-sbctl", "--timeout=20"].into_iter().chain(args.iter().copied()).collect();
            node.ovn(&full).await
        };
        let port = ovn::names::pod_port(NAMESPACE, "known");
        sbctl(&["chassis-add", "elsewhere", "geneve", "192.0.2.2"]).await?;
        sbctl(&["lsp-bind", &port, "elsewhere"]).await?;
        refused(&sandbox, &known, "is bound to another chassis, elsewhere").await?;
        sbctl(&["lsp-unbind", &port]).await?;
        sbctl(&["lsp-bind", &port, &node.chassis()]).await?;
        refused(&sandbox, &known, "is bound to this node but its flows are not installed").await?;
        ensure!(plugged(&node).await?.is_empty(), "a failed ADD left a port");

        // Nothing but the fault has to be mended.
        sbctl(&["chassis-del", "elsewhere"]).await?;
        node.start_daemon(Daemon::Controller).await?;
        eventually("the pod is attached", async || sandbox.cni("ADD", &known).await?.success().map(drop))
            .await?;
        stack.stop().await
    })
}

#[test]
fn a_subnet_is_exhausted_and_waiters_get_what_is_freed() -> Result<()> {
    run(async {
        // A /29 has six hosts: the router, the management port, four pods.
        let options =
            AgentOptions { cluster_subnets: Some("10.244.0.0/16/29".to_owned()), ..AgentOptions::default() };
        let mut stack = Stack::start(Cluster::builder().nodes(1), ApiChoice::Any, options).await?;
        servers(&mut stack, 4).await?;
        apply_server(&mut stack, "late", "node1").await?;
        eventually("an Event with the cause", async || {
            let events: Vec<serde_json::Value> =
                lab::list(&stack, &format!("/api/v1/namespaces/{NAMESPACE}/events")).await?;
            let about = events.iter().find(|event| {
                event.pointer("/involvedObject/name").is_some_and(|name| name == "late")
                    && event["message"].as_str().is_some_and(|text| {
                        text.contains("no free IPv4 address in node subnet 10.244.0.0/29")
                    })
            });
            ensure!(about.is_some_and(|event| event["type"] == "Warning"), "{events:#?}");
            Ok(())
        })
        .await?;
        // kubectl shows it, too.
        let said = lab::kubectl(&stack, &["describe", "pod", "-n", NAMESPACE, "late"]).await?;
        ensure!(said.contains("no free IPv4 address"), "{said}");
        let freed = stack.running(NAMESPACE, "node1-2", PATIENCE).await?;
        lab::delete_pod(&stack, "node1-2").await?;
        let late = stack.running(NAMESPACE, "late", PATIENCE).await?;
        ensure!(late.record.addresses == freed.record.addresses, "{:?}", late.record.addresses);
        invariants::hold(&stack).await?;
        stack.stop().await
    })
}
