//! kubectl against the embedded API, as an operator uses it.

use std::{
    io::Write as _,
    net::TcpListener,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use devapi::{Options, Server};
use serde_json::json;

struct Cluster {
    server: Server,
    directory: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Cluster {
    async fn start() -> Self {
        let found = Command::new("kubectl").args(["version", "--client"]).output();
        assert!(
            found.is_ok_and(|o| o.status.success()),
            "kubectl is not installed; `cargo xtask test` installs it, or put a kubectl of 1.30 or newer into PATH"
        );
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = Server::start(Options::new(listener)).await.expect("server");
        let directory = tempfile::tempdir().expect("directory");
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig()).expect("kubeconfig");
        Self { server, directory, kubeconfig }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.directory.path())
            .args(["--request-timeout=30s"])
            .args(arguments);
        command
    }

    async fn output(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        let input = input.to_string();
        // The server runs on this runtime, so kubectl must not block it.
        tokio::task::spawn_blocking(move || {
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("kubectl starts");
            child.stdin.take().expect("stdin").write_all(input.as_bytes()).expect("input");
            child.wait_with_output().expect("kubectl ends")
        })
        .await
        .expect("not cancelled")
    }

    /// Standard output of a run that must succeed.
    async fn ok(&self, arguments: &[&str], input: &str) -> String {
        let output = self.output(arguments, input).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    async fn run(&self, line: &str) -> String {
        self.ok(&line.split_whitespace().collect::<Vec<_>>(), "").await
    }

    /// Standard error of a run that must fail.
    async fn fails(&self, line: &str, input: &str) -> String {
        let output = self.output(&line.split_whitespace().collect::<Vec<_>>(), input).await;
        assert!(!output.status.success(), "kubectl {line} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn add_node(&self, name: &str) {
        self.server
            .store()
            .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
                "labels": {"node-role.kubernetes.io/worker": ""}},
                "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
                    "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Debian"},
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}))
            .expect("node");
    }
}

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: web}}\n\
                   spec: {nodeName: n1, containers: [{name: c, image: nginx, ports: [{containerPort: 80}]}]}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_at_things() {
    let c = Cluster::start().await;
    c.add_node("n1");
    c.ok(&["create", "-f", "-"], POD).await;
    let nodes = c.run("get nodes -o wide").await;
    for part in ["n1", "Ready", "worker", "v1.36.0", "192.0.2.1", "Debian", "INTERNAL-IP"] {
        assert!(nodes.contains(part), "{part}: {nodes}");
    }
    let pods = c.run("get pods -A -o wide").await;
    let row: Vec<&str> = pods.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!((row[..5].to_vec(), row[7]), (vec!["default", "web", "0/1", "Pending", "0"], "n1"), "{pods}");
    assert!(c.run("get all").await.contains("service/kubernetes"));
    assert!(c.run("get svc kubernetes").await.contains("443/TCP"));
    let described = c.run("describe pod web").await;
    for part in ["Node:", "n1", "80/TCP", "QoS Class:", "BestEffort", "Events:"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    assert!(c.run("describe node n1").await.contains("KubeletReady"));
    assert!(c.run("describe namespace default").await.contains("Active"));
    assert!(c.run("describe service kubernetes").await.contains("10.96.0.1"));
    assert!(c.run("explain pod.spec.containers").await.contains("imagePullPolicy"));
    assert_eq!(c.run("auth can-i create pods").await.trim(), "yes");
    let resources = c.run("api-resources --verbs=list --namespaced=true -o name").await;
    assert!(resources.lines().any(|l| l == "networkpolicies.networking.k8s.io"), "{resources}");
    assert!(c.run("get --raw /readyz").await.contains("ok"));
    assert!(
        c.run("get pods -l app=web,app!=x --field-selector=spec.nodeName=n1 -o name")
            .await
            .contains("pod/web")
    );
    assert_eq!(c.run("get pods --field-selector=spec.nodeName=n2 -o name").await, "");
    assert_eq!(c.run("get pods -o jsonpath={.items[*].spec.dnsPolicy}").await, "ClusterFirst");
    assert!(c.fails("get pods nothing", "").await.contains("(NotFound): pods \"nothing\" not found"));
    assert!(
        c.fails("get nonsense", "").await.contains("the server doesn't have a resource type \"nonsense\"")
    );
    assert_eq!(c.run("logs web").await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changing_things() {
    let c = Cluster::start().await;
    c.run("create namespace demo").await;
    let apply = ["apply", "-n", "demo", "-f", "-"];
    assert!(c.ok(&apply, POD).await.contains("pod/web created"));
    assert!(c.ok(&apply, POD).await.contains("pod/web unchanged"));
    let newer = POD.replace("image: nginx", "image: nginx:2");
    assert!(c.ok(&apply, &newer).await.contains("pod/web configured"));
    let wrong = c.fails("apply -n demo -f -", &POD.replace("n1", "n2")).await;
    assert!(wrong.contains("pod updates may not change fields other than"), "{wrong}");
    c.run("label pod web -n demo tier=front app=api --overwrite").await;
    c.run("annotate pod web -n demo note=x").await;
    c.run("label pod web -n demo tier-").await;
    let labels = c.run("get pod web -n demo -o jsonpath={.metadata.labels}").await;
    assert_eq!(labels, r#"{"app":"api"}"#);
    c.run(r#"patch pod web -n demo -p {"spec":{"containers":[{"name":"c","image":"nginx:3"}]}}"#).await;
    let image = "get pod web -n demo -o jsonpath={.spec.containers[*].image}";
    assert_eq!(c.run(image).await, "nginx:3");
    c.run(r#"patch pod web -n demo --type=json -p [{"op":"replace","path":"/spec/containers/0/image","value":"nginx:4"}]"#)
        .await;
    c.run(r#"patch pod web -n demo --type=merge --subresource=status -p {"status":{"phase":"Running"}}"#)
        .await;
    assert_eq!(c.run(image).await, "nginx:4");
    assert!(c.run("get pod web -n demo").await.contains("Running"));
    c.run("wait pod/web -n demo --for=jsonpath={.status.phase}=Running --timeout=10s").await;
    let dry =
        c.ok(&["apply", "-n", "demo", "--dry-run=server", "-f", "-"], &POD.replace("web", "other")).await;
    assert!(dry.contains("created (server dry run)"), "{dry}");
    assert!(c.fails("get pod other -n demo", "").await.contains("NotFound"));
    // A bound pod leaves in two steps: marked, then removed by its kubelet.
    c.run("delete pod web -n demo --wait=false").await;
    assert!(c.run("get pod web -n demo").await.contains("Terminating"));
    c.run("delete pod web -n demo --force --grace-period=0").await;
    assert!(c.fails("get pod web -n demo", "").await.contains("NotFound"));
    c.run("create deployment d -n demo --image=x --replicas=2").await;
    c.run("scale deployment d -n demo --replicas=5").await;
    assert!(c.run("get deployment d -n demo").await.contains("0/5"));
    c.run("set image deployment/d -n demo x=y").await;
    assert_eq!(
        c.run("get deploy d -n demo -o jsonpath={.spec.template.spec.containers[0].image}").await,
        "y"
    );
    c.run("create configmap cm -n demo --from-literal=a=b").await;
    c.run("create secret generic s -n demo --from-literal=a=b").await;
    c.run("create service nodeport np -n demo --tcp=80:8080").await;
    assert!(c.run("get svc np -n demo").await.contains("80:3"));
    c.run("delete namespace demo --timeout=20s").await;
    assert!(c.fails("get namespace demo", "").await.contains("NotFound"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_side_apply_and_conflicts() {
    let c = Cluster::start().await;
    let map = |value: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{a: \"{value}\"}}\n")
    };
    let apply = |manager: &str| {
        vec![
            "apply".to_string(),
            "--server-side".into(),
            format!("--field-manager={manager}"),
            "-f".into(),
            "-".into(),
        ]
    };
    let run = async |arguments: Vec<String>, input: String| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        c.output(&arguments, &input).await
    };
    assert!(run(apply("one"), map("1")).await.status.success());
    assert!(run(apply("two"), map("1")).await.status.success(), "the same value is shared");
    let refused = run(apply("two"), map("2")).await;
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("conflict with \"one\": .data.a"), "{error}");
    let mut forced = apply("two");
    forced.push("--force-conflicts".into());
    assert!(run(forced, map("2")).await.status.success());
    assert_eq!(c.run("get cm m -o jsonpath={.data.a}").await, "2");
    let managers =
        c.run("get cm m --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}").await;
    assert!(managers.contains("two"), "{managers}");
    // What a manager no longer applies and nobody else owns goes away.
    let gone = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {b: \"3\"}\n".to_string();
    assert!(run(apply("two"), gone).await.status.success());
    assert_eq!(c.run("get cm m -o jsonpath={.data}").await, r#"{"b":"3"}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creating_with_mistakes_and_generated_names() {
    let c = Cluster::start().await;
    let named = POD.replace("name: web", "generateName: web-");
    for _ in 0..2 {
        c.ok(&["create", "-f", "-"], &named).await;
    }
    assert_eq!(c.run("get pods -o name").await.lines().count(), 2);
    let cases = [
        (POD.replace("image:", "imagee:"), "unknown field \"spec.containers[0].imagee\""),
        (POD.replace("name: web", "name: We_b"), "a lowercase RFC 1123 subdomain"),
        (POD.replace("{name: c, image: nginx", "{image: nginx"), "spec.containers[0].name: Required value"),
        (POD.replace("containerPort: 80", "containerPort: 99999"), "must be between 1 and 65535"),
        (POD.replace("nodeName: n1", "restartPolicy: Sometimes"), "Unsupported value: \"Sometimes\""),
        (POD.replace("containerPort: 80", "containerPort: eighty"), "containerPort"),
        (POD.replace("{name: web", "{name: web, namespace: nowhere"), "namespaces \"nowhere\" not found"),
    ];
    for (input, part) in cases {
        let error = c.fails("create -f -", &input).await;
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching() {
    use std::io::{BufRead as _, BufReader};
    let c = Cluster::start().await;
    let mut command = c.command(&["get", "configmaps", "-w", "-o", "name", "--request-timeout=60s"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("kubectl");
    let stdout = child.stdout.take().expect("stdout");
    let (sender, mut lines) = tokio::sync::mpsc::channel(16);
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    for name in ["one", "two", "three"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        c.server.store().create(map).expect("created");
        let wait = tokio::time::timeout(std::time::Duration::from_secs(30), lines.recv());
        let line = wait.await.expect("an event within 30 s").expect("kubectl still watches");
        assert_eq!(line, format!("configmap/{name}"));
    }
    child.kill().expect("killed");
    child.wait().expect("reaped");
    reader.join().expect("reader ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_resources() {
    let c = Cluster::start().await;
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"], "categories": ["toys"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
                    "spec": {"type": "object", "required": ["color"], "properties": {
                        "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
                        "color": {"type": "string", "enum": ["red", "blue"]}}},
                    "status": {"type": "object", "properties": {"seen": {"type": "boolean"}}}}}}}]}});
    c.ok(&["apply", "-f", "-"], &crd.to_string()).await;
    c.run("wait --for=condition=Established crd/gadgets.example.com --timeout=10s").await;
    let gadget = |color: &str, extra: &str| {
        format!(
            "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {{name: g}}\nspec: {{color: {color}{extra}}}\n"
        )
    };
    assert!(
        c.fails("apply -f -", &gadget("green", "")).await.contains("supported values: \"red\", \"blue\"")
    );
    assert!(
        c.fails("apply -f -", &gadget("red", ", size: 10"))
            .await
            .contains("should be less than or equal to 9")
    );
    assert!(
        c.fails("apply -f -", &gadget("red", ", weight: 1")).await.contains("unknown field \"spec.weight\"")
    );
    c.ok(&["apply", "-f", "-"], &gadget("red", "")).await;
    let row = c.run("get gd").await;
    assert_eq!(
        row.lines().nth(1).map(|l| l.split_whitespace().collect::<Vec<_>>()),
        Some(vec!["g", "3"]),
        "{row}"
    );
    assert!(c.run("get toys -o name").await.contains("gadget.example.com/g"));
    c.run(r#"patch gd g --type=merge --subresource=status -p {"status":{"seen":true},"spec":{"size":7}}"#)
        .await;
    assert_eq!(c.run("get gd g -o jsonpath={.spec.size}{.status.seen}").await, "3true");
    assert!(c.run("explain gadget.spec").await.contains("color"));
    c.run("delete crd gadgets.example.com --timeout=20s").await;
    // kubectl asks again for what it knows from its discovery cache.
    let error = c.fails("get gadgets", "").await;
    assert!(
        error.contains("could not find the requested resource") || error.contains("doesn't have"),
        "{error}"
    );
}
