//! The files and command lines of etcd and kube-apiserver.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use super::{ExternalError, ExternalOptions};
use crate::pki::{Pki, default_names};

/// Command lines without the programs' paths.
pub(super) struct Flags {
    pub(super) etcd: Vec<String>,
    pub(super) apiserver: Vec<String>,
    pub(super) ca_pem: String,
}

/// Writes what the two programs read into `directory` and makes their flags. etcd gets the two given ports on loopback.
pub(super) fn prepare(
    directory: &Path,
    address: SocketAddr,
    etcd: (u16, u16),
    token: &str,
    options: &ExternalOptions,
) -> Result<Flags, ExternalError> {
    let (clients, peers) = (format!("http://127.0.0.1:{}", etcd.0), format!("http://127.0.0.1:{}", etcd.1));
    let file = |name: &str| directory.join(name);
    let flag = |name: &str, file: PathBuf| format!("--{name}={}", file.display());
    let first = options.service_cidrs.first().and_then(|cidr| cidr.hosts().next());
    let mut names = default_names([Some(address.ip()), first].into_iter().flatten());
    for name in &options.names {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let pki = Pki::new(&names)?;
    let accounts = rcgen::KeyPair::generate()?;
    let users = format!("{token},admin,admin,\"system:masters\"\n");
    for (name, content) in [
        ("ca.crt", pki.ca_pem.as_str()),
        ("server.crt", &pki.certificate_pem),
        ("server.key", &pki.key_pem),
        ("accounts.key", &accounts.serialize_pem()),
        ("accounts.pub", &accounts.public_key_pem()),
        ("tokens.csv", &users),
    ] {
        let path = file(name);
        write_private(&path, content).map_err(|source| ExternalError::Io {
            what: format!("cannot write {}", path.display()),
            source,
        })?;
    }
    let cidrs: Vec<String> = options.service_cidrs.iter().map(|cidr| cidr.trunc().to_string()).collect();
    let mut apiserver = vec![
        format!("--etcd-servers={clients}"),
        format!("--bind-address={}", address.ip()),
        format!("--advertise-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        flag("tls-cert-file", file("server.crt")),
        flag("tls-private-key-file", file("server.key")),
        flag("token-auth-file", file("tokens.csv")),
        flag("service-account-key-file", file("accounts.pub")),
        flag("service-account-signing-key-file", file("accounts.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-cluster-ip-range={}", cidrs.join(",")),
        "--authorization-mode=RBAC".into(),
        "--allow-privileged=true".into(),
        // Names of development nodes resolve nowhere; kubectl logs and exec go by address.
        "--kubelet-preferred-address-types=InternalIP,Hostname".into(),
        // No controller-manager makes the service accounts the one plugin insists on, nor takes the taint away that the
        // other puts on new nodes.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
    ];
    if is_loopback(address.ip()) {
        // A Service may not have loopback endpoints, so the server must not publish itself.
        apiserver.push("--endpoint-reconciler-type=none".into());
    }
    apiserver.extend(options.flags.iter().cloned());
    let etcd = vec![
        flag("data-dir", file("etcd")),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
        "--unsafe-no-fsync".into(),
    ];
    Ok(Flags { etcd, apiserver, ca_pem: pki.ca_pem })
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn write_private(path: &Path, content: &str) -> io::Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())
}
