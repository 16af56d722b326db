//! Our programs start where something runs already: on rows of the reference, and on their own after a restart.

#[path = "common/invariants.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod invariants;
#[path = "common/lab.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lab;

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, ensure};
use devcluster::{AgentOptions, ApiChoice, Cluster, Daemon, Node, Stack, api, mk_namespace};
use lab::run;
use scenario::{Scenario, canonical, compare};
use serde_json::{Value, json};

/// Columns that northd and ovn-controller write to the Northbound database.
const OVN_WRITES: &[(&str, &[&str])] = &[
    ("Logical_Switch_Port", &["up"]),
    ("Logical_Router_Port", &["status"]),
    ("NB_Global", &["sb_cfg", "sb_cfg_timestamp", "hv_cfg", "hv_cfg_timestamp", "nb_cfg_timestamp"]),
];

/// Serves the recorded Northbound database on a node, in the schema that is installed here.
async fn serve_recorded(stack: &Stack, node: &Node) -> Result<()> {
    for daemon in [Daemon::Northd, Daemon::Nb] {
        node.daemon(daemon).context("no such daemon")?.kill9().await?;
    }
    let file = node.outside(lab::NB_FILE);
    let database = Scenario::PODS.database(usize::from(node.number())).context("no recorded database")?;
    fs::write(&file, database)?;
    let prefix = stack.cluster().prefix();
    let output = tokio::process::Command::new(prefix.program("ovsdb-tool"))
        .args(["convert".as_ref(), file.as_os_str(), prefix.schema("ovn-nb.ovsschema")?.as_os_str()])
        .output()
        .await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    node.start_daemon(Daemon::Nb).await?;
    node.start_daemon(Daemon::Northd).await?;
    node.ovn(&["ovn-nbctl", "--timeout=20", "--wait=sb", "sync"]).await.map(drop)
}

/// The objects as they were when the database was recorded. A pod's UID is chosen by the API server, so the port's
/// copy of it is corrected by hand.
async fn recorded_objects(stack: &Stack) -> Result<usize> {
    let client = stack.api().client();
    let mut pods = 0;
    let mut objects = Scenario::PODS.objects();
    objects.sort_by_key(|object| object["kind"] == "Pod");
    for object in objects {
        let (name, namespace) = (&object["name"], &object["namespace"]);
        let metadata = json!({ "name": name, "namespace": namespace, "annotations": object["annotations"] });
        match object["kind"].as_str() {
            Some("Node") => {
                let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata });
                api::apply(&client, &node).await?;
            }
            Some("Namespace") => {
                api::apply(&client, &mk_namespace(name.as_str().context("no name")?)).await?;
            }
            Some("Pod") => {
                let number = if object["status"]["hostIP"] == "172.18.0.1" { 1 } else { 2 };
                let on_host = object["annotations"] == json!({});
                let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {
                    "nodeName": format!("node{number}"), "hostNetwork": on_host,
                    "containers": [{ "name": "c", "image": "app" }],
                }, "status": object["status"] });
                let made = api::apply(&client, &pod).await?;
                api::apply_status(&client, &pod).await?;
                if on_host || object["status"]["phase"] == "Succeeded" {
                    continue;
                }
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let port = ovn::names::pod_port(&text(namespace), &text(name));
                let uid = format!("options:iface-id-ver={}", text(&made["metadata"]["uid"]));
                let node = stack.cluster().node(number);
                node.ovn(&["ovn-nbctl", "set", "Logical_Switch_Port", &port, &uid]).await?;
                pods += 1;
            }
            _ => {}
        }
    }
    Ok(pods)
}

/// What was written behind `offset` that OVN does not write itself.
fn written(node: &Node, offset: u64) -> Result<Vec<String>> {
    let mut ours = Vec::new();
    for record in lab::written_since(node, lab::NB_FILE, offset)? {
        for (table, rows) in record.as_object().into_iter().flatten().filter(|(key, _)| !key.starts_with('_'))
        {
            let known =
                OVN_WRITES.iter().find(|(name, _)| name == table).map_or(&[][..], |(_, columns)| columns);
            for (row, columns) in rows.as_object().into_iter().flatten() {
                let all_known = columns
                    .as_object()
                    .is_some_and(|columns| columns.keys().all(|column| known.contains(&column.as_str())));
                if !all_known {
                    ours.push(format!("{table} {row} {columns}"));
                }
            }
        }
    }
    Ok(ours)
}

