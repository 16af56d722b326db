//! Every verb in every version of the specification, and the protocol's edges.

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
