//! Many pods at once.

use crate::rig::{Call, Rig};

#[tokio::test]
async fn two_hundred_pods_at_once() {
    let mut rig = Rig::start().await;
    rig.install_ports();
    let mut calls = Vec::new();
    for i in 0..200 {
        let (pod, uid) = (format!("pod-{i}"), format!("uid-{i}"));
        rig.pod(&pod, &uid, &format!("10.244.0.{}/24", i + 3));
        let netns = rig.netns(&format!("ns{i}"));
        calls.push(Call::new("ADD", &format!("{i:03}5555555555555555555"), &netns, &pod, &uid));
    }
    let pending: Vec<_> = calls.iter().map(|call| rig.spawn(call.clone())).collect();
    for answer in pending {
        answer.await.unwrap().ok();
    }
    assert_eq!(rig.vsctl("list-ports br-int").lines().count(), 200);
    for call in &calls {
        rig.call(&call.verb("CHECK")).await.ok();
    }
    let pending: Vec<_> = calls.iter().map(|call| rig.spawn(call.verb("DEL"))).collect();
    for answer in pending {
        answer.await.unwrap().ok();
    }
    assert_eq!(rig.vsctl("list-ports br-int"), "");
    assert_eq!(rig.vsctl("--bare --columns=_uuid list QoS"), "");
}
