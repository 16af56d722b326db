//! A cluster of three: the leader is followed.

use std::time::Duration;

use ovsdb::{Endpoint, MonitorSpec, Options, Replica, TxnError, Uuid};
use tempfile::TempDir;

use crate::server::{SCHEMA, Server, eventually, port, run};

struct Cluster {
    members: Vec<Server>,
    /// Holds the sockets between the members; dropped after them.
    _root: TempDir,
}

impl Cluster {
    async fn of_three() -> Cluster {
        let root = TempDir::new().unwrap();
        // The members talk over unix sockets, whose names must be known before any of them runs.
        let raft = |n: usize| format!("unix:{}", root.path().join(format!("raft{n}")).display());
        let mut members = Vec::new();
        for n in 0..3 {
            let dir = TempDir::new().unwrap();
            let database = dir.path().join("db");
            if n == 0 {
                std::fs::write(dir.path().join("schema"), SCHEMA).unwrap();
                run("ovsdb-tool", &[&"create-cluster", &database, &dir.path().join("schema"), &raft(0)]);
            } else {
                run("ovsdb-tool", &[&"join-cluster", &database, &"Test", &raft(n), &raft(0)]);
            }
            members.push(Server::launch(dir, &format!("m{n}"), Vec::new()).await);
        }
        let cluster = Cluster { members, _root: root };
        for member in &cluster.members {
            eventually("the member to have joined", || {
                member.control(&["cluster/status", "Test"]).contains("Status: cluster member").then_some(())
            })
            .await;
        }
        cluster
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.members.iter().map(|m| Endpoint::Unix(m.socket())).collect()
    }

    async fn leader(&self, except: Option<usize>) -> usize {
        eventually("a leader", || {
            (0..3)
                .filter(|n| Some(*n) != except)
                .find(|n| self.members[*n].control(&["cluster/status", "Test"]).contains("Role: leader"))
        })
        .await
    }
}

async fn follower(cluster: &Cluster) -> Replica {
    let options = Options::new(cluster.endpoints(), "Test")
        .monitor(MonitorSpec::all())
        .leader_only(true)
        .backoff(Duration::from_millis(10), Duration::from_millis(100));
    let replica = Replica::connect(options);
    tokio::time::timeout(Duration::from_secs(30), replica.ready()).await.unwrap();
    replica
}

/// Repeats an insert until it is known to have been made, as a caller does.
async fn insist(replica: &Replica, uuid: u128) {
    for _ in 0..2000 {
        match replica.transact(vec![port(uuid, &format!("p{uuid}"))]).await {
            Ok(_) => return,
            Err(TxnError::Rejected(rejection)) if rejection.is_duplicate_uuid() => return,
            Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the cluster did not come back");
}

fn ports(replica: &Replica) -> usize {
    replica.read(|cache| cache.table("Port").map_or(0, |table| table.len()))
}

#[tokio::test]
async fn a_killed_leader_is_replaced() {
    let mut cluster = Cluster::of_three().await;
    let replica = follower(&cluster).await;
    insist(&replica, 1).await;
    let leader = cluster.leader(None).await;
    cluster.members[leader].kill();
    for n in 2..20 {
        insist(&replica, n).await;
    }
    cluster.leader(Some(leader)).await;
    replica.wait_for(|cache| (cache.table("Port")?.len() == 19).then_some(())).await;
    assert!(replica.read(|c| c.row("Port", &Uuid::from_u128(1)).is_some()));
    // The old leader comes back as a follower and is not talked to.
    cluster.members[leader].start().await;
    insist(&replica, 20).await;
    replica.wait_for(|cache| (cache.table("Port")?.len() == 20).then_some(())).await;
}

#[tokio::test]
async fn a_leader_that_steps_down_is_left() {
    let cluster = Cluster::of_three().await;
    let replica = follower(&cluster).await;
    insist(&replica, 1).await;
    let mut last = cluster.leader(None).await;
    for round in 2..6 {
        cluster.members[last].control(&["cluster/failure-test", "transfer-leadership"]);
        last = cluster.leader(Some(last)).await;
        insist(&replica, round).await;
        replica.wait_for(|cache| (cache.table("Port")?.len() == round as usize).then_some(())).await;
    }
    assert_eq!(ports(&replica), 5);
}

#[tokio::test]
async fn one_cut_off_member_is_not_enough() {
    let mut cluster = Cluster::of_three().await;
    let replica = follower(&cluster).await;
    insist(&replica, 1).await;
    let leader = cluster.leader(None).await;
    for n in (0..3).filter(|n| *n != leader) {
        cluster.members[n].kill();
    }
    // Without a majority nothing is written; the leader steps down and is left.
    eventually("the leader to be left", || (!replica.is_up()).then_some(())).await;
    assert_eq!(ports(&replica), 1, "what is known stays");
    for n in (0..3).filter(|n| *n != leader) {
        cluster.members[n].spawn();
    }
    insist(&replica, 2).await;
    replica.wait_for(|cache| (cache.table("Port")?.len() == 2).then_some(())).await;
}