#[test]
fn rows_of_the_reference_are_taken_over_without_a_write() -> Result<()> {
    run(async {
        let cluster = Cluster::builder().nodes(2).start().await?;
        let mut stack = Stack::without_runners(cluster, ApiChoice::Any).await?;
        let nodes = stack.cluster().nodes().to_vec();
        for node in &nodes {
            serve_recorded(&stack, node).await?;
        }
        let pods = recorded_objects(&stack).await?;
        ensure!(pods == 5, "{pods} pods with ports");
        let mut before = BTreeMap::new();
        for node in &nodes {
            node.ovn(&["ovn-nbctl", "--timeout=20", "--wait=sb", "sync"]).await?;
            let rows = lab::northbound(node).await?;
            let report = compare(
                &Scenario::PODS.northbound(node.number().into()),
                &canonical(rows.iter().map(AsRef::as_ref)),
            );
            ensure!(report.different.is_empty(), "not what was recorded: {report}");
            before.insert(node.name().to_owned(), (lab::size(node, lab::NB_FILE)?, rows.len()));
        }
        stack.start_agents(AgentOptions::default()).await?;
        for node in &nodes {
            lab::ready(node).await?;
            // ovn-controller and northd come to rest too: the management port is up now.
            node.ovn(&["ovn-nbctl", "--timeout=20", "--wait=hv", "sync"]).await?;
        }
        invariants::hold(&stack).await?;
        for node in &nodes {
            let (offset, count) = before[node.name()];
            let ours = written(node, offset)?;
            // The sync before counted its own request.
            let ours: Vec<_> = ours.iter().filter(|line| !line.contains("\"nb_cfg\"")).collect();
            ensure!(ours.is_empty(), "{}: the start wrote {ours:#?}", node.name());
            ensure!(lab::northbound(node).await?.len() == count, "{}: rows came or went", node.name());
        }

        // It works from here on: a new pod gets the next address, and nothing else moves.
        let node = &nodes[0];
        let offset = lab::size(node, lab::NB_FILE)?;
        let pod = devcluster::mk_pod("shop", "new", node.name(), &["true"]);
        api::apply(&stack.api().client(), &pod).await?;
        invariants::hold(&stack).await?;
        let touched = written(node, offset)?;
        let tables: Vec<&str> = touched.iter().filter_map(|line| line.split(' ').next()).collect();
        ensure!(
            tables.iter().all(|table| {
                ["Logical_Switch", "Logical_Switch_Port", "Port_Group", "Address_Set"].contains(table)
            }),
            "{touched:#?}"
        );
        ensure!(tables.contains(&"Logical_Switch_Port"), "{touched:#?}");
        stack.stop().await
    })
}

#[test]
fn a_restart_loses_no_packet_and_writes_nothing() -> Result<()> {
    run(async {
        let builder = Cluster::builder().nodes(2);
        let mut stack = Stack::start(builder, ApiChoice::Any, AgentOptions::default()).await?;
        let pods = lab::servers(&mut stack, 2).await?;
        lab::all_talk(&pods).await?;
        let target = |at: usize| lab::addresses(&pods[at]).first().copied().context("no address");
        let management = "10.244.0.2".parse()?;
        let pings = [
            lab::pings::Pings::start(&pods[0], target(1)?).await?,
            lab::pings::Pings::start(&pods[0], target(2)?).await?,
            lab::pings::Pings::start(&pods[3], target(0)?).await?,
            // Node and pod, through the management port.
            lab::pings::Pings::start(&pods[0], management).await?,
        ];
        for number in [1, 2, 1] {
            invariants::restart_writes_nothing(&mut stack, number).await?;
        }
        for ping in pings {
            let count = ping.end().await?;
            ensure!(count.lost == 0, "pings were lost: {count:?}");
        }
        let again =
            lab::running(&stack, &["node1-0", "node1-1", "node2-0", "node2-1"].map(str::to_owned)).await?;
        for (before, after) in pods.iter().zip(&again) {
            ensure!(
                before.record.uid == after.record.uid && after.record.attempts == 1,
                "a pod was restarted"
            );
        }
        for pod in lab::list::<Value>(&stack, "/api/v1/pods").await? {
            ensure!(pod.pointer("/status/containerStatuses/0/restartCount") == Some(&json!(0)), "{pod}");
        }
        invariants::hold(&stack).await?;
        stack.stop().await
    })
}
