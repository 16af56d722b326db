//! Network policies of all kinds with real packets on two nodes: the conformance tables, and random policies against the
//! model of the APIs.
//!
//! `POLICY_CASES=all` plays every table over both families (else every fourth over IPv4); `POLICY_ROUNDS` is how many rounds of random policies (3),
//! `POLICY_SEED` where their seeds begin (0), `POLICY_PACKETS` how many connections are tried in each (700), and
//! `POLICY_TRACES` about how many OVN is asked with ovn-trace (15).

#[path = "common/lab.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lab;
#[path = "common/matrix.rs"]
mod matrix;
#[path = "common/trace.rs"]
mod trace;

use std::env;

use anyhow::{Context, Result, ensure};
use devcluster::{Families, api, binaries};
use lab::run;
use matrix::Lab;
use policy_model::random::{self, Dice, Shape};
use policy_model::tables::{self, Label};
use policy_model::{Cluster, Party, Protocol, Traffic, verdict};
use serde_json::{Value, json};

fn setting(name: &str, default: u64) -> Result<u64> {
    env::var(name).ok().map_or(Ok(default), |text| text.parse().with_context(|| format!("{name}={text}")))
}

/// Every table with packets: what it says comes about, and only that.
async fn play() -> Result<()> {
    let (families, step_by) = match env::var("POLICY_CASES").as_deref() {
        Ok("all") => (Families::Dual, 1),
        _ => (Families::V4, 4),
    };
    let lab = Lab::start(families).await?;
    let cluster = Cluster::new(&lab.objects().await?);
    let (mut played, mut packets) = (0, 0);
    for case in tables::cases(&cluster).into_iter().step_by(step_by) {
        for (at, step) in case.steps.iter().enumerate() {
            for policy in &step.delete {
                api::delete(&lab.client(), policy).await?;
            }
            for policy in &step.apply {
                api::apply(&lab.client(), policy).await?;
            }
            for Label { namespace, pod, key, value } in &step.labels {
                lab.label(namespace, *pod, &json!({ (*key): value })).await?;
            }
            let traffic = tables::traffic(&cluster);
            packets += traffic.len();
            lab.shows(&traffic, |one| step.expect.passes(one))
                .await
                .with_context(|| format!("{}, step {at}", case.name))?;
        }
        lab.delete_policies().await?;
        played += 1;
    }
    through_a_service(&lab).await.context("through a service")?;
    println!("{played} tables, {packets} connections");
    ensure!(played >= 20, "only {played} tables were played");
    lab.stop().await
}

/// Policies judge a service's pods, not its address; and a pod reaches itself through its service whatever isolates it.
async fn through_a_service(lab: &Lab) -> Result<()> {
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": "y", "name": "b" },
        "spec": { "selector": { "pod": "b" }, "ports": [{ "name": "web", "port": 4000, "targetPort": 81 }] } });
    api::apply(&lab.client(), &service).await?;
    let path = "/api/v1/namespaces/y/services/b";
    let given = lab::get(&lab.stack, path).await?;
    let address = given["spec"]["clusterIP"].as_str().context("no address")?.parse()?;
    let pod = |namespace: &str, name: &str| Party::Pod(namespace.to_owned(), name.to_owned());
    lab.reaches(&pod("x", "a"), address, 4000, true).await?;
    lab.reaches(&pod("y", "b"), address, 4000, true).await?;
    let to = |peer: Value| {
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "namespace": "x", "name": "out" },
            "spec": { "podSelector": { "matchLabels": { "pod": "a" } }, "policyTypes": ["Egress"], "egress": [
                { "to": [{ "namespaceSelector": { "matchLabels": { "ns": "y" } }, "podSelector": { "matchLabels": peer } }],
                  "ports": [{ "port": 81 }] }] } })
    };
    api::apply(&lab.client(), &to(json!({ "pod": "c" }))).await?;
    lab.reaches(&pod("x", "a"), address, 4000, false).await?;
    api::apply(&lab.client(), &to(json!({ "pod": "b" }))).await?;
    lab.reaches(&pod("x", "a"), address, 4000, true).await?;
    let deny = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": "y", "name": "deny" },
        "spec": { "podSelector": {}, "policyTypes": ["Ingress", "Egress"] } });
    api::apply(&lab.client(), &deny).await?;
    lab.reaches(&pod("x", "a"), address, 4000, false).await?;
    lab.reaches(&pod("y", "a"), address, 4000, false).await?;
    lab.reaches(&pod("y", "b"), address, 4000, true).await
}

#[test]
fn conformance_tables_with_packets() -> Result<()> {
    run(play())
}

