//! A real kube-apiserver on a real etcd, started inside the underlay.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use http::Request;

use super::{Api, Server, inside};
use crate::{
    addresses::{Families, GATEWAY},
    cluster::Cluster,
    space::Process,
    wire::Program,
};

/// How long the server may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn start(cluster: &Cluster, assets: &Path) -> Result<Api> {
    for program in ["etcd", "kube-apiserver"] {
        ensure!(assets.join(program).is_file(), "there is no {program} in {}", assets.display());
    }
    let dir = cluster.work_dir().join("api");
    fs::create_dir_all(&dir)?;
    let path = |name: &str| dir.join(name).display().to_string();
    let underlay = cluster.underlay();
    let token = fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned();
    fs::write(dir.join("tokens.csv"), format!("{token},admin,admin,system:masters\n"))?;
    let key = path("service-account.key");
    underlay
        .exec(&["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", &key])
        .await?;
    let start = async |name: &str, args: Vec<String>| -> Result<Process> {
        let mut argv = vec![assets.join(name).display().to_string()];
        argv.extend(args);
        underlay
            .spawn(Program { argv, log: Some(dir.join(format!("{name}.log"))), ..Program::default() })
            .await
    };
    let etcd = start(
        "etcd",
        vec![
            format!("--data-dir={}", path("etcd")),
            "--listen-client-urls=http://127.0.0.1:2379".to_owned(),
            "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
            "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
            "--unsafe-no-fsync".to_owned(),
        ],
    )
    .await?;
    let address = inside(cluster);
    let any = if cluster.families() == Families::V6 { "::" } else { "0.0.0.0" };
    let server = start(
        "kube-apiserver",
        vec![
            "--etcd-servers=http://127.0.0.1:2379".to_owned(),
            format!("--secure-port={}", address.port()),
            format!("--bind-address={any}"),
            format!("--advertise-address={}", cluster.families().primary(GATEWAY)),
            format!("--service-cluster-ip-range={}", cluster.families().service_cidrs()),
            format!("--cert-dir={}", path("certs")),
            format!("--token-auth-file={}", path("tokens.csv")),
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            // Nobody here makes service accounts for namespaces.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--allow-privileged=true".to_owned(),
        ],
    )
    .await?;
    // The server makes its certificate, with its CA behind it, before it listens.
    let certificate = dir.join("certs/apiserver.crt");
    let ca =
        wait(&server, &dir, || fs::read_to_string(&certificate).ok().filter(|text| !text.is_empty())).await?;
    let processes = vec![etcd, server.clone()];
    let api = Api::with_token(cluster, address, token, ca, Server::Processes(processes)).await?;
    let client = api.client();
    let ready = async {
        let mut pause = Duration::from_millis(50);
        loop {
            let asked = client.request_text(Request::get("/readyz").body(Vec::new())?).await;
            match asked {
                Ok(_) => return Ok(()),
                Err(_) if server.is_running() => {}
                Err(error) => return Err(error).context("kube-apiserver ended"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    };
    match tokio::time::timeout(PATIENCE, ready).await {
        Ok(ready) => ready?,
        Err(_) => bail!("kube-apiserver is not ready after {PATIENCE:?}; see {}", path("kube-apiserver.log")),
    }
    Ok(api)
}

async fn wait(server: &Process, dir: &Path, look: impl Fn() -> Option<String>) -> Result<String> {
    let found = async {
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if !server.is_running() {
                let log = fs::read_to_string(dir.join("kube-apiserver.log")).unwrap_or_default();
                let end: Vec<&str> = log.lines().rev().take(5).collect();
                bail!("kube-apiserver ended: {}", end.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found)
        .await
        .unwrap_or_else(|_| bail!("kube-apiserver made no certificate"))
}
