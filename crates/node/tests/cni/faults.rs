//! What a failed ADD says, that it leaves nothing, and that the next one works.

use std::{sync::Arc, time::Duration};

use node::cni::{CniSettings, diagnose::OvnDiagnosis};
use ovsdb::Options;

use crate::rig::{Answer, Call, Rig};

const SANDBOX: &str = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";

fn impatient(settings: CniSettings) -> CniSettings {
    CniSettings { add_timeout: Duration::from_millis(400), ..settings }
}

/// Calls until the answer is as wanted: on a busy machine the short limit may end a step before the one in question.
async fn until(rig: &Rig, call: &Call, wanted: impl Fn(&Answer) -> bool) -> Answer {
    let mut answer = rig.call(call).await;
    for _ in 0..20 {
        if wanted(&answer) {
            break;
        }
        answer = rig.call(call).await;
    }
    answer
}

async fn until_ok(rig: &Rig, call: &Call) {
    until(rig, call, |answer| answer.status == 200).await.ok();
}

#[tokio::test]
async fn a_missing_annotation_is_explained() {
    let mut rig = Rig::start_with(impatient, |s| s).await;
    let netns = rig.netns("ns1");
    let call = Call::new("ADD", SANDBOX, &netns, "web", "uid");
    rig.bare_pod("web", "uid", "no address left in subnet 10.244.0.0/24");
    let text = rig.call(&call).await;
    assert!(text.refused().contains("timed out waiting for annotations of pod ns/web"), "{text:?}");
    assert!(text.refused().contains("no address left in subnet 10.244.0.0/24"), "{text:?}");
    assert!(text.refused().contains("\"code\":11"), "{text:?}");
    rig.bare_pod("web", "uid", "");
    let text = rig.call(&call).await;
    assert!(text.refused().contains("has not given the pod an address yet"), "{text:?}");
    rig.board.set_problem(Some("the API server does not answer: connection refused".into()));
    let text = rig.call(&Call { pod: "unknown".into(), ..call.clone() }).await;
    assert!(text.refused().contains("the API server does not answer: connection refused"), "{text:?}");
    rig.board.set_problem(None);
    rig.assert_nothing_of(SANDBOX);
    rig.install_ports();
    rig.pod("web", "uid", "10.244.0.5/24");
    until_ok(&rig, &call).await;
}

#[tokio::test]
async fn each_missing_step_of_ovn_has_its_own_text() {
    // The databases' socket is known once the rig has its directory.
    let place = Arc::new(std::sync::OnceLock::<std::path::PathBuf>::new());
    let known = place.clone();
    let mut rig = Rig::start_with(
        move |settings| {
            let _ = known.set(settings.socket_dir.with_file_name("ovn.sock"));
            impatient(settings)
        },
        move |server| {
            let socket = place.get().unwrap();
            server.diagnose(Arc::new(OvnDiagnosis {
                northbound: Options::unix(socket, "OVN_Northbound"),
                southbound: Options::unix(socket, "OVN_Southbound"),
                chassis: "chassis-1".into(),
                patience: Duration::from_secs(2),
            }))
        },
    )
    .await;
    rig.pod("web", "uid", "10.244.0.5/24");
    let netns = rig.netns("ns1");
    let call = Call::new("ADD", SANDBOX, &netns, "web", "uid");
    let fails = async |rig: &Rig, part: &str| {
        let text = until(rig, &call, |answer| answer.text.contains(part)).await;
        assert!(
            text.refused().contains("timed out waiting for OVS port binding (ovn-installed)"),
            "{text:?}"
        );
        assert!(text.refused().contains("10.244.0.5/24"), "{text:?}");
        assert!(text.refused().contains(part), "{part} not in {text:?}");
        rig.assert_nothing_of(SANDBOX);
    };
    fails(&rig, "databases could not be asked").await;
    let mut databases = rig.start_ovn_databases().await;
    fails(&rig, "no logical port ns_web").await;
    rig.nbctl("ls-add node1 -- lsp-add node1 ns_web");
    fails(&rig, "no binding for it: check ovn-northd").await;
    rig.sbctl("-- --id=@d create Datapath_Binding tunnel_key=1 -- create Port_Binding logical_port=ns_web datapath=@d tunnel_key=1");
    fails(&rig, "is not bound to any chassis").await;
    rig.sbctl("chassis-add chassis-2 geneve 192.0.2.2");
    rig.sbctl("set Chassis chassis-2 hostname=node2");
    rig.sbctl("lsp-bind ns_web chassis-2");
    fails(&rig, "bound to another chassis, chassis-2 (node2)").await;
    rig.sbctl("chassis-add chassis-1 geneve 192.0.2.1");
    rig.sbctl("lsp-unbind ns_web");
    rig.sbctl("lsp-bind ns_web chassis-1");
    fails(&rig, "bound to this node but its flows are not installed").await;
    // No manual action is needed once the fault is gone.
    rig.install_ports();
    until_ok(&rig, &call).await;
    databases.kill().unwrap();
    databases.wait().unwrap();
}

#[tokio::test]
async fn a_missing_bridge_and_a_taken_name_are_refused() {
    let mut rig = Rig::start_with(impatient, |s| s).await;
    rig.install_ports();
    rig.pod("web", "uid", "10.244.0.5/24");
    let netns = rig.netns("ns1");
    let call = Call::new("ADD", SANDBOX, &netns, "web", "uid");
    rig.vsctl("--no-wait add-port br-int eeeeeeeeeeeeeee");
    let text = rig.call(&call).await;
    assert!(text.refused().contains("already has an interface eeeeeeeeeeeeeee"), "{text:?}");
    assert_eq!(rig.vsctl("list-ports br-int"), "eeeeeeeeeeeeeee", "the other's port stays");
    rig.vsctl("--no-wait del-br br-int");
    let text = rig.call(&call).await;
    assert!(text.refused().contains("bridge br-int does not exist"), "{text:?}");
    let status = rig.call(&call.verb("STATUS")).await;
    assert!(status.refused().contains("br-int does not exist yet"), "{status:?}");
    assert_eq!(rig.ip_in(&netns, "-o link show").lines().count(), 1, "only lo is left in the pod");
    rig.vsctl("add-br br-int -- set Bridge br-int datapath_type=netdev fail_mode=secure");
    until_ok(&rig, &call).await;
}

#[tokio::test]
async fn a_namespace_that_is_none_is_refused() {
    let rig = Rig::start().await;
    rig.pod("web", "uid", "10.244.0.5/24");
    let file = rig.path("file");
    std::fs::write(&file, "").unwrap();
    let call = Call::new("ADD", SANDBOX, &file.display().to_string(), "web", "uid");
    assert!(rig.call(&call).await.refused().contains("is not a network namespace"));
    let call = Call { netns: rig.path("absent").display().to_string(), ..call };
    assert!(rig.call(&call).await.refused().contains("open network namespace"));
}
