//! TLS of the metrics servers; the files are read again when they change, since certificates are renewed under us.

use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};
use tokio_rustls::TlsAcceptor;

/// Certificate chain and private key, in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Certificate, then those that signed it.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// How to speak TLS.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    /// What we show.
    pub files: TlsFiles,
    /// Refuse TLS 1.2.
    pub only_tls13: bool,
    /// Allowed cipher suites by their IANA names; empty allows all safe ones. Unknown names are passed over.
    pub cipher_suites: Vec<String>,
}

/// The TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or is no PEM of that kind.
    #[error("{}: {reason}; correct --node-server-cert or --node-server-privkey", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The parts do not go together.
    #[error("{0}; correct --node-server-cert, --node-server-privkey or --tls-cipher-suites")]
    Setup(String),
}

type Stamp = [Option<SystemTime>; 2];

pub(super) struct Acceptor {
    settings: TlsSettings,
    current: Mutex<(Stamp, TlsAcceptor)>,
}

impl Acceptor {
    pub(super) fn load(settings: TlsSettings) -> Result<Self, TlsError> {
        let current = Mutex::new((stamp(&settings.files), build(&settings)?));
        Ok(Self { settings, current })
    }

    /// The acceptor for the files as they are now; while new ones cannot be used, the last good one.
    pub(super) fn current(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(&self.settings.files);
        if stamp != current.0 {
            match build(&self.settings) {
                Ok(acceptor) => *current = (stamp, acceptor),
                // Renewal writes two files; between them they do not match. Try again at the next connection.
                Err(error) => tracing::warn!(%error, "keeping the old certificate"),
            }
        }
        current.1.clone()
    }
}

fn stamp(files: &TlsFiles) -> Stamp {
    [&files.certificate, &files.key].map(|path| fs::metadata(path).and_then(|m| m.modified()).ok())
}

fn build(settings: &TlsSettings) -> Result<TlsAcceptor, TlsError> {
    let file = |path: &Path, reason: String| TlsError::File { path: path.to_owned(), reason };
    let TlsFiles { certificate, key } = &settings.files;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|e| file(certificate, e.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| file(key, e.to_string()))?;

    const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
    let versions = if settings.only_tls13 { &BOTH[..1] } else { BOTH };
    let config = ServerConfig::builder_with_provider(Arc::new(provider(&settings.cipher_suites)))
        .with_protocol_versions(versions)
        .map_err(|e| TlsError::Setup(e.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| TlsError::Setup(e.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn provider(names: &[String]) -> CryptoProvider {
    let mut provider = ring::default_provider();
    // IANA writes TLS_AES_…, rustls TLS13_AES_…. The suites of TLS 1.3 cannot be chosen in Go either: they stay.
    let wanted = |suite: &rustls::SupportedCipherSuite| {
        let name = format!("{:?}", suite.suite());
        name.starts_with("TLS13_") || names.contains(&name)
    };
    if !names.is_empty() {
        provider.cipher_suites.retain(wanted);
    }
    provider
}
