//! Certificate files as a configuration of rustls.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::TlsMaterial;
use crate::{Error, ErrorKind, Result};

impl TlsMaterial {
    /// The configuration of a client that trusts these authorities and shows this certificate. It brings its own cryptography (aws-lc), so the
    /// process's default is nobody's business here.
    ///
    /// # Errors
    /// `InvalidInput` if something is not PEM, or cannot be used.
    pub fn client_config(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(ca) => {
                for certificate in certificates(ca, "ca")? {
                    roots.add(certificate).map_err(|error| unusable("ca", &error.to_string()))?;
                }
            }
            // Some of what a system trusts may be unreadable; what is missing shows at the handshake.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("provider", &error.to_string()))?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable("key", &error.to_string()))?;
        builder
            .with_client_auth_cert(certificates(certificate, "cert")?, key)
            .map_err(|error| unusable("cert or key", &error.to_string()))
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(unusable(what, "there is no certificate in it")),
        Err(error) => Err(unusable(what, &error.to_string())),
    }
}

fn unusable(what: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, "use", format!("the {what} for TLS"), why)
}
