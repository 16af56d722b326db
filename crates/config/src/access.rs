//! How to reach the Kubernetes API.

use crate::{Source, codec::Secret, error::ConfigError, options::Kubernetes, values::Values};
use base64::Engine;
use std::path::PathBuf;

/// Address and credentials of the API server.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiAccess {
    /// Everything is in this kubeconfig.
    Kubeconfig(PathBuf),
    /// The parts are given.
    Server {
        /// URL of the API server.
        url: String,
        /// Certificates (PEM) that the server's is checked against; none means those of the system.
        ca_pem: Option<Vec<u8>>,
        /// A fixed bearer token.
        token: Option<Secret>,
        /// File with a bearer token that may change; unused where `token` is given.
        token_file: Option<PathBuf>,
    },
}

impl ApiAccess {
    pub(crate) fn read(
        source: &Source<'_>,
        settings: &Kubernetes,
        values: &Values,
    ) -> Result<Self, ConfigError> {
        let readable = |name: &str, path: &PathBuf| {
            (source.read_file)(path)
                .map_err(|e| values.bad(name, format!("cannot be read: {e}; correct the path")))
        };
        if let Some(path) = &settings.kubeconfig {
            readable("k8s-kubeconfig", path)?;
            return Ok(Self::Kubeconfig(path.clone()));
        }
        let url = settings.apiserver.trim().trim_end_matches('/').to_owned();
        let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        if host.is_none_or(|h| h.is_empty() || h.starts_with('/') || h.chars().any(char::is_whitespace)) {
            return Err(values.bad("k8s-apiserver", "is not a URL; write https://HOST:PORT"));
        }
        let ca_pem = match (&settings.cacert_data, &settings.cacert) {
            (Some(data), _) => {
                let text: String = data.expose().split_whitespace().collect();
                let pem = base64::engine::general_purpose::STANDARD.decode(text);
                Some(pem.map_err(|e| values.bad("k8s-cacert-data", format!("is not base64 of PEM: {e}")))?)
            }
            (None, Some(path)) => Some(readable("k8s-cacert", path)?),
            (None, None) => None,
        };
        if ca_pem.as_ref().is_some_and(|pem| !pem.windows(10).any(|w| w == b"-----BEGIN")) {
            let name = if settings.cacert_data.is_some() { "k8s-cacert-data" } else { "k8s-cacert" };
            return Err(
                values.bad(name, "holds no PEM certificate; give the CA certificate of the API server")
            );
        }
        let token_file = settings.token_file.clone().filter(|_| settings.token.is_none());
        if let Some(path) = &token_file {
            readable("k8s-token-file", path)?;
        }
        Ok(Self::Server { url, ca_pem, token: settings.token.clone(), token_file })
    }
}
