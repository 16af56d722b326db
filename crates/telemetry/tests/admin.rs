//! The servers as a client meets them.

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::{net::SocketAddr, sync::Arc};
use telemetry::{
    Admin, AdminSettings, BuildInfo, Health, LogControl, Metrics, Roles, Telemetry,
    admin::{TlsFiles, TlsSettings},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

fn telemetry() -> Telemetry {
    let build =
        BuildInfo { version: "1", revision: "", branch: "", build_user: "", build_date: "", compiler: "" };
    let roles = Roles { node: true, ..Roles::default() };
    Telemetry {
        log: LogControl::detached(),
        metrics: Metrics::new(roles, build, Vec::new()),
        health: Health::default(),
    }
}

fn loopback() -> Vec<SocketAddr> {
    vec![([127, 0, 0, 1], 0).into()]
}

async fn ask_over<S>(stream: S, method: &str, path: &str, body: &str) -> (u16, String)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "h");
    let response =
        sender.send_request(request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    driver.abort();
    (status, String::from_utf8(text.to_vec()).unwrap())
}

async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    ask_over(TcpStream::connect(address).await.unwrap(), method, path, body).await
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, "GET", path, "").await
}

#[tokio::test]
async fn metrics_and_checks() {
    let telemetry = telemetry();
    let settings = AdminSettings { metrics: loopback(), debug: true, ..Default::default() };
    let admin = Admin::start(settings, &telemetry).unwrap();
    let address = admin.listening(1).await[0];

    assert!(get(address, "/metrics").await.1.contains("ovnkube_node_ready_duration_seconds 0"));
    assert_eq!(get(address, "/healthz").await, (200, "ok\n".into()));
    let check = telemetry.health.ready("cni-server");
    assert_eq!(get(address, "/readyz").await, (503, "[-]cni-server failed: starting\nfailed\n".into()));
    check.pass();
    assert_eq!(get(address, "/readyz").await, (200, "[+]cni-server ok\nok\n".into()));
    telemetry.health.live_probe("loop", || async { Err("stuck for 60 s".into()) });
    assert_eq!(get(address, "/livez").await, (503, "[-]loop failed: stuck for 60 s\nfailed\n".into()));

    assert_eq!(get(address, "/nothing").await.0, 404);
    assert_eq!(ask(address, "POST", "/metrics", "").await.0, 405);
    assert_eq!(get(address, "/debug/flags/v").await, (200, "4\n".into()));
    assert_eq!(ask(address, "PUT", "/debug/flags/v", "5").await.0, 200);
    assert_eq!(telemetry.log.level(), 5);
    for bad in ["", "x", "-1", "11", "5 5", &"5".repeat(100)] {
        assert_eq!(ask(address, "PUT", "/debug/flags/v", bad).await.0, 400, "{bad:?}");
    }
    assert_eq!(telemetry.log.level(), 5);
    drop(admin);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn the_level_is_closed_unless_asked_for() {
    let telemetry = telemetry();
    let admin =
        Admin::start(AdminSettings { metrics: loopback(), ..Default::default() }, &telemetry).unwrap();
    let address = admin.listening(1).await[0];
    assert_eq!(ask(address, "PUT", "/debug/flags/v", "5").await.0, 405);
    assert_eq!(get(address, "/debug/flags/v").await.0, 404);
    assert_eq!(telemetry.log.level(), 4);
}

#[tokio::test]
async fn load_balancers_see_a_pod_that_goes() {
    let telemetry = telemetry();
    let admin =
        Admin::start(AdminSettings { healthz: loopback(), ..Default::default() }, &telemetry).unwrap();
    let address = admin.listening(1).await[0];
    let (status, body) = get(address, "/healthz").await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(body["lastUpdated"], body["currentTime"]);
    telemetry.health.set_terminating(true);
    assert_eq!(get(address, "/healthz").await.0, 503);
    telemetry.health.set_terminating(false);
    assert_eq!(get(address, "/healthz").await.0, 200);
    assert_eq!(get(address, "/metrics").await.0, 404);
}

#[tokio::test]
async fn an_address_in_use_is_taken_when_it_gets_free() {
    let holder = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = holder.local_addr().unwrap();
    let settings = AdminSettings { metrics: vec![address], ovn_metrics: loopback(), ..Default::default() };
    let admin = Admin::start(settings, &telemetry()).unwrap();
    // The other server is up while this one waits.
    let second = admin.listening(1).await[0];
    assert!(get(second, "/metrics").await.1.contains("process_open_fds"));
    drop(holder);
    assert!(admin.listening(2).await.contains(&address));
    assert_eq!(get(address, "/metrics").await.0, 200);
}

#[tokio::test]
async fn bytes_that_are_not_http_do_no_harm() {
    let admin =
        Admin::start(AdminSettings { metrics: loopback(), ..Default::default() }, &telemetry()).unwrap();
    let address = admin.listening(1).await[0];
    for junk in [&b"\x16\x03\x01\x02\x00"[..], b"GET / HTTP/9.9\r\n\r\n", &[b'a'; 100_000]] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may close while we write.
        let _ = stream.write_all(junk).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
    assert_eq!(get(address, "/healthz").await.0, 200);
}

#[tokio::test]
async fn tls_with_a_certificate_that_is_renewed() {
    let dir = tempfile::tempdir().unwrap();
    let files = TlsFiles { certificate: dir.path().join("c.pem"), key: dir.path().join("k.pem") };
    let renew = |seconds: u64| {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        for (path, text) in
            [(&files.key, made.signing_key.serialize_pem()), (&files.certificate, made.cert.pem())]
        {
            std::fs::write(path, text).unwrap();
            let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        }
        made.cert.der().clone()
    };
    let first = renew(1000);
    let tls = TlsSettings { files: files.clone(), only_tls13: true, cipher_suites: Vec::new() };
    let settings = AdminSettings { metrics: loopback(), tls: Some(tls), ..Default::default() };
    let admin = Admin::start(settings, &telemetry()).unwrap();
    let address = admin.listening(1).await[0];

    let ask_trusting = async |certificate: rustls::pki_types::CertificateDer<'static>| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await?;
        Ok::<_, std::io::Error>(ask_over(stream, "GET", "/healthz", "").await.0)
    };
    assert_eq!(ask_trusting(first.clone()).await.unwrap(), 200);
    let second = renew(2000);
    assert!(ask_trusting(first).await.is_err());
    assert_eq!(ask_trusting(second.clone()).await.unwrap(), 200);
    // A half-written renewal keeps the last good certificate.
    std::fs::write(&files.key, "junk").unwrap();
    assert_eq!(ask_trusting(second).await.unwrap(), 200);

    let missing = TlsSettings {
        files: TlsFiles { certificate: dir.path().join("none"), ..files },
        only_tls13: false,
        cipher_suites: Vec::new(),
    };
    let settings = AdminSettings { metrics: loopback(), tls: Some(missing), ..Default::default() };
    let error = Admin::start(settings, &telemetry()).err().unwrap().to_string();
    assert!(error.contains("none: ") && error.contains("--node-server-cert"), "{error}");
}
