//! Every verb in every version of the specification, and the protocol's edges.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use node::cni::{CniSettings, Observer, Stage};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use crate::rig::{Call, Rig};

const SANDBOX: &str = "ffffffffffffffffffffffffffffffff";

#[tokio::test]
async fn verbs_and_versions() {
    let mut rig = Rig::start().await;
    rig.install_ports();
    rig.pod("web", "uid", "10.244.0.5/24");
    let netns = rig.netns("ns1");
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let call = Call::new("ADD", SANDBOX, &netns, "web", "uid").version(version);
        let result: ::cni::CniResult = serde_json::from_value(rig.call(&call).await.result()).unwrap();
        let shape = result.to_version(::cni::Version::parse(version).unwrap());
        assert_eq!(shape["cniVersion"], version);
        assert_eq!(shape["ips"][0]["version"], if version < "1.0.0" { json!("4") } else { Value::Null });
        let check = rig.call(&call.verb("CHECK")).await;
        if version < "0.4.0" {
            assert!(check.refused().contains("\"code\":1"), "{check:?}");
        } else {
            check.ok();
        }
        for verb in ["GC", "STATUS"] {
            let answer = rig.call(&call.verb(verb)).await;
            if version < "1.1.0" {
                assert!(answer.refused().contains("\"code\":1"), "{verb} {version} {answer:?}");
            } else {
                answer.ok();
            }
        }
        rig.call(&call.verb("DEL")).await.ok();
        rig.assert_nothing_of(SANDBOX);
    }
    let call = Call::new("ADD", SANDBOX, &netns, "web", "uid");
    assert!(rig.call(&call.version("2.0.0")).await.refused().contains("\"code\":1"));
    assert!(rig.call(&call.verb("FROB")).await.refused().contains("\"code\":4"));
    assert!(rig.call(&Call { netns: String::new(), ..call.clone() }).await.refused().contains("CNI_NETNS"));
    assert!(rig.call(&Call { pod: String::new(), ..call.clone() }).await.refused().contains("K8S_POD_NAME"));
    let mut user = call.clone();
    user.conf["topology"] = "layer3".into();
    user.conf["netAttachDefName"] = "ns/blue".into();
    user.conf["name"] = "blue".into();
    assert!(rig.call(&user).await.refused().contains("\"code\":2"));
    user.conf["name"] = "default".into();
    assert!(rig.call(&user).await.refused().contains("\"code\":7"));
    user.conf = json!("not an object");
    assert!(rig.call(&user).await.refused().contains("\"code\":6"));
}

#[tokio::test]
async fn other_paths_methods_and_bytes() {
    let rig = Rig::start().await;
    let socket = rig.settings.socket_dir.join(::cni::SOCKET_NAME);
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: dummy\r\n\r\n", "405"),
        ("POST /elsewhere HTTP/1.1\r\nHost: dummy\r\nContent-Length: 0\r\n\r\n", "404"),
        ("POST / HTTP/1.1\r\nHost: dummy\r\nContent-Length: 3\r\n\r\nxyz", "400"),
        ("POST /metrics HTTP/1.1\r\nHost: dummy\r\nContent-Length: 2\r\n\r\n{}", "400"),
        (
            "POST /metrics HTTP/1.1\r\nHost: dummy\r\nContent-Length: 51\r\n\r\n{\"command\":\"ADD\",\"elapsedTime\":1.23,\"hasErr\":false}",
            "200",
        ),
        ("\u{1}\u{2}\u{3} nonsense\r\n\r\n", "400"),
    ] {
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
    }
}

/// Durations as they come.
#[derive(Default)]
struct Durations(Mutex<Vec<(String, Duration, bool)>>);

impl Observer for Durations {
    fn stage(&self, _: Stage, _: Duration) {}

    fn request(&self, command: &str, elapsed: Duration, failed: bool) {
        self.0.lock().unwrap().push((command.to_owned(), elapsed, failed));
    }

    fn served(&self, _: ::cni::Command, _: Duration, _: bool) {}
}

#[tokio::test]
async fn durations_are_counted_once_and_by_whoever_sees_the_end() {
    let hour = Duration::from_secs(3600);
    for (unprivileged, verb, counts) in
        [(false, "DEL", true), (false, "FROB", true), (true, "STATUS", true), (true, "DEL", false)]
    {
        let durations = Arc::new(Durations::default());
        let seen = durations.clone();
        let rig = Rig::start_with(
            move |settings| CniSettings { unprivileged, ..settings },
            move |server| server.observer(seen.clone()),
        )
        .await;
        let call = Call::new(verb, SANDBOX, "/nonexistent", "web", "uid");
        // A shim that does not say when it was started reports by itself.
        assert!(!rig.call(&call).await.counted, "{verb}");
        assert!(durations.0.lock().unwrap().is_empty(), "{verb}");
        let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        assert_eq!(rig.call_started(&call, since_epoch - hour).await.counted, counts, "{verb}");
        let list = std::mem::take(&mut *durations.0.lock().unwrap());
        assert_eq!(list.len(), usize::from(counts), "{list:?}");
        for (command, elapsed, failed) in list {
            assert_eq!((command.as_str(), failed), (verb, verb == "FROB"));
            assert!(elapsed >= hour, "from the shim's start: {elapsed:?}");
        }
        // The clock was set back: nobody knows but the shim.
        assert!(!rig.call_started(&call, since_epoch + hour).await.counted, "{verb}");
        assert!(durations.0.lock().unwrap().is_empty(), "{verb}");
    }
}
