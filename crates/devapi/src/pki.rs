//! The private CA and server certificate of one server.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// What a server needs to speak TLS and a client to trust it.
pub(crate) struct Pki {
    pub(crate) ca_pem: String,
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Pki {
    /// A fresh CA and a certificate for `names` (DNS names and addresses).
    pub(crate) fn new(names: &[String]) -> Result<Self, rcgen::Error> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "devapi-ca");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let ca_certificate = ca.self_signed(&ca_key)?;
        let issuer = Issuer::new(ca, ca_key);

        let key = KeyPair::generate()?;
        let mut server = CertificateParams::new(names.to_vec())?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = server.signed_by(&key, &issuer)?;
        Ok(Self {
            ca_pem: ca_certificate.pem(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        })
    }

    /// Server side TLS with HTTP/2 and HTTP/1.1 offered.
    pub(crate) fn server_config(&self) -> Result<rustls::ServerConfig, rustls::Error> {
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Names every API server certificate carries, plus the given addresses.
pub(crate) fn default_names(addresses: impl IntoIterator<Item = IpAddr>) -> Vec<String> {
    let mut names: Vec<String> =
        ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
            .map(String::from)
            .to_vec();
    names.push("kubernetes.default.svc.cluster.local".into());
    for address in addresses {
        let text = address.to_string();
        if !names.contains(&text) {
            names.push(text);
        }
    }
    names
}
