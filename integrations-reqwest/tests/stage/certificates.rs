//! An authority that certifies the tests' servers and clients.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// The authority's own certificate.
    pub(crate) fn root(&self) -> reqwest::Certificate {
        reqwest::Certificate::from_der(self.issuer.der()).unwrap()
    }

    fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (CertificateDer<'static>, KeyPair, String) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), key, certificate.pem())
    }

    /// What a server of this name needs; with `mutual`, it takes clients of this authority only.
    pub(crate) fn server(&self, name: &str, mutual: bool) -> ServerConfig {
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(self.issuer.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let (certificate, key, _) = self.issue(name, ExtendedKeyUsagePurpose::ServerAuth);
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        builder.with_single_cert(vec![certificate], key).unwrap()
    }

    /// A client's certificate with its key.
    pub(crate) fn identity(&self, name: &str) -> reqwest::Identity {
        let (_, key, pem) = self.issue(name, ExtendedKeyUsagePurpose::ClientAuth);
        reqwest::Identity::from_pem(format!("{pem}{}", key.serialize_pem()).as_bytes()).unwrap()
    }
}