/// The connections that the pods here can open.
fn can_be_tried(traffic: &Traffic) -> bool {
    let is_here = |party: &Party| !matches!(party, Party::Address(_));
    let is_pod = |party: &Party| matches!(party, Party::Pod(..));
    traffic.protocol != Protocol::Icmp
        && is_here(&traffic.from)
        && is_here(&traffic.to)
        && is_pod(&traffic.to)
        // A pod's packets to itself do not leave it.
        && traffic.from != traffic.to
}

/// The API server takes no new policies with bits set beyond the prefix length; old ones may have them.
fn without_host_bits(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Ok(range) = text.parse::<ipnet::IpNet>() {
                *text = range.trunc().to_string();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_host_bits),
        Value::Object(members) => members.values_mut().for_each(without_host_bits),
        _ => {}
    }
}

/// What `ovnkube policy check` says about the cluster as it is.
async fn told_by_the_program(lab: &Lab, traffic: &Traffic) -> Result<bool> {
    let party = |party: &Party| match party {
        Party::Pod(namespace, name) => format!("{namespace}/{name}"),
        Party::Node(name) => format!("node/{name}"),
        Party::Address(ip) => ip.to_string(),
    };
    let target = format!("{}:{}/{}", party(&traffic.to), traffic.port, traffic.protocol);
    let output = tokio::process::Command::new(binaries::find("ovnkube")?)
        .args(["policy", "check", &party(&traffic.from), &target, "-o", "json", "--kubeconfig"])
        .arg(lab.stack.api().kubeconfig())
        .output()
        .await?;
    let verdict: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    ensure!(output.status.code() == Some(i32::from(verdict["allowed"] == false)), "{:?}", output.status);
    let family = if traffic.v6 { "IPv6" } else { "IPv4" };
    let answers = verdict["answers"].as_array().context("no answers")?;
    let answer =
        answers.iter().find(|answer| answer["family"] == family).context("no answer of the family")?;
    answer["allowed"].as_bool().context("no verdict")
}

async fn rounds() -> Result<()> {
    let lab = Lab::start(Families::Dual).await?;
    let first = setting("POLICY_SEED", 0)?;
    let (mut packets, mut denied, mut traced) = (0, 0, 0);
    for seed in first..first + setting("POLICY_ROUNDS", 3)? {
        let mut dice = Dice::new(seed);
        for namespace in tables::NAMESPACES {
            lab.label(namespace, None, &random::labels(&mut dice, true)).await?;
            for pod in tables::PODS {
                lab.label(namespace, Some(pod), &random::labels(&mut dice, false)).await?;
            }
        }
        let mut objects = lab.objects().await?;
        let mut policies = random::policies(&mut dice, Shape::SMALL, &objects);
        policies.iter_mut().for_each(without_host_bits);
        for policy in &policies {
            api::apply(&lab.client(), policy).await?;
        }
        objects.extend(policies);
        let cluster = Cluster::new(&objects);
        let mut traffic: Vec<Traffic> = random::traffic(&cluster).into_iter().filter(can_be_tried).collect();
        let wanted = usize::try_from(setting("POLICY_PACKETS", 700)?)?;
        while traffic.len() > wanted {
            traffic.swap_remove(dice.below(traffic.len()));
        }
        let passes = |one: &Traffic| verdict(&cluster, one).is_some_and(|verdict| verdict.allowed());
        lab.shows(&traffic, passes).await.with_context(|| format!("seed {seed}"))?;
        packets += traffic.len();
        denied += traffic.iter().filter(|one| !passes(one)).count();
        let count = usize::try_from(setting("POLICY_TRACES", 15)?)?;
        let between_pods: Vec<&Traffic> = traffic.iter().filter(|one| trace::can_be_traced(one)).collect();
        for _ in 0..count {
            let one = *dice.pick(&between_pods);
            let told = trace::passes(&lab, &cluster, one).await.with_context(|| format!("{one}"))?;
            ensure!(told == passes(one), "seed {seed}: ovn-trace says {told} of {one}");
            traced += 1;
        }
        let told = told_by_the_program(&lab, &traffic[0]).await?;
        ensure!(told == passes(&traffic[0]), "seed {seed}: ovnkube says {told} of {}", traffic[0]);
        lab.delete_policies().await?;
    }
    println!("{packets} connections, {denied} of them denied; {traced} traces");
    ensure!(denied > 0 && denied < packets, "{denied} of {packets} connections are denied");
    lab.stop().await
}

#[test]
fn random_policies_with_packets_and_traces() -> Result<()> {
    run(rounds())
}

/// What kind of object a list of the API holds; the items of a list do not say.
fn named(kind: &str, mut list: Value) -> Vec<Value> {
    let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    items
        .into_iter()
        .map(|mut item| {
            item["kind"] = kind.into();
            item
        })
        .collect()
}
