//! Several sandboxes of one pod, re-created pods, and requests whose caller goes away.

use std::time::Duration;

use crate::rig::{Call, Rig, answer, count};

const ONE: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const TWO: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// Every order of ADD(1), ADD(2), DEL(1), where sandbox 2 was made after sandbox 1, with or without a restart of the
/// daemon between the requests.
async fn orders(restarts: bool) {
    let mut rig = Rig::start().await;
    rig.install_ports();
    rig.pod("web", "uid", "10.244.0.5/24");
    for (round, order) in [
        ["A1", "A2", "D1"],
        ["A1", "D1", "A2"],
        ["A2", "A1", "D1"],
        ["A2", "D1", "A1"],
        ["D1", "A1", "A2"],
        ["D1", "A2", "A1"],
    ]
    .into_iter()
    .enumerate()
    {
        let first = rig.netns(&format!("first{round}"));
        let second = rig.netns(&format!("second{round}"));
        let one = Call::new("ADD", ONE, &first, "web", "uid");
        let two = Call::new("ADD", TWO, &second, "web", "uid");
        let mut late = false;
        for step in order {
            match step {
                "A1" => {
                    let answer = rig.call(&one).await;
                    if late {
                        assert!(answer.refused().contains("is older than sandbox"), "{order:?}: {answer:?}");
                    } else {
                        answer.ok();
                    }
                }
                "A2" => {
                    rig.call(&two).await.ok();
                    late = true;
                }
                _ => rig.call(&one.verb("DEL")).await.ok(),
            }
            if restarts {
                rig.restart_daemon().await;
            }
        }
        assert_eq!(rig.owners("web"), [TWO], "{order:?}");
        assert_eq!(rig.vsctl("list-ports br-int"), "bbbbbbbbbbbbbbb", "{order:?}");
        assert!(rig.ip_in(&second, "addr show dev eth0").contains("10.244.0.5/24"));
        // Where its DEL came before its ADD, the link of sandbox 1 goes with its namespace only.
        rig.assert_no_rows_of(ONE);
        rig.call(&two.verb("CHECK")).await.ok();
        rig.call(&two.verb("DEL")).await.ok();
        rig.assert_nothing_of(TWO);
        rig.remove_netns(&first);
        rig.remove_netns(&second);
    }
}

#[tokio::test]
async fn the_newest_sandbox_wins_in_every_order() {
    orders(false).await;
}

#[tokio::test]
async fn the_newest_sandbox_wins_in_every_order_over_restarts() {
    orders(true).await;
}

#[tokio::test]
async fn a_newer_sandbox_ends_the_wait_of_an_older_one() {
    let mut rig = Rig::start().await;
    rig.pod("web", "uid", "10.244.0.5/24");
    let (first, second) = (rig.netns("first"), rig.netns("second"));
    let pending = rig.spawn(Call::new("ADD", ONE, &first, "web", "uid"));
    rig.see_port(ONE).await;
    let newer = rig.spawn(Call::new("ADD", TWO, &second, "web", "uid"));
    assert!(pending.await.unwrap().refused().contains("cancelled"));
    rig.see_port(TWO).await;
    rig.assert_nothing_of(ONE);
    let late = rig.call(&Call::new("ADD", ONE, &first, "web", "uid")).await;
    assert!(late.refused().contains("is older than sandbox"), "{late:?}");
    rig.install_ports();
    newer.await.unwrap().ok();
    assert_eq!(rig.owners("web"), [TWO]);
}

#[tokio::test]
async fn a_re_created_pod_ends_the_wait_for_its_predecessor() {
    let mut rig = Rig::start().await;
    rig.pod("web-0", "uid-old", "10.244.0.5/24");
    let netns = rig.netns("ns1");
    let call = Call::new("ADD", ONE, &netns, "web-0", "uid-old");
    // While waiting for the flows …
    let pending = rig.spawn(call.clone());
    rig.see_port(ONE).await;
    rig.pod("web-0", "uid-new", "10.244.0.6/24");
    let text = pending.await.unwrap();
    assert!(text.refused().contains("uid-old") && text.refused().contains("uid-new"), "{text:?}");
    rig.assert_nothing_of(ONE);
    // … while waiting for the annotation …
    rig.bare_pod("web-0", "uid-old", "");
    let pending = rig.spawn(call.clone());
    tokio::time::sleep(Duration::from_millis(50)).await;
    rig.pod("web-0", "uid-new", "10.244.0.6/24");
    let text = pending.await.unwrap();
    assert!(text.refused().contains("uid-old") && text.refused().contains("uid-new"), "{text:?}");
    // … and already at the beginning.
    let text = rig.call(&call).await;
    assert!(text.refused().contains("before the operation began"), "{text:?}");
    assert!(text.refused().contains("uid-old") && text.refused().contains("uid-new"), "{text:?}");
    rig.assert_nothing_of(ONE);
    assert_eq!(rig.vsctl("list-ports br-int"), "");
}

