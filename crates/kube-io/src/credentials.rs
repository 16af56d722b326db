//! Settings to a connected client, and noticing that its credentials were replaced.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};

use crate::{Error, Settings, connection};

/// The state of the files a client was built from. The time alone is too coarse for files replaced in one tick.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Stamp(Vec<Option<FileState>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    modified: SystemTime,
    inode: u64,
    length: u64,
}

impl Stamp {
    pub(crate) fn of(settings: &Settings) -> Self {
        let mut files: Vec<PathBuf> = Vec::new();
        if let Some(dir) = &settings.cert_dir {
            files.extend(["ovnkube-client-current.pem", "tls.crt", "tls.key"].map(|name| dir.join(name)));
        }
        files.extend(settings.token_file.clone());
        files.extend(settings.ca_file.clone());
        files.extend(settings.kubeconfig.clone());
        Self(files.iter().map(|file| file_state(file)).collect())
    }
}

fn file_state(file: &Path) -> Option<FileState> {
    let meta = std::fs::metadata(file).ok()?;
    Some(FileState { modified: meta.modified().ok()?, inode: meta.ino(), length: meta.len() })
}

/// A client for the settings. Does not contact the server.
pub(crate) async fn client(settings: &Settings) -> Result<kube::Client, Error> {
    let mut config = base_config(settings).await?;
    if let Some(dir) = &settings.cert_dir
        && let Some(identity) = client_certificate(dir)?
    {
        config.auth_info.client_certificate_data = Some(STANDARD.encode(identity.certificate));
        config.auth_info.client_key_data = Some(STANDARD.encode(identity.key).into());
    }
    connection::client(config)
}

async fn base_config(settings: &Settings) -> Result<kube::Config, Error> {
    if let Some(file) = &settings.kubeconfig {
        let bad = |error: kube::config::KubeconfigError| {
            Error::Settings(format!("kubeconfig {}: {}", file.display(), crate::error::chain(&error)))
        };
        let kubeconfig = Kubeconfig::read_from(file).map_err(bad)?;
        return kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(bad);
    }
    let Some(apiserver) = &settings.apiserver else {
        return kube::Config::incluster().map_err(|error| {
            Error::Settings(format!(
                "neither a kubeconfig nor an API server is set, and the pod's service account is not usable: {error}"
            ))
        });
    };
    let url = apiserver
        .parse::<http::Uri>()
        .ok()
        .filter(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some())
        .ok_or_else(|| {
            Error::Settings(format!("API server {apiserver:?} is not a URL like https://host:6443"))
        })?;
    let mut config = kube::Config::new(url);
    config.root_cert = authorities(settings)?;
    config.auth_info = AuthInfo {
        // read here rather than by kube, which takes a trailing line end for a part of the token
        token: match &settings.token_file {
            Some(file) => Some(String::from_utf8_lossy(&read(file)?).trim().into()),
            None => settings.token.as_ref().map(|token| token.trim().into()),
        },
        ..AuthInfo::default()
    };
    Ok(config)
}

fn authorities(settings: &Settings) -> Result<Option<Vec<Vec<u8>>>, Error> {
    let (pem, source) = match (&settings.ca_data, &settings.ca_file) {
        (Some(data), _) => (data.clone(), "the CA data".to_string()),
        (None, Some(file)) => (read(file)?, format!("the CA file {}", file.display())),
        (None, None) => return Ok(None),
    };
    let certificates: Result<Vec<_>, _> = rustls_pemfile::certs(&mut pem.as_slice()).collect();
    match certificates {
        Ok(list) if !list.is_empty() => Ok(Some(list.into_iter().map(|der| der.to_vec()).collect())),
        Ok(_) => Err(Error::Settings(format!("{source} holds no PEM certificate"))),
        Err(error) => Err(Error::Settings(format!("{source} is not PEM: {error}"))),
    }
}

struct Identity {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Certificate chain and key, each as PEM, from a directory; `None` while the directory holds none yet.
fn client_certificate(dir: &Path) -> Result<Option<Identity>, Error> {
    let combined = dir.join("ovnkube-client-current.pem");
    if combined.exists() {
        let text = String::from_utf8_lossy(&read(&combined)?).into_owned();
        let (key, certificate): (Vec<String>, Vec<String>) =
            pem_blocks(&text).into_iter().partition(|block| block.contains("PRIVATE KEY-----"));
        if key.is_empty() || certificate.is_empty() {
            let file = combined.display();
            return Err(Error::Settings(format!(
                "{file} must hold a certificate and its private key, both PEM"
            )));
        }
        return Ok(Some(Identity {
            certificate: certificate.concat().into_bytes(),
            key: key.concat().into_bytes(),
        }));
    }
    let (certificate, key) = (dir.join("tls.crt"), dir.join("tls.key"));
    if certificate.exists() && key.exists() {
        return Ok(Some(Identity { certificate: read(&certificate)?, key: read(&key)? }));
    }
    Ok(None)
}

fn pem_blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        if line.starts_with("-----BEGIN ") {
            block = Some(String::new());
        }
        if let Some(open) = &mut block {
            open.push_str(line);
            open.push('\n');
        }
        if line.starts_with("-----END ") {
            blocks.extend(block.take());
        }
    }
    blocks
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|error| Error::Settings(format!("cannot read {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_combined_pem_is_taken_apart() {
        let dir = tempfile::tempdir().unwrap();
        assert!(client_certificate(dir.path()).unwrap().is_none());
        let file = dir.path().join("ovnkube-client-current.pem");
        let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN EC PRIVATE KEY-----\nBBBB\n-----END EC PRIVATE KEY-----\n";
        std::fs::write(&file, format!("{certificate}{key}")).unwrap();
        let identity = client_certificate(dir.path()).unwrap().unwrap();
        assert_eq!(identity.certificate, certificate.as_bytes());
        assert_eq!(identity.key, key.as_bytes());
        std::fs::write(&file, certificate).unwrap();
        assert!(client_certificate(dir.path()).err().expect("no key").to_string().contains("private key"));
    }

    #[tokio::test]
    async fn unusable_settings_are_named() {
        for (settings, words) in [
            (Settings { apiserver: Some("host:1".into()), ..Settings::default() }, "not a URL"),
            (Settings { kubeconfig: Some("/nonexistent/k".into()), ..Settings::default() }, "/nonexistent/k"),
            (
                Settings {
                    apiserver: Some("https://127.0.0.1:1".into()),
                    ca_file: Some("/nonexistent/ca".into()),
                    ..Settings::default()
                },
                "/nonexistent/ca",
            ),
            (
                Settings {
                    apiserver: Some("https://127.0.0.1:1".into()),
                    ca_data: Some(b"nothing".to_vec()),
                    ..Settings::default()
                },
                "no PEM certificate",
            ),
        ] {
            let error = client(&settings).await.err().expect("must be refused").to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
