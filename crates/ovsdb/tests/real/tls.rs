//! TLS with client certificates.

use std::{path::Path, time::Duration};

use ovsdb::{Endpoint, MonitorSpec, Notice, Options, Replica, TlsFiles, connect};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use crate::server::{SCHEMA, Server, eventually, port, run};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a key and a certificate of this authority, and the authority's own certificate.
fn certificate(dir: &Path, name: &str, authority: &Authority, trusted: &Authority) -> TlsFiles {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let file = |kind: &str, text: String| {
        let path = dir.join(format!("{name}.{kind}"));
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        private_key: file("key", key.serialize_pem()),
        certificate: file("crt", certificate.pem()),
        ca: file("ca", trusted.pem()),
        check_host_name: false,
    }
}

async fn tls_server(authority: &Authority) -> (Server, u16) {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("schema"), SCHEMA).unwrap();
    run("ovsdb-tool", &[&"create", &dir.path().join("db"), &dir.path().join("schema")]);
    let files = certificate(dir.path(), "server", authority, authority);
    let args = vec![
        "--remote=pssl:0:127.0.0.1".to_owned(),
        format!("--private-key={}", files.private_key.display()),
        format!("--certificate={}", files.certificate.display()),
        format!("--ca-cert={}", files.ca.display()),
    ];
    let server = Server::launch(dir, "s", args).await;
    let port = eventually("the TLS port", || {
        let log = std::fs::read_to_string(server.dir.path().join("s.log")).ok()?;
        let line = log.lines().find(|line| line.contains("listening on port"))?;
        line.rsplit_once("port ")?.1.trim().parse().ok()
    })
    .await;
    (server, port)
}

fn options(port: u16, files: TlsFiles) -> Options {
    Options::new([Endpoint::Ssl("127.0.0.1".into(), port)], "Test").monitor(MonitorSpec::all()).tls(files)
}

#[tokio::test]
async fn both_sides_show_certificates() {
    let ca = authority("ca");
    let (server, tcp_port) = tls_server(&ca).await;
    let files = certificate(server.dir.path(), "client", &ca, &ca);
    let replica = Replica::connect(options(tcp_port, files));
    tokio::time::timeout(Duration::from_secs(30), replica.ready()).await.unwrap();
    replica.transact(vec![port(1, "over tls")]).await.unwrap();
    replica.read(|c| assert_eq!(c.table("Port").unwrap().len(), 1));
}

async fn first_failure(options: Options) -> String {
    let (_client, mut notices) = connect(options);
    match tokio::time::timeout(Duration::from_secs(30), notices.recv()).await.unwrap() {
        Some(Notice::Down { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn strangers_are_refused_on_both_sides() {
    let (ca, stranger) = (authority("ca"), authority("stranger"));
    let (server, tcp_port) = tls_server(&ca).await;
    let dir = server.dir.path();
    // The server shows a certificate of an authority we do not trust.
    let reason = first_failure(options(tcp_port, certificate(dir, "misled", &stranger, &stranger))).await;
    assert!(reason.contains("certificate"), "{reason}");
    // We show one the server does not trust: it closes.
    first_failure(options(tcp_port, certificate(dir, "intruder", &stranger, &ca))).await;
    // The host's name is checked only when asked for: the server's certificate names none.
    let files = TlsFiles { check_host_name: true, ..certificate(dir, "strict", &ca, &ca) };
    let reason = first_failure(options(tcp_port, files)).await;
    assert!(reason.contains("name"), "{reason}");
    // Files that are missing are named.
    let files = TlsFiles { ca: dir.join("missing"), ..certificate(dir, "forgetful", &ca, &ca) };
    let reason = first_failure(options(tcp_port, files)).await;
    assert!(reason.contains("missing"), "{reason}");
}