#[tokio::test]
async fn deletion_other_addresses_and_a_lost_port_end_the_wait() {
    let mut rig = Rig::start().await;
    let netns = rig.netns("ns1");
    let call = Call::new("ADD", ONE, &netns, "web", "uid");

    let key = rig.pod("web", "uid", "10.244.0.5/24");
    let pending = rig.spawn(call.clone());
    rig.see_port(ONE).await;
    rig.board.remove(&key);
    assert!(pending.await.unwrap().refused().contains("was deleted while"));
    rig.assert_nothing_of(ONE);

    rig.pod("web", "uid", "10.244.0.5/24");
    let pending = rig.spawn(call.clone());
    rig.see_port(ONE).await;
    rig.pod("web", "uid", "10.244.0.9/24");
    let text = pending.await.unwrap();
    assert!(text.refused().contains("from [10.244.0.5/24] to [10.244.0.9/24]"), "{text:?}");
    rig.assert_nothing_of(ONE);

    let pending = rig.spawn(call.clone());
    rig.see_port(ONE).await;
    rig.vsctl("--no-wait set Interface aaaaaaaaaaaaaaa external_ids:iface-id=someone_else");
    assert!(pending.await.unwrap().refused().contains("is no longer active"));
    rig.assert_nothing_of(ONE);

    let pending = rig.spawn(call.clone());
    rig.see_port(ONE).await;
    rig.vsctl("--no-wait del-port aaaaaaaaaaaaaaa");
    assert!(pending.await.unwrap().refused().contains("is no longer active"));
    rig.assert_nothing_of(ONE);

    let text = rig.call(&Call::new("ADD", ONE, &netns, "nobody", "uid")).await;
    assert!(text.refused().contains("pod ns/nobody is not known"), "{text:?}");
}

#[tokio::test]
async fn a_static_pod_is_known_to_the_runtime_by_another_uid() {
    let mut rig = Rig::start().await;
    rig.install_ports();
    let netns = rig.netns("ns1");
    rig.pod_with("static", "uid-of-mirror", "10.244.0.5/24", &[("kubernetes.io/config.source", "file")]);
    rig.call(&Call::new("ADD", ONE, &netns, "static", "hash-of-kubelet")).await.ok();
    assert_eq!(rig.vsctl("get Interface aaaaaaaaaaaaaaa external_ids:iface-id-ver"), "uid-of-mirror");
    // Old runtimes give no UID at all.
    rig.call(&Call::new("ADD", ONE, &netns, "static", "")).await.ok();
    // Pods from the API server have the annotation too.
    rig.pod_with("plain", "uid", "10.244.0.6/24", &[("kubernetes.io/config.source", "api")]);
    let text = rig.call(&Call::new("ADD", TWO, &netns, "plain", "other")).await;
    assert!(text.refused().contains("sandbox is for UID other"), "{text:?}");
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_behind() {
    let mut rig = Rig::start().await;
    rig.pod_with("web", "uid", "10.244.0.5/24", &[("kubernetes.io/ingress-bandwidth", "10M")]);
    let netns = rig.netns("ns1");
    let call = Call::new("ADD", ONE, &netns, "web", "uid");
    let connection = rig.begin(&call).await;
    rig.see_port(ONE).await;
    drop(connection);
    rig.see("the port goes", |cache| (count(cache, ONE) == 0).then_some(())).await;
    // The same pod's next request waits for the undoing and then succeeds.
    rig.install_ports();
    rig.call(&call).await.ok();
    rig.call(&call.verb("DEL")).await.ok();
    rig.assert_nothing_of(ONE);

    // A DEL of the same sandbox ends its ADD too.
    rig.install_nothing();
    let mut connection = rig.begin(&call).await;
    rig.see_port(ONE).await;
    rig.call(&call.verb("DEL")).await.ok();
    assert!(answer(&mut connection).await.refused().contains("cancelled"));
    rig.assert_nothing_of(ONE);
}
