//! The shim against a played server: what it sends, prints and returns.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread::JoinHandle,
};

use serde_json::{Value, json};

/// Answers one request after the other and returns what was asked.
struct Server {
    dir: tempfile::TempDir,
    task: JoinHandle<Vec<(String, Value)>>,
}

impl Server {
    fn answering(answers: &[&str]) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s.sock")).unwrap();
        let answers: Vec<String> = answers.iter().map(|a| (*a).to_owned()).collect();
        let task = std::thread::spawn(move || {
            answers
                .iter()
                .map(|answer| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let request = read_request(&mut stream);
                    stream.write_all(answer.as_bytes()).unwrap();
                    request
                })
                .collect()
        });
        Server { dir, task }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s.sock")
    }

    fn asked(self) -> Vec<(String, Value)> {
        self.task.join().unwrap()
    }
}

fn read_request(stream: &mut impl Read) -> (String, Value) {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let count = stream.read(&mut chunk).unwrap();
        assert_ne!(count, 0, "the shim closed within its request");
        bytes.extend_from_slice(&chunk[..count]);
        let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: ")).unwrap();
        if bytes.len() == end + 4 + length.parse::<usize>().unwrap() {
            let line = head.lines().next().unwrap().to_owned();
            return (line, serde_json::from_slice(&bytes[end + 4..]).unwrap());
        }
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn run(socket: &Path, verb: &str, conf: &Value, more: &[(&str, &str)]) -> Output {
    let mut env: BTreeMap<&str, &str> = BTreeMap::from([
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", "abc"),
        ("CNI_NETNS", "/var/run/netns/x"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
        ("CNI_ARGS", "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=uid"),
    ]);
    env.extend(more.iter().copied());
    let mut child = Command::new(env!("CARGO_BIN_EXE_ovn-k8s-cni-overlay"))
        .env_clear()
        .envs(env)
        .env("OVN_CNI_SERVER_SOCKET", socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let conf = if conf.is_string() { conf.as_str().unwrap().to_owned() } else { conf.to_string() };
    child.stdin.take().unwrap().write_all(conf.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn conf(version: &str) -> Value {
    json!({"cniVersion": version, "name": "ovn-kubernetes", "type": "ovn-k8s-cni-overlay"})
}

fn printed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

const RESULT: &str = r#"{"Result":{"interfaces":[{"name":"h"},{"name":"eth0","mac":"0a:58:0a:f4:00:05","sandbox":"/x"}],"ips":[{"interface":1,"address":"10.244.0.5/24","gateway":"10.244.0.1"}],"dns":{}},"PodIFInfo":null}"#;

#[test]
fn add_relays_everything_and_prints_the_caller_s_shape() {
    for (version, path) in [
        ("0.2.0", "/ip4/ip"),
        ("0.3.1", "/ips/0/address"),
        ("0.4.0", "/ips/0/address"),
        ("1.0.0", "/ips/0/address"),
        ("1.1.0", "/ips/0/address"),
    ] {
        let server = Server::answering(&[&ok(RESULT), &ok("")]);
        let output = run(&server.socket(), "ADD", &conf(version), &[("SOME_VARIABLE", "kept")]);
        assert!(output.status.success(), "{output:?}");
        let result = printed(&output);
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result.pointer(path).unwrap(), "10.244.0.5/24");
        let asked = server.asked();
        assert_eq!(asked[0].0, "POST / HTTP/1.1");
        assert_eq!(asked[0].1["env"]["SOME_VARIABLE"], "kept");
        assert_eq!(asked[0].1["env"]["CNI_COMMAND"], "ADD");
        let request: cni::Request = serde_json::from_value(asked[0].1.clone()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&request.config).unwrap(), conf(version));
        assert_eq!(asked[1].0, "POST /metrics HTTP/1.1");
        assert_eq!((&asked[1].1["command"], &asked[1].1["hasErr"]), (&json!("ADD"), &json!(false)));
        assert!(asked[1].1["elapsedTime"].is_f64());
    }
}

#[test]
fn a_duration_the_server_has_counted_is_not_reported_again() {
    let counted = |status: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\novnkube-counted: 1\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    for (answer, success) in [
        (counted("200 OK", RESULT), true),
        (counted("400 Bad Request", r#"{"code":11,"msg":"timed out","details":"why"}"#), false),
    ] {
        // A report would find nobody, or be what is asked second.
        let server = Server::answering(&[&answer, &ok("")]);
        let socket = server.socket();
        assert_eq!(run(&socket, "ADD", &conf("1.0.0"), &[]).status.success(), success);
        run(&socket, "STATUS", &conf("1.1.0"), &[]);
        let asked = server.asked();
        assert_eq!(asked[1].0, "POST / HTTP/1.1");
        assert_eq!(asked[1].1["env"]["CNI_COMMAND"], "STATUS");
    }
}

#[test]
fn other_verbs_print_nothing() {
    for verb in ["DEL", "CHECK", "GC", "STATUS"] {
        // One server that knows the verb, and one that does not and answers with nothing.
        for body in [r#"{"Result":null}"#, ""] {
            let server = Server::answering(&[&ok(body), &ok("")]);
            let output = run(&server.socket(), verb, &conf("1.1.0"), &[]);
            assert!(output.status.success() && output.stdout.is_empty(), "{verb}: {output:?}");
            assert_eq!(server.asked()[0].1["env"]["CNI_COMMAND"], verb);
        }
    }
}

#[test]
fn errors_of_the_server_are_printed_as_cni_errors() {
    let typed = r#"{"code":11,"msg":"timed out","details":"why"}"#;
    let refusal =
        |body: &str| format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let server = Server::answering(&[&refusal(typed), &ok("")]);
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("shim.log");
    let mut with_log = conf("1.0.0");
    with_log["logFile"] = log.display().to_string().into();
    let output = run(&server.socket(), "ADD", &with_log, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        printed(&output),
        json!({"cniVersion": "1.0.0", "code": 11, "msg": "timed out", "details": "why"})
    );
    assert!(std::fs::read_to_string(&log).unwrap().contains("timed out: why"));
    assert_eq!(server.asked()[1].1["hasErr"], true);

    let server = Server::answering(&[&refusal("no such pod"), &ok("")]);
    let output = run(&server.socket(), "ADD", &conf("0.3.1"), &[]);
    assert_eq!(
        printed(&output),
        json!({"cniVersion": "0.3.1", "code": 999, "msg": "CNI request failed with status 400: 'no such pod'"})
    );
    server.asked();
}

#[test]
fn without_a_server() {
    let nowhere = Path::new("/nonexistent/s.sock");
    for (verb, code) in [("ADD", 11), ("DEL", 11), ("CHECK", 11), ("STATUS", 50)] {
        let output = run(nowhere, verb, &conf("1.1.0"), &[]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(printed(&output)["code"], code, "{verb}");
    }
    // What needs no server.
    let output = run(nowhere, "VERSION", &json!({"cniVersion": "1.0.0"}), &[]);
    assert!(output.status.success());
    assert_eq!(printed(&output)["supportedVersions"].as_array().unwrap().len(), 7);
    for (verb, config, code) in [
        ("ADD", conf("7.0.0"), 1),
        ("CHECK", conf("0.3.1"), 1),
        ("STATUS", conf("1.0.0"), 1),
        ("GC", conf("1.0.0"), 1),
        ("ADD", json!("{"), 6),
        ("ADD", json!({"cniVersion": "1.0.0", "name": "x", "type": "bridge"}), 7),
        ("NONE", conf("1.0.0"), 4),
    ] {
        let output = run(nowhere, verb, &config, &[]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(printed(&output)["code"], code, "{verb} {config}");
    }
    let output = run(nowhere, "ADD", &conf("1.0.0"), &[("CNI_NETNS", "")]);
    assert_eq!(printed(&output)["code"], 4);
}

#[test]
fn a_server_that_dies_is_an_error() {
    for answer in ["", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "garbage\r\n\r\n"] {
        let server = Server::answering(&[answer, &ok("")]);
        let output = run(&server.socket(), "ADD", &conf("1.0.0"), &[]);
        assert_eq!(printed(&output)["code"], 11, "{output:?}");
        server.asked();
    }
}

#[test]
fn device_information_is_sent_with_add() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("device.json");
    std::fs::write(&file, r#"{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.2"}}"#)
        .unwrap();
    let mut with_device = conf("1.0.0");
    with_device["deviceID"] = "0000:03:00.2".into();
    with_device["runtimeConfig"] = json!({"CNIDeviceInfoFile": file});
    let server = Server::answering(&[&ok(RESULT), &ok("")]);
    assert!(run(&server.socket(), "ADD", &with_device, &[]).status.success());
    assert_eq!(server.asked()[0].1["pci"]["pci-address"], "0000:03:00.2");
    let server = Server::answering(&[&ok(""), &ok("")]);
    assert!(run(&server.socket(), "DEL", &with_device, &[]).status.success());
    assert_eq!(server.asked()[0].1.get("pci"), None);
}
