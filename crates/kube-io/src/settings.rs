//! Where the API server is and who we are to it.

use std::path::PathBuf;

/// How to reach the API server. Sources in the order they are tried: `kubeconfig`, `apiserver`, and, with
/// neither, the service account of the pod we run in.
#[derive(Clone)]
pub struct Settings {
    /// A kubeconfig file; its current context is used.
    pub kubeconfig: Option<PathBuf>,
    /// `https://host:port` or `http://host:port`.
    pub apiserver: Option<String>,
    /// Bearer token.
    pub token: Option<String>,
    /// File with a bearer token, read again when it changes (service account tokens rotate). Wins over `token` when both are given.
    pub token_file: Option<PathBuf>,
    /// PEM file of the authorities that may sign the API server's certificate.
    pub ca_file: Option<PathBuf>,
    /// The same inline, PEM. Wins over `ca_file`.
    pub ca_data: Option<Vec<u8>>,
    /// Directory with a client certificate: `ovnkube-client-current.pem` (certificate and key in one file) or
    /// `tls.crt` and `tls.key`. Taken up again when the files change.
    pub cert_dir: Option<PathBuf>,
    /// Component name on Events, e.g. `controlplane`.
    pub component: String,
    /// Host named on Events; may be empty.
    pub host: String,
    /// How many writes may be in flight at once.
    pub writes_in_flight: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            apiserver: None,
            token: None,
            token_file: None,
            ca_file: None,
            ca_data: None,
            cert_dir: None,
            component: "ovnkube".to_string(),
            host: String::new(),
            writes_in_flight: 64,
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("kubeconfig", &self.kubeconfig)
            .field("apiserver", &self.apiserver)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("token_file", &self.token_file)
            .field("ca_file", &self.ca_file)
            .field("cert_dir", &self.cert_dir)
            .field("component", &self.component)
            .finish_non_exhaustive()
    }
}
