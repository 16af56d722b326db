//! Two cluster managers, one leader.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster_manager::{NoMetrics, Settings, run};
use kube_io::{ElectionSettings, Lease, Scope};

use crate::api::{Api, Mirror, Running, assigned, plan};

fn leases(api: &Api) -> Mirror<Lease> {
    Mirror::of(api.kube.watch(Scope::namespace("kube-system")))
}

async fn holder(leases: &mut Mirror<Lease>, who: &str) {
    leases
        .until(who, |leases| {
            let holder = leases.get("ovn-kubernetes-master")?.spec.holder_identity.as_deref();
            (holder.unwrap_or_default() == who).then_some(())
        })
        .await;
}

#[tokio::test]
async fn the_second_stands_by_and_takes_over_when_the_first_leaves() {
    let api = Api::start().await;
    let (mut nodes, mut leases) = (api.nodes(), leases(&api));
    let first = Running::start(&api, "first", plan("10.244.0.0/16", 24)).await;
    holder(&mut leases, "first").await;
    let second = Running::start(&api, "second", plan("10.244.0.0/16", 24)).await;
    api.add_node("a", &[]).await;
    nodes.until("a", |nodes| assigned(nodes, "a")).await;
    assert!(first.figures.leads.load(Ordering::SeqCst) && !second.figures.leads.load(Ordering::SeqCst));
    let figures = Arc::clone(&first.figures);
    first.stop().await;
    assert!(!figures.leads.load(Ordering::SeqCst));
    holder(&mut leases, "second").await;
    api.add_node("b", &[]).await;
    assert_eq!(nodes.until("b", |nodes| assigned(nodes, "b")).await[1], "3");
    assert!(second.figures.leads.load(Ordering::SeqCst) && second.figures.ready.load(Ordering::SeqCst));
    second.stop().await;
    holder(&mut leases, "").await;
}

#[tokio::test]
async fn a_leader_that_dies_is_replaced_when_its_lease_runs_out() {
    let api = Api::start().await;
    let (mut nodes, mut leases) = (api.nodes(), leases(&api));
    let first = Running::start(&api, "first", plan("10.244.0.0/16", 24)).await;
    holder(&mut leases, "first").await;
    let second = Running::start(&api, "second", plan("10.244.0.0/16", 24)).await;
    first.kill().await;
    api.add_node("a", &[]).await;
    nodes.until("a", |nodes| assigned(nodes, "a")).await;
    holder(&mut leases, "second").await;
    let transitions =
        leases.until("the Lease", |leases| leases.get("ovn-kubernetes-master")?.spec.lease_transitions).await;
    assert_eq!(transitions, 1);
    second.stop().await;
}

#[tokio::test]
async fn ranges_that_overlap_are_refused_at_start() {
    let api = Api::start().await;
    let mut plan = plan("10.244.0.0/16", 24);
    plan.services = vec!["10.244.0.0/20".parse().unwrap()];
    let settings = Settings { election: ElectionSettings::new("kube-system", "m"), plan };
    let result = run(settings, api.kube.clone(), Arc::new(NoMetrics), std::future::pending()).await;
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("cluster subnet 10.244.0.0/16 and service subnet 10.244.0.0/20 overlap"),
        "{error}"
    );
}
