//! The program as an operator calls it.

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn ovnkube(args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_ovnkube")).args(args).env_clear().output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn version_and_help() {
    for args in [&["--version"][..], &["-v"], &["version"]] {
        let ran = ovnkube(args);
        assert_eq!(ran.code, Some(0));
        assert!(ran.out.starts_with(concat!("ovnkube ", env!("CARGO_PKG_VERSION"), " (")), "{}", ran.out);
    }
    let ran = ovnkube(&["--init-node", "n1", "--help"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.contains("--cluster-subnets CIDR/HOST-PREFIX,...") && !ran.out.contains('\x1b'));
    assert!(ovnkube(&["completion", "bash"]).out.contains("complete -F _ovnkube ovnkube"));
}

#[test]
fn mistakes_end_with_two() {
    for (args, message) in [
        (&["--mtuu=1"][..], "ovnkube: unknown flag --mtuu; did you mean --mtu?\n"),
        (&["--mtu=1400"], "ovnkube: no role is given; name at least one of --init-cluster-manager"),
        (&[], "ovnkube: no role is given"),
        (&["--init-node=n", "--mtu=x"], "ovnkube: --mtu \"x\" (from command line) is not a whole number\n"),
        (&["--config-file=/nowhere/x", "--init-node=n"], "ovnkube: cannot read /nowhere/x: "),
        (&["frobnicate"], "error: unrecognized subcommand 'frobnicate'"),
    ] {
        let ran = ovnkube(args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.err.starts_with(message), "{args:?}: {}", ran.err);
    }
}

#[test]
fn the_effective_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ovnkube.conf");
    std::fs::write(&file, "[default]\nmtu = 8900\n[oops]\n").unwrap();
    let flag = format!("--config-file={}", file.display());
    let ran = ovnkube(&["config", "show", "-o", "json", &flag, "--encap-port", "7000", "-loglevel=5"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(ran.err, format!("ovnkube: warning: {}:3: unknown section [oops], ignored\n", file.display()));
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["mtu"]["value"], "8900");
    assert_eq!(json["mtu"]["origin"], format!("{}:2", file.display()));
    assert_eq!(json["encap-port"]["value"], "7000");
    let ran = ovnkube(&["config", "show", "--changed", &flag]);
    assert_eq!(ran.out.lines().count(), 2, "{}", ran.out);
}

#[test]
fn a_log_file_that_cannot_be_written_is_named() {
    let ran = ovnkube(&["--init-node=n", "--logfile=/proc/none/log"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("ovnkube: cannot open the log file /proc/none/log: "), "{}", ran.err);
}

/// GET over a connection of its own; the whole answer.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_signal_ends_it_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let pidfile = dir.path().join("ovnkube.pid");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ovnkube"))
        // Nothing listens on port 1, so the role keeps trying.
        .args([
            "--init-cluster-manager=cm",
            "--k8s-apiserver=http://127.0.0.1:1",
            "--metrics-bind-address=127.0.0.1:0",
        ])
        .arg(format!("--pidfile={}", pidfile.display()))
        .env_clear()
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let serving = lines.find(|line| line.contains("] serving ")).unwrap();
    let address = serving.split("address=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert_eq!(std::fs::read_to_string(&pidfile).unwrap(), format!("{}\n", child.id()));
    assert!(get(address, "/metrics").contains("\novnkube_clustermanager_leader 0\n"));
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 503"));

    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    // To its end, so that the child is not held up by a full pipe.
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest:#?}");
    assert!(rest.last().unwrap().ends_with("] ovnkube ends"), "{rest:#?}");
    assert!(!pidfile.exists());
}
