//! Asking a server that has just been started whether it is ready.

use std::{io, net::TcpStream, sync::Arc};

use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};

/// Asks `/readyz` over TLS on a connected socket; the error tells what the server or the connection said.
pub(super) async fn ask(stream: TcpStream, server: &str, ca_pem: &str, token: &str) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    stream.set_nonblocking(true).map_err(|e| told(&e))?;
    let stream = tokio::net::TcpStream::from_std(stream).map_err(|e| told(&e))?;
    let name = ServerName::try_from(server.to_owned()).map_err(|e| told(&e))?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(trust(ca_pem).map_err(|e| told(&e))?));
    let stream = connector.connect(name, stream).await.map_err(|e| told(&e))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| told(&e))?;
    let request = http::Request::get("/readyz")
        .header(http::header::HOST, server)
        .header(http::header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Empty::<bytes::Bytes>::new())
        .map_err(|e| told(&e))?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
    };
    // The connection has to be driven while its answer is awaited.
    let answer = tokio::select! {
        answer = answer => answer,
        ended = connection => return Err(ended.err().map_or_else(|| "closed".to_owned(), |e| told(&e))),
    };
    match answer.map_err(|e| told(&e))? {
        (http::StatusCode::OK, _) => Ok(()),
        (status, body) => Err(format!("{status}: {}", String::from_utf8_lossy(&body).trim())),
    }
}

/// TLS that trusts the given CA and nobody else.
fn trust(ca_pem: &str) -> io::Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
