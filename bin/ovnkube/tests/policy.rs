//! `ovnkube policy` as an operator and a script call it.

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::process::Command;

use serde_json::Value;

const STATE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: shop}}
---
apiVersion: v1
kind: Namespace
metadata: {name: mon, labels: {team: mon}}
---
apiVersion: v1
kind: Node
metadata: {name: node1, annotations: {k8s.ovn.org/node-subnets: '{\"default\":[\"10.244.0.0/24\"]}'}}
status: {addresses: [{type: InternalIP, address: 172.18.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web}}
spec: {nodeName: node1, containers: [{name: c, image: app, ports: [{name: http, containerPort: 8080}]}]}
status: {phase: Running, podIPs: [{ip: 10.244.0.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db-1, namespace: shop, labels: {app: db}}
spec: {nodeName: node1, containers: [{name: c, image: app, ports: [{name: sql, containerPort: 5432}]}]}
status: {phase: Running, podIPs: [{ip: 10.244.0.4}]}
---
apiVersion: v1
kind: Pod
metadata: {name: prom-1, namespace: mon}
spec: {nodeName: node1, containers: [{name: c, image: app}]}
status: {phase: Running, podIPs: [{ip: 10.244.0.5}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: sql}]}]}
";

const NEW: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}], ports: [{port: 8080}]}]}
";

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Lab {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        std::fs::write(dir.path().join("state/all.yaml"), STATE).unwrap();
        std::fs::write(dir.path().join("new.yaml"), NEW).unwrap();
        Lab(dir)
    }

    fn run(&self, args: &[&str]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_ovnkube"))
            .arg("policy")
            .args(args)
            .env_clear()
            .env("COLUMNS", "100")
            .current_dir(self.0.path())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

#[test]
fn check_tells_the_deciding_rule_and_acl() {
    let lab = Lab::new();
    let ran = lab.run(&["check", "-f", "state", "shop/web-1", "shop/db-1:sql"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(
        ran.out,
        "shop/web-1 -> shop/db-1:5432/tcp: allowed\n\
         \x20 egress  allowed  no policy says anything about its egress\n\
         \x20 ingress allowed  ingress rule 0 of NetworkPolicy shop/db; ACL NP:shop:db:Ingress:0\n\
         \x20                  (default-network-controller:NetworkPolicy:shop:db:Ingress:0:tcp:-1)\n"
    );
    for (src, dst, code) in [
        ("mon/prom-1", "shop/db-1:5432", 1),
        ("shop/web-1", "shop/db-1:5433", 1),
        ("shop/web-1", "10.244.0.4:5432/udp", 1),
        ("shop/web-1", "shop/db-1:icmp", 1),
        ("node/node1", "shop/db-1:1", 0),
        ("node1", "shop/db-1:1", 0),
        ("203.0.113.7", "shop/db-1:5432", 1),
        ("203.0.113.7", "shop/web-1:5432", 0),
        ("shop/db-1", "mon/prom-1:80/sctp", 0),
    ] {
        let ran = lab.run(&["check", "-f", "state", src, dst]);
        assert_eq!(ran.code, Some(code), "{src} {dst}: {}{}", ran.out, ran.err);
    }
    let ran = lab.run(&["check", "-f", "state", "-o", "json", "mon/prom-1", "shop/db-1:5432"]);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["allowed"], false);
    let ingress = &json["answers"][0]["ingress"];
    assert_eq!(ingress["reason"], "isolated");
    assert_eq!(ingress["policies"][0]["name"], "db");
    assert_eq!(ingress["acl"]["id"], "default-network-controller:NetpolNamespace:shop:Ingress:defaultDeny");
}

#[test]
fn mistakes_are_told_with_what_was_meant() {
    let lab = Lab::new();
    for (args, message) in [
        (
            &["check", "-f", "state", "shop/web1", "shop/db-1:1"][..],
            "there is no pod shop/web1; did you mean shop/web-1",
        ),
        (
            &["check", "-f", "state", "prom-1", "shop/db-1:1"],
            "there is no pod default/prom-1; did you mean mon/prom-1?",
        ),
        (&["check", "-f", "state", "shop/web-1", "shop/db-1"], "\"shop/db-1\" names no port"),
        (
            &["check", "-f", "state", "shop/web-1", "shop/db-1:sq"],
            "no TCP port of shop/db-1 has that name; did you mean sql?",
        ),
        (&["check", "-f", "state", "shop/web-1", "shop/db-1:1/icmpx"], "\"icmpx\" is none of tcp, udp, sctp"),
        (&["check", "-f", "state", "shop/web-1", "[2001:db8::1]:80"], "have no IP family in common"),
        (&["check", "-f", "nowhere", "a", "b:1"], "cannot read nowhere"),
        (&["explain", "-f", "state", "node/node1"], "is no pod"),
        (
            &["diff", "--on", "state", "--delete", "-f", "new.yaml"],
            "NetworkPolicy shop/web is to be taken away, but it is not there",
        ),
    ] {
        let ran = lab.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.out);
        assert!(ran.err.contains(message), "{args:?}: {}", ran.err);
    }
}

#[test]
fn explain_tells_rules_isolation_and_reach() {
    let lab = Lab::new();
    let ran = lab.run(&["explain", "-f", "state", "-n", "shop", "db-1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for line in [
        "Pod shop/db-1 on node node1, 10.244.0.4",
        "  NetworkPolicy shop/db (isolates ingress)",
        "    ingress 0: allow tcp \"sql\" from pods app=web in this namespace",
        "Ingress: denied unless a rule allows it, by NetworkPolicy shop/db",
        "Egress: allowed where no rule decides",
        "  shop/web-1   tcp 5432",
    ] {
        assert!(ran.out.lines().any(|found| found == line), "{line}\n{}", ran.out);
    }
    let ran = lab.run(&["explain", "-f", "state", "shop/db-1", "-o", "yaml"]);
    assert!(ran.out.contains("reachedBy:\n- parties:\n  - shop/web-1\n  ports: tcp 5432\n"), "{}", ran.out);
}

#[test]
fn diff_tells_what_a_change_opens_and_closes() {
    let lab = Lab::new();
    let ran = lab.run(&["diff", "--on", "state", "-f", "new.yaml", "-o", "json"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    let closed = |from: &str| {
        let changes = json["changes"].as_array().unwrap();
        let names = |list: &Value| serde_json::from_value::<Vec<String>>(list.clone()).unwrap();
        let mut of = changes.iter().filter(|change| names(&change["from"]).iter().any(|one| one == from));
        let change = of.next().unwrap_or_else(|| panic!("{from}: {json:#}"));
        assert!(of.next().is_none() && change.get("opened").is_none());
        assert_eq!(names(&change["to"]), ["shop/web-1"]);
        change["closed"].as_str().unwrap().to_owned()
    };
    assert_eq!(closed("mon/prom-1"), "all ports");
    assert_eq!(closed("shop/db-1"), "all ports");
    assert_eq!(closed("outside 0.0.0.0/0"), "all ports");
    assert_eq!(closed("outside 203.0.113.0/24"), "tcp 1-8079,8081-65535 udp all sctp all icmp");

    // Taking it away again is the opposite, and applying what is there is nothing.
    std::fs::write(lab.0.path().join("state/new.yaml"), NEW).unwrap();
    let ran = lab.run(&["diff", "--on", "state", "--delete", "-f", "new.yaml"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.out.contains("+ opens  all ports") && !ran.out.contains("closes"), "{}", ran.out);
    let ran = lab.run(&["diff", "--on", "state", "-f", "new.yaml"]);
    assert_eq!((ran.code, ran.out.starts_with("Nothing opens or closes (")), (Some(0), true), "{}", ran.out);
}

#[test]
fn help_shows_examples_and_exit_codes() {
    let lab = Lab::new();
    for command in ["explain", "check", "diff"] {
        let ran = lab.run(&[command, "--help"]);
        assert!(ran.out.contains("Examples:\n") && ran.out.contains("Exit code: 0"), "{}", ran.out);
    }
}
