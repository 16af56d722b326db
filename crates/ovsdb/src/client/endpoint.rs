//! Where a server is.

use std::{fmt, path::PathBuf, str::FromStr};

/// The address of an OVSDB server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket: `unix:PATH`.
    Unix(PathBuf),
    /// TCP: `tcp:HOST:PORT`, an IPv6 address in brackets.
    Tcp(String, u16),
    /// TLS over TCP: `ssl:HOST:PORT`.
    Ssl(String, u16),
}

/// PEM files for `ssl` endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Our private key.
    pub private_key: PathBuf,
    /// Our certificate, with intermediate ones if any.
    pub certificate: PathBuf,
    /// The authorities that the server's certificate must come from.
    pub ca: PathBuf,
    /// Also require that the certificate names the host connected to. OVN's own programs do not, and the
    /// certificates they are given often name no host.
    pub check_host_name: bool,
}

/// A text that names no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a database address: expected unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT")]
pub struct EndpointError(String);

// === impl Endpoint ===

impl Endpoint {
    /// Several addresses, separated by commas.
    pub fn parse_list(text: &str) -> Result<Vec<Endpoint>, EndpointError> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::parse).collect()
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let error = || EndpointError(text.to_owned());
        let (scheme, rest) = text.split_once(':').ok_or_else(error)?;
        if scheme == "unix" {
            return if rest.is_empty() { Err(error()) } else { Ok(Endpoint::Unix(rest.into())) };
        }
        let (host, port) = rest.rsplit_once(':').ok_or_else(error)?;
        let port = port.parse().map_err(|_| error())?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or_else(error)?,
            None if host.contains(':') => return Err(error()),
            None => host,
        };
        if host.is_empty() {
            return Err(error());
        }
        match scheme {
            "tcp" => Ok(Endpoint::Tcp(host.to_owned(), port)),
            "ssl" => Ok(Endpoint::Ssl(host.to_owned(), port)),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Endpoint::Unix(path) => return write!(f, "unix:{}", path.display()),
            Endpoint::Tcp(host, port) => ("tcp", host, port),
            Endpoint::Ssl(host, port) => ("ssl", host, port),
        };
        if host.contains(':') {
            write!(f, "{scheme}:[{host}]:{port}")
        } else {
            write!(f, "{scheme}:{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for text in
            ["unix:/run/ovn/ovnnb_db.sock", "tcp:127.0.0.1:6641", "ssl:[fd00::1]:6641", "ssl:db.example:6641"]
        {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        for bad in ["", "unix:", "tcp:1.2.3.4", "tcp::6641", "ssl:fd00::1:6641", "http:a:1", "tcp:a:70000"] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
        let list = Endpoint::parse_list("tcp:10.0.0.1:6641, tcp:10.0.0.2:6641").unwrap();
        assert_eq!(list, [Endpoint::Tcp("10.0.0.1".into(), 6641), Endpoint::Tcp("10.0.0.2".into(), 6641)]);
    }
}
