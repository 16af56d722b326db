//! Leadership through an outage of the API server.

use std::time::Duration;

use kapi::Object;
use kube_io::{Election, ElectionSettings, Lease, Scope, Standing};
use tokio::sync::watch;

use crate::{connect, server};

fn settings(identity: &str) -> ElectionSettings {
    ElectionSettings {
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_secs(1),
        ..ElectionSettings::new("kube-system", identity)
    }
}

async fn reach(standing: &mut watch::Receiver<Standing>, test: impl FnMut(&Standing) -> bool) {
    let reached = tokio::time::timeout(Duration::from_secs(60), standing.wait_for(test)).await;
    reached.expect("waited in vain").expect("the election ended");
}

#[tokio::test]
async fn a_leader_cut_off_steps_down_and_leads_again_afterwards() {
    let server = server().await;
    let kube = connect(&server).await;
    let election = Election::start(kube.clone(), settings("a"));
    let mut standing = election.standing();
    reach(&mut standing, |standing| *standing == Standing::Leader).await;
    server.faults().pause();
    reach(&mut standing, |standing| *standing != Standing::Leader).await;
    assert!(!election.leads());
    server.faults().resume();
    reach(&mut standing, |standing| *standing == Standing::Leader).await;
    election.withdraw().await;
    let lease = kube.list::<Lease>(&Scope::namespace("kube-system")).await.unwrap().remove(0);
    assert_eq!((lease.spec.holder_identity, lease.spec.lease_duration_seconds), (None, Some(1)));
}

#[tokio::test]
async fn a_lease_that_is_deleted_is_made_anew_by_one_of_the_candidates() {
    let server = server().await;
    let kube = connect(&server).await;
    let candidates =
        [Election::start(kube.clone(), settings("a")), Election::start(kube.clone(), settings("b"))];
    let mut standings = candidates.each_ref().map(Election::standing);
    let [a, b] = &mut standings;
    tokio::select! {
        () = reach(a, |standing| *standing == Standing::Leader) => {}
        () = reach(b, |standing| *standing == Standing::Leader) => {}
    }
    let lease = kube.get::<Lease>("kube-system", "ovn-kubernetes-master").await.unwrap();
    let was_leader = if lease.spec.holder_identity.as_deref() == Some("a") { a } else { b };
    kube.delete::<Lease>(&lease.key()).await.unwrap();
    reach(was_leader, |standing| *standing != Standing::Leader).await;
    let [a, b] = &mut standings;
    tokio::select! {
        () = reach(a, |standing| *standing == Standing::Leader) => {}
        () = reach(b, |standing| *standing == Standing::Leader) => {}
    }
    assert_ne!(candidates[0].leads(), candidates[1].leads(), "exactly one leads");
}
