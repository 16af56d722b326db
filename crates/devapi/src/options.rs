//! How to start a server.

use std::net::{IpAddr, SocketAddr, TcpListener};

use ipnet::IpNet;

/// Settings of one server.
pub struct Options {
    /// Bound socket to serve on; it may live in another network namespace.
    pub listener: TcpListener,
    /// Address clients use, where it differs from the listener's own (wildcard listeners).
    pub advertise: Option<SocketAddr>,
    /// Serve TLS with a private CA made at start; `None` serves plain HTTP.
    pub tls: Option<Tls>,
    /// Bearer tokens of the administrator; `None` lets anybody in as one. Service accounts get theirs from the API, and
    /// may do what RBAC allows them.
    pub tokens: Option<Vec<String>>,
    /// Ranges cluster IPs are taken from, the primary family first.
    pub service_cidrs: Vec<IpNet>,
    /// Endpoint of the Service `default/kubernetes`; default is the advertised address.
    pub kubernetes_endpoint: Option<SocketAddr>,
    /// Bind pods without a node to Ready nodes in turn.
    pub schedule: bool,
    /// How many changes a resource remembers for watches that resume; older ones get 410 Gone.
    pub history: usize,
}

/// Subject alternative names of the server certificate, besides the listener's address, `localhost`,
/// `kubernetes.default.svc` and the first address of each service range.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// DNS names or IP addresses.
    pub names: Vec<String>,
}

impl Options {
    /// TLS, one random token, service range 10.96.0.0/16, no scheduler.
    pub fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            advertise: None,
            tls: Some(Tls::default()),
            tokens: Some(vec![crate::identity::random_token()]),
            service_cidrs: vec![IpNet::from(ipnet::Ipv4Net::new_assert([10, 96, 0, 0].into(), 16))],
            kubernetes_endpoint: None,
            schedule: false,
            history: 10_000,
        }
    }

    /// The address clients are told to use.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        if let Some(address) = self.advertise {
            return Ok(address);
        }
        let mut address = self.listener.local_addr()?;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        Ok(address)
    }
}
