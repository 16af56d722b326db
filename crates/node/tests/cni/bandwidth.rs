//! Bandwidth annotations as rows, in the right direction, followed and removed.

use crate::rig::{Call, Rig};

const SANDBOX: &str = "9999999999999999999999999999abcd";

fn rows(rig: &Rig) -> [String; 4] {
    [
        rig.vsctl("get Interface 999999999999999 ingress_policing_rate"),
        rig.vsctl("get Interface 999999999999999 ingress_policing_burst"),
        rig.vsctl("--bare --columns=type,other_config list QoS"),
        rig.vsctl("--bare --columns=other_config list Queue"),
    ]
}

#[tokio::test]
async fn limits_are_rows_that_follow_the_annotations() {
    let mut rig = Rig::start().await;
    rig.install_ports();
    let netns = rig.netns("ns1");
    let call = Call::new("ADD", SANDBOX, &netns, "web", "uid");
    let keys = [("kubernetes.io/ingress-bandwidth", "1M"), ("kubernetes.io/egress-bandwidth", "20M")];
    rig.pod_with("web", "uid", "10.244.0.5/24", &keys);
    rig.call(&call).await.ok();
    // From the pod: policed. Towards the pod: shaped.
    assert_eq!(rows(&rig), ["20000", "2000", "linux-htb\nmax-rate=1000000", "max-rate=1000000"]);

    let other = [("ovn.kubernetes.io/ingress_rate", "3"), ("ovn.kubernetes.io/egress_rate", "4")];
    rig.pod_with("web", "uid", "10.244.0.5/24", &other);
    let changed = |want: &'static str| {
        move |cache: &ovsdb::Cache| {
            let rows: Vec<_> = cache.rows("QoS").filter_map(|q| q.key("other_config", "max-rate")).collect();
            (rows == [want]).then_some(())
        }
    };
    rig.see("the new limit", changed("3000000")).await;
    assert_eq!(rows(&rig), ["4000", "400", "linux-htb\nmax-rate=3000000", "max-rate=3000000"]);

    // An unusable change leaves the old limits.
    rig.pod_with("web", "uid", "10.244.0.5/24", &[("kubernetes.io/ingress-bandwidth", "nonsense")]);
    rig.pod_with("web", "uid", "10.244.0.5/24", &[("kubernetes.io/ingress-bandwidth", "5M")]);
    rig.see("the last limit", changed("5000000")).await;
    assert_eq!(rows(&rig)[0], "0", "no limit on egress any more");

    rig.pod("web", "uid", "10.244.0.5/24");
    rig.see("no limit", |cache| (cache.rows("QoS").count() == 0).then_some(())).await;
    assert_eq!(rows(&rig), ["0", "0", "", ""]);

    rig.pod_with("web", "uid", "10.244.0.5/24", &keys);
    rig.see("limits again", changed("1000000")).await;
    rig.call(&call.verb("DEL")).await.ok();
    rig.assert_nothing_of(SANDBOX);
    assert_eq!(rig.vsctl("list QoS") + &rig.vsctl("list Queue"), "");
}

#[tokio::test]
async fn a_limit_out_of_range_fails_add_by_name() {
    let mut rig = Rig::start().await;
    let netns = rig.netns("ns1");
    let call = Call::new("ADD", SANDBOX, &netns, "web", "uid");
    for (key, value) in [
        ("kubernetes.io/ingress-bandwidth", "999"),
        ("kubernetes.io/egress-bandwidth", "2P"),
        ("kubernetes.io/egress-bandwidth", "fast"),
        ("ovn.kubernetes.io/ingress_rate", "-1"),
    ] {
        rig.pod_with("web", "uid", "10.244.0.5/24", &[(key, value)]);
        let text = rig.call(&call).await;
        assert!(text.refused().contains(key) && text.refused().contains(value), "{text:?}");
    }
    rig.assert_nothing_of(SANDBOX);
}
